"""Is one judge better than another on the same samples? Paired tests, which see far smaller differences than two intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from rm_gallery.core.stats.agreement import complete_pairs
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.resampling import N_DRAWS, cluster_sum_draws, draws_interval, mean_draws, named_generator
from rm_gallery.core.utils.errors import ConfigError


class McNemar(NamedTuple):
    """Result of McNemar's exact test.

    Attributes:
        only_first: samples the first is right on and the second wrong.
        only_second: samples the second is right on and the first wrong.
        p_value: two-sided exact p-value of "both are equally often right".
        n: samples compared.
        n_left_out: samples without an outcome on one side or both.
    """

    only_first: int
    only_second: int
    p_value: float
    n: int
    n_left_out: int


class PairedDifference(NamedTuple):
    """Mean of first minus second over the samples both have, with its bootstrap interval."""

    difference: float | None
    interval: Interval | None
    n: int
    n_left_out: int


def mcnemar_exact(first: Sequence[bool | None], second: Sequence[bool | None]) -> McNemar:
    """Test whether two judges are equally often right on the same samples.

    Args:
        first: per sample whether the first judge is right; None where it gave no outcome.
        second: the same for the second judge, in the same order.

    Raises:
        ConfigError: if the sequences differ in length.

    Source: Q. McNemar, 1947, in its exact binomial form.
    """
    from scipy.stats import binomtest

    pairs = complete_pairs(first, second)
    only_first = sum(1 for a, b in pairs if a and not b)
    only_second = sum(1 for a, b in pairs if b and not a)
    different = only_first + only_second
    p_value = float(binomtest(only_first, different).pvalue) if different else 1.0
    return McNemar(only_first, only_second, p_value, len(pairs), len(first) - len(pairs))


def paired_bootstrap_difference(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    clusters: Sequence[Hashable] | None = None,
    n_resamples: int = N_DRAWS,
    seed: int = 0,
    level: float = 0.95,
) -> PairedDifference:
    """Give the mean difference of two scores on the same samples with a seeded percentile bootstrap interval.

    Args:
        first: outcome per sample, for example 1.0 right, 0.0 wrong; None where there is none.
        second: the same for the other judge; the difference is first minus second, so above 0 the first is better.
        clusters: one name per sample; whole clusters are drawn (several samples of one prompt).
        n_resamples: number of resamples.
        seed: seed of the draws.
        level: confidence level.

    Raises:
        ConfigError: if lengths differ.
    """
    if clusters is not None and len(clusters) != len(first):
        raise ConfigError(f"one cluster name per sample is needed, got {len(clusters)} names for {len(first)} samples")
    complete_pairs(first, second)
    names: Sequence[Hashable] = range(len(first)) if clusters is None else clusters
    kept = [
        (a - b, name)
        for a, b, name in zip(first, second, names, strict=True)
        if a is not None and b is not None and not math.isnan(a) and not math.isnan(b)
    ]
    if not kept:
        return PairedDifference(None, None, 0, len(first))
    differences = [difference for difference, _ in kept]
    mean = math.fsum(differences) / len(differences)
    rng = named_generator(seed, "paired difference")
    if clusters is None and len(set(differences)) > 1:
        interval = draws_interval(mean_draws(Counter(differences), rng, n_resamples), level)
    else:
        sums: dict[Hashable, list[float]] = {}
        for difference, name in kept:
            entry = sums.setdefault(name, [0.0, 0.0])
            entry[0] += difference
            entry[1] += 1.0
        draws = cluster_sum_draws(list(sums.values()), rng, n_resamples)
        interval = draws_interval(draws[:, 0] / draws[:, 1], level)
    return PairedDifference(mean, interval, len(kept), len(first) - len(kept))
