"""One attempt at running test units in sandboxed processes: its clocks and guards, assert lines and
calls, programs.
"""

from __future__ import annotations

import ast
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rm_gallery.core.sandbox.inside.answer import FORK_FAILED, OUTPUT_LIMIT, REPLY
from rm_gallery.core.sandbox.inside.base import MAX_FRAME, FrameTooLarge
from rm_gallery.core.sandbox.inside.codec import decode
from rm_gallery.core.sandbox.inside.remote import error_reason
from rm_gallery.core.sandbox.inside.same_process import TAMPERED
from rm_gallery.core.sandbox.inside.testing import same_output
from rm_gallery.core.sandbox.process import (
    Pump,
    SandboxLimits,
    SandboxProcess,
    framed,
    messages_in,
    not_started,
    with_job,
)
from rm_gallery.core.sandbox.runner import LocalRunner
from rm_gallery.core.sandbox.test_source import (
    controls,
    defined_in,
    imports_in,
    needs_object,
    tree_of,
)
from rm_gallery.core.utils.errors import DataError, DeadlineExceeded, SandboxUnavailable

_BOOT_SECONDS = 30.0
_TICK = 0.1


@dataclass
class Attempt:
    """Outcomes by unit, and the first unit that still needs a fresh start."""

    first: int
    outcomes: dict[int, tuple[str, str]] = field(default_factory=dict)
    next_unit: int = field(init=False)
    all_rest: str = ""
    """Reason that holds for every unit not judged; '' when a fresh start may judge them."""
    all_detail: str = ""

    def __post_init__(self) -> None:
        self.next_unit = self.first

    def judge(self, reason: str, detail: str = "") -> None:
        """Record the outcome of the unit under test."""
        self.outcomes[self.next_unit] = (reason, detail)
        self.next_unit += 1

    def take(self, record: Any) -> bool:
        """Take what the test side says; whether it is that the answer's process is gone.

        Raises DataError when the tests themselves cannot run.
        """
        match record:
            case ("broken", why):
                raise broken_tests(why)
            case ("dead", "gone", _) | ("unit", _, "gone", *_):
                return True
            case ("dead", reason, detail):
                self.all_rest, self.all_detail = reason, detail
            case ("unit", _, reason, detail, _):
                self.judge(reason, detail)
        return False

    def settle(self, outcomes: dict[int, tuple[str, str]], units: int) -> int:
        """Add its outcomes to those of a whole sample; return the unit to go on with, `units` where
        nothing is left.
        """
        outcomes.update(self.outcomes)
        if not self.all_rest:
            return self.next_unit
        rest = range(self.next_unit, units)
        outcomes.update(dict.fromkeys(rest, (self.all_rest, self.all_detail)))
        return units

    def stop_by(self, reason: str, *, loaded: bool, surely: bool = False, detail: str = "") -> None:
        """Record that the process ended while the current unit ran.

        Before the load was done the reason is every unit's. A unit that is not `surely` to blame
        gets a fresh process when earlier units may have used up what it lacked.
        """
        if not loaded:
            self.all_rest = reason
        elif surely or self.next_unit == self.first:
            self.judge(reason, detail)

    def stopped(
        self, clock: Clock, *processes: SandboxProcess, choked: bool, loaded: bool = True
    ) -> bool:
        """Tell whether a clock, the output bound (`choked`) or a limit of the processes stopped the
        current unit; record it.
        """
        reason = clock.check() or ("output limit" if choked else "")
        surely = bool(reason)
        if reason == "sample deadline":
            self.all_rest = "deadline"
            return True
        reason = reason or next(filter(None, (each.excess() for each in processes)), "")
        if reason:
            self.stop_by(reason, loaded=loaded, surely=surely)
        return bool(reason)


def broken_tests(why: str) -> DataError:
    """The error for tests that fail by themselves."""
    return DataError(f"the tests cannot run, whatever the answer is: {why}")


class Clock:
    """Deadlines of an attempt: booting, one unit, the whole sample."""

    def __init__(
        self, limits: SandboxLimits, sample_until: float, *, first_start: bool = True
    ) -> None:
        self._limits = limits
        self._first_start = first_start
        self._sample_until = sample_until
        self._until = time.monotonic() + _BOOT_SECONDS
        self.started = False

    def start_unit(self) -> None:
        """Give the next unit (or the load of the answer) its full time."""
        self.started = True
        self._until = time.monotonic() + self._limits.wall_seconds

    def check(self) -> str:
        """Return 'deadline', 'sample deadline' or ''.

        Raises SandboxUnavailable or DeadlineExceeded when booting hangs, which is not the answer's
        fault.
        """
        now = time.monotonic()
        if now >= self._sample_until:
            if self._first_start and not self.started:
                raise DeadlineExceeded(
                    "the sandbox did not start before the deadline of the sample"
                )
            return "sample deadline"
        if now < self._until:
            return ""
        if not self.started:
            raise SandboxUnavailable(
                f"a sandboxed interpreter did not start within {_BOOT_SECONDS:.0f} s"
            )
        return "deadline"

    def wait(self) -> float:
        """Return how long a pump may sleep."""
        until = min(self._until, self._sample_until)
        return max(0.0, min(_TICK, until - time.monotonic()))


def exit_reason(code: int | None) -> str:
    """Name why a process that hung up is gone; None: it is alive, but it closed its side of the
    channel. -24 is the kernel's CPU limit.
    """
    if code is None:
        return "tampering"
    return "deadline" if code == -24 else f"crashed exit code {code}"


_RELAY_LIMIT = 256 * 1024 * 1024


class UnitsAttempt:
    """Runs units from `first` on until they are done or a process has to be given up."""

    def __init__(self, clock: Clock, first: int, units: int) -> None:
        self._clock = clock
        self._units = units
        self._attempt = Attempt(first)
        self._buffer = bytearray()
        self._loaded = False
        self._finished = False

    def _goes_on(self, *processes: SandboxProcess, relayed: int = 0) -> bool:
        """Serve the processes; the first one runs the answer, the last one tells the verdicts."""
        choked = processes[0].prints.exceeded or relayed > _RELAY_LIMIT
        return not (
            self._finished
            or processes[-1].ended
            or self._attempt.stopped(self._clock, *processes, choked=choked, loaded=self._loaded)
        )

    def _on_hang_up(
        self, gone: SandboxProcess, *processes: SandboxProcess, where: str = ""
    ) -> None:
        reason = exit_reason(gone.exit_code(0.5))
        if not self._clock.started:
            told = filter(None, (each.prints.last_line for each in processes))
            raise not_started(next(told, reason))
        self._attempt.stop_by(
            reason, loaded=self._loaded, surely=reason == "tampering", detail=where
        )


class PairAttempt(UnitsAttempt):
    """Runs units of an answer's functions: the tests in one process, the answer in the other.

    What the test side writes are calls (kind C), passed on unread, and records (kind R).
    """

    def __init__(self, clock: Clock, first: int, units: int) -> None:
        super().__init__(clock, first, units)
        self._relayed = 0
        self._hung_up = False

    def run(
        self,
        runner: LocalRunner,
        limits: SandboxLimits,
        answer: dict[str, object],
        tests: dict[str, object],
    ) -> Attempt:
        """Start both processes and serve them to the end.

        Raises DataError when the tests themselves cannot run, SandboxUnavailable when the sandbox
        does not start.
        """
        job = {**tests, "first": self._attempt.first, "units": self._units}

        def relay(data: bytes) -> None:
            self._relayed += len(data)
            if data:
                pump.write(tester.stdin, data)
            else:
                pump.close_after_flush(tester.stdin)

        def take(data: bytes) -> None:
            self._buffer += data
            try:
                for kind, framed_body in messages_in(self._buffer, MAX_FRAME, kinds=1):
                    if kind == b"C":
                        pump.write(candidate.stdin, framed_body)
                    else:
                        self._on_record(decode(framed_body[4:]), candidate)
            except FrameTooLarge as error:
                raise SandboxUnavailable("the test process sent an oversized message") from error

        with (
            Pump() as pump,
            with_job(runner.start("testing", limits), pump, job, take) as tester,
            with_job(
                runner.start("functions", limits), pump, answer, relay, fills=tester.stdin
            ) as candidate,
        ):
            while self._goes_on(candidate, tester, relayed=self._relayed):
                pump.turn(self._clock.wait())
            if self._hung_up:
                self._on_hang_up(candidate, candidate, tester)
            elif tester.ended and not self._finished:
                self._on_hang_up(tester, candidate, tester, where="in the test process")
        return self._attempt

    def _on_record(self, record: Any, candidate: SandboxProcess) -> None:
        match record:
            case ("started" | "ready" as kind,):
                self._loaded = kind == "ready"
                self._clock.start_unit()
            case _ if self._attempt.take(record):
                self._hung_up = self._finished = True
            case ("unit", *_, is_last):
                candidate.prints.reset()
                self._clock.start_unit()
                self._finished = is_last or self._attempt.next_unit >= self._units
            case _:
                self._finished = True


def as_text(value: Any) -> str:
    """Return an input or output as text: lists are lines."""
    if isinstance(value, (list, tuple)):
        return "\n".join(map(as_text, value))
    return value if isinstance(value, str) else str(value)


def output_bound(limits: SandboxLimits, expected: Sequence[str]) -> int:
    """Return the output limit, widened where an expected text needs more."""
    return max(limits.output_bytes, 2 * max((len(text.encode()) for text in expected), default=0))


class ProgramAttempt(UnitsAttempt):
    """Feeds inputs from `first` on, one after the other, and compares what is printed."""

    def __init__(
        self,
        limits: SandboxLimits,
        clock: Clock,
        first: int,
        inputs: Sequence[str],
        expected: Sequence[str],
    ) -> None:
        super().__init__(clock, first, len(inputs))
        self._inputs = inputs
        self._expected = expected
        self._output_bytes = output_bound(limits, expected)

    def run(self, runner: LocalRunner, limits: SandboxLimits, code: str) -> Attempt:
        """Start the process and serve it to the end; raises SandboxUnavailable when it does not
        start.
        """
        job = {"code": code, "output_bytes": self._output_bytes}

        def take(data: bytes) -> None:
            self._buffer += data
            try:
                for _, reply in messages_in(self._buffer, self._output_bytes + REPLY.size + 100):
                    if self._loaded:
                        self._judge(reply[4:])
                    self._loaded = True
                    self._feed(pump, process)
                    if self._finished:
                        return
            except FrameTooLarge:
                self._tampered()

        with (
            Pump() as pump,
            with_job(runner.start("programs", limits), pump, job, take) as process,
        ):
            while self._goes_on(process):
                pump.turn(self._clock.wait())
            if process.ended and not self._finished:
                self._on_hang_up(process, process)
        return self._attempt

    def _feed(self, pump: Pump, process: SandboxProcess) -> None:
        unit = self._attempt.next_unit
        self._finished = self._finished or unit >= self._units
        if not self._finished:
            stdin = self._inputs[unit].encode("utf-8", "surrogatepass")
            if len(stdin) > MAX_FRAME:
                raise DataError(
                    f"input {unit} of a code test has {len(stdin)} bytes; the limit is {MAX_FRAME}"
                )
            process.prints.reset()
            self._clock.start_unit()
            pump.write(process.stdin, framed(stdin))

    def _tampered(self) -> None:
        self._attempt.judge("tampering")
        self._finished = True

    def _judge(self, body: bytes) -> None:
        try:
            state, code, name_length = REPLY.unpack_from(body)
            name = body[REPLY.size : REPLY.size + name_length].decode("utf-8")
            output = body[REPLY.size + name_length :].decode("utf-8", "replace")
        except Exception:  # noqa: BLE001 - any malformed reply comes from the answer's own doing
            self._tampered()
            return
        self._attempt.judge(self._reason(state, code, name, output))

    def _reason(self, state: int, code: int, name: str, output: str) -> str:
        if state in _STATES:
            return _STATES[state]
        if code != 0:
            if name:
                return error_reason([name]) if name.isidentifier() else "tampering"
            return exit_reason(code)
        return (
            "passed"
            if same_output(output, self._expected[self._attempt.next_unit])
            else "wrong answer"
        )


_STATES = {OUTPUT_LIMIT: "output limit", FORK_FAILED: "processes"}


@dataclass(frozen=True)
class Heard:
    """All that one process said, which was given a job and no more."""

    began: bool
    said: bytes
    """After the empty message that it began with."""
    last_line: str
    stopped: str
    """Why it was stopped, '' where it ended."""
    code: int | None


_LAST_READS = 100


def hear(
    started: tuple[SandboxProcess, bytes],
    limits: SandboxLimits,
    until: float,
    job: dict[str, object],
    *,
    most: int | None = None,
    stdin: bytes | None = None,
) -> Heard:
    """Serve a process until it has said all, or with a `stdin` of its own until it has ended.

    It may say `most` bytes, else what its prints leave of the output bound.
    """
    attempt, clock, said = Attempt(0), Clock(limits, until, first_start=False), bytearray()
    with Pump() as pump, with_job(started, pump, job, said.extend) as process:
        stopped, code = False, None
        if stdin is not None:
            pump.write(process.stdin, stdin)
            pump.close_after_flush(process.stdin)
        while not stopped and code is None and (stdin is not None or not process.ended):
            pump.turn(clock.wait())
            if len(said) >= 4 and not clock.started:
                clock.start_unit()
            room = limits.output_bytes - process.prints.count if most is None else most
            choked = process.prints.exceeded or len(said) > room
            stopped = attempt.stopped(clock, process, choked=choked)
            code = None if stopped else process.exit_code(0)
        for _ in range(_LAST_READS):
            if not stopped and not process.ended:
                pump.turn(0.01)
        if not stopped and code is None:
            code = process.exit_code(0.5)
        reason = attempt.all_rest or attempt.outcomes[0][0] if stopped else ""
        return Heard(len(said) >= 4, bytes(said[4:]), process.prints.last_line, reason, code)


# -- tests that need the answer's own objects, beside it in one process ----------------------------
#
# There no wall stands between an answer and the verdict on it (`inside/same_process.py` tells what
# is closed), so a pass has to be earned twice: the unit passes, and every copy of it with one
# expectation made wrong fails. Each run has a sandbox of its own.

_MOST_BYTES = 4096
_AGAIN = 2
"""Further runs of a unit that has passed."""


@dataclass(frozen=True)
class CodeUnit:
    """One unit of tests as text."""

    text: str
    style: str
    """check, suite or asserts."""
    case: str = ""
    """What of the text is the unit, as `cases_in` names it."""
    before: list[str] = field(default_factory=list)
    """Texts run before it."""
    setup: str = ""

    @property
    def part(self) -> str:
        """What of the text holds its expectations: a case, the `check` function, or '' for all of
        it.
        """
        return "check" if self.style == "check" else self.case

    @property
    def trees(self) -> list[ast.Module]:
        """The syntax trees of the set-up, what runs before and the unit; none where one does not
        parse.
        """
        trees = [tree_of(text) for text in (self.setup, *self.before, self.text)]
        return [] if None in trees else [tree for tree in trees if tree]

    def needs_object(self, entry_point: str) -> bool:
        """Whether it can only be judged beside the answer."""
        trees = self.trees
        return bool(trees) and needs_object(trees, entry_point)

    def job(self, answer: dict[str, object]) -> dict[str, object]:
        """What the process is told, the word of the verdict aside."""
        trees = self.trees
        return {
            **answer,
            **vars(self),
            "imports": imports_in(trees),
            "defined": sorted(defined_in(trees)),
        }


def judge_in_one_process(
    runner: LocalRunner,
    limits: SandboxLimits,
    until: float,
    answer: dict[str, object],
    unit: CodeUnit,
) -> str:
    """The reason of one unit, 'passed' only where it passes and none of its controls does;
    'tampering' where one does.

    Raises DataError when the tests cannot run, SandboxUnavailable when the sandbox does not start.
    """
    job = unit.job(answer)
    run = partial(_run_same_process, runner, limits, until)
    reason = run(job)
    if reason != "passed":
        return reason
    # what is never reached passes whatever is expected there, so an honest answer must be able to
    # fail: see `controls`
    for text in controls(unit.text, unit.part):
        control = run({**job, "text": text})
        if control in ("passed", "tampering"):
            return "tampering"
        if control == "deadline":
            return control
    for _ in range(_AGAIN):  # what leaves it to chance passes once, and not each time
        if reason == "passed":
            reason = run(job)
    return reason


def _run_same_process(
    runner: LocalRunner, limits: SandboxLimits, until: float, job: dict[str, object]
) -> str:
    word = secrets.token_bytes(24)
    heard = hear(
        runner.start("same_process", limits), limits, until, {**job, "word": word}, most=_MOST_BYTES
    )
    if heard.said.startswith(word):
        reason = heard.said[len(word) :].decode("utf-8", "replace")
        if reason.startswith("broken "):
            raise broken_tests(reason[7:])
        return reason if len(reason) <= 200 else "tampering"
    if heard.stopped:
        return heard.stopped
    if not heard.began:
        raise not_started(heard.last_line or str(heard.code))
    return "tampering" if heard.said or heard.code == TAMPERED else exit_reason(heard.code)
