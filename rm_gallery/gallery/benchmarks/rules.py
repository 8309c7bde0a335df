"""Official scoring rules: what one judged sample earns, and how samples add up to a figure."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, wraps
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.denominator import Bounded, added, mean_bounds, worst_case_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import Cause
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.figures import (
    COUNTS,
    UNNAMED,
    Extra,
    Figure,
    Report,
    plain,
    uncertainty_of,
    with_extra,
)
from rm_gallery.gallery.benchmarks.judgements import (
    Judged,
    Status,
    Verdict,
    has_preference,
    is_pair,
    sign,
    turned,
    worst_part,
)

if TYPE_CHECKING:
    from rm_gallery.core.stats.uncertainty import Estimate

Credit = Callable[[Judged], "float | None"]
"""What a scored sample earns, 0..1; None when a judgement it needs is missing."""


class RuleScorer(Protocol):
    """Counts judged samples one at a time and reports at the end; keeps only what its rule needs."""

    def add(self, judged: Judged) -> float | None:
        """Count one sample; gives its credit, 0..1: what it earned under the rule, None where it
        earned nothing countable.

        A sample that was judged part by part earns its credit with the part that comes last.
        """

    def report(self) -> Report:
        """Report what was counted so far."""
        ...


# -- what one sample earns -------------------------------------------------------------------------


def pair_credit(judged: Judged) -> float | None:
    """1.0 if the chosen output scores strictly higher than the other, else 0.0; equal scores are
    wrong.

    Source: RewardBench 1 classifiers, the cells of RM-Bench, RMB pairwise.
    """
    values = judged.complete()
    if values is None:
        return None
    winner, loser = values if judged.chosen[0] else reversed(values)
    return float(winner > loser)


def best_of_n_credit(judged: Judged) -> float | None:
    """Share of the top-scoring outputs that are chosen: with one chosen output 1/k when it is among
    the k at the top.

    A judge that answers with one winner earns 1 or 0, and a constant score what guessing does.
    RewardBench 2 itself credits 0.25 to a ranking it cannot parse; here such a sample is unscored
    and counted.

    Source: RewardBench 2 (arXiv 2506.01937), all subsets but Ties.
    """
    values = judged.complete()
    return None if values is None else share_of_top(values, judged.chosen)


def share_of_top(scores: Sequence[float], chosen: Sequence[bool]) -> float:
    """Share of the answers with the highest score that are chosen."""
    top = max(scores)
    winners = [label for score, label in zip(scores, chosen, strict=True) if score == top]
    return sum(winners) / len(winners)


def all_losers_credit(judged: Judged) -> float | None:
    """1.0 if every chosen output scores strictly higher than every rejected one, else 0.0.

    Source: RMB (arXiv 2410.09893), Best-of-N set.
    """
    values = judged.complete()
    if values is None:
        return None
    right, wrong = by_label(values, judged.chosen)
    return float(min(right) > max(wrong))


def by_label(scores: Sequence[float], chosen: Sequence[bool]) -> tuple[list[float], list[float]]:
    """The scores of the chosen answers, and those of the others."""
    labelled = list(zip(scores, chosen, strict=True))
    return [v for v, label in labelled if label], [v for v, label in labelled if not label]


def games(judged: Judged) -> tuple[Verdict, Verdict, int]:
    """The verdicts on a pair as the data have it and swapped, both naming the first output, and the
    label (1, -1, 0).

    Scores without an order are one and the same verdict in both games.
    """
    first, second = judged.chosen
    return judged.verdict(0, 1), turned(judged.verdict(1, 0)), int(first) - int(second)


def of_both_orders(earned: Callable[[int, int, int], float]) -> Credit:
    """What the verdicts of both orders, naming the first output, earn by the label; None where one
    of them is missing.
    """

    @wraps(earned)
    def credit(judged: Judged) -> float | None:
        first, second, label = games(judged)
        return None if first is None or second is None else earned(first, second, label)

    return credit


@of_both_orders
def two_game_credit(first: int, second: int, label: int) -> float:
    """1.0 if the two verdicts favour the right answer on balance: right + right or right + tie. Else 0.0.

    Source: JudgeBench (arXiv 2410.12784). There a missing verdict counts as a tie; here the pair is
    unscored.
    """
    return float((first + second) * label > 0)


@of_both_orders
def both_orders_credit(first: int, second: int, label: int) -> float:
    """1.0 if the verdict is right in both orders (a tie where the label is one), else 0.0.

    Source: Auto-J (arXiv 2310.05470), agreement; LLMBar's "correct in both".
    """
    return float(first == second == label)


@of_both_orders
def consistency_credit(first: int, second: int, label: int) -> float:
    """1.0 if both orders give the same verdict, right or not. Source: Auto-J, consistency."""
    return float(first == second)


def single_game_credit(judged: Judged) -> float | None:
    """1.0 if the verdict of the one order played is right; equal scores count as a win of the
    second answer.

    Source: JudgeBench, `--single_game`, and its reading of two equal scores.
    """
    values, verdict = judged.complete(), played_verdict(judged)
    if judged.played_orders == 0:
        verdict = None if values is None else sign(*values) or -1
    return None if verdict is None else float(verdict == games(judged)[2])


def played_verdict(judged: Judged) -> Verdict:
    """The verdict of the one order played, naming the first output."""
    first, second, _ = games(judged)
    return second if first is None else first


def mean_as_published(judged: Judged) -> float:
    """As `mean_of_orders_credit`, where a missing verdict is wrong in its order."""
    return _mean_of_orders(*games(judged))


def _mean_of_orders(first: Verdict, second: Verdict, label: int) -> float:
    return math.fsum(0.5 if said == 0 else float(said == label) for said in (first, second)) / 2.0


@of_both_orders
def mean_of_orders_credit(first: int, second: int, label: int) -> float:
    """Accuracy in either order, averaged; a tie earns half in its order.

    Source: LLMBar (arXiv 2310.07641), the accuracy of its tables.
    """
    return _mean_of_orders(first, second, label)


# -- how samples add up ----------------------------------------------------------------------------


class Tally:
    """Credits of samples with their clusters, and counts of samples without one; sixteen bytes a
    sample.
    """

    def __init__(self) -> None:
        self.credits = array("d")
        self.clusters = array("Q")
        self.chances = array("d")
        """What guessing earns on each sample of which that is known."""
        self.lost: Counter[Status] = Counter()
        self.missing: Counter[str] = Counter()

    def add(
        self,
        credit: float | None,
        status: Status = "scored",
        cluster: str | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Count one sample; a scored sample whose credit is None counts as unscored, one without a
        cluster is its own.

        `cause` says who caused that there is no credit; without one the sample is outside the
        rule's denominator.
        """
        if status == "scored" and credit is not None:
            self.credits.append(credit)
            self.clusters.append(next(_own) if cluster is None else _cluster_number(cluster))
        else:
            self.lost["unscored" if status == "scored" else status] += 1
            if cause is not None:
                self.missing[cause] += 1

    def count(self, judged: Judged, credit: float | None) -> float | None:
        """Count a judged sample with what it earned; where a scored one earns nothing, the data
        caused it.
        """
        self.add(credit, judged.status, judged.cluster, judged.cause_or("data"))
        return credit

    def merge(self, other: Tally) -> None:
        """Add another tally's samples to this one."""
        self.credits.extend(other.credits)
        self.clusters.extend(other.clusters)
        self.chances.extend(other.chances)
        self.lost.update(other.lost)
        self.missing.update(other.missing)

    @property
    def n_scored(self) -> int:
        """Samples with a credit."""
        return len(self.credits)

    @property
    def mean(self) -> float | None:
        """Mean credit of the scored samples; None without any."""
        return math.fsum(self.credits) / len(self.credits) if self.credits else None

    def counts(self) -> Extra:
        """The counts as a `Figure` names them."""
        n_scored, lost = len(self.credits), self.lost
        return {
            "n": n_scored + lost.total(),
            "n_scored": n_scored,
            "n_unscored": lost["unscored"],
            "n_failed": lost["failed"],
            "n_stopped": lost["stopped"],
            "missing": self.with_missing().missing,
        }

    def with_missing(self) -> Bounded:
        """The credits with what is missing of them: between all wrong and all right."""
        n_scored = len(self.credits)
        n = n_scored + self.missing.total()
        return worst_case_bounds(n, n_scored, math.fsum(self.credits), self.missing)

    @property
    def bounds(self) -> Interval | None:
        """The mean credit if all that is missing were wrong, and if it were right; None without a
        sample.
        """
        return self.with_missing().bounds

    def interval(self) -> Interval | None:
        """The 95 % interval of the mean credit over clusters; None without a scored sample, and
        where no clusters are kept.
        """
        return interval_of_mean({"": self})

    def figure(self, rule: str, extra: Extra | None = None) -> Figure:
        """The mean credit with its interval."""
        return Figure(
            rule=rule,
            score=self.mean,
            **uncertainty_of(mean_over_clusters({"": self})),
            extra=extra or {},
            bounds=self.bounds,
            **self.counts(),
        )


_own = count()


@lru_cache(maxsize=4096)
def _cluster_number(cluster: str) -> int:
    """64 bits that stand for a cluster's name, the same in every process."""
    return int.from_bytes(
        hashlib.blake2b(cluster.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def mean_over_clusters(
    tallies: Mapping[str, Tally], weights: Mapping[str, float] | None = None
) -> Estimate | None:
    """The mean of the tallies' means, each weighing the same or as `weights` say, with what its
    uncertainty rests on.

    Tallies without a credit leave the mean; a cluster with samples in several tallies is one
    witness. None without credits.
    """
    import numpy as np

    from rm_gallery.core.stats.uncertainty import clustered_mean

    # without clusters only scores are kept
    scored = {name: tallies[name] for name in sorted(tallies) if tallies[name].clusters}
    if not scored:
        return None
    values = np.concatenate([np.asarray(tally.credits) for tally in scored.values()])
    clusters = np.concatenate([np.asarray(tally.clusters) for tally in scored.values()])
    # the same digits in whatever order samples came
    if len(scored) == 1 and weights is None:  # most figures: no stratum to number per sample
        order, strata = np.lexsort((values, clusters)), None
    else:
        strata = np.repeat(np.arange(len(scored)), [len(each.credits) for each in scored.values()])
        order = np.lexsort((values, clusters, strata))
        strata = strata[order]
    values, clusters = values[order], clusters[order]
    del order
    shares = (
        None if weights is None else {place: weights[name] for place, name in enumerate(scored)}
    )
    bounds = min(0.0, float(values.min())), max(1.0, float(values.max()))
    return clustered_mean(values, clusters, strata=strata, weights=shares, bounds=bounds)


def interval_of_mean(
    tallies: Mapping[str, Tally], weights: Mapping[str, float] | None = None
) -> Interval | None:
    """The 95 % interval of `mean_over_clusters`; None without credits."""
    mean = mean_over_clusters(tallies, weights)
    return None if mean is None else mean.interval()


def merged(tallies: Iterable[Tally]) -> Tally:
    """All samples of several tallies."""
    everything = Tally()
    for counts in tallies:
        everything.merge(counts)
    return everything


class CountingUnreadable:
    """Counts recorded pairs under a rule and, beside it, those of which a text could not be read."""

    def __init__(self, counting: RuleScorer) -> None:
        self._counting = counting
        self._unreadable = 0

    def add(self, judged: Judged) -> float | None:
        """Count one sample."""
        self._unreadable += bool(judged.metadata.get("unreadable"))
        return self._counting.add(judged)

    def report(self) -> Report:
        """Report what was counted so far, with `extra["n_unreadable"]`."""
        return with_extra(self._counting.report(), {"n_unreadable": self._unreadable})


def reliability(report: Report) -> Extra:
    """How far to trust the figure of recorded pairs: its rule, its interval, and what was unread."""
    return {
        "rule": report.rule,
        "ci95": plain(report.ci95),
        "n_unreadable": report.extra.get("n_unreadable", 0),
    }


# -- what guessing earns on one sample; None for a sample that does not count -----------------------


def chosen_share(judged: Judged) -> float | None:
    """What guessing earns where one answer has to come out on top: the share of chosen ones; None
    where none is preferred.
    """
    chosen = judged.chosen
    return sum(chosen) / len(chosen) if has_preference(chosen) else None


def strict_share(judged: Judged) -> float | None:
    """As `chosen_share`; nothing where a pair's two orders contradict each other, as they do for
    every second coin.
    """
    if judged.played_orders == 2 and judged.status == "scored" and is_pair(judged.chosen):
        return 0.5 if _balance(judged) else 0.0
    return chosen_share(judged)


def all_losers_share(judged: Judged) -> float | None:
    """What guessing earns where every chosen answer has to beat every other: one way out of all to
    choose as many.
    """
    chosen = judged.chosen
    return 1.0 / math.comb(len(chosen), sum(chosen)) if has_preference(chosen) else None


def two_game_share(judged: Judged) -> float | None:
    """What guessing earns in two games: a half where the verdicts favour one side, nothing where
    they contradict each other.

    Coins in both orders earn a quarter, and a judge that prefers a place nothing.
    """
    if judged.status != "scored" or not is_pair(judged.chosen) or None in games(judged)[:2]:
        return None
    return 0.5 if _balance(judged) else 0.0


def single_game_share(judged: Judged) -> float | None:
    """What guessing earns in one game: a half; of two equal scores, which count for the second
    answer, what they earn.
    """
    if not is_pair(judged.chosen):
        return None
    values = judged.complete()
    tied = judged.played_orders == 0 and values is not None and sign(*values) == 0
    return single_game_credit(judged) if tied else 0.5


def _balance(judged: Judged) -> int:
    """How far the verdicts of both orders favour the first output, -2..2."""
    first, second, _ = games(judged)
    return (first or 0) + (second or 0)


class SubsetTallies:
    """Credits of samples by subset under one rule.

    A scored sample whose labels do not fit the rule counts as unscored, and in `n_unfit`.

    Args:
        rule: its name.
        credit: what a scored sample earns.
        fits: whether the rule compares answers with these labels.
        chance: what guessing earns on a sample; None where nobody knows.
        level: what it earns on samples, out of `chance` of each; the mean, unless it goes with what
            this scorer says.
    """

    def __init__(
        self,
        rule: str,
        credit: Credit,
        fits: Callable[[Sequence[bool]], bool],
        chance: Credit | None = None,
        level: Callable[[Sequence[float]], float | None] | None = None,
    ) -> None:
        self.rule = rule
        self.by_subset: defaultdict[str, Tally] = defaultdict(Tally)
        self.n_unfit = 0
        self.only_scores = False
        """Whether neither clusters nor chance are kept, so that figures have a score alone."""
        self._credit = credit
        self._fits = fits
        self._chance, self._level = chance, level or mean_of

    def add(self, judged: Judged) -> float | None:
        """Count one sample under its subset; gives what it earned."""
        credit = None
        if judged.status == "scored":
            if self._fits(judged.chosen):
                credit = self._credit(judged)
            else:
                self.n_unfit += 1
        name = judged.subset
        if self.only_scores and credit is not None:
            self.by_subset[name].credits.append(credit)
            return credit
        if self._chance is not None and (share := self._chance(judged)) is not None:
            self.by_subset[name].chances.append(share)
        cause = self.cause(judged) if credit is None else None
        self.by_subset[name].add(credit, judged.status, judged.cluster, cause)
        return credit

    def cause(self, judged: Judged) -> Cause | None:
        """Who caused it where a sample earns nothing: a scored one lacks a verdict, or its labels
        do not fit the rule.
        """
        return judged.cause_or("judge" if self._fits(judged.chosen) else "data")

    def figures(self) -> dict[str, Figure]:
        """The figure of each subset."""
        return {name: self._figure(tally, {}) for name, tally in self.by_subset.items()}

    def pooled(self) -> Figure:
        """The figure of all subsets together."""
        extra = {"n_unfit_labels": self.n_unfit} if self.n_unfit else {}
        tallies = list(self.by_subset.values())
        return self._figure(tallies[0] if len(tallies) == 1 else merged(tallies), extra)

    def _figure(self, tally: Tally, extra: Extra) -> Figure:
        return replace(tally.figure(self.rule, extra), chance=self._level(tally.chances))


def strict_pairs() -> SubsetTallies:
    """Start counting under the strict pair rule."""
    return SubsetTallies("pair_strict", pair_credit, is_pair, strict_share)


def tie_credit() -> SubsetTallies:
    """Start counting under best-of-N with tie credit."""
    return SubsetTallies("best_of_n_tie_credit", best_of_n_credit, has_preference, chosen_share)


def beaten_losers() -> SubsetTallies:
    """Start counting under the all-losers-beaten rule."""
    return SubsetTallies("all_losers_beaten", all_losers_credit, has_preference, all_losers_share)


class SideBySide:
    """Several rules over the same pairs: one of them leads, and the scores of others stand beside
    it, of the whole and of each subset.

    Which one leads goes with how often pairs were shown; once is once for all.

    Args:
        rules: the counts to fill, by name.
        leads: by the number of times a pair was shown (0 where answers were scored, 1 or 2), the
            rule that leads and those beside it.
        once: whether all pairs count as shown once.
    """

    undecided = True
    """Whether the rule goes with the samples that come, so that nobody knows it before."""

    def __init__(
        self,
        rules: Mapping[str, SubsetTallies],
        leads: Sequence[tuple[str, Sequence[str]]],
        once: bool = False,
    ) -> None:
        self._rules, self._leads = rules, leads
        self.shown = {1} if once else set[int]()

    @property
    def times(self) -> int:
        """How often pairs were shown."""
        return 1 if 1 in self.shown else max(self.shown, default=2)

    def add(self, judged: Judged) -> float | None:
        """Count one pair; gives what it earned under the rule that leads."""
        earned = {name: tallies.add(judged) for name, tallies in self._rules.items()}
        if judged.status == "scored" or judged.played_orders == 1:
            self.shown.add(min(judged.played_orders, 2))
        return earned[self._leads[self.times][0]]

    def report(self, *, gaps: bool = True) -> Report:
        """The figure of the rule that leads with the scores of others in `extra`; with `gaps` also
        of those without a score.
        """

        def scores(figures: Mapping[str, Figure]) -> Extra:
            return {n: each.score for n, each in figures.items() if gaps or each.score is not None}

        lead, beside = self._leads[self.times]
        others = {name: self._rules[name] for name in beside}
        parts = {name: tallies.figures() for name, tallies in others.items()}
        by_subset = {
            subset: with_extra(part, scores({name: parts[name][subset] for name in others}))
            for subset, part in self._rules[lead].figures().items()
        }
        pooled = scores({name: tallies.pooled() for name, tallies in others.items()})
        return headline(with_extra(self._rules[lead].pooled(), pooled), by_subset)


class Orders:
    """What a judge that saw pairs in both orders did with them: the figures that position decides."""

    CREDITS: Mapping[str, Credit] = {
        "mean_of_orders": mean_of_orders_credit,
        "both_orders": both_orders_credit,
        "consistency": consistency_credit,
        "two_game_sign": two_game_credit,
    }

    def __init__(self) -> None:
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.ties = 0

    def add(self, judged: Judged) -> None:
        """Count one sample, if it is a labelled pair that was shown in both orders."""
        if judged.status != "scored" or judged.played_orders < 2 or not is_pair(judged.chosen):
            return
        for name, credit in self.CREDITS.items():
            self._tallies[name].add(credit(judged), cluster=judged.cluster)
        self.ties += not _balance(judged)

    def extra(self) -> Extra:
        """The figures under "orders"; nothing when no pair was shown twice."""
        n = self._tallies["both_orders"].n_scored
        if not n:
            return {}
        means = {name: counts.mean for name, counts in self._tallies.items()}
        intervals = {name: counts.interval() for name, counts in self._tallies.items()}
        return {"orders": {"n": n, "draws": self.ties, **means, "ci95": intervals}}


class Kinds(NamedTuple):
    """Coarser parts of a benchmark than its subsets, which stand in `extra`."""

    name: str
    of: Callable[[Judged], str]
    """The part of a sample."""
    gaps: str = ""
    """Where the known parts without a score are listed."""
    known: Sequence[str] = ()


def named_by(column: str, kind: str = "") -> Callable[[Judged], str]:
    """Reads what the metadata hold; those that hold nothing belong to "(no KIND)"."""
    return lambda judged: str(judged.metadata.get(column) or f"(no {kind or column})")


class PooledScorer:
    """One rule over all samples, pooled, with the part of each subset beside it.

    Args:
        tallies: the counts to fill, with their rule.
        kinds: coarser parts of the samples, to report as well.
    """

    def __init__(self, tallies: SubsetTallies, *kinds: Kinds) -> None:
        self._tallies, self._kinds = tallies, kinds
        self._by: dict[Kinds, defaultdict[str, Tally]] = {
            kind: defaultdict(Tally) for kind in kinds
        }
        self._orders = Orders()

    def only_scores(self) -> None:
        """Report scores alone, of what is shown as a yardstick: no interval, no chance."""
        self._tallies.only_scores = True

    def add(self, judged: Judged) -> float | None:
        """Count one sample; gives what it earned."""
        credit = self._tallies.add(judged)
        if judged.played_orders:
            self._orders.add(judged)
        for kind in self._kinds:
            cause = self._tallies.cause(judged)
            self._by[kind][kind.of(judged)].add(credit, judged.status, judged.cluster, cause)
        return credit

    def report(self) -> Report:
        """Report what was counted so far."""
        tallies, extra = self._tallies, self._orders.extra()
        for kind in self._kinds:
            parts = {
                name: tally.figure(tallies.rule) for name, tally in sorted(self._by[kind].items())
            }
            gaps = [n for n in kind.known if n not in parts or parts[n].score is None]
            extra |= {kind.name: parts, **({kind.gaps: gaps} if gaps else {})}
        # the only part, without a name, is the whole
        figures = {} if list(tallies.by_subset) == [""] else tallies.figures()
        return headline(with_extra(tallies.pooled(), extra), figures)


MEAN_OF_SUBSETS = "unweighted_mean_of_subsets"


class MeanOfSubsets(PooledScorer):
    """One rule by subset; the headline is the mean of the subsets' scores, each weighing the same,
    and its chance is the mean of theirs.

    A subset without a score leaves the mean and is listed in `extra["subsets_without_score"]`.

    Args:
        tallies: the counts to fill, with their rule.
        subsets: those the benchmark has; others stay outside the mean, listed in
            `extra["subsets_outside_the_mean"]`. Without any, all that come are in it.
        kinds: as for `PooledScorer`.
    """

    def __init__(self, tallies: SubsetTallies, subsets: Iterable[str] = (), *kinds: Kinds) -> None:
        super().__init__(tallies, *kinds)
        self._subsets = sorted(subsets)

    def report(self) -> Report:
        """Report what was counted so far."""
        whole, figures = super().report(), self._tallies.figures()
        names = self._subsets or sorted(figures)
        parts = {name: figures[name] for name in names if name in figures}
        lists = {
            "subsets_without_score": absent(names, parts),
            "subsets_outside_the_mean": sorted(figures.keys() - parts.keys()),
        }
        extra = {**whole.extra, **{name: listed for name, listed in lists.items() if listed}}
        whole_mean = mean_over_clusters({name: self._tallies.by_subset[name] for name in parts})
        mean = mean_of_parts(MEAN_OF_SUBSETS, parts, whole_mean, extra)
        same = {name: getattr(whole, name) for name in (*COUNTS, "missing")}
        return headline(replace(mean, **same), figures)


class Gathered:
    """Collects the parts of samples that were judged part by part.

    `part_of` marks a part with the key of its whole, so that parts of different wholes never meet;
    those of equal rows may change places, which changes no figure.
    """

    def __init__(self) -> None:
        self._open: dict[str, list[list[Judged]]] = {}
        """By the key of the whole, and by part: what waits for the other parts."""

    @staticmethod
    def part_of(
        whole: DataSample, part: int, parts: int, outputs: Sequence[int], **metadata: Any
    ) -> DataSample:
        """The sample that asks about some outputs of another; `part` of `parts`, counted from 0."""
        mark = {
            "whole": whole.sample_id,
            "whole_key": whole.sample_key,
            "part": part,
            "parts": parts,
            **metadata,
        }
        name = f"{whole.sample_id}/{part}"
        chosen = [whole.output[place] for place in outputs]
        return copy_with(
            whole, unique_id=name, output=chosen, metadata={**(whole.metadata or {}), **mark}
        )

    def margins(
        self, judged: Judged, pairs: Sequence[tuple[int, int]]
    ) -> tuple[list[float | None], Judged] | None:
        """By how much the better answer of each pair scores above the other one (None without
        scores), and the sample whose outcome counts; None until the last part has come.

        `pairs` are those of a sample that was judged whole; a part is one pair.
        """
        in_parts = "whole" in judged.metadata
        parts = self.add(judged) if in_parts else [judged]
        if parts is None:
            return None
        places = [(0, 1)] if in_parts else pairs
        return [each for part in parts for each in _margins(part, places)], worst_part(parts)

    def add(self, judged: Judged) -> list[Judged] | None:
        """Take one part in; gives all parts in order when it was the last one of its whole."""
        about = judged.metadata
        key, part = about["whole_key"], about["part"]
        parts = self._open.setdefault(key, [[] for _ in range(about["parts"])])
        parts[part].append(judged)
        if not all(parts):
            return None
        gathered = [waiting.pop(0) for waiting in parts]
        if not any(parts):
            del self._open[key]
        return gathered


def _margins(judged: Judged, pairs: Sequence[tuple[int, int]]) -> list[float | None]:
    scores, better = judged.complete(), judged.chosen
    if scores is None:
        return [None] * len(pairs)
    return [(scores[a] - scores[b]) * (1 if better[a] else -1) for a, b in pairs]


def headline(figure: Figure, by_subset: Mapping[str, Figure]) -> Report:
    """A figure over all samples as the headline, beside the parts; a single part without a name is
    not repeated.
    """
    parts = {name or UNNAMED: by_subset[name] for name in sorted(by_subset)}
    return Report(**vars(figure), by_subset={} if list(by_subset) == [""] else parts)


def mean_of_parts(
    rule: str, parts: Mapping[str, Figure], mean: Estimate | None, extra: Extra
) -> Figure:
    """The mean of the parts' scores, each weighing the same, with the mean of their chance, their
    counts and limits.
    """
    figures = list(parts.values())
    counts = {name: sum(getattr(part, name) for part in figures) for name in COUNTS}
    return Figure(
        rule,
        score=mean_of(part.score for part in figures),
        **uncertainty_of(mean),
        extra=extra,
        chance=chance_of(figures),
        bounds=mean_bounds(part.bounds for part in figures),
        missing=added(part.missing for part in figures),
        **counts,
    )


def chance_of(figures: Sequence[Figure], weights: Sequence[float] | None = None) -> float | None:
    """What guessing earns as the mean of these figures, of those with a score where there are any;
    None where nobody knows.
    """
    shares = weights or [1.0] * len(figures)
    pairs = list(zip(figures, shares, strict=True))
    scored = [pair for pair in pairs if pair[0].score is not None]
    return weighted_mean((each.chance, weight) for each, weight in scored or pairs)


def weighted_mean(values: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of values with their weights; what has no value leaves it, and None is left of
    nothing.
    """
    known = [(value, weight) for value, weight in values if value is not None]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total else None


def absent(names: Iterable[str], parts: Mapping[str, Figure]) -> list[str]:
    """The names of which there is no part, or one without a score, and every other part without a
    score.
    """
    return [
        name or UNNAMED
        for name in dict.fromkeys([*names, *sorted(parts)])
        if name not in parts or parts[name].score is None
    ]


def mean_of(scores: Iterable[float | None]) -> float | None:
    """Average without weights, leaving out what has no score; None without any.

    It is comparable with a published figure only when all parts of the benchmark are there.
    """
    known = array("d", (score for score in scores if score is not None))
    return math.fsum(known) / len(known) if known else None
