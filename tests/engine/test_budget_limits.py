"""A run stops before it exceeds its budget, and says how to go on."""

from __future__ import annotations

import threading

import pytest

from rm_gallery.core.engine.calls.budget import Budget, Price, PriceTable, Usage
from rm_gallery.core.utils.errors import BudgetExceeded, ConfigError

PRICES = PriceTable({"judge": Price(1.0, 4.0, 0.5)})


def call(tokens_in: int = 60, tokens_out: int = 40) -> Usage:
    return Usage(input_tokens=tokens_in, output_tokens=tokens_out, calls=1)


def spend(budget: Budget, in_flight: int, guess: int = 100, usage: Usage | None = None) -> int:
    """Make calls, so many at a time, until the budget refuses; how many were made."""
    made = 0
    try:
        while made < 100_000:
            open_ones = [budget.reserve("judge", guess) for _ in range(in_flight)]
            made += len(open_ones)
            for reservation in open_ones:
                budget.settle(reservation, usage or call(), "judge")
    except BudgetExceeded:
        pass
    return made


@pytest.mark.parametrize(
    ("limits", "in_flight", "guess", "made"),
    [
        ({"max_calls": 10}, 1, 0, 10),
        ({"max_calls": 12}, 4, 0, 12),
        ({"max_tokens": 1000}, 1, 0, 10),
        ({"max_tokens": 1050}, 1, 100, 10),
        ({"max_cost": 0.0022}, 1, 0, 10),
        ({"max_cost": 0.0022}, 1, 100, 9),
        ({"max_calls": 3, "max_tokens": 10**9, "max_cost": 100.0}, 1, 100, 3),
    ],
    ids=[
        "calls",
        "calls, four in flight",
        "tokens",
        "tokens with a guess",
        "cost",
        "cost with a guess at the dearer price",
        "the tightest holds",
    ],
)
def test_where_a_run_stops(limits: dict[str, float], in_flight: int, guess: int, made: int) -> None:
    budget = Budget(prices=PRICES, **limits)  # type: ignore[arg-type]
    assert spend(budget, in_flight, guess) == made
    spent = budget.spent
    assert spent.calls == made
    assert spent.total_tokens <= limits.get("max_tokens", 10**12)
    assert spent.cost is not None
    assert spent.cost <= limits.get("max_cost", 10**12)


def test_calls_in_flight_count_before_they_are_settled() -> None:
    budget = Budget(max_tokens=1000)
    for _ in range(10):
        budget.reserve(tokens=100)
    with pytest.raises(BudgetExceeded):
        budget.reserve(tokens=100)


def test_the_mean_of_what_was_used_replaces_a_careless_guess() -> None:
    assert spend(Budget(max_tokens=10_000), 1, guess=800) == 100


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_calls": 2}, ["--max-calls of 2 calls", "calls 2, tokens 200", "higher --max-calls"]),
        ({"max_tokens": 200}, ["--max-tokens of 200 tokens", "in flight: 0"]),
        ({"max_cost": 0.00044}, ["--max-cost of 0.00044", "cost 0.0002", "run the same command"]),
    ],
)
def test_the_message_says_what_ran_out_and_how_to_go_on(limits: dict[str, float], words: list[str]) -> None:
    budget = Budget(prices=PRICES, **limits)  # type: ignore[arg-type]
    spend(budget, 1)
    with pytest.raises(BudgetExceeded) as caught:
        budget.reserve("judge", 1)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert budget.message == str(caught.value)


def test_once_refused_every_later_call_is_refused() -> None:
    budget = Budget(max_tokens=100)
    with pytest.raises(BudgetExceeded):
        budget.reserve(tokens=101)
    with pytest.raises(BudgetExceeded):
        budget.reserve(tokens=1)


def test_calls_never_paid_for_free_their_reservation() -> None:
    budget = Budget(max_calls=1)
    for _ in range(5):
        budget.settle(budget.reserve(), Usage())
    budget.note(Usage(cached_calls=3))
    budget.settle(budget.reserve(), call())
    assert (budget.spent.calls, budget.spent.cached_calls) == (1, 3)
    with pytest.raises(BudgetExceeded):
        budget.reserve()


def test_a_resumed_run_may_count_what_was_spent_before() -> None:
    budget = Budget(max_calls=5, max_cost=1.0, prices=PRICES, spent=Usage(calls=4, input_tokens=10, cost=0.5))
    assert spend(budget, 1) == 1
    assert budget.spent.calls == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_calls": 0}, "max_calls must be a positive number"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_cost": float("nan"), "prices": PRICES}, "max_cost"),
        ({"max_cost": 1.0}, "needs prices"),
    ],
)
def test_impossible_budgets_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(**fields)  # type: ignore[arg-type]


def test_a_model_without_a_price_is_refused_at_the_start() -> None:
    budget = Budget(max_cost=1.0, prices=PRICES)
    budget.check_models(["judge"])
    with pytest.raises(ConfigError, match="no price for: another, third"):
        budget.check_models(["third", "judge", "another"])
    with pytest.raises(ConfigError, match="no price for: another"):
        budget.reserve("another")
    Budget(max_calls=1).check_models(["anything"])


def test_many_threads_never_exceed_the_calls() -> None:
    budget = Budget(max_calls=500)
    made: list[int] = []
    threads = [threading.Thread(target=lambda: made.append(spend(budget, 1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == budget.spent.calls == 500
