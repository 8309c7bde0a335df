"""A rule on a sample with one answer is copied, judged and written in one go: with the same result as step by step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample, RewardDimensionWithRank, RewardDimensionWithScore
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.example import sample_of
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.models import build


def _score(value: float, **more: Any) -> RewardDimensionWithScore:
    return build(RewardDimensionWithScore, {"name": "d", "reason": None, "source": None, "score": value, **more})


def _result(*details: Any, **extra: Any) -> RewardResult:
    return build(RewardResult, {"name": "plain", "details": list(details), "extra_data": extra})


def _raising(error: Exception) -> Callable[[], Any]:
    def give() -> Any:
        raise error

    return give


async def _later() -> RewardResult:
    return _result(_score(0.5))


SHARED = _result(_score(0.25))
GIVES: dict[str, Callable[[], Any]] = {
    "one score": lambda: _result(_score(1.0)),
    "with more": lambda: _result(_score(0.5, reason="so"), found=3),
    "two dimensions": lambda: _result(_score(0.5), _score(1.0)),
    "source of another": lambda: _result(_score(0.5, source="other")),
    "the same object": lambda: SHARED,
    "on the bound": lambda: _result(_score(1.0 + 1e-10)),
    "above": lambda: _result(_score(1.5)),
    "nan": lambda: _result(_score(float("nan"))),
    "infinite": lambda: _result(_score(float("inf"))),
    "no details": lambda: _result(),
    "a rank": lambda: _result(RewardDimensionWithRank(name="d", rank=[1.0])),
    "a number": lambda: 1.0,
    "nothing": lambda: None,
    "unscored": _raising(Unscored("no", reason="no_reference")),
    "broken": _raising(ValueError("odd")),
    "awaitable": _later,
}


class PlainReward(BasePointWiseReward):
    """Gives what the table says for the answer's text."""

    score_range = (0.0, 1.0)
    name: str = "plain"

    def _evaluate(self, sample: DataSample, **_: Any) -> Any:
        return GIVES[sample.output[0].answer.text]()


def _samples() -> list[DataSample]:
    fresh = [sample_of("q", text) for text in GIVES]
    judged = PlainReward(name="earlier").evaluate(sample_of("q", "one score"))
    twice = PlainReward().evaluate(sample_of("q", "one score"))
    return [*fresh, *fresh, judged, twice, sample_of("q", "one score", "two dimensions"), sample_of("q")]


def test_a_batch_says_what_one_at_a_time_says() -> None:
    reward, samples = PlainReward(), _samples()
    before = [sample.model_dump() for sample in samples]
    batch = reward.evaluate_batch(samples)
    assert [sample.model_dump() for sample in batch] == [reward.evaluate(sample).model_dump() for sample in samples]
    assert [sample.model_dump() for sample in samples] == before
    scores = [sample.output[0].answer.reward.score for sample in batch[: len(GIVES)]]
    assert scores == [1.0, 0.5, 0.75, 0.5, 0.25, 1.0 + 1e-10, *[None] * 9, 0.5]
    same = list(GIVES).index("the same object")
    rewards = [batch[i].output[0].answer.reward for i in (same, same + len(GIVES))]
    assert rewards[0].details is not rewards[1].details


def test_a_mistake_of_the_caller_ends_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GIVES, "one score", _raising(ConfigError("mend this")))
    for _ in range(50):  # whether the error or the last result is told first
        with pytest.raises(ConfigError, match="mend this"):
            PlainReward().evaluate_batch([sample_of("q", "one score")] * 3)


class CycleReward(PlainReward):
    """Leaves cycles behind."""

    def _evaluate(self, sample: DataSample, **_: Any) -> Any:
        for _i in range(4):
            cycle: list[Any] = []
            cycle.append(cycle)
        return _result(_score(1.0))


@pytest.mark.parametrize("kind", [PlainReward, CycleReward])
def test_results_are_spared_the_search_for_cycles_and_cycles_are_not(kind: type[PlainReward]) -> None:
    searched: list[int] = []
    samples = [sample_of("q", "one score") for _ in range(3000)]
    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(lambda phase, info: searched.append(info["collected"]) if phase == "stop" else None)
    try:
        found = kind().evaluate_batch(samples)
        [[] for _ in range(2000)]
    finally:
        gc.callbacks.pop()
    assert len(found) == 3000 and gc.get_threshold() == before
    assert max(searched, default=0) >= 3000 if kind is CycleReward else sum(searched) < 1000
