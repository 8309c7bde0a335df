"""The values that pass between the subset builders and the writer, and a reproducible source of
choices.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

SEED = 20250601
SPLITS = ("train", "test")
BEST_OF_4 = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
SUBSETS = (*BEST_OF_4, "Ties")

Style = tuple[bool, bool, bool, bool]
"""Whether the chosen and the three rejected answers are written in markdown."""

_T = TypeVar("_T")
_MARKDOWN = re.compile(r"\*\*|^#{1,6} |^[-*] |^\d+\. |^```", re.MULTILINE)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Draw:
    """Reproducible choices for one key.

    Only ``random.Random.random`` is used below: it is the one method whose sequence Python promises
    never to change.
    """

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(str(part) for part in (SEED, *key)))

    def below(self, bound: int) -> int:
        """Return an integer from 0 to bound - 1."""
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, share: float) -> bool:
        """Return True in the given share of calls."""
        return self._random.random() < share

    def pick(self, items: Sequence[_T]) -> _T:
        """Return one item."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """Return all items in a new order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(len(rest))]

    def sample(self, items: Sequence[_T], count: int) -> list[_T]:
        """Return count different items, or all of them when there are fewer."""
        return self.shuffled(items)[:count]


@dataclass(frozen=True)
class Candidate:
    """One answer in several lengths that all say the same; kind names how it was made."""

    kind: str
    forms: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """One prompt whose answers still exist in several lengths."""

    prompt: str
    chosen: tuple[Candidate, ...]
    rejected: tuple[Candidate, ...]
    category: str
    subcategory: str
    method: str
    correct: str | None = None
    rules: tuple[str, ...] = ()
    row_id: str | None = None
    label: str | None = None


def has_markdown(text: str) -> bool:
    """Return whether the text uses bold, headings, list marks at line starts or code fences."""
    return bool(_MARKDOWN.search(text))


def is_chinese(text: str) -> bool:
    """Return whether the text holds at least one Chinese character."""
    return bool(_CHINESE.search(text))


def sentence_case(text: str) -> str:
    """Return the text with its first letter in upper case and the rest untouched."""
    return text[:1].upper() + text[1:]


def halves(items: Sequence[_T], draw: Draw) -> dict[str, list[_T]]:
    """Divide the items at random into a train and a test half, so that nothing is used in both."""
    order = draw.shuffled(items)
    middle = (len(order) + 1) // 2
    return {"train": order[:middle], "test": order[middle:]}
