"""The members of a run as actors of a Ray cluster: Ray says where they are, and the run stays this
library's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import Callable
from typing import Any, cast

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.processes.members import Members
from rm_gallery.core.engine.processes.places import Body, MemberChannel
from rm_gallery.core.utils.errors import MissingExtra

_SECRET_BYTES, _NUMBER_BYTES = 32, 8
HANDSHAKE_SECONDS = 30.0


class _Actor:
    """What Ray runs on a node: a member that joins the run and stays until it is over."""

    def serve(self, host: str, port: int, word: bytes) -> None:
        """Judge what comes."""
        from rm_gallery.core.engine.processes.member import join

        join(host, port, word)


class _Placed:
    """One actor."""

    def __init__(self, ray: Any, actor: Any, serving: Any) -> None:
        self._ray, self._actor, self._serving = ray, actor, serving

    def kill(self) -> None:
        """End it."""
        # whatever Ray has to say: it is gone, or will be with its driver
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)

    def why(self) -> str:
        """What is known of its end."""
        error = self._serving.exception() if self._serving.done() else None
        return (
            "its actor or node is gone"
            if error is None
            else f"{type(error).__name__}: {str(error).strip()[-300:]}"
        )


class _Guest(asyncio.Protocol):
    """Who connects says a secret word first, and only then is listened to."""

    def __init__(self, named: Callable[[bytes], MemberChannel | None]) -> None:
        self._named = named
        self._word = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the word, for a while."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self._transport is not None and self._transport.get_protocol() is self:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand the connection to the member's channel, or end it."""
        assert self._transport is not None
        self._word += data
        if len(self._word) < _SECRET_BYTES + _NUMBER_BYTES:
            return
        channel = self._named(bytes(self._word[: _SECRET_BYTES + _NUMBER_BYTES]))
        if channel is None:
            self._transport.abort()
            return
        self._transport.set_protocol(channel)
        channel.connection_made(self._transport)
        if len(self._word) > _SECRET_BYTES + _NUMBER_BYTES:
            channel.data_received(bytes(self._word[_SECRET_BYTES + _NUMBER_BYTES :]))


class MemberDoor:
    """Where members on other machines come in.

    Args:
        host: the address of this machine that they see.
        expected: the channel of the member with this number; None for one that nobody expects.
            Called on the library's loop.
    """

    def __init__(self, host: str, expected: Callable[[int], MemberChannel | None]) -> None:
        self.host, self._expected = host, expected
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._loop = library_loop.get_loop()
        self._server: asyncio.Server | None = None
        self._socket = socket.create_server((host, 0), backlog=512)
        self.port: int = self._socket.getsockname()[1]
        library_loop.post(self._loop, self._start_listening)

    def _start_listening(self) -> None:
        self._opening = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(
            lambda: _Guest(self._channel_named), sock=self._socket
        )

    def _channel_named(self, word: bytes) -> MemberChannel | None:
        secret, number = word[:_SECRET_BYTES], int.from_bytes(word[_SECRET_BYTES:], "big")
        return self._expected(number) if hmac.compare_digest(secret, self._secret) else None

    def word(self, number: int = 0) -> bytes:
        """What the member with this number says."""
        return self._secret + number.to_bytes(_NUMBER_BYTES, "big")

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            library_loop.post(self._loop, self._server.close)


def connected(address: str | None, what: str) -> Any:
    """Ray, connected to the cluster at this address, or the one it is connected to, else
    RAY_ADDRESS, else one that is begun here.

    Raises:
        MissingExtra: Ray is not installed; `what` needs it.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", what) from None
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="error")
    return ray


def by_value(what: Any) -> bytes:
    """Pickled, by value where another machine could not import it."""
    from ray import cloudpickle

    packed: bytes = cloudpickle.dumps(what)
    return packed


def node_address() -> str:
    """The address of this machine that the cluster's nodes see."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())


class RayCluster:
    """Actors of one processor each, spread over the nodes of a Ray cluster; a node that is lost
    costs what it had in flight.

    Args:
        address: of the cluster; None is the one this process is connected to, else RAY_ADDRESS,
            else one that is begun here.
        processes: actors; None is one for each processor of the cluster.

    Raises:
        MissingExtra: Ray is not installed.
    """

    far = True

    def __init__(self, address: str | None, processes: int | None) -> None:
        self._ray = ray = connected(address, "engine='ray'")
        self.processes = processes or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._expected: dict[int, MemberChannel] = {}
        self._numbers = 0
        self._actor = ray.remote(_Actor).options(
            num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self._loop = library_loop.get_loop()
        self._door = MemberDoor(node_address(), lambda number: self._expected.pop(number, None))

    def begin(self, channel: MemberChannel) -> Body:
        """An actor on whichever node Ray finds for it."""
        self._numbers += 1
        self._expected[self._numbers] = channel
        actor = self._actor.remote()
        serving = actor.serve.remote(
            self._door.host, self._door.port, self._door.word(self._numbers)
        ).future()
        # one that never connects, since its node lacks this library, is heard of in no other way
        serving.add_done_callback(lambda _: library_loop.post(self._loop, channel.lost))
        return _Placed(self._ray, actor, serving)

    def packed(self, what: Any) -> bytes:
        """By value where another machine could not import it."""
        return by_value(what)

    def close(self) -> None:
        """Let nobody in any more."""
        self._door.close()


class RayDesk:
    """What has to be true once for all who judge in a cluster (rates, budget, one call for equal
    questions), kept by this process.

    They come and go as Ray starts and loses them; what one was at is claimed again by another.

    Args:
        control: the run's, which has begun.
        batch: class and keywords of the batch that each of them makes for itself, and feeds.
        options: how the run goes; they are for all together.
        each: what one of them has in flight at most.
    """

    def __init__(
        self,
        control: RunControl,
        batch: tuple[type, dict[str, Any]],
        options: RunOptions,
        each: int,
    ) -> None:
        self._loop = library_loop.get_loop()
        self._here: set[MemberChannel] = set()
        self._members = Members(
            control, True, lambda channel, *answer: channel.say(("said", *answer))
        )
        setup = self._members.setup(*batch, options, by_value, asked=False)
        self._setup = "setup", setup, each, self._members.limited
        self.error: BaseException | None = None
        """Why one of them could not begin, or had to end."""
        self._door = MemberDoor(node_address(), lambda _: self._come())
        self.way = self._door.host, self._door.port, self._door.word()
        """Where and how one of them comes in: host, port and a secret word."""

    def _come(self) -> MemberChannel:
        channel: MemberChannel

        def hear(message: tuple[Any, ...]) -> None:
            kind, *args = message
            if kind == "error":
                self.error = self.error or args[0]
            elif self._members.hear(channel, kind, args):
                for each in self._here:
                    each.say(self._members.stop())

        def gone() -> None:
            if channel in self._here:
                self._here.discard(channel)
                self._members.gone(channel)

        channel = MemberChannel(self._loop, hear, gone)
        channel.say(self._setup)
        self._here.add(channel)
        return channel

    def close(self) -> None:
        """Let nobody in any more, and all go."""

        def part() -> None:
            for channel in list(self._here):
                channel.close()

        self._door.close()
        library_loop.post(self._loop, part)
