"""The reward server under load: requests and samples per second, what it adds to a judge, and a
burst of connections.

    python -m benchmarks.serve_throughput [--seconds 5] [--connections 64] [--burst 5000] [--reward
    accuracy]

The client is a process of its own beside the server's, so a machine of two cores is used up by
both. It speaks HTTP over kept connections and reads the replies; every reply is counted by status,
and what got no reply is counted as lost.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import orjson

from tests.support.judge_server import JudgeServer

TEXT = (
    "Adding the two numbers gives the sum, which is the answer to the question that was asked "
    "here. " * 2
)
BATCH = 64


@dataclass
class Load:
    """What a load came to."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Replies by status; `lost` where a request was sent and nothing came back, `refused` where
    nobody listened.
    """
    seconds: list[float] = field(default_factory=list)
    """Of each reply."""
    wall: float = 0.0
    cpu: float = 0.0
    """Seconds of CPU the client itself used."""

    def ms(self, percentile: float) -> float:
        """A percentile of the latency."""
        return (
            float(np.percentile(self.seconds, percentile)) * 1000 if self.seconds else float("nan")
        )


class _Connection(asyncio.Protocol):
    """One kept connection that sends request after request."""

    def __init__(self, load: Load, next_request: Callable[[], bytes | None]) -> None:
        self.load, self.next_request = load, next_request
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.sent = 0.0
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._send()

    def _send(self) -> None:
        request = self.next_request()
        if request is None:
            self.transport.close()
            return
        self.waiting = True
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer = self.buffer + data if self.buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        headers = buffer[:head].lower() + b"\r\n"
        at = headers.find(b"content-length: ")
        length = int(headers[at + 16 : headers.find(b"\r\n", at)])
        if len(buffer) < head + 4 + length:
            return
        self.waiting = False
        self.load.statuses[buffer[9:12].decode()] += 1
        self.load.seconds.append(time.perf_counter() - self.sent)
        closes = b"connection: close" in headers
        self.buffer = b""
        if closes:
            self.transport.close()
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self.load.statuses["lost"] += 1
        if not self.done.done():
            self.done.set_result(None)


async def drive(
    port: int, connections: int, next_request: Callable[[], bytes | None], load: Load
) -> None:
    """Open connections at once and keep each busy until there are no more requests."""
    loop = asyncio.get_running_loop()

    async def one() -> None:
        try:
            _, protocol = await loop.create_connection(
                lambda: _Connection(load, next_request), "127.0.0.1", port
            )
        except OSError:
            load.statuses["refused"] += 1
            return
        await protocol.done

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    load.cpu += time.process_time() - cpu
    load.wall += time.perf_counter() - wall


def http(path: str, body: object) -> bytes:
    """A request as bytes."""
    payload = orjson.dumps(body)
    return (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        b"%d\r\n\r\n%s"
        % (
            path.encode(),
            len(payload),
            payload,
        )
    )


def item(number: int) -> dict[str, object]:
    """One completion of some 200 characters with its reference."""
    answer = str(number % 7)
    return {
        "prompt": f"Question {number}: how much is it?",
        "completion": TEXT + answer,
        "reference": TEXT + "3",
    }


def for_seconds(seconds: float, requests: list[bytes]) -> Callable[[], bytes | None]:
    """The requests in turn until the time is over."""
    end = time.perf_counter() + seconds
    at = 0

    def next_request() -> bytes | None:
        nonlocal at
        at += 1
        return requests[at % len(requests)] if time.perf_counter() < end else None

    return next_request


def each_once(requests: list[bytes]) -> Callable[[], bytes | None]:
    """Every request once."""
    left = iter(requests)
    return lambda: next(left, None)


@contextmanager
def server(
    *arguments: str, env: dict[str, str] | None = None
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server of its own process; yields its port."""
    command = [sys.executable, "-m", "rm_gallery", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "http://" in line:
                yield int(line.rsplit(":", 1)[1]), process
                break
        else:
            raise RuntimeError("the server did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stderr.close()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Seconds of CPU a process has used; Linux."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(port: int, connections: int, next_request: Callable[[], bytes | None]) -> Load:
    """One load, on an event loop of its own."""
    load = Load()
    try:
        import uvloop
    except ImportError:
        asyncio.run(drive(port, connections, next_request, load))
    else:
        uvloop.run(drive(port, connections, next_request, load))
    return load


def rules(reward: str, seconds: float, connections: int) -> None:
    """Print single requests and batches of a rule."""
    with server("--reward", reward, "--no-evaluators") as (port, process):
        single = [http(f"/v1/rewards/{reward}", item(i)) for i in range(997)]
        batches = [
            http(
                f"/v1/rewards/{reward}/batch",
                {"items": [item(i * BATCH + k) for k in range(BATCH)]},
            )
            for i in range(31)
        ]
        run(port, 8, for_seconds(1.0, single))
        for name, requests, many, n in (
            ("single", single, connections, 1),
            ("batches of 64", batches, 8, BATCH),
        ):
            before = cpu_of(process)
            load = run(port, many, for_seconds(seconds, requests))
            replies = load.statuses["200"]
            used = cpu_of(process) - before
            print(
                f"{reward}, {name}, {many} connections: {replies / load.wall:,.0f} requests/s, "
                f"{replies * n / load.wall:,.0f} samples/s, p50 {load.ms(50):.1f} ms, p99 "
                f"{load.ms(99):.1f} ms; server {used / load.wall:.0%} of a core, client "
                f"{load.cpu / load.wall:.0%}; {dict(load.statuses)}"
            )


def burst(reward: str, connections: int) -> None:
    """Print what becomes of many connections at once, each with one request."""
    with server("--reward", reward, "--no-evaluators") as (port, _):
        requests = [http(f"/v1/rewards/{reward}", item(i)) for i in range(connections)]
        load = run(port, connections, each_once(requests))
        print(
            f"burst of {connections} connections: {dict(load.statuses)} in {load.wall:.2f} s, p99 "
            f"{load.ms(99):.0f} ms; ",
            end="",
        )
        after = run(port, 1, each_once(requests[:10]))
        print(f"afterwards {dict(after.statuses)}")


def judged(latency: float, in_flight: int, n: int) -> None:
    """Print the latency of a judged reward beside that of its judge alone."""
    reward = "math_pointwise_reward"
    with JudgeServer("fixed:<reason>It does.</reason><score>1</score>", latency=latency) as judge:
        body = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "temperature": 0.0}
        bare = run(judge.port, in_flight, each_once([http("/v1/chat/completions", body)] * n))
        print(f"judge alone, {in_flight} in flight: p50 {bare.ms(50):.1f} ms {dict(bare.statuses)}")
        arguments = [
            "--reward",
            f"judged={reward}",
            "--llm",
            "m",
            "--base-url",
            judge.base_url,
            "--no-evaluators",
        ]
        with server(*arguments, env={"OPENAI_API_KEY": "local"}) as (port, process):
            requests = [http("/v1/rewards/judged", item(i)) for i in range(n)]
            run(
                port,
                in_flight,
                each_once([http("/v1/rewards/judged", item(-1 - i)) for i in range(in_flight)]),
            )
            before = cpu_of(process)
            load = run(port, in_flight, each_once(requests))
            # requests that were sent together come back together, so each waits for all of them
            floor = (cpu_of(process) - before) * 1000 / n * in_flight
            print(
                f"judged over HTTP, {in_flight} in flight: p50 {load.ms(50):.1f} ms "
                f"{dict(load.statuses)}; adds {load.ms(50) - bare.ms(50):.1f} ms, of which the CPU "
                f"of {in_flight} requests is {floor:.1f} ms"
            )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--burst", type=int, default=5000)
    parser.add_argument("--reward", default="accuracy")
    parser.add_argument("--only", choices=("rules", "burst", "judged"))
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, options.burst + 1000)), hard))
    if options.only in (None, "rules"):
        rules(options.reward, options.seconds, options.connections)
    if options.only in (None, "burst"):
        burst(options.reward, options.burst)
    if options.only in (None, "judged"):
        judged(0.1, 16, 400)
        judged(0.1, 1, 30)


if __name__ == "__main__":
    main()
