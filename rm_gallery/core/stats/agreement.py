"""How well two or more raters agree on the same units: beyond what chance gives, and in how they order them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from rm_gallery.core.utils.errors import ConfigError

L = TypeVar("L", bound=Hashable)


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def complete_pairs(first: Sequence[L | None], second: Sequence[L | None]) -> list[tuple[L, L]]:
    """Give the units both raters rated; None and NaN count as not rated.

    Raises:
        ConfigError: if the two sequences differ in length.
    """
    if len(first) != len(second):
        raise ConfigError(f"both raters need one entry per unit, got {len(first)} and {len(second)}")
    return [
        (a, b)
        for a, b in zip(first, second, strict=True)
        if a is not None and b is not None and not _missing(a) and not _missing(b)
    ]


def cohen_kappa(
    first: Sequence[L | None],
    second: Sequence[L | None],
    *,
    weights: Literal["linear", "quadratic"] | None = None,
    categories: Sequence[L] | None = None,
) -> float | None:
    """Give Cohen's kappa of two raters: 1 is full agreement, 0 what their label frequencies alone would give.

    Args:
        first: labels of the first rater, one per unit; None where there is none. Such units are left out.
        second: labels of the second rater for the same units.
        weights: how disagreement grows over *ordered* categories; None counts every disagreement alike.
        categories: the categories in order. Without it the labels found are used, sorted; weighted kappa with labels whose
            sorting is not their order, or with categories nobody used, needs it.

    Returns:
        Kappa, at most 1; None where it is undefined (no common unit, or both raters use one and the same label throughout).

    Raises:
        ConfigError: if lengths differ or a label is not among `categories`.

    Source: J. Cohen, 1960 (unweighted) and 1968 (weighted).
    """
    from sklearn.metrics import cohen_kappa_score

    pairs = complete_pairs(first, second)
    found = {label for pair in pairs for label in pair}
    ordered = list(categories) if categories is not None else sorted(found, key=_sort_key)
    index = {label: i for i, label in enumerate(ordered)}
    strange = next((label for label in found if label not in index), None)
    if strange is not None:
        raise ConfigError(f"label {strange!r} is not among the categories {ordered!r}")
    if len(found) < 2:
        return None
    places = [(index[a], index[b]) for a, b in pairs]
    return float(cohen_kappa_score(*zip(*places, strict=True), labels=range(len(ordered)), weights=weights))


def _sort_key(label: object) -> tuple[int, float, str]:
    """Numbers in their order, before everything else by its text; mixed labels must not fail to compare."""
    if isinstance(label, (int, float)):
        return 0, float(label), ""
    return 1, 0.0, str(label)


def _nominal_disagreement(units: Sequence[Sequence[Hashable]]) -> tuple[float, float]:
    observed = 0.0
    totals: Counter[Hashable] = Counter()
    for unit in units:
        counts = Counter(unit)
        totals.update(counts)
        observed += (len(unit) ** 2 - sum(k * k for k in counts.values())) / (len(unit) - 1)
    n = sum(totals.values())
    return observed, (n * n - sum(k * k for k in totals.values())) / (n - 1)


def _interval_disagreement(units: Sequence[Sequence[float]]) -> tuple[float, float]:
    def squares(values: Sequence[float]) -> float:
        """Sum of (x - y)^2 over ordered pairs, from deviations because the textbook shortcut cancels digits."""
        mean = math.fsum(values) / len(values)
        return 2.0 * len(values) * math.fsum((value - mean) ** 2 for value in values)

    everything = [value for unit in units for value in unit]
    observed = math.fsum(squares(unit) / (len(unit) - 1) for unit in units)
    return observed, squares(everything) / (len(everything) - 1)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable | None]] | Sequence[Mapping[Hashable, Hashable]],
    *,
    metric: Literal["nominal", "interval"] = "nominal",
) -> float | None:
    """Give Krippendorff's alpha for any number of raters and with gaps: 1 is full agreement, 0 chance, below 0 worse.

    Args:
        ratings: one row per rater, shape (n_raters, n_units), with None or NaN where a rater did not rate a unit; or one
            mapping per rater from unit name to label. Units with fewer than two ratings do not count.
        metric: "nominal" for labels, "interval" for numbers whose squared distance is the disagreement.

    Returns:
        Alpha, at most 1; None where it is undefined (no unit with two ratings, or one value throughout).

    Raises:
        ConfigError: if rows differ in length, or the interval metric meets something that is not a finite number.

    Source: K. Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011.
    """
    units = [unit for unit in _by_unit(ratings) if len(unit) > 1]
    if not units:
        return None
    if metric == "nominal":
        observed, expected = _nominal_disagreement(units)
    else:
        observed, expected = _interval_disagreement([[_number(value) for value in unit] for unit in units])
    return None if expected == 0.0 else 1.0 - observed / expected


def _by_unit(
    ratings: Sequence[Sequence[Hashable | None]] | Sequence[Mapping[Hashable, Hashable]],
) -> list[list[Hashable]]:
    gathered: dict[Hashable, list[Hashable]] = {}
    lengths: set[int] = set()
    for row in ratings:
        if isinstance(row, Mapping):
            entries: list[tuple[Hashable, Hashable | None]] = list(row.items())
        else:
            entries = list(enumerate(row))
            lengths.add(len(entries))
        for unit, value in entries:
            if not _missing(value):
                gathered.setdefault(unit, []).append(value)
    if len(lengths) > 1:
        raise ConfigError(f"every rater needs one entry per unit, got rows of {sorted(lengths)} entries")
    return list(gathered.values())


def _number(value: Hashable) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    raise ConfigError(f"the interval metric needs finite numbers, got {value!r}")


def spearman(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Give Spearman's rank correlation, -1..1; 1 means the same order, equal values share the mean of their ranks.

    Positions where either entry is None or NaN are left out. None is returned where it is undefined: fewer than two common
    positions, or one side constant.

    Raises:
        ConfigError: if the sequences differ in length.
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, complete_pairs(first, second))


def kendall_tau_b(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Give Kendall's tau-b, -1..1; 1 means the same order, ties on either side are allowed for. Otherwise as `spearman`.

    Source: M. Kendall, "The treatment of ties in ranking problems", 1945.
    """
    from scipy.stats import kendalltau

    return _correlation(kendalltau, complete_pairs(first, second))


def _correlation(rule: Callable[..., Any], pairs: list[tuple[float, float]]) -> float | None:
    if any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
        return None
    return max(-1.0, min(1.0, float(rule(*zip(*pairs, strict=True)).statistic)))
