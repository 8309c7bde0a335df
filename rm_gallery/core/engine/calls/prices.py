"""Tokens and money of model calls, and prices per model from a file the user writes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rm_gallery.core.utils.errors import ConfigError

_MAX_BYTES = 1 << 20
_HIGHEST = sys.float_info.max
_EXAMPLE = "write one line per model: `gpt-4o-mini: {input: 0.15, output: 0.60, cached_input: 0.075}`"


@dataclass
class Usage:
    """What one or many calls used.

    `cached_tokens` (input the provider had in its own cache) are part of `input_tokens`, `reasoning_tokens` part of
    `output_tokens`. `calls` were paid for. `cost` is None where nothing is known about it, which one call without a price
    makes true of the whole sum.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
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

    def copy(self) -> Usage:
        """An independent copy."""
        return replace(self)


@dataclass(frozen=True)
class Price:
    """Money per million tokens; `cached_input` is that of input the provider had cached."""

    input: float
    output: float
    cached_input: float

    def cost(self, usage: Usage) -> float:
        """Money for a usage."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * self.cached_input + usage.output_tokens * self.output) / 1e6


class PriceTable:
    """Prices by model name or glob pattern; an exact name wins, then the first matching pattern in the file."""

    def __init__(self, prices: Mapping[str, Price], source: str = "the price table") -> None:
        self.source = source
        self._prices = dict(prices)
        self._patterns = [name for name in self._prices if any(sign in name for sign in "*?[")]
        self._found: dict[str, Price | None] = {}

    @classmethod
    def from_yaml(cls, path: Path | str) -> PriceTable:
        """Read a YAML mapping of model (or pattern) to `input`, `output` and, optionally, `cached_input`.

        Raises:
            ConfigError: the file cannot be read, or an entry is not right; names file, model and field.
        """
        import yaml

        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise ConfigError(f"price file {path} is larger than {_MAX_BYTES:,} bytes; {_EXAMPLE}")
            content = yaml.safe_load(data.decode("utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"price file {path} cannot be read: {error}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"price file {path} is not valid YAML: {str(error)[:500]}") from None
        if not isinstance(content, dict) or not content:
            raise ConfigError(f"price file {path} holds no mapping of models to prices; {_EXAMPLE}")
        if not all(isinstance(model, str | int | float) for model in content):
            raise ConfigError(f"price file {path} holds a model name that is no text; {_EXAMPLE}")
        return cls({str(model): _price(path, str(model), entry) for model, entry in content.items()}, f"price file {path}")

    def find(self, model: str) -> Price | None:
        """The price of a model, or None."""
        if model not in self._found:
            match = next((name for name in self._patterns if fnmatchcase(model, name)), None)
            self._found[model] = self._prices.get(model) or (self._prices[match] if match is not None else None)
        return self._found[model]

    def cost(self, model: str, usage: Usage) -> float | None:
        """Money for a usage of a model; None when the model has no price."""
        price = self.find(model)
        return None if price is None else price.cost(usage)


def _price(path: Path | str, model: str, entry: Any) -> Price:
    if not isinstance(entry, dict):
        raise ConfigError(f"price file {path}, model {model}: found {_shown(entry)} instead of fields; {_EXAMPLE}")
    unknown = sorted(_shown(field).strip("'") for field in entry if field not in ("input", "output", "cached_input"))
    if unknown:
        raise ConfigError(
            f"price file {path}, model {model}: unknown field {', '.join(unknown)}; known are input, output, cached_input"
        )

    def field(name: str) -> float:
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _HIGHEST:
            found = "nothing" if value is None else _shown(value)
            raise ConfigError(
                f"price file {path}, model {model}, field {name}: found {found}, needs a number >= 0 (per million tokens)"
            )
        return float(value)

    return Price(field("input"), field("output"), field("cached_input" if "cached_input" in entry else "input"))


def _shown(value: Any) -> str:
    """A value for a message: a few lines of references in YAML can stand for gigabytes."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else repr(value[:80]) + "…"
    return repr(value) if isinstance(value, bool | int | float) else f"a {type(value).__name__}"
