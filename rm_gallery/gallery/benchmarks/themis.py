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
from rm_gallery.gallery.benchmarks.judgements import Row
from rm_gallery.gallery.benchmarks.rules import (
    Kinds,
    PooledScorer,
    RuleScorer,
    named_by,
    strict_pairs,
)

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
        return PooledScorer(
            strict_pairs(),
            Kinds("categories", named_by("language")),
            Kinds("sections", named_by("aspect"), "aspects_absent", ASPECTS),
        )
