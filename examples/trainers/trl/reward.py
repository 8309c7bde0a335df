"""The reward of the recipe, and the same arithmetic as a plain function of TRL's arguments."""

from __future__ import annotations

from typing import Any

from rm_gallery import Message, reward_function
from rm_gallery.integrations.trl import trl_reward


@reward_function(score_range=(0.0, 1.0))
def says_it(messages: list[Message], wanted: str = "", **columns: Any) -> float:
    """The share of the words said that are the wanted one."""
    return share(messages[-1].text, wanted)


def plain_says_it(completions: list[str], wanted: list[str], **columns: Any) -> list[float]:
    """The same, without RM-Gallery."""
    return [share(text, word) for text, word in zip(completions, wanted, strict=True)]


def share(text: str, word: str) -> float:
    """How many of the words of a text are this one; 0 of an empty text."""
    words = text.split()
    return words.count(word) / len(words) if words else 0.0


ours = trl_reward(says_it)
