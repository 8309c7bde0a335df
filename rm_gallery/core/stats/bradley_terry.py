"""Bradley–Terry ranking of systems, with errors clustered by prompt and control for style.

Ours: evalica fits strengths without clustered errors, features or a check that the maximum exists.
`ranking.bradley_terry_group` scores the few answers of one question and is always defined; here the
question is how sure the order of systems is, and notes say where the comparisons cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rm_gallery.core.stats import Array, Floats, Names, Numbers, np
from rm_gallery.core.stats.clustered import cluster_numbers
from rm_gallery.core.stats.columns import numbers
from rm_gallery.core.stats.intervals import Interval, check_level, t_quantile
from rm_gallery.core.utils.compat import earlier
from rm_gallery.core.utils.errors import ConfigError

_ROUNDS = 200
_LONGEST = 2.0


class Fit(NamedTuple):
    """Coefficients, their covariance and its degrees of freedom; not `converged` if they diverge."""

    beta: Floats
    covariance: Floats
    df: float
    converged: bool


def fit_logistic(
    design: Floats, y: Floats, groups: Array, *, firth: bool = True, ridge: Floats | None = None
) -> Fit:
    """Fit P(y) = sigmoid(design @ beta) by maximum likelihood, with Firth's penalty or a ridge.

    Ours: neither statsmodels nor scikit-learn has Firth's penalty or a sandwich with leverages.

    Args:
        design: one row per outcome, shape (n, k), of full rank unless there is a ridge.
        y: outcomes within 0..1; a tie is 0.5.
        groups: number of the cluster of each row, from 0.
        firth: add Jeffreys' penalty, which keeps coefficients finite where one side always wins.
        ridge: shape (k,), the weight of each squared coefficient in the loss.

    Returns:
        The fit; its covariance is the sandwich summed over clusters, at least the model's own.

    Source: D. Firth, "Bias reduction of maximum likelihood estimates", 1993; sandwich with
    leverages (HC2).
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
    n_groups = int(groups.max()) + 1
    scores = np.zeros((n_groups, k))
    residuals = (y - p) / np.sqrt(1.0 - np.minimum(leverage, 0.9))
    np.add.at(scores, groups, design * residuals[:, None])
    sandwich = inverse @ (scores.T @ scores) @ inverse
    # few losses leave small residuals; the model's own variance, less where ties make outcomes vary
    # less, is then nearer
    between = ((y > 0.0) & (y < 1.0)).any()
    own = max(float((p * (1.0 - p)).sum()), 1e-300)
    varied = min(1.0, float(((y - p) ** 2).sum()) / own) if between else 1.0
    # compared in every direction and not by coordinate, so that nothing depends on which basis the
    # strengths were given in
    values, vectors = np.linalg.eigh(inverse)
    used = values > 1e-12 * max(float(values.max()), 1e-300)
    vectors, roots = vectors[:, used], np.sqrt(values[used])
    back = vectors / roots
    ratios, turned = np.linalg.eigh(back.T @ sandwich @ back)
    turned = (vectors * roots) @ turned
    covariance = (turned * np.maximum(ratios, varied)) @ turned.T
    return Fit(beta, covariance, max(1.0, n_groups - float(k)), longest < 1e-6)


def _moments(design: Floats, beta: Floats, penalty: Floats) -> tuple[Floats, Floats, Floats]:
    from scipy.special import expit

    p = expit(design @ beta)
    w = p * (1.0 - p)
    inverse: Floats = np.linalg.pinv(
        design.T @ (design * w[:, None]) + np.diag(penalty), hermitian=True
    )
    return p, inverse, w * np.einsum("ij,jk,ik->i", design, inverse, design)


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
            is infinite.
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

    Intervals come from the sandwich over clusters. Where the maximum likelihood does not exist
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
    groups = _components(won + won.T > 0)
    open_ends = _separated(won, names, groups, notes)
    if max(groups) > 0:
        notes.append(
            f"{max(groups) + 1} groups of systems never met; strengths compare within a group only"
        )
    if not len(y):
        nothing = tuple(
            RankedSystem(name, 0.0, Interval(-math.inf, math.inf), 0, i, 1, 1)
            for i, name in enumerate(names)
        )
        return Ranking(nothing, 0, len(kept), 0, {}, tuple(notes))
    style = [column[kept] / (float(column[kept].std()) or 1.0) for column in columns.values()]
    basis = _basis(groups)
    free = basis.shape[1]
    design = np.column_stack([basis[a] - basis[b], *style])
    penalty = None
    if ridge > 0.0:
        penalty = np.full(design.shape[1], ridge)
        penalty[:free] /= math.log(10.0) ** 2
    _, places = np.unique(prompts, return_inverse=True)
    fit = fit_logistic(design, y, places, firth=bool(open_ends) and penalty is None, ridge=penalty)
    if penalty is None and (not fit.converged or float(np.abs(fit.beta).max()) > _RUN_OFF):
        fit = fit_logistic(design, y, places)
        if not open_ends:
            notes.append(
                "the results and the features together decide every comparison; strengths are "
                "penalised"
            )
    strengths, covariance = basis @ fit.beta[:free], basis @ fit.covariance[:free, :free] @ basis.T
    quantile = t_quantile(fit.df, confidence)

    def spread(estimate: float, variance: float, ends: int = 0) -> tuple[float, Interval]:
        half = quantile * math.sqrt(max(0.0, float(variance)))
        low = -math.inf if ends & 1 else float(estimate) - half
        high = math.inf if ends & 2 else float(estimate) + half
        return float(estimate), Interval(low, high)

    games = (won + won.T).sum(axis=1)
    ranks = _ranks(strengths, covariance, groups, fit.df, confidence)
    systems = [
        RankedSystem(
            name,
            *spread(strengths[i], covariance[i, i], open_ends.get(i, 0)),
            round(float(games[i])),
            groups[i],
            *ranks[i],
        )
        for i, name in enumerate(names)
    ]
    effects = {
        name: spread(fit.beta[j], fit.covariance[j, j])
        for j, name in enumerate(columns, start=free)
    }
    systems.sort(key=lambda system: (system.group, -system.strength, system.name))
    return Ranking(
        tuple(systems), len(y), int((~kept).sum()), int(places.max()) + 1, effects, tuple(notes)
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


def _components(met: Array, *, directed: bool = False) -> list[int]:
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(
        met, directed=directed, connection="strong" if directed else "weak"
    )
    places: dict[int, int] = {}
    return [places.setdefault(int(group), len(places)) for group in labels]


def _separated(
    won: Floats, names: Sequence[str], groups: Sequence[int], notes: list[str]
) -> dict[int, int]:
    """Open ends of each system's strength: 1 below, 2 above, 3 both.

    The maximum exists if the graph "has beaten or tied" is strongly connected (Ford 1957).
    """
    blocks, parts = np.array(_components(won > 0, directed=True)), np.array(groups)
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


def _basis(groups: Sequence[int]) -> Floats:
    """Orthonormal basis of strengths with mean 0 in every group, shape (systems, systems - groups)."""
    same = np.equal.outer(groups, groups).astype(np.float64)
    # the matrix that takes the mean of each group off its strengths
    values, vectors = np.linalg.eigh(np.eye(len(groups)) - same / same.sum(axis=1, keepdims=True))
    return np.asarray(vectors[:, values > 0.5])


def _ranks(
    strengths: Floats, covariance: Floats, groups: Sequence[int], df: float, confidence: float
) -> list[tuple[int, int]]:
    """Best and worst rank of each system that its pairwise differences leave (Bonferroni)."""
    ranks, own = [], np.diag(covariance)
    for i, strength in enumerate(strengths):
        rivals = [j for j, group in enumerate(groups) if group == groups[i] and j != i]
        quantile = t_quantile(df, 1.0 - (1.0 - confidence) / max(1, len(rivals)))
        gap = strengths[rivals] - strength
        variance = np.maximum(own[i] + own[rivals] - 2.0 * covariance[i, rivals], 0.0)
        margin = np.maximum(quantile * np.sqrt(variance), 1e-9)
        better, worse = (int(np.sum(turn * gap > margin)) for turn in (1.0, -1.0))
        ranks.append((1 + better, 1 + len(rivals) - worse))
    return ranks


class LengthControlled(NamedTuple):
    """Win rate of A at equal length, 0..1, and its interval; both None where nothing was compared.

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
    fit is finite even if one side always wins. The interval is taken on the log-odds, from the
    clustered sandwich with Student's quantile.

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
    half = t_quantile(fit.df, confidence) * math.sqrt(fit.covariance[0, 0])
    rate, low, high = (float(expit(fit.beta[0] + off)) for off in (0.0, -half, half))
    effect = float(fit.beta[1]) if len(columns) > 1 else None
    return LengthControlled(rate, Interval(low, high), effect, len(y))


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
