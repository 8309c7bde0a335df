"""Aggregators: the worked example, scales that differ, and what is missing never passes for a score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.graders.base import FunctionGrader
from rm_gallery.core.graders.result import GraderError, GraderRank, GraderResult, GraderScore
from rm_gallery.core.runner.aggregator import (
    BaseAggregator,
    CallableAggregator,
    GatedAggregator,
    GeometricMeanAggregator,
    MaxAggregator,
    MinAggregator,
    WeightedSumAggregator,
)
from rm_gallery.core.runner.grading_runner import GradingRunner


def five(score: float, **more: Any) -> GraderScore:
    return GraderScore(score=score, range=(1, 5), **more)


def share(score: float) -> GraderScore:
    return GraderScore(score=score, range=(0, 1))


FAILED = GraderError(name="x", reason="the judge was down", error="the judge was down", error_type="transient")
WEIGHTS = {"harmfulness": 0.4, "relevance": 0.3, "correctness": 0.3}


@pytest.mark.parametrize(
    ("aggregator", "results", "expected"),
    [
        (
            WeightedSumAggregator("r", WEIGHTS),
            {"harmfulness": five(5), "relevance": five(4), "correctness": five(3)},
            4.1,
        ),
        (WeightedSumAggregator("r"), {"a": five(5), "b": five(2)}, 3.5),
        (WeightedSumAggregator("r", {"a": 2, "b": 6}), {"a": five(5), "b": five(1)}, 2.0),
        (WeightedSumAggregator("r", {"a": 1}), {"a": five(5), "b": FAILED}, 5.0),
        (WeightedSumAggregator("r", {"a": 1, "b": 0}), {"a": five(5), "b": FAILED}, 5.0),
        (WeightedSumAggregator("r", {"a": 1, "b": 3, "c": 4}, "skip"), {"a": five(5), "b": five(1), "c": FAILED}, 2.0),
        (WeightedSumAggregator("r"), {"a": five(5), "b": share(0.5)}, 0.75),
        (WeightedSumAggregator("r"), {"a": five(5), "b": five(5, higher_is_better=False)}, 0.5),
        (
            WeightedSumAggregator("r"),
            {"a": five(5, higher_is_better=False), "b": five(3, higher_is_better=False)},
            0.25,
        ),
        (WeightedSumAggregator("r", normalize=True), {"a": five(3)}, 0.5),
        (WeightedSumAggregator("r", on_error="skip"), {"a": five(2), "b": FAILED}, 2.0),
        (WeightedSumAggregator("r", on_error=1.0), {"a": five(3), "b": FAILED}, 2.0),
        (MinAggregator(), {"a": five(5), "b": five(2)}, 2.0),
        (MaxAggregator(), {"a": five(5), "b": five(2)}, 5.0),
        (MinAggregator(), {"a": five(5), "b": share(0.5)}, 0.5),
        (GeometricMeanAggregator(), {"a": five(5), "b": share(0.25)}, 0.5),
        (GeometricMeanAggregator(), {"a": five(1), "b": share(1)}, 0.0),
        (GatedAggregator("r", "a", 3), {"a": five(3), "b": share(0.5), "c": five(5)}, 0.75),
        (GatedAggregator("r", "a", 3), {"a": five(2.5), "b": share(0.5)}, 0.0),
        (GatedAggregator("r", "a"), {"a": five(4, threshold=4), "b": share(0.5)}, 0.5),
        (CallableAggregator(lambda found: found["a"].score / 10), {"a": five(5)}, 0.5),
    ],
)
def test_scores_are_combined(aggregator: BaseAggregator, results: dict[str, GraderResult], expected: float) -> None:
    found = aggregator(results)
    assert isinstance(found, GraderScore), found.reason
    assert found.score == pytest.approx(expected)
    assert found.name == aggregator.name


@pytest.mark.parametrize(
    ("aggregator", "results"),
    [
        (WeightedSumAggregator("r"), {"a": five(5), "b": FAILED}),
        (WeightedSumAggregator("r", on_error="skip"), {"a": FAILED}),
        (WeightedSumAggregator("r"), {"a": five(5), "b": GraderRank(rank=[1, 2])}),
        (WeightedSumAggregator("r", normalize=False), {"a": five(5), "b": share(0.5)}),
        (WeightedSumAggregator("r"), {"a": five(5), "b": GraderScore(score=3)}),
        (MinAggregator(), {"a": FAILED, "b": five(3)}),
        (GeometricMeanAggregator(), {"a": FAILED, "b": five(3)}),
        (GatedAggregator("r", "a", 3), {"a": FAILED, "b": five(3)}),
        (GatedAggregator("r", "a", 3), {"a": five(5), "b": FAILED}),
        (CallableAggregator(lambda found: found["absent"]), {"a": five(5)}),
        (CallableAggregator(lambda found: math.nan), {"a": five(5)}),
        (CallableAggregator(lambda found: found["a"]), {"a": FAILED}),
    ],
)
def test_what_is_missing_is_an_error_and_no_score(aggregator: BaseAggregator, results: dict[str, GraderResult]) -> None:
    found = aggregator(results)
    assert isinstance(found, GraderError)
    assert found.reason
    assert math.isnan(found.score)


def test_an_error_names_the_grader_and_keeps_its_kind_and_the_components() -> None:
    found = WeightedSumAggregator("r")({"a": five(5), "b": FAILED})
    assert isinstance(found, GraderError)
    assert (found.error_type, found.metadata["missing"]) == ("transient", {"b": "the judge was down"})
    kept = WeightedSumAggregator("r", on_error="skip")({"a": five(5, reason="good"), "b": FAILED})
    assert kept.metadata["components"]["a"] == {"score": 5.0, "value": 5.0, "reason": "good"}
    assert "skipped: b" in kept.reason


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: WeightedSumAggregator("r", {"a": 0}), "sum to 0"),
        (lambda: WeightedSumAggregator("r", {"a": -1, "b": 2}), "weight of 'a'"),
        (lambda: WeightedSumAggregator("r", {"a": math.nan}), "weight of 'a'"),
        (lambda: WeightedSumAggregator("r", on_error="ignore"), "on_error"),
        (lambda: WeightedSumAggregator(""), "non-empty"),
        (lambda: runner(WeightedSumAggregator("r", {"relevence": 1})), "Did you mean relevance"),
        (lambda: runner(GatedAggregator("r", "relevence", 1)), "Did you mean relevance"),
        (lambda: runner(GatedAggregator("r", "relevance", 1)), "only grader"),
        (lambda: runner([WeightedSumAggregator("r"), MinAggregator("r")]), "'r' is taken"),
    ],
)
def test_a_wrong_aggregator_is_refused_when_the_runner_is_built(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize(("higher", "passed"), [(True, (False, True, True)), (False, (True, True, False))])
def test_a_score_passes_in_its_own_direction(higher: bool, passed: tuple[bool, ...]) -> None:
    assert tuple(five(s, threshold=3, higher_is_better=higher).passed() for s in (2, 3, 4)) == passed
    assert five(4, threshold=3, higher_is_better=higher).passed(4)


def runner(aggregators: Any) -> GradingRunner:
    return GradingRunner({"relevance": lambda response: 0.5}, aggregators=aggregators, show_progress=False)


@pytest.mark.parametrize("aggregators", [WeightedSumAggregator("r"), [WeightedSumAggregator("r")], lambda found: 0.5])
def test_one_several_or_a_function(aggregators: Any) -> None:
    found = runner(aggregators).run([{"response": "x"}, {}])
    (column,) = [name for name in found if name != "relevance"]
    assert getattr(found[column][0], "score", None) == 0.5
    if column == "r":
        assert isinstance(found[column][1], GraderError)


@pytest.mark.parametrize(("on_error", "expected"), [("skip", [0.5, 0.75]), (0.0, [0.5, 0.375])])
def test_a_grader_that_fails_does_not_change_the_scale_of_its_row(on_error: Any, expected: list[float]) -> None:
    def short(response: str) -> float:
        return 0.25 if len(response) < 5 else 1 / 0

    stars = FunctionGrader(lambda response: 4, name="stars", score_range=(1, 5))
    graders = GradingRunner(
        {"stars": stars, "short": short}, aggregators=WeightedSumAggregator("r", on_error=on_error), show_progress=False
    )
    found = graders.run([{"response": "x"}, {"response": "long answer"}])["r"]
    assert [getattr(result, "range", None) for result in found] == [(0.0, 1.0)] * 2
    assert [getattr(result, "score", None) for result in found] == pytest.approx(expected)


def test_a_sum_of_raw_scores_keeps_their_direction() -> None:
    lower = {name: five(4, higher_is_better=False) for name in "ab"}
    found = WeightedSumAggregator("r", normalize=False)(lower)
    assert isinstance(found, GraderScore)
    assert (found.score, found.higher_is_better) == (4, False)
