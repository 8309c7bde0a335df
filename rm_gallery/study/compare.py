"""Two or more runs on the same samples: what differs, by subset, with intervals and p-values, and on which samples."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rm_gallery.core.stats.clustered import ClusteredMean, combined
from rm_gallery.core.stats.denominator import NEVER_BEGUN, Lookout, added, labelled_traits
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.paired import PairedDifference, described, holm, mcnemar, paired_mean
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.shown import one_line, told_apart
from rm_gallery.gallery.benchmarks.figures import UNNAMED, by_cause, plain
from rm_gallery.gallery.benchmarks.judgements import worst
from rm_gallery.gallery.benchmarks.ties import TIES_RULE, ties_difference
from rm_gallery.study.opened import OpenRun, SampleRow, open_run
from rm_gallery.study.task import Data

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
        return {
            "name": self.name,
            "first": plain(self.first),
            "second": plain(self.second),
            "difference": plain(found.difference),
            "bounds": plain(self.bounds),
            "ci95": plain(found.interval),
            "p_value": plain(found.p_value),
            "p_adjusted": plain(self.p_adjusted),
            "n": found.n,
            "n_clusters": found.n_clusters,
            "needed": found.needed,
        }


@dataclass(frozen=True)
class Comparison:
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
        shown: dict[str, Any] = {**asdict(self), "whole": self.whole.to_dict()}
        shown["by_subset"] = [part.to_dict() for part in self.by_subset]
        return {key: plain(value) if key not in ("whole", "by_subset") else value for key, value in shown.items()}


def compare(*runs: str | Path | OpenRun, examples: int = EXAMPLES, seed: int = 0) -> list[Comparison]:
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
    reference = _Rows(opened[0])
    found = [_compare(reference, _Rows(other), examples, seed) for other in opened[1:]]
    return _adjusted(found)


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


@dataclass
class _Sample:
    """What one run says about one sample, put together where it was judged in parts."""

    row: SampleRow
    credit: float | None
    lost: str | None = None
    """Who caused that there is no score, where one is missing."""

    def filled(self, right: bool) -> _Sample:
        """As if what is missing were wholly right, or wholly wrong."""
        if self.lost is None:
            return self
        scores = tuple(_HUGE if (label == "chosen") == right else -_HUGE for label in self.row.labels)
        return _Sample(replace(self.row, scores=scores), float(right))


class _Rows:
    """The samples of a run by what makes them the same."""

    def __init__(self, run: OpenRun) -> None:
        self.run = run
        self.by_key: dict[str, _Sample] = {}
        seen: Counter[str] = Counter()
        for row in run.samples():
            whole = str((row.metadata or {}).get("whole_key") or "")
            if whole:  # a sample judged in parts earned its credit with the part that came last
                known = self.by_key.get(whole)
                credit = row.credit if known is None or known.credit is None else known.credit
                status = row.status if known is None else worst((known.row.status, row.status))  # type: ignore[arg-type]
                lost = row.cause or (None if known is None else known.lost)
                merged = replace(row if known is None else known.row, status=status)
                self.by_key[whole] = _Sample(merged, credit, lost if credit is None else None)
                continue
            number = seen[row.key]
            seen[row.key] += 1
            self.by_key[f"{row.key}#{number}" if number else row.key] = _Sample(
                row, row.credit, row.cause if row.credit is None else None
            )

    @property
    def name(self) -> str:
        """The reward and the folder."""
        reward = one_line(str(self.run.report.get("reward") or ""))
        return f"{reward} ({self.run.folder.name})" if reward else self.run.folder.name


def _compare(first: _Rows, second: _Rows, examples: int, seed: int) -> Comparison:
    keys = [key for key in first.by_key if key in second.by_key]
    if not keys:
        raise ConfigError(
            f"{first.run.folder.name} and {second.run.folder.name} have no sample in common; compare runs on the same data."
        )
    pairs = [(first.by_key[key], second.by_key[key]) for key in keys]
    notes: list[str] = []
    if _credited_elsewhere(pairs):
        # the credit of a pair of rows lies with the row that came last, which is another in another run
        pairs = _by_cluster(pairs)
        notes.append("samples of one prompt share a credit and are compared prompt by prompt")
    whole, parts, said, scored = _differences(first.run, second.run, pairs, seed)
    notes += said
    missing = _missing(first, second)
    if any(missing.values()):
        closed_pairs = [*pairs, *_never_begun(first, second)]
        closed_pairs += [(b, a) for a, b in _never_begun(second, first)]
        ends = [
            _differences(first.run, second.run, [(a.filled(not best), b.filled(best)) for a, b in closed_pairs], seed)
            for best in (False, True)
        ]
        whole = _between(whole, ends[0][0], ends[1][0])
        low, high = ({part.name: part for part in end[1]} for end in ends)
        parts = [_between(part, low[part.name], high[part.name]) for part in parts]
    else:
        whole, parts = _between(whole, whole, whole), [_between(part, part, part) for part in parts]
    notes += [
        f"{run.folder.name} is not finished: {run.report.get('stopped') or 'there is no report'}"
        for run in (first.run, second.run)
        if not run.finished
    ]
    for model in sorted({*first.run.served, *second.run.served}):
        before, now = (one_line(run.answered_as(model)) for run in (first.run, second.run))
        if before and now and before != now:
            in_each = f"{before} in {first.run.folder.name} and as {now} in {second.run.folder.name}"
            notes.append(f"{model or 'the model'} answered as {in_each}")
    right = _mcnemar(scored)
    return Comparison(
        first=first.name,
        second=second.name,
        benchmark=str(first.run.report.get("benchmark") or first.run.manifest.get("benchmark") or ""),
        rule=str(first.run.report.get("rule") or ""),
        whole=whole,
        by_subset=tuple(parts) if len(parts) > 1 else (),
        only_first=right[0] if right else None,
        only_second=right[1] if right else None,
        mcnemar_p=right[2] if right else None,
        n_both=len(scored),
        n_first_only=sum(key not in second.by_key for key in first.by_key),
        n_second_only=sum(key not in first.by_key for key in second.by_key),
        n_unscored=len(pairs) - len(scored),
        missing=missing,
        suspicion=_suspicion(pairs) if any(missing.values()) else {},
        examples=tuple(_examples(scored, examples)),
        notes=tuple(notes),
    )


def _never_begun(first: _Rows, second: _Rows) -> list[tuple[_Sample, _Sample]]:
    """Samples of the first run that the second did not get to; one that is finished was of other samples."""
    if second.run.finished:
        return []
    only = [sample for key, sample in first.by_key.items() if key not in second.by_key]
    return [(sample, _Sample(sample.row, None, NEVER_BEGUN)) for sample in only]


def _missing(first: _Rows, second: _Rows) -> dict[str, dict[str, int]]:
    """What has no score in each run, by who caused it."""
    found: dict[str, dict[str, int]] = {}
    for name, own, other in (("first", first, second), ("second", second, first)):
        lost = [sample.lost for key, sample in own.by_key.items() if key in other.by_key]
        causes = Counter(cause for cause in lost if cause is not None)
        causes[NEVER_BEGUN] += len(_never_begun(other, own))
        found[name] = added([+causes])
    return found


def _suspicion(pairs: Sequence[tuple[_Sample, _Sample]]) -> dict[str, Any]:
    lookout = Lookout()
    for one in pairs:
        row = one[0].row
        lost = [name for name, sample in zip(("the first run", "the second run"), one, strict=True) if sample.lost]
        traits = labelled_traits(row.subset, len(row.prompt), row.answers, [label == "chosen" for label in row.labels])
        lookout.add(bool(lost), traits, lost, ("the first run", "the second run"))
    return lookout.found()


def _between(part: Difference, worst: Difference, best: Difference) -> Difference:
    """A difference with what it would be at worst and at best for the second run."""
    low, high = worst.paired.difference, best.paired.difference
    bounds = None if low is None or high is None else Interval(low, high)
    return replace(part, bounds=bounds, at_worst=worst.paired.interval)


def _differences(
    first: OpenRun, second: OpenRun, pairs: Sequence[tuple[_Sample, _Sample]], seed: int
) -> tuple[Difference, list[Difference], list[str], list[tuple[_Sample, _Sample]]]:
    """The headline, the subsets and notes on them, of the pairs that both runs have a credit of, and those pairs."""
    scored = [(a, b) for a, b in pairs if a.credit is not None and b.credit is not None]
    subsets: defaultdict[str, list[tuple[_Sample, _Sample]]] = defaultdict(list)
    for pair in scored:
        subsets[pair[0].row.subset].append(pair)
    ties = {name for name, part in _parts(first).items() if part.get("rule") == TIES_RULE}
    parts, means = [], {}
    for name in sorted(subsets):
        rule = name or UNNAMED
        found = _ties(subsets[name], seed) if rule in ties else _mean_difference(subsets[name])
        if found is not None:
            means[name] = found
            parts.append(_difference(rule, subsets[name], found))
            if rule in ties:  # no mean of credits: the scores are those of the reports
                shown = [_parts(run).get(rule, {}).get("score") for run in (first, second)]
                parts[-1] = replace(parts[-1], first=shown[0], second=shown[1])
    whole, said = _headline(first, second, scored, subsets, means, ties)
    return whole, parts, said, scored


def _credited_elsewhere(pairs: Sequence[tuple[_Sample, _Sample]]) -> bool:
    apart = sum((a.credit is None) != (b.credit is None) and a.row.status == b.row.status == "scored" for a, b in pairs)
    return apart > 0.05 * len(pairs)


def _by_cluster(pairs: Sequence[tuple[_Sample, _Sample]]) -> list[tuple[_Sample, _Sample]]:
    groups: defaultdict[tuple[str, str], list[tuple[_Sample, _Sample]]] = defaultdict(list)
    for pair in pairs:
        groups[pair[0].row.subset, pair[0].row.cluster].append(pair)

    def mean(samples: Iterable[_Sample]) -> _Sample:
        known = list(samples)
        credits = [sample.credit for sample in known if sample.credit is not None]
        lost = next((sample.lost for sample in known if sample.lost is not None), None)
        return _Sample(known[0].row, math.fsum(credits) / len(credits) if credits else None, lost)

    return [(mean(a for a, _ in group), mean(b for _, b in group)) for group in groups.values()]


def _mean_difference(
    pairs: Sequence[tuple[_Sample, _Sample]],
    strata: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> ClusteredMean | None:
    """Second minus first."""
    return paired_mean(
        [b.credit for _, b in pairs],
        [a.credit for a, _ in pairs],
        clusters=[a.row.cluster or a.row.id for a, _ in pairs],
        strata=strata,
        weights=weights,
    )


def _ties(pairs: Sequence[tuple[_Sample, _Sample]], seed: int) -> ClusteredMean | None:
    rows = [
        [(sample.row.id, sample.row.scores, [label == "chosen" for label in sample.row.labels]) for sample in side]
        for side in zip(*pairs, strict=True)
    ]
    return ties_difference(rows[1], rows[0], seed)


def _difference(name: str, pairs: Sequence[tuple[_Sample, _Sample]], found: ClusteredMean) -> Difference:
    scores = [_mean(sample.credit for sample in side) for side in zip(*pairs, strict=True)]
    return Difference(name, scores[0], scores[1], described(found)._replace(n=len(pairs)))


def _mean(credits: Iterable[float | None]) -> float | None:
    known = [credit for credit in credits if credit is not None]
    return math.fsum(known) / len(known) if known else None


def _parts(run: OpenRun) -> Mapping[str, Mapping[str, Any]]:
    found = run.report.get("by_subset")
    return found if isinstance(found, Mapping) else {}


def _headline(
    first: OpenRun,
    second: OpenRun,
    scored: Sequence[tuple[_Sample, _Sample]],
    subsets: Mapping[str, Sequence[tuple[_Sample, _Sample]]],
    means: Mapping[str, ClusteredMean],
    ties: Iterable[str],
) -> tuple[Difference, list[str]]:
    """The difference of the rule's own figure, where it is a mean of credits; else that of the mean credit, with a note."""
    if not scored:
        nothing = PairedDifference(None, None, None, None, 0, 0, 0)
        return Difference("all", None, None, nothing), ["no sample is scored in both runs"]
    plain_subsets = [name for name in means if (name or UNNAMED) not in set(ties)]
    found, weights = _weights(first, subsets, plain_subsets)
    strata = None if weights is None else [a.row.subset for a, _ in scored]
    sides: list[float | None] = []
    for place in (0, 1):
        credits = {name: _mean(pair[place].credit for pair in pairs) for name, pairs in subsets.items()}
        sides.append(
            _mean(pair[place].credit for pair in scored)
            if weights is None
            else math.fsum(weights[name] * (credits[name] or 0.0) for name in weights) / math.fsum(weights.values())
        )
    if len(plain_subsets) == len(means):
        whole = _mean_difference(scored, strata, weights)
    else:
        linear = [pair for name in plain_subsets for pair in subsets[name]]
        parts = [_mean_difference(linear, [a.row.subset for a, _ in linear])] if linear else []
        known = [(part, float(len(plain_subsets))) for part in parts if part is not None]
        whole = combined(known + [(means[name], 1.0) for name in means if name not in plain_subsets])
        sides = [run.report.get("score") for run in (first, second)]
    assert whole is not None
    notes = []
    if not found:
        notes.append("the rule's figure is no mean of credits; the headline here is the mean credit per sample")
    return Difference("all", sides[0], sides[1], described(whole)._replace(n=len(scored))), notes


def _weights(
    run: OpenRun, subsets: Mapping[str, Sequence[tuple[_Sample, _Sample]]], names: Sequence[str]
) -> tuple[bool, dict[str, float] | None]:
    """How the rule weighs subsets: as its report says, all samples alike (None), or all subsets alike, whichever gives its score."""
    extra = run.report.get("extra")
    given = extra.get("subset_weights") if isinstance(extra, Mapping) else None
    if isinstance(given, Mapping):
        weights = {name: float(given[name]) for name in names if name in given}
        if weights:
            return True, weights
    if len(names) < len(subsets):
        return True, dict.fromkeys(names, 1.0)
    score = run.report.get("score")
    credits = defaultdict(list)
    rows = _Rows(run)
    for sample in rows.by_key.values():
        if sample.credit is not None:
            credits[sample.row.subset].append(sample.credit)
    if not isinstance(score, (int, float)) or not credits:
        return False, None
    everything = [credit for part in credits.values() for credit in part]
    if abs(math.fsum(everything) / len(everything) - score) < 1e-9:
        return True, None
    means = [math.fsum(part) / len(part) for part in credits.values()]
    if abs(math.fsum(means) / len(means) - score) < 1e-9:
        return True, dict.fromkeys(names, 1.0)
    return False, None


def _mcnemar(scored: Sequence[tuple[_Sample, _Sample]]) -> tuple[int, int, float] | None:
    if not scored or any(sample.credit not in (0.0, 1.0) for pair in scored for sample in pair):
        return None
    found = mcnemar([a.credit == 1.0 for a, _ in scored], [b.credit == 1.0 for _, b in scored])
    return found.only_first, found.only_second, found.p_value


def _examples(scored: Sequence[tuple[_Sample, _Sample]], wanted: int) -> Iterable[dict[str, Any]]:
    """Samples on which the runs disagree most, as many of either direction."""
    for turn in (1.0, -1.0):
        apart = [(turn * ((b.credit or 0.0) - (a.credit or 0.0)), a, b) for a, b in scored]
        worse = sorted((found for found in apart if found[0] > 0), key=lambda found: -found[0])
        for _, a, b in worse[:wanted]:
            yield {
                "id": a.row.id,
                "subset": a.row.subset,
                "better": "second" if turn > 0 else "first",
                "prompt": _cut(a.row.prompt),
                "answers": [_cut(text) for text in a.row.answers],
                "labels": list(a.row.labels),
                "first": _said(a),
                "second": _said(b),
            }


def _said(sample: _Sample) -> dict[str, Any]:
    return {
        "credit": sample.credit,
        "scores": list(sample.row.scores),
        "reasons": [_cut(text or "") for text in sample.row.reasons],
    }


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _adjusted(found: Sequence[Comparison]) -> list[Comparison]:
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


def check_fits(reference: OpenRun, data: Data) -> None:
    """Raise ConfigError, before anything is paid, where the data or the rule are not those of the run compared with."""
    rule = {"benchmark": data.benchmark.name, "rule": data.benchmark.protocol}
    check_same(reference, OpenRun(Path("this run"), {**rule, **data.identity()}, {}, {}))


def held_against(run: OpenRun, reference: OpenRun, seed: int = 0) -> tuple[bool, str]:
    """Whether a run is worse than the reference, and by how much it differs, what is missing counted at its worst.

    It is worse when the 95 % interval of the paired difference lies wholly below 0: a score that is lower by chance does not
    count, and a large drop on few samples may not either. Samples without a score in this run count as wrong, those without one
    in the reference as right there.

    Raises:
        ConfigError: runs that cannot be compared, or without a sample scored in both.
    """
    found = compare(reference, run, examples=0, seed=seed)[0]
    whole, name = found.whole, reference.folder.name
    if whole.paired.interval is None:
        raise ConfigError(f"{run.folder.name} and {name} have no sample scored in both.")
    missing = left_out(found)
    low, high = (100 * end for end in whole.at_worst or whole.paired.interval)
    n = whole.paired.n
    if high < 0.0:
        worst = whole.bounds.low if whole.bounds is not None else whole.paired.difference or 0.0
        least, _ = told_apart(-high, 0.0, lambda points, digits: f"{points:.{digits}f}", 1)
        digits = len(least.partition(".")[2])
        seen = f"; it is {100 * (whole.paired.difference or 0.0):+.1f} where both have a score, {missing}" if missing else ""
        return True, (
            f"worse than {name} by {-100 * worst:.{digits}f} points{' at worst' if missing else ''} "
            f"(95 % interval {least} to {-low:.{digits}f}, n={n}{seen})"
        )
    low, high = (100 * end for end in whole.paired.interval)
    other = f", {found.n_first_only} samples of {name} not compared" if found.n_first_only else ""
    interval = f"95 % interval {low:+.1f} to {high:+.1f}, n={n}{other}{f', {missing}' if missing else ''}"
    return (
        False,
        f"not shown to be worse than {name}: {100 * (whole.paired.difference or 0.0):+.1f} points ({interval})",
    )


def left_out(found: Comparison) -> str:
    """What has no score in one of two runs, and who caused it; empty where nothing is missing."""
    said = [f"{sum(own.values()):,} of the {name} ({by_cause(own)})" for name, own in found.missing.items() if own]
    return f"missing: {', '.join(said)}" if said else ""


def reference_run(path: str | Path, option: str = "--fail-if-worse-than") -> OpenRun:
    """The run that another is to be held against; ConfigError, before anything is paid, where there is none."""
    try:
        found = open_run(path)
    except DataError as error:
        raise ConfigError(f"{option}: {error}") from None
    if next(found.samples(), None) is None:
        raise ConfigError(f"{option}: {path} holds no samples; make it with eval or bench and --out RUN.")
    if not found.finished:
        why = str(found.report.get("stopped") or "there is no report").partition(". ")[0]
        raise ConfigError(f"{option}: {path} is not finished ({why}); finish it first with the command that made it.")
    return found
