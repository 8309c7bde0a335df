"""A server under load: what a second process gives, what a crowd of bad clients costs the good
ones, and what clients that hang up cost.

    python -m benchmarks.serve_load [--only processes|crowd|hangups] [--seconds 6] [--rounds 3]
    [--crowd 5000] [--processes 2]

All is on 127.0.0.1 and ends by itself. The client of the first part is one process with one thread
that asks for work of several milliseconds a request, so that it needs a few hundredths of a core;
what it used is printed. Rounds with one process and with several alternate, and the median of their
ratios is told, for other work on the machine moves all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from benchmarks.ray_local import sample
from benchmarks.serve_throughput import each_once, for_seconds, http, run, server
from tests.support.judge_server import JudgeServer

RULE = "bleu"
GOOD = 32
"""Clients that behave, each with one request at a time."""


def children(process: subprocess.Popen[str]) -> list[int]:
    """The process and those that it began; Linux."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as found:
        return [process.pid, *map(int, found.read().split())]


def cpu_of(pids: list[int]) -> float:
    """Seconds of CPU they have used."""
    used = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def rule_requests(words: int) -> list[bytes]:
    """Requests whose answer takes some milliseconds of CPU."""
    found = []
    for number in range(97):
        answer = sample(number, words).output[0].answer
        assert answer.label is not None
        found.append(
            http(
                f"/v1/rewards/{RULE}",
                {"completion": answer.text, "reference": answer.label["reference"]},
            )
        )
    return found


def processes(several: int, seconds: float, rounds: int, words: int = 10) -> float:
    """Print requests a second of one process and of several; the median of their ratios."""
    requests, ratios, efficiency = rule_requests(words), [], []
    for _ in range(rounds):
        rates, per_cpu = [], []
        for n in (1, several):
            with server("--reward", RULE, "--no-evaluators", "--processes", str(n)) as (
                port,
                process,
            ):
                run(port, GOOD, for_seconds(1.0, requests))
                pids = children(process)
                before = cpu_of(pids)
                load = run(port, GOOD, for_seconds(seconds, requests))
                used = (cpu_of(pids) - before) / load.wall
            rates.append(load.statuses["200"] / load.wall)
            per_cpu.append(rates[-1] / used)
            print(
                f"{RULE}, {n} process{'es' * (n > 1)}: {rates[-1]:,.0f} requests/s, p99 "
                f"{load.ms(99):.0f} ms; server {used:.0%} of a core, client "
                f"{load.cpu / load.wall:.0%}; {dict(load.statuses)}"
            )
        ratios.append(rates[1] / rates[0])
        efficiency.append(per_cpu[1] / per_cpu[0])
    print(
        f"{several} processes are {statistics.median(ratios):.2f} x one "
        f"({', '.join(f'{ratio:.2f}' for ratio in ratios)}); a second of CPU gives "
        f"{statistics.median(efficiency):.2f} x what it gives with one: with as many free cores "
        f"that many times as much"
    )
    return statistics.median(ratios)


@dataclass
class Crowd:
    """What a crowd came to."""

    good: list[float] = field(default_factory=list)
    """Seconds of the good clients' requests."""
    status: list[float] = field(default_factory=list)
    """Seconds of requests for /health at the port of its own."""
    wrong: int = 0
    """Requests that were not answered with 200."""


BODY = orjson.dumps({"completion": "4", "reference": "4"})
HEAD = (
    b"POST /v1/rewards/accuracy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Length: %d\r\n\r\n"
)


async def _bad(port: int, kind: int, number: int, connected: Any) -> None:
    """A client that sends its head slowly, half of a body, nothing, or hangs up as soon as it has
    asked.
    """
    await asyncio.sleep(number / 5000)
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(1.0)
            continue
        connected.value += 1
        if kind == 3:
            writer.write(HEAD % len(BODY) + BODY)
            await asyncio.sleep(0.001)
            writer.transport.abort()
            await asyncio.sleep(1.0)
            continue
        writer.write(b"" if kind == 2 else HEAD % (4 * len(BODY)) + BODY if kind == 1 else b"P")
        for byte in HEAD:
            await asyncio.sleep(2.0)
            if writer.transport.is_closing():
                break
            if kind == 0:
                writer.write(bytes([byte]))


def bad_clients(port: int, many: int, connected: Any, over: Any) -> None:
    """As many bad clients, a quarter of each kind, until `over` is set; in a process of its own."""
    _more_files(many)

    async def all_of_them() -> None:
        bad = [
            asyncio.create_task(_bad(port, number % 4, number, connected)) for number in range(many)
        ]
        while not over.is_set():
            await asyncio.sleep(0.1)
        for task in bad:
            task.cancel()

    asyncio.run(all_of_them())


async def _good(
    port: int, request: bytes, pause: float, until: float, seconds: list[float], crowd: Crowd
) -> None:
    """A client that asks, reads, and asks again on a connection that it keeps."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        seconds.append(time.perf_counter() - began)
        crowd.wrong += head[9:12] != b"200"
        await asyncio.sleep(pause)
    writer.close()


def good_clients(port: int, status_port: int, seconds: float) -> Crowd:
    """Clients that behave, and one that looks at /health at its own port, for a while."""
    found = Crowd()

    async def all_of_them() -> None:
        look = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        until = time.monotonic() + seconds
        good = [
            _good(port, HEAD % len(BODY) + BODY, 0.05, until, found.good, found)
            for _ in range(GOOD)
        ]
        await asyncio.gather(*good, _good(status_port, look, 0.1, until, found.status, found))

    asyncio.run(all_of_them())
    return found


def crowd(many: int, seconds: float, n: int) -> Crowd:
    """Print the latency of good clients among many bad ones."""
    context = multiprocessing.get_context("spawn")
    connected, over = context.Value("i", 0), context.Event()
    # only one process has a port for its status
    more = ["--status-port", "0"] if n == 1 else ["--processes", str(n)]
    with server("--reward", "accuracy", "--no-evaluators", *more) as (port, process):
        assert process.stderr is not None
        status_port = int(process.stderr.readline().rsplit(":", 1)[1]) if n == 1 else port
        bad = context.Process(target=bad_clients, args=(port, many, connected, over))
        bad.start()
        end = time.monotonic() + 20.0
        while connected.value < many and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1.0)
        pids = children(process)
        before = cpu_of(pids)
        found = good_clients(port, status_port, seconds)
        used = (cpu_of(pids) - before) / seconds
        over.set()
        bad.join()
    p50, p99, health = (
        float(np.percentile(each, q)) * 1000
        for each, q in ((found.good, 50), (found.good, 99), (found.status, 99))
    )
    print(
        f"{many} connections, slow, half, idle and gone ({connected.value} opened), {n} "
        f"process{'es' * (n > 1)}: {len(found.good)} requests of {GOOD} good clients, p50 "
        f"{p50:.1f} ms, p99 {p99:.0f} ms, {found.wrong} not answered; /health p99 {health:.1f} ms; "
        f"server {used:.0%} of a core"
    )
    return found


def _more_files(many: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, many + 1000)), hard))


@contextmanager
def judged(judge: JudgeServer, n: int = 1) -> Iterator[int]:
    """A server of a judged reward that has been asked once; yields its port."""
    options = [
        "--reward",
        "judged=chat_pointwise_reward",
        "--llm",
        "m",
        "--base-url",
        judge.base_url,
        "--no-evaluators",
    ]
    with server(
        *options, "--processes", str(n), env={"OPENAI_API_KEY": "local", "RM_GALLERY_CACHE": "off"}
    ) as (port, _):
        run(port, 1, each_once([judged_request("first")]))
        yield port


def judged_request(prompt: str) -> bytes:
    """A request for a judgement of an answer to this."""
    return http("/v1/rewards/judged", {"prompt": prompt, "completion": "a"})


async def _hang_up(port: int, many: int, seconds: float) -> None:
    async def one(number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(judged_request(f"q {number}"))
        await asyncio.sleep(seconds)
        writer.close()

    await asyncio.gather(*(one(number) for number in range(many)))


def hangups(many: int, n: int, seconds: float = 1.0) -> int:
    """Print the calls of a judge that clients cost after they hung up; that many."""
    with JudgeServer("fixed:<score>3</score>") as judge, judged(judge, n) as port:
        judge.set(latency=1.7 * seconds)
        judge.reset()
        asyncio.run(_hang_up(port, many, seconds))
        before = judge.stats(detail=False)
        after = judge.wait_until(lambda stats: stats["in_flight"] == 0, 20.0)
        judge.set(latency=0.0)
        # it stands behind whatever is still to be asked
        last = run(port, 1, each_once([judged_request("last")]))
        more = int(judge.stats(detail=False)["requests"] - before["requests"]) - 1
    print(
        f"{many} clients hang up after {seconds:g} s, {n} process{'es' * (n > 1)}: "
        f"{before['requests']} calls until then, {more} after; {after['client_closed']} cut in "
        f"flight; then {dict(last.statuses)}"
    )
    return more


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crowd", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=("processes", "crowd", "hangups"))
    options = parser.parse_args()
    _more_files(options.crowd)
    if options.only in (None, "processes"):
        processes(options.processes, options.seconds, options.rounds)
    for n in (1, options.processes):
        if options.only in (None, "crowd"):
            crowd(options.crowd, options.seconds, n)
        if options.only in (None, "hangups"):
            hangups(200, n)


if __name__ == "__main__":
    main()
