"""Reading the hand-written source texts of ``data/sources``; the formats are described in the head
of each file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "sources"


@dataclass
class Block:
    """A named part of a source file with its lines in order."""

    name: str
    lines: list[str] = field(default_factory=list)

    def tagged(self, tag: str) -> list[str]:
        """Return what follows the tag in every line that starts with it."""
        return [line[len(tag) :].strip() for line in self.lines if line.startswith(tag)]

    def one(self, tag: str, default: str | None = None) -> str:
        """Return the only value of a tag; raises ValueError when it is missing and has no default."""
        found = self.tagged(tag)
        if found:
            return found[0]
        if default is None:
            raise ValueError(f"block {self.name!r} has no line starting with {tag!r}; add one")
        return default


def lines(name: str) -> list[str]:
    """Return the lines of a source file without comments and blank lines."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def blocks(name: str, mark: str = "== ") -> list[Block]:
    """Return the blocks of a source file; each starts with a line that begins with the mark."""
    found: list[Block] = []
    for line in lines(name):
        if line.startswith(mark):
            found.append(Block(line[len(mark) :].strip()))
        elif found:
            found[-1].lines.append(line)
        else:
            raise ValueError(
                f"{name} starts with {line[:40]!r}; expected a line that begins with {mark!r}"
            )
    return found


def phrases() -> dict[str, list[str]]:
    """Return the sentence frames of ``phrases.txt`` by section name."""
    return {block.name.rstrip("]"): block.lines for block in blocks("phrases.txt", mark="[")}
