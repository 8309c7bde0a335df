"""Two or more runs on the same samples: what differs, by subset, with intervals and p-values, and
on which samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rm_gallery.core.stats import np
from rm_gallery.core.stats.changes import SAME, OldAndNew
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
from rm_gallery.gallery.benchmarks.figures import (
    UNNAMED,
    Record,
    plain,
)
from rm_gallery.gallery.benchmarks.lead import HELD_TO_NO_LABELS, MEAN_SCORE, by_cause
from rm_gallery.gallery.benchmarks.rewardbench2 import TIES_RULE, ties_difference
from rm_gallery.study.paired_runs import Codes, Pairs, RunSamples, suspicion_of
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
_SAME = {"benchmark": "benchmark", "rule": "version of the rule", "data": "content of the data"}
"""What has to be the same in two manifests, in words."""


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
        only_second: the other way round; None where credits are not all 0 or 1, or are no rights, as
            a score or a win is none. `mcnemar_p` is McNemar's mid-p-value of these, which takes
            samples as independent.
        n_both: samples scored in both runs; `n_first_only` and `n_second_only` are those of one
            run; `n_unscored` are in both and lack a credit in one or both.
        agreement: of rows that both runs have a verdict of and people have labelled, in how many it
            is theirs; None where credits say so, and without labels of one run.
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
    agreement: Difference | None = None

    @property
    def finding(self) -> str:
        """Which run is shown to be better, or to have the higher figure where none is better by
        that; empty where neither is shown to.
        """
        side, figure = self.whole.better, HELD_TO_NO_LABELS.get(self.rule)
        if side is None:
            return ""
        return f"the {side} {'is better' if figure is None else f'has the higher {figure}'}"


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
    for key, what in _SAME.items():
        values = [
            run.manifest.get(key, run.report.get("version" if key == "rule" else key))
            for run in (first, second)
        ]
        if key == "data" and not all(key in run.manifest for run in (first, second)):
            continue  # where scores came from elsewhere, the samples tell
        if values[0] != values[1]:
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
    runs, every = (first.run, second.run), Pairs.of(first, second)
    n_first_only, n_second_only = only_one = every.only_one
    _check_answers(runs, only_one)
    pairs, wanted = every.shared, every.wanted
    del every  # of a million samples tens of megabytes
    if not len(pairs):
        names = " and ".join(run.folder.name for run in runs)
        raise ConfigError(f"{names} have no sample in common; compare runs on the same data.")
    agreements = pairs.agreements()
    notes: list[str] = []
    missing = {name: wanted.missing(k) for k, name in enumerate(("first", "second"))}
    if pairs.credited_once > 0.05 * len(pairs):
        # the credit of a pair of rows lies with the row that came last, which is another in another
        # run
        pairs, wanted = pairs.by_cluster(), wanted.by_cluster()
        notes.append("samples of one prompt share a credit and are compared prompt by prompt")
    scored, lacking = pairs.counted, any(missing.values())
    gaps, subset_notes = _gaps(scored)
    ends = [gaps, gaps]
    if lacking:
        ends = [_gaps(replace(wanted, best=best).counted)[0] for best in (0.0, 1.0)]
    limits = {name: [end.get(name, _Gap()) for end in ends] for name in gaps}
    whole, *parts = (_difference(name, gap, *limits[name]) for name, gap in gaps.items())
    known_limits = [
        (low.estimate, high.estimate)
        for name, (low, high) in limits.items()
        if name is not None and low.estimate and high.estimate
    ]
    shared_clusters = crossed(scored.clusters, scored.subset)
    only_first, only_second, mcnemar_p = (
        _mcnemar(scored) if first.run.by_labels else (None, None, None)
    )
    notes += [*subset_notes, *(note for run in runs for note in run.caveats())]
    for model in sorted({*first.run.served, *second.run.served}):
        before, now = (one_line(run.answered_as(model)) for run in runs)
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
        rule=first.run.rule,
        whole=whole,
        by_subset=tuple(parts) if len(parts) > 1 else (),
        only_first=only_first,
        only_second=only_second,
        mcnemar_p=mcnemar_p,
        n_both=len(scored),
        n_first_only=n_first_only,
        n_second_only=n_second_only,
        n_unscored=len(pairs) - len(scored),
        missing=missing,
        suspicion=suspicion_of(pairs) if lacking else {},
        examples=tuple(_examples(scored, examples)),
        notes=tuple(notes),
        heterogeneity=None if shared_clusters else heterogeneity_between(known_limits),
        agreement=_agreement(agreements),
    )
    return comparison, hash(scored.column("place")[0].tobytes())


def _agreement(rows: OldAndNew) -> Difference | None:
    """Which run agrees more with people; None without rows that both agree or disagree on."""
    gap = _Gap(int(rows.both.sum()), rows.means, rows.difference)
    if gap.estimate is None:
        return None
    return Difference("agreement with people", *gap.means, gap.paired, figure=gap.estimate)


def _check_credits(samples: RunSamples) -> None:
    """ConfigError where a figure is of no credits of samples, and where scores lie outside 0..1:
    comparing only the others would be biased.
    """
    report, without = samples.run.report, np.isnan(samples.samples["credit"])
    own_unit = samples.run.rule == MEAN_SCORE
    kept = report.get("n_scored") or (report and not len(without))
    if kept and bool(without.all()) and not own_unit:
        raise ConfigError(
            f"{samples.run.holds}, a figure that no sample has a share of, so that samples cannot be "
            f"compared; rm-gallery report writes a page about each run."
        )
    if own_unit and bool((samples.samples["scored"] & without).any()):
        raise ConfigError(
            f"{samples.run.folder.name} holds scores that are no shares from 0 to 1, and are not "
            f"compared sample by sample. Score with a reward whose "
            "range is 0 to 1 (a function that rescales it will do), or put the means with their "
            "intervals side by side: rm-gallery table."
        )


def _check_answers(runs: tuple[OpenRun, OpenRun], only: Sequence[int]) -> None:
    """ConfigError for two tables of which each has rows that are not in the other: only rows with
    equal answers would be compared.
    """
    tables = [(run.manifest.get("sheet"), run.manifest.get("columns")) for run in runs]
    if tables[0] == tables[1] or None in (tables[0][0], tables[1][0]):
        return
    if all(only):
        first, second = (columns if isinstance(columns, dict) else {} for _, columns in tables)
        other = [
            f"{name} {first.get(name)!r} and {second.get(name)!r}"
            for name in dict.fromkeys([*first, *second])
            if first.get(name) != second.get(name)
        ]
        named = f" (columns: {'; '.join(other)})" if other else ""
        raise ConfigError(
            f"{runs[0].folder.name} and {runs[1].folder.name} scored other texts, or read another "
            f"part of a table{named}: {only[0]:,} and {only[1]:,} rows are in one of them "
            "only. To compare two sets of answers put them into two columns of one table and use "
            "rm-gallery winrate --a … --b …, or score both in one run (--answer a --answer b)."
        )


class _Gap(NamedTuple):
    """Second minus first over `n` samples, the means of both, and what the uncertainty of the
    difference rests on.
    """

    n: int = 0
    means: tuple[float | None, float | None] = (None, None)
    estimate: Estimate | None = None

    @property
    def paired(self) -> PairedDifference:
        """The difference with interval and p-value."""
        if self.estimate is None:
            return PairedDifference(None, None, None, None, 0, 0, 0)
        return described(self.estimate)._replace(n=self.n)


_Gaps = dict[str | None, _Gap]
"""By subset; the headline is that of None."""


def _difference(name: str | None, gap: _Gap, worst: _Gap, best: _Gap) -> Difference:
    """A difference with what it would be at worst and at best for the second run."""
    low, high = worst.paired.difference, best.paired.difference
    return Difference(
        "all" if name is None else name or UNNAMED,
        *gap.means,
        gap.paired,
        bounds=None if low is None or high is None else Interval(low, high),
        at_worst=worst.paired.interval,
        figure=gap.estimate if name is None else None,
    )


def _gaps(pairs: Pairs) -> tuple[_Gaps, list[str]]:
    """The headline, the subsets and notes on them, of pairs that both runs have a credit of.

    The headline is the difference of the rule's own figure, where it is a mean of credits; else that
    of the mean credit, with a note.
    """
    if not len(pairs):
        return {None: _Gap()}, ["no sample is scored in both runs"]
    first, present = pairs.runs[0], set(np.unique(pairs.subset).tolist())
    subsets = {name: code for name, code in sorted(first.subsets.items()) if code in present}
    reported = first.run.report.get("by_subset")
    rules = reported if isinstance(reported, Mapping) else {}
    parts, composites = _Gaps(), dict[str, Estimate]()
    for name, code in subsets.items():
        part = pairs[pairs.subset == code]
        if rules.get(name or UNNAMED, {}).get("rule") != TIES_RULE:
            changes = part.changes()
            parts[name] = _Gap(len(part), changes.means, changes.difference)
        elif ties := ties_difference(part.side(1), part.side(0)):  # it is no mean of credits
            composites[name], new, old = ties
            parts[name] = _Gap(len(part), (old, new), composites[name])
    linear = {code: 1.0 for name, code in subsets.items() if name in parts.keys() - composites}
    is_mean, weights = _subset_weights(first, linear, len(linear) == len(subsets))
    kept = pairs if weights is None else pairs[np.isin(pairs.subset, list(weights))]
    changes = kept.changes(weights)
    whole, means = changes.difference, changes.means
    if composites:
        each = [(whole, float(len(linear))), *((gap, 1.0) for gap in composites.values())]
        whole = pooled([(gap, weight) for gap, weight in each if gap is not None])
        old_means, new_means = zip(*(part.means for part in parts.values()), strict=True)
        means = fmean(old_means), fmean(new_means)
    note = (
        "the rule's figure is no mean of credits; the headline here is the mean credit per sample"
    )
    return {None: _Gap(len(pairs), means, whole), **parts}, [] if is_mean else [note]


def _subset_weights(
    samples: RunSamples, alike: Mapping[int, float], whole: bool
) -> tuple[bool, Mapping[int, float] | None]:
    """Whether the rule's score is a mean of credits, and how it weighs subsets, by their numbers: as
    its report says, all samples alike (None), or all subsets `alike`, whichever gives its score.
    """
    report = samples.run.report
    extra = report.get("extra")
    given = extra.get("subset_weights") if isinstance(extra, Mapping) else None
    if isinstance(given, Mapping):
        codes = {name: samples.subsets[name] for name in given if name in samples.subsets}
        if weights := {c: float(given[name]) for name, c in codes.items() if c in alike}:
            return True, weights
    if not whole:
        return True, alike
    score, known = report.get("score"), samples.samples[~np.isnan(samples.samples["credit"])]
    for strata in (None, known["subset"]):
        mean = clustered_mean(known["credit"].copy(), strata=strata)
        if mean is not None and isinstance(score, (int, float)):
            if abs(mean.estimate - score) < SAME:
                return True, None if strata is None else alike
    return False, None


def _mcnemar(scored: Pairs) -> tuple[int, int, float | None] | tuple[None, None, None]:
    """Samples right in one run alone, and McNemar's test where each is a witness of its own: 60 rows of
    one prompt once had p < .001.
    """
    if not len(scored) or not ((scored.credit == 0.0) | (scored.credit == 1.0)).all():
        return None, None, None
    changes = scored.credit[1] - scored.credit[0]
    only_first, only_second = int(np.sum(changes < 0.0)), int(np.sum(changes > 0.0))
    alone = int(scored.clusters.max()) + 1 == len(scored)
    p = sign_test(only_first, only_second, mid=True) if alone else None
    return only_first, only_second, p


TIES = 256
"""Samples of equal differences that are looked up for examples."""


def _examples(scored: Pairs, wanted: int) -> Iterable[dict[str, Any]]:
    """Samples on which the runs disagree most, as many of either direction; of equal ones the first
    by id, among as many as are looked up.
    """
    chosen: list[int] = []
    credits, places = scored.credit, scored.column("place")
    for turn in (1.0, -1.0):
        changes = turn * (credits[1] - credits[0])
        largest = np.argsort(-changes, kind="stable")
        largest = largest[changes[largest] > 0.0][: max(wanted, TIES)]
        # a folder holds its rows in the order in which they were finished
        rows = scored.runs[0].rows(places[0, largest].tolist())
        names = [rows[place].id for place in places[0, largest].tolist()]
        order = sorted(zip(-changes[largest], map(len, names), names, largest, strict=True))
        chosen += [at for *_, at in order[:wanted]]
    first, second = (
        [run.rows(at)[place] for place in at]
        for run, at in zip(scored.runs, places[:, chosen].tolist(), strict=True)
    )
    for *rows_of_both, before, now in zip(first, second, *credits[:, chosen].tolist(), strict=True):
        row = rows_of_both[0]
        yield {
            "id": row.id,
            "subset": row.subset,
            "better": "second" if now > before else "first",
            "prompt": ended(row.prompt, LONGEST),
            "answers": [ended(text, LONGEST) for text in row.answers],
            "labels": list(row.labels),
            "first": _judged(rows_of_both[0], before),
            "second": _judged(rows_of_both[1], now),
        }


def _judged(row: SampleRow, credit: float) -> dict[str, Any]:
    """What one run said of a sample."""
    reasons = [ended(text or "", LONGEST) for text in row.reasons]
    return {"credit": credit, "scores": list(row.scores), "reasons": reasons}


def _adjusted(compared: Sequence[tuple[RunComparison, int]]) -> list[RunComparison]:
    """The comparisons with p-values corrected for all that were made: headlines together, by max-T
    where they are of the same samples, and subsets together, which are of different ones.
    """
    comparisons = [comparison for comparison, _ in compared]

    def corrected(parts: Sequence[Difference], same: bool) -> Iterator[Difference]:
        p_values = [p for part in parts if (p := part.paired.p_value) is not None]
        figures = [part.figure for part in parts if part.figure is not None]
        adjusted = iter([p for p in max_t(figures) if p is not None] if same else holm(p_values))
        correction = None if len(p_values) < 2 else "max-T" if same else "Holm"
        for part in parts:
            if part.paired.p_value is not None:
                part = replace(part, p_adjusted=next(adjusted), correction=correction)
            yield replace(part, figure=None)

    alike = len({samples for _, samples in compared}) == 1
    labelled = [one.agreement for one in comparisons if one.agreement]
    wholes = corrected([one.whole for one in comparisons], alike)
    agreements = corrected(labelled, alike and len(labelled) == len(comparisons))
    subsets = corrected([part for one in comparisons for part in one.by_subset], False)
    return [
        replace(
            one,
            whole=next(wholes),
            agreement=next(agreements) if one.agreement else None,
            by_subset=tuple(islice(subsets, len(one.by_subset))),
        )
        for one in comparisons
    ]


def left_out(comparison: RunComparison) -> str:
    """What has no score in one of two runs, and who caused it; empty where nothing is missing."""
    parts = [
        f"{sum(own.values()):,} of the {name} ({by_cause(own)})"
        for name, own in comparison.missing.items()
        if own
    ]
    return f"missing: {', '.join(parts)}" if parts else ""
