"""Printing a list of sentences as plain text or markdown, in growing lengths."""

from __future__ import annotations

from collections.abc import Sequence

from data.builders.common import Draw, is_chinese

_TITLES = ("Answer", "In short", "Summary", "The main points", "Short version", "What to know")
_TITLES_ZH = ("回答", "简要说明", "要点", "总结")


def _paragraph(sentences: Sequence[str], joint: str, draw: Draw) -> str:
    if len(sentences) > 2 and draw.chance(0.35):
        middle = len(sentences) // 2
        return joint.join(sentences[:middle]) + "\n\n" + joint.join(sentences[middle:])
    return joint.join(sentences)


def _lead(sentences: Sequence[str], joint: str) -> str:
    rest = joint.join(sentences[1:])
    return f"**{sentences[0]}**" + (f"\n\n{rest}" if rest else "")


def _bullets(sentences: Sequence[str]) -> str:
    if len(sentences) == 1:
        return f"- {sentences[0]}"
    return sentences[0] + "\n\n" + "\n".join(f"- {sentence}" for sentence in sentences[1:])


def render(sentences: Sequence[str], markdown: bool, draw: Draw) -> str:
    """Print the sentences in order, with a layout that is chosen at random within the style."""
    chinese = is_chinese(sentences[0])
    joint = "" if chinese else " "
    if not markdown:
        return _paragraph(sentences, joint, draw)
    layout = draw.pick(("lead", "bullets", "numbers", "title"))
    if layout == "lead":
        return _lead(sentences, joint)
    if layout == "bullets":
        return _bullets(sentences)
    if layout == "numbers":
        return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))
    return f"### {draw.pick(_TITLES_ZH if chinese else _TITLES)}\n\n" + joint.join(sentences)


def lengths(sentences: Sequence[str], least: int, markdown: bool, draw: Draw) -> tuple[str, ...]:
    """Print the first least, least + 1, ... sentences, so that one answer exists in several
    lengths.
    """
    least = min(least, len(sentences))
    return tuple(
        render(sentences[:count], markdown, draw) for count in range(least, len(sentences) + 1)
    )
