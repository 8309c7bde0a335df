"""What is left out of a call: the defaults of every constructor and door of rewards, graders and the runner, as the golden lines have it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rm_gallery.core.graders.bridge import RewardGrader
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.reward.registry import RewardRegistry
from tests.golden import golden


def plain(value: Any) -> Any:
    return (
        value
        if isinstance(value, (int, float, str, list, tuple, dict, type(None)))
        else repr(value).partition(" at 0x")[0]
    )


def answer(line: golden.Line) -> golden.Line:
    """The defaults of `module:name`, of a grader or of a reward: fields of a model, parameters of anything else."""
    if "grader" in line:
        found: Any = GraderRegistry.get(line["grader"])
    elif "reward" in line:
        found = RewardRegistry.get(line["reward"])
    else:
        module, _, name = line["of"].partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    if isinstance(found, type) and issubclass(found, BaseModel):
        fields = {name: info for name, info in found.model_fields.items() if not info.is_required()}
        return {"defaults": {name: plain(info.get_default(call_default_factory=True)) for name, info in fields.items()}}
    parameters = inspect.signature(found).parameters.values()
    return {"defaults": {p.name: plain(p.default) for p in parameters if p.default is not p.empty}}


@pytest.mark.parametrize("path", golden.files("defaults"))
def test_defaults(path: Path) -> None:
    golden.check(path, answer, ("defaults",))


def test_everything_registered_has_its_line() -> None:
    kinds = {name: GraderRegistry.get(name) for name in GraderRegistry.list()}
    graders = {name for name, kind in kinds.items() if not issubclass(kind, RewardGrader)}
    rewards = {name for name in RewardRegistry.list() if RewardRegistry.get(name).judged}
    seen = [line for path in golden.HERE.glob("defaults/*.jsonl") for _, line in golden.lines(path)]
    missing = graders - {line.get("grader") for line in seen} | rewards - {line.get("reward") for line in seen}
    assert missing == set(), 'add a line to tests/golden/defaults, such as {"grader": NAME}, and run `make golden`'
