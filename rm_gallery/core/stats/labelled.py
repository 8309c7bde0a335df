"""Which rows were chosen for labelling: verdicts with labels enough, and a test of chance."""

from __future__ import annotations

import math

from rm_gallery.core.stats import Array, Bools, Floats, np
from rm_gallery.core.stats.intervals import two_tails

_MOST_VERDICTS = 5
"""Verdicts of two orders with ties; a finer judge is not corrected verdict by verdict."""
_FEWEST_LABELS = 3
"""A verdict with fewer labels is joined with the next one."""
_BY_CHANCE = 0.003
"""Level of the test that labels were drawn independently of verdicts: 1 in 300."""


def verdict_numbers(f: Floats, labelled: Bools, *, fewest: int = _FEWEST_LABELS) -> Array | None:
    """Code of each row's verdict, neighbours joined until each has `fewest` labels.

    None for one verdict or too many. Rows without a verdict have a code of their own if `fewest` of
    them are labelled, else -1.
    """
    judged = ~np.isnan(f)
    kinds, places = np.unique(f[judged], return_inverse=True)
    if labelled.all() or not 1 < len(kinds) <= _MOST_VERDICTS or labelled[judged].sum() < fewest:
        return None
    joined, held = np.zeros(len(kinds), dtype=np.intp), 0.0
    for place, labels in enumerate(np.bincount(places, weights=labelled[judged])):
        if held >= fewest:
            joined[place:] += 1
            held = 0.0
        held += labels
    if held < fewest:  # the last one has a neighbour on one side only
        joined[joined == joined[-1]] = max(0, joined[-1] - 1)
    silent = int(labelled[~judged].sum()) >= fewest
    if joined[-1] == 0 and not silent:
        return None
    codes = np.full(len(f), joined[-1] + 1 if silent else -1)
    codes[judged] = joined[places]
    return codes


def labels_follow_verdicts(
    f: Floats, labelled: Bools, groups: Array, strata: Array | None = None
) -> str | None:
    """How verdicts of labelled rows differ from the others'; None where that may be chance.

    A permutation test (normal limit) of which rows of a stratum are labelled, on the rate of each
    verdict or on ranks where there are many; with clusters its variance is at least theirs.

    Args:
        f: judge score per row, NaN where there is none; such rows are not looked at.
        labelled: whether a row has a label.
        groups: cluster number per row.
        strata: stratum number per row; None for one.
    """
    from scipy.stats import rankdata

    judged = ~np.isnan(f)
    x, has, own = f[judged], labelled[judged], groups[judged]
    kinds = np.unique(x)
    if len(kinds) < 2 or has.all() or not has.any():
        return None
    few = len(kinds) <= _MOST_VERDICTS
    columns = [(x == kind) * 1.0 for kind in kinds] if few else [rankdata(x)]
    within = np.zeros(len(x), dtype=np.intp) if strata is None else strata[judged]
    rows = np.maximum(np.bincount(within), 1)

    def residuals(column: Array) -> Array:
        left: Array = column - (np.bincount(within, weights=column) / rows)[within]
        return left

    chosen = residuals(has)
    sides = [len(np.unique(own[side])) for side in (has, ~has)]
    clustered = len(np.unique(own)) < len(own)
    df = min(sides) - 1 if clustered else math.inf
    least = 1.0
    for column in columns:
        unlike = residuals(column)
        sums = np.bincount(own, weights=unlike * chosen)
        first, second = (np.bincount(within, weights=x**2) for x in (unlike, chosen))
        variance = float(np.sum(first * second / np.maximum(rows - 1, 1)))
        if clustered:
            variance = max(variance, float(sums @ sums))
        if df > 0 and variance > 0.0:
            least = min(least, two_tails(df, abs(float(sums.sum())) / math.sqrt(variance)))
    # of two verdicts one rate is the other's complement
    if least * max(1, len(columns) - 1) >= _BY_CHANCE:
        return None
    if not few:
        return (
            f"rows with a label have a mean score of {x[has].mean():.4g}, the others of "
            f"{x[~has].mean():.4g}"
        )
    shares = [
        f"{100 * has[x == kind].mean():.3g} % of the rows with verdict {kind:g}" for kind in kinds
    ]
    return f"{', '.join(shares)} have one"


def mended(f: Floats, verdicts: Array | None) -> bool:
    """Whether every verdict has a code of its own."""
    judged = ~np.isnan(f)
    return verdicts is not None and len(np.unique(verdicts[judged])) == len(np.unique(f[judged]))
