"""Sandboxed processes that run one deployed evaluator, one request at a time, and are replaced when
they break.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import itertools
import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

import rm_gallery
from rm_gallery.core.engine.pool import processors
from rm_gallery.core.reward.function_result import (
    each_evaluated,
    evaluated,
    score_of_evaluated,
    told_as,
)
from rm_gallery.core.sandbox.attempt import exit_reason
from rm_gallery.core.sandbox.inside.base import MAX_FRAME, FrameTooLarge
from rm_gallery.core.sandbox.inside.codec import CodecError, decode, encode
from rm_gallery.core.sandbox.process import Prints, Pump, SandboxLimits, framed, messages_in
from rm_gallery.core.sandbox.runner import LocalRunner
from rm_gallery.core.sandbox.select import get_runner
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import (
    ConfigError,
    RMGalleryError,
    SandboxUnavailable,
    pip_install,
)
from rm_gallery.core.utils.file import deeper
from rm_gallery.evaluation.bundle import Bundle
from rm_gallery.evaluation.worker import CODES, failed

if TYPE_CHECKING:
    from rm_gallery.evaluation.store import Deployed

LIMITS = SandboxLimits()
"""What one request may take by default: 10 s, 512 MB, 16 processes and threads, 16 MB of files, 256
KB of prints.
"""
MAX_REPLY = 4 * 2**20
MAX_DEPTH = 64
"""Levels of objects and lists in what a result carries along."""
_START_SECONDS = 30.0
_LIFE_CPU_SECONDS = 3600.0
"""CPU time after which the kernel ends a worker; it is replaced between requests at half of it."""
_TICK = 0.1
_GROW_AFTER = 0.02
"""Seconds a request waits for a busy worker before another one is started."""
_IDLE_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_LOAD_AGAIN_SECONDS = 5.0


class EvaluatorBroken(RMGalleryError):
    """The code of an evaluator cannot be loaded; deploy a version that can."""

    reason = "evaluator_load"


class _Lost(Exception):
    """The worker is gone or no longer to be trusted; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class _Request:
    number: int
    frame: bytes
    count: int
    until: float
    future: Future[list[Score[float]]] = field(default_factory=Future)
    begun: bool = False


def check_count(name: str, value: Any) -> None:
    """Raise ConfigError for what is no whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number from 1, found {value!r}")


class EvaluatorPool:
    """Runs an evaluator's code in sandboxed processes of its own; use it from one event loop, or
    from several.

    A request that takes too long, too much memory, prints too much or crashes costs itself only:
    its process is ended, and the next request has a new one. What the code keeps in memory lasts
    from request to request of the same process. Processes are started when they are needed and
    ended after five minutes without a request.
    """

    def __init__(
        self,
        deployed: Bundle | Deployed,
        *,
        workers: int = 8,
        limits: SandboxLimits = LIMITS,
        sandbox: str = "auto",
        max_waiting: int = 10_000,
        on_print: Callable[[str], None] | None = None,
    ) -> None:
        """Take what is deployed; no process is started yet.

        Args:
            deployed: what `Store.current` gives, or a bundle.
            workers: processes at most, each for one request at a time.
            limits: `wall_seconds` of one request, the memory, processes, files and prints of one
                process.
            sandbox: "auto" or "bwrap" for bubblewrap; "subprocess" asks for limits alone, for code
                one would run oneself.
            max_waiting: requests that may wait; further ones fail at once (busy).
            on_print: gets what the code prints, in pieces, from other threads; by default it is
            dropped.

        Raises:
            SandboxUnavailable: there is no bubblewrap here.
            ConfigError: a setting that does not fit.
        """
        self._bundle: Bundle = deployed if isinstance(deployed, Bundle) else deployed.bundle
        check_count("workers", workers)
        runner = get_runner(sandbox, packages=package_folders())
        if not isinstance(runner, LocalRunner):
            raise ConfigError(
                f"sandbox is {sandbox[:40]!r}; deployed evaluators run with 'auto', 'bwrap' or "
                f"'subprocess'"
            )
        self._runner = runner
        self._limits = limits
        self._workers = workers
        self._max_waiting = max_waiting
        self._on_print = on_print
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._request_numbers = itertools.count(1)
        self._finished = 0
        self._shut = False
        self._broken: tuple[float, str] | None = None

    async def ready(self) -> None:
        """Start a first process and load the code.

        Raises:
            EvaluatorBroken: it does not load, or a package it requires is not installed here.
            SandboxUnavailable: the sandbox does not start.
        """
        for score in await self._submit([], None):
            kind = SandboxUnavailable if score.code == "sandbox" else EvaluatorBroken
            raise kind(score.reason)

    @told_as(evaluated)
    async def evaluate(
        self, payload: Mapping[str, Any], *, deadline: float | None = None
    ) -> Score[float]:
        """Evaluate one conversation; see `evaluate_batch`."""
        return (await self._submit([payload], deadline))[0]

    async def scores(
        self, payloads: Sequence[Mapping[str, Any]], *, deadline: float | None = None
    ) -> list[Score[float]]:
        """Evaluate conversations; a function of mode "batch" gets them in one call, any other one
        by one.

        As results of `evaluate_batch` they are never a made-up score: what cannot be judged has
        `is_score_valid=False`, and what broke also an `error` that begins with one of `CODES`.

        Args:
            payloads: `{"messages", "ground_truth"?, "original_messages"?, "tools"?, "kwargs"?}`,
                JSON types.
            deadline: seconds they may take, waiting included; `limits.wall_seconds` holds for each
                request as well.
        """
        if self._bundle.mode == "batch":
            return await self._submit(payloads, deadline) if payloads else []
        asked = (self._submit([payload], deadline) for payload in payloads)
        return [score for [score] in await asyncio.gather(*asked)]

    evaluate_batch = told_as(each_evaluated)(scores)

    async def close(self) -> None:
        """Finish what is waiting, then end every process; later requests fail (closed)."""
        with self._lock:
            self._shut = True
            threads = list(self._threads)
            for _ in threads:
                self._waiting.put(None)
        for thread in threads:
            while thread.is_alive():
                await asyncio.sleep(0.01)

    async def _submit(
        self, payloads: Sequence[Mapping[str, Any]], deadline: float | None
    ) -> list[Score[float]]:
        number = next(self._request_numbers)
        frame = _frame_of(number, payloads)
        problem = self._problem(frame)
        if problem is not None:
            return [problem] * len(payloads)
        until = time.monotonic() + (deadline if deadline is not None else 3600.0)
        request = _Request(number, frame, len(payloads), until)
        finished = self._finished
        self._waiting.put(request)
        if not self._threads:
            self._grow()
        waiting = asyncio.wrap_future(request.future)
        try:
            done, _ = await asyncio.wait([waiting], timeout=_GROW_AFTER)
            # beyond one worker per processor, another one helps only while the others are blocked
            if (
                not done
                and not request.begun
                and (len(self._threads) < processors() or self._finished == finished)
            ):
                self._grow()
            if deadline is not None and not done:
                # a request that is still waiting in line when its time is over is not to be begun
                # at all
                await asyncio.wait([waiting], timeout=max(0.0, until - time.monotonic()))
                if not waiting.done() and not request.begun and waiting.cancel():
                    return [failed("deadline", f"no worker was free within {deadline:g} s")] * max(
                        len(payloads), 1
                    )
            return await waiting
        finally:
            waiting.cancel()  # of somebody who has gone; nothing once it is done

    def _problem(self, frame: bytes) -> Score[float] | None:
        if self._shut:
            return failed("closed", "the evaluator is no longer served")
        if len(frame) > MAX_FRAME:
            return failed(
                "invalid_input",
                f"the conversation has {len(frame)} bytes; the limit is {MAX_FRAME}",
            )
        if self._waiting.qsize() >= self._max_waiting:
            return failed(
                "busy", f"{self._max_waiting} requests are waiting already; try again later"
            )
        broken = self._broken
        if broken is not None and time.monotonic() < broken[0]:
            return failed("evaluator_load", broken[1])
        return None

    def _grow(self) -> None:
        with self._lock:
            if len(self._threads) < self._workers and not self._shut:
                thread = threading.Thread(
                    target=self._serve_requests, name="rm-gallery-evaluator", daemon=True
                )
                self._threads.add(thread)
                thread.start()

    def _serve_requests(self) -> None:
        """One worker's thread: the process dies with the thread that started it, so the thread
        stays with it.
        """
        worker: _EvaluatorProcess | None = None
        last = time.monotonic()
        try:
            while True:
                try:
                    request = self._waiting.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    worker = _still_good(worker)
                    if time.monotonic() - last > _IDLE_SECONDS and self._leave_unless_needed():
                        return
                    continue
                if request is None:
                    return
                if request.future.set_running_or_notify_cancel():
                    request.begun = True
                    worker = self._answer(_still_good(worker), request)
                    last = time.monotonic()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            if worker is not None:
                worker.end()

    def _leave_unless_needed(self) -> bool:
        """Remove this thread, unless a request has arrived in the meantime."""
        with self._lock:
            free = self._waiting.empty()
            if free:
                self._threads.discard(threading.current_thread())
            return free

    def _answer(
        self, worker: _EvaluatorProcess | None, request: _Request
    ) -> _EvaluatorProcess | None:
        """Answer a request with this worker or a new one; return the worker when it can go on."""
        results: list[Score[float]] = []
        good = False
        try:
            worker = worker or self._start_process()
            cpu = 0.0
            if request.count:
                cpu, results = worker.ask(request)
            good = cpu <= _LIFE_CPU_SECONDS / 2
        except _Lost as error:
            if error.code == "evaluator_load":
                self._broken = time.monotonic() + _LOAD_AGAIN_SECONDS, str(error)
            results = [failed(error.code, str(error))] * max(request.count, 1)
        except Exception as error:  # noqa: BLE001 - it goes to whoever asked; the thread goes on
            request.future.set_exception(error)
        if worker is not None and not good:
            worker.end()
        if not request.future.done():
            self._finished = request.number
            request.future.set_result(results)
        return worker if good else None

    def _start_process(self) -> _EvaluatorProcess:
        missing = missing_requirements(self._bundle.requirements)
        if missing:
            raise _Lost(
                "evaluator_load",
                f"it requires {', '.join(missing)}, not installed here; {pip_install(*missing)}",
            )
        limits = replace(self._limits, cpu_seconds=_LIFE_CPU_SECONDS)
        try:
            return _EvaluatorProcess(self._runner, limits, self._bundle, self._on_print)
        except SandboxUnavailable as error:
            raise _Lost("sandbox", str(error)) from error


def _still_good(worker: _EvaluatorProcess | None) -> _EvaluatorProcess | None:
    """The worker, or None when it ended or exceeded a limit between requests; no request fails for
    that.
    """
    if worker is not None and worker.spoilt():
        worker.end()
        return None
    return worker


class _EvaluatorProcess:
    """One sandboxed process with the evaluator loaded; used and ended by the thread that made it."""

    def __init__(
        self,
        runner: LocalRunner,
        limits: SandboxLimits,
        bundle: Bundle,
        on_print: Callable[[str], None] | None,
    ) -> None:
        """Start it and load the code; raises SandboxUnavailable, or _Lost (evaluator_load) when the
        code cannot be loaded.
        """
        self._limits = limits
        self._prints = Prints(limits.output_bytes)
        self._buffer = bytearray()
        self._over = False
        self._on_print = on_print
        self._process, boot = runner.start("service", limits)
        self._pump = Pump()
        try:
            self._pump.on_read(self._process.stdout, self._take)
            self._pump.on_read(self._process.stderr, self._printed)
            job = {
                "files": dict(bundle.files),
                "metrics": list(bundle.metrics),
                "mode": bundle.mode,
            }
            entry = {
                "module": "rm_gallery.evaluation.worker",
                "function": "open_evaluator",
                "job": job,
            }
            self._pump.write(self._process.stdin, boot + framed(encode(entry, limit=MAX_FRAME)))
            self._boot()
            self._load()
        except BaseException:
            self.end()
            raise

    def _boot(self) -> None:
        try:
            self._next_message(time.monotonic() + _START_SECONDS, "the sandbox did not start")
        except _Lost as error:
            message = self._prints.last_line or str(error)
            raise SandboxUnavailable(f"a sandboxed interpreter did not start: {message}") from error

    def _load(self) -> None:
        seconds = max(_START_SECONDS, self._limits.wall_seconds)
        try:
            reply: Any = decode(
                self._next_message(time.monotonic() + seconds, f"it took more than {seconds:g} s")
            )
            status, message = reply
        except (_Lost, CodecError, TypeError, ValueError) as error:
            raise _Lost("evaluator_load", f"the evaluator does not load: {error}") from error
        if status == "ok":
            return
        if f"No module named '{rm_gallery.__name__}" in str(message):
            raise SandboxUnavailable(
                f"the sandbox cannot read {', '.join(package_folders())}: everyone must be allowed "
                f"to (chmod -R o+rX)"
            )
        raise _Lost("evaluator_load", f"the evaluator does not load: {message}")

    def ask(self, request: _Request) -> tuple[float, list[Score[float]]]:
        """CPU seconds the process has used so far, and the results; raises _Lost."""
        self._prints.reset()
        self._buffer.clear()
        now = time.monotonic()
        until = min(request.until, now + self._limits.wall_seconds)
        if until <= now:
            return 0.0, [failed("deadline", "no worker was free in time")] * request.count
        self._pump.write(self._process.stdin, framed(request.frame))
        try:
            value: Any = {}
            # skip late answers to earlier requests
            while value.get("id") != request.number:
                value = orjson.loads(
                    self._next_message(until, f"it took longer than {until - now:.3g} s")
                )
            results, cpu = value["results"], float(value["cpu"])
            if not isinstance(results, list) or len(results) != request.count:
                raise ValueError("not one result for each item")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _Lost("invalid_result", "its process sent no result") from error
        if self._on_print is not None:
            self._pump.turn(0)
        return cpu, [_score_of(one) for one in results]

    def _next_message(self, until: float, late: str) -> bytes:
        """The next whole message; raises _Lost when time, memory, prints or the process end first."""
        while True:
            try:
                for _, message in messages_in(self._buffer, MAX_REPLY):
                    return message[4:]
            except FrameTooLarge as error:
                raise _Lost(
                    "output", f"its result is a {error}; the limit is {MAX_REPLY}"
                ) from None
            self._raise_if_lost(until, late)
            self._pump.turn(max(0.0, min(_TICK, until - time.monotonic())))

    def _raise_if_lost(self, until: float, late: str) -> None:
        if self._over:
            raise _Lost(
                "crashed", f"its process ended ({exit_reason(self._process.exit_code(0.5))})"
            )
        if self._prints.exceeded:
            raise _Lost("output", f"it printed more than {self._limits.output_kb} KB")
        excess = self._process.excess()
        if excess == "memory":
            raise _Lost(excess, f"it used more than {self._limits.memory_mb} MB")
        if excess:
            raise _Lost(excess, f"it started more than {self._limits.processes} processes")
        if time.monotonic() >= until:
            raise _Lost("deadline", late)

    def spoilt(self) -> bool:
        """Whether it has ended, exceeded a limit or written unasked output since its last answer."""
        self._pump.turn(0)
        return (
            self._over
            or self._prints.exceeded
            or bool(self._buffer)
            or bool(self._process.excess())
        )

    def _printed(self, data: bytes) -> None:
        self._prints.take(data)
        if self._on_print is not None and data:
            self._on_print(data.decode("utf-8", "replace"))

    def _take(self, data: bytes) -> None:
        if data:
            self._buffer += data
        else:
            self._over = True

    def end(self) -> None:
        """Kill the process with everything it started."""
        self._pump.__exit__(None, None, None)
        self._process.end()


def _frame_of(number: int, payloads: Sequence[Mapping[str, Any]]) -> bytes:
    value = {"id": number, "items": payloads}
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates and integers beyond 64 bits
        return json.dumps(value).encode()


def _score_of(value: Any) -> Score[float]:
    # step_outputs, a level below the result, may hold values too deep to serialize
    if deeper(value, MAX_DEPTH + 1):
        return failed(
            "invalid_result", f"its step_outputs are nested deeper than {MAX_DEPTH} levels"
        )
    try:
        return score_of_evaluated(value, CODES)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        return failed("invalid_result", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


@functools.cache
def package_folders() -> tuple[str, ...]:
    """Folders that evaluator code may import from, read-only: this package and the installed
    packages.
    """
    named = ("site-packages", "dist-packages")
    installed = [
        entry for entry in sys.path if os.path.basename(entry) in named and os.path.isdir(entry)
    ]
    return (str(Path(rm_gallery.__file__).parent), *dict.fromkeys(installed))


def missing_requirements(requirements: Sequence[str]) -> list[str]:
    """The requirements whose package is not installed here, as they were written; versions are not
    compared.
    """
    missing = []
    for line in requirements:
        name = re.split(r"[\s<>=!~;\[@(]", line, maxsplit=1)[0]
        try:
            importlib.metadata.distribution(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            missing.append(line)
    return missing
