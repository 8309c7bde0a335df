"""A run on a Ray cluster of two nodes is the run here, also where a node is lost in the middle of
it.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.run import RunOptions
from rm_gallery.core.utils.errors import ConfigError
from tests.faults.material import make_judge, make_samples, records, run, truth
from tests.support.judge_server import JudgeServer

# what Ray warns of while it starts is not ours
pytestmark = pytest.mark.filterwarnings("ignore")
N = 200


def test_two_nodes_give_what_one_process_gives(
    cluster: Any, server: JudgeServer, tmp_path: Path
) -> None:
    samples = make_samples(N)
    found = {}
    for engine in (None, "ray"):
        folder = tmp_path / str(engine)
        options: dict[str, Any] = {"engine": engine, "run_dir": str(folder), "cache": False}
        ran = run(make_judge(server.base_url), samples, **options)
        assert truth(ran.samples) == truth(samples)
        kept = {record["id"]: record for record in records(folder)}
        found[engine] = (kept, json.loads((folder / "summary.json").read_text()), ran.control.usage)
    assert found[None] == found["ray"] and server.stats()["requests"] == 2 * N
    # equal questions are one call, and what was answered once is kept by the process that began the
    # run
    twice = [
        each.model_copy(update={"metadata": {"turn": turn}}) for each in samples for turn in (0, 1)
    ]
    for calls, cached in ((N, 0), (0, N)):
        ran = run(make_judge(server.base_url), twice, engine="ray", cache=True, max_workers=16)
        assert ran.control.calls == calls and ran.control.cached >= cached
    ran = run(
        make_judge(server.base_url), samples, engine="ray", cache=False, budget=Budget(max_calls=40)
    )
    assert ran.control.calls == 40 and server.stats()["requests"] == 3 * N + 40


def test_a_node_that_is_lost_costs_nothing(
    cluster: Any, server: JudgeServer, tmp_path: Path
) -> None:
    samples = make_samples(2 * N)
    server.set(latency=0.05)
    reward = make_judge(server.base_url)
    options = RunOptions(
        engine="ray",
        address=cluster.address,
        run_dir=str(tmp_path / "run"),
        cache=False,
        max_workers=8,
    )
    done = []
    for number, sample in enumerate(reward.evaluate_stream(iter(samples), options=options)):
        done.append(sample)
        if number == N // 2:
            cluster.remove_node(cluster.lost, allow_graceful=False)
    assert truth(done) == truth(samples)
    assert Counter(record["id"] for record in records(tmp_path / "run")) == Counter(
        sample.unique_id for sample in samples
    )
    assert server.stats()["requests"] <= 2 * N + 8


def test_rules_of_many_rows_and_strangers_at_the_door(cluster: Any) -> None:
    rule, samples = RewardRegistry.get("length_baseline")(), make_samples(3000)
    going = rule.evaluate_stream(iter(samples), engine="ray", processes=1)
    first = next(going)
    mine = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    for address in mine:  # whoever does not know the word is not listened to
        host, port = address.split(":")
        with socket.socket() as stranger:
            stranger.settimeout(0.2)
            try:
                stranger.connect((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
                stranger.sendall(b"\0" * 64)
            except OSError:
                continue
    there = [first, *going]
    assert [each.model_dump() for each in there] == [
        each.model_dump() for each in rule.evaluate_batch(samples)
    ]


def test_what_does_not_fit_together_is_refused() -> None:
    for wrong in ({"engine": "dask"}, {"address": "auto"}):
        with pytest.raises(ConfigError):
            RunOptions(**wrong)  # type: ignore[arg-type]
