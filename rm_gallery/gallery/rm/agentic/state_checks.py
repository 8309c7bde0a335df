"""Checks of the state that an agent left: what each asks, and whether it holds."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from rm_gallery.core.data.schema import DataOutput, Step
from rm_gallery.core.reward.rule import shown
from rm_gallery.core.sandbox.code_test_spec import parse_code_tests
from rm_gallery.core.sandbox.sql import run_query
from rm_gallery.core.sandbox.workspace import Workspace, inner_path
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.models import field_names
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import excerpt
from rm_gallery.gallery.rm.agent import same
from rm_gallery.gallery.rm.tool_calls import MadeCall, UnreadCall, calls_of_message, names_tool

LISTED = 5
ABSENT = "there is no such file"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|link:.*|large:\d+|unreadable|special", re.DOTALL)
_READS = re.compile(r"\s*(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)
_NEVER_RUNS = re.compile(
    r"syntax error|incomplete input|unrecognized token|not read-only|not a query|one statement"
)


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


def _checked_path(path: str) -> str:
    if not inner_path(path):
        raise ValueError("give a path relative to the workspace, with / and without ..")
    return path


class _OfAFile(StateCheck):
    path: Annotated[str, AfterValidator(_checked_path)]

    @property
    def target(self) -> str:
        """Its path."""
        return self.path


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

    def json_fault(self, text: str) -> str:
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
        if not self.exists:
            return "" if raw is None else "the file is there"
        if raw is None:
            return ABSENT
        if self.sha256 is not None and _sha256(raw) != self.sha256:
            return "it is not as it was"
        if not self.model_fields_set & (_OF_CONTENT - {"sha256"}):
            return ""
        try:
            text = plain_text(raw.decode("utf-8"))
        except UnicodeDecodeError:
            return "it is no UTF-8 text"
        if self.equals is not None and text.rstrip("\n") != plain_text(self.equals).rstrip("\n"):
            return f"it holds {shown(text)}"
        if lacking := not_in(text, self.contains):
            return f"it does not hold {lacking}"
        for part in listed(self.lacks):
            if plain_text(part) in text:
                return f"it holds {shown(part)}"
        if self.matches is not None and re.search(self.matches, text) is None:
            return "the pattern is not in it"
        return self.json_fault(text)


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
                return f"{how}: {several(paths) or 'nothing'}"
        if self.allowed is not None:
            pattern = re.compile("|".join(map(_glob, self.allowed)) or r"(?!)", re.DOTALL)
            outside = [
                path
                for path in sorted(chain.from_iterable(found.values()))
                if not pattern.fullmatch(_spelled(path))
            ]
            if outside:
                return f"changed outside of what is allowed: {several(outside)}"
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
            left = iter(calls)
            for tool in self.order:
                if not any(names_tool(call.name, tool) for call in left):
                    return f"{tool} is not called in its place"
            return ""
        given = [call.arguments for call in calls if names_tool(call.name, self.tool or "")]
        unread = given.count(None) if self.arguments else 0
        count = sum(
            all(
                key in arguments and same(arguments[key], value, True)
                for key, value in self.arguments.items()
            )
            for arguments in (each or {} for each in given)
        )
        least = (self.at_most is None) if self.at_least is None else self.at_least
        most = math.inf if self.at_most is None else self.at_most
        # arguments that cannot be read may be any, and hide no forbidden call
        if least <= count and count + unread <= most:
            return ""
        return f"{count} such calls" + (f" and {unread} with unreadable arguments" * (unread > 0))


_KINDS: dict[str, type[StateCheck]] = dict(
    file=FileCheck,
    changes=ChangesCheck,
    command=CommandCheck,
    tests=TestsCheck,
    query=QueryCheck,
    http=HttpCheck,
    calls=CallsCheck,
)


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


def _calls_made(output: DataOutput) -> list[MadeCall | UnreadCall]:
    """The tools that the policy's own turns called, and with what.

    A call was made where the turn has it as a record. Where no turn has records, one that is written
    was made where a tool answers: what is only said was not done.
    """
    turns = [*(output.steps or ()), output.answer]
    recorded = [turn for turn in turns if turn.role.value == "assistant" and turn.tool_calls]
    acting = recorded or [
        turn
        for turn, after in pairwise(turns)
        if turn.role.value == "assistant" and _answers(after)
    ]
    calls = [call for turn in acting for call in calls_of_message(turn)]
    return [call for call in calls if isinstance(call, MadeCall | UnreadCall)]


def _answers(turn: Step) -> bool:
    """Whether a turn is what a tool gave; some templates write it as the user's."""
    role = turn.role.value
    return role in ("tool", "function") or (
        role == "user" and turn.text.lstrip().startswith("<tool_response>")
    )


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def plain_text(text: str) -> str:
    """A text without BOM and with plain line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def listed(given: str | list[str]) -> list[str]:
    """One text or several, as several."""
    return [given] if isinstance(given, str) else given


def not_in(text: str, wanted: str | list[str]) -> str:
    """The first of the wanted texts that a text does not hold, as a reason quotes it; '' for none."""
    return next((shown(part) for part in listed(wanted) if plain_text(part) not in text), "")


def _spelled(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def several(paths: Sequence[str]) -> str:
    """The first of some paths, printable, and how many more there are."""
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return (
        ", ".join(shown(path.encode("utf-8", "replace").decode()) for path in paths[:LISTED]) + more
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
