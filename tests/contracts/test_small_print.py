"""Sentences of the documentation that one forgotten condition or argument would make untrue: what is
said of answers, how the parts of a whole are asked, and what graders are told.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BaseListWiseReward,
    BaseLLMReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BasePromptTemplate,
    BaseReward,
    BaseStepWiseReward,
    Budget,
    Cascade,
    ChatMessage,
    ConfigError,
    DataSample,
    FakeLLM,
    FunctionGrader,
    Gate,
    GraderConfig,
    GraderScore,
    GradingRunner,
    OpenaiLLM,
    RewardRegistry,
    Score,
    Stage,
    Step,
    TurnRewards,
    Unscored,
    WeightedSum,
    reward_function,
    rule,
)
from rm_gallery.core.graders.strategy import TournamentGrader, VotingGrader
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.reward.turn_rewards import turn_rewards_of
from rm_gallery.core.score import Detail
from tests.reward.rewards import PairJudge, longest
from tests.reward.turns import Words, trajectory
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores

Range = tuple[float | None, float | None]
_numbers = itertools.count()


class Says(BasePointWiseReward):
    """What it is told to say."""

    score_range: Range = (0.0, 1.0)
    said: Any

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        if isinstance(self.said, Exception):
            raise self.said
        said: Score[Any] = self.said
        return said


def registered(function: Callable[..., Any], **how: Any) -> BaseReward:
    """The reward of a function under `@rule`, of a name that no other test has."""
    name = f"small_print_{next(_numbers)}"
    rule(name, **how)(function)
    return RewardRegistry.create(name)


# -- what is said of an answer ----------------------------------------------------------------------


def test_scores_say_the_same_whether_or_not_they_are_kept(tmp_path: Path) -> None:
    reward = Says(said=Score(0.5, "half", extra={"found": "there"}))
    [[alone]] = reward.score_batch([make_sample("x")])
    [[kept]] = reward.score_batch([make_sample("x")], run_dir=str(tmp_path))
    assert alone.extra == kept.extra == {"found": "there"}
    assert (alone.value, alone.reason) == (kept.value, kept.reason) == (0.5, "half")


def test_of_two_rewards_of_one_name_each_gives_its_own_reason_for_no_score(tmp_path: Path) -> None:
    def silent(code: str) -> Says:
        return Says(
            name="silent", worst=float(code == "second"), said=Score(code=code, status="unscored")
        )

    first = silent("first").evaluate(make_sample("x"))
    [[second]] = silent("second").score_batch([first], run_dir=str(tmp_path))
    assert second.code == "second"


def test_a_value_stands_whoever_is_named_beside_it() -> None:
    assert scores(Says(said=Score(0.75, cause="answer")).evaluate(make_sample("x"))) == [0.75]


def test_what_was_measured_of_an_answer_that_broke_its_judge_is_kept() -> None:
    lost: Score[Any] = Score(None, "broken", {"tokens": 9.0}, "unscored", "answer", "empty")
    [output] = Says(said=lost).evaluate(make_sample("x")).output
    told = output.answer.reward.extra_data["Says"]
    assert output.answer.reward.score == 0.0
    assert (told["tokens"], told["caused_by"], told["reason"]) == (9.0, "answer", "empty")


def test_what_was_found_out_of_an_answer_without_a_score_is_kept_with_it() -> None:
    lost: Score[Any] = Score(None, "cut off", status="unscored", cause="data", extra={"tokens": 9})
    [output] = Says(said=lost).evaluate(make_sample("x")).output
    assert output.answer.reward.extra_data == {"Says": {"tokens": 9}}


def test_dimensions_of_what_has_no_score_make_none() -> None:
    depth = (Detail("depth", 0.5, ""),)
    lost: Score[Any] = Score(None, "refused", {}, "unscored", "data", "refused", details=depth)
    [output] = Says(said=lost).evaluate(make_sample("x")).output
    assert output.answer.reward.score is None
    assert [each.reason for each in output.answer.reward.issues] == ["refused"]


def test_an_error_of_the_run_ends_it_wherever_it_is_raised() -> None:
    class Misled(BasePairWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
            return Score((1.0, 0.0))

        def aggregate(self, n: int, margins: Mapping[tuple[int, int], list[float]]) -> list[float]:
            raise ConfigError("no such aggregation")

    with pytest.raises(ConfigError, match="no such aggregation"):
        Misled().evaluate(make_sample("x", "y"))


class Crowd(BasePointWiseReward):
    """Fills a batch of three; tells how many are judged at once."""

    score_range: Range = (0.0, None)
    going: ClassVar[list[int]] = []
    most: ClassVar[list[int]] = []

    @property
    def least_workers(self) -> int:
        return 3

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        self.going.append(1)
        self.most.append(len(self.going))
        await asyncio.sleep(0.05)
        self.going.pop()
        return Score(1.0)


def test_a_reward_that_fills_batches_has_so_many_workers_at_least() -> None:
    for ask in (
        lambda: Crowd(max_workers=1).evaluate(make_sample("x", "y", "z")),
        lambda: Crowd(max_workers=1).evaluate_batch([make_sample(text) for text in "xyz"], 1),
    ):
        Crowd.most.clear()
        ask()
        assert max(Crowd.most) == 3


# -- what a judge is shown --------------------------------------------------------------------------


class Peeking(BaseLLMReward, BasePointWiseReward):
    """A judge whose hook notes the answers it is shown."""

    seen: ClassVar[list[Step]] = []
    score_range: Range = (0.0, 1.0)
    template: type[BasePromptTemplate] | None = BasePromptTemplate

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        self.seen.append(sample.output[0].answer)
        raise Unscored("seen")


@pytest.mark.parametrize("label", [{}, {"rating": 5, "human_rating": 4}])
@pytest.mark.parametrize("earlier", [
    Score(None, "no", status="unscored", code="empty", cause="data"),
    Score(0.5, extra={"truth": "b"}),
])  # fmt: skip
def test_a_judge_sees_nothing_of_what_was_said_before(
    earlier: Score[Any], label: dict[str, Any]
) -> None:
    judged = Says(said=earlier).evaluate(make_sample("x"))
    judged.output[0].answer.label = {**label, "style": "terse"}
    Peeking.seen.clear()
    Peeking(llm=FakeLLM(reply="1")).evaluate(judged)
    [shown] = Peeking.seen
    assert shown.label == {"style": "terse"}
    said = shown.reward
    assert (said.score, said.issues, said.extra_data, said.sources) == (None, [], {}, {})


def test_a_group_of_which_pairs_were_left_to_another_run_has_no_scores_yet() -> None:
    judge = PairJudge(llm=FakeLLM(reply=longest))
    budget, sample = Budget(max_calls=2), make_sample("a", "a b", "a b c")
    [done] = judge.evaluate_batch([sample], 1, budget=budget, cache=False)
    assert scores(done) == [None, None, None]
    assert {reason for _, reason in issues(done)} == {"budget"}


def test_a_sample_that_the_budget_ended_in_the_middle_of_leaves_no_record(tmp_path: Path) -> None:
    def reply(messages: Any) -> str:
        return (
            "no verdict" if "sealed" in str(messages) else "<reason>fine</reason><score>7</score>"
        )

    judge = BasePointWiseRubricReward(llm=FakeLLM(reply=reply), repair_attempts=0)
    how: dict[str, Any] = {"cache": False, "run_dir": str(tmp_path)}
    sample, records = make_sample("sealed", "open"), tmp_path / "results.jsonl"
    [half] = judge.evaluate_batch([sample], 1, budget=Budget(max_calls=1), **how)
    assert [reason for _, reason in issues(half)] == ["parse", "budget"]
    assert not records.read_bytes()
    assert scores(judge.evaluate_batch([sample], 1, **how)[0]) == [None, 7.0]
    assert len(records.read_bytes().splitlines()) == 1


# -- how parts are asked ----------------------------------------------------------------------------


class Longest(BaseListWiseReward):
    """1 for the longest of the answers it sees."""

    score_range: Range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        lengths = [len(output.answer.text) for output in sample.output]
        return Score(tuple(float(length == max(lengths)) for length in lengths))


class Tagged(BasePointWiseReward):
    """1 for an answer in tags."""

    score_range: Range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        return Score(float("<a>" in sample.output[0].answer.text))


def test_a_part_that_compares_is_asked_about_each_choice_of_answers() -> None:
    made = WeightedSum({"among tagged": Gate(Tagged(), Longest()), "among all": Longest()})
    done = made.evaluate(make_sample("<a>", "<a>bc", "a long one"))
    assert scores(done) == [0.0, 1.0, 1.0]


class Dice(BasePointWiseReward):
    """Never the same twice."""

    score_range: Range = (0.0, None)
    deterministic: ClassVar[bool] = False
    thrown: ClassVar[list[float]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        self.thrown.append(float(len(self.thrown)))
        return Score(self.thrown[-1])


def test_a_part_that_never_says_the_same_is_asked_wherever_it_stands() -> None:
    Dice.thrown.clear()
    assert scores(WeightedSum({"one": Dice(), "other": Dice()}).evaluate(make_sample("x"))) == [1.0]


def test_where_the_last_stage_has_no_score_nobody_decides() -> None:
    silent = Says(name="silent", said=Unscored("nothing to see", reason="empty"))
    for policy in ("stop", "next"):
        cascade = Cascade(Stage(Tagged(), stop_below=0.0), Stage(silent, no_score=policy))
        [output] = cascade.evaluate(make_sample("x")).output
        [issue] = output.answer.reward.issues
        assert (issue.reason, issue.message) == ("empty", "silent: nothing to see")


# -- turns ------------------------------------------------------------------------------------------


def test_a_turn_without_a_score_has_no_reward_of_a_stepwise_reward_either() -> None:
    [output] = Words().evaluate(trajectory("one two", "unknown", "one")).output
    assert turn_rewards_of(Words(), output) == [0.2, None, 0.1]


def test_the_range_of_a_mean_holds_what_turns_get_that_the_outcome_is_not_credited_to() -> None:
    high = Says(name="high", score_range=(0.5, 1.0), said=Score(0.5))
    reward = TurnRewards(outcome=high, total="mean")
    [score] = scores(reward.evaluate(trajectory("one", "two")))
    assert (reward.score_range, score) == ((0.0, 1.0), 0.25)


def test_what_befalls_a_whole_sample_is_said_of_each_of_its_steps() -> None:
    class NoPlan(type(BaseStepWiseReward.kind)):  # type: ignore[misc]
        def jobs(self, reward: Any, sample: DataSample) -> list[Any]:
            raise KeyError("plan")

    class Planless(BaseStepWiseReward):
        kind = NoPlan("stepwise")

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
            return Score(1.0)

    [output] = Planless().evaluate(trajectory("one", "two")).output
    assert [[each.reason for each in turn.reward.issues] for turn in output.turns] == [
        ["error"]
    ] * 2


def test_scores_of_steps_leave_what_they_are_given_as_it_was() -> None:
    given = trajectory("one two", "one")
    before = given.model_dump_json()
    Words().evaluate(given)
    Words().evaluate_batch([given])
    assert given.model_dump_json() == before


def test_results_are_what_tools_answered_and_not_what_a_user_said() -> None:
    heard = dict[str, list[str]]()

    def listens(step: str, results: list[str]) -> float:
        heard[step] = results
        return 1.0

    registered(listens, mode="stepwise").evaluate(trajectory())
    assert heard.pop("I ask first.") == ["tools say a lot of words"]
    assert list(heard.values()) == [[], []], "a user said something to the second"


def test_the_original_messages_are_the_prompt_without_the_turns_that_followed() -> None:
    prompts = []

    @reward_function
    def listens(messages: list[dict[str, Any]], original_messages: list[dict[str, Any]]) -> float:
        prompts.append([turn["content"] for turn in original_messages])
        return float(len(messages) == 6)

    assert scores(listens.reward().evaluate(trajectory())) == [1.0]
    assert prompts == [["2 + 2?"]]


# -- what a rule is given ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.0, False, "", []])
def test_a_column_that_holds_nothing_much_is_there_all_the_same(value: Any) -> None:
    reward = registered(lambda answer, wanted: float(wanted == value and wanted is not None))
    assert scores(reward.evaluate(make_sample("x", metadata={"wanted": value}))) == [1.0]


# -- whose doing a missing score is -----------------------------------------------------------------


class Blind(BasePointWiseReward):
    """Can read nothing, and says of poison at once that it is to blame."""

    score_range: Range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        if sample.output[0].answer.text == "poison":
            raise Unscored("poison", reason="empty", cause="answer")
        raise KeyError("blind")


def test_an_answer_that_is_to_blame_proves_nobody_elses_guilt() -> None:
    samples = [make_sample("poison", unique_id="p"), make_sample("honest", unique_id="h")]
    poison, honest = Blind().evaluate_batch(samples, blame="probe")
    assert (scores(poison), scores(honest)) == ([0.0], [None])


def test_scores_alone_are_looked_at_twice_as_well() -> None:
    class Strict(BasePointWiseReward):
        score_range: Range = (0.0, 1.0)

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
            if sample.output[0].answer.text == "poison":
                raise KeyError("poison")
            return Score(1.0)

    samples = [make_sample(text, unique_id=text) for text in ("fine", "good", "well", "poison")]
    said = [score.value for [score] in Strict().score_batch(samples, blame="probe")]
    assert said == [1.0, 1.0, 1.0, 0.0]


def test_of_a_comparison_that_fails_the_best_of_the_others_stands_beside_it() -> None:
    asked = []

    class Errors(BasePairWiseReward):
        higher_is_better: bool = False

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
            texts = [output.answer.text for output in sample.output]
            asked.append(set(texts))
            if "broken" in texts:
                raise KeyError("broken")
            return Score(tuple(float(text.count("x")) for text in texts))

    Errors().evaluate_batch([make_sample("x", "xx", "broken", "xxx")], blame="probe")
    trials = asked[6:]
    assert trials and all("x" in pair for pair in trials if "broken" in pair)


def test_a_second_look_asks_anew_and_not_the_cache() -> None:
    readable = ["<reason>fine</reason><score>7</score>"] * 9
    with JudgeServer(["no verdict", *readable], in_process=True) as server:
        llm = OpenaiLLM("judge", base_url=server.base_url)
        judge = BasePointWiseRubricReward(llm=llm, repair_attempts=0)
        assert scores(judge.evaluate(make_sample("x"), blame="probe")) == [7.0]


# -- graders ----------------------------------------------------------------------------------------


def number(response: str) -> float:
    return float(response)


DOWN = [False]


def sometimes(response: str) -> float:
    if DOWN[0]:
        raise KeyError("down")
    return 1.0


def test_results_stand_in_the_order_of_the_graders_in_a_continued_run(tmp_path: Path) -> None:
    graders = {
        "first": FunctionGrader(sometimes, name="first", score_range=(0.0, 1.0)),
        "second": FunctionGrader(number, name="second", score_range=(0.0, 9.0)),
    }
    runner = GradingRunner(graders, show_progress=False)
    for DOWN[0] in (True, False):
        rows = list(runner.stream([{"response": "3"}], run_dir=str(tmp_path)))
    assert [list(row) for row in rows] == [["first", "second"]]
    assert rows[0]["first"].score == 1.0


def test_each_repetition_counts() -> None:
    asked = []

    def counts(response: str) -> float:
        asked.append(response)
        return float(len(asked))

    runner = GradingRunner(
        {"n": GraderConfig(FunctionGrader(counts, score_range=(0.0, 9.0)), repeat=2)},
        show_progress=False,
    )
    [result] = runner.run([{"response": "x"}])["n"]
    assert isinstance(result, GraderScore)
    assert (len(asked), result.score) == (2, 1.5)


def test_a_grader_without_a_deadline_is_waited_for_beside_others_that_have_one() -> None:
    def slow(response: str) -> float:
        time.sleep(0.6)
        return 1.0

    graders = {
        "slow": FunctionGrader(slow, score_range=(0.0, 1.0), deadline=None),
        "quick": FunctionGrader(number, name="quick", score_range=(0.0, 9.0), deadline=0.3),
    }
    [slow_one] = GradingRunner(graders, show_progress=False).run([{"response": "3"}])["slow"]
    assert slow_one.ok


def test_an_error_names_its_row_by_its_id_of_0() -> None:
    graders = {"n": GraderConfig(FunctionGrader(number, score_range=(0.0, 9.0)), on_error="raise")}
    rows = [{"id": 7, "response": "3"}, {"id": 0, "response": "three"}]
    with pytest.raises(ConfigError, match="of row 0:"):
        GradingRunner(graders, show_progress=False).run(rows)


def votes(*given: float | None, **settings: Any) -> tuple[Any, int]:
    """What comes of these votes, in this order, and how many were asked for."""
    left = list(given)

    def vote(response: str) -> Any:
        told = left.pop(0)
        if told is None:
            raise Unscored("silent")
        return Score(told, f"vote {len(given) - len(left)}")

    inner = FunctionGrader(vote, score_range=(0.0, 9.0), max_workers=1)
    made = VotingGrader(inner, n=len(given), **settings).evaluate({"response": "x"})
    return made, len(given) - len(left)


def test_the_reason_of_a_vote_is_that_of_one_who_gave_the_score() -> None:
    made, _ = votes(1.0, 2.0, 2.0)
    assert (made.score, made.reason) in ((2.0, "vote 2"), (2.0, "vote 3"))


def test_half_of_the_votes_are_too_few() -> None:
    made, _ = votes(2.0, 2.0, None, None)
    assert made.error_type == "votes"


def test_votes_that_could_still_draw_level_are_asked_for() -> None:
    made, asked = votes(2.0, 2.0, 1.0, 1.0, early_stop=True)
    assert (asked, made.score, made.metadata["tied"]) == (4, 1.0, True)


def test_who_wins_every_comparison_has_all_the_points() -> None:
    def longer(responses: list[str]) -> Score[Any]:
        return Score(tuple(float(len(text)) for text in responses))

    inner = FunctionGrader(longer, mode="listwise")
    made = TournamentGrader(inner).evaluate({"responses": ["xx", "xxx", "x"]})
    assert made.metadata["points"] == [0.5, 1.0, 0.0] and made.rank == [2, 1, 3]
    assert (made.metadata["pairs"], made.metadata["flips"]) == (3, 0)


def test_the_history_is_what_was_said_before_the_query() -> None:
    told = []

    def listens(history: list[dict[str, Any]], query: str, response: str) -> float:
        told.append(([turn["content"] for turn in history], query, response))
        return 1.0

    sample = make_sample("x", query="Why?")
    sample.input[:0] = [ChatMessage(content="Where?")]
    assert scores(FunctionGrader(listens).evaluate(sample)) == [1.0]
    assert told == [(["Where?"], "Why?", "x")]
