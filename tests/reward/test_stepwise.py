"""Each step of each answer is scored by itself, seen with the steps before it and none after."""

from __future__ import annotations

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.models import FakeLLM
from tests.reward.rewards import StepJudge, StepRule, longest
from tests.support.samples import issues, make_sample, scores


def with_steps(*per_output: list[str] | None) -> DataSample:
    sample = make_sample(*("answer" for _ in per_output))
    for output, texts in zip(sample.output, per_output, strict=True):
        output.steps = None if texts is None else [Step(content=text) for text in texts]
    return sample


def step_scores(sample: DataSample) -> list[list[float | None]]:
    return [[step.reward.score for step in output.steps or ()] for output in sample.output]


def test_each_step_sees_the_steps_up_to_itself() -> None:
    scored = StepRule().evaluate(with_steps(["a", "a b", "a b c"], ["a b"]))
    assert step_scores(scored) == [[101.0, 202.0, 303.0], [102.0]]
    assert scores(scored) == [None, None], "answers are not scored by a reward of steps"
    assert issues(scored) == []


def test_an_answer_without_steps_says_so() -> None:
    scored = StepRule().evaluate(with_steps(None, ["a"], []))
    assert issues(scored) == [("unscored", "no_steps")] * 2
    assert step_scores(scored) == [[], [101.0], []]


def test_an_unreadable_step_leaves_its_neighbours_scored() -> None:
    reply = FakeLLM(reply=lambda question: "?" if question.endswith("bad") else longest(question))
    judge = StepJudge(llm=reply, repair_attempts=0)
    scored = judge.evaluate(with_steps(["a", "bad", "a b"]))
    assert step_scores(scored) == [[1.0, None, 2.0]]
    assert judge.score_of_output(scored.output[0]) is None, "the answer is not ranked by some of its steps"
    steps = scored.output[0].steps or []
    assert [[issue.reason for issue in step.reward.issues] for step in steps] == [[], ["parse"], []]


def test_a_second_evaluation_replaces_the_first() -> None:
    once = StepRule().evaluate(with_steps(["a", "b"]))
    assert StepRule().evaluate(once) == once
