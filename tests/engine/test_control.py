"""What a run takes from the one around it, and gives back."""

from __future__ import annotations

import threading
import time

from rm_gallery import FakeLLM, RewardRegistry, rule
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl, current_run
from rm_gallery.core.model import client
from tests.support.samples import make_sample


def test_a_control_that_is_used_again_by_itself_has_what_it_was_given() -> None:
    """It went on without models and for seven seconds of silence, as the run it once was in."""
    inner = RunControl(rate_share=0.5)

    def begun(outer: RunControl | None) -> tuple[object, ...]:
        before = current_run.set(outer)
        inner.begin(max_workers=1, budget=None, cache=None, repeat=0)
        current_run.reset(before)
        given = inner.offline, inner.max_outage, inner.rate_share, inner.fail_fast is None
        inner.end()
        return given

    outer = RunControl(offline=True, max_outage=7.0, rate_share=0.25, fail_fast=None)
    assert begun(outer) == (True, 7.0, 0.5, True)
    assert begun(None) == (False, None, 0.5, False)
    begun(outer)
    inner.max_outage = 3.0  # what is said meanwhile stays
    assert begun(None) == (False, 3.0, 0.5, False)


def test_a_call_that_comes_after_its_run_has_ended_holds_nothing() -> None:
    """A thread that was left behind asked on, and its endpoint allowed the run's calls for good."""
    llm, asked = FakeLLM(model="asked-late", reply="yes", cache=False), threading.Event()

    def late(answer: str) -> float:
        time.sleep(0.3)
        try:
            return float(llm.chat("Late?").text == "yes")
        finally:
            asked.set()

    rule("late")(late)
    RewardRegistry.get("late")().evaluate_batch([make_sample("a")], deadline=0.1, max_workers=2)
    assert asked.wait(10.0)

    async def leases() -> list[int]:
        ends = [each for place, each in client._shared.endpoints.items() if "asked-late" in place]
        return [sum(each._leases.values()) for each in ends]

    assert library_loop.run(leases()) == [0]
