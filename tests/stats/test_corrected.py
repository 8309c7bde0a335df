"""Corrected means: published worked examples, what is refused, and what must hold for any data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.stats.corrected import Corrected, corrected_difference, corrected_mean, label_scale
from rm_gallery.core.stats.intervals import wilson_interval
from rm_gallery.core.utils.errors import ConfigError

Column = list[float | None]


def bits(text: str) -> Column:
    return [float(c) for c in text]


def sparse(marks: str, values: str) -> Column:
    """Labels `values`, one after the other, in the rows marked 1."""
    left = iter(bits(values))
    return [next(left) if mark == "1" else None for mark in marks]


def first(labels: Sequence[float | None], n: int) -> Column:
    return [*labels, *[None] * (n - len(labels))]


FIVE = [4, 3, 5, 2, 4, 1, 3, 5]
FIVE_JUDGED = [4.5, 3.2, 4.8, 3, 4.1, 2, 3.9, 4.7]
FIVE_MORE = [4, 3.5, 4.4, 2.8, 4.9, 3.1, 3.3, 4.2, 2.5, 4.6, 3.8, 4.1]
TIES = [1, 0.5, 0, 1, 0.5, 1, 0, 1]
TIES_JUDGED = [1, 1, 0, 1, 0.5, 0.5, 0, 1]
TIES_MORE = [1, 1, 0.5, 0, 1, 1, 0.5, 1, 0, 1, 0.5, 1]
BINARY: dict[str, Any] = {"judge": bits("101111010111011101101110111101"), "labels": first(bits("1011010111"), 30)}

# Estimates, lam and standard errors as the published tools give them. Their intervals are not ours: a normal interval
# is too short with so few labels, and is not kept within the scale.
PUBLISHED: list[tuple[dict[str, Any], float, float, float]] = [
    (BINARY, 0.3625, 0.718125, 0.137241),
    ({"judge": FIVE_JUDGED + FIVE_MORE, "labels": first(FIVE, 20), "bounds": (1, 5)}, 1.0, 3.366667, 0.283734),
    ({"judge": TIES_JUDGED + TIES_MORE, "labels": first(TIES, 20)}, 0.510956, 0.667580, 0.117705),
    (
        {"judge": bits("110111001100"), "labels": bits("110111001100"), "clusters": list("aaabbbcccddd")},
        0.0, 0.583333, 0.159571,
    ),
    (
        {"judge": bits("1101110011101101"), "labels": first(bits("10011100"), 16), "clusters": list("aabbccddeeffgghh")},
        0.409091, 0.551136, 0.143702,
    ),
    (
        {
            "judge": bits("110110110111"),
            "labels": sparse("101010010011", "100110"),
            "clusters": list("aaabbbcccddd"),
        },
        0.203704, 0.466049, 0.144305,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "lam", "estimate", "se"), PUBLISHED)
def test_published_estimates(case: dict[str, Any], lam: float, estimate: float, se: float) -> None:
    found = corrected_mean(**case)
    assert found.lam == pytest.approx(lam, abs=6e-7)
    assert found.estimate == pytest.approx(estimate, abs=6e-7)
    assert found.se == pytest.approx(se, abs=6e-7)
    assert found.ci95 is not None
    assert found.bounds[0] <= found.ci95.low < estimate < found.ci95.high <= found.bounds[1]


def test_published_paired_difference() -> None:
    found = corrected_difference(
        bits("11111011101111011111"), bits("10011010101010011010"), first(bits("11011011"), 20), first(bits("10010110"), 20)
    )  # fmt: skip
    assert (found.lam, found.estimate, found.se) == pytest.approx((0.391484, 0.233688, 0.230761), abs=6e-7)
    p = found.p_value(0.0)
    # the normal p-value of the published tools is 0.311, on 8 labels
    assert p is not None and 0.311211 < p < 0.45


def test_by_verdict_is_the_published_sum_over_verdicts() -> None:
    found = corrected_mean(**BINARY, strata=[str(v) for v in BINARY["judge"]])
    assert found.estimate == pytest.approx(0.717460, abs=6e-7)
    # the published sketch gives [0.421382, 0.880687] with normal quantiles; ours allows for 10 labels
    assert found.ci95 is not None and found.ci95.low < 0.421382 and found.ci95.high > 0.880687


def test_strata_that_were_counted_on_the_same_rows_add_to_the_error() -> None:
    halves, labels = ["a"] * 50 + ["b"] * 50, [1.0] * 50 + [0.0] * 50
    counted = corrected_mean([None] * 100, labels, strata=halves)
    known = corrected_mean([None] * 100, labels, strata=halves, shares={"a": 1, "b": 1})
    assert (counted.se, known.se) == pytest.approx((0.05, 0.0))
    mixed = corrected_mean([None] * 20, [1.0, 0.0] * 10, strata=["a"] * 10 + ["b"] * 10)
    assert mixed.df == pytest.approx(18), "the degrees of freedom of both strata"


def test_variance_ratio_of_a_judge_with_known_correlation() -> None:
    rng = np.random.default_rng(0)
    labels = rng.standard_normal(400_000)
    judge = 0.6 * labels + 0.8 * rng.standard_normal(400_000)
    labels[30_000:] = np.nan
    found = corrected_mean(judge, labels, bounds=(-math.inf, math.inf))
    # 1 / (1 - 0.36 / (1 + 3 / 37)) times as many labels
    assert found.effective_labels / 30_000 == pytest.approx(449.775 / 300, rel=0.01)


def test_labels_alone_give_about_wilson() -> None:
    labels = [1.0] * 80 + [0.0] * 20
    found = corrected_mean([None] * 100, labels)
    wilson = wilson_interval(80, 100)
    assert found.method == "labels only"
    assert found.ci95 == pytest.approx(wilson, abs=0.002)
    assert found.effective_labels == pytest.approx(100)


def test_fully_labelled_rows_need_no_judge() -> None:
    labels = bits("1101") * 10
    assert corrected_mean(bits("0110") * 10, labels).estimate == 0.75
    assert corrected_mean(bits("0110") * 10, labels).ci95 == corrected_mean([None] * 40, labels).ci95


def test_all_labels_equal_leave_room_on_one_side() -> None:
    found = corrected_mean([1.0] * 200, first([1.0] * 40, 200))
    assert found.estimate == 1.0
    assert found.ci95 is not None and 0.85 < found.ci95.low < 0.92 and found.ci95.high == 1.0


@pytest.mark.parametrize("scale", [1.0, 0.5, 4.0])
def test_graded_scores_are_never_whole_numbers(scale: float) -> None:
    rng = np.random.default_rng(1)
    labels = rng.beta(2, 3, 300)
    judge = np.clip(labels + 0.05, 0, 1)
    labels[60:] = np.nan
    found = corrected_mean(judge * scale, labels * scale, bounds=(0.0, scale))
    assert found.estimate == pytest.approx(scale * (float(np.mean(judge)) - 0.05), abs=0.01 * scale)


def test_difference_of_graded_scores_keeps_its_sign() -> None:
    # the scores of A lie below, those of B above a half: cast to whole numbers this is -0.74
    judge_a, judge_b = [0.4, 0.45] * 50, [0.3, 0.5] * 50
    found = corrected_difference(judge_a, judge_b, first([0.8, 0.7] * 20, 100), first([0.7, 0.65] * 20, 100))
    assert found.estimate == pytest.approx(0.075, abs=0.01)


@pytest.mark.parametrize(
    "case",
    [
        BINARY,
        {**BINARY, "strata": [str(v) for v in BINARY["judge"]]},
        {**BINARY, "clusters": [i // 3 for i in range(30)]},
        {"judge": FIVE_JUDGED + FIVE_MORE, "labels": first(FIVE, 20), "bounds": (1, 5)},
        {"judge": FIVE_JUDGED + FIVE_MORE, "labels": first(FIVE, 20), "bounds": (1, math.inf)},
    ],
)
def test_p_value_and_interval_are_one_statistic(case: dict[str, Any]) -> None:
    found = corrected_mean(**case)
    assert found.ci95 is not None and found.estimate is not None
    for end in found.ci95:
        assert found.p_value(end) == pytest.approx(0.05, abs=1e-9)
        inside = end + 0.02 * (found.estimate - end)
        outside = end - 0.02 * (found.estimate - end)
        for value, verdict in ((inside, True), (outside, False)):
            p = found.p_value(value)
            assert p is not None and (p > 0.05) is verdict
    assert found.p_value(found.estimate) == 1.0
    narrow = corrected_mean(**case, confidence=0.5).ci95
    assert narrow is not None and found.p_value(narrow.low) == pytest.approx(0.5, abs=1e-9)


def test_rows_without_a_judge_score_are_counted_and_kept() -> None:
    judge: Column = [*BINARY["judge"]]
    judge[3] = judge[20] = None
    judge[25] = float("nan")
    found = corrected_mean(judge, BINARY["labels"])
    assert (found.n, found.n_judged, found.n_labelled) == (30, 27, 10)
    assert found.notes == ("3 of 30 rows have no judge score; they count with the mean of the others",)
    assert found.estimate == pytest.approx(0.7155, abs=0.02)


def test_a_judge_that_fails_on_hard_rows_does_not_bias() -> None:
    rng = np.random.default_rng(2)
    labels = (rng.random(40_000) < 0.6) * 1.0
    silent = rng.random(40_000) < np.where(labels == 1, 0.05, 0.5)
    judge = np.where(silent, np.nan, np.where(rng.random(40_000) < 0.9, labels, 1 - labels))
    labels[20_000:] = np.nan
    estimate = corrected_mean(judge, labels).estimate
    assert estimate == pytest.approx(0.6, abs=0.012)  # the rows the judge did speak on: 0.74


def test_without_labels_there_is_no_figure() -> None:
    found = corrected_mean([1.0, 0.0, 1.0], [None, None, None])
    assert (found.estimate, found.ci95, found.n, found.n_labelled, found.p_value(0.5)) == (None, None, 3, 0, None)
    assert found.judge_mean == pytest.approx(2 / 3)
    assert corrected_mean([], []).estimate is None


@pytest.mark.parametrize("n_labelled", [1, 2])
def test_one_or_two_labels_say_next_to_nothing(n_labelled: int) -> None:
    found = corrected_mean(bits("1011") * 10, first([1.0] * n_labelled, 40))
    assert found.ci95 is not None and found.ci95.low < 0.02 and found.ci95.high == 1.0
    assert "rests on very little" in found.notes[-1]


def test_a_judge_on_another_scale_helps_as_much() -> None:
    rng = np.random.default_rng(3)
    labels = (rng.random(500) < 0.6) * 1.0
    judge = np.where(rng.random(500) < 0.9, labels, 1 - labels)
    labels[100:] = np.nan
    same, other = corrected_mean(judge, labels), corrected_mean(1 + 9 * judge, labels)
    assert other.estimate == pytest.approx(same.estimate)
    assert other.effective_labels == pytest.approx(same.effective_labels)
    assert other.lam == pytest.approx(same.lam / 9)


def test_an_inverted_or_constant_judge_is_left_unused() -> None:
    labels = first(bits("1101110011"), 60)
    for judge in ([1 - (y or 0.0) for y in labels], [0.7] * 60):
        found = corrected_mean(judge, labels)
        assert (found.lam, found.method) == (0.0, "labels only")
        assert found.estimate == pytest.approx(0.7)


def test_labels_drawn_by_verdict_weigh_by_their_probability() -> None:
    judge = bits("1" * 80 + "0" * 20)
    labels: Column = [*([1.0] * 6 + [0.0] * 2 + [None] * 72), *([1.0] * 3 + [0.0] * 7 + [None] * 10)]
    chosen = [0.1] * 80 + [0.5] * 20
    found = corrected_mean(judge, labels, probabilities=chosen)
    assert found.estimate == pytest.approx(0.8 * 0.75 + 0.2 * 0.3)  # the labels as they are: 0.5
    assert found.method == "inverse probability"
    # unlabelled rows may leave theirs out where the verdict tells it
    left_out: Column = [p if y is not None else None for p, y in zip(chosen, labels, strict=True)]
    assert corrected_mean(judge, labels, probabilities=left_out) == found


def test_equal_probabilities_are_a_random_sample() -> None:
    found = corrected_mean(**BINARY, probabilities=[1 / 3] * 30)
    plain = corrected_mean(**BINARY)
    assert (found.estimate, found.ci95) == (plain.estimate, plain.ci95)


def test_many_probabilities_follow_the_formula() -> None:
    rng = np.random.default_rng(4)
    labels = rng.random(200)
    judge, chosen = np.clip(labels + 0.1 * rng.standard_normal(200), 0, 1), rng.uniform(0.2, 0.9, 200)
    labels[rng.random(200) > chosen] = np.nan
    found = corrected_mean(judge, labels, probabilities=chosen)
    weights = np.where(np.isnan(labels), 0.0, 1 / chosen)
    residuals = np.nan_to_num(labels) - found.lam * judge
    expected = found.lam * judge.mean() + (weights @ residuals) / weights.sum()
    assert found.estimate == pytest.approx(expected)


def test_post_stratified_on_a_rubric_is_not_cut_to_one() -> None:
    labels: Column = [4, 3, 5, 3, None, None, 2, 4, 3, 2, None, None]
    judge: Column = [4, 4, 5, 4, 5, 4, 3, 4, 3, 3, 2, 3]
    strata = ["old"] * 6 + ["new"] * 6
    even = corrected_mean(judge, labels, strata=strata, bounds=(1, 5))
    moved = corrected_mean(judge, labels, strata=strata, shares={"old": 3, "new": 1}, bounds=(1, 5))
    same = corrected_mean(judge, labels, strata=strata, shares={"old": 0.5, "new": 0.5}, bounds=(1, 5))
    assert even.estimate is not None and moved.estimate is not None
    assert same.estimate == pytest.approx(even.estimate)  # an unchanged mix changes nothing
    assert 2.75 < even.estimate < moved.estimate < 3.75


def test_named_twice_a_cluster_is_one() -> None:
    rng = np.random.default_rng(5)
    labels = (rng.random(60) < 0.7) * 1.0
    names = np.arange(60)
    once = corrected_mean([None] * 60, labels, clusters=names.tolist())
    twice = corrected_mean(
        [None] * 120, np.concatenate([labels, labels]), clusters=np.concatenate([names, names]).tolist()
    )
    assert once == corrected_mean([None] * 60, labels)
    assert (twice.estimate, twice.n_clusters) == (once.estimate, 60)
    assert twice.se == pytest.approx(once.se)


def test_clusters_against_statsmodels() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(6)
    groups = rng.integers(0, 12, 80)
    labels = np.clip(rng.normal(0.5, 0.1, 80) + rng.normal(0, 0.2, 12)[groups], 0, 1)
    fit = statsmodels.OLS(labels, np.ones(80)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True}
    )
    found = corrected_mean([None] * 80, labels, clusters=groups.tolist())
    # statsmodels multiplies by (n - 1) / (n - k) as well, which is 1 here
    assert found.se == pytest.approx(float(fit.bse[0]))


def test_labels_of_one_cluster_say_nothing_about_others() -> None:
    found = corrected_mean(bits("10" * 10), first(bits("10" * 5), 20), clusters=["a"] * 10 + ["b"] * 10)
    assert (found.ci95, found.effective_labels) == ((0.0, 1.0), 1.0)
    assert "all labels lie in one cluster" in found.notes[-1]


def test_equal_labels_without_bounds_are_pointed_out() -> None:
    found = corrected_mean([0.5] * 20, first([0.5] * 10, 20), bounds=(-math.inf, math.inf))
    assert "all labels are equal" in found.notes[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judge": [1.0]}, "judge needs one entry per row: found 1 for 30 labels"),
        ({"clusters": ["a"]}, "clusters needs one entry per row: found 1 for 30"),
        ({"strata": ["a"]}, "strata needs one entry per row"),
        ({"probabilities": [0.5]}, "probabilities needs one entry per row"),
        ({"probabilities": [0.0] * 30}, "probabilities lie above 0 and at most at 1; found 0"),
        ({"probabilities": [None] * 30}, "needs one for every labelled row"),
        ({"bounds": (1, 5)}, "a label is 0, outside the bounds 1..5"),
        ({"bounds": (1, 1)}, "bounds are"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"labels": ["good"] * 30}, "labels holds numbers"),
        ({"labels": [math.inf] * 30}, "labels holds inf in row 0"),
        ({"judge": [1e300] * 30}, r"judge holds 1e\+300 in row 0, which is no score"),
        ({"shares": {"a": 1}}, "name the stratum of every row"),
        ({"strata": ["a"] * 10 + ["b"] * 20}, "1 of 2 strata have no label, the first is 'b'"),
        ({"strata": ["a"] * 30, "shares": {"b": 1}}, r"a share but no rows \['b'\], rows but no share \['a'\]"),
        ({"strata": ["a"] * 30, "shares": {"a": -1}}, "shares are numbers of at least 0"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corrected_mean(**{**BINARY, **change})


@pytest.mark.parametrize(
    ("labels", "finite"),
    [([1.0, None, 0.0], True), ([0.2, 0.9], True), ([1.0, 5.0], False), ([-1.0, 1.0], False), ([], False)],
)
def test_a_scale_that_nobody_named(labels: Column, finite: bool) -> None:
    assert label_scale(labels) == ((0.0, 1.0) if finite else (-math.inf, math.inf))


@pytest.mark.parametrize(
    ("labels", "scale", "bounds"),
    [
        ([3.0, 5.0], (1.0, 5.0), (1.0, 5.0)),
        ([1.0, 1.0], (1.0, 5.0), (1.0, 5.0)),
        ([0.0, 1.0], (1.0, 5.0), (0.0, 1.0)),
        ([0.0, 1.0], (0.0, 10.0), (0.0, 1.0)),
        ([0.0, 6.0], (1.0, 5.0), (-math.inf, math.inf)),
        ([3.0, 5.0], (1.0, math.inf), (-math.inf, math.inf)),
    ],
)
def test_labels_on_the_judge_s_scale_end_where_it_ends(labels: Column, scale: Any, bounds: Any) -> None:
    assert label_scale(labels, scale) == bounds


def test_refused_differences_and_nulls() -> None:
    with pytest.raises(ConfigError, match="judge_a 1, judge_b 2"):
        corrected_difference([1.0], [1.0, 0.0], [1.0], [1.0])
    with pytest.raises(ConfigError, match="a label is 3, outside the bounds 0..1"):
        corrected_difference([1.0], [1.0], [3.0], [2.5])
    with pytest.raises(ConfigError, match="null is 2.0, outside the bounds 0..1"):
        corrected_mean(**BINARY).p_value(2.0)


def test_a_result_tells_itself() -> None:
    found = corrected_mean(**BINARY)
    assert isinstance(found, Corrected)
    assert found.judge_mean == pytest.approx(22 / 30)
    assert found.labels_mean == pytest.approx(0.7)
    assert "_test" not in repr(found)
