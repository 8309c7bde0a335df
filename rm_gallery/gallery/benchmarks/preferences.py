"""Data of no particular benchmark: answers of which some are preferred to others, as pairs or as lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rm_gallery.core.data.export import is_record
from rm_gallery.core.data.load.converters import PROMPT_COLUMNS, GenericConverter
from rm_gallery.core.data.load.fields import RowRef
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Judged, has_preference, is_pair
from rm_gallery.gallery.benchmarks.rules import PooledScorer, Scorer, strict_pairs, tie_credit


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

    def scorer(self, seed: int = 0) -> Scorer:
        """Count under both rules; which one holds is known only at the end."""
        return _Either()


class Pairs(Preferences):
    """Strict pairs, pooled; a sample that is no pair is unscored."""

    name = "pairs"
    aliases: ClassVar[tuple[str, ...]] = ()
    version = "strict pairs, pooled"
    formula = "pairs whose chosen answer scores strictly higher / all pairs"
    traps = ("it has to be asked for by name; rows that are no pair are unscored",)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Never by itself: it has to be asked for."""
        return False

    def scorer(self, seed: int = 0) -> Scorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs())


class Lists(Pairs):
    """Best-of-N with tie credit, pooled."""

    name = "lists"
    version = "best-of-N with tie credit, pooled"
    formula = (
        "1/k if a chosen answer is among the k at the top, with several chosen ones their share of the k; mean over the rows"
    )
    traps = ("it has to be asked for by name",)

    def scorer(self, seed: int = 0) -> Scorer:
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
