"""The part of a solution that announces its answer."""

from __future__ import annotations

import re

from rm_gallery.gallery.rm.general.boxed import last_boxed
from rm_gallery.core.text.blocks import after_thought

_PHRASE = re.compile(
    r"####"
    r"|\b(?:answer|option|choice)\b[^.\n:=]{0,40}?(?:\b(?:is|are|would\s+be|will\s+be)\b|:|=)\s*:?"
    r"|(?:答案|正确选项|答)\s*(?:应该|应当|应)?\s*(?:选择|选|是|为|等于|:|：|=)\s*[:：]?",
    re.IGNORECASE,
)
_TAIL = 400


def announced(text: str) -> str | None:
    r"""What the last `\boxed{}` holds, else what follows the last "answer is" (also 答案是, ####) up to its line's end.

    None without any; a thought is left out.
    """
    text = after_thought(text)
    box = last_boxed(text)
    if box is not None:
        return box
    last = None
    for match in _PHRASE.finditer(text):
        last = match
    if last is None:
        return None
    rest = text[last.end() : last.end() + _TAIL].lstrip(" \t\n*_")
    return rest.split("\n", 1)[0] or None
