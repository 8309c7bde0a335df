"""How people's votes on two answers become labels, and the two ways to agree with them: without ties, or with ties as a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rm_gallery.core.data.load.fields import output
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Judged, is_pair
from rm_gallery.gallery.benchmarks.rules import PooledScorer, Scorer, SubsetTallies, games, strict_pairs

WITH_TIES, WITHOUT_TIES = "with_ties", "without_ties"


def voted_outputs(first: str, second: str, vote: int) -> list[dict[str, Any]]:
    """Two answers, labelled by a vote: above 0 for the first, below for the second, 0 for a tie, which labels neither."""
    if vote == 0:
        return [output(first), output(second)]
    labels = ("chosen", "rejected") if vote > 0 else ("rejected", "chosen")
    return [output(first, labels[0]), output(second, labels[1])]


def agreement_credit(judged: Judged) -> float | None:
    """1.0 if the verdict of a pair, read as first, second or tie, is the vote; verdicts that change with the order are a tie."""
    first, second, label = games(judged)
    if judged.played_orders == 1:
        verdict = first if first is not None else second
    else:
        verdict = None if first is None or second is None else (first if first == second else 0)
    return None if verdict is None else float(verdict == label)


class Votes(Benchmark):
    """Pairs that people voted on. Without ties (the default): strict pairs, and what people called a tie is not asked.

    With ties the vote has three classes; a judge that scores the answers ties only with equal scores, and one whose verdict
    changes with the order has said tie.
    """

    chance = 0.5
    modes: ClassVar[dict[str, str]] = {
        WITHOUT_TIES: "strict pairs; what people called a tie is not asked",
        WITH_TIES: "first, second or tie has to be the vote; verdicts that change with the order are a tie",
    }

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Ties, unless the mode counts them."""
        if self.mode == WITH_TIES or not (sample.metadata or {}).get("tie"):
            return None
        return f"people called it a tie; --mode {WITH_TIES} counts ties as a class"

    def scorer(self, seed: int = 0) -> Scorer:
        """Count pairs."""
        return ThreeClasses() if self.mode == WITH_TIES else PooledScorer(strict_pairs())


class ThreeClasses(PooledScorer):
    """Votes with ties as a class of their own."""

    def __init__(self) -> None:
        super().__init__(SubsetTallies("three_class_agreement", agreement_credit, _is_vote))

    def report(self) -> Report:
        """Report what was counted so far; guessing among three classes is right in a third."""
        return replace(super().report(), chance=1 / 3)


def _is_vote(chosen: Sequence[bool]) -> bool:
    return is_pair(chosen) or (len(chosen) == 2 and not any(chosen))
