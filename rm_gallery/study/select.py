"""Judges compared on the same labels: how often each agrees with people, which differences are shown,
which judges are as good as another, and which cannot be told from a person.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from operator import itemgetter
from typing import Any, TypeVar

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.grading_runner import GradingRunner
from rm_gallery.core.stats import Bools, Floats, Integers, np
from rm_gallery.core.stats.agreement import (
    label_kappa_estimate,
    spearman_estimate,
    spearman_filled,
)
from rm_gallery.core.stats.columns import cluster_numbers, crossed
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import PairedDifference, described, holm
from rm_gallery.core.stats.uncertainty import (
    NO_INTERVAL,
    Estimate,
    clustered_mean,
    combination,
    difference,
    heterogeneity_between,
    max_t,
    nearest,
)
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Record, plain
from rm_gallery.gallery.benchmarks.judgements import NOT_ASKED
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.study.cards import counts_of
from rm_gallery.study.compare import LEVEL
from rm_gallery.study.grading import (
    GradedRow,
    GradeReport,
    cause_of,
    grade,
    row_figure,
    status_of,
)
from rm_gallery.study.runs import RowChange, without_empty
from rm_gallery.study.table import middle_of

MEASURES = ("accuracy", "kappa", "spearman")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class JudgeFigure(Record):
    """How one judge agrees with the labels.

    Attributes:
        name: the grader's, as the config has it.
        n: rows with a label.
        n_scored: those of them that it judged.
        missing: those that it did not, by who caused it; `lost` has them by what became of them.
        figures: by measure, the value over the rows that it judged; what is not defined is absent.
        ci95: by measure, its 95 % interval, over clusters.
        worst: by measure, the lowest value that missing verdicts or scores could give it; as
            `figures` where nothing is missing.
        threshold: from where on a score passes; None where labels are no verdicts.
        tokens: used by its calls, as far as they were counted.
        constant: whether it gives every answer the same verdict, or the same score where labels are
            no verdicts. Such a judge agrees with labels as often as the larger class occurs, and
            tells nothing; it is never recommended.
        n_clusters: clusters of the rows that it judged.
    """

    name: str
    n: int
    n_scored: int
    missing: Mapping[str, int]
    lost: Mapping[str, int]
    figures: Mapping[str, float]
    ci95: Mapping[str, Interval]
    worst: Mapping[str, float]
    threshold: float | None = None
    tokens: int = 0
    constant: bool = False
    n_clusters: int = 0

    @property
    def n_missing(self) -> int:
        """Rows with a label that it did not judge."""
        return self.n - self.n_scored

    def missed(self, measure: str, least: float, surely: bool) -> str:
        """Why it does not reach the least of a measure, as in `JudgeSelection.missed`."""
        if measure not in self.figures:
            return f"there is no {measure} of {self.name} with these labels, which should reach {least:g}"
        if measure not in self.worst:
            return (
                f"{self.name} has no score for {self.n_missing} of {self.n} rows, so that its "
                f"{measure} is not known at worst"
            )
        figure, value = self.figures[measure], self.worst[measure]
        at = " at worst" if value < figure else ""
        if surely and measure not in self.ci95:
            return f"the {measure} of {self.name} has {NO_INTERVAL}, so that it may lie below {least:g}"
        if surely:
            value -= figure - self.ci95[measure].low
        end = "the lower end of the 95 % interval of " if surely else ""
        what = f"{end}the {measure} of {self.name} is {value:.3g}{at}, below {least:g}"
        return what if value < least else ""


Limits = tuple[Estimate, Estimate]
"""A difference with what is missing at worst for the one that is said to be better, and at best."""


@dataclass(frozen=True)
class JudgeDifference(Record):
    """By how much more a judge agrees with the labels than another, or than a second person.

    Attributes:
        paired: over the rows that all of them judged.
        limits: over all labelled rows, with what the judge did not judge at worst and what the
            other did not at best, and the other way round; None where there is no such figure.
        p_adjusted: p-value of that of the two nearer to no difference, corrected for all pairs by
            max-T: they are of the same rows.
        heterogeneity: p-value of "it is the same in all subsets"; None where nobody knows.
    """

    paired: PairedDifference
    limits: Limits | None
    p_adjusted: float | None = None
    heterogeneity: float | None = None

    @property
    def ends(self) -> Interval:
        """The values of `limits`; of a difference without a figure nothing is known."""
        if self.limits is None:
            return Interval(-math.inf, math.inf)
        return Interval(*(end.estimate for end in self.limits))

    @property
    def shown(self) -> int | None:
        """1 where the judge is shown to agree more, -1 the other, whatever the missing scores were
        and p-values corrected; 0 for neither, None where nothing can be tested.
        """
        if self.p_adjusted is None:
            return None
        return (self.p_adjusted < LEVEL) * ((self.ends.low > 0.0) - (self.ends.high < 0.0))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        figures = {
            "difference": self.paired.difference,
            "limits": self.ends,
            "ci95": self.paired.interval,
            "p_adjusted": self.p_adjusted,
            "needed": self.paired.needed,
            "detectable": self.paired.detectable,
            "heterogeneity": self.heterogeneity,
        }
        return {name: plain(value) for name, value in figures.items()}


@dataclass(frozen=True)
class Person(Record):
    """A second person held against the labels as the judges are, on the rows that both labelled.

    Attributes:
        figure: how the two people agree.
        measure: kappa for labels of 0 and 1, else Spearman's correlation.
        differences: by judge, its measure minus the person's, on the same rows.
    """

    figure: JudgeFigure
    measure: str
    differences: Mapping[str, JudgeDifference]

    @property
    def verdict(self) -> str:
        """How people agree, and which judges cannot be told from them."""
        if self.measure not in self.figure.figures:
            return f" Of {self.figure.name} there is no {self.measure} with the labels."
        agreed = f"{_with_interval(self.figure, self.measure)}, {self.figure.n} rows"
        text = f" People agree with each other by {self.measure} {agreed}."
        for side, claim in _BESIDE_PEOPLE.items():
            judges = {name: one for name, one in self.differences.items() if one.shown == side}
            reach = _reach(judges.values(), lambda size: f"{size:.3f}") if side == 0 else ""
            text += f" {claim}: {', '.join(judges)}{reach}." if judges else ""
        return text


_BESIDE_PEOPLE = {
    1: "Agree more than people",
    0: "Cannot be told from a person",
    -1: "Agree less than people",
    None: "Cannot be compared with people",
}


def _reach(differences: Iterable[JudgeDifference], size: Callable[[float], str]) -> str:
    """The smallest difference that rows which show none would show; empty where nobody knows."""
    sizes = [one.paired.detectable for one in differences if one.paired.detectable is not None]
    return f"; these rows would show a difference of {size(max(sizes))}" if sizes else ""


@dataclass(frozen=True)
class JudgeSelection:
    """Judges compared on the same labels; one is shown to be better, or as good, where it is so even
    with what it did not judge at worst.

    Attributes:
        measure: what they are compared by: accuracy for labels of 0 and 1, else Spearman's
            correlation.
        judges: in the config's order; the first one is the judge in use.
        n_shared: labelled rows that all of them judged.
        shared: by judge, the measure over these rows.
        differences: by (first, second), second minus first.
        report: what the graders said, and what it cost.
        margin: by how much less a judge that is as good may agree; None where nobody asked.
        person: the labels of a second person, where there are any.
        by: the column of subsets, where there is one.
    """

    measure: str
    judges: tuple[JudgeFigure, ...]
    n_shared: int
    shared: Mapping[str, float]
    differences: Mapping[tuple[str, str], JudgeDifference]
    report: GradeReport = field(repr=False)
    margin: float | None = None
    person: Person | None = None
    by: str | None = None

    @property
    def correction(self) -> str | None:
        """How p-values are corrected; None for one pair, which needs no correction."""
        n = len(self.differences)
        return f"max-T over {n} pairs" if n > 1 else None

    @property
    def best(self) -> str | None:
        """The judge with the highest measure at worst of those that tell answers apart; of equal
        ones the first.
        """
        return None if self.leading.constant else self.leading.name

    @property
    def verdict(self) -> str:
        """Which judge to take, or why that cannot be told; and which ones give every answer the
        same verdict.
        """
        if not self.n_shared:
            return "No labelled row was judged by all of them, so nothing can be said."
        constant = [judge.name for judge in self.judges if judge.constant]
        named = "".join(f" {name} gives every answer the same verdict." for name in constant)
        if self.best is None:
            return f"No judge can be recommended.{named}"
        silent = [
            f"{judge.name} has none for {judge.n_missing} of {judge.n} rows"
            for judge in self.judges
            if judge.missing
        ]
        missing = f" Missing scores count at worst: {', '.join(silent)}." if silent else ""
        recommended = self._recommended(self.judges[0].name, self.best, constant)
        person = "" if self.person is None else self.person.verdict
        return f"{recommended}{missing}{named}{self._as_good_text()}{person}{self._subsets_text()}"

    def _recommended(self, used: str, best: str, constant: Sequence[str]) -> str:
        if best == used:
            rivals = {
                other: difference
                for (first, other), difference in self.differences.items()
                if first == used and other not in constant and difference.shown != -1
            }
            note = (
                f"; {', '.join(rivals)} cannot be told apart from it with {self.judges[0].n} rows"
                f"{_reach(rivals.values(), self._size)}"
            )
            return (
                f"Keep {used}: none {'that tells answers apart ' if constant else ''}agrees more "
                f"with the labels{note if rivals else ''}."
            )
        difference = self.differences[used, best]
        paired, ends = difference.paired, difference.ends
        gap, worst, top = map(self._points, (paired.difference, *ends))
        interval = ", ".join(map(self._points, paired.interval or ())) or NO_INTERVAL
        evidence = f"{gap} [{interval}], {paired.n} rows"
        if ends.low < ends.high:
            evidence += f" that both judged, {worst} to {top} whatever the missing scores were"
        if difference.shown == 1:
            how = f" ({self.correction})" if self.correction else ""
            p = f"p = {difference.p_adjusted:.2g}{how}"
            return f"Take {best}: it agrees more with the labels than {used}, by {evidence}, {p}."
        more = (
            f"; about {paired.needed:,} rows would show a difference of this size"
            if paired.needed
            else ""
        )
        more += _reach([difference], self._size)
        if used in constant:
            return (
                f"{used} cannot be recommended, and {best} is not shown to agree more with the "
                f"labels: {evidence}{more}."
            )
        return f"{best} and {used} cannot be told apart: {evidence}{more}."

    def _limits(self, first: str, second: str) -> Limits | None:
        """Second minus first at worst and at best."""
        if (first, second) in self.differences:
            return self.differences[first, second].limits
        turned = self.differences[second, first].limits
        return turned and (_turned(turned[1]), _turned(turned[0]))

    @property
    def as_good(self) -> Mapping[str, Mapping[str, bool]]:
        """By judge (the one in use and the best), the others that are shown to agree less by no more
        than the margin, and whether they are equivalent: neither more by no more than that.

        Missing scores are at worst, for equivalence at best as well. The claims about one judge hold
        together at 2.5 % on one side (max-T).
        """
        margin, as_good = self.margin, dict[str, dict[str, bool]]()
        if margin is None:
            return as_good
        able = [judge.name for judge in self.judges if not judge.constant]
        for name in dict.fromkeys((self.judges[0].name, self.leading.name)):
            limits = {other: self._limits(name, other) for other in able if other != name}
            known = {other: pair for other, pair in limits.items() if pair is not None}
            not_less = _above([low for low, _ in known.values()], -margin)
            not_more = _above([_turned(high) for _, high in known.values()], -margin)
            sides = zip(known, not_less, not_more, strict=True)
            as_good[name] = {other: more for other, less, more in sides if less}
        return as_good

    def _as_good_text(self) -> str:
        text = ""
        for name, others in self.as_good.items():
            same = [f"{other}{' (equivalent)' if equal else ''}" for other, equal in others.items()]
            shown = ", ".join(same) or "none"
            text += (
                f" Shown to be as good as {name} within {self._size(self.margin or 0.0)}: {shown}."
            )
        return text

    def _subsets_text(self) -> str:
        """Whether a difference of judges differs between subsets, p-values corrected (Holm)."""
        if self.by is None:
            return ""
        tested = {
            " and ".join(pair): difference.heterogeneity
            for pair, difference in self.differences.items()
            if difference.heterogeneity is not None
        }
        if not tested:
            return (
                f" Whether a difference differs by {self.by} cannot be told: that needs two values or "
                f"more with clusters of their own."
            )
        adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
        differ = [f"{pair} (p = {p:.2g})" for pair, p in adjusted.items() if p < LEVEL]
        if differ:
            return f" The difference differs by {self.by}: {', '.join(differ)}."
        return f" No difference is shown to differ by {self.by} (least p = {min(adjusted.values()):.2g})."

    def _size(self, value: float) -> str:
        return self._points(value).lstrip("+")

    def _points(self, value: float | None) -> str:
        if value is None:
            return "-"
        return f"{100 * value:+.1f} points" if self.measure == "accuracy" else f"{value:+.3f}"

    def missed(
        self, least: Mapping[str, float], *, name: str | None = None, surely: bool = False
    ) -> list[str]:
        """Why a judge does not reach the least of a measure, with what it did not judge counted as
        wrong; nothing where it does.

        Args:
            least: by measure.
            name: of the judge; the first one by default.
            surely: hold the lower end of the 95 % interval to it, moved down as far as the worst
                case lies below the figure.

        Raises:
            ConfigError: a measure or a judge that there is not.
        """
        known = {judge.name: judge for judge in self.judges}
        if name is not None and name not in known:
            raise ConfigError(
                f"there is no judge {name!r:.60} to hold to a limit; the config has "
                f"{', '.join(known)}."
            )
        judge = known[name or self.judges[0].name]
        problems = (judge.missed(measure, limit, surely) for measure, limit in least.items())
        return [problem for problem in problems if problem]

    @property
    def leading(self) -> JudgeFigure:
        """The judge that figure and rows of the run folder are of: the best, else the first."""
        able = [judge for judge in self.judges if not judge.constant]
        return max(
            able or self.judges[:1], key=lambda judge: judge.worst.get(self.measure, -math.inf)
        )

    def row_change(self, graded: Sequence[GradedRow]) -> RowChange:
        """What the run folder keeps of a row: what the leading judge says, and as its credit
        whether that is the label; a row without a label is in no figure.
        """
        by_key, judge = defaultdict[str, deque[GradedRow]](deque), self.leading
        for row in graded:
            by_key[row.key].append(row)

        def change(record: dict[str, Any]) -> dict[str, Any]:
            row = by_key[record["key"]].popleft()
            result, label = row.results[judge.name], row.labels[judge.name]
            of_the_first = {"credit": None, "agrees": None}
            kept = {**record, **of_the_first, **row_figure(row.results, judge.name)}
            if label is None:
                issue = ["unscored", NOT_ASKED, "the row has no label", None]
                kept |= {"status": "unscored", "issues": [issue, *kept["issues"]]}
            elif judge.threshold is not None and result.kind == "score":
                kept["credit"] = float(result.passed(judge.threshold) == (label > 0.5))
            return without_empty(kept)

        return change

    def figures_kept(self) -> dict[str, Any]:
        """What the run folder keeps: the verdict, and how far each judge agrees with the labels;
        the headline is the best judge's.
        """
        measure = "kappa" if self.measure == "accuracy" else self.measure
        rule = "label_agreement" if self.measure == "accuracy" else "label_correlation"
        parts = dict[str, dict[str, Any]]()
        for judge in self.judges:
            best = value = judge.figures.get(self.measure)
            if value is not None and judge.missing:  # as if what is missing were as the labels are
                hits = value * judge.n_scored + judge.n_missing
                best = hits / judge.n if self.measure == "accuracy" else 1.0
            bounds = judge.worst.get(self.measure), best
            parts[judge.name] = {
                **counts_of(judge.n_scored, judge.lost),
                "rule": rule,
                "score": value,
                "ci95": judge.ci95.get(self.measure),
                "missing": judge.missing,
                "bounds": None if None in bounds else bounds,
            }
        none = {"score": None, "ci95": None, "bounds": None} if self.best is None else {}
        graded = self.report.to_dict()
        head = "judge endpoint data benchmark reasons calls cached usage seconds stopped constant"
        figures = {
            **{name: graded.get(name) for name in head.split()},
            **parts[self.leading.name],
            **none,
            "n_clusters": self.leading.n_clusters,
            "by_subset": parts,
            "reward": self.best or ", ".join(parts),
            "version": f"{self.measure} with labels",
            "extra": {
                "verdict": self.verdict,
                "shared": self.shared,
                "headline": self.leading.name,
                "agreement": {
                    "name": self.leading.name,
                    "n": self.leading.n_scored,
                    measure: self.leading.figures.get(measure),
                    f"{measure}_ci95": self.leading.ci95.get(measure),
                },
            },
        }
        kept = {name: plain(value) for name, value in figures.items()}
        return {"worth": worth(kept), **kept}

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        pairs = [
            {"first": a, "second": b, **difference.to_dict()}
            for (a, b), difference in self.differences.items()
        ]
        names = "measure n_shared shared best verdict judges correction margin as_good person by"
        return {
            "worth": self.figures_kept()["worth"],
            **{name: plain(getattr(self, name)) for name in names.split()},
            "differences": pairs,
            "report": self.report.to_dict(),
        }

    def rows(self) -> list[list[str]]:
        """A table for people: a head and a row per judge."""
        measures = [
            name for name in MEASURES if any(name in judge.figures for judge in self.judges)
        ]
        shown = (f"{name} (95 %)" for name in measures)
        table = [["judge", *shown, "on shared rows", "judged", "missing", "tokens"]]
        people = () if self.person is None else (self.person.figure,)
        for judge in (*self.judges, *people):
            figures = [_with_interval(judge, name) for name in measures]
            lost = ", ".join(f"{cause} {n}" for cause, n in judge.missing.items()) or "0"
            shared = "-" if judge.name not in self.shared else f"{self.shared[judge.name]:.3f}"
            table.append(
                [
                    judge.name,
                    *figures,
                    shared,
                    f"{judge.n_scored} of {judge.n}",
                    lost,
                    f"{judge.tokens:,}",
                ]
            )
        return table


def _with_interval(judge: JudgeFigure, measure: str) -> str:
    if measure not in judge.figures:
        return "-"
    ci = judge.ci95.get(measure)
    ends = NO_INTERVAL if ci is None else f"{ci.low:.3f}, {ci.high:.3f}"
    return f"{judge.figures[measure]:.3f} [{ends}]"


def _turned(figure: Estimate) -> Estimate:
    return combination([(figure, -1.0)])


def _above(figures: Sequence[Estimate], value: float) -> list[bool]:
    """Which figures of the same rows are shown to lie above a value, corrected for their number."""
    return [
        figure.estimate > value and p is not None and p < LEVEL
        for figure, p in zip(figures, max_t(figures, value), strict=True)
    ]


@library_loop.blocks
def judge_select(
    runner: GradingRunner,
    data: Any,
    labels: str,
    *,
    second_labels: str | None = None,
    by: str | None = None,
    as_good_within: float | None = None,
    **arguments: Any,
) -> JudgeSelection:
    """Grade the rows of a data set with every judge, and compare how they agree with people's
    labels on the same rows.

    Args:
        runner: the judges, as graders by name; the first is the one in use.
        data: as for `GradingRunner.run`.
        labels: the column of labels: 0 and 1 (true and false, pass and fail), which a score is held
            against at the grader's threshold, else the middle of its range; or numbers, of which
            the order counts.
        second_labels: the column of a second person's labels, whose agreement with the first is what
            judges can reach.
        by: the column of subsets that a difference of judges may differ between.
        as_good_within: points (hundredths of a correlation) by which a judge that is as good as
            another may agree less.
        **arguments: `cluster`, `limit`, `seed`, `options` and run options, as in
            `rm_gallery.study.grading.grade`.

    Raises:
        ConfigError: fewer than two judges, no labels, a margin that is none, or as `grade` says.
    """
    names = list(runner.grader_configs)
    if len(names) < 2:
        raise ConfigError(
            f"judges are compared with each other; found {len(names)}, name two or more. What one is "
            f"worth against people say `rm-gallery score` and `winrate` with --labels."
        )
    for name, config in runner.grader_configs.items():
        if config.grader.compares:
            raise ConfigError(
                f"{name} ranks answers; judges are compared by scores of single answers, so leave "
                f"it out."
            )
    if as_good_within is not None and not 0.0 < as_good_within < 100.0:
        raise ConfigError(
            f"as-good-within is {as_good_within:g}; give points above 0 and below 100, such as 3."
        )
    graded: list[GradedRow] = []
    selected: list[JudgeSelection] = []

    def conclude(report: GradeReport) -> tuple[dict[str, Any], RowChange]:
        selection = replace(
            _selected(runner, graded, labels, second_labels, report),
            margin=None if as_good_within is None else as_good_within / 100.0,
            by=by,
        )
        selected.append(selection)
        return selection.figures_kept(), selection.row_change(graded)

    grade(
        runner,
        data,
        labels=labels,
        second_labels=second_labels,
        by=by,
        on_graded=graded.append,
        conclude=conclude,
        **arguments,
    )
    return selected[0]


def _selected(
    runner: GradingRunner,
    graded: Sequence[GradedRow],
    labels: str,
    second_labels: str | None,
    report: GradeReport,
) -> JudgeSelection:
    first = next(iter(runner.grader_configs))
    labelled = [row for row in graded if row.labels[first] is not None]
    if not labelled:
        raise ConfigError(
            f"column {labels!r:.60} holds no label, so that nothing can be compared with it."
        )
    wanted = np.array([row.labels[first] for row in labelled], dtype=np.float64)
    rows = _Labelled(wanted, cluster_numbers([row.cluster for row in labelled], len(labelled)))
    verdicts = set(np.unique(wanted)) <= {0.0, 1.0}
    columns = {
        name: _Judge.of(name, config.grader, labelled, verdicts)
        for name, config in runner.grader_configs.items()
    }
    judges = tuple(column.figure(rows) for column in columns.values())
    measure = "accuracy" if verdicts else "spearman"
    shared: Bools = np.all([column.judged for column in columns.values()], axis=0)
    agreed = {
        name: rows[shared].agreement(measure, column.said(measure)[shared])
        for name, column in columns.items()
    }
    subsets = cluster_numbers([row.subset for row in labelled], len(labelled))
    differences = {
        (a, b): rows.compared(measure, columns[a], columns[b], subsets)
        for a, b in combinations(columns, 2)
    }
    person = None
    if second_labels is not None:
        person = _person(rows, columns, second_labels, [row.second_label for row in labelled])
    return JudgeSelection(
        measure,
        judges,
        int(shared.sum()),
        {name: one.estimate for name, one in agreed.items() if one is not None},
        _corrected(differences),
        report,
        person=person,
    )


def _why_lost(name: str, rows: Sequence[GradedRow]) -> str:
    """Why rows have no score of a judge: of the first the whole reason, then what others hold in the
    place of what was found there.
    """
    reasons = {row.results[name].error: row.where for row in reversed(rows)}
    (first, where), *others = reversed(reasons.items())
    more = [f"{at}: {reason.rpartition('found ')[2]}" for reason, at in others[:4]]
    return "; ".join(each.removesuffix(".") for each in [f"{where}, {first}", *more]) + "."


def _corrected(differences: Mapping[K, JudgeDifference]) -> dict[K, JudgeDifference]:
    """Differences of the same rows with p-values corrected for their number."""
    tested = {key: nearest(*one.limits, 0.0) for key, one in differences.items() if one.limits}
    adjusted = dict(zip(tested, max_t(list(tested.values())), strict=True))
    return {key: replace(one, p_adjusted=adjusted.get(key)) for key, one in differences.items()}


def _person(
    rows: _Labelled, columns: Mapping[str, _Judge], name: str, given: Sequence[float | None]
) -> Person:
    """Hold a second person's labels against the first's, and the judges against that."""
    second = np.array(given, dtype=np.float64)
    both: Bools = ~np.isnan(second)
    if not both.any():
        raise ConfigError(f"column {name!r:.60} holds no label beside one of the first person's.")
    verdicts = next(iter(columns.values())).threshold is not None
    strange = second[both & ~np.isin(second, (0.0, 1.0))]
    if verdicts and len(strange):
        raise ConfigError(
            f"column {name!r:.60} holds {strange[0]:g}; beside labels of 0 and 1 those of a second "
            f"person are 0 or 1, too."
        )
    measure, shared = "kappa" if verdicts else "spearman", rows[both]
    threshold = 0.5 if verdicts else None
    about: dict[str, Any] = {"name": name, "missing": {}, "lost": {}, "threshold": threshold}
    person = _Judge(second[both], threshold, about)
    judges = {judge: column.at(both) for judge, column in columns.items()}
    differences = {
        judge: shared.compared(measure, person, column) for judge, column in judges.items()
    }
    return Person(person.figure(shared), measure, _corrected(differences))


@dataclass(frozen=True)
class _Labelled:
    """The labels of rows and the numbers of their clusters."""

    wanted: Floats
    clusters: Integers

    def __getitem__(self, kept: Bools) -> _Labelled:
        return _Labelled(self.wanted[kept], self.clusters[kept])

    def agreement(self, measure: str, said: Floats) -> Estimate | None:
        """How verdicts or scores agree with the labels."""
        if measure == "accuracy":
            return clustered_mean(said == self.wanted, self.clusters)
        if measure == "kappa":
            return label_kappa_estimate(said.tolist(), self.wanted.tolist(), clusters=self.clusters)
        return spearman_estimate(said, self.wanted, clusters=self.clusters)

    def difference(self, measure: str, first: Floats, second: Floats) -> Estimate | None:
        """Second's agreement minus first's."""
        if measure == "accuracy":  # pair by pair, so that what few rows do not show counts once
            more = (second == self.wanted) * 1.0 - (first == self.wanted)
            return clustered_mean(more, self.clusters, bounds=(-1.0, 1.0))
        one, other = (self.agreement(measure, said) for said in (first, second))
        return None if one is None or other is None else difference(other, one)

    def ends(self, measure: str, judge: _Judge) -> tuple[Floats, Floats] | None:
        """What a judge says with what is missing at worst and at best; None without a figure."""
        fillings = [
            (figure.estimate, said)
            for said in judge.filled(measure, self)
            if (figure := self.agreement(measure, said)) is not None
        ]
        if not fillings:
            return None
        return min(fillings, key=itemgetter(0))[1], max(fillings, key=itemgetter(0))[1]

    def limits(self, measure: str, first: _Judge, second: _Judge) -> Limits | None:
        """Second minus first with second's missing ones at worst and first's at best, and the other
        way round.
        """
        one, other = (self.ends(measure, judge) for judge in (first, second))
        if one is None or other is None:
            return None
        low, high = (self.difference(measure, one[1 - k], other[k]) for k in (0, 1))
        return None if low is None or high is None else (low, high)

    def compared(
        self, measure: str, first: _Judge, second: _Judge, subsets: Integers | None = None
    ) -> JudgeDifference:
        """Second minus first on the rows that both judged, with limits over all rows, and whether it
        differs between subsets: of those that share clusters nothing is said, since they are no
        witnesses of their own.
        """
        shared = first.judged & second.judged
        verdicts = (judge.said(measure)[shared] for judge in (first, second))
        gap = self[shared].difference(measure, *verdicts)
        nothing = PairedDifference(None, None, None, None, int(shared.sum()), 0, 0)
        paired, p = nothing if gap is None else described(gap), None
        if subsets is not None and not crossed(self.clusters, subsets):
            inside = (subsets == code for code in np.unique(subsets))
            parts = (self[at].limits(measure, first.at(at), second.at(at)) for at in inside)
            p = heterogeneity_between([part for part in parts if part is not None])
        return JudgeDifference(paired, self.limits(measure, first, second), heterogeneity=p)


@dataclass
class _Judge:
    """A judge's scores of the labelled rows, higher is better; NaN where one is missing."""

    scores: Floats
    threshold: float | None
    """Where a verdict passes, in the same direction."""
    about: Mapping[str, Any]
    """What its figure says beside how it agrees with the labels."""

    @property
    def judged(self) -> Bools:
        """Which rows it judged."""
        return ~np.isnan(self.scores)

    @classmethod
    def of(cls, name: str, grader: BaseReward, rows: Sequence[GradedRow], verdicts: bool) -> _Judge:
        results = [row.results[name] for row in rows]
        turn, threshold = 1.0 if grader.higher_is_better else -1.0, grader.threshold
        if threshold is None:
            ranges = {r.range for r in results if r.kind == "score"} or {grader.score_range}
            threshold = middle_of(*ranges.pop()) if len(ranges) == 1 else None
        if not verdicts:
            threshold = None
        elif threshold is None and not any(result.ok for result in results):
            raise ConfigError(
                f"{name} scored none of the {len(rows)} rows: {_why_lost(name, rows)}"
            )
        elif threshold is None:
            raise ConfigError(
                f"the scores of {name} have no threshold and an open range, so that none is a "
                f"verdict: write `threshold: X` below {name} in the config. What was judged is in "
                f"the cache."
            )
        scores = [turn * r.score if r.kind == "score" else math.nan for r in results]
        lost = [result for result in results if not result.ok]
        about = {
            "name": name,
            "missing": dict(Counter(map(cause_of, lost))),
            "lost": dict(Counter(map(status_of, lost))),
            "threshold": threshold,
            "tokens": int(
                sum(r.usage.get(f"{way}put_tokens", 0) for r in results for way in ("in", "out"))
            ),
        }
        passes = None if threshold is None else turn * threshold
        return cls(np.array(scores, dtype=np.float64), passes, about)

    def at(self, kept: Bools) -> _Judge:
        """The judge on some of the rows."""
        return replace(self, scores=self.scores[kept])

    def said(self, measure: str) -> Floats:
        """Its scores, or for measures of verdicts 1 where it passes an answer and 0 where not."""
        if self.threshold is None or measure == "spearman":
            return self.scores
        return np.where(self.judged, self.scores >= self.threshold, math.nan)

    def filled(self, measure: str, rows: _Labelled) -> Iterable[Floats]:
        """What it says with what is missing filled in, lowest and highest measure among them."""
        said = self.said(measure)
        if self.judged.all():
            return [said]
        if measure == "spearman":
            return [spearman_filled(said, rows.wanted, best=end) for end in (False, True)]
        # accuracy is linear in the verdicts and kappa a ratio of linear functions, so they are at
        # their ends where all that are missing of a label are alike
        return [
            np.where(self.judged, said, np.where(rows.wanted > 0.5, *filling))
            for filling in product((0.0, 1.0), repeat=2)
        ]

    def figure(self, rows: _Labelled) -> JudgeFigure:
        """How it agrees with the labels, on what it judged and with what it did not at worst."""
        known = self.judged
        figures, ci95, worst = dict[str, float](), dict[str, Interval](), dict[str, float]()
        for measure in MEASURES if self.threshold is not None else MEASURES[-1:]:
            one = rows[known].agreement(measure, self.said(measure)[known])
            if one is None:
                continue
            figures[measure] = one.estimate
            if (interval := one.interval()) is not None:
                ci95[measure] = interval
            ends = rows.ends(measure, self)
            lowest = None if ends is None else rows.agreement(measure, ends[0])
            if lowest is not None:
                worst[measure] = lowest.estimate
        main = "kappa" if self.threshold is not None else "spearman"
        n_scored = int(known.sum())
        return JudgeFigure(
            **self.about,
            n=len(self.scores),
            n_scored=n_scored,
            figures=figures,
            ci95=ci95,
            worst=worst,
            constant=n_scored > 1 and len(set(self.said(main)[known])) == 1,
            n_clusters=len(set(rows[known].clusters)),
        )
