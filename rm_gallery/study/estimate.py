"""What the rest of a run will take, from the samples that were probed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rm_gallery.core.model.budget import Usage
from rm_gallery.core.utils.errors import ConfigError


@dataclass(frozen=True)
class PredictionInterval:
    """An expected total and its 95 % prediction interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """What the samples not yet probed will take: calls, tokens, money (None without prices) and
    wall seconds.
    """

    samples: int
    calls: PredictionInterval
    input_tokens: PredictionInterval
    output_tokens: PredictionInterval
    cost: PredictionInterval | None
    seconds: PredictionInterval

    @classmethod
    def from_probe(
        cls,
        usages: Sequence[Usage],
        seconds: Sequence[float],
        n_total: int,
        *,
        concurrency: int = 1,
    ) -> Forecast:
        """Extrapolate from the usage and latency of each probed sample to the other n_total - n of
        them.

        The sum over m further samples has the 95 % interval m * mean ± t(n-1) * s * sqrt(m + m²/n),
        which covers the spread of those samples as well as the probe's own; without bound for a
        single probed sample. Wall time is the summed latency over `concurrency`, but not less than
        one call. Raises ConfigError: an empty probe, or one that does not fit to `seconds` or
        `n_total`.
        """
        n = len(usages)
        if n == 0 or n != len(seconds) or n_total < n or concurrency < 1:
            raise ConfigError(
                f"an estimate needs one usage and one latency per probed sample: got {n} usages, "
                f"{len(seconds)} latencies, {n_total} samples, concurrency {concurrency}"
            )
        rest = n_total - n
        costs = [usage.cost for usage in usages if usage.cost is not None or not usage.empty]
        priced = bool(costs) and None not in costs
        lanes = max(1, min(concurrency, rest))
        calls, read, written, cost = (
            _total([getattr(usage, name) or 0 for usage in usages], rest)
            for name in ("calls", "input_tokens", "output_tokens", "cost")
        )
        taken = _total([value / lanes for value in seconds], rest)
        return cls(rest, calls, read, written, cost if priced else None, taken)


def _total(values: Sequence[float], rest: int) -> PredictionInterval:
    mean = statistics.fmean(values)
    if rest == 0:
        return PredictionInterval(0.0, 0.0, 0.0)
    total = mean * rest
    if len(values) < 2:
        return PredictionInterval(total, 0.0, math.inf)
    from scipy.stats import t  # only here: it takes longer to import than the library

    half = (
        float(t.ppf(0.975, len(values) - 1))
        * statistics.stdev(values)
        * math.sqrt(rest + rest * rest / len(values))
    )
    return PredictionInterval(total, max(0.0, total - half), total + half)
