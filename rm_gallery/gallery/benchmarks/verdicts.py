"""Benchmarks of verdicts on single answers: a threshold turns the score of an answer into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rm_gallery.gallery.benchmarks.counts import CountsScorer, shares
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.gallery.benchmarks.rules import RuleScorer
from rm_gallery.gallery.benchmarks.steps import ScoredByRule, StepRule


class VerdictBenchmark(ScoredByRule):
    """A benchmark whose labels are about single answers: pointwise rewards serve it.

    An answer that scores above the threshold is called good. `--step-rule threshold:X` sets it.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"pointwise"})
    judges: ClassVar[str] = "answer"
    rule: ClassVar[str] = "macro_f1"

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count verdicts."""
        return CountsScorer(self.rule, self.verdicts, shares, seed)

    def verdicts(self, judged: Judged) -> tuple[Sequence[bool], Sequence[bool] | None]:
        """The truth about an answer and what the reward called it; None without a score."""
        return judged.chosen, called_good(judged, self.step_rule)


def called_good(judged: Judged, rule: StepRule) -> list[bool] | None:
    """Whether the answer of a sample scores above the bound; None where it has no score."""
    values = judged.complete()
    return rule.right(values) if values else None
