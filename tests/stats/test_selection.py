"""Labels that go with verdicts are noticed, chance is not accused, and verdicts are put together
where labels are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from rm_gallery.core.stats.labelled import labels_follow_verdicts

Floats = NDArray[Any]


def drawn(rng: np.random.Generator, n: int, favour: float, of: int = 1000) -> tuple[Floats, Floats]:
    judge = (rng.random(of) < 0.75) * 1.0
    weight = np.where(judge == 0, favour, 1.0)
    labelled = np.zeros(of, dtype=bool)
    labelled[rng.choice(of, n, replace=False, p=weight / weight.sum())] = True
    return judge, labelled


@pytest.mark.parametrize(
    ("n", "favour", "least", "most"),
    [(200, 5.0, 0.99, 1.0), (40, 5.0, 0.9, 1.0), (100, 1.0, 0.0, 0.012)],
)
def test_what_fails_more_often_is_seen_and_chance_is_not(
    n: int, favour: float, least: float, most: float
) -> None:
    rng = np.random.default_rng(0)
    seen = [
        labels_follow_verdicts(*drawn(rng, n, favour), np.arange(1000)) is not None
        for _ in range(500)
    ]
    assert least <= float(np.mean(seen)) <= most


def test_of_two_verdicts_it_decides_as_fishers_test_does() -> None:
    rng, alike, n = np.random.default_rng(1), 0, 0
    for favour in (1.0, 1.5, 2.0, 2.5, 3.0):
        for _i in range(20):
            f, has = drawn(rng, 80, favour, 400)
            table = [[int(np.sum(has & (f == v))), int(np.sum(~has & (f == v)))] for v in (0, 1)]
            p = float(fisher_exact(table).pvalue)
            if not 0.001 < p < 0.008:
                n, alike = (
                    n + 1,
                    alike
                    + ((labels_follow_verdicts(f, has, np.arange(400)) is not None) == (p < 0.003)),
                )
    assert alike == n > 80


def test_scores_clusters_and_strata() -> None:
    rng = np.random.default_rng(2)
    score = rng.random(600)
    chosen = rng.random(600) < np.where(score < 0.3, 0.3, 0.1)
    said = labels_follow_verdicts(score, chosen, np.arange(600))
    assert said is not None and said.startswith("rows with a label have a mean score of 0.")
    assert labels_follow_verdicts(score, chosen, np.zeros(600, dtype=int)) is None, (
        "one cluster shows nothing"
    )
    assert labels_follow_verdicts(score, chosen, np.arange(600) // 3) is not None
    clustered, whole = (
        np.repeat(np.arange(20) < 15, 30).astype(np.float64),
        np.repeat(np.arange(20) < 4, 30),
    )
    assert labels_follow_verdicts(clustered, whole, np.arange(600)) is not None
    assert labels_follow_verdicts(clustered, whole, np.repeat(np.arange(20), 30)) is None, (
        "four clusters by chance"
    )
    within = (score < 0.3).astype(np.intp)
    assert labels_follow_verdicts(score, chosen, np.arange(600), within) is None, (
        "within strata chance decided"
    )
    assert labels_follow_verdicts(np.ones(9), np.arange(9) < 4, np.arange(9)) is None
    assert labels_follow_verdicts(score, np.zeros(600, dtype=bool), np.arange(600)) is None
