"""Score a code answer by its tests, the answer and the tests walled off from each other."""

from __future__ import annotations

import ast
import functools
import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Union

from rm_gallery.core.engine.processes.pool import WorkerCrashed, WorkerPool, get_pool, processors
from rm_gallery.core.sandbox.attempt import (
    Attempt,
    Clock,
    CodeUnit,
    PairAttempt,
    ProgramAttempt,
    as_text,
    judge_beside,
)
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import LocalRunner, RemoteRunner, Runner
from rm_gallery.core.sandbox.test_source import cases_in, surely_asserts, tree_of, wanted_in
from rm_gallery.core.text.blocks import parse_python
from rm_gallery.core.utils.errors import ConfigError, DataError

_PYTHON = frozenset({"python", "python3", "py", "py3", "ipython", "pycon", "cython", "sage"})
_LANGUAGE = re.compile(r"[{.\s]*([A-Za-z0-9+#_-]*)")


class _Block(NamedTuple):
    language: str
    body: str
    closed: bool


def extract_code(text: str, names: Collection[str] = ()) -> str:
    """Return the program of an answer: of its fenced blocks the last Python one that defines any of
    `names`, what the tests call.

    Without such a one it is the last block marked as Python, then the last unmarked one that is a
    program, then the last block; so a shell command, output or a summary after the program does not
    hide it. Fences are three or more backticks or tildes, with or without a language, indented or
    not; a fence that is never closed runs to the end, and one that closes what was never opened
    ends a program. Windows line ends become plain ones. Without any block it is the whole text.
    """
    blocks, outside = _blocks(text)
    if (
        len(blocks) == 1
        and not blocks[0].closed
        and not blocks[0].language
        and _is_program(outside)
    ):
        return outside  # the fence closes what a chat template had opened
    python = [block for block in blocks if block.language in _PYTHON]
    unmarked = [block for block in blocks if not block.language and _is_program(block.body)]
    defining = [
        block
        for block in (*unmarked, *python)
        if any(_defines(name).search(block.body) for name in names)
    ]
    if len(defining) > 1:
        defining = [block for block in blocks if block in defining]
    chosen = defining or python or unmarked or blocks
    return chosen[-1].body if chosen else outside


@functools.lru_cache(maxsize=256)
def _defines(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?m)^\s*(?:(?:async\s+)?def|class)\s+{re.escape(name)}\b"
        rf"|^{re.escape(name)}\s*(?::[^=\n]*)?=(?!=)"
    )


def _is_program(text: str) -> bool:
    """Whether a text is Python that does something: a word or a number that was printed parses,
    too.
    """
    tree = parse_python(text)
    body = [] if isinstance(tree, str) else getattr(tree, "body", [])
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in body)


def _blocks(text: str) -> tuple[list[_Block], str]:
    """The fenced blocks that are not empty, and what stands outside of any."""
    blocks: list[_Block] = []
    block: list[str] | None = None
    fence, language, indent = "", "", 0
    outside: list[str] = []

    def end(closed: bool) -> None:
        if any(line.strip() for line in block or ()):
            blocks.append(_Block(language, "\n".join(block or ()) + "\n", closed))

    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        mark = _fence(line)
        if block is None:
            if mark:
                fence, indent, block = mark, len(line) - len(line.lstrip()), []
                language = _LANGUAGE.match(line.strip()[len(mark) :])[1].lower()  # type: ignore[index]  # it matches anything
            else:
                outside.append(line)
        elif mark[:1] == fence[:1] and len(mark) >= len(fence) and line.strip() == mark:
            end(True)
            block = None
        else:
            block.append(_without_indent(line, indent))
    if block is not None:
        end(False)
    return blocks, "\n".join(outside)


def _fence(line: str) -> str:
    stripped = line.strip()
    for mark in "`~":
        length = len(stripped) - len(stripped.lstrip(mark))
        # a backtick later in the line makes it inline code
        if length >= 3 and "`" not in stripped[length:]:
            return mark * length
    return ""


def _without_indent(line: str, indent: int) -> str:
    return line[min(indent, len(line) - len(line.lstrip())) :]


@dataclass(frozen=True)
class HumanEvalTests:
    """A `check(candidate)` function and the name to pass to it (HumanEval, arXiv:2107.03374): one
    unit.
    """

    test: str
    entry_point: str
    prompt: str = ""
    """What the answer continues: signature and docstring, with imports and helper functions before
    it.
    """


@dataclass(frozen=True)
class AssertTests:
    """Assert lines (MBPP, arXiv:2108.07732): each line is a unit."""

    tests: Sequence[str]
    setup: str = ""
    """Code run once before the lines."""
    prompt: str = ""
    entry_point: str = ""


@dataclass(frozen=True)
class SuiteTests:
    """A test file: each test function, and each method of a test class or `unittest` case, is a
    unit.
    """

    test: str
    cases: Sequence[str]
    """Names of the units, as `function` or `Class.method`."""
    setup: str = ""
    prompt: str = ""
    entry_point: str = ""


@dataclass(frozen=True)
class InputOutputTests:
    """Inputs with expected outputs (APPS, arXiv:2105.09938): each input is a unit.

    Without `fn_name` inputs are stdin texts and outputs what has to be printed; with it, inputs are
    argument lists (or texts with one JSON value per line) and outputs the values to be returned.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    fn_name: str | None = None


_UNREADABLE = frozenset({"error: SyntaxError", "error: IndentationError", "error: TabError"})
_AFTER_DEADLINE = 60.0
"""Seconds more than a sample's own deadline until the process that watches it counts as hung."""


class VacuousTests(DataError):
    """Tests that assert nothing: a stub that is always wrong passes them."""


# what always-wrong stubs do; the last one shows whether tests assert anything about an exception
_STUBS = ("return None", "return object()", "raise RuntimeError('stub')")
_VACUOUS: dict[str, bool] = {}
"""Findings about tests, by their text; the answers to one question share them."""
_VACUOUS_KEPT = 1024

CodeTests = Union[HumanEvalTests, AssertTests, SuiteTests, InputOutputTests]


def parse_code_tests(record: Mapping[str, Any]) -> CodeTests:
    """Build the tests from a label or metadata.

    Keys: `test` + `entry_point` (and `prompt`), or `tests` (and `setup`), or
    `inputs_outputs`/`input_output` as a mapping or JSON text, or `inputs` + `outputs` (and
    `fn_name`). A text of `test` or `tests` may be a test file with test functions or `unittest`
    cases. Raises DataError when none of them fits.
    """
    for key in ("inputs_outputs", "input_output"):
        if record.get(key) is not None:
            return _input_output(record[key])
    if "inputs" in record and "outputs" in record:
        return _input_output(record)
    prompt, setup = _text(record, "prompt", ""), _text(record, "setup", "")
    if record.get("test") is not None:
        test = _text(record, "test")
        cases = [] if "def check" in test else cases_in(test)
        if cases:
            return SuiteTests(test, cases, setup, prompt, _text(record, "entry_point", ""))
        return HumanEvalTests(test, _text(record, "entry_point"), prompt)
    if record.get("tests") is not None:
        tests = record["tests"]
        lines = [tests] if isinstance(tests, str) else list(tests)
        if any(not isinstance(line, str) for line in lines):
            raise DataError("code tests: 'tests' must be text or a list of texts")
        entry_point, joined = _text(record, "entry_point", ""), "\n\n".join(lines)
        cases = cases_in(joined)
        return (
            SuiteTests(joined, cases, setup, prompt, entry_point)
            if cases
            else AssertTests(lines, setup, prompt, entry_point)
        )
    raise DataError(
        "no code tests found: expected 'test' with 'entry_point', 'tests', or 'inputs_outputs'; "
        f"the record has the keys {sorted(map(str, record))[:20]}"
    )


def _text(record: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise DataError(f"code tests: '{key}' must be text, found {type(value).__name__}")
    return value


def _integer(digits: str) -> int:
    # int() refuses more than 4,300 digits, which problems about large numbers have
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))


def _input_output(value: Any) -> InputOutputTests:
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_int=_integer)
        except ValueError as error:
            raise DataError(f"code tests: 'inputs_outputs' is no valid JSON ({error})") from error
    if not isinstance(value, Mapping) or "inputs" not in value or "outputs" not in value:
        raise DataError("code tests: 'inputs_outputs' must hold 'inputs' and 'outputs'")
    inputs, outputs = list(value["inputs"]), list(value["outputs"])
    if len(inputs) != len(outputs):
        raise DataError(f"code tests: {len(inputs)} inputs but {len(outputs)} outputs")
    return InputOutputTests(inputs, outputs, value.get("fn_name"))


@dataclass(frozen=True)
class UnitOutcome:
    """How one test unit ended."""

    index: int
    reason: str
    """'passed', 'wrong answer', 'error: NameError', 'deadline', 'memory', 'processes', 'output
    limit', 'crashed exit code 1' or 'tampering'."""
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the unit passed."""
        return self.reason == "passed"


@dataclass(frozen=True)
class CodeTestReport:
    """Score of all units of one answer; `score` is in [0, 1], higher is better."""

    outcomes: Sequence[UnitOutcome]
    seconds: float
    """Wall time without the wait for a free slot."""
    runner: str
    starts: int = field(default=1)
    """How many times the sandbox was started."""

    @property
    def total(self) -> int:
        """Number of units."""
        return len(self.outcomes)

    @property
    def passed(self) -> int:
        """Number of units passed."""
        return sum(outcome.passed for outcome in self.outcomes)

    @property
    def score(self) -> float:
        """Share of all units passed."""
        return self.passed / self.total

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason occurred, in order of first occurrence."""
        counts: dict[str, int] = {}
        for outcome in self.outcomes:
            counts[outcome.reason] = counts.get(outcome.reason, 0) + 1
        return counts


async def run_code_tests(
    code: str,
    tests: CodeTests,
    *,
    runner: Runner,
    limits: SandboxLimits | None = None,
    deadline: float = 60.0,
    pool: WorkerPool | None = None,
) -> CodeTestReport:
    """Run `code` against `tests` in the runner's sandbox and report every unit.

    The score is passed units over all units, in [0, 1]; higher is better. `deadline` is in seconds
    for the whole sample, counted from when it gets a slot; units not reached by then count as
    failed with the reason 'deadline'. Works from any event loop; cancelling kills the processes.
    Raises DataError when the tests themselves cannot run, SandboxUnavailable or DeadlineExceeded
    when the sandbox does not start. A unit that needs the answer's own objects and does not pass
    behind the wall is judged beside the answer in one sandboxed process (not by a remote runner).
    Raises VacuousTests for tests that an always-wrong stub passes; programs with inputs and outputs
    are not held against one.
    """
    limits = limits or SandboxLimits()
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    units = unit_count(tests)
    if isinstance(runner, RemoteRunner):
        from rm_gallery.core.sandbox.fusion import run_remotely

        found = await run_remotely(code, tests, units, runner, limits, deadline)
        if _may_be_vacuous(found, tests):
            stubs = [
                await run_remotely(stub, tests, units, runner, limits, deadline)
                for stub in _stubs_for(tests)
            ]
            _refuse_vacuous(tests, stubs)
        return found
    if not isinstance(runner, LocalRunner):
        raise ConfigError(f"runner must come from get_runner(), found {type(runner).__name__}")
    if pool is None:
        # a sandbox is two processes that mostly wait for each other
        pool = get_pool("sandbox", max_workers=processors() + 1)
    try:
        arguments = (code, tests, units, runner, limits, deadline)
        return await pool.asubmit(_run_and_check, *arguments, deadline=deadline + _AFTER_DEADLINE)
    except WorkerCrashed:
        if runner.walls:
            raise
        # without walls the answer can kill whoever runs it, and must gain nothing by it
        return build_report(
            dict.fromkeys(range(units), ("tampering", "")), units, time.monotonic(), runner, 1
        )


def unit_count(tests: CodeTests) -> int:
    """Return how many units the tests have; raises DataError for none or for unequal lists."""
    if isinstance(tests, HumanEvalTests):
        return 1
    if isinstance(tests, SuiteTests):
        return len(tests.cases)
    units = len(tests.tests) if isinstance(tests, AssertTests) else len(tests.inputs)
    if isinstance(tests, InputOutputTests) and len(tests.outputs) != units:
        raise DataError(f"code tests: {units} inputs but {len(tests.outputs)} outputs")
    if units == 0:
        raise DataError("the code tests are empty: nothing can be scored")
    return units


def _run_and_check(
    code: str,
    tests: CodeTests,
    units: int,
    runner: LocalRunner,
    limits: SandboxLimits,
    deadline: float,
) -> CodeTestReport:
    found = _run_locally(code, tests, units, runner, limits, deadline)
    if _may_be_vacuous(found, tests):
        stubs = []
        for stub in _stubs_for(tests):
            stubs.append(_run_locally(stub, tests, units, runner, limits, deadline))
            if stubs[-1].passed < units:
                break
        _refuse_vacuous(tests, stubs)
    return found


def _may_be_vacuous(found: CodeTestReport, tests: CodeTests) -> bool:
    """Whether nothing shows yet that the tests assert something; VacuousTests where it is known
    that they do not.
    """
    if isinstance(tests, InputOutputTests) or "wrong answer" in found.reasons:
        return False
    key = repr(tests)
    if key not in _VACUOUS and any(
        surely_asserts(unit.text, unit.part) for unit in _units_of(tests)
    ):
        _remember(key, False)
    if _VACUOUS.get(key):
        raise VacuousTests(_NOTHING)
    return key not in _VACUOUS


_NOTHING = (
    "the tests assert nothing: a function that returns nothing at all passes every one of them"
)


def _stubs_for(tests: CodeTests) -> list[str]:
    names = sorted(names_wanted(tests))
    return [
        "\n".join(f"def {name}(*a, **k):\n    {body}" for name in names) or "pass"
        for body in _STUBS
    ]


def _refuse_vacuous(tests: CodeTests, stubs: Sequence[CodeTestReport]) -> None:
    vacuous = (
        all(stub.score == 1.0 for stub in stubs[:2])
        and len(stubs) == 3
        and "wrong answer" not in stubs[2].reasons
    )
    if all("deadline" not in stub.reasons for stub in stubs):
        _remember(repr(tests), vacuous)
    if vacuous:
        raise VacuousTests(_NOTHING)


def _remember(key: str, vacuous: bool) -> None:
    if len(_VACUOUS) >= _VACUOUS_KEPT:
        _VACUOUS.clear()
    _VACUOUS[key] = vacuous


def _run_locally(
    code: str,
    tests: CodeTests,
    units: int,
    runner: LocalRunner,
    limits: SandboxLimits,
    deadline: float,
) -> CodeTestReport:
    began = time.monotonic()
    attempt_from = _attempts(code, tests, units, runner, limits)
    outcomes: dict[int, tuple[str, str]] = {}
    first = starts = 0
    unseen = ""
    while first < units:
        try:
            attempt = attempt_from(first, Clock(limits, began + deadline, first_start=not starts))
        except DataError as error:
            unseen = str(error)
            outcomes.update(dict.fromkeys(range(first, units), ("unseen", "")))
            break
        starts += 1
        first = attempt.settle(outcomes, units)
    answer = answer_job(code, tests)
    for number, unit in enumerate(_units_of(tests)):
        reason = outcomes[number][0]
        unsure = reason in ("unseen", "wrong answer") or (
            reason.startswith("error: ") and reason not in _UNREADABLE
        )
        if unsure and unit.needs_object(str(answer["entry_point"])):
            outcomes[number] = (judge_beside(runner, limits, began + deadline, answer, unit), "")
            starts += 1
    if any(reason == "unseen" for reason, _ in outcomes.values()):
        raise DataError(unseen)
    return build_report(outcomes, units, began, runner, starts)


def names_wanted(tests: CodeTests) -> set[str]:
    """The names that these tests expect the answer to define."""
    if isinstance(tests, InputOutputTests):
        return {tests.fn_name} if tests.fn_name else set()
    texts = [tests.test] if not isinstance(tests, AssertTests) else list(tests.tests)
    setup = "" if isinstance(tests, HumanEvalTests) else tests.setup
    trees = [tree for tree in map(tree_of, (*texts, setup, tests.prompt)) if tree]
    return wanted_in(trees) | ({tests.entry_point} if tests.entry_point else set())


def _units_of(tests: CodeTests) -> list[CodeUnit]:
    if isinstance(tests, HumanEvalTests):
        return [CodeUnit(tests.test, "check")]
    if isinstance(tests, SuiteTests):
        return [CodeUnit(tests.test, "suite", case, setup=tests.setup) for case in tests.cases]
    lines = list(tests.tests) if isinstance(tests, AssertTests) else []
    return [
        CodeUnit(line, "asserts", before=lines[:number], setup=tests.setup)  # type: ignore[union-attr]
        for number, line in enumerate(lines)
    ]


def build_report(
    outcomes: dict[int, tuple[str, str]], units: int, began: float, runner: Runner, starts: int
) -> CodeTestReport:
    """Put the outcomes of all units in order."""
    ordered = tuple(UnitOutcome(number, *outcomes[number]) for number in range(units))
    return CodeTestReport(ordered, time.monotonic() - began, runner.name, starts)


def _attempts(
    code: str, tests: CodeTests, units: int, runner: LocalRunner, limits: SandboxLimits
) -> Callable[[int, Clock], Attempt]:
    if isinstance(tests, InputOutputTests) and not tests.fn_name:
        inputs = [as_text(value) for value in tests.inputs]
        expected = [as_text(value) for value in tests.outputs]
        return lambda first, clock: ProgramAttempt(limits, clock, first, inputs, expected).run(
            runner, limits, code
        )
    answer, job = answer_job(code, tests), test_job(tests)
    return lambda first, clock: PairAttempt(limits, clock, first, units).run(
        runner, limits, answer, job
    )


def answer_job(code: str, tests: CodeTests) -> dict[str, object]:
    """Return everything the answer's process is told: no test, no expected value."""
    prompt, entry_point = (
        ("", "") if isinstance(tests, InputOutputTests) else (tests.prompt, tests.entry_point)
    )
    return {"code": code, "prompt": prompt, "entry_point": entry_point}


def test_job(tests: CodeTests) -> dict[str, object]:
    """Return everything the test process is told."""
    job: dict[str, object] = {
        "prompt": "",
        "setup": "",
        "entry_point": "",
        "test": "",
        "tests": [],
        "calls": [],
    }
    if isinstance(tests, HumanEvalTests):
        job.update(
            style="check", prompt=tests.prompt, entry_point=tests.entry_point, test=tests.test
        )
    elif isinstance(tests, SuiteTests):
        job.update(
            style="suite",
            test=tests.test,
            cases=list(tests.cases),
            setup=tests.setup,
            prompt=tests.prompt,
        )
        job.update(entry_point=tests.entry_point)
    elif isinstance(tests, AssertTests):
        job.update(style="asserts", tests=list(tests.tests), setup=tests.setup, prompt=tests.prompt)
        job.update(entry_point=tests.entry_point)
    else:
        calls = [
            _call(given, expected)
            for given, expected in zip(tests.inputs, tests.outputs, strict=True)
        ]
        job.update(style="calls", entry_point=tests.fn_name, calls=calls)
    return job


def _call(given: Any, expected: Any) -> tuple[list[Any], Any]:
    if isinstance(given, str):
        try:
            arguments = [json.loads(line) for line in given.split("\n") if line.strip()]
            return arguments, json.loads(expected) if isinstance(expected, str) else expected
        except ValueError:
            return [given], expected
    return (list(given) if isinstance(given, (list, tuple)) else [given]), expected
