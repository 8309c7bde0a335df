"""A judge against itself: the other order (position bias), another run, another version (drift).

Ours: no package tests position bias or drift of judges; the tests in them are scipy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

from rm_gallery.core.stats import Floats, Names, Numbers, np
from rm_gallery.core.stats.changes import OldAndNew
from rm_gallery.core.stats.columns import cluster_numbers, names_where, numbers
from rm_gallery.core.stats.corrected import farthest_outside
from rm_gallery.core.stats.denominator import worst_case_bounds
from rm_gallery.core.stats.intervals import Interval, check_level
from rm_gallery.core.stats.significance import holm, sign_test_over
from rm_gallery.core.stats.uncertainty import clustered_mean, strata_shares
from rm_gallery.core.utils.errors import ConfigError


class PositionBias(NamedTuple):
    """Effect of the place of an answer on a judge.

    Attributes:
        advantage: mean win of the answer shown first less that of the same answer shown second,
            -1..1; 0 without bias.
        ci95: its interval; None with pairs of one cluster.
        p_value: exact two-sided sign test of the pairs whose verdict depends on the order; None
            without a pair.
        favoured_first: pairs in which each answer does better when shown first.
        favoured_second: pairs in which each does better when shown second.
        n: pairs judged in both orders.
        n_left_out: pairs with a verdict in one order or none.
    """

    advantage: float | None
    ci95: Interval | None
    p_value: float | None
    favoured_first: int
    favoured_second: int
    n: int
    n_left_out: int


def position_bias(
    shown_first: Numbers,
    shown_second: Numbers,
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> PositionBias:
    """Test whether answer A does better when it is shown first than when it is shown second.

    advantage = mean(win shown first - win shown second). The two orders of a pair are one
    observation: without bias, pairs whose verdict depends on the order favour both places equally.

    Args:
        shown_first: per pair the win of A when shown first: 1, 0, 0.5 for a tie, or anything
            between; None without a verdict.
        shown_second: per pair the win of A when shown second.
        clusters: a name per pair where pairs belong together; for the interval.
        confidence: level of the interval.

    Raises:
        ConfigError: lengths differ or a win lies outside 0..1.
    """
    check_level(confidence)
    first, second = numbers(shown_first, "shown_first"), numbers(shown_second, "shown_second")
    if len(first) != len(second):
        raise ConfigError(
            f"both orders need one entry per pair; found {len(first)} and {len(second)}"
        )
    if clusters is not None and len(clusters) != len(first):
        raise ConfigError(
            f"clusters needs one entry per pair; found {len(clusters)} for {len(first)}"
        )
    pairs = OldAndNew(second, first, clusters)
    gain = (first - second)[pairs.both]
    up, down, left_out = int((gain > 0.0).sum()), int((gain < 0.0).sum()), len(first) - len(gain)
    if not len(gain):
        return PositionBias(None, None, None, 0, 0, 0, left_out)
    wins = np.concatenate([first[pairs.both], second[pairs.both]])
    if farthest_outside(wins, 0.0, 1.0) is not None:
        raise ConfigError("wins lie within 0..1: 1 where A won, 0.5 for a tie, 0 where B won")
    signed = (first != second) & pairs.both
    codes = cluster_numbers(clusters, len(first))
    p_value = sign_test_over(np.sign((first - second)[signed]), codes[signed])
    mean = pairs.difference
    assert mean is not None
    ci95 = mean.interval(confidence)
    return PositionBias(mean.estimate, ci95, p_value, up, down, len(gain), left_out)


@dataclass(frozen=True)
class Repeats:
    """A score over several runs on the same samples.

    Attributes:
        score: mean over samples of their mean over runs.
        ci95: its interval, for other prompts *and* other runs of the judge; None with samples of
            one cluster.
        ci95_same_prompts: for other runs on the same prompts; None where no sample was judged
            twice.
        scores: the score of each run, over the samples it scored.
        judge_variance: mean variance of a sample's credit between runs; None where no sample was
            judged twice.
        prompt_variance: variance of samples' true credits, without the judge's part; at least 0.
        run_sd: standard deviation of one run's score over runs on the same prompts.
        unstable: share of the samples judged twice or more whose credit differs between runs.
        n: samples scored in at least one run.
        n_runs: runs.
    """

    score: float
    ci95: Interval | None
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
        """Judge's share of the variance of one judgement, 0..1; None where nothing varies."""
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
    """Variance components of repeated runs: judge (within samples) and prompts (between).

    Args:
        runs: credits, 0..1, shape (n_runs, n_samples), samples in the same order in every run; None
            or NaN for none.
        clusters: one name per sample (the prompt).
        strata: one name per sample where the score is a mean of parts; `weights` as in
            `clustered_mean`.
        weights: weight per stratum.

    Returns:
        The parts; None where nothing was scored.

    Raises:
        ConfigError: without runs, or where one has another number of samples.

    Source: one-way random effects, S. Searle, G. Casella and C. McCulloch, "Variance Components",
    1992; for evaluations,
        E. Miller, "Adding error bars to evals", arXiv 2411.00640.
    """
    if not runs or len({len(run) for run in runs}) > 1:
        raise ConfigError(
            "variance_parts needs runs over the same samples, one credit or None for each"
        )
    table = np.array(runs, dtype=np.float64)  # None becomes NaN
    known = ~np.isnan(table)
    times = known.sum(axis=0)
    if not times.any():
        return None
    kept = times > 0
    parts = [names_where(names, kept) for names in (clusters, strata)]
    table, known, times = table[:, kept], known[:, kept], times[kept].astype(np.float64)
    means = np.where(known, table, 0.0).sum(axis=0) / times
    whole = clustered_mean(means, parts[0], strata=parts[1], weights=weights)
    if whole is None:
        return None
    off = np.where(known, table - means, 0.0)
    again = times > 1
    run_means = [
        clustered_mean(run[ok], strata=names_where(parts[1], ok), weights=weights)
        for run, ok in zip(table, known, strict=True)
    ]
    scores = tuple(None if mean is None else mean.estimate for mean in run_means)
    once = Repeats(
        whole.estimate,
        whole.interval(),
        None,
        scores,
        None,
        None,
        None,
        None,
        len(means),
        len(runs),
    )
    if not again.any():
        return once
    within = float(np.sum(off[:, again] ** 2) / np.sum(times[again] - 1.0))
    between = float(np.var(means, ddof=1)) if len(means) > 1 else 0.0
    prompt = max(0.0, between - within * float(np.mean(1.0 / times)))
    places, shares = strata_shares(parts[1], weights, len(means))
    share = (shares / np.bincount(places))[places]
    # a mean of n samples, each with its own part of the judge's variance
    of_one_run, of_all = (math.sqrt(within * float(np.sum(share**2 / n))) for n in (1.0, times))
    half = NormalDist().inv_cdf(0.975) * of_all
    return replace(
        once,
        ci95_same_prompts=Interval(
            max(0.0, whole.estimate - half), min(1.0, whole.estimate + half)
        ),
        judge_variance=within,
        prompt_variance=prompt,
        run_sd=of_one_run,
        unstable=float(np.mean(np.ptp(np.where(known, table, means), axis=0)[again] > 1e-12)),
    )


_CELLS_AT_ONCE = 2_000_000
_MOST_ASSIGNMENTS = 500


class Change(NamedTuple):
    """A mean of both versions, its change with interval, and the p-value of "no change"; both None
    where nothing is known, as with anchors of one cluster. `bounds` are the change with every missing
    anchor at its worst and at its best; None on a scale without ends.
    """

    old: float
    new: float
    change: float
    ci95: Interval | None
    p_value: float | None
    n: int
    bounds: Interval | None


@dataclass(frozen=True)
class Drift:
    """Differences between two versions of a judge.

    Attributes:
        n: anchors that both versions scored.
        n_missing: anchors that one version or both did not score.
        missing: how many of them the `old` version did not score, and how many the `new`.
        flip_rate: share of anchors on which the two versions differ by more than the tolerance.
        flip_ci95: its interval; None with anchors of one cluster.
        flip_bounds: the share if no missing anchor differed, and if every one did.
        noise: the same share between repeats of one version; None without repeats.
        excess: mean distance between versions minus that between repeats of one, in the unit of the
            scores; 0 without drift.
        excess_p: one-sided permutation p-value of "both versions score alike"; None without
            repeats.
        shift: change of the mean score.
        agreement: change of the agreement with the labels, 1 - distance / width of the scale; None
            without labels.
        findings: significant changes with their p-values, after Holm's correction.
        notes: warnings for the reader.
    """

    n: int
    n_missing: int
    missing: dict[str, int]
    flip_rate: float
    flip_ci95: Interval | None
    flip_bounds: Interval | None
    noise: float | None
    excess: float | None
    excess_p: float | None
    shift: Change
    agreement: Change | None
    findings: tuple[str, ...]
    notes: tuple[str, ...]


def drift(
    old: Numbers,
    new: Numbers,
    *,
    labels: Numbers | None = None,
    credits: tuple[Numbers, Numbers] | None = None,
    old_again: Sequence[Numbers] = (),
    new_again: Sequence[Numbers] = (),
    clusters: Sequence[Hashable] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    tolerance: float = 0.0,
    confidence: float = 0.95,
    n_draws: int = 4000,
    seed: int = 0,
) -> Drift:
    """Compare two versions of a judge on the same anchors.

    Args:
        old: score or verdict (as a number) per anchor of the old version; None or NaN where it gave
            none.
        new: the same of the new version.
        labels: what people say, on the same scale; None where they said nothing.
        credits: instead of labels, what the old and the new version earned on each anchor under
            some rule, 0..1.
        old_again: further runs of the old version on the same anchors.
        new_again: further runs of the new version.
        clusters: a name per anchor where anchors belong together.
        bounds: lowest and highest possible score; infinite where there is none.
        tolerance: two scores this near count as equal in the flip rate.
        confidence: level of the intervals; findings are made at 1 - confidence over all questions.
        n_draws: draws of the permutation test.
        seed: seed of the draws.

    Raises:
        ConfigError: lengths differ, scores lie outside the bounds, or fewer than two anchors were
            scored by both.
    """
    check_level(confidence)
    if tolerance < 0.0 or n_draws < 100:
        raise ConfigError(
            f"tolerance is at least 0 and n_draws at least 100; found {tolerance!r} and {n_draws!r}"
        )
    olds = [numbers(values, "old") for values in (old, *old_again)]
    news = [numbers(values, "new") for values in (new, *new_again)]
    lengths = [len(values) for values in (*olds, *news, labels, clusters) if values is not None]
    if len(set(lengths)) > 1:
        raise ConfigError(
            f"every run, the labels and the clusters need one entry per anchor; found {lengths} "
            f"entries"
        )
    low, high = bounds
    worst = farthest_outside(np.concatenate([*olds, *news]), low, high)
    if worst is not None:
        raise ConfigError(
            f"a score is {worst:.15g}, outside the bounds {low:g}..{high:g}; name the scale in "
            f"bounds"
        )
    both = ~np.isnan(olds[0] + news[0])
    n, missing = int(both.sum()), int((~both).sum())
    if n < 2:
        raise ConfigError(
            f"old and new have {n} anchors in common that both scored; at least 2 are needed"
        )
    notes: list[str] = []
    lacking = {name: int(np.isnan(runs[0]).sum()) for name, runs in (("old", olds), ("new", news))}
    if missing:
        notes.append(
            f"{missing} of {len(both)} anchors were not scored by both versions ({lacking['old']} not by "
            f"the old one, {lacking['new']} not by the new one); what is said of drift is of the others"
        )
    single = OldAndNew(olds[0], news[0], clusters, bounds)
    scores = replace(single, old=_mean_of_runs(olds), new=_mean_of_runs(news))
    shift, flips = _change(scores, confidence), single.changed(tolerance)
    assert flips is not None
    if flips.n_clusters == 1:
        notes.append(
            "all anchors lie in one cluster, so nothing is known about how clusters differ: there is "
            "neither an interval nor a p-value of the means"
        )
    noise = excess = excess_p = agreement = None
    if len(olds) + len(news) > 2:
        noise = _self_difference(olds, news, tolerance)
        excess, excess_p = _beyond_noise(
            np.stack(olds, axis=1), np.stack(news, axis=1), n_draws, seed
        )
    else:
        notes.append(
            "how often the judge differs from itself is unknown: changed verdicts may be chance. "
            "Run one version twice"
        )
    earned = None
    if credits is not None:
        first, second = (numbers(side, "credits") for side in credits)
        known = ~(np.isnan(first) & np.isnan(second))
        earned = OldAndNew(first, second, clusters).only(known)
    elif labels is not None:
        people = numbers(labels, "labels")
        earned = scores.nearness(people).only(~np.isnan(people))
    if earned is not None and earned.both.sum() >= 2:
        agreement = _change(earned, confidence)
    elif earned is not None:
        notes.append("fewer than 2 anchors have a label, so agreement with people is not compared")
    return Drift(
        n,
        missing,
        lacking,
        flips.estimate,
        flips.interval(confidence),
        worst_case_bounds(len(both), n, flips.estimate * n, {}).bounds,
        noise,
        excess,
        excess_p,
        shift,
        agreement,
        _findings(shift, excess, excess_p, agreement, 1.0 - confidence),
        tuple(notes),
    )


def _change(pairs: OldAndNew, confidence: float) -> Change:
    gap, (old, new) = pairs.difference, pairs.means
    assert gap is not None and old is not None and new is not None
    ci95, p_value = gap.interval(confidence), gap.p_value(0.0)
    return Change(old, new, gap.estimate, ci95, p_value, gap.n, pairs.change_bounds)


def _mean_of_runs(runs: Sequence[Floats]) -> Floats:
    """Each anchor's mean over the runs of a version; NaN where its first run has no score."""
    missing = np.isnan(runs)
    counts = np.sum(~missing, axis=0)
    sums = np.sum(np.where(missing, 0.0, runs), axis=0)
    return np.where(missing[0], np.nan, sums / np.maximum(counts, 1))


def _self_difference(
    olds: Sequence[Floats], news: Sequence[Floats], tolerance: float
) -> float | None:
    """Share of anchors on which two runs of one version differ, over all pairs of runs."""
    differing = [
        np.abs(a - b)[~np.isnan(a - b)] > tolerance
        for runs in (olds, news)
        for a, b in itertools.combinations(runs, 2)
    ]
    over_all_pairs = np.concatenate(differing)
    return float(over_all_pairs.mean()) if len(over_all_pairs) else None


def _beyond_noise(
    olds: Floats, news: Floats, n_draws: int, seed: int
) -> tuple[float | None, float | None]:
    """Energy distance per anchor between versions, and its permutation p-value.

    If both versions score alike, the runs of an anchor are exchangeable. Source: G. Székely and M.
    Rizzo, "Energy statistics", 2013. Ours: `scipy.stats.permutation_test` permutes all rows alike,
    not within each anchor.
    """
    runs = np.concatenate([olds, news], axis=1)
    runs = runs[~np.isnan(runs).any(axis=1)]
    if len(runs) < 2:
        return None, None
    k, b = runs.shape[1], news.shape[1]
    distance = np.abs(runs[:, :, None] - runs[:, None, :])
    actual = tuple(range(k - b, k))
    ways = list(itertools.islice(itertools.combinations(range(k), b), _MOST_ASSIGNMENTS))
    table = np.stack([_energy(distance, way) for way in (actual, *ways)], axis=1)
    observed = float(table[:, 0].mean())
    varies = (table[:, 1:] != table[:, 1:2]).any(axis=1)
    moving, rest = table[varies, 1:], float(table[:, 0].sum() - table[varies, 0].sum())
    rng = np.random.default_rng(seed)
    at_least, done = 0, 0
    rows = np.arange(len(moving))
    while done < n_draws:
        size = min(n_draws - done, max(1, _CELLS_AT_ONCE // max(1, len(moving))))
        drawn = moving[rows, rng.integers(0, table.shape[1] - 1, size=(size, len(moving)))].sum(
            axis=1
        )
        at_least += int((drawn + rest >= observed * len(runs) - 1e-9).sum())
        done += size
    return observed, (1 + at_least) / (1 + n_draws)


def _energy(distance: Floats, new: Sequence[int]) -> Floats:
    old = [i for i in range(distance.shape[1]) if i not in new]
    within = [
        distance[:, side][:, :, side].sum(axis=(1, 2)) / (len(side) * (len(side) - 1))
        for side in (old, list(new))
        if len(side) > 1
    ]
    return np.asarray(
        distance[:, old][:, :, list(new)].mean(axis=(1, 2)) - sum(within) / len(within)
    )


def _findings(
    shift: Change,
    excess: float | None,
    excess_p: float | None,
    agreement: Change | None,
    level: float,
) -> tuple[str, ...]:
    asked = [
        (change.p_value, f"{what} went from {change.old:.4g} to {change.new:.4g}")
        for what, change in (("the mean score", shift), ("agreement with the labels", agreement))
        if change is not None and change.p_value is not None
    ]
    if excess is not None and excess_p is not None:
        asked.append(
            (excess_p, f"the versions differ more than repeats of one do, by {excess:.3g}")
        )
    asked.sort()
    of_all = f" counting all {len(asked)} questions" if len(asked) > 1 else ""
    adjusted = holm([p for p, _ in asked])
    return tuple(
        f"{text} (p = {p:.3g}{of_all})"
        for p, (_, text) in zip(adjusted, asked, strict=True)
        if p <= level
    )
