"""The win rate at equal length: what is left of a preference when the part that goes with length is taken out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.stats.corrected import codes, numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.logistic import fit_logistic, sigmoid
from rm_gallery.core.stats.score_interval import t_quantile
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.corrected import Numbers

    Floats = NDArray[np.floating[Any]]


class LengthControlled(NamedTuple):
    """Win rate of A at equal length, 0..1, and its interval; both None where nothing was compared.

    `length_effect` is the change in log-odds from a difference of one standard deviation (through tanh), `n` the comparisons.
    """

    estimate: float | None
    ci95: Interval | None
    length_effect: float | None = None
    n: int = 0


def length_controlled(
    preferences: Numbers,
    lengths_a: Numbers,
    lengths_b: Numbers,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> LengthControlled:
    """Give the share of comparisons A would win were both answers equally long, with an interval that means what it says.

    log-odds of A = b0 + b1 * tanh((length_a - length_b) / sd), and the win rate is that at difference 0. The fit is Firth's,
    finite even if one side wins throughout. The interval comes from the clustered sandwich with Student's quantile and is
    taken on the log-odds, so that it stays within 0..1.

    AlpacaEval 2 has a term for how hard each of its own 805 prompts is; prompts of one's own have no such table, so there is
    none here. Its published standard error is the spread of the fitted probabilities and covers 42 % where it should 95.

    Args:
        preferences: per comparison 1 where A won, 0 where B won, 0.5 for a tie, anything between for a mean of two orders;
            None or NaN where there is no verdict. Such rows are left out, as are rows without a length.
        lengths_a: length of A's answer, in any unit.
        lengths_b: length of B's answer in the same unit.
        clusters: a name per row where rows belong together (a prompt, a conversation).
        confidence: level of the interval.

    Raises:
        ConfigError: lengths of the arguments differ or a preference lies outside 0..1.

    Source: Y. Dubois et al., "Length-Controlled AlpacaEval" (arXiv 2404.04475); D. Firth, "Bias reduction of maximum
    likelihood estimates", 1993.
    """
    import numpy as np

    check_level(confidence)
    y, a, b = (numbers(v, n) for v, n in ((preferences, "preferences"), (lengths_a, "lengths_a"), (lengths_b, "lengths_b")))
    if not len(y) == len(a) == len(b) == (len(y) if clusters is None else len(clusters)):
        raise ConfigError(f"one length of each side (and one cluster) per preference is needed; found {len(y)} preferences")
    kept = ~(np.isnan(y) | np.isnan(a) | np.isnan(b))
    y, difference, groups = y[kept], (a - b)[kept], codes(clusters, len(y))[kept]
    if len(y) and not (y.min() >= 0.0 and y.max() <= 1.0):
        raise ConfigError("preferences lie within 0..1: 1 where A won, 0.5 for a tie, 0 where B won")
    if not len(y):
        return LengthControlled(None, None)
    sd = float(difference.std(ddof=1)) if len(y) > 1 else 0.0
    columns = [np.ones(len(y))] + ([np.tanh(difference / sd)] if sd > 0.0 else [])
    design = np.stack(columns, axis=1)
    fit = fit_logistic(design, y, groups)
    beta, covariance, df = fit.beta, fit.covariance, fit.df
    half = t_quantile(df, confidence) * math.sqrt(covariance[0, 0])
    return LengthControlled(
        sigmoid(float(beta[0])),
        Interval(sigmoid(float(beta[0]) - half), sigmoid(float(beta[0]) + half)),
        float(beta[1]) if len(columns) > 1 else None,
        len(y),
    )
