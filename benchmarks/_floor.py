"""What a judge throughput is compared with: a bare aiohttp loop (the floor) and the `openai` SDK
(the peer).

Both send the same bodies to the same endpoint with the same number of calls in flight, and both
come back with samples per second and the client's own CPU. Where the endpoint is the local judge
server, its CPU share and the lateness of its replies over the same interval come along, so that a
table can show that the server was not what limited the figures.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
BodyBuilder = Callable[[int], Body]
OneCall = Callable[[Body], Awaitable[bool]]

BUSY_SHARE = 0.8
LATE_MS = 10.0


@dataclass(frozen=True)
class ServerLoad:
    """The server's side of a measurement; `max_lateness_ms` is since the server's last reset."""

    cpu_share: float
    cpu_ms_per_call: float
    mean_lateness_ms: float
    max_lateness_ms: float

    @property
    def keeps_up(self) -> bool:
        """Whether the server had CPU to spare and its replies left when they were due: it was not
        the bottleneck.
        """
        return self.cpu_share < BUSY_SHARE and self.mean_lateness_ms < LATE_MS


@dataclass(frozen=True)
class LoopFigures:
    """One client's result over `n` calls; rates count the calls that came back well."""

    name: str
    n: int
    failed: int
    concurrency: int
    seconds: float
    samples_per_s: float
    cpu_ms_per_call: float
    server: ServerLoad | None

    def share_of_ceiling(self, latency_s: float) -> float:
        """Share of concurrency / latency, the most that any client can reach."""
        return self.samples_per_s * latency_s / self.concurrency


def server_stats(base_url: str) -> dict[str, Any] | None:
    """Statistics of a local judge server, or None where the endpoint has none."""
    origin = base_url.split("/v1")[0].rstrip("/")
    try:
        with urllib.request.urlopen(f"{origin}/_stats?detail=0", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
    except (urllib.error.URLError, ValueError):
        return None
    return found


def server_load(before: dict[str, Any] | None, after: dict[str, Any] | None) -> ServerLoad | None:
    """Load of the server between two of its statistics."""
    if before is None or after is None:
        return None
    old, new = before["process"], after["process"]
    cpu, wall = new["cpu_seconds"] - old["cpu_seconds"], new["wall_seconds"] - old["wall_seconds"]
    replies = max(1, new["replies"] - old["replies"])
    late = new["mean_lateness_ms"] * new["replies"] - old["mean_lateness_ms"] * old["replies"]
    return ServerLoad(
        cpu / max(wall, 1e-9), 1000 * cpu / replies, late / replies, new["max_lateness_ms"]
    )


def bare_aiohttp_loop(
    base_url: str,
    n: int,
    concurrency: int,
    body_of: BodyBuilder,
    *,
    api_key: str = "local",
    timeout_s: float = 60.0,
) -> LoopFigures:
    """Floor: workers that post JSON with one aiohttp session and read the reply's text, and do
    nothing else.
    """

    async def run() -> LoopFigures:
        import aiohttp
        import orjson

        url = f"{base_url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=concurrency),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as session:

            async def call(body: Body) -> bool:
                try:
                    async with session.post(url, data=orjson.dumps(body)) as reply:
                        data = await reply.read()
                except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError):
                    return False
                return (
                    reply.status == 200
                    and orjson.loads(data)["choices"][0]["message"]["content"] is not None
                )

            return await _measure("bare aiohttp loop", base_url, n, concurrency, body_of, call)

    return asyncio.run(run())


def openai_sdk(
    base_url: str,
    n: int,
    concurrency: int,
    body_of: BodyBuilder,
    *,
    api_key: str = "local",
    timeout_s: float = 60.0,
    aiohttp_transport: bool = False,
) -> LoopFigures:
    """Peer: one shared `AsyncOpenAI` client as its documentation shows it, without retries,
    optionally over aiohttp.
    """

    async def run() -> LoopFigures:
        import openai

        http_client = openai.DefaultAioHttpClient() if aiohttp_transport else None
        name = "openai SDK (aiohttp transport)" if aiohttp_transport else "openai SDK"
        async with openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            timeout=timeout_s,
            http_client=http_client,
        ) as client:

            async def call(body: Body) -> bool:
                try:
                    reply = await client.chat.completions.create(**body)
                except openai.OpenAIError:
                    return False
                return reply.choices[0].message.content is not None

            return await _measure(name, base_url, n, concurrency, body_of, call)

    return asyncio.run(run())


async def _measure(
    name: str, base_url: str, n: int, concurrency: int, body_of: BodyBuilder, call: OneCall
) -> LoopFigures:
    failed = 0
    numbers: Iterator[int] = iter(range(n))

    async def worker() -> None:
        nonlocal failed
        for number in numbers:
            if not await call(body_of(number)):
                failed += 1

    # connections are open, as ours are
    await asyncio.gather(*(call(body_of(number)) for number in range(concurrency)))
    loop = asyncio.get_running_loop()
    before = await loop.run_in_executor(None, server_stats, base_url)
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(min(concurrency, n))))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    after = await loop.run_in_executor(None, server_stats, base_url)
    return LoopFigures(
        name,
        n,
        failed,
        concurrency,
        wall,
        (n - failed) / wall,
        1000 * cpu / max(1, n),
        server_load(before, after),
    )
