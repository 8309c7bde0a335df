"""The same samples judged several times: how much of a score's uncertainty is the judge's, and how much the prompts'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from rm_gallery.core.stats.clustered import cluster_numbers, clustered_mean
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError

if TYPE_CHECKING:
    from rm_gallery.core.stats.clustered import Names


@dataclass(frozen=True)
class Repeats:
    """A score over several runs on the same samples.

    Attributes:
        score: mean over samples of their mean over runs.
        ci95: its interval, for other prompts *and* another asking of the judge.
        ci95_same_prompts: for asking the judge again about the same prompts, as often; None where no sample was judged twice.
        scores: the score of each run, over the samples it scored.
        judge_variance: of a sample's credit from run to run, on average over samples; None where no sample was judged twice.
        prompt_variance: of samples' true credits, what is left when the judge's part is taken off; at least 0.
        run_sd: by how much the score of a single run scatters when only the judge is asked again.
        unstable: share of samples, of those judged twice or more, whose credit was not the same in all runs.
        n: samples scored in at least one run.
        n_runs: runs.
    """

    score: float
    ci95: Interval
    ci95_same_prompts: Interval | None
    scores: tuple[float | None, ...]
    judge_variance: float | None
    prompt_variance: float | None
    run_sd: float | None
    unstable: float | None
    n: int
    n_runs: int

    @property
    def judge_share(self) -> float | None:
        """Part of the variance of one judgement that is the judge's, 0..1; None where nothing varies or is known."""
        if self.judge_variance is None or self.prompt_variance is None:
            return None
        whole = self.judge_variance + self.prompt_variance
        return self.judge_variance / whole if whole > 0.0 else None


def variance_parts(
    runs: Sequence[Sequence[float | None]],
    *,
    clusters: Names | None = None,
    strata: Names | None = None,
    weights: Mapping[Any, float] | None = None,
) -> Repeats | None:
    """Take the uncertainty of repeated runs apart.

    Args:
        runs: credits, 0..1, shape (n_runs, n_samples), samples in the same order in every run; None or NaN for none.
        clusters: one name per sample (the prompt).
        strata: one name per sample where the score is a mean of parts; `weights` as in `clustered_mean`.
        weights: weight per stratum.

    Returns:
        The parts; None where nothing was scored.

    Raises:
        ConfigError: without runs, or where one has another number of samples.

    Source: one-way random effects, S. Searle, G. Casella and C. McCulloch, "Variance Components", 1992; for evaluations,
        E. Miller, "Adding error bars to evals", arXiv 2411.00640.
    """
    import numpy as np

    if not runs or len({len(run) for run in runs}) > 1:
        raise ConfigError("variance_parts needs runs over the same samples, one credit or None for each")
    table = np.array([[math.nan if x is None else float(x) for x in run] for run in runs], dtype=np.float64)
    known = ~np.isnan(table)
    times = known.sum(axis=0)
    kept = np.flatnonzero(times)
    if not len(kept):
        return None
    table, known, times = table[:, kept], known[:, kept], times[kept].astype(np.float64)
    parts = [None if names is None else [names[int(place)] for place in kept] for names in (clusters, strata)]
    means = np.where(known, table, 0.0).sum(axis=0) / times
    whole = clustered_mean(means, parts[0], strata=parts[1], weights=weights)
    if whole is None:
        return None
    off = np.where(known, table - means, 0.0)
    again = times > 1
    within = float(np.sum(off[:, again] ** 2) / np.sum(times[again] - 1.0)) if again.any() else None
    scores = tuple(_score(run, ok, parts, weights) for run, ok in zip(table, known, strict=True))
    if within is None:
        return Repeats(whole.estimate, whole.interval(), None, scores, None, None, None, None, len(kept), len(runs))
    between = float(np.var(means, ddof=1)) if len(means) > 1 else 0.0
    prompt = max(0.0, between - within * float(np.mean(1.0 / times)))
    share = _shares(parts[1], weights, len(kept))
    # a mean of n samples, each with its own part of the judge's variance
    of_one_run = math.sqrt(within * float(np.sum(share**2)))
    of_all = math.sqrt(within * float(np.sum(share**2 / times)))
    half = NormalDist().inv_cdf(0.975) * of_all
    same = Interval(max(0.0, whole.estimate - half), min(1.0, whole.estimate + half))
    unstable = float(np.mean(np.ptp(np.where(known, table, means), axis=0)[again] > 1e-12))
    return Repeats(whole.estimate, whole.interval(), same, scores, within, prompt, of_one_run, unstable, len(kept), len(runs))


def _score(run: Any, known: Any, parts: Sequence[Sequence[Any] | None], weights: Mapping[Any, float] | None) -> float | None:
    import numpy as np

    places = np.flatnonzero(known)
    strata = None if parts[1] is None else [parts[1][int(place)] for place in places]
    found = clustered_mean(run[places], strata=strata, weights=weights)
    return None if found is None else found.estimate


def _shares(strata: Sequence[Any] | None, weights: Mapping[Any, float] | None, n: int) -> Any:
    """How much of the score each sample is."""
    import numpy as np

    if strata is None:
        return np.full(n, 1.0 / n)
    numbers = cluster_numbers(strata, n)
    names = dict.fromkeys(strata)
    given = np.array([1.0 if weights is None else float(weights.get(name, 0.0)) for name in names])
    return (given / given.sum())[numbers] / np.bincount(numbers)[numbers]
