"""A judge's reply that holds nothing is a server's hiccup: asked for once more, and again when the
run is continued.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rm_gallery import FakeLLM, GraderScore, GradingRunner, RunOptions
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.common import RelevanceGrader
from rm_gallery.core.reward.judge import (
    BaseListWiseRubricReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
    BaseRubricReward,
    BaseStepWiseRubricReward,
)
from tests.support.samples import make_sample

GOOD = "<reason>Good.</reason><score>4</score><best>1</best>"
KINDS: dict[str, type[BaseRubricReward]] = {
    "pointwise": BasePointWiseRubricReward,
    "stepwise": BaseStepWiseRubricReward,
    "listwise": BaseListWiseRubricReward,
    "pairwise": BasePairWiseRubricReward,
}


class Forgetful:
    """Says nothing the first `times` times that it is asked a question."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked: dict[str, int] = {}

    def __call__(self, question: str) -> str:
        self.asked[question] = self.asked.get(question, 0) + 1
        return "" if self.asked[question] <= self.times else GOOD


def reward_run(kind: str) -> Callable[[FakeLLM, Path, RunControl], list[float | None]]:
    def judged(llm: FakeLLM, folder: Path, control: RunControl) -> list[float | None]:
        reward = KINDS[kind](name="judge", llm=llm, channel="text")
        samples = [make_sample("one", "two", unique_id=str(n), query=f"q{n}") for n in range(3)]
        for sample in samples:
            for output in sample.output:
                output.steps = [output.answer.model_copy()] if kind == "stepwise" else None
        run = reward.evaluate_batch(samples, run_dir=str(folder), control=control)
        return [reward.score_of_output(output) for sample in run for output in sample.output]

    return judged


def grader_run(llm: FakeLLM, folder: Path, control: RunControl) -> list[float | None]:
    rows = [{"query": f"q{n}", "response": "r"} for n in range(3)]
    runner = GradingRunner(
        {"r": RelevanceGrader(model=llm, channel="text")}, run_dir=folder, show_progress=False
    )
    results = runner.run(rows, options=RunOptions(control=control))["r"]
    return [result.score if isinstance(result, GraderScore) else None for result in results]


RUNS = {**{kind: reward_run(kind) for kind in KINDS}, "grader": grader_run}


@pytest.mark.parametrize("run", RUNS)
def test_an_empty_reply_is_asked_for_once_more(run: str, tmp_path: Path) -> None:
    judge = Forgetful(1)
    assert None not in RUNS[run](FakeLLM(reply=judge), tmp_path / "run", RunControl())
    assert set(judge.asked.values()) == {2}


@pytest.mark.parametrize("run", RUNS)
def test_what_stayed_empty_has_no_score_and_is_asked_for_when_the_run_goes_on(
    run: str, tmp_path: Path
) -> None:
    judge, control = Forgetful(2), RunControl()
    scores = RUNS[run](FakeLLM(reply=judge), tmp_path / "run", control)
    assert set(scores) == {None} and set(judge.asked.values()) == {2} and control.stopped is None
    assert None not in RUNS[run](FakeLLM(reply=judge), tmp_path / "run", RunControl())
    assert set(judge.asked.values()) == {3}
