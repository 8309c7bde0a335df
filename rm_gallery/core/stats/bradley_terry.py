"""A ranking of systems from comparisons, with errors that know prompts and with the style of the answers taken out.

`ranking.bradley_terry_group` scores the few answers of one question and is always defined; here one asks how sure the order
of systems is, and is told where the comparisons cannot say.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.corrected import codes, numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.logistic import Fit, fit_logistic
from rm_gallery.core.stats.score_interval import t_quantile
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.corrected import Numbers

    Floats = NDArray[np.floating[Any]]

_PER_ELO = 400.0 / math.log(10.0)
# log-odds beyond which a fit has run off to infinity rather than found something
_RUN_OFF = 12.0


@dataclass(frozen=True)
class Standing:
    """One system in a ranking.

    Attributes:
        name: the system.
        strength: log-odds scale; the strengths of one group have mean 0, and P(i beats j) = sigmoid(s_i - s_j).
        ci95: interval of the strength against the mean of its group; an end the data do not limit is infinite.
        games: comparisons it took part in.
        group: number of the group of systems that are connected by comparisons; strengths compare within one group only.
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
class Standings:
    """A ranking, strongest first.

    Attributes:
        systems: the standings by group, strongest first.
        n: comparisons counted.
        n_left_out: comparisons without a result.
        n_clusters: independent groups of comparisons (prompts).
        effects: per style feature its effect on the log-odds and the interval of that.
        notes: what the reader has to know.
    """

    systems: tuple[Standing, ...]
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
    clusters: Sequence[Hashable] | None = None,
    features: Mapping[str, Numbers] | None = None,
    ridge: float = 0.0,
    confidence: float = 0.95,
) -> Standings:
    """Rank systems by the Bradley–Terry model, with prompt-level errors and, if wanted, at equal style.

    The intervals come from the sandwich over clusters. Where the maximum likelihood does not exist, because some systems never
    lost to the others, Firth's penalty gives finite strengths, the end that the data leave open is infinite, and a note says so.

    Args:
        first: name of one system per comparison.
        second: name of the other.
        results: 1 where the first won, 0 where the second won, 0.5 for a tie; None or NaN where there is no verdict.
        clusters: a name per comparison, usually the prompt; comparisons on one prompt, both orders included, go together.
        features: per style feature the difference first minus second per comparison, for example from `style_difference`. They
            are divided by their standard deviation; the strengths are then those at equal style.
        ridge: weight of the squared coefficients in the loss, on the scale of Elo / 400 as published style control has it (0.25).
        confidence: level of the intervals. Ranks use it for all pairs of a system at once (Bonferroni).

    Raises:
        ConfigError: lengths differ, a result lies outside 0..1, a system meets itself, a feature has gaps.

    Source: R. Bradley and M. Terry, 1952; L. Ford, "Solution of a ranking problem from binary comparisons", 1957 (when the
    maximum exists).
    """
    import numpy as np

    check_level(confidence)
    y = numbers(results, "results")
    columns = {name: numbers(values, f"feature {name}") for name, values in (features or {}).items()}
    _check(first, second, y, clusters, columns)
    kept = ~np.isnan(y)
    names = sorted({str(name) for name in (*first, *second)})
    if not names:
        return Standings((), 0, 0, 0, {}, ())
    place = {name: i for i, name in enumerate(names)}
    a = np.array([place[str(name)] for name in first], dtype=np.intp)[kept]
    b = np.array([place[str(name)] for name in second], dtype=np.intp)[kept]
    y, prompts = y[kept], codes(clusters, len(kept))[kept]
    k = len(names)
    won = np.zeros((k, k))
    np.add.at(won, (a, b), y)
    np.add.at(won, (b, a), 1.0 - y)
    notes: list[str] = []
    groups = _components(won + won.T > 0)
    open_ends = _separated(won, names, groups, notes)
    if max(groups) > 0:
        notes.append(f"{max(groups) + 1} groups of systems never met; strengths compare within a group only")
    if not len(y):
        nothing = tuple(Standing(name, 0.0, Interval(-math.inf, math.inf), 0, i, 1, 1) for i, name in enumerate(names))
        return Standings(nothing, 0, len(kept), 0, {}, tuple(notes))
    centre = _centring(groups)
    style = [column[kept] / (float(column[kept].std()) or 1.0) for column in columns.values()]
    versus = np.zeros((len(y), k))
    versus[np.arange(len(y)), a], versus[np.arange(len(y)), b] = 1.0, -1.0
    basis = _basis(centre)
    design = np.concatenate([versus @ basis, *(column[:, None] for column in style)], axis=1)
    penalty = None
    if ridge > 0.0:
        penalty = np.full(design.shape[1], ridge)
        penalty[: basis.shape[1]] /= math.log(10.0) ** 2
    _, places = np.unique(prompts, return_inverse=True)
    fit = fit_logistic(design, y, places, firth=bool(open_ends) and penalty is None, ridge=penalty)
    if penalty is None and (not fit.converged or float(np.abs(fit.beta).max()) > _RUN_OFF):
        fit = fit_logistic(design, y, places)
        if not open_ends:
            notes.append("the results and the features together decide every comparison; strengths are penalised")
    strengths, covariance = _strengths(fit, basis)
    quantile = t_quantile(fit.df, confidence)
    games = (won + won.T).sum(axis=1)
    ranks = _ranks(strengths, covariance, groups, fit.df, confidence)
    systems = []
    for i, name in enumerate(names):
        half = quantile * math.sqrt(max(0.0, float(covariance[i, i])))
        low = -math.inf if open_ends.get(i, 0) & 1 else float(strengths[i]) - half
        high = math.inf if open_ends.get(i, 0) & 2 else float(strengths[i]) + half
        systems.append(Standing(name, float(strengths[i]), Interval(low, high), round(float(games[i])), groups[i], *ranks[i]))
    effects = {}
    for j, name in enumerate(columns, start=basis.shape[1]):
        effect, half = float(fit.beta[j]), quantile * math.sqrt(float(fit.covariance[j, j]))
        effects[name] = (effect, Interval(effect - half, effect + half))
    systems.sort(key=lambda system: (system.group, -system.strength, system.name))
    return Standings(tuple(systems), len(y), int((~kept).sum()), len(np.unique(places)), effects, tuple(notes))


def style_difference(first: Numbers, second: Numbers) -> Floats:
    """Give (a - b) / (a + b + 1) per comparison, the form in which token, heading, list and bold counts enter style control.

    Raises:
        ConfigError: lengths differ or a count is negative.

    Source: the published code of the LMArena leaderboard.
    """
    a, b = numbers(first, "first"), numbers(second, "second")
    if len(a) != len(b):
        raise ConfigError(f"one count of each side per comparison is needed, found {len(a)} and {len(b)}")
    if (a < 0).any() or (b < 0).any():
        raise ConfigError("counts are at least 0; found a negative one")
    return (a - b) / (a + b + 1.0)


def _check(
    first: Sequence[str],
    second: Sequence[str],
    y: Floats,
    clusters: Sequence[Hashable] | None,
    columns: Mapping[str, Floats],
) -> None:
    import numpy as np

    lengths = {"first": len(first), "second": len(second), **{f"feature {k}": len(v) for k, v in columns.items()}}
    if clusters is not None:
        lengths["clusters"] = len(clusters)
    wrong = next((name for name, length in lengths.items() if length != len(y)), None)
    if wrong:
        raise ConfigError(f"{wrong} needs one entry per comparison: found {lengths[wrong]} for {len(y)} results")
    known = y[~np.isnan(y)]
    if len(known) and not (known.min() >= 0.0 and known.max() <= 1.0):
        raise ConfigError("results lie within 0..1: 1 where the first won, 0.5 for a tie, 0 where the second won")
    itself = next((name for name, other in zip(first, second, strict=True) if str(name) == str(other)), None)
    if itself is not None:
        raise ConfigError(f"system {str(itself)!r} is compared with itself; leave such rows out")
    gap = next((name for name, column in columns.items() if np.isnan(column).any()), None)
    if gap is not None:
        raise ConfigError(f"feature {gap!r} has gaps; leave those comparisons out or fill them in")


def _components(met: NDArray[Any], *, directed: bool = False) -> list[int]:
    from scipy.sparse.csgraph import connected_components

    _, found = connected_components(met, directed=directed, connection="strong" if directed else "weak")
    places: dict[int, int] = {}
    return [places.setdefault(int(group), len(places)) for group in found]


def _separated(won: Floats, names: Sequence[str], groups: Sequence[int], notes: list[str]) -> dict[int, int]:
    """Which ends of whose strength the results leave open: 1 below, 2 above, 3 both.

    The maximum exists if, however one divides the systems of a group, each part has taken something from the other; that is,
    if the graph "has beaten or tied" is strongly connected (Ford 1957).
    """
    blocks = _components(won > 0, directed=True)
    ends: dict[int, int] = {}
    for i, block in enumerate(blocks):
        outside = [j for j, other in enumerate(blocks) if other != block and groups[j] == groups[i]]
        inside = [j for j, other in enumerate(blocks) if other == block]
        if not outside:
            continue
        if not any(won[j, m] > 0 for j in outside for m in inside):
            ends[i] = ends.get(i, 0) | 2
        if not any(won[m, j] > 0 for j in outside for m in inside):
            ends[i] = ends.get(i, 0) | 1
        ends.setdefault(i, 3)  # between blocks nothing ties it to the scale
    for text, end in (("took everything from", 2), ("took nothing from", 1)):
        who = [names[i] for i, mark in ends.items() if mark == end]
        if who:
            shown = ", ".join(repr(name) for name in who[:5]) + (" …" if len(who) > 5 else "")
            notes.append(f"{shown} {text} the others: how far apart they are cannot be told from these results")
    return ends


def _centring(groups: Sequence[int]) -> Floats:
    """The matrix that takes the mean of each group off its strengths."""
    import numpy as np

    same = np.equal.outer(groups, groups).astype(np.float64)
    return np.asarray(np.eye(len(groups)) - same / same.sum(axis=1, keepdims=True))


def _basis(centre: Floats) -> Floats:
    """Orthonormal columns that span the strengths whose mean is 0 in every group, shape (systems, systems - groups)."""
    import numpy as np

    values, vectors = np.linalg.eigh(centre)
    return np.asarray(vectors[:, values > 0.5])


def _strengths(fit: Fit, basis: Floats) -> tuple[Floats, Floats]:
    import numpy as np

    k = basis.shape[1]
    return np.asarray(basis @ fit.beta[:k]), np.asarray(basis @ fit.covariance[:k, :k] @ basis.T)


def _ranks(strengths: Floats, covariance: Floats, groups: Sequence[int], df: float, confidence: float) -> list[tuple[int, int]]:
    """Per system the best and the worst rank its pairwise differences leave, for all its pairs at once."""
    import numpy as np

    found = []
    for i in range(len(strengths)):
        rivals = [j for j, group in enumerate(groups) if group == groups[i] and j != i]
        quantile = t_quantile(df, 1.0 - (1.0 - confidence) / max(1, len(rivals)))
        better = worse = 0
        for j in rivals:
            variance = float(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j])
            gap = float(strengths[j] - strengths[i])
            if abs(gap) > quantile * float(np.sqrt(max(variance, 0.0))) and abs(gap) > 1e-9:
                better, worse = better + (gap > 0), worse + (gap < 0)
        found.append((1 + better, 1 + len(rivals) - worse))
    return found
