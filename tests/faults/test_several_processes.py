"""A run in several processes is the run in one: the same results, one budget, one rate, one call
for equal questions.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.graders.llm import LLMGrader
from rm_gallery.core.graders.run import GraderPlan, grader_batch
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.reward import channel
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.run import RunOptions
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.study.benchmark import evaluate
from tests.engine.processes import wait_until
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
from tests.support.command import command as here
from tests.support.judge_server import JudgeServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several processes need POSIX")
N = 120


def members(parent: int) -> set[int]:
    """The processes that judge for this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, words = (
                (folder / "stat").read_text().rsplit(")", 1)[1].split(),
                (folder / "cmdline").read_bytes(),
            )
        except OSError:
            continue
        if int(status[1]) == parent and b"member.main(fd)" in words:
            found.add(int(folder.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def scores(samples: list[DataSample]) -> list[Any]:
    return [
        [(out.answer.reward.details, out.answer.reward.issues) for out in sample.output]
        for sample in samples
    ]


def test_the_report_tells_what_only_the_members_found_out(
    server: JudgeServer, tmp_path: Path
) -> None:
    data = write_data(tmp_path / "d.jsonl", 20)
    notes = []
    for processes in (2, 1):
        channel.forget()
        notes.append(
            evaluate(make_judge(server.base_url), data, processes=processes, cache=False).notes
        )
    assert notes[0] == notes[1] and notes[0][-1] == "the judge is asked for JSON by a schema"


def test_a_judge_in_two_processes_gives_what_it_gives_in_one(
    server: JudgeServer, tmp_path: Path
) -> None:
    samples = make_samples(N)
    found = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        options: dict[str, Any] = {
            "processes": processes,
            "run_dir": str(folder),
            "cache": False,
            "trace": True,
        }
        ran = run(make_judge(server.base_url), samples, **options)
        kept = {record["id"]: {**record, "id": ""} for record in records(folder)}
        counted = json.loads((folder / "summary.json").read_text())
        traced = sorted(
            json.loads(line)["id"] for line in (folder / "trace.jsonl").read_text().splitlines()
        )
        found[processes] = (
            scores(ran.samples),
            kept,
            counted,
            traced,
            ran.control.usage,
            ran.control.calls,
        )
        assert truth(ran.samples) == truth(samples)
    assert found[1] == found[2]
    assert server.stats()["requests"] == 2 * N


def test_rules_and_graders_go_to_several_processes(server: JudgeServer) -> None:
    rule = RewardRegistry.get("accuracy")()
    rows = [
        DataSample.model_validate(
            {
                "unique_id": str(k),
                "input": [],
                "output": [
                    {"answer": {"content": f"It is {k}.", "label": {"reference": str(k % 7)}}}
                ],
            }
        )
        for k in range(300)
    ]
    assert scores(rule.evaluate_batch(rows, processes=3)) == scores(rule.evaluate_batch(rows))
    assert scores(list(rule.evaluate_stream(iter(rows), processes=2))) == scores(
        rule.evaluate_batch(rows)
    )
    llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False)
    grader = LLMGrader(name="said", prompt="Judge {response}", model=llm)
    asked = [{"response": f"Answer {k}"} for k in range(20)]
    server.set(behaviour='fixed:{"score": 3, "reason": "so"}')
    one, two = (
        grader_batch({"said": GraderPlan(grader)}, asked, RunOptions(processes=n)).results()
        for n in (1, 2)
    )
    assert [row["said"].model_dump(exclude={"usage"}) for row in one] == [
        row["said"].model_dump(exclude={"usage"}) for row in two
    ]
    assert {row["said"].ok for row in two} == {True}


def test_equal_questions_from_both_are_one_call_each(
    server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that the other one is there while the first is asked, on a machine that does other things,
    # too
    server.set(latency=0.4)
    samples = make_samples(N)
    twice = [
        each.model_copy(update={"metadata": {"turn": turn}}) for each in samples for turn in (0, 1)
    ]
    for cache in ("", "off"):  # where nothing is kept, who waits gets the reply itself
        if cache:
            monkeypatch.setenv("RM_GALLERY_CACHE", cache)
        before = server.stats()["requests"]
        ran = run(make_judge(server.base_url), twice, processes=2, max_workers=64, cache=True)
        assert truth(ran.samples) == truth(twice)
        assert server.stats()["requests"] - before <= N + (0 if not cache else N // 4)


def test_one_budget_and_one_rate(server: JudgeServer) -> None:
    samples = make_samples(N)
    ran = run(
        make_judge(server.base_url),
        samples,
        processes=2,
        max_workers=32,
        cache=False,
        budget=Budget(max_calls=50),
    )
    assert server.stats()["requests"] == ran.control.calls == 50
    assert ran.control.stopped is not None and "--max-calls of 50" in ran.control.stopped
    states = Counter(
        issue.reason for sample in ran.samples for issue in sample.output[0].answer.reward.issues
    )
    assert states["stopped"] + states["budget"] == N - 50
    limited = make_judge(server.base_url, requests_per_minute=1200)
    ran = run(limited, make_samples(60), processes=2, max_workers=32, cache=False)
    assert truth(ran.samples) == truth(samples[:60])
    assert 2.0 <= ran.seconds, "20 at once, and 40 more at 20 a second"


def test_a_worker_that_is_killed_costs_nothing(server: JudgeServer, tmp_path: Path) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--processes", "2", "--max-workers", "12")
    with started(*command(*arguments), cwd=tmp_path) as process:
        reached(server, process, lambda stats: stats["requests"] >= 30)
        os.kill(members(process.pid).pop(), signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "another one takes its place" in err
    assert json.loads(out)["n_scored"] == N
    assert Counter(record["id"] for record in records(folder)) == Counter(
        f"sum-{k}" for k in range(N)
    )
    assert server.stats()["requests"] <= N + 6, "what was in flight there is asked again"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_leave_with_their_parent(
    server: JudgeServer, tmp_path: Path, how: signal.Signals
) -> None:
    server.set(latency=0.05)
    data, folder = write_data(tmp_path / "data.jsonl", N), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--processes", "2", "--max-workers", "12")
    with started(*command(*arguments), cwd=tmp_path) as process:
        reached(server, process, lambda stats: stats["requests"] >= 30)
        begun = members(process.pid)
        process.send_signal(how)
        process.communicate(timeout=30)
    assert len(begun) == 2 and wait_until(lambda: not any(map(alive, begun)), 10.0)
    finished = here(*arguments)
    assert finished.code == 0, finished.err
    assert Counter(record["id"] for record in records(folder)) == Counter(
        f"sum-{k}" for k in range(N)
    )
    assert server.stats()["requests"] <= N + 12


class Deadly(BasePointWiseReward):
    """Kills the process that judges one of the answers."""

    name = "deadly"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        if sample.output[0].answer.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)
        return Plain()._evaluate(sample)


def answered(*texts: str) -> list[DataSample]:
    return [
        DataSample.model_validate(
            {"unique_id": str(k), "input": [], "output": [{"answer": {"content": text}}]}
        )
        for k, text in enumerate(texts)
    ]


def test_an_answer_that_kills_its_process_costs_itself() -> None:
    found = Deadly().evaluate_batch(answered(*["fine"] * 20, "die", *["good"] * 20), processes=2)
    issues = [issue for sample in found for issue in sample.output[0].answer.reward.issues]
    assert [(issue.status, issue.reason, issue.cause) for issue in issues] == [
        ("failed", "crashed", "rule")
    ]
    assert (
        found[20].output[0].answer.reward.issues
        and sum(bool(each.output[0].answer.reward.details) for each in found) == 40
    )


def test_hooks_that_break_cost_what_they_cost_here() -> None:
    samples = answered("raise", "fine", "hang", "cancel")
    there = Awaited().evaluate_batch(samples[:2] + samples[3:], processes=2, deadline=5.0)
    assert scores(there) == scores(
        Awaited().evaluate_batch(samples[:2] + samples[3:], deadline=5.0)
    )


def test_what_cannot_travel_is_refused_before_anything_is_paid(server: JudgeServer) -> None:
    class Local(Plain):
        """No other process can find it."""

    with pytest.raises(ConfigError, match="top of a module"):
        Local().evaluate_batch(answered("a", "b"), processes=2)
    for wrong in (0, True, 1.5, "2"):
        with pytest.raises(ConfigError, match="processes"):
            RunOptions(processes=wrong)  # type: ignore[arg-type]
