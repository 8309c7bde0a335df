"""Reading the command line's shorthand, and what the command writes about itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from loguru import logger

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.calls.prices import PriceTable
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError


def reward_names(incomplete: str) -> list[str]:
    """The registered names that begin so, for the shell's completion."""
    return [name for name in RewardRegistry.list() if name.startswith(incomplete)]


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
    max_calls: int | None, max_tokens: int | None, max_cost: float | None, prices: Path | None
) -> Budget | None:
    """The budget the options ask for, or None; prices alone make cost counted but not limited."""
    if max_calls is None and max_tokens is None and max_cost is None and prices is None:
        return None
    table = PriceTable.from_yaml(prices) if prices is not None else None
    return Budget(max_calls=max_calls, max_tokens=max_tokens, max_cost=max_cost, prices=table)


LEVELS = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG", "http": "TRACE"}


def set_log_level(level: str) -> None:
    """Log to stderr from this level on (only here, where the process is ours, are log sinks touched); `http` traces every call to a model endpoint, without secrets or texts."""
    if level not in LEVELS:
        raise ConfigError(f"--log-level is {level!r}; levels are {', '.join(LEVELS)}.")
    logger.remove()
    line = "{time:HH:mm:ss} {level: <7} {message}"
    # how a run ended is said by the command itself, once
    logger.add(
        sys.stderr, level=LEVELS[level], format=line, diagnose=False, filter=lambda r: "account" not in r["extra"]
    )
