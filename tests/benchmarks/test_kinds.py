"""Every kind of reward on every benchmark: what it gives is read by the official rule, or it is refused before it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
)
from rm_gallery.core.reward.schema import RewardDimensionWithRank, RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.benchmarks.judgements import Pair, StepOf, judged
from rm_gallery.report.evaluate import evaluate
from tests.benchmarks.excerpts import EXCERPTS, LONGEST
from tests.support.samples import make_sample

Judge = Callable[[DataSample], list[float]]


def lengths(sample: DataSample) -> list[float]:
    return [float(len(output.answer.text)) for output in sample.output]


def first_wins(sample: DataSample) -> list[float]:
    return [1.0] + [0.0] * (len(sample.output) - 1)


def one_winner(sample: DataSample) -> list[float]:
    best = max(lengths(sample))
    return [float(length == best) for length in lengths(sample)]


class Point(BasePointWiseReward):
    """Scores an answer by its length."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = RewardDimensionWithScore(name="x", score=lengths(sample)[0])
        return RewardResult(name=self.name, details=[score])


class Ranked:
    """Hands all numbers over at once."""

    judged: ClassVar[bool] = True
    name: str
    judge: Any

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        rank: list[Any] = list(self.judge(sample))
        return RewardResult(name=self.name, details=[RewardDimensionWithRank(name="x", rank=rank)])


class List(Ranked, BaseListWiseReward):
    """All candidates together."""

    judge: Any = lengths


class Two(Ranked, BasePairWiseReward):
    """Two candidates at a time, in both orders."""

    judge: Any = lengths


class Steps(BaseStepWiseReward):
    """Scores a step by its length, and knows nothing of an empty one."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        step = (sample.output[0].steps or [])[-1].text
        if not step:
            raise Unscored("nothing there", reason="empty")
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name="x", score=len(step))])


@pytest.mark.parametrize("name", LONGEST)
@pytest.mark.parametrize("reward", [Point(), List(), Two()], ids=["pointwise", "listwise", "pairwise"])
def test_a_judge_by_length_gets_the_same_figure_in_every_kind(name: str, reward: BaseReward) -> None:
    rule, score, _ = LONGEST[name]
    report = evaluate(reward, EXCERPTS[name])
    if name == "judgebench" and reward.kind == "listwise":
        assert (report.rule, report.score) == ("single_game", 0.5)
        assert "sees each pair in one order" in report.notes[0]
        return
    by_order = {("llmbar", "pairwise"): "mean_of_orders", ("llmbar", "listwise"): "single_game"}
    by_order["auto_j", "listwise"] = "single_order"
    assert report.rule == by_order.get((name, reward.kind), rule)
    if (name, reward.kind) == ("rewardbench2", "pairwise"):
        score -= (
            0.01 / 3 * (1.01 - 1) / 0.01 - 0.01 / 3
        )  # shares of pairs won keep the order; the margin is in their unit
    assert report.score == pytest.approx(score, abs=0.004)
    assert report.n == report.n_scored


@pytest.mark.parametrize("name", LONGEST)
def test_a_kind_that_cannot_serve_is_refused_before_anything_is_judged(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"Steps is stepwise and {name} is judged by listwise or pairwise or pointwise"
    ):
        evaluate(Steps(), EXCERPTS[name])


def test_a_pairwise_judge_with_a_position_is_no_better_than_a_coin() -> None:
    report = evaluate(Two(judge=first_wins), EXCERPTS["judgebench"])
    orders = report.extra["orders"]
    assert (report.score, orders["both_orders"], orders["consistency"], orders["draws"]) == (0.0, 0.0, 0.0, 4)
    assert orders["mean_of_orders"] == 0.5
    assert "both orders agree in 0.0, 4 of 4 draws" in str(report)
    once = evaluate(Two(judge=first_wins, both_orders=False), EXCERPTS["judgebench"])
    assert (once.rule, once.n_scored) == ("single_game", 4)
    assert "one order" in once.notes[0]


def test_rm_bench_asks_a_comparing_judge_its_nine_pairs_a_row() -> None:
    asked: list[list[str]] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append([output.answer.text for output in sample.output])
        return lengths(sample)

    report = evaluate(List(judge=listen), EXCERPTS["rm_bench"][:1])
    assert (len(asked), {len(texts) for texts in asked}) == (9, {2})
    assert (report.n, report.n_scored) == (1, 1), "a row stays one row"

    def fails_once(sample: DataSample) -> list[float]:
        if asked.pop() and len(asked) == 4:
            raise Unscored("no verdict", reason="parse")
        return lengths(sample)

    lost = evaluate(List(judge=fails_once), EXCERPTS["rm_bench"][:1], max_workers=1)
    assert (lost.n, lost.n_scored, lost.n_unscored, lost.score) == (1, 0, 1, None)
    assert lost.reasons["unscored: parse"]["n"] == 1


def test_equal_rows_and_rows_of_one_id_are_all_counted_when_their_pairs_are_judged_apart() -> None:
    rows = EXCERPTS["rm_bench"][1:2] * 3 + [{**EXCERPTS["rm_bench"][1], "prompt": "another"}]
    whole, pairs = evaluate(Point(), rows), evaluate(List(), rows)
    assert (whole.n, pairs.n, pairs.score) == (4, 4, whole.score)
    listed = EXCERPTS["rmbbenchmark_bestofn"][:1] * 2
    assert evaluate(Two(), listed).n == 2


def test_rmb_lists_ask_a_pairwise_judge_about_the_best_and_each_loser() -> None:
    pairs: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        pairs.append(len(sample.output))
        return lengths(sample)

    report = evaluate(Two(judge=listen), EXCERPTS["rmbbenchmark_bestofn"])
    assert len(pairs) == 2 * (2 + 2 + 3)
    assert report.n == 3
    assert report.score == pytest.approx(1 / 3)


def test_a_listwise_judge_that_names_one_winner_on_rewardbench2() -> None:
    report = evaluate(List(judge=one_winner), EXCERPTS["rewardbench2"])
    assert report.by_subset["Math"].score == 0.75
    assert "at most about 29" in report.notes[0]


def test_h2_every_judgement_reaches_the_rule_with_its_place() -> None:
    sample = make_sample("a", "bb", "ccc", chosen=2)
    reward = Two(judge=first_wins)
    found = judged(reward, reward.evaluate(sample))
    games = {j.place: j.verdict for j in found.judgements if isinstance(j.place, Pair)}
    assert games == {Pair(i, j): 1 for i in range(3) for j in range(3) if i != j}, "who was shown first won every game"
    assert found.played_orders == 2
    assert [found.verdict(0, 1), found.verdict(1, 0)] == [1, 1]
    whole = judged(Point(), Point().evaluate(sample))
    assert (whole.scores, whole.verdict(2, 0), whole.played_orders) == ([1.0, 2.0, 3.0], 1, 0)


def test_h2_steps_are_judgements_too() -> None:
    sample = make_sample("a", "b")
    data = sample.model_dump()
    data["output"][0]["steps"] = [{"role": "assistant", "content": text} for text in ("one", "", "three")]
    found = judged(Steps(), Steps().evaluate(DataSample.model_validate(data)))
    assert found.steps(0) == [3.0, None, 5.0]
    assert [j.status for j in found.judgements if isinstance(j.place, StepOf)] == ["scored", "unscored", "scored"]
    assert (found.steps(1), found.status) == ([], "unscored")


class Less(Point):
    """The shorter the better."""

    higher_is_better: ClassVar[bool] = False


def test_a_reward_that_is_better_when_lower_is_turned() -> None:
    report = evaluate(Less(), EXCERPTS["preferences"])
    assert report.score == 0.5
    assert evaluate(Less(), EXCERPTS["preferences"][:1]).score == 0.0


class PairRule(Ranked, BasePairWiseReward):
    """Compares two answers without a model."""

    judged: ClassVar[bool] = False
    judge: Any = lengths


def test_a_rule_that_compares_says_the_same_in_both_orders() -> None:
    report = evaluate(PairRule(), EXCERPTS["judgebench"])
    assert (report.rule, report.score) == ("two_game_sign", LONGEST["judgebench"][1])
    assert report.n_scored == report.n
