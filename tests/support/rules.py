"""Rules of a test, which the registry does not go on holding: other tests look through all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rm_gallery import BaseReward, RewardRegistry, rule


def rule_class(name: str, function: Callable[..., Any], **how: Any) -> type[BaseReward]:
    """The class of rewards of a function under `@rule`."""
    rule(name, **how)(function)
    made: type[BaseReward] = RewardRegistry._classes.pop(name)
    return made
