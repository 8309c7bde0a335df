"""What is left out of a call and how far a value may go: defaults and bounds of constructors, doors
and commands, as the golden lines have it.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from pydantic import BaseModel

from rm_gallery import BaseGrader, GraderRegistry, RewardRegistry
from tests.cli.test_every_command import commands
from tests.golden import golden

BOUNDS = ("gt", "ge", "lt", "le", "min_length", "max_length", "allow_inf_nan")


def plain(value: Any) -> Any:
    plain = isinstance(value, (int, float, str, list, tuple, dict, type(None)))
    return value if plain else repr(value).partition(" at 0x")[0]


def answer(_: str, line: golden.Line) -> golden.Line:
    """Of `module:name`, of a grader or of a reward, fields of a model or parameters of anything
    else; of a command, options.

    What is neither called nor made is a limit that a user meets, and is told as it is.
    """
    if "command" in line:
        options = commands()[line["command"]].params
        ends = {
            p.name: [getattr(getattr(p, "type", p), end, None) for end in ("min", "max")]
            for p in options
        }
        return {
            "defaults": {
                p.name: p.default for p in options if isinstance(p.default, (int, float, str))
            },
            "bounds": {name: found for name, found in ends.items() if found != [None, None]}
            or None,
        }
    if "grader" in line:
        found: Any = GraderRegistry.get(line["grader"])
    elif "reward" in line:
        found = RewardRegistry.get(line["reward"])
    else:
        module, _, name = line["of"].partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    if not callable(found):
        return {"is": plain(found)}
    if isinstance(found, type) and issubclass(found, BaseModel):
        fields = found.model_fields
        told = {
            name: [(k, getattr(m, k)) for m in i.metadata for k in BOUNDS if hasattr(m, k)]
            for name, i in fields.items()
        }
        return {
            "defaults": {
                n: plain(i.get_default(call_default_factory=True))
                for n, i in fields.items()
                if not i.is_required()
            },
            "bounds": {name: dict(pairs) for name, pairs in told.items() if pairs} or None,
        }
    parameters = inspect.signature(found).parameters.values()
    return {"defaults": {p.name: plain(p.default) for p in parameters if p.default is not p.empty}}


test_defaults = golden.runner("defaults", answer, "defaults", "bounds", "is")


def test_everything_registered_has_its_line() -> None:
    kinds = {name: GraderRegistry.get(name) for name in GraderRegistry.list()}
    graders = {name for name, kind in kinds.items() if issubclass(kind, BaseGrader)}
    rewards = {name for name in RewardRegistry.list() if RewardRegistry.get(name).judged}
    seen = [line for path in golden.HERE.glob("defaults/*.jsonl") for _, line in golden.lines(path)]
    told = {kind: {line.get(kind) for line in seen} for kind in ("grader", "reward", "command")}
    missing = (
        graders - told["grader"] | rewards - told["reward"] | set(commands()) - told["command"]
    )
    assert missing == set(), (
        'add a line to tests/golden/defaults, such as {"grader": NAME}, and run `make golden`'
    )
