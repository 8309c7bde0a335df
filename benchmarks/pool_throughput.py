"""Calls per second in killable processes, and what a call that goes wrong costs its neighbours, beside
pebble and loky.

    pip install pebble loky
    python -m benchmarks.pool_throughput [--calls 5000]

Each pool has two processes. A mishap is one call of twenty: it hangs, holds the interpreter's lock,
ends its process, or takes 2 GB where 1 GB is allowed. Pebble ends a call at its `timeout`; loky knows
no time limit of a call, so it is asked for speed and for the end of a process alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Future, as_completed
from contextlib import ExitStack
from typing import Any

from loky import ProcessPoolExecutor
from pebble import ProcessPool

from rm_gallery.core.engine.pool import WorkerPool
from tests.engine.worker_jobs import at_seven, plus_one

PROCESSES = 2
LIMIT = 1.0
MISHAPS = ("hang", "hold the interpreter lock", "exit", "eat memory")

Submit = Callable[..., "Future[Any]"]


def pools(stack: ExitStack) -> dict[str, Submit]:
    """By name, what sends one call with a limit of a second."""
    own = stack.enter_context(WorkerPool(PROCESSES, memory_cap=2**30))
    spawn = multiprocessing.get_context("spawn")
    pebble = ProcessPool(PROCESSES, context=spawn)
    stack.callback(pebble.join)
    stack.callback(pebble.stop)
    loky = ProcessPoolExecutor(PROCESSES)
    stack.callback(loky.shutdown, kill_workers=True)
    return {
        "rm-gallery": lambda call, *given: own.submit(call, *given, deadline=LIMIT),
        "pebble, spawn": lambda call, *given: pebble.schedule(call, given, timeout=LIMIT),
        "loky": loky.submit,
    }


def per_second(submit: Submit, calls: int) -> float:
    """Short calls a second, the start of the processes left out."""
    for future in [submit(plus_one, number) for number in range(50)]:
        future.result()
    began = time.perf_counter()
    for future in [submit(plus_one, number) for number in range(calls)]:
        future.result()
    return calls / (time.perf_counter() - began)


def outcome(submit: Submit, mishap: str) -> str:
    """How many of twenty calls have their value, and how the one that went wrong ended."""
    began = time.perf_counter()
    places = {submit(at_seven, mishap, number): number for number in range(20)}
    values, ended = 0, "a value"
    for future in as_completed(places, timeout=120):
        error = future.exception()
        values += error is None
        if places[future] == 7 and error is not None:
            ended = type(error).__name__
    return f"{values} values, {ended}, {time.perf_counter() - began:.1f} s"


def main() -> None:
    """Print calls per second, then each mishap."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    for name in ("rm-gallery", "pebble, spawn", "loky"):
        with ExitStack() as stack:
            rate = per_second(pools(stack)[name], options.calls)
            print(f"{name}: {rate:,.0f} short calls per second")
        for mishap in MISHAPS:
            if name == "loky" and mishap != "exit":
                continue
            with ExitStack() as stack:
                print(f"    {mishap}: {outcome(pools(stack)[name], mishap)}")


if __name__ == "__main__":
    main()
