"""Which models a reward or grader asks, and what it touches of the machine: itself, in its parts and
settings, and in what its function holds.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from rm_gallery.core.reward.job import AnyReward, Touches
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.utils.errors import Inapplicable
from rm_gallery.core.utils.identity import given_to, is_users
from rm_gallery.core.utils.models import Configured

if TYPE_CHECKING:
    from rm_gallery.core.data.schema import DataSample
    from rm_gallery.core.model.base import BaseLLM

V = TypeVar("V")
SERVERS = frozenset({"server", "reward_server"})
"""Needs of rewards whose model answers behind a server that is no chat endpoint."""
_FAR = 2000
"""Objects that are looked at: a function may hold a whole network."""
_HOLDS_NOTHING = (NoneType, str, int, float, bytes, type)
_MOST = 256
"""Items of a container that are looked at: a vocabulary of a million words is no place for judges.
"""


def is_reward(value: object) -> bool:
    """Whether it is a reward or grader, for modules that every reward is made of."""
    return isinstance(type(value), RewardMeta)


class Slot(NamedTuple):
    """A place of a reward, grader or function at which a model judges."""

    of: Any
    """The reward or grader, or the model where anything else holds it."""
    judge: BaseLLM | None
    """Who judges; None where nobody does yet, or nobody can tell who."""
    empty: str = ""
    """The field for a judge that nobody has filled yet."""


def judges_of(scorer: Any, *, code: bool = True) -> Iterator[Slot]:
    """Who judges in a reward or grader, itself first, then its parts and settings; with `code` also
    in what its functions hold.
    """
    for one in _held(scorer, code):
        if _is_model(one):
            yield Slot(one, one)
        elif is_reward(one):
            judge, empty = getattr(one, "llm", None), _empty_field(one)
            if judge is not None or empty or _declares_model(one):
                yield Slot(one, judge, empty)


def asks_a_model(scorer: Any) -> bool:
    """Whether a model outside this process judges for a reward or grader, at any depth, as far as
    can be known.

    Known are models and rewards in its settings and parts, and those that its function closes over,
    defaults to, or reads from its module. A client of another library in a function is not.
    """
    if isinstance(scorer, type):
        return isinstance(scorer, RewardMeta) and _declares_model(scorer)
    return any(slot.judge is not None or _declares_model(slot.of) for slot in judges_of(scorer))


def models_of(scorer: Any) -> list[BaseLLM]:
    """The different models that a reward or grader asks, in the order in which they are met; as far
    as `asks_a_model` knows.
    """
    met: dict[tuple[str, Any], BaseLLM] = {}
    for _, judge, _ in judges_of(scorer):
        if judge is not None:
            met.setdefault((judge.model, judge.endpoint_key()), judge)
    return list(met.values())


def touched_by(scorer: Any) -> Touches:
    """What a reward or grader and all its parts touch of the machine, by what each declares."""
    found: dict[Any, tuple[str, ...]] = {}
    for one in _held(scorer):
        if is_reward(one):
            for kind, fields in one.touches.items():
                found[kind] = tuple(sorted({*found.get(kind, ()), *fields}))
    return found


def most_calls(reward: AnyReward, sample: DataSample) -> int:
    """The most calls of a model that judging a sample plans, before anything is asked again; 0 for
    a rule.
    """
    times, composed = reward.asked_times, cast(Any, reward)
    if reward.made_of_parts:
        return times * sum(most_calls(part, sample) for part in composed.parts().values())
    models = max(1, len(models_of(reward))) if asks_a_model(reward) else 0
    return len(reward.kind.jobs(reward, sample)) * times * models


def lacking(value: Any) -> list[str]:
    """The names of the rewards and graders in a value, at any depth, that are judged by a model and
    have none yet.
    """
    return [slot.of.name for slot in judges_of(value, code=False) if slot.empty]


def with_judge(value: V, llm: BaseLLM) -> V:
    """The value with this judge wherever one is lacking, as a copy; what has a judge keeps it."""
    changed = {
        key: inner
        for key, old in _settings(value).items()
        if (inner := with_judge(old, llm)) is not old
    }
    if is_reward(value) and (field := _empty_field(value)):
        changed[field] = llm
    if not changed:
        return value
    if isinstance(value, Configured):
        return value.model_copy(update=changed)
    filled: Any = {**_settings(value), **changed}
    return filled if isinstance(value, dict) else type(value)(filled.values())  # type: ignore[call-arg]


def resolved_judge(value: V, llm: Any, base_url: str | None, name: str) -> V:
    """The value with the judge that was named; as it is where none was.

    Raises:
        Inapplicable: a judge is named and nothing in the value lacks one.
    """
    if llm is None and not base_url:
        return value
    if not lacking(value):
        raise given_in_vain({name: value})
    if llm is None or llm == "":
        raise Inapplicable(
            f"{name}: base_url names an endpoint and no model; name the judge with --llm MODEL "
            f"(llm=).",
            "base_url",
        )
    return with_judge(value, named_judge(llm, base_url))


def named_judge(llm: Any, base_url: str | None) -> BaseLLM:
    """The model that was named, at its endpoint."""
    from rm_gallery.core.model.base import resolve_llm

    return resolve_llm(llm, **({"base_url": base_url} if base_url else {}))


def given_in_vain(scorers: Mapping[str, Any]) -> Inapplicable:
    """Why a judge cannot be named for these: one has been given its own, or none calls a model."""
    what = f"{', '.join(scorers)} {'calls' if len(scorers) == 1 else 'call'} no model"
    for name, scorer in scorers.items():
        if asks_a_model(scorer):
            known = ", ".join(model.model for model in models_of(scorer))
            what = f"{name} asks {known or 'a model'} already, named where it is made"
            break
    return Inapplicable(f"{what}; leave out --llm and --base-url.", "llm", "base_url")


def _empty_field(scorer: Any) -> str:
    """The field for a judge that is empty; none where the scorer has no such field or has its
    judge.
    """
    fields = type(scorer).model_fields
    field = "llm" if "llm" in fields or "llm" not in getattr(scorer, "needs", ()) else "model"
    return field if field in fields and getattr(scorer, field) is None else ""


def _declares_model(scorer: Any) -> bool:
    """Whether a reward or grader, or its class, says that a model judges."""
    judged: bool = getattr(scorer, "judged", False)
    return judged or bool(getattr(scorer, "needs", frozenset()) & SERVERS)


def _is_model(value: Any) -> bool:
    # where it was never imported nobody has a model
    base = sys.modules.get("rm_gallery.core.model.base")
    return base is not None and isinstance(value, base.BaseLLM)


def _settings(value: Any) -> Mapping[Any, Any]:
    """What a value holds by field, key or place: of a reward, its parts and settings."""
    if isinstance(value, Configured) and not _is_model(value):
        fields = type(value).model_fields
        return {name: item for name, item in vars(value).items() if name in fields}
    if isinstance(value, dict | list | tuple) and len(value) <= _MOST:
        return value if isinstance(value, dict) else dict(enumerate(value))
    return {}


def _held(value: Any, code: bool = True, seen: set[int] | None = None) -> Iterator[Any]:
    """Everything a value holds that may ask a model, itself first, each once; without `code` only
    what a judge can be given to.
    """
    seen = set() if seen is None else seen
    if isinstance(value, _HOLDS_NOTHING) or id(value) in seen or len(seen) > _FAR:
        return
    seen.add(id(value))
    yield value
    inner = list(_settings(value).values())
    if not code or _is_model(value):
        pass
    elif isinstance(value, FunctionType):
        inner += _of_function(value)
    elif inspect.ismethod(value):
        inner += [value.__self__, value.__func__]
    elif isinstance(value, partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif not inner and (
        is_users(module := type(value).__module__) or module.startswith("rm_gallery.")
    ):
        # an environment, or what @reward_function made
        inner = list(getattr(value, "__dict__", {}).values())
    for each in inner:
        yield from _held(each, code, seen)


def _of_function(function: FunctionType) -> list[Any]:
    """What a function can reach: its closure, its defaults, and names of its module that it uses."""
    used = [function.__globals__.get(name) for name in function.__code__.co_names]
    # a helper of the same file may ask the judge; what is imported from elsewhere is not followed
    followed = [
        one
        for one in used
        if not inspect.ismodule(one)
        and (not isinstance(one, FunctionType) or one.__module__ == function.__module__)
    ]
    return [*given_to(function).values(), *followed]
