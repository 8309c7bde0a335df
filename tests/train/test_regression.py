"""The fit of pairs: balanced orders, a penalty that the prompts choose, and weights that any order
of the work leaves alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rm_gallery.gallery.rm.trained.features import HASH_BITS, dense_names
from rm_gallery.train import bradley_terry as fitting
from rm_gallery.train.bradley_terry import (
    DEFAULT_STRENGTH,
    STRENGTHS,
    build_design,
    choose_strength,
    fit_weights,
    pair_matrix,
    random_order,
    read_samples,
)
from tests.train.preferences import polite_samples

SAMPLES = read_samples(polite_samples(90, seed=1)).samples
PAIRS = pair_matrix(SAMPLES, 1 << HASH_BITS)
KEYS = [sample.key for sample in SAMPLES]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1001])
def test_both_orders_are_equally_frequent(n: int) -> None:
    for seed in (0, 1, 12345):
        order = random_order(n, seed)
        assert set(order.tolist()) <= {-1, 1} and int(order.sum()) == n % 2


def test_the_design_is_the_differences_scaled_to_unit_size_beside_the_words_that_occur() -> None:
    design = build_design(PAIRS)
    dense = PAIRS.dense
    shapes = np.array([1.5 if name.startswith("shape.") else 1.0 for name in dense_names()])
    seen = (dense != 0).sum(axis=0)
    known = seen > 0
    # as the root of the mean square says, and smaller where few pairs show a feature
    expected = (
        shapes[known] / np.sqrt((dense**2).mean(axis=0) * (1 + 20 / np.maximum(seen, 1)))[known]
    )
    assert design.scale[known] == pytest.approx(expected) and not design.scale[~known].any()
    used = np.unique(PAIRS.words.indices)
    assert design.width == len(dense_names()) + (1 << HASH_BITS)
    assert design.columns.tolist() == [*np.flatnonzero(known), *(used + len(dense_names()))]
    whole = np.hstack([(dense * design.scale)[:, known], PAIRS.words[:, used].toarray()])
    assert np.array_equal(design.matrix.toarray(), whole)


@pytest.mark.long("many runs of training")
def test_the_weights_are_where_the_gradient_vanishes() -> None:
    design, strength = build_design(PAIRS), 0.05
    weights = np.linspace(0.2, 2.0, PAIRS.n)
    found = fit_weights(design, weights, strength, 0)
    scaled, dense = found.copy(), len(design.scale)
    scaled[:dense] = np.divide(
        found[:dense], design.scale, out=np.zeros(dense), where=design.scale > 0
    )
    used = scaled[design.columns]
    # of each pair, what is left to be learned
    missed = weights / (1 + np.exp(design.matrix @ used))
    assert design.matrix.T @ missed == pytest.approx(used / strength, abs=2e-3 * weights.sum())
    assert (
        np.abs(used).max() > 0.02
        and not scaled[np.setdiff1d(np.arange(design.width), design.columns)].any()
    )
    assert found == pytest.approx(fit_weights(design, weights, strength, 1), abs=1e-3)


@pytest.mark.long("many runs of training")
def test_the_penalty_is_the_likeliest_on_prompts_that_were_not_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design = build_design(PAIRS)
    assert choose_strength(design, PAIRS, KEYS, 0) == STRENGTHS[-1], (
        "a plain preference wants no penalty"
    )
    signs = np.random.default_rng(0).choice((-1, 1), (PAIRS.n, 1))
    noise = replace(PAIRS, dense=PAIRS.dense * signs, words=PAIRS.words.multiply(signs).tocsr())
    assert choose_strength(build_design(noise), noise, KEYS, 0) == STRENGTHS[0], (
        "nothing is to be learned"
    )
    assert (
        choose_strength(design, PAIRS, [f"p{n % 19}" for n in range(90)], 0) == DEFAULT_STRENGTH
    ), "19 prompts are too few"
    assert choose_strength(design, PAIRS, [f"p{n % 20}" for n in range(90)], 0) == STRENGTHS[-1]
    fitted: list[int] = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(fitting, "CHOSEN_BY", 45)

    def noted(model: Any, matrix: Any, *rest: Any, **weights: Any) -> Any:
        fitted.append(matrix.shape[0])
        return fit(model, matrix, *rest, **weights)

    monkeypatch.setattr(LogisticRegression, "fit", noted)
    assert choose_strength(design, PAIRS, KEYS, 0) == STRENGTHS[-1]
    assert set(fitted) == {30}, "three folds of six, each fitted on the two others"
