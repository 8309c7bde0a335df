"""Which rows have a label: by chance, or rather those the judge fails? Two columns tell, and rows by verdict mend it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# verdicts of two orders with ties; a finer judge is not looked at verdict by verdict
_MOST_VERDICTS = 5
# fewer labels than this tell too little of a verdict, which is then joined with the next one
_FEWEST_LABELS = 3
# labels that follow verdicts more closely than chance does once in 300 samples did not fall by chance
_BY_CHANCE = 0.003


def verdict_numbers(f: Floats, labelled: NDArray[np.bool_], *, fewest: int = _FEWEST_LABELS) -> NDArray[Any] | None:
    """A number per row for its verdict, neighbours put together until each has `fewest` labels; None where that tells nothing.

    Rows without a verdict have a number of their own if as many of them are labelled, else -1.
    """
    import numpy as np

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
    found = np.full(len(f), joined[-1] + 1 if silent else -1)
    found[judged] = joined[places]
    return found


def labels_follow_verdicts(
    f: Floats, labelled: NDArray[np.bool_], groups: NDArray[Any], strata: NDArray[Any] | None = None
) -> str | None:
    """How labelled rows differ from the others in what the judge says of them; None where chance may have chosen them.

    The test deals the labels out anew among the rows of each stratum, and asks for the rate of each verdict, or for ranks where
    there are many; where rows come in clusters it is no surer than clusters are.

    Args:
        f: judge score per row, NaN where there is none; such rows are not looked at.
        labelled: whether a row has a label.
        groups: cluster number per row.
        strata: stratum number per row; None for one.
    """
    import numpy as np
    from scipy.special import stdtr
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
    apart = has - (np.bincount(within, weights=has) / rows)[within]
    sides = [len(np.unique(own[side])) for side in (has, ~has)]
    clustered = len(np.unique(own)) < len(own)
    df = min(sides) - 1 if clustered else 1e6
    least = 1.0
    for column in columns:
        unlike = column - (np.bincount(within, weights=column) / rows)[within]
        sums = np.bincount(own, weights=unlike * apart)
        square = np.bincount(within, weights=unlike**2) * np.bincount(within, weights=apart**2)
        variance = float(np.sum(square / np.maximum(rows - 1, 1)))
        if clustered:
            variance = max(variance, float(sums @ sums))
        if df > 0 and variance > 0.0:
            least = min(least, 2.0 * float(stdtr(df, -abs(float(sums.sum())) / math.sqrt(variance))))
    if least * max(1, len(columns) - 1) >= _BY_CHANCE:  # of two verdicts one rate is the other's complement
        return None
    if not few:
        return f"rows with a label have a mean score of {x[has].mean():.4g}, the others of {x[~has].mean():.4g}"
    shares = [f"{100 * has[x == kind].mean():.3g} % of the rows with verdict {kind:g}" for kind in kinds]
    return f"{', '.join(shares)} have one"


def mended(f: Floats, verdicts: NDArray[Any] | None) -> bool:
    """Whether every verdict has a number of its own."""
    import numpy as np

    judged = ~np.isnan(f)
    return verdicts is not None and len(np.unique(verdicts[judged])) == len(np.unique(f[judged]))
