"""Whatever a model does with a batch, every input that waits gets its own numbers or its own error."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest

from rm_gallery import BasePointWiseReward, ConfigError, DataSample, RewardResult, Unscored
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.gallery.rm.trained import hf
from rm_gallery.gallery.rm.trained.hf import Batches
from tests.reward.rewards import scored as rated
from tests.support.samples import issues, make_sample, scores


@dataclass
class Lengths:
    """Scores a text by its length; notes every batch down."""

    react: Callable[[list[str]], None] = lambda batch: None
    batches: list[list[str]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def encode(self, requests: list[str]) -> list[str | Exception]:
        return [Unscored("no text", reason="empty") if text == "" else text for text in requests]

    def forward(self, batch: list[str]) -> list[list[float]]:
        self.threads.add(threading.get_ident())
        self.batches.append(batch)
        self.react(batch)
        return [[float("nan") if "#" in text else float(len(text))] for text in batch]


class Measured(BasePointWiseReward):
    """The length of an answer, as a model in this process gives it."""

    batches: Any = None

    @property
    def least_workers(self) -> int:
        return 256

    def describe(self) -> dict[str, Any]:
        return {}

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return rated(self.name, *(await self.batches.score(sample.output[0].answer.text)))


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs together arrives together, on a busy machine too."""
    monkeypatch.setattr(hf, "LINGER_SECONDS", 0.2)


def measured(model: Lengths, size: int = 8, tokens: int = 10_000, **settings: Any) -> Measured:
    return Measured(batches=Batches(lambda: model, size, tokens), **settings)


def samples(*texts: str) -> list[DataSample]:
    return [make_sample(text, unique_id=str(place)) for place, text in enumerate(texts)]


def test_batches_hold_inputs_of_about_equal_length_and_the_oldest_goes_first() -> None:
    asked: list[DataSample] = []
    all_asked = threading.Event()

    class Counted(Measured):
        async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            asked.append(sample)
            if len(asked) == 200:
                all_asked.set()
            return await super()._evaluate(sample, **kwargs)

    def wait(_: list[str]) -> None:
        assert all_asked.wait(20.0), (
            "the first batch runs until all others wait, on a busy machine, too"
        )

    model = Lengths(wait)
    texts = ["x" * (1 + 37 * place % 100) for place in range(200)]
    reward = Counted(batches=Batches(lambda: model, 8, 10_000))
    scored = reward.evaluate_batch(samples(*texts), max_workers=1)
    assert [scores(sample) for sample in scored] == [[float(len(text))] for text in texts]
    assert sorted(sum(model.batches, [])) == sorted(texts)
    assert max(map(len, model.batches)) == 8
    wasted = sum(
        max(map(len, batch)) * len(batch) - sum(map(len, batch)) for batch in model.batches
    )
    assert wasted < 0.1 * sum(map(len, texts)), "padding stays short"
    assert len(model.threads) == 1
    model = Lengths()
    texts = ["x" * 90, *("x" * length for length in range(1, 60))]
    measured(model, size=4).evaluate_batch(samples(*texts), max_workers=1)
    assert texts[0] in model.batches[0], "the one that waits longest is never overtaken"


@pytest.mark.usefixtures("unhurried")
def test_the_token_budget_holds_but_for_one_input_that_is_longer() -> None:
    model = Lengths()
    texts = ["x" * length for length in (5, 60, 7, 6, 5, 30, 7)]
    measured(model, tokens=30).evaluate_batch(samples(*texts))
    assert all(
        max(map(len, batch)) * len(batch) <= 30 or len(batch) == 1 for batch in model.batches
    )
    exact = Lengths()
    measured(exact, tokens=30).evaluate(make_sample("x" * 10, "y" * 10, "z" * 10))
    assert [len(batch) for batch in exact.batches] == [3]
    down = Lengths()
    measured(down, tokens=10).evaluate(make_sample("x" * 5, "y" * 4, "z" * 29))
    assert down.batches == [["y" * 4, "x" * 5], ["z" * 29]], (
        "neighbours below count, to the first and to the last token"
    )
    down.batches.clear()
    measured(down, tokens=10, deadline=20.0).evaluate(make_sample("y" * 4, "z" * 29))
    assert down.batches == [["y" * 4], ["z" * 29]], "there is none below the shortest"


def test_one_bad_input_costs_itself() -> None:
    def break_on(batch: list[str]) -> None:
        if any("!" in text for text in batch):
            raise RuntimeError("index out of range")

    model = Lengths(break_on)
    scored = measured(model).evaluate_batch(samples("a", "bb!", "", "ccc#", "dddd"))
    assert [scores(sample)[0] for sample in scored] == [1.0, None, None, None, 4.0]
    found = [issue for sample in scored for issue in issues(sample)]
    assert found == [("failed", "error"), ("unscored", "empty"), ("failed", "invalid_score")]


def test_a_batch_that_does_not_fit_into_memory_is_halved() -> None:
    def full(batch: list[str]) -> None:
        if len(batch) > 2:
            raise RuntimeError("CUDA out of memory")

    scored = measured(Lengths(full)).evaluate_batch(
        samples(*("abcdefgh"[:length] for length in range(1, 9)))
    )
    assert [scores(sample)[0] for sample in scored] == [float(length) for length in range(1, 9)]


def test_a_model_that_cannot_be_opened_ends_the_run_and_is_tried_again_by_the_next() -> None:
    open_model = Mock(side_effect=[ConfigError("no such checkpoint"), Lengths()])
    reward = Measured(batches=Batches(open_model, 8, 100))
    with pytest.raises(ConfigError, match="no such checkpoint"):
        reward.evaluate_batch(samples("a", "b", "c"))
    assert scores(reward.evaluate(make_sample("a"))) == [1.0]


def test_waiting_for_a_turn_is_not_the_samples_time() -> None:
    model = Lengths(lambda batch: time.sleep(0.05))
    scored = measured(model, size=1, deadline=0.2).evaluate_batch(samples(*["x"] * 20))
    assert [scores(sample) for sample in scored] == [[1.0]] * 20


def test_a_model_that_is_too_slow_costs_the_sample_and_not_the_run() -> None:
    model = Lengths(lambda batch: time.sleep(0.5) if "slow" in batch else None)
    scored = measured(model, size=1, deadline=0.1).evaluate_batch(samples("slow", "x", "y"))
    assert [issues(sample) for sample in scored] == [[("failed", "deadline")], [], []]


def test_a_caller_that_gives_up_is_left_out() -> None:
    hold, began = threading.Event(), threading.Event()

    def wait(batch: list[str]) -> None:
        began.set()
        assert hold.wait(10)

    model = Lengths(wait)
    batches: Batches[str, str] = Batches(lambda: model, 1, 100)

    async def give_up() -> list[float]:
        first = asyncio.ensure_future(batches.score("first"))
        while not began.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(batches.score("second"))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.sleep(0)
        hold.set()
        return await first

    assert library_loop.submit(give_up()).result(10) == [5.0]
    assert library_loop.submit(batches.score("third")).result(10) == [5.0]
    assert model.batches == [["first"], ["third"]]


@dataclass
class Broken(Lengths):
    """Does to long texts what a model of somebody's own code might do."""

    how: str = ""

    def encode(self, requests: list[str]) -> list[str | Exception]:
        if self.how == "encode":
            raise RuntimeError("no vocabulary")
        return super().encode(requests)

    def forward(self, batch: list[str]) -> list[list[float]]:
        found = super().forward(batch)
        if max(map(len, batch)) <= 5:
            return found
        if self.how == "exit":
            raise SystemExit(3)
        return next(iter(())) if self.how == "stop" else found[:-1]


@pytest.mark.parametrize("how", ["short", "exit", "stop", "encode"])
def test_a_model_that_breaks_the_rules_leaves_nobody_waiting(how: str) -> None:
    samples = [make_sample("x" * n) for n in range(1, 9)]
    found = measured(Broken(how=how)).evaluate_batch(samples, deadline=20.0)
    reasons = [reason for sample in found for _, reason, *_ in issues(sample)]
    assert reasons == ["error"] * (8 if how == "encode" else 3)
    if how != "encode":
        assert [scores(sample) for sample in found[:5]] == [[float(n)] for n in range(1, 6)]


@pytest.mark.usefixtures("unhurried")
def test_a_batch_is_filled_however_few_workers_are_asked_for() -> None:
    model = Lengths()
    measured(model).evaluate_batch(samples(*"abcdefgh"), max_workers=1)
    assert [len(batch) for batch in model.batches] == [8]
