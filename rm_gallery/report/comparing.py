"""Figures of answers compared row by row: win rate, ties and flips, agreement with people, subgroups, equal length, ranking."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.agreement import cohen_kappa
from rm_gallery.core.stats.corrected import Corrected, corrected_mean
from rm_gallery.core.stats.intervals import Interval, wilson_interval
from rm_gallery.core.stats.length_control import length_controlled
from rm_gallery.core.stats.ranking import bradley_terry_group
from rm_gallery.core.stats.resampling import cluster_sum_draws, draws_interval, named_generator
from rm_gallery.gallery.benchmarks.judgements import Judged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RANK_DRAWS = 200
_FEWEST_LABELS = 5
"""A subgroup with fewer labels is not corrected."""


@dataclass
class Compared:
    """What became of one row: per pair of answer columns the win of the first, 1, 0.5 or 0, mean over the orders played."""

    wins: dict[tuple[int, int], float] = field(default_factory=dict)
    orders: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Per pair that was played in both orders, what the answer shown first did: +1 won, 0 tied, -1 lost."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Characters by answer column."""

    @classmethod
    def of(cls, judged: Judged) -> Compared:
        """The comparisons a judged row holds; none where it is not scored."""
        columns: list[int] = judged.metadata["columns"]
        found = cls(lengths={c: len(o.answer.text) for c, o in zip(columns, judged.sample.output, strict=True)})
        if judged.status != "scored":
            return found
        for i, j in combinations(range(len(columns)), 2):
            seen = judged.verdict(i, j), judged.verdict(j, i)
            won = [x for x in (seen[0], None if seen[1] is None else -seen[1]) if x is not None]
            if not won:
                continue
            pair = columns[i], columns[j]
            found.wins[pair] = sum((1 + x) / 2 for x in won) / len(won)
            if judged.played_orders == 2 and seen[0] is not None and seen[1] is not None:
                found.orders[pair] = seen[0], seen[1]
        return found


@dataclass(frozen=True)
class Rows:
    """All rows of a table, in its order, with what people and columns say about them; entries are None where unknown."""

    compared: Sequence[Compared | None]
    clusters: Sequence[str]
    labels: Sequence[float | None] | None = None
    probabilities: Sequence[float | None] | None = None
    groups: Mapping[str, Sequence[str | None]] = field(default_factory=dict)

    def wins(self, pair: tuple[int, int] = (0, 1)) -> list[float | None]:
        """Per row the win of the first column of a pair."""
        return [None if row is None else row.wins.get(pair) for row in self.compared]


def mean_of_all(values: Sequence[float | None], clusters: Sequence[str], confidence: float = 0.95) -> Corrected:
    """The mean of the known values with an interval over clusters; its p-value agrees with the interval."""
    known = [(value, name) for value, name in zip(values, clusters, strict=True) if value is not None]
    alone = [value for value, _ in known]
    return corrected_mean(alone, alone, clusters=[name for _, name in known], confidence=confidence)


def counts_of(wins: Sequence[float | None]) -> dict[str, int]:
    """How many rows were won, lost and tied by the first."""
    known = [win for win in wins if win is not None]
    won, lost = sum(win > 0.5 for win in known), sum(win < 0.5 for win in known)
    return {"wins": won, "losses": lost, "ties": len(known) - won - lost}


def flips_of(rows: Rows, pair: tuple[int, int] = (0, 1)) -> dict[str, Any]:
    """How often the two orders of a row contradict each other, and which position that served; empty if one order was played.

    The p-value is that of the sign test on the contradictory rows alone, which sees a preference for a position best.
    """
    from scipy.stats import binomtest

    played = [row.orders[pair] for row in rows.compared if row is not None and pair in row.orders]
    if not played:
        return {}
    first = sum(shown == (1, 1) for shown in played)
    second = sum(shown == (-1, -1) for shown in played)
    flips = first + second
    return {
        "n": len(played),
        "flips": flips,
        "rate": flips / len(played),
        "ci95": wilson_interval(flips, len(played)),
        "first_preferred": first,
        "second_preferred": second,
        "position_p_value": float(binomtest(first, flips).pvalue) if flips else 1.0,
    }


def agreement_of(rows: Rows) -> dict[str, Any]:
    """How far the judge's verdicts (won, tied, lost) are those of the labelled rows: share and Cohen's kappa, with intervals."""
    pairs = [
        (_verdict(win), _verdict(label), name)
        for win, label, name in zip(rows.wins(), rows.labels or [None] * len(rows.clusters), rows.clusters, strict=True)
        if win is not None and label is not None
    ]
    if not pairs:
        return {"n": 0}
    same = [float(win == label) for win, label, _ in pairs]
    share = mean_of_all(same, [name for _, _, name in pairs])
    kappa = cohen_kappa([win for win, _, _ in pairs], [label for _, label, _ in pairs])
    table = Counter(f"judge {win}, people {label}" for win, label, _ in pairs)
    return {
        "n": len(pairs),
        "agreement": share.estimate,
        "ci95": share.ci95,
        "kappa": kappa,
        "kappa_ci95": None if kappa is None else _kappa_interval(pairs),
        "table": dict(sorted(table.items())),
    }


def _verdict(win: float) -> str:
    return "a" if win > 0.5 else "b" if win < 0.5 else "tie"


def _kappa_interval(pairs: Sequence[tuple[str, str, str]]) -> Interval | None:
    """Bootstrap over clusters; resamples on which kappa is undefined are left out."""
    import numpy as np

    kinds = ("a", "b", "tie")
    cells: dict[str, list[float]] = {}
    for win, label, name in pairs:
        cells.setdefault(name, [0.0] * 9)[3 * kinds.index(win) + kinds.index(label)] += 1.0
    draws = cluster_sum_draws(list(cells.values()), named_generator(0, "kappa")).reshape(-1, 3, 3)
    total = draws.sum(axis=(1, 2))
    observed = np.trace(draws, axis1=1, axis2=2) / total
    expected = (draws.sum(axis=1) * draws.sum(axis=2)).sum(axis=1) / total**2
    kept = expected < 1.0
    return draws_interval((observed[kept] - expected[kept]) / (1.0 - expected[kept])) if kept.any() else None


def corrected_of(rows: Rows) -> dict[str, Any]:
    """The win rate from all verdicts and the labelled rows together, free of the judge's errors on average."""
    found = corrected_mean(
        rows.wins(), list(rows.labels or ()), clusters=list(rows.clusters), probabilities=rows.probabilities
    )
    return as_dict(found)


def as_dict(found: Corrected) -> dict[str, Any]:
    """An estimate with what it rests on, as JSON types."""
    return {
        "estimate": found.estimate,
        "ci95": found.ci95,
        "p_value": found.p_value(0.5) if found.bounds == (0.0, 1.0) else None,
        "method": found.method,
        "n": found.n,
        "n_labelled": found.n_labelled,
        "judge_alone": found.judge_mean,
        "labels_alone": found.labels_mean,
        "effective_labels": found.effective_labels,
        "notes": list(found.notes),
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values such that all that are below 0.05 are wrong together with probability 5 % at most (S. Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def subgroups_of(
    values: Sequence[float | None], rows: Rows, null: float | None = 0.5, bounds: tuple[float, float] = (0.0, 1.0)
) -> dict[str, dict[str, Any]]:
    """Mean by subgroup ("column = value") with its interval, and the p-value of "it is `null`", Holm over all subgroups."""
    found: dict[str, dict[str, Any]] = {}
    for column, names in rows.groups.items():
        for name in sorted({name for name in names if name is not None}):
            places = [place for place, other in enumerate(names) if other == name]
            found[f"{column} = {name}"] = {"places": places, **_subgroup(values, rows, places, null, bounds)}
    tested = [part for part in found.values() if part.get("p_value") is not None]
    for part, adjusted in zip(tested, holm([part["p_value"] for part in tested]), strict=True):
        part["p_holm"] = adjusted
    return found


def _subgroup(
    values: Sequence[float | None],
    rows: Rows,
    places: Sequence[int],
    null: float | None,
    bounds: tuple[float, float],
) -> dict[str, Any]:
    own = [values[place] for place in places]
    clusters = [rows.clusters[place] for place in places]
    known = [(value, name) for value, name in zip(own, clusters, strict=True) if value is not None]
    if not known:
        return {"n_scored": 0, "estimate": None, "ci95": None}
    plain = [value for value, _ in known]
    mean = corrected_mean(plain, plain, clusters=[name for _, name in known], bounds=bounds)
    part: dict[str, Any] = {"n_scored": len(known), "estimate": mean.estimate, "ci95": mean.ci95}
    if null is not None:
        part["p_value"] = mean.p_value(null)
    labels = [rows.labels[place] for place in places] if rows.labels is not None else []
    if sum(label is not None for label in labels) >= _FEWEST_LABELS:
        probabilities = None if rows.probabilities is None else [rows.probabilities[place] for place in places]
        scale = bounds if null is not None else (-math.inf, math.inf)  # scores and labels may have scales of their own
        corrected = corrected_mean(own, labels, clusters=clusters, probabilities=probabilities, bounds=scale)
        part["corrected"] = as_dict(corrected)
    return part


def equal_length_of(rows: Rows) -> dict[str, Any]:
    """The win rate were both answers equally long."""
    lengths = [[None if row is None else row.lengths.get(column) for row in rows.compared] for column in (0, 1)]
    found = length_controlled(rows.wins(), lengths[0], lengths[1], clusters=list(rows.clusters))
    return {"estimate": found.estimate, "ci95": found.ci95, "length_effect": found.length_effect, "n": found.n}


def longest_of(rows: Rows, places: Sequence[int]) -> float | None:
    """The win rate in these rows if the longer answer always won: what length alone would say."""
    found = [rows.compared[place] for place in places]
    known = [row.lengths for row in found if row is not None and 0 in row.lengths and 1 in row.lengths]
    wins = [0.5 + 0.5 * math.copysign(1, n[0] - n[1]) if n[0] != n[1] else 0.5 for n in known]
    return sum(wins) / len(wins) if wins else None


def ranking_of(rows: Rows, names: Sequence[str], seed: int = 0) -> list[dict[str, Any]]:
    """The answer columns by Bradley–Terry strength, the best first, with intervals by bootstrap over clusters.

    Strengths are log-odds around a mean of 0; one drawn game against a phantom keeps them finite. `win_rate` is that against
    all others.
    """
    import numpy as np

    k = len(names)
    by_cluster: dict[str, NDArray[np.float64]] = {}
    for row, name in zip(rows.compared, rows.clusters, strict=True):
        for (i, j), win in row.wins.items() if row is not None else ():
            cell = by_cluster.setdefault(name, np.zeros((k, k)))
            cell[i, j] += win
            cell[j, i] += 1.0 - win
    if not by_cluster:
        return []
    wins = sum(by_cluster.values(), np.zeros((k, k)))
    strengths = bradley_terry_group(wins.tolist())
    draws = cluster_sum_draws(
        [cell.ravel().tolist() for cell in by_cluster.values()], named_generator(seed, "ranking"), _RANK_DRAWS
    ).reshape(-1, k, k)
    drawn = np.array([[np.nan if s is None else s for s in bradley_terry_group(draw.tolist())] for draw in draws])
    found = []
    for place, name in enumerate(names):
        played = float(wins[place].sum() + wins[:, place].sum())
        own = drawn[:, place][~np.isnan(drawn[:, place])]
        found.append(
            {
                "answer": name,
                "strength": strengths[place],
                "ci95": draws_interval(own) if len(own) else None,
                "win_rate": float(wins[place].sum()) / played if played else None,
                "n": round(played),
            }
        )
    return sorted(found, key=lambda part: (part["strength"] is None, -(part["strength"] or 0.0)))


def pairs_of(rows: Rows, names: Sequence[str]) -> list[dict[str, Any]]:
    """The win rate of every pair of answer columns, with interval, counts, and p-values corrected for their number."""
    found: list[dict[str, Any]] = []
    for i, j in combinations(range(len(names)), 2):
        wins = rows.wins((i, j))
        if any(win is not None for win in wins):
            mean = mean_of_all(wins, rows.clusters)
            part = {
                "a": names[i],
                "b": names[j],
                "win_rate": mean.estimate,
                "ci95": mean.ci95,
                "p_value": mean.p_value(0.5),
            }
            found.append({**part, **counts_of(wins)})
    for part, adjusted in zip(found, holm([part["p_value"] or 0.0 for part in found]), strict=True):
        part["p_holm"] = adjusted
    return found
