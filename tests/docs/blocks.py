"""Code blocks of a Markdown file, in order, and which of them are not to be run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.children import ROOT

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*).*$")
_OPT_OUT = re.compile(r"^<!-- (?:not run: )?(?P<reason>(?<=not run: )\S.*|file: \S+) -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line of its first code line (from 1), its code."""

    language: str
    line: int
    code: str
    not_run: str | None = None
    """The reason why it is not run, from `<!-- not run: reason -->` right before it, or the file
    that a recipe writes it to.
    """


def documents() -> list[Path]:
    """The Markdown files whose blocks are checked."""
    single = (
        "README.md",
        "data/README.md",
        "gallery/README.md",
        "CONTRIBUTING.md",
        "skills/rm-gallery/SKILL.md",
    )
    docs = ROOT / "docs"
    pages = [*sorted(docs.glob("*.md")), *sorted((docs / "design").glob("*.md"))]
    return [path for path in [*(ROOT / name for name in single), *pages] if path.is_file()]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text; ValueError for one that is never closed."""
    found: list[Block] = []
    lines = text.splitlines()
    at, before = 0, ""
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            before = lines[at].strip() or before
            at += 1
            continue
        indent, start = len(opening["indent"]), at + 1
        at = start
        while at < len(lines) and lines[at].strip() != "```":
            at += 1
        if at == len(lines):
            raise ValueError(f"line {start}: a code block is never closed")
        reason = _OPT_OUT.match(before)
        code = "\n".join(line[indent:] for line in lines[start:at]) + "\n"
        found.append(
            Block(opening["language"], start + 1, code, reason["reason"] if reason else None)
        )
        before = ""
        at += 1
    return found


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a shell block as argument lists; comments, prompts and line continuations are
    taken out.
    """
    found: list[list[str]] = []
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        command: list[str] = []
        for word in [*words, "&&"]:
            if word in ("&&", "||", "|", ";"):
                found += [command] if command else []
                command = []
            else:
                command.append(word)
    return found
