"""What all constraint recipes share: the subject of a text, the task made from it and the wording
of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from data.builders.common import Draw


@dataclass(frozen=True)
class Subject:
    """Something to write about: its name, its key word, a list of items and sentences that can
    stand in any order.
    """

    name: str
    keyword: str
    items: tuple[str, ...]
    sentences: tuple[str, ...]

    def compose(self, draw: Draw, low: int, high: int) -> list[str]:
        """Return between low and high sentences in random order."""
        return draw.sample(self.sentences, draw.between(low, high))


@dataclass(frozen=True)
class Task:
    """A prompt with its rules; propose returns a text that obeys them in some calls only."""

    prompt: str
    rules: tuple[str, ...]
    propose: Callable[[Draw], str]


Recipe = Callable[[Subject, Draw], Task]

_WRITE = (
    "Write about {name}.",
    "Describe {name}.",
    "Write a short text about {name}.",
    "I need a few lines on {name} for a newsletter.",
    "Give me a little description of {name}.",
    "Paint a picture of {name} in words.",
)
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def task(
    subject: Subject, draw: Draw, wish: str, rules: tuple[str, ...], propose: Callable[[Draw], str]
) -> Task:
    """Return the task to write about the subject under the wish, worded in one of several ways."""
    return Task(f"{draw.pick(_WRITE).format(name=subject.name)} {wish}", rules, propose)
