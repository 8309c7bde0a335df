"""The outage table in the size of a test: an endpoint that goes away costs its own length, and no sample."""

from __future__ import annotations

import pytest

from tests.faults.outages import go_through

IN_FLIGHT, LATENCY = 32, 0.1


@pytest.mark.parametrize(
    "trouble", ["refuses connections", "answers 503", "answers 500", "drops connections", "answers 429"]
)
def test_an_outage_costs_its_length_and_no_sample(trouble: str) -> None:
    found = go_through(trouble, 0.3, 1.0, samples=320, in_flight=IN_FLIGHT, latency=LATENCY)
    assert found.lost == 0
    assert found.ran.control.stopped is None
    assert found.calls <= 320 + 3 * IN_FLIGHT


def test_dead_for_good_stops_with_one_message_and_can_be_continued() -> None:
    found = go_through("refuses connections", 0.3, 60.0, samples=320, in_flight=IN_FLIGHT, max_outage=1.5)
    assert found.ran.control.stopped is not None
    assert "has been down for" in found.ran.control.stopped
    assert "max_outage=1.5" in found.ran.control.stopped
    assert set(found.ran.outcomes) == {("scored", ""), ("failed", "stopped")}


def test_a_server_that_never_answered_stops_after_the_first_deadline() -> None:
    found = go_through("never answers", 0.0, 60.0, samples=320, in_flight=IN_FLIGHT, deadline=1.0)
    assert found.ran.control.stopped is not None
    assert "No answer" in found.ran.control.stopped
    assert found.calls <= 2 * IN_FLIGHT
