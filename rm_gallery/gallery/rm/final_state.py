"""What an agent left behind, held against checks of files, programs, queries, servers and tool calls."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.engine.processes.pool import WorkerCrashed, get_pool
from rm_gallery.core.reward.compose import METRICS
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import RuleReward, known, one_score, shown
from rm_gallery.core.reward.schema import Example, RewardResult, sample_of
from rm_gallery.core.sandbox.code_test_spec import parse_code_tests
from rm_gallery.core.sandbox.code_tests import VacuousTests, run_code_tests
from rm_gallery.core.sandbox.command import Program, run_on_copy
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.sandbox.sql import (
    QueryResult,
    run_file_query_in_worker,
    run_query,
    same_results,
)
from rm_gallery.core.sandbox.workspace import (
    ReadBounds,
    StateFault,
    Workspace,
    inner_path,
    place,
    temporary_folder,
    unpack,
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
from rm_gallery.core.utils.models import field_names, unknown_name
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.agent import same
from rm_gallery.gallery.rm.tool_calls import MadeCall, calls_of_message

_MOST_BODY = 4 << 20
_MOST_CODE = 1 << 20
_LISTED = 5
_TESTS_AT_ONCE = 6
"""So many times its limit all tests of one check may take."""
_ABSENT = "there is no such file"
_HERE = ("127.0.0.1", "::1", "localhost")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|link:.*|large:\d+|unreadable|special", re.DOTALL)
_READS = re.compile(r"\s*(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)
_NEVER_RUNS = re.compile(
    r"syntax error|incomplete input|unrecognized token|not read-only|not a query|one statement"
)


class StateUnknown(RMGalleryError):
    """Some checks broke, and the others do not decide the value; another run may tell it."""

    def __init__(self, message: str, reason: str, cause: Cause) -> None:
        super().__init__(message)
        self.reason, self.cause = reason, cause


# -- the checks --------------------------------------------------------------------------------------


class StateCheck(BaseModel):
    """What every check has."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    name: str = ""
    """What its component is called; kind and target by default."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    forbidden: bool = False
    """Whether the whole value is the worst one when it fails."""

    @property
    def target(self) -> str:
        """What it looks at."""
        return ""


class _OfAFile(StateCheck):
    path: str

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        return _checked_path(path)

    @property
    def target(self) -> str:
        """Its path."""
        return self.path


def _checked_path(path: str) -> str:
    if not inner_path(path):
        raise ValueError("give a path relative to the workspace, with / and without ..")
    return path


class _OfJson(StateCheck):
    pointer: str | None = None
    """A JSON pointer (RFC 6901) such as `/items/0/name`; '' is the whole."""
    value: Any = None
    """What stands there; 1 equals 1.0, and true is never 1."""

    @model_validator(mode="after")
    def _both(self) -> Any:
        if ("value" in self.model_fields_set) != (self.pointer is not None):
            raise ValueError("pointer and value belong together; give both or none")
        if self.pointer and not self.pointer.startswith("/"):
            raise ValueError("pointer begins with /; '' is the whole")
        return self

    def _json_fault(self, text: str) -> str:
        """Why a text does not hold the value; '' where it does."""
        if self.pointer is None:
            return ""
        try:
            found = _at_pointer(read_json(text), self.pointer)
        except ValueError as error:
            return f"it is no JSON ({excerpt(str(error))})"
        except LookupError:
            return f"it has nothing at {self.pointer!r}"
        return "" if _equal(found, self.value) else f"{self.pointer!r} is {shown(found)}"


class FileCheck(_OfAFile, _OfJson):
    """A file of the workspace is there (or not), and holds what it should; all that is given has to
    hold.
    """

    kind: Literal["file"]
    exists: bool = True
    equals: str | None = None
    """Its text, whatever its line ends, its BOM and the line ends at its end."""
    contains: str | list[str] = []
    lacks: str | list[str] = []
    matches: str | None = None
    """A regular expression found in its text."""
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Digest of its bytes: it is as it was."""

    @field_validator("matches")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _absent_alone(self) -> FileCheck:
        if not self.exists and self.model_fields_set & _OF_CONTENT:
            raise ValueError("a file that does not exist holds nothing; leave the rest out")
        return self

    def fault(self, workspace: Workspace) -> str:
        """Why it fails; '' where it holds."""
        raw = workspace.read(self.path)
        if raw is None or not self.exists:
            holds = (raw is not None) is self.exists
            return "" if holds else "the file is there" if self.exists is False else _ABSENT
        if self.sha256 is not None and _sha256(raw) != self.sha256:
            return "it is not as it was"
        if not self.model_fields_set & (_OF_CONTENT - {"sha256"}):
            return ""
        try:
            text = _plain(raw.decode("utf-8"))
        except UnicodeDecodeError:
            return "it is no UTF-8 text"
        return self._text_fault(text)

    def _text_fault(self, text: str) -> str:
        if self.equals is not None and text.rstrip("\n") != _plain(self.equals).rstrip("\n"):
            return f"it holds {shown(text)}"
        for part in _listed(self.contains):
            if _plain(part) not in text:
                return f"it does not hold {shown(part)}"
        for part in _listed(self.lacks):
            if _plain(part) in text:
                return f"it holds {shown(part)}"
        if self.matches is not None and re.search(self.matches, text) is None:
            return "the pattern is not in it"
        return self._json_fault(text)


_OF_CONTENT = frozenset({"equals", "contains", "lacks", "matches", "sha256", "pointer", "value"})


class ChangesCheck(StateCheck):
    """Which files differ from the start: none outside `allowed`, and just these added, changed and
    removed, where given.
    """

    kind: Literal["changes"]
    allowed: list[str] | None = None
    """Patterns of paths that may differ: `*` and `?` within a name, `**` across folders."""
    added: list[str] | None = None
    changed: list[str] | None = None
    removed: list[str] | None = None
    start: dict[str, str] | str | None = None
    """The state at the start, else the sample's `start`: a folder, or by path what
    `workspace_state` says or the text itself."""

    @model_validator(mode="after")
    def _asks_something(self) -> ChangesCheck:
        if all(each is None for each in (self.allowed, self.added, self.changed, self.removed)):
            raise ValueError("give allowed, added, changed or removed; allowed: [] is no change")
        return self

    def fault(self, workspace: Workspace, start: Mapping[str, str]) -> str:
        """Why it fails; '' where it holds."""
        before = {
            path: state if _DIGEST.fullmatch(state) else f"sha256:{_sha256(state.encode())}"
            for path, state in start.items()
        }
        after = workspace.state()
        found = {
            "added": sorted(after.keys() - before.keys()),
            "changed": sorted(
                p
                for p in after.keys() & before.keys()
                # of what was not read nobody can say that it is the same
                if after[p] != before[p] or after[p].startswith(("large:", "unreadable"))
            ),
            "removed": sorted(before.keys() - after.keys()),
        }
        for how, paths in found.items():
            wanted = getattr(self, how)
            if wanted is not None and {*map(_spelled, wanted)} != {*map(_spelled, paths)}:
                return f"{how}: {_several(paths) or 'nothing'}"
        if self.allowed is not None:
            pattern = re.compile("|".join(map(_glob, self.allowed)) or r"(?!)", re.DOTALL)
            outside = [
                path
                for path in sorted({path for paths in found.values() for path in paths})
                if not pattern.fullmatch(_spelled(path))
            ]
            if outside:
                return f"changed outside of what is allowed: {_several(outside)}"
        return ""


class CommandCheck(StateCheck):
    """A Python program, run in the sandbox on a copy of the workspace, ends as it should."""

    kind: Literal["command"]
    run: list[str] = Field(min_length=2)
    """`["python", "FILE", …]` or `["python", "-c", "CODE", …]`."""
    files: dict[str, str] = {}
    """The check's own files by path, in place of what the agent left there."""
    stdin: str = ""
    exit_code: int | None = 0
    stdout: str | None = None
    """All it prints, whatever the line ends and the blanks at the end."""
    stdout_contains: str | list[str] = []

    @field_validator("run")
    @classmethod
    def _is_python(cls, run: list[str]) -> list[str]:
        code = run[1] == "-c" and len(run) > 2
        if run[0] not in ("python", "python3") or not (code or not run[1].startswith("-")):
            raise ValueError(
                "there is only Python in the sandbox: begin with 'python' and a file, or "
                "'python', '-c' and code"
            )
        if not code:
            _checked_path(run[1])
        return run

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, str]) -> dict[str, str]:
        return {_checked_path(path): text for path, text in files.items()}

    @property
    def target(self) -> str:
        """Its file or its code."""
        return self.run[1] if self.run[1] != "-c" else self.run[2]


class TestsCheck(_OfAFile):
    """The code of a file passes all tests of the check, as `code_unit_tests` runs them: code and
    tests in two sandboxed processes.
    """

    kind: Literal["tests"]
    tests: str | list[str]
    """Assert lines, or a test file; it need not import what it tests."""
    setup: str = ""

    @field_validator("tests")
    @classmethod
    def _can_be_read(cls, tests: str | list[str]) -> str | list[str]:
        parse_code_tests({"tests": tests})
        return tests


class QueryCheck(_OfAFile):
    """A query on a copy of a SQLite file of the workspace gives these rows."""

    kind: Literal["query"]
    query: str
    rows: list[list[Any]]
    ordered: bool = False

    @field_validator("query")
    @classmethod
    def _runs(cls, query: str) -> str:
        error = run_query("", query, deadline=1.0).error
        if not _READS.match(query) or _NEVER_RUNS.search(error):
            raise ValueError(f"give one SELECT: {error or 'it does not begin so'}")
        return query


class HttpCheck(_OfJson):
    """What a server answers to GET."""

    kind: Literal["http"]
    url: str
    status: int = 200
    contains: str | list[str] = []

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("give an address such as http://127.0.0.1:8000/state")
        return url

    @property
    def target(self) -> str:
        """Its address without what may be a key."""
        return self.url.partition("?")[0]

    @property
    def host(self) -> str:
        """Whom it asks."""
        return (urlsplit(self.url).hostname or "").lower()


class CallsCheck(StateCheck):
    """Which tool calls the trajectory made: one tool how often, or several in order."""

    kind: Literal["calls"]
    tool: str | None = None
    arguments: dict[str, Any] = {}
    """Arguments that a counted call has; others do not matter."""
    at_least: int | None = Field(default=None, ge=0)
    """1 unless `at_most` is given."""
    at_most: int | None = Field(default=None, ge=0)
    """0 forbids the call."""
    order: list[str] | None = Field(default=None, min_length=2)
    """Tools that are called in this order, whatever is called between."""

    @model_validator(mode="after")
    def _one_of_both(self) -> CallsCheck:
        if (self.tool is None) == (self.order is None):
            raise ValueError("give tool or order, one of both")
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:  # type: ignore[operator]
            raise ValueError("at_least is more than at_most")
        return self

    @property
    def target(self) -> str:
        """Its tools."""
        return self.tool or " ".join(self.order or ())

    def fault(self, output: DataOutput) -> str:
        """Why it fails; '' where it holds."""
        calls = _calls_made(output)
        if self.order is not None:
            names = iter(call.name for call in calls)
            missing = next((tool for tool in self.order if tool not in names), None)
            return "" if missing is None else f"{missing} is not called in its place"
        count = sum(
            call.name == self.tool
            and all(
                key in call.arguments and same(call.arguments[key], value, True)
                for key, value in self.arguments.items()
            )
            for call in calls
        )
        least = (self.at_most is None) if self.at_least is None else self.at_least
        fits = least <= count <= (math.inf if self.at_most is None else self.at_most)
        return "" if fits else f"{count} such calls"


_KINDS: dict[str, type[StateCheck]] = {
    "file": FileCheck,
    "changes": ChangesCheck,
    "command": CommandCheck,
    "tests": TestsCheck,
    "query": QueryCheck,
    "http": HttpCheck,
    "calls": CallsCheck,
}


def read_state_check(given: Any, number: int) -> StateCheck:
    """The check of a mapping.

    Raises DataError that names the check, its field, what was found and what to write.
    """
    where = f"check {number}"
    if not isinstance(given, Mapping):
        raise DataError(f"{where}: found {shown(given)}; a check is a mapping with 'kind'.")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise DataError(f"{where}: field 'kind': {unknown_name('kind', str(kind), _KINDS)}")
    model = _KINDS[kind]
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        field = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = unknown_name("field", field, field_names(model))
        elif first["type"] == "missing":
            message = "it is missing; add it"
        elif first["loc"]:
            message = f"found {shown(first['input'])}; {message}"
        named = f"field '{field}'" if field else f"kind '{kind}'"
        message += "" if message.endswith((".", "?")) else "."
        raise DataError(f"{where}: {named}: {message}") from error


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
    What the answer caused fails a check: a link out of the workspace, a pipe, too much of anything,
    a program that runs into a limit. Programs and tests run in the sandbox on a copy, after the
    check's own files have replaced the agent's; nothing in the workspace reaches the interpreter's
    start.

    Range [0, 1], higher is better. What others caused leaves a check missing: no sandbox
    (`caller`), a server that does not answer (`endpoint`), a check that cannot be read (`data`).
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

    needs: ClassVar[frozenset[str]] = frozenset({"checks"})
    name: str = "final_state"
    checks: list[dict[str, Any]] = Field(default_factory=list)
    """The checks, where a sample has none of its own."""
    all_or_nothing: bool = False
    """Whether the value is 1 when every check holds and 0 otherwise."""
    sandbox: Literal["auto", "bwrap", "subprocess"] = "auto"
    """Where programs and tests run; subprocess has no walls, and a hostile answer can forge there."""
    timeout: float = Field(default=10.0, gt=0)
    """Seconds that one program, test, pattern, query or request may take."""
    memory_mb: int = Field(default=512, ge=64)
    """Megabytes that a program may use."""
    packages: list[str] = Field(default_factory=list)
    """Folders with packages that programs and tests may import."""
    hosts: list[str] = Field(default_factory=list)
    """Hosts that may be asked beside this machine."""
    max_file_mb: float = Field(default=64.0, gt=0)
    """Megabytes that are read of one file; sixteen times as much of all."""
    max_files: int = Field(default=100_000, gt=0)
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

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        verdict = await self.examine(sample)
        outcomes, (low, high) = verdict.outcomes, verdict.bounds
        missing = [outcome for outcome in outcomes if not outcome.score.ok]
        wrong = [outcome for outcome in outcomes if outcome.score.value == 0.0]
        said = [
            each.score.reason
            if each.score.reason.startswith(each.name)
            else f"{each.name}: {each.score.reason}"
            for each in (missing or wrong)[:_LISTED]
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
        return one_score(
            self.name,
            verdict.value,
            f"{reason}{': ' if said else '.'}{'; '.join(said)}",
            {METRICS: metrics},
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
        with self._workspace(sample) as workspace:
            scores = [
                each if isinstance(each, Score) else await self._judged(each, sample, workspace)
                for each in read
            ]
        names = _component_names(read)
        outcomes = [
            CheckOutcome(name, 1.0, False, score)
            if isinstance(check, Score)
            else CheckOutcome(name, check.weight, check.forbidden, score)
            for name, check, score in zip(names, read, scores, strict=True)
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
        return SandboxLimits(
            wall_seconds=self.timeout, cpu_seconds=self.timeout, memory_mb=self.memory_mb
        )

    async def _judged(
        self, check: StateCheck, sample: DataSample, workspace: _LeftFolder
    ) -> Score[float]:
        try:
            fault = await self._fault(check, sample, workspace)
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
        self, check: StateCheck, sample: DataSample, workspace: _LeftFolder
    ) -> str | Score[float]:
        """Why a check fails, '' where it holds; or why it could not be made."""
        if isinstance(check, CallsCheck):
            return check.fault(sample.output[0])
        if isinstance(check, HttpCheck):
            return await _asked(check, self.timeout)
        folder = await asyncio.to_thread(workspace.folder)
        look = partial(_look, folder, self._bounds)
        if isinstance(check, FileCheck):
            try:
                found: str = await get_pool().asubmit(look, check, deadline=self.timeout)
            except DeadlineExceeded:
                if check.matches is None:
                    raise
                return "the pattern runs too long on it"
            except (MemoryError, WorkerCrashed):
                return "it takes too much memory to be read"
            return found
        if isinstance(check, ChangesCheck):
            start = check.start if check.start is not None else known(sample, "start")
            if start is None:
                raise Unscored(
                    f"{self.name} needs the state at the start: set 'start' in metadata.",
                    reason="no_start",
                )
            return await get_pool().asubmit(look, check, _start_of(start), deadline=None)
        if isinstance(check, CommandCheck):
            return await self._command(check, folder)
        if isinstance(check, TestsCheck):
            return await self._tests(
                check, await asyncio.to_thread(_bytes_of, folder, self._bounds, check.path)
            )
        if isinstance(check, QueryCheck):
            return await self._query(check, folder)
        raise AssertionError(check.kind)

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
        text = _plain(run.stdout)
        if check.stdout is not None and text.rstrip() != _plain(check.stdout).rstrip():
            return f"it prints {shown(text)}"
        lacking = [part for part in _listed(check.stdout_contains) if _plain(part) not in text]
        return f"it does not print {shown(lacking[0])}" if lacking else ""

    async def _tests(self, check: TestsCheck, code: bytes | None) -> str | Score[float]:
        if code is None or len(code) > _MOST_CODE:
            return _ABSENT if code is None else "it is too long"
        module = re.escape(check.path.rpartition("/")[2].removesuffix(".py"))
        own = re.compile(rf"(?m)^from {module} import .*$|^import {module}$")
        texts = [own.sub("", text) for text in _listed(check.tests)]
        tests = parse_code_tests({"tests": texts, "setup": check.setup})
        runner = get_runner(self.sandbox, packages=self.packages)
        try:
            report = await run_code_tests(
                code.decode("utf-8", "replace"),
                tests,
                runner=runner,
                limits=self._limits,
                deadline=_TESTS_AT_ONCE * self.timeout,
            )
        except (VacuousTests, DataError) as error:
            return unscored("bad_tests", str(error), "data")
        wrong = [f"test {one.index + 1}: {one.reason}" for one in report.outcomes if not one.passed]
        return "; ".join(wrong[:_LISTED])

    async def _query(self, check: QueryCheck, folder: str) -> str:
        with temporary_folder() as own:
            if not await asyncio.to_thread(_copy_database, folder, self._bounds, check.path, own):
                return _ABSENT
            found = await run_file_query_in_worker(
                os.path.join(own, "database"), check.query, deadline=self.timeout
            )
        if found.error:
            return f"the query does not run: {found.error}"
        rows = tuple(tuple(map(_cell, row)) for row in check.rows)
        width = len(rows[0]) if rows else len(found.columns)
        wanted = QueryResult(tuple(map(str, range(width))), rows)
        if await same_results(found, wanted, ordered=check.ordered):
            return ""
        return f"{len(found.rows)} rows: {shown([list(row) for row in found.rows[:3]], 200)}"

    @contextmanager
    def _workspace(self, sample: DataSample) -> Iterator[_LeftFolder]:
        with temporary_folder() as own:
            yield _LeftFolder(known(sample, "workspace"), own, self._bounds, self.name)


class _LeftFolder:
    """The folder of a sample's workspace, unpacked when it is first asked for."""

    def __init__(self, given: Any, own: str, bounds: ReadBounds, name: str) -> None:
        self._given, self._own, self._bounds, self._name = given, own, bounds, name
        self._found: str | RMGalleryError | None = None

    def folder(self) -> str:
        """Its path; Unscored, DataError or StateFault where there is none, each time."""
        if self._found is None:
            try:
                self._found = self._opened()
            except RMGalleryError as error:
                self._found = error
        if isinstance(self._found, RMGalleryError):
            raise self._found
        return self._found

    def _opened(self) -> str:
        given = os.fspath(self._given) if isinstance(self._given, os.PathLike) else self._given
        if given is None or given == "":
            raise Unscored(
                f"{self._name} needs what the agent left: set 'workspace' in answer.label or "
                "metadata to a folder, an archive or a mapping of path to text.",
                reason="no_workspace",
            )
        if not isinstance(given, str | Mapping):
            raise DataError(
                f"{self._name}: the workspace is a path or a mapping; found {shown(given)}."
            )
        if isinstance(given, str) and not os.path.isfile(given):
            return given
        unpack(given, self._own, self._bounds)
        return self._own


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
                f"the start has files that are not read, {_several(large)}: raise max_file_mb."
            )
        return check.fault(workspace, before)


def _bytes_of(folder: str, bounds: ReadBounds, path: str) -> bytes | None:
    with Workspace(folder, bounds) as workspace:
        return workspace.read(path)


def _copy_database(folder: str, bounds: ReadBounds, path: str, own: str) -> bool:
    """Copy a database and its write-ahead log; not a rollback journal, which can name other files."""
    with Workspace(folder, bounds) as workspace:
        raw, log = workspace.read(path), workspace.read(f"{path}-wal")
    if raw is not None:
        place(own, "database", raw)
    if raw is not None and log is not None:
        place(own, "database-wal", log)
    return raw is not None


def _start_of(given: Any) -> Any:
    start = os.fspath(given) if isinstance(given, os.PathLike) else given
    if isinstance(start, str) or (
        isinstance(start, Mapping)
        and all(isinstance(part, str) for pair in start.items() for part in pair)
    ):
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
    text = _plain(body.decode("utf-8", "replace"))
    lacking = [part for part in _listed(check.contains) if _plain(part) not in text]
    return f"the answer does not hold {shown(lacking[0])}" if lacking else check._json_fault(text)


# -- small things -------------------------------------------------------------------------------------


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


def _calls_made(output: DataOutput) -> list[MadeCall]:
    """The calls of the policy's own turns; where any turn has them as records, a text holds none."""
    turns = [
        turn for turn in (*(output.steps or ()), output.answer) if turn.role.value == "assistant"
    ]
    recorded = [turn for turn in turns if turn.tool_calls]
    return [call for turn in recorded or turns for call in calls_of_message(turn).calls]


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _plain(text: str) -> str:
    """A text without BOM and with plain line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _spelled(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _several(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return (
        ", ".join(shown(path.encode("utf-8", "replace").decode()) for path in paths[:_LISTED])
        + more
    )


def _glob(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", _spelled(pattern))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part, re.escape(part)) for part in parts)


def _at_pointer(value: Any, pointer: str) -> Any:
    """What stands at a JSON pointer (RFC 6901); LookupError where nothing does."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[key]
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", key):
            value = value[int(key)]
        else:
            raise LookupError(pointer)
    return value


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_equal(found[k], wanted[k]) for k in wanted)
    if isinstance(found, list) and isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(_equal, found, wanted))
    return bool(found == wanted)


def _cell(value: Any) -> Any:
    """A cell as SQLite has it."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float | str | bytes | None) else json.dumps(value)
