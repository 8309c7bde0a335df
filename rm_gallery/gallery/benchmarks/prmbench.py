"""PRMBench: does a process reward see where a solution goes wrong? Nine kinds of errors put into
right solutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    text,
    text_list,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, cell, question
from rm_gallery.gallery.benchmarks.counts import (
    CELLS,
    Beside,
    Called,
    Cells,
    CountsScorer,
    cells_figure,
)
from rm_gallery.gallery.benchmarks.figures import Extra, Figure, Report, plain, with_extra
from rm_gallery.gallery.benchmarks.judgements import Judged, JudgeGroup, RecordedRow, Row
from rm_gallery.gallery.benchmarks.rules import RuleScorer, Tally, absent, mean_of, merged
from rm_gallery.gallery.benchmarks.steps import (
    RecordedLabel,
    StepBenchmark,
    StepRule,
    solution,
    step_scores,
)

RULE = "prm_score"
ASPECTS: Mapping[str, tuple[str, ...]] = {
    "simplicity": ("redundency", "circular"),
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
CLASSES = tuple(chain.from_iterable(ASPECTS.values()))
CORRECT = "correct"
"""Class of the untouched solutions that upstream judges beside the others, outside of all totals.
"""
WITHOUT_ERRORS = frozenset({"multi_solutions", CORRECT})


class PRMBench(StepBenchmark):
    """PRMScore from the pooled counts of all steps, with the nine kinds of errors and the three
    aspects they make up.

    A step that is right and called right is a true positive. Steps are counted over all classes but
    `correct`, which `extra["correct"]` holds where it was judged. The second of two rows with one
    id is not counted, as upstream.
    """

    name = "prmbench"
    aliases = ("prm-bench",)
    hub = "hitsmy/PRMBench_Preview"
    split = "train"
    version = "repository at a1ae4ea"
    own_columns = frozenset(
        {"modified_question", "modified_process", "error_steps", "classification"}
    )
    labels = ("classification", "error_steps")
    names = ("idx", "id")

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output with the steps of the changed solution; a step's label `correctness` says
        whether it is right.

        Metadata: `subset` (the class) and `cluster` (the problem).
        """
        kind, problem = text(row, "classification", where), identity(row, "idx", where)
        steps, wrong_steps = text_list(row, "modified_process", where), _error_steps(row, where)
        right = [number not in wrong_steps for number in range(1, len(steps) + 1)]
        asked = question(row, "modified_question", where)
        outputs = [solution(steps, right, error_steps=sorted(wrong_steps))]
        about = {"subset": kind, **({"cluster": problem} if problem else {})}
        return self.sample(_id(kind, problem) if problem else "", asked, outputs, "math", about)

    def recorded_label(self, row: RecordedRow, name: str) -> RecordedLabel:
        """The published logs: `idx` with its class in front, the class, and the wrong steps."""
        kind, wrong_steps = str(row["classification"]), json_cell(row["error_steps"])
        if not _are_numbers(wrong_steps):
            raise row.unfit("error_steps", "whole numbers", wrong_steps)
        name = _id(kind, name)
        about = {"subset": kind, "cluster": name[len(kind) + 1 :]}
        return name, {"error_steps": wrong_steps}, about

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count steps."""
        return _Steps(self.step_rule)

    def recorded_line(self, group: JudgeGroup, report: Report) -> Extra:
        """The report with the official counts and figures at hand, overall and by class."""
        correct = {name: part for name, part in report.extra.items() if name == CORRECT}
        parts = {**report.by_subset, **correct}
        by_class = {name: {"n": part.n, **_figures(part)} for name, part in parts.items()}
        return {
            **super().recorded_line(group, report),
            **_figures(report),
            "by_class": plain(by_class),
        }


def _figures(figure: Figure) -> Extra:
    wanted = (*CELLS, "F1", "F1neg", "first_error_accuracy")
    return {**{name: figure.extra.get(name) for name in wanted}, "PRMScore": figure.score}


def _id(kind: str, problem: str) -> str:
    return problem if problem.startswith(f"{kind}_") else f"{kind}_{problem}"


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) for n in value
    )


def _error_steps(row: Row, where: RowRef) -> set[int]:
    value = cell(row, "error_steps", where)
    if not _are_numbers(value):
        raise wrong(where, "error_steps", "a list of whole numbers, counted from 1", value)
    return set(value)


class _StepCounts(Cells):
    """Steps of one class: the counts of each problem, and how often the first wrong step was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Tally()

    def add(
        self, judged: Judged, good: Sequence[bool], said: Sequence[bool] | None
    ) -> float | None:
        """Count the steps of one solution, and whether the first wrong one was seen."""
        if said and False in good:
            self.first.add(float(not said[good.index(False)]))
        return super().add(judged, good, said)


class _Steps(CountsScorer):
    """The steps of all classes under a step rule; each solution counts once."""

    outside = frozenset({CORRECT})
    part = _StepCounts

    def __init__(self, rule: StepRule) -> None:
        super().__init__(RULE, self._steps, once=True)
        self._step_rule = rule

    def _steps(self, judged: Judged) -> Called:
        """Which steps are right, and which were called so."""
        scores, outputs = step_scores(judged), judged.sample.output
        said = None if scores is None else self._step_rule.right(scores)
        wrong_steps = judged.label.get("error_steps") or ()
        n = len(said or (outputs and outputs[0].steps) or judged.steps(0))
        return [number not in wrong_steps for number in range(1, n + 1)], said

    def report(self) -> Report:
        report = super().report()
        parts = dict(report.by_subset)
        extra: Extra = {"step_rule": str(self._step_rule)}
        for aspect, kinds in ASPECTS.items():
            scores = [parts[kind].score if kind in parts else None for kind in kinds]
            extra[aspect] = None if None in scores else mean_of(scores)
        extra["classes_absent"] = absent(CLASSES, parts)
        if CORRECT in parts:
            extra[CORRECT] = parts.pop(CORRECT)
        return with_extra(replace(report, by_subset=parts), extra)

    def figure(
        self, rule: str, name: str, parts: Sequence[Cells], beside: Beside | None = None
    ) -> Figure:
        """The figure of a class, or of all together; where there are no wrong steps, F1 of the
        right ones is the score.
        """
        first = merged(part.first for part in parts if isinstance(part, _StepCounts)).mean

        def measure(*cells: float) -> float:
            f1, f1_negative = f_scores(*cells)
            return f1 if name in WITHOUT_ERRORS else 0.5 * f1 + 0.5 * f1_negative

        def shown(*cells: float) -> Extra:
            f1, f1_negative = f_scores(*cells)
            counts = dict(zip(CELLS, cells, strict=True))
            return {**counts, "F1": f1, "F1neg": f1_negative, "first_error_accuracy": first}

        return cells_figure(rule, parts, measure, shown)


def f_scores(tp: float, fp: float, tn: float, fn: float) -> tuple[float, float]:
    """F1 of the steps called right, and of those called wrong; a share of nothing is -1, as
    upstream has it.
    """
    return _f1(tp, fp, fn), _f1(tn, fn, fp)


def _f1(hits: float, wrongly: float, missed: float) -> float:
    precision, recall = (
        hits / (hits + others) if hits + others else -1.0 for others in (wrongly, missed)
    )
    return 2 * precision * recall / (precision + recall) if precision + recall else -1.0
