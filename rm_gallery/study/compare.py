"""Two or more runs on the same samples: what differs, by subset, with intervals and p-values, and on which samples."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.stats.clustered import ClusteredMean, combined
from rm_gallery.core.stats.denominator import NEVER_BEGUN, Lookout, added, labelled_traits
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import PairedDifference, described, holm, mcnemar, paired_mean
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.shown import ended, one_line
from rm_gallery.gallery.benchmarks.figures import UNNAMED, by_cause, plain
from rm_gallery.gallery.benchmarks.judgements import worst
from rm_gallery.gallery.benchmarks.rewardbench2 import TIES_RULE, ties_difference
from rm_gallery.study.opened import OpenRun, SampleRow, open_run

EXAMPLES = 5
LONGEST = 400
_HUGE = 1e9
"""A score beyond all others, for what is missing."""
_SAME = ("benchmark", "rule", "data")
"""What has to be the same in two manifests."""


@dataclass(frozen=True)
class Difference:
    """What two runs scored on the samples both have, and by how much the second is better.

    Attributes:
        name: the subset; `all` for the headline.
        first: score of the first run, on the samples compared.
        second: score of the second run.
        paired: second minus first with interval and p-value.
        p_adjusted: p-value corrected for all subsets and runs compared (Holm); None where there is none.
        bounds: the difference when every score that is missing is at its worst for the second run (none of its own right, all
            of the first's right), and when it is at its best; both are the difference where nothing is missing.
        at_worst: the 95 % interval of the former.
    """

    name: str
    first: float | None
    second: float | None
    paired: PairedDifference
    p_adjusted: float | None = None
    bounds: Interval | None = None
    at_worst: Interval | None = None

    @property
    def better(self) -> str | None:
        """Which run is shown to be better: `first`, `second`, or None where chance or what is missing may explain the difference."""
        found = self.paired.interval
        if found is None or found.covers(0.0) or (self.bounds is not None and self.bounds.covers(0.0)):
            return None
        return "second" if found.low > 0.0 else "first"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        found = self.paired
        own = {"name": self.name, "first": self.first, "second": self.second, "difference": found.difference}
        tested = {"ci95": found.interval, "p_value": found.p_value, "p_adjusted": self.p_adjusted}
        counts = {"n": found.n, "n_clusters": found.n_clusters, "needed": found.needed}
        return {name: plain(value) for name, value in {**own, "bounds": self.bounds, **tested, **counts}.items()}


@dataclass(frozen=True)
class RunComparison:
    """One run held against another.

    Attributes:
        first: the run compared with, and `second`, the run compared, by folder and reward.
        whole: the headline.
        by_subset: the subsets, by name.
        only_first: right in the first run and wrong in the second, and
        only_second: the other way round; None where credits are not all 0 or 1. `mcnemar_p` is McNemar's mid-p-value of
            these, which takes samples as independent.
        n_both: samples scored in both runs; `n_first_only` and `n_second_only` are those of one run; `n_unscored` are in
            both and lack a credit in one or both.
        missing: of each run, how many of the samples of both have no score, by who caused it; where it is not finished, those
            that it did not get to are among them.
        suspicion: what missing scores go with, of the samples that both have; see `missing.Lookout`.
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

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        parts = {"whole": self.whole.to_dict(), "by_subset": [part.to_dict() for part in self.by_subset]}
        return {name: parts.get(name, plain(value)) for name, value in vars(self).items()}


def compare(*runs: str | Path | OpenRun, examples: int = EXAMPLES, seed: int = 0) -> list[RunComparison]:
    """Hold every run but the first against the first, on the samples both have scored.

    Args:
        *runs: run folders of the same benchmark, rule and data, two or more.
        examples: samples to show of either direction.
        seed: seed of the bootstrap of figures that are no means (Ties).

    Returns:
        One comparison per run but the first. Differences are second minus first; p-values of subsets are corrected together.

    Raises:
        ConfigError: fewer than two runs, runs of different data or rules (naming the difference), or nothing in common.
        DataError: a folder that is no run.
    """
    if len(runs) < 2:
        raise ConfigError("compare needs two runs or more; name their folders.")
    opened = [run if isinstance(run, OpenRun) else open_run(run) for run in runs]
    for other in opened[1:]:
        check_same(opened[0], other)
    reference = _RunSamples(opened[0])
    return _adjusted([_compare(reference, _RunSamples(other), examples, seed) for other in opened[1:]])


def check_same(first: OpenRun, second: OpenRun) -> None:
    """Raise ConfigError, naming the difference, unless both runs judged the same data by the same rule."""
    for key in _SAME:
        values = [run.manifest.get(key, run.report.get("version" if key == "rule" else key)) for run in (first, second)]
        if key == "data" and not all(key in run.manifest for run in (first, second)):
            continue  # where scores came from elsewhere, the samples tell
        if values[0] != values[1]:
            what = {"rule": "version of the rule", "data": "content of the data"}.get(key, key)
            shown = "" if key == "data" else f" {values[0]!r} and {values[1]!r}"
            raise ConfigError(
                f"{first.folder.name} and {second.folder.name} cannot be compared: another {what}{shown}; "
                "compare runs of one benchmark on the same files."
            )
    rules = [run.report.get("rule") for run in (first, second)]
    if None not in rules and rules[0] != rules[1]:
        raise ConfigError(
            f"{first.folder.name} and {second.folder.name} cannot be compared: scored by {rules[0]} and by {rules[1]}."
        )


class _Slim(NamedTuple):
    """What is kept of a row while runs are compared; its texts stay in the file."""

    place: int
    """Its number among the rows of the run."""
    id: str
    subset: str
    cluster: int
    """A hash of its name; 0 where there is none."""
    status: str
    labels: tuple[str | None, ...]
    scores: tuple[float | None, ...]
    prompt: int
    """Characters, and those of each answer in `answers`."""
    answers: tuple[int, ...]


@dataclass(slots=True)
class _RunSample:
    """What one run says about one sample, put together where it was judged in parts."""

    row: _Slim
    credit: float | None
    lost: str | None = None
    """Who caused that there is no score, where one is missing."""

    def filled(self, right: bool) -> _RunSample:
        """As if what is missing were wholly right, or wholly wrong."""
        if self.lost is None:
            return self
        scores = tuple(_HUGE if (label == "chosen") == right else -_HUGE for label in self.row.labels)
        return _RunSample(self.row._replace(scores=scores), float(right))


_Pairs = Sequence[tuple[_RunSample, _RunSample]]
"""Samples of the first run, each with the same one of the second."""


class _RunSamples:
    """The samples of a run by what makes them the same."""

    def __init__(self, run: OpenRun) -> None:
        self.run = run
        self.by_key: dict[int, _RunSample] = {}  # by a hash
        again: Counter[int] = Counter()
        shared: dict[Any, Any] = {}  # what many rows have alike
        for place, row in enumerate(run.samples()):
            whole = str((row.metadata or {}).get("whole_key") or "")
            key = hash(whole or row.key)
            if not whole and key in self.by_key:
                again[key] += 1
                key = hash(f"{row.key}#{again[key]}")
            said = [shared.setdefault(one, one) for one in (row.subset, row.status, row.labels)]
            sizes, cluster = tuple(map(len, row.answers)), hash(row.cluster) if row.cluster else 0
            kept = _Slim(place, row.id, said[0], cluster, said[1], said[2], row.scores, len(row.prompt), sizes)
            credit, lost, known = row.credit, row.cause, self.by_key.get(key)
            if known is not None:  # judged in parts, it earns its credit with the part that comes last
                status = worst((known.row.status, row.status))  # type: ignore[arg-type]
                kept, lost = known.row._replace(status=status), lost or known.lost
                credit = credit if known.credit is None else known.credit
            self.by_key[key] = _RunSample(kept, credit, lost if credit is None else None)

    def rows(self, wanted: Collection[int]) -> dict[int, SampleRow]:
        """The rows at some places, read again."""
        return {place: row for place, row in enumerate(self.run.samples()) if place in wanted} if wanted else {}

    @property
    def name(self) -> str:
        """The reward and the folder."""
        reward = one_line(str(self.run.report.get("reward") or ""))
        return f"{reward} ({self.run.folder.name})" if reward else self.run.folder.name


def _compare(first: _RunSamples, second: _RunSamples, examples: int, seed: int) -> RunComparison:
    runs = first.run, second.run
    pairs: _Pairs = [(one, second.by_key[key]) for key, one in first.by_key.items() if key in second.by_key]
    if not pairs:
        names = " and ".join(run.folder.name for run in runs)
        raise ConfigError(f"{names} have no sample in common; compare runs on the same data.")
    notes: list[str] = []
    apart = sum((a.credit is None) != (b.credit is None) and a.row.status == b.row.status == "scored" for a, b in pairs)
    if apart > 0.05 * len(pairs):
        # the credit of a pair of rows lies with the row that came last, which is another in another run
        pairs = _by_cluster(pairs)
        notes.append("samples of one prompt share a credit and are compared prompt by prompt")
    whole, parts, said, scored = _differences(first, second, pairs, seed)
    missing = _missing(first, second)
    at_worst, at_best = (whole, parts), (whole, parts)
    if any(missing.values()):
        closed = [*pairs, *_never_begun(first, second), *((b, a) for a, b in _never_begun(second, first))]
        at_worst, at_best = (
            _differences(first, second, [(a.filled(not best), b.filled(best)) for a, b in closed], seed)[:2]
            for best in (False, True)
        )
    low, high = ({part.name: part for part in end[1]} for end in (at_worst, at_best))
    unfinished = [run for run in runs if not run.finished]
    notes += [
        *said,
        *(f"{r.folder.name} is not finished: {r.report.get('stopped') or 'there is no report'}" for r in unfinished),
    ]
    for model in sorted({*first.run.served, *second.run.served}):
        before, now = (one_line(run.answered_as(model)) for run in (first.run, second.run))
        if before and now and before != now:
            in_each = f"{before} in {first.run.folder.name} and as {now} in {second.run.folder.name}"
            notes.append(f"{model or 'the model'} answered as {in_each}")
    right = _mcnemar(scored)
    return RunComparison(
        first=first.name,
        second=second.name,
        benchmark=str(first.run.report.get("benchmark") or first.run.manifest.get("benchmark") or ""),
        rule=str(first.run.report.get("rule") or ""),
        whole=_between(whole, at_worst[0], at_best[0]),
        by_subset=tuple(_between(p, low[p.name], high[p.name]) for p in parts) if len(parts) > 1 else (),
        only_first=right[0] if right else None,
        only_second=right[1] if right else None,
        mcnemar_p=right[2] if right else None,
        n_both=len(scored),
        n_first_only=sum(key not in second.by_key for key in first.by_key),
        n_second_only=sum(key not in first.by_key for key in second.by_key),
        n_unscored=len(pairs) - len(scored),
        missing=missing,
        suspicion=_suspicion(pairs) if any(missing.values()) else {},
        examples=tuple(_examples(first, second, scored, examples)),
        notes=tuple(notes),
    )


def _never_begun(first: _RunSamples, second: _RunSamples) -> list[tuple[_RunSample, _RunSample]]:
    """Samples of the first run that the second did not get to; one that is finished was of other samples."""
    if second.run.finished:
        return []
    only = [sample for key, sample in first.by_key.items() if key not in second.by_key]
    return [(sample, _RunSample(sample.row, None, NEVER_BEGUN)) for sample in only]


def _missing(first: _RunSamples, second: _RunSamples) -> dict[str, dict[str, int]]:
    """What has no score in each run, by who caused it."""
    found: dict[str, dict[str, int]] = {}
    for name, own, other in (("first", first, second), ("second", second, first)):
        causes = Counter(one.lost for key, one in own.by_key.items() if key in other.by_key and one.lost is not None)
        causes[NEVER_BEGUN] += len(_never_begun(other, own))
        found[name] = added([+causes])
    return found


def _suspicion(pairs: _Pairs) -> dict[str, Any]:
    lookout, runs = Lookout(), ("the first run", "the second run")
    for pair in pairs:
        row = pair[0].row
        lost = [name for name, sample in zip(runs, pair, strict=True) if sample.lost]
        traits = labelled_traits(row.subset, row.prompt, row.answers, [label == "chosen" for label in row.labels])
        lookout.add(bool(lost), traits, lost, runs)
    return lookout.found()


def _between(part: Difference, worst: Difference, best: Difference) -> Difference:
    """A difference with what it would be at worst and at best for the second run."""
    low, high = worst.paired.difference, best.paired.difference
    bounds = None if low is None or high is None else Interval(low, high)
    return replace(part, bounds=bounds, at_worst=worst.paired.interval)


def _differences(
    first: _RunSamples, second: _RunSamples, pairs: _Pairs, seed: int
) -> tuple[Difference, list[Difference], list[str], _Pairs]:
    """The headline, the subsets and notes on them, of the pairs that both runs have a credit of, and those pairs."""
    scored = [(a, b) for a, b in pairs if a.credit is not None and b.credit is not None]
    subsets: defaultdict[str, list[tuple[_RunSample, _RunSample]]] = defaultdict(list)
    for pair in scored:
        subsets[pair[0].row.subset].append(pair)
    reported = first.run.report.get("by_subset")
    rules = reported if isinstance(reported, Mapping) else {}
    ties = {name for name in subsets if rules.get(name or UNNAMED, {}).get("rule") == TIES_RULE}
    parts, means = [], dict[str, ClusteredMean]()
    for name in sorted(subsets):
        sides = _means(subsets[name])
        found = None if name in ties else _mean_difference(subsets[name])
        if name in ties and (of_ties := _ties(subsets[name], seed)):  # they are no mean of credits
            found, *sides = of_ties
        if found is not None:
            means[name] = found
            parts.append(_difference(name or UNNAMED, sides, found, len(subsets[name])))
    whole, notes = _headline(first, scored, subsets, means, parts, ties)
    return whole, parts, notes, scored


def _by_cluster(pairs: _Pairs) -> _Pairs:
    groups: defaultdict[tuple[str, int], list[tuple[_RunSample, _RunSample]]] = defaultdict(list)
    for pair in pairs:
        groups[pair[0].row.subset, pair[0].row.cluster].append(pair)

    def together(samples: Sequence[_RunSample]) -> _RunSample:
        lost = next((sample.lost for sample in samples if sample.lost is not None), None)
        return _RunSample(samples[0].row, _mean(sample.credit for sample in samples), lost)

    return [(together([a for a, _ in group]), together([b for _, b in group])) for group in groups.values()]


def _mean_difference(
    pairs: _Pairs, strata: Sequence[str] | None = None, weights: Mapping[str, float] | None = None
) -> ClusteredMean | None:
    """Second minus first."""
    names = [a.row.cluster or a.row.id for a, _ in pairs]
    credits = [b.credit for _, b in pairs], [a.credit for a, _ in pairs]
    return paired_mean(*credits, clusters=names, strata=strata, weights=weights)


def _ties(pairs: _Pairs, seed: int) -> tuple[ClusteredMean, float, float] | None:
    rows = [
        [(sample.row.id, sample.row.scores, [label == "chosen" for label in sample.row.labels]) for sample in side]
        for side in zip(*pairs, strict=True)
    ]
    found = ties_difference(rows[1], rows[0], seed)
    return found and (found[0], found[2], found[1])


def _difference(name: str, sides: Sequence[float | None], found: ClusteredMean, n: int) -> Difference:
    return Difference(name, sides[0], sides[1], described(found)._replace(n=n))


def _means(pairs: _Pairs) -> list[float | None]:
    """The mean credit in each run."""
    return [_mean(sample.credit for sample in side) for side in zip(*pairs, strict=True)]


def _mean(credits: Iterable[float | None]) -> float | None:
    known = [credit for credit in credits if credit is not None]
    return math.fsum(known) / len(known) if known else None


def _headline(
    first: _RunSamples,
    scored: _Pairs,
    subsets: Mapping[str, _Pairs],
    means: Mapping[str, ClusteredMean],
    parts: Sequence[Difference],
    ties: set[str],
) -> tuple[Difference, list[str]]:
    """The difference of the rule's own figure, where it is a mean of credits; else that of the mean credit, with a note."""
    if not scored:
        nothing = PairedDifference(None, None, None, None, 0, 0, 0)
        return Difference("all", None, None, nothing), ["no sample is scored in both runs"]
    linear = [name for name in means if name not in ties]
    found, weights = _weights(first, subsets, linear)
    if len(linear) < len(means):
        pairs = [pair for name in linear for pair in subsets[name]]
        part = _mean_difference(pairs, [a.row.subset for a, _ in pairs]) if pairs else None
        known = [] if part is None else [(part, float(len(linear)))]
        whole = combined(known + [(means[name], 1.0) for name in means if name in ties])
        sides = [_mean(side) for side in zip(*((one.first, one.second) for one in parts), strict=True)]
    elif weights is None:
        whole, sides = _mean_difference(scored), _means(scored)
    else:
        whole, total = _mean_difference(scored, [a.row.subset for a, _ in scored], weights), math.fsum(weights.values())
        of_subsets = {name: _means(subsets[name]) for name in weights}
        sides = [math.fsum(w * (of_subsets[name][k] or 0.0) for name, w in weights.items()) / total for k in (0, 1)]
    assert whole is not None
    note = "the rule's figure is no mean of credits; the headline here is the mean credit per sample"
    return _difference("all", sides, whole, len(scored)), [] if found else [note]


def _weights(samples: _RunSamples, subsets: Mapping[str, _Pairs], names: Sequence[str]) -> tuple[bool, dict[str, float] | None]:
    """Whether the rule's score is a mean of credits, and how it weighs subsets: as its report says, all samples alike (None), or
    all subsets alike, whichever gives its score.
    """
    report = samples.run.report
    extra = report.get("extra")
    given = extra.get("subset_weights") if isinstance(extra, Mapping) else None
    if isinstance(given, Mapping) and (weights := {name: float(given[name]) for name in names if name in given}):
        return True, weights
    alike = dict.fromkeys(names, 1.0)
    if len(names) < len(subsets):
        return True, alike
    score, credits = report.get("score"), defaultdict[str, list[float]](list)
    for sample in samples.by_key.values():
        if sample.credit is not None:
            credits[sample.row.subset].append(sample.credit)
    if not isinstance(score, (int, float)) or not credits:
        return False, None
    for wanted, values in ((None, [c for part in credits.values() for c in part]), (alike, map(_mean, credits.values()))):
        if abs((_mean(values) or 0.0) - score) < 1e-9:
            return True, wanted
    return False, None


def _mcnemar(scored: _Pairs) -> tuple[int, int, float] | None:
    if not scored or any(sample.credit not in (0.0, 1.0) for pair in scored for sample in pair):
        return None
    found = mcnemar([a.credit == 1.0 for a, _ in scored], [b.credit == 1.0 for _, b in scored])
    return found.only_first, found.only_second, found.p_value


def _examples(first: _RunSamples, second: _RunSamples, scored: _Pairs, wanted: int) -> Iterable[dict[str, Any]]:
    """Samples on which the runs disagree most, as many of either direction."""
    chosen: list[tuple[float, _RunSample, _RunSample]] = []
    for turn in (1.0, -1.0):
        apart = ((turn * ((b.credit or 0.0) - (a.credit or 0.0)), a, b) for a, b in scored)
        # of equal ones the first
        chosen += nlargest(wanted, (found for found in apart if found[0] > 0), key=lambda found: found[0])
    texts = first.rows({a.row.place for _, a, _ in chosen}), second.rows({b.row.place for _, _, b in chosen})
    for _, a, b in chosen:
        row = texts[0][a.row.place]
        yield {
            "id": a.row.id,
            "subset": a.row.subset,
            "better": "second" if (b.credit or 0.0) > (a.credit or 0.0) else "first",
            "prompt": ended(row.prompt, LONGEST),
            "answers": [ended(text, LONGEST) for text in row.answers],
            "labels": list(a.row.labels),
            "first": _said(a, row),
            "second": _said(b, texts[1][b.row.place]),
        }


def _said(sample: _RunSample, row: SampleRow) -> dict[str, Any]:
    reasons = [ended(text or "", LONGEST) for text in row.reasons]
    return {"credit": sample.credit, "scores": list(sample.row.scores), "reasons": reasons}


def _adjusted(found: Sequence[RunComparison]) -> list[RunComparison]:
    """The comparisons with p-values corrected for all that were made: headlines together, and subsets together."""

    def corrected(parts: Sequence[Difference]) -> list[Difference]:
        known = [part.paired.p_value for part in parts if part.paired.p_value is not None]
        values = iter(holm(known))
        return [part if part.paired.p_value is None else replace(part, p_adjusted=next(values)) for part in parts]

    wholes = corrected([one.whole for one in found])
    subsets = iter(corrected([part for one in found for part in one.by_subset]))
    return [
        replace(one, whole=whole, by_subset=tuple(next(subsets) for _ in one.by_subset))
        for one, whole in zip(found, wholes, strict=True)
    ]


def left_out(found: RunComparison) -> str:
    """What has no score in one of two runs, and who caused it; empty where nothing is missing."""
    said = [f"{sum(own.values()):,} of the {name} ({by_cause(own)})" for name, own in found.missing.items() if own]
    return f"missing: {', '.join(said)}" if said else ""
