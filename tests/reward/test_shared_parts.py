"""A part that stands several times in a composition is asked once, where it is the same question:
never for another reward's, another text's or another deadline's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import PrivateAttr

from rm_gallery import (
    BaseListWiseReward,
    BasePointWiseReward,
    BaseReward,
    Cascade,
    DataSample,
    FakeLLM,
    Gate,
    RewardRegistry,
    Score,
    Stage,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.utils.models import copy_with


def answered(text: str, reference: str = "") -> DataSample:
    """A sample of one answer."""
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]
    return sample_of_messages(talk, ground_truth=reference)


def of_a_class(value: float) -> BaseReward:
    """A reward whose class remembers what it gives."""

    class Remembers(BasePointWiseReward):
        score_range = (0.0, 1.0)

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
            return Score(value)

    return Remembers(name="one")


class Private(BasePointWiseReward):
    """A reward whose private attribute is what it gives."""

    score_range = (0.0, 1.0)
    _value: float = PrivateAttr(0.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        return Score(self._value)


def of_a_private_attribute(value: float) -> BaseReward:
    """As `of_a_class`."""
    made = Private(name="one")
    made._value = value
    return made


def of_a_lambda(value: float) -> BaseReward:
    """As `of_a_class`; the value stands in the code alone."""
    return reward_function(eval(f"lambda messages, **_: {value}")).reward()


def of_a_model(value: float) -> BaseReward:
    """A judge that gives ten times the value."""
    reply = f"<reason>so</reason><score>{10 * value:g}</score>"
    llm = FakeLLM(reply=lambda *_, **__: reply)
    made: BaseReward = RewardRegistry.create("base_helpfulness_pointwise", llm=llm)
    return made


@pytest.mark.parametrize("made", [of_a_class, of_a_private_attribute, of_a_lambda, of_a_model])
def test_rewards_that_only_look_alike_are_each_asked(made: Callable[[float], BaseReward]) -> None:
    scale = 10 if made is of_a_model else 1
    [[score]] = WeightedSum({"a": made(1.0), "b": made(0.2)}).score_batch([answered("x")])
    assert score.value == pytest.approx(1.2 * scale)


class Listed(BaseListWiseReward):
    """Compares, and says the same of all."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        return Score((1.0,) * len(sample.output))


def test_a_judge_that_is_a_gate_as_well_is_asked_once_about_each_answer_of_a_group() -> None:
    def reply(messages: Any, *_: Any, **__: Any) -> str:
        _asked.append(str(messages))
        return f"<reason>so</reason><score>{1 if 'wrong' in str(messages) else 9}</score>"

    judge = RewardRegistry.create("base_helpfulness_pointwise", llm=FakeLLM(reply=reply))
    behind = WeightedSum({"judge": judge, "listed": Listed(name="listed")})
    group = answered("one")
    more = [answered(text).output[0] for text in ("wrong", "three")]
    group = group.model_copy(update={"output": [*group.output, *more]})
    _asked.clear()
    [scores] = Gate(judge, behind, threshold=5).score_batch([group])
    assert [score.value for score in scores] == [10.0, 1.0, 10.0]
    assert len(_asked) == 3


class Random(BasePointWiseReward):
    """Random by design."""

    deterministic = False
    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        _asked.append("random")
        return Score(0.5)


_asked: list[str] = []


def test_what_is_random_inside_of_a_part_is_asked_as_often_as_it_stands_there() -> None:
    _asked.clear()
    inner = WeightedSum({"r": Random(name="r")}, name="inner")
    WeightedSum({"a": inner, "b": inner}).evaluate(answered("x"))
    assert _asked == ["random"] * 2


class Waits(BasePointWiseReward):
    """Waits on the loop."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        _asked.append("waits")
        await asyncio.sleep(0.4)
        return Score(1.0)


class Sleeps(BasePointWiseReward):
    """Waits on a thread."""

    score_range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        _asked.append("sleeps")
        time.sleep(0.4)
        return Score(1.0)


@pytest.mark.parametrize("kind", [Waits, Sleeps])
@pytest.mark.parametrize("whose", ["the composition's", "its own"])
def test_who_runs_out_of_time_does_not_cost_a_part_with_more(kind: Any, whose: str) -> None:
    short: BaseReward = kind(name="s", deadline=0.1)
    if whose == "the composition's":
        short = WeightedSum({"s": kind(name="s")}, name="inner", deadline=0.1)
    first = Stage(short, stop_above=1.0, no_score="next")
    _asked.clear()
    [[score]] = Cascade(first, kind(name="s")).score_batch([answered("x")])
    assert score.value == 1.0
    assert score.extra["stages"] == {
        short.name: "failed",
        "s" + " 2" * (whose != "the composition's"): "decided",
    }
    assert len(_asked) == (1 if whose == "the composition's" else 2)


class Length(BasePointWiseReward):
    """A tenth of the answer's length, or its share of the reference's."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        reference = sample.reference() or "0123456789"
        return Score(len(sample.output[0].answer.text) / len(str(reference)))


INNER = WeightedSum({"length": Length(name="length")}, name="inner")


class Variants(BasePointWiseReward):
    """Asks a composition about texts of its own, one after another."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        said = []
        for n in range(1, 6):
            scored = await INNER.async_evaluate(answered("a" * n))
            said.append(scored.output[0].answer.reward.score)
            del scored  # its place in memory is the next one's
        return Score(0.5, str(said))


class VariantsOnAThread(BasePointWiseReward):
    """As `Variants`."""

    score_range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        said = [
            INNER.evaluate(answered("a" * n)).output[0].answer.reward.score for n in range(1, 6)
        ]
        return Score(0.5, str(said))


class References(BasePointWiseReward):
    """Asks a composition about the same answer beside other references."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        said = []
        for n in (1, 2, 5):
            asked = copy_with(sample, metadata={"reference": "a" * n})
            [[score]] = await INNER.async_score_batch([asked])
            said.append(score.value)
        return Score(0.5, str(said))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Variants, [0.1, 0.2, 0.3, 0.4, 0.5]),
        (VariantsOnAThread, [0.1, 0.2, 0.3, 0.4, 0.5]),
        (References, [1.0, 0.5, 0.2]),
    ],
)
def test_a_part_may_ask_a_composition_about_other_texts(part: Any, said: list[float]) -> None:
    [[score]] = WeightedSum({"v": part(name="v")}).score_batch([answered("a")])
    assert score.extra["metrics"]["v"]["reason"] == str(said)
