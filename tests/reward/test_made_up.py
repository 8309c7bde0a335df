"""A number that code of one's own puts in the place of a judge that cannot be reached is no score
once the run stops for it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BaseGrader,
    BasePointWiseReward,
    BaseReward,
    Cascade,
    DataSample,
    FakeLLM,
    FunctionGrader,
    GraderScore,
    ProviderError,
    RewardResult,
    Stage,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model.limits import RetryPolicy
from rm_gallery.core.runner.grading_runner import build_reward
from tests.reward import rewards as r
from tests.support.samples import issues, make_sample, scores, through

N, MADE_UP = 60, 0.123
STATE = {"down": True}


def reply(question: str) -> str:
    if STATE["down"]:
        raise ProviderError("nobody there", kind="unreachable")
    return "<score>0.5</score>"


def judge() -> BaseReward:
    return r.PointJudge(llm=FakeLLM(reply=reply))


@pytest.fixture(autouse=True)
def down() -> None:
    STATE["down"] = True


def _asked(text: str) -> float:
    inner = judge()
    try:
        found = inner.score_of_output(inner.evaluate(make_sample(text, unique_id=text)).output[0])
        if found is None:
            raise ValueError("no score")
        return found
    except Exception:  # noqa: BLE001 - what people write
        return MADE_UP


@reward_function
def function(messages: Any, **kwargs: Any) -> float:
    return _asked(messages[-1].text)


class Own(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.scored(self.name, _asked(sample.output[0].answer.text))


class OwnAsync(BasePointWiseReward):
    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        inner = judge()
        found = inner.score_of_output((await inner.async_evaluate(sample)).output[0])
        return r.scored(self.name, MADE_UP if found is None else found)


class OwnGrader(BaseGrader):
    def _grade(self, /, response: str) -> GraderScore:
        return GraderScore(name=self.name, score=_asked(response), reason="")


def _graded(response: str) -> float:
    return _asked(response)


OWN: dict[str, Callable[[], BaseReward]] = {
    "function": lambda: build_reward(function),
    "class": Own,
    "async class": OwnAsync,
    "grader": lambda: OwnGrader(),
    "function grader": lambda: FunctionGrader(_graded),
    "part": lambda: WeightedSum({"f": function}),
}


def samples() -> list[DataSample]:
    return [make_sample(f"a {k}", unique_id=f"s{k}", query=f"q{k}") for k in range(N)]


def quick() -> RunControl:
    return RunControl(retry=RetryPolicy(base=0.001, cap=0.002))


@pytest.mark.parametrize("door", ["evaluate_batch", "evaluate_stream"])
@pytest.mark.parametrize("name", OWN)
def test_what_is_made_up_while_nobody_answers_is_no_score(
    name: str, door: str, tmp_path: Path
) -> None:
    done = through(door, OWN[name](), samples(), control=quick(), run_dir=str(tmp_path))
    assert {value for one in done for value in scores(one)} == {None}
    assert {reason for one in done for _, reason in issues(one)} == {"unreachable", "stopped"}
    told = [issue for one in done for issue in one.output[0].answer.reward.issues]
    assert {issue.cause for issue in told} == {"endpoint"}
    counts = json.loads((tmp_path / "summary.json").read_text())["samples"]
    assert counts["scored"] == 0
    assert counts["failed"] >= 20
    assert counts["failed"] + counts["stopped"] == N
    STATE["down"] = False
    again = OWN[name]().evaluate_batch(samples(), control=quick(), run_dir=str(tmp_path))
    values = [value for one in again for value in scores(one)]
    assert values == [0.5] * N, "all are asked again"


def test_without_a_folder_and_in_reports(tmp_path: Path) -> None:
    done = build_reward(function).evaluate_batch(samples(), control=quick())
    assert {value for one in done for value in scores(one)} == {None}


def test_a_policy_that_is_declared_stays(tmp_path: Path) -> None:
    first = Stage(judge(), stop_below=0.2, no_score="next")
    # few at once: where all are in flight, the run may stop before the first second stage begins
    done = Cascade(first, r.Rule(), otherwise=0).evaluate_batch(
        samples(), control=quick(), run_dir=str(tmp_path), max_workers=4
    )
    kept = Counter(value for one in done for value in scores(one))
    assert kept[2.0] >= 1 and kept[2.0] + kept[None] == N
    assert {reason for one in done for _, reason in issues(one)} == {"stopped"}


def test_a_number_made_up_for_one_lost_call_is_the_codes_own(tmp_path: Path) -> None:
    """A run that goes on keeps it."""

    @reward_function
    def sometimes(messages: Any, **kwargs: Any) -> float:
        STATE["down"] = messages[-1].text.endswith("7")
        return _asked(messages[-1].text)

    done = build_reward(sometimes).evaluate_batch(samples(), control=quick(), max_workers=1)
    assert Counter(value for one in done for value in scores(one)) == {0.5: N - 6, MADE_UP: 6}


def test_a_source_that_waits_for_its_results_is_not_kept_waiting() -> None:
    """What is held back until the run is known to go on is handed on where nothing else can come."""
    taken = threading.Semaphore(1)

    def source() -> Iterator[DataSample]:
        for sample in samples()[:4]:
            assert taken.acquire(timeout=60)
            yield sample

    values = []
    for one in build_reward(function).evaluate_stream(source(), control=quick()):
        values += scores(one)
        taken.release()
    assert values == [MADE_UP] * 4, "too few calls to tell that nobody is there"
