"""A run that is continued looks whether the code that made its records still does what it did, by scoring some of them again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from math import isclose
from typing import Any, TypeVar

from rm_gallery.core.engine import run as engine
from rm_gallery.core.engine.context import Questions, RunControl
from rm_gallery.core.engine.folder.kept import Keyed, RunFolder, changed
from rm_gallery.core.engine.options import RunOptions

T = TypeVar("T")
SECONDS = 1.0
"""About how long looking may take."""
_FIRST, _MOST, _HEAD = 3, 512, 256
"""How many are scored again at once: at first, at most; and how many of a stream are looked at."""


class Again:
    """Stands in for a run folder while finished samples are judged once more, and holds what they get against what was kept."""

    def __init__(self, folder: RunFolder) -> None:
        """Compare with the records of `folder`."""
        self._folder = folder
        self._records: dict[int, dict[str, Any]] = {}
        self._asked: dict[int, Questions] = {}

    def restore(self, data: Any) -> Any:
        """Nothing: every sample is judged, though there is a record of it."""
        self._records[id(data)] = self._folder.record_of(data) or {}

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample."""
        return self._asked.setdefault(id(data), Questions())

    def append(self, data: Any, *results: Any) -> None:
        """Hear what a sample gets now; ConfigError with the example where it is something else than before."""
        record = self._records.pop(id(data))
        self._folder.check_asked(data, record, self._asked.pop(id(data), Questions()))
        before, now = self._folder.told(record), self._folder.told(self._folder.said(data, *results))
        for place in before.keys() & now.keys():
            if not _same(before[place], now[place]):
                raise changed(
                    self._folder.path, data.sample_id, f"{place} had {_shown(before[place])}, and now gets {_shown(now[place])}"
                )


class Looking:
    """What runs of rewards and of graders share: before they go on they look whether finished samples still get what is kept."""

    label: str
    lane: engine.LaneName
    _folder: Any = None
    _drawn: Iterable[list[Any]] = ()
    _options: RunOptions

    def _parts(self, items: Any, folder: Any, options: RunOptions) -> Any:
        raise NotImplementedError

    def _again(self) -> Iterator[Any]:
        if self._folder is not None:
            for items in self._drawn:
                yield self._parts(items, Again(self._folder), options_again(self._options))

    def look(self) -> None:
        """See whether finished samples still get what is kept of them; ConfigError where they do not."""
        for parts in self._again():
            engine.run_all(*parts, label=self.label, lane=self.lane)

    async def alook(self) -> None:
        """Awaitable twin of `look`."""
        for parts in self._again():
            async for _ in engine.arun(*parts, label=self.label, lane=self.lane):
                pass


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)  # another machine adds in another order
    return bool(before == now)


def _shown(value: Any) -> str:
    return (
        ", ".join(map(_shown, value)) if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else str(value)
    )


def options_again(options: RunOptions) -> RunOptions:
    """How finished samples are judged once more: beside the run, keeping nothing, and without a call to a model."""
    control = RunControl(quiet=True, offline=True)
    return replace(options, control=control, run_dir=None, trace=False, progress=False, total=None, budget=None, blame="off")


def drawn(items: Iterable[T], folder: RunFolder, keyed: Callable[[T], Keyed]) -> tuple[Iterable[T], Iterator[list[T]]]:
    """The items as they were, and lists of some that have a record: a few first, then more until about a second is over.

    Of a list any may be among them, of a stream the first 256.
    """
    if not isinstance(items, list | tuple):
        items = iter(items)
        head = list(islice(items, _HEAD))
        items = chain(head, items)
    else:
        head = list(items)
        random.Random(len(head)).shuffle(head)
    known = (item for item in head if folder.record_of(keyed(item)) is not None)

    def parts() -> Iterator[list[T]]:
        begun, size = time.monotonic(), _FIRST
        while (part := list(islice(known, size))) and time.monotonic() - begun < SECONDS:
            yield part
            size = min(4 * size, _MOST)

    return items, parts()
