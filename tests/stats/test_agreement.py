"""Agreement is that of scikit-learn, statsmodels and krippendorff, and its intervals hold the truth as often as they say."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, Literal

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from rm_gallery.core.stats.agreement import (
    cohen_kappa,
    cohen_kappa_estimate,
    fleiss_kappa,
    fleiss_kappa_estimate,
    krippendorff_alpha,
    krippendorff_alpha_estimate,
)
from rm_gallery.core.stats.clustered import ClusteredMean
from rm_gallery.core.stats.correlation import kendall_tau_b_estimate, spearman_estimate

inter_rater: Any = import_module("statsmodels.stats.inter_rater")
Metric = Literal["nominal", "ordinal", "interval"]
Estimate = Callable[..., ClusteredMean | None]
TABLES = st.integers(2, 5).flatmap(
    lambda raters: st.lists(st.lists(st.integers(1, 5), min_size=raters, max_size=raters), min_size=2, max_size=25)
)


def ratings(seed: int, missing: float = 0.0) -> list[list[float]]:
    """Five raters of sixty units on a scale of four, who agree on most."""
    rng = np.random.default_rng(seed)
    found = np.where(rng.random((5, 60)) < 0.35, rng.integers(0, 4, (5, 60)), rng.integers(0, 4, 60)).astype(float)
    found[rng.random(found.shape) < missing] = np.nan
    return [[float(value) for value in row] for row in found]


@settings(max_examples=60, deadline=None)
@given(TABLES, st.sampled_from([None, "linear", "quadratic"]), st.booleans())
def test_two_raters_agree_as_scikit_learn_says(table: list[list[int]], weights: Any, whole_scale: bool) -> None:
    first, second = [unit[0] for unit in table], [unit[1] for unit in table]
    scale = [1, 2, 3, 4, 5] if whole_scale else sorted({*first, *second})
    found = cohen_kappa(first, second, weights=weights, categories=scale if whole_scale else None)
    if len({*first, *second}) < 2:
        assert found is None
    else:
        assert found == pytest.approx(cohen_kappa_score(first, second, weights=weights, labels=scale), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_several_raters_agree_as_statsmodels_and_krippendorff_say(table: list[list[int]]) -> None:
    rows: list[list[int]] = np.array(table).T.tolist()
    if len({label for unit in table for label in unit}) < 2:
        assert fleiss_kappa(rows) is None and krippendorff_alpha(rows) is None
        return
    counts, _ = inter_rater.aggregate_raters(np.array(table))
    assert fleiss_kappa(rows) == pytest.approx(inter_rater.fleiss_kappa(counts), abs=1e-12)
    for metric in ("nominal", "ordinal", "interval"):
        expected = krippendorff.alpha(reliability_data=np.array(rows), level_of_measurement=metric)
        assert krippendorff_alpha(rows, metric=metric) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", ["nominal", "ordinal", "interval"])
def test_alpha_with_gaps_far_from_zero_and_by_name(metric: Metric) -> None:
    rows = ratings(1, 0.3)
    expected = krippendorff.alpha(reliability_data=np.array(rows), level_of_measurement=metric)
    assert krippendorff_alpha(rows, metric=metric) == pytest.approx(expected, abs=1e-12)
    assert krippendorff_alpha([[v + 1e8 for v in row] for row in rows], metric=metric) == pytest.approx(
        expected, abs=1e-9
    )
    named: list[dict[Hashable, Hashable]] = [{f"unit {unit}": value for unit, value in enumerate(row)} for row in rows]
    assert krippendorff_alpha(named, metric=metric) == pytest.approx(expected, abs=1e-12)


def test_the_standard_error_of_kappa_is_that_of_statsmodels() -> None:
    first, second = ([int(v) for v in row] for row in ratings(1)[:2])
    expected = inter_rater.cohens_kappa(inter_rater.to_table(np.column_stack([first, second]))[0])
    found = cohen_kappa_estimate(first, second)
    assert found is not None and found.bounds == (-1.0, 1.0)
    assert found.standard_error == pytest.approx(expected.std_kappa, rel=0.05)
    assert found.interval() == pytest.approx((expected.kappa_low, expected.kappa_upp), abs=0.03)


@pytest.mark.parametrize(
    ("estimate", "several"),
    [
        (cohen_kappa_estimate, False),
        (fleiss_kappa_estimate, True),
        (krippendorff_alpha_estimate, True),
        (spearman_estimate, False),
        (kendall_tau_b_estimate, False),
    ],
)
def test_full_agreement_is_not_certain_and_copies_are_no_new_units(estimate: Estimate, several: bool) -> None:
    def of(*rows: list[int], **more: Any) -> ClusteredMean:
        found = estimate(list(rows), **more) if several else estimate(*rows, **more)
        assert found is not None
        return found

    perfect = of([0, 1, 2] * 13, [0, 1, 2] * 13)
    assert perfect.estimate == pytest.approx(1.0)
    assert perfect.interval().low < 0.9 and perfect.interval().high == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 50)
    y = np.where(rng.random(50) < 0.5, x, rng.integers(0, 5, 50))
    names = np.repeat(np.arange(50), 4).tolist()
    again = of(np.repeat(x, 4).tolist(), np.repeat(y, 4).tolist(), clusters=names)
    assert again.standard_error == pytest.approx(of(x.tolist(), y.tolist()).standard_error, rel=0.1)


def test_units_have_their_own_cluster_whatever_is_missing() -> None:
    rows: list[list[float | None]] = [[None, 1, 2, 2, 1, 3], [None, 1, 2, 1, None, 3], [None, 1, 2, 2, 1, 3]]
    names = [9, 0, 1, 1, 2, 2]
    by_place = krippendorff_alpha_estimate(rows, clusters=names)
    by_name = krippendorff_alpha_estimate(
        [dict[Hashable, Hashable]((f"u{k}", v) for k, v in enumerate(row)) for row in rows],
        clusters={f"u{k}": name for k, name in enumerate(names)},
    )
    assert by_place is not None and by_place == by_name and by_place.n_clusters == 3


@pytest.mark.parametrize("kappa", [0.3, 0.8])
def test_coverage_of_kappa(kappa: float) -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        first = rng.integers(0, 2, 120)
        second = np.where(rng.random(120) < kappa, first, rng.integers(0, 2, 120))
        found = cohen_kappa_estimate(first.tolist(), second.tolist(), n_draws=300)
        held += found is not None and found.interval().covers(kappa)
    assert 0.92 <= held / 300 <= 0.98
