"""Data of no particular benchmark: answers of which some are preferred to others, as pairs or as lists."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rm_gallery.core.data.export import is_record
from rm_gallery.core.data.load.converters import PROMPT_COLUMNS, GenericConverter, RowRef, output
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Judged, has_preference, is_pair
from rm_gallery.gallery.benchmarks.rules import PooledScorer, RuleScorer, SubsetTallies, games, strict_pairs, tie_credit


class Preferences(Benchmark):
    """Strict pairs if every labelled sample is one chosen against one rejected answer, else best-of-N with tie credit.

    One rule holds for the whole report, pooled. Columns are read by their usual names, samples of this library as they are.
    """

    name = "preferences"
    aliases: ClassVar[tuple[str, ...]] = ("*",)
    source = "none: rows of anybody's"
    licence = "that of the data"
    version = "strict pairs or best-of-N with tie credit, pooled"
    general = True
    measures = "whether a reward prefers the answers that your rows prefer"
    layout = {
        "prompt, messages, query, question, instruction, …": "the input: text or messages",
        "chosen, rejected": "text, or lists of texts",
        "id, subset": "optional; figures are shown by subset",
    }
    formula = "strict pairs where every row is one chosen and one rejected answer; else 1/k for a chosen answer among the k at the top"
    traps = ("one rule holds for all rows: a single list among pairs makes them all best-of-N",)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """A prompt with chosen and rejected answers, or samples written by this library."""
        asked = any(columns.get(name) is not None for name in ("messages", *PROMPT_COLUMNS))
        return is_record(columns) or (asked and "chosen" in columns and "rejected" in columns)

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """The row by its usual column names."""
        return GenericConverter().convert(row, where)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count under both rules; which one holds is known only at the end."""
        return _Either()


class StrictPairs(Preferences):
    """Strict pairs, pooled; a sample that is no pair is unscored."""

    name = "pairs"
    aliases: ClassVar[tuple[str, ...]] = ()
    version = "strict pairs, pooled"
    formula = "pairs whose chosen answer scores strictly higher / all pairs"
    traps = ("it has to be asked for by name; rows that are no pair are unscored",)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Never by itself: it has to be asked for."""
        return False

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs())


class Lists(StrictPairs):
    """Best-of-N with tie credit, pooled."""

    name = "lists"
    version = "best-of-N with tie credit, pooled"
    formula = (
        "1/k if a chosen answer is among the k at the top, with several chosen ones their share of the k; mean over the rows"
    )
    traps = ("it has to be asked for by name",)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count lists."""
        return PooledScorer(tie_credit())


class _Either:
    def __init__(self) -> None:
        self._scorer = PooledScorer(tie_credit())
        self._only_pairs = True

    def add(self, judged: Judged) -> float | None:
        """Count one sample; gives what it earned, as a pair if it is one."""
        credit = self._scorer.add(judged)
        if is_pair(judged.chosen):
            return None if credit is None else float(math.floor(credit))
        self._only_pairs = self._only_pairs and not has_preference(judged.chosen)
        return credit

    def report(self) -> Report:
        """Report what was counted so far."""
        # of a pair, half the credit is a tie, which the strict rule counts as wrong
        return (self._scorer.read_as("pair_strict", math.floor) if self._only_pairs else self._scorer).report()


WITH_TIES, WITHOUT_TIES = "with_ties", "without_ties"


def voted_outputs(first: str, second: str, vote: int) -> list[dict[str, Any]]:
    """Two answers, labelled by a vote: above 0 for the first, below for the second, 0 for a tie, which labels neither."""
    if vote == 0:
        return [output(first), output(second)]
    labels = ("chosen", "rejected") if vote > 0 else ("rejected", "chosen")
    return [output(first, labels[0]), output(second, labels[1])]


def shared_turns(chosen: Sequence[Any], rejected: Sequence[Any]) -> int:
    """Number of leading turns equal on both sides, leaving each side at least its last turn."""
    limit = min(len(chosen), len(rejected)) - 1
    return next((place for place in range(limit) if chosen[place] != rejected[place]), limit)


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

    def scorer(self, seed: int = 0) -> RuleScorer:
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
