"""How a run goes: the options that every door takes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

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
    blame: Literal["probe", "off"] | None = None
    """"probe" asks about an answer that could not be judged once more with a neutral one in its place; where that can be judged
    the answer caused it, and has the worst score of the range. None is "probe" wherever a score trains, else "off"."""
    trace: bool = False
    """Keep prompt, reply, tokens and seconds of every judgement in the run folder."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that its option does not take."""
        object.__setattr__(self, "max_workers", whole("max_workers", self.max_workers, 1))
        object.__setattr__(self, "repeat", whole("repeat", self.repeat, 0))
        for name, (kind, what) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r:.80}; it is {what}.")
        seconds = self.deadline
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise ConfigError(f"deadline is {seconds!r}; give a positive number of seconds.")
        if self.blame not in (None, "probe", "off"):
            raise ConfigError(f"blame is {self.blame!r:.80}; it is 'probe' or 'off'.")
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", str(self.run_dir))
        if self.trace and self.run_dir is None:
            raise ConfigError("trace=True keeps judgements in the run folder: give run_dir=… as well.")


_SWITCH = bool, "True or False"
_KINDS: dict[str, tuple[type, str]] = {
    "progress": _SWITCH,
    "cache": _SWITCH,
    "force_new": _SWITCH,
    "trace": _SWITCH,
    "budget": (Budget, "a Budget(max_calls=…, max_tokens=…, max_cost=…)"),
    "control": (RunControl, "a RunControl()"),
}


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; ConfigError for anything else."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} is {value!r:.80}; give a {'positive whole number' if least else 'whole number, 0 or more'}.")
    return number


OPTIONS = frozenset(field.name for field in fields(RunOptions))


def chosen_options(
    options: RunOptions | None,
    default: RunOptions,
    given: Mapping[str, Any],
    known: Iterable[str] | None = (),
    beside: Iterable[str] = (),
) -> tuple[RunOptions, dict[str, Any]]:
    """`options`, else `default`, with the keywords of a call on top, and those of them that are `known` to the hooks
    (None where there are none).

    A keyword that is None leaves the option as it is, and so does max_workers=0. `beside` are the door's other parameters,
    which may have been meant.

    Raises:
        ConfigError: a keyword is neither an option nor known; names the nearest ones.
    """
    hooks = {name: value for name, value in given.items() if name not in OPTIONS}
    of_hooks = frozenset(known or ())
    for name in hooks:
        if name not in of_hooks:
            what, hint = "option", ""
            if known is not None:
                what = "option or hook parameter"
                hint = "Values for hooks that only take **kwargs are passed as hooks={…}."
            raise ConfigError(unknown_name(what, name, OPTIONS | of_hooks | {*beside}, hint))
    changes = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
    if changes.get("max_workers") == 0 and changes["max_workers"] is not False:
        del changes["max_workers"]
    if options is not None and not isinstance(options, RunOptions):
        raise ConfigError(f"options is a {type(options).__name__}; it is RunOptions(…).")
    chosen = default if options is None else options
    return (replace(chosen, **changes) if changes else chosen), hooks
