"""Old beside new on the same rows: a reward judged again, two versions of a judge, two runs.

Every figure of a change is worked out here, and nothing but `Estimate` says how sure it is: its
interval and its p-value cannot disagree, and one cluster has neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rm_gallery.core.stats import Array, ArrayLike, Bools, Floats, Integers, Names, np
from rm_gallery.core.stats.agreement import kendall_tau_b_estimate, spearman_estimate
from rm_gallery.core.stats.columns import cluster_numbers, names_where
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import Estimate, clustered_mean

SAME = 1e-9
"""Values this near are equal."""


@dataclass(frozen=True, eq=False)
class OldAndNew:
    """Two columns of values of the same rows.

    Figures are over the rows that have both, and None without one.

    Attributes:
        old: the first value of each row, shape (rows,); NaN where there is none.
        new: the second.
        clusters: one name per row; None where rows are independent.
        bounds: smallest and largest possible value; infinite where there is none.
        strata: one name per row where figures are means of parts.
        weights: weight per stratum; by default all weigh alike.

    >>> import numpy
    >>> judged = OldAndNew(numpy.array([0.0, 1.0, 1.0]), numpy.array([1.0, 1.0, numpy.nan]))
    >>> judged.difference.estimate, judged.means, judged.filled(0.0).means[1]
    (0.5, (0.5, 1.0), 0.6666666666666666)
    """

    old: Floats
    new: Floats
    clusters: Names | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    strata: Array | None = None
    weights: Mapping[Any, float] | None = None

    @cached_property
    def both(self) -> Bools:
        """Which rows have both values."""
        return ~np.isnan(self.old + self.new)

    @cached_property
    def _parts(self) -> tuple[Integers, Array | None]:
        """Numbers of the clusters, and the strata, of the rows with both."""
        codes = cluster_numbers(self.clusters, len(self.old))[self.both]
        return codes, None if self.strata is None else self.strata[self.both]

    def _mean_of_side(self, values: ArrayLike, bounds: tuple[float, float]) -> Estimate | None:
        """The mean over the rows with both of one value a row, NaN elsewhere."""
        codes, strata = self._parts
        own = np.asarray(values)[self.both]
        return clustered_mean(own, codes, strata=strata, weights=self.weights, bounds=bounds)

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Mean of the old values and of the new ones."""
        # labels may lie beyond the scale, and how near a score comes to them then below 0
        means = [self._mean_of_side(side, (-math.inf, math.inf)) for side in (self.old, self.new)]
        old, new = (None if mean is None else mean.estimate for mean in means)
        return old, new

    @cached_property
    def difference(self) -> Estimate | None:
        """Mean of new minus old."""
        reach = self.bounds[1] - self.bounds[0]
        return self._mean_of_side(self.new - self.old, (-reach, reach))

    def changed(self, tolerance: float = SAME) -> Estimate | None:
        """Share of the rows whose values lie farther apart than the tolerance."""
        return self._mean_of_side(np.abs(self.new - self.old) > tolerance, (0.0, 1.0))

    @property
    def spearman(self) -> Estimate | None:
        """Rank correlation of old and new; None where one of them is constant, too."""
        return spearman_estimate(self.old, self.new, clusters=self.clusters)

    @property
    def kendall(self) -> Estimate | None:
        """Kendall's tau-b of old and new, as `spearman`."""
        return kendall_tau_b_estimate(self.old, self.new, clusters=self.clusters)

    def filled(self, best: float) -> OldAndNew:
        """As if every missing new value were at its worst (0) or best (1), and old ones at the other
        end: between the two lies the difference, whatever is missing.
        """
        low, high = self.bounds
        old, new = (
            np.where(np.isnan(side), low + (high - low) * share, side)
            for side, share in ((self.old, 1.0 - best), (self.new, best))
        )
        return replace(self, old=old, new=new)

    @property
    def change_bounds(self) -> Interval | None:
        """`difference` of all rows with everything missing at its worst and at its best; None where the
        scale of what is missing is open.
        """
        if not self.both.all() and not math.isfinite(self.bounds[1] - self.bounds[0]):
            return None
        gaps = [self.filled(best).difference for best in (0.0, 1.0)]
        return None if None in gaps else Interval(*(gap.estimate for gap in gaps if gap))

    def only(self, rows: Bools) -> OldAndNew:
        """Some of the rows."""
        strata = None if self.strata is None else self.strata[rows]
        clusters = names_where(self.clusters, rows)
        return replace(
            self, old=self.old[rows], new=self.new[rows], clusters=clusters, strata=strata
        )

    def nearness(self, labels: Floats) -> OldAndNew:
        """How near both come to the labels, 1 - distance / width of the scale: 1 is agreement.

        On an open scale the width is that of the labels; without any all are unknown.
        """
        reach = self.bounds[1] - self.bounds[0]
        open_ended = not math.isfinite(reach)
        if open_ended:
            known = labels[~np.isnan(labels)]
            reach = float(np.ptp(known)) if len(known) else 0.0
        old, new = (
            1.0 - np.abs(side - labels) / (reach or math.nan) for side in (self.old, self.new)
        )
        return replace(
            self, old=old, new=new, bounds=(-math.inf, 1.0) if open_ended else (0.0, 1.0)
        )
