"""From pairwise wins to one score per candidate: win rate, Copeland, Elo and Bradley–Terry.

`wins[i][j]` is how often i beat j, a draw counting half for both; the diagonal is not looked at.
Higher scores are better. A candidate that was compared with nobody has no score: None, never 0.
Every function raises ConfigError for a matrix that is not square, or that holds negative or
non-finite numbers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rm_gallery.core.stats import ArrayLike, Names, np
from rm_gallery.core.stats.clustered import ClusteredMean, clustered_mean
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError

Wins = Sequence[Sequence[float]]
Game = tuple[int, int, float, float]
"""Two candidates, the result for the first, and how many comparisons it stands for."""

_MAX_ROUNDS = 10_000
_TOLERANCE = 1e-10
_MAX_LOG = 600.0


def win_rate(wins: Wins) -> list[float | None]:
    """Share of its comparisons that each candidate won, draws half; in [0, 1]."""
    _check_wins(wins)
    rates: list[float | None] = []
    for i, row in enumerate(wins):
        won = math.fsum(value for j, value in enumerate(row) if j != i)
        games = won + math.fsum(other[i] for j, other in enumerate(wins) if j != i)
        rates.append(won / games if games else None)
    return rates


def copeland(wins: Wins) -> list[float | None]:
    """Opponents beaten minus opponents lost to, over the opponents met; in [-1, 1].

    An opponent is beaten by more than half of the comparisons with it, so how clearly does not
    matter. In a cycle everybody gets 0. Source: A. H. Copeland, "A reasonable social welfare
    function", 1951.
    """
    _check_wins(wins)
    scores: list[float | None] = []
    for i, row in enumerate(wins):
        margins = [
            row[j] - wins[j][i] for j in range(len(wins)) if j != i and row[j] + wins[j][i] > 0
        ]
        net = sum((margin > 0) - (margin < 0) for margin in margins)
        scores.append(net / len(margins) if margins else None)
    return scores


def elo(
    wins: Wins, *, k: float = 32.0, initial: float = 1000.0, orders: int = 32, seed: int = 0
) -> list[float | None]:
    """Elo rating after all comparisons, the mean over `orders` seeded orders of play; the mean of
    all ratings is `initial`.

    After each comparison the winner takes k(1 - E) from the loser, where E = 1 / (1 + 10^((R_loser
    - R_winner) / 400)) is how surely it was to win; a draw counts half. The order of the candidates
      decides nothing: candidates are told apart by
    their results alone, and comparisons that results do not tell apart are played at the same time,
    so that candidates with the same results share one rating. Source: A. Elo, "The Rating of
    Chessplayers", 1978.

    Raises:
        ConfigError: `k` or `orders` is not positive.
    """
    _check_wins(wins)
    if not (0 < k < math.inf and orders > 0):
        raise ConfigError(
            f"elo takes a positive k and at least one order; found k={k}, orders={orders}."
        )
    classes = _classes(wins)
    rounds = _rounds(wins, classes)
    totals: list[list[float]] = [[] for _ in wins]
    rng = random.Random(seed)
    for _ in range(orders):
        rng.shuffle(rounds)
        ratings = [initial] * len(wins)
        for games in rounds:
            gains: dict[int, list[float]] = {}
            for i, j, result, weight in games:
                gain = k * weight * (result - expected_win(ratings[i] - ratings[j]))
                gains.setdefault(i, []).append(gain)
                gains.setdefault(j, []).append(-gain)
            for i, own in gains.items():
                ratings[i] += math.fsum(own)  # whose sum does not depend on the order of its terms
        for total, rating in zip(totals, ratings, strict=True):
            total.append(rating)
    met = [
        any(row[j] or wins[j][i] for j in range(len(wins)) if j != i) for i, row in enumerate(wins)
    ]
    return [
        math.fsum(total) / orders if played else None
        for total, played in zip(totals, met, strict=True)
    ]


def _classes(wins: Wins) -> list[int]:
    """A number for each candidate that is equal for those whose results, and whose opponents'
    results, are alike.

    Classes are split by what their members did against each class until that splits none (colour
    refinement).
    """
    n = len(wins)
    classes = [0] * n
    while True:
        seen = [
            (
                classes[i],
                tuple(sorted((classes[j], wins[i][j], wins[j][i]) for j in range(n) if j != i)),
            )
            for i in range(n)
        ]
        places = {kind: place for place, kind in enumerate(sorted(set(seen)))}
        refined = [places[kind] for kind in seen]
        if len(set(refined)) == len(set(classes)):
            return classes
        classes = refined


def _rounds(wins: Wins, classes: Sequence[int]) -> list[list[Game]]:
    """The comparisons in lots that are played at once; the lots are in an order that only the
    results decide.
    """
    lots: dict[tuple[int, int, float, float, int], list[Game]] = {}
    for i, j in itertools.permutations(range(len(wins)), 2):
        alike = classes[i] == classes[j]
        count: dict[tuple[float, float], int] = {}
        for result, weight in _games(wins[i][j], wins[j][i]):
            # from the side of the lower class, and within one class from the winner's
            if classes[i] < classes[j] or (alike and (result > 0.5 or (result == 0.5 and i < j))):
                number = count[result, weight] = count.get((result, weight), 0) + 1
                lots.setdefault((classes[i], classes[j], result, weight, number), []).append(
                    (i, j, result, weight)
                )
    return [lots[kind] for kind in sorted(lots)]


def expected_win(difference: float) -> float:
    """How probably a player rated `difference` Elo points higher wins; in (0, 1)."""
    return 1 / (1 + 10 ** (-max(-4000.0, min(4000.0, difference)) / 400))


def bradley_terry_group(wins: Wins, *, prior: float = 1.0) -> list[float | None]:
    """Log-strength of each candidate in the Bradley–Terry model, P(i beats j) = 1 / (1 + exp(s_j -
    s_i)).

    Each candidate also plays `prior` drawn games against a phantom of strength 0. That keeps the
    undefeated and the winless finite, joins groups that never met, and gives cycles and equals
    exactly equal strengths; the larger `prior`, the nearer all are to 0. The maximum is unique and
    found by the MM algorithm. Source: D. Hunter, "MM algorithms for generalized Bradley–Terry
    models", Annals of Statistics 2004, eq. 3.

    Raises:
        ConfigError: `prior` is not positive.
    """
    _check_wins(wins)
    if not 0 < prior < math.inf:
        raise ConfigError(f"bradley_terry_group takes a positive prior, found {prior}.")
    n = len(wins)
    won = [prior / 2 + math.fsum(wins[i][j] for j in range(n) if j != i) for i in range(n)]
    met = [
        [(j, wins[i][j] + wins[j][i]) for j in range(n) if j != i and wins[i][j] + wins[j][i]]
        for i in range(n)
    ]

    def step(logs: list[float]) -> list[float]:
        p = [math.exp(x) for x in logs]
        # fsum does not depend on the order of its terms: candidates that did equally well stay
        # exactly equal
        return [
            math.log(
                won[i]
                / math.fsum([prior / (p[i] + 1), *(games / (p[i] + p[j]) for j, games in met[i])])
            )
            for i in range(n)
        ]

    logs = _fixed_point(step, [0.0] * n)
    return [logs[i] if met[i] else None for i in range(n)]


def _fixed_point(step: Callable[[list[float]], list[float]], x: list[float]) -> list[float]:
    """Where `step` changes nothing any more, found by its own steps and by strides along them that
    get nearer.

    Plain steps are sure but take thousands where strengths lie far apart. Source of the stride: R.
    Varadhan and C. Roland, "Simple and globally convergent methods for accelerating the convergence
    of any EM algorithm", 2008, scheme S3.
    """
    after = step(x)
    for _ in range(_MAX_ROUNDS):
        change = _minus(after, x)
        if _norm(change) <= _TOLERANCE:
            break
        second = step(after)
        bend = _minus(_minus(second, after), change)
        stride = _norm(change) / _norm(bend) if _norm(bend) else 1.0
        leap = [a + stride * (2 * c + stride * b) for a, c, b in zip(x, change, bend, strict=True)]
        if stride > 1 and max(map(abs, leap)) < _MAX_LOG:
            landing = step(leap)
            if _norm(_minus(landing, leap)) < _norm(change):
                x, after = leap, landing
                continue
        x, after = second, step(second)
    return after


def _minus(a: list[float], b: list[float]) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _norm(a: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in a))


def _games(won: float, lost: float) -> list[tuple[float, float]]:
    """Comparisons of one pair as (result for the first, weight): whole wins each, and what is left
    of both as one draw.
    """
    rest_won, rest_lost = won - int(won), lost - int(lost)
    rest = rest_won + rest_lost
    return (
        [(1.0, 1.0)] * int(won)
        + [(0.0, 1.0)] * int(lost)
        + ([(rest_won / rest, rest)] if rest > 0 else [])
    )


def _check_wins(wins: Wins) -> None:
    for row in wins:
        if len(row) != len(wins):
            raise ConfigError(
                f"wins is a square matrix; {len(wins)} rows, but a row of {len(row)}."
            )
        if not all(math.isfinite(value) and value >= 0 for value in row):
            raise ConfigError(
                "wins holds numbers of at least 0; found a negative or non-finite one."
            )


@dataclass(frozen=True)
class Gaps:
    """How far chosen answers score above rejected ones, in the unit of the scores.

    Attributes:
        n: gaps.
        mean: their mean; `ci95` its interval over clusters.
        quantiles: at 5, 25, 50, 75 and 95 %.
        positive: share of gaps above 0, `positive_ci95` its interval; `tied` the share that is 0.
        effect: mean over standard deviation; None where gaps do not vary. Comparable between
            rewards of different scales.
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


def reward_gaps(
    chosen: ArrayLike, rejected: ArrayLike, *, clusters: Names | None = None, bins: int = 20
) -> Gaps | None:
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
    a, b = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ConfigError(f"chosen and rejected need the same length, got {a.shape} and {b.shape}")
    if not len(a):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = a - b
    if not np.isfinite(gaps).all():
        raise ConfigError(
            "scores have to be finite, and so have their gaps; leave out pairs without two scores"
        )
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
        value: expected value of the answer picked, in the unit of the values; n = 1 is picking
            blindly.
        ci95: its interval over prompts.
        oracle: expected value of the best answer drawn, which nobody exceeds.
        score: expected score of the answer picked; where it rises and `value` does not, the reward
            is being gamed.
        n_prompts: prompts with enough answers.
    """

    n: int
    value: float
    ci95: Interval
    oracle: float
    score: float
    n_prompts: int


def expected_best(scores: Sequence[float], values: Sequence[float], n: int) -> float:
    """Expected value of the top-scoring one of `n` answers drawn without replacement; equal scores
    share it.

    Unbiased for drawing n answers anew, where averaging over a few draws would be noisy. Among k
    answers, the top of the draw is the i-th from below with probability C(i-1, n-1) / C(k, n).
    Source: the pass@k estimator of M. Chen et al., 2021.

    Raises:
        ConfigError: if lengths differ or n is not within 1..k.
    """
    k = len(scores)
    if len(values) != k or not 1 <= n <= k:
        raise ConfigError(
            f"expected_best needs a value per score and 1 <= n <= {k}, got {len(values)} values "
            f"and n={n}"
        )
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
        values: what each answer is really worth, in the same form: 1.0 right and 0.0 wrong, or a
            gold score.
        ns: numbers of answers to draw; by default 1, 2, 4, … up to the fewest answers of a prompt.
        clusters: one name per prompt where prompts belong together.

    Returns:
        One entry per n. All rest on the same prompts: those with as many answers as the largest n.

    Raises:
        ConfigError: for lengths that differ, scores or values that are not finite, or an n below 1.
    """
    if len(scores) != len(values) or any(
        len(s) != len(v) for s, v in zip(scores, values, strict=True)
    ):
        raise ConfigError("best_of_n_curve needs one value per score")
    if any(not math.isfinite(x) for rows in (scores, values) for row in rows for x in row):
        raise ConfigError(
            "best_of_n_curve needs finite scores and values; leave out prompts that lack one"
        )
    if ns is None:
        fewest = min((len(row) for row in scores if len(row)), default=0)
        ns = sorted({*(2**power for power in range(fewest.bit_length())), fewest} - {0})
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
        picked = np.clip(
            [expected_best(scores[place], values[place], n) for place in kept], low, high
        )
        mean: ClusteredMean | None = clustered_mean(picked, names, bounds=(low, high))
        assert mean is not None
        oracle = math.fsum(expected_best(values[place], values[place], n) for place in kept) / len(
            kept
        )
        score = math.fsum(expected_best(scores[place], scores[place], n) for place in kept) / len(
            kept
        )
        curve.append(BestOf(n, mean.estimate, mean.interval(), oracle, score, len(kept)))
    return curve
