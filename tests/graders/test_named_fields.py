"""A grader is a reward wherever a reward's name is taken and a reward a grader, inside one another
too: one score, budget, identity.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BaseGrader,
    BaseListWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Budget,
    ConfigError,
    DataError,
    DataSample,
    FakeLLM,
    FunctionGrader,
    Gate,
    GraderConfig,
    GraderError,
    GraderRank,
    GraderRegistry,
    GraderScore,
    GradingRunner,
    OpenaiLLM,
    RewardRegistry,
    RewardResult,
    Score,
    Step,
    Unscored,
    WeightedSum,
    evaluate,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.graders.base import GraderMode, as_grader, as_reward
from rm_gallery.core.graders.strategy import AverageGrader, TournamentGrader, VotingGrader
from rm_gallery.core.reward.fields import sample_of_fields
from rm_gallery.core.runner.aggregator import WeightedSumAggregator
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.study.audit import prepare
from rm_gallery.study.task import judge_of
from tests.reward.rewards import Listening, ranked, scored
from tests.support.command import command
from tests.support.judge_server import JudgeServer
from tests.support.samples import issues, make_sample, scores


def verdict(prompt: str) -> str:
    return f"<reason>so</reason><score>{5 if 'good' in prompt else 1}</score>"


JUDGE = FakeLLM(reply=verdict)


def test_a_grader_is_a_reward_in_its_own_range_and_direction() -> None:
    registered = RewardRegistry.create("grader:relevance", llm=JUDGE)
    for reward in (registered, GraderRegistry.create("relevance", llm=JUDGE)):
        found = reward.evaluate(make_sample("good", "bad"))
        assert isinstance(reward, BaseGrader)
        assert (reward.kind, reward.score_range) == ("pointwise", (1.0, 5.0))
        assert scores(found) == [5.0, 1.0]
        assert found.output[0].answer.reward.details[0].reason == "so"
        assert reward.normalized(4.0) == 0.75
        assert pickle.loads(pickle.dumps(reward)).describe() == reward.describe()
    settings = {"max_workers": 3, "deadline": 5.0, "name": "mine", "threshold": 2.0}
    made: Any = RewardRegistry.create("grader:relevance", llm=JUDGE, **settings)
    assert {name: getattr(made, name) for name in settings} == settings


def test_a_grader_takes_samples_wherever_a_reward_does() -> None:
    grader: Any = GraderRegistry.create("relevance", model=JUDGE)
    sample = make_sample("bad", "good", unique_id="s")
    for given in (sample, sample.model_dump(exclude_none=True, mode="json")):
        assert scores(grader.evaluate(given)) == [1.0, 5.0]
        assert [scores(one) for one in grader.evaluate_batch([given])] == [[1.0, 5.0]]
    assert grader.best_of_n(sample).output[0].answer.text == "good"
    assert scores(asyncio.run(grader.async_evaluate(sample))) == [1.0, 5.0]
    assert scores(WeightedSum({"one": grader}, {"one": 2.0}).evaluate(sample)) == [2.0, 10.0]
    strict = GraderRegistry.create("relevance", model=JUDGE, threshold=4.0)
    assert scores(Gate(strict, "length_penalty", otherwise=-1.0).evaluate(sample))[0] == -1.0
    # a function of a field of that name takes rows
    row: Any = FunctionGrader(lambda output: float(len(output))).evaluate({"output": ["a"]})
    assert row.score == 1.0


class Falling(BaseListWiseReward):
    """The shortest answer is the best one."""

    score_range = (0, 10)
    higher_is_better = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[tuple[float, ...]]:
        return Score(tuple(float(len(output.answer.text)) for output in sample.output))


class Passing(BasePointWiseReward):
    score_range = (0, 10)
    higher_is_better = False
    threshold = 4

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[float]:
        return Score(float(len(sample.output[0].answer.text)))


class OfItself(BaseGrader):
    @property  # type: ignore[misc]
    def score_range(self) -> tuple[float, float]:  # type: ignore[override]
        return 0.0, 10.0

    def _grade(self, response: str) -> int:
        return 7


def test_what_orders_answers_gives_the_best_one_the_highest_score() -> None:
    sample = make_sample("aaa", "a", "aa")
    grader = Falling()
    assert grader.evaluate(responses=["aaa", "a", "aa"]).rank == [3, 1, 2]
    for reward in (Falling(), grader, TournamentGrader(grader)):
        assert reward.best_of_n(sample).output[0].answer.text == "a"
    ranks = FunctionGrader(
        lambda responses: GraderRank(rank=[2, 1]), mode="listwise", higher_is_better=False
    )
    assert ranks.best_of_n(make_sample("b", "a")).output[0].answer.text == "a"


def test_range_threshold_and_worst_score_are_those_of_the_reward_behind_a_grader() -> None:
    grader = Passing()
    assert (grader.threshold, grader.worst_score) == (4.0, 10.0)
    assert (
        grader.evaluate(response="abcd").passed() and not grader.evaluate(response="abcde").passed()
    )
    # as rewards are: a sum of floats may lead a hair out of its range
    near = FunctionGrader(lambda response: 1.0000000000000002, score_range=(0, 1))
    assert (
        near.evaluate(response="a").ok
        and near.evaluate(make_sample("a")).output[0].answer.reward.details
    )
    GraderRegistry.register("of_itself", OfItself)
    try:
        made = RewardRegistry.create("grader:of_itself")
    finally:
        del GraderRegistry._classes["of_itself"]
    assert scores(made.evaluate(make_sample("a"))) == [7.0]
    for wrong in ((0, math.inf), (-math.inf, 0), (0, math.nan)):
        with pytest.raises(ConfigError, match="give .lowest, highest., None for no bound"):
            FunctionGrader(len, score_range=wrong)
    with pytest.raises(ConfigError, match="threshold is 99"):
        as_reward(near, threshold=99.0)


def test_a_row_may_have_a_column_output_and_async_doors_take_samples() -> None:
    grader = FunctionGrader(lambda response: 1.0)
    row = {"response": "a", "output": "gold"}
    assert grader.evaluate(row).score == grader.evaluate_batch([row])[0].score == 1.0
    sample = make_sample("a")
    assert scores(asyncio.run(grader.aevaluate(sample))) == [1.0]
    assert [scores(one) for one in asyncio.run(grader.aevaluate_batch([sample]))] == [[1.0]]


def test_a_grader_is_called_with_its_fields() -> None:
    grader = GraderRegistry.create("relevance", model=JUDGE)
    called: Any = grader(query="q", response="good")
    assert isinstance(called, GraderScore) and called.score == 5.0
    rows: list[Any] = [
        grader({"query": "q"}, response="bad"),
        asyncio.run(grader.aevaluate(query="q", response="bad")),
    ]
    assert [row.score for row in rows] == [1.0, 1.0]
    assert isinstance(grader(query="q"), GraderError)


def raising(error: Exception) -> Callable[..., float]:
    def give(response: str) -> float:
        raise error

    return give


@pytest.mark.parametrize(("grader", "issue"), [
    (GraderRegistry.create("relevance", model=FakeLLM(reply="I cannot say.")), ("unscored", "parse")),
    (FunctionGrader(lambda response: 5.0), ("failed", "undeclared_range")),
    (FunctionGrader(lambda response: 5.0, score_range=(0, 1)), ("failed", "invalid_result")),
    (FunctionGrader(lambda response: GraderRank(rank=[1])), ("failed", "invalid_result")),
    (FunctionGrader(raising(Unscored("no", reason="empty"))), ("unscored", "empty")),
    (FunctionGrader(raising(OSError("no"))), ("failed", "error")),
    (FunctionGrader(lambda absent: 1.0), ("failed", "missing_field")),
])  # fmt: skip
def test_what_a_grader_could_not_grade_keeps_its_reason_as_a_reward(
    grader: BaseGrader, issue: tuple[str, str]
) -> None:
    assert issues(grader.evaluate(make_sample("a"))) == [issue]


def fields(**given: Any) -> dict[str, Any]:
    return {"score": 1.0, "given": given}


def test_a_grader_sees_of_a_sample_the_fields_it_asks_for() -> None:
    columns = {"extra": 7, "history": ["own"], "query": "no", "response": "no"}
    sample = make_sample("a", query="q", reference="r", metadata=columns)
    sample.input[0].additional_kwargs["context"] = "c"
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    step = {"role": "assistant", "content": "", "tool_calls": calls, "label": {"reference": "r"}}
    sample.output[0].answer = Step.model_validate(step)
    names = "query instruction response responses context reference_response tool_calls extra history absent".split()

    class Seen(FunctionGrader):
        @property
        def inputs(self) -> dict[str, bool]:
            return dict.fromkeys(names, False)

    said = Seen(func=fields, name="fields").evaluate(sample).output[0].answer.reward
    found = said.extra_data["fields"]["given"]
    assert found.pop("tool_calls")[0]["function"]["name"] == "f"
    asked = {"query": "q", "instruction": "q", "context": "c", "reference_response": "r"}
    assert found == {**asked, "response": "", "responses": [""], "extra": 7, "history": ["own"]}


def test_a_trajectory_is_graded_with_its_steps_as_a_reward() -> None:
    """Not on its last claim alone."""
    call = {"id": "1", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    steps = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
    ]
    sample = make_sample("It rains.", query="Weather in Oslo?")
    sample.output[0].steps = [Step.model_validate(step) for step in steps]
    judge = Listening(reply="<score>4</score>")
    RewardRegistry.create("grader:goal_completion", llm=judge).evaluate(sample)
    said = [judge.prompts[0].index(text) for text in ("weather", "rain", "It rains.")]
    assert said == sorted(said)
    wanted = [{"name": "weather", "arguments": {"city": "Oslo"}}]
    sample.metadata = {"reference_tool_calls": wanted}
    matching = RewardRegistry.create("grader:tool_call_sequence_match")
    assert scores(matching.evaluate(sample)) == [1.0]


def test_every_grader_makes_a_reward_class_that_says_what_it_is() -> None:
    for name in GraderRegistry.list():
        kind, reward = GraderRegistry.get(name), RewardRegistry.get(f"grader:{name}")
        if not issubclass(kind, BaseGrader):
            assert reward is kind
            continue
        said = kind.declared()
        assert reward.kind == (
            "listwise" if said["mode"] is GraderMode.LISTWISE else "pointwise"
        ), name
        assert (reward.needs, reward.judged) == (kind.needs, kind.judged), name
        assert reward.higher_is_better is said["higher_is_better"], name
        assert reward.kind == "listwise" or reward.score_range == said["score_range"], name
    with pytest.raises(ConfigError, match="no grader 'relevence'. Did you mean .*relevance"):
        RewardRegistry.get("grader:relevence")


class LongestFirst(FunctionGrader):
    """The longer, the better."""

    mode: GraderMode = GraderMode.LISTWISE

    def __init__(self, **settings: Any) -> None:
        super().__init__(longest, **settings)


def longest(responses: list[str]) -> dict[str, Any]:
    return {"rank": [1 + sum(len(other) > len(own) for other in responses) for own in responses]}


def test_a_grader_that_ranks_is_a_listwise_reward_and_benchmarks_take_graders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    GraderRegistry.list()
    monkeypatch.setitem(GraderRegistry._classes, "longest_first", LongestFirst)
    reward = RewardRegistry.create("grader:longest_first")
    assert isinstance(reward, LongestFirst)
    assert RewardRegistry.get("grader:longest_first").kind == "listwise"
    assert scores(reward.evaluate(make_sample("aa", "a", "aaa", "aa"))) == [0.5, 0.0, 1.0, 0.5]
    pairs = [make_sample("good", "bad", chosen=0, unique_id=f"p{n}") for n in range(4)]
    cases: dict[str, Any] = {"grader:relevance": {"llm": JUDGE}, "grader:longest_first": {}}
    for name, given in cases.items():
        report = evaluate(name, pairs, **given)
        assert (report.n, report.n_scored, report.score) == (4, 4, 1.0)
    with pytest.raises(ConfigError, match="relevance is judged by a model and none is named"):
        evaluate("grader:relevance", pairs)
    with pytest.raises(ConfigError, match="grader:json_validator calls no model"):
        evaluate("grader:json_validator", pairs, llm="some")


class Places(BaseGrader):
    """A judge of several that names the first, whatever it is; notes what it was shown."""

    mode: GraderMode = GraderMode.LISTWISE
    judged: ClassVar[bool] = True
    shown: ClassVar[list[str]] = []

    def _grade(self, responses: list[str]) -> dict[str, Any]:
        Places.shown.append("".join(responses))
        return {"rank": [1, *[2] * (len(responses) - 1)]}


def test_a_judge_that_ranks_sees_the_candidates_in_an_order_of_id_and_seed() -> None:
    for seed in range(6):
        for unique_id in ("s", "t", "s"):
            sample = make_sample(*"abcd", unique_id=unique_id)
            found = scores(as_reward(Places(), seed=seed).evaluate(sample))
            assert found["abcd".index(Places.shown[-1][0])] == 1.0 and found.count(1.0) == 1
    assert len(set(Places.shown)) > 6 and Places.shown[::3] == Places.shown[2::3]


def test_a_reward_is_a_grader_with_the_same_score_and_back() -> None:
    reward = RewardRegistry.create("accuracy")
    for row, expected in (
        ({"response": "a", "reference_response": "a"}, 1.0),
        ({"response": "a", "query": "q"}, None),
    ):
        found: Any = reward.evaluate(row)
        assert (found.score if found.ok else None) == expected
        assert scores(reward.evaluate(sample_of_fields(row, compares=False))) == [expected]
    assert as_reward(as_grader(reward)) is reward
    assert as_grader(as_grader(reward)).name == reward.name
    kind = FunctionGrader(longest)
    assert as_grader(as_reward(kind)) is kind


class Shortest(BaseListWiseReward):
    """Characters, and fewer are better."""

    name: str = "shortest"
    higher_is_better = False

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *(float(len(output.answer.text)) for output in sample.output))


class Steps(BaseStepWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, float((sample.output[0].steps or [])[-1].text))


def test_a_reward_that_compares_gives_a_rank_and_one_of_steps_the_score_of_its_output() -> None:
    found = Shortest().evaluate(responses=["bb", "a", "cccc", "bb"])
    assert isinstance(found, GraderRank) and found.rank == [2, 1, 4, 2]
    assert found.metadata["scores"] == [2.0, 1.0, 4.0, 2.0]
    steps = Steps().evaluate(response="x", steps=["1", 2])
    assert isinstance(steps, GraderScore) and steps.score == 1.5
    one = Steps().evaluate(response="4")
    assert isinstance(one, GraderScore) and one.score == 4.0, "an answer without steps is one"


@pytest.mark.parametrize("beside", [["a", "bb"], [], None, "text"])
def test_a_reward_of_one_answer_reads_response_whatever_a_column_of_several_holds(
    beside: Any,
) -> None:
    runner = GradingRunner(
        {"length": RewardRegistry.create("length_baseline")}, show_progress=False
    )
    row = {"query": "q", "response": "abcde", "responses": beside}
    assert [result.score for result in runner.run([row])["length"]] == [5.0]


class Label(BasePointWiseReward):
    seen: ClassVar[list[DataSample]] = []

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        Label.seen.append(sample)
        return scored(self.name, 1.0)


def test_a_reward_sees_of_a_row_what_is_there_and_a_column_without_a_value_is_none_of_it() -> None:
    row: dict[str, Any] = {
        "id": 7,
        "query": "q",
        "response": "r",
        "context": "c",
        "metadata": {"m": 1},
    }
    row["reference_response"] = "column"
    given: list[dict[str, Any]] = [
        row | {"tests": ["t"], "pattern": None, "label": {"own": 1}},
        row
        | {
            "label": {"reference": "label"},
            "messages": [{"role": "user", "content": "m"}],
            "steps": [],
        },
        {"response": 5, "query": None, "reference_response": None, "context": ""},
    ]
    for each in given:
        Label().evaluate(each)
    first, second, third = Label.seen
    assert first.output[0].answer.label == {"tests": ["t"], "own": 1, "reference": "column"}
    assert (first.unique_id, first.metadata) == ("7", {"m": 1, "tests": ["t"]})
    assert (first.input[0].text, first.input[0].additional_kwargs) == ("q", {"context": "c"})
    assert second.reference() == "label"
    assert second.input[0].text == "m"
    assert second.output[0].steps is None
    assert third.input[0].text == ""
    assert third.output[0].answer.text == "5"
    assert third.output[0].answer.label is None
    judge = Listening(reply="<score>3</score>")
    grader = RewardRegistry.create("base_helpfulness_pointwise", llm=judge)
    assert "*" not in grader.inputs and grader.evaluate({"response": "r", "secret": "QSECRETQ"}).ok
    assert "QSECRETQ" not in judge.prompts[0]


ROWS = [{"id": f"r{n}", "query": f"q{n}", "response": f"a{n}"} for n in range(4)]


def fields_of(sample: DataSample) -> dict[str, str]:
    return {"query": sample.query_text(), "response": sample.output[0].answer.text}


class PlainReward(BasePointWiseReward):
    """Asks a grader from plain code."""

    grader: Any = None

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        return scored(self.name, self.grader.evaluate(fields_of(sample)).score)


class AsyncReward(PlainReward):
    """Asks a grader from async code."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        return scored(self.name, (await self.grader.aevaluate(fields_of(sample))).score)


class PlainGrader(BaseGrader):
    """Asks a grader from plain code."""

    inner: Any = None
    score_range: tuple[float | None, float | None] = (1.0, 5.0)

    def _grade(self, query: str, response: str) -> Any:
        return self.inner.evaluate(query=query, response=response)


class AsyncGrader(PlainGrader):
    """Asks a grader from async code."""

    async def _grade(self, query: str, response: str) -> Any:
        return await self.inner.aevaluate(query=query, response=response)


WRAPPED: dict[str, Callable[[BaseReward], BaseReward]] = {
    "grader": lambda g: g,
    "in a plain reward": lambda g: PlainReward(grader=g),
    "in an async reward": lambda g: AsyncReward(grader=g),
    "in a plain grader": lambda g: PlainGrader(inner=g),
    "in an async grader": lambda g: AsyncGrader(inner=g),
    "in a strategy": lambda g: VotingGrader(AsyncReward(grader=g), n=2),
    "three deep": lambda g: PlainGrader(inner=AsyncGrader(inner=PlainReward(grader=g))),
}


def wrapped(kind: str, url: str = "http://127.0.0.1:9/v1", **settings: Any) -> BaseReward:
    judge = OpenaiLLM("judge", base_url=url, max_attempts=1, max_outage=1.0)
    return WRAPPED[kind](
        GraderRegistry.create(
            "relevance", model=judge, channel="text", repair_attempts=0, **settings
        )
    )


async def inside(runner: GradingRunner, **options: Any) -> Any:
    return runner.run(ROWS, **options)


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_same_scores_calls_budget_and_aggregate_however_it_is_wrapped(kind: str) -> None:
    votes = 2 if "strategy" in kind else 1
    with JudgeServer("fixed:<reason>so</reason><score>4</score>", in_process=True) as server:
        graders = {"one": wrapped(kind, server.base_url), "plain": lambda response: 1.0}
        runner = GradingRunner(
            graders,
            WeightedSumAggregator("all", weights={"one": 1.0}),
            show_progress=False,
            cache=False,
        )
        for door in (
            runner.run,
            lambda rows, **o: asyncio.run(runner.arun(rows, **o)),
            lambda rows, **o: asyncio.run(inside(runner, **o)),
        ):
            control = RunControl()
            found = door(ROWS, control=control)
            assert [getattr(r, "score", None) for r in found["one"]] == [4.0] * 4, found["one"]
            assert all(isinstance(r, GraderScore) for r in found["all"])
            assert control.calls == 4 * votes, "one run counts what is asked inside"
        held = runner.run(ROWS, budget=Budget(max_calls=2 * votes), max_workers=1)
        assert server.stats()["requests"] == (3 * 4 + 2) * votes
        assert sum(isinstance(r, GraderScore) for r in held["one"]) == 2, held["one"]
        server.set(faults={"unavailable": 1.0})
        lost = runner.run(ROWS, deadline=20)
    assert all(isinstance(r, GraderError) for r in (*lost["one"], *lost["all"]))


def test_identity_tells_what_is_inside_apart() -> None:
    hashes = {kind: wrapped(kind).settings_hash for kind in WRAPPED}
    assert hashes == {kind: wrapped(kind).settings_hash for kind in WRAPPED}
    assert len(set(hashes.values())) == len(WRAPPED)
    assert not set(hashes.values()) & {
        wrapped(kind, language="zh").settings_hash for kind in WRAPPED
    }


def test_what_a_judge_costs_is_known_through_strategies_and_bridges() -> None:
    relevant = GraderRegistry.create("relevance", model=FakeLLM(reply="<score>3</score>"))
    for grader in (
        relevant,
        AverageGrader(relevant),
        AverageGrader(relevant),
    ):
        reward = build_reward(grader)  # as evaluate and audit take it, without as_reward
        assert judge_of(reward) == ("fake", "fake:fake")
        assert prepare(reward, limit=1).cost().calls > 0
    assert prepare("served:http://127.0.0.1:9", limit=1).cost().calls > 0
    assert prepare("length_baseline", limit=1).cost().calls == 0


@pytest.mark.long("hostile texts")
def test_graders_are_listed() -> None:
    entries = json.loads(command("list", "--graders", "--json").out)
    listed = {entry["name"].removeprefix("grader:"): entry for entry in entries}
    assert set(listed) == set(GraderRegistry.list()) - set(RewardRegistry.list())
    said = {key: listed["relevance"][key] for key in ("task", "score_range", "needs")}
    assert said == {"task": "graders/common", "score_range": [1.0, 5.0], "needs": ["llm"]}
    assert command("list", "--graders", "--task", "rag").out.count("context_") >= 2
    assert "agent (" in command("list").out


# -- named fields at the doors of every reward ----------------------------------------------------


RULE, JUDGED = "math_verify_reward", "base_helpfulness_pointwise"


def test_the_reference_that_is_named_is_the_one_whatever_else_the_row_holds() -> None:
    """A column `reference` stood before the mapped one, and right answers got 0."""
    row = {"response": "42", "gold": "42", "reference": "7"}
    mapper = {"reference_response": "gold"}
    reward = RewardRegistry.create(RULE)
    runner = GradingRunner({"g": GraderConfig(reward, mapper=mapper)}, show_progress=False)
    found = [
        *runner.run([row])["g"],
        *reward.evaluate_batch([row], mapper=mapper, progress=False),
        reward.evaluate(row, mapper=mapper),
        reward.evaluate(row, reference_response="42"),
    ]
    assert [each.score for each in found] == [1.0] * 4
    assert reward.evaluate(response="42", reference="42").score == 1.0


@pytest.mark.parametrize(
    "given", [[{"role": "assistant", "content": "42"}], {"content": "42"}, ["42"], b"42", ("42",)]
)
def test_what_is_no_text_is_no_response(given: Any) -> None:
    """Python's repr of it was scored."""
    found = RewardRegistry.create(RULE).evaluate(response=given, reference_response="42")
    assert (found.kind, found.cause) == ("error", "data")
    assert "response: a text is needed" in found.reason and "messages=" in found.reason
    parts = [{"type": "text", "text": "42"}]
    for fine in (42, "42", parts):
        assert RewardRegistry.create(RULE).evaluate(response=fine, reference_response="42").score


@pytest.mark.parametrize("name", [RULE, JUDGED, "grader:relevance"])
def test_a_mapper_is_checked_at_every_door(name: str) -> None:
    settings = {} if name == RULE else {"llm": FakeLLM(reply="<score>4</score>")}
    reward = RewardRegistry.create(name, **settings)
    rows = [{"text": "42", "query": "q", "gold": "42"}]
    for door in (
        partial(reward.evaluate_batch, rows, progress=False),
        partial(reward.evaluate, rows[0]),
        lambda mapper: GraderConfig(reward, mapper=mapper),
    ):
        with pytest.raises(ConfigError, match="mapper is 'text'; give"):
            door(mapper="text")
        if name != RULE:  # to which every field is one
            with pytest.raises(ConfigError, match="no field of .* 'respons'. Did you mean"):
                door(mapper={"respons": "text"})

    def wrong(row: dict[str, Any]) -> dict[str, Any]:
        return {"response": row["nope"]}

    [found] = reward.evaluate_batch(rows, mapper=wrong, progress=False)
    assert (found.kind, found.error_type) == ("error", "missing_field")
    assert "the mapper raised KeyError: 'nope'" in found.reason


def test_nothing_that_is_given_by_mistake_is_taken_for_a_row() -> None:
    reward = RewardRegistry.create(RULE)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: reward.evaluate(None), "is a NoneType"),
        (lambda: reward.evaluate(), "is a NoneType"),
        (lambda: reward.evaluate(deadline=3), "is a NoneType"),
        (lambda: reward.evaluate("x"), "is a str"),
        (lambda: reward.evaluate({"inputs": []}), "field 'inputs'"),
        (lambda: reward.evaluate_batch([None]), "is a NoneType"),
        (
            lambda: reward.evaluate_batch(iter([{"response": "x"}]), progress=False),
            "list of rows of named fields",
        ),
    ]
    for call, match in wrong:
        with pytest.raises(DataError, match=match):
            call()
    relevance = GraderRegistry.create("relevance", model=JUDGE)
    with pytest.raises(
        ConfigError, match=r"'answer'\. Known: context, query, reference_response, response\."
    ):
        relevance.evaluate(answer="x")
