"""A pool of killable worker processes for cpu-bound calls that may hang, crash or eat the memory."""

from __future__ import annotations

import asyncio
import atexit
import io
import math
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import LIMIT_SHARE, current_deadline, current_run
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.worker import brief
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, RMGalleryError

T = TypeVar("T")
_Calls = deque["_PoolCall"]
Owner = Deadline | int
"""The deadline of a request, or the number of a run."""

STARTUP_SECONDS = 60.0
"""How long a process may take to start, and to load the functions of a chunk."""
_CHUNK_SECONDS = 0.02
_STARTS_PER_CALL = 3
_JOIN_SECONDS = 5.0
_PATIENCE = 0.25
"""Seconds after which a worker that is still at its chunk is no longer counted among those that
others wait for.
"""
_SHORTEST = 0.2
"""Seconds that a call gets at least, however many share the time of their request."""
# Handing over the search path makes the child import exactly what the parent would, whatever its
# working folder holds; `-c` instead of `-m` for the same reason. The script of the user is never
# imported.
_BOOT = (
    "import sys; cap, *sys.path[:] = sys.argv[1:]; "
    "import rm_gallery.core.engine.worker as worker; worker.main(int(cap))"
)
# There is a worker per processor already, and thread pools count against the memory cap.
_ONE_THREAD_EACH = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
_KILL = 9
_SIGNALS = {
    4: ", illegal instruction",
    6: ", abort",
    7: ", bus error",
    8: ", arithmetic error",
    _KILL: ", out of memory?",
    11: ", segmentation fault",
}


class WorkerCrashed(RMGalleryError):
    """The process that ran a call ended by itself; `exit_code` is negative for a signal."""

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# in the other order it cannot be rebuilt from a pickle
class WorkerMemoryExceeded(MemoryError, RMGalleryError):
    """A call needed more than the memory cap of a worker process."""


class RemoteTraceback(Exception):
    """Cause of an error raised in a worker: the traceback there, as text."""


def describe_exit(code: int | None) -> str:
    """Words for an exit code: 'exit code 3', 'killed by signal 11, segmentation fault'."""
    if code is None:
        return "exit code unknown"
    if code >= 0:
        return f"exit code {code}"
    return f"killed by signal {-code}{_SIGNALS.get(-code, '')}"


class WorkerPool:
    """Runs calls in worker processes; each call ends as its value, its own error, or an error of
    the pool.

    A call that passes its deadline (seconds, counted from its own start, not from its submission)
    fails with `DeadlineExceeded`; one whose process dies with `WorkerCrashed`; one that needs more
    than `memory_cap` bytes with `WorkerMemoryExceeded`. In each case only that call fails: its
    process is replaced and its neighbours run elsewhere. Processes start when first needed, up to
    `max_workers` (default: the processors this process may use). A `prepare_worker()` of a
    function's module is called before any clock runs.

    Callers take turns: a request, or a run, that has queued a thousand calls does not make another
    one wait for them, and workers that are held up by calls of one are replaced for the others, by
    up to `max_workers` more.

    Safe from many threads; a forked child has its own processes. The script of the user is not
    imported by workers, so functions must live in importable modules.
    """

    def __init__(
        self, max_workers: int | None = None, *, memory_cap: int | None = 4 * 2**30
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ConfigError(f"max_workers is at least 1, found {max_workers}")
        self.max_workers = max_workers or processors()
        self.memory_cap = memory_cap
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._work = threading.Condition()
        self._queues: dict[Owner, _Calls] = {}
        """What waits, by owner, in the order of their turns."""
        self._unsettled: Counter[Owner] = Counter()
        self._busy: dict[_PoolWorker, tuple[Owner, float]] = {}
        """By worker, whose calls it is at, and since when."""
        self._workers: list[_PoolWorker] = []
        self._seconds: dict[str, float] = {}
        """What a call takes, by the name of its function."""
        self.is_shut_down = False
        self.startup_seconds = 0.0
        """What the last process took until it was ready, which each call costs that has its process
        killed.
        """

    def submit(
        self, fn: Callable[..., T], /, *args: Any, deadline: float | None = None
    ) -> Future[T]:
        """Queue one call and return its future; `Future.cancel` works until the call begins.

        Raises ConfigError: the function or an argument cannot be sent to another process, the
        deadline is no positive number, or the pool is shut down.
        """
        return self._queued(_packed_call(fn, args, deadline)).future

    def _queued(self, call: _PoolCall, urgent: bool = False) -> _PoolCall:
        with self._work:
            if self.is_shut_down:
                raise ConfigError(
                    "the worker pool is shut down; make a new WorkerPool or use get_pool()"
                )
            queue = self._queues.setdefault(call.owner, deque())
            queue.insert(0 if urgent else len(queue), call)
            self._unsettled[call.owner] += 1
            # A worker for every open call, up to the limit: one caller at a time needs one process.
            # Where several have calls, as many again stand by for those that wait behind a call
            # that hangs; they have no process before it comes to that.
            most = self.max_workers * min(2, len(self._unsettled))
            if len(self._workers) < min(most, self._unsettled.total()):
                self._workers.append(_PoolWorker(self))
            self._work.notify_all()
        return call

    def asubmit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        deadline: float | None = None,
        urgent: bool = False,
    ) -> asyncio.Future[T]:
        """Like `submit`, for `await` in a running event loop; cancelling the awaiting task kills
        the running call.

        An `urgent` call comes before all others of its owner: what settles a call that ran out of
        time. The clock of the sample that the call belongs to stands still until the call begins.
        """
        clock, waiting = current_deadline.get(), ExitStack()
        request = clock and clock.request
        if request and request.process_seconds <= 0:
            raise DeadlineExceeded(
                "Its request has used up the computing it may take (max_seconds)."
            )
        tell = partial(asyncio.get_running_loop().call_soon_threadsafe, waiting.close)
        call = self._queued(_packed_call(fn, args, deadline, tell), urgent)
        if clock:
            waiting.enter_context(clock.paused())

        def done(waiter: asyncio.Future[T]) -> None:
            waiting.close()
            if request and call.began:
                request.process_seconds -= time.monotonic() - call.began
            if waiter.cancelled():
                self.cancel_running(call.future)

        waiter = asyncio.wrap_future(call.future)
        waiter.add_done_callback(done)
        return waiter

    def cancel_running(self, future: Future[Any]) -> bool:
        """Cancel a call even when it is running, by killing its process; its future then raises
        CancelledError.
        """
        if future.cancel():
            return True
        for worker in self._workers:
            if (call := worker.current) and call.future is future:
                worker.cut = call
                worker.kill()
                return True
        return False

    def shutdown(self) -> None:
        """Cancel what is queued, kill what runs (both raise CancelledError), end all processes and
        threads.
        """
        self.is_shut_down = True
        self._drop_queued()
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(_JOIN_SECONDS)

    def _drop_queued(self) -> None:
        with self._work:
            calls = list(chain(*self._queues.values()))
            self._queues.clear()
            self._work.notify_all()
        for call in calls:
            call.future.cancel()
            call.begin()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def take(self, worker: _PoolWorker, back: _Calls) -> _Calls:
        """Wait for the next calls of a worker: about 20 ms of work of the owner whose turn it is, who
        then comes last. Calls of `back`, which it was given and has not begun, go to the front of
        their queue first. Empty when the pool is shut down.
        """
        with self._work:
            if back:
                self._queues.setdefault(back[0].owner, deque()).extendleft(reversed(back))
            self._busy.pop(worker, None)
            self._work.notify_all()
            while not self.is_shut_down:
                for owner in list(self._queues):
                    if self._may_run(owner) and (chunk := self._chunk_of(owner)):
                        self._busy[worker] = owner, time.monotonic()
                        return chunk
                # a worker that hangs makes room without telling
                self._work.wait(_PATIENCE if self._queues else None)
        self._drop_queued()  # what was put back meanwhile
        return deque()

    def _may_run(self, owner: Owner) -> bool:
        """Whether there is a worker for an owner: one that hangs is none of the `max_workers` for
        those who wait behind it.
        """
        hanging = time.monotonic() - _PATIENCE
        busy = self._busy.values()
        return self.max_workers > max(
            sum(other == owner for other, _ in busy), sum(since > hanging for _, since in busy)
        )

    def _chunk_of(self, owner: Owner) -> _Calls:
        queue, chunk, seconds = self._queues.pop(owner), _Calls(), 0.0
        # Half of an even share at most, so that the workers end together.
        most = max(1, len(queue) // (2 * self.max_workers))
        while queue and len(chunk) < most:
            call = queue[0]
            # A call that once went down with its chunk before it began runs alone.
            seconds += self._seconds.get(call.name, _CHUNK_SECONDS) + call.aborted
            if chunk and seconds > _CHUNK_SECONDS:
                break
            queue.popleft()
            if call.future.cancelled():
                self.settling(call)
                call.begin()
                continue
            self._share_time(call)
            chunk.append(call)
        if queue:
            self._queues[owner] = queue
        return chunk

    def _share_time(self, call: _PoolCall) -> None:
        """Cut a call's limit so that all calls of its request can use up theirs before whoever
        asked goes away.

        Thirty answers that explode would else take the whole time of their request, and their
        neighbours' scores with it; and twenty patterns in a row, each within its own limit, hold a
        worker for as long as the request lasts.
        """
        if isinstance(call.owner, Deadline):
            calls = self._unsettled[call.owner]
            left = LIMIT_SHARE * (call.owner.due - time.monotonic()) * self.max_workers / calls
            share = max(
                _SHORTEST, min(left - self.startup_seconds, call.owner.process_seconds / calls)
            )
            call.deadline = min(share, call.deadline or share)

    def settling(self, call: _PoolCall, seconds: float | None = None) -> None:
        """Hear that a call is about to get its outcome, and learn how many of its kind make a
        chunk.
        """
        with self._work:
            self._unsettled[call.owner] -= 1
            if not self._unsettled[call.owner]:
                del self._unsettled[call.owner]
            if seconds is not None:
                # the first call also warms caches up and says little about the next: it soon fades
                known = self._seconds.get(call.name, seconds)
                self._seconds[call.name] = (known + seconds) / 2

    def forget_processes(self) -> None:
        """In a forked copy of the process: start empty, leaving the parent's workers and futures to
        the parent.
        """
        for worker in self._workers:
            if worker.process:
                worker.process.returncode = 0  # no child of this process
                worker.process.disconnect()
        self._reset()


@dataclass(slots=True, eq=False)
class _PoolCall:
    """A function and its arguments, pickled, and the future that gets the outcome."""

    name: str
    reference: bytes
    arguments: bytes
    deadline: float | None
    on_begin: Callable[[], object]
    owner: Owner
    """Whose call it is, for the pool's turns."""
    future: Future[Any] = field(default_factory=Future)
    began: float = 0.0
    aborted: int = 0
    """How many processes ended or hung before it could begin."""

    def begin(self) -> bool:
        """Mark the future as running; False when it was cancelled before, so that its answer is
        dropped.
        """
        if not self.began:
            self.began = time.monotonic()
            self.future.set_running_or_notify_cancel()
            with suppress(RuntimeError):  # the loop is gone, and its clocks with it
                self.on_begin()
        return self.future.running()

    def finish(self, payload: bytes | None, memory_cap: int | None) -> None:
        """Give the answer of a worker to the future."""
        value: object = None
        try:
            if payload is None:
                cap = f"{memory_cap / 2**20:,.0f} MB" if memory_cap else "what the system gives"
                error: Exception | None = WorkerMemoryExceeded(
                    f"{self.name} needed more memory than its worker process may use ({cap})"
                )
            else:
                value, error, text = pickle.loads(payload)
                if error is not None:
                    error.__cause__ = RemoteTraceback(text)
        except Exception as broken:  # noqa: BLE001 - an answer that cannot be rebuilt is this call's failure alone
            error = RuntimeError(f"the result of {self.name} cannot be rebuilt: {brief(broken)}")
        self.end(error, value)

    def end(self, error: Exception | None, value: object = None) -> None:
        """Give an error, or else a value, to the future, unless it was cancelled."""
        if self.begin():
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)


class _Pickler(pickle.Pickler):
    """Finds what lives in the script that is run, wherever it is inside a function."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ in ("__main__", "__mp_main__"):
            raise ConfigError(
                f"{obj.__module__}.{obj.__qualname__} lives in the script that is run; move it to a "
                "module, worker processes import it"
            )
        return NotImplemented


def _packed_call(
    fn: Callable[..., Any],
    arguments: tuple[Any, ...],
    deadline: float | None,
    on_begin: Callable[[], object] = bool,
) -> _PoolCall:
    if deadline is not None and not 0 < deadline < math.inf:
        raise ConfigError(f"a deadline is a positive number of seconds or None, found {deadline!r}")
    inner: Any = fn
    while isinstance(inner, partial):
        inner = inner.func
    home = inner if hasattr(inner, "__qualname__") else type(inner)
    name = f"{getattr(home, '__module__', None) or 'builtins'}.{home.__qualname__}"
    problem = (
        "{} cannot be sent to a worker process, it is a lambda or an inner function, or what its "
        "module has of that name is not the function given; use a function at the top of a module"
    )
    reference = io.BytesIO()
    try:
        _Pickler(reference, pickle.HIGHEST_PROTOCOL).dump(fn)
        problem = "an argument of {} cannot be pickled"
        pickled = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{problem.format(name)} ({brief(error)})") from error
    return _PoolCall(name, reference.getvalue(), pickled, deadline, on_begin, _owner())


class _Process(subprocess.Popen[bytes]):
    """One running child and the connection to it."""

    def __init__(self, memory_cap: int | None) -> None:
        self._connection, theirs = socket.socketpair()
        self._answers = self._connection.makefile("rb", 1 << 16)
        try:
            with theirs:
                super().__init__(
                    [
                        sys.executable,
                        "-c",
                        _BOOT,
                        str(memory_cap or 0),
                        *(entry for entry in sys.path if isinstance(entry, str)),
                    ],
                    stdin=subprocess.PIPE if sys.platform == "win32" else theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=_ONE_THREAD_EACH | os.environ,
                    # A group of its own: Ctrl-C in a terminal is the parent's to handle, and
                    # killing takes grandchildren along.
                    start_new_session=True,
                )
                if sys.platform == "win32":  # no socket is inherited there
                    with self.stdin as stdin:
                        stdin.write(theirs.share(self.pid))
        except BaseException:
            self.disconnect()
            raise

    def send(self, message: object) -> None:
        """Write one pickled message."""
        self._connection.settimeout(STARTUP_SECONDS)
        self._connection.sendall(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def receive(self, timeout: float | None) -> Any:
        """Wait for the next answer; raises TimeoutError after so many seconds of silence, another
        error when the process is gone.
        """
        if timeout != self._connection.gettimeout():  # else a system call for every answer
            self._connection.settimeout(timeout)
        return pickle.load(self._answers)

    def kill(self) -> None:
        """Kill the process and whatever it started in its group; harmless when it has ended."""
        # Not yet reaped means that the process id still belongs to the child.
        if self.returncode is None:
            with suppress(AttributeError, OSError):  # Windows knows no groups
                os.killpg(self.pid, _KILL)
            super().kill()

    def close(self) -> int:
        """Kill, reap and disconnect; returns the exit code, negative for a signal."""
        self.kill()
        self.wait()
        self.disconnect()
        return self.returncode

    def disconnect(self) -> None:
        """Let go of the connection."""
        # not by closing the stream: in a forked copy the lock that a reading thread held there
        # stays locked
        socket.close(self._connection.detach())


class _PoolWorker(threading.Thread):
    """A thread that gives chunks of calls to its process, and starts another one when that ended."""

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(name="rm-gallery-process", daemon=True)
        self._pool = pool
        self.process: _Process | None = None
        self._lock = threading.Lock()
        """Held while the process is started, killed or reaped."""
        self.current: _PoolCall | None = None
        self.cut: _PoolCall | None = None
        """Which call the process was killed for, from another thread."""
        self.start()

    def kill(self) -> None:
        """Kill the process, from any thread."""
        with self._lock:
            if self.process:
                self.process.kill()

    def _end_process(self) -> int | None:
        with self._lock:
            process, self.process = self.process, None
            return process.close() if process else None

    def run(self) -> None:
        """Serve chunks until the pool is shut down."""
        calls: _Calls = deque()
        while calls := self._pool.take(self, calls):
            self._serve(calls)
            self.current = self.cut = None
        self._end_process()

    def _serve(self, calls: _Calls) -> None:
        """Run a chunk; what stays in it had not begun when the process ended."""
        started = leave = False
        try:
            process = self._ready(calls)
            started, before = True, time.monotonic()
            while calls and not leave:
                self.current = call = calls[0]
                if not call.begin():  # the process, told of it before, may be at it for ever
                    raise CancelledError
                # The child works on this call since its previous answer arrived here at the latest,
                # so silence counts from now.
                payload, leave = process.receive(call.deadline)
                self.current = None
                calls.popleft()
                now = time.monotonic()
                self._pool.settling(call, now - before)
                before = now
                call.finish(payload, self._pool.memory_cap)
            if leave:
                self._end_process()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here, no future may wait for ever
            exit_code = self._end_process()
            problem: Exception = CancelledError()
            if not started:
                call = calls[0]
                for each in calls:
                    each.aborted += 1
                if call.aborted < _STARTS_PER_CALL:
                    return
                problem = WorkerCrashed(
                    f"{call.name} could not begin: {call.aborted} worker processes ended or hung "
                    f"while loading it; their messages are on stderr ({brief(error)})"
                )
            elif self.current is None or self.cut not in (None, call):
                # nothing was running, or the kill was meant for a call that finished in the same
                # moment
                return
            elif self._pool.is_shut_down or self.cut is call or isinstance(error, CancelledError):
                pass
            elif isinstance(error, TimeoutError):
                problem = DeadlineExceeded(
                    f"{call.name} ran longer than its deadline of {call.deadline:g} s; its process "
                    "was killed"
                )
            else:
                ended = f"the worker process running {call.name} ended ({describe_exit(exit_code)})"
                problem = WorkerCrashed(ended, exit_code=exit_code)
            calls.popleft()
            self._pool.settling(call)
            call.end(problem)

    def _ready(self, calls: _Calls) -> _Process:
        """Have the process load what a chunk needs."""
        began = time.monotonic()
        fresh = self.process is None
        with self._lock:
            if self._pool.is_shut_down:
                raise CancelledError
            process = self.process = self.process or _Process(self._pool.memory_cap)
        # equal bytes are sent once
        known: dict[bytes, bytes] = {}
        process.send(
            [
                (known.setdefault(call.reference, call.reference), call.arguments, call.deadline)
                for call in calls
            ]
        )
        process.receive(STARTUP_SECONDS)
        if fresh:
            self._pool.startup_seconds = time.monotonic() - began
        return process


def get_pool(
    name: str = "rewards", *, max_workers: int | None = None, memory_cap: int | None = 4 * 2**30
) -> WorkerPool:
    """The pool of this name, shared by the whole process, made on first use and ended at exit.

    Rewards share one; the sandbox and SQL have their own, so that what a stranger's code holds up
    is its like alone. The settings count when the pool is made.
    """
    with _guard:
        pool = _shared.get(name)
        if pool is None or pool.is_shut_down:
            pool = _shared[name] = WorkerPool(max_workers, memory_cap=memory_cap)
        return pool


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _owner() -> Owner:
    """Whose calls take turns with those of others: a request's, else those of a run."""
    deadline, run = current_deadline.get(), current_run.get()
    if deadline and (request := deadline.request):
        return request
    while run and run.parent:
        run = run.parent
    return id(run)


_shared: dict[str, WorkerPool] = {}
_guard = threading.Lock()
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _shutdown_all() -> None:
    for pool in list(_pools):
        pool.shutdown()


@library_loop.after_fork
def _forget_all() -> None:
    global _guard
    _guard = threading.Lock()
    for pool in list(_pools):
        pool.forget_processes()


atexit.register(_shutdown_all)
