"""The one path of a model call: cache, single flight, budget, limits, retries, and a reply that was checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.cache import canonical_key
from rm_gallery.core.engine.calls.limiter import AdaptiveLimiter, LimiterRegistry
from rm_gallery.core.engine.calls.retry import Reachability, RetryEvent, RetryPolicy, run_attempts
from rm_gallery.core.engine.calls.single_flight import SingleFlight
from rm_gallery.core.engine.calls.usage import Usage
from rm_gallery.core.engine.context import RunControl, RunStopped, current_deadline, current_run, remaining_seconds
from rm_gallery.core.model import cache_store
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.model.reply import is_complete, to_response, to_usage
from rm_gallery.core.utils.errors import BudgetExceeded, DeadlineExceeded, ProviderError, RequestError, Unscored
from rm_gallery.core.utils.log import logger

if TYPE_CHECKING:
    from rm_gallery.core.engine.calls.budget import Reservation
    from rm_gallery.core.model.base import BaseLLM

ALONE = 64
"""Ceiling of calls in flight for calls made outside of any batch."""
UNKNOWN_REPLY_TOKENS = 512
"""Guess for a reply whose length nobody limited, until the run's own mean is known."""
RENAMED = {"max_tokens": "max_completion_tokens"}
DROPPABLE = ("temperature", "top_p", "seed", "stop", "logprobs", "top_logprobs", "max_tokens", "n")


@dataclass
class _Shared:
    """What all calls of this process share; begun anew in a forked child."""

    limiters: LimiterRegistry = field(default_factory=LimiterRegistry)
    flights: SingleFlight[ChatResponse] = field(default_factory=SingleFlight)
    reach: dict[str, Reachability] = field(default_factory=dict)
    refused: dict[tuple[str, str], dict[str, str | None]] = field(default_factory=dict)
    """By endpoint and model, request fields it does not take, with the name it takes instead."""


_shared = _Shared()


async def complete(llm: BaseLLM, payload: dict[str, Any], repeat: int = 0) -> ChatResponse:
    """Answer a request from the cache, from an equal call in flight, or from the model.

    Only on the library loop; every caller reaches it through `BaseLLM.achat`. See there for the errors.
    """
    run = current_run.get()
    endpoint = llm.endpoint_key()
    if not _caches(llm, payload, run):
        return await _ask(llm, payload, endpoint, run)
    try:
        key = canonical_key({"endpoint": endpoint, "request": payload, "repeat": repeat})
    except (TypeError, ValueError) as error:
        raise RequestError(f"The request cannot be written as JSON: {error}.") from error
    cache = cache_store.get()
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        response = _decode(stored, endpoint)
        if response is not None:
            if run is not None:
                run.count(cached=1)
            return response

    own = False

    async def ask_and_store() -> ChatResponse:
        nonlocal own
        own = True
        raw, response = await _ask_raw(llm, payload, endpoint, run)
        if cache is not None and is_complete(response):
            # awaited: a reply is on disk before its sample counts as judged, so that a killed run pays nothing twice
            await cache.put(key, orjson.dumps(raw))
        return response

    while True:
        own = False
        try:
            return await _shared.flights.run(key, ask_and_store)
        except (DeadlineExceeded, BudgetExceeded, RunStopped):
            # the limits of whoever asked first are not the limits of this sample
            if own:
                raise


def _caches(llm: BaseLLM, payload: dict[str, Any], run: RunControl | None) -> bool:
    if run is not None and run.use_cache is not None:
        return run.use_cache
    return llm.cache if llm.cache is not None else payload.get("temperature") == 0


def _decode(stored: bytes, endpoint: str) -> ChatResponse | None:
    try:
        return to_response(orjson.loads(stored), endpoint, cached=True)
    except (orjson.JSONDecodeError, ProviderError):
        return None


async def _ask(llm: BaseLLM, payload: dict[str, Any], endpoint: str, run: RunControl | None) -> ChatResponse:
    return (await _ask_raw(llm, payload, endpoint, run))[1]


async def _ask_raw(
    llm: BaseLLM, payload: dict[str, Any], endpoint: str, run: RunControl | None
) -> tuple[dict[str, Any], ChatResponse]:
    """Attempts under the sample's deadline; limits hold per attempt, so that a call that waits to retry blocks nobody."""
    limiter = _limiter(endpoint, run)
    rate = _shared.limiters.rate(endpoint, llm.requests_per_minute, llm.tokens_per_minute)
    texts = [m.get("content", "") for m in payload.get("messages", ())] + [payload.get("input", "")]
    reserved = sum(len(str(text)) for text in texts) // 4 + 1
    claim = _reserve(run, llm.model, reserved + int(payload.get("max_tokens") or UNKNOWN_REPLY_TOKENS))

    async def attempt() -> tuple[dict[str, Any], ChatResponse]:
        async with limiter:
            await rate.acquire(reserved)
            if run is not None:
                run.check_halted()
            left = remaining_seconds()
            raw = await _attempt(llm, payload, endpoint, llm.timeout if left is None else min(llm.timeout, left))
            return raw, to_response(raw, endpoint)

    def on_retry(event: RetryEvent) -> None:
        logger.trace("attempt {} failed ({}), next in {:.2f} s: {}", event.attempt, event.kind, event.wait, event.error)
        if run is not None:
            run.count(retries=1)

    policy = (run.retry if run is not None else None) or _policy(llm.max_attempts)
    reach = _shared.reach.setdefault(endpoint, Reachability())
    answered: tuple[dict[str, Any], ChatResponse] | None = None
    try:
        deadline = current_deadline.get()
        end = None if deadline is None else asyncio.get_running_loop().time() + deadline.left
        answered = await run_attempts(attempt, policy, deadline=end, on_retry=on_retry, reach=reach)
    except ProviderError as error:
        if error.filtered:
            raise Unscored(
                f"The endpoint's content filter refused the question: {error}", reason="content_filter"
            ) from error
        _note_failure(run, error)
        raise
    finally:
        _settle(llm.model, run, claim, answered[1] if answered is not None else None)
    usage = answered[1].usage
    rate.settle(reserved, usage.input_tokens + usage.output_tokens)
    return answered


def _limiter(endpoint: str, run: RunControl | None) -> AdaptiveLimiter:
    """The endpoint's limiter; while a run goes on it allows what the run asked for."""
    limiter = _shared.limiters.limiter(endpoint, ALONE)
    if run is not None and run.max_workers:
        run.hold(endpoint, lambda: _lease(limiter, run.max_workers))
    return limiter


def _lease(limiter: AdaptiveLimiter, ceiling: int) -> Callable[[], None]:
    lease = limiter.lease(ceiling)
    lease.__enter__()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        with suppress(RuntimeError):  # a loop that closed meanwhile took its limits with it
            loop.call_soon_threadsafe(lease.__exit__, None, None, None)

    return give_back


@lru_cache(maxsize=64)
def _policy(max_attempts: int) -> RetryPolicy:
    """One policy for all calls alike: making one seeds a random generator, which takes longer than sending a request."""
    return RetryPolicy(max_attempts=max_attempts)


async def _attempt(llm: BaseLLM, payload: dict[str, Any], endpoint: str, timeout: float) -> dict[str, Any]:
    """One request; a field this model is known not to take is left out, or sent under the name it takes."""
    while True:
        refused = _shared.refused.get((endpoint, llm.model))
        sent = _without(payload, refused) if refused else payload
        try:
            return await llm.attempt(sent, timeout)
        except ProviderError as error:
            name = _refused_field(error, sent)
            if name is None:
                raise
            known = _shared.refused.setdefault((endpoint, llm.model), {})
            known[name] = RENAMED.get(name) if RENAMED.get(name, "\0") in str(error) else None


def _refused_field(error: ProviderError, payload: dict[str, Any]) -> str | None:
    if error.status not in (400, 422):
        return None
    text = str(error).lower()
    if not any(
        word in text for word in ("unsupported", "not supported", "does not support", "unrecognized", "not permitted")
    ):
        return None
    return next((name for name in DROPPABLE if name in payload and re.search(rf"\b{name}\b", text)), None)


def _without(payload: dict[str, Any], refused: dict[str, str | None]) -> dict[str, Any]:
    renamed = {refused[name]: payload[name] for name in refused if refused[name] and name in payload}
    return {**{k: v for k, v in payload.items() if k not in refused}, **{k: v for k, v in renamed.items() if k}}


def _settle(model: str, run: RunControl | None, claim: Reservation | None, response: ChatResponse | None) -> None:
    if run is None:
        return
    usage = Usage() if response is None else to_usage(response)
    budget = run.budget
    if budget is not None and claim is not None:
        if budget.prices is not None and response is not None:
            usage.cost = budget.prices.cost(model, usage)
        budget.settle(claim, usage, model)
    run.count(usage=usage, calls=1)
    if response is not None and run.fail_fast is not None:
        run.fail_fast.success()


def _reserve(run: RunControl | None, model: str, tokens: int) -> Reservation | None:
    if run is None or run.budget is None:
        return None
    try:
        return run.budget.reserve(model, tokens)
    except BudgetExceeded as error:
        run.stop(str(error), error)
        raise


def _note_failure(run: RunControl | None, error: BaseException) -> None:
    if run is not None and run.fail_fast is not None and run.fail_fast.failure(error):
        run.stop(run.fail_fast.message or str(error), error, halt=True)


def limits_in_flight() -> int:
    """Calls of this process that are in flight now."""
    return _shared.limiters.in_flight()


def _forget() -> None:
    global _shared
    _shared = _Shared()


library_loop.after_fork(_forget)
