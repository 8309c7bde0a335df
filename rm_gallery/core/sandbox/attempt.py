"""One attempt at running test units in sandboxed processes: its clocks and guards, assert lines and
calls, programs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rm_gallery.core.sandbox.inside.answer import FORK_FAILED, OUTPUT_LIMIT, REPLY
from rm_gallery.core.sandbox.inside.base import MAX_FRAME
from rm_gallery.core.sandbox.inside.codec import decode, encode
from rm_gallery.core.sandbox.inside.same_process import TAMPERED
from rm_gallery.core.sandbox.inside.testing import same_output
from rm_gallery.core.sandbox.process import Pump, SandboxLimits, SandboxProcess, framed
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

    def settle(self, outcomes: dict[int, tuple[str, str]], units: int) -> int:
        """Add its outcomes to those of a whole sample; return the unit to go on with, `units` where
        nothing is left.
        """
        outcomes.update(self.outcomes)
        if not self.all_rest:
            return self.next_unit
        outcomes.update(
            {number: (self.all_rest, self.all_detail) for number in range(self.next_unit, units)}
        )
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
        self, clock: Clock, processes: Sequence[SandboxProcess], *, choked: bool, loaded: bool
    ) -> bool:
        """Tell whether a clock, the output bound (`choked`) or a limit of the processes stopped the
        current unit; record it.
        """
        reason = clock.check() or ("output limit" if choked else "")
        if reason == "sample deadline":
            self.all_rest = "deadline"
        elif reason:
            self.stop_by(reason, loaded=loaded, surely=True)
        else:
            reason = next(filter(None, (process.excess() for process in processes)), "")
            if reason:
                self.stop_by(reason, loaded=loaded)
        return bool(reason)


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
        return max(
            0.0, min(_TICK, self._until - time.monotonic(), self._sample_until - time.monotonic())
        )


class Prints:
    """Counts what a process prints and keeps its last bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._tail = b""

    def take(self, data: bytes) -> None:
        """Count a chunk."""
        self._count += len(data)
        self._tail = (self._tail + data)[-2000:]

    def reset(self) -> None:
        """Start counting for the next unit."""
        self._count = 0

    @property
    def exceeded(self) -> bool:
        """Whether the limit is passed."""
        return self._count > self._limit

    @property
    def last_line(self) -> str:
        """Last line printed."""
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def crash_reason(process: SandboxProcess) -> str:
    """Name why a process that hung up is gone."""
    code = process.exit_code(0.5)
    if code is None:
        return "tampering"  # alive, but it closed its side of the channel
    return exit_reason(code)


def exit_reason(code: int) -> str:
    """Name the outcome of an exit code; -24 is the kernel's CPU limit."""
    return "deadline" if code == -24 else f"crashed exit code {code}"


_RELAY_LIMIT = 256 * 1024 * 1024


class TestFrames:
    """Cuts the test side's stream into calls (kind C, passed on unread) and records (kind R)."""

    def __init__(
        self, on_call: Callable[[bytes], None], on_record: Callable[[tuple[Any, ...]], None]
    ) -> None:
        self._buffer = bytearray()
        self._on_call = on_call
        self._on_record = on_record

    def feed(self, data: bytes) -> None:
        """Take a chunk; raises SandboxUnavailable when the test side no longer keeps to the format."""
        self._buffer += data
        while len(self._buffer) >= 5:
            size = int.from_bytes(self._buffer[1:5], "big")
            if size > MAX_FRAME:
                raise SandboxUnavailable("the test process sent an oversized message")
            if len(self._buffer) < 5 + size:
                return
            kind, body = self._buffer[:1], bytes(self._buffer[1 : 5 + size])
            del self._buffer[: 5 + size]
            if kind == b"C":
                self._on_call(body)
            else:
                record = decode(body[4:])
                self._on_record(record if isinstance(record, tuple) else ())


class PairAttempt:
    """Runs units from `first` on until they are done or one of the two processes has to be given
    up.
    """

    def __init__(self, limits: SandboxLimits, clock: Clock, first: int, units: int) -> None:
        self._units = units
        self._clock = clock
        self._attempt = Attempt(first)
        self._prints = Prints(limits.output_bytes)
        self._test_prints = Prints(limits.output_bytes)
        self._relayed = 0
        self._loaded = False
        self._finished = False
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
        with ExitStack() as stack:
            candidate, candidate_boot = runner.start("functions", limits)
            stack.callback(candidate.end)
            tester, tester_boot = runner.start("testing", limits)
            stack.callback(tester.end)
            pump = stack.enter_context(Pump())
            frames = TestFrames(lambda call: pump.write(candidate.stdin, call), self._on_record)
            pump.on_read(
                candidate.stdout, lambda data: self._relay(pump, tester, data), fills=tester.stdin
            )
            pump.on_read(candidate.stderr, self._prints.take)
            pump.on_read(tester.stderr, self._test_prints.take)
            ended: list[bool] = []
            pump.on_read(
                tester.stdout, lambda data: frames.feed(data) if data else ended.append(True)
            )
            pump.write(candidate.stdin, candidate_boot + _framed(answer))
            pump.write(
                tester.stdin,
                tester_boot
                + _framed({**tests, "first": self._attempt.first, "units": self._units}),
            )
            while not self._finished and not ended and not self._stopped((candidate, tester)):
                pump.turn(self._clock.wait())
            if self._hung_up:
                self._on_hang_up(candidate, "")
            elif ended and not self._finished:
                self._on_hang_up(tester, "in the test process")
        return self._attempt

    def _relay(self, pump: Pump, tester: SandboxProcess, data: bytes) -> None:
        self._relayed += len(data)
        if data:
            pump.write(tester.stdin, data)
        else:
            pump.close_after_flush(tester.stdin)

    def _stopped(self, processes: Sequence[SandboxProcess]) -> bool:
        choked = self._prints.exceeded or self._relayed > _RELAY_LIMIT
        return self._attempt.stopped(self._clock, processes, choked=choked, loaded=self._loaded)

    def _on_record(self, record: tuple[Any, ...]) -> None:
        kind = record[0] if record else ""
        if kind == "started":
            self._clock.start_unit()
        elif kind == "ready":
            self._loaded = True
            self._clock.start_unit()
        elif kind == "unit":
            self._on_unit(*record[2:])
        elif kind == "dead" and record[1] != "gone":
            self._attempt.all_rest, self._attempt.all_detail = record[1], record[2]
            self._finished = True
        elif kind == "dead":
            self._hung_up = self._finished = True
        elif kind == "broken":
            raise DataError(f"the tests cannot run, whatever the answer is: {record[1]}")

    def _on_unit(self, reason: str, detail: str, is_last: bool) -> None:
        if reason == "gone":
            self._hung_up = self._finished = True
            return
        self._attempt.judge(reason, detail)
        self._prints.reset()
        self._clock.start_unit()
        self._finished = is_last or self._attempt.next_unit >= self._units

    def _on_hang_up(self, process: SandboxProcess, where: str) -> None:
        reason = crash_reason(process)
        if self._clock.started:
            self._attempt.stop_by(
                reason, loaded=self._loaded, surely=reason == "tampering", detail=where
            )
            return
        cause = self._prints.last_line or self._test_prints.last_line or reason
        raise SandboxUnavailable(f"a sandboxed interpreter did not start: {cause}")


def _framed(job: dict[str, object]) -> bytes:
    return framed(encode(job, limit=MAX_FRAME))


def as_text(value: Any) -> str:
    """Return an input or output as text: lists are lines."""
    if isinstance(value, (list, tuple)):
        return "\n".join(map(as_text, value))
    return value if isinstance(value, str) else str(value)


def output_bound(limits: SandboxLimits, expected: Sequence[str]) -> int:
    """Return the output limit, widened where an expected text needs more."""
    return max(limits.output_bytes, 2 * max((len(text.encode()) for text in expected), default=0))


class ProgramAttempt:
    """Feeds inputs from `first` on, one after the other, and compares what is printed."""

    def __init__(
        self,
        limits: SandboxLimits,
        clock: Clock,
        first: int,
        inputs: Sequence[str],
        expected: Sequence[str],
    ) -> None:
        self._clock = clock
        self._inputs = inputs
        self._expected = expected
        self._attempt = Attempt(first)
        self._output_bytes = output_bound(limits, expected)
        self._prints = Prints(limits.output_bytes)
        self._buffer = bytearray()
        self._ready = False
        self._over = False

    def run(self, runner: LocalRunner, limits: SandboxLimits, code: str) -> Attempt:
        """Start the process and serve it to the end; raises SandboxUnavailable when it does not
        start.
        """
        with ExitStack() as stack:
            process, boot = runner.start("programs", limits)
            stack.callback(process.end)
            pump = stack.enter_context(Pump())
            ended: list[bool] = []
            pump.on_read(
                process.stdout,
                lambda data: self._take(pump, process, data) if data else ended.append(True),
            )
            pump.on_read(process.stderr, self._prints.take)
            job: dict[str, object] = {"code": code, "output_bytes": self._output_bytes}
            pump.write(process.stdin, boot + _framed(job))
            while not self._over and not ended and not self._stopped((process,)):
                pump.turn(self._clock.wait())
            if ended and not self._over:
                self._on_hang_up(process)
        return self._attempt

    def _stopped(self, processes: Sequence[SandboxProcess]) -> bool:
        return self._attempt.stopped(
            self._clock, processes, choked=self._prints.exceeded, loaded=self._ready
        )

    def _take(self, pump: Pump, process: SandboxProcess, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and not self._over:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > self._output_bytes + REPLY.size + 100:
                self._attempt.judge("tampering")
                self._over = True
                return
            if len(self._buffer) < 4 + size:
                return
            body = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            if self._ready:
                self._judge(body)
            self._ready = True
            self._feed(pump, process)

    def _feed(self, pump: Pump, process: SandboxProcess) -> None:
        unit = self._attempt.next_unit
        self._over = self._over or unit >= len(self._inputs)
        if not self._over:
            stdin = self._inputs[unit].encode("utf-8", "surrogatepass")
            if len(stdin) > MAX_FRAME:
                raise DataError(
                    f"input {unit} of a code test has {len(stdin)} bytes; the limit is {MAX_FRAME}"
                )
            self._prints.reset()
            self._clock.start_unit()
            pump.write(process.stdin, framed(stdin))

    def _judge(self, body: bytes) -> None:
        try:
            state, code, name_length = REPLY.unpack_from(body)
            name = body[REPLY.size : REPLY.size + name_length].decode("utf-8")
            output = body[REPLY.size + name_length :].decode("utf-8", "replace")
        except Exception:  # noqa: BLE001 - any malformed reply comes from the answer's own doing
            self._attempt.judge("tampering")
            self._over = True
            return
        self._attempt.judge(self._reason(state, code, name, output))

    def _reason(self, state: int, code: int, name: str, output: str) -> str:
        if state == OUTPUT_LIMIT:
            return "output limit"
        if state == FORK_FAILED:
            return "processes"
        if name and code != 0:
            return (
                "memory"
                if name == "MemoryError"
                else f"error: {name}"
                if name.isidentifier()
                else "tampering"
            )
        if code != 0:
            return exit_reason(code)
        return (
            "passed"
            if same_output(output, self._expected[self._attempt.next_unit])
            else "wrong answer"
        )

    def _on_hang_up(self, process: SandboxProcess) -> None:
        reason = crash_reason(process)
        if not self._ready:
            cause = self._prints.last_line or reason
            raise SandboxUnavailable(f"a sandboxed interpreter did not start: {cause}")
        self._attempt.stop_by(reason, loaded=True, surely=reason == "tampering")


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

    def needs_object(self, entry_point: str) -> bool:
        """Whether it can only be judged beside the answer."""
        trees = [tree_of(text) for text in (self.setup, *self.before, self.text)]
        return None not in trees and needs_object([tree for tree in trees if tree], entry_point)

    def job(self, answer: dict[str, object]) -> dict[str, object]:
        """What the process is told, the word of the verdict aside."""
        trees = [
            tree
            for tree in (tree_of(text) for text in (self.setup, *self.before, self.text))
            if tree
        ]
        unit: dict[str, object] = {
            "text": self.text,
            "style": self.style,
            "case": self.case,
            "before": self.before,
        }
        return {
            **answer,
            **unit,
            "setup": self.setup,
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
    reason = _run_same_process(runner, limits, until, job)
    if reason != "passed":
        return reason
    # what is never reached passes whatever is expected there, so an honest answer must be able to
    # fail: see `controls`
    for text in controls(unit.text, unit.part):
        control = _run_same_process(runner, limits, until, {**job, "text": text})
        if control in ("passed", "tampering"):
            return "tampering"
        if control == "deadline":
            return control
    for _ in range(_AGAIN):  # what leaves it to chance passes once, and not each time
        if reason == "passed":
            reason = _run_same_process(runner, limits, until, job)
    return reason


def _run_same_process(
    runner: LocalRunner, limits: SandboxLimits, until: float, job: dict[str, object]
) -> str:
    word = secrets.token_bytes(24)
    attempt, clock = Attempt(0), Clock(limits, until, first_start=False)
    reply, printed, ended = bytearray(), bytearray(), list[bool]()
    with ExitStack() as stack:
        process, boot = runner.start("same_process", limits)
        stack.callback(process.end)
        pump = stack.enter_context(Pump())
        pump.on_read(
            process.stdout, lambda data: reply.extend(data) if data else ended.append(True)
        )
        pump.on_read(process.stderr, printed.extend)
        pump.write(process.stdin, boot + framed(encode({**job, "word": word}, limit=MAX_FRAME)))
        stopped = False
        while not ended and not stopped:
            pump.turn(clock.wait())
            if reply and not clock.started:
                clock.start_unit()
            choked = len(printed) > limits.output_bytes or len(reply) > _MOST_BYTES
            stopped = attempt.stopped(clock, (process,), choked=choked, loaded=True)
        verdict = bytes(reply[4:])
        if verdict.startswith(word):
            reason = verdict[len(word) :].decode("utf-8", "replace")
            if reason.startswith("broken "):
                raise DataError(f"the tests cannot run, whatever the answer is: {reason[7:]}")
            return reason if len(reason) <= 200 else "tampering"
        if stopped:
            return attempt.all_rest or attempt.outcomes[0][0]
        if verdict:
            return "tampering"
        code = process.exit_code(0.5)
        if not reply:
            last_line = printed.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise SandboxUnavailable(
                f"a sandboxed interpreter did not start: {(last_line or [str(code)])[0][:300]}"
            )
        return "tampering" if code == TAMPERED else crash_reason(process)
