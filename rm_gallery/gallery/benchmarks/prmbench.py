"""PRMBench: does a process reward see where a solution goes wrong? Nine kinds of errors put into
right solutions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    required,
    text,
    text_list,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW
from rm_gallery.gallery.benchmarks.counts import CELLS, Cells, cells_figure
from rm_gallery.gallery.benchmarks.figures import Figure, Report, plain
from rm_gallery.gallery.benchmarks.judgements import Judged, Row, named, unfit
from rm_gallery.gallery.benchmarks.rules import RuleScorer, Tally, absent, headline, mean_of, merged
from rm_gallery.gallery.benchmarks.steps import (
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

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output with the steps of the changed solution; a step's label `correctness` says
        whether it is right.

        Metadata: `subset` (the class) and `cluster` (the problem).
        """
        kind, problem = text(row, "classification", where), identity(row, "idx", where)
        steps, wrong_steps = text_list(row, "modified_process", where), _error_steps(row, where)
        right = [number not in wrong_steps for number in range(1, len(steps) + 1)]
        asked = turns(text(row, "modified_question", where), "modified_question", where)
        outputs = [solution(steps, right, error_steps=sorted(wrong_steps))]
        about = {"subset": kind, **({"cluster": problem} if problem else {})}
        return self.sample(_id(kind, problem) if problem else "", asked, outputs, "math", about)

    def recorded_sample(self, row: Row, number: int) -> DataSample:
        """The published logs: `idx` with its class in front, the class, and the wrong steps."""
        kind, wrong_steps = str(row["classification"]), json_cell(row["error_steps"])
        if not _are_numbers(wrong_steps):
            raise unfit(number, "error_steps", "whole numbers", wrong_steps)
        name = _id(kind, named(row["idx"] if "idx" in row else row["id"], number, "idx"))
        about = {"subset": kind, "cluster": name[len(kind) + 1 :]}
        return DataSample.model_validate(
            {
                "unique_id": name,
                "output": [solution([], [], error_steps=wrong_steps)],
                "metadata": about,
            }
        )

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count steps."""
        return _Steps(self.step_rule, seed)

    def recorded_line(self, group: Mapping[str, Any], report: Report) -> dict[str, Any]:
        """The report with the official counts and figures at hand, overall and by class."""
        parts = {
            **report.by_subset,
            **({CORRECT: report.extra[CORRECT]} if CORRECT in report.extra else {}),
        }
        by_class = {name: {"n": part.n, **_figures(part)} for name, part in parts.items()}
        return {
            **super().recorded_line(group, report),
            **_figures(report),
            "by_class": plain(by_class),
        }


def _figures(figure: Figure) -> dict[str, Any]:
    wanted = (*CELLS, "F1", "F1neg", "first_error_accuracy")
    return {**{name: figure.extra.get(name) for name in wanted}, "PRMScore": figure.score}


def _id(kind: str, problem: str) -> str:
    return problem if problem.startswith(f"{kind}_") else f"{kind}_{problem}"


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) for n in value
    )


def _error_steps(row: Row, where: RowRef) -> set[int]:
    value = json_cell(required(row, "error_steps", where))
    if not _are_numbers(value):
        raise wrong(where, "error_steps", "a list of whole numbers, counted from 1", value)
    return set(value)


class _StepCounts(Cells):
    """Steps of one class: the counts of each problem, and how often the first wrong step was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Tally()

    def count(self, judged: Judged, right: Sequence[bool] | None) -> float | None:
        """Count the steps of one solution (None where it has no scores); gives the share of its
        steps that were called what they are.
        """
        label = (judged.sample.output[0].answer.label or {}) if judged.sample.output else {}
        wrong_steps = set(label.get("error_steps") or ())
        n = len(
            right or (judged.sample.output and judged.sample.output[0].steps) or judged.steps(0)
        )
        first = min(wrong_steps, default=0)
        if right and 0 < first <= n:
            self.first.add(float(not right[first - 1]))
        return self.add(judged, [number not in wrong_steps for number in range(1, n + 1)], right)


class _Steps:
    """The steps of all classes under a step rule."""

    def __init__(self, rule: StepRule, seed: int) -> None:
        self._rule, self._seed = rule, seed
        self._parts: defaultdict[str, _StepCounts] = defaultdict(_StepCounts)
        self._seen: set[str] = set()
        self._repeated = 0

    def add(self, judged: Judged) -> float | None:
        """Count one solution, once; gives the share of its steps that were called what they are."""
        if judged.sample_id in self._seen:
            self._repeated += 1
            return None
        self._seen.add(judged.sample_id)
        part, scores = self._parts[judged.subset], step_scores(judged)
        return part.count(judged, None if scores is None else self._rule.right(scores))

    def report(self) -> Report:
        parts = {name: self._class_figure(name, [part]) for name, part in self._parts.items()}
        counted = [part for name, part in self._parts.items() if name != CORRECT]
        whole = self._class_figure("", counted)
        extra: dict[str, Any] = {**whole.extra, "step_rule": str(self._rule)}
        for aspect, kinds in ASPECTS.items():
            scores = [parts[kind].score if kind in parts else None for kind in kinds]
            extra[aspect] = None if None in scores else mean_of(scores)
        extra["classes_absent"] = absent(CLASSES, parts)
        extra |= {"n_repeated": self._repeated} if self._repeated else {}
        if CORRECT in parts:
            extra[CORRECT] = parts.pop(CORRECT)
        figure = Figure(
            RULE,
            score=whole.score,
            ci95=whole.ci95,
            extra=extra,
            bounds=whole.bounds,
            **merged(part.rows for part in counted).counts(),
        )
        return headline(figure, parts)

    def _class_figure(self, name: str, parts: Sequence[_StepCounts]) -> Figure:
        first = merged(part.first for part in parts).mean

        def measure(*cells: float) -> float:
            return _prm_score(f_scores(*cells), name in WITHOUT_ERRORS)

        def beside(*cells: float) -> dict[str, Any]:
            f1, f1_negative = f_scores(*cells)
            counts = dict(zip(CELLS, cells, strict=True))
            return {**counts, "F1": f1, "F1neg": f1_negative, "first_error_accuracy": first}

        return cells_figure(RULE, parts, measure, beside, f"prmbench {name}", self._seed)


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


def _prm_score(f1s: tuple[float, float], without_errors: bool) -> float:
    """The figure of both F1: their mean, or that of the right steps alone where there are no wrong
    ones.
    """
    return f1s[0] if without_errors else 0.5 * f1s[0] + 0.5 * f1s[1]
