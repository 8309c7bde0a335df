"""Score a code answer by its tests, the answer and the tests walled off from each other."""

from __future__ import annotations

import ast
import functools
import re
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from rm_gallery.core.engine.pool import WorkerCrashed, WorkerPool, get_pool, processors
from rm_gallery.core.sandbox.attempt import (
    Attempt,
    Clock,
    PairAttempt,
    ProgramAttempt,
    as_text,
    judge_in_one_process,
)
from rm_gallery.core.sandbox.code_test_spec import (
    CodeTestReport,
    CodeTests,
    InputOutputTests,
    answer_job,
    build_report,
    names_wanted,
    test_job,
    unit_count,
    units_of,
)
from rm_gallery.core.sandbox.fusion import run_remotely
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.runner import LocalRunner, RemoteRunner, Runner
from rm_gallery.core.sandbox.test_source import surely_asserts
from rm_gallery.core.text.blocks import parse_python
from rm_gallery.core.utils.errors import ConfigError, DataError

_PYTHON = frozenset("python python3 py py3 ipython pycon cython sage".split())
_FENCE = re.compile(r"(`{3,}|~{3,})[{.\s]*([A-Za-z0-9+#_-]*)[^`]*")
"""A fence, whose backtick later in the line would make it inline code, and its language."""


class _Block(NamedTuple):
    language: str
    body: str
    complete: bool


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
    match blocks:
        case [_Block("", _, False)] if _is_program(outside):
            return outside  # the fence closes what a chat template had opened
    python = [block for block in blocks if block.language in _PYTHON]
    unmarked = [block for block in blocks if not block.language and _is_program(block.body)]
    defining = [
        block
        for block in blocks
        if any(_defines(name).search(block.body) for name in names)
        and (block in unmarked or block in python)
    ]
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
    body = getattr(parse_python(text), "body", [])
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in body)


def _blocks(text: str) -> tuple[list[_Block], str]:
    """The fenced blocks that are not empty, and what stands outside of any."""
    blocks: list[_Block] = []
    block: list[str] | None = None
    fence, language, indent = "", "", 0
    outside: list[str] = []

    def end(complete: bool) -> None:
        if any(line.strip() for line in block or ()):
            blocks.append(_Block(language, "\n".join(block or ()) + "\n", complete))

    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        mark = _FENCE.fullmatch(line.strip())
        if block is None:
            if mark:
                fence, language, block = mark[1], mark[2].lower(), []
                indent = len(line) - len(line.lstrip())
            else:
                outside.append(line)
        elif mark and mark[0] == mark[1] and mark[1].startswith(fence):
            end(True)
            block = None
        else:
            block.append(line[min(indent, len(line) - len(line.lstrip())) :])
    if block is not None:
        end(False)
    return blocks, "\n".join(outside)


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
        run = functools.partial(
            run_remotely, tests=tests, units=units, runner=runner, limits=limits, deadline=deadline
        )
        report = await run(code)
        if _may_be_vacuous(report, tests):
            _refuse_vacuous(tests, [await run(stub) for stub in _stubs_for(tests)])
        return report
    if not isinstance(runner, LocalRunner):
        raise ConfigError(f"runner must come from get_runner(), found {type(runner).__name__}")
    if pool is None:
        # a sandbox is two processes that mostly wait for each other
        pool = get_pool("sandbox", max_workers=processors() + 1)
    try:
        score = functools.partial(_run_locally, tests, units, runner, limits, deadline)
        return await pool.asubmit(
            _run_and_check, code, tests, score, deadline=deadline + _AFTER_DEADLINE
        )
    except WorkerCrashed:
        if runner.walls:
            raise
        # without walls the answer can kill whoever runs it, and must gain nothing by it
        return build_report(
            dict.fromkeys(range(units), ("tampering", "")), units, time.monotonic(), runner, 1
        )


def _run_and_check(
    code: str, tests: CodeTests, score: Callable[[str], CodeTestReport]
) -> CodeTestReport:
    report = score(code)
    if _may_be_vacuous(report, tests):
        stubs = []
        for stub in _stubs_for(tests):
            stubs.append(score(stub))
            if stubs[-1].score < 1.0:
                break
        _refuse_vacuous(tests, stubs)
    return report


def _may_be_vacuous(report: CodeTestReport, tests: CodeTests) -> bool:
    """Whether nothing shows yet that the tests assert something; VacuousTests where it is known
    that they do not.
    """
    if isinstance(tests, InputOutputTests) or "wrong answer" in report.reasons:
        return False
    key = repr(tests)
    if key not in _VACUOUS and any(
        surely_asserts(unit.text, unit.part) for unit in units_of(tests)
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
    vacuous = "wrong answer" not in stubs[-1].reasons and [stub.score for stub in stubs[:-1]] == [
        1.0,
        1.0,
    ]
    if all("deadline" not in stub.reasons for stub in stubs):
        _remember(repr(tests), vacuous)
    if vacuous:
        raise VacuousTests(_NOTHING)


def _remember(key: str, vacuous: bool) -> None:
    if len(_VACUOUS) >= _VACUOUS_KEPT:
        _VACUOUS.clear()
    _VACUOUS[key] = vacuous


def _run_locally(
    tests: CodeTests,
    units: int,
    runner: LocalRunner,
    limits: SandboxLimits,
    deadline: float,
    code: str,
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
    for number, unit in enumerate(units_of(tests)):
        reason = outcomes[number][0]
        unsure = reason in ("unseen", "wrong answer") or (
            reason.startswith("error: ") and reason not in _UNREADABLE
        )
        if unsure and unit.needs_object(str(answer["entry_point"])):
            outcomes[number] = (
                judge_in_one_process(runner, limits, began + deadline, answer, unit),
                "",
            )
            starts += 1
    if any(reason == "unseen" for reason, _ in outcomes.values()):
        raise DataError(unseen)
    return build_report(outcomes, units, began, runner, starts)


def _attempts(
    code: str, tests: CodeTests, units: int, runner: LocalRunner, limits: SandboxLimits
) -> Callable[[int, Clock], Attempt]:
    if isinstance(tests, InputOutputTests) and not tests.fn_name:
        texts = [list(map(as_text, values)) for values in (tests.inputs, tests.outputs)]
        return lambda first, clock: ProgramAttempt(limits, clock, first, *texts).run(
            runner, limits, code
        )
    answer, job = answer_job(code, tests), test_job(tests)
    return lambda first, clock: PairAttempt(clock, first, units).run(runner, limits, answer, job)
