"""A judge sees candidates in an order that depends on (sample id, seed) alone, never their labels; results are mapped back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample, Reward, RewardDimensionWithScore
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.base import BaseListWiseReward
from rm_gallery.core.reward.schema import RewardResult
from tests.reward.rewards import ListJudge, ListRule, PairJudge, PointJudge, ranked
from tests.support.samples import make_sample, scores

ANSWERS = ("alpha", "beta", "gamma", "delta")
FIRST = FakeLLM(reply="<best>1</best>")


def four(unique_id: str, chosen: int = 0, query: str = "q") -> DataSample:
    return make_sample(*ANSWERS, unique_id=unique_id, chosen=chosen, reference="r", query=query)


def shown_order(reward: ListJudge, sample: DataSample) -> tuple[int, ...]:
    """Places of the candidates in the prompt, read from the prompt itself."""
    return tuple(ANSWERS.index(line) for line in reward.format(sample).split("\n")[1:])


def test_the_order_depends_on_id_and_seed_alone() -> None:
    reward = ListJudge(llm=FIRST)
    base = shown_order(reward, four("a"))
    assert shown_order(reward, four("a")) == base
    assert shown_order(ListJudge(llm=FIRST, name="other", max_workers=3), four("a")) == base
    assert shown_order(reward, four("a", chosen=3, query="another question")) == base
    orders = {shown_order(ListJudge(llm=FIRST, seed=seed), four("a")) for seed in range(20)}
    assert len(orders) > 5


def test_without_an_id_the_content_decides() -> None:
    reward = ListJudge(llm=FIRST)
    assert shown_order(reward, four("")) == shown_order(reward, four("", chosen=2)), "labels are not content"
    assert len({shown_order(reward, four("", query=str(k))) for k in range(20)}) > 5


def test_every_place_is_as_likely_as_the_others() -> None:
    reward = ListJudge(llm=FIRST)
    places = Counter(shown_order(reward, four(str(k))).index(0) for k in range(2000))
    assert all(430 < places[place] < 570 for place in range(4)), places


def test_a_verdict_reaches_the_answer_it_is_about() -> None:
    reward = ListJudge(llm=FIRST)
    for scored in reward.evaluate_batch([four(str(k)) for k in range(40)]):
        first = shown_order(reward, four(scored.unique_id))[0]
        assert scores(scored) == [float(k == first) for k in range(4)]
        assert scored.output[0].answer.reward.extra_data["ListJudge"]["order"][0] == first
        assert [output.answer.text for output in scored.output] == list(ANSWERS), "the sample keeps its own order"


class Seen(ListJudge):
    """Notes what its hooks are given."""

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        kwargs["seen"].append(sample)
        return super()._before_evaluate(sample)

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        kwargs["seen"].append(sample)
        return super()._after_evaluate(response, sample)


def test_hooks_see_the_judges_order_and_no_labels_or_earlier_scores() -> None:
    sample = four("a", chosen=2)
    for output in sample.output:
        output.answer.label = {**(output.answer.label or {}), "is_preferred": True, "response_type": "x", "topic": "t"}
        known = RewardDimensionWithScore(name="gold", score=1.0, source="gold")
        output.answer.reward = Reward(score=1.0, details=[known])
    seen: list[DataSample] = []
    reward = Seen(llm=FIRST)
    scored = reward.evaluate(sample, hooks={"seen": seen})
    order = shown_order(ListJudge(llm=FIRST), sample)
    assert len(seen) == 2
    for given in seen:
        assert [output.answer.text for output in given.output] == [ANSWERS[k] for k in order]
        assert [output.answer.label for output in given.output] == [{"reference": "r", "topic": "t"}] * 4
        assert [output.answer.reward for output in given.output] == [Reward()] * 4
    assert (scored.output[2].answer.label or {})["preference"] == "chosen", "the sample itself keeps its labels"
    assert {d.source for d in scored.output[0].answer.reward.details} == {"gold", "Seen"}


@pytest.mark.parametrize("kind", [PointJudge, PairJudge])
def test_no_kind_of_judge_sees_a_preference(kind: type[ListJudge]) -> None:
    for job in kind(llm=FIRST).plan(four("a")):
        assert all("preference" not in (output.answer.label or {}) for output in job.sample.output)


class Watching(BaseListWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        labels = [(output.answer.label or {}).get("preference") for output in sample.output]
        return ranked(self.name, *(float(label == "chosen") for label in labels))


def test_rules_see_the_sample_as_it_is() -> None:
    assert scores(Watching().evaluate(four("a", chosen=2))) == [0.0, 0.0, 1.0, 0.0]
    assert scores(ListRule().evaluate(make_sample("a b", "a", "a b c"))) == [2.0, 1.0, 3.0]
