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
1 / a with a probability of at most a. Baselines of 1, 1, 2, 4, … times `first` steps follow one
another, so that a fall from a later height is seen as well; the k-th has the part 1 / (k (k + 1))
of the capital, and these sum to less than 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rm_gallery.core.stats import Floats, np
from rm_gallery.core.stats.intervals import check_bounds
from rm_gallery.core.utils.errors import ConfigError

_RATIOS = (1.3, 1.8, 3.0, 7.0)
"""Ratios of odds that are bet on; one of them is near the best for any fall that matters."""
_CELLS = 512
"""Cells of supposed means, equal in units of the standard error of a share (arc sine)."""


class FallTest:
    """A one-sided test that the mean of bounded observations falls, valid at every look.

    Feed it one step at a time with `add`. `e_value` is the highest capital so far (0 or more,
    higher is more evidence of a fall); P(it ever reaches 1 / a) <= a for a run whose mean, given
    the steps before, stays or rises from step to step. Observations of one step are independent
    given the steps before; what shares a prompt goes in as its mean. Source: arXiv 2010.09686,
    equation 20; 2009.03167, section 4.

    Args:
        bounds: lowest and highest possible observation.
        first: steps of the first baseline; 1 or more.

    Raises:
        ConfigError: the bounds or `first` are none.

    >>> test = FallTest(first=5)
    >>> for step in range(20):
    ...     _ = test.add([1.0, 0.0, 1.0, 1.0] if step < 5 else [0.0, 0.0, 1.0, 0.0])
    >>> test.p_value < 0.01, test.baseline, round(test.early, 2), round(test.late, 2)
    (True, (0, 5), 0.75, 0.25)
    """

    def __init__(self, bounds: tuple[float, float] = (0.0, 1.0), *, first: int = 10) -> None:
        self.bounds = check_bounds(bounds)
        if first < 1:
            raise ConfigError(f"first is {first}; a baseline has at least one step.")
        self.first = first
        self.n_steps = 0
        self._windows: Floats = np.zeros((1, 2 + 2 * len(_RATIOS)))
        """By window: observations, their sum on 0..1, and their sum of log(1 + s x) for each s."""
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
        gains = np.log1p(np.multiply.outer(_bets_on_odds(), x)).sum(axis=1)
        self._windows[-1] += [len(x), x.sum(), *gains]
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
        return self._mean(self._windows[self._leading])

    @property
    def late(self) -> float:
        """Mean of all observations after it; NaN before there is any."""
        return self._mean(self._windows[self._leading + 1 :].sum(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` continues from, in JSON's types; a few numbers per window."""
        return {
            "bounds": list(self.bounds),
            "first": self.first,
            "n_steps": self.n_steps,
            "windows": self._windows.tolist(),
            "best": self._best if math.isfinite(self._best) else None,
            "leading": self._leading,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> FallTest:
        """The test that wrote `state`, which goes on as if it had never ended."""
        low, high = state["bounds"]
        made = cls((low, high), first=state["first"])
        made._windows = np.array(state["windows"], dtype=np.float64)
        made.n_steps, made._leading = state["n_steps"], state["leading"]
        made._best = -math.inf if state["best"] is None else state["best"]
        return made

    def _mean(self, window: Floats) -> float:
        low, high = self.bounds
        n, total = float(window[0]), float(window[1])
        return low + (high - low) * total / n if n else math.nan

    def _end(self, windows: int) -> int:
        """Steps in the first so many windows."""
        return self.first * 2 ** (windows - 1) if windows else 0

    def _look(self) -> None:
        logs = []
        later = np.cumsum(self._windows[::-1], axis=0)[::-1]
        n = len(_RATIOS)
        for place in range(len(self._windows) - 1):
            if place == len(self._closed):
                self._closed.append(_capital(self._windows[place], slice(0, n)))
            up = self._closed[place]
            down = _capital(later[place + 1], slice(n, 2 * n))
            # U falls with m and D rises: in a cell their product is at least that of these ends
            product = up[1:] + down[:-1]
            logs.append(float(product.min()) - math.log((place + 1.0) * (place + 2.0)))
        if logs and (now := float(np.logaddexp.reduce(logs))) > self._best:
            self._best, self._leading = now, int(np.argmax(logs))


@cache
def _bets_on_odds() -> Floats:
    """What s is for who bets above the mean, then for who bets below it."""
    ratios = np.array(_RATIOS)
    return np.concatenate([ratios - 1.0, 1.0 / ratios - 1.0])


@cache
def _costs() -> Floats:
    """log(1 + s m) by bet and supposed mean."""
    means = np.sin(np.linspace(0.0, math.pi / 2.0, _CELLS + 1)) ** 2
    costs: Floats = np.log1p(np.multiply.outer(_bets_on_odds(), means))
    return costs


def _capital(window: Floats, bets: slice) -> Floats:
    """Logarithm of the mean capital of some bettors, by supposed mean."""
    logs = window[2:][bets, None] - window[0] * _costs()[bets]
    top = logs.max(axis=0)
    mixed: Floats = top + np.log(np.exp(logs - top).mean(axis=0))
    return mixed
