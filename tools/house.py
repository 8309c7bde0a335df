"""The mass of the package and what must be read to follow one sample; neither may rise.

    python -m tools.house           prints the figures
    python -m tools.house --check   exits with 1 where one is higher than tools/house.json says
    python -m tools.house --write   stores today's figures

Mass is counted in AST nodes, statements and expressions: no width, wrap, rename or merged file
changes it. What must be read is the mass of the functions that one sample passes. Comprehensions
are part of the function they stand in.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

os.environ["RM_GALLERY_CACHE"] = "off"

import rm_gallery
from rm_gallery import DataSample, FakeLLM, RewardRegistry, evaluate
from rm_gallery.core.engine import loop as library_loop

PACKAGE = Path(rm_gallery.__file__).parent
TESTS = PACKAGE.parent / "tests"
STORED = Path(__file__).with_name("house.json")
SHAPES = (
    "RewardResult",
    "RewardDimensionWithScore",
    "RewardDimensionWithRank",
    "GraderScore",
    "GraderRank",
    "GraderError",
    "GraderResult",
    "EvaluateResult",
    "MetricResult",
)
"""Results as the founding documents shape them; one module is to know each."""
FOLLOWED = 25
"""On a busy machine a call may also wait and report: the shortest of so many is held."""

Call = Callable[[], object]
Figures = dict[str, int]


def nodes(tree: ast.AST) -> int:
    """Statements and expressions of a tree."""
    return sum(isinstance(node, ast.stmt | ast.expr) for node in ast.walk(tree))


@cache
def parsed(path: str) -> ast.Module:
    """A module's tree."""
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def floor_of(path: Path) -> str:
    """The floor a module stands on: `core/reward`, `study`, `face`."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[: 2 if parts[0] == "core" else 1][: len(parts) - 1]) or "face"


def name_of(node: ast.AST) -> str:
    """The name that a node uses or gives to a class; empty for any other."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return node.name if isinstance(node, ast.ClassDef) else ""


def mass() -> Figures:
    """Nodes of the package, of each floor, and modules that know each founding shape."""
    floors, knowing = Counter[str](), Counter[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = parsed(str(path))
        floors[floor_of(path)] += nodes(tree)
        knowing.update(set(map(name_of, ast.walk(tree))).intersection(SHAPES))
    return {
        "nodes": floors.total(),
        **{f"nodes of {floor}": count for floor, count in sorted(floors.items())},
        **{f"modules that know {shape}": knowing[shape] for shape in SHAPES},
    }


def tests() -> Figures:
    """Lines of the tests, and their import statements that reach behind the face."""
    lines = deep = 0
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        deep += len(re.findall(r"^\s*(?:from|import) rm_gallery\.\w+\.", text, re.MULTILINE))
    return {"lines of tests": lines, "deep imports of tests": deep}


def ways() -> dict[str, Callable[[int], Call]]:
    """By name, what makes the n-th call; no two ask the same."""
    rule = RewardRegistry.create("accuracy")
    reply = "<reason>ok</reason><score>7</score>"
    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=reply))

    def sample(number: int) -> DataSample:
        return DataSample.model_validate(
            {
                "input": [{"role": "user", "content": f"2 + {number}?"}],
                "output": [{"answer": {"role": "assistant", "content": "4"}}],
                "metadata": {"reference": "4"},
            }
        )

    def pair(number: int) -> Call:
        row = {"prompt": f"2 + {number}?", "chosen": "It is 4, of course.", "rejected": "5"}
        return lambda: evaluate("length_baseline", [row], progress=False)

    return {
        "a rule": lambda number: partial(rule.evaluate, sample(number)),
        "a judge call": lambda number: partial(judge.evaluate, sample(number)),
        "a judged batch of one": lambda number: partial(judge.evaluate_batch, [sample(number)]),
        "evaluate on a pair": pair,
    }


@contextmanager
def following() -> Iterator[list[CodeType]]:
    """The package's functions that are called inside the block, here and on the library's loop."""
    called: list[CodeType] = []
    on = False

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if on and event == "call" and code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            if not code.co_name.startswith("<"):
                called.append(code)

    async def on_loop(profile: Callable[[FrameType, str, object], None] | None) -> None:
        sys.setprofile(profile)

    library_loop.run(on_loop(note))
    sys.setprofile(note)
    on = True
    try:
        yield called
    finally:
        on = False
        sys.setprofile(None)
        library_loop.run(on_loop(None))


def read(code: CodeType) -> int:
    """Nodes of the function that a code object is of."""
    for node in ast.walk(parsed(code.co_filename)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            if code.co_firstlineno in {node.lineno, *(each.lineno for each in node.decorator_list)}:
                return nodes(node)
    return 0


def followed(name: str, make: Callable[[int], Call]) -> Figures:
    """What must be read to follow a call, and how far it goes."""
    for number in range(3):  # what a first call imports and remembers is no part of the way
        make(number)()
    traces = []
    for number in range(FOLLOWED):
        call = make(100 + number)
        with following() as trace:
            call()
        traces.append(trace)
    way = min(traces, key=len)
    modules = [code.co_filename for code in way]
    return {
        f"{name}: nodes to read": sum(map(read, set(way))),
        f"{name}: modules": len(set(modules)),
        f"{name}: calls": len(way),
        f"{name}: changes of module": sum(1 for _ in groupby(modules)),
    }


def figures() -> Figures:
    """Every figure that may only fall."""
    found = {**mass(), **tests()}
    for name, make in ways().items():
        found |= followed(name, make)
    return found


def is_held(name: str) -> bool:
    """Whether a figure may not rise: floors pass mass to each other, a new rule has its test, and
    on a busy machine a call may also wait.
    """
    floating = ("nodes of ", "lines of tests"), (": calls", ": changes of module")
    return not (name.startswith(floating[0]) or name.endswith(floating[1]))


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; with `--check` 1 where one has risen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--check", action="store_true", help="fail where a figure has risen")
    parser.add_argument("--write", action="store_true", help="store today's figures")
    options = parser.parse_args(arguments)
    today = figures()
    before: Figures = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for name, value in today.items():
        step = value - before.get(name, value)
        print(f"{name:50} {value:9,}{f' {step:+,}' if step else ''}")
    if options.write:
        STORED.write_text(json.dumps(today, indent=1) + "\n", encoding="utf-8")
    risen = [name for name, value in today.items() if is_held(name) and value > before.get(name, 0)]
    if options.check and risen:
        print(f"\nrisen: {', '.join(risen)}. Make it less, or say in the commit why it must be more and --write it.")  # fmt: skip
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
