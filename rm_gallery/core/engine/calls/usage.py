"""Tokens and money of model calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass
class Usage:
    """What one or many calls used.

    `cached_tokens` (input the provider had in its own cache) are part of `input_tokens`, `reasoning_tokens` part of
    `output_tokens`. `calls` were paid for, `cached_calls` were answered from the call cache and count no tokens. `cost`
    is None where nothing is known about it, which one call without a price makes true of the whole sum.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cached_calls: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def empty(self) -> bool:
        """Whether nothing was paid for: neither calls nor tokens nor cost."""
        return not (self.calls or self.input_tokens or self.output_tokens or self.cost)

    def add(self, other: Usage, cost: float | None = None) -> None:
        """Count another usage in, at `cost` where it has none of its own."""
        cost = cost if other.cost is None else other.cost
        if self.empty:
            # Nothing paid for yet, so nothing unknown either.
            if self.cost is None or not other.empty:
                self.cost = cost
        elif not other.empty:
            self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cached_tokens += other.cached_tokens
        self.reasoning_tokens += other.reasoning_tokens
        self.calls += other.calls
        self.cached_calls += other.cached_calls

    def copy(self) -> Usage:
        """An independent copy."""
        return replace(self)

    @classmethod
    def sum(cls, usages: Iterable[Usage]) -> Usage:
        """All usages counted together."""
        total = cls()
        for usage in usages:
            total.add(usage)
        return total
