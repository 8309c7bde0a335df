"""What a reward of each kind is asked on a benchmark, what its protocols leave out, and how its
judgements reach the rule.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

from rm_gallery import BasePairWiseReward, ConfigError, DataSample, FakeLLM, Unscored, evaluate
from rm_gallery.core.reward.judge import BaseStepWiseRubricReward
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.judgements import Pair, StepOf, judged
from rm_gallery.study.benchmark import estimate
from tests.benchmarks.excerpts import EXCERPTS, rows_of
from tests.benchmarks.judges import KINDS, List, Point, Ranked, Steps, Two, first_wins, lengths
from tests.support.samples import make_sample


@pytest.mark.parametrize(("name", "mode", "kind", "questions", "answers"), [
    ("rm_bench", None, "pointwise", 4, 6), ("rm_bench", None, "listwise", 4 * 9, 2),
    ("rm_bench", None, "pairwise", 4 * 9 * 2, 2), ("rmbbenchmark_bestofn", None, "listwise", 3, 3),
    ("rmbbenchmark_bestofn", None, "pairwise", 2 * (2 + 2 + 3), 2), ("rewardbench2", None, "listwise", 5, 3),
    ("rewardbench2", "ranking", "listwise", 3, 4),
])  # fmt: skip
def test_how_often_and_about_how_many_answers(
    name: str, mode: str | None, kind: str, questions: int, answers: int
) -> None:
    asked: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append(len(sample.output))
        return lengths(sample)

    report = evaluate(KINDS[kind](judge=listen), EXCERPTS[name], get_benchmark(name, mode))
    single = sum(len(get_benchmark(name).convert(row).output) for row in EXCERPTS[name])
    assert len(asked) == (single if kind == "pointwise" else questions)
    assert min(asked) == (1 if kind == "pointwise" else answers) and report.n == len(EXCERPTS[name])


@pytest.mark.parametrize(
    "name", ["mt_bench", "helpsteer2_preference", "helpsteer3", "ppe_human_preference"]
)
def test_what_people_called_a_tie_costs_nothing_unless_ties_are_a_class(name: str) -> None:
    asked: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append(len(sample.output))
        return lengths(sample)

    report = evaluate(Two(judge=listen), rows_of(name), name)
    assert (len(asked), report.n, report.n_unscored) == (6, 4, 1)
    assert report.reasons["unscored: not_asked"]["n"] == 1
    evaluate(Two(judge=listen), rows_of(name), get_benchmark(name, "with_ties"))
    assert len(asked) == 6 + 8


def test_only_the_validation_rows_of_helpsteer2_preference_and_no_withdrawn_set() -> None:
    preference = get_benchmark("helpsteer2_preference", "validation")
    rows = [
        *rows_of("helpsteer2_preference"),
        {**rows_of("helpsteer2_preference")[0], "split": "val"},
    ]
    report = evaluate(Point(), rows, preference)
    assert (report.n, report.n_scored, report.by_subset["train"].score) == (5, 3, None)
    prior, row = get_benchmark("rewardbench_prior_sets"), rows_of("pairs")[0]
    left = [
        prior.left_out(prior.convert({**row, "subset": s}), Point()) for s in ("pku_safer", "shp")
    ]
    assert left == ["upstream withdrew this set from scoring", None]


def test_an_estimate_does_not_ask_what_the_mode_leaves_out() -> None:
    asked: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append(len(sample.output))
        return lengths(sample)

    found = estimate(
        List(judge=listen), EXCERPTS["rewardbench2"], get_benchmark("rewardbench2", "ranking")
    )
    assert (len(asked), found.samples) == (3, 0)


def test_a_row_judged_in_pairs_is_lost_with_one_of_them() -> None:
    asked: list[int] = []

    def fails_once(sample: DataSample) -> list[float]:
        asked.append(1)
        if len(asked) == 5:
            raise Unscored("no verdict", reason="parse")
        return lengths(sample)

    lost = evaluate(List(judge=fails_once), EXCERPTS["rm_bench"][:1], max_workers=1)
    assert (lost.n, lost.n_scored, lost.n_unscored, lost.score) == (1, 0, 1, None)
    assert lost.reasons["unscored: parse"]["n"] == 1


def test_equal_rows_and_rows_of_one_id_are_all_counted_when_their_pairs_are_judged_apart() -> None:
    rows = EXCERPTS["rm_bench"][1:2] * 3 + [{**EXCERPTS["rm_bench"][1], "prompt": "another"}]
    whole, pairs = evaluate(Point(), rows), evaluate(List(), rows)
    assert (whole.n, pairs.n, pairs.score) == (4, 4, whole.score)
    assert evaluate(Two(), EXCERPTS["rmbbenchmark_bestofn"][:1] * 2).n == 2


def test_every_judgement_reaches_the_rule_with_its_place() -> None:
    sample = make_sample("a", "bb", "ccc", chosen=2)
    reward = Two(judge=first_wins)
    found = judged(reward, reward.evaluate(sample))
    games = {j.place: j.verdict for j in found.judgements if isinstance(j.place, Pair)}
    assert games == {Pair(i, j): 1 for i in range(3) for j in range(3) if i != j}, (
        "who was shown first won every game"
    )
    assert found.played_orders == 2
    whole = judged(Point(), Point().evaluate(sample))
    assert (whole.scores, whole.verdict(2, 0), whole.verdict(0, 2), whole.played_orders) == (
        [1.0, 2.0, 3.0],
        1,
        -1,
        0,
    )

    def brief(said: DataSample) -> list[float]:
        last = (said.output[0].steps or [])[-1].text
        if not last:
            raise Unscored("nothing there", reason="empty")
        return [float(len(last))]

    data = make_sample("a", "b").model_dump()
    data["output"][0]["steps"] = [
        {"role": "assistant", "content": text} for text in ("one", "", "three")
    ]
    steps = judged(Steps(judge=brief), Steps(judge=brief).evaluate(DataSample.model_validate(data)))
    assert steps.steps(0) == [3.0, None, 5.0]
    assert [j.status for j in steps.judgements if isinstance(j.place, StepOf)] == [
        "scored",
        "unscored",
        "scored",
    ]
    assert (steps.steps(1), steps.status) == ([], "unscored")


class Less(Point):
    """The shorter the better."""

    higher_is_better: bool = False


class PairRule(Ranked, BasePairWiseReward):
    """Compares two answers without a model."""

    judged: ClassVar[bool] = False
    judge: Any = lengths


def test_lower_may_be_better_and_a_rule_says_the_same_in_both_orders() -> None:
    assert [evaluate(Less(), EXCERPTS["preferences"][:n]).score for n in (1, 2)] == [0.0, 0.5]
    report = evaluate(PairRule(), EXCERPTS["judgebench"])
    assert (report.rule, report.score, report.n_scored) == ("two_game_sign", 0.5, 4)


def test_a_judge_of_steps_needs_a_threshold_on_its_own_scale() -> None:
    reply = FakeLLM(
        reply=lambda asked: (
            "<score>9</score>" if "right" in asked.rsplit("<step", 1)[-1] else "<score>2</score>"
        )
    )
    judge = BaseStepWiseRubricReward(name="steps", llm=reply)
    for bound in ("threshold:0.5", "threshold:10"):
        with pytest.raises(
            ConfigError, match=rf"from 1 to 10, so {bound} .* --step-rule threshold:5.5"
        ):
            evaluate(
                judge,
                EXCERPTS["processbench"],
                get_benchmark("processbench").under(step_rule=bound),
            )
    for rule in ("threshold:1", "threshold:5.5", "threshold:8.9", "delta:-100"):
        report = evaluate(
            judge, EXCERPTS["processbench"], get_benchmark("processbench").under(step_rule=rule)
        )
        assert (report.n_scored, rule in report.version, rule in report.notes[0]) == (4, True, True)
        assert report.score == (1.0 if rule in ("threshold:5.5", "threshold:8.9") else 0.0)


def test_a_trajectory_that_people_were_unsure_about_is_not_asked_and_widens_no_bound() -> None:
    rows = rows_of("agent_reward_bench")
    unsure = {**rows[0], "task_id": "another", "trajectory_success": "Unsure"}
    report = evaluate(Point(judge=lambda sample: [1.0]), [*rows, unsure])
    assert (report.benchmark, report.n, report.n_scored) == ("agent_reward_bench", 8, 7)
    assert (report.missing, report.bounds) == ({}, (4 / 7, 4 / 7))


@pytest.mark.parametrize(
    ("first", "second", "cells"),
    [
        ("Successful", "Unsuccessful", (2, 1, 0, 0)),
        ("Unsuccessful", "Successful", (1, 2, 0, 0)),
        ("Unsure", "Successful", (1, 1, 0, 0)),
    ],
)
def test_the_first_annotation_counts_whichever_is_judged_first(
    first: str, second: str, cells: tuple[int, ...]
) -> None:
    asked: list[str] = []

    def late(sample: DataSample) -> list[float]:
        asked.append(sample.sample_id)
        if len(asked) == 1:
            time.sleep(0.2)
        return [1.0]

    def row(task: str, said: str) -> dict[str, Any]:
        return {**rows_of("agent_reward_bench")[0], "task_id": task, "trajectory_success": said}

    rows = [row("1", first), row("1", second), row("2", "Successful"), row("3", "Unsuccessful")]
    report = evaluate(Point(judge=late), rows, "agent_reward_bench", progress=False)
    assert tuple(report.extra[name] for name in ("TP", "FP", "TN", "FN")) == cells
    assert (len(set(asked)), len(asked), report.extra["n_repeated"]) == (sum(cells),) * 2 + (1,)
    assert report.missing == {}


@pytest.mark.parametrize("absent", ["task_id", "model_name", "benchmark"])
def test_trajectories_without_their_whole_name_are_all_counted(absent: str) -> None:
    whole = rows_of("agent_reward_bench")[0]
    rows = [
        {k: v for k, v in {**whole, "goal": f"goal {n}"}.items() if k != absent} for n in range(3)
    ]
    report = evaluate(Point(judge=lambda sample: [1.0]), rows, "agent_reward_bench")
    assert (report.n, report.n_scored) == (3, 3)
