"""Has a mean fallen below what it was? A test that is valid at every look of a run without end.

A window of steps is the baseline, and every later step bets against it. For a supposed mean m an
observation x in 0..1 multiplies a bettor's capital by (1 + s (x - m) / (1 + s m)), that is by
(1 + s x) / (1 + s m): with s > 0 who bets on values above m, with -1 < s < 0 who bets below. This
is the capital of I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by
betting" (arXiv 2010.09686, equation 20) with a bet of s / (1 + s m). For outcomes of 0 and 1 it is
the likelihood ratio of the odds times 1 + s.

U(m) is the mean capital of bettors above m over the baseline, D(m) that of bettors below m since
then. Where the mean never falls, its value at the end of the baseline is at least every mean
before and at most every mean after it, so for this m the product U(m) D(m) is a nonnegative
supermartingale from 1. It bounds inf over m of U(m) D(m), which is an e-process (A. Ramdas, J. Ruf,
M. Larsson and W. Koolen, arXiv 2009.03167, section 4), and by Ville's inequality this ever reaches
1 / a with a probability of at most a. Baselines end after 1, 2, 4, … times `first` steps, so that a
fall from a later height is seen as well; half of the bettors of each begin with the run, half where
the baseline before ended. The k-th has the part 1 / (k (k + 1)) of the capital, and these sum to
less than 1.

Half of the capital is bet on the means of steps, one observation a step: this half is valid
whatever the scores of one step have in common. The other half is bet on each score, and counts only
while the steps show no correlation of their scores: with a common trait, scores pass for more than
they are (at an intraclass correlation of .05, 6 of 60 flat runs were told to fall). The means of
steps in a row are compared, so that a slow rise or fall is no correlation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rm_gallery.core.stats import Floats, np
from rm_gallery.core.stats.intervals import check_bounds
from rm_gallery.core.utils.errors import ConfigError

_RATIOS = ((1.0, 1.3, 1.8, 3.0, 7.0), (1.0, 2.0, 5.0, 20.0, 100.0))
"""Ratios of odds that are bet on, with scores and with means of steps, which vary less; one of them
is near the best for any fall that matters. Who bets on a ratio of 1 keeps the cash: without, what a
baseline has won is lost again as data arrive (of 30 falls from .5 to .35, 15 were found).
"""
_CELLS = 512
"""Cells of supposed means, equal in units of the standard error of a share (arc sine)."""


class FallTest:
    """A one-sided test that the mean of bounded observations falls, valid at every look.

    Feed it one step at a time with `add`. `e_value` is the highest capital so far (0 or more,
    higher is more evidence of a fall); P(it ever reaches 1 / a) <= a for a run whose mean, given
    the steps before, stays or rises from step to step, where observations of one step are
    independent given the steps before. Where they are not, the half on means of steps has <= a / 2,
    and the other half counts only until they are `correlated`. What shares a prompt goes in as its
    mean. Source: arXiv 2010.09686, equation 20;
    2009.03167, section 4.

    Args:
        bounds: lowest and highest possible observation.
        first: steps of the first baseline; 1 or more.

    Raises:
        ConfigError: the bounds or `first` are none.

    >>> test = FallTest(first=5)
    >>> for step in range(20):
    ...     _ = test.add([1.0, 0.0, 1.0, 1.0] if step < 5 else [0.0, 0.0, 1.0, 0.0])
    >>> test.p_value < 0.02, test.baseline, round(test.early, 2), round(test.late, 2)
    (True, (0, 5), 0.75, 0.25)
    """

    def __init__(self, bounds: tuple[float, float] = (0.0, 1.0), *, first: int = 10) -> None:
        self.bounds = check_bounds(bounds)
        if first < 1:
            raise ConfigError(f"first is {first}; a baseline has at least one step.")
        self.first = first
        self.n_steps = 0
        self._windows: Floats = np.zeros((1, 2, 2 + 2 * len(_RATIOS[0])))
        """By window, for the scores and for the means of steps: how many, their sum on 0..1, and
        their sum of log(1 + s x) for each s."""
        self._pairs: Floats = np.zeros(4)
        """Of pairs of steps in a row: how many, the squares of the differences of their means, what
        these come to by the observations' variance alone, and the ratios of the two up to 4."""
        self._inside: Floats = np.zeros(2)
        """Squares of distances inside steps, and their degrees of freedom."""
        self._last = (0, 0.0, 0.0)
        """Of the last step: observations, their mean on 0..1, squares of distances from it."""
        self._closed: list[Floats] = []
        """The capital above each supposed mean of the windows that are over."""
        self._best = -math.inf
        self._leading = 0

    def add(self, observations: Sequence[float]) -> float:
        """Take in the observations of one step; give the e-value now. A step without any is none.

        Raises:
            ConfigError: an observation lies outside the bounds, or is NaN; nothing is taken in.
        """
        low, high = self.bounds
        if wrong := [x for x in observations if not low <= x <= high]:
            raise ConfigError(
                f"an observation is {wrong[0]!r}, outside the bounds {low:g}..{high:g}."
            )
        if not len(observations):
            return self.e_value
        if self.n_steps == self._end(len(self._windows)):
            self._windows = np.vstack([self._windows, np.zeros_like(self._windows[:1])])
        self.n_steps += 1
        x = (np.asarray(observations, dtype=np.float64) - low) / (high - low)
        units = (x, x.mean(keepdims=True))
        for window, bets, seen in zip(self._windows[-1], _bets_on_odds(), units, strict=True):
            gains = np.log1p(np.multiply.outer(bets, seen)).sum(axis=1)
            window += [len(seen), seen.sum(), *gains]
        self._compare(x)
        self._look()
        return self.e_value

    @property
    def e_value(self) -> float:
        """The highest capital so far, 0 or more; infinite beyond the range of floats."""
        return math.exp(self._best) if self._best < 700.0 else math.inf

    @property
    def p_value(self) -> float:
        """Bound on the probability of such a capital in a run that does not fall, 0 to 1."""
        return math.exp(-max(0.0, self._best))

    @property
    def baseline(self) -> tuple[int, int]:
        """The steps, first and one after the last, of the baseline that the evidence is against."""
        return self._end(self._leading), self._end(self._leading + 1)

    @property
    def early(self) -> float:
        """Mean of the observations of that baseline; NaN before there is any."""
        return self._window_mean(self._windows[self._leading])

    @property
    def late(self) -> float:
        """Mean of all observations after it; NaN before there is any."""
        return self._window_mean(self._windows[self._leading + 1 :].sum(axis=0))

    @property
    def correlation(self) -> float:
        """Intraclass correlation of the observations of one step, 0 to 1; NaN before steps show it."""
        n, between, expected, _ = self._pairs.tolist()
        if not n or not self._inside[0] + between:
            return math.nan
        within = float(self._inside[0] / self._inside[1])
        common: float = max(0.0, between - expected) / (2.0 * n)
        return common / (common + within)

    @property
    def correlated(self) -> bool:
        """Whether means of steps in a row differ by more than their observations do, by 2.5 standard
        errors: then only the means are evidence.
        """
        n, _, _, ratios = self._pairs.tolist()
        return bool(ratios > n + 2.5 * math.sqrt(n))

    def visible(self, false_alarms: float) -> float:
        """The highest mean to which a fall from the first baseline is told sooner or later; the
        lowest bound where none is, NaN before that baseline is over.
        """
        if not self._closed:
            return math.nan
        # for the lower mean it is the bettors with cash alone that are left
        needed = math.log(4.0 * len(_RATIOS[0]) / false_alarms)
        told = _means()[self._closed[0][int(self.correlated)] >= needed]
        low, high = self.bounds
        return low + (high - low) * float(told.max(initial=0.0))

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` continues from, in JSON's types; a few numbers per window."""
        return {
            "bounds": list(self.bounds),
            "first": self.first,
            "n_steps": self.n_steps,
            "windows": self._windows.tolist(),
            "pairs": self._pairs.tolist(),
            "inside": self._inside.tolist(),
            "last": list(self._last),
            "best": self._best if math.isfinite(self._best) else None,
            "leading": self._leading,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FallTest:
        """The test that wrote `state`, which goes on as if it had never ended."""
        low, high = state["bounds"]
        made = cls((low, high), first=state["first"])
        made._windows = np.array(state["windows"], dtype=np.float64)
        made._pairs = np.array(state["pairs"], dtype=np.float64)
        made._inside = np.array(state["inside"], dtype=np.float64)
        n, mean, square = state["last"]
        made._last = n, mean, square
        made.n_steps, made._leading = state["n_steps"], state["leading"]
        made._best = -math.inf if state["best"] is None else state["best"]
        return made

    def _window_mean(self, window: Floats) -> float:
        low, high = self.bounds
        n, total = window[0, :2].tolist()
        return low + (high - low) * total / n if n else math.nan

    def _end(self, windows: int) -> int:
        """Steps in the first so many windows."""
        return self.first * 2 ** (windows - 1) if windows else 0

    def _look(self) -> None:
        logs = []
        later = np.cumsum(self._windows[::-1], axis=0)[::-1]
        n = len(_RATIOS[0])
        for place in range(len(self._windows) - 1):
            if place == len(self._closed):
                # from its first step, and from that of the run
                since = (self._windows[place], self._windows[: place + 1].sum(axis=0))
                both = [_capital(each, slice(0, n)) for each in since]
                self._closed.append(np.logaddexp(*both) - math.log(2.0))
            up = self._closed[place]
            down = _capital(later[place + 1], slice(n, 2 * n))
            # U falls with m and D rises: in a cell their product is at least that of these ends
            product = (up[:, 1:] + down[:, :-1]).min(axis=1)
            logs.append(product - math.log(2.0 * (place + 1.0) * (place + 2.0)))
        if not logs:
            return
        by_window = np.logaddexp.reduce(np.array(logs)[:, int(self.correlated) :], axis=1)
        if (now := float(np.logaddexp.reduce(by_window))) > self._best:
            self._best, self._leading = now, int(np.argmax(by_window))

    def _compare(self, x: Floats) -> None:
        """Take in how far observations of a step lie apart, and its mean from that before."""
        (n_before, before, square_before) = self._last
        n, mean = len(x), float(x.mean())
        square = float(np.square(x - mean).sum())
        self._last = n, mean, square
        self._inside += [square, n - 1]
        free, between = n + n_before - 2, (mean - before) ** 2
        if not n_before or free < 1 or not square + square_before + between:
            return
        expected = (square + square_before) / free * (1.0 / n + 1.0 / n_before)
        # at most 4, so that one sudden fall is no correlation
        ratio = between / expected if between < 4.0 * expected else 4.0
        self._pairs += [1.0, between, expected, ratio]


@cache
def _bets_on_odds() -> Floats:
    """What s is for who bets above the mean, then for who bets below it."""
    ratios = np.array(_RATIOS)
    return np.concatenate([ratios - 1.0, 1.0 / ratios - 1.0], axis=1)


@cache
def _means() -> Floats:
    """The supposed means at the ends of the cells."""
    means: Floats = np.sin(np.linspace(0.0, math.pi / 2.0, _CELLS + 1)) ** 2
    return means


@cache
def _costs() -> Floats:
    """log(1 + s m) by unit, bet and supposed mean."""
    costs: Floats = np.log1p(np.multiply.outer(_bets_on_odds(), _means()))
    return costs


def _capital(window: Floats, bets: slice) -> Floats:
    """Logarithm of the mean capital of some bettors, by supposed mean."""
    logs = window[:, 2:][:, bets, None] - window[:, :1, None] * _costs()[:, bets]
    top = logs.max(axis=1)
    mixed: Floats = top + np.log(np.exp(logs - top[:, None]).mean(axis=1))
    return mixed
