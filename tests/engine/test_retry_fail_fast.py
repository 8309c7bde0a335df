"""A run whose first calls all fail for good stops with one message; any other run goes on."""

from __future__ import annotations

import threading

import pytest

from rm_gallery.core.engine.calls.retry import FailFast
from rm_gallery.core.utils.errors import ProviderError

FATAL = ProviderError("no such key", kind="fatal", status=401)
GONE = ProviderError("connection refused", kind="unreachable")
REJECTED = ProviderError("prompt too long", kind="fatal", status=400)
SILENT = ProviderError("no answer", kind="transient")
LIMITED = ProviderError("slow down", kind="rate_limit", status=429)


@pytest.mark.parametrize(
    ("calls", "trips"),
    [
        ([FATAL] * 20, True),
        ([GONE] * 20, True),
        ([FATAL, GONE] * 10, True),
        ([FATAL] * 19, False),
        ([None] + [FATAL] * 40, True),
        ([FATAL] * 19 + [None] + [FATAL] * 19 + [None] + [FATAL] * 19, False),
        ([None] + [REJECTED] * 40, False),
        ([SILENT] * 20, True),
        ([None] + [SILENT] * 40, False),
        ([LIMITED] * 40, False),
        ([LIMITED] + [FATAL] * 20, True),
        ([KeyError("bug")] * 40, False),
    ],
    ids=[
        "fatal", "unreachable", "both", "too few", "revoked later", "a success in between", "rejected requests of a run",
        "never an answer", "some without an answer", "rate limit is no proof",
        "rate limit does not hide it", "other errors",
    ],
)  # fmt: skip
def test_when_it_trips(calls: list[BaseException | None], trips: bool) -> None:
    tracker = FailFast(limit=20)
    tripped = 0
    for error in calls:
        if error is None:
            tracker.success()
        else:
            tripped += tracker.failure(error)
    assert tripped == int(trips)
    assert (tracker.message is not None) == trips


def test_the_message_names_the_commonest_cause_and_the_next_step() -> None:
    tracker = FailFast(limit=3)
    for error in (FATAL, GONE, FATAL):
        tracker.failure(error)
    assert tracker.message is not None
    assert "first 3 calls" in tracker.message
    assert "2 times: HTTP 401: no such key" in tracker.message
    assert "same command" in tracker.message


def test_it_trips_once_from_many_threads() -> None:
    tracker = FailFast(limit=50)
    trips: list[bool] = []
    threads = [
        threading.Thread(target=lambda: trips.extend(tracker.failure(FATAL) for _ in range(25))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(trips) == 1
