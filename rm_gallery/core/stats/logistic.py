"""Logistic regression whose errors hold with repeated prompts, few losses and outcomes between 0 and 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

_ROUNDS = 200
_LONGEST = 2.0


class Fit(NamedTuple):
    """Coefficients, their covariance, and the degrees of freedom it has; `converged` is False where they run off."""

    beta: Floats
    covariance: Floats
    df: float
    converged: bool


def sigmoid(x: float) -> float:
    """Give 1 / (1 + exp(-x)) for any x."""
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


def fit_logistic(
    design: Floats, y: Floats, groups: NDArray[np.intp], *, firth: bool = True, ridge: Floats | None = None
) -> Fit:
    """Fit P(y) = sigmoid(design @ beta), by maximum likelihood with Firth's penalty or with a ridge.

    Args:
        design: one row per outcome, shape (n, k), of full rank unless there is a ridge.
        y: outcomes within 0..1; what lies between counts as that part of a win.
        groups: number of the cluster of each row, from 0.
        firth: whether to add Jeffreys' penalty, which keeps coefficients finite where one side always wins.
        ridge: shape (k,), the weight of each squared coefficient in the loss.

    Returns:
        The fit; its covariance is the sandwich summed over clusters, and nowhere less than the model's own.

    Source: D. Firth, "Bias reduction of maximum likelihood estimates", 1993; sandwich with leverages (HC2).
    """
    import numpy as np

    k = design.shape[1]
    penalty = np.zeros(k) if ridge is None else 2.0 * ridge
    beta: Floats = np.zeros(k)
    longest = math.inf
    for _ in range(_ROUNDS):
        p, inverse, leverage = _moments(design, beta, penalty)
        score = design.T @ (y - p + (leverage * (0.5 - p) if firth else 0.0)) - penalty * beta
        step = inverse @ score
        longest = float(np.abs(step).max())
        beta = beta + step * min(1.0, _LONGEST / longest if longest else 1.0)
        if longest < 1e-10 or float(np.abs(beta).max()) > 500.0:
            break
    p, inverse, leverage = _moments(design, beta, penalty)
    n_groups = int(groups.max()) + 1
    scores = np.zeros((n_groups, k))
    np.add.at(scores, groups, design * ((y - p) / np.sqrt(1.0 - np.minimum(leverage, 0.9)))[:, None])
    sandwich = inverse @ (scores.T @ scores) @ inverse
    # few losses leave small residuals; the model's own variance, less where ties make outcomes vary less, is then nearer
    between = ((y > 0.0) & (y < 1.0)).any()
    varied = min(1.0, float(((y - p) ** 2).sum() / max(float((p * (1.0 - p)).sum()), 1e-300))) if between else 1.0
    # compared in every direction and not by coordinate, so that nothing depends on which basis the strengths were given in
    values, vectors = np.linalg.eigh(inverse)
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    back = (vectors / np.sqrt(np.maximum(values, 1e-300)))[:, values > 1e-12 * max(float(values.max()), 1e-300)]
    half = half[:, -back.shape[1] :]
    ratios, turned = np.linalg.eigh(back.T @ sandwich @ back)
    turned = half @ turned
    covariance = (turned * np.maximum(ratios, varied)) @ turned.T
    return Fit(beta, covariance, max(1.0, n_groups - float(k)), longest < 1e-6)


def _moments(design: Floats, beta: Floats, penalty: Floats) -> tuple[Floats, Floats, Floats]:
    import numpy as np

    p = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -700.0, 700.0)))
    w = p * (1.0 - p)
    inverse = np.linalg.pinv(design.T @ (design * w[:, None]) + np.diag(penalty), hermitian=True)
    return p, inverse, w * np.einsum("ij,jk,ik->i", design, inverse, design)
