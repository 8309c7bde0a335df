"""How a run is to go: one set of options behind every door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rm_gallery.core.engine.calls.budget import Budget
from rm_gallery.core.engine.context import RunControl


@dataclass(frozen=True)
class RunOptions:
    """How a run goes. Every door takes these names as keywords, too; they win over `options=`."""

    max_workers: int = 8
    """Judgements in flight at once."""
    deadline: float | None = None
    """Seconds one sample may take; None takes the reward's own."""
    progress: bool | None = False
    """True shows progress on stderr, None only on a terminal."""
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
    """Counters and stop switch; given by a caller that wants to read them afterwards."""
    trace: bool = False
    """Keep prompt, reply, tokens and seconds of every judgement in the run folder."""
