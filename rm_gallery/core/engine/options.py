"""How a run goes: the options that every door takes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name


@dataclass(frozen=True)
class RunOptions:
    """How a run goes. Every door takes these names as keywords, too; they win over `options=`."""

    max_workers: int = 8
    """Judgements in flight at once."""
    deadline: float | None = None
    """Seconds one sample may take; None takes the reward's own."""
    progress: bool | None = False
    """True shows progress on stderr, None only on a terminal or in a notebook."""
    cache: bool | None = None
    """None caches replies at temperature 0, False neither reads nor writes the cache."""
    budget: Budget | None = None
    run_dir: str | None = None
    """Folder that keeps every finished sample; the same run continues there."""
    manifest: dict[str, Any] | None = None
    """What else identifies the run (data file and its hash, protocol); compared when the run is continued."""
    force_new: bool = False
    """Set an existing run with another manifest aside instead of refusing."""
    repeat: int = 0
    """Which of several equal runs this is; judge replies are cached per number."""
    total: int | None = None
    """Number of samples where it is known and the iterable has no length."""
    control: RunControl | None = None
    """Counters and stop switch, begun anew with the run; given by a caller that wants to read them afterwards."""
    trace: bool = False
    """Keep prompt, reply, tokens and seconds of every judgement in the run folder."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is none, or below its least value."""
        try:
            workers = 0 if isinstance(self.max_workers, bool) else operator.index(self.max_workers)
        except TypeError:
            workers = 0
        if workers < 1:
            raise ConfigError(f"max_workers is {self.max_workers!r}; give a positive whole number.")
        object.__setattr__(self, "max_workers", workers)
        seconds = self.deadline
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise ConfigError(f"deadline is {seconds!r}; give a positive number of seconds.")
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", str(self.run_dir))
        if self.trace and self.run_dir is None:
            raise ConfigError("trace=True keeps judgements in the run folder: give run_dir=… as well.")


OPTIONS = frozenset(field.name for field in fields(RunOptions))


def chosen_options(
    options: RunOptions | None, default: RunOptions, given: Mapping[str, Any], known: Iterable[str] = ()
) -> tuple[RunOptions, dict[str, Any]]:
    """`options`, else `default`, with the keywords of a call on top, and those of them that are `known` to the hooks.

    A keyword that is None leaves the option as it is, and so does max_workers=0.

    Raises:
        ConfigError: a keyword is neither an option nor known; names the nearest ones.
    """
    hooks = {name: value for name, value in given.items() if name not in OPTIONS}
    for name in hooks:
        if name not in (known := set(known)):
            hint = "Values for hooks that only take **kwargs are passed as hooks={…}."
            raise ConfigError(unknown_name("option or hook parameter", name, OPTIONS | known, hint))
    changes = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
    if changes.get("max_workers") == 0 and changes["max_workers"] is not False:
        del changes["max_workers"]
    if options is not None and not isinstance(options, RunOptions):
        raise ConfigError(f"options is a {type(options).__name__}; it is RunOptions(…).")
    chosen = default if options is None else options
    return (replace(chosen, **changes) if changes else chosen), hooks
