"""Where the members of a run are: processes of this machine; and the channel that this process has
to each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.processes.main import REQUEST
from rm_gallery.core.engine.processes.worker_process import KILL, ONE_THREAD_EACH, describe_exit
from rm_gallery.core.utils.errors import ConfigError

_BOOT = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "import rm_gallery.core.engine.processes.member as member; member.main(fd)"
)


class MemberChannel(asyncio.Protocol):
    """Messages between two processes of this library over a socket they share: a frame is the
    pickle of a list of them.

    Args:
        loop: where it lives.
        take: is handed each message.
        lost: is called once, when the other side is gone.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[Any], None], lost: Callable[[], None]
    ) -> None:
        self._loop, self._take, self.lost = loop, take, lost
        self._transport: asyncio.Transport | None = None
        self._out: list[Any] = []
        self._due = False
        self._in = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to send."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other side is gone."""
        self._transport = None
        self.lost()

    def data_received(self, data: bytes) -> None:
        """Hand on the messages that are whole."""
        self._in += data
        while len(self._in) >= REQUEST.size:
            end = REQUEST.size + REQUEST.unpack_from(self._in)[0]
            if len(self._in) < end:
                return
            frame = bytes(memoryview(self._in)[REQUEST.size : end])
            del self._in[:end]
            for message in pickle.loads(frame):
                self._take(message)

    def failed(self, task: asyncio.Task[Any]) -> None:
        """Hear how connecting went."""
        if task.cancelled() or task.exception() is not None:
            self.lost()

    def say(self, message: Any) -> None:
        """Send a message with all others of this turn of the loop; on the loop."""
        self._out.append(message)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush)

    def post(self, message: Any) -> None:
        """`say` from any thread."""
        # the loop is gone, and with it whoever would hear of it
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.say, message)

    def _flush(self) -> None:
        self._due = False
        if self._transport is not None and self._out:
            out, self._out = self._out, []
            body = pickle.dumps(out, pickle.HIGHEST_PROTOCOL)
            self._transport.writelines([REQUEST.pack(len(body)), body])

    def close(self) -> None:
        """Send what is pending and hang up."""
        self._flush()
        if self._transport is not None:
            self._transport.close()


class Body(Protocol):
    """The process of one member."""

    def kill(self) -> None:
        """End it."""

    def why(self) -> str:
        """How it ended, once it has."""


class MemberPlace(Protocol):
    """Where members are begun."""

    processes: int
    """How many."""
    far: bool
    """Whether they may be on other machines: what is kept on disk here is not there, and silence
    may be all one hears of an end.
    """

    def begin(self, channel: MemberChannel) -> Body:
        """A member on the other side of this channel."""

    def packed(self, what: Any) -> bytes:
        """What members are begun with, as a pickle."""

    def close(self) -> None:
        """Begin no more."""


class _Child:
    """A process of this machine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def kill(self) -> None:
        """End it and whatever it began in its group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, KILL)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def why(self) -> str:
        """How it ended."""
        return describe_exit(self._process.wait())


class Here:
    """So many processes of this machine, each at the other end of a socket that nobody else has.

    Raises ConfigError: this is no POSIX system.
    """

    far = False

    def __init__(self, processes: int) -> None:
        if not hasattr(socket, "AF_UNIX") or os.name != "posix":
            raise ConfigError(
                "processes= needs a POSIX system; leave it out here: one process judges then."
            )
        if not sys.executable:
            raise ConfigError(
                "processes= needs the path of the Python interpreter, but sys.executable is empty."
            )
        self.processes = processes
        self._loop = library_loop.get_loop()

    def begin(self, channel: MemberChannel) -> Body:
        """A process of this interpreter, which leaves when its input ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    str(theirs.fileno()),
                    *(entry for entry in sys.path if isinstance(entry, str)),
                ],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=ONE_THREAD_EACH | os.environ,
                # A group of its own: Ctrl-C in a terminal is the parent's to handle, and killing
                # takes grandchildren along.
                start_new_session=True,
            )
        ours.setblocking(False)

        def connect() -> None:
            task = self._loop.create_task(self._loop.create_connection(lambda: channel, sock=ours))
            task.add_done_callback(lambda task: channel.failed(task))

        library_loop.post(self._loop, connect)
        return _Child(process)

    def packed(self, what: Any) -> bytes:
        """By name: a member imports what this process imported."""
        return pickle.dumps(what, pickle.HIGHEST_PROTOCOL)

    def close(self) -> None:
        """Nothing is left open."""
