"""Rewards in Python files and modules: what `func:FILE:NAME`, `FILE:NAME` and `FILE` name."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, TypeGuard

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.bridge import as_reward
from rm_gallery.core.reward.function import FunctionReward, RewardFunction, class_of_built
from rm_gallery.core.reward.python_files import load_module, split_target
from rm_gallery.core.reward.registry import IN_FILES, RewardRegistry, weight_behind
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.rule import rule_class_of
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

ENVIRONMENTS = "rm_gallery.envs.environment"
"""Makes a reward of an object with `compute_reward`; looked up when it is asked for, since it
stands above.
"""
HOOKS = ("compute_reward", "compute_group_reward")
KINDS = "a class with compute_reward, a @reward_function, a reward class or a built reward"


class FunctionOfName(FunctionReward):
    """What `func:FILE:NAME` and `func:package.module:NAME` stand for, see `class_named`."""

    @classmethod
    def of_name(cls, target: str) -> type[BaseReward]:
        """The class of rewards that the file or module holds under this name."""
        return class_named(target)


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
    held, own_module = vars(module), module.__name__
    there = [key for key, value in held.items() if _is_reward(value, own_module)]
    plain = [  # functions of the file's own that nobody decorated
        key
        for key, value in held.items()
        if inspect.isfunction(value) and value.__module__ == own_module and key[0] != "_"
    ]
    if not name:
        meant = _is_environment if scheme == "env:" else _is_function
        own = [key for key in there if meant(held[key])]
        own = own if len(own) == 1 else there or [key for key in plain if scheme != "env:"]
        if len(own) != 1:
            found = f"it holds {', '.join(sorted(own))}" if own else "it holds none"
            full = where if where.endswith(".py") else f"{scheme}{where}"
            raise ConfigError(
                f"{where}: say which reward is meant ({KINDS}), as in {full}:NAME; {found}."
            )
        (name,) = own
    kind = getattr(module, name, None)
    if kind is None:
        raise ConfigError(f"{target}: {unknown_name(f'reward in {where}', name, there + plain)}")
    made = reward_of(kind)
    if made is None:
        raise ConfigError(f"{target}: {name} is a {type(kind).__name__} and no reward: {KINDS}.")
    return class_of_built(made) if isinstance(made, BaseReward) else made


def reward_of(value: Any) -> type[BaseReward] | BaseReward | None:
    """What a Python object is as a reward: one that is built, or a class that makes it; None for
    what is no reward.
    """
    if isinstance(value, BaseReward | BaseGrader):
        return as_reward(value)
    if _is_environment(value):
        made: type[BaseReward] = importlib.import_module(ENVIRONMENTS).class_of(value)
        return made
    if isinstance(value, type) and issubclass(value, BaseReward):
        return value
    if (of_rule := rule_class_of(value)) is not None:
        return of_rule
    function = RewardFunction(value) if inspect.isroutine(value) else value
    return function.reward_class() if _is_function(function) else None


def cases_beside(name: str) -> Any:
    """The `CASES` of the file that a reward's name spells; None where there are none, or the name
    spells no file.
    """
    scheme, _, target = RewardRegistry.spelled(name).partition(":")
    return (
        getattr(load_module(split_target(target)[0]), "CASES", None)
        if target and f"{scheme}:" in IN_FILES
        else None
    )


def _is_function(value: Any) -> TypeGuard[RewardFunction[Any]]:
    return isinstance(value, RewardFunction)


def _is_environment(value: Any) -> bool:
    return not _is_function(value) and any(callable(getattr(value, name, None)) for name in HOOKS)


def _is_reward(value: Any, module: str) -> bool:
    """Whether this is a reward of the file's own, and not one that it imports to build on."""
    if isinstance(value, BaseReward | BaseGrader):
        return True
    function = _is_function(value)
    written = value if function or isinstance(value, type) else type(value)
    is_class = isinstance(value, type) and issubclass(value, BaseReward)
    return (
        (function or is_class or _is_environment(value))
        and written.__module__ == module
        and not inspect.isabstract(written)
    )
