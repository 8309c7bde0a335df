"""The composition table: kinds × scorers × doors × where the call is made, the same scores or one documented error at once."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from typer.testing import CliRunner

from rm_gallery import DataSample, FakeLLM, RewardRegistry, Step
from rm_gallery.core.reward.base import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
)
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError
from tests.reward.rewards import ListJudge, PairJudge, PointJudge, Rule, StepJudge, longest, ranked, scored, value
from tests.support.samples import make_sample, scores

SECONDS = 30
"""A case that takes longer hangs: on a busy machine a worker process takes a few of them to start."""


def judged(sample: DataSample, name: str, kind: str) -> RewardResult:
    """What the judge of `tests.reward.rewards` says, worked out by a rule."""
    answers = [output.answer.text for output in sample.output]
    if kind == "pointwise":
        return scored(name, value(answers[0]))
    if kind == "stepwise":
        return scored(name, value((sample.output[0].steps or [])[-1].text))
    words = [value(text) for text in answers]
    return ranked(name, *(float(k == words.index(max(words))) for k in range(len(words))))


class Plain:
    """A plain `_evaluate` for any kind."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return judged(sample, self.name, self.kind)  # type: ignore[attr-defined]  # mixed into a reward


class Awaited:
    """An async `_evaluate` for any kind."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await asyncio.sleep(0)
        return judged(sample, self.name, self.kind)  # type: ignore[attr-defined]  # mixed into a reward


class PointRule(Plain, BasePointWiseReward): ...


class ListRule(Plain, BaseListWiseReward): ...


class PairRule(Plain, BasePairWiseReward): ...


class StepRule(Plain, BaseStepWiseReward): ...


class PointAwaited(Awaited, BasePointWiseReward): ...


class ListAwaited(Awaited, BaseListWiseReward): ...


class PairAwaited(Awaited, BasePairWiseReward): ...


class StepAwaited(Awaited, BaseStepWiseReward): ...


class PointInWorker(PointRule):
    cpu_bound: ClassVar[bool] = True


class ListInWorker(ListRule):
    cpu_bound: ClassVar[bool] = True


class PairInWorker(PairRule):
    cpu_bound: ClassVar[bool] = True


class StepInWorker(StepRule):
    cpu_bound: ClassVar[bool] = True


TABLE: dict[str, list[type[BaseReward]]] = {
    "pointwise": [PointRule, PointAwaited, PointInWorker, PointJudge],
    "listwise": [ListRule, ListAwaited, ListInWorker, ListJudge],
    "pairwise": [PairRule, PairAwaited, PairInWorker, PairJudge],
    "stepwise": [StepRule, StepAwaited, StepInWorker, StepJudge],
}
EXPECTED: dict[str, list[Any]] = {
    "pointwise": [1.0, 3.0, 2.0],
    "listwise": [0.0, 1.0, 0.0],
    "pairwise": [0.0, 1.0, 0.5],
    "stepwise": [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]],
}
REWARDS = [
    pytest.param(kind, cls(llm=FakeLLM(reply=longest)) if cls.judged else cls(), id=cls.__name__)
    for kind, classes in TABLE.items()
    for cls in classes
]


def sample() -> DataSample:
    made = make_sample("one", "one two three", "one two")
    for output in made.output:
        output.steps = [Step(content="first"), Step(content="and second")]
    return made


def read(done: DataSample) -> list[Any]:
    """The scores of a sample: one per output, or one per step."""
    if all(output.answer.reward.score is not None for output in done.output):
        return scores(done)
    return [[step.reward.score for step in output.steps or []] for output in done.output]


BLOCKING: dict[str, Callable[[BaseReward, DataSample], DataSample]] = {
    "evaluate": lambda reward, given: reward.evaluate(given),
    "evaluate_batch": lambda reward, given: reward.evaluate_batch([given])[0],
    "evaluate_stream": lambda reward, given: next(iter(reward.evaluate_stream([given]))),
}


async def from_batch(reward: BaseReward, given: DataSample) -> DataSample:
    return (await reward.async_evaluate_batch([given]))[0]


async def from_stream(reward: BaseReward, given: DataSample) -> DataSample:
    return [done async for done in reward.async_evaluate_stream([given])][0]


AWAITED: dict[str, Callable[[BaseReward, DataSample], Awaitable[DataSample]]] = {
    "async_evaluate": lambda reward, given: reward.async_evaluate(given),
    "async_evaluate_batch": from_batch,
    "async_evaluate_stream": from_stream,
}


class Outer(BasePointWiseReward):
    """Calls another reward from where this one runs, and keeps what it found."""

    call: Any = None
    found: Any = None


class InsidePlain(Outer):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        self.found.append(self.call())
        return scored(self.name, 1.0)


class InsideAsync(Outer):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        done = self.call()
        self.found.append(await done if hasattr(done, "__await__") else done)
        return scored(self.name, 1.0)


class InsideHook(PointJudge):
    call: Any = None
    found: Any = None

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        done = self.call()
        if not hasattr(done, "__await__"):
            self.found.append(done)
            return {"answers": ["x"]}

        async def parameters() -> dict[str, Any]:
            self.found.append(await done)
            return {"answers": ["x"]}

        return parameters()


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """A case that hangs shows where, and ends the test process."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


async def main(awaitable: Awaitable[DataSample]) -> DataSample:
    return await awaitable


@pytest.mark.parametrize(("kind", "reward"), REWARDS)
def test_every_door(kind: str, reward: BaseReward) -> None:
    expected, given = EXPECTED[kind], sample()
    assert {door: read(call(reward, given)) for door, call in BLOCKING.items()} == dict.fromkeys(BLOCKING, expected)
    found = {door: read(asyncio.run(main(call(reward, given)))) for door, call in AWAITED.items()}
    assert found == dict.fromkeys(AWAITED, expected)

    async def notebook() -> list[list[Any]]:
        return [read(call(reward, given)) for call in BLOCKING.values()]

    assert asyncio.run(notebook()) == [expected] * len(BLOCKING), "and under a running loop"


@pytest.mark.parametrize("outer", [InsidePlain, InsideAsync, InsideHook])
@pytest.mark.parametrize(("kind", "reward"), REWARDS)
def test_every_door_inside(kind: str, reward: BaseReward, outer: type[BaseReward]) -> None:
    expected, given, one = EXPECTED[kind], sample(), make_sample("x")
    for door, call in BLOCKING.items():
        found: list[DataSample] = []
        around = around_of(outer, partial(call, reward, given), found)
        if outer is InsidePlain:
            around.evaluate(one)
            assert [read(done) for done in found] == [expected], door
        else:
            with pytest.raises(ConfigError, match=f"await async_{door}"):
                around.evaluate(one)
    if outer is InsidePlain:
        return
    for door, awaited in AWAITED.items():
        found = []
        around_of(outer, partial(awaited, reward, given), found).evaluate(one)
        assert [read(done) for done in found] == [expected], door


def around_of(outer: type[BaseReward], call: Callable[[], Any], found: list[DataSample]) -> BaseReward:
    return outer(call=call, found=found, **({"llm": FakeLLM(reply=longest)} if outer.judged else {}))


@pytest.mark.parametrize(
    ("kind", "cls"), [(kind, cls) for kind, classes in TABLE.items() if kind != "stepwise" for cls in classes[:3]]
)
def test_the_command_scores_with_every_kind(kind: str, cls: type[BaseReward], tmp_path: Path) -> None:
    from rm_gallery.cli.main import app

    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"q{k}", "chosen": ["one two three"], "rejected": ["one", "one two"]} for k in range(3)]
    data.write_bytes(b"\n".join(orjson.dumps({"id": str(k), "subset": "s", **row}) for k, row in enumerate(rows)))
    name = f"composition_{cls.__name__.lower()}"
    if name not in RewardRegistry.list():
        RewardRegistry.register(name, cls)
    finished = CliRunner().invoke(app, ["eval", name, str(data), "--json"])
    assert finished.exit_code == 0, finished.output
    report = orjson.loads(finished.stdout)
    assert (report["n"], report["n_scored"], report["score"]) == (3, 3, 1.0)


def test_a_judge_for_worker_processes_is_refused_at_construction() -> None:
    class InWorker(StepJudge):
        cpu_bound: ClassVar[bool] = True

    with pytest.raises(ConfigError, match="cpu_bound and its _evaluate is async"):
        InWorker(llm=FakeLLM(reply=longest))
    assert scores(Rule().evaluate(make_sample("x"))) == [1.0]
