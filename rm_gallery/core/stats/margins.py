"""What a reward's scores are worth to a user of them: gaps between better and worse answers, and best-of-N selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.stats.clustered import ClusteredMean, clustered_mean
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rm_gallery.core.stats.clustered import Names


@dataclass(frozen=True)
class Gaps:
    """How far chosen answers score above rejected ones, in the unit of the scores.

    Attributes:
        n: gaps.
        mean: their mean; `ci95` its interval over clusters.
        quantiles: at 5, 25, 50, 75 and 95 %.
        positive: share of gaps above 0, `positive_ci95` its interval; `tied` the share that is 0.
        effect: mean over standard deviation; None where gaps do not vary. Comparable between rewards of different scales.
        edges: of the histogram's bins, one more than `counts`.
        counts: gaps in each bin.
    """

    n: int
    mean: float
    ci95: Interval
    quantiles: tuple[float, ...]
    positive: float
    positive_ci95: Interval
    tied: float
    effect: float | None
    edges: tuple[float, ...]
    counts: tuple[int, ...]


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def reward_gaps(chosen: ArrayLike, rejected: ArrayLike, *, clusters: Names | None = None, bins: int = 20) -> Gaps | None:
    """Describe the distribution of chosen minus rejected scores.

    Args:
        chosen: shape (n,), score of the better answer of each pair.
        rejected: shape (n,), score of the worse one.
        clusters: one name per pair (the prompt).
        bins: bins of the histogram.

    Returns:
        The distribution; None without pairs.

    Raises:
        ConfigError: for lengths that differ or gaps that are not finite.
    """
    import numpy as np

    a, b = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ConfigError(f"chosen and rejected need the same length, got {a.shape} and {b.shape}")
    if not len(a):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = a - b
    if not np.isfinite(gaps).all():
        raise ConfigError("scores have to be finite, and so have their gaps; leave out pairs without two scores")
    reach = float(np.max(np.abs(gaps))) or 1.0
    spread = float((gaps / reach).std())
    mean = clustered_mean(gaps / reach, clusters, bounds=(-1.0, 1.0))
    positive = clustered_mean((gaps > 0).astype(np.float64), clusters)
    assert mean is not None and positive is not None
    # the largest gap that was seen is no bound of gaps: a normal interval, not one cut at it
    half = 1.959963984540054 * mean.standard_error * reach
    centre = mean.estimate * reach
    counts, edges = np.histogram(gaps / reach, bins=bins)
    return Gaps(
        len(gaps),
        centre,
        Interval(centre - half, centre + half),
        tuple(float(value) for value in np.quantile(gaps, QUANTILES)),
        positive.estimate,
        positive.interval(),
        float(np.mean(gaps == 0)),
        mean.estimate / spread if spread > 0.0 else None,
        tuple(float(edge) * reach for edge in edges),
        tuple(int(count) for count in counts),
    )


class BestOf(NamedTuple):
    """What picking the top-scoring of n answers gives.

    Attributes:
        n: answers drawn per prompt.
        value: expected value of the answer picked, in the unit of the values; n = 1 is picking blindly.
        ci95: its interval over prompts.
        oracle: expected value of the best answer drawn, which nobody exceeds.
        score: expected score of the answer picked; where it rises and `value` does not, the reward is being gamed.
        n_prompts: prompts with enough answers.
    """

    n: int
    value: float
    ci95: Interval
    oracle: float
    score: float
    n_prompts: int


def expected_best(scores: Sequence[float], values: Sequence[float], n: int) -> float:
    """Expected value of the top-scoring one of `n` answers drawn without replacement; equal scores share it.

    Unbiased for drawing n answers anew, where averaging over a few draws would be noisy. Among k answers, the top of the draw is
    the i-th from below with probability C(i-1, n-1) / C(k, n). Source: the pass@k estimator of M. Chen et al., 2021.

    Raises:
        ConfigError: if lengths differ or n is not within 1..k.
    """
    k = len(scores)
    if len(values) != k or not 1 <= n <= k:
        raise ConfigError(f"expected_best needs a value per score and 1 <= n <= {k}, got {len(values)} values and n={n}")
    ranked = sorted(zip(scores, values, strict=True), key=lambda pair: pair[0])
    total, start, every = 0.0, 0, math.comb(k, n)
    while start < k:
        end = start
        while end < k and ranked[end][0] == ranked[start][0]:
            end += 1
        picked = (math.comb(end, n) - math.comb(start, n)) / every
        total += picked * math.fsum(value for _, value in ranked[start:end]) / (end - start)
        start = end
    return total


def best_of_n_curve(
    scores: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    ns: Sequence[int] | None = None,
    *,
    clusters: Sequence[Any] | None = None,
) -> list[BestOf]:
    """Give what best-of-N selection by the scores is worth, for growing n, without bias.

    Args:
        scores: the reward's score of every answer, one sequence per prompt.
        values: what each answer is really worth, in the same form: 1.0 right and 0.0 wrong, or a gold score.
        ns: numbers of answers to draw; by default 1, 2, 4, … up to the fewest answers of a prompt.
        clusters: one name per prompt where prompts belong together.

    Returns:
        One entry per n. All rest on the same prompts: those with as many answers as the largest n.

    Raises:
        ConfigError: for lengths that differ, scores or values that are not finite, or an n below 1.
    """
    import numpy as np

    if len(scores) != len(values) or any(len(s) != len(v) for s, v in zip(scores, values, strict=True)):
        raise ConfigError("best_of_n_curve needs one value per score")
    if any(not math.isfinite(x) for rows in (scores, values) for row in rows for x in row):
        raise ConfigError("best_of_n_curve needs finite scores and values; leave out prompts that lack one")
    if ns is None:
        fewest = min((len(row) for row in scores if len(row)), default=0)
        ns = sorted({*(2**power for power in range(fewest.bit_length()) if 2**power <= fewest), *([fewest] if fewest else [])})
    if any(n < 1 for n in ns):
        raise ConfigError(f"n counts answers, from 1 on; got {min(ns)}")
    kept = [place for place, row in enumerate(scores) if ns and len(row) >= max(ns)]
    if not kept:
        return []
    names = None if clusters is None else [clusters[place] for place in kept]
    worth = [value for place in kept for value in values[place]]
    # within 0..1 shares have their interval; other values are put on the scale of those seen
    low, high = (0.0, 1.0) if 0.0 <= min(worth) and max(worth) <= 1.0 else (min(worth), max(worth))
    curve = []
    for n in ns:
        picked = np.clip([expected_best(scores[place], values[place], n) for place in kept], low, high)
        found: ClusteredMean | None = clustered_mean(picked, names, bounds=(low, high))
        assert found is not None
        oracle = math.fsum(expected_best(values[place], values[place], n) for place in kept) / len(kept)
        score = math.fsum(expected_best(scores[place], scores[place], n) for place in kept) / len(kept)
        curve.append(BestOf(n, found.estimate, found.interval(), oracle, score, len(kept)))
    return curve
