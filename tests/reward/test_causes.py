"""Every missing score has an author, and what the answer itself caused is the worst score."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePointWiseReward,
    ConfigError,
    DataError,
    DataSample,
    FakeLLM,
    FunctionGrader,
    GraderError,
    GradingRunner,
    LLMGrader,
    ParseError,
    ProviderError,
    RewardResult,
    RMGalleryError,
    RunOptions,
    Unscored,
    reward_function,
)
from rm_gallery.core.engine import pool
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.reward.outputs import PLAIN, said_of
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.utils.errors import BudgetExceeded, Cause, DeadlineExceeded, ScoreError
from tests.reward.rewards import scored
from tests.support.samples import make_sample

RAISED: dict[str, tuple[Exception, Cause]] = {
    "an endpoint": (ProviderError("503", kind="transient"), "endpoint"), "a reply": (ParseError("no score"), "judge"),
    "a model's number": (ScoreError("nan"), "judge"), "a row": (DataError("no column"), "data"),
    "no reference": (Unscored("none", reason="no_reference"), "data"), "declared": (Unscored("not for this"), "rule"),
    "a defect": (KeyError("x"), "rule"), "the library's": (RMGalleryError("x"), "rule"),
    "the clock": (DeadlineExceeded("late"), "caller"),
    "the clock of an endpoint": (DeadlineExceeded("late", cause="endpoint"), "endpoint"),
    "the budget": (BudgetExceeded("spent"), "caller"),
    "the answer": (Unscored("no code", reason="no_code", cause="answer"), "answer"),
}  # fmt: skip


class Raising(BasePointWiseReward):
    """Raises what it is told to; its range is open."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        raise RAISED[str(sample.output[0].answer.text)][0]


class Closed(Raising):
    score_range: tuple[float | None, float | None] = (-1.0, 2.0)


class Costs(Closed):
    higher_is_better: bool = False


@pytest.mark.parametrize("name", RAISED)
def test_an_error_says_who_caused_it_at_every_door(name: str) -> None:
    cause = RAISED[name][1]
    reward = Raising()
    for done in (
        reward.evaluate(make_sample(name)),
        *reward.evaluate_batch([make_sample(name)], max_workers=2),
    ):
        (issue,) = done.output[0].answer.reward.issues
        assert issue.cause == said_of(reward, done.output[0]).cause == cause
    graded = reward.evaluate(query="q", response=name)
    assert isinstance(graded, GraderError) and graded.cause == cause
    back = reward
    assert said_of(back, back.evaluate(make_sample(name)).output[0]).cause == cause


@pytest.mark.parametrize(
    ("reward", "score"),
    [(Closed(), -1.0), (Costs(), 2.0), (Raising(worst=-3.0), -3.0), (Closed(worst=0.5), 0.5)],
)
def test_what_the_answer_caused_is_the_worst_score_and_says_so(
    reward: BasePointWiseReward, score: float
) -> None:
    said = reward.evaluate(make_sample("the answer")).output[0].answer.reward
    assert (said.score, said.issues, said.details[0].reason) == (score, [], "no code")
    assert said.extra_data[reward.name] == {"caused_by": "answer", "reason": "no_code"}
    assert reward.evaluate(make_sample("a reply")).output[0].answer.reward.score is None


def test_the_worst_score_is_a_setting_like_any_other() -> None:
    rewards = (Raising(worst=-3.0), Raising(worst=-2.0), Raising())
    assert len({reward.settings_hash for reward in rewards}) == 3
    assert "worst" not in Raising().describe()
    with pytest.raises(ConfigError, match="worst"):
        Closed(worst=7.0)


# -- who broke it ----------------------------------------------------------------------------------


@reward_function(score_range=(None, 1))
def brittle(messages: list[Any], **kwargs: Any) -> float:
    """Breaks at what is no number."""
    return min(1.0, float(messages[-1]["content"]))


class Slow(BasePointWiseReward):
    """Waits for the end of the test where the answer says so."""

    awake: ClassVar[threading.Event] = threading.Event()

    score_range: tuple[float | None, float | None] = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        assert sample.output[0].answer.text != "sleep" or self.awake.wait(200)
        return scored(self.name, 1.0)


def judge(**settings: Any) -> BasePointWiseRubricReward:
    """Reads every answer but the one with a trap in it."""

    def reply(messages: Any) -> str:
        text = str(messages)
        lost = "TRAP" in text or "HOPELESS" in text
        return "no verdict" if lost else "<reason>fine</reason><score>7</score>"

    return BasePointWiseRubricReward(llm=FakeLLM(reply=reply), repair_attempts=0, **settings)


@pytest.mark.parametrize(("reward", "sample", "score", "cause"), [
    (build_reward(brittle), make_sample("nonsense", reference="1"), None, "answer"),
    (build_reward(brittle), make_sample("nonsense", reference="also nonsense"), None, "rule"),
    (build_reward(brittle), make_sample("0.5", reference="1"), 0.5, None),
    (judge(), make_sample("TRAP"), 1.0, None),
    (judge(), make_sample("an answer", query="HOPELESS"), None, "judge"),
    (Closed(), make_sample("an endpoint", reference="a reply"), None, "endpoint"),
    (Closed(), make_sample("no reference", reference="a reply"), None, "data"),
])  # fmt: skip
def test_a_neutral_answer_in_its_place_tells_who_broke_it(
    reward: Any, sample: DataSample, score: float | None, cause: Cause | None
) -> None:
    options = RunOptions(blame="probe")
    for done in (
        reward.evaluate(sample, options=options),
        *reward.evaluate_batch([sample], options=options),
        *reward.evaluate_stream([sample], options=options),
    ):
        said = done.output[0].answer.reward
        assert said.score == score and (said.issues[0].cause if said.issues else None) == cause
    without = reward.evaluate(sample).output[0].answer.reward
    assert (without.score, bool(without.issues)) == ((0.5, False) if score == 0.5 else (None, True))


def test_an_answer_that_makes_a_rule_slow_is_to_blame_and_a_quarter_of_the_deadline_finds_out() -> (
    None
):
    sleeper, quick = make_sample("sleep"), make_sample("work")
    Slow.awake.clear()
    try:
        done = Slow().evaluate_batch(
            [sleeper, quick] * 4, max_workers=8, deadline=2.0, blame="probe"
        )
        assert not Slow.awake.is_set(), "nobody waits for the sleepers"
    finally:
        Slow.awake.set()
    assert [each.output[0].answer.reward.score for each in done] == [0.0, 1.0] * 4


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_the_answers_own_doing_is_not_told_as_failed(
    streamed: bool, warned: list[str]
) -> None:
    samples = [make_sample(text, reference="1") for text in ("nonsense", "more of it", "0.5")]
    reward = reward_function(score_range=(0.0, 1.0))(brittle).reward()
    options = RunOptions(blame="probe", control=(control := RunControl()))
    judged = reward.evaluate_stream if streamed else reward.evaluate_batch
    done = list(judged(samples, options=options))
    assert len(done) == 3 and control.progress.failed == 0 and warned == []
    hopeless = [make_sample("nonsense", reference="as bad")]
    another = reward_function(score_range=(0.0, 1.0))(brittle).reward()
    another.evaluate_batch(hopeless, options=options)
    assert (
        control.progress.failed == 1 and len(warned) == 1 and "of 1 samples 1 failed" in warned[0]
    ), "no neighbour says that another answer would have had a score"


def numeric(response: str) -> float:
    return float(response)


def test_blame_means_the_same_for_graders(tmp_path: Path) -> None:
    how: dict[str, Any] = {"score_range": (0, 10), "repair_attempts": 0}
    asking = LLMGrader(name="read", model=judge().llm, prompt="{{response}}", **how)
    counting = FunctionGrader(numeric, score_range=(0.0, 1.0))
    rows = [{"response": text, "reference_response": "1"} for text in ("TRAP", "0.5")]
    for grader, scores in ((asking, [0.0, 7.0]), (counting, [0.0, 0.5])):
        how = {"blame": "probe"}
        found = [
            *grader.evaluate_batch(rows, **how),
            *(grader.evaluate(row, options=RunOptions(**how)) for row in rows),
        ]
        for _ in range(2):
            runner = GradingRunner({"x": grader}, show_progress=False)
            found += runner.run(rows, run_dir=tmp_path / grader.name, **how)["x"]
        assert [getattr(each, "score", None) for each in found] == scores * 4
        assert not grader.evaluate_batch(rows)[0].ok


class Sleeper(Slow):
    """The same in a process that can be killed."""

    cpu_bound: ClassVar[bool] = True


class VirtualPool:
    """Runs each job here, at once; one that would sleep is killed at its deadline, which is noted."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    async def asubmit(
        self,
        function: Callable[..., Any],
        reward: Slow,
        sample: DataSample,
        *rest: Any,
        deadline: float,
        urgent: bool = False,
    ) -> RewardResult:
        self.deadlines.append(deadline)
        if sample.output[0].answer.text == "sleep":
            raise DeadlineExceeded(f"No result within the deadline of {deadline:g} s.")
        found: RewardResult = function(reward, sample, *rest)
        return found


class OnlyPlain(Sleeper):
    """Reads a number or JSON alone."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if sample.output[0].answer.text not in ("sleep", *PLAIN):
            raise ValueError("no number")
        return super()._evaluate(sample)


def test_a_rule_that_can_be_killed_finds_out_at_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper, quick, jobs = make_sample("sleep"), make_sample("work"), VirtualPool()
    monkeypatch.setattr(pool, "get_pool", lambda: jobs)
    done = Sleeper().evaluate_batch([sleeper, quick], deadline=6.0)
    assert [each.output[0].answer.reward.score for each in done] == [0.0, 1.0]
    assert Sleeper(deadline=6.0).evaluate(query="q", response="sleep").ok
    jobs.deadlines.clear()
    only_plain = OnlyPlain().evaluate(make_sample("sleep"), deadline=6.0)
    assert only_plain.output[0].answer.reward.score == 0.0, "every stand-in is tried"
    assert jobs.deadlines == pytest.approx([4.5, 0.5, 0.5]), (
        "three quarters for the answer, the rest for three stand-ins"
    )
