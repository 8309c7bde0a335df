"""Changes the package in one place at a time and asks the nearest tests whether they notice.

    python -m tools.mutants record [TESTS …]               which test runs which line, and how long
    it takes (`.mutants/`) python -m tools.mutants run [-n 400] [--seed 1] [--jobs 2] [--only
    rm_gallery/core/stats] [PATH …] python -m tools.mutants try FILE OLD NEW               one
    change made by hand: OLD, which stands once in FILE, becomes NEW

`make mutants` does the first two. The changes are cosmic-ray's, those of `[tool.mutants]` in
pyproject.toml; a seeded sample takes from each package its share. A change is tried in a copy of
the tree on the tests that ran its line, one of each function first, the nearest first, as many as
fit in `seconds`. It is noticed when one fails, hangs or cannot start. `python -m tools.mutants` is
its own pytest plugin.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".mutants"
PACKAGE = "rm_gallery"


@dataclass(frozen=True)
class Mutant:
    """One change: the operator's `occurrence`-th place in a file, or the whole text of a change
    made by hand.
    """

    path: str
    line: int
    operator: str = ""
    occurrence: int = 0
    text: str | None = None


@dataclass
class Settings:
    """`[tool.mutants]` of pyproject.toml."""

    operators: list[str] = field(default_factory=list)
    leave: str = "(?!)"
    seconds: float = 40.0
    most_tests: int = 120
    defaults: str = "(none)"
    folders: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Settings:
        """The settings of this checkout."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        return cls(
            **tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
                "mutants"
            ]
        )


# What pytest tells while it records


class _Durations:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        self.failed |= {report.nodeid} if report.failed else set()

    def pytest_sessionfinish(self, session: Any) -> None:
        # of xdist's processes the first alone knows all tests
        if not hasattr(session.config, "workerinput"):
            # others tell nothing
            passed = {
                test: seconds for test, seconds in self.seconds.items() if test not in self.failed
            }
            (KEPT / "durations.json").write_text(json.dumps(passed), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    """Keep the time that each test takes."""
    config.pluginmanager.register(_Durations(), "mutants-durations")


def record(tests: Sequence[str], arguments: Sequence[str]) -> int:
    """Run tests once under coverage and keep which of them ran which line."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COVERAGE_FILE": str(KEPT / "coverage")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tools.mutants",
        "--timeout=900",
    ]
    command += [f"--cov={PACKAGE}", "--cov-context=test", "--cov-report=", *arguments, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


# Which tests are near


class Nearest:
    """The tests near a line, nearest first."""

    def __init__(self, settings: Settings) -> None:
        if not (KEPT / "durations.json").is_file():
            raise SystemExit("nothing is recorded yet: python -m tools.mutants record [TESTS …]")
        self.settings = settings
        self.seconds: dict[str, float] = json.loads(
            (KEPT / "durations.json").read_text(encoding="utf-8")
        )
        self._database = sqlite3.connect(
            f"file:{KEPT / 'coverage'}?mode=ro", uri=True, check_same_thread=False
        )
        self._contexts = dict(self._database.execute("select id, context from context"))
        self._files = {
            Path(path).relative_to(ROOT).as_posix(): number
            for number, path in self._database.execute("select id, path from file")
            if Path(path).is_relative_to(ROOT)
        }
        self._lines = Counter[str]()
        for context, bits in self._database.execute("select context_id, numbits from line_bits"):
            self._lines[self._contexts[context].rpartition("|")[0]] += int.from_bytes(
                bits, "big"
            ).bit_count()

    def _ran(self, path: str) -> dict[str, set[int]]:
        from coverage.numbits import numbits_to_nums

        number = self._files.get(path)
        query = "select context_id, numbits from line_bits where file_id = ?"
        found: dict[str, set[int]] = defaultdict(set)
        for context, bits in self._database.execute(query, (number,)):
            found[self._contexts[context].rpartition("|")[0]].update(numbits_to_nums(bits))
        return {test: lines for test, lines in found.items() if test in self.seconds}

    def __call__(self, mutant: Mutant) -> list[str]:
        """Tests that ran the line; where they are few, those of its folder, too: it may have a
        process of its own.

        What stands in no function runs on import, for the one test that happened to be the first:
        its tests are those of defaults and those that ran the file's functions. The nearer one is
        to a file, the more of the lines that it ran are there.
        """
        ran, (statement, functions) = self._ran(mutant.path), _about(mutant)
        near = {
            test: len(lines & functions) / self._lines[test]
            for test, lines in ran.items()
            if lines & functions
        }
        if statement <= functions:
            found = first = {test for test, lines in ran.items() if mutant.line in lines} or {
                test for test, lines in ran.items() if not lines.isdisjoint(statement)
            }
        else:
            first = {test for test in self.seconds if test.startswith(self.settings.defaults)}
            found = first | near.keys()
        if len(found) < 20:
            folders = next(
                (f for start, f in self.settings.folders.items() if mutant.path.startswith(start)),
                ["tests"],
            )
            found = found | {test for test in self.seconds if test.startswith(tuple(folders))}
        return self._ordered(found, first, near)

    def _ordered(self, tests: set[str], first: set[str], near: dict[str, float]) -> list[str]:
        """One of each function first, the one of which most is in the file; as many as fit."""
        turn: Counter[str] = Counter()
        ranked = []
        for far, seconds, test in sorted(
            (-near.get(test, 0.0), self.seconds[test], test) for test in tests
        ):
            function = test.partition("[")[0]
            ranked.append((test not in first, turn[function], far, seconds, test))
            turn[function] += 1
        left = self.settings.seconds
        chosen: list[str] = []
        for *_, seconds, test in sorted(ranked):
            if seconds <= left and len(chosen) < self.settings.most_tests:
                left -= seconds
                chosen.append(test)
        return chosen


def _about(mutant: Mutant) -> tuple[set[int], set[int]]:
    """The lines of the change's statement up to its body, of which a long one has not all in its
    code; all lines in functions.
    """
    statement, functions = {mutant.line}, set[int]()
    for node in ast.walk(ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            body, end = getattr(node, "body", None), (node.end_lineno or 0) + 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions |= set(range(node.body[0].lineno, end))
            lines = range(node.lineno, body[0].lineno if body else end)
            if mutant.line in lines:
                statement = set(lines)
    return statement, functions


# Which changes there are


def places(path: str, settings: Settings) -> list[Mutant]:
    """Every change that the configured operators can make in a file."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import get_ast
    from cosmic_ray.mutating import MutationVisitor

    source = (ROOT / path).read_text(encoding="utf-8")
    tree, found, rows = get_ast(source), [], source.split("\n")
    for name in cosmic_ray.plugins.operator_names():
        if not any(
            re.fullmatch(pattern, name.removeprefix("core/")) for pattern in settings.operators
        ):
            continue

        class Counting(MutationVisitor):  # type: ignore[misc,unused-ignore]
            starts: list[tuple[int, int]] = []

            def visit(self, node: Any) -> Any:
                self.starts.extend(start for start, _ in self.operator.mutation_positions(node))
                return node

        Counting.starts = []
        Counting(-1, cosmic_ray.plugins.get_operator(name)()).walk(tree)
        found += [
            Mutant(path, line, name, place)
            for place, (line, column) in enumerate(Counting.starts)
            if not re.search(settings.leave, f"{rows[line - 1][:column]}‸{rows[line - 1][column:]}")
        ]
    return found


def _folder(path: str) -> str:
    return "/".join(Path(path).parent.parts[:3])


def sample(paths: Sequence[str], n: int, seed: int, settings: Settings) -> list[Mutant]:
    """`n` changes, at most one a line, from each folder its share by lines of code."""
    lucky = random.Random(seed)
    weights: Counter[str] = Counter()
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[_folder(path)].append(path)
        weights[_folder(path)] += (ROOT / path).read_text(encoding="utf-8").count("\n")
    chosen: list[Mutant] = []
    for folder in sorted(by_folder):
        share = max(1, round(n * weights[folder] / weights.total()))
        everything = [each for path in sorted(by_folder[folder]) for each in places(path, settings)]
        lucky.shuffle(everything)
        by_line = {(each.path, each.line): each for each in everything}
        chosen += list(by_line.values())[:share]
    lucky.shuffle(chosen)
    return chosen


def mutated(mutant: Mutant) -> str:
    """The file's text with the change."""
    if mutant.text is not None:
        return mutant.text
    import cosmic_ray.plugins
    from cosmic_ray.mutating import mutate_code

    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    text = mutate_code(
        source, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence
    )
    assert text is not None, mutant
    return str(text)


def shown(mutant: Mutant, text: str) -> str:
    """The lines that changed, on one line."""
    old = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
    changed = [
        row
        for row in difflib.unified_diff(old, text.splitlines(), n=0, lineterm="")
        if row[:3] not in ("---", "+++")
    ]
    return " ".join(f"{row[0]} {row[1:].strip()[:140]}" for row in changed if row[0] in "+-")


# Trying them


def copy_tree(target: Path) -> None:
    """What git knows of the checkout, and what is new in it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def tried(mutant: Mutant, tree: Path, tests: Sequence[str], seconds: float) -> str:
    """`noticed`, `hung`, `survived` or `untested`."""
    if not tests:
        return "untested"
    original = (tree / mutant.path).read_text(encoding="utf-8")
    names = tree / ".tests"
    names.write_text("\n".join(tests), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        f"@{names.name}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        (tree / mutant.path).write_text(mutated(mutant), encoding="utf-8")
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=60 + 5 * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "hung"
    finally:
        (tree / mutant.path).write_text(original, encoding="utf-8")
    if process.returncode == 5 or b"no tests ran" in output[-300:] and process.returncode == 4:
        return "untested"
    return "survived" if process.returncode == 0 else "noticed"


def run(mutants: Sequence[Mutant], jobs: int, settings: Settings) -> int:
    """Try all of them, and print what survived and a table by folder."""
    nearest = Nearest(settings)
    outcomes: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copy_tree(Path(folder) / str(number) / "tree")
            trees.put(Path(folder) / str(number) / "tree")

        def one(mutant: Mutant) -> None:
            tests = nearest(mutant)
            tree = trees.get()
            try:
                outcomes[mutant] = tried(
                    mutant, tree, tests, sum(nearest.seconds[test] for test in tests)
                )
            finally:
                trees.put(tree)
            if outcomes[mutant] not in ("noticed", "hung"):
                where = f"{mutant.path}:{mutant.line}"
                print(
                    f"{outcomes[mutant]} ({len(tests)} tests)  {where}  "
                    f"{shown(mutant, mutated(mutant))}",
                    flush=True,
                )
            elif len(outcomes) % 20 == 0:
                print(f"… {len(outcomes)} of {len(mutants)}", flush=True)

        try:
            list(pool.map(one, mutants))
        # the order is a lot's, so that what was tried until then is a sample, too
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in outcomes.items():
        for row in (_folder(mutant.path), "all"):
            table[row][outcome] += 1
    print(f"\n{'folder':36} {'tried':>6} {'noticed':>8} {'share':>7}")
    for row in sorted(table, key=lambda name: (name == "all", name)):
        known = table[row]["noticed"] + table[row]["hung"]
        print(f"{row:36} {table[row].total():6} {known:8} {known / table[row].total():7.1%}")
    return 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("tests", nargs="*")
    recording.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist")
    running = verbs.add_parser("run")
    running.add_argument(
        "paths", nargs="*", help="files or folders of the package; all of it by default"
    )
    running.add_argument("-n", type=int, default=400)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--jobs", type=int, default=1)
    trying = verbs.add_parser("try")
    trying.add_argument("path")
    trying.add_argument("old")
    trying.add_argument("new")
    given = parser.parse_args()
    settings = Settings.read()
    if given.verb == "record":
        return record(given.tests, ["-n", str(given.workers)] if given.workers else [])
    if given.verb == "try":
        source = (ROOT / given.path).read_text(encoding="utf-8")
        if source.count(given.old) != 1:
            raise SystemExit(
                f"{given.path}: the text to change stands there {source.count(given.old)} times, "
                f"not once"
            )
        line = source[: source.index(given.old)].count("\n") + 1
        text = source.replace(given.old, given.new)
        return run([Mutant(given.path, line, text=text)], 1, settings)
    roots = [ROOT / path for path in given.paths or [PACKAGE]]
    files = [
        file
        for root in roots
        for file in ([root] if root.is_file() else sorted(root.rglob("*.py")))
    ]
    paths = [file.relative_to(ROOT).as_posix() for file in files]
    return run(sample(paths, given.n, given.seed, settings), given.jobs, settings)


if __name__ == "__main__":
    raise SystemExit(main())
