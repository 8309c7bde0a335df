"""HH-RLHF: two whole transcripts of a dialogue, of which crowd workers chose one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.fields import RowRef, output, text
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.rules import PooledScorer, Scorer, strict_pairs

# A speaker's mark stands after an empty line, or at the very start.
_MARK = re.compile(r"(?:\A\s*|\r?\n\r?\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}

Turn = tuple[str, str]


class HHRLHF(Benchmark):
    """Strict pairs, pooled."""

    name = "hh_rlhf"
    hub = "Anthropic/hh-rlhf"
    split = "test"
    source = "Bai et al., Training a Helpful and Harmless Assistant with RLHF, arXiv 2204.05862"
    licence = "MIT"
    version = "strict pairs; the data set names no rule of its own"
    chance = 0.5
    measures = "whether a reward agrees with crowd workers on which dialogue is more helpful or less harmful"
    sizes = {"harmless-base test": 2312}
    length = {"harmless-base test": (1856, 44.8, 54.7)}
    layout = {"chosen, rejected": "whole transcripts, turns marked by an empty line and Human: or Assistant:"}
    formula = "pairs whose chosen answer scores strictly higher / all pairs"
    traps = (
        "the paper puts the agreement of crowd workers with its authors at about 63 %, so that figures far above are suspicious",
        "in a few rows the transcripts part before their last turns; what follows stays part of the answer",
        "the texts are deliberately harmful",
    )

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Two transcripts, and no prompt."""
        sides = [columns.get(side) for side in ("chosen", "rejected")]
        return "prompt" not in columns and all(isinstance(side, str) and _MARK.match(side) for side in sides)

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        r"""The two transcripts, of turns marked `\n\nHuman:` and `\n\nAssistant:`, as one sample.

        The turns both share are the input, and the last assistant turn of each is an answer (white space at its ends removed,
        it may be empty). In a few rows the transcripts part before their last turns. There the input still is what they share,
        and everything after it stays visible as the answer: later turns follow with their marks, as in the transcript, and the
        metadata say `contexts_differ`. Rows have no id; the content hash is their identity.
        """
        chosen, rejected = _transcript(row, "chosen", where), _transcript(row, "rejected", where)
        shared = _shared_turns(chosen, rejected)
        differ = max(len(chosen), len(rejected)) > shared + 1
        return DataSample.model_validate(
            {
                "input": [{"role": _ROLES[speaker], "content": words} for speaker, words in chosen[:shared]],
                "output": [output(_answer(chosen[shared:]), "chosen"), output(_answer(rejected[shared:]), "rejected")],
                "task_category": "conversation",
                "source": self.name,
                "metadata": {"contexts_differ": True} if differ else None,
            }
        )

    def scorer(self, seed: int = 0) -> Scorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs())


def _transcript(row: dict[str, Any], column: str, where: RowRef) -> list[Turn]:
    before, *parts = _MARK.split(text(row, column, where))
    if before.strip() or not parts:
        raise DataError(f"{where}, column '{column}': expected a transcript that starts with 'Human:' or 'Assistant:'")
    found = [(speaker, words.strip()) for speaker, words in zip(parts[::2], parts[1::2], strict=True)]
    if found[-1][0] != "Assistant":
        raise DataError(f"{where}, column '{column}': the transcript must end with an assistant turn")
    return found


def _shared_turns(chosen: list[Turn], rejected: list[Turn]) -> int:
    """Number of leading turns equal in both, leaving each transcript at least its last turn."""
    limit = min(len(chosen), len(rejected)) - 1
    return next((place for place in range(limit) if chosen[place] != rejected[place]), limit)


def _answer(rest: list[Turn]) -> str:
    (speaker, words), *later = rest
    marked = [words if speaker == "Assistant" else f"{speaker}: {words}"]
    return "\n\n".join(marked + [f"{name}: {said}" for name, said in later])
