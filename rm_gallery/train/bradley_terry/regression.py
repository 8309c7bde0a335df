"""Logistic regression on the feature differences of pairs: the Bradley–Terry model's likelihood with a ridge penalty."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rm_gallery.gallery.rm.trained.features import dense_names
from rm_gallery.train.bradley_terry.pairs import PairMatrix, prompt_folds

STRENGTHS = (0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0)
"""Inverse penalties C to choose from, strongest penalty first."""
DEFAULT_STRENGTH = 0.016
FOLDS = 3
CHOSEN_BY = 20_000
"""Pairs at most by which the penalty is chosen, of prompts that the seed draws: the prior's width, which it is, wants no more."""
_FEWEST_PROMPTS = 20
"""Below this, folds are too small to choose by, and the default stands."""
_SHAPE_PRIOR = 1.5
"""Length and form get a wider prior than single words and cues: they are few, and seen in every pair."""
_DAMPING = 20.0
"""Dense features seen in far fewer pairs than this are shrunk: one pair must not decide a weight."""


@dataclass(frozen=True)
class Design:
    """The matrix that is fitted, and how to get from its columns back to features."""

    matrix: Any
    """Scipy CSR, one row per pair, only columns that occur."""
    columns: NDArray[np.int64]
    """Places of these columns among dense features followed by words."""
    scale: NDArray[np.float64]
    """Factor of each dense feature."""
    width: int
    """Dense features and words together."""


def build_design(pairs: PairMatrix) -> Design:
    """Scale the dense differences to unit size and put them beside the words."""
    from scipy import sparse

    seen = np.count_nonzero(pairs.dense, axis=0)
    square = np.mean(pairs.dense**2, axis=0) * (1.0 + _DAMPING / np.maximum(seen, 1))
    scale = np.where(seen > 0, 1.0 / np.sqrt(np.where(seen > 0, square, 1.0)), 0.0)
    scale[[name.startswith("shape.") for name in dense_names()]] *= _SHAPE_PRIOR
    full = sparse.hstack([sparse.csr_matrix(pairs.dense * scale), pairs.words], format="csr")
    # by a table and not by sorting and slicing, which take many seconds in one call where there are many pairs
    occurs = np.zeros(full.shape[1], np.bool_)
    occurs[full.indices] = True
    columns = np.flatnonzero(occurs).astype(np.int64)
    place = np.cumsum(occurs, dtype=np.int64) - 1
    matrix = sparse.csr_matrix((full.data, place[full.indices], full.indptr), shape=(full.shape[0], len(columns)))
    return Design(matrix, columns, scale, full.shape[1])


def random_order(n: int, seed: int) -> NDArray[np.int64]:
    """Which answer of each pair comes first: 1 the chosen, -1 the rejected; as many of one as of the other, give or take one.

    Without an intercept the order does not change the fitted weights; drawing it keeps the classes balanced.
    """
    signs = [1 if place % 2 == 0 else -1 for place in range(n)]
    random.Random(seed).shuffle(signs)
    return np.array(signs, np.int64)


def fit_weights(design: Design, weights: NDArray[np.float64], strength: float, seed: int) -> NDArray[np.float64]:
    """Weights of dense features and words, to be used on unscaled features, shape (width,)."""
    found = _fit(_regression(strength, 1e-4), design.matrix, weights, seed)
    full = np.zeros(design.width)
    full[design.columns] = found
    full[: len(design.scale)] *= design.scale
    return full


def choose_strength(design: Design, pairs: PairMatrix, keys: Sequence[str], seed: int) -> float:
    """The inverse penalty with the best likelihood on held-out folds of prompts.

    Args:
        design: of all training pairs.
        pairs: the same pairs.
        keys: prompt of each sample.
        seed: decides folds and orders.
    """
    if len(set(keys)) < _FEWEST_PROMPTS:
        return DEFAULT_STRENGTH
    number = np.array(prompt_folds(keys, FOLDS * math.ceil(pairs.n / CHOSEN_BY), seed))[pairs.sample]
    matrix, weights = design.matrix, pairs.weights
    # cut once, because slicing costs as much as a step of the fit
    parts = [
        (matrix[train], weights[train], matrix[test], weights[test])
        for fold in range(FOLDS)
        for train, test in [(np.flatnonzero((number != fold) & (number < FOLDS)), np.flatnonzero(number == fold))]
    ]
    models = [_regression(STRENGTHS[0], 1e-3) for _ in parts]
    best, least = STRENGTHS[0], float("inf")
    for strength in STRENGTHS:
        loss = 0.0
        for model, (train, train_weights, test, test_weights) in zip(models, parts, strict=True):
            model.set_params(C=strength)
            found = _fit(model, train, train_weights, seed)
            loss += float(np.logaddexp(0.0, -(test @ found)) @ test_weights)
        if loss >= least:
            break
        best, least = strength, loss
    return best


def _regression(strength: float, tolerance: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    # a fitted object starts its next fit from the solution before, which lies near
    return LogisticRegression(C=strength, fit_intercept=False, max_iter=5000, tol=tolerance, warm_start=True)


def _fit(model: Any, matrix: Any, weights: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    first = random_order(matrix.shape[0], seed)
    # the vectors are too short for threads to pay off: on a busy machine, waiting for one another takes most of the time
    with threadpool_limits(limits=1, user_api="blas"):
        model.fit(_signed(matrix, first), first, sample_weight=weights)
    found: NDArray[np.float64] = model.coef_[0]
    return found


def _signed(matrix: Any, first: NDArray[np.int64]) -> Any:
    """The rows, each times 1 or -1, with the places of the entries shared."""
    data = matrix.data * np.repeat(first.astype(np.float64), np.diff(matrix.indptr))
    return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
