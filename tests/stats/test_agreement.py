"""Agreement and rank correlations are those of scikit-learn, scipy, statsmodels and krippendorff,
and so are scores against labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, Literal

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import kendalltau, spearmanr
from sklearn import metrics
from sklearn.metrics import cohen_kappa_score

from rm_gallery.core.stats import agreement
from rm_gallery.core.stats.uncertainty import Estimate
from rm_gallery.core.stats.validation import validate

inter_rater: Any = import_module("statsmodels.stats.inter_rater")
Metric = Literal["nominal", "ordinal", "interval"]
Measure = Callable[..., Estimate | None]
TABLES = st.integers(2, 5).flatmap(
    lambda raters: st.lists(
        st.lists(st.integers(1, 5), min_size=raters, max_size=raters), min_size=2, max_size=25
    )
)


def held_by(figure: Estimate | None, value: float) -> bool:
    ends = None if figure is None else figure.interval()
    return ends is not None and ends.covers(value)


def ratings(seed: int, missing: float = 0.0) -> list[list[float]]:
    """Five raters of sixty units on a scale of four, who agree on most."""
    rng = np.random.default_rng(seed)
    found = np.where(
        rng.random((5, 60)) < 0.35, rng.integers(0, 4, (5, 60)), rng.integers(0, 4, 60)
    ).astype(float)
    found[rng.random(found.shape) < missing] = np.nan
    return [[float(value) for value in row] for row in found]


@settings(max_examples=60, deadline=None)
@given(TABLES, st.sampled_from([None, "linear", "quadratic"]), st.booleans())
def test_two_raters_agree_as_scikit_learn_says(
    table: list[list[int]], weights: Any, whole_scale: bool
) -> None:
    first, second = [unit[0] for unit in table], [unit[1] for unit in table]
    scale = [1, 2, 3, 4, 5] if whole_scale else sorted({*first, *second})
    found = agreement.cohen_kappa(
        first, second, weights=weights, categories=scale if whole_scale else None
    )
    if len({*first, *second}) < 2:
        assert found is None
    else:
        assert found == pytest.approx(
            cohen_kappa_score(first, second, weights=weights, labels=scale), abs=1e-12
        )


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_several_raters_agree_as_statsmodels_and_krippendorff_say(table: list[list[int]]) -> None:
    rows: list[list[int]] = np.array(table).T.tolist()
    if len({label for unit in table for label in unit}) < 2:
        assert agreement.fleiss_kappa(rows) is None and agreement.krippendorff_alpha(rows) is None
        return
    counts, _ = inter_rater.aggregate_raters(np.array(table))
    assert agreement.fleiss_kappa(rows) == pytest.approx(
        inter_rater.fleiss_kappa(counts), abs=1e-12
    )
    for metric in ("nominal", "ordinal", "interval"):
        expected = krippendorff.alpha(reliability_data=np.array(rows), level_of_measurement=metric)
        assert agreement.krippendorff_alpha(rows, metric=metric) == pytest.approx(
            expected, abs=1e-12
        )


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from([-10, -1, 2, 9, 10, 100])] * 2), min_size=2, max_size=20),
    st.sampled_from([list, np.array, lambda row: np.array(row, float)]),
)
def test_numbers_have_the_order_of_numbers_whatever_type_and_digits_they_have(
    units: list[tuple[int, int]], typed: Callable[[list[int]], Any]
) -> None:
    """As texts 10 stands between 1 and 2, and a rater one step off would be many steps off."""
    columns: list[list[int]] = [list(column) for column in zip(*units, strict=True)]
    scale = sorted({label for unit in units for label in unit})
    if len(scale) < 2:
        return
    first, second = map(typed, columns)
    for weights in (None, "linear", "quadratic"):
        expected = cohen_kappa_score(*columns, weights=weights, labels=scale)
        found = agreement.cohen_kappa(first, second, weights=weights)
        assert found == pytest.approx(expected, abs=1e-12)
    for metric in ("nominal", "ordinal", "interval"):
        expected = krippendorff.alpha(np.array(columns), level_of_measurement=metric)
        found = agreement.krippendorff_alpha([first, second], metric=metric)
        assert found == pytest.approx(expected, abs=1e-12)
    expected = inter_rater.fleiss_kappa(inter_rater.aggregate_raters(np.array(units))[0])
    assert agreement.fleiss_kappa([first, second]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", ["nominal", "ordinal", "interval"])
def test_alpha_with_gaps_far_from_zero_and_by_name(metric: Metric) -> None:
    rows = ratings(1, 0.3)
    expected = krippendorff.alpha(reliability_data=np.array(rows), level_of_measurement=metric)
    assert agreement.krippendorff_alpha(rows, metric=metric) == pytest.approx(expected, abs=1e-12)
    assert agreement.krippendorff_alpha(
        [[v + 1e8 for v in row] for row in rows], metric=metric
    ) == pytest.approx(expected, abs=1e-9)
    named: list[dict[Hashable, Hashable]] = [
        {f"unit {unit}": value for unit, value in enumerate(row)} for row in rows
    ]
    assert agreement.krippendorff_alpha(named, metric=metric) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("estimate", "several"),
    [
        (agreement.cohen_kappa_estimate, False),
        (agreement.fleiss_kappa_estimate, True),
        (agreement.krippendorff_alpha_estimate, True),
    ]
    + [(agreement.spearman_estimate, False), (agreement.kendall_tau_b_estimate, False)],
)
def test_full_agreement_is_not_certain_and_copies_are_no_new_units(
    estimate: Measure, several: bool
) -> None:
    def of(*rows: list[int], **more: Any) -> Estimate:
        found = estimate(list(rows), **more) if several else estimate(*rows, **more)
        assert found is not None
        return found

    perfect = of([0, 1, 2] * 13, [0, 1, 2] * 13)
    assert perfect.estimate == pytest.approx(1.0)
    ends = perfect.interval()
    assert ends is not None and ends.low < 0.9 and ends.high == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 50)
    y = np.where(rng.random(50) < 0.5, x, rng.integers(0, 5, 50))
    names = np.repeat(np.arange(50), 4).tolist()
    again = of(np.repeat(x, 4).tolist(), np.repeat(y, 4).tolist(), clusters=names)
    assert again.standard_error == pytest.approx(of(x.tolist(), y.tolist()).standard_error, rel=0.1)


@pytest.mark.parametrize("kappa", [0.3, 0.8])
def test_coverage_of_kappa(kappa: float) -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        first = rng.integers(0, 2, 120)
        second = np.where(rng.random(120) < kappa, first, rng.integers(0, 2, 120))
        found = agreement.cohen_kappa_estimate(first.tolist(), second.tolist())
        held += held_by(found, kappa)
    assert 0.92 <= held / 300 <= 0.98


VALUES = st.one_of(st.integers(0, 4), st.floats(-9, 9), st.none())


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=20))
def test_they_are_those_of_scipy_over_what_both_have(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for ours, theirs in ((agreement.spearman, spearmanr), (agreement.kendall_tau_b, kendalltau)):
        found = ours(first, second)
        if len({a for a, _ in known}) < 2 or len({b for _, b in known}) < 2:
            assert found is None
        else:
            assert found == pytest.approx(
                float(theirs(*zip(*known, strict=True)).statistic), abs=1e-12
            )


@pytest.mark.parametrize(
    "estimate", [agreement.kendall_tau_b_estimate, agreement.spearman_estimate]
)
def test_coverage(estimate: Callable[..., Estimate | None]) -> None:
    rng, r, held = np.random.default_rng(0), 0.6, 0
    truth = (
        2 / math.pi * math.asin(r)
        if estimate is agreement.kendall_tau_b_estimate
        else 6 / math.pi * math.asin(r / 2)
    )
    for _ in range(400):
        x, e = rng.standard_normal((2, 80))
        found = estimate(x.tolist(), (r * x + math.sqrt(1 - r * r) * e).tolist())
        held += held_by(found, truth)
    assert 0.92 <= held / 400 <= 0.98


RNG = np.random.default_rng(7)
TRUTH = RNG.integers(0, 2, 300)
NOISY = np.clip(TRUTH * 0.4 + RNG.random(300) * 0.6, 0, 1)
STARS = RNG.integers(1, 6, 300)
NEAR = np.clip(STARS + RNG.integers(-1, 2, 300), 1, 5)


def test_verdicts() -> None:
    found = validate(NOISY.tolist(), TRUTH.tolist(), threshold=0.5)
    said = NOISY >= 0.5
    expected = {
        "accuracy": metrics.accuracy_score(TRUTH, said), "precision": metrics.precision_score(TRUTH, said),
        "recall": metrics.recall_score(TRUTH, said), "f1": metrics.f1_score(TRUTH, said),
        "kappa": metrics.cohen_kappa_score(TRUTH, said), "spearman": stats.spearmanr(NOISY, TRUTH).statistic,
        "mae": np.abs(NOISY - TRUTH).mean(),
    }  # fmt: skip
    for name, value in expected.items():
        low, high = getattr(found, f"{name}_ci95")
        assert getattr(found, name) == pytest.approx(value), name
        assert low < value < high and high - low < 0.3, name


def test_numbers_on_one_scale() -> None:
    found = validate(NEAR.tolist(), STARS.tolist())
    assert found.exact_agreement == pytest.approx((NEAR == STARS).mean())
    assert found.mae == pytest.approx(metrics.mean_absolute_error(STARS, NEAR))
    assert found.weighted_kappa == pytest.approx(
        metrics.cohen_kappa_score(STARS, NEAR, weights="quadratic")
    )
    assert found.spearman == pytest.approx(stats.spearmanr(NEAR, STARS).statistic)
    assert found.f1 is None and "f1" not in found.to_dict()


@pytest.mark.parametrize(
    "estimate", [agreement.spearman_estimate, agreement.kendall_tau_b_estimate]
)
def test_a_rare_label_without_a_relation_shows_none(estimate: Measure) -> None:
    """No row has both: the pulls alone gave -0.05 (-0.098 to -0.007)."""
    judge, label = [1] * 5 + [0] * 95, [0] * 95 + [1] * 5
    assert held_by(estimate(judge, label), 0.0)
