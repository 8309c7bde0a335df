"""Repeated runs: the mean of the repeats, the parts of their variance, and what a run folder keeps
of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import Budget, DataSample, OpenaiLLM, Report, RewardRegistry, RunOptions, evaluate
from rm_gallery.study.benchmark import evaluate_repeatedly
from rm_gallery.study.runs import open_run
from tests.benchmarks.excerpts import EXCERPTS
from tests.benchmarks.judges import List, Point, lengths
from tests.support.judge_server import JudgeServer


def test_a_judge_that_never_changes_its_mind() -> None:
    report = evaluate_repeatedly(Point(), EXCERPTS["rm_bench"][:3], repeats=3)
    about = report.extra["repeats"]
    assert report.score == pytest.approx((4.5 / 9 + 3 / 9) / 2)
    assert (about["n"], about["judge_variance"], about["unstable"], about["run_sd"]) == (
        3,
        0.0,
        0.0,
        0.0,
    )
    assert "ci95_same_prompts" not in about, "a mean of domains is no mean of samples"
    assert list(report.by_subset) == ["chat", "safety"]
    assert "3 repeats" in report.notes[-1]


def test_a_judge_that_does_changes_the_variance_not_the_prompts() -> None:
    """It is right about the first row every time, and about the second in every other repeat."""
    turn = itertools.count()

    def moody(sample: DataSample) -> list[float]:
        if sample.unique_id == "2":
            return [float(next(turn) % 2), 0.5]
        return lengths(sample)

    report = evaluate_repeatedly(
        List(judge=moody), EXCERPTS["preferences"], repeats=4, options=RunOptions(max_workers=1)
    )
    about = report.extra["repeats"]
    assert about["scores"] == [0.5, 1.0, 0.5, 1.0]
    assert report.score == 0.75
    # row 2 has the outcomes 0, 1, 0, 1: a variance of 1/3, halved over both rows; means 1 and 1/2
    assert about["judge_variance"] == pytest.approx(1 / 6)
    assert about["prompt_variance"] == pytest.approx(1 / 8 - 1 / 24)
    assert about["unstable"] == 0.5
    assert report.ci95 is not None and about["ci95_same_prompts"].low > report.ci95.low
    assert report.to_dict()["extra"]["repeats"]["n"] == 4


def test_the_run_folder_keeps_every_repeat(tmp_path: Path) -> None:
    options = RunOptions(run_dir=str(tmp_path / "run"))
    first = evaluate_repeatedly(Point(), EXCERPTS["preferences"], repeats=2, options=options)
    again = evaluate_repeatedly(Point(), EXCERPTS["preferences"], repeats=2, options=options)
    assert (again.score, again.extra["repeats"]) == (first.score, first.extra["repeats"])
    assert open_run(tmp_path / "run").report["extra"]["repeats"]["n"] == 2
    assert len(list(open_run(tmp_path / "run" / "repeat-1").samples())) == 2


def test_a_run_cut_off_between_its_repeats_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read as finished, with the figures of its first repeat."""

    def cut_off(*arguments: Any, options: RunOptions, **more: Any) -> Report:
        if options.repeat == 1:
            raise KeyboardInterrupt
        return evaluate(*arguments, options=options, **more)

    monkeypatch.setattr("rm_gallery.study.benchmark.evaluate", cut_off)
    options = RunOptions(run_dir=str(tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        evaluate_repeatedly(Point(), EXCERPTS["preferences"], repeats=3, options=options)
    cut = open_run(tmp_path / "run")
    assert not cut.finished
    assert "1 of 3 repeats" in cut.report["stopped"]


def test_every_repeat_is_asked_anew_and_each_keeps_its_own_replies() -> None:
    with JudgeServer("first", in_process=True) as server:
        reward = RewardRegistry.create(
            "safety_listwise_reward", llm=OpenaiLLM("judge-1", base_url=server.base_url)
        )
        first, again = (
            evaluate_repeatedly(reward, EXCERPTS["preferences"], repeats=3) for _ in range(2)
        )
        assert server.stats(detail=False)["requests"] == 6, (
            "three times two rows, and nothing the second time"
        )
    assert (first.calls, again.calls, again.cached) == (6, 0, 6)


def test_counts_are_those_of_the_repeat_that_lost_most() -> None:
    turn = itertools.count()

    def fails_once(sample: DataSample) -> list[float]:
        if next(turn) == 1:
            raise ValueError("no answer")
        return lengths(sample)

    report = evaluate_repeatedly(
        List(judge=fails_once),
        EXCERPTS["preferences"],
        repeats=3,
        options=RunOptions(max_workers=1),
    )
    assert (report.n, report.n_scored, report.n_failed) == (2, 1, 1)
    assert report.extra["repeats"]["n"] == 3


def test_a_budget_holds_for_all_repeats_together() -> None:
    with JudgeServer("first") as server:
        llm = OpenaiLLM("judge-1", base_url=server.base_url, cache=False)
        reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
        options = RunOptions(budget=Budget(max_calls=3))
        report = evaluate_repeatedly(reward, EXCERPTS["preferences"], repeats=3, options=options)
        assert server.stats(detail=False)["requests"] == 3
    assert report.calls == 3
    assert report.stopped is not None and report.extra["repeats"]["n"] == 2


def test_parts_of_rows_that_come_in_any_order_are_matched() -> None:
    report = evaluate_repeatedly(
        List(), EXCERPTS["rm_bench"], repeats=2, options=RunOptions(max_workers=16)
    )
    assert report.extra["repeats"]["unstable"] == 0.0
