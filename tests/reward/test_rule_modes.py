"""Functions that judge a step, or all answers to a prompt: what they are given, and what they give."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    Combined,
    ConfigError,
    DataError,
    DataSample,
    FakeLLM,
    Gate,
    GraderScore,
    GradingRunner,
    RewardRegistry,
    RunOptions,
    Score,
    TurnRewards,
    Unscored,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.runner.aggregator import (
    GeometricMeanAggregator,
    MaxAggregator,
    MinAggregator,
    WeightedSumAggregator,
)
from rm_gallery.integrations.episodes import EpisodeRewards
from tests.support.rules import rule_class

Message = dict[str, Any]
_numbers = itertools.count()
ASKED: Message = {"role": "user", "content": "How old is the bridge?"}


def call(name: str, told: str = "") -> Message:
    """A turn that calls a tool."""
    made = {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": told, "tool_calls": [made]}


def result(name: str, said: str) -> Message:
    """What that tool answered."""
    return {"role": "tool", "tool_call_id": name, "content": said}


TALK = [
    ASKED,
    call("map", "<think>where?</think>Let me see."),
    result("map", "It stands in Rome."),
    result("map", "It is closed."),
    call("date"),
    result("date", "62 BC"),
    {"role": "assistant", "content": "It is 2,087 years old."},
]


def registered(function: Callable[..., Any], **how: Any) -> BaseReward:
    """The reward of a function under `@rule`, of a name that no other test has."""
    return rule_class(f"rule_of_mode_{next(_numbers)}", function, **how)()


def steps_of(reward: BaseReward, sample: DataSample) -> list[Any]:
    """What is written of each turn: its score, or why there is none."""
    [output] = reward.evaluate(sample).output
    return [
        turn.reward.score if turn.reward.issues == [] else turn.reward.issues[0].reason
        for turn in output.turns
    ]


def test_a_step_rule_sees_each_turn_what_its_tools_answered_and_what_was_before() -> None:
    seen = []

    def listens(step: str, results: list[str], history: list[Any], era: str = "") -> float:
        seen.append((step, results, [turn.role.value for turn in history], era))
        return len(results) / 2

    sample = sample_of_messages(TALK, ground_truth="62 BC")
    sample.metadata = {**(sample.metadata or {}), "era": "antiquity"}
    reward = registered(listens, mode="stepwise")
    assert reward.kind == "stepwise" and steps_of(reward, sample) == [1.0, 0.5, 0.0]
    assert sorted(seen, key=lambda one: len(one[2])) == [
        ("Let me see.", ["It stands in Rome.", "It is closed."], ["user"], "antiquity"),
        ("", ["62 BC"], ["user", "assistant", "tool", "tool"], "antiquity"),
        (
            "It is 2,087 years old.",
            [],
            ["user", "assistant", "tool", "tool", "assistant", "tool"],
            "antiquity",
        ),
    ]


def test_the_steps_of_a_solution_are_no_turns_of_a_conversation() -> None:
    sample = DataSample.model_validate(
        {
            "input": [ASKED],
            "output": [
                {
                    "answer": {"content": "12"},
                    "steps": [{"content": "2 * 3 = 6."}, {"content": "2 + 6 = 12."}],
                }
            ],
        }
    )

    def counts(step: str, results: list[str], history: list[Any]) -> float:
        return (len(history) + 10 * len(results)) / 10

    assert steps_of(registered(counts, mode="stepwise"), sample) == [0.1, 0.2]


def test_a_step_that_a_rule_does_not_apply_to_has_no_score_and_costs_no_other() -> None:
    def of_words(answer: str) -> float | None:
        return 1.0 if answer else None

    reward = registered(of_words, mode="stepwise")
    assert steps_of(reward, sample_of_messages(TALK)) == [1.0, "not_applicable", 1.0]


def of_results(step: str, results: list[str]) -> float:
    """How much the tools said, where the step says as much."""
    return min(1.0, len("".join(results)) / 100) if step or results else 0.0


@reward_function(mode="stepwise")
def heard(messages: list[dict[str, Any]], response: str, **_: Any) -> float:
    """How much was said after the turn."""
    last = max(at for at, turn in enumerate(messages) if turn["role"] == "assistant")
    return min(1.0, len("".join(turn["content"] for turn in messages[last + 1 :])) / 100)


@reward_function(mode="stepwise")
async def heard_async(messages: list[dict[str, Any]], **_: Any) -> float:
    """As `heard`."""
    await asyncio.sleep(0)
    return float(heard(messages=messages).score)


STEPPED: dict[str, Callable[[], BaseReward]] = {
    "rule": lambda: registered(of_results, mode="stepwise"),
    "function": heard.reward,
    "async function": heard_async.reward,
}


@pytest.mark.parametrize("kind", STEPPED)
def test_an_episode_pays_the_very_numbers_of_the_finished_trajectory(kind: str) -> None:
    reward = STEPPED[kind]()
    whole = steps_of(reward, sample_of_messages(TALK))
    assert whole == [pytest.approx(0.31), 0.05, 0.0]
    episode = EpisodeRewards(reward).episode([ASKED])
    paid = [episode.step(TALK[1:4]), episode.step(TALK[4:6]), episode.step(TALK[6:], done=True)]
    assert paid == whole
    with pytest.raises(ConfigError, match=r"step\(\[turn, \*results\]\)"):
        EpisodeRewards(reward).episode([ASKED]).step(TALK[1])


def test_an_episode_needs_no_results_for_a_rule_that_reads_none() -> None:
    def short(step: str) -> float:
        return float(len(step) < 20)

    episode = EpisodeRewards(registered(short, mode="stepwise")).episode([ASKED])
    assert [episode.step(TALK[1]), episode.step(TALK[6], done=True)] == [1.0, 0.0]


def group(*answers: str) -> DataSample:
    """Answers to one prompt."""
    rows = [sample_of_messages([ASKED, {"role": "assistant", "content": a}]) for a in answers]
    return rows[0].model_copy(update={"output": [row.output[0] for row in rows]})


def rank(answers: Sequence[str], texts: list[str], prompt: str) -> list[float]:
    """By length among the group."""
    assert prompt == ASKED["content"] and len(texts) == len(answers)
    return [len(one) / max(map(len, answers)) for one in answers]


async def rank_async(answers: Sequence[str]) -> list[float]:
    """As `rank`."""
    await asyncio.sleep(0)
    return [len(one) / max(map(len, answers)) for one in answers]


@pytest.mark.parametrize("function", [rank, rank_async])
def test_a_batch_rule_sees_all_answers_and_says_something_of_each(
    function: Callable[..., Any],
) -> None:
    reward = registered(function, mode="batch")
    scored = reward.evaluate(group("<think>long thoughts</think>ab", "abcd"))
    assert reward.kind == "listwise"
    assert [output.answer.reward.score for output in scored.output] == [0.5, 1.0]


def test_of_a_group_each_answer_alone_lacks_what_it_lacks() -> None:
    def some(answers: list[str]) -> list[Any]:
        return [None if not one else Score(1.0, reason="words") for one in answers]

    [scores] = registered(some, mode="batch").score_batch([group("a", "", "b")])
    assert [score.value for score in scores] == [1.0, None, 1.0]
    assert (scores[1].code, scores[0].reason) == ("not_applicable", "words")


@pytest.mark.parametrize("given", [[1.0], 1.0, "ab", b"\x00\x01", None])
def test_a_batch_rule_that_gives_another_number_of_results_scores_nobody(given: Any) -> None:
    def wrong(answers: list[str]) -> Any:
        return given

    reward = registered(wrong, mode="batch")
    [scores] = reward.score_batch([group("a", "b")])
    assert {score.value for score in scores} == {None}
    assert all(reward.name in score.reason and "2 answers" in score.reason for score in scores)


def test_a_mode_that_does_not_fit_is_refused_where_it_is_written() -> None:
    def bare(answer: str) -> float:
        return 1.0

    for how, said in (
        ({"mode": "listwise"}, "pointwise, stepwise, batch"),
        ({"mode": "stepwise", "killable": True}, "killable"),
        ({"mode": "batch"}, "answers, responses, texts, outputs"),
    ):
        with pytest.raises(ConfigError, match=said):
            registered(bare, **how)
    with pytest.raises(ConfigError, match="pointwise, stepwise, batch"):
        reward_function(mode="listwise")(bare)  # type: ignore[call-overload]


# -- scores alone ----------------------------------------------------------------------------------


class Raising(BasePointWiseReward):
    """Raises for what is short."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        if len(sample.output[0].answer.text) < 2:
            raise Unscored("short", reason="short")
        return Score(0.5, "long", extra={"seen": True})


def judge(name: str) -> BaseReward:
    """A judge that names the first answer, or gives it 7."""
    reply = "<reason>fine</reason><score>7</score><best>1</best>"
    made: BaseReward = RewardRegistry.create(name, llm=FakeLLM(reply=reply))
    return made


SCORED: dict[str, Callable[[], BaseReward]] = {
    "rule": lambda: RewardRegistry.create("length_baseline"),
    "raises": lambda: Raising(name="raising"),
    "pointwise judge": lambda: judge("base_helpfulness_pointwise"),
    "listwise judge": lambda: judge("safety_listwise_reward"),
    "pairwise judge": lambda: judge("base_helpfulness_pairwise"),
    "stepwise": lambda: registered(of_results, mode="stepwise"),
    "batch": lambda: registered(rank, mode="batch"),
    "function": heard.reward,
    "sum": lambda: WeightedSum({"a": Raising(name="raising"), "b": "length_baseline"}),
}


@pytest.mark.parametrize("kind", SCORED)
@pytest.mark.parametrize("how", ["here", "in a folder", "looked at again"])
def test_scores_alone_are_those_that_are_written(kind: str, how: str, tmp_path: Any) -> None:
    reward = SCORED[kind]()
    samples = [group("a longer one", "b", "and one more"), sample_of_messages(TALK)]
    options = {
        "here": RunOptions(),
        "in a folder": RunOptions(run_dir=str(tmp_path / "run")),
        "looked at again": RunOptions(blame="probe"),
    }[how]
    done = reward.evaluate_batch(samples, options=options, max_workers=4)
    for scores in (
        reward.score_batch(samples, options=options, max_workers=4),
        asyncio.run(reward.async_score_batch(samples, options=options, max_workers=4)),
    ):
        for sample, said in zip(done, scores, strict=True):
            assert [score.value for score in said] == [
                reward.score_of_output(output) for output in sample.output
            ]
            missing = {score.code for score in said if score.value is None}
            issues = [issue for output in sample.output for issue in output.answer.reward.issues]
            assert missing == {issue.reason for issue in issues}
    assert not any(output.answer.reward.details for output in samples[0].output)


def test_the_door_that_was_asked_is_named() -> None:
    with pytest.raises(DataError, match="score_batch got one DataSample"):
        judge("base_helpfulness_pointwise").score_batch(group("a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("silent", [1, 4, 6], ids=["first turn", "middle turn", "last turn"])
def test_a_run_whose_turn_was_blamed_is_continued(silent: int, tmp_path: Any) -> None:
    def of_words(answer: str) -> float | None:
        return len(answer) / 100 if answer else None

    talks = [[{**turn, "content": turn["content"] or "I ask."} for turn in TALK] for _ in range(4)]
    for number, talk in enumerate(talks):
        talk[0] = {**ASKED, "content": f"How old is bridge {number}?"}
    talks[0][silent] = {**talks[0][silent], "content": ""}
    samples = list(map(sample_of_messages, talks))
    step_rule = registered(of_words, mode="stepwise")
    for reward in (
        TurnRewards(steps=step_rule),
        WeightedSum({"turns": TurnRewards(steps=step_rule), "length": "length_baseline"}),
    ):
        options = RunOptions(run_dir=str(tmp_path / reward.name), blame="probe")
        first = reward.score_batch(samples, options=options)
        assert first[0][0].value is not None
        assert reward.score_batch(samples, options=options) == first


# -- one part under several names ------------------------------------------------------------------


class Counting(BasePointWiseReward):
    """Notes what it is asked about."""

    score_range = (0.0, 1.0)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        _asked.append(sample.output[0].answer.text)
        await asyncio.sleep(0.001)
        return Score(0.5)


_asked: list[str] = []


@pytest.mark.parametrize("depth", ["side by side", "at any depth", "behind a gate"])
def test_a_part_that_stands_twice_in_a_composition_is_asked_once(depth: str) -> None:
    one, other = Counting(name="one"), Counting(name="one")
    _asked.clear()
    made: dict[str, BaseReward] = {
        "side by side": WeightedSum({"a": one, "b": other}),
        "at any depth": WeightedSum({"a": one, "b": WeightedSum({"c": other, "d": one})}),
        "behind a gate": Gate(one, WeightedSum({"a": other, "b": one}), threshold=0.5),
    }
    scored = made[depth].evaluate_batch([group("x", "y"), group("z")])
    assert sorted(_asked) == ["x", "y", "z"]
    total = {"side by side": 1.0, "at any depth": 1.5, "behind a gate": 1.0}[depth]
    assert [o.answer.reward.score for s in scored for o in s.output] == [total] * 3
    _asked.clear()
    WeightedSum({"a": one, "b": Counting(name="another")}).evaluate(group("x"))
    assert _asked == ["x", "x"], "rewards of other settings are others"


# -- one formula under one name --------------------------------------------------------------------


PARTS = {"a": 0.25, "b": 0.5, "c": 1.0}
WEIGHTS = {"a": 2.0, "b": 1.0, "c": 1.0}


class Given(BasePointWiseReward):
    """Gives what its name stands for."""

    score_range = (0.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        if self.name == "none":
            raise Unscored("nothing to judge by", reason="nothing")
        return Score(PARTS[self.name])


@pytest.mark.parametrize(
    ("how", "aggregator", "wanted"),
    [
        ("weighted_mean", lambda: WeightedSumAggregator("whole", weights=WEIGHTS), 0.5),
        ("min", lambda: MinAggregator("whole"), 0.25),
        ("max", lambda: MaxAggregator("whole"), 1.0),
        ("geometric_mean", lambda: GeometricMeanAggregator("whole"), 0.5),
    ],
)
def test_equal_names_give_equal_figures(
    how: Any, aggregator: Callable[[], Any], wanted: float
) -> None:
    weights = WEIGHTS if how == "weighted_mean" else None
    parts = {name: Given(name=name) for name in PARTS}
    [[one]] = Combined(parts, weights, how=how).score_batch([group("x")])
    runner = GradingRunner(dict(parts), aggregator(), show_progress=False)
    [other] = runner.run([{"query": "q", "response": "x"}])["whole"]
    assert isinstance(other, GraderScore)
    assert one.value == pytest.approx(wanted)
    assert other.score == one.value


def test_combined_goes_on_without_a_part_as_far_as_it_is_told() -> None:
    parts = {name: Given(name=name) for name in ("a", "none", "c")}
    whole: dict[str, Any] = {
        "none": Combined(parts, how="min"),
        "skip": Combined(parts, how="min", missing="skip"),
        "least": Combined(parts, how="min", missing="skip", least=3),
        "number": Combined(parts, how="weighted_mean", missing=0.25),
        "not counted": Combined(parts, {"none": 0.0}, how="max"),
    }
    found = {name: each.score_batch([group("x")])[0][0] for name, each in whole.items()}
    assert {name: score.value for name, score in found.items()} == {
        "none": None, "skip": 0.25, "least": None, "number": 0.5, "not counted": 1.0,
    }  # fmt: skip
    assert found["none"].code == found["least"].code == "nothing"


def test_combined_brings_ranges_that_differ_onto_one_scale() -> None:
    low = Combined({"a": Given(name="a"), "n": "accuracy"}, how="max")
    assert (low.score_range, low.higher_is_better) == ((0.0, 1.0), True)
    ten = registered(lambda answer: 8.0, score_range=(0, 10))
    mixed = Combined({"a": Given(name="a"), "ten": ten}, how="weighted_mean")
    assert mixed.score_range == (0.0, 1.0)
    assert mixed.score_batch([group("x")])[0][0].value == pytest.approx((0.25 + 0.8) / 2)
    open_ended = registered(lambda answer: 8.0, score_range=(None, None))
    for settings, said in (
        ({"parts": {"a": Given(name="a"), "ten": ten}, "normalize": False}, "ranges or directions"),
        ({"parts": {"a": Given(name="a"), "open": open_ended}}, "no bounded score range"),
        ({"parts": {"a": Given(name="a")}, "weights": {"a": -1}}, "0 or more"),
        ({"parts": {"a": Given(name="a")}, "weights": {"a": 0}}, "one above 0"),
        ({"parts": {"a": Given(name="a")}, "missing": 7}, "missing is 7"),
        ({"parts": {"a": Given(name="a")}, "how": "median"}, "how"),
    ):
        with pytest.raises(ConfigError, match=said):
            Combined(**settings)
