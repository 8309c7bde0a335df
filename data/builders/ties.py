"""Ties: pairs of a question with several equally right answers and one on the same subject with a
single right answer.
"""

from __future__ import annotations

from data.builders import sources
from data.builders.common import Candidate, Draft, Draw, halves, is_chinese, sentence_case


def _answers(values: str, kind: str, frames: list[str], draw: Draw) -> tuple[Candidate, ...]:
    """Word each value in one of the given frames; right and wrong answers are worded alike."""
    found = []
    for value in values.split(";"):
        text = draw.pick(frames).format(x=value.strip())
        found.append(Candidate(kind, (sentence_case(text),)))
    return tuple(found)


def _pair(block: sources.Block, number: int, draw: Draw) -> list[Draft]:
    right, wrong = block.tagged("+ "), block.tagged("- ")
    phrases = sources.phrases()
    made = []
    for place, label in ((1, "ref"), (0, "tied")):
        question = block.one(f"{label}:")
        pool = phrases["ties_zh" if is_chinese(question) else "ties"]
        # One or two wordings per row: the wording must not become a reason to prefer an answer.
        frames = draw.sample(pool, draw.between(1, 2))
        made.append(
            Draft(
                prompt=question,
                chosen=_answers(right[place], "true", frames, draw),
                rejected=_answers(wrong[place], "false", frames, draw),
                category=block.name,
                subcategory=label,
                method="member of a class",
                correct="; ".join(part.strip() for part in right[place].split(";")),
                row_id=f"{label}:{number}",
                label=label,
            )
        )
    return made


def drafts() -> dict[str, list[Draft]]:
    """Return the drafts of both splits, ref before tied, with pair numbers that never repeat across
    the splits.
    """
    blocks = sources.blocks("ties.txt")
    english = halves([block for block in blocks if not is_chinese(block.name)], Draw("ties", "en"))
    chinese = halves([block for block in blocks if is_chinese(block.name)], Draw("ties", "zh"))
    result: dict[str, list[Draft]] = {}
    number = 0
    for split in ("train", "test"):
        draw = Draw("ties", split)
        result[split] = []
        for block in draw.shuffled(english[split] + chinese[split]):
            result[split] += _pair(block, number, draw)
            number += 1
    return result
