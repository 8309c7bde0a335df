"""From rewards to what a policy gradient uses: group normalisation, sums of components, clipping, and groups without a signal.

A reward that is None or NaN was not given: it counts in no mean, and its own advantage is 0, which is no gradient, not a bad
mark. Group statistics use Bessel's correction. Sources: GRPO (arXiv 2402.03300), its variant without division by the spread
(2503.20783), RLOO (2402.14740), GDPO (2601.05242), dynamic sampling (DAPO, 2503.14476).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = Sequence[float | None] | NDArray[Any]
    Groups = int | Sequence[Any] | NDArray[Any]
    """Size of the groups, which follow one another; or for every row what its group is called."""

Method = Literal["std", "batch_std", "mean", "leave_one_out", "rank"]
METHODS: tuple[Method, ...] = ("std", "batch_std", "mean", "leave_one_out", "rank")
ZERO = 1e-8
"""A spread up to this is none, as trainers count it."""


def group_advantages(
    rewards: Numbers, groups: Groups, method: Method = "std", *, eps: float = 1e-4, missing: float = 0.0
) -> Floats:
    """Advantages of completions against the others of their group, one per reward, in their order.

    Args:
        rewards: one per completion; None or NaN where there is none.
        groups: the size of the groups, or for every completion the name of its group (its prompt).
        method: `std`, the distance from the group's mean in its standard deviations (GRPO); `batch_std`, in those of the
            whole batch; `mean`, the distance itself; `leave_one_out`, the distance from the mean of the others (RLOO);
            `rank`, the place in the group from -1 to 1, ties sharing theirs, whatever the distances are.
        eps: added to the standard deviation.
        missing: the advantage of a completion without reward.

    A completion that is alone in its group, and a group of equal rewards, get 0.

    Raises:
        ConfigError: an unknown method, groups that do not fit, an infinite reward.
    """
    import numpy as np

    if method not in METHODS:
        raise ConfigError(unknown_name("method", str(method), METHODS))
    values = numbers_of(rewards)
    names = group_numbers(groups, len(values))
    given = ~np.isnan(values)
    out = np.zeros(len(values))
    spread = _std(values[given]) if method == "batch_std" else 0.0
    for rows in _rows_by_group(names):
        rows = rows[given[rows]]
        own = values[rows]
        if len(own) < 2:
            continue
        apart = own - _mean(own)
        if method == "std":
            out[rows] = _divided(apart, _std(own), eps)
        elif method == "batch_std":
            out[rows] = _divided(apart, spread, eps)
        elif method == "leave_one_out":
            out[rows] = apart * (len(own) / (len(own) - 1.0))
        else:
            out[rows] = _places(own) if method == "rank" else apart
    return np.where(given, out, missing)


def whitened(values: Numbers, *, eps: float = 1e-4) -> Floats:
    """Values of a whole batch with mean 0 and standard deviation 1; None and NaN stay NaN, equal values become 0."""
    import numpy as np

    found = numbers_of(values)
    given = ~np.isnan(found)
    known = found[given]
    if len(known):
        found[given] = _divided(known - _mean(known), _std(known), eps)
    return found


def weighted_sum(
    components: Mapping[str, Numbers],
    weights: Mapping[str, float] | None = None,
    *,
    missing: Literal["row", "zero"] = "row",
) -> Floats:
    """One reward per completion from its components, each times its weight (1 by default, negative for a penalty).

    A completion that lacks a component has no reward (NaN); with `missing="zero"` the component counts 0, as trainers add
    them up, and only a completion without any has none. Raises ConfigError for weights of components there are none of.
    """
    import numpy as np

    values = _table(components)
    scaled = values * _weights(components, weights)
    absent = np.isnan(values)
    none = absent.any(axis=1) if missing == "row" else absent.all(axis=1)
    with np.errstate(over="ignore"):  # a sum beyond the range is infinite, which is refused where it is used
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

    Added up first, completions with different components may have the same sum, and so the same advantage; a component on
    a wide scale drowns the others. Normalised inside the group first, each has its weight's say.

    Args:
        components: by name one value per completion; a missing one is neutral, and a completion without any gets 0.
        groups: as in `group_advantages`.
        weights: by name; 1 by default, negative for a penalty.
        method: how each component is normalised.
        whiten: whether the sums are normalised once more over the batch, which keeps their size apart from the number of
            components.
        eps: as in `group_advantages`.
    """
    import numpy as np

    values = _table(components)
    factors = _weights(components, weights)
    parts = [group_advantages(column, groups, method, eps=eps) for column in values.T]
    total = np.stack(parts, axis=1) @ factors if parts else np.zeros(0)
    total = np.where(np.isnan(values).all(axis=1), np.nan, total)
    return np.nan_to_num(whitened(total, eps=eps) if whiten else total, nan=0.0)


def clipped(rewards: Numbers, low: float | None = None, high: float | None = None) -> Floats:
    """Rewards or advantages within `low` and `high`; None and NaN stay NaN.

    Raises ConfigError when the bounds are no bounds.
    """
    import numpy as np

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
        flat_high, flat_low: flat ones at the highest and at the lowest reward of the batch: too easy, too hard (or a
            reward that cannot tell).
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
        said = f"{self.flat} of {self.n_groups} groups have equal rewards and teach nothing"
        if self.unknown > self.flat:
            return f"{self.unknown} of {self.n_groups} groups have fewer than two rewards: most completions get no score."
        if self.flat_high > self.flat_low and self.flat_high * 2 >= self.flat:
            return f"{said}, {self.flat_high} of them at the top: the prompts are too easy; filter them out or add harder ones."
        if self.flat_low * 2 >= self.flat:
            return (
                f"{said}, {self.flat_low} of them at the bottom: the prompts are too hard, or the reward never says yes; "
                "filter them out, draw more completions, or reward steps on the way."
            )
        return f"{said}: sample more completions per prompt, or use a reward with finer grades."


def spread_of(rewards: Numbers, groups: Groups) -> Spread:
    """Which groups have rewards that differ, and what to do when most do not; arguments as in `group_advantages`."""
    import numpy as np

    values = numbers_of(rewards)
    names = group_numbers(groups, len(values))
    keep = np.zeros(len(values), dtype=bool)
    known = values[~np.isnan(values)]
    lowest, highest = (float(known.min()), float(known.max())) if len(known) else (math.nan, math.nan)
    n_groups = flat = high = low = unknown = 0
    for rows in _rows_by_group(names):
        n_groups += 1
        own = values[rows][~np.isnan(values[rows])]
        if len(own) < 2:
            unknown += 1
        elif _std(own) > ZERO:
            keep[rows] = True
        else:
            flat += 1
            high += bool(own[0] >= highest - ZERO and highest - lowest > ZERO)
            low += bool(own[0] <= lowest + ZERO and highest - lowest > ZERO)
    return Spread(n_groups, flat, high, low, unknown, keep)


# -- shared with the monitors ------------------------------------------------------------------------------------------------


def numbers_of(values: Numbers, what: str = "rewards", *, finite: bool = True) -> Floats:
    """Numbers as a new array, None as NaN; ConfigError for what is no number, or infinite."""
    import numpy as np

    try:
        found = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: a list of numbers and None is needed: {error}") from error
    if found.ndim != 1:
        raise ConfigError(f"{what}: one number per completion is needed, found an array of {found.shape}.")
    if finite and np.isinf(found).any():
        place = int(np.argmax(np.isinf(found)))
        raise ConfigError(f"{what}[{place}] is {found[place]}; rewards are finite, or None where there is none.")
    return found


def group_numbers(groups: Groups, n: int) -> NDArray[np.int64]:
    """A number for every row's group; ConfigError when the groups do not fit the rows."""
    import numpy as np

    if isinstance(groups, (int, np.integer)):
        if groups < 1 or n % groups:
            raise ConfigError(f"groups is {groups}: {n} rewards cannot be cut into groups of that size.")
        return np.arange(n) // int(groups)
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__") or len(groups) != n:
        raise ConfigError(f"groups: the size of the groups, or {n} names of groups, are needed; found {groups!r:.60}.")
    known: dict[Any, int] = {}
    try:
        return np.array([known.setdefault(name, len(known)) for name in groups], dtype=np.int64)
    except TypeError:
        known.clear()  # prompts that are lists of messages
        return np.array([known.setdefault(repr(name), len(known)) for name in groups], dtype=np.int64)


def _rows_by_group(names: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    import numpy as np

    order = np.argsort(names, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(names[order])) + 1) if len(names) else []


def _mean(values: Floats) -> float:
    import numpy as np

    largest = float(np.max(np.abs(values)))  # sums of numbers near the end of the range overflow
    return largest * float(np.mean(values / largest)) if largest > 1e100 else float(np.mean(values))


def _std(values: Floats) -> float:
    """Standard deviation of a sample; 0 for fewer than two values."""
    import numpy as np

    if len(values) < 2:
        return 0.0
    apart = values - _mean(values)
    largest = float(np.max(np.abs(apart)))
    if largest > 1e100:
        return largest * float(np.sqrt(np.sum((apart / largest) ** 2) / (len(values) - 1)))
    return float(np.sqrt(np.sum(apart**2) / (len(values) - 1)))


def _divided(apart: Floats, spread: float, eps: float) -> Floats:
    return apart / (spread + eps) if spread > ZERO else apart * 0.0


def _places(values: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = (2.0 * rankdata(values) - len(values) - 1.0) / (len(values) - 1.0)
    return ranks


def _table(components: Mapping[str, Numbers]) -> Floats:
    import numpy as np

    columns = [numbers_of(values, name) for name, values in components.items()]
    for name, column in zip(components, columns, strict=True):
        if len(column) != len(columns[0]):
            first = next(iter(components))
            raise ConfigError(f"component '{name}' has {len(column)} values and '{first}' has {len(columns[0])}.")
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0))


def _weights(components: Mapping[str, Numbers], weights: Mapping[str, float] | None) -> Floats:
    import numpy as np

    for name, weight in (weights or {}).items():
        if name not in components:
            raise ConfigError(unknown_name("component", name, components))
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise ConfigError(f"the weight of '{name}' is {weight!r}; a finite number is needed.")
    return np.array([(weights or {}).get(name, 1.0) for name in components], dtype=np.float64)
