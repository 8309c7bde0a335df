"""Judges compared on the same labels: how often each agrees with people, and which differences are
shown.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from typing import Any

from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.grading_runner import GradingRunner
from rm_gallery.core.stats import Bools, Floats, np
from rm_gallery.core.stats.agreement import (
    cohen_kappa,
    cohen_kappa_estimate,
    spearman,
    spearman_estimate,
    spearman_filled,
)
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.significance import PairedDifference, holm, paired_difference
from rm_gallery.core.stats.uncertainty import NO_INTERVAL, Estimate, clustered_mean, difference
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Record, plain
from rm_gallery.gallery.benchmarks.judgements import NOT_ASKED
from rm_gallery.gallery.benchmarks.lead import worth
from rm_gallery.study.cards import counts_of
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


@dataclass(frozen=True)
class JudgeSelection:
    """Judges compared on the same labels; one is shown to be better where it is so even with what
    it did not judge at worst.

    Attributes:
        measure: what they are compared by: accuracy for labels of 0 and 1, else Spearman's
            correlation.
        judges: in the config's order; the first one is the judge in use.
        n_shared: labelled rows that all of them judged.
        shared: by judge, the measure over these rows.
        differences: by (first, second), second minus first over these rows, with a p-value
            corrected for all pairs (Holm). It is that of `limits` nearer to no difference, over all
            labelled rows.
        limits: by (first, second), second minus first over all labelled rows, with what the second
            did not judge at worst and what the first did not at best, and the other way round.
        report: what the graders said, and what it cost.
    """

    measure: str
    judges: tuple[JudgeFigure, ...]
    n_shared: int
    shared: Mapping[str, float]
    differences: Mapping[tuple[str, str], tuple[PairedDifference, float | None]]
    limits: Mapping[tuple[str, str], tuple[float, float]]
    report: GradeReport = field(repr=False)

    @property
    def best(self) -> str | None:
        """The judge with the highest measure at worst of those that tell answers apart; of equal
        ones the first.
        """
        known = {
            judge.name: judge.worst.get(self.measure, -math.inf)
            for judge in self.judges
            if not judge.constant
        }
        return max(known, key=known.__getitem__, default=None)

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
        return f"{self._recommended(self.judges[0].name, self.best, constant)}{missing}{named}"

    def _recommended(self, used: str, best: str, constant: Sequence[str]) -> str:
        if best == used:
            rivals = ", ".join(
                other
                for first, other in self.differences
                if first == used and other not in constant and self._shown(used, other) >= 0
            )
            note = f"; {rivals} cannot be told apart from it with {self.judges[0].n} rows"
            return (
                f"Keep {used}: none {'that tells answers apart ' if constant else ''}agrees more "
                f"with the labels{note if rivals else ''}."
            )
        (difference, p), limits = self.differences[used, best], self._limits(used, best)
        low, high = difference.interval or (math.nan, math.nan)
        shown = (difference.difference, low, high, *limits)
        gap, low_text, high_text, worst, top = map(self._points, shown)
        evidence = f"{gap} [{low_text}, {high_text}], {self.n_shared} rows"
        if limits.low < limits.high:
            evidence += f" that all judged, {worst} to {top} whatever the missing scores were"
        if self._shown(used, best) > 0:
            return f"Take {best}: it agrees more with the labels than {used}, by {evidence}, p = {p:.2g}."
        more = (
            f"; about {difference.needed:,} rows would show a difference of this size"
            if difference.needed
            else ""
        )
        if used in constant:
            return (
                f"{used} cannot be recommended, and {best} is not shown to agree more with the "
                f"labels: {evidence}{more}."
            )
        return f"{best} and {used} cannot be told apart: {evidence}{more}."

    def _points(self, value: float | None) -> str:
        if value is None:
            return "-"
        return f"{100 * value:+.1f} points" if self.measure == "accuracy" else f"{value:+.3f}"

    def _limits(self, first: str, second: str) -> Interval:
        """The limits of a difference; of one without a figure nothing is known."""
        return Interval(*self.limits.get((first, second), (-math.inf, math.inf)))

    def _shown(self, first: str, second: str) -> int:
        """Which judge of a pair is shown to agree more, -1 for the first and 1 for the second, with
        its missing scores at worst, the other's at best, and p-values corrected; 0 for neither.
        """
        _, p = self.differences[first, second]
        low, high = self._limits(first, second)
        return (low > 0.0) - (high < 0.0) if p is not None and p < 0.05 else 0

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
        return next((judge for judge in self.judges if judge.name == self.best), self.judges[0])

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
            kept = {**record, **row_figure(row.results, judge.name)}
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
                "agreement": {
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
            {
                "first": a,
                "second": b,
                "difference": difference.difference,
                "limits": self._limits(a, b),
                "ci95": difference.interval,
                "p_adjusted": p,
                "needed": difference.needed,
            }
            for (a, b), (difference, p) in self.differences.items()
        ]
        names = ("measure", "n_shared", "shared", "best", "verdict", "judges")
        own = {name: plain(getattr(self, name)) for name in names}
        said = {"worth": self.figures_kept()["worth"], **own}
        return {**said, "differences": plain(pairs), "report": self.report.to_dict()}

    def rows(self) -> list[list[str]]:
        """A table for people: a head and a row per judge."""
        measures = [
            name for name in MEASURES if any(name in judge.figures for judge in self.judges)
        ]
        shown = (f"{name} (95 %)" for name in measures)
        table = [["judge", *shown, "on shared rows", "judged", "missing", "tokens"]]
        for judge in self.judges:
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


def judge_select(runner: GradingRunner, data: Any, labels: str, **arguments: Any) -> JudgeSelection:
    """Grade the rows of a data set with every judge, and compare how they agree with people's
    labels on the same rows.

    Args:
        runner: the judges, as graders by name; the first is the one in use.
        data: as for `GradingRunner.run`.
        labels: the column of labels: 0 and 1 (true and false, pass and fail), which a score is held
            against at the grader's threshold, else the middle of its range; or numbers, of which
            the order counts.
        **arguments: `cluster`, `limit`, `seed`, `options` and run options, as in
            `rm_gallery.study.grading.grade`.

    Raises:
        ConfigError: fewer than two judges, no labels, or as `grade` says.
    """
    names = list(runner.grader_configs)
    if len(names) < 2:
        raise ConfigError(
            f"judges are compared with each other; found {len(names)}, give two or more under "
            f"`graders:`."
        )
    for name, config in runner.grader_configs.items():
        if config.grader.compares:
            raise ConfigError(
                f"{name} ranks answers; judges are compared by scores of single answers, so leave "
                f"it out."
            )
    graded: list[GradedRow] = []
    selected: list[JudgeSelection] = []

    def conclude(report: GradeReport) -> tuple[dict[str, Any], RowChange]:
        found = _selected(runner, graded, labels, report)
        selected.append(found)
        return found.figures_kept(), found.row_change(graded)

    grade(runner, data, labels=labels, on_graded=graded.append, conclude=conclude, **arguments)
    return selected[0]


def _selected(
    runner: GradingRunner, graded: Sequence[GradedRow], labels: str, report: GradeReport
) -> JudgeSelection:
    names = list(runner.grader_configs)
    first = names[0]
    labelled = [row for row in graded if row.labels[first] is not None]
    if not labelled:
        raise ConfigError(
            f"column {labels!r:.60} holds no label, so that nothing can be compared with it."
        )
    wanted = np.array([row.labels[first] for row in labelled], dtype=np.float64)
    clusters = [row.cluster for row in labelled]
    verdicts = set(np.unique(wanted)) <= {0.0, 1.0}
    columns = {
        name: _Judge.of(name, config.grader, labelled, verdicts)
        for name, config in runner.grader_configs.items()
    }
    judges = tuple(column.figure(wanted, clusters) for column in columns.values())
    kept: Bools = ~np.any([np.isnan(column.scores) for column in columns.values()], axis=0)
    own = [cluster for cluster, keep in zip(clusters, kept, strict=True) if keep]
    outcomes = {name: column.outcomes(wanted)[kept] for name, column in columns.items()}
    shared = dict[str, float]()
    for name, values in outcomes.items() if kept.any() else ():
        value = values.mean() if verdicts else spearman(values.tolist(), wanted[kept].tolist())
        if value is not None:
            shared[name] = float(value)

    compared = partial(_compared, verdicts)
    worst, best = (
        {name: column.filled(wanted, best=end) for name, column in columns.items()}
        for end in (False, True)
    )
    differences, limits, tested = {}, {}, {}
    for a, b in combinations(names, 2):
        differences[a, b] = compared(outcomes[b], outcomes[a], wanted[kept], own)
        if kept.all():
            at_worst = at_best = differences[a, b]
        else:  # a judge may be silent where it would be wrong
            at_worst = compared(worst[b], best[a], wanted, clusters)
            at_best = compared(best[b], worst[a], wanted, clusters)
        low, high = at_worst.difference, at_best.difference
        p_low, p_high = at_worst.p_value, at_best.p_value
        if low is None or high is None or p_low is None or p_high is None:
            continue
        limits[a, b] = low, high
        tested[a, b] = p_low if kept.all() or low > 0 else p_high if high < 0 else 1.0
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return JudgeSelection(
        "accuracy" if verdicts else "spearman",
        judges,
        int(kept.sum()),
        shared,
        {pair: (one, adjusted.get(pair)) for pair, one in differences.items()},
        limits,
        report,
    )


@dataclass
class _Judge:
    """A judge's scores of the labelled rows, higher is better; NaN where one is missing."""

    name: str
    scores: Floats
    threshold: float | None
    """Where a verdict passes, in the same direction."""
    shown: float | None
    """As the grader has it."""
    missing: Counter[str]
    lost: Counter[str]
    tokens: int

    @classmethod
    def of(cls, name: str, grader: BaseReward, rows: Sequence[GradedRow], verdicts: bool) -> _Judge:
        results = [row.results[name] for row in rows]
        turn, shown = 1.0 if grader.higher_is_better else -1.0, grader.threshold
        if shown is None:
            ranges = {r.range for r in results if r.kind == "score"} or {grader.score_range}
            shown = middle_of(*ranges.pop()) if len(ranges) == 1 else None
        if verdicts and shown is None:
            raise ConfigError(
                f"the scores of {name} have no threshold and an open range, so that none is a "
                f"verdict: write `threshold: X` below {name} in the config. What was judged is in "
                f"the cache."
            )
        return cls(
            name,
            np.array(
                [turn * r.score if r.kind == "score" else math.nan for r in results],
                dtype=np.float64,
            ),
            turn * shown if verdicts and shown is not None else None,
            shown if verdicts else None,
            Counter(cause_of(result) for result in results if not result.ok),
            Counter(status_of(result) for result in results if not result.ok),
            int(sum(r.usage.get(f"{way}put_tokens", 0) for r in results for way in ("in", "out"))),
        )

    def outcomes(self, wanted: Floats) -> Floats:
        """What is compared: scores, or of verdicts 1 where one is the label's, 0 where it is not, not
        a number where it has none.
        """
        if self.threshold is None:
            return self.scores
        right = (self.scores >= self.threshold) == (wanted > 0.5)
        return np.where(np.isnan(self.scores), math.nan, right)

    def filled(self, wanted: Floats, *, best: bool = False) -> Floats:
        """What is compared, with what is missing at worst or at best: verdicts wrong or right,
        scores against or along the labels.
        """
        if self.threshold is None:
            return spearman_filled(self.scores, wanted, best=best)
        return np.nan_to_num(self.outcomes(wanted), nan=float(best))

    def figure(self, wanted: Floats, clusters: Sequence[str]) -> JudgeFigure:
        """How it agrees with the labels, on what it judged and with what it did not at worst."""
        known: Bools = ~np.isnan(self.scores)
        own = [cluster for cluster, keep in zip(clusters, known, strict=True) if keep]
        measured: dict[str, tuple[Estimate | None, float | None]] = {}
        if self.threshold is not None:
            right, passed, should = (
                self.outcomes(wanted),
                self.scores >= self.threshold,
                wanted > 0.5,
            )
            measured["accuracy"] = (
                clustered_mean(right[known], own),
                float(np.nan_to_num(right).mean()),
            )
            kappa = cohen_kappa_estimate(
                passed[known].tolist(), should[known].tolist(), clusters=own
            )
            # kappa is a ratio of linear functions of the verdicts, so it is lowest where all that
            # are missing of a label are alike
            fillings = (
                np.where(known, passed, np.where(should, *filling))
                for filling in product((False, True), repeat=2)
            )
            kappas = [cohen_kappa(filled.tolist(), should.tolist()) for filled in fillings]
            lowest_kappa = min((value for value in kappas if value is not None), default=None)
            measured["kappa"] = kappa, lowest_kappa
        measured["spearman"] = (
            spearman_estimate(self.scores[known], wanted[known], clusters=own),
            spearman(spearman_filled(self.scores, wanted), wanted),
        )
        defined = {measure: one for measure, (one, _) in measured.items() if one is not None}
        figures = {measure: float(one.estimate) for measure, one in defined.items()}
        at_worst = {
            measure: lowest
            for measure, (_, lowest) in measured.items()
            if lowest is not None and measure in figures
        }
        said = self.scores if self.threshold is None else self.scores >= self.threshold
        n = int(known.sum())
        return JudgeFigure(
            self.name,
            len(self.scores),
            n,
            dict(self.missing),
            dict(self.lost),
            figures,
            {measure: ends for measure, one in defined.items() if (ends := one.interval())},
            {**figures, **at_worst} if n == len(known) else at_worst,
            self.shown,
            self.tokens,
            n > 1 and len(set(said[known])) == 1,
            len(set(own)),
        )


def _compared(
    verdicts: bool, first: Floats, second: Floats, wanted: Floats, clusters: Sequence[str]
) -> PairedDifference:
    """First's accuracy minus second's; without verdicts that of their correlations with the labels."""
    if verdicts:
        return paired_difference(first.tolist(), second.tolist(), clusters=clusters)
    one, other = (spearman_estimate(side, wanted, clusters=clusters) for side in (first, second))
    if one is None or other is None:
        return PairedDifference(None, None, None, None, len(wanted), 0, 0)
    gap = difference(one, other)
    return PairedDifference(
        gap.estimate, gap.interval(), gap.p_value(0.0), None, gap.n, gap.n_clusters, 0
    )
