"""How a run goes: the options that every door takes."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Literal, TypedDict

from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.repeat import MOST_REPEATS, InRound
from rm_gallery.core.model.budget import Budget
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.names import unknown_name


@dataclass(frozen=True)
class RunOptions:
    """How a run goes. Every door takes these names as keywords, too; they win over `options=`."""

    max_workers: int = MAX_WORKERS
    """Judgements of one reward in flight at once; on Ray of all actors together."""
    deadline: float | None = None
    """Seconds one sample may take; None takes the reward's own."""
    progress: bool | None = False
    """True shows progress on stderr, None only on a terminal or in a notebook."""
    cache: bool | None = None
    """Whether replies are read from the cache and kept there; None as the model says, else at
    temperature 0.
    """
    budget: Budget | None = None
    run_dir: str | None = None
    """Folder that keeps every finished sample; the same run continues there."""
    manifest: dict[str, Any] | None = None
    """What else identifies the run (data file and its hash, protocol); compared when the run is
    continued.
    """
    force_new: bool = False
    """Set an existing run with another manifest aside instead of refusing."""
    repeat: int = 0
    """Which of several equal runs this is; judge replies are cached per number."""
    total: int | None = None
    """Number of samples where it is known and the iterable has no length."""
    control: RunControl | None = None
    """Counters and stop switch, begun anew with the run; given by a caller that wants to read them
    afterwards.
    """
    engine: Literal["ray"] | None = None
    """"ray" has actors of a Ray cluster judge, with one budget and shares of the rates; each machine
    keeps its own cache. None judges in this process."""
    address: str | None = None
    """Of the Ray cluster; None is the one that RAY_ADDRESS names, else one that is begun here, with
    the cores of this machine.
    """
    processes: int | None = None
    """Actors with `engine="ray"`, one a processor by default; else the killable processes of a
    reward that is `cpu_bound`, one a processor by default. Nothing else has processes."""
    batch: Literal["openai", "anthropic"] | None = None
    """Judge by the batch API of this provider, at half the price and within a day. Needs `run_dir`:
    there it is kept what was sent, so that the same call waits for it after a restart."""
    submit: bool = False
    """With `batch`: end once what can be asked now is sent; the same call without it collects."""
    blame: Literal["probe", "off"] | None = None
    """"probe" tries an answer that could not be judged again, and then others that were in its
    place; where only those can be judged the answer caused it, and has the worst score of the
    range. None is "probe" wherever a score trains, else "off"."""
    trace: bool = False
    """Keep prompt, reply, tokens and seconds of every judgement in the run folder."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that its option does not take, or that needs another one."""
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        for name, (other, why) in _NEEDS.items():
            if getattr(self, name) not in (None, False) and getattr(self, other) is None:
                raise Inapplicable(why, name)
        for name in ("deadline", "processes", "engine") if self.batch else ():
            if getattr(self, name) is not None:
                raise Inapplicable(
                    f"{name}= is for calls of their own: leave it out with batch=, whose calls "
                    f"take up to a day.",
                    name,
                    "batch",
                )


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions` as keywords; None leaves an option as it is."""

    max_workers: int | None
    deadline: float | None
    progress: bool | None
    cache: bool | None
    budget: Budget | None
    run_dir: str | PathLike[str] | None
    manifest: dict[str, Any] | None
    force_new: bool | None
    repeat: int | None
    total: int | None
    control: RunControl | None
    processes: int | None
    engine: Literal["ray"] | None
    address: str | None
    batch: Literal["openai", "anthropic"] | None
    submit: bool | None
    blame: Literal["probe", "off"] | None
    trace: bool | None


BATCH_PROVIDERS = {"openai": 50_000, "anthropic": 100_000}
"""By name, the most requests of one batch."""
BATCH_PRICE_SHARE = 0.5
"""Of the online price, what a call in a batch costs (OpenAI and Anthropic, 2026)."""


_NEEDS = {
    "address": ("engine", "address is that of a Ray cluster: give engine='ray' as well."),
    "submit": (
        "batch",
        "submit=True sends batches: give batch='openai' or batch='anthropic' as well.",
    ),
    "batch": (
        "run_dir",
        "batch= keeps what was sent in the run folder, for a restart: give run_dir= (--out RUN) as "
        "well.",
    ),
    "trace": (
        "run_dir",
        "trace=True keeps judgements in the run folder: give run_dir=… as well.",
    ),
}
"""By option, another one that has to be given as well, and why."""


def detached_options(options: RunOptions, **changes: Any) -> RunOptions:
    """How something is judged beside a run: in this process, by calls of its own, and keeping
    nothing.
    """
    nothing = dict.fromkeys(("processes", "engine", "address", "batch", "run_dir"))
    off = dict.fromkeys(("submit", "trace", "progress"), False)
    return replace(options, **{**nothing, **off, **changes})


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; ConfigError for anything else."""
    with suppress(TypeError):
        if (
            not isinstance(value, bool)
            and least <= (number := operator.index(value)) <= sys.maxsize
        ):
            return number
    raise ConfigError(
        f"{name} is {value!r:.80}; give a "
        f"{'positive whole number' if least else 'whole number, 0 or more'}."
    )


def _taken(takes: type | tuple[str, ...], what: str, name: str, value: Any) -> Any:
    """A value of a type, one of some words, or None; ConfigError for anything else."""
    if value is None or (value in takes if isinstance(takes, tuple) else isinstance(value, takes)):
        return value
    raise ConfigError(f"{name} is {value!r:.80}; {what}.")


def _seconds(name: str, value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and 0 < value <= sys.float_info.max):
        return value
    raise ConfigError(f"{name} is {value!r:.80}; give a positive number of seconds.")


def _on_disk(name: str, value: Any) -> str | None:
    folder = None if value is None else str(value)
    if folder and re.match(r"[a-z][a-z0-9+.-]+:/", folder):  # a path lost a slash; C:/ is no URL
        raise ConfigError(
            f"{name} is {folder!r:.80}, and a run folder stands on a disk: name a folder, "
            f"and copy it when the run is over."
        )
    return folder


def _repeat(name: str, value: Any) -> int:
    if isinstance(value, InRound):
        return value
    if (number := whole(name, value, 0)) < MOST_REPEATS:
        return number
    raise ConfigError(f"{name} is {value!r:.80}; give a whole number below {MOST_REPEATS:,}.")


_SWITCH = partial(_taken, bool, "it is True or False")
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_workers": partial(whole, least=1),
    "repeat": _repeat,
    "processes": lambda name, value: None if value is None else whole(name, value, 1),
    **dict.fromkeys(("progress", "cache", "force_new", "trace", "submit"), _SWITCH),
    "budget": partial(_taken, Budget, "it is a Budget(max_calls=…, max_tokens=…, max_cost=…)"),
    "control": partial(_taken, RunControl, "it is a RunControl()"),
    "blame": partial(_taken, ("probe", "off"), "it is 'probe' or 'off'"),
    "engine": partial(_taken, ("ray",), "it is 'ray', or left out for this machine"),
    "batch": partial(_taken, tuple(BATCH_PROVIDERS), "it is 'openai' or 'anthropic'"),
    "deadline": _seconds,
    "run_dir": _on_disk,
}
"""By option, what gives its value as it is kept; ConfigError for one that it does not take."""
OPTIONS = frozenset(RunKeywords.__annotations__)
EARLIER = {"part": "shard"}
"""Keywords of callers that have another name now."""


def chosen_options(
    options: RunOptions | None,
    default: RunOptions,
    given: Mapping[str, Any],
    known: Iterable[str] | None = (),
    other_parameters: Collection[str] = (),
) -> tuple[RunOptions, dict[str, Any]]:
    """`options`, else `default`, with the keywords of a call on top, and those of them that are
    `known` to the hooks (None where there are none).

    A keyword that is None leaves the option as it is, and so does max_workers=0, the default of
    0.1. `other_parameters` are the caller's own keywords, suggested when an unknown one looks like
    them.
    Raises ConfigError: a keyword is neither an option nor known; names the nearest ones.
    """
    hooks = {name: value for name, value in given.items() if name not in OPTIONS}
    if unknown := [name for name in hooks if name not in (known or ())]:
        raise _unknown(unknown[0], known, other_parameters)
    changes = {
        name: value for name, value in given.items() if name in OPTIONS and value is not None
    }
    if changes.get("max_workers") == 0 and changes["max_workers"] is not False:
        del changes["max_workers"]
    chosen = default if options is None else options
    if not isinstance(chosen, RunOptions):
        raise ConfigError(f"options is a {type(chosen).__name__}; it is RunOptions(…).")
    return (replace(chosen, **changes) if changes else chosen), hooks


def _unknown(name: str, known: Iterable[str] | None, others: Collection[str]) -> ConfigError:
    if (now := EARLIER.get(name)) in others:
        return ConfigError(f"{name}= is spelled {now}= now.")
    names = OPTIONS.union(known or (), others)
    if known is None:
        return ConfigError(unknown_name("option", name, names))
    hint = "Values for hooks that only take **kwargs are passed as hooks={…}."
    return ConfigError(unknown_name("option or hook parameter", name, names, hint))
