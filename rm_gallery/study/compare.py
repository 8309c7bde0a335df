"""Two or more runs on the same samples: what differs, by subset, with intervals and p-values, and
on which samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rm_gallery.core.stats import Floats, np
from rm_gallery.core.stats.columns import crossed
from rm_gallery.core.stats.intervals import Interval, shown_side
from rm_gallery.core.stats.significance import PairedDifference, described, holm, sign_test
from rm_gallery.core.stats.uncertainty import (
    Estimate,
    clustered_mean,
    heterogeneity_between,
    max_t,
    pooled,
)
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.shown import ended, one_line
from rm_gallery.gallery.benchmarks.figures import UNNAMED, Record, by_cause, plain
from rm_gallery.gallery.benchmarks.rewardbench2 import TIES_RULE, ties_difference
from rm_gallery.study.paired_runs import Codes, Matched, Pairs, RunSamples, mean_of, suspicion_of
from rm_gallery.study.runs import OpenRun, SampleRow, open_run

LEVEL = 0.05
"""A p-value, corrected for all that was tested, below which something is shown."""
EXAMPLES = 5
LONGEST = 400
_FIGURES = (
    "name first second difference bounds ci95 p_value p_adjusted correction n n_clusters needed "
    "detectable"
)
"""The figures of a difference, in the order of its JSON."""
_SAME = ("benchmark", "rule", "data")
"""What has to be the same in two manifests."""


@dataclass(frozen=True)
class Difference(Record):
    """What two runs scored on the samples both have, and by how much the second is better.

    Attributes:
        name: the subset; `all` for the headline.
        first: score of the first run, on the samples compared.
        second: score of the second run.
        paired: second minus first with interval and p-value.
        p_adjusted: p-value corrected for all runs compared, of subsets for all subsets and runs;
            None where there is none.
        correction: max-T where all that is corrected is of the same samples, else Holm; None where
            there is one p-value.
        bounds: the difference when every score that is missing is at its worst for the second run
            (none of its own right, all of the first's right), and when it is at its best; both are
            the difference where nothing is missing.
        at_worst: the 95 % interval of the former.
        figure: what `paired` is made of, while p-values are corrected.
    """

    name: str
    first: float | None
    second: float | None
    paired: PairedDifference
    p_adjusted: float | None = None
    bounds: Interval | None = None
    at_worst: Interval | None = None
    correction: str | None = None
    figure: Estimate | None = field(default=None, repr=False, compare=False)

    @property
    def better(self) -> str | None:
        """Which run is shown to be better: `first`, `second`, or None where chance or what is
        missing may explain the difference.
        """
        interval = self.paired.interval
        side = 0 if interval is None else shown_side(0.0, interval, self.bounds or interval)
        return None if not side else "second" if side > 0 else "first"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        known = {**vars(self), **self.paired._asdict(), "ci95": self.paired.interval}
        return {name: plain(known[name]) for name in _FIGURES.split()}


@dataclass(frozen=True)
class RunComparison(Record):
    """One run compared with another.

    Attributes:
        first: the run compared with, and `second`, the run compared, by folder and reward.
        whole: the headline.
        by_subset: the subsets, by name.
        heterogeneity: p-value of "the difference is the same in all subsets", whatever is missing
            would have got; None where there are no two, or where they share clusters.
        only_first: right in the first run and wrong in the second, and
        only_second: the other way round; None where credits are not all 0 or 1. `mcnemar_p` is
            McNemar's mid-p-value of these, which takes samples as independent.
        n_both: samples scored in both runs; `n_first_only` and `n_second_only` are those of one
            run; `n_unscored` are in both and lack a credit in one or both.
        missing: of each run, how many of the samples of both have no score, by who caused it; where
            it is not finished, those that it did not get to are among them.
        suspicion: traits that go with missing scores, among the samples that both have.
        examples: samples whose credit differs most, of either direction.
        notes: what a reader has to know.
    """

    first: str
    second: str
    benchmark: str
    rule: str
    whole: Difference
    by_subset: tuple[Difference, ...]
    only_first: int | None
    only_second: int | None
    mcnemar_p: float | None
    n_both: int
    n_first_only: int
    n_second_only: int
    n_unscored: int
    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    suspicion: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())
    heterogeneity: float | None = None


def compare(*runs: str | Path | OpenRun, examples: int = EXAMPLES) -> list[RunComparison]:
    """Hold every run but the first against the first, on the samples both have scored.

    Args:
        *runs: run folders of the same benchmark, rule and data, two or more.
        examples: samples to show of either direction.

    Returns:
        One comparison per run but the first. Differences are second minus first; p-values of
        headlines are corrected together, and those of subsets.

    Raises:
        ConfigError: fewer than two runs, runs of different data or rules (naming the difference),
            or nothing in common.
        DataError: a folder that is no run.
    """
    if len(runs) < 2:
        raise ConfigError("compare needs two runs or more; name their folders.")
    open_runs = [run if isinstance(run, OpenRun) else open_run(run) for run in runs]
    for other in open_runs[1:]:
        check_same(open_runs[0], other)
    subsets, causes = Codes(), Codes()
    reference = RunSamples(open_runs[0], subsets, causes)
    return _adjusted(
        [
            _compare(reference, RunSamples(other, subsets, causes), examples)
            for other in open_runs[1:]
        ]
    )


def check_same(first: OpenRun, second: OpenRun) -> None:
    """Raise ConfigError, naming the difference, unless both runs judged the same data by the same
    rule.
    """
    for key in _SAME:
        values = [
            run.manifest.get(key, run.report.get("version" if key == "rule" else key))
            for run in (first, second)
        ]
        if key == "data" and not all(key in run.manifest for run in (first, second)):
            continue  # where scores came from elsewhere, the samples tell
        if values[0] != values[1]:
            what = {"rule": "version of the rule", "data": "content of the data"}.get(key, key)
            shown = "" if key == "data" else f" {values[0]!r} and {values[1]!r}"
            raise ConfigError(
                f"{first.folder.name} and {second.folder.name} cannot be compared: another "
                f"{what}{shown}; "
                "compare runs of one benchmark on the same files."
            )
    rules = [run.report.get("rule") for run in (first, second)]
    if None not in rules and rules[0] != rules[1]:
        raise ConfigError(
            f"{first.folder.name} and {second.folder.name} cannot be compared: scored by "
            f"{rules[0]} and by {rules[1]}."
        )


def _compare(first: RunSamples, second: RunSamples, examples: int) -> tuple[RunComparison, int]:
    """The comparison, and a hash of the samples of the first run that it is of."""
    for samples in (first, second):
        _check_credits(samples)
    runs, matched = (first.run, second.run), Matched(first, second)
    _check_answers(runs, matched)
    pairs = matched.pairs()
    if not len(pairs):
        names = " and ".join(run.folder.name for run in runs)
        raise ConfigError(f"{names} have no sample in common; compare runs on the same data.")
    notes: list[str] = []
    if matched.credited_once() > 0.05 * len(pairs):
        # the credit of a pair of rows lies with the row that came last, which is another in another
        # run
        pairs = pairs.by_cluster()
        notes.append("samples of one prompt share a credit and are compared prompt by prompt")
    scored = pairs.scored
    whole, parts, subset_notes = _differences(scored)
    missing, shown, n_both = matched.missing(), tuple(_examples(scored, examples)), len(scored)
    only_first, only_second, mcnemar_p = _mcnemar(scored)
    suspicion, n_pairs = suspicion_of(pairs) if any(missing.values()) else {}, len(pairs)
    of_samples, alone = hash(scored.place[0].tobytes()), not crossed(pairs.clusters, pairs.subset)
    del scored  # of a million samples tens of megabytes
    at_worst, at_best = (whole, parts), (whole, parts)
    if any(missing.values()):
        with_never_begun = matched.with_never_begun(pairs)
        del pairs
        at_worst, at_best = (
            _differences(with_never_begun.fill(1.0 - best, best).scored)[:2] for best in (0.0, 1.0)
        )
    low, high = ({part.name: part for part in end[1]} for end in (at_worst, at_best))
    limits = [
        (one, other)
        for p in parts
        if (one := low[p.name].figure) and (other := high[p.name].figure)
    ]
    notes += [
        *subset_notes,
        *(
            f"{r.folder.name} is not finished: {r.report.get('stopped') or 'there is no report'}"
            for r in runs
            if not r.finished
        ),
    ]
    for model in sorted({*first.run.served, *second.run.served}):
        before, now = (one_line(run.answered_as(model)) for run in (first.run, second.run))
        if before and now and before != now:
            in_each = (
                f"{before} in {first.run.folder.name} and as {now} in {second.run.folder.name}"
            )
            notes.append(f"{model or 'the model'} answered as {in_each}")
    comparison = RunComparison(
        first=first.name,
        second=second.name,
        benchmark=str(
            first.run.report.get("benchmark") or first.run.manifest.get("benchmark") or ""
        ),
        rule=str(first.run.report.get("rule") or ""),
        whole=_with_limits(whole, at_worst[0], at_best[0]),
        by_subset=tuple(
            replace(_with_limits(p, low[p.name], high[p.name]), figure=None) for p in parts
        )
        if len(parts) > 1
        else (),
        only_first=only_first,
        only_second=only_second,
        mcnemar_p=mcnemar_p,
        n_both=n_both,
        n_first_only=int(matched.only[0].sum()),
        n_second_only=int(matched.only[1].sum()),
        n_unscored=n_pairs - n_both,
        missing=missing,
        suspicion=suspicion,
        examples=shown,
        notes=tuple(notes),
        heterogeneity=heterogeneity_between(limits) if alone else None,
    )
    return comparison, of_samples


def _check_credits(samples: RunSamples) -> None:
    """ConfigError where a figure is of no credits of samples, and where scores lie outside 0..1:
    comparing only the others would be biased.
    """
    report, without = samples.run.report, np.isnan(samples.credit)
    own_unit = report.get("rule") == "mean_score"
    if report.get("n_scored") and bool(without.all()) and not own_unit:
        raise ConfigError(
            f"{samples.run.holds}, a figure that no sample has a share of, so that samples cannot be "
            f"compared; rm-gallery report writes a page about each run."
        )
    if own_unit and bool((samples.scored & without).any()):
        raise ConfigError(
            f"{samples.run.folder.name} holds scores that are no shares from 0 to 1, and are not "
            f"compared sample by sample. Score with a reward whose "
            "range is 0 to 1 (a function that rescales it will do), or put the means with their "
            "intervals side by side: rm-gallery table."
        )


def _check_answers(runs: tuple[OpenRun, OpenRun], matched: Matched) -> None:
    """ConfigError for two tables of which each has rows that are not in the other: only rows with
    equal answers would be compared.
    """
    tables = [(run.manifest.get("sheet"), run.manifest.get("columns")) for run in runs]
    if tables[0] == tables[1] or None in (tables[0][0], tables[1][0]):
        return
    counts = [int(side.sum()) for side in matched.only]
    if all(counts):
        raise ConfigError(
            f"{runs[0].folder.name} and {runs[1].folder.name} scored other texts, or read another "
            f"part of a table: {counts[0]:,} and {counts[1]:,} rows are in one of them "
            "only. To compare two sets of answers put them into two columns of one table and use "
            "rm-gallery winrate --a … --b …, or score both in one run (--answer a --answer b)."
        )


def _with_limits(part: Difference, worst: Difference, best: Difference) -> Difference:
    """A difference with what it would be at worst and at best for the second run."""
    low, high = worst.paired.difference, best.paired.difference
    bounds = None if low is None or high is None else Interval(low, high)
    return replace(part, bounds=bounds, at_worst=worst.paired.interval)


def _differences(scored: Pairs) -> tuple[Difference, list[Difference], list[str]]:
    """The headline, the subsets and notes on them, of pairs that both runs have a credit of."""
    first = scored.runs[0]
    names = {code: name for name, code in first.subsets.items()}
    subsets = {names[code]: code for code in np.flatnonzero(np.bincount(scored.subset)).tolist()}
    reported = first.run.report.get("by_subset")
    rules = reported if isinstance(reported, Mapping) else {}
    ties = {name for name in subsets if rules.get(name or UNNAMED, {}).get("rule") == TIES_RULE}
    parts, means = [], dict[str, Estimate]()
    for name in sorted(subsets):
        own = scored if len(subsets) == 1 else scored[scored.subset == subsets[name]]
        sides = _means(own.credit)
        difference = None if name in ties else _mean_difference(own)
        if name in ties and (of_ties := ties_difference(own.side(1), own.side(0))):
            difference, *sides = of_ties  # they are no mean of credits
            sides.reverse()
        if difference is not None:
            means[name] = difference
            parts.append(_difference(name or UNNAMED, sides, difference, len(own)))
    whole, notes = _headline(scored, subsets, means, parts, ties)
    return whole, parts, notes


def _mean_difference(
    pairs: Pairs, weights: Mapping[str, float] | None = None, by_subset: bool = False
) -> Estimate | None:
    """Second minus first; where subsets have weights, or are named to weigh alike, the mean of
    their means.
    """
    codes = (
        None
        if weights is None
        else {pairs.runs[0].subsets[name]: weight for name, weight in weights.items()}
    )
    strata = pairs.subset if by_subset or weights is not None else None
    changes = pairs.credit[1] - pairs.credit[0]
    return clustered_mean(changes, pairs.clusters, strata=strata, weights=codes, bounds=(-1.0, 1.0))


def _difference(name: str, sides: Sequence[float | None], mean: Estimate, n: int) -> Difference:
    return Difference(name, sides[0], sides[1], described(mean)._replace(n=n), figure=mean)


def _means(credit: Floats) -> list[float | None]:
    """The mean credit in each run; None without one."""
    return [None if math.isnan(mean := mean_of(side)) else mean for side in credit]


def _headline(
    scored: Pairs,
    subsets: Mapping[str, int],
    means: Mapping[str, Estimate],
    parts: Sequence[Difference],
    ties: set[str],
) -> tuple[Difference, list[str]]:
    """The difference of the rule's own figure, where it is a mean of credits; else that of the mean
    credit, with a note.
    """
    if not len(scored):
        nothing = PairedDifference(None, None, None, None, 0, 0, 0)
        return Difference("all", None, None, nothing), ["no sample is scored in both runs"]
    linear = [name for name in means if name not in ties]
    is_mean, weights = _subset_weights(scored.runs[0], subsets, linear)
    if len(linear) < len(means):
        codes = [subsets[name] for name in linear]
        part = _mean_difference(scored[np.isin(scored.subset, codes)], by_subset=True)
        known = [] if part is None else [(part, float(len(linear)))]
        whole = pooled(known + [(means[name], 1.0) for name in means if name in ties])
        weights = dict.fromkeys(means, 1.0)
    else:
        whole = _mean_difference(scored, weights)
    sides = _means(scored.credit)
    if weights is not None:
        by_name, total = dict(zip(means, parts, strict=True)), math.fsum(weights.values())
        each = [((by_name[name].first, by_name[name].second), w) for name, w in weights.items()]
        sides = [math.fsum(w * (side[k] or 0.0) for side, w in each) / total for k in (0, 1)]
    assert whole is not None
    note = (
        "the rule's figure is no mean of credits; the headline here is the mean credit per sample"
    )
    return _difference("all", sides, whole, len(scored)), [] if is_mean else [note]


def _subset_weights(
    samples: RunSamples, subsets: Mapping[str, int], names: Sequence[str]
) -> tuple[bool, dict[str, float] | None]:
    """Whether the rule's score is a mean of credits, and how it weighs subsets: as its report says,
    all samples alike (None), or all subsets alike, whichever gives its score.
    """
    report = samples.run.report
    extra = report.get("extra")
    given = extra.get("subset_weights") if isinstance(extra, Mapping) else None
    if isinstance(given, Mapping) and (
        weights := {name: float(given[name]) for name in names if name in given}
    ):
        return True, weights
    alike = dict.fromkeys(names, 1.0)
    if len(names) < len(subsets):
        return True, alike
    score, known = report.get("score"), ~np.isnan(samples.credit)
    if not isinstance(score, (int, float)) or not known.any():
        return False, None
    credit, subset = samples.credit[known], samples.subset[known]
    if abs(mean_of(credit) - score) < 1e-9:
        return True, None
    of_subsets = [mean_of(credit[subset == code]) for code in np.unique(subset)]
    return (True, alike) if abs(mean_of(np.array(of_subsets)) - score) < 1e-9 else (False, None)


def _mcnemar(scored: Pairs) -> tuple[int, int, float] | tuple[None, None, None]:
    if not len(scored) or not ((scored.credit == 0.0) | (scored.credit == 1.0)).all():
        return None, None, None
    changes = scored.credit[1] - scored.credit[0]
    only_first, only_second = int(np.sum(changes < 0.0)), int(np.sum(changes > 0.0))
    return only_first, only_second, sign_test(only_first, only_second, mid=True)


TIES = 256
"""Samples of equal differences that are looked up for examples."""


def _examples(scored: Pairs, wanted: int) -> Iterable[dict[str, Any]]:
    """Samples on which the runs disagree most, as many of either direction; of equal ones the first
    by id, among as many as are looked up.
    """
    chosen: list[int] = []
    for turn in (1.0, -1.0):
        changes = turn * (scored.credit[1] - scored.credit[0])
        largest = np.argsort(-changes, kind="stable")
        largest = largest[changes[largest] > 0.0][: max(wanted, TIES)]
        # a folder holds its rows in the order in which they were finished
        rows = scored.runs[0].rows(scored.place[0, largest].tolist())
        ids = {at: rows[own].id for at, own in zip(largest, scored.place[0, largest], strict=True)}
        chosen += sorted(largest.tolist(), key=lambda at: (-changes[at], len(ids[at]), ids[at]))[
            :wanted
        ]
    places, credits = scored.place[:, chosen].tolist(), scored.credit[:, chosen].tolist()
    texts = [run.rows(own) for run, own in zip(scored.runs, places, strict=True)]
    for a, b, first, second in zip(*places, *credits, strict=True):
        row = texts[0][a]
        yield {
            "id": row.id,
            "subset": row.subset,
            "better": "second" if second > first else "first",
            "prompt": ended(row.prompt, LONGEST),
            "answers": [ended(text, LONGEST) for text in row.answers],
            "labels": list(row.labels),
            "first": _side_record(first, row),
            "second": _side_record(second, texts[1][b]),
        }


def _side_record(credit: float, row: SampleRow) -> dict[str, Any]:
    reasons = [ended(text or "", LONGEST) for text in row.reasons]
    return {"credit": credit, "scores": list(row.scores), "reasons": reasons}


def _adjusted(found: Sequence[tuple[RunComparison, int]]) -> list[RunComparison]:
    """The comparisons with p-values corrected for all that were made: headlines together, by max-T
    where they are of the same samples, and subsets together, which are of different ones.
    """
    comparisons = [one for one, _ in found]

    def corrected(parts: Sequence[Difference], same: bool) -> list[Difference]:
        known = [part.paired.p_value for part in parts if part.paired.p_value is not None]
        figures = [part.figure for part in parts if part.figure is not None]
        tested = [p for p in max_t(figures) if p is not None] if same else holm(known)
        how = None if len(known) < 2 else "max-T" if same else "Holm"
        values = iter(tested)
        return [
            part
            if part.paired.p_value is None
            else replace(part, p_adjusted=next(values), correction=how)
            for part in parts
        ]

    wholes = corrected([one.whole for one in comparisons], len({rows for _, rows in found}) == 1)
    subsets = iter(corrected([part for one in comparisons for part in one.by_subset], False))
    return [
        replace(
            one,
            whole=replace(whole, figure=None),
            by_subset=tuple(next(subsets) for _ in one.by_subset),
        )
        for one, whole in zip(comparisons, wholes, strict=True)
    ]


def left_out(comparison: RunComparison) -> str:
    """What has no score in one of two runs, and who caused it; empty where nothing is missing."""
    parts = [
        f"{sum(own.values()):,} of the {name} ({by_cause(own)})"
        for name, own in comparison.missing.items()
        if own
    ]
    return f"missing: {', '.join(parts)}" if parts else ""
