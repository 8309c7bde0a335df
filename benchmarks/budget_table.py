"""What a budget allows and what is spent, whatever the endpoint says and whenever the process dies.

    python -m benchmarks.budget_table [--samples 2000]

The judge is a local server; `asked` is what it counted. Rows with unusable usage compare the
library's own estimate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rm_gallery.core.model.base import FakeLLM
from rm_gallery.core.model.budget import Budget
from rm_gallery.core.reward.registry import RewardRegistry
from tests.faults.material import REWARD, make_judge, make_samples, oracle_for, run
from tests.support.judge_server import Faults, JudgeServer

USAGES: dict[str, Any] = {
    "honest, 20,000 a call": {"prompt_tokens": 10_000, "completion_tokens": 10_000},
    "missing": None,
    "texts": {"prompt_tokens": "7", "completion_tokens": "9"},
    "negative": {"prompt_tokens": -7, "completion_tokens": -9},
    "huge": {"prompt_tokens": 1e300, "completion_tokens": 1e300},
}
CHILD = """
import sys
from rm_gallery.core.model.budget import Budget
from tests.faults.material import make_judge, make_samples, run
run(make_judge(sys.argv[1]), make_samples(int(sys.argv[3])), max_workers=32, cache=False, run_dir=sys.argv[2],
    budget=Budget(max_calls=int(sys.argv[4])))
"""


class Counting(FakeLLM):
    """A judge with the usage it is told to report."""

    usage_given: Any = None

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """A scripted answer after a moment."""
        await asyncio.sleep(0.01)
        return {**await super().attempt(payload, timeout), "usage": self.usage_given}


def line(name: str, workers: int, allowed: str, spent: str, asked: int) -> None:
    """Print one row."""
    print(f"{name:28} {workers:>7} {allowed:>16} {spent:>16} {asked:>7}", flush=True)


def usages(samples: int) -> None:
    """Unusable and expensive usage against a limit of 20,000 tokens."""
    for name, usage in USAGES.items():
        for workers in (8, 256):
            budget = Budget(max_tokens=20_000)
            judge = RewardRegistry.create(
                REWARD, llm=Counting(reply="<best>1</best>", usage_given=usage)
            )
            run(judge, make_samples(samples), max_workers=workers, budget=budget)
            spent = budget.spent
            line(
                f"usage {name}",
                workers,
                "20,000 tokens",
                f"{spent.total_tokens:,} tokens",
                spent.calls,
            )


def failures(server: JudgeServer, samples: int) -> None:
    """A server that always fails, and one that fails half of the time."""
    for name, faults in (
        ("always 500", Faults(always=500)),
        ("half 500", Faults(server_error=0.5)),
    ):
        for workers, limit in ((8, 5), (256, 100)):
            server.set(faults=faults)
            server.reset()
            budget = Budget(max_calls=limit)
            run(
                make_judge(server.base_url),
                make_samples(samples),
                max_workers=workers,
                budget=budget,
                cache=False,
            )
            line(
                name,
                workers,
                f"{limit} calls",
                f"{budget.spent.calls} calls",
                server.stats()["requests"],
            )
    server.set(faults=Faults())


def kills(server: JudgeServer, samples: int, folder: Path) -> None:
    """The same limit again and again in one folder, killed each time but the last."""
    server.set(latency=0.05)
    server.reset()
    limit = samples // 4
    for part in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.base_url, str(folder), str(samples), str(limit)]
        )
        before, end = server.stats()["requests"], time.monotonic() + 30
        while (
            part < 3 and server.stats()["requests"] < before + limit // 5 and time.monotonic() < end
        ):
            time.sleep(0.02)
        if part < 3:
            child.send_signal(signal.SIGKILL)
        child.wait(120)
        name = f"killed, part {part + 1}" if part < 3 else "to the end"
        line(name, 32, f"{limit} calls", "", server.stats()["requests"])


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=2000)
    samples = parser.parse_args().samples
    print(f"{'the endpoint':28} {'workers':>7} {'allowed':>16} {'spent':>16} {'asked':>7}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RM_GALLERY_CACHE"] = "off"
        usages(samples)
        with JudgeServer(oracle=oracle_for(make_samples(samples))) as server:
            failures(server, samples)
            kills(server, samples, Path(folder) / "run")


if __name__ == "__main__":
    main()
