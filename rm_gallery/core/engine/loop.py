"""The library's own event loop in a daemon thread, where the jobs and model calls of every door run,
and threads for what blocks.

One loop keeps connections warm between batches and works alike under a script, a notebook's running
loop, many threads and two loops in a row. It starts at first use, closes at exit, and is forgotten
(not shared) in a forked child.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import wraps
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from rm_gallery.core.utils.errors import Cause, ConfigError, RMGalleryError
from rm_gallery.core.utils.log import logger

T = TypeVar("T")
P = ParamSpec("P")
Callback = Callable[[], None]
Closer = Callable[[], Awaitable[None]]
Fail = Callable[[BaseException], None]
"""Takes the error of what will not come."""
Asked = Coroutine[Any, Any, T]
CANCEL_SECONDS = 1.0
"""How long a task that will not be cancelled may hold up the closing of everything else."""
IDLE_SECONDS = 2.0
SAY_SECONDS = 60.0


class RunStopped(RMGalleryError):
    """The run was halted before this attempt was made, the call was cut in flight, or the loop it ran
    on ended.
    """

    reason = "stopped"

    def __init__(self, message: str, cause: Cause = "caller") -> None:
        super().__init__(message)
        self.cause = cause


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_NOBODY = object()


class _Here(threading.local):
    """What is known of a thread."""

    serves = False
    """Whether it runs the library's event loop."""
    driven_in: object = _NOBODY
    """The event loop, or None, in which a coroutine is driven on it."""
    door: tuple[str, ...] = ("A blocking call", "its async twin")
    """What was called to drive it, and what to await in its place."""


_here = _Here()
_exiting = False
_still_said = -SAY_SECONDS
_closers: list[Closer] = []
_resets: list[Callback] = []
_inherited: list[asyncio.AbstractEventLoop] = []
_waiting: dict[object, tuple[asyncio.AbstractEventLoop | None, Fail]] = {}


def get_loop() -> asyncio.AbstractEventLoop:
    """The running library loop, started when needed. Any thread may call this, until the
    interpreter exits.
    """
    global _loop, _thread
    loop, thread = _loop, _thread
    if (
        loop is not None
        and thread is not None
        and thread.is_alive()
        and not loop.is_closed()
        and not _exiting
    ):
        return loop
    with _lock:
        if _exiting:
            raise RuntimeError("The interpreter is exiting: nothing can be evaluated any more.")
        # asked again: another thread may have started one meanwhile, and two would share connections
        if _loop is None or _thread is None or not _thread.is_alive() or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(
                target=_run_loop, args=(_loop,), name="rm-gallery-loop", daemon=True
            )
            _thread.start()
        return _loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    _here.serves = True
    try:
        while True:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # a task that user code started raised it: whoever awaits that task gets it, and
                # nobody else
                logger.warning(
                    "{} in a task that a reward started; the event loop goes on.",
                    type(error).__name__,
                )
                continue
            if not is_current(loop) or _exiting:
                return
    finally:
        _wake_all(loop)


def _wake_all(loop: asyncio.AbstractEventLoop) -> None:
    """Tell whoever waits for something of this loop that it will not come."""
    for key, (its_loop, fail) in list(_waiting.items()):
        if its_loop is loop:
            _waiting.pop(key, None)
            cut_off(fail)


def cut_off(fail: Fail) -> None:
    """Tell one who waits that the loop is gone, unless the whole interpreter goes."""
    if not _exiting:
        fail(RunStopped("The run was cut off: the library's event loop was shut down."))


def wake_at_end(key: object, fail: Fail) -> None:
    """Have `fail(error)` called when the loop ends before `no_longer_waiting(key)`."""
    _waiting[key] = (_loop, fail)


def no_longer_waiting(key: object) -> None:
    """Take back `wake_at_end`."""
    _waiting.pop(key, None)


def is_current(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether `loop` is the library loop: not one that is closing, nor one that a forked child
    inherited.
    """
    return loop is _loop


def is_exiting() -> bool:
    """Whether the interpreter exits: what still runs in daemon threads is left to end with it."""
    return _exiting


def on_loop() -> bool:
    """Whether the caller runs on the library loop's thread; also while that loop closes."""
    return _here.serves


def refuse_blocking(door: str = "", twin: str = "") -> None:
    """Raise ConfigError on the library loop's thread, where waiting for the loop would never end.

    It names the door that was called, and what to await in its place; within what is driven these
    are those that drive it.
    """
    if on_loop():
        door, twin = (door, twin) if door else _here.door
        raise ConfigError(
            f"{door} blocks, and it was called from a coroutine or hook that runs on the library's "
            f"event loop, which would wait for itself. Use its async twin with await: `await "
            f"{twin}`; hooks and _evaluate may be async."
        )


def blocks(function: Callable[P, T]) -> Callable[P, T]:
    """A function that blocks and has no async twin, refused on the library loop before it begins."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        name = function.__name__
        refuse_blocking(name, f"asyncio.to_thread({name}, …)")
        return function(*args, **kwargs)

    return call


def stood_still(seconds: float) -> None:
    """Say that something blocked the loop for so long, at most once in a while."""
    global _still_said
    now = time.monotonic()
    if now >= _still_said + SAY_SECONDS:
        _still_said = now
        logger.warning(
            "The event loop stood still for {:.1f} s, and with it every other sample and deadline: "
            "something async blocks it (time.sleep, requests, heavy computing). Await there, or "
            "write a plain def: that runs in threads.",
            seconds,
        )


def wake(waiter: asyncio.Future[None]) -> None:
    """End a wait on whatever event loop it is, from any thread; nothing where that loop is closed,
    for nobody waits then.
    """
    with suppress(RuntimeError):
        waiter.get_loop().call_soon_threadsafe(
            lambda: None if waiter.done() else waiter.set_result(None)
        )


def submit(coroutine: Asked[T]) -> concurrent.futures.Future[T]:
    """Start a coroutine on the library loop; it inherits the caller's context variables."""
    try:
        loop = get_loop()
    except RuntimeError:
        coroutine.close()
        raise
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)

    def fail(error: BaseException) -> None:
        with suppress(concurrent.futures.InvalidStateError):
            future.set_exception(error)

    wake_at_end(future, fail)
    future.add_done_callback(no_longer_waiting)
    return future


def run(coroutine: Asked[T], door: str = "", twin: str = "") -> T:
    """Run a coroutine on the library loop and wait for it; from the loop itself it is an error,
    never a deadlock.
    """
    try:
        refuse_blocking(door, twin)
    except ConfigError:
        coroutine.close()
        raise
    future = submit(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def blocking(
    twin: Callable[P, Asked[T]], door: str = "", *, drives: bool = False, refused: bool = False
) -> Callable[P, T]:
    """The blocking twin of an async method, also of one that a subclass puts in its place; with and
    without a running event loop. It is called `door`, else as the method without its first `a`.

    It waits for the library's loop, and is refused there. One that `drives` runs the coroutine on
    the caller's thread, where rows are drawn and may wait, and Ctrl-C leaves time to the calls that
    are paid for; the runs within wait for the loop, and are refused there, unless the whole door is
    `refused`.
    """
    name = twin.__name__
    door = door or name.removeprefix("a")

    @wraps(twin)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        called = f"{type(args[0]).__name__}.{door}", f"{name}(…)"
        if refused:
            refuse_blocking(*called)
        coroutine = getattr(args[0], name)(*args[1:], **kwargs)
        return drive(coroutine, *called) if drives else run(coroutine, *called)

    call.__name__, call.__qualname__ = door, twin.__qualname__.replace(name, door)
    return call


def is_driven() -> bool:
    """Whether a blocking door drives the coroutine that asks: it may block this thread."""
    return _here.driven_in is asyncio._get_running_loop()


def drive(coroutine: Asked[T], *called: str) -> T:
    """Run a coroutine that blocks where it would wait (`is_driven`) on the caller's thread, with
    and without a running event loop: so each blocking door is its async twin. Rows are drawn where
    the caller is, and Ctrl-C comes to whoever waits.
    """
    before = _here.driven_in, _here.door
    _here.driven_in, _here.door = asyncio._get_running_loop(), called or _here.door
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        _here.driven_in, _here.door = before
    coroutine.close()
    raise RuntimeError("A coroutine that is driven waited for an event loop.")


def driven(results: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """What an async generator yields, each driven on the caller's thread."""
    try:
        while True:
            # a running event loop would take the generator for its own, and end it with itself
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(None, None)
            try:
                result = drive(results.__anext__())
            except StopAsyncIteration:
                return
            finally:
                sys.set_asyncgen_hooks(*hooks)
            yield result
    finally:
        drive(results.aclose())


async def bridge(coroutine: Asked[T]) -> T:
    """Await, from any event loop, a coroutine that runs on the library loop; cancelling the waiter
    cancels it.
    """
    if on_loop():
        return await coroutine
    return await asyncio.wrap_future(submit(coroutine))


def at_close(closer: Closer) -> Closer:
    """Register a coroutine function run on the loop before it closes (sessions, writers)."""
    _closers.append(closer)
    return closer


def after_fork(reset: Callback) -> Callback:
    """Register a function that drops inherited state in a forked child; it must not touch shared
    sockets or locks.
    """
    _resets.append(reset)
    return reset


async def _close_all() -> None:
    # tasks first: one that is still at work would open again what a closer has closed
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
    for closer in reversed(_closers):
        await closer()


def shutdown(timeout: float = 5.0) -> None:
    """Close what is registered, stop the loop and join its thread; the next use starts a new one."""
    global _loop, _thread
    with _lock:
        loop, thread = _loop, _thread
        _loop = _thread = None
    if loop is None or thread is None or not thread.is_alive():
        return
    # a closer that hangs must not keep the interpreter from leaving
    with suppress(TimeoutError, concurrent.futures.TimeoutError):
        asyncio.run_coroutine_threadsafe(_close_all(), loop).result(timeout)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout)
    if not thread.is_alive():
        loop.close()
    else:
        _wake_all(loop)  # something blocks the loop for good


class DaemonThreads:
    """Threads that run given functions and wait a moment for the next one.

    Unlike concurrent.futures the interpreter does not wait for them at exit, so a user function
    that never returns cannot keep the process alive. There is no limit here: who starts functions
    bounds how many.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callback] = SimpleQueue()
        self._idle = 0
        """Threads that wait, and have nothing queued for them."""

    def start(self, function: Callback) -> None:
        """Run `function` on an idle thread, or on a new one; RuntimeError when there is none to be
        had.
        """
        if self._take_idle():
            self._queue.put(function)
        else:
            threading.Thread(
                target=self._work, args=(function,), name="rm-gallery-worker", daemon=True
            ).start()

    def _take_idle(self) -> bool:
        """Whether there was an idle thread, which is none any more."""
        with self._lock:
            was_idle = self._idle > 0
            self._idle -= was_idle
            return was_idle

    def _work(self, function: Callback) -> None:
        while True:
            function()
            with self._lock:
                self._idle += 1
            try:
                function = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._take_idle():  # this one
                    return
                function = self._queue.get()  # something is on its way to it


_threads = DaemonThreads()


def start_thread(function: Callback) -> None:
    """Run `function` on a shared daemon thread: reused, never joined at exit, abandoned when it
    hangs.
    """
    _threads.start(function)


def _forget_after_fork() -> None:
    global _loop, _thread, _lock, _here, _threads, _waiting
    _lock = threading.Lock()
    _here = _Here()
    _threads = DaemonThreads()
    _waiting = {}
    if _loop is not None:
        # kept for good: collecting it would touch the selector it shares with the parent
        _inherited.append(_loop)
    _loop = _thread = None
    for reset in _resets:
        reset()


def _at_exit() -> None:
    global _exiting
    _exiting = True
    shutdown()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
