"""Themis-CodeRewardBench: pairs of programs, of which one is better in one respect."""

from __future__ import annotations

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    preference_outputs,
    required,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, given, question
from rm_gallery.gallery.benchmarks.figures import Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import Judged, Row
from rm_gallery.gallery.benchmarks.rules import PooledScorer, RuleScorer, absent, strict_pairs

ASPECTS = (
    "Functional_Correctness",
    "Memory_Efficiency",
    "Readability_Maintainability",
    "Runtime_Efficiency",
    "Security_Hardness",
)


class ThemisCodeRewardBench(Benchmark):
    """Strict pairs, pooled, with the 19 sources beside it; the five aspects stand under
    `extra["sections"]` and the eight languages under `extra["categories"]`.

    An aspect without a score is named in `extra["aspects_absent"]`.
    """

    name = "themis_coderewardbench"
    aliases = ("themis", "coderewardbench")
    hub = "project-themis/Themis-CodeRewardBench"
    hub_config = "Full"
    split = "Full"
    version = "repository at ddd7934"
    chance = 0.5
    own_columns = frozenset({"prompt", "chosen", "rejected", "language", "aspect"})
    own_values = {"aspect": ASPECTS}

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: chosen, then rejected. Metadata: `subset` (the source), `aspect`, `language`.

        A prompt may be a list of messages, so that a system prompt can stand before it.
        """
        aspect = text(row, "aspect", where)
        if aspect not in ASPECTS:
            raise wrong(where, "aspect", f"one of {', '.join(ASPECTS)}", aspect)
        sides = [[text(row, side, where)] for side in ("chosen", "rejected")]
        about = {"subset": row.get("subset"), "aspect": aspect}
        about |= {"language": text(row, "language", where)}
        return self.sample(
            identity(row, "id", where),
            question(row, "prompt", where, required),
            preference_outputs(*sides),
            "code",
            given(about),
        )

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count strict pairs."""
        return _ByAspect()


class _ByAspect(PooledScorer):
    """Pairs by source and language, and once more by aspect."""

    def __init__(self) -> None:
        super().__init__(strict_pairs(), lambda judged: _named(judged, "language"))
        self._aspects = PooledScorer(strict_pairs(), lambda judged: _named(judged, "aspect"))

    def add(self, judged: Judged) -> float | None:
        self._aspects.add(judged)
        return super().add(judged)

    def report(self) -> Report:
        report, aspects = super().report(), self._aspects.report().extra["categories"]
        gaps = [name for name in absent(ASPECTS, aspects) if name in ASPECTS]
        return with_extra(
            report, {"sections": aspects, **({"aspects_absent": gaps} if gaps else {})}
        )


def _named(judged: Judged, name: str) -> str:
    return str(judged.metadata.get(name) or f"(no {name})")
