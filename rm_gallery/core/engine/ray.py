"""The members of a run as actors of a Ray cluster: Ray says where they are, and the run stays this library's."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import Callable
from typing import Any, cast

from rm_gallery.core.engine import loop as library_loop
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
        with contextlib.suppress(Exception):  # whatever Ray has to say: it is gone, or will be with its driver
            self._ray.kill(self._actor, no_restart=True)

    def why(self) -> str:
        """What is known of its end."""
        error = self._serving.exception() if self._serving.done() else None
        return "its actor or node is gone" if error is None else f"{type(error).__name__}: {str(error).strip()[-300:]}"


class _Door(asyncio.Protocol):
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


class RayCluster:
    """Actors of one processor each, spread over the nodes of a Ray cluster; a node that is lost costs what it had in flight.

    Args:
        address: of the cluster; None is the one this process is connected to, else RAY_ADDRESS, else one that is begun here.
        processes: actors; None is one for each processor of the cluster.

    Raises:
        MissingExtra: Ray is not installed.
    """

    far = True

    def __init__(self, address: str | None, processes: int | None) -> None:
        try:
            import ray
            from ray import cloudpickle
            from ray.util import get_node_ip_address
        except ImportError:
            raise MissingExtra("ray", "ray", "engine='ray'") from None
        self._ray, self._pickle = ray, cloudpickle
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level="error")
        self.processes = processes or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._expected: dict[int, MemberChannel] = {}
        self._numbers = 0
        self._actor = ray.remote(_Actor).options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        self._host = get_node_ip_address()
        self._loop = library_loop.get_loop()
        self._server: asyncio.Server | None = None
        self._socket = socket.create_server((self._host, 0), backlog=512)
        self._port = self._socket.getsockname()[1]
        library_loop.post(self._loop, self._open)

    def _open(self) -> None:
        self._opening = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Door(self._named), sock=self._socket)

    def _named(self, word: bytes) -> MemberChannel | None:
        secret, number = word[:_SECRET_BYTES], int.from_bytes(word[_SECRET_BYTES:], "big")
        return self._expected.pop(number, None) if hmac.compare_digest(secret, self._secret) else None

    def begin(self, channel: MemberChannel) -> Body:
        """An actor on whichever node Ray finds for it."""
        self._numbers += 1
        self._expected[self._numbers] = channel
        actor = self._actor.remote()
        word = self._secret + self._numbers.to_bytes(_NUMBER_BYTES, "big")
        serving = actor.serve.remote(self._host, self._port, word).future()
        # one that never connects, since its node lacks this library, is heard of in no other way
        serving.add_done_callback(lambda _: library_loop.post(self._loop, channel.lost))
        return _Placed(self._ray, actor, serving)

    def packed(self, what: Any) -> bytes:
        """By value where another machine could not import it."""
        packed: bytes = self._pickle.dumps(what)
        return packed

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            library_loop.post(self._loop, self._server.close)
