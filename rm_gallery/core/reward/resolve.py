"""Which reward is meant: the one place that knows how a reward may be spelled.

A text is a name, and `RewardRegistry` knows its prefix (`PREFIXES`), FILE and FILE:NAME; what an
object stands for is in `SPELLINGS`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.reward.function import RewardFunction, class_of_built
from rm_gallery.core.reward.judges import given_in_vain, lacking, named_judge, resolved_judge
from rm_gallery.core.reward.python_files import load_module, split_target
from rm_gallery.core.reward.registry import RewardRegistry, weight_behind
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.rule import rule_class_of
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.names import unknown_name

if TYPE_CHECKING:
    from rm_gallery.core.model.base import BaseLLM

ENVIRONMENTS = "rm_gallery.envs.environment"
"""Makes a reward of an object with `compute_reward`; looked up when it is asked for, since it stands
above.
"""
HOOKS = ("compute_reward", "compute_group_reward")
KINDS = "a class with compute_reward, a @reward_function, a reward class or a built reward"


class Spelling(NamedTuple):
    """A kind of thing that stands for a reward."""

    recognised: Callable[[Any], bool]
    made: Callable[[Any], Any]
    """The reward where it is built, else the class that makes it."""


SPELLINGS = {
    "reward": Spelling(lambda value: isinstance(value, BaseReward), lambda reward: reward),
    "environment": Spelling(
        lambda value: (
            any(callable(getattr(value, name, None)) for name in HOOKS)
            and not isinstance(value, RewardFunction)
        ),
        lambda env: importlib.import_module(ENVIRONMENTS).class_of(env),
    ),
    "class": Spelling(
        lambda value: isinstance(value, type) and issubclass(value, BaseReward), lambda kind: kind
    ),
    "rule": Spelling(lambda value: rule_class_of(value) is not None, rule_class_of),
    "reward function": Spelling(
        lambda value: isinstance(value, RewardFunction), lambda function: function.reward_class()
    ),
    "function": Spelling(
        inspect.isroutine, lambda function: RewardFunction(function).reward_class()
    ),
}
"""The objects that stand for a reward; the first that recognises one counts."""
ALONE = ("rule", "function")
"""What of a file is meant only where it holds nothing else, or by its name: a rule's class stands
beside it, and any helper is a function.
"""


def spelling_of(value: Any) -> str:
    """Which of `SPELLINGS` a value is; empty for what is no reward."""
    return next((kind for kind, one in SPELLINGS.items() if one.recognised(value)), "")


def meant_by(value: Any) -> Any:
    """What a name or an object stands for: a built reward, or a class of rewards.

    Raises ConfigError for what is none.
    """
    if isinstance(value, str):
        return RewardRegistry.get(value)
    if kind := spelling_of(value):
        return SPELLINGS[kind].made(value)
    raise ConfigError(
        f"reward is {value!r:.80}; give a registered name, or a reward or its class: a class "
        f"derived from a kind such as BasePointWiseReward, with _evaluate(sample, **kwargs)."
    )


def resolve(
    spec: object,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    seed: int = 0,
) -> BaseReward:
    """The reward that `spec` stands for; a judge is only ever the one that was named.

    Args:
        spec: a name (registered, of a grader, FILE or FILE:NAME, or with a prefix such as
            `bt:DIR`), a reward or its class, a grader, what `@reward_function` made, an object with
            `compute_reward` or `compute_group_reward`, or a plain function of `messages`.
        params: constructor fields.
        llm: the judge: a model, its name or its settings.
        base_url: its endpoint.
        seed: for rewards that have one, unless params name it.

    A reward that is built already takes the judge where it, or a part of it, has none yet.

    Raises:
        ConfigError: the name is unknown, nothing of the kinds above was given, a parameter does not
            exist, or a judge is missing or given in vain.
    """
    made, given = meant_by(spec), llm is not None or bool(base_url)
    if isinstance(made, BaseReward):
        if params or (given and not lacking(made)):
            raise ConfigError(
                f"{made.name} is built already; give params, llm and base_url where it is made."
            )
        return resolved_judge(made, llm, base_url, made.name)
    name = spec if isinstance(spec, str) else made.__name__
    settings, known = dict(params or {}), _known_of(made)
    own_judge = "llm" in settings or ("llm" in made.needs and "model" in settings)
    if not asks_for_judge(made):
        if given:
            raise given_in_vain({name: known})
    elif own_judge and given:
        raise Inapplicable(
            "--param llm=… names the judge already; leave out --llm and --base-url.",
            "llm",
            "base_url",
        )
    elif not own_judge and not llm:
        raise ConfigError(
            f"{name} is judged by a model and none is named; say which with --llm MODEL (llm=)."
        )
    if known is made and llm is not None:
        settings["llm"] = named_judge(llm, base_url)
    if "seed" in made.model_fields:
        settings.setdefault("seed", seed)
    built: BaseReward = made(**settings)
    return built if known is made else resolved_judge(built, llm, base_url, name)


def as_part(value: Any) -> BaseReward:
    """As `resolve`, but what is judged by a model has no judge yet: who uses the whole names one,
    or its first use is refused.
    """
    made = meant_by(value)
    return made() if isinstance(made, type) and asks_for_judge(made) else resolve(made)


def _known_of(spec: object) -> Any:
    """What is known of a name or class before it is built: the reward, function or environment it
    stands for, else the class.
    """
    known = RewardRegistry.get(spec) if isinstance(spec, str) else spec
    return getattr(known, "stands_for", known)


def asks_for_judge(spec: object) -> bool:
    """Whether this is something that `resolve` takes an `llm` for: a name or class, or what was
    built without its judge.
    """
    known = _known_of(spec)
    if not isinstance(known, type):
        return bool(lacking(known))
    return "llm" in getattr(known, "model_fields", ()) or "llm" in getattr(known, "needs", ())


def judges_for(rewards: Sequence[object], llm: Any, base_url: str | None) -> list[dict[str, Any]]:
    """For each of several rewards the judge as keywords of `resolve`: the one given, for those that
    ask for one.

    Raises ConfigError where one is given and none of them asks.
    """
    judge = {"llm": llm, "base_url": base_url}
    given = [judge if asks_for_judge(reward) else {} for reward in rewards]
    if rewards and not any(given) and (llm is not None or base_url):
        raise given_in_vain({_name_of(reward): _known_of(reward) for reward in rewards})
    return given


def _name_of(reward: Any) -> str:
    if isinstance(reward, str):
        return reward
    return str(getattr(reward, "__name__", getattr(reward, "name", type(reward).__name__)))


# -- files and modules -----------------------------------------------------------------------------


def class_of_environment_named(target: str) -> type[BaseReward]:
    """What `env:FILE:CLASS` or `env:package.module:CLASS` stands for."""
    return class_named(target, "env:")


def class_named(target: str, scheme: str = "func:") -> type[BaseReward]:
    """The class of rewards that `FILE:NAME` or `package.module:NAME` names.

    It may be a reward function, a plain function, a reward class, a built reward or grader, or an
    environment.

    Args:
        target: what stands after the scheme. Without NAME it is the file's only reward; of several,
            the only reward function, after `env:` the only environment; of none, the only plain
            function.
        scheme: the prefix it was given with.

    Raises:
        ConfigError: the file cannot be loaded, it holds no such reward, or several and none is
            named.
    """
    if weight := weight_behind(target):
        raise ConfigError(weight)
    where, name = split_target(target)
    module = load_module(where)
    held = {
        key: kind
        for key, value in vars(module).items()
        if (kind := spelling_of(value)) and _is_own(kind, value, module.__name__)
    }
    rewards = [key for key, kind in held.items() if kind not in ALONE]
    functions = [key for key, kind in held.items() if kind in ALONE and key[0] != "_"]
    if not name:
        meant = "environment" if scheme == "env:" else "reward function"
        candidates = [key for key in rewards if held[key] == meant]
        if len(candidates) != 1:
            candidates = rewards or (functions if scheme != "env:" else [])
        if len(candidates) != 1:
            holding = f"it holds {', '.join(sorted(candidates)) or 'none'}"
            full = where if where.endswith(".py") else f"{scheme}{where}"
            raise ConfigError(
                f"{where}: say which reward is meant ({KINDS}), as in {full}:NAME; {holding}."
            )
        (name,) = candidates
    value = getattr(module, name, None)
    if value is None:
        raise ConfigError(
            f"{target}: {unknown_name(f'reward in {where}', name, rewards + functions)}"
        )
    if not spelling_of(value):
        raise ConfigError(f"{target}: {name} is a {type(value).__name__} and no reward: {KINDS}.")
    made = meant_by(value)
    return class_of_built(made) if isinstance(made, BaseReward) else made


def _is_own(kind: str, value: Any, module: str) -> bool:
    """Whether this is a reward of the file's own, and not one that it imports to build on."""
    written = getattr(value, "__module__", None) == module and not inspect.isabstract(value)
    return kind == "reward" or (written and (kind not in ALONE or inspect.isfunction(value)))


def cases_beside(name: str) -> Any:
    """The `CASES` of the file that a reward's name spells; None where there are none, or the name
    spells no file.
    """
    scheme, _, target = RewardRegistry.spelled(name).partition(":")
    in_file = target and scheme in ("func", "env")
    return getattr(load_module(split_target(target)[0]), "CASES", None) if in_file else None
