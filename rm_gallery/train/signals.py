"""Signals in the rewards of a training run: advantages, groups that teach nothing, how components
move and hang together.

A reward that is None or NaN was not given: it counts in no mean, and its own advantage is 0, which
is no gradient, not a bad mark. Group statistics use Bessel's correction. Sources: GRPO (arXiv
2402.03300), its variant without division by the spread (2503.20783), RLOO (2402.14740), GDPO
(2601.05242), dynamic sampling (DAPO, 2503.14476).

Completions of one prompt share its fate, so the group is the witness: correlations are taken inside
groups, where the prompt is the same for all, and intervals are those of groups drawn anew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from rm_gallery.core.stats import Array, Floats, Integers, Numbers, np
from rm_gallery.core.stats.columns import cluster_numbers
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.uncertainty import Estimate
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.names import check_known

if TYPE_CHECKING:
    Groups = int | Sequence[Any] | Array
    """Size of the groups, which follow one another; or for every row what its group is called."""

Method = Literal["std", "batch_std", "mean", "leave_one_out", "rank"]
METHODS: tuple[Method, ...] = get_args(Method)
ZERO = 1e-8
"""A spread up to this is none, as trainers count it."""


def group_advantages(
    rewards: Numbers,
    groups: Groups,
    method: Method = "std",
    *,
    eps: float = 1e-4,
    missing: float = 0.0,
) -> Floats:
    """Advantages of completions against the others of their group, one per reward, in their order.

    Args:
        rewards: one per completion; None or NaN where there is none.
        groups: the size of the groups, or for every completion the name of its group (its prompt).
        method: `std`, the distance from the group's mean in its standard deviations (GRPO);
            `batch_std`, in those of the whole batch; `mean`, the distance itself; `leave_one_out`,
            the distance from the mean of the others (RLOO); `rank`, the place in the group from -1
            to 1, ties sharing theirs, whatever the distances are.
        eps: added to the standard deviation.
        missing: the advantage of a completion without reward.

    A completion that is alone in its group, and a group of equal rewards, get 0.

    Raises:
        ConfigError: an unknown method, groups that do not fit, an infinite reward.
    """
    check_known("method", [method], METHODS)
    values = numbers_of(rewards)
    names = group_numbers(groups, len(values))
    given = ~np.isnan(values)
    out = np.zeros(len(values))
    whole = _std(values[given])
    for rows in _rows_by_group(names):
        rows = rows[given[rows]]
        own = values[rows]
        if len(own) < 2:
            continue
        deviations = own - _scaled_mean(own)
        if method == "leave_one_out":
            deviations *= len(own) / (len(own) - 1.0)
        elif method == "rank":
            from scipy.stats import rankdata

            deviations = (2.0 * rankdata(own) - len(own) - 1.0) / (len(own) - 1.0)
        elif method != "mean":
            spread = _std(own) if method == "std" else whole
            deviations = deviations / (spread + eps) if spread > ZERO else deviations * 0.0
        out[rows] = deviations
    return np.where(given, out, missing)


def whitened(values: Numbers, *, eps: float = 1e-4) -> Floats:
    """Values of a whole batch with mean 0 and standard deviation 1; None and NaN stay NaN, equal
    values become 0.
    """
    return group_advantages(values, max(1, len(values)), eps=eps, missing=math.nan)


def weighted_sum(
    components: Mapping[str, Numbers],
    weights: Mapping[str, float] | None = None,
    *,
    missing: Literal["row", "zero"] = "row",
) -> Floats:
    """One reward per completion from its components, each times its weight (1 by default, negative
    for a penalty).

    A completion that lacks a component has no reward (NaN); with `missing="zero"` the component
    counts 0, as trainers add them up, and only a completion without any has none. Raises
    ConfigError for weights of components there are none of.
    """
    values = _table(components)
    scaled = values * weights_of(components, weights)
    absent = np.isnan(values)
    none = absent.any(axis=1) if missing == "row" else absent.all(axis=1)
    # a sum beyond the range is infinite, which is refused where it is used
    with np.errstate(over="ignore"):
        return np.where(none, np.nan, np.nansum(scaled, axis=1))


def component_advantages(
    components: Mapping[str, Numbers],
    groups: Groups,
    weights: Mapping[str, float] | None = None,
    *,
    method: Method = "std",
    whiten: bool = True,
    eps: float = 1e-4,
) -> Floats:
    """Advantages from components that are normalised one by one before they are added up (GDPO).

    Added up first, completions with different components may have the same sum, and so the same
    advantage; a component on a wide scale drowns the others. Normalised inside the group first,
    each has its weight's say.

    Args:
        components: by name one value per completion; a missing one is neutral, and a completion
            without any gets 0.
        groups: as in `group_advantages`.
        weights: by name; 1 by default, negative for a penalty.
        method: how each component is normalised.
        whiten: whether the sums are normalised once more over the batch, which keeps their size
            apart from the number of components.
        eps: as in `group_advantages`.
    """
    values = _table(components)
    factors = weights_of(components, weights)
    parts = [group_advantages(column, groups, method, eps=eps) for column in values.T]
    total = np.stack(parts, axis=1) @ factors if parts else np.zeros(0)
    total = np.where(np.isnan(values).all(axis=1), np.nan, total)
    return np.nan_to_num(whitened(total, eps=eps) if whiten else total, nan=0.0)


def clipped(rewards: Numbers, low: float | None = None, high: float | None = None) -> Floats:
    """Rewards or advantages within `low` and `high`; None and NaN stay NaN.

    Raises ConfigError when the bounds are no bounds.
    """
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if not low <= high:
        raise ConfigError(f"clipped: low is {low} and high is {high}; low is at most high.")
    return np.clip(numbers_of(rewards, finite=False), low, high)


@dataclass(frozen=True)
class Spread:
    """How many groups of a batch can teach anything: those whose rewards differ.

    Attributes:
        n_groups: groups there are.
        flat: those whose rewards are all equal, and so give no gradient.
        flat_high, flat_low: flat ones at the highest and at the lowest reward of the batch: too
            easy, too hard (or a reward that cannot tell).
        unknown: groups with fewer than two rewards.
        keep: for every completion whether its group differs; what a dynamic filter keeps.
    """

    n_groups: int
    flat: int
    flat_high: int
    flat_low: int
    unknown: int
    keep: Any

    @property
    def frac_reward_zero_std(self) -> float:
        """Share of groups without spread, as trainers chart it; NaN without groups."""
        return self.flat / self.n_groups if self.n_groups else math.nan

    @property
    def hint(self) -> str:
        """What to do about it, in a sentence; empty when less than half of the groups are flat."""
        if not self.n_groups or self.flat + self.unknown < 0.5 * self.n_groups:
            return ""
        flat_groups = f"{self.flat} of {self.n_groups} groups have equal rewards and teach nothing"
        if self.unknown > self.flat:
            return (
                f"{self.unknown} of {self.n_groups} groups have fewer than two rewards: most "
                f"completions get no score."
            )
        if self.flat_high > self.flat_low and self.flat_high * 2 >= self.flat:
            return (
                f"{flat_groups}, {self.flat_high} of them at the top: the prompts are too easy; filter "
                f"them out or add harder ones."
            )
        if self.flat_low * 2 >= self.flat:
            return (
                f"{flat_groups}, {self.flat_low} of them at the bottom: the prompts are too hard, or the "
                f"reward never says yes; "
                "filter them out, draw more completions, or reward steps on the way."
            )
        return (
            f"{flat_groups}: sample more completions per prompt, or use a reward with finer grades."
        )


def spread_of(rewards: Numbers, groups: Groups) -> Spread:
    """Which groups have rewards that differ, and what to do when most do not; arguments as in
    `group_advantages`.
    """
    values = numbers_of(rewards)
    names = group_numbers(groups, len(values))
    keep = np.zeros(len(values), dtype=bool)
    known = values[~np.isnan(values)]
    lowest, highest = known.min(initial=math.inf).item(), known.max(initial=-math.inf).item()
    flat: list[float] = []
    unknown = 0
    rows_by_group = _rows_by_group(names)
    for rows in rows_by_group:
        own = values[rows][~np.isnan(values[rows])]
        if len(own) < 2:
            unknown += 1
        elif _std(own) > ZERO:
            keep[rows] = True
        else:
            flat.append(float(own[0]))
    differ = highest - lowest > ZERO
    high = sum(differ and value >= highest - ZERO for value in flat)
    low = sum(differ and value <= lowest + ZERO for value in flat)
    return Spread(len(rows_by_group), len(flat), high, low, unknown, keep)


def numbers_of(values: Numbers, what: str = "rewards", *, finite: bool = True) -> Floats:
    """Numbers as a new array, None as NaN; ConfigError for what is no number, or infinite."""
    try:
        numbers = np.array(
            [math.nan if value is None else value for value in values], dtype=np.float64
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: a list of numbers and None is needed: {error}") from error
    if numbers.ndim != 1:
        raise ConfigError(
            f"{what}: one number per completion is needed, found an array of {numbers.shape}."
        )
    if finite and np.isinf(numbers).any():
        place = int(np.argmax(np.isinf(numbers)))
        raise ConfigError(
            f"{what}[{place}] is {numbers[place]}; rewards are finite, or None where there is none."
        )
    return numbers


def number_or_none(value: float) -> float | None:
    """A number as JSON holds it; None for NaN and for what is infinite."""
    return float(value) if math.isfinite(value) else None


def group_numbers(groups: Groups, n: int) -> Integers:
    """A number for every row's group; ConfigError when the groups do not fit the rows."""
    if isinstance(groups, (int, np.integer)):
        if groups < 1 or n % groups:
            raise ConfigError(
                f"groups is {groups}: {n} rewards cannot be cut into groups of that size."
            )
        return np.arange(n) // int(groups)
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__") or len(groups) != n:
        raise ConfigError(
            f"groups: the size of the groups, or {n} names of groups, are needed; found "
            f"{groups!r:.60}."
        )
    try:
        return cluster_numbers(list(groups), n)
    except TypeError:  # prompts that are lists of messages
        return cluster_numbers([repr(name) for name in groups], n)


def _rows_by_group(names: Integers) -> list[Integers]:
    order = np.argsort(names, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(names[order])) + 1) if len(names) else []


def _scale(values: Floats) -> float:
    """What numbers near the end of the range are divided by, for their squares and sums overflow."""
    largest = float(np.max(np.abs(values))) if len(values) else 0.0
    return largest if largest > 1e100 else 1.0


def _scaled_mean(values: Floats) -> float:
    scale = _scale(values)
    return scale * float(np.mean(values / scale))


def _std(values: Floats) -> float:
    """Standard deviation of a sample; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    # which does not overflow where squares do
    return math.hypot(*(values - _scaled_mean(values))) / math.sqrt(len(values) - 1)


def _table(components: Mapping[str, Numbers]) -> Floats:
    columns = [numbers_of(values, name) for name, values in components.items()]
    for name, column in zip(components, columns, strict=True):
        if len(column) != len(columns[0]):
            first = next(iter(components))
            raise ConfigError(
                f"component '{name}' has {len(column)} values and '{first}' has {len(columns[0])}."
            )
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0))


def weights_of(components: Collection[str], weights: Mapping[str, float] | None) -> Floats:
    """One weight per component, 1 where none is given; ConfigError for what is none of them, or no
    finite number.
    """
    check_known("component", weights or (), components)
    for name, weight in (weights or {}).items():
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise ConfigError(f"the weight of '{name}' is {weight!r}; a finite number is needed.")
    return np.array([(weights or {}).get(name, 1.0) for name in components], dtype=np.float64)


# -- movements and links ---------------------------------------------------------------------------

LEAST_GROUPS = 5
"""Groups (or steps) below which nothing is said to have changed."""


@dataclass(frozen=True)
class GroupCorrelation:
    """How two values hang together inside groups, -1..1; the slope is the change of the first per
    unit of the second.
    """

    correlation: float
    interval: Interval
    slope: float
    variance: float
    n: int
    n_groups: int

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.interval.covers(0.0)


def link(
    first: Numbers, second: Numbers, groups: Groups, *, level: float = 0.95
) -> GroupCorrelation | None:
    """The correlation of two values of completions inside their groups, pooled over groups, with
    its interval.

    Rows without one of the values count in nothing. None where no group has two rows that differ in
    both values, or there are fewer than five groups.

    Raises:
        ConfigError: the values or groups do not fit one another.
    """
    check_level(level)
    table = [numbers_of(first, "first"), numbers_of(second, "second")]
    n, n_second = map(len, table)
    if n != n_second:
        raise ConfigError(f"{n} values and {n_second}: one of each is needed per completion.")
    names = group_numbers(groups, n)
    both = ~np.isnan(table).any(axis=0)
    if not both.any():
        return None
    _, names = np.unique(names[both], return_inverse=True)
    scales = [_scale(values[both]) for values in table]
    units = (values[both] / scale for values, scale in zip(table, scales, strict=True))
    # distances from the groups' means
    a, b = (unit - group_means(unit, names)[names] for unit in units)
    aa, bb = float(np.sum(a * a)), float(np.sum(b * b))
    differ = [np.bincount(names, np.abs(distances)) > 1e-12 for distances in (a, b)]
    varied = int(np.sum(differ[0] | differ[1]))
    if aa <= 1e-18 or bb <= 1e-18 or varied < LEAST_GROUPS:
        return None
    x, y = a / math.sqrt(aa), b / math.sqrt(bb)
    r = min(1.0, max(-1.0, float(np.sum(x * y))))
    weights = (x * x + y * y) / 2.0
    # on the scale of shares, since even a correlation of 1 in five groups is not sure
    figure = Estimate(r, x * y - r * weights, weights, names, (-1.0, 1.0))
    interval = figure.interval(level)
    assert interval is not None  # there are five groups
    slope = float(np.sum(a * b)) / bb * (scales[0] / scales[1])
    return GroupCorrelation(r, interval, slope, figure.variance, len(a), varied)


def length_bias(
    rewards: Numbers, lengths: Numbers, groups: Groups, *, level: float = 0.95
) -> GroupCorrelation | None:
    """How a reward follows the length of completions to the same prompt; the slope is what a
    doubling of the length is worth.

    Lengths are compared by their logarithm, so the unit does not count. None as in `link`.
    """
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
        return not self.interval.covers(0.0)


def shift(early: Any, late: Any, *, level: float = 0.95, in_a_row: bool = False) -> Shift | None:
    """The change of a mean between two sets of independent values (groups' means, steps), with
    Welch's interval.

    NaN counts in nothing; None for fewer than five values on either side. `in_a_row` widens it for
    steps that follow one another and resemble their neighbours.
    """
    from scipy import stats

    sides = [np.asarray(side, dtype=np.float64) for side in (early, late)]
    sides = [side[~np.isnan(side)] for side in sides]
    n = len(sides[0]), len(sides[1])
    if min(n) < LEAST_GROUPS:
        return None
    scale = _scale(np.concatenate(sides))
    sides = [side / scale for side in sides]
    means = [float(np.mean(side)) for side in sides]
    parts = [
        float(np.var(side, ddof=1)) / len(side) * (_inflation(side) if in_a_row else 1.0)
        for side in sides
    ]
    total = sum(parts)
    change = means[1] - means[0]
    if total <= 1e-18 * max(1.0, change * change):
        interval = Interval(change, change)
    else:
        freedom = total**2 / sum(part**2 / (size - 1) for part, size in zip(parts, n, strict=True))
        half = float(stats.t.ppf(0.5 + check_level(level) / 2.0, freedom)) * math.sqrt(total)
        interval = Interval(change - half, change + half)
    whole = Interval(*(end * scale for end in interval))
    return Shift(means[0] * scale, means[1] * scale, whole, n)


def _inflation(side: Floats) -> float:
    """By how much neighbours that resemble one another enlarge the variance of their mean
    (first-order autocorrelation).
    """
    deviations = side - np.mean(side)
    whole = float(np.sum(deviations**2))
    rho = float(np.sum(deviations[1:] * deviations[:-1])) / whole if whole > 0 else 0.0
    # the estimate of a short series is too low by about (1 + 4 rho) / n
    rho = min(0.9, max(0.0, rho + (1.0 + 4.0 * max(rho, 0.0)) / len(side)))
    return (1.0 + rho) / (1.0 - rho)


def group_means(values: Floats, names: Integers) -> Floats:
    """The mean of each group's known values; NaN for a group without any."""
    known = ~np.isnan(values)
    n = int(names.max()) + 1 if len(names) else 0
    counts = np.bincount(names[known], minlength=n)
    scale = _scale(values[known])
    sums = np.bincount(names[known], values[known] / scale, minlength=n)
    present = np.bincount(names, minlength=n) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / counts * scale)[present]


_WORD = re.compile(
    r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]"
    r"|[^\W_\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]+|[^\w\s]"
)
WORDS, LONGEST, AT_MOST = 4, 12, 400
"""Words of a phrase at least and at most, and words read at either end of a completion."""
SPREAD, SHORT_SPREAD = 0.3, 0.5
"""By how much its share has to grow; that of a phrase of one to three words more, since few of
these say much.
"""
_CUT = "\0"
"""Where the middle of a long completion was left out; no phrase goes over it."""


def spread_phrase(
    texts: Sequence[str], early: Any, late: Any
) -> tuple[str, float, float, Any] | None:
    """The phrase of four words or more whose share of the completions has grown most, when it grew
    by 30 points or more; else one of three words, two or one whose share grew by 50.

    `early` and `late` say for every text whether it belongs there. Gives the phrase, its share
    early and late, and for every text whether it holds the phrase; characters of scripts without
    spaces are words. None when no phrase has spread.
    """
    n_early, n_late = int(np.sum(early)), int(np.sum(late))
    if n_early < 10 or n_late < 10:
        return None
    for words in range(WORDS, 0, -1):
        grams = [
            _grams(text, words) if first or last else set()
            for text, first, last in zip(texts, early, late, strict=True)
        ]
        before, after = (
            Counter(gram for own, inside in zip(grams, rows, strict=True) if inside for gram in own)
            for rows in (early, late)
        )
        grown = {gram: count / n_late - before[gram] / n_early for gram, count in after.items()}
        top = max(grown.items(), key=lambda item: (item[1], item[0]), default=None)
        if top is not None and top[1] >= (SPREAD if words == WORDS else SHORT_SPREAD):
            break
    else:
        return None
    # neighbouring windows that are as frequent are the same phrase
    near = {gram for gram, share in grown.items() if share >= top[1] - 0.02}
    phrase = _joined(top[0], near) if words == WORDS else list(top[0])
    has = np.array([top[0] in own for own in grams], dtype=np.float64)
    text = next(text for text, inside in zip(texts, has * np.asarray(late), strict=True) if inside)
    written = re.search(r"\s*".join(map(re.escape, phrase)), text, re.IGNORECASE)
    shown = written[0] if written else " ".join(phrase)
    return shown, before[top[0]] / n_early, after[top[0]] / n_late, has


Gram = tuple[str, ...]


def _grams(text: str, n: int) -> set[Gram]:
    """So many words in a row, of both ends of a long text."""
    words = _WORD.findall(text[: 12 * AT_MOST].lower())
    if len(text) > 12 * AT_MOST or len(words) > 2 * AT_MOST:
        words = [*words[:AT_MOST], _CUT, *_WORD.findall(text[-12 * AT_MOST :].lower())[-AT_MOST:]]
    grams = zip(*(words[at:] for at in range(n)), strict=False)
    return {gram for gram in grams if _CUT not in gram and any(w.isalnum() for w in gram)}


def _joined(start: Gram, near: set[Gram]) -> list[str]:
    """The phrase with the windows that go on where it ends, to both sides."""
    phrase = list(start)
    for way in (1, -1):
        phrase = phrase[::way]
        while len(phrase) < LONGEST:
            end = tuple(phrase[1 - WORDS :])
            following = min((gram for gram in near if gram[::way][:-1] == end), default=start)
            if following == start:
                break
            phrase.append(following[::way][-1])
        phrase = phrase[::way]
    return phrase
