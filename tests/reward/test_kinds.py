"""How a sample becomes jobs and their results its scores: by kind, checked, written beside what
others said, and never a made-up score.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rm_gallery import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
    Budget,
    ConfigError,
    DataSample,
    FakeLLM,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardRegistry,
    RewardResult,
    RunOptions,
    Score,
    Step,
    Unscored,
    rule,
)
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.score import Detail, unscored
from rm_gallery.core.utils.models import build
from tests.reward import rewards as r
from tests.support.rules import rule_class
from tests.support.samples import issues, make_sample, scores


def _score(value: float, **more: Any) -> RewardDimensionWithScore:
    return build(
        RewardDimensionWithScore,
        {"name": "d", "reason": None, "source": None, "score": value, **more},
    )


def _result(*details: Any, **extra: Any) -> RewardResult:
    return build(RewardResult, {"name": "plain", "details": list(details), "extra_data": extra})


async def _later() -> RewardResult:
    return _result(_score(0.5))


SHARED = _result(_score(0.25))
ODD: Any = ["no", "such"]
WRONG = ("failed", "invalid_result")
RANK = RewardDimensionWithRank(name="d", rank=[1.0])
HALF_AND_TRUE = (Detail("a", np.float32(0.5)), Detail("b", True))
NO_REFERENCE = ("unscored", "no_reference")
DOWN: dict[str, Any] = {"status": "failed", "cause": "endpoint", "code": "http"}
GIVES: dict[str, tuple[Callable[[], Any] | Exception, float | tuple[str, str]]] = {
    "one score": (lambda: _result(_score(1.0)), 1.0),
    "with more": (lambda: _result(_score(0.5, reason="so"), found=3), 0.5),
    "two dimensions": (lambda: _result(_score(0.5), _score(1.0)), 0.75),
    "source of another": (lambda: _result(_score(0.5, source="other")), 0.5),
    "the same object": (lambda: SHARED, 0.25),
    "awaitable": (_later, 0.5),
    "on the bound": (lambda: _result(_score(1.0 + 1e-10)), 1.0 + 1e-10),
    "below": (lambda: _result(_score(-1e-8)), WRONG),
    "above": (lambda: _result(_score(1.0 + 1e-8)), WRONG),
    "nan": (lambda: _result(_score(math.nan)), WRONG),
    "one of two above": (lambda: _result(_score(0.5), _score(2.0)), WRONG),
    "a Score": (lambda: Score(0.5, "so", {"part": 1.0}, extra={"found": 3}), 0.5),
    "a Score of a whole number": (lambda: Score(1), 1.0),
    "a Score of another type": (lambda: Score(np.float32(0.5)), 0.5),
    "a Score of a word": (lambda: Score("high"), WRONG),
    "a Score above": (lambda: Score(1.5), WRONG),
    "a Score that is nan": (lambda: Score(math.nan), WRONG),
    "a Score of several": (lambda: Score((0.5, 1.0)), WRONG),
    "a Score of a number in words": (lambda: Score("0.5"), WRONG),
    "a Score without a text": (lambda: Score(0.5, cast(Any, 3)), WRONG),
    "a Score without mappings": (lambda: Score(0.5, components=ODD, extra=ODD), WRONG),
    "a Score of no cause there is": (lambda: Score(None, "no", **{**DOWN, "cause": ODD}), WRONG),
    "a Score with a value and none": (lambda: Score(0.5, "down", **DOWN), WRONG),
    "a Score and other dimensions": (lambda: Score(0.5, details=(Detail("a", 1.0),)), WRONG),
    "a Score of odd dimensions": (lambda: Score(details=HALF_AND_TRUE), 0.75),
    "a Score with a component that is nan": (lambda: Score(0.5, components={"a": math.nan}), WRONG),
    "a Score with an infinite component": (lambda: Score(0.5, components={"a": math.inf}), WRONG),
    "a Score that failed": (lambda: Score(None, "down", **DOWN), ("failed", "http")),
    "a Score of nothing": (lambda: Score(), ("unscored", "not_applicable")),
    "a Score of none": (lambda: unscored("no_reference", "no", "data"), NO_REFERENCE),
    "a score beside a rank": (lambda: _result(_score(0.5), RANK), WRONG),
    "no details": (lambda: _result(), ("unscored", "no_details")),
    "a rank": (lambda: _result(RANK), WRONG),
    "a number": (lambda: 1.0, WRONG),
    "nothing": (lambda: None, WRONG),
    "unscored": (Unscored("no", reason="no_reference"), NO_REFERENCE),
    "broken": (KeyError("missing"), ("failed", "error")),
}


class Plain(BasePointWiseReward):
    """Gives what the table says for the answer's text."""

    score_range = (0.0, 1.0)
    name: str = "plain"

    def _evaluate(self, sample: DataSample, **_: Any) -> Any:
        given = GIVES[sample.output[0].answer.text][0]
        if isinstance(given, Exception):
            raise given
        return given()


@pytest.mark.parametrize("what", GIVES)
def test_what_a_reward_returns_is_a_score_or_a_reason_alone_and_beside_others(what: str) -> None:
    expected, reward = GIVES[what][1], Plain()
    alone = sample_of("q", what)
    for found in (
        reward.evaluate(alone),
        *reward.evaluate_batch([alone, alone]),
        reward.evaluate(sample_of("q", what, "one score")),
    ):
        said = found.output[0].answer.reward
        has_score = isinstance(expected, float)
        assert (said.score, bool(said)) == (expected if has_score else None, has_score)
        told = [(issue.status, issue.reason) for issue in said.issues]
        assert told == ([] if has_score else [expected])
        assert all(issue.name == "plain" and issue.message for issue in said.issues)
        assert scores(found)[1:] in ([], [1.0]), "the neighbour is scored"
    assert alone == sample_of("q", what).model_copy(update={"created_at": alone.created_at})


def test_a_rule_on_one_answer_is_written_in_one_go_as_step_by_step() -> None:
    fresh = [sample_of("q", text) for text in GIVES]
    earlier, twice = Plain(name="earlier").evaluate(fresh[0]), Plain().evaluate(fresh[0])
    given = [*fresh, *fresh, earlier, twice, sample_of("q")]
    batch = Plain().evaluate_batch(given)
    alone = [Plain().evaluate(sample).model_dump() for sample in given]
    assert [sample.model_dump() for sample in batch] == alone
    same = list(GIVES).index("the same object")
    one, other = (batch[at].output[0].answer.reward for at in (same, same + len(GIVES)))
    assert one.details is not other.details


def test_a_mistake_of_the_caller_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GIVES, "one score", (ConfigError("mend this"), 0.0))
    for _ in range(30):  # whether the error or the last result is told first
        with pytest.raises(ConfigError, match="mend this"):
            Plain().evaluate_batch([sample_of("q", "one score")] * 3)
    with pytest.raises(ConfigError, match="mend this"):
        Plain().evaluate(sample_of("q", "one score"))


def test_a_second_evaluation_replaces_the_first_whatever_came_of_either() -> None:
    reward, sample = RewardRegistry.create("accuracy"), make_sample("42", "43", reference="42")
    once = reward.evaluate(sample)
    assert reward.evaluate(once) == once and scores(once) == [1.0, 0.0]
    lost = once.model_copy(deep=True)
    lost.output[0].answer.label = {}
    again = reward.evaluate(lost)
    assert (scores(again), issues(again)) == ([None, 0.0], [("unscored", "no_reference")])
    assert reward.evaluate(again) == again, "one that is lost twice is told once"
    assert reward.evaluate(again.model_copy(update={"output": once.output})) == once, (
        "and the issue is taken back"
    )


class Costs(r.Rule):
    """Fewer words are better."""

    higher_is_better: bool = False
    score_range: tuple[float | None, float | None] = (0.0, 4.0)


class Share(r.Rule):
    score_range: tuple[float | None, float | None] = (1.0, 5.0)


@pytest.mark.parametrize(
    ("kind", "n", "kept"),
    [(r.Rule, 1, "c"), (r.Rule, 3, "cbd"), (r.Rule, 9, "cbda"), (Costs, 1, "a"), (Costs, 2, "ab")],
)
def test_best_of_n_keeps_the_best_first(kind: type[r.Rule], n: int, kept: str) -> None:
    sample = make_sample("b b", "c c c", "a", "d d")
    best = kind().best_of_n(sample, n=n)
    assert "".join(output.answer.text[0] for output in best.output) == kept
    assert len(sample.output) == 4 and len(kind().best_of_n(sample).output) == 1


def test_best_of_n_never_chooses_what_has_no_score() -> None:
    reward = RewardRegistry.create("accuracy")
    sample = make_sample("41", "42", "42", reference="42")
    sample.output[1].answer.label = {}
    assert scores(reward.best_of_n(sample, n=3)) == [1.0, 0.0]
    with pytest.raises(
        Unscored, match="accuracy gave none of the 2 outputs a score: accuracy needs a reference"
    ):
        reward.best_of_n(make_sample("41", "42"))


def test_a_bounded_score_maps_to_a_share_and_one_without_bounds_does_not() -> None:
    assert [Share().normalized(score) for score in (1.0, 2.0, 5.0)] == [0.0, 0.25, 1.0]
    assert [Costs().normalized(score) for score in (0.0, 3.0)] == [1.0, 0.25]
    with pytest.raises(ConfigError, match="no bounded score range"):
        r.Rule().normalized(3.0)


ANSWERS = ("alpha", "beta", "gamma", "delta")
FIRST = FakeLLM(reply="<best>1</best>")


def four(unique_id: str, chosen: int = 0, query: str = "q") -> DataSample:
    return make_sample(*ANSWERS, unique_id=unique_id, chosen=chosen, reference="r", query=query)


def shown_order(reward: r.ListJudge, sample: DataSample) -> tuple[int, ...]:
    """Places of the candidates in the prompt, read from the prompt itself."""
    return tuple(ANSWERS.index(line) for line in reward.format(sample).split("\n")[1:])


def test_without_an_id_the_content_decides_the_order_but_no_label() -> None:
    reward = r.ListJudge(llm=FIRST)
    assert shown_order(reward, four("")) == shown_order(reward, four("", chosen=2))
    assert len({shown_order(reward, four("", query=str(k))) for k in range(20)}) > 5
    assert shown_order(reward, four("a")) == shown_order(
        r.ListJudge(llm=FIRST, name="other", max_workers=3), four("a", chosen=3, query="x")
    )
    places = Counter(shown_order(reward, four(str(k))).index(0) for k in range(2000))
    assert all(430 < places[place] < 570 for place in range(4)), places


def test_a_verdict_reaches_the_answer_it_is_about() -> None:
    reward = r.ListJudge(llm=FIRST)
    for found in reward.evaluate_batch([four(str(k)) for k in range(40)]):
        first = shown_order(reward, four(found.unique_id))[0]
        assert scores(found) == [float(k == first) for k in range(4)]
        assert found.output[0].answer.reward.extra_data["ListJudge"]["order"][0] == first
        assert [output.answer.text for output in found.output] == list(ANSWERS), (
            "the sample keeps its own order"
        )


class Watching(BaseListWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        labels = [(output.answer.label or {}).get("preference") for output in sample.output]
        return r.ranked(self.name, *(float(label == "chosen") for label in labels))


class Short(BaseListWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.ranked(self.name, 1.0)


def test_rules_see_the_sample_as_it_is_and_say_one_number_for_each_answer() -> None:
    assert scores(Watching().evaluate(four("a", chosen=2))) == [0.0, 0.0, 1.0, 0.0]
    assert scores(r.ListRule().evaluate(make_sample("a b", "a", "a b c"))) == [2.0, 1.0, 3.0]
    assert scores(r.ListRule().evaluate(make_sample("alone"))) == [1.0]
    assert issues(Short().evaluate(make_sample("a", "b"))) == [("failed", "invalid_result")] * 2


def extra(sample: DataSample, name: str) -> dict[str, Any]:
    return sample.output[0].answer.reward.extra_data[name]


def test_every_pair_is_asked_in_both_orders() -> None:
    judge = r.Listening(reply=r.longest)
    found = r.PairJudge(llm=judge).evaluate(make_sample("a", "a b", "a b c", "a b c d"))
    assert scores(found) == [0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    shown = [tuple(prompt.split("\n")[1:]) for prompt in judge.prompts]
    assert len(set(shown)) == len(shown) == 12 and {pair[::-1] for pair in shown} == set(shown)
    assert extra(found, "PairJudge")["flip_rate"] == 0.0
    assert len(extra(found, "PairJudge")["pairs"]) == 6


def test_one_order_asks_half_as_often_and_in_seeded_places() -> None:
    judge = r.Listening(reply="<best>1</best>")
    reward = r.PairJudge(llm=judge, both_orders=False)
    won = Counter(
        scores(reward.evaluate(make_sample("a", "b", unique_id=str(k))))[0] for k in range(60)
    )
    assert len(judge.asked) == 60 and set(won) == {0.0, 1.0} and min(won.values()) > 15
    done = reward.evaluate(make_sample("a", "b"))
    assert "flip_rate" not in extra(done, "PairJudge"), "of one order nothing can flip"
    rule = r.PairRule().evaluate(make_sample("a b", "a", "a b"))
    assert scores(rule) == [0.75, 0.0, 0.75] and "flip_rate" not in extra(rule, "PairRule")


class Margins(BasePairWiseReward):
    """Judged in both orders; the first shown wins by 9, or loses by 1."""

    name = "margins"
    judged = True

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.ranked("m", *([9.0, 0.0] if sample.output[0].answer.text == "a" else [1.0, 0.0]))


def test_orders_that_disagree_are_a_draw_whatever_their_margins() -> None:
    found = Margins().evaluate(make_sample("a", "b"))
    said = extra(found, "margins")
    assert (scores(found), said["flip_rate"]) == ([0.5, 0.5], 1.0)
    margins = dict(zip(map(tuple, said["orders"]["0,1"]), said["pairs"]["0,1"], strict=True))
    assert margins == {(0, 1): 9.0, (1, 0): -1.0}, "each margin beside the order it was seen in"


class Partly(Margins):
    """Breaks on one of the pairs."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        if {output.answer.text for output in sample.output} == {"b", "c"}:
            raise KeyError("no such pair")
        return super()._evaluate(sample, **kwargs)


def test_an_answer_of_which_half_the_pairs_were_judged_has_its_share_of_those() -> None:
    found = Partly().evaluate(make_sample("a", "b", "c"))
    said = extra(found, "margins")
    assert (scores(found), said["judged_pairs"]) == ([0.5, 0.5, 0.5], "2 of 3")
    assert said["flip_rate"] == 1.0, "of the pairs that were judged"


@pytest.mark.parametrize("calls", [2, 4, 5])
def test_a_group_whose_budget_ends_between_its_pairs_is_left_to_the_next_run(calls: int) -> None:
    reward = r.PairJudge(llm=FakeLLM(reply=r.longest), max_workers=1)
    group = make_sample("a", "a b", "a b c")
    [found] = reward.evaluate_batch([group], budget=Budget(max_calls=calls))
    assert scores(found) == [None] * 3 and issues(found) == [("failed", "budget")] * 3


@pytest.mark.parametrize("kind", [r.PointJudge, r.StepJudge, r.ListJudge, r.PairJudge])
def test_no_judge_is_shown_which_answer_was_chosen(kind: Any) -> None:
    seen: list[Any] = []

    class Peeks(kind):  # type: ignore[misc]
        def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
            seen.extend(output.answer.label for output in sample.output)
            return super()._before_evaluate(sample, **kwargs)

    judge = Peeks(llm=FakeLLM(reply=r.longest))
    judge.evaluate(make_sample("a", "b c", chosen=1, reference="gold"))
    assert seen and all(label == {"reference": "gold"} for label in seen)


def with_steps(*per_output: list[str] | None) -> DataSample:
    sample = make_sample(*(f"final {number}" for number, _ in enumerate(per_output, 1)))
    for output, texts in zip(sample.output, per_output, strict=True):
        output.steps = None if texts is None else [Step(content=text) for text in texts]
    return sample


def step_scores(sample: DataSample) -> list[list[float | None]]:
    return [[step.reward.score for step in output.steps or ()] for output in sample.output]


def test_each_step_sees_the_steps_up_to_itself_and_an_answer_without_steps_is_one() -> None:
    once = r.StepRule().evaluate(with_steps(["a", "a b", "a b c"], None, ["a b"], []))
    assert step_scores(once) == [[101.0, 202.0, 303.0], [], [102.0], []]
    assert scores(once) == [None, 102.0, None, 102.0] and issues(once) == []
    assert r.StepRule().evaluate(once) == once


def test_an_unreadable_step_leaves_its_neighbours_scored() -> None:
    judge = r.StepJudge(
        llm=FakeLLM(
            reply=lambda question: "?" if question.endswith("bad") else r.longest(question)
        ),
        repair_attempts=0,
    )
    found = judge.evaluate(with_steps(["a", "bad", "a b"]))
    assert step_scores(found) == [[1.0, None, 2.0]]
    assert judge.score_of_output(found.output[0]) is None, (
        "the answer is not ranked by some of its steps"
    )
    assert [[i.reason for i in step.reward.issues] for step in found.output[0].steps or []] == [
        [],
        ["parse"],
        [],
    ]


class Said(BaseStepWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.scored(self.name, float((sample.output[0].steps or [])[-1].text))


HOW = [("mean", 1, 6.0), ("min", 2, 5.0), ("last", 3, 8.0), ("product", 4, 168.0), ("", 1, 6.0)]


@pytest.mark.parametrize(("how", "winner", "score"), HOW)
def test_best_of_n_understands_steps(how: str, winner: int, score: float) -> None:
    reward = Said.model_validate({"step_score": how} if how else {})
    best = reward.best_of_n(
        with_steps(["4", "10", "4"], ["5", "5", "5"], ["1", "1", "8"], ["6", "7", "4"])
    )
    assert best.output[0].answer.text == f"final {winner}"
    assert reward.score_of_output(best.output[0]) == score
    unjudged = reward.evaluate(with_steps([], ["4"]))
    assert [reward.score_of_output(output) for output in unjudged.output] == [None, 4.0]


def sees_all_names(
    answer: str, response: str, prompt: str, query: str, references: list[str], reference: str
) -> float:
    """1 when a rule is given the same text under a grader's names as under a reward's."""
    return float(
        (answer, prompt, references[0]) == (response, query, reference) == ("a", "q", "r1")
    )


def test_a_rules_parameters_may_have_the_names_of_graders_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))
    rule("sees_all_names")(sees_all_names)
    assert RewardRegistry.get("sees_all_names").needs == {"reference"}, "it names a reference"
    sample = make_sample("a", query="q", metadata={"reference": ["r1", "r2"]})
    assert scores(RewardRegistry.create("sees_all_names").evaluate(sample)) == [1.0]


def in_a_score(result: RewardResult) -> Score[Any]:
    [detail] = result.details
    value: Any = tuple(detail.rank) if isinstance(detail, RewardDimensionWithRank) else detail.score
    return Score(value, detail.reason or "", extra=result.extra_data)


class SaysAScore:
    """Says in a Score what its base says in the founding shape."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = super()._evaluate(sample, **kwargs)  # type: ignore[misc]
        return self._later(found) if hasattr(found, "__await__") else in_a_score(found)

    async def _later(self, found: Any) -> Score[Any]:
        return in_a_score(await found)


class ReadsAScore:
    """The same in the hook that reads a judge's reply."""

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Score[Any]:
        return in_a_score(super()._after_evaluate(response, sample, **kwargs))  # type: ignore[misc]


class SaysMore:
    """Says NaN beside its score."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        found = super()._evaluate(sample, **kwargs)  # type: ignore[misc]
        return self._later(found) if hasattr(found, "__await__") else self._more(found)

    async def _later(self, found: Any) -> Score[Any]:
        return self._more(await found)

    def _more(self, found: Any) -> Score[Any]:
        score = in_a_score(found)
        score.components = {"fine": 1.0, "margin": math.nan}
        return score


FOUNDING = [r.Rule, r.AsyncRule, r.ListRule, r.PairRule, r.StepRule]
FOUNDING += [r.PointJudge, r.ListJudge, r.PairJudge, r.StepJudge]


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("kind", FOUNDING)
def test_a_score_is_written_and_kept_as_the_founding_shape_is(
    kind: Any, votes: int, tmp_path: Path
) -> None:
    given = make_sample("a b", "c d e", "f", unique_id="s")
    for output in given.output:
        output.steps = [Step(content="x y")]
    settings: dict[str, Any] = {"name": "same"}
    if kind.judged:
        settings |= {"llm": FakeLLM(reply=r.longest), "votes": votes}
    said, records = [], []
    for number, base in enumerate((None, ReadsAScore if kind.judged else SaysAScore)):
        made = kind if base is None else type(kind.__name__, (base, kind), {})
        folder = tmp_path / str(number)
        [judged] = made(**settings).evaluate_batch([given], run_dir=str(folder))
        places = [place for output in judged.output for place in (output.answer, *output.turns)]
        said.append([place.reward.model_dump(exclude={"sources"}) for place in places])
        [line] = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        records.append(json.loads(line)["rewards"])
    assert said[0] == said[1] and records[0] == records[1]
    assert any(place["details"] for place in said[0])


def nan_beside(answer: str) -> Any:
    """NaN beside a score."""
    return Score(0.5, components={"fine": 1.0, "margin": math.nan})


def nan_among(answers: list[str]) -> Any:
    """NaN beside each score."""
    return [nan_beside(answer) for answer in answers]


def nan_within(answer: str) -> Any:
    """A dimension that is NaN."""
    return {"fine": 1.0, "margin": math.nan}


RULES = [
    rule_class("nan_beside", nan_beside, inline=True),
    rule_class("nan_beside", nan_beside),
    rule_class("nan_among", nan_among, mode="batch"),
    rule_class("nan_within", nan_within),
]


@pytest.mark.parametrize("base", [*FOUNDING[:5], *RULES])
def test_a_number_beside_a_score_is_finite_or_named(base: Any) -> None:
    """A run folder held null for it, and means of components were NaN."""
    given = make_sample("a b", "c d e", unique_id="s")
    for output in given.output:
        output.steps = [Step(content="x y")]
    kind = base if base in RULES else type(base.__name__, (SaysMore, base), {})
    judged = kind(name="mine").evaluate(given)
    for output in judged.output:
        [issue] = output.answer.reward.issues or output.turns[0].reward.issues
        assert issue.reason == "invalid_result"
        assert "mine" in issue.message and "margin" in issue.message and "nan" in issue.message


WRONG_SHAPES: dict[str, tuple[Any, str]] = {
    "float": (0.5, "return a Score"),
    "Score that does not fit": (Score(0.5, cast(Any, 3)), "in the place of a text"),
    "list": (_result(ODD), "give scores or ranks"),
    "scores beside ranks": (_result(_score(0.5), RANK), "give one or the other"),
}


@pytest.mark.parametrize("found", WRONG_SHAPES)
def test_what_is_no_score_is_told_with_the_reward_what_was_found_and_what_is_needed(
    found: str,
) -> None:
    returned, needed = WRONG_SHAPES[found]

    class Mine(BasePointWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
            return returned

    [issue] = Mine(name="mine").evaluate(make_sample("a")).output[0].answer.reward.issues
    assert issue.message.startswith("mine returned ")
    assert found in issue.message and needed in issue.message


def test_each_vote_is_in_the_range() -> None:
    """The mean of 0.4, 1.8 and 0.2 lies in it, and stood for what no reward may say."""
    numbers = iter((0.4, 1.8, 0.2))

    class Votes(r.PointJudge):
        score_range = (0.0, 1.0)

        def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> Any:
            return Score(next(numbers))

    judged = Votes(llm=FakeLLM(reply=r.longest), votes=3).evaluate(make_sample("a"))
    assert issues(judged) == [("failed", "invalid_result")]


@pytest.mark.parametrize("what", GIVES)
def test_what_the_folder_keeps_is_what_was_counted_and_is_restored(
    what: str, tmp_path: Path
) -> None:
    """Scores were counted before they were checked, and some were kept in a form that no reader
    took.
    """
    control, folder = RunControl(), str(tmp_path / "run")
    [first] = Plain().evaluate_batch(
        [sample_of("q", what)], run_dir=folder, options=RunOptions(control=control)
    )
    counted = {name: getattr(control.progress, name) for name in ("failed", "unscored")}
    kept = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["samples"]
    assert {name: kept[name] for name in counted} == counted
    if not counted["failed"]:
        [again] = Plain().evaluate_batch([sample_of("q", what)], run_dir=folder)
        assert again.output[0].answer.reward == first.output[0].answer.reward
