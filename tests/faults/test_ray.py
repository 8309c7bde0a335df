"""A run on a Ray cluster of two nodes is the run here, also where a node is lost in the middle of
it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    Budget,
    ConfigError,
    DataSample,
    LLMGrader,
    OpenaiLLM,
    RewardRegistry,
    RunOptions,
    evaluate,
)
from rm_gallery.core.reward import channel
from tests.faults.material import (
    eval_arguments,
    make_judge,
    make_samples,
    records,
    run,
    truth,
    write_data,
)
from tests.faults.processes import command, reached, started
from tests.faults.rewards import Awaited, Plain
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
    # what was answered once is kept by the machine
    twice = [
        each.model_copy(update={"metadata": {"turn": turn}}) for each in samples for turn in (0, 1)
    ]
    before = server.stats()["requests"]
    for least, most, cached in ((N, 2 * N, 0), (0, 0, N)):
        ran = run(make_judge(server.base_url), twice, engine="ray", cache=True, max_workers=16)
        assert least <= ran.control.calls <= most
        assert cached <= ran.control.cached <= 2 * N - least and not ran.control.in_flight
    asked = server.stats()["requests"] - before
    ran = run(
        make_judge(server.base_url), samples, engine="ray", cache=False, budget=Budget(max_calls=40)
    )
    assert ran.control.calls == 40 and server.stats()["requests"] == 2 * N + asked + 40


def scores(samples: list[DataSample]) -> list[Any]:
    return [
        [(out.answer.reward.details, out.answer.reward.issues) for out in sample.output]
        for sample in samples
    ]


def answered(*texts: str) -> list[DataSample]:
    return [
        DataSample.model_validate(
            {"unique_id": str(k), "input": [], "output": [{"answer": {"content": text}}]}
        )
        for k, text in enumerate(texts)
    ]


def test_rules_and_graders_give_what_they_give_here(cluster: Any, server: JudgeServer) -> None:
    rule, samples = RewardRegistry.get("length_baseline")(), make_samples(3000)
    there = list(rule.evaluate_stream(iter(samples), engine="ray", processes=1))
    assert [each.model_dump() for each in there] == [
        each.model_dump() for each in rule.evaluate_batch(samples)
    ]
    grader = LLMGrader(
        name="tone",
        prompt="Judge {response}",
        model=OpenaiLLM("judge-1", base_url=server.base_url, cache=False),
    )
    rows = [{"response": f"Answer {k}"} for k in range(20)]
    server.set(behaviour='fixed:{"score": 3, "reason": "so"}')
    here, graded = (
        grader.evaluate_batch(rows, options=RunOptions(engine=engine)) for engine in (None, "ray")
    )
    assert [each.model_dump(exclude={"usage"}) for each in here] == [
        each.model_dump(exclude={"usage"}) for each in graded
    ]
    assert {each.ok for each in graded} == {True}


def test_the_report_has_the_notes_of_what_actors_learnt(
    cluster: Any, server: JudgeServer, tmp_path: Path
) -> None:
    data = write_data(tmp_path / "d.jsonl", 20)
    notes = []
    for engine in ("ray", None):
        channel.forget()
        judge = make_judge(server.base_url)
        notes.append(evaluate(judge, data, engine=engine, cache=False).notes)
    assert notes[0] == notes[1] and notes[0][-1] == "the judge is asked for JSON by a schema"


def test_one_budget_and_one_rate(cluster: Any, server: JudgeServer) -> None:
    budget = Budget(max_calls=50)
    options: dict[str, Any] = {"engine": "ray", "max_workers": 32, "cache": False}
    ran = run(make_judge(server.base_url), make_samples(N), budget=budget, **options)
    assert server.stats()["requests"] == ran.control.calls == 50
    assert ran.control.stopped is not None and "budget.max_calls of 50" in ran.control.stopped
    states = Counter(
        issue.reason for sample in ran.samples for issue in sample.output[0].answer.reward.issues
    )
    assert states["stopped"] + states["budget"] == N - 50
    limited, before = make_judge(server.base_url, requests_per_minute=900), 50
    samples = make_samples(90)

    def first_request() -> float:
        server.wait_until(lambda stats: stats["requests"] > before, timeout=100.0)
        return time.monotonic()

    with ThreadPoolExecutor(1) as watching:  # actors take their time to begin
        began = watching.submit(first_request)
        ran = run(limited, samples, **options)
        took = time.monotonic() - began.result()
    assert truth(ran.samples) == truth(samples)
    assert took >= 4.5, "15 at once, and 75 more at 15 a second, however many actors ask"


class Deadly(BasePointWiseReward):
    """Kills the process that judges one of the answers."""

    name = "deadly"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        if sample.output[0].answer.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)
        return Plain()._evaluate(sample)


def test_an_answer_that_kills_its_actor_costs_itself(cluster: Any) -> None:
    texts = [*["fine"] * 20, "die", *["good"] * 20]
    judged = Deadly().evaluate_batch(answered(*texts), engine="ray", processes=1)
    issues = [issue for sample in judged for issue in sample.output[0].answer.reward.issues]
    assert [(issue.status, issue.reason, issue.cause) for issue in issues] == [
        ("failed", "crashed", "rule")
    ]
    assert judged[20].output[0].answer.reward.issues
    assert sum(bool(each.output[0].answer.reward.details) for each in judged) == 40


def test_hooks_that_break_cost_what_they_cost_here(cluster: Any) -> None:
    samples = answered("raise", "fine", "cancel")
    there = Awaited().evaluate_batch(samples, engine="ray", processes=1, deadline=5.0)
    assert scores(there) == scores(Awaited().evaluate_batch(samples, deadline=5.0))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_ended_leaves_nothing_and_is_continued(
    cluster: Any, server: JudgeServer, tmp_path: Path, how: signal.Signals
) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(
        data, server, folder, "--engine", "ray", "--address", cluster.address, "--max-workers", "8"
    )
    with started(*command(*arguments), cwd=tmp_path) as process:
        reached(server, process, lambda stats: stats["requests"] >= 30, timeout=120.0)
        process.send_signal(how)
        process.communicate(timeout=30)
    asked = server.stats()["requests"]
    quiet = time.monotonic()
    while time.monotonic() - quiet < 1.0:  # its actors leave with it
        time.sleep(0.1)
        if (now := server.stats()["requests"]) != asked:
            asked, quiet = now, time.monotonic()
    with started(*command(*arguments), cwd=tmp_path) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert Counter(record["id"] for record in records(folder)) == Counter(
        f"sum-{k}" for k in range(N)
    )


def test_what_cannot_travel_is_refused_before_anything_is_paid(
    cluster: Any, server: JudgeServer
) -> None:
    judge = Locked(lock=threading.Lock())
    with pytest.raises(ConfigError, match="cannot be sent to Ray's actors"):
        judge.evaluate_batch(answered("a", "b"), engine="ray")
    assert server.stats()["requests"] == 0


class Locked(Plain):
    """Holds what no other process can have."""

    lock: Any = None


def test_processes_are_rays(server: JudgeServer) -> None:
    with pytest.raises(ConfigError, match="give engine='ray' as well"):
        Plain().evaluate_batch(answered("a"), processes=2)
    for wrong in (0, True, 1.5, "2"):
        with pytest.raises(ConfigError, match="processes"):
            RunOptions(processes=wrong)  # type: ignore[arg-type]


def test_what_does_not_fit_together_is_refused() -> None:
    for wrong in ({"engine": "dask"}, {"address": "auto"}, {"run_dir": "s3://bucket/run"}):
        with pytest.raises(ConfigError):
            RunOptions(**wrong)  # type: ignore[arg-type]


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
