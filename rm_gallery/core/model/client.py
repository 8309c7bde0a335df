"""The one path of a model call: from a request to a reply that was checked.

    key ─▶ cached? ─▶ in flight? ─▶ budget ─▶ endpoint ─▶ rate ─▶ budget ─▶ wire ─▶ read ─▶ cache ─▶ reply
                                    (limited)                  (unlimited)    │
                                       ▲                                      │
                                       └─────────── once more ◀───────────────┘  by what went wrong

Each attempt takes its turn, and its share of rate and budget, by itself: a call that waits to be
tried again blocks nobody. It counts as one request; the further ones that learn which form an endpoint
takes, where it refuses the first, are neither counted nor limited.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar, cast

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    Claims,
    NotAsked,
    RunControl,
    RunStopped,
    channel_trial,
    current_deadline,
    current_run,
    note_stop,
    questions,
    stop_mark,
)
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.options import BATCH_PRICE_SHARE
from rm_gallery.core.model import storage
from rm_gallery.core.model.adapt import PLAIN
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.limits import (
    CEILING,
    PAUSE_CAP,
    Endpoint,
    EndpointDown,
    RetryPolicy,
    Visit,
)
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.transport import Json
from rm_gallery.core.utils.errors import (
    BudgetExceeded,
    ConfigError,
    DeadlineExceeded,
    ProviderError,
    RequestError,
    RMGalleryError,
    Unscored,
)
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.spans import call_span

T = TypeVar("T")
Answer: TypeAlias = tuple[Any, bytes | None]
"""A reply, and what is kept of it."""
GONE = frozenset({404, 405})
"""What answers so under a name that was served before is most likely being replaced."""
NOT_THE_CALL = frozenset({404, 405, 502, 503, 529})
"""Gateways answer so for any call while there is nobody behind them."""
NEVER_SENT = ConfigError, RequestError
"""What ends an attempt before anything is sent (no key, or what JSON has no form for), unless it tells
of an answer.
"""
MIN_SECONDS = 0.001
"""A request has at least this long, also where its deadline is over: no limit would be none."""


@dataclass
class _Shared:
    """What all calls of this process share; begun anew in a forked child."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    """By endpoint, account and model."""
    flights: dict[tuple[str, Endpoint], Call] = field(default_factory=dict)
    """The calls that others may wait for, by the key of their request and by who is asked, which
    tells accounts apart.
    """
    outside: RunControl = field(default_factory=partial(RunControl, fail_fast=None))
    """What calls outside of any run belong to: nothing bounds it."""


_shared = _Shared()


@library_loop.after_fork
def _reset_shared() -> None:
    global _shared
    _shared = _Shared()


@library_loop.at_close
async def _forget_the_loop() -> None:
    _reset_shared()  # timers that would free slots go with the loop


async def complete(llm: BaseModelCall, payload: Json, repeat: int = 0) -> Any:
    """Answer a request from the cache, from an equal call in flight, or from the model. Equal requests
    join at temperature 0, or as `cache=` says, also where no cache is kept.

    Only on the library loop; callers reach it through `BaseLLM.achat`, `BaseEmbeddings.aembed` and
    reward servers, which name the errors.
    """
    run = current_run.get() or _shared.outside
    with call_span(llm.model, llm.endpoint_key, payload, run.span) as record_reply:
        try:
            record_reply(reply := await _complete(llm, payload, repeat, run))
        except RMGalleryError as error:
            _tell_the_job(error)
            raise
    answered = getattr(reply, "model", "") or payload.get("model", "")
    if answered not in ("", llm.model):
        run.note_served(llm.model, answered)
    return reply


def _tell_the_job(error: RMGalleryError) -> None:
    """Mark the current job, whose call was stopped or got no answer."""
    mark = stop_mark.get()
    if isinstance(error, NotAsked) and channel_trial.get() == "trial":
        return  # another way to ask may be the one that was taken then
    if isinstance(error, BudgetExceeded | RunStopped | NotAsked):
        note_stop(mark)
    elif mark is not None and isinstance(error, ProviderError):
        mark.unanswered.append(error)
    elif mark is not None and isinstance(error, DeadlineExceeded):
        mark.unanswered.append(error.__cause__ or error)


async def _complete(llm: BaseModelCall, payload: Json, repeat: int, run: RunControl) -> Any:
    route, deadline = llm.route(), current_deadline.get() or Deadline()
    wishes = run.use_cache, llm.cache, payload.get("temperature") == 0
    may_cache = next(wish for wish in wishes if wish is not None)
    offline, keeps = run.offline and llm.remote, run.replies is not None
    key = _key_of(route, payload, repeat) if may_cache or offline or keeps else ""
    if offline:
        return _reply_recorded(llm, key, run)
    cache = storage.shared() if may_cache else None
    if cache is not None and (reply := _reply_cached(llm, key, run, cache)) is not None:
        return reply
    call = Call(llm, payload, route, run, deadline, key, cache)
    if may_cache:
        reply, stored = await _joined_or_started(call)
    else:
        call.task = cast("asyncio.Task[Any]", asyncio.current_task())
        call.follow(deadline)
        reply, stored = await call.answer()
    if keeps:
        _keep_beside(llm, key, stored, reply, run)
    return reply


def _key_of(route: str, payload: Json, repeat: int) -> str:
    """What a request is kept under; RequestError where it holds what JSON has no form for."""
    try:
        return storage.canonical_key({"endpoint": route, "request": payload, "repeat": repeat})
    except (TypeError, ValueError) as error:
        raise RequestError(f"The request cannot be written as JSON: {error}.") from error


def _reply_cached(llm: BaseModelCall, key: str, run: RunControl, cache: storage.ReplyCache) -> Any:
    """The reply in the cache; None where there is none, or one that cannot be read."""
    if (stored := cache.get(key)) is not None:
        with suppress(ProviderError, ValueError):
            reply = llm.restored(stored)
            run.count("cached")
            _keep_beside(llm, key, stored, reply, run)
            return reply
    return None


async def _joined_or_started(own: Call) -> Answer:
    """What comes of an equal call that is in flight, else of this one. Who goes away leaves the others
    alone; the call ends with the last of them, and nothing is remembered afterwards. Who joins counts
    as no call and as none from the cache.
    """
    flight, clock = (own.key, own.endpoint), own.deadline
    loop = asyncio.get_running_loop()
    while True:
        call = _shared.flights.get(flight)
        # who joined one that is over would join it for ever
        if call is None or call.task.done():
            call = _shared.flights[flight] = own
            call.task = loop.create_task(call.answer_all())
        call.follow(clock)
        call.waiters.append(waiter := loop.create_future())
        try:
            landed: Answer = await waiter
            return landed
        except (DeadlineExceeded, BudgetExceeded, RunStopped, ProviderError) as error:
            # the limits of whoever asked first are not the limits of this sample
            if call is own or clock.left <= 0 or call.speaks_for(own, error):
                raise
        finally:
            call.follow(clock, ends=True)
            if not call.clocks:
                # a newcomer must not join a call that is being cut; and its connection is closed
                # when this returns
                if _shared.flights.get(flight) is call:
                    del _shared.flights[flight]
                if not call.task.done():
                    call.task.cancel()
                    await asyncio.wait({call.task})


def _keep_beside(
    llm: BaseModelCall, key: str, stored: bytes | None, reply: Any, run: RunControl
) -> None:
    """Keep a reply beside the records of its run, before any of them counts."""
    # one that ended and says nothing is asked for once more, by the same request
    if run.replies is not None and (stored is not None or getattr(reply, "ended", "") != "done"):
        run.replies.put(key, None if stored is None else llm.kept_beside(stored))


def _reply_recorded(llm: BaseModelCall, key: str, run: RunControl) -> Any:
    """The reply that is kept beside the records of the run; raises NotAsked where none is."""
    if (replies := run.replies) is not None:
        with suppress(ProviderError, ValueError):
            if (stored := replies.get(key)) is not None:
                return llm.restored(stored)
        noted = questions.get()
        if noted is not None and channel_trial.get() != "trial":
            if replies.knows(key):
                noted.reply_missing = True
            else:
                noted.asked_anew = True
    raise NotAsked(f"{llm.model} would have to be asked.")


def trouble_at(llm: BaseModelCall) -> str:
    """Why the endpoint of a model is in trouble now (slow, limited or down), as far as this process
    has asked it; empty while it is not. From any thread.
    """
    endpoint = _shared.endpoints.get(_place_of(llm, llm.route()))
    return "" if endpoint is None else endpoint.trouble


def _place_of(llm: BaseModelCall, route: str) -> str:
    return f"{route} {llm.account()} {llm.model}"


@lru_cache(maxsize=64)
def _policy(max_attempts: int) -> RetryPolicy:
    """One for all calls alike: to seed a random generator takes longer than to send a request."""
    return RetryPolicy(max_attempts=max_attempts)


class Call(Visit):
    """One call, with all its attempts and the clocks of those who wait for it: `Visit` owns the clocks,
    this the attempts.
    """

    clocks: list[Deadline]
    """Each as often as somebody waits by it."""
    task: asyncio.Task[Any]
    """What makes it."""

    def __init__(
        self,
        llm: BaseModelCall,
        payload: Json,
        route: str,
        run: RunControl,
        deadline: Deadline,
        key: str,
        cache: storage.ReplyCache | None,
    ) -> None:
        self.llm, self.payload, self.run = llm, payload, run
        self.key, self.cache = key, cache
        """Of what is kept of the answer, and where; empty where nothing is."""
        self.deadline = deadline
        """Of whoever asked first."""
        self.place = place = _place_of(llm, route)
        endpoint = _shared.endpoints.get(place)
        if endpoint is None:
            endpoint = _shared.endpoints[place] = Endpoint(name=llm.endpoint_key())
        super().__init__(endpoint, [], patience=llm.max_outage)
        if run.max_outage is not None:
            self.outage_counts, self.patience = True, min(self.patience, run.max_outage)
            self.began = run.first_asked.setdefault(place, self.began)
        self.rates = llm.requests_per_minute, llm.tokens_per_minute
        """Another model object's are that one's own."""
        asked = [message.get("content", "") for message in payload.get("messages", ())]
        characters = sum(len(str(text)) for text in (payload.get("input", ""), *asked))
        self.expected = characters // 4 + 1
        most = payload.get("max_tokens")
        self.most = self.expected + int(most) if isinstance(most, int) else None
        self.rated = 0
        """Tokens that the attempt has taken of the rate."""
        self.cut_off = False
        """Whether it is ended since its run has stopped."""
        self.waiters: list[asyncio.Future[Answer]] = []

    def _lease(self) -> Callable[[], None]:
        """Have the endpoint allow what the run asks for; what gives that back."""
        end, loop = self.endpoint.lease(self.run.max_workers), asyncio.get_running_loop()

        def give_back() -> None:
            with suppress(RuntimeError):  # a loop that closed meanwhile took its limits with it
                loop.call_soon_threadsafe(end)

        return give_back

    def follow(self, clock: Deadline, *, ends: bool = False) -> None:
        """Have the clock of a sample that waits for it stand still whenever it waits for its turn."""
        (self.clocks.remove if ends else self.clocks.append)(clock)
        if self.waits or self.sent is not None:
            self.set_clocks()

    def speaks_for(self, other: Call, error: RMGalleryError) -> bool:
        """Whether an equal call would have come to the error that this one ended with: it is a verdict
        on the request, or the limits of both are the same.
        """
        if not isinstance(error, ProviderError):
            return False
        return error.kind == "fatal" or (other._limits == self._limits and not self._is_late)

    @property
    def _limits(self) -> tuple[Any, ...]:
        """What bounds its attempts, besides the deadline of whoever asked first."""
        llm = self.llm
        return llm.timeout, self.run.retry or llm.max_attempts, self.patience, self.outage_counts

    @property
    def _is_late(self) -> bool:
        """Whether an attempt that ends now was cut by that deadline."""
        return self.deadline.left <= MIN_SECONDS

    async def answer_all(self) -> None:
        """Answer all who wait, or tell them what ended the call; whoever went away hears nothing."""
        error: BaseException | None = None
        try:
            answer = await self.answer()
        except BaseException as raised:  # noqa: BLE001 - told to whoever waits, who raises it
            error = raised
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(answer)
            else:
                waiter.set_exception(error)
        if error is not None and not isinstance(error, Exception):
            raise error

    async def answer(self) -> Answer:
        """The checked reply, kept; see `BaseLLM.achat` for the errors."""
        run, llm = self.run, self.llm
        if run.max_workers:
            run.hold(self.place, self._lease)
        run.calls_out.add(self)
        try:
            try:
                run.check_halted()
                raw, reply = await with_retries(
                    self._attempt,
                    run.retry or _policy(llm.max_attempts),
                    self.endpoint,
                    deadline=self.deadline,
                    patience=self.patience,
                    on_retry=self._retried,
                )
            finally:
                run.calls_out.discard(self)
        except BaseException as error:
            self._raise_for_the_caller(error)
            raise
        if run.fail_fast is not None:
            run.fail_fast.success()
        stored = llm.kept(raw, reply) if self.key else None
        # on disk before its sample counts as judged: a killed run pays nothing twice that is cached
        if stored is not None and self.cache is not None:
            self.cache.put(self.key, stored)
        return reply, stored

    def _raise_for_the_caller(self, error: BaseException) -> None:
        """Tell the run of what ended the call; raises what the caller hears in its place, if
        anything.
        """
        run = self.run
        if isinstance(error, asyncio.CancelledError) and self._was_cut():
            raise run.not_judged() from None
        if isinstance(error, EndpointDown):
            if run is not _shared.outside:
                run.give_up(self.endpoint, str(error))
                raise run.not_judged() from error
        elif isinstance(error, ProviderError) and error.filtered:
            raise Unscored(
                f"The endpoint's content filter refused the question: {error}",
                reason="content_filter",
                cause="judge",
            ) from error
        else:
            self._count_for_fail_fast(
                error.__cause__ if isinstance(error, DeadlineExceeded) else error
            )

    def cut(self) -> None:
        """End the call, whatever it waits for: its run has stopped."""
        if not self.cut_off:
            self.cut_off = True
            self.task.cancel()

    def _was_cut(self) -> bool:
        """Whether this call was cancelled by `cut`, and not also by whoever waits for it."""
        if self.cut_off and sys.version_info >= (3, 11):
            return not self.task.uncancel()
        return self.cut_off

    async def _attempt(self) -> tuple[Json, Any]:
        """One attempt: its turn at the endpoint, its share of rate and budget, and the answer."""
        run, llm, endpoint = self.run, self.llm, self.endpoint
        if run.batch is not None and not channel_trial.get():
            return await self._in_batch(run.batch)
        claims, self.rated = Claims(run, llm.model, self.expected, self.most), 0
        budgets = run.budgets()
        limited = any(budget.limited for budget in budgets)
        try:
            if limited:  # whoever waits for the budget takes no slot from other runs
                await claims.reserve(self.waiting)
            if not endpoint.enter(self):
                await self._wait_for_slot()
            if self.rates != (None, None):
                await self._take_rate()
            run.check_halted()
            if budgets and not limited:
                # without a limit not before: what still waits must not stand in spend.log when the
                # process is killed; a limited budget has its claim there while the call waits
                await claims.reserve()
            self.note_sent()
            raw = await self._request()
            reply = llm.read(raw, self.payload)
        except BaseException as error:
            self._end_failed(claims, error)
            raise
        self._settle(claims, llm.usage(reply, self.expected))
        endpoint.leave(self)
        return raw, reply

    async def _wait_for_slot(self) -> None:
        if self.run.max_workers:
            return await self.endpoint.wait(self, id(self.run))
        # a call outside of any run is not bound by what the runs beside it may have in flight
        end_lease = self.endpoint.lease(CEILING)
        try:
            await self.endpoint.wait(self, id(self.run))
        finally:
            end_lease()

    async def _take_rate(self) -> None:
        """Wait for its share of the rates."""
        share, rate = self.run.rate_share, self.endpoint.rate
        rate.set(*(None if each is None else share * each for each in self.rates))
        if not rate.enter(self.expected):
            with self.waiting():
                await rate.wait(self.expected, id(self.run))
        self.rated = self.expected

    def _end_failed(self, claims: Claims, error: BaseException) -> None:
        """End an attempt that gave no reply: book what it cost, tell the endpoint what it was (a
        name that was served before is most likely being replaced: no verdict on the request), and
        raise EndpointDown where nobody was served for too long.
        """
        endpoint, used = self.endpoint, Usage()
        if self.sent is not None and isinstance(error, ProviderError):
            of_nobody = error.kind == "fatal" and error.status in GONE and not error.routed
            if of_nobody and endpoint.served:
                error.kind = "transient"
            # nothing is paid for a call that found nobody, nothing was read of one that was refused
            # (a call that got no file descriptor was sent to nobody either)
            unsent = error.kind == "rate_limit" and isinstance(error.__cause__, OSError)
            used.calls = int(error.kind != "unreachable" and not unsent)
            if error.status is None and error.kind == "transient":
                used.input_tokens = self.expected
        elif self.sent is not None and (
            not isinstance(error, NEVER_SENT) or isinstance(error.__cause__, ProviderError)
        ):  # it may have been worked on
            used = Usage(calls=1, input_tokens=self.expected)
            late = isinstance(error, asyncio.CancelledError) and not self.cut_off
            if late and self._is_late:
                error = ProviderError(
                    f"No answer from {self.llm.endpoint_key()} within the deadline of a sample. "
                    f"Give it a longer one if that is how long the model takes.", kind="transient",
                )  # fmt: skip
                self._count_for_fail_fast(error)
        self._settle(claims, used)
        if not isinstance(error, ProviderError):
            endpoint.leave(self, "other")
        elif error.kind == "fatal":
            # a verdict on the request is an answer as well: whoever gives one is there
            judged = error.status is not None and endpoint.state == "down"
            endpoint.leave(self, "ok" if judged else "other")
        else:
            endpoint.leave(self, error.kind, error.retry_after, why=str(error))
            if self.outage_counts and endpoint.lost_at(self.began, self.patience) <= endpoint.now():
                raise endpoint.gone(self.began, self.patience) from error

    def _send(self, payload: Json) -> Awaitable[Json]:
        """One request, for as long as the time that is left allows."""
        left = max(MIN_SECONDS, self.deadline.left)
        return self.llm.attempt(payload, min(self.llm.timeout, left))

    async def _request(self) -> Json:
        """One request, sent as this model at this endpoint is known to take it."""
        known = self.endpoint.request_form
        sent = self.payload if known is PLAIN else known.of(self.payload)
        try:
            return await self._send(sent)
        except ProviderError as error:
            if known.after(error, sent) is None:
                raise
            refusal = error
        async with self.endpoint.learning:
            if self.endpoint.request_form is known:
                return await self._learn(refusal)
        return await self._request()

    async def _learn(self, refusal: ProviderError) -> Json:
        """Find out, alone, what the endpoint takes instead of what it refused.

        It is remembered, and said, once a request that was sent so was answered.
        """
        how, said = self.endpoint.request_form, list[tuple[str, ProviderError]]()
        while (change := how.after(refusal, how.of(self.payload))) is not None:
            how, what = change
            said.append((what, refusal))
            try:
                raw = await self._send(how.of(self.payload))
            except ProviderError as error:
                refusal = error
                continue
            self.endpoint.request_form = how
            for what, why in said:
                logger.warning("model {} {} from now on: {}", self.llm.model, what, why)
            return raw
        raise refusal

    async def _in_batch(self, batch: tuple[str, str, bool]) -> tuple[Json, Any]:
        """One attempt by a provider's batch API; a row that failed there costs nothing. What nobody
        limits is claimed when it is back, so that a run that is killed while it waits has not spent
        it twice.
        """
        from rm_gallery.core.model import batches

        run, llm, used = self.run, batches.with_batches(self.llm, batch[0]), Usage()
        claims = Claims(run, llm.model, self.expected, self.most)
        how = self.endpoint.request_form
        sent = how.of(self.payload)
        try:
            run.check_halted()
            if run.limited:
                await claims.reserve()
            self.note_sent()
            raw = await batches.batches_of(run, *batch).ask(llm, sent)
            reply = self.llm.read(raw, self.payload)
            used = self.llm.usage(reply, self.expected)
            if not run.limited:
                await claims.reserve()
            cost = claims.price_of(used)
            used.cost = None if cost is None else BATCH_PRICE_SHARE * cost
        except ProviderError as error:
            if (change := how.after(error, sent)) is not None and not change[0].stream:
                self.endpoint.request_form = change[0]
                error.kind = "transient"  # sent so it may be taken
            raise
        finally:
            self.note_over()
            self._settle(claims, used)
        return raw, reply

    def _settle(self, claims: Claims, used: Usage) -> None:
        if self.rated:
            self.endpoint.rate.settle(self.rated, used.total_tokens)
        claims.settle(used)
        self.run.count("calls", used.calls, used)

    def _retried(self, made: int, cause: ProviderError, seconds: float) -> None:
        logger.trace(
            "attempt {} failed ({}), next in {:.2f} s: {}", made, cause.kind, seconds, cause
        )
        self.run.check_halted()
        self.run.count("retries")

    def _count_for_fail_fast(self, error: BaseException | None) -> None:
        counting = self.run.fail_fast
        if counting is None or not isinstance(error, ProviderError):
            return
        of_a_trial = error.of_a_field and channel_trial.get() == "trial"
        if not of_a_trial and counting.failure(error):
            self.run.stop(counting.message or str(error), halt=True, by="endpoint")


async def with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    endpoint: Endpoint,
    *,
    deadline: Deadline | None = None,
    patience: float = 0.0,
    on_retry: Callable[[int, ProviderError, float], None] = lambda *told: None,
) -> T:
    """Await `call()` until it succeeds, may not be repeated, or the deadline passes between two
    attempts.

    `call` itself waits for the endpoint and keeps within the deadline. While the endpoint holds
    calls back there is no wait here. From the second attempt on, what says nothing about the call
    is free as long as nobody is served, which `patience` seconds bound: an outage of ten seconds
    once cost every sample in flight its attempts. A pause the server asks for is the sample's time,
    and none is begun that ends after its deadline. `on_retry` is told the attempts made, the cause
    and the seconds of the wait.

    Raises:
        ProviderError: fatal at once; any other kind when its attempts are used up.
        EndpointDown: nobody was served for `patience` seconds.
        DeadlineExceeded: no time is left for another attempt; names attempts and last cause.
    """
    deadline, failures = deadline or Deadline(), list[ProviderError]()
    began, pauses = endpoint.now(), None
    while deadline.left > 0:
        try:
            answered = await call()
        except ProviderError as error:
            if error.kind == "fatal" or isinstance(error, EndpointDown):
                raise
            failures.append(error)
        else:
            if failures:
                deadline.note = ""  # what comes later is not late for its sake
            return answered
        pauses = pauses or _pauses(failures, policy, endpoint, deadline, patience, began)
        wait = next(pauses)
        on_retry(len(failures), failures[-1], wait)
        if wait:
            await asyncio.sleep(wait)
    raise _late(failures)


def _pauses(
    failures: list[ProviderError],
    policy: RetryPolicy,
    endpoint: Endpoint,
    deadline: Deadline,
    patience: float,
    began: float,
) -> Iterator[float]:
    """Seconds to wait after each failure; raises what ends the call where it was the last."""
    counted, failed_at = 0.0, began
    while True:
        made, cause = len(failures), failures[-1]
        refused = cause.kind == "rate_limit"
        endpoint.answered |= refused or cause.status is not None
        silent = 0 < patience and endpoint.served and endpoint.served_at <= failed_at
        failed_at = endpoint.now()
        if silent and endpoint.lost_at(began, patience) <= failed_at:
            raise endpoint.gone(began, patience) from cause
        of_others = refused or cause.kind == "unreachable" or cause.status in NOT_THE_CALL
        if made == 1 or not (silent and (of_others or endpoint.waiting)):
            counted += 0.5 if refused and made > 1 and endpoint.served else 1.0
        absent = cause.kind == "unreachable" and not endpoint.answered
        if counted >= min(policy.max_attempts, policy.unreachable_attempts if absent else math.inf):
            raise ProviderError(
                f"{cause} (gave up after {_times(made)})",
                kind=cause.kind, status=cause.status, retry_after=cause.retry_after,
            ) from cause  # fmt: skip
        left = max(0.0, deadline.left)
        pause = min(cause.retry_after or 0.0, PAUSE_CAP)
        opened = endpoint.state == "open"  # else it holds calls back by itself
        wait = policy.jitter(counted, cause, absent, left) if opened else 0.0
        if max(pause, wait) >= left:
            raise _late(failures)
        deadline.note = f"{_times(made)}, last cause ({cause.kind}): {cause}"
        yield wait + pause if opened else 0.0


def _late(failures: list[ProviderError]) -> DeadlineExceeded:
    cause = failures[-1] if failures else None
    last = "none had failed before" if cause is None else f"last cause ({cause.kind}): {cause}"
    error = DeadlineExceeded(
        f"deadline reached after {_times(len(failures))}: no time was left for another; {last}. "
        f"Give the sample a longer deadline.",
        cause="caller" if cause is None else "endpoint",
    )
    error.__cause__ = cause
    return error


def _times(made: int) -> str:
    return "1 attempt" if made == 1 else f"{made} attempts"
