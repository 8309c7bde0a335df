"""HH-RLHF: two whole transcripts of a dialogue, of which crowd workers chose one; and HHH alignment, pairs by helpful, honest, harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.converters import RowRef, identity, json_cell, missing, output, text, turns, wrong
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


_MARKS = ("###The instruction to evaluate:", "###Response to evaluate:", "###Score Rubrics:")


class HHH(Benchmark):
    """Strict pairs, pooled, with the four groups: equal scores are wrong, as in Prometheus' absolute grading."""

    name = "hhh"
    aliases = ("hhh_alignment", "HuggingFaceH4/hhh_alignment")
    source = "Askell et al., A General Language Assistant as a Laboratory for Alignment, arXiv 2112.00861; BIG-bench"
    licence = "Apache-2.0 (BIG-bench)"
    version = "221 pairs; rule of prometheus-eval at dcfb444"
    chance = 0.5
    measures = "whether a reward prefers the more helpful, honest or harmless of two answers"
    sizes = {"harmless": 58, "helpful": 59, "honest": 61, "other": 43}
    layout = {
        "input": "the query",
        "targets": "choices (two answers) and labels (1 the better one, 0 the other)",
        "chosen_instruction, rejected_instruction": "instead of them, Prometheus' grading prompts, out of which the texts are read",
        "subset": "harmless, helpful, honest or other; the configuration's name on the hub",
    }
    formula = "pairs whose better answer scores strictly higher / all pairs"
    traps = (
        "Prometheus orders A and B at random without a seed and takes the first of up to three score pairs that differs",
        "the better answer is often the longer one: length alone is right in 62.9 %",
        "the same 221 rows are the prior set anthropic_hhh of RewardBench 1",
    )
    length = {"harmless": (58, 62.1, 37.9), "helpful": (59, 69.5, 28.8), "honest": (61, 63.9, 36.1), "other": (43, 53.5, 44.2)}
    published = (("Prometheus 2 (README)", "72 - 85 % over HHH, MT-bench human and Auto-J", "README of prometheus-eval"),)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """An input with labelled choices, or a pair of Prometheus' grading prompts."""
        targets = columns.get("targets")
        listed = "input" in columns and isinstance(targets, Mapping) and {"choices", "labels"} <= targets.keys()
        return listed or {"chosen_instruction", "rejected_instruction"} <= columns.keys()

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Outputs: the answers in the order of the row, labelled; of grading prompts the chosen one first. Metadata: `subset`."""
        asked, answers, labels = _listed(row, where) if row.get("targets") is not None else _graded(row, where)
        subset = row.get("subset") or row.get("source")
        preferences = ["chosen" if label else "rejected" for label in labels]
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "id", where),
                "input": turns(asked, "input", where),
                "output": [output(a, preference) for a, preference in zip(answers, preferences, strict=True)],
                "task_category": "alignment",
                "source": self.name,
                "metadata": {"subset": str(subset)} if subset else None,
            }
        )

    def scorer(self, seed: int = 0) -> Scorer:
        """Count strict pairs."""
        return PooledScorer(strict_pairs())


Pair = tuple[str, list[str], list[int]]


def _listed(row: Mapping[str, Any], where: RowRef) -> Pair:
    targets = json_cell(row["targets"])
    if not isinstance(targets, Mapping):
        raise wrong(where, "targets", "an object with choices and labels", targets)
    answers, labels = targets.get("choices"), targets.get("labels")
    if not (isinstance(answers, list) and len(answers) == 2 and all(isinstance(a, str) for a in answers)):
        raise wrong(where, "targets.choices", "two texts", answers)
    if not isinstance(labels, list) or sorted(map(str, labels)) != ["0", "1"]:
        raise wrong(where, "targets.labels", "a 1 and a 0", labels)
    return text(row, "input", where), answers, [int(label) for label in labels]


def _graded(row: Mapping[str, Any], where: RowRef) -> Pair:
    """The texts between the headings of two grading prompts."""
    if "chosen_instruction" not in row:
        raise missing(where, "'targets' or 'chosen_instruction'", row)
    parts = [_parts(text(row, f"{side}_instruction", where), side, where) for side in ("chosen", "rejected")]
    return parts[0][0], [answer for _, answer in parts], [1, 0]


def _parts(prompt: str, side: str, where: RowRef) -> tuple[str, str]:
    _, first, rest = prompt.partition(_MARKS[0])
    asked, second, rest = rest.partition(_MARKS[1])
    answer, third, _ = rest.rpartition(_MARKS[2])
    if not (first and second and third):
        raise DataError(f"{where}, column '{side}_instruction': expected the headings {', '.join(_MARKS)} in this order")
    return asked.strip("\n"), answer.strip("\n")
