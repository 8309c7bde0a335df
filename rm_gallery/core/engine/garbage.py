"""Fewer searches for cycles while a run goes on."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RELAXED_GC = (200_000, 50, 100)
RESULT_OBJECTS = 15
"""A sample of one answer, scored by one plain rule, holds so many objects that the collector
counts.
"""
OTHER_OBJECTS = 1_000
MOST_HELD = 100_000
"""For so many results of a list, at most, the search is put off."""
_gc_lock = threading.Lock()
_runs = 0
_gc_before = _gc_now = gc.get_threshold()


@contextmanager
def relaxed_gc(results: int = 0) -> Iterator[None]:
    """Fewer cycle collections while at least one run goes on, which keeps this many results.

    Python looks for cycles every 700 allocations, again and again through everything that lives; a
    run's records hold no cycles, and on a rule reward that search cost more than the judging
    (20,000 against 47,000 samples/s). A collector switched off by the host stays off.
    """
    global _runs, _gc_before, _gc_now
    with _gc_lock:
        _runs += 1
        if _runs == 1:
            _gc_before = _gc_now = gc.get_threshold()
            if 0 < _gc_before[0] < RELAXED_GC[0]:
                _gc_now = (
                    RELAXED_GC[0] + (RESULT_OBJECTS + 2) * min(results, MOST_HELD),
                    *RELAXED_GC[1:],
                )
                gc.set_threshold(*_gc_now)
    try:
        yield
    finally:
        with _gc_lock:
            _runs -= 1
            if _runs == 0 and gc.get_threshold() == _gc_now != _gc_before:
                _spare_results(results)
                gc.set_threshold(*_gc_before)


def _spare_results(results: int) -> None:
    """Count the results of a run among the old objects unsearched, if there is hardly anything new
    besides them.

    The search would find nothing, and takes a quarter of a rule's time. Where a reward leaves
    cycles behind there is more than the results account for, and the search goes ahead.
    """
    accounted = RESULT_OBJECTS * results
    if accounted > 10 * OTHER_OBJECTS and not gc.get_freeze_count():
        if accounted // 2 < gc.get_count()[0] <= accounted + 2 * results + OTHER_OBJECTS:
            gc.freeze()
            gc.unfreeze()
