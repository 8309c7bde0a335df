"""From pairwise wins to one score per candidate: win rate, Copeland, Elo and Bradley–Terry.

`wins[i][j]` is how often i beat j, a draw counting half for both; the diagonal is ignored. Higher
is better. A candidate that met nobody has no score (None). ConfigError for a matrix that is not
square or holds negative or non-finite numbers.

Ours: evalica's scores depend on the order of the comparisons (Elo) and are undefined for undefeated
candidates (Bradley–Terry).
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rm_gallery.core.stats import Floats, np
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import clustered_mean
from rm_gallery.core.utils.errors import ConfigError

Wins = Sequence[Sequence[float]]
Game = tuple[int, int, float, float]
"""Two candidates, the result for the first, and how many comparisons it stands for."""

_MAX_ROUNDS = 1000
_LONGEST_STEP = 2.0
_TOLERANCE = 1e-12
_DIGITS = 12


def win_rate(wins: Wins) -> list[float | None]:
    """Share of its comparisons that each candidate won, draws half; in [0, 1]."""
    table = _checked(wins)
    sums = [(math.fsum(won), math.fsum(lost)) for won, lost in zip(table, table.T, strict=True)]
    return [won / (won + lost) if won + lost else None for won, lost in sums]


def copeland(wins: Wins) -> list[float | None]:
    """Opponents beaten minus opponents lost to, over the opponents met; in [-1, 1].

    An opponent is beaten by more than half of the comparisons with it, so how clearly does not
    matter. In a cycle everybody gets 0. Source: A. H. Copeland, "A reasonable social welfare
    function", 1951.
    """
    table = _checked(wins)
    net = np.sign(table - table.T).sum(axis=1)
    met = (table + table.T > 0.0).sum(axis=1)
    return [float(a) / int(b) if b else None for a, b in zip(net, met, strict=True)]


def elo(
    wins: Wins, *, k: float = 32.0, initial: float = 1000.0, orders: int = 32, seed: int = 0
) -> list[float | None]:
    """Elo rating after all comparisons: the mean over `orders` seeded orders of play.

    After each comparison the winner takes k(1 - E) from the loser, E = 1 / (1 + 10^((R_loser -
    R_winner) / 400)); a draw counts half. The mean of all ratings is `initial`. Candidates are
    told apart by their results alone, and comparisons with the same results are played at the same
    time, so candidates with the same results share one rating and their order does not matter.
    Source: A. Elo, "The Rating of Chessplayers", 1978.

    Raises:
        ConfigError: `k` or `orders` is not positive.
    """
    table = _checked(wins)
    if not (0 < k < math.inf and orders > 0):
        raise ConfigError(
            f"elo takes a positive k and at least one order; found k={k}, orders={orders}."
        )
    classes = _classes(wins)
    rounds = _rounds(wins, classes)
    finals: list[list[float]] = []
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
        finals.append(ratings)
    return [
        math.fsum(own) / orders if played else None
        for own, played in zip(
            zip(*finals, strict=True), (table + table.T).sum(axis=0), strict=True
        )
    ]


def _classes(wins: Wins) -> list[int]:
    """Class of each candidate, equal for equal results against equal opponents (colour refinement)."""
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
    """Comparisons in lots that are played at once, in an order that only the results decide."""
    lots: dict[tuple[int, int, float, float, int], list[Game]] = {}
    for i, j in itertools.permutations(range(len(wins)), 2):
        alike = classes[i] == classes[j]
        count: dict[tuple[float, float], int] = {}
        for result, weight in _games(wins[i][j], wins[j][i]):
            # from the side of the lower class, and within one class from the winner's
            if classes[i] < classes[j] or (alike and (result, j) > (0.5, i)):
                number = count[result, weight] = count.get((result, weight), 0) + 1
                lots.setdefault((classes[i], classes[j], result, weight, number), []).append(
                    (i, j, result, weight)
                )
    return [lots[kind] for kind in sorted(lots)]


def expected_win(difference: float) -> float:
    """Probability that a player rated `difference` Elo points higher wins; in (0, 1).

    >>> round(expected_win(400.0), 3)
    0.909
    """
    return 1 / (1 + 10 ** (-max(-4000.0, min(4000.0, difference)) / 400))


def bradley_terry_group(wins: Wins, *, prior: float = 1.0) -> list[float | None]:
    """Log-strength of each candidate in the Bradley–Terry model, P(i beats j) = sigmoid(s_i - s_j).

    Each candidate also plays `prior` drawn games against a phantom of strength 0. That keeps the
    undefeated and the winless finite, joins groups that never met, and gives cycles and equals
    equal strengths; the larger `prior`, the nearer all are to 0. The maximum is unique and found by
    damped Newton steps. Source: R. Bradley and M. Terry, 1952; D. Hunter, "MM algorithms for
    generalized Bradley–Terry models", 2004.

    >>> bradley_terry_group([[0, 0], [0, 0]]), bradley_terry_group([[0, 1], [1, 0]])
    ([None, None], [0.0, 0.0])

    Raises:
        ConfigError: `prior` is not positive.
    """
    from scipy.special import expit

    won = _checked(wins)
    if not 0 < prior < math.inf:
        raise ConfigError(f"bradley_terry_group takes a positive prior, found {prior}.")
    games = won + won.T
    logs = np.zeros(len(won))
    for _ in range(_MAX_ROUNDS if games.any() else 0):
        p, of_phantom = expit(logs[:, None] - logs), expit(logs)
        slope = won.sum(axis=1) + prior / 2 - (games * p).sum(axis=1) - prior * of_phantom
        bend = games * p * p.T
        hessian = np.diag(bend.sum(axis=1) + prior * of_phantom * (1.0 - of_phantom)) - bend
        step = np.linalg.solve(hessian, slope)
        longest = float(np.abs(step).max())
        logs += step * min(1.0, _LONGEST_STEP / longest if longest else 1.0)
        if longest < _TOLERANCE:
            break
    # the order of the candidates moves the last digits, and equals have to stay exactly equal
    return [
        round(float(log), _DIGITS) + 0.0 if met else None
        for log, met in zip(logs, games.sum(axis=1) > 0.0, strict=True)
    ]


def _games(won: float, lost: float) -> list[tuple[float, float]]:
    """Comparisons of a pair as (result for the first, weight): whole wins, the rest as one draw."""
    rest_won, rest_lost = won - int(won), lost - int(lost)
    rest = rest_won + rest_lost
    return (
        [(1.0, 1.0)] * int(won)
        + [(0.0, 1.0)] * int(lost)
        + ([(rest_won / rest, rest)] if rest > 0 else [])
    )


def _checked(wins: Wins) -> Floats:
    """The wins as a square array with a diagonal of 0."""
    for row in wins:
        if len(row) != len(wins):
            raise ConfigError(
                f"wins is a square matrix; {len(wins)} rows, but a row of {len(row)}."
            )
        if not all(math.isfinite(value) and value >= 0 for value in row):
            raise ConfigError(
                "wins holds numbers of at least 0; found a negative or non-finite one."
            )
    table = np.array(wins, dtype=np.float64).reshape(len(wins), len(wins))
    np.fill_diagonal(table, 0.0)
    return table


class BestOf(NamedTuple):
    """What picking the top-scoring of n answers gives.

    Attributes:
        n: answers drawn per prompt.
        value: expected value of the answer picked, in the unit of the values; n = 1 is picking
            blindly.
        ci95: its interval over prompts; None for one cluster, and where values beyond 0..1 are all
            equal.
        oracle: expected value of the best answer drawn, which nobody exceeds.
        score: expected score of the answer picked; where it rises and `value` does not, the reward
            is being gamed.
        n_prompts: prompts with enough answers.
    """

    n: int
    value: float
    ci95: Interval | None
    oracle: float
    score: float
    n_prompts: int


def expected_best(scores: Sequence[float], values: Sequence[float], n: int) -> float:
    """Expected value of the top-scoring of `n` answers drawn without replacement, unbiased.

    Among k answers the top of the draw is the i-th from below with probability C(i-1, n-1) /
    C(k, n); equal scores share it. Source: the pass@k estimator of M. Chen et al., 2021.

    >>> expected_best([0.1, 0.9], [0.0, 1.0], 1), expected_best([0.1, 0.9], [0.0, 1.0], 2)
    (0.5, 1.0)

    Raises:
        ConfigError: if lengths differ or n is not within 1..k.
    """
    k = len(scores)
    if len(values) != k or not 1 <= n <= k:
        raise ConfigError(
            f"expected_best needs a value per score and 1 <= n <= {k}, got {len(values)} values "
            f"and n={n}"
        )
    worth: defaultdict[float, list[float]] = defaultdict(list)
    for score, value in zip(scores, values, strict=True):
        worth[score].append(value)
    total, end = 0.0, 0
    for score in sorted(worth):
        start, end = end, end + len(worth[score])
        picked = (math.comb(end, n) - math.comb(start, n)) / math.comb(k, n)
        total += picked * math.fsum(worth[score]) / len(worth[score])
    return total


def best_of_n_curve(
    scores: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    ns: Sequence[int] | None = None,
    *,
    clusters: Sequence[Any] | None = None,
) -> list[BestOf]:
    """Expected value of best-of-n selection by the scores, for growing n, without bias.

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
    if [*map(len, scores)] != [*map(len, values)]:
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
    judged, real = ([side[place] for place in kept] for side in (scores, values))
    low, high = min(map(min, real)), max(map(max, real))
    # the largest value that was seen is no bound of gold scores
    low, high = (0.0, 1.0) if 0.0 <= low and high <= 1.0 else (-math.inf, math.inf)
    curve = []
    for n in ns:
        picked, best, liked = (
            [expected_best(by, of, n) for by, of in zip(rows, worth, strict=True)]
            for rows, worth in ((judged, real), (real, real), (judged, judged))
        )
        mean = clustered_mean(np.clip(picked, low, high), names, bounds=(low, high))
        assert mean is not None
        oracle, score = (math.fsum(values) / len(kept) for values in (best, liked))
        curve.append(BestOf(n, mean.estimate, mean.interval(), oracle, score, len(kept)))
    return curve
