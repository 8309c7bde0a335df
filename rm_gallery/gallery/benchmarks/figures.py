"""The result of scoring a benchmark: a figure that carries its rule, its counts, its interval and
what was judged with.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.file import as_json, write_whole
from rm_gallery.core.utils.shown import one_line
from rm_gallery.core.utils.svg import Plot, forest
from rm_gallery.gallery.benchmarks.lead import corrected_figure, whole_name, worth

if TYPE_CHECKING:
    import pandas as pd

    from rm_gallery.core.stats.uncertainty import Estimate

COUNTS = ("n", "n_scored", "n_unscored", "n_failed", "n_stopped")
UNNAMED = "(no subset)"
UNLESS_EMPTY = ("extra", "n_clusters", "detectable", "lengths", "constant")
Extra = dict[str, Any]
"""Further figures, by name."""

RULES: Mapping[str, str] = {
    "pair_strict": "share of pairs whose chosen answer scores strictly higher; equal scores are wrong",
    "best_of_n_tie_credit": (
        "the chosen answer has to score highest; k answers tied at the top share the point, 1/k "
        "each"
    ),
    "ties_composite": (
        "0.30 tied accuracy + 0.30 ref accuracy + 0.20 preferred + 0.20 preferred hard + 0.01 "
        "margin"
    ),
    "all_losers_beaten": "share of lists whose best answer scores strictly higher than every loser",
    "two_game_sign": (
        "both orders are played; correct when right verdicts outnumber wrong ones, a tie counts "
        "for neither"
    ),
    "mean_of_orders": (
        "both orders are played; the accuracy of each, averaged; an equal rating is right in one "
        "of them"
    ),
    "both_orders": "share of pairs whose verdict is the label in both orders; a tie is a class of its own",
    "single_order": (
        "share of pairs whose verdict is the label in the one order played; a tie is a class of "
        "its own"
    ),
    "consistency": "share of pairs judged alike in both orders",
    "single_game": "one order is played; correct when its verdict is right",
    "ordered_pairs": (
        "share of a row's pairs of answers in people's order, a tie where theirs is one; two "
        "orders of a pair are averaged"
    ),
    "rm_bench_matrix": "strict wins of 3 chosen over 3 rejected styles; mean of hard, normal and easy cells",
    "prm_score": (
        "mean of the F1 of steps called right and the F1 of steps called wrong, from the counts of "
        "all steps"
    ),
    "first_error_f1": (
        "harmonic mean of finding the first wrong step and of finding none in right solutions; "
        "mean of the sets"
    ),
    "success_precision": "share of trajectories called successful that are",
    "macro_f1": "mean of the F1 of both verdicts, from the counts of all of them",
    "balanced_f1": "harmonic mean of the share of right steps called right and of wrong steps called wrong",
    "step_accuracy": "share of all steps of an agent whose label of three is found",
    "share_found": "share found of what is there to find, such as the first wrong step",
    "graph_tau": (
        "Kendall's tau of each list's Elo ratings and the edges of its graph; mean of the types of "
        "instructions"
    ),
    "rewardbench1_sections": (
        "strict pairs; subsets weighted into sections by the official counts; mean of the sections "
        "present"
    ),
    "three_class_agreement": "verdict of both orders (tie where they differ) has to be the vote: first, second or tie",
    "ppe_best_of_k": "share of right answers among the top-scoring ones of K; mean of the domains",
    "ppe_conflict_pairs": "strict pairs of a right and a wrong answer, averaged by question; mean of the domains",
    "rewardbench1_leaderboard": "sections weigh 2 each, the mean of the prior preference sets 1; what is absent is left out",
    "win_rate": "share of rows that a wins over b; a tie is half a win, and two orders of a row are one row",
    "mean_score": "mean of the scores of all answers, in the reward's own unit",
    "label_agreement": "share of labelled rows on which a judge's verdict is the label",
    "label_correlation": "Spearman's correlation of a judge's scores with the labels, -1 to 1",
    "no_conflict": "share of samples whose comparisons, order by order, hold no contradiction and no cycle",
    "trust_card": "each part in its own unit, held to its own limit; the worst verdict leads",
    "unweighted_mean_of_subsets": "mean of the subset scores, each subset weighing the same",
}
"""Every rule a figure may name, in one line."""


class Record:
    """What is known of something, field by field."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; figures that are no finite numbers become None."""
        return {name: plain(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Figure(Record):
    """One figure, of a part of a benchmark or of the whole.

    Attributes:
        rule: name of the scoring rule, see `RULES`.
        n: number of samples; always n_scored + n_unscored + n_failed + n_stopped.
        n_scored: samples in the score.
        n_unscored: samples without a usable score, verdict or label.
        n_failed: samples that ended in an error.
        n_stopped: samples that were not begun because a budget or the run ended.
        score: the rule's figure, 0..1, higher is better (the Ties composite may pass 1 by 0.01);
            None when nothing was scored, or when a part the rule needs is absent (Ties without a
            complete pair of rows).
        ci95: 95 % interval of the score as (low, high), over prompts: samples of one prompt
            (`judgements.cluster_of`) are one witness. Wilson's where every prompt is its own
            cluster and credits are 0 or 1. Never of width 0, within what is possible; None without
            a score.
        extra: further figures of the rule by name; their intervals, where there are any, under
            `ci95`.
        chance: what guessing reaches on these samples, 0..1; None where nobody knows.
        baselines: what length alone reaches on the same samples by the same rule (`longest`,
            `shortest`).
        missing: samples that the rule asks about and that have no score, by who caused it
            (endpoint, judge, answer, data, rule, caller); what the protocol leaves out is unscored
            and not among them.
        bounds: the score at worst and at best, whatever the missing ones would have got, as (low,
            high) in the score's unit; both are the score where nothing is missing. An end is
            infinite where the scale is open; None where it is unknown.
        n_clusters: clusters of the scored samples; None where they are not known.
        detectable: smallest difference from a supposed score that 4 of 5 such runs would show, in
            the score's unit; None where nothing is known. Both are in the JSON of a whole report.
    """

    rule: str
    n: int
    n_scored: int
    n_unscored: int
    n_failed: int
    n_stopped: int
    score: float | None
    ci95: Interval | None
    extra: Extra = field(default_factory=dict)
    chance: float | None = None
    baselines: Mapping[str, float | None] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    bounds: Interval | None = None
    n_clusters: int | None = None
    detectable: float | None = None

    shown: ClassVar[tuple[str, ...]] = (
        "rule",
        *COUNTS,
        "missing",
        "score",
        "bounds",
        "ci95",
        "chance",
        "baselines",
        "extra",
    )
    """The fields of its JSON; one of `UNLESS_EMPTY` only where it holds something."""

    def to_dict(self) -> dict[str, Any]:
        """The figure as plain JSON types; figures that are no finite numbers become None."""
        return {
            name: plain(value)
            for name in self.shown
            if (value := getattr(self, name)) or name not in UNLESS_EMPTY
        }


F = TypeVar("F", bound=Figure)


@dataclass(frozen=True)
class Report(Figure):
    """The headline figure of a benchmark, its parts, and how it came about.

    Attributes:
        by_subset: the parts by name.
        benchmark: name of the benchmark.
        version: version of its rule.
        reward: name of the reward.
        judge: the model that judged; None where none did.
        endpoint: where it was asked, without secrets.
        data: where the samples came from.
        duplicates: rows equal to an earlier one, and
        id_collisions: rows with the id of a different one; both are judged like all others.
        skipped: rows that did not fit and were left out.
        calls: requests made to the judge; `cached` replies came from the cache, `usage` holds
            tokens and cost.
        seconds: wall time.
        reasons: why samples have no score, "status: reason" to number and an example.
        stopped: why the run ended early; None when it did not.
        notes: what a reader of the figure should know.
        suspicion: what missing scores go with (a subset, a side, a length), as `core.stats.denominator.MissingnessTest`
            found it; empty where none is missing.
        lengths: of the rows with one winner and answers of different length how many there are
            (`n`), and in how many it is `longer` or `shorter` than all others; empty where none is
            known.
        constant: what every score or verdict was, in a sentence, where all are the same; empty
            elsewhere.
    """

    shown = (
        *("reward", "judge", "endpoint", "benchmark", "version", "data"),
        *Figure.shown,
        "by_subset",
        *"duplicates id_collisions skipped calls cached usage reasons stopped notes".split(),
        *("n_clusters", "detectable", "lengths", "suspicion", "seconds", "constant"),
    )
    by_subset: dict[str, Figure] = field(default_factory=dict)
    benchmark: str = ""
    version: str = ""
    reward: str = ""
    judge: str | None = None
    endpoint: str | None = None
    data: str = ""
    duplicates: int = 0
    id_collisions: int = 0
    skipped: int = 0
    calls: int = 0
    cached: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    reasons: dict[str, dict[str, Any]] = field(default_factory=dict)
    stopped: str | None = None
    notes: tuple[str, ...] = ()
    suspicion: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    constant: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report with its parts as plain JSON types; figures that are no finite numbers become
        None.
        """
        figures = {**super().to_dict(), "seconds": round(self.seconds, 3)}
        people = corrected_figure(figures)
        return {
            "worth": worth(figures),
            **({"corrected": people} if people else {}),
            **({"says": says} if (says := [one_line(line) for line in self.says()]) else {}),
            **figures,
        }

    def worth(self) -> str:
        """What a reader may conclude, in the sentences that every rendering begins with."""
        return one_line(self.to_dict()["worth"])

    def save(self, path: str | Path) -> Path:
        """Write the report as JSON, whole or not at all; gives the path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, as_json(self.to_dict()))
        return target

    unit: ClassVar[str] = "score %"
    """What `rows` shows scores in."""

    @staticmethod
    def number(value: float | None) -> str:
        """A score in the unit of `rows`."""
        return hundredths(value)

    @staticmethod
    def limits(bounds: Interval | None) -> str:
        """Two ends in the unit of `rows`."""
        return interval(bounds)

    def to_pandas(self) -> pd.DataFrame:
        """The figures as a frame, a row per subset and `all` last; scores and limits are shares, as
        in `score`.
        """
        import pandas as pd

        rows = []
        for name, part in self._parts():
            low, high = part.ci95 or (None, None)
            shown = {"subset": name, "rule": part.rule, "score": part.score}
            counts = {count: getattr(part, count) for count in COUNTS}
            rows.append({**shown, "low": low, "high": high, **counts})
        return pd.DataFrame(rows)

    def _parts(self) -> list[tuple[str, Figure]]:
        return [*self.by_subset.items(), (whole_name(self.extra), self)]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The figures for people: name, score and interval in `unit`, and the counts that are not 0;
        the whole last.
        """
        return [
            (one_line(name), self.number(f.score), self.limits(f.ci95), counted(f))
            for name, f in self._parts()
        ]

    def says(self) -> list[str]:
        """What the rule finds out beside its figure, a line each: what every rendering shows."""
        further = " · ".join(_further(self.extra))
        return [further] if further else []

    def about(self) -> list[str]:
        """What the rule finds out, and what the figures rest on: reward, judge, rule, baselines and
        costs, a line each.
        """
        judge = f" · judge {self.judge} at {self.endpoint}" if self.judge else ""
        levels = [f"{name} answer {hundredths(value)}" for name, value in self.baselines.items()]
        levels += [f"chance {hundredths(self.chance)}"] if self.chance is not None else []
        lines = [
            *self.says(),
            f"{self.reward}{judge}",
            f"benchmark: {self.benchmark} ({self.version}) · data: {self.data}",
            f"rule: {self.rule}: {RULES.get(self.rule, '')}",
            missing_parts(self.extra),
            *self.suspicion.get("said", ()),
            f"beside it: {' · '.join(levels)}" if levels else "",
            f"{self.calls} calls · {self.cached} from the cache · {self.seconds:.1f} s",
            *self.notes,
            f"stopped: {self.stopped}" if self.stopped else "",
        ]
        return [one_line(line) for line in lines if line]

    def plot(self) -> Plot:
        """The figure and its parts with their 95 % intervals and the chance level; shown in a
        notebook, or saved as an SVG file.
        """
        turn = 100.0 if self.unit.endswith("%") else 1.0
        rows = []
        for name, f in self._parts():
            ends = None if f.ci95 is None else (turn * f.ci95.low, turn * f.ci95.high)
            rows.append((one_line(name), None if f.score is None else turn * f.score, ends))
        about = f"{self.rule}, n = {self.n}, with 95 % intervals"
        chance = None if self.chance is None else turn * self.chance
        return forest("figures", self.reward, rows, self.unit, about, chance)

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            f"{name:<{widths[0]}}  {score:>{widths[1]}}  {ci:<{widths[2]}}  {counts}"
            for name, score, ci, counts in rows
        ]
        return "\n".join([self.worth(), *table, *self.about()])

    def _repr_html_(self) -> str:
        subset = "subset, judge alone" if corrected_figure(self.to_dict()) else "subset"
        table = html_table((subset, self.unit, "95 % interval", "samples"), self.rows())
        return f"{html_lines([self.worth()])}{table}{html_lines(self.about())}"


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table for notebooks; what stands below its head is escaped."""
    names = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{names}</tr>{body}</table>"


def html_lines(lines: Iterable[str]) -> str:
    """Paragraphs for notebooks, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def with_baselines(
    report: Report, baselines: Mapping[str, Report], chance: float | None = None
) -> Report:
    """The report with what each baseline reaches, and the chance level, beside every figure in it;
    a part's own chance stays.
    """

    def held(figure: F, by_baseline: Mapping[str, Figure | None]) -> F:
        scores = {
            name: None if other is None else other.score for name, other in by_baseline.items()
        }
        return replace(
            figure,
            baselines=scores or figure.baselines,
            chance=chance if figure.chance is None else figure.chance,
        )

    parts = {
        name: held(part, {key: other.by_subset.get(name) for key, other in baselines.items()})
        for name, part in report.by_subset.items()
    }
    return replace(held(report, baselines), by_subset=parts)


def uncertainty_of(estimate: Estimate | None) -> Extra:
    """What a figure keeps of its estimate: `ci95`, `n_clusters` and `detectable`; nothing without
    one.
    """
    if estimate is None:
        return {"ci95": None}
    known = {"n_clusters": estimate.n_clusters, "detectable": estimate.detectable()}
    return {"ci95": estimate.interval(), **known}


def with_extra(figure: F, further: Extra) -> F:
    """The figure with further ones beside it."""
    return replace(figure, extra={**figure.extra, **further})


def _further(extra: Extra) -> list[str]:
    """Further figures of a rule as people read them: sections, levels, and what position did to a
    judge.
    """
    shown = [f"{name} {hundredths(part.score)}" for name, part in extra.get("sections", {}).items()]
    shown += [
        f"{name.replace('_', ' ')} {hundredths(value)}"
        for name, value in extra.items()
        if isinstance(value, float)
    ]
    if orders := extra.get("orders"):
        shown.append(
            f"both orders agree in {hundredths(orders['consistency'])}, {orders['draws']} of "
            f"{orders['n']} draws"
        )
    return shown


def missing_parts(extra: Extra) -> str:
    """What of a benchmark is not there or has no score, and so is not in its figure."""
    parts = [
        f"{name.rpartition('_')[0].replace('_', ' ')}: {', '.join(names)}"
        for name, names in extra.items()
        if name.endswith(("_absent", "_without_score")) and names
    ]
    parts = [part.replace("subsets without:", "subsets without a score:") for part in parts]
    return f"missing, and not in the figure: {'; '.join(parts)}" if parts else ""


def p_text(value: float | None) -> str:
    """A p-value for people; a dash for none."""
    return "-" if value is None else "<.001" if value < 0.001 else f"{value:.3f}"


def hundredths(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash for none."""
    return "-" if value is None else f"{100 * value:.1f}"


def interval(bounds: Sequence[float] | None) -> str:
    """Two ends, such as those of a 95 % interval, in percent."""
    return "-" if bounds is None else f"{100 * bounds[0]:.1f} – {100 * bounds[1]:.1f}"


def counted(figure: Figure) -> str:
    """How many samples there were, and how many of them have no score and why."""
    lost = [f"{value} {name[2:]}" for name in COUNTS[2:] if (value := getattr(figure, name))]
    return ", ".join([f"n={figure.n}", *lost])


def plain(value: Any) -> Any:
    """Reduce a value to JSON types: sequences to lists, keys to text, NaN and infinities to None."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)
