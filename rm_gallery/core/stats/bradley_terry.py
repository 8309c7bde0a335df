"""Bradley–Terry ranking of systems, with errors clustered by prompt and control for style.

Ours: evalica fits strengths without clustered errors, features or a check that the maximum exists.
`ranking.bradley_terry_group` scores the few answers of one question and is always defined; here the
question is how sure the order of systems is, and notes say where the comparisons cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from rm_gallery.core.stats import Array, Floats, Integers, Names, Numbers, np
from rm_gallery.core.stats.columns import cluster_numbers, first_seen, numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.uncertainty import Estimate
from rm_gallery.core.utils.compat import earlier
from rm_gallery.core.utils.errors import ConfigError

_ROUNDS = 200
_LONGEST = 2.0
_NO_INFORMATION = 1e-12
"""Directions with less information than this, relative to the best known one, are not moved along:
by how much systems of different groups differ.
"""


@dataclass(frozen=True, eq=False)
class Fit:
    """A logistic fit, of whose coefficients any weighted sum is a figure.

    Attributes:
        beta: the coefficients, shape (k,).
        moves: what a residual of each row moves them by, shape (k, n).
        residuals: outcome less probability, shape (n,), by the root of 1 less the leverage: each row
            draws its own probability towards it (HC2).
        spread: variance of each outcome by the model, shape (n,).
        clusters: number of the cluster of each row, from 0.
        converged: False if the coefficients run off to infinity.
    """

    beta: Floats
    moves: Floats
    residuals: Floats
    spread: Floats
    clusters: Integers
    converged: bool

    def figure(self, direction: Floats) -> Estimate:
        """The sum of the coefficients weighted by `direction`, shape (k,)."""
        used = np.flatnonzero(direction)  # speed: of many systems two
        moved = direction[used] @ self.moves[used]
        weights = np.abs(moved) * self.spread
        # rounding must not let rows of systems that never met these count
        weights[weights <= 1e-9 * weights.max(initial=0.0)] = 0.0
        pulls = np.where(weights > 0.0, moved * self.residuals, 0.0)
        # few losses leave small residuals; the model's own variance is then nearer
        model = float(np.sum(moved**2 * self.spread))
        return Estimate(
            float(direction @ self.beta),
            pulls,
            weights / (weights.sum() or 1.0),
            self.clusters,
            (-math.inf, math.inf),
            "open",
            unseen=max(0.0, model - float(pulls @ pulls)),
        )

    def coefficient(self, place: int, confidence: float) -> tuple[float, Interval]:
        """One coefficient and its interval, infinite where nothing is known."""
        figure = self.figure(np.eye(len(self.beta))[place])
        ends = figure.interval(confidence)
        return figure.estimate, ends or Interval(-math.inf, math.inf)


def fit_logistic(
    design: Floats,
    y: Floats,
    clusters: Integers,
    *,
    firth: bool = True,
    ridge: Floats | None = None,
) -> Fit:
    """Fit P(y) = sigmoid(design @ beta) by maximum likelihood, with Firth's penalty or a ridge.

    Ours: neither statsmodels nor scikit-learn has Firth's penalty or pulls with leverages.

    Args:
        design: one row per outcome, shape (n, k). Of coefficients that fit as well the shortest
            vector is taken: strengths of systems have mean 0 in each group that met.
        y: outcomes within 0..1; a tie is 0.5.
        clusters: number of the cluster of each row, from 0.
        firth: add Jeffreys' penalty, which keeps coefficients finite where one side always wins.
        ridge: shape (k,), the weight of each squared coefficient in the loss.

    Source: D. Firth, "Bias reduction of maximum likelihood estimates", 1993; J. MacKinnon and H.
    White, 1985 (HC2).
    """
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
    residuals, spread = y - p, p * (1.0 - p)
    if ((y > 0.0) & (y < 1.0)).any():  # ties make outcomes vary less
        spread = spread * min(1.0, float(residuals @ residuals) / max(float(spread.sum()), 1e-300))
    residuals /= np.sqrt(1.0 - np.minimum(leverage, 0.9))
    return Fit(beta, inverse @ design.T, residuals, spread, clusters, longest < 1e-6)


def _moments(design: Floats, beta: Floats, penalty: Floats) -> tuple[Floats, Floats, Floats]:
    from scipy.special import expit

    p = expit(design @ beta)
    w = p * (1.0 - p)
    information = design.T @ (design * w[:, None]) + np.diag(penalty)
    inverse: Floats = np.linalg.pinv(information, rcond=_NO_INFORMATION, hermitian=True)
    return p, inverse, w * np.einsum("ij,ij->i", design @ inverse, design)


_PER_ELO = 400.0 / math.log(10.0)
# log-odds beyond which a fit has run off to infinity rather than found something
_RUN_OFF = 12.0


@dataclass(frozen=True)
class RankedSystem:
    """One system in a ranking.

    Attributes:
        name: the system.
        strength: log-odds scale; the strengths of one group have mean 0, and P(i beats j) =
            sigmoid(s_i - s_j).
        ci95: interval of the strength against the mean of its group; an end the data do not limit
            is infinite, and both are where all comparisons are on one prompt.
        games: comparisons it took part in.
        group: number of the group of systems that are connected by comparisons; strengths compare
            within one group only.
        best_rank: one more than the systems of the group that are surely stronger.
        worst_rank: the systems of the group less those that are surely weaker.
    """

    name: str
    strength: float
    ci95: Interval
    games: int
    group: int
    best_rank: int
    worst_rank: int

    @property
    def elo(self) -> float:
        """Strength on the scale on which 400 points are odds of 10 to 1 and the mean is 1000."""
        return 1000.0 + _PER_ELO * self.strength


@dataclass(frozen=True)
class Ranking:
    """A ranking, strongest first.

    Attributes:
        systems: the standings by group, strongest first.
        n: comparisons counted.
        n_left_out: comparisons without a result.
        n_clusters: independent groups of comparisons (prompts).
        effects: per style feature its effect on the log-odds and the interval of that.
        notes: what the reader has to know.
    """

    systems: tuple[RankedSystem, ...]
    n: int
    n_left_out: int
    n_clusters: int
    effects: Mapping[str, tuple[float, Interval]]
    notes: tuple[str, ...]


def bradley_terry(
    first: Sequence[str],
    second: Sequence[str],
    results: Numbers,
    *,
    clusters: Names | None = None,
    features: Mapping[str, Numbers] | None = None,
    ridge: float = 0.0,
    confidence: float = 0.95,
) -> Ranking:
    """Rank systems by the Bradley–Terry model, P(i beats j) = sigmoid(s_i - s_j).

    Intervals are over clusters. Where the maximum likelihood does not exist
    because some systems never lost to the others, Firth's penalty gives finite strengths, the open
    end of the interval is infinite, and a note says so.

    Args:
        first: name of one system per comparison.
        second: name of the other.
        results: 1 where the first won, 0 where the second won, 0.5 for a tie; None or NaN where
            there is no verdict.
        clusters: a name per comparison, usually the prompt; comparisons on one prompt, both orders
            included, go together.
        features: per style feature the difference first minus second per comparison, for example
            from `style_difference`. They are divided by their standard deviation; strengths are
            then those at equal style.
        ridge: weight of the squared coefficients in the loss, on the scale of Elo / 400 as in
            LMArena's style control (0.25).
        confidence: level of the intervals. Ranks use it for all pairs of a system at once
            (Bonferroni).

    Raises:
        ConfigError: lengths differ, a result lies outside 0..1, a system meets itself, a feature
            has gaps.

    Source: R. Bradley and M. Terry, 1952; L. Ford, "Solution of a ranking problem from binary
    comparisons", 1957 (when the maximum exists).
    """
    check_level(confidence)
    y = numbers(results, "results")
    columns = {
        name: numbers(values, f"feature {name}") for name, values in (features or {}).items()
    }
    _check_comparisons(first, second, y, clusters, columns)
    kept = ~np.isnan(y)
    names = sorted({str(name) for name in (*first, *second)})
    if not names:
        return Ranking((), 0, 0, 0, {}, ())
    place = {name: i for i, name in enumerate(names)}
    a, b = (
        np.array([place[str(name)] for name in side], dtype=np.intp)[kept]
        for side in (first, second)
    )
    y, prompts = y[kept], cluster_numbers(clusters, len(kept))[kept]
    k = len(names)
    won = np.zeros((k, k))
    np.add.at(won, (a, b), y)
    np.add.at(won, (b, a), 1.0 - y)
    notes: list[str] = []
    groups = _components(won + won.T > 0, "weak")
    open_ends = _separated(won, names, groups, notes)
    if max(groups) > 0:
        notes.append(
            f"{max(groups) + 1} groups of systems never met; strengths compare within a group only"
        )
    columns = {name: column[kept] for name, column in columns.items() if len(y)}
    design = np.zeros((len(y), k + len(columns)))
    rows = np.arange(len(y))
    design[rows, a], design[rows, b] = 1.0, -1.0
    for position, column in enumerate(columns.values(), k):
        design[:, position] = column / (float(column.std()) or 1.0)
    penalty = None
    if ridge > 0.0:
        penalty = np.full(k + len(columns), ridge)
        penalty[:k] /= math.log(10.0) ** 2
    fit = fit_logistic(design, y, prompts, firth=bool(open_ends) and penalty is None, ridge=penalty)
    if penalty is None and (not fit.converged or float(np.abs(fit.beta).max()) > _RUN_OFF):
        fit = fit_logistic(design, y, prompts)
        if not open_ends:
            notes.append(
                "the results and the features together decide every comparison; strengths are "
                "penalised"
            )
    games = (won + won.T).sum(axis=1)
    ranks = _ranks(fit, groups, confidence)
    systems = []
    for i, name in enumerate(names):
        strength, (low, high) = fit.coefficient(i, confidence)
        ends = open_ends.get(i, 0)
        limits = Interval(-math.inf if ends & 1 else low, math.inf if ends & 2 else high)
        systems.append(
            RankedSystem(name, strength, limits, round(float(games[i])), groups[i], *ranks[i])
        )
    effects = {name: fit.coefficient(i, confidence) for i, name in enumerate(columns, k)}
    systems.sort(key=lambda system: (system.group, -system.strength, system.name))
    return Ranking(
        tuple(systems), len(y), int((~kept).sum()), len(np.unique(prompts)), effects, tuple(notes)
    )


def style_difference(first: Numbers, second: Numbers) -> Floats:
    """(a - b) / (a + b + 1) per comparison: how token, heading, list and bold counts enter style control.

    Raises:
        ConfigError: lengths differ or a count is negative.

    Source: the published code of the LMArena leaderboard.
    """
    a, b = numbers(first, "first"), numbers(second, "second")
    if len(a) != len(b):
        raise ConfigError(
            f"one count of each side per comparison is needed, found {len(a)} and {len(b)}"
        )
    if (a < 0).any() or (b < 0).any():
        raise ConfigError("counts are at least 0; found a negative one")
    return (a - b) / (a + b + 1.0)


def _check_comparisons(
    first: Sequence[str],
    second: Sequence[str],
    y: Floats,
    clusters: Names | None,
    columns: Mapping[str, Floats],
) -> None:
    given: dict[str, Names] = {"first": first, "second": second}
    given |= {f"feature {name}": column for name, column in columns.items()}
    for name, values in (given | {"clusters": y if clusters is None else clusters}).items():
        if len(values) != len(y):
            raise ConfigError(
                f"{name} needs one entry per comparison: found {len(values)} for {len(y)} results"
            )
    if ((y < 0.0) | (y > 1.0)).any():
        raise ConfigError(
            "results lie within 0..1: 1 where the first won, 0.5 for a tie, 0 where the second won"
        )
    for name, other in zip(first, second, strict=True):
        if str(name) == str(other):
            raise ConfigError(f"system {str(name)!r} is compared with itself; leave such rows out")
    for name, column in columns.items():
        if np.isnan(column).any():
            raise ConfigError(
                f"feature {name!r} has gaps; leave those comparisons out or fill them in"
            )


def _components(met: Array, connection: Literal["weak", "strong"]) -> list[int]:
    """Number of the group of each system, in the order of the first one of each."""
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(met, connection=connection)
    return [int(group) for group in first_seen(labels)]


def _separated(
    won: Floats, names: Sequence[str], groups: Sequence[int], notes: list[str]
) -> dict[int, int]:
    """Open ends of each system's strength: 1 below, 2 above, 3 both.

    The maximum exists if the graph "has beaten or tied" is strongly connected (Ford 1957).
    """
    blocks, parts = np.array(_components(won > 0, "strong")), np.array(groups)
    ends: dict[int, int] = {}
    for i, block in enumerate(blocks):
        inside = blocks == block
        outside = ~inside & (parts == parts[i])
        if outside.any():
            lost, gained = won[outside][:, inside].any(), won[inside][:, outside].any()
            # between blocks nothing ties it to the scale
            ends[i] = (0 if lost else 2) | (0 if gained else 1) or 3
    for text, end in (("took everything from", 2), ("took nothing from", 1)):
        who = [names[i] for i, mark in ends.items() if mark == end]
        if who:
            shown = ", ".join(repr(name) for name in who[:5]) + (" …" if len(who) > 5 else "")
            notes.append(
                f"{shown} {text} the others: how far apart they are cannot be told from these "
                f"results"
            )
    return ends


def _ranks(fit: Fit, groups: Sequence[int], confidence: float) -> list[tuple[int, int]]:
    """Best and worst rank of each system that the differences within its group leave (Bonferroni)."""
    sizes = [groups.count(group) for group in groups]
    ranks = [(1, size) for size in sizes]
    directions = np.eye(len(fit.beta))
    for pair in combinations(range(len(groups)), 2):
        if groups[pair[0]] != groups[pair[1]]:
            continue
        gap = fit.figure(directions[pair[0]] - directions[pair[1]])
        p = gap.p_value(0.0)
        if p is not None and p < (1.0 - confidence) / (sizes[pair[0]] - 1):
            stronger, weaker = pair if gap.estimate > 0.0 else pair[::-1]
            ranks[stronger] = ranks[stronger][0], ranks[stronger][1] - 1
            ranks[weaker] = ranks[weaker][0] + 1, ranks[weaker][1]
    return ranks


class LengthControlled(NamedTuple):
    """Win rate of A at equal length, 0..1, and its interval; both None where nothing was compared,
    the interval also where all comparisons are of one cluster or alike.

    `length_effect` is the change in log-odds from a difference of one standard deviation (through
    tanh), `n` the comparisons.
    """

    estimate: float | None
    ci95: Interval | None
    length_effect: float | None = None
    n: int = 0


def length_controlled(
    preferences: Numbers,
    lengths_a: Numbers,
    lengths_b: Numbers,
    clusters: Names | None = None,
    confidence: float = 0.95,
) -> LengthControlled:
    """Win rate of A at equal length, 0..1, with its interval.

    log-odds of A = b0 + b1 * tanh((length_a - length_b) / sd); the win rate is sigmoid(b0). Firth's
    fit is finite even if one side always wins. The interval is taken on the log-odds.

    AlpacaEval 2 also has a term for the difficulty of each of its own 805 prompts, which other
    prompts do not have. Its published standard error, the spread of the fitted probabilities,
    covers 42 % instead of 95.

    Args:
        preferences: per comparison 1 where A won, 0 where B won, 0.5 for a tie, anything between
            for a mean of two orders; None or NaN where there is no verdict. Such rows are left out,
            as are rows without a length.
        lengths_a: length of A's answer, in any unit.
        lengths_b: length of B's answer in the same unit.
        clusters: a name per row where rows belong together (a prompt, a conversation).
        confidence: level of the interval.

    Raises:
        ConfigError: lengths of the arguments differ or a preference lies outside 0..1.

    Source: Y. Dubois et al., "Length-Controlled AlpacaEval" (arXiv 2404.04475); D. Firth, "Bias
    reduction of maximum likelihood estimates", 1993.
    """
    from scipy.special import expit

    check_level(confidence)
    given = {"preferences": preferences, "lengths_a": lengths_a, "lengths_b": lengths_b}
    y, a, b = (numbers(values, name) for name, values in given.items())
    if not len(y) == len(a) == len(b) == (len(y) if clusters is None else len(clusters)):
        raise ConfigError(
            f"one length of each side (and one cluster) per preference is needed; found {len(y)} "
            f"preferences"
        )
    kept = ~(np.isnan(y) | np.isnan(a) | np.isnan(b))
    y, difference, groups = y[kept], (a - b)[kept], cluster_numbers(clusters, len(y))[kept]
    if ((y < 0.0) | (y > 1.0)).any():
        raise ConfigError(
            "preferences lie within 0..1: 1 where A won, 0.5 for a tie, 0 where B won"
        )
    if not len(y):
        return LengthControlled(None, None)
    sd = float(difference.std(ddof=1)) if len(y) > 1 else 0.0
    columns = [np.ones(len(y))] + ([np.tanh(difference / sd)] if sd > 0.0 else [])
    fit = fit_logistic(np.column_stack(columns), y, groups)
    figure = fit.figure(np.eye(len(columns))[0])
    ends = figure.interval(confidence)
    return LengthControlled(
        float(expit(figure.estimate)),
        None if ends is None else Interval(*map(float, expit(ends))),
        float(fit.beta[1]) if len(columns) > 1 else None,
        len(y),
    )


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
