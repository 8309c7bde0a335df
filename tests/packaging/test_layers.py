"""Imports point downwards, the engine knows nothing above it, and library code neither prints nor
takes over the process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

import pytest

from tests.packaging.source import Import, imports, module_name, sources

FROM_THE_GROUND = (
    "_version core.utils core.score", "core.engine core.model core.models core.stats core.text core.sandbox", "core.data",
    "core.reward", "core.graders", "core.runner", "gallery envs", "train integrations", "study", "report evaluation", "serve", "cli",
)  # fmt: skip
FLOORS = {
    f"rm_gallery.{room}": floor
    for floor, rooms in enumerate(FROM_THE_GROUND)
    for room in rooms.split()
}
DOORS = ("rm_gallery", "rm_gallery.core", "rm_gallery.__main__", "rm_gallery.core.utils.compat")
"""Packages that stand beside the floors: what they offer is looked up when it is asked for."""


BY_NAME = {
    ("rm_gallery/core/reward/registry.py", "rm_gallery.gallery.rm"),
    ("rm_gallery/core/reward/registry.py", "rm_gallery.core.graders.base"),
    ("rm_gallery/core/reward/run.py", "rm_gallery.core.graders.run"),
    ("rm_gallery/core/reward/resolve.py", "rm_gallery.envs.environment"),
    ("rm_gallery/core/graders/base.py", "rm_gallery.gallery.graders"),
    ("rm_gallery/core/data/load/converters.py", "rm_gallery.gallery.benchmarks.base"),
}
"""What is reached for by its name alone, so that the floor below can do without it."""


def floor(module: str) -> int | None:
    """Floor of a module; None for a door."""
    if module in DOORS:
        return None
    parts = module.split(".")
    for length in (3, 2):
        if ".".join(parts[:length]) in FLOORS:
            return FLOORS[".".join(parts[:length])]
    raise AssertionError(f"{module} stands on no floor")


def upward(found: Iterable[Import]) -> list[str]:
    wrong = []
    for each in found:
        if not each.module.startswith("rm_gallery"):
            continue
        here, there = floor(module_name(each.file)), floor(each.module)
        if (
            here is not None
            and there is not None
            and there > here
            and (each.file, each.module) not in BY_NAME
        ):
            wrong.append(f"{each.file}:{each.line} imports {each.module}")
    return wrong


def test_imports_point_downwards() -> None:
    ours = [found for found in imports() if found.module.split(".")[0] == "rm_gallery"]
    assert len(ours) > 100
    assert upward(ours) == []


def test_statistics_know_nothing_of_a_run() -> None:
    ours = {found.module for found in imports() if found.file.startswith("rm_gallery/core/stats/")}
    inside = {module for module in ours if module.split(".")[0] == "rm_gallery"}
    assert {
        floor(module) for module in inside if not module.startswith("rm_gallery.core.stats")
    } <= {0, None}


@cache
def calls() -> list[tuple[str, int, str]]:
    """(file, line, name) of every call of a dotted name."""
    nodes = [
        (file, node)
        for file, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    named = (ast.Name, ast.Attribute)
    return [
        (file, node.lineno, ast.unparse(node.func))
        for file, node in nodes
        if isinstance(node.func, named)
    ]


@pytest.mark.parametrize(("names", "allowed"), [
    (("print",), ("rm_gallery/cli/", "rm_gallery/core/sandbox/inside/")),
    (("asyncio.run", "loop.run_until_complete", "asyncio.get_event_loop"), (
        # a private loop, which finds out what would be asked
        "rm_gallery/serve/app.py", "rm_gallery/core/engine/context.py",
    )),
    (("signal.signal", "signal.alarm", "signal.setitimer", "loop.add_signal_handler"), (
        "rm_gallery/cli/main.py", "rm_gallery/serve/listen.py",
    )),
    (("eval", "exec"), ("rm_gallery/core/sandbox/inside/",)),
    (("pickle.load", "pickle.loads", "joblib.load"), ("rm_gallery/core/engine/pool.py", "rm_gallery/core/engine/worker.py", "rm_gallery/core/engine/ray.py", "rm_gallery/study/sheet.py")),
    (("os._exit", "os.abort"), ("rm_gallery/core/engine/worker.py", "rm_gallery/core/sandbox/")),
])  # fmt: skip
def test_library_code_leaves_the_process_alone(
    names: tuple[str, ...], allowed: tuple[str, ...]
) -> None:
    found = [
        f"{file}:{line} calls {name}"
        for file, line, name in calls()
        if name in names and not file.startswith(allowed)
    ]
    assert found == []


def test_signals_are_only_sent_by_the_sandbox_and_only_heard_by_commands_and_servers() -> None:
    users = {found.file for found in imports() if found.module == "signal"} - {
        "rm_gallery/cli/main.py",
        "rm_gallery/serve/listen.py",
    }
    assert all(file.startswith("rm_gallery/core/sandbox/") for file in users)
    for file in users:
        used = {
            node.attr
            for node in ast.walk(sources()[file])
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "signal"
        }
        assert used <= {"SIGKILL"}, file
