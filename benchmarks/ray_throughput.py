"""Data sets judged on a Ray cluster of two nodes of one processor each, one of which is killed
midway, beside one process here.

    python -m benchmarks.ray_throughput [--judged 20000] [--rules 1000000] [--heavy 8000] [--cli]
    [--folder FOLDER]

Both nodes are on this machine, which needs two processors: the judge has its share of them as well.
0 leaves a part out. Exits with 1 when a figure differs from that of one process, when a row is
missing or double, or when budget or rate do not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ray_local import machine
from benchmarks.rule_throughput import GSM_TEXT
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.budget import Budget
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.study.benchmark import evaluate
from tests.faults.material import make_judge, make_samples, oracle_for, texts
from tests.support.children import ROOT, run_command
from tests.support.judge_server import JudgeServer

STORE_BYTES = 300 << 20
APART = ("seconds", "calls", "cached", "usage", "data")
wrong: list[str] = []


class Heavy(BasePointWiseReward):
    """A rule that takes some 2 ms of processor: how many different runs of four words an answer
    has, for its length.
    """

    name = "heavy"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        words = sample.output[0].answer.text.split()
        found = [
            len({tuple(words[k : k + n]) for k in range(len(words))})
            for n in (2, 3, 4, 5)
            for _ in range(4)
        ]
        return RewardResult(
            name="heavy",
            details=[RewardDimensionWithScore(name="heavy", score=sum(found) / len(words))],
        )


class Nodes:
    """A cluster of two nodes, and the one that can be lost."""

    def __init__(self, folder: Path) -> None:
        import ray
        from ray.cluster_utils import Cluster

        os.environ["PYTHONPATH"] = str(ROOT)
        spill = folder / "spill"
        spill.mkdir()
        self._node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        first = {**self._node, "include_dashboard": False, "object_spilling_directory": str(spill)}
        self.cluster = Cluster(initialize_head=True, head_node_args=first)
        self.second = self.cluster.add_node(**self._node)
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="error")

    @contextmanager
    def one_lost(self, when: Callable[[], bool]) -> Iterator[None]:
        """Lose the second node once it is time; it is there again afterwards."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                if when():
                    self.cluster.remove_node(self.second, allow_graceful=False)
                    print(f"{'':14} a node was killed")
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        check("the node was killed midway", self.second not in self.cluster.list_all_nodes())
        self.second = self.cluster.add_node(**self._node)

    def close(self) -> None:
        """End it."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


def check(what: str, holds: bool) -> None:
    """Note what does not hold."""
    if not holds:
        wrong.append(what)
        print(f"WRONG: {what}")


def write_rows(path: Path, count: int, answers: Callable[[int], list[str]]) -> Path:
    """Rows of preferences, the right answer first."""
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("prompt", pa.string()),
            *((n, pa.list_(pa.string())) for n in ("chosen", "rejected")),
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, count, 50_000):
            numbers = range(first, min(first + 50_000, count))
            rows = []
            for number in numbers:
                each = answers(number)
                right = each.pop(number % len(each))
                row = {
                    "id": f"sum-{number}",
                    "prompt": f"What is {7 * number} plus 5?",
                    "chosen": [right],
                    "rejected": each,
                }
                rows.append(row)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return path


def same(title: str, here: Report, there: Report) -> None:
    """Check that two reports are one, digit for digit."""
    one, other = here.to_dict(), there.to_dict()
    different = [name for name in one if name not in APART and one[name] != other[name]]
    check(f"{title}: the report of one process ({', '.join(different)} differ)", not different)


def on_ray(nodes: Nodes, reward: Any, data: Path, **how: Any) -> Report:
    """What the cluster makes of it."""
    return evaluate(reward, data, engine="ray", address=nodes.cluster.address, **how)


def kept(out: Path) -> list[str]:
    """The records of a run."""
    file = out / "results.jsonl"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def each_once(title: str, out: Path, count: int) -> None:
    """Check that every row was written once."""
    ids = [json.loads(line)["id"] for line in kept(out)]
    check(f"{title}: each row once ({len(ids)} of {count})", len(ids) == count == len(set(ids)))


def timed(title: str, count: int, what: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result; prints the rate."""
    began = time.perf_counter()
    found = what()
    seconds = time.perf_counter() - began
    print(f"{title:42} {seconds:8.1f} s {count / seconds:10,.0f} rows/s", flush=True)
    return seconds, found


def processor_seconds() -> dict[int, float]:
    """Of this process and all that it began, by process."""
    found = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def spent_since(before: dict[int, float]) -> float:
    """Seconds of processor since then; a process that has ended meanwhile is not seen."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in processor_seconds().items())


def rules(nodes: Nodes, folder: Path, count: int) -> None:
    """Short rows and a quick rule."""
    data = write_rows(
        folder / "rules.parquet",
        count,
        lambda number: [f"It is {7 * number + 5}.", f"Perhaps {number % 97}, or {number}?"],
    )
    _, here = timed("rules, one process", count, lambda: evaluate("length_baseline", data))
    out = folder / "rules"
    with nodes.one_lost(lambda: len(kept(out)) >= count // 3):
        _, there = timed(
            "rules, two nodes, one lost",
            count,
            lambda: on_ray(nodes, "length_baseline", data, run_dir=str(out)),
        )
    same("rules", here, there)
    each_once("rules", out, count)
    shutil.rmtree(out)


def heavy(nodes: Nodes, folder: Path, count: int) -> None:
    """Long answers and a rule that takes its time."""

    def answers(number: int) -> list[str]:
        return [
            " ".join(GSM_TEXT.format(number % 7, turn, number + which) for turn in range(16))
            for which in (0, 1)
        ]

    data = write_rows(folder / "heavy.parquet", count, answers)
    before = processor_seconds()
    alone, here = timed(
        "2 ms of processor a rule, one process", count, lambda: evaluate(Heavy(), data)
    )
    one = spent_since(before)
    # a cluster that was begun judges many data sets: its processes are up
    on_ray(nodes, Heavy(), data)
    before = processor_seconds()
    title = "2 ms of processor a rule, two nodes"
    both, there = timed(title, count, lambda: on_ray(nodes, Heavy(), data))
    two = spent_since(before)
    print(f"{'':42} {alone / both:8.2f} x; counting side by side {machine(2):.2f} x")
    print(
        f"{'':42} {one:.1f} s of processor, and {two:.1f} s of two: {2 * one / two:.2f} x with two "
        f"that are free"
    )
    same("heavy", here, there)


def judging(nodes: Nodes, folder: Path, count: int) -> None:
    """A judge at work: node lost, budget, rate, equal questions."""
    data = write_rows(folder / "judged.parquet", count, texts)
    with JudgeServer("perfect", oracle=oracle_for(make_samples(count)), latency=0.05) as server:
        made: dict[str, Any] = {"max_workers": 256, "cache": False}
        _, here = timed(
            "judged, one process",
            count,
            lambda: evaluate(make_judge(server.base_url), data, **made),
        )
        out, before = folder / "judged", server.stats(detail=False)["requests"]
        with nodes.one_lost(lambda: len(kept(out)) >= count // 3):
            _, there = timed(
                "judged, two nodes, one lost",
                count,
                lambda: on_ray(nodes, make_judge(server.base_url), data, run_dir=str(out), **made),
            )
        asked = server.stats(detail=False)["requests"] - before
        print(f"{'':42} {asked:,} calls for {count:,} rows")
        same("judged", here, there)
        each_once("judged", out, count)
        before = server.stats(detail=False)["requests"]
        timed(
            "judged again into the same folder",
            count,
            lambda: on_ray(nodes, make_judge(server.base_url), data, run_dir=str(out), **made),
        )
        check("what is there is not judged again", server.stats(detail=False)["requests"] == before)

        few = folder / "few.parquet"
        pq.write_table(pq.read_table(data).slice(0, count // 4), few)
        limit = count // 10
        before = server.stats(detail=False)["requests"]
        budget = Budget(max_calls=limit)
        report = on_ray(nodes, make_judge(server.base_url), few, budget=budget, **made)
        asked = server.stats(detail=False)["requests"] - before
        print(
            f"budget of {limit:,} calls: {asked:,} made, {report.n_stopped:,} of {count // 4:,} "
            f"rows stopped"
        )
        check("the budget holds", asked == limit and report.n_stopped == count // 4 - limit)
        before = server.stats(detail=False)["requests"]
        rate = 150
        judge = make_judge(server.base_url, requests_per_minute=60.0 * rate)
        began = time.perf_counter()
        asked_at: list[tuple[float, int]] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.25):
                asked_at.append(
                    (time.perf_counter() - began, server.stats(detail=False)["requests"] - before)
                )

        thread = threading.Thread(target=watch)
        thread.start()
        slow = folder / "slow.parquet"
        pq.write_table(pq.read_table(data).slice(0, rate * 15), slow)
        on_ray(nodes, judge, slow, **made)
        over.set()
        thread.join()
        going = [(at, n) for at, n in asked_at if rate < n < rate * 14]
        seen = (
            (going[-1][1] - going[0][1]) / (going[-1][0] - going[0][0]) if len(going) > 1 else 0.0
        )
        print(f"rate of {rate}/s: {seen:,.0f}/s seen")
        check("the rate holds within 5 %", abs(seen / rate - 1) <= 0.05)
        twice = folder / "twice.parquet"
        part = pq.read_table(data).slice(0, 1_000)
        pq.write_table(pa.concat_tables([part] * 2), twice)
        calls = []
        for _ in range(2):
            before = server.stats(detail=False)["requests"]
            on_ray(nodes, make_judge(server.base_url), twice, max_workers=256, cache=True)
            calls.append(server.stats(detail=False)["requests"] - before)
        print(f"2,000 rows, 1,000 different: {calls[0]:,} calls; again: {calls[1]:,}")
        # two actors that ask the same at the same time both pay (docs/scale.md)
        check("a question that was answered is not asked again", calls[1] == 0)


def by_command(nodes: Nodes, folder: Path, judged: int, rows: int) -> None:
    """The same through `rm-gallery eval --engine ray`."""

    def ran(title: str, count: int, *arguments: str) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            done = run_command("eval", *arguments, "--json", cwd=folder, timeout=3_600)
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        return {
            name: value for name, value in timed(title, count, run)[1].items() if name not in APART
        }

    cluster = ["--engine", "ray", "--address", nodes.cluster.address]
    ruled = ["length_baseline", str(folder / "rules.parquet")]
    here, there = (
        ran("eval, rules", rows, *ruled),
        ran("eval --engine ray, rules", rows, *ruled, *cluster),
    )
    check("eval --engine ray, rules: the report of one process", here == there)
    with JudgeServer("perfect", oracle=oracle_for(make_samples(judged)), latency=0.05) as server:
        asked = [
            "safety_listwise_reward",
            str(folder / "judged.parquet"),
            "--llm",
            "judge-1",
            "--base-url",
            server.base_url,
        ]
        asked += ["--max-workers", "256", "--no-cache"]
        here, there = (
            ran("eval, judged", judged, *asked),
            ran("eval --engine ray, judged", judged, *asked, *cluster),
        )
        here.pop("endpoint"), there.pop("endpoint")
        check("eval --engine ray, judged: the report of one process", here == there)


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judged", type=int, default=20_000)
    parser.add_argument("--rules", type=int, default=1_000_000)
    parser.add_argument("--heavy", type=int, default=8_000)
    parser.add_argument(
        "--cli", action="store_true", help="also through rm-gallery eval --engine ray"
    )
    parser.add_argument("--folder", type=Path, help="where data, runs and what Ray spills go")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    os.environ.setdefault("RM_GALLERY_CACHE", str(folder / "cache"))
    nodes = Nodes(folder)
    try:
        for what, count in (
            (heavy, options.heavy),
            (judging, options.judged),
            (rules, options.rules),
        ):
            if count:
                what(nodes, folder, count)
        if options.cli:
            by_command(nodes, folder, options.judged, options.rules)
    finally:
        nodes.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
