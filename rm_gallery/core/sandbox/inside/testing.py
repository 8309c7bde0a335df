"""The test side's process: runs check functions, assert lines or calls against the candidate behind
the wall.
"""

from __future__ import annotations

import _ast
import builtins
import math
import os
import sys

from rm_gallery.core.sandbox.inside.base import (
    Channel,
    FrameTooLarge,
    PeerGone,
    compiled,
    confine,
    names_in,
    names_read,
    own_stdout,
    parsed,
    parts_of,
    prelude,
    provide,
    take_standard_streams,
    tools_in,
    write_line,
)
from rm_gallery.core.sandbox.inside.codec import CodecError, decode, encode
from rm_gallery.core.sandbox.inside.remote import (
    CandidateConnection,
    RemoteFunction,
    error_reason,
    is_description,
)
from rm_gallery.core.sandbox.inside.suite import (
    SOLUTION_MODULES,
    NotProvided,
    provide_tools,
    run_case,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Report = Callable[..., None]


_RELATIVE = 1e-6
_NEAR_ZERO = 1e-9


def same_number(actual: float, expected: float) -> bool:
    """Compare two numbers: exactly where one is an integer, else within 1e-6 of each other's size
    (1e-9 beside a zero).
    """
    if actual == expected or (
        actual != actual and expected != expected
    ):  # two NaN count as the same
        return True
    if isinstance(actual, int) or isinstance(expected, int):
        return False
    if actual == 0.0 or expected == 0.0:
        return abs(actual - expected) <= _NEAR_ZERO
    return math.isclose(actual, expected, rel_tol=_RELATIVE)


def same_value(actual: object, expected: object) -> bool:
    """Compare a returned value with the expected one, both made of builtin types.

    Tuples count as lists, numbers compare as `same_number` does, and an expected one-element list
    may stand for its element, as APPS writes them.
    """
    if _same_json(actual, expected):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _same_json(actual, expected[0])


def _same_json(actual: object, expected: object) -> bool:
    match expected:
        case list() | tuple():
            return isinstance(actual, (list, tuple)) and _all_same(_same_json, actual, expected)
        case dict():
            if not isinstance(actual, dict) or len(actual) != len(expected):
                return False
            # JSON has text keys only
            plain = {key if key in expected else str(key): value for key, value in actual.items()}
            return plain.keys() == expected.keys() and all(
                _same_json(plain[key], expected[key]) for key in expected
            )
        case int() | float() if isinstance(actual, (int, float)):
            return same_number(actual, expected)
    return bool(actual == expected)


def _all_same(same: Callable[[Any, Any], bool], actual: Any, expected: Any) -> bool:
    return len(actual) == len(expected) and all(map(same, actual, expected))


def same_output(actual: str, expected: str) -> bool:
    """Compare printed text line by line, as words.

    The number of blanks between words and blank lines at the end do not matter; where the expected
    word is a number with a point or an exponent, numbers compare as `same_number` does.
    """
    found, wanted = _lines(actual), _lines(expected)
    return found == wanted or _all_same(_same_line, found, wanted)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_line(actual: str, expected: str) -> bool:
    return actual == expected or _all_same(_same_word, actual.split(), expected.split())


def _same_word(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    number, wanted = _printed_number(actual), _printed_number(expected)
    # a whole number has to be printed as it is
    return isinstance(wanted, float) and number is not None and same_number(number, wanted)


def _printed_number(word: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


class BrokenTests(Exception):
    """The tests themselves cannot run, whatever the answer is."""


class Bench:
    """One sample's tests with their namespace; every unit reports (number, reason, detail)."""

    def __init__(self, job: Mapping[str, Any], link: CandidateConnection) -> None:
        self._job = job
        self._link = link
        module = type(sys)("tests")
        sys.modules["tests"] = module
        self._names: dict[str, Any] = module.__dict__
        self._candidate = RemoteFunction(link, job["entry_point"])
        self._suite_ran = False

    def prepare(self, hello: bytes) -> tuple[str, str]:
        """Compile the tests and bind the proxies; return (reason, detail) when the answer cannot be
        tested, else ('', '').
        """
        job = self._job
        setup = prelude(job["prompt"], job["entry_point"]), job["setup"]
        try:
            self._trees = trees = [parsed(text, "<test>") for text in job["texts"]]
            self._defines = [defined_in(tree) for tree in trees]
            self._codes = list(compiled(trees, "<test>"))
            used = names_in(self._codes)
            provide_tools(used)
            for code in compiled(setup, "<setup>"):
                # tests are the caller's, not the answer's; they are confined as well
                exec(code, self._names)
        except BaseException as error:
            raise BrokenTests(f"{type(error).__name__}: {str(error)[:200]}") from error
        return self._bind(hello, used)

    def _bind(self, hello: bytes, used: set[str]) -> tuple[str, str]:
        try:
            record: Any = decode(hello)
        except CodecError:
            record = None
        match record:
            case ("ok", list(listed), *_):
                own_names = {name for name in listed if isinstance(name, str)} - {"check"}
            case ("error", names, message) if is_description(names, message):
                return error_reason(names), message
            case _:
                return "tampering", ""
        defined = set().union(*self._defines)
        entry, prompt = self._job["entry_point"], self._job["prompt"] + self._job["setup"]
        tools = tools_in(self._trees, own_names, entry, defined)
        provide(self._trees, self._names, without=names_read(self._trees) - tools)
        for name in used & own_names:
            # a name that the prompt, the setup, a test or Python itself defines is never the
            # answer's to redefine
            if name not in self._names and name not in defined and not hasattr(builtins, name):
                self._names[name] = RemoteFunction(self._link, name)
        self._provide_solution()
        if entry and entry not in defined:
            self._names[entry] = self._candidate
        self._link.classes = {
            n for n in used | {entry} if f"class {n}" in prompt or (n[:1].isupper() and n != entry)
        }
        kinds = [getattr(builtins, name, None) for name in used - {"Exception", "BaseException"}]
        self._link.named_exceptions = tuple(
            k for k in kinds if isinstance(k, type) and issubclass(k, Exception)
        )
        return "", ""

    def _provide_solution(self) -> None:
        """What tests import from the file under test are the answer's functions."""
        link = self._link

        def named(name: str) -> RemoteFunction:
            if name.startswith("__"):
                raise AttributeError(name)
            return RemoteFunction(link, name)

        module = type(sys)("candidate")
        module.__dict__["__getattr__"] = named
        sys.modules.update(dict.fromkeys(SOLUTION_MODULES - sys.modules.keys(), module))

    def catch_up(self) -> None:
        """After a restart, run the earlier lines that do not ask the answer again: what they define
        is the tests' own.
        """
        asking = {name for name, value in self._names.items() if type(value) is RemoteFunction}
        for number in range(self._job["first"] if self._job["style"] == "asserts" else 0):
            if names_in([self._codes[number]]) & asking:
                asking |= self._defines[number]
                continue
            try:
                exec(self._codes[number], self._names)
            except BaseException:  # noqa: BLE001, S112 - its verdict was given the first time
                continue

    def run_unit(self, number: int) -> tuple[str, str]:
        """Run one unit and return (reason, detail); 'passed' is the only success."""
        link = self._link
        link.begin_unit()
        calls_before = link.calls
        reason, detail = "passed", ""
        try:
            self._run_style(number)
        except PeerGone:
            reason = link.fatal
        except BaseException as error:
            detail = _short(error)
            if error is link.last_error:
                reason = link.last_reason
            elif isinstance(error, AssertionError):
                reason = "wrong answer"
            elif isinstance(error, MemoryError):
                reason = "memory"
            elif self._is_tests_fault(error, calls_before):
                raise BrokenTests(f"unit {number}: {type(error).__name__}: {detail}") from error
            else:
                reason = f"error: {type(error).__name__}"
        if link.untestable:
            raise BrokenTests(f"unit {number}: {link.untestable}")
        return (link.fatal, "") if link.fatal else (reason, detail)

    def _is_tests_fault(self, error: BaseException, calls_before: int) -> bool:
        # values of earlier units may live on in the tests' variables, so only what no answer can
        # cause counts here
        if isinstance(error, NotProvided):
            return True
        if isinstance(error, (ImportError, BrokenTests)):
            return self._link.calls == calls_before
        return (
            self._link.calls == 0 and self._job["first"] == 0 and not isinstance(error, NameError)
        )

    def _run_style(self, number: int) -> None:
        style = self._job["style"]
        if style == "calls":
            arguments, expected = self._job["calls"][number]
            assert same_value(self._candidate(*arguments), expected)
            return
        if style != "suite" or not self._suite_ran:
            exec(self._codes[0 if style == "suite" else number], self._names)
            self._suite_ran = True
        if style == "suite":
            run_case(self._names, self._job["cases"][number])
        elif style == "check":
            if "check" not in self._names:
                raise BrokenTests("the test source defines no function 'check'")
            self._names["check"](self._candidate)


def _short(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:  # noqa: BLE001 - only a comment on the outcome
        return ""


def defined_in(tree: Any) -> set[str]:
    """Names that a test gives at its top level, by assignment, import or definition."""
    names: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        match node:
            case _ast.alias(name=name, asname=other):
                names.add((other or name).split(".")[0])
            # functions, classes, `except … as name`, patterns
            case _ast.Name(id=name, ctx=_ast.Store()) | object(name=str(name)):
                names.add(name)
        if isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef, _ast.Lambda)):
            continue
        pending += parts_of(node)
    return names


def run_tests(
    job: Mapping[str, Any], hello: bytes, exchange: Callable[[bytes], bytes], report: Report
) -> None:
    """Run the units from `job['first']` on, reporting 'unit', 'dead' or 'broken' records."""
    link = CandidateConnection(exchange)
    bench = Bench(job, link)
    try:
        reason, detail = bench.prepare(hello)
        if reason:
            report("dead", reason, detail[:200])
            return
        bench.catch_up()
        report("ready")
        for number in range(job["first"], job["units"]):
            reason, detail = bench.run_unit(number)
            report("unit", number, reason, detail, bool(link.fatal))
            if link.fatal:
                return
    except BrokenTests as error:
        report("broken", str(error))


def serve_testing(settings: Mapping[str, Any]) -> None:
    """Confine this process, read the tests, and run them against the candidate at the other end of
    the channel.
    """
    confine(settings)
    sys.path[:0] = settings["paths"]
    channel: Channel = take_standard_streams()

    def report(*record: object) -> None:
        channel.write(encode(record), b"R")

    def exchange(request: bytes) -> bytes:
        channel.write(request, b"C")
        return channel.read()

    try:
        job: Any = decode(channel.read())
        channel.read()
        report("started")
        hello = channel.read()
    except PeerGone as error:
        report("dead", "tampering" if isinstance(error, FrameTooLarge) else "gone", "")
        return
    run_tests(job, hello, exchange, report)


def replay_tests(
    job: Mapping[str, Any], hello: bytes, known: list[tuple[bytes, bytes | None]]
) -> None:
    """Run the tests with the replies so far (None: the answer's process died there); print records
    and the next request.
    """
    out = own_stdout()
    waiting = iter(known)

    def exchange(request: bytes) -> bytes:
        for asked, reply in waiting:
            if asked != request:
                write_line(out, "X", b"")
                os._exit(0)
            if reply is None:
                raise PeerGone("gone")
            return reply
        write_line(out, "C", request)
        os._exit(0)

    run_tests(job, hello, exchange, lambda *record: write_line(out, "R", encode(record)))
    os._exit(0)
