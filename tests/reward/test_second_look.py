"""Which missing scores may be the answer's own doing, and what is asked to find out: one rule for
rewards and graders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import orjson
import pytest

from rm_gallery import (
    BaseGrader,
    BasePointWiseReward,
    BaseReward,
    DataSample,
    FakeLLM,
    FunctionGrader,
    GraderScore,
    LLMGrader,
    RewardRegistry,
    RewardResult,
    RunOptions,
    Score,
    rule,
)
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.reward.blame import TRIALS
from rm_gallery.core.reward.outputs import NEUTRAL, may_be_the_answers_doing
from rm_gallery.core.score import NOT_BEGUN
from rm_gallery.core.utils.errors import Cause
from tests.reward.rewards import scored
from tests.support.samples import make_sample, through


def blamed_at(made: Any, text: str, **options: Any) -> tuple[float | None, Cause | None]:
    """Score and cause of an answer that is looked at twice, by a reward or a grader."""
    options = {"blame": "probe", "cache": False, **options}
    if isinstance(made, BaseReward) and not isinstance(made, BaseGrader):
        said = made.evaluate(make_sample(text), **options).output[0].answer.reward
        return said.score, said.issues[0].cause if said.issues else None
    graded = made.evaluate({"query": "q", "response": text}, options=RunOptions(**options))
    return (graded.score, None) if isinstance(graded, GraderScore) else (None, graded.cause)


class Shaky(BasePointWiseReward):
    """Breaks the first time."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)
    seen: ClassVar[list[str]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, shaky_number(sample.output[0].answer.text))


def shaky_number(response: str) -> float:
    Shaky.seen.append(response)
    if len(Shaky.seen) == 1:
        raise KeyError("a race")
    return 0.75


def shaky_judge() -> BasePointWiseRubricReward:
    def reply(messages: Any) -> str:
        Shaky.seen.append(NEUTRAL if NEUTRAL in str(messages) else "x")
        return "no verdict" if len(Shaky.seen) == 1 else "<reason>fine</reason><score>7</score>"

    return BasePointWiseRubricReward(llm=FakeLLM(reply=reply), repair_attempts=0)


def shaky_asked() -> LLMGrader:
    prompt = "{{response}}"
    return LLMGrader(
        name="read", model=shaky_judge().llm, prompt=prompt, score_range=(1, 10), repair_attempts=0
    )


@pytest.mark.parametrize(
    ("made", "judged"),
    [
        (Shaky, False),
        (lambda: Shaky(), False),
        (lambda: FunctionGrader(shaky_number, score_range=(0.0, 1.0)), False),
        (shaky_judge, True),
        (lambda: shaky_judge(), True),
        (shaky_asked, True),
        (lambda: shaky_asked(), True),
    ],
    ids=["rule", "its grader", "function", "judge", "its grader", "judging grader", "its reward"],
)
def test_what_breaks_once_is_tried_again(made: Callable[[], Any], judged: bool) -> None:
    """A judge's verdict counts where it can be read every time, so that nobody is asked about until
    a verdict pleases.
    """
    Shaky.seen.clear()
    assert blamed_at(made(), "x") == (7.0 if judged else 0.75, None)
    assert Shaky.seen == ["x"] * (TRIALS if judged else 2)


class SlowJudge(BasePointWiseReward):
    """Stands for one that waits for a judge, where the answer says so until the end of the test."""

    judged = True
    score_range: tuple[float | None, float | None] = (0.0, 1.0)
    awake: ClassVar[threading.Event] = threading.Event()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        assert sample.output[0].answer.text != "sleep" or self.awake.wait(200)
        return scored(self.name, 1.0)


@pytest.mark.parametrize("made", [SlowJudge(), SlowJudge()], ids=["reward", "grader"])
def test_the_deadline_of_a_judge_is_no_doing_of_the_answer(made: Any) -> None:
    SlowJudge.awake.clear()
    try:
        assert blamed_at(made, "sleep", deadline=0.5) == (None, "caller")
    finally:
        SlowJudge.awake.set()
    assert blamed_at(made, "work", deadline=60.0) == (1.0, None)


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("cause", get_args(Cause))
def test_which_outcomes_may_be_the_answers_doing(cause: Cause, judged: bool) -> None:
    def suspects(reason: str) -> bool:
        return may_be_the_answers_doing(
            judged, Score(None, "why", status="failed", cause=cause, code=reason)
        )

    assert suspects("error") is (cause in ("judge", "rule"))
    assert suspects("deadline") is (cause in ("judge", "rule") or not judged)
    assert not any(map(suspects, NOT_BEGUN)) and not may_be_the_answers_doing(judged, Score(1.0))


def breaks_at_once(response: str) -> float:
    """1, but KeyError on a text that says "breaks"."""
    if "breaks" in response:
        raise KeyError("breaks")
    return 1.0


@pytest.mark.parametrize(
    "door", ["evaluate", "async_evaluate", "evaluate_batch", "evaluate_stream"]
)
def test_a_rule_that_is_called_at_once_is_looked_at_twice_at_every_door(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))
    rule("blame_at_once", inline=True)(breaks_at_once)
    made = RewardRegistry.create("blame_at_once")
    sample = make_sample("it breaks")
    [plain] = through(door, made, [sample])
    [issue] = plain.output[0].answer.reward.issues
    assert (issue.status, issue.cause) == ("failed", "rule")
    [looked] = through(door, made, [sample], blame="probe")
    assert looked.output[0].answer.reward.score == 0.0


class OnlyOnce(BasePointWiseReward):
    """Breaks on one answer whenever it is asked, and asks a model."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)
    llm: ClassVar[FakeLLM] = FakeLLM(reply="fine")

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await self.llm.achat(sample.output[0].answer.text)
        if sample.output[0].answer.text == "boom":
            raise KeyError("boom")
        return scored(self.name, 0.5)


@pytest.mark.parametrize(
    "door", ["evaluate_batch", "evaluate_stream", "async_evaluate_batch", "async_evaluate_stream"]
)
def test_what_a_second_look_found_and_asked_is_in_the_folder_of_its_run(
    tmp_path: Path, door: str
) -> None:
    samples = [make_sample(f"{number}") for number in range(8)] + [make_sample("boom")]
    options: dict[str, Any] = {"blame": "probe", "run_dir": str(tmp_path / "run"), "cache": False}

    judged = partial(through, door, samples=samples, **options)
    found = judged(reward=OnlyOnce())[-1].output[0].answer.reward
    assert (found.score, found.issues) == (0.0, [])
    lines = (tmp_path / "run" / "results.jsonl").read_bytes().splitlines()
    records = [orjson.loads(line) for line in lines]
    last = {record["key"]: record["status"] for record in records}
    assert list(last.values()) == ["scored"] * 9
    summary = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert (summary["samples"]["scored"], summary["samples"]["failed"]) == (9, 0)
    assert summary["spent"]["calls"] > 9, "the trials are on the bill of the run"
    again = judged(reward=OnlyOnce())[-1].output[0].answer.reward
    assert again.score == 0.0
    summary = orjson.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert summary["samples"]["reused"] == 9, "what is settled is not judged again"


class NotAlways(BasePointWiseReward):
    """Gives no number for one answer whenever it is asked."""

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        return scored(self.name, 1.0) if sample.output[0].answer.text != "boom" else "no number"


def test_what_was_found_is_not_compared_with_what_the_code_says(tmp_path: Path) -> None:
    """A run that was cut off goes on: its records are made again, and there nobody looks twice."""
    samples = [make_sample("boom"), *(make_sample(f"{number}") for number in range(3))]
    for n in (2, 4):
        found = NotAlways().evaluate_batch(samples[:n], blame="probe", run_dir=str(tmp_path))
        assert [one.output[0].answer.reward.score for one in found] == [0.0, 1.0, 1.0, 1.0][:n]
