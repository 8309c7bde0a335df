"""What becomes of jobs that are given up, and of those beside them."""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from rm_gallery import ConfigError, RewardRegistry, rule
from rm_gallery.core.engine import engine
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.batch import Run
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.engine import (
    JobCost,
    Lane,
    LaneClock,
    LoopLane,
    Plan,
    ThreadLane,
    Unit,
    Work,
)
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.single import run_single
from tests.support.samples import make_sample


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def plan(*jobs: Any) -> Plan:
    """These jobs, and what came of each."""
    scores = yield list(jobs)
    return [score.value if score.ok else score.code for score in scores]


def test_a_thread_that_was_given_up_and_wakes_says_nothing_twice() -> None:
    """It told once more what it had done before, and its unit ended with jobs that had not run."""
    results, over = list[Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(sleep, RunControl(), deliver, lambda error: None, deadline=0.3)
    ThreadLane(1).feed([Unit(work, 0, plan(0.0, 0.34, 0.1, 0.0))])
    assert over.wait(10.0)
    time.sleep(0.2)  # until the one that was left has woken
    [(_, said)] = results
    assert said == [0.0, "deadline", "deadline", "deadline"]


def test_a_coroutine_that_blocks_the_event_loop_holds_up_no_plain_function() -> None:
    """Threads told the loop of what they had done: a `time.sleep` in a coroutine stopped them all."""
    over, blocked = threading.Event(), threading.Event()
    results = list[Any]()

    async def block() -> None:
        blocked.set()
        over.wait(20.0)

    blocking = library_loop.submit(block())
    assert blocked.wait(10.0)

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(float, RunControl(), deliver, print)
    try:
        ThreadLane(2).feed([Unit(work, 0, plan("0.5"))])
        assert over.wait(5.0) and results == [(0, [0.5])]
    finally:
        over.set()
        blocking.result(timeout=20)


def test_who_waited_behind_one_that_hangs_has_all_its_time() -> None:
    """A unit's clock began with its first job, while the other one stood behind a stranger."""
    results, over = dict[int, Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.update(found)
        if len(results) == 2:
            over.set()

    work = Work(sleep, RunControl(), deliver, lambda error: None, deadline=0.3)
    ThreadLane(1).feed([Unit(work, 0, plan(0.01)), Unit(work, 1, plan(0.02, 1.0, 0.0))])
    assert over.wait(10.0)
    assert results == {0: [0.01], 1: [0.02, "deadline", "deadline"]}


def test_a_lane_of_threads_that_is_abandoned_begins_nothing_more() -> None:
    begun, first = list[float](), threading.Event()

    def note(seconds: float) -> float:
        begun.append(seconds)
        first.set()
        return sleep(seconds)

    lane = ThreadLane(1)
    work = Work(note, RunControl(), lambda found: None, lambda error: None)
    lane.feed([Unit(work, 0, plan(*[0.02] * 50))])
    assert first.wait(10.0)
    lane.abandon()
    time.sleep(0.2)
    assert len(begun) <= 2


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_plan_may_ask_again_and_is_finished_before_others_begin(lane: type[Lane]) -> None:
    begun, results, over = list[str](), list[Any](), threading.Event()

    def note(job: str) -> str:
        begun.append(job)
        return job.upper()

    def twice(name: str) -> Plan:
        first = yield [f"{name}1"]
        second = yield [f"{name}2", f"{name}3"]
        nothing = yield []
        return [score.value for score in (*first, *second, *nothing)]

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        if len(results) == 3:
            over.set()

    def known() -> Plan:
        yield from ()
        return "known"

    work = Work(note, RunControl(), deliver, lambda error: None)
    lane(1).feed([Unit(work, 0, twice("a")), Unit(work, 1, known()), Unit(work, 2, twice("b"))])
    assert over.wait(10.0)
    assert dict(results) == {0: ["A1", "A2", "A3"], 1: "known", 2: ["B1", "B2", "B3"]}
    assert begun == ["a1", "a2", "a3", "b1", "b2", "b3"]


@pytest.mark.parametrize(("late", "said"), [(0.0, 1), (5.0, 0)], ids=["in time", "late"])
def test_a_loop_that_stands_still_is_told_unless_the_machine_is_busy(
    late: float, said: int, monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    """A clock that is late itself says that nobody got a processor."""
    monkeypatch.setattr("rm_gallery.core.engine.engine.BEAT_SECONDS", 0.1)
    monkeypatch.setattr(library_loop, "_still_said", -100.0)
    over, looked = threading.Event(), threading.Event()

    async def block(seconds: float) -> None:
        looked.set()
        time.sleep(seconds)

    work = Work(block, RunControl(), lambda found: over.set(), print, deadline=60.0)
    lane = LoopLane(1)
    monkeypatch.setattr(lane, "_look_at", lambda due: None)  # this test is the clock
    lane.feed([Unit(work, 0, plan(0.5))])
    assert looked.wait(10.0)
    for _ in range(4):
        lane.look(late)
        time.sleep(0.1)
    assert over.wait(10.0)
    library_loop.submit(asyncio.sleep(0.01)).result(10.0)
    assert len(warned) == said


caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


def made_of(lane: Lane, execute: Callable[[Any], Any], *plans: Plan, deadline: float) -> list[Any]:
    """What becomes of plans on a lane, in their order."""
    results, over = dict[int, Any](), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.update(found)
        if len(results) == len(plans):
            over.set()

    work = Work(execute, RunControl(), deliver, lambda error: over.set(), deadline)
    lane.feed([Unit(work, index, each) for index, each in enumerate(plans)])
    assert over.wait(10.0)
    return [results[index] for index in sorted(results)]


async def stay(seconds: float) -> str:
    """Stay that long, whoever cancels it; then who called."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            pass
    return caller.get()


def test_who_comes_after_a_task_that_was_left_knows_its_caller() -> None:
    """The clock's thread had the next worker started, in a context of its own."""
    caller.set("me")
    assert made_of(LoopLane(1), stay, plan(1.0), plan(0.0), deadline=0.1) == [["deadline"], ["me"]]


@pytest.mark.parametrize("ends", ["deadline", "cancel"])
def test_what_a_plain_function_left_to_be_awaited_ends_with_its_job(ends: str) -> None:
    """It ran on the event loop, and asked and paid for what nobody waited for."""
    begun, cut = threading.Event(), threading.Event()

    async def ask() -> None:
        begun.set()
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            cut.set()
            raise

    def plainly(job: float) -> Any:
        return ask() if job else job

    lane = ThreadLane(1)
    if ends == "deadline":
        assert made_of(lane, plainly, plan(1.0), plan(0.0), deadline=0.1) == [["deadline"], [0.0]]
    else:
        work = Work(plainly, RunControl(), lambda found: None, lambda error: None)
        lane.feed([Unit(work, 0, plan(1.0))])
        assert begun.wait(10.0)
        library_loop.drive(lane.cancel(0.0))
    assert cut.wait(10.0)


def test_a_single_sample_s_jobs_do_not_see_what_the_one_before_has_set() -> None:
    def enter(name: str) -> str:
        before = caller.get()
        caller.set(name)
        return before

    how: Any = {"max_workers": 1, "deadline": None, "lane": "threads", "kind": LaneClock}
    caller.set("me")
    for drive in (library_loop.drive, asyncio.run):
        assert drive(run_single(plan("a", "b", "c"), enter, **how)) == ["me"] * 3


async def enters(answer: str) -> float:
    return enters_plainly(answer)


def enters_plainly(answer: str) -> float:
    """1 where no other sample has said who calls."""
    before = caller.get()
    caller.set(answer)
    return float(before == "me")


@pytest.mark.parametrize("function", [enters, enters_plainly])
@pytest.mark.parametrize("inline", [False, True])
def test_no_sample_finds_what_another_one_s_reward_has_set(
    function: Callable[[str], Any], inline: bool
) -> None:
    """A tenant or trace of the sample before was that of the next one of its worker."""
    name = f"{function.__name__}_{inline}"
    rule(name, inline=inline)(function)
    caller.set("me")
    reward = RewardRegistry.get(name)()
    judged = reward.evaluate_batch([make_sample(f"{i}") for i in range(8)], max_workers=2)
    assert [each.output[0].answer.reward.score for each in judged] == [1.0] * 8


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_worker_that_a_job_has_started_does_not_find_what_that_has_set(lane: type[Lane]) -> None:
    def asks_again() -> Plan:
        yield ["first"]
        scores = yield ["a", "b", "c"]
        return [score.value for score in scores]

    async def enter(name: str) -> bool:
        return enters_plainly(name) == 1.0

    caller.set("me")
    assert made_of(lane(4), enter, asks_again(), deadline=60.0) == [[True] * 3]


def test_closing_a_stream_does_not_hold_up_whoever_closes_it() -> None:
    """It waited for a reward that ignored being cancelled, and with it all else on the caller's loop."""

    async def first_only(answer: str) -> float:
        await stay(0.0 if answer == "0" else 1.0)
        return 1.0

    rule("first_only")(first_only)
    reward, beats = RewardRegistry.get("first_only")(), list[float]()

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.01)
            beats.append(time.monotonic())

    async def main() -> int:
        samples = [make_sample(f"{i}", unique_id=f"{i}") for i in range(3)]
        going = reward.async_evaluate_stream(samples, max_workers=3)
        await going.__anext__()
        beating = asyncio.create_task(beat())
        await asyncio.sleep(0.05)
        before = len(beats)
        await going.aclose()
        beating.cancel()
        return len(beats) - before

    assert asyncio.run(main()) > 1


def no_more(function: Callable[[], None]) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_where_there_is_no_thread_to_be_had_nobody_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock had none, and that took the worker with it, or the clock for all that followed."""
    library_loop.get_loop()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_clock", LaneClock())
        patch.setattr(library_loop, "start_thread", no_more)
        made = made_of(LoopLane(2), stay, plan(0.0), plan(0.6), deadline=0.1)
        assert made == [[caller.get()], ["deadline"]]
        with pytest.raises(RuntimeError, match="thread"):
            made_of(ThreadLane(2), sleep, plan(0.0), deadline=0.1)


def test_a_clock_that_waits_for_nobody_goes_on() -> None:
    """A lane that another clock forgot had no time to be looked at, which no thread waits for."""
    clock, lane, seen = LaneClock(), LoopLane(1), threading.Event()
    clock.look_at(lane, time.monotonic() + 0.05)
    LaneClock().forget(lane)
    time.sleep(0.2)
    late: Any = type("Late", (), {"due": math.inf, "look": lambda self, late: seen.set()})()
    clock.look_at(late, time.monotonic())
    assert seen.wait(10.0)


def test_a_clock_without_threads_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan asked after its only worker was left had none, and the error ended the clock."""

    def asks_again() -> Plan:
        (first,) = yield [0.5]
        (second,) = yield [0.0]
        return first.code, second.code

    results = list[Any]()
    work = Work(sleep, RunControl(), results.extend, lambda error: None, deadline=0.1)
    ThreadLane(1).feed([Unit(work, 0, asks_again())])
    monkeypatch.setattr(library_loop, "start_thread", no_more)
    time.sleep(0.4)
    monkeypatch.undo()
    assert made_of(ThreadLane(1), sleep, plan(1.0), deadline=0.1) == [["deadline"]]
    assert results == [(0, ("deadline", "deadline"))]


def test_a_stream_whose_lane_takes_nothing_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn counted as begun, and was waited for."""
    monkeypatch.setattr(ThreadLane, "feed", lambda lane, units: no_more(print))
    run = Run[Any](iter([plan(0.0)]), sleep, RunOptions(), lane="threads", streaming=True)
    found = list[Any]()

    def take() -> None:
        with pytest.raises(RuntimeError, match="thread"):
            library_loop.drive(run.all())
        found.append("raised")

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(5.0)
    assert found == ["raised"]


def test_a_plan_that_takes_its_time_holds_up_no_deadline_of_others() -> None:
    """One clock looks at all lanes, and the code of a plan ran on its thread."""
    going = threading.Event()

    def slow() -> Plan:
        yield [1.0]
        going.set()
        return sleep(2.0)

    work = Work(sleep, RunControl(), lambda found: None, lambda error: None, deadline=0.05)
    ThreadLane(1).feed([Unit(work, 0, slow())])
    assert going.wait(10.0)
    began = time.monotonic()
    assert made_of(ThreadLane(1), sleep, plan(3.0), deadline=0.1) == [["deadline"]]
    assert time.monotonic() - began < 1.0


def test_lanes_that_are_over_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of single calls each woke the clock, which went through all of them."""
    looks = list[ThreadLane]()
    monkeypatch.setattr(ThreadLane, "look", looks.append)
    how: Any = {"max_workers": 1, "deadline": 1.0, "lane": "threads", "kind": LaneClock}
    for _ in range(50):
        library_loop.drive(run_single(plan(0.0), sleep, **how))
    time.sleep(2 * engine.WATCH_SECONDS)
    assert len(looks) < 10


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_lane_that_was_idle_is_looked_at_again(lane: type[Lane]) -> None:
    """A look that found nobody at work was the last one."""

    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds)

    one, execute = lane(1), sleep if lane is ThreadLane else rest
    made_of(one, execute, plan(0.0), deadline=0.1)
    time.sleep(0.3)
    assert made_of(one, execute, plan(3.0), deadline=0.1) == [["deadline"]]


def test_threads_go_on_when_the_event_loop_is_shut_down() -> None:
    """What was fed after that was an IndexError to whoever waited."""
    begun = threading.Event()

    def note(seconds: float) -> float:
        begun.set()
        return sleep(seconds)

    results, plans = list[Any](), (plan(0.05) for _ in range(8))
    run = Run[Any](plans, note, RunOptions(max_workers=2), lane="threads")
    thread = threading.Thread(target=lambda: results.extend(library_loop.drive(run.all())))
    thread.start()
    assert begun.wait(10.0)
    library_loop.shutdown()
    thread.join(10.0)
    assert results == [[0.05]] * 8


def test_a_unit_that_is_over_before_its_feeder_goes_on_is_told_once() -> None:
    """It was drawn beside one of an earlier run, and had its jobs done while that was handed over:
    who fed it took it for one of those too, and told it twice.
    """
    results, holds, done = list[int](), threading.Event(), threading.Event()

    def deliver(found: list[tuple[int, Any]]) -> None:
        for number, _ in found:
            results.append(number)
            if number == 1:  # what its folder knows; the worker gets ahead of its feeder
                holds.set()
                assert done.wait(10.0)
            elif number == 2:
                done.set()

    def known() -> Plan:
        yield from ()
        return "known"

    def wait(job: str) -> str:
        assert holds.wait(10.0)
        return job

    lane = ThreadLane(1, 0.0)
    work = Work(wait, RunControl(), deliver, lambda error: None)
    lane.feed([Unit(work, 0, plan("a"))])
    lane.feed([Unit(work, 1, known()), Unit(work, 2, plan("b"))])
    assert results == [1, 0, 2]


def test_the_clock_hears_of_who_is_due_before_those_it_waits_for() -> None:
    """Else a deadline is seen a beat late, when another lane is looked at."""

    class Lane(ThreadLane):
        def look(self, late: float = 0.0) -> None:
            looked[self].set()

    clock, far, near = LaneClock(), Lane(1), Lane(1)
    looked = {far: threading.Event(), near: threading.Event()}
    clock.look_at(far, time.monotonic() + 60.0)
    time.sleep(0.05)  # until it waits for that
    clock.look_at(near, time.monotonic())
    try:
        assert looked[near].wait(10.0) and not looked[far].is_set()
    finally:
        clock.look_at(far, 0.0)
    assert looked[far].wait(10.0)


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_what_hangs_is_given_up_also_in_a_lane_that_was_idle(
    lane: type[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    for often in ("ABANDON_SECONDS", "BEAT_SECONDS"):
        monkeypatch.setattr(f"rm_gallery.core.engine.engine.{often}", 0.05)
    results, told, awake = dict[int, Any](), threading.Semaphore(0), threading.Event()

    def deliver(found: list[Any]) -> None:
        results.update(found)
        told.release()

    def hang(job: str) -> Any:
        return asyncio.sleep(60.0) if lane is LoopLane else awake.wait(60.0)

    made = lane(1)
    work = Work(hang, RunControl(), deliver, lambda error: None, deadline=0.05)
    try:
        for number in range(2):
            made.feed([Unit(work, number, plan("hangs"))])
            assert told.acquire(timeout=5.0)
            time.sleep(0.3)  # until nobody is looked at any more
    finally:
        awake.set()
    assert results == {0: ["deadline"], 1: ["deadline"]}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks count how often they are cancelled")
def test_the_job_after_a_late_one_is_not_taken_for_cancelled() -> None:
    """A `TaskGroup` in it would end in CancelledError instead of the error of its task."""
    results, over = dict[int, Any](), threading.Event()

    async def count(seconds: float) -> int:
        await asyncio.sleep(seconds)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling() if sys.version_info >= (3, 11) else 0

    def deliver(found: list[Any]) -> None:
        results.update(found)
        if len(results) == 2:
            over.set()

    work = Work(count, RunControl(), deliver, lambda error: None, deadline=0.2)
    LoopLane(1).feed([Unit(work, 0, plan(60.0)), Unit(work, 1, plan(0.0))])
    assert over.wait(10.0)
    assert results == {0: ["deadline"], 1: [0]}


def test_what_is_done_when_a_lane_is_cancelled_is_handed_over() -> None:
    """Results wait for company; a run that is interrupted then had them for nothing."""
    results, begun = list[Any](), threading.Event()

    async def last_hangs(job: str) -> str:
        if job == "hangs":
            begun.set()
            await asyncio.sleep(60.0)
        return job

    lane = LoopLane(1, 60.0)
    work = Work(last_hangs, RunControl(), results.extend, lambda error: None)
    lane.feed([Unit(work, 0, plan("a")), Unit(work, 1, plan("hangs"))])
    assert begun.wait(10.0)
    library_loop.drive(lane.cancel(0.0))
    assert results == [(0, ["a"])]


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_plan_does_not_go_on_with_what_was_cut_off(lane: type[Lane]) -> None:
    """The folder of the run is closed by then, and a job that was cut off is no failed one."""
    results, begun, awake = list[Any](), threading.Event(), threading.Event()
    went_on = threading.Event()

    async def wait() -> None:
        await asyncio.sleep(60.0)

    def hang(job: str) -> Any:
        begun.set()
        return wait() if lane is LoopLane else awake.wait(10.0)

    def watched() -> Plan:
        yield ["a"]
        went_on.set()
        return "told"

    control, made = RunControl(), lane(1)
    made.feed([Unit(Work(hang, control, results.extend, lambda error: None), 0, watched())])
    assert begun.wait(10.0)
    library_loop.drive(made.cancel(0.0))
    awake.set()
    assert not went_on.wait(0.2) and results == [] and control.in_flight == 0


def test_cheap_results_do_not_wait_for_a_job_that_takes_its_time() -> None:
    """They are handed over together, and nobody knows that the next one is not cheap."""
    results, both = list[int](), threading.Event()

    def deliver(found: list[tuple[int, Any]]) -> None:
        results.extend(number for number, _ in found)
        if len(results) == 2:
            both.set()

    def last_waits(job: str) -> bool:
        return job != "waits" or both.wait(20.0)

    work = Work(last_waits, RunControl(), deliver, lambda error: None, cost=JobCost(1e-5))
    lane = ThreadLane(1, 60.0)
    lane.feed([Unit(work, number, plan(job)) for number, job in enumerate(["a", "b", "waits"])])
    assert both.wait(10.0) and results[:2] == [0, 1]


def test_a_first_job_costs_what_it_took_and_no_single_one_makes_all_seem_slow() -> None:
    cost = JobCost()
    cost.learn(5e-4)
    assert cost.seconds == 5e-4 and not cost.cheap
    cost.learn(60.0)
    assert cost.seconds == pytest.approx(0.7 * 5e-4 + 0.3 * 4 * 5e-4)


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_a_deadline_is_seen_when_it_is_over_and_not_at_the_next_beat(
    lane: type[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    for beat in ("BEAT_SECONDS", "WATCH_SECONDS"):
        monkeypatch.setattr(f"rm_gallery.core.engine.engine.{beat}", 60.0)
    results, over, awake = list[Any](), threading.Event(), threading.Event()

    def hang(job: str) -> Any:
        return asyncio.sleep(60.0) if lane is LoopLane else awake.wait(60.0)

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(hang, RunControl(), deliver, lambda error: None, deadline=0.1)
    try:
        lane(1).feed([Unit(work, 0, plan("hangs"))])
        assert over.wait(20.0)
    finally:
        awake.set()
    assert results == [(0, ["deadline"])]


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_after_an_error_of_the_settings_no_job_of_that_work_is_begun(lane: type[Lane]) -> None:
    """Others that share the lane go on."""
    begun, errors, over = list[str](), list[str](), threading.Event()

    def refuse(job: str) -> str:
        begun.append(job)
        raise ConfigError("mend this")

    ending = Work(refuse, RunControl(), lambda found: None, lambda error: errors.append(str(error)))
    other = Work(str.upper, RunControl(), lambda found: over.set(), lambda error: None)
    made = lane(1)
    made.feed([Unit(ending, number, plan("a", "b")) for number in range(3)])
    made.feed([Unit(other, 0, plan("c"))])
    assert over.wait(10.0)
    assert begun == ["a"] and errors == ["mend this"]


def test_what_a_coroutine_makes_of_being_cancelled_is_no_score() -> None:
    """`except CancelledError: return 0.5` is a number that nobody gave."""
    results, over = list[Any](), threading.Event()

    async def made_up(job: str) -> float:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            return 0.5
        return 1.0

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(made_up, RunControl(), deliver, lambda error: None, deadline=0.1)
    LoopLane(1).feed([Unit(work, 0, plan("late"))])
    assert over.wait(10.0) and results == [(0, ["deadline"])]


def test_who_stops_waiting_for_one_judgement_has_no_more_of_it_begun() -> None:
    """The threads are those of the process: they would go on with what nobody waits for."""
    begun, first, awake = list[int](), threading.Event(), threading.Event()

    def hang(job: int) -> None:
        begun.append(job)
        first.set()
        awake.wait(20.0)

    async def leave() -> int:
        how: Any = {"max_workers": 1, "deadline": None, "lane": "threads", "kind": LaneClock}
        going = asyncio.create_task(run_single(plan(*range(100)), hang, **how))
        assert await asyncio.to_thread(first.wait, 10.0)
        going.cancel()
        await asyncio.wait([going])
        await asyncio.sleep(0.3)  # until those that had their job are at it
        return len(begun)

    try:
        known = asyncio.run(leave())
    finally:
        awake.set()
    time.sleep(0.2)  # until those that were begun have ended
    assert len(begun) == known < 100


def test_cheap_jobs_go_on_beside_several_that_hang() -> None:
    """One thread does what is over at once, and each that is held up gets another beside it."""
    results, over = list[int](), threading.Event()

    def deliver(found: list[tuple[int, Any]]) -> None:
        results.extend(number for number, _ in found)
        if len(results) == 3:
            over.set()

    def hang(job: str) -> bool:
        return job != "hangs" or over.wait(20.0)

    work = Work(hang, RunControl(), deliver, lambda error: None, cost=JobCost(1e-5))
    jobs = ["hangs"] * 3 + ["a", "b", "c"]
    ThreadLane(8).feed([Unit(work, number, plan(job)) for number, job in enumerate(jobs)])
    assert over.wait(10.0) and results[:3] == [3, 4, 5]


@pytest.mark.parametrize("lane", [LoopLane, ThreadLane])
def test_what_comes_when_nobody_waits_for_the_sample_any_more_is_late(lane: type[Lane]) -> None:
    outer, results, over = Deadline(60.0), list[Any](), threading.Event()

    def leave(job: str) -> str:
        outer.expire()
        return job

    def deliver(found: list[Any]) -> None:
        results.extend(found)
        over.set()

    work = Work(leave, RunControl(), deliver, lambda error: None, outer=outer)
    lane(1).feed([Unit(work, 0, plan("a", "b"))])
    assert over.wait(10.0) and results == [(0, ["deadline", "deadline"])]
