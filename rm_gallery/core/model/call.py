"""The one path of a model call: cache, single flight, endpoint, budget, retries, and a reply that
was checked.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls import coordinator
from rm_gallery.core.engine.calls.endpoint import Endpoint, EndpointDown
from rm_gallery.core.engine.calls.limits import RateLimit
from rm_gallery.core.engine.calls.retry import RetryEvent, RetryPolicy, SingleFlight, run_attempts
from rm_gallery.core.engine.context import (
    NotAsked,
    RunControl,
    RunStopped,
    current_deadline,
    current_run,
    note_stop,
    on_trial,
    questions,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.options import BATCH_PRICE_SHARE
from rm_gallery.core.model import storage
from rm_gallery.core.model.adapt import Adaptation
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.usage import Usage
from rm_gallery.core.utils.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    ProviderError,
    RequestError,
    Unscored,
    logger,
)
from rm_gallery.core.utils.spans import call_span

if TYPE_CHECKING:
    from rm_gallery.core.model.budget import Budget, Reservation
    from rm_gallery.core.model.replies import ReplyStore

CEILING_OUTSIDE_RUNS = 4096
"""Ceiling of calls in flight for calls made outside of any batch: their callers decide how many;
the limit grows with success.
"""


@dataclass
class _Shared:
    """What all calls of this process share; begun anew in a forked child."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    flights: SingleFlight[Any] = field(default_factory=SingleFlight)
    adapted: dict[str, Adaptation] = field(default_factory=dict)
    """By endpoint, account and model, how requests are sent."""


_shared = _Shared()
_unlimited = RateLimit()


async def complete(llm: BaseModelCall, payload: dict[str, Any], repeat: int = 0) -> Any:
    """Answer a request from the cache, from an equal call in flight, or from the model.

    Only on the library loop; callers reach it through `BaseLLM.achat` and `BaseEmbeddings.aembed`,
    which name the errors.
    """
    run = current_run.get()
    with call_span(llm.model, llm.endpoint_key, payload, run and run.span) as record_reply:
        try:
            record_reply(reply := await _complete(llm, payload, repeat, run))
        except (BudgetExceeded, RunStopped, NotAsked) as error:
            # another way to ask may be the one that was taken then
            if not (isinstance(error, NotAsked) and on_trial.get() == "trial"):
                note_stop(stop_mark.get())
            raise
        except (ProviderError, DeadlineExceeded) as error:
            if (mark := stop_mark.get()) is not None:
                mark.lost.append(
                    error if isinstance(error, ProviderError) else error.__cause__ or error
                )
            raise
    if run is not None:
        run.note_served(llm.model, getattr(reply, "model", "") or payload.get("model", ""))
    return reply


async def _complete(
    llm: BaseModelCall, payload: dict[str, Any], repeat: int, run: RunControl | None
) -> Any:
    route = llm.route()
    replies = None if run is None else run.replies
    offline = run is not None and run.offline and llm.remote
    cached = None if run is None else run.use_cache
    cached = llm.cache if cached is None else cached
    cached = payload.get("temperature") == 0 if cached is None else cached
    if not cached and replies is None and not offline:
        return (await _ModelCall(llm, payload, route, run).answer())[1]
    try:
        key = storage.canonical_key({"endpoint": route, "request": payload, "repeat": repeat})
    except (TypeError, ValueError) as error:
        raise RequestError(f"The request cannot be written as JSON: {error}.") from error
    if offline:
        return _reply_kept(llm, key, replies)
    if not cached:
        raw, reply = await _ModelCall(llm, payload, route, run).answer()
        _keep_beside(llm, key, llm.kept(raw, reply), reply, replies)
        return reply
    cache = storage.shared()
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        with suppress(ProviderError, ValueError):  # a row that cannot be read is asked for anew
            reply = llm.restored(stored)
            if run is not None:
                run.count("cached")
            _keep_beside(llm, key, stored, reply, replies)
            return reply
    own = False

    async def ask_and_store() -> Any:
        nonlocal own
        own = True
        return await _asked_and_kept(
            _ModelCall(llm, payload, route, run, _shared.flights.leader(key)), key, cache
        )

    while True:
        own = False
        deadline, leader = current_deadline.get(), _shared.flights.leader(key)
        # who joins a call in flight waits for its turn with it, and for nothing longer than its own
        # deadline
        joined = nullcontext() if deadline is None or leader is None else deadline.following(leader)
        try:
            with joined:
                reply, stored = await _shared.flights.run(
                    key, ask_and_store, deadline or Deadline()
                )
            _keep_beside(llm, key, stored, reply, replies)
            return reply
        except (DeadlineExceeded, BudgetExceeded, RunStopped):
            # the limits of whoever asked first are not the limits of this sample
            if own:
                raise


def _keep_beside(
    llm: BaseModelCall, key: str, stored: bytes | None, reply: Any, replies: ReplyStore | None
) -> None:
    """Keep a reply beside the records of its run, before any of them counts."""
    # one that ended and says nothing is asked for once more, by the same request
    if replies is not None and (stored is not None or getattr(reply, "ended", "") != "done"):
        replies.put(key, None if stored is None else llm.kept_beside(stored))


def _reply_kept(llm: BaseModelCall, key: str, replies: ReplyStore | None) -> Any:
    """The reply that is kept beside the records of the run; raises NotAsked where none is."""
    kept = None if replies is None else replies.get(key)
    if kept is not None:
        with suppress(ProviderError, ValueError):
            return llm.restored(kept)
    noted = questions.get()
    if noted is not None and replies is not None and on_trial.get() != "trial":
        if replies.knows(key):
            noted.lost = True
        else:
            noted.new = True
    raise NotAsked(f"{llm.model} would have to be asked.")


async def _asked_and_kept(
    call: _ModelCall, key: str, cache: storage.ReplyCache | None
) -> tuple[Any, bytes | None]:
    """The checked reply, once it is in the cache, and what is kept of it; where the run has several
    processes, of whichever asked.
    """
    landed, there = None, coordinator.client
    if there is not None:
        with _paused(current_deadline.get()):
            answered = await coordinator.answered(there, key, cache, call.restored)
        if answered is not None:
            return answered
    try:
        raw, reply = await call.answer()
        landed = stored = call.llm.kept(raw, reply)
        # a reply is on disk before its sample counts as judged, so that a killed run pays
        # nothing twice
        if cache is not None and stored is not None and cache.put(key, stored):
            landed = b""
        return reply, stored
    finally:
        if there is not None:
            there.landed(key, landed)


_GONE = frozenset({404, 405})


def _paused(deadline: Deadline | None) -> AbstractContextManager[None]:
    return deadline.paused() if deadline is not None else nullcontext()


def trouble_at(llm: BaseModelCall) -> str:
    """Why the endpoint of a model is in trouble now (slow, limited or down), as far as this process
    has asked it; empty while it is not. From any thread.
    """
    endpoint = _shared.endpoints.get(_key_of(llm, llm.route()))
    return "" if endpoint is None else endpoint.trouble


def _key_of(llm: BaseModelCall, route: str) -> str:
    return f"{route} {llm.account()} {llm.model}"


class _ModelCall:
    """One call and its attempts: each takes a turn at the endpoint and its share of rate and budget
    by itself, so that a call that waits to retry blocks nobody, and every attempt is paid for.
    """

    def __init__(
        self,
        llm: BaseModelCall,
        payload: dict[str, Any],
        route: str,
        run: RunControl | None,
        deadline: Deadline | None = None,
    ) -> None:
        self.llm = llm
        self.payload = payload
        self.run = run
        self.deadline = deadline or current_deadline.get()
        self.fresh = True
        self.cut_off = False
        """Whether it is ended since its run has stopped."""
        self.task: asyncio.Task[Any] | None = None
        self.key = _key_of(llm, route)
        self.endpoint = _endpoint(self.key, llm, run)
        self.rate = _unlimited  # the limits that another model object asked for are that one's own
        if llm.requests_per_minute is not None or llm.tokens_per_minute is not None:
            self.rate = coordinator.rate_of(
                self.key, (llm.requests_per_minute, llm.tokens_per_minute)
            )
        characters = len(str(payload.get("input", "")))
        for message in payload.get("messages", ()):
            text = message.get("content", "")
            characters += len(text if isinstance(text, str) else str(text))
        self.expected = characters // 4 + 1
        most = payload.get("max_tokens")
        self.most = self.expected + int(most) if isinstance(most, int) else None

    def restored(self, stored: bytes) -> tuple[Any, bytes] | None:
        """The reply in what another process got, and this; None for what cannot be read."""
        with suppress(ProviderError, ValueError):
            return self.llm.restored(stored), stored
        return None

    async def answer(self) -> tuple[dict[str, Any], Any]:
        """The raw answer and the checked reply; see `BaseLLM.achat` for the errors."""
        run = self.run
        policy = (run.retry if run is not None else None) or _policy(self.llm.max_attempts)
        # a call outside of any run is not bound by what the runs beside it may have in flight
        bound = (
            nullcontext()
            if run is not None and run.max_workers
            else self.endpoint.lease(CEILING_OUTSIDE_RUNS)
        )
        self.task = asyncio.current_task()
        if run is not None:
            run.waiting.add(self.cut)
        try:
            with bound:
                answered = await run_attempts(
                    self._attempt,
                    policy,
                    deadline=self.deadline,
                    on_retry=self._retried,
                    endpoint=self.endpoint,
                )
        except asyncio.CancelledError:
            if run is None or not self._was_cut():
                raise
            raise RunStopped(f"Not judged: the run stopped ({run.stopped}).", "endpoint") from None
        except EndpointDown as error:
            if run is None:
                raise
            run.stop(str(error), halt=True, by="endpoint")
            raise RunStopped(f"Not judged: the run stopped ({run.stopped}).", "endpoint") from error
        except ProviderError as error:
            if error.filtered:
                raise Unscored(
                    f"The endpoint's content filter refused the question: {error}",
                    reason="content_filter",
                    cause="judge",
                ) from error
            self._failed(error)
            raise
        except DeadlineExceeded as error:
            if isinstance(error.__cause__, ProviderError):
                self._failed(error.__cause__)
            raise
        finally:
            if run is not None:
                run.waiting.discard(self.cut)
        if run is not None and run.fail_fast is not None:
            run.fail_fast.success()
        return answered

    def _was_cut(self) -> bool:
        """Whether this call was cancelled by `cut`, and not also by whoever waits for it."""
        if self.cut_off and sys.version_info >= (3, 11) and self.task is not None:
            return not self.task.uncancel()
        return self.cut_off

    def cut(self) -> None:
        """End the call, whatever it waits for: its run has stopped."""
        if not self.cut_off and self.task is not None:
            self.cut_off = True
            self.task.cancel()

    async def _in_batch(
        self, run: RunControl, batch: tuple[str, str, bool]
    ) -> tuple[dict[str, Any], Any]:
        """One attempt by a provider's batch API; a row that failed there costs nothing. What nobody
        limits is claimed when it is back, so that a run that is killed while it waits has not spent
        it twice.
        """
        from rm_gallery.core.model import batches

        llm = batches.with_batches(self.llm, batch[0])
        claims: list[tuple[Budget, Reservation]] = []
        used = Usage()
        try:
            run.check_halted()
            limited = run.limited
            if limited:
                await self._claim(run, claims)
            how = _shared.adapted.get(self.key, _AS_ASKED)
            sent = how.of(self.payload)
            raw = await batches.batches_of(run, *batch).ask(llm, sent)
            reply = self.llm.read(raw, self.payload)
            used = self.llm.usage(reply, self.expected)
            if not limited:
                await self._claim(run, claims)
            priced = (
                budget.prices.cost(self.llm.model, used)
                for budget, _ in claims
                if budget.prices is not None
            )
            cost = next(priced, None)
            used.cost = None if cost is None else BATCH_PRICE_SHARE * cost
        except ProviderError as error:
            if (change := how.after(error, sent)) is not None and not change[0].stream:
                _shared.adapted[self.key] = change[0]
                error.kind = "transient"  # sent so it may be taken
            raise
        finally:
            self._settle_claims(claims, used)
        return raw, reply

    async def _attempt(self) -> tuple[dict[str, Any], Any]:
        """One attempt: its turn at the endpoint, its share of rate and budget, and the answer."""
        if self.run is not None and self.run.batch is not None and not on_trial.get():
            return await self._in_batch(self.run, self.run.batch)
        run, endpoint, deadline, line = self.run, self.endpoint, self.deadline, id(self.run)
        since = run.started if run is not None and run.max_outage is not None else None
        probe = False
        if not endpoint.enter():
            with endpoint.waiting_on(deadline):
                probe = await endpoint.wait(line, fresh=self.fresh, since=since)
        self.fresh = False
        claims: list[tuple[Budget, Reservation]] = []
        sent: float | None = None
        number = object()
        try:
            if not self.rate.enter(self.expected):
                with _paused(deadline):
                    await self.rate.wait(self.expected, line)
            if run is not None:
                run.check_halted()
                await self._claim(run, claims)
            timeout = (
                self.llm.timeout
                if self.deadline is None
                else min(self.llm.timeout, max(0.001, self.deadline.left))
            )
            # where the run itself is bounded, by a trainer's step, an outage is paid from its time
            bounded = run is not None and run.max_outage is not None
            sent = endpoint.out.sent(number, None if bounded else deadline)
            raw = await _send_adapted(self.llm, self.payload, self.key, timeout)
            reply = self.llm.read(raw, self.payload)
        except ProviderError as error:
            if (
                error.kind == "fatal"
                and error.status in _GONE
                and endpoint.served
                and not error.routed
            ):
                # what answered under this name before is most likely being replaced
                error.kind = "transient"
            # nothing is paid for a call that found nobody or was refused; without any answer it may
            # have been worked on
            used = Usage(calls=error.kind != "unreachable")
            if error.status is None and error.kind == "transient":
                used.input_tokens = self.expected
            self._settle_claims(claims, used)
            endpoint.out.ended(number, answered=False)
            self._end_attempt(error, probe, sent)
            raise
        except BaseException as error:
            self._settle_claims(
                claims, Usage() if sent is None else Usage(calls=1, input_tokens=self.expected)
            )
            endpoint.out.ended(number, answered=False)
            late = (
                sent is not None and isinstance(error, asyncio.CancelledError) and not self.cut_off
            )
            late = late and deadline is not None and deadline.left <= 0.001
            silence = ProviderError(
                f"No answer from {self.llm.endpoint_key()} within the deadline of a sample. Give "
                f"it a longer one if that "
                "is how long the model takes.", kind="transient",
            )  # fmt: skip
            self._end_attempt(silence if late else error, probe, sent)
            if late:
                self._failed(silence)
            raise
        used = self.llm.usage(reply, self.expected)
        self._settle_claims(claims, used)
        endpoint.out.ended(number, answered=True)
        endpoint.release(probe=probe)
        return raw, reply

    async def _claim(self, run: RunControl, claims: list[tuple[Budget, Reservation]]) -> None:
        """Claim one call of the run's budget, and of that of every run around it; from the inside
        out, so that two calls never wait for each other.
        """
        each: RunControl | None = run
        while each is not None:
            budget = each.budget
            if budget is not None and not any(budget is claimed for claimed, _ in claims):
                try:
                    claim = budget.try_reserve(self.llm.model, self.expected, self.most)
                    if claim is None:
                        with _paused(self.deadline):
                            claim = await budget.reserve(self.llm.model, self.expected, self.most)
                except BudgetExceeded as error:
                    each.stop_spending(budget, str(error))
                    raise
                claims.append((budget, claim))
            each = each.parent

    def _end_attempt(self, error: BaseException, probe: bool, sent: float | None) -> None:
        if isinstance(error, ProviderError) and error.kind != "fatal":
            most = None if self.run is None else self.run.max_outage
            if most is None:
                sent = None
            # the sample has asked since it began
            elif sent is not None and self.deadline is not None:
                sent = min(sent, self.deadline.end - most)
            self.endpoint.release(
                error.kind, error.retry_after, call=id(self), probe=probe, why=str(error), sent=sent
            )
            if most is not None and self.run is not None and (message := self.endpoint.given_up):
                self.run.stop(message, halt=True, by="endpoint")
                for cut in self.run.waiting - {self.cut}:
                    cut()
        else:
            # a verdict on the request is an answer as well: whoever gives one is there
            refused = isinstance(error, ProviderError) and error.status is not None
            self.endpoint.release("ok" if refused and probe else "other", probe=probe)

    def _settle_claims(self, claims: list[tuple[Budget, Reservation]], used: Usage) -> None:
        run = self.run
        if run is None or run.batch is None:
            self.rate.settle(self.expected, used.input_tokens + used.output_tokens)
        if run is None:
            return
        # the prices of the first are those of the run
        for place, (budget, claim) in enumerate(claims):
            budget.settle(claim, used.copy() if place else used, self.llm.model)
        run.count("calls", used.calls, used)

    def _retried(self, event: RetryEvent) -> None:
        logger.trace(
            "attempt {} failed ({}), next in {:.2f} s: {}",
            event.attempt,
            event.kind,
            event.wait,
            event.error,
        )
        if self.run is not None:
            self.run.count("retries")

    def _failed(self, error: ProviderError) -> None:
        run = self.run
        if error.of_a_field and on_trial.get() == "trial":
            return
        if run is not None and run.fail_fast is not None and run.fail_fast.failure(error):
            run.stop(run.fail_fast.message or str(error), halt=True, by="endpoint")


def _endpoint(key: str, llm: BaseModelCall, run: RunControl | None) -> Endpoint:
    """The endpoint's state; while a run goes on it allows what the run asked for."""
    endpoint = _shared.endpoints.get(key)
    if endpoint is None:
        endpoint = _shared.endpoints[key] = Endpoint(CEILING_OUTSIDE_RUNS, name=llm.endpoint_key())
    bound = math.inf if run is None or run.max_outage is None else run.max_outage
    endpoint.max_outage = min(llm.max_outage, bound)
    if run is not None and run.max_workers:
        run.hold(key, lambda: _lease(endpoint, run.max_workers))
    return endpoint


def _lease(endpoint: Endpoint, ceiling: int) -> Callable[[], None]:
    lease = endpoint.lease(ceiling)
    lease.__enter__()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        with suppress(RuntimeError):  # a loop that closed meanwhile took its limits with it
            loop.call_soon_threadsafe(lease.__exit__, None, None, None)

    return give_back


@lru_cache(maxsize=64)
def _policy(max_attempts: int) -> RetryPolicy:
    """One policy for all calls alike: making one seeds a random generator, which takes longer than
    sending a request.
    """
    return RetryPolicy(max_attempts=max_attempts)


_AS_ASKED = Adaptation()


async def _send_adapted(
    llm: BaseModelCall, payload: dict[str, Any], key: str, timeout: float
) -> dict[str, Any]:
    """One request, sent as this model at this endpoint is known to take it.

    What a refusal teaches is remembered, and said, once a request that was sent so was answered.
    """
    learned: list[tuple[str, ProviderError]] = []
    how = _shared.adapted.get(key, _AS_ASKED)
    while True:
        sent = how.of(payload)
        try:
            raw = await llm.attempt(sent, timeout)
        except ProviderError as error:
            change = how.after(error, sent)
            if change is None:
                raise
            how = change[0]
            learned.append((change[1], error))
            continue
        known = _shared.adapted.get(key, _AS_ASKED)
        if learned and (now := known.joined(how)) != known:
            _shared.adapted[key] = now
            for what, why in learned:
                logger.warning("model {} {} from now on: {}", llm.model, what, why)
        return raw


@library_loop.after_fork
def _reset_shared() -> None:
    global _shared
    _shared = _Shared()
    coordinator.forget()
