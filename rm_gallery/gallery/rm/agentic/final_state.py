"""What an agent left behind, held against checks of files, programs, queries, servers and tool calls."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.engine.pool import WorkerCrashed, get_pool
from rm_gallery.core.reward.outputs import METRICS
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import RuleReward, known, shown
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.sandbox.code_test_spec import parse_code_tests
from rm_gallery.core.sandbox.code_tests import VacuousTests, run_code_tests
from rm_gallery.core.sandbox.command import Program, run_on_copy
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.sandbox.sql import QueryResult, run_file_query_in_worker, same_results
from rm_gallery.core.sandbox.workspace import (
    ReadBounds,
    StateFault,
    Workspace,
    WorkspaceTooLarge,
    copy_database,
    temporary_folder,
    unpack,
    whose_size,
)
from rm_gallery.core.score import Score, deciding, failed, score_of_error, scored, unscored
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.utils.errors import (
    Cause,
    ConfigError,
    DataError,
    DeadlineExceeded,
    RMGalleryError,
    SandboxUnavailable,
    Unscored,
)
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.agentic.state_checks import (
    ABSENT,
    LISTED,
    CallsCheck,
    ChangesCheck,
    CommandCheck,
    FileCheck,
    HttpCheck,
    QueryCheck,
    StateCheck,
    TestsCheck,
    listed,
    not_in,
    plain_text,
    read_state_check,
    several,
)
from rm_gallery.gallery.rm.agentic.tools import maps_texts
from rm_gallery.gallery.rm.code import failed_tests

_MOST_BODY = 4 << 20
_MOST_CODE = 1 << 20
_TESTS_AT_ONCE = 6
"""So many times its limit all tests of one check may take."""
_HERE = ("127.0.0.1", "::1", "localhost")


class StateUnknown(RMGalleryError):
    """Some checks broke, and the others do not decide the value; another run may tell it."""

    def __init__(self, message: str, reason: str, cause: Cause) -> None:
        super().__init__(message)
        self.reason, self.cause = reason, cause


# -- the reward --------------------------------------------------------------------------------------


class CheckOutcome(NamedTuple):
    """A check by name, and what came of it: 1 or 0, or who caused that it could not be made."""

    name: str
    weight: float
    forbidden: bool
    score: Score[float]


class StateVerdict(NamedTuple):
    """What all checks together say."""

    outcomes: list[CheckOutcome]
    bounds: tuple[float, float]
    """Lowest and highest possible value: equal where every check was made, or where those that were
    made decide.
    """

    @property
    def value(self) -> float | None:
        """The value; None where it could be another one."""
        return self.bounds[0] if self.bounds[0] == self.bounds[1] else None


@RewardRegistry.register("final_state")
class FinalStateReward(RuleReward):
    """Weighted mean of checks of what an agent left behind: files, changes, programs, tests, SQLite
    rows, a server's state, tool calls.

    The checks are mappings with `kind` (file, changes, command, tests, query, http, calls), in
    `checks` of answer.label or metadata, else in the setting `checks`; docs/final_state.md lists
    their fields. `workspace` there is the folder that the agent left, a tar or zip of it, or its
    files (path to text); `start` is the state before, for `changes`. Each check is 1 or 0, a
    component by its name; `weight` weighs it, and the value is 0 where one with `forbidden` fails.
    What the answer caused fails a check: a link out of the workspace, a pipe, a file too large to
    read, a program that runs into a limit. Programs and tests run in the sandbox on a copy, after the
    check's own files have replaced the agent's; nothing in the workspace reaches the interpreter's
    start.

    Range [0, 1], higher is better. What others caused leaves a check missing: no sandbox
    (`caller`), a server that does not answer (`endpoint`), a check that cannot be read, a workspace too
    large as a whole whose start is not known to have fitted (`data`).
    Then there is no value unless the others decide it, and the message gives its bounds, as does
    `examine`. Unscored without checks (`no_checks`), without a workspace that a check needs
    (`no_workspace`) or a start (`no_start`). Raises ConfigError for a malformed setting `checks`.
    Source: checks of the final state as in tau-bench (arXiv 2406.12045) and Terminal-Bench.

    >>> from rm_gallery.core.reward.schema import sample_of
    >>> reward = FinalStateReward(checks=[{"kind": "file", "path": "a.txt", "equals": "4"}])
    >>> done = reward.evaluate(sample_of("Write 2 + 2 to a.txt", "Done", workspace={"a.txt": "4"}))
    >>> done.output[0].answer.reward.score
    1.0
    """

    needs = frozenset({"checks"})
    touches = {
        "files": ("workspace", "start"),
        "programs": ("checks",),
        "network": ("checks",),
    }
    name = "final_state"
    checks: list[dict[str, Any]] = Field(default_factory=list)
    """The checks, where a sample has none of its own."""
    all_or_nothing: bool = False
    """Whether the value is 1 when every check holds and 0 otherwise."""
    sandbox: Literal["auto", "bwrap", "subprocess"] = "auto"
    """Where programs and tests run; subprocess has no walls, and a hostile answer can forge there."""
    timeout: PositiveFloat = 10.0
    """Seconds that one program, test, pattern, query or request may take."""
    memory_mb: int = Field(default=512, ge=64)
    """Megabytes that a program may use."""
    packages: list[str] = Field(default_factory=list)
    """Folders with packages that programs and tests may import."""
    hosts: list[str] = Field(default_factory=list)
    """Hosts that may be asked beside this machine."""
    max_file_mb: PositiveFloat = 64.0
    """Megabytes that are read of one file; sixteen times as much of all."""
    max_files: PositiveInt = 100_000
    """Files that a workspace may hold."""

    example = Example(
        sample_of(
            "Write the total of the bill to total.txt, and change nothing else.",
            {
                "content": "I wrote the total.",
                "label": {"workspace": {"bill.txt": "3\n4\n", "total.txt": "7\n"}},
            },
            {"content": "I wrote the total.", "label": {"workspace": {"bill.txt": "7\n"}}},
            start={"bill.txt": "3\n4\n"},
            checks=[
                {"kind": "file", "path": "total.txt", "equals": "7", "weight": 3},
                {"kind": "changes", "allowed": ["total.txt"]},
            ],
        ),
        inputs={
            "checks": "`checks` and `workspace`, with `start` where changes are looked at, in "
            "`answer.label` or `metadata`",
            "answer": "the workspace of each `output[i]`; for checks of calls the tool calls of its "
            "steps and its answer",
        },
    )

    def model_post_init(self, context: Any) -> None:
        """Read the checks."""
        super().model_post_init(context)
        for number, given in enumerate(self.checks, 1):
            try:
                self._allowed_check(given, number)
            except DataError as error:
                raise ConfigError(f"{self.name}: {error}") from error

    def _allowed_check(self, given: Any, number: int) -> StateCheck:
        check = read_state_check(given, number)
        allowed = {*_HERE, *map(str.lower, self.hosts)}
        if isinstance(check, HttpCheck) and check.host not in allowed:
            raise DataError(
                f"check {number}: field 'url': found the host {excerpt(check.host)!r}; only this "
                "machine is asked, and what the setting hosts names."
            )
        return check

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        verdict = await self.examine(sample)
        outcomes, (low, high) = verdict.outcomes, verdict.bounds
        missing = [outcome for outcome in outcomes if not outcome.score.ok]
        wrong = [outcome for outcome in outcomes if outcome.score.value == 0.0]
        said = [
            each.score.reason
            if each.score.reason.startswith(each.name)
            else f"{each.name}: {each.score.reason}"
            for each in (missing or wrong)[:LISTED]
        ]
        reason = f"{len(outcomes) - len(missing) - len(wrong)} of {len(outcomes)} checks hold"
        if verdict.value is None:
            first = deciding([outcome.score for outcome in missing])
            message = (
                f"{self.name}: {reason}, {len(missing)} could not be made, so that the value lies "
                f"between {low:.3g} and {high:.3g}. {'; '.join(said)}"
            )
            if first.status == "unscored":
                raise Unscored(message, reason=first.code, cause=first.cause)
            raise StateUnknown(message, first.code, first.cause or "rule")
        metrics = {each.name: each.score.value for each in outcomes if each.score.ok}
        return Score(
            verdict.value,
            f"{reason}{': ' if said else '.'}{'; '.join(said)}",
            extra={METRICS: metrics},
        )

    async def examine(self, sample: DataSample) -> StateVerdict:
        """What each check of a sample with one output says, and the bounds of the value.

        Raises Unscored where there are no checks.
        """
        given = known(sample, "checks") or self.checks
        try:
            given = read_json(given) if isinstance(given, str) else given
        except ValueError as error:
            raise Unscored(
                f"{self.name}: the checks are no JSON: {error}", reason="bad_check"
            ) from error
        if not isinstance(given, list | tuple) or not given:
            raise Unscored(
                f"{self.name} needs checks, a list of mappings: set 'checks' in metadata, in "
                f"answer.label, or of the reward; found {shown(given)}.",
                reason="no_checks",
            )
        read: list[StateCheck | Score[float]] = []
        for number, each in enumerate(given, 1):
            try:
                read.append(self._allowed_check(each, number))
            except DataError as error:
                read.append(unscored("bad_check", str(error), "data"))
        with temporary_folder() as own:
            # opened once, and only where a check looks at it
            looks = not all(isinstance(each, Score | CallsCheck | HttpCheck) for each in read)
            left = partial(_left_folder, known(sample, "workspace"), own, self._bounds, self.name)
            workspace = asyncio.ensure_future(asyncio.to_thread(left)) if looks else None
            scores = [
                each if isinstance(each, Score) else await self._judged(each, sample, workspace)
                for each in read
            ]
        names = _component_names(read)
        outcomes = [
            CheckOutcome(name, *_standing(check, one), score)
            for name, check, one, score in zip(names, read, given, scores, strict=True)
        ]
        low, high = (self._value(outcomes, missing) for missing in (0.0, 1.0))
        return StateVerdict(outcomes, (low, high))

    def _value(self, outcomes: Sequence[CheckOutcome], missing: float) -> float:
        values = [missing if o.score.value is None else o.score.value for o in outcomes]
        if any(o.forbidden and v < 1.0 for o, v in zip(outcomes, values, strict=True)):
            return 0.0
        if self.all_or_nothing:
            return float(min(values))
        weights = [outcome.weight for outcome in outcomes]
        return math.fsum(map(float.__mul__, weights, values)) / math.fsum(weights)

    # -- one check --------------------------------------------------------------------------------

    @property
    def _bounds(self) -> ReadBounds:
        return ReadBounds(int(self.max_file_mb * (1 << 20)), self.max_files)

    @property
    def _limits(self) -> SandboxLimits:
        seconds = within_deadline(self.timeout)
        return SandboxLimits(wall_seconds=seconds, cpu_seconds=seconds, memory_mb=self.memory_mb)

    async def _judged(
        self, check: StateCheck, sample: DataSample, workspace: asyncio.Future[str] | None
    ) -> Score[float]:
        try:
            fault = await self._fault(check, sample, workspace)
        except WorkspaceTooLarge as error:
            start = getattr(check, "start", None) or known(sample, "start")
            if await asyncio.to_thread(whose_size, start, self._bounds) == "data":
                return unscored(error.reason, str(error), "data")
            return scored(0.0, str(error))
        except StateFault as error:
            return scored(0.0, str(error))
        except SandboxUnavailable as error:
            return failed("sandbox", str(error), "caller")
        except RMGalleryError as error:
            return score_of_error(error)
        if isinstance(fault, Score):
            return fault
        return scored(float(not fault), fault)

    async def _fault(
        self, check: StateCheck, sample: DataSample, workspace: asyncio.Future[str] | None
    ) -> str | Score[float]:
        """Why a check fails, '' where it holds; or why it could not be made."""
        if isinstance(check, CallsCheck):
            return check.fault(sample.output[0])
        if isinstance(check, HttpCheck):
            return await _asked(check, within_deadline(self.timeout))
        assert workspace is not None
        folder = await workspace
        look = partial(_look, folder, self._bounds)
        if isinstance(check, FileCheck):
            limit = within_deadline(self.timeout)
            try:
                return await get_pool().asubmit(look, check, deadline=limit)
            except DeadlineExceeded:
                if check.matches is None:
                    raise
                return "the pattern runs too long on it"
            except (MemoryError, WorkerCrashed):
                return "it takes too much memory to be read"
        if isinstance(check, ChangesCheck):
            start = check.start if check.start is not None else known(sample, "start")
            if start is None:
                raise Unscored(
                    f"{self.name} needs the state at the start: set 'start' in metadata.",
                    reason="no_start",
                )
            limit = within_deadline(2 * self.timeout)
            return await get_pool().asubmit(look, check, _start_of(start), deadline=limit)
        if isinstance(check, CommandCheck):
            return await self._command(check, folder)
        if isinstance(check, TestsCheck):
            code = await asyncio.to_thread(_bytes_of, folder, self._bounds, check.path)
            return await self._tests(check, code)
        assert isinstance(check, QueryCheck)
        return await self._query(check, folder)

    async def _command(self, check: CommandCheck, folder: str) -> str:
        run = await run_on_copy(
            folder,
            Program(check.run[1:], check.files, check.stdin),
            sandbox=self.sandbox,
            packages=self.packages,
            limits=self._limits,
            bounds=self._bounds,
        )
        if run.stopped:
            return f"it was stopped: {run.stopped}"
        if check.exit_code is not None and run.exit_code != check.exit_code:
            return f"exit code {run.exit_code}" + (f": {run.last_line}" if run.last_line else "")
        text = plain_text(run.stdout)
        if check.stdout is not None and text.rstrip() != plain_text(check.stdout).rstrip():
            return f"it prints {shown(text)}"
        lacking = not_in(text, check.stdout_contains)
        return f"it does not print {lacking}" if lacking else ""

    async def _tests(self, check: TestsCheck, code: bytes | None) -> str | Score[float]:
        if code is None or len(code) > _MOST_CODE:
            return ABSENT if code is None else "it is too long"
        module = re.escape(check.path.rpartition("/")[2].removesuffix(".py"))
        own = re.compile(rf"(?m)^from {module} import .*$|^import {module}$")
        texts = [own.sub("", text) for text in listed(check.tests)]
        tests = parse_code_tests({"tests": texts, "setup": check.setup})
        runner = get_runner(self.sandbox, packages=self.packages)
        try:
            report = await run_code_tests(
                code.decode("utf-8", "replace"),
                tests,
                runner=runner,
                limits=self._limits,
                deadline=within_deadline(_TESTS_AT_ONCE * self.timeout),
            )
        except (VacuousTests, DataError) as error:
            return unscored("bad_tests", str(error), "data")
        return "; ".join(failed_tests(report)[:LISTED])

    async def _query(self, check: QueryCheck, folder: str) -> str:
        with temporary_folder() as own:
            if not await asyncio.to_thread(copy_database, folder, self._bounds, check.path, own):
                return ABSENT
            found = await run_file_query_in_worker(
                os.path.join(own, "database"), check.query, deadline=within_deadline(self.timeout)
            )
        if found.error:
            return f"the query does not run: {found.error}"
        rows = tuple(tuple(map(_cell, row)) for row in check.rows)
        width = len(rows[0]) if rows else len(found.columns)
        wanted = QueryResult(tuple(map(str, range(width))), rows)
        if await same_results(found, wanted, ordered=check.ordered):
            return ""
        return f"{len(found.rows)} rows: {shown([list(row) for row in found.rows[:3]], 200)}"


def _left_folder(given: Any, own: str, bounds: ReadBounds, name: str) -> str:
    """The folder of a sample's workspace, `own` where it had to be unpacked; Unscored, DataError or
    StateFault where there is none.
    """
    given = _plain_path(given)
    if given is None or given == "":
        raise Unscored(
            f"{name} needs what the agent left: set 'workspace' in answer.label or metadata to a "
            "folder, an archive or a mapping of path to text.",
            reason="no_workspace",
        )
    if not isinstance(given, str | Mapping):
        raise DataError(f"{name}: the workspace is a path or a mapping; found {shown(given)}.")
    if isinstance(given, str) and not os.path.isfile(given):
        return given
    unpack(given, own, bounds)
    return own


def _standing(check: StateCheck | Score[float], given: Any) -> tuple[float, bool]:
    """Weight, and whether the value is 0 where it fails, of a check that may be unreadable: whatever
    could be meant stays within the bounds.
    """
    if isinstance(check, StateCheck):
        return check.weight, check.forbidden
    about = given if isinstance(given, Mapping) else {}
    weight = about.get("weight", 1.0)
    fits = type(weight) in (int, float) and 0 < weight < math.inf
    return (float(weight) if fits else 1.0), about.get("forbidden", False) is not False


def _look(folder: str, bounds: ReadBounds, check: FileCheck | ChangesCheck, *start: Any) -> str:
    """In a worker process: what a pattern or a folder keeps busy can be killed."""
    with Workspace(folder, bounds) as workspace:
        if isinstance(check, FileCheck):
            return check.fault(workspace)
        before = start[0]
        if isinstance(before, str):
            with Workspace(before, bounds) as earlier:
                before = earlier.state()
        large = [path for path, state in before.items() if state.startswith("large:")]
        if large:
            raise DataError(
                f"the start has files that are not read, {several(large)}: raise max_file_mb."
            )
        return check.fault(workspace, before)


def _bytes_of(folder: str, bounds: ReadBounds, path: str) -> bytes | None:
    with Workspace(folder, bounds) as workspace:
        return workspace.read(path)


def _plain_path(given: Any) -> Any:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def _start_of(given: Any) -> Any:
    start = _plain_path(given)
    if isinstance(start, str) or maps_texts(start):
        return start
    raise DataError(f"the start is a folder or a mapping of path to text; found {shown(given)}.")


async def _asked(check: HttpCheck, timeout: float) -> str | Score[float]:
    import aiohttp

    body = bytearray()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session:
            async with session.get(check.url, allow_redirects=False) as response:
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > _MOST_BODY:
                        return "the answer is too long"
                status = response.status
    except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError) as error:
        return f"the answer cannot be read ({type(error).__name__})"
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        why = f"{excerpt(check.target)} does not answer ({type(error).__name__})"
        return failed("unreachable", why, "endpoint")
    if status != check.status:
        return f"status {status}"
    text = plain_text(body.decode("utf-8", "replace"))
    lacking = not_in(text, check.contains)
    return f"the answer does not hold {lacking}" if lacking else check.json_fault(text)


def _component_names(checks: Sequence[StateCheck | Score[float]]) -> list[str]:
    """What the components are called: each name once."""
    names = [
        f"check {number}"
        if isinstance(check, Score)
        else check.name or f"{check.kind} {excerpt(check.target, 60)}".strip()
        for number, check in enumerate(checks, 1)
    ]
    often = Counter(names)
    return [
        f"{name} ({number})" if often[name] > 1 else name for number, name in enumerate(names, 1)
    ]


def _cell(value: Any) -> Any:
    """A cell as SQLite has it."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float | str | bytes | None) else json.dumps(value)
