"""The sandbox line by line: every runner gives the same verdicts, hostile code scores 0, and values
compare as they should.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataError
from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_test_spec import (
    AssertTests,
    HumanEvalTests,
    InputOutputTests,
    names_wanted,
    parse_code_tests,
)
from rm_gallery.core.sandbox.code_tests import extract_code, run_code_tests
from rm_gallery.core.sandbox.inside.testing import same_output, same_value
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import Runner
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.sandbox.sql import compare_results, run_query
from rm_gallery.study.attacks import forgeries
from tests.golden.golden import Line, check, files, lines
from tests.sandbox.fusion_server import fusion_server
from tests.sandbox.outside import SECRET_NAME, Outside
from tests.sandbox.scoring import QUICK, score, score_all
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.system("bubblewrap")
CHECK = (
    "def check(candidate):\n    assert candidate() == 424242\n    assert all(map(lambda _: "
    "candidate() == 424242, range(3)))\n"
)
SCHEMA = """
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE town (name TEXT, people INTEGER, area REAL);
INSERT INTO town VALUES ('Ulm', 126000, 118.7), ('Bonn', 330000, 141.1), ('北京', 21540000, NULL);
COMMIT;
"""
FIELDS = ("test", "tests", "entry_point", "prompt", "setup", "inputs", "outputs", "fn_name")


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[Runner]:
    if name == "fusion":
        async with fusion_server() as server:
            yield get_runner(f"fusion:{server.url}/")
    else:
        yield get_runner(name)


async def verdict(runner: Runner, line: Line, limits: SandboxLimits = QUICK) -> Line:
    """The reasons of all units of a line, or what is wrong with its tests."""
    try:
        tests = parse_code_tests({key: line[key] for key in FIELDS if key in line})
        found = await run_code_tests(
            line["code"], tests, runner=runner, limits=limits, deadline=240.0
        )
    except DataError as error:
        return {"error": str(error).partition(":")[0]}
    assert found.runner == runner.name
    return {"reasons": [unit.reason for unit in found.outcomes]}


def verdicts(path: Path, runner: str, **limits: Any) -> None:
    """Hold the verdicts of a file against what a runner gives, all lines at once."""
    if runner == "bwrap":
        require_bubblewrap()
    if runner == "fusion":  # units wait for one of three slots, on a busy machine for long
        limits = {**asdict(QUICK), "wall_seconds": 60.0}

    async def together() -> list[Line]:
        async with opened(runner) as there:
            jobs = (
                verdict(there, line, SandboxLimits(**limits) if limits else QUICK)
                for _, line in lines(path)
            )
            return await asyncio.gather(*jobs)

    found = iter(asyncio.run(together()))
    check(path, lambda _: next(found), ("reasons", "error"))


@pytest.mark.parametrize(
    "runner",
    [
        "subprocess",
        pytest.param("fusion", marks=pytest.mark.long("a server that starts interpreters")),
        "bwrap",
    ],
)
@pytest.mark.parametrize("path", files("sandbox/verdicts"))
def test_every_runner_gives_the_same_verdicts(path: Path, runner: str) -> None:
    verdicts(path, runner)


@pytest.mark.parametrize("runner", ["subprocess", "bwrap"])
@pytest.mark.parametrize("path", files("sandbox/local"))
def test_values_and_limits_are_those_of_this_machine_with_walls_or_without(
    path: Path, runner: str
) -> None:
    verdicts(path, runner)


@pytest.mark.parametrize("path", files("sandbox/walls"))
def test_behind_walls_a_unit_sees_nothing_and_costs_no_other_one(
    path: Path, bubblewrap: BwrapRunner
) -> None:
    verdicts(path, "bwrap", wall_seconds=3.0, cpu_seconds=3.0, output_kb=64)


@pytest.mark.parametrize("path", files("sandbox/attacks"))
def test_hostile_code_scores_zero_and_nothing_outside_changes(
    path: Path, bubblewrap: BwrapRunner, outside: Outside
) -> None:
    async def attacked(line: Line) -> str:
        code = line["code"]
        for name, value in (
            ("{file}", outside.file),
            ("{port}", outside.port),
            ("{secret}", SECRET_NAME),
        ):
            code = code.replace(name, str(value))
        program = (
            {"inputs": [line["stdin"]], "outputs": ["42\n"]}
            if "stdin" in line
            else {"test": CHECK, "entry_point": "f"}
        )
        (reason,) = (await verdict(bubblewrap, {**program, "code": f"{code}\n"}))["reasons"]
        return str(reason)

    async def together() -> list[str]:
        return await asyncio.gather(*(attacked(line) for _, line in lines(path)))

    def told(line: Line) -> Line:
        reason = next(found)
        return {
            "score": float(reason == "passed"),
            "unforeseen": None if reason in line["allowed"] else reason,
        }

    found = iter(asyncio.run(together()))
    outside.assert_unchanged()
    check(path, told, ("score", "unforeseen"))


NAMES = {"nan": math.nan, "inf": math.inf}


def value(text: str) -> Any:
    """A Python literal: JSON has no tuples, no keys but texts, no infinity."""
    return eval(text, {"__builtins__": {}}, NAMES)


COMPARED: dict[str, Callable[[Line], bool]] = {
    "values": lambda line: same_value(value(line["found"]), value(line["expected"])),
    "outputs": lambda line: same_output(line["found"], line["expected"]),
    "results": lambda line: compare_results(
        value(line["found"]), value(line["expected"]), ordered=line["ordered"]
    ),
}


@pytest.mark.parametrize("path", files("sandbox/compare"))
def test_what_counts_as_the_expected_one(path: Path) -> None:
    check(path, lambda line: {"same": COMPARED[path.stem](line)}, ("same",))


GOLDEN = Path(__file__).parents[1] / "golden" / "sandbox"


def test_which_part_of_an_answer_is_its_code() -> None:
    check(
        GOLDEN / "extract-code.jsonl",
        lambda line: {"code": extract_code(line["text"], line.get("names", ()))},
        ("code",),
    )


def told(error: Exception | str, line: Line) -> Line:
    """The part of a message that a line names, or the whole message where it lacks that."""
    return {"error": line["told"] if line.get("told", "?") in str(error) else str(error)}


def test_labels_and_metadata_as_code_tests() -> None:
    def read(line: Line) -> Line:
        try:
            found = parse_code_tests(line["record"])
        except DataError as error:
            return told(error, line)
        return {"kind": type(found).__name__, "tests": asdict(found)}

    check(GOLDEN / "code-tests.jsonl", read, ("kind", "tests", "error"))


def test_sql_may_read_and_nothing_else(tmp_path: Path) -> None:
    def asked(line: Line) -> Line:
        found = run_query(SCHEMA, line["query"].replace("{file}", str(tmp_path / "out.db")))
        assert list(tmp_path.iterdir()) == [] and not (found.error and found.rows)
        return told(found.error, line) if found.error else {"rows": found.rows}

    check(GOLDEN / "sql.jsonl", asked, ("rows", "error"))


# -- what no line of a file can say ----------------------------------------------------------------


def test_own_problems_solutions_pass_and_faults_fail(bubblewrap: BwrapRunner) -> None:
    """Problems in the form of HumanEval; faults look right, or are solutions with one token
    changed, which may be harmless.
    """
    right, wrong = [], []
    for _, row in lines(GOLDEN / "problems.jsonl"):
        tests = HumanEvalTests(row["test"], row["entry_point"], row["prompt"])
        right += [
            (text, tests)
            for text in (row["solution"], row["prompt"] + row["solution"], *row["harmless"])
        ]
        wrong += [(text, tests) for text in (row["broken"], *row["faults"])]
    assert len(right) > 24 and len(wrong) > 12
    reports = score_all(bubblewrap, right + wrong, limits=SandboxLimits(wall_seconds=8.0))
    told = zip([1.0] * len(right) + [0.0] * len(wrong), right + wrong, reports, strict=True)
    assert [
        (answer[0], report.outcomes)
        for expected, answer, report in told
        if report.score != expected
    ] == []


def test_units_after_the_deadline_of_the_sample_count_as_failed(bubblewrap: BwrapRunner) -> None:
    code = "import time\ndef f(n):\n    time.sleep(0.4)\n    return n\n"
    report = score(
        bubblewrap, code, AssertTests([f"assert f({n}) == {n}" for n in range(20)]), deadline=3.0
    )
    found = [outcome.reason for outcome in report.outcomes]
    assert 0 < found.count("passed") < 8 and found == sorted(
        found, key=("passed", "deadline").index
    )


def test_a_unit_starved_by_earlier_ones_gets_a_fresh_process(bubblewrap: BwrapRunner) -> None:
    # each unit stays within the CPU limit, all together do not
    limits = SandboxLimits(wall_seconds=60.0, cpu_seconds=1.0)
    code = (
        "import time\ndef f(n):\n    end = time.process_time() + 0.45\n    while "
        "time.process_time() < end:\n        pass\n    return n\n"
    )
    report = score(
        bubblewrap, code, AssertTests([f"assert f({n}) == {n}" for n in range(4)]), limits=limits
    )
    assert report.score == 1.0 and report.starts > 1


def test_a_restart_does_not_bind_the_tests_names_to_the_answer(bubblewrap: BwrapRunner) -> None:
    lines = ["from math import isclose", *["assert isclose(f(2), 4)"] * 3]
    code = (
        "import os, random\nDIES = random.SystemRandom().random() < 0.5\n"
        "def isclose(a, b):\n    return True\ndef f(x):\n    if DIES:\n        os._exit(0)\n    "
        "return 5\n"
    )
    assert [
        report.passed for report in score_all(bubblewrap, [(code, AssertTests(lines))] * 12)
    ] == [1] * 12


def test_equal_answers_behave_equally(bubblewrap: BwrapRunner) -> None:
    code = "def f():\n    return list({'red', 'green', 'blue', 'black'})\n"
    line = (
        "import random; assert (f()[0], random.random()) == (None, None), (f()[0], random.random())"
    )
    first, second = (
        score(bubblewrap, code, AssertTests([line])).outcomes[0].detail for _ in range(2)
    )
    assert first == second != ""


def test_programs_read_and_print_as_much_as_is_expected_of_them(bubblewrap: BwrapRunner) -> None:
    tests = InputOutputTests(["x" * 3_000_000, "9"], ["3000000", "x" * 300_000])
    code = "text = input()\nprint(len(text) if len(text) > 1 else 'x' * 300_000)"
    assert score(bubblewrap, code, tests).score == 1.0
    # twice what is expected may be printed, and not a byte more
    expected = "x" * 100_000
    for size, reason in ((199_998, "wrong answer"), (200_001, "output limit")):
        found = score(bubblewrap, f"print('x' * {size})", InputOutputTests([""], [expected]))
        assert found.outcomes[0].reason == reason, size


@pytest.mark.long("programs that resist")
def test_a_long_answer_of_fences_takes_linear_time() -> None:
    assert extract_code("```\nx\n```\n" * 50_000 + "`" * 200_000) == "x\n"


def test_no_program_that_solves_nothing_passes_tests_beside_it(bubblewrap: BwrapRunner) -> None:
    """Every forgery against a test file that needs the answer's own objects, which a right answer
    passes.
    """
    (line,) = (line for _, line in lines(GOLDEN / "forged.jsonl"))
    tests = parse_code_tests(line)
    names = "".join(f"\n{name} = _answer" for name in names_wanted(tests))
    answers = [line["code"], *(program + names for program in forgeries().values())]
    limits = SandboxLimits(wall_seconds=8.0, cpu_seconds=4.0)
    right, *forged = score_all(bubblewrap, [(code, tests) for code in answers], limits=limits)
    assert len(forged) >= 50 and right.score == 1.0, right.reasons
    assert {
        name: found.reasons for name, found in zip(forgeries(), forged, strict=True) if found.passed
    } == {}
