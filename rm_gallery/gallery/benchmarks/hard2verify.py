"""Hard2Verify: does a process reward find what is wrong in proofs of olympiad problems?"""

from __future__ import annotations

from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    required,
    text_list,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, question
from rm_gallery.gallery.benchmarks.counts import Asides, Called, CountsScorer, shares
from rm_gallery.gallery.benchmarks.judgements import Judged, RecordedRow, Row
from rm_gallery.gallery.benchmarks.rules import RuleScorer
from rm_gallery.gallery.benchmarks.steps import RecordedLabel, StepBenchmark, solution, step_scores

RULE = "balanced_f1"


class Hard2Verify(StepBenchmark):
    """Balanced F1 of the labels of all steps, pooled: the harmonic mean of the share of right steps
    called right and of wrong steps called wrong.

    `extra` holds the balanced accuracy, and the balanced F1 of two further tasks: `answers` (are
    all steps right?) and `first_error` (is the first wrong step found, and none in a right
    solution?).
    """

    name = "hard2verify"
    aliases = ("hard-2-verify", "Salesforce/Hard2Verify")
    version = "arXiv 2510.13744"
    own_columns = frozenset({"question", "model_response_by_step", "human_labels"})
    labels = ("human_labels",)

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output with the steps of the solution; a step's label `correctness` says whether it
        is right.
        """
        steps = text_list(row, "model_response_by_step", where)
        right = _right(required(row, "human_labels", where))
        if right is None or len(right) != len(steps):
            expected = f"a list of {len(steps)} labels, 1 or 0"
            raise wrong(where, "human_labels", expected, row["human_labels"])
        asked = question(row, "question", where)
        name = identity(row, "unique_id", where)
        return self.sample(name, asked, [solution(steps, right, human_labels=right)], "math")

    def recorded_label(self, row: RecordedRow, name: str) -> RecordedLabel:
        """The labels of all steps."""
        right = _right(row["human_labels"])
        if right is None:
            raise row.unfit("human_labels", "a list of labels, 1 or 0")
        return name, {"human_labels": right}, {}

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count steps, answers and first errors."""
        return CountsScorer(RULE, self._steps, shares, further=self._further)

    def _steps(self, judged: Judged) -> Called:
        right, scores = judged.label.get("human_labels") or [], step_scores(judged)
        fits = scores is not None and len(scores) == len(right)
        return right, self.step_rule.right(scores) if scores and fits else None

    def _further(self, judged: Judged) -> Asides:
        right, said = self._steps(judged)
        if said is None:
            return dict.fromkeys(("answers", "first_error"), (RULE, all(right), None))
        truth, called = all(right), all(said)
        found = truth == called and (truth or right.index(False) == said.index(False))
        return {"answers": (RULE, truth, called), "first_error": (RULE, truth, truth == found)}


def _right(value: Any) -> list[bool] | None:
    labels = json_cell(value)
    known = isinstance(labels, list) and labels and all(each in (0, 1) for each in labels)
    return [bool(each) for each in labels] if known else None
