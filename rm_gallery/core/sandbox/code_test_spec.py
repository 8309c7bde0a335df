"""The tests of a code answer: their kinds and units, the jobs of both processes, and the report."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Union

from rm_gallery.core.sandbox.attempt import CodeUnit
from rm_gallery.core.sandbox.runner import Runner
from rm_gallery.core.sandbox.test_source import cases_in, tree_of, wanted_in
from rm_gallery.core.utils.errors import DataError


@dataclass(frozen=True)
class HumanEvalTests:
    """A `check(candidate)` function and the name to pass to it (HumanEval, arXiv:2107.03374): one
    unit.
    """

    style: ClassVar[str] = "check"
    setup: ClassVar[str] = ""
    test: str
    entry_point: str
    prompt: str = ""
    """What the answer continues: signature and docstring, with imports and helper functions before
    it.
    """

    @property
    def texts(self) -> Sequence[str]:
        """The Python texts of the tests, one after the other."""
        return [self.test]


@dataclass(frozen=True)
class AssertTests:
    """Assert lines (MBPP, arXiv:2108.07732): each line is a unit."""

    style: ClassVar[str] = "asserts"
    tests: Sequence[str]
    setup: str = ""
    """Code run once before the lines."""
    prompt: str = ""
    entry_point: str = ""

    @property
    def texts(self) -> Sequence[str]:
        """The Python texts of the tests, one after the other."""
        return self.tests


@dataclass(frozen=True)
class SuiteTests:
    """A test file: each test function, and each method of a test class or `unittest` case, is a
    unit.
    """

    style: ClassVar[str] = "suite"
    test: str
    cases: Sequence[str]
    """Names of the units, as `function` or `Class.method`."""
    setup: str = ""
    prompt: str = ""
    entry_point: str = ""

    @property
    def texts(self) -> Sequence[str]:
        """The Python texts of the tests, one after the other."""
        return [self.test]


@dataclass(frozen=True)
class InputOutputTests:
    """Inputs with expected outputs (APPS, arXiv:2105.09938): each input is a unit.

    Without `fn_name` inputs are stdin texts and outputs what has to be printed; with it, inputs are
    argument lists (or texts with one JSON value per line) and outputs the values to be returned.
    """

    style: ClassVar[str] = "calls"
    texts: ClassVar[Sequence[str]] = ()
    setup: ClassVar[str] = ""
    prompt: ClassVar[str] = ""
    entry_point: ClassVar[str] = ""
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    fn_name: str | None = None


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
    prompt, setup = _text_field(record, "prompt", ""), _text_field(record, "setup", "")
    if record.get("test") is not None:
        joined = _text_field(record, "test")
        cases = [] if "def check" in joined else cases_in(joined)
    elif record.get("tests") is not None:
        tests = record["tests"]
        lines = [tests] if isinstance(tests, str) else list(tests)
        if any(not isinstance(line, str) for line in lines):
            raise DataError("code tests: 'tests' must be text or a list of texts")
        joined = "\n\n".join(lines)
        cases = cases_in(joined)
    else:
        raise DataError(
            "no code tests found: expected 'test' with 'entry_point', 'tests', or "
            f"'inputs_outputs'; the record has the keys {sorted(map(str, record))[:20]}"
        )
    if record.get("test") is not None and not cases:
        return HumanEvalTests(joined, _text_field(record, "entry_point"), prompt)
    entry_point = _text_field(record, "entry_point", "")
    if cases:
        return SuiteTests(joined, cases, setup, prompt, entry_point)
    return AssertTests(lines, setup, prompt, entry_point)


def _text_field(record: Mapping[str, Any], key: str, default: str | None = None) -> str:
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
    match value:
        case {"inputs": inputs, "outputs": outputs}:
            tests = InputOutputTests(list(inputs), list(outputs), value.get("fn_name"))
            unit_count(tests, least=0)
            return tests
    raise DataError("code tests: 'inputs_outputs' must hold 'inputs' and 'outputs'")


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
    starts: int = 1
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
        return dict(Counter(outcome.reason for outcome in self.outcomes))


def unit_count(tests: CodeTests, least: int = 1) -> int:
    """Return how many units the tests have; raises DataError for less than `least`, or for unequal
    lists.
    """
    if isinstance(tests, InputOutputTests):
        units = len(tests.inputs)
        if len(tests.outputs) != units:
            raise DataError(f"code tests: {units} inputs but {len(tests.outputs)} outputs")
    else:
        units = len(units_of(tests))
    if units < least:
        raise DataError("the code tests are empty: nothing can be scored")
    return units


def names_wanted(tests: CodeTests) -> set[str]:
    """The names that these tests expect the answer to define."""
    if isinstance(tests, InputOutputTests):
        return {tests.fn_name} if tests.fn_name else set()
    trees = filter(None, map(tree_of, (*tests.texts, tests.setup, tests.prompt)))
    return wanted_in(list(trees)) | ({tests.entry_point} if tests.entry_point else set())


def units_of(tests: CodeTests) -> list[CodeUnit]:
    """The units that hold code as text; none for inputs with outputs."""
    if isinstance(tests, SuiteTests):
        return [CodeUnit(tests.test, tests.style, case, setup=tests.setup) for case in tests.cases]
    texts = list(tests.texts)
    return [
        CodeUnit(text, tests.style, before=texts[:number], setup=tests.setup)
        for number, text in enumerate(texts)
    ]


def build_report(
    outcomes: dict[int, tuple[str, str]], units: int, began: float, runner: Runner, starts: int
) -> CodeTestReport:
    """Put the outcomes of all units in order."""
    ordered = tuple(UnitOutcome(number, *outcomes[number]) for number in range(units))
    return CodeTestReport(ordered, time.monotonic() - began, runner.name, starts)


def answer_job(code: str, tests: CodeTests) -> dict[str, object]:
    """Return everything the answer's process is told: no test, no expected value."""
    return {"code": code, "prompt": tests.prompt, "entry_point": tests.entry_point}


def test_job(tests: CodeTests) -> dict[str, object]:
    """Return everything the test process is told."""
    job: dict[str, object] = {
        "style": tests.style,
        "texts": list(tests.texts),
        "setup": tests.setup,
        "prompt": tests.prompt,
        "entry_point": tests.entry_point,
    }
    if isinstance(tests, SuiteTests):
        job["cases"] = list(tests.cases)
    elif isinstance(tests, InputOutputTests):
        job["entry_point"] = tests.fn_name
        job["calls"] = list(map(_call, tests.inputs, tests.outputs))
    return job


def _call(given: Any, expected: Any) -> tuple[list[Any], Any]:
    if isinstance(given, str):
        try:
            arguments = [json.loads(line) for line in given.split("\n") if line.strip()]
            return arguments, json.loads(expected) if isinstance(expected, str) else expected
        except ValueError:
            return [given], expected
    return (list(given) if isinstance(given, (list, tuple)) else [given]), expected
