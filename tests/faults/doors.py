"""Ways in which programs call the library, each run as
`python -W error -m tests.faults.doors WAY URL`.

Every way judges the same samples and prints one JSON line: the distinct results it saw, how often,
and the connections that the library held open before the end.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rm_gallery import BaseReward, DataSample
from tests.faults.material import make_judge, make_samples, open_connections, scores_of

N = 24
WORKERS = 6
URL = sys.argv[2] if len(sys.argv) > 2 else ""


def samples() -> list[DataSample]:
    return make_samples(N)


def judge() -> BaseReward:
    return make_judge(URL, max_workers=WORKERS, cache=False)


def result(scored: list[DataSample]) -> str:
    return json.dumps(scores_of(scored))


def batch(reward: BaseReward) -> str:
    return result(reward.evaluate_batch(samples()))


async def awaited(reward: BaseReward) -> str:
    return result(await asyncio.gather(*(reward.async_evaluate(sample) for sample in samples())))


def running_loop() -> list[str]:
    """As in a notebook: a blocking call while a loop runs, then awaited ones, then a blocking one
    of a single sample.
    """

    async def cell() -> list[str]:
        reward = judge()
        single = result([reward.evaluate(sample) for sample in samples()])
        return [batch(reward), await awaited(reward), single]

    return asyncio.run(cell())


def sixteen_threads() -> list[str]:
    reward, barrier = judge(), threading.Barrier(16)

    def at_once(_: int) -> str:
        barrier.wait()
        return batch(reward)

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(at_once, range(16)))


def loops_in_threads() -> list[str]:
    reward = judge()
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: asyncio.run(awaited(reward)), range(4)))


def fork() -> list[str]:
    """The child judges with connections of its own while the parent goes on with the ones it has."""
    reward = judge()
    before = batch(reward)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, json.dumps([batch(reward), asyncio.run(awaited(reward))]).encode())
        sys.exit(0)
    os.close(writing)
    meanwhile = batch(reward)
    with os.fdopen(reading) as pipe:
        from_child = json.load(pipe)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the child failed")
    return [before, meanwhile, *from_child, batch(reward)]


def fork_during_a_run() -> list[str]:
    """A fork while calls are in flight: the child owes nothing to them."""
    reward = judge()
    parts: Iterator[DataSample] = reward.evaluate_stream(samples())
    first = next(parts)
    child = os.fork()
    if child == 0:
        del parts
        sys.exit(0 if batch(reward) == batch(reward) else 1)
    rest = list(parts)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the child failed")
    return [result([first, *rest]), batch(reward)]


def spawn() -> list[str]:
    reward = judge()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(batch, [reward] * 3)
        pool.close()
        pool.join()
    return [*found, batch(reward)]


def unfinished_thread() -> list[str]:
    """A daemon thread in the middle of a run when the program ends."""
    found: list[DataSample] = []
    enough = threading.Event()

    def run() -> None:
        for sample in judge().evaluate_stream(make_samples(1200), max_workers=WORKERS):
            found.append(sample)
            if len(found) >= N:
                enough.set()

    threading.Thread(target=run, daemon=True).start()
    enough.wait()
    return [result(found[:N])]


def unfinished_tasks() -> list[str]:
    async def main() -> str:
        reward = judge()
        tasks = [
            asyncio.ensure_future(reward.async_evaluate(sample)) for sample in make_samples(600)
        ]
        return result(await asyncio.gather(*tasks[:N]))

    return [asyncio.run(main())]


def run_folder_left_open() -> list[str]:
    from rm_gallery.core.reward.run import RunOptions

    folder = str(Path(os.environ["RM_GALLERY_CACHE"]) / "run")
    options = RunOptions(max_workers=WORKERS, run_dir=folder)
    globals()["left"] = stream = judge().evaluate_stream(make_samples(1200), options=options)
    return [result([next(stream) for _ in range(N)])]


WAYS: list[Callable[[], list[str]]] = [
    running_loop,
    sixteen_threads,
    loops_in_threads,
    fork,
    fork_during_a_run,
    spawn,
]
WAYS += [unfinished_thread, unfinished_tasks, run_folder_left_open]


def main() -> None:
    found = Counter(globals()[sys.argv[1]]())
    line = {"results": list(found), "times": sum(found.values()), "connections": open_connections()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
