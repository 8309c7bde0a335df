"""From a name, class, grader, function or object to the one reward it stands for: every door that scores starts here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.bridge import as_reward
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.providers import resolve_llm
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError

# Resolved when asked for: what is written as an object with compute_reward is the floor above's to know.
ENVIRONMENTS = "rm_gallery.envs.environment"


def build_reward(
    reward: object,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    seed: int = 0,
) -> BaseReward:
    """The reward that `reward` stands for; a judge is only ever the one that was named.

    Args:
        reward: a registered name (also `grader:NAME`, `bt:DIR`, `func:FILE:NAME`), a reward or its class, a grader, what
            `@reward_function` made, an object with `compute_reward` or `compute_group_reward`, or a plain function of
            `messages`.
        params: constructor fields.
        llm: the judge: a model, its name or its settings.
        base_url: its endpoint.
        seed: for rewards that have one, unless params name it.

    Raises:
        ConfigError: the name is unknown, nothing of the kinds above was given, a parameter does not exist, or a judge is
            missing or given in vain.
    """
    if isinstance(reward, BaseReward):
        if params or llm is not None or base_url:
            raise ConfigError(f"{reward.name} is built already; give params, llm and base_url where it is made.")
        return reward
    params = dict(params or {})
    if isinstance(reward, BaseGrader):
        return build_reward(as_reward(reward), params, llm, base_url, seed)
    reward_class: Any = RewardRegistry.get(reward) if isinstance(reward, str) else reward
    if not (isinstance(reward_class, type) and issubclass(reward_class, BaseReward)):
        return build_reward(_wrapped(reward, params), None, llm, base_url, seed)
    name = reward if isinstance(reward, str) else reward_class.__name__
    fields = reward_class.model_fields
    grader = getattr(reward_class, "grader_class", None)
    asks = asks_for_judge(reward_class)
    given = llm is not None or bool(base_url)
    if not asks:
        if given:
            raise ConfigError(f"{name} calls no model; leave out --llm and --base-url.")
    elif "llm" in params or (grader is not None and "model" in params):
        if given:
            raise ConfigError("--param llm=… names the judge already; leave out --llm and --base-url.")
    elif llm is None or llm == "":
        raise ConfigError(f"{name} is judged by a model and none is named; say which with --llm MODEL (llm=).")
    else:
        params["llm"] = resolve_llm(llm, **({"base_url": base_url} if base_url else {}))
    if "seed" in fields:
        params.setdefault("seed", seed)
    if isinstance(reward, str):
        return RewardRegistry.create(reward, **params)
    built: BaseReward = reward_class(**params)
    return built


def asks_for_judge(reward: object) -> bool:
    """Whether a name or class is one that `build_reward` needs an `llm` for; what is built has its judge already."""
    found: Any = RewardRegistry.get(reward) if isinstance(reward, str) else reward
    if not isinstance(found, type):
        return False
    grader = getattr(found, "grader_class", None)
    return "llm" in getattr(found, "model_fields", ()) or (grader is not None and "llm" in grader.needs)


def _wrapped(reward: Any, params: dict[str, Any]) -> BaseReward:
    """The reward of what is none itself: a reward function, an environment, a plain function."""
    if any(callable(getattr(reward, name, None)) for name in ("compute_reward", "compute_group_reward")):
        environment: BaseReward = importlib.import_module(ENVIRONMENTS).environment_reward(reward, **params)
        return environment
    if not callable(getattr(reward, "reward", None)) and inspect.isroutine(reward):
        reward = importlib.import_module("rm_gallery.core.reward.function").reward_function(reward)
    if not isinstance(reward, type) and callable(getattr(reward, "reward", None)):
        made: BaseReward = reward.reward(**params)
        return made
    kind = "a class derived from a kind such as BasePointWiseReward, with _evaluate(sample, **kwargs)"
    raise ConfigError(f"reward is {reward!r:.80}; give a registered name, or a reward or its class: {kind}.")
