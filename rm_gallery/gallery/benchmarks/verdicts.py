"""Benchmarks of verdicts on single answers: a threshold turns the score of an answer into one."""

from __future__ import annotations

from typing import Any, ClassVar

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    optional_text,
    output,
    text,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, cell, given, question, several
from rm_gallery.gallery.benchmarks.counts import Asides, Called, CountsScorer, shares
from rm_gallery.gallery.benchmarks.judgements import Judged, Row
from rm_gallery.gallery.benchmarks.rules import RuleScorer
from rm_gallery.gallery.benchmarks.steps import ScoredByRule, StepRule


class VerdictBenchmark(ScoredByRule):
    """A benchmark whose labels are about single answers: pointwise rewards serve it.

    An answer that scores above the threshold is called good. `--step-rule threshold:X` sets it.
    """

    kinds = frozenset({"pointwise"})
    judges = "answer"
    rule: ClassVar[str] = "macro_f1"

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count verdicts."""
        return CountsScorer(self.rule, self.verdicts, shares, further=self.further, once=self.once)

    def verdicts(self, judged: Judged) -> Called:
        """The truth about an answer and what the reward called it; None without a score."""
        return judged.chosen, called_good(judged, self.step_rule)

    def further(self, judged: Judged) -> Asides:
        """What is counted beside it: by name the rule, the truth and what it was called."""
        return {}


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def called_good(judged: Judged, rule: StepRule) -> list[bool] | None:
    """Whether the answer of a sample scores above the bound; None where it has no score."""
    values = judged.complete()
    return rule.right(values) if values else None


# -- HealthBench meta-evaluation -------------------------------------------------------------------


class HealthBenchMeta(VerdictBenchmark):
    """Macro F1 of a grader's verdicts on criteria, against every single verdict of a physician;
    pooled, with each category beside it.

    A row that three physicians judged counts three times. Upstream asks until a verdict can be
    read; here one that cannot is missing. Where a grader never says "met", or always, upstream has
    no figure; here the F1 of that verdict is 0.
    """

    name = "healthbench_meta"
    aliases = ("healthbench-meta-eval", "healthbench_meta_eval")
    version = "simple-evals, healthbench_meta_eval.py"
    own_columns = frozenset({"prompt", "completion", "rubric", "binary_labels"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output, the completion; the criterion stands beside the last turn as its `context`.

        Labels: `verdicts` of the physicians, and `preference` by most of them (none where as many
        say either). Metadata: `subset` (category) and `cluster` (the conversation).
        """
        said = several(row, "binary_labels", where, "a list of true and false", _is_bool)
        asked = question(row, "prompt", where, cell)
        asked[-1] = {**asked[-1], "context": text(row, "rubric", where)}
        met = 2 * sum(said) - len(said)
        preference = ("chosen" if met > 0 else "rejected") if met else None
        about = {
            "subset": optional_text(row, "category", where),
            "cluster": identity(row, "prompt_id", where) or None,
        }
        answer = output(text(row, "completion", where), preference, verdicts=said)
        return self.sample("", asked, [answer], "health", given(about))

    def verdicts(self, judged: Judged) -> Called:
        """The verdict of each physician, and that of the grader beside each."""
        physicians = judged.label.get("verdicts") or []
        called = called_good(judged, self.step_rule)
        return physicians, called and called * len(physicians)
