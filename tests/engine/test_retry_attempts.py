"""Which failures are tried again, how often, and after how long."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rm_gallery.core.engine.calls.endpoint import Endpoint
from rm_gallery.core.engine.calls.retry import RetryEvent, RetryPolicy, run_attempts
from rm_gallery.core.utils.errors import ConfigError, ProviderError, ProviderErrorKind
from tests.engine.virtual_time import now, run_virtual


class _Longest(random.Random):
    """Always draws the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return b


def failure(kind: ProviderErrorKind, **more: float) -> ProviderError:
    status = int(more["status"]) if "status" in more else None
    return ProviderError(f"{kind} trouble", kind=kind, status=status, retry_after=more.get("retry_after"))


def play(
    outcomes: Sequence[ProviderError | str], endpoint: Endpoint | None = None, rng: random.Random | None = None
) -> tuple[str | ProviderError, list[RetryEvent], int, float]:
    """Result or error, the retries, the attempts made and the seconds it took."""
    events: list[RetryEvent] = []
    made = 0

    async def call() -> str:
        nonlocal made
        outcome = outcomes[min(made, len(outcomes) - 1)]
        made += 1
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    async def main() -> tuple[str | ProviderError, float]:
        start = now()
        try:
            return await run_attempts(
                call, RetryPolicy(rng=rng or _Longest()), on_retry=events.append, endpoint=endpoint
            ), now() - start
        except ProviderError as error:
            return error, now() - start

    result, seconds = run_virtual(main())
    return result, events, made, seconds


@pytest.mark.parametrize(
    ("outcomes", "answered", "attempts", "waits"),
    [
        (["yes"], False, 1, []),
        ([failure("transient"), "yes"], False, 2, [0.5]),
        ([failure("rate_limit", status=429), failure("transient", status=500), "yes"], False, 3, [0.5, 1.0]),
        ([failure("transient")], False, 6, [0.5, 1, 2, 4, 8]),
        ([failure("fatal", status=401)], False, 1, []),
        ([failure("transient"), failure("fatal", status=400)], False, 2, [0.5]),
        ([failure("unreachable")], False, 3, [0.5, 1.0]),
        ([failure("unreachable")], True, 6, [2, 4, 8, 16, 32]),
        ([failure("transient", status=503), failure("unreachable")], False, 6, [0.5, 4, 8, 16, 32]),
        ([failure("rate_limit", status=429, retry_after=7.0), "yes"], False, 2, [7.5]),
        ([failure("transient", status=503, retry_after=0.1), "yes"], False, 2, [0.6]),
    ],
    ids=[
        "success", "transient", "rate limit then transient", "six attempts", "fatal", "fatal later",
        "never answered: three quick ones", "answered before: patient", "any status is an answer",
        "retry-after is the least wait", "short retry-after",
    ],
)  # fmt: skip
def test_attempts_and_waits(
    outcomes: list[ProviderError | str], answered: bool, attempts: int, waits: list[float]
) -> None:
    endpoint = Endpoint(8, max_outage=0.0)
    endpoint.answered = answered
    result, events, made, seconds = play(outcomes, endpoint)
    assert made == attempts
    assert [event.wait for event in events] == pytest.approx(waits)
    assert seconds == pytest.approx(sum(waits))
    last = outcomes[-1]
    if isinstance(last, str):
        assert result == last
    else:
        assert isinstance(result, ProviderError)
        assert (result.kind, result.status) == (last.kind, last.status)


def test_exhausted_attempts_are_named_and_chained() -> None:
    result, *_ = play([failure("transient", status=502)])
    assert isinstance(result, ProviderError)
    assert str(result) == "transient trouble (gave up after 6 attempts)"
    assert isinstance(result.__cause__, ProviderError)


@pytest.mark.parametrize("seed", range(2))
def test_jitter_is_full_seeded_and_never_below_retry_after(seed: int) -> None:
    _, events, _, _ = play([failure("transient")], rng=random.Random(seed))
    again = play([failure("transient")], rng=random.Random(seed))[1]
    assert [event.wait for event in events] == [event.wait for event in again]
    assert all(0 <= event.wait <= 0.5 * 2**i for i, event in enumerate(events))
    _, events, _, _ = play([failure("rate_limit", retry_after=3.0)], rng=random.Random(seed))
    assert all(event.wait >= 3.0 for event in events)


def test_an_unreachable_endpoint_costs_at_most_a_second_and_a_half() -> None:
    assert play([failure("unreachable")])[3] <= 1.5


def test_waits_stop_growing_at_the_cap() -> None:
    policy = RetryPolicy()
    assert [policy.ceiling(n) for n in (1, 2, 7, 8, 9, 5000)] == [0.5, 1.0, 32.0, 60.0, 60.0, 60.0]


def test_other_exceptions_pass_through_at_once() -> None:
    made = 0

    async def call() -> None:
        nonlocal made
        made += 1
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        run_virtual(run_attempts(call, RetryPolicy()))
    assert made == 1


@pytest.mark.parametrize(
    "fields", [{"max_attempts": 0}, {"unreachable_attempts": 0}, {"base": 0.0}, {"base": 2.0, "cap": 1.0}]
)
def test_impossible_policies_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="retry policy"):
        RetryPolicy(**fields)  # type: ignore[arg-type]
