"""Does the code of an answer pass its tests?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_serializer

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.sandbox.code_tests import CodeTestReport, CodeTests, extract_code, parse_code_tests, run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner, shown_sandbox
from rm_gallery.core.text.blocks import parse_python
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import Cause, DataError, RMGalleryError, SandboxUnavailable, Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score

_TESTS = ("inputs_outputs", "input_output", "inputs", "test", "tests")
_BESIDE = ("prompt", "entry_point", "setup")
_SHOWN = 5
_DOUBLE = sample_of(
    "Write a Python function double(x) that doubles a number.",
    "~~~python\ndef double(x):\n    return 2 * x\n~~~",
    "~~~python\ndef double(x):\n    return x * x\n~~~",
    tests=["assert double(2) == 4", "assert double(3) == 6", "assert double(-1) == -2"],
)


class SandboxFailed(RMGalleryError):
    """A sandbox that worked before did not start for one answer; only its sample fails."""

    reason = "sandbox"
    cause: Cause = "caller"


@RewardRegistry.register("code_execution")
class CodeExecutionReward(RuleReward):
    """Share of all tests that the answer's code passes: tests passed / tests.

    The code is the last fenced block after a thought, else the whole answer. Tests come from answer.label, else metadata:
    `test` + `entry_point` (HumanEval; one test, with `prompt` or the query's code before the answer), `tests` (assert lines,
    with `setup`), or `inputs_outputs` (APPS: `inputs`, `outputs`, and `fn_name` for functions; without it programs that read
    stdin and print). Answer and tests run in two sandboxed processes, so that the answer sees neither tests nor expected
    values, and the reason names the first failures without them. What the answer returns is data: methods of an object of
    its own are not believed, except those of a class that the tests construct. Integers are exact, other numbers of `outputs`
    agree within 1e-6 of their size.

    Range [0, 1], higher is better; an error, a test past `timeout` seconds, or a limit is a test failed. Unscored without
    tests (`no_tests`) and when the tests themselves cannot run (`bad_tests`). Raises SandboxUnavailable before anything
    runs where bubblewrap is missing; `sandbox="subprocess"` accepts limits alone, `"fusion:URL"` asks a SandboxFusion
    service. Sources: HumanEval (arXiv 2107.03374), MBPP (2108.07732), APPS (2105.09938).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"tests", "sandbox"})

    name: str = "code_execution"
    sandbox: str = "auto"
    """Where the code runs: auto or bwrap, subprocess, or fusion:URL."""
    timeout: float = Field(default=10.0, gt=0)
    """Seconds one test may take."""
    total_timeout: float = Field(default=60.0, gt=0)
    """Seconds all tests of one answer may take, from when they start; those not reached count as failed."""
    memory_mb: int = Field(default=512, ge=64)
    """Megabytes the code may use."""
    packages: list[str] = Field(default_factory=list)
    """Folders with packages that the code may import."""
    all_or_nothing: bool = False
    """Whether an answer gets 1 for passing every test and 0 otherwise."""

    example = Example(
        _DOUBLE,
        environment="bubblewrap, see `rm-gallery doctor`",
        recorded=(
            "1.0 3 of 3 tests passed.",
            "0.3333 1 of 3 tests passed: test 2: wrong answer; test 3: wrong answer.",
        ),
    )

    @field_serializer("sandbox")
    def _shown_sandbox(self, sandbox: str) -> str:
        return shown_sandbox(sandbox)

    def describe(self) -> dict[str, Any]:
        """The settings, an address without its password."""
        return {**super().describe(), "sandbox": shown_sandbox(self.sandbox)}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(key, shown_sandbox(v) if key == "sandbox" else v) for key, v in super().__repr_args__()]

    def check(self) -> None:
        """Raise SandboxUnavailable when there is no sandbox, ConfigError for an unknown one."""
        get_runner(self.sandbox, packages=self.packages)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Run the tests."""
        tests = tests_of(sample, self.name)
        code = extract_code(split_reasoning(answer_text(sample)).final)
        if not code.strip():
            return one_score(self.name, 0.0, "The answer holds no code.")
        report = await self._run(code, tests)
        score = float(report.passed == report.total) if self.all_or_nothing else report.score
        counts = {"passed": report.passed, "total": report.total, "outcomes": report.reasons}
        return one_score(self.name, score, reason_of(report), counts)

    async def _run(self, code: str, tests: CodeTests) -> CodeTestReport:
        deadline = within_deadline(self.total_timeout)
        limits = SandboxLimits(wall_seconds=self.timeout, cpu_seconds=self.timeout, memory_mb=self.memory_mb)
        runner = get_runner(self.sandbox, packages=self.packages)
        try:
            return await run_code_tests(code, tests, runner=runner, limits=limits, deadline=deadline)
        except SandboxUnavailable as error:
            # it was there when the run began, so this is one answer's trouble and must not end the whole run
            raise SandboxFailed(str(error)) from error
        except DataError as error:
            raise Unscored(f"{self.name}: {error}", reason="bad_tests") from error


@RewardRegistry.register("code_unit_tests")
class CodeUnitTestsReward(CodeExecutionReward):
    """1 when the answer's code passes all of its tests, else 0: functional correctness, as pass@1 counts it.

    Range {0, 1}, higher is better. Tests, sandbox and everything else are those of `code_execution`, which scores the share.
    """

    name: str = "code_unit_tests"
    all_or_nothing: bool = True
    example = Example(
        _DOUBLE,
        environment="bubblewrap, see `rm-gallery doctor`",
        recorded=(
            "1.0 3 of 3 tests passed.",
            "0.0 1 of 3 tests passed: test 2: wrong answer; test 3: wrong answer.",
        ),
    )


def tests_of(sample: DataSample, reward: str) -> CodeTests:
    """The tests of the sample's one output; Unscored when there are none (`no_tests`) or they are malformed (`bad_tests`)."""
    metadata = sample.metadata or {}
    sources: list[Mapping[str, Any]] = [sample.output[0].answer.label or {}, metadata]
    found = next((source for source in sources if any(_given(source.get(key)) for key in _TESTS)), None)
    if found is None:
        raise Unscored(
            f"{reward} needs tests: set 'test' with 'entry_point', 'tests' or 'inputs_outputs' in answer.label or metadata.",
            reason="no_tests",
        )
    record = {key: value for key, value in {**_beside(metadata), **found}.items() if _given(value)}
    if "test" in record and "prompt" not in record:
        record["prompt"] = _prompt_code(sample.query_text(), str(record.get("entry_point", "")))
    try:
        return parse_code_tests(record)
    except DataError as error:
        raise Unscored(f"{reward}: {error}", reason="bad_tests") from error


def reason_of(report: CodeTestReport) -> str:
    """How many tests passed and how the first others ended; expected values are not told."""
    failed = [f"test {unit.index + 1}: {unit.reason}" for unit in report.outcomes if not unit.passed]
    more = [f"{len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
    listed = "; ".join([*failed[:_SHOWN], *more])
    return f"{report.passed} of {report.total} tests passed" + (f": {listed}." if listed else ".")


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str | list | tuple | dict) and not value)


def _beside(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in _BESIDE if key in metadata}


def _prompt_code(query: str, entry_point: str) -> str:
    """The code a query asks to be continued; empty when it is prose."""
    code = extract_code(query)
    if f"def {entry_point}" not in code or isinstance(parse_python(code), str):
        return ""
    return code
