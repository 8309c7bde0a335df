"""Parts of an answer: what follows the reasoning, the fenced blocks, the prose without code."""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)*(`{3,}|~{3,})([^\n`]*)\n?")
_INLINE_CODE = re.compile(r"`[^`\n]*`")


class Block(NamedTuple):
    """One fenced block: its language as written after the fence, in lower case, and its body."""

    language: str
    body: str


def after_thought(text: str) -> str:
    """The text after the last `</think>`; empty when a thought begins and never ends, the whole text without one."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return "" if "<think>" in text else text


def thought_of(text: str) -> str:
    """The text from `<think>` to the last `</think>` (or the end), or up to a lone `</think>`; else empty."""
    before, closed, _ = text.rpartition("</think>")
    if not closed:
        return text.partition("<think>")[2]
    return before.partition("<think>")[2] if "<think>" in before else before


def split_fences(text: str) -> tuple[list[Block], str]:
    """The fenced blocks of a Markdown text, and the text outside them.

    A fence is three or more backticks or tildes at a line's start, closed by one at least as long; one that is never
    closed runs to the end.
    """
    blocks: list[Block] = []
    outside: list[str] = []
    body: list[str] = []
    fence, language = "", ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.fullmatch(line)
        if not fence:
            if found:
                fence, language, body = found[1], found[2].strip().lower(), []
            else:
                outside.append(line)
        elif found and found[1].startswith(fence) and not found[2].strip():
            blocks.append(Block(language, "".join(body)))
            fence = ""
        else:
            body.append(line)
    if fence:
        blocks.append(Block(language, "".join(body)))
    return blocks, "".join(outside)


def tagged(text: str, tag: str) -> tuple[list[str], str]:
    """Contents of all `<tag>…</tag>` in a text, and the text outside them; a tag without its partner stays outside."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    first, *parts = text.split(opening)
    contents, outside = [], [first]
    for part in parts:
        content, closed, rest = part.partition(closing)
        if closed:
            contents.append(content)
            outside.append(rest)
        else:
            outside.append(opening + part)
    return contents, "".join(outside)


def prose_of(text: str) -> str:
    """The text without fenced blocks and inline code."""
    return _INLINE_CODE.sub(" ", split_fences(text)[1]) if "`" in text or "~~~" in text else text
