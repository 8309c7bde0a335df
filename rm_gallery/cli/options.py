"""Reading the command line's shorthand."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.engine.calls.budget import Budget, PriceTable
from rm_gallery.core.utils.errors import ConfigError


def parse_params(pairs: list[str]) -> dict[str, Any]:
    """`k=v` pairs as constructor fields; a value that is JSON is read as JSON, every other value is text."""
    params: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--param takes k=v; found {pair!r}.")
        try:
            params[key.strip()] = orjson.loads(value)
        except orjson.JSONDecodeError:
            params[key.strip()] = value
    return params


def make_budget(
    max_calls: int | None, max_tokens: int | None, max_cost: float | None, prices: Path | None, llm: Any
) -> Budget | None:
    """The budget the options ask for, or None; prices alone make cost counted but not limited."""
    if max_calls is None and max_tokens is None and max_cost is None and prices is None:
        return None
    table = PriceTable.from_yaml(prices) if prices is not None else None
    return Budget(max_calls=max_calls, max_tokens=max_tokens, max_cost=max_cost, prices=table)


def fingerprint(path: Path) -> dict[str, str]:
    """Name and sha256 of each data file: a run is only continued on the data it was begun with."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(file.relative_to(path)) if path.is_dir() else file.name: _sha256(file) for file in files}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
