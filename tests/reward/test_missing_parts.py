"""What a whole says of parts that have no score: the same whichever part comes first, in every
aggregator, composition and strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations, product
from typing import Any

import pytest

from rm_gallery import (
    BaseGrader,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    Combined,
    DataSample,
    GraderError,
    GraderRank,
    GraderScore,
    RewardResult,
    RMGalleryError,
    Score,
    Step,
    Unscored,
    WeightedSum,
)
from rm_gallery.core.graders import strategy
from rm_gallery.core.graders.base import GraderMode, GraderResult, as_result, score_of
from rm_gallery.core.reward import compose
from rm_gallery.core.reward.compose import Composition
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.runner import aggregator as aggregators
from rm_gallery.core.score import CAUSES, NOT_BEGUN, deciding, failed, unscored
from rm_gallery.core.utils.errors import Cause
from tests.support.samples import make_sample

MISSING: list[Score[Any]] = [
    make(f"{make.__name__}_{cause}", "m", cause) for make in (unscored, failed) for cause in CAUSES
]
MISSING += [failed(reason, "m", "caller") for reason in sorted(NOT_BEGUN)]
PAIRS = [(one, other) for one, other in permutations(MISSING, 2) if one.code < other.code]
Told = tuple[Any, ...]


def test_a_failure_decides_before_a_stop_before_what_is_unscored_and_the_answer_is_to_blame_last() -> (
    None
):
    order: list[Cause] = ["endpoint", "judge", "rule", "data", "caller", "answer"]
    by_hand = [failed("x", "m", cause) for cause in order]
    by_hand += [failed("budget", "m", "caller"), failed("stopped", "m", "caller")]
    by_hand += [unscored("x", "m", cause) for cause in order]
    for one, other in product(range(len(by_hand)), repeat=2):
        assert deciding([by_hand[one], by_hand[other]]) is by_hand[min(one, other)]
    a, b = unscored("a", "m", "judge"), unscored("b", "m", "judge")
    assert deciding([a, b]).code == deciding([b, a]).code == "a"
    # a record of an earlier version names no cause
    old = score_of(GraderError(name="x", error="m", error_type="x"))
    assert deciding([failed("x", "m", "answer"), old]) is old
    assert deciding([old, by_hand[4]]) is by_hand[4]


def aggregator_of(
    kind: type[aggregators.BaseAggregator], **settings: Any
) -> aggregators.BaseAggregator:
    if kind is aggregators.GatedAggregator:
        return aggregators.GatedAggregator("r", "gate", 3, **settings)
    return kind(**settings)


AGGREGATORS = [
    kind
    for name, kind in sorted(vars(aggregators).items())
    if isinstance(kind, type) and issubclass(kind, aggregators.BaseAggregator)
    # a function of the caller decides for itself
    and kind not in (aggregators.BaseAggregator, aggregators.CallableAggregator)
]  # fmt: skip
SCORES: dict[str, GraderResult] = {
    "gate": GraderScore(name="gate", score=4, range=(1, 5)),
    "good": GraderScore(name="good", score=4.5, range=(1, 5)),
    "poor": GraderScore(name="poor", score=0.25, range=(0, 1)),
    "rank": GraderRank(name="rank", rank=[1, 2]),
}


def told(found: GraderResult) -> Told:
    """What a result comes to; reasons name parts in the order they came in."""
    lost = (found.status, found.error_type, found.cause) if isinstance(found, GraderError) else ()
    return (
        *lost,
        sorted(found.metadata["missing"].items()),
        sorted(found.metadata["components"].items()),
        str(getattr(found, "score", None)),
    )


SETTINGS: list[dict[str, Any]] = [{}, {"on_error": "skip"}, {"on_error": 0.5}, {"normalize": False}]
ALWAYS_NORMALISED = (aggregators.GatedAggregator, aggregators.GeometricMeanAggregator)


PRODUCT = [*product(AGGREGATORS, SETTINGS)]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(k, s) for k, s in PRODUCT if not (k in ALWAYS_NORMALISED and "normalize" in s)],
)
def test_the_order_of_columns_changes_nothing_in_any_aggregator(
    kind: type[aggregators.BaseAggregator], settings: Mapping[str, Any]
) -> None:
    made = aggregator_of(kind, **settings)
    for one, other in PAIRS:
        lost = {name: as_result(why, {"name": name}) for name, why in (("a", one), ("b", other))}
        for scores in ([], ["good"], ["good", "poor"], ["rank"]):
            row = {"gate": SCORES["gate"], **lost, **{name: SCORES[name] for name in scores}}
            orders = ([*row.items()], [*row.items()][::-1], sorted(row.items(), reverse=True))
            found = [made(dict(columns)) for columns in orders]
            assert told(found[0]) == told(found[1]) == told(found[2]), (one, other)
            if not settings and "rank" not in scores:
                why = deciding([one, other])
                status = "failed" if why.status == "failed" else "unscored"
                assert told(found[0])[:3] == (status, why.code, why.cause)


def test_a_fault_of_the_combination_is_not_laid_on_a_part_that_was_skipped() -> None:
    row = {**SCORES, "a": as_result(unscored("parse", "m", "answer"), {"name": "a"})}
    found = aggregators.MinAggregator(on_error="skip", normalize=False)(
        {name: row[name] for name in ("a", "good", "poor")}
    )
    assert isinstance(found, GraderError) and (found.status, found.error_type, found.cause) == (
        "failed",
        "aggregate",
        "rule",
    )


class Lost(RMGalleryError):
    """A failure of a cause."""

    def __init__(self, why: Score[Any]) -> None:
        super().__init__(why.reason)
        self.reason, self.cause = why.code, why.cause or "rule"


def raised(why: Score[Any]) -> Exception:
    return (
        Unscored(why.reason, reason=why.code, cause=why.cause)
        if why.status == "unscored"
        else Lost(why)
    )


NUMBERED = [why for why in MISSING if why.code not in NOT_BEGUN and why.cause != "answer"]
"""An answer's text is the number of what is wrong with it. What an answer causes is a score, and
what was not begun ends the run.
"""


class Numbered(BasePointWiseReward):
    score_range = (0.0, 1.0)
    number: int = 0

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        raise raised(NUMBERED[self.number])


class NumberedSteps(BaseStepWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        raise raised(NUMBERED[int((sample.output[0].steps or [])[-1].text)])


class NumberedPairs(BasePairWiseReward):
    """A pair is lost by the higher of its two numbers: the last answer, which is 0, by each of the
    others'.
    """

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        raise raised(NUMBERED[max(int(output.answer.text) for output in sample.output)])


class NumberedGrader(BaseGrader):
    mode: GraderMode = GraderMode.POINTWISE
    numbers: list[int] = []

    def _grade(self, query: str) -> GraderScore:
        raise raised(NUMBERED[self.numbers.pop(0)])


def by_parts(kind: Callable[..., BaseReward]) -> Callable[[Sequence[int]], Score[Any]]:
    def run(numbers: Sequence[int]) -> Score[Any]:
        made = kind({f"part {n}": Numbered(name=f"part {n}", number=n) for n in numbers})
        return said_of(made, made.evaluate(make_sample("x")).output[0])

    return run


def by_steps(numbers: Sequence[int]) -> Score[Any]:
    given = make_sample("x")
    given.output[0].steps = [Step(content=str(number)) for number in numbers]
    reward = NumberedSteps()
    return said_of(reward, reward.evaluate(given).output[0])


def by_pairs(numbers: Sequence[int]) -> Score[Any]:
    sample = make_sample(*map(str, numbers), "0")
    reward = NumberedPairs()
    return said_of(reward, reward.evaluate(sample).output[-1])


def by_strategy(kind: Callable[..., BaseGrader]) -> Callable[[Sequence[int]], Score[Any]]:
    def run(numbers: Sequence[int]) -> Score[Any]:
        found = kind(NumberedGrader(numbers=list(numbers)), n=len(numbers)).evaluate({"query": "q"})
        assert isinstance(found, GraderError)
        return score_of(found)

    return run


WHOLES: dict[str, Callable[[Sequence[int]], Score[Any]]] = {
    "weighted sum": by_parts(WeightedSum),
    "combined": by_parts(Combined),
    "steps of an answer": by_steps,
    "pairs of an answer": by_pairs,
    "average": by_strategy(strategy.AverageGrader),
    "votes": by_strategy(strategy.VotingGrader),
}


@pytest.mark.parametrize("name", WHOLES)
def test_the_order_of_parts_changes_nothing_in_any_composition(name: str) -> None:
    for pair in (pair for pair in permutations(range(len(NUMBERED)), 2) if pair[0] < pair[1]):
        there, back = WHOLES[name](pair), WHOLES[name](pair[::-1])
        assert there.status == back.status
        assert there.code == back.code
        assert there.cause == back.cause, pair
        wanted = deciding([NUMBERED[number] for number in pair])
        assert (there.status, there.cause) == (wanted.status, wanted.cause)


def test_every_composition_of_unordered_parts_is_held_to_it() -> None:
    kinds = {
        k
        for k in vars(compose).values()
        if isinstance(k, type) and issubclass(k, Composition) and k is not Composition
        if not k.__name__.startswith("_")
    }
    # a cascade asks one stage after another: its order is its meaning
    assert kinds == {WeightedSum, Combined, compose.Cascade, compose.Gate}
