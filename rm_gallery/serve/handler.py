"""What answers: a lane per reward (one standing run, a bounded queue before it, the time each
request has) and deployed evaluators.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, repeat
from typing import Any, Protocol

from rm_gallery.core.data.conversation import group_of, sample_of_completion, sample_of_messages
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import current_deadline
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.options import RunOptions, whole
from rm_gallery.core.model.transport import Json
from rm_gallery.core.reward.blame import SecondLook, suspected
from rm_gallery.core.reward.judges import touched_by
from rm_gallery.core.reward.outputs import SampleForm
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import executor, lane_of, look_again
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.score import Score, failed
from rm_gallery.core.utils.errors import ConfigError, DataError, RMGalleryError, SandboxUnavailable
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import redact
from rm_gallery.evaluation.bundle import DamagedBundle
from rm_gallery.evaluation.live import LiveEvaluators
from rm_gallery.evaluation.pool import LIMITS
from rm_gallery.evaluation.store import Store, StoreError, UnknownEvaluator
from rm_gallery.integrations.scoring import scored_of
from rm_gallery.serve.foreign import Allowed, content_only
from rm_gallery.serve.formats import Ask, Outcomes, Refused, Spoken
from rm_gallery.serve.standing import StandingRun

LATE = failed("deadline", "No result within the request's time.", "caller")
BROKEN = failed(
    "config", "The reward cannot score as it is set up; the server's log says why.", "caller"
)
LONGEST_RETRY = 30.0
_PATH = re.compile(
    r"(?<![\w/:.~…])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s'\"<>:]+[/\\])+([^/\\\s'\"<>:,;)]*)"
)
"""The path of a file of this machine, and its last part."""


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits for its outcomes."""

    outcomes: list[Any]
    left: int
    waiter: asyncio.Future[None]
    seconds: float
    deadline: Deadline
    judged: list[DataSample] = field(default_factory=list)
    """What is settled: controls for the others."""
    suspects: list[tuple[int, DataSample]] = field(default_factory=list)
    """What waits for a second look until all else is settled."""


class RewardLane:
    """The asks of one reward on their way, for one event loop.

    What is asked within one turn of the loop goes to the run together. `max_waiting` bounds the
    completions that are in; whoever comes on top is told when to come again.
    """

    def __init__(
        self,
        name: str,
        reward: BaseReward,
        *,
        max_waiting: int,
        max_workers: int | None = None,
        allowed: Allowed | None = None,
        max_seconds: float = math.inf,
    ) -> None:
        self.max_seconds = max_seconds
        self.name = name
        self.reward = reward
        self.allowed = allowed or Allowed()
        self._touches = touched_by(reward)
        self.max_waiting = max_waiting
        self.waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = count()
        self._open: dict[int, tuple[_PendingRequest, list[int]]] = {}
        """By number of a unit: who asked, and the places of its outputs' outcomes."""
        self._fresh: list[tuple[int, DataSample, Deadline]] = []
        self._looking: set[asyncio.Future[None]] = set()
        self._rate = 0.0
        """Completions per second, as seen lately."""
        self._since, self._done = time.monotonic(), 0
        self.broken = ""
        """Why the reward cannot score at all, as it was last seen; empty while it can."""
        self._form = SampleForm(reward, {})
        reward.check()
        chosen = reward.max_workers if max_workers is None else whole("max_workers", max_workers, 1)
        self.run = StandingRun(
            executor(reward, {}, reward.deadline),
            partial(self._post, self._settle_results),
            partial(self._post, self._settle_broken),
            max_workers=max(chosen, reward.least_workers),
            lane=lane_of(reward),
            label=reward.name,
        )

    async def score(self, asks: Sequence[Ask], seconds: float) -> list[Score[float]]:
        """The outcomes of the asks, in their order; what is not done after `seconds` is failed
        (deadline).

        Raises Refused when there is no room for them (429), or one names more of this machine than
        it may (422).
        """
        n = len(asks)
        asks = [
            ask
            if ask.own or ask.problem
            else content_only(
                ask, self._touches, self.allowed, f"completion {place}: " if n > 1 else ""
            )
            for place, ask in enumerate(asks)
        ]
        if self.waiting + n > self.max_waiting:
            if n > self.max_waiting:
                raise Refused(
                    413,
                    "too_many",
                    f"{n} completions are asked for at once; at most {self.max_waiting} are taken.",
                )
            raise Refused(
                429,
                "busy",
                f"{self.waiting} completions are waiting for {self.name} already; at most "
                f"{self.max_waiting} may.",
                retry_after=self.seconds_to_wait(n),
            )
        if self.reward.compares and n == 1:
            # compared with itself each completion would get the same number, and a trainer no
            # gradient
            return [failed("single_output", f"{self.name} {_NEEDS_GROUP}", "caller")]
        loop = self._loop = asyncio.get_running_loop()
        outcomes: list[Any] = [None] * n
        limit = min(seconds, self.reward.deadline or seconds)
        deadline = Deadline(limit, shared=True, process_seconds=n * self.max_seconds)
        call = _PendingRequest(outcomes, 0, loop.create_future(), limit, deadline)
        groups: dict[str, int] = {}
        fresh = self._fresh
        begins = len(fresh)
        for place, ask in enumerate(asks):
            try:
                sample = sample_of(ask)
            except DataError as error:
                outcomes[place] = failed("invalid_item", str(error), "data")
                continue
            if self.reward.compares:
                same = groups.setdefault(group_of(sample), len(fresh))
                if same < len(fresh):
                    number, first, _ = fresh[same]
                    first.output.extend(sample.output)
                    self._open[number][1].append(place)
                    continue
            number = next(self._numbers)
            fresh.append((number, sample, deadline))
            self._open[number] = call, [place]
        call.left = len(fresh) - begins
        if not call.left:
            return outcomes
        if not begins:
            loop.call_soon(self._feed)
        self.waiting += n
        timer = loop.call_later(seconds, self._expire, call, deadline)
        try:
            await call.waiter
        # nobody reads it: what is not begun is not judged, what is begun is cut
        except asyncio.CancelledError:
            self.run.expire(deadline)
            raise
        finally:
            timer.cancel()
            self.waiting -= n
        return [LATE if outcome is None else outcome for outcome in outcomes]

    def seconds_to_wait(self, n: int) -> float:
        """When there will be room for `n` more, as far as one can tell."""
        surplus = self.waiting + n - self.max_waiting
        return min(LONGEST_RETRY, max(1.0, surplus / self._rate if self._rate else 1.0))

    def close(self) -> None:
        """Give up what is not done."""
        self.run.close()

    def _feed(self) -> None:
        fresh, self._fresh = self._fresh, []
        numbers, samples, deadlines = map(list, zip(*fresh, strict=True))
        try:
            plans = (self._form.plan(sample) for sample in samples)
            self.run.feed(list(zip(numbers, plans, deadlines, strict=True)))
        except Exception as error:  # noqa: BLE001 - those who asked are told that it is not their fault
            self._settle_broken(error, numbers)

    def _expire(self, call: _PendingRequest, deadline: Deadline) -> None:
        if not call.waiter.done():
            call.waiter.set_result(None)
            # what waits for its turn leaves the queue, and what runs its process
            self.run.expire(deadline)

    def _post(self, work: Callable[..., None], *given: Any) -> None:
        """From any thread, have something done on the server's loop."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the server's loop is closed: nobody waits
            self._loop.call_soon_threadsafe(work, *given)

    # -- on the server's loop ----------------------------------------------------------------------

    def _settle_results(self, results: list[tuple[int, DataSample]]) -> None:
        self.broken = ""
        for number, sample in results:
            known = self._open.get(number)
            if known is None:
                continue
            call = known[0]
            if not call.waiter.done() and any(suspected(self.reward, sample)):
                call.suspects.append((number, sample))
                self._when_all_else_is_settled(call)
            else:
                call.judged.append(sample)
                self._settle_one(number, sample)
        self._done += len(results)
        passed = time.monotonic() - self._since
        if passed > 0.5:
            self._rate = self._done / passed
            self._since += passed
            self._done = 0

    def _when_all_else_is_settled(self, call: _PendingRequest) -> None:
        if call.suspects and call.left == len(call.suspects):
            looking = asyncio.ensure_future(self._look_again(call))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    async def _look_again(self, call: _PendingRequest) -> None:
        """Find out which answers are to blame that they have no score: what is served may train.
        It is paid from the request's own time.
        """
        current_deadline.set(call.deadline)
        options = RunOptions(max_workers=self.reward.max_workers, deadline=call.seconds)
        suspects, call.suspects = call.suspects, []
        judged, call.judged = [*call.judged, *(sample for _, sample in suspects)], []
        try:
            if not call.waiter.done():
                await look_again(self.reward, judged, options, {})
        except RMGalleryError as error:
            logger.warning(
                "{}: the second look at an answer failed: {}", self.name, redact(str(error))
            )
        finally:  # whatever became of it, who asked is answered
            for number, sample in suspects:
                self._settle_one(number, sample)

    def _settle_one(self, number: int, sample: DataSample) -> None:
        found = (self._without_paths(scored_of(self.reward, output)) for output in sample.output)
        self._settle(number, found)

    def _settle(self, number: int, outcomes: Iterable[Score[float]]) -> None:
        known = self._open.pop(number, None)
        if known is None:
            return
        call, places = known
        for place, outcome in zip(places, outcomes, strict=False):
            call.outcomes[place] = outcome
        call.left -= 1
        if call.left:
            self._when_all_else_is_settled(call)
        elif not call.waiter.done():
            SecondLook(self.reward, call.judged)  # answers to one request are controls for the next
            call.waiter.set_result(None)

    def _without_paths(self, outcome: Score[float]) -> Score[float]:
        """The outcome as a client is told it: what an exception says of this machine's files is for
        the log alone.
        """
        if outcome.value is not None or not _PATH.search(outcome.reason):
            return outcome
        logger.warning("{}: {} ({}): {}", self.name, outcome.status, outcome.code, outcome.reason)
        return replace(outcome, reason=_PATH.sub(r"…/\1", outcome.reason))

    def _settle_broken(self, error: BaseException, numbers: list[int]) -> None:
        self.broken = f"{type(error).__name__}: {redact(str(error))}"
        logger.error("{}: {}", self.name, self.broken)
        for number in numbers:
            self._settle(number, repeat(BROKEN))


def sample_of(ask: Ask) -> DataSample:
    """The sample an ask is about; DataError where it cannot be told."""
    if ask.problem:
        raise DataError(ask.problem)
    about: Json = {
        "ground_truth": ask.reference,
        "tools": ask.tools,
        "row": ask.row,
        "unique_id": ask.id,
    }
    if ask.messages is not None:
        return sample_of_messages(ask.messages, original_messages=ask.original_messages, **about)
    return sample_of_completion(ask.prompt, ask.completion, **about)


class Evaluators(Protocol):
    """Deployed evaluators, by id."""

    async def deployed(self) -> Sequence[Json]:
        """What is deployed now."""

    async def score(
        self, evaluator_id: str, asks: Sequence[Ask], seconds: float
    ) -> list[Score[float]]:
        """The outcomes of the asks; Refused (404) when there is no such evaluator."""

    def problem(self) -> str:
        """Why none of them can be reached; empty while they can."""

    async def close(self) -> None:
        """End what runs."""


_NEEDS_GROUP = (
    "compares the completions of a prompt, and this one came by itself: send all of a prompt in "
    "one request."
)


class Handler:
    """Scores asks with the rewards that are offered and the evaluators that are deployed.

    Args:
        rewards: by the names they are offered under.
        evaluators: the deployed ones; None where none are served.
        max_waiting: completions that may wait for one reward; more are refused with 429.
        max_workers: judgements of one reward in flight; None takes the reward's own.
        allowed: what clients may name to a reward beside content, by its name; nothing by default.
        max_seconds: seconds of worker processes that a request may take for each of its
            completions, all together.

    Raises:
        ConfigError: a reward cannot score at all; names it.
    """

    def __init__(
        self,
        rewards: Mapping[str, BaseReward],
        evaluators: Evaluators | None = None,
        *,
        max_waiting: int = 8192,
        max_workers: int | None = None,
        allowed: Mapping[str, Allowed] | None = None,
        max_seconds: float = 30.0,
    ) -> None:
        self.rewards = dict(rewards)
        self.evaluators = evaluators
        self.lanes: dict[str, RewardLane] = {}
        for name, reward in rewards.items():
            try:
                self.lanes[name] = RewardLane(
                    name,
                    reward,
                    max_waiting=max_waiting,
                    max_workers=max_workers,
                    allowed=(allowed or {}).get(name),
                    max_seconds=max_seconds,
                )
            except ConfigError as error:
                raise ConfigError(f"reward {name}: {error}") from error

    async def score(self, target: str, asks: Sequence[Ask], seconds: float) -> list[Score[float]]:
        """The outcomes of the asks, in their order, within `seconds`.

        Args:
            target: `reward:NAME` of an offered reward, `evaluator:ID` of a deployed evaluator;
                without a name the only one there is (a reward, where no evaluator is deployed), and
                empty the only target there is.
            asks: completions; one with a `problem` becomes failed (invalid_item).
            seconds: what is not done by then is failed (deadline).

        Raises:
            Refused: there is no such target (404), no room for the asks now (429), or one names
                more of this machine than it may (422).
        """
        kind, _, name = target.partition(":")
        if not name:
            kind, name = await self._only(kind)
        if kind == "reward":
            lane = self.lanes.get(name)
            if lane is None:
                hint = "GET /v1/rewards lists them."
                raise Refused(
                    404, "unknown_reward", unknown_name("reward", name[:80], self.rewards, hint)
                )
            return await lane.score(asks, seconds)
        if self.evaluators is None:
            raise Refused(
                404,
                "unknown_evaluator",
                f"There is no evaluator {name!r:.80}; none is deployed here.",
            )
        return await self.evaluators.score(name, asks, seconds)

    def shares(self, target: str, outcomes: Outcomes) -> list[Score[float]]:
        """Outcomes whose scores are shares of their range, 1 being best; those of an evaluator are
        shares already.

        Refused (422) for a reward whose range is open.
        """
        kind, _, name = target.partition(":")
        reward = self.rewards.get(name or next(iter(self.rewards), ""))
        if kind == "evaluator" or reward is None:
            return list(outcomes)
        try:
            return [
                each if each.value is None else replace(each, value=reward.normalized(each.value))
                for each in outcomes
            ]
        except ConfigError as error:
            raise Refused(422, "open_range", str(error)) from error

    async def _only(self, kind: str) -> tuple[str, str]:
        """The one target there is, of a kind where one is named."""
        targets = []
        if self.evaluators is not None and kind != "reward":
            deployed = await self.evaluators.deployed()
            targets = [("evaluator", str(each["id"])) for each in deployed]
        if kind != "evaluator" or not targets:  # reward-kit's format is for evaluators first
            targets += [("reward", name) for name in self.rewards]
        if len(targets) == 1:
            return targets[0]
        there = ", ".join(f"{kind} {name}" for kind, name in targets[:10]) or "none"
        raise Refused(
            404,
            "no_target",
            f"This path is that of the only target, and there are {len(targets)}: {there}. Name one "
            f"in the path: "
            "/v1/rewards/{name}/… or /v1/evaluations/{id}/….",
        )

    def problems(self) -> list[str]:
        """What does not work at all now: rewards that cannot score, a store that cannot be read."""
        broken = [
            f"reward {name} cannot score as it is set up"
            for name, lane in self.lanes.items()
            if lane.broken
        ]
        store = self.evaluators.problem() if self.evaluators is not None else ""
        return list(filter(None, [*broken, store]))

    async def close(self) -> None:
        """Give up what is not done."""
        for lane in self.lanes.values():
            lane.close()
        if self.evaluators is not None:
            await self.evaluators.close()


LIST_SECONDS = 1.0
"""How old a list of what is deployed may be."""
STORE_SECONDS = 5.0
"""How long a list is waited for."""


class ServedEvaluators:
    """The evaluators of a store as `Handler` asks them.

    Args:
        store: an open one; it is closed with this.
        workers: processes per evaluator.
        limits: what one request may take.
        sandbox: as in `EvaluatorPool`.
        max_waiting: completions that may wait for one evaluator; more are refused with 429.
    """

    def __init__(
        self,
        store: Store,
        *,
        workers: int = 8,
        limits: SandboxLimits = LIMITS,
        sandbox: str = "auto",
        max_waiting: int = 8192,
    ) -> None:
        self._store = store
        self.shown = store.shown
        self._live = LiveEvaluators(store, workers=workers, limits=limits, sandbox=sandbox)
        self._max_waiting = max_waiting
        self.waiting = Counter[str]()
        self._listed: list[Json] = []
        self._at = -LIST_SECONDS
        self._listing: asyncio.Task[list[Json]] | None = None
        self._problem = ""

    async def deployed(self) -> Sequence[Json]:
        """What is deployed, at most a second old; Refused (503) while the store cannot be read."""
        if time.monotonic() - self._at >= LIST_SECONDS:
            # whoever comes meanwhile waits for the same list: an older one may name another target
            try:
                await asyncio.wait_for(asyncio.shield(self._start_listing()), STORE_SECONDS)
            except (StoreError, asyncio.TimeoutError) as error:
                raise self._unreadable(error) from error
        return self._listed

    def _start_listing(self) -> asyncio.Task[list[Json]]:
        """The list that is being read, begun if it is not."""
        if self._listing is None:
            self._listing = asyncio.ensure_future(asyncio.to_thread(self._live.list))
            self._listing.add_done_callback(self._looked)
        return self._listing

    def _looked(self, listing: asyncio.Task[list[Json]]) -> None:
        self._listing = None
        if not listing.cancelled() and listing.exception() is None:
            self._listed, self._at, self._problem = listing.result(), time.monotonic(), ""

    async def score(
        self, evaluator_id: str, asks: Sequence[Ask], seconds: float
    ) -> list[Score[float]]:
        """The outcomes of the asks, in their order.

        Raises:
            Refused: there is no such evaluator (404), no room for the asks (429), or no sandbox or
                store (503).
        """
        waiting, own = self.waiting[evaluator_id], Counter({evaluator_id: len(asks)})
        if waiting + len(asks) > self._max_waiting:
            raise Refused(
                429,
                "busy",
                f"{waiting} conversations are waiting for {evaluator_id} already; at most "
                f"{self._max_waiting} may.",
                retry_after=1.0,
            )
        self.waiting += own
        try:
            payloads = [payload_of(ask) for ask in asks if not ask.problem]
            found = iter(await self._live.scores(evaluator_id, payloads, seconds))
        # whose message is for the owner of the store: it says where that is
        except UnknownEvaluator as error:
            raise Refused(
                404,
                "unknown_evaluator",
                f"There is no evaluator {evaluator_id!r:.80}. GET /v1/evaluations lists them.",
            ) from error
        except StoreError as error:
            raise self._unreadable(error) from error
        except (SandboxUnavailable, DamagedBundle) as error:
            logger.error("evaluator {}: {}", evaluator_id, error)
            raise Refused(
                503,
                "unavailable",
                f"The evaluator {evaluator_id} cannot be run on this server; its log says why.",
                retry_after=30.0,
            ) from error
        finally:
            self.waiting -= own
        return [
            failed("invalid_item", ask.problem, "data") if ask.problem else next(found)
            for ask in asks
        ]

    def problem(self) -> str:
        """Why the store cannot be read, as it was last seen; empty while it can."""
        # who hears of it, on whatever thread, may send no request that would find the store well
        # again
        if self._problem:
            self._loop.call_soon_threadsafe(self._start_listing)
        return self._problem

    async def close(self) -> None:
        """End the processes and close the store."""
        await self._live.close()
        self._store.close()

    def _unreadable(self, error: Exception) -> Refused:
        logger.error("{}", str(error) or f"the store {self.shown} does not answer")
        self._problem = "the store of evaluators cannot be read"
        self._loop = asyncio.get_running_loop()
        return Refused(
            503, "store_unavailable", "The store of evaluators cannot be read now.", retry_after=5.0
        )


def payload_of(ask: Ask) -> Json:
    """What the function of an evaluator gets."""
    messages, original = ask.messages, ask.original_messages
    if messages is None:
        asked = _as_turns(ask.prompt, "user")
        messages = [*asked, *_as_turns(ask.completion, "assistant")]
        original = original or asked
    kwargs = dict(ask.row) if ask.row else None
    more = {"original_messages": original, "tools": ask.tools, "kwargs": kwargs}
    given = {name: value for name, value in more.items() if value is not None}
    return {"messages": messages, "ground_truth": ask.reference, **given}


def _as_turns(content: Spoken | None, speaker: str) -> list[Json]:
    if content is None:
        return []
    return [{"role": speaker, "content": content}] if isinstance(content, str) else content
