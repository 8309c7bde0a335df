"""From pairwise wins to one score per candidate: win rate, Copeland, Elo and Bradley–Terry.

`wins[i][j]` is how often i beat j, a draw counting half for both; the diagonal is not looked at. Higher scores are better.
A candidate that was compared with nobody has no score: None, never 0. Every function raises ConfigError for a matrix that is
not square, or that holds negative or non-finite numbers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

from rm_gallery.core.utils.errors import ConfigError

Wins = Sequence[Sequence[float]]
Game = tuple[int, int, float, float]
"""Two candidates, the result for the first, and how many comparisons it stands for."""

_MAX_ROUNDS = 10_000
_TOLERANCE = 1e-10
_MAX_LOG = 600.0


def win_rate(wins: Wins) -> list[float | None]:
    """Share of its comparisons that each candidate won, draws half; in [0, 1]."""
    _check(wins)
    rates: list[float | None] = []
    for i, row in enumerate(wins):
        won = math.fsum(value for j, value in enumerate(row) if j != i)
        games = won + math.fsum(other[i] for j, other in enumerate(wins) if j != i)
        rates.append(won / games if games else None)
    return rates


def copeland(wins: Wins) -> list[float | None]:
    """Opponents beaten minus opponents lost to, over the opponents met; in [-1, 1].

    An opponent is beaten by more than half of the comparisons with it, so how clearly does not matter. In a cycle everybody
    gets 0. Source: A. H. Copeland, "A reasonable social welfare function", 1951.
    """
    _check(wins)
    scores: list[float | None] = []
    for i, row in enumerate(wins):
        margins = [row[j] - wins[j][i] for j in range(len(wins)) if j != i and row[j] + wins[j][i] > 0]
        net = sum((margin > 0) - (margin < 0) for margin in margins)
        scores.append(net / len(margins) if margins else None)
    return scores


def elo(wins: Wins, *, k: float = 32.0, initial: float = 1000.0, orders: int = 32, seed: int = 0) -> list[float | None]:
    """Elo rating after all comparisons, the mean over `orders` seeded orders of play; the mean of all ratings is `initial`.

    After each comparison the winner takes k(1 - E) from the loser, where E = 1 / (1 + 10^((R_loser - R_winner) / 400)) is
    how surely it was to win; a draw counts half. The order of the candidates decides nothing: candidates are told apart by
    their results alone, and comparisons that results do not tell apart are played at the same time, so that candidates with
    the same results share one rating. Source: A. Elo, "The Rating of Chessplayers", 1978.

    Raises:
        ConfigError: `k` or `orders` is not positive.
    """
    _check(wins)
    if not (0 < k < math.inf and orders > 0):
        raise ConfigError(f"elo takes a positive k and at least one order; found k={k}, orders={orders}.")
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
    met = [any(row[j] or wins[j][i] for j in range(len(wins)) if j != i) for i, row in enumerate(wins)]
    return [math.fsum(total) / orders if played else None for total, played in zip(totals, met, strict=True)]


def _classes(wins: Wins) -> list[int]:
    """A number for each candidate that is equal for those whose results, and whose opponents' results, are alike.

    Classes are split by what their members did against each class until that splits none (colour refinement).
    """
    n = len(wins)
    classes = [0] * n
    while True:
        seen = [(classes[i], tuple(sorted((classes[j], wins[i][j], wins[j][i]) for j in range(n) if j != i))) for i in range(n)]
        places = {kind: place for place, kind in enumerate(sorted(set(seen)))}
        found = [places[kind] for kind in seen]
        if len(set(found)) == len(set(classes)):
            return classes
        classes = found


def _rounds(wins: Wins, classes: Sequence[int]) -> list[list[Game]]:
    """The comparisons in lots that are played at once; the lots are in an order that only the results decide."""
    lots: dict[tuple[int, int, float, float, int], list[Game]] = {}
    for i, j in itertools.permutations(range(len(wins)), 2):
        alike = classes[i] == classes[j]
        count: dict[tuple[float, float], int] = {}
        for result, weight in _games(wins[i][j], wins[j][i]):
            # from the side of the lower class, and within one class from the winner's
            if classes[i] < classes[j] or (alike and (result > 0.5 or (result == 0.5 and i < j))):
                number = count[result, weight] = count.get((result, weight), 0) + 1
                lots.setdefault((classes[i], classes[j], result, weight, number), []).append((i, j, result, weight))
    return [lots[kind] for kind in sorted(lots)]


def expected_win(difference: float) -> float:
    """How probably a player rated `difference` Elo points higher wins; in (0, 1)."""
    return 1 / (1 + 10 ** (-max(-4000.0, min(4000.0, difference)) / 400))


def bradley_terry_group(wins: Wins, *, prior: float = 1.0) -> list[float | None]:
    """Log-strength of each candidate in the Bradley–Terry model, P(i beats j) = 1 / (1 + exp(s_j - s_i)).

    Each candidate also plays `prior` drawn games against a phantom of strength 0. That keeps the undefeated and the winless
    finite, joins groups that never met, and gives cycles and equals exactly equal strengths; the larger `prior`, the nearer
    all are to 0. The maximum is unique and found by the MM algorithm. Source: D. Hunter, "MM algorithms for generalized
    Bradley–Terry models", Annals of Statistics 2004, eq. 3.

    Raises:
        ConfigError: `prior` is not positive.
    """
    _check(wins)
    if not 0 < prior < math.inf:
        raise ConfigError(f"bradley_terry_group takes a positive prior, found {prior}.")
    n = len(wins)
    won = [prior / 2 + math.fsum(wins[i][j] for j in range(n) if j != i) for i in range(n)]
    met = [[(j, wins[i][j] + wins[j][i]) for j in range(n) if j != i and wins[i][j] + wins[j][i]] for i in range(n)]

    def step(logs: list[float]) -> list[float]:
        p = [math.exp(x) for x in logs]
        # fsum does not depend on the order of its terms: candidates that did equally well stay exactly equal
        return [
            math.log(won[i] / math.fsum([prior / (p[i] + 1), *(games / (p[i] + p[j]) for j, games in met[i])]))
            for i in range(n)
        ]

    logs = _fixed_point(step, [0.0] * n)
    return [logs[i] if met[i] else None for i in range(n)]


def _fixed_point(step: Callable[[list[float]], list[float]], x: list[float]) -> list[float]:
    """Where `step` changes nothing any more, found by its own steps and by strides along them that get nearer.

    Plain steps are sure but take thousands where strengths lie far apart. Source of the stride: R. Varadhan and C. Roland,
    "Simple and globally convergent methods for accelerating the convergence of any EM algorithm", 2008, scheme S3.
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
    """Comparisons of one pair as (result for the first, weight): whole wins each, and what is left of both as one draw."""
    rest_won, rest_lost = won - int(won), lost - int(lost)
    rest = rest_won + rest_lost
    return [(1.0, 1.0)] * int(won) + [(0.0, 1.0)] * int(lost) + ([(rest_won / rest, rest)] if rest > 0 else [])


def _check(wins: Wins) -> None:
    for row in wins:
        if len(row) != len(wins):
            raise ConfigError(f"wins is a square matrix; {len(wins)} rows, but a row of {len(row)}.")
        if not all(math.isfinite(value) and value >= 0 for value in row):
            raise ConfigError("wins holds numbers of at least 0; found a negative or non-finite one.")
