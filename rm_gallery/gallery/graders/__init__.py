"""Ready-made graders: a rubric file in `rubrics/FAMILY/` for each one a model judges, classes in
the modules here, and every rule among the rewards.

`from rm_gallery.gallery.graders import ToolSelectionGrader` works for each of them.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from rm_gallery.core.graders.base import graders_in
from rm_gallery.core.graders.common import class_name, grader_of_file
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.file import read_file
from rm_gallery.gallery.rm import JUDGED_MODULE, discover

RUBRICS = Path(__file__).parent / "rubrics"


@cache
def wording() -> dict[str, Any]:
    """What judges are told that no rubric says, and classes of rules not called after their reward."""
    told: dict[str, Any] = read_file(Path(__file__).with_name("texts.yaml"))
    return told


@cache
def graders() -> dict[str, str | type[BaseReward]]:
    """Every ready-made grader by its registered name, sorted: a class, or of a rule where it is."""
    classes: dict[str, str | type[BaseReward]] = {
        path.stem: grader_of_file(path, __name__) for path in sorted(RUBRICS.rglob("*.yaml"))
    }
    rewards = discover()
    classes |= {name: rewards[name] for name in _rules().values()}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        classes |= graders_in(module.name)
    return dict(sorted(classes.items()))


@cache
def _rules() -> dict[str, str]:
    """The rules among the rewards, by the name of the class of graders."""
    return {
        wording()["names"].get(name) or class_name(name.removesuffix("_reward")): name
        for name, target in discover().items()
        if not target.startswith(JUDGED_MODULE) and not name.endswith(":")
    }


def __getattr__(name: str) -> Any:
    if name.endswith("Grader"):
        if name in _rules():
            return RewardRegistry.get(_rules()[name])
        for kind in graders().values():
            if isinstance(kind, type) and kind.__name__ == name:
                return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
