"""Signals in the rewards of a training run: how components move, how they hang together inside groups, and with length.

Completions of one prompt share its fate, so the group is the witness: correlations are taken inside groups, where the prompt is
the same for all, and intervals are those of groups drawn anew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.clustered import from_variance
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.train.advantages import group_numbers, numbers_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.train.advantages import Groups, Numbers

    Floats = NDArray[np.float64]


LEAST_GROUPS = 5
"""Groups (or steps) below which nothing is said to have changed."""


@dataclass(frozen=True)
class Link:
    """How two values hang together inside groups, -1..1; the slope is the change of the first per unit of the second."""

    correlation: float
    interval: Interval
    slope: float
    variance: float
    n: int
    n_groups: int

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval.low <= 0.0 <= self.interval.high


def link(first: Numbers, second: Numbers, groups: Groups, *, level: float = 0.95) -> Link | None:
    """The correlation of two values of completions inside their groups, pooled over groups, with its interval.

    Rows without one of the values count in nothing. None where no group has two rows that differ in both values, or there are
    fewer than five groups.

    Raises:
        ConfigError: the values or groups do not fit one another.
    """
    import numpy as np

    check_level(level)
    a, b = numbers_of(first, "first"), numbers_of(second, "second")
    if len(a) != len(b):
        raise ConfigError(f"{len(a)} values and {len(b)}: one of each is needed per completion.")
    names = group_numbers(groups, len(b))
    both = ~(np.isnan(a) | np.isnan(b))
    names, a, b = names[both], a[both], b[both]
    unit_a, unit_b = _scale(a), _scale(b)
    a, b = a / unit_a, b / unit_b
    if len(names) == 0:
        return None
    _, names = np.unique(names, return_inverse=True)
    sizes = np.bincount(names)
    a = a - (np.bincount(names, a) / sizes)[names]
    b = b - (np.bincount(names, b) / sizes)[names]
    aa, bb = float(np.sum(a * a)), float(np.sum(b * b))
    varied = int(np.sum((np.bincount(names, np.abs(b)) > 1e-12) | (np.bincount(names, np.abs(a)) > 1e-12)))
    if aa <= 1e-18 or bb <= 1e-18 or varied < LEAST_GROUPS:
        return None
    x, y = a / math.sqrt(aa), b / math.sqrt(bb)
    r = min(1.0, max(-1.0, float(np.sum(x * y))))
    moved = np.bincount(names, x * y - r / 2.0 * (x * x + y * y))
    variance = float(np.sum(moved**2)) * varied / max(1, varied - 1)
    interval = from_variance(r, variance, varied, bounds=(-1.0, 1.0)).interval(level)
    slope = float(np.sum(a * b)) / bb * (unit_a / unit_b)
    return Link(r, interval, slope, variance, len(a), varied)


def length_bias(rewards: Numbers, lengths: Numbers, groups: Groups, *, level: float = 0.95) -> Link | None:
    """How a reward follows the length of completions to the same prompt; the slope is what a doubling of the length is worth.

    Lengths are compared by their logarithm, so the unit does not count. None as in `link`.
    """
    import numpy as np

    size = numbers_of(lengths, "lengths")
    return link(rewards, np.log2(np.maximum(size, 0.0) + 1.0), groups, level=level)


@dataclass(frozen=True)
class Shift:
    """A mean early and late in a run, and the interval of its change."""

    early: float
    late: float
    interval: Interval
    n: tuple[int, int]

    @property
    def change(self) -> float:
        """Late minus early."""
        return self.late - self.early

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval.low <= 0.0 <= self.interval.high


def shift(early: Any, late: Any, *, level: float = 0.95, in_a_row: bool = False) -> Shift | None:
    """The change of a mean between two sets of independent values (groups' means, steps), with Welch's interval.

    NaN counts in nothing; None for fewer than five values on either side. `in_a_row` widens it for steps that follow one
    another and resemble their neighbours.
    """
    import numpy as np
    from scipy import stats

    sides = [side[~np.isnan(side)] for side in (np.asarray(early, dtype=np.float64), np.asarray(late, dtype=np.float64))]
    if min(len(side) for side in sides) < LEAST_GROUPS:
        return None
    scale = _scale(np.concatenate(sides))
    sides = [side / scale for side in sides]
    means = [float(np.mean(side)) for side in sides]
    parts = [float(np.var(side, ddof=1)) / len(side) * (_inflation(side) if in_a_row else 1.0) for side in sides]
    total = sum(parts)
    change = means[1] - means[0]
    if total <= 1e-18 * max(1.0, change * change):
        interval = Interval(change, change)
    else:
        freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True) if part > 0)
        half = float(stats.t.ppf(0.5 + check_level(level) / 2.0, freedom)) * math.sqrt(total)
        interval = Interval(change - half, change + half)
    low, high = (end * scale for end in interval)
    return Shift(means[0] * scale, means[1] * scale, Interval(low, high), (len(sides[0]), len(sides[1])))


def _scale(values: Floats) -> float:
    """What numbers near the end of the range are divided by, for their squares and sums overflow."""
    import numpy as np

    largest = float(np.max(np.abs(values))) if len(values) else 0.0
    return largest if largest > 1e100 else 1.0


def _inflation(side: Floats) -> float:
    """By how much neighbours that resemble one another enlarge the variance of their mean (first-order autocorrelation)."""
    import numpy as np

    apart = side - np.mean(side)
    whole = float(np.sum(apart**2))
    rho = float(np.sum(apart[1:] * apart[:-1])) / whole if whole > 0 else 0.0
    # the estimate of a short series is too low by about (1 + 4 rho) / n
    rho = min(0.9, max(0.0, rho + (1.0 + 4.0 * max(rho, 0.0)) / len(side)))
    return (1.0 + rho) / (1.0 - rho)


def group_means(values: Floats, names: NDArray[np.int64]) -> Floats:
    """The mean of each group's known values; NaN for a group without any."""
    import numpy as np

    known = ~np.isnan(values)
    n = int(names.max()) + 1 if len(names) else 0
    counts = np.bincount(names[known], minlength=n)
    scale = _scale(values[known])
    sums = np.bincount(names[known], values[known] / scale, minlength=n)
    present = np.bincount(names, minlength=n) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / counts * scale)[present]


_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W_]+|[^\w\s]")
WORDS, LONGEST, AT_MOST = 4, 12, 400
"""Words of a phrase at least and at most, and words read at either end of a completion."""
SPREAD = 0.3
_CUT = "\0"
"""Where the middle of a long completion was left out; no phrase goes over it."""


def spread_phrase(texts: Sequence[str], early: Any, late: Any) -> tuple[str, float, float, Any] | None:
    """The phrase of four words or more whose share of the completions has grown most, when it grew by 30 points or more.

    `early` and `late` say for every text whether it belongs there. Gives the phrase, its share early and late, and for every
    text whether it holds the phrase; characters of scripts without spaces are words. None when no phrase has spread.
    """
    import numpy as np

    n_early, n_late = int(np.sum(early)), int(np.sum(late))
    if n_early < 10 or n_late < 10:
        return None
    words = [_words(text) if first or last else [] for text, first, last in zip(texts, early, late, strict=True)]
    before, after = (_counts([own for own, inside in zip(words, rows, strict=True) if inside]) for rows in (early, late))
    grown = {gram: count / n_late - before[gram] / n_early for gram, count in after.items()}
    top = max(grown.items(), key=lambda item: (item[1], item[0]), default=None)
    if top is None or top[1] < SPREAD:
        return None
    # neighbouring windows that are as frequent are the same phrase
    near = {gram for gram, share in grown.items() if share >= top[1] - 0.02}
    phrase = _joined(top[0], near)
    has = np.array([_holds(own, top[0]) for own in words], dtype=np.float64)
    shown = _shown(phrase, next(text for text, inside in zip(texts, has * np.asarray(late), strict=True) if inside))
    return shown, before[top[0]] / n_early, after[top[0]] / n_late, has


Gram = tuple[str, ...]


def _words(text: str) -> list[str]:
    found = _WORD.findall(text[: 12 * AT_MOST].lower())
    if len(text) > 12 * AT_MOST or len(found) > 2 * AT_MOST:
        found = [*found[:AT_MOST], _CUT, *_WORD.findall(text[-12 * AT_MOST :].lower())[-AT_MOST:]]
    return found


def _grams(words: list[str]) -> set[Gram]:
    grams = zip(*(words[at:] for at in range(WORDS)), strict=False)
    return {gram for gram in grams if _CUT not in gram and any(w.isalnum() for w in gram)}


def _counts(texts: list[list[str]]) -> Counter[Gram]:
    found: Counter[Gram] = Counter()
    for words in texts:
        found.update(_grams(words))
    return found


def _holds(words: list[str], gram: Gram) -> bool:
    return gram in _grams(words)


def _joined(start: Gram, near: set[Gram]) -> list[str]:
    """The phrase with the windows that go on where it ends, to both sides."""
    phrase = list(start)
    for side in (1, -1):
        while len(phrase) < LONGEST:
            key = tuple(phrase[-(WORDS - 1) :]) if side > 0 else tuple(phrase[: WORDS - 1])
            nexts = sorted(gram for gram in near if (gram[:-1] if side > 0 else gram[1:]) == key)
            if not nexts or nexts[0] == start:
                break
            phrase = [*phrase, nexts[0][-1]] if side > 0 else [nexts[0][0], *phrase]
    return phrase


def _shown(phrase: list[str], text: str) -> str:
    """The phrase as a completion writes it."""
    found = re.search(r"\s*".join(map(re.escape, phrase)), text, re.IGNORECASE)
    return found[0] if found else " ".join(phrase)
