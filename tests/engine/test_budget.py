"""A run stops before it exceeds its budget, however many calls are in flight, and says how to go
on; what is spent is in a golden file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.model.budget import Budget, Price, PriceTable, Reservation
from rm_gallery.core.model.usage import SPEND_LOG, Ledger, Usage
from rm_gallery.core.utils.errors import BudgetExceeded
from tests.engine.virtual_time import run_virtual

PRICES = PriceTable({"judge": Price(1.0, 4.0, 0.5)})


def call(tokens_in: int = 60, tokens_out: int = 40) -> Usage:
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out, calls=1)


@pytest.mark.parametrize("limits", [{"max_tokens": 1_000_000}, {"max_cost": 2.2}], ids=str)
def test_the_first_calls_find_out_what_one_costs(limits: dict[str, Any]) -> None:
    budget, rounds = Budget(prices=PRICES, **limits), []
    for _ in range(6):
        claims: list[Reservation] = []
        while (claim := budget.try_reserve("judge", 60)) is not None and len(claims) < 32:
            claims.append(claim)
        rounds.append(len(claims))
        for claim in claims:
            budget.settle(claim, call(), "judge")
    assert rounds == [1, 2, 4, 8, 16, 32]


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
    assert budget.spent.calls == Ledger(tmp_path).before.calls == 6


@pytest.mark.parametrize("cut", [0, 1, 7, 20])
def test_what_a_killed_process_had_begun_counts_with_its_estimate(tmp_path: Path, cut: int) -> None:
    ledger = Ledger(tmp_path)
    entries = [ledger.begin(512, 0.25) for _ in range(3)]
    ledger.end(entries[0], Usage(100, 50, 0, 0, 1, 0.125))
    ledger.begin(1, 0.0)  # what ended is written with the next begin
    data = (tmp_path / SPEND_LOG).read_bytes()
    (tmp_path / SPEND_LOG).write_bytes(data[: len(data) - cut])
    before = Ledger(tmp_path).before
    whole = cut < 8
    assert before.calls == (4 if cut < 2 else 3)
    assert before.total_tokens == (150 if whole else 512) + 2 * 512 + (1 if cut < 2 else 0)
    again = Ledger(tmp_path)
    assert again.begin(5, 0.0) > entries[-1]
    again.close()
    assert Ledger(tmp_path).before.calls == before.calls + 1
    ledger.close()
