"""What is shown to a judge: a conversation in a hand-made prompt, and candidates in an order that a
text decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol


class Speaking(Protocol):
    """Anything with a role and a text."""

    @property
    def role(self) -> Any:
        """Who speaks; printed as its string value."""

    @property
    def text(self) -> str:
        """What is said."""


def format_messages(messages: Iterable[Speaking]) -> str:
    """Messages as lines of `<role>text</role>`, the layout the founding documents use in
    hand-written prompts.
    """
    return "\n".join(f"<{m.role}>{m.text}</{m.role}>" for m in messages)


def seeded_order(n: int, seed: str) -> list[int]:
    """A permutation of 0 … n-1, uniform over seeds and the same on every machine and day: positions
    sorted by a keyed hash of their number.

    Quicker than seeding a random generator for each sample, which takes some 70 microseconds.
    """
    key = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return sorted(
        range(n),
        key=lambda i: hashlib.blake2b(i.to_bytes(4, "big"), key=key, digest_size=16).digest(),
    )
