"""A rule that asks a judge inside and falls back to a number: what was not asked is no score,
whichever way it asks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Budget,
    DataSample,
    FakeLLM,
    FunctionGrader,
    GraderScore,
    GradingRunner,
    LLMGrader,
    RewardResult,
    RunOptions,
)
from rm_gallery.core.engine.context import RunControl, current_run
from tests.reward.rewards import PointJudge, longest, ranked, scored
from tests.support.samples import make_sample

N, CALLS = 40, 20
INNER = PointJudge(llm=FakeLLM(reply=longest))
GRADER = LLMGrader(name="inner", model=FakeLLM(reply="<score>1</score>"), prompt="x {{response}}")


def asked(sample: DataSample) -> DataSample:
    return make_sample(
        sample.output[0].answer.text, unique_id=sample.unique_id, query=sample.input[0].text
    )


def number(sample: DataSample) -> float:
    """What the inner judge says, or 0 as user code has it."""
    found = INNER.score_of_output(sample.output[0])
    return 0.0 if found is None else found


async def direct(sample: DataSample) -> float:
    try:
        assert INNER.llm is not None
        await INNER.llm.achat([{"role": "user", "content": f"{sample.unique_id}\na b"}])
    except Exception:  # noqa: BLE001 - as user code has it
        return 0.0
    return 1.0


async def streamed(sample: DataSample) -> float:
    return [number(one) async for one in INNER.async_evaluate_stream(iter([asked(sample)]))][0]


async def graded(sample: DataSample) -> float:
    found = await GRADER.aevaluate(response=sample.unique_id)
    return float(getattr(found, "score", 0.0) or 0.0)


async def evaluated(sample: DataSample) -> float:
    return number(await INNER.async_evaluate(asked(sample)))


async def in_a_batch(sample: DataSample) -> float:
    return number((await INNER.async_evaluate_batch([asked(sample)]))[0])


BLOCKING: dict[str, Callable[[DataSample], float]] = {
    "evaluate": lambda sample: number(INNER.evaluate(asked(sample))),
    "evaluate_batch": lambda sample: number(INNER.evaluate_batch([asked(sample)])[0]),
    "evaluate_stream": lambda sample: number(next(iter(INNER.evaluate_stream([asked(sample)])))),
    "a grader": lambda sample: float(
        getattr(GRADER.evaluate(response=sample.unique_id), "score", 0.0) or 0.0
    ),
}
AWAITED: dict[str, Callable[[DataSample], Any]] = {
    "async_evaluate": evaluated,
    "async_evaluate_batch": in_a_batch,
    "async_evaluate_stream": streamed,
    "an async grader": graded,
    "the model itself": direct,
}


def outer(kind: type[Any], way: str) -> BaseReward:
    """A reward of this kind that asks inside in this way."""

    def result(name: str, sample: DataSample, value: float) -> RewardResult:
        if kind in (BaseListWiseReward, BasePairWiseReward):
            return ranked(name, *(value + k for k in range(len(sample.output))))
        return scored(name, value)

    class Outer(kind):  # type: ignore[misc]
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            return result(self.name, sample, BLOCKING[way](sample))

    class AsyncOuter(kind):  # type: ignore[misc]
        async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            return result(self.name, sample, await AWAITED[way](sample))

    made: BaseReward = Outer() if way in BLOCKING else AsyncOuter()
    return made


def samples(n: int = N) -> list[DataSample]:
    found = [make_sample("a b", "c", unique_id=f"s{k}", query=f"q{k}") for k in range(n)]
    for sample in found:
        for output in sample.output:
            output.steps = [output.answer.model_copy()]
    return found


async def _of_stream(reward: BaseReward, how: RunOptions) -> list[DataSample]:
    return [one async for one in reward.async_evaluate_stream(iter(samples()), options=how)]


DOORS: dict[str, Callable[[BaseReward, RunOptions], list[DataSample]]] = {
    "evaluate_batch": lambda reward, how: reward.evaluate_batch(samples(), options=how),
    "evaluate_stream": lambda reward, how: list(
        reward.evaluate_stream(iter(samples()), options=how)
    ),
    "async_evaluate_batch": lambda reward, how: asyncio.run(
        reward.async_evaluate_batch(samples(), options=how)
    ),
    "async_evaluate_stream": lambda reward, how: asyncio.run(_of_stream(reward, how)),
}
KINDS = [BasePointWiseReward, BaseListWiseReward, BasePairWiseReward, BaseStepWiseReward]
CASES: list[tuple[type[Any], str, str]] = [
    (BasePointWiseReward, way, "evaluate_batch") for way in (*BLOCKING, *AWAITED)
]
CASES += [
    (kind, way, "evaluate_batch")
    for kind in KINDS[1:]
    for way in ("evaluate", "async_evaluate_batch")
]
CASES += [
    (BasePointWiseReward, way, door)
    for door in list(DOORS)[1:]
    for way in ("evaluate_batch", "async_evaluate")
]


def records(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]


def numbers(record: dict[str, Any]) -> list[float]:
    details = [detail for said in record["rewards"] if said for detail in said["details"]]
    return [detail["score"] for detail in details]


@pytest.mark.parametrize(
    ("kind", "way", "door"), CASES, ids=lambda value: getattr(value, "__name__", value)
)
@pytest.mark.parametrize("folder", [True, False], ids=["kept", "not kept"])
def test_what_was_not_asked_is_no_score(
    kind: type[Any], way: str, door: str, folder: bool, tmp_path: Path
) -> None:
    reward, control, run_dir = (
        outer(kind, way),
        RunControl(),
        str(tmp_path / "run") if folder else None,
    )
    how = RunOptions(
        max_workers=4, run_dir=run_dir, control=control, budget=Budget(max_calls=CALLS)
    )
    found = DOORS[door](reward, how)
    assert (
        len(found) == N
        and control.stopped
        and "budget.max_calls" in control.stopped
        and control.calls == CALLS
    )
    stopped = [
        one
        for one in found
        if any(
            o.answer.reward.issues or any(s.reward.issues for s in o.steps or ())
            for o in one.output
        )
    ]
    assert N - CALLS <= len(stopped) < N
    if not folder:
        return
    kept = records(tmp_path / "run")
    assert len(kept) == N - len(stopped) and all(record["status"] == "scored" for record in kept)
    assert kind in (BaseListWiseReward, BasePairWiseReward) or all(
        0.0 not in numbers(record) for record in kept
    )
    more = RunControl()
    DOORS[door](
        reward,
        RunOptions(max_workers=4, run_dir=run_dir, control=more, budget=Budget(max_calls=1000)),
    )
    assert more.stopped is None and len({record["id"] for record in records(tmp_path / "run")}) == N


@pytest.mark.parametrize("way", ["evaluate_batch", "async_evaluate", "a grader", "an async grader"])
def test_graders_too(way: str, tmp_path: Path) -> None:
    def ask(response: str) -> float:
        return min(1.0, BLOCKING[way](make_sample("a b", unique_id=response, query=response)))

    async def await_it(response: str) -> float:
        return min(
            1.0, float(await AWAITED[way](make_sample("a b", unique_id=response, query=response)))
        )

    runner = GradingRunner(
        {"g": FunctionGrader(ask if way in BLOCKING else await_it)}, show_progress=False
    )
    rows = [{"id": f"r{k}", "response": f"r{k}"} for k in range(N)]
    folder, control = tmp_path / "run", RunControl()
    found = runner.run(rows, run_dir=str(folder), control=control, budget=Budget(max_calls=CALLS))[
        "g"
    ]
    good = [one.score for one in found if isinstance(one, GraderScore)]
    assert control.stopped and len(good) <= CALLS and all(good), "no zero was made up"
    assert len(records(folder)) == len(good)
    again = runner.run(rows, run_dir=str(folder), budget=Budget(max_calls=1000))["g"]
    assert all(isinstance(one, GraderScore) and one.score for one in again)


def test_a_budget_that_a_rule_gives_its_own_calls_stops_those_alone() -> None:
    class Frugal(BasePointWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            many = [asked(one) for one in samples(4)]
            found = INNER.evaluate_batch(many, budget=Budget(max_calls=2), max_workers=1)
            return scored(self.name, sum(number(one) > 0.0 for one in found))

    control = RunControl()
    found = Frugal().evaluate_batch(samples(3), control=control)
    assert [one.output[0].answer.reward.score for one in found] == [
        2.0
    ] * 3 and control.stopped is None


def test_an_interrupted_run_keeps_no_number_that_was_made_up(tmp_path: Path) -> None:
    """Ctrl-C while the inner judge waits: what is in flight is halted, and the rule would fall
    back.
    """
    at = threading.Event()

    class Halted(BasePointWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            run = current_run.get()
            if sample.unique_id == "s5" and run is not None:
                run.stop("interrupted", halt=True)
                at.set()
            return scored(self.name, BLOCKING["evaluate"](sample))

    Halted().evaluate_batch(samples(), max_workers=1, run_dir=str(tmp_path / "run"))
    assert at.is_set() and {record["id"] for record in records(tmp_path / "run")} == {
        f"s{k}" for k in range(5)
    }
