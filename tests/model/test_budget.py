"""A run stops before it exceeds its budget, however many calls are in flight, and says how to go
on; what is spent is in a golden file.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from rm_gallery import Budget, ConfigError
from rm_gallery.core.model.budget import SPEND_LOG, Ledger, Price, PriceTable, Usage
from rm_gallery.core.utils.errors import BudgetExceeded
from tests.engine.virtual_time import run_virtual

PRICES = PriceTable({"judge": Price(1.0, 4.0, 0.5)})


def call(tokens_in: int = 60, tokens_out: int = 40) -> Usage:
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out, calls=1)


def test_calls_never_paid_for_free_their_reservation() -> None:
    budget = Budget(max_calls=1)
    for usage in [Usage()] * 5 + [call()]:
        claim = budget.try_reserve()
        assert claim is not None
        assert budget.try_reserve() is None, "it waits for the one in flight"
        budget.settle(claim, usage)
    assert budget.spent.calls == 1
    with pytest.raises(BudgetExceeded):
        budget.try_reserve()


def test_a_cancelled_wait_claims_nothing() -> None:
    async def main() -> None:
        budget = Budget(max_calls=2)
        claims = [budget.try_reserve(), budget.try_reserve()]
        waiting = [asyncio.ensure_future(budget.reserve()) for _ in range(2)]
        await asyncio.sleep(0)
        assert claims[0] is not None
        budget.settle(claims[0], Usage())
        waiting[0].cancel()  # in the instant it got its claim
        await asyncio.gather(waiting[0], return_exceptions=True)
        assert await asyncio.wait_for(waiting[1], 1.0)

    run_virtual(main())


def test_one_budget_for_two_runs_in_a_folder_counts_once(tmp_path: Path) -> None:
    budget = Budget(max_calls=10)
    for _ in range(2):
        ledger = Ledger(tmp_path)
        budget.attach(ledger)
        for _ in range(3):
            claim = budget.try_reserve()
            assert claim is not None
            budget.settle(claim, call())
        ledger.close()
    assert budget.spent.calls == Ledger(tmp_path).spent.calls == 6


def test_failures_tell_nothing_of_what_a_call_uses() -> None:
    budget = Budget(max_tokens=10_000)
    for _ in range(20):
        claim = budget.try_reserve("judge", 60, most=4000)
        assert claim is not None and claim.tokens == 4000
        assert budget.try_reserve("judge", 60, most=4000) is None
        budget.settle(claim, Usage(calls=True))


@pytest.mark.parametrize(("limit", "failing"), [(1060, 2), (1050, 4), (1000, 1), (1060, 1)])
def test_calls_that_fail_do_not_make_those_that_use_something_look_small(
    limit: int, failing: int
) -> None:
    """Every call but one of `failing` fails, and the others use 100 tokens each."""
    budget = Budget(max_tokens=limit)
    with suppress(BudgetExceeded):
        for number in range(200):
            claim = budget.try_reserve("judge", 60, most=100)
            assert claim is not None
            budget.settle(claim, Usage(calls=1) if number % failing else call())
    assert budget.spent.total_tokens == 1000


@pytest.mark.parametrize("failing", [2, 10])
def test_calls_that_failed_in_an_earlier_part_do_not_make_the_others_look_small(
    failing: int, tmp_path: Path
) -> None:
    """A run that is continued went beyond its limit by a call where many had failed before."""
    limit, made = 1050, 0
    for part_calls in (5 * failing, 200):
        budget, ledger = Budget(max_tokens=limit), Ledger(tmp_path)
        budget.attach(ledger)
        with suppress(BudgetExceeded):
            for _ in range(part_calls):
                claim = budget.try_reserve("judge", 60, most=100)
                assert claim is not None
                budget.settle(claim, Usage(calls=1) if made % failing else call())
                made += 1
        ledger.close()
    assert budget.spent.total_tokens == 1000


def test_what_failed_is_kept_as_a_paid_call(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.end(ledger.begin(512, 0.25), Usage(calls=True))
    ledger.close()
    assert Ledger(tmp_path).spent == Usage(calls=1)


def test_an_earlier_part_without_prices_does_not_lift_the_limit_on_cost(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.end(ledger.begin(512, 0.0), call())
    ledger.close()
    budget = Budget(max_cost=0.0005, prices=PRICES)
    budget.attach(Ledger(tmp_path))
    for _ in range(2):
        claim = budget.try_reserve("judge", 60)
        assert claim is not None
        budget.settle(claim, call(), "judge")
    with pytest.raises(BudgetExceeded, match=r"calls 3, tokens 300, cost 0\.0004"):
        budget.try_reserve("judge", 60)


def test_waiters_live_on_several_loops_and_none_is_forgotten() -> None:
    budget, made = Budget(max_calls=400), Counter[int]()

    async def worker(thread: int) -> None:
        with suppress(BudgetExceeded):
            while True:
                claim = budget.try_reserve() or await budget.reserve()
                used = Usage()
                try:
                    await asyncio.sleep(0)
                    used = call()
                    made[thread] += 1
                finally:
                    budget.settle(claim, used)

    async def main(thread: int) -> None:
        tasks = [asyncio.ensure_future(worker(thread)) for _ in range(150)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    threads = [threading.Thread(target=asyncio.run, args=(main(k),)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert budget.message is not None and budget.spent.calls == sum(made.values()) == 400


def test_who_waited_on_a_loop_that_closed_leaves_the_room_to_others() -> None:
    budget = Budget(max_calls=2)
    claims = [budget.try_reserve(), budget.try_reserve()]
    gone = asyncio.new_event_loop()
    left = gone.create_task(budget.reserve())
    gone.run_until_complete(asyncio.sleep(0))
    gone.set_exception_handler(lambda *_: None)  # of a task that was left
    gone.close()

    async def main() -> None:
        waiting = asyncio.ensure_future(budget.reserve())
        await asyncio.sleep(0)
        assert claims[0] is not None
        budget.settle(claims[0], Usage())
        assert await asyncio.wait_for(waiting, 1.0)

    run_virtual(main())
    assert not left.done()


def test_a_model_without_a_price_is_told_to_its_own_caller() -> None:
    async def main() -> None:
        budget = Budget(max_cost=0.01, prices=PRICES)
        claim = budget.try_reserve("judge", 60, 2000)
        waiting = [asyncio.ensure_future(budget.reserve(name, 60, 2000)) for name in ("judge", "x")]
        await asyncio.sleep(0)
        assert claim is not None
        budget.settle(claim, call(), "judge")
        assert await waiting[0]
        with pytest.raises(ConfigError, match="no price for: x"):
            await waiting[1]

    run_virtual(main())


@pytest.mark.parametrize("cut", [0, 1, 7, 20])
def test_what_a_killed_process_had_begun_counts_with_its_estimate(tmp_path: Path, cut: int) -> None:
    ledger = Ledger(tmp_path)
    entries = [ledger.begin(512, 0.25) for _ in range(3)]
    ledger.end(entries[0], Usage(100, 50, 0, 0, 1, 0.125))
    ledger.begin(1, 0.0)  # what ended is written with the next begin
    data = (tmp_path / SPEND_LOG).read_bytes()
    (tmp_path / SPEND_LOG).write_bytes(data[: len(data) - cut])
    before = Ledger(tmp_path).spent
    whole = cut < 8
    assert before.calls == (3 if cut else 4)
    assert before.total_tokens == (150 if whole else 512) + 2 * 512 + (0 if cut else 1)
    again = Ledger(tmp_path)
    assert again.begin(5, 0.0) > entries[-1]
    again.close()
    assert Ledger(tmp_path).spent.calls == before.calls + 1
    ledger.close()
