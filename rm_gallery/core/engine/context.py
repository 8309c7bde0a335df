"""What belongs to one run and has to reach every call made for it: control, counters, deadline.

Context variables carry it through worker tasks and threads, so that rewards need no extra
parameter.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.deadline import Deadline
from rm_gallery.core.engine.loop import RunStopped as RunStopped
from rm_gallery.core.model.budget import Budget, Reservation, Usage
from rm_gallery.core.model.limits import FailFast, RetryPolicy
from rm_gallery.core.model.storage import ReplyStore
from rm_gallery.core.score import Score, stopped
from rm_gallery.core.utils.errors import BudgetExceeded, Cause, RMGalleryError
from rm_gallery.core.utils.identity import digest

MOST_SERVED = 20
"""So many names are kept that one model answers under."""
CounterName = Literal["calls", "cached", "skipped_by_gate", "retries"]
_BEGUN_ANEW = (
    "max_workers", "budget", "use_cache", "repeat", "usage", "calls", "cached", "skipped_by_gate",
    "retries", "in_flight", "served", "unread", "stopped", "stopped_by", "halted", "interrupted",
    "parent", "calls_out", "first_asked", "batch",
)  # fmt: skip
_INHERITED = (
    "budget", "use_cache", "repeat", "retry", "max_outage", "rate_share", "offline", "replies",
    "trace", "batch",
)  # fmt: skip
"""What a run that does not say it takes from the one around it; `fail_fast` it always takes."""


@dataclass
class RunControl:
    """Counters and the stop switch of one run; shared by all its workers, threads included.

    `stop(reason)` ends the run: samples not begun become failed("stopped"), those in flight finish.
    With `halt` attempts in flight finish, and no further one is made or waited for. A run that is
    started inside another one counts there as well and stops with it.
    """

    max_workers: int = 0
    """Jobs in flight at once; also asked for as the ceiling of each endpoint, where the highest of all
    runs holds.
    """
    budget: Budget | None = None
    retry: RetryPolicy | None = None
    fail_fast: FailFast | None = field(default_factory=FailFast)
    use_cache: bool | None = None
    """Whether replies are read from the cache and kept there; None as the model says, else at
    temperature 0.
    """
    repeat: int = 0
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    """Every request that reached somebody, refused ones included; those that learn which form an
    endpoint takes count as one.
    """
    cached: int = 0
    skipped_by_gate: int = 0
    """Judgements that a gate or cascade found not to be needed."""
    retries: int = 0
    in_flight: int = 0
    """Jobs in flight."""
    stopped: str | None = None
    stopped_by: Cause = "caller"
    """Who brought it about that the run stopped."""
    interrupted: bool = False
    """Whether the user pressed Ctrl-C."""
    halted: bool = False
    restoring: Callable[[], bool] | None = None
    """Whether results of an earlier part of the run are still to come; None where there is no such
    part.
    """
    unread: int = 0
    """Rows that were counted and not read, since the run had stopped."""
    max_outage: float | None = None
    """Seconds an endpoint may be silent until the run stops, where that is less than its model
    allows: counted from its last answer, or from when it was first asked, whatever it does
    meanwhile."""
    rate_share: float = 1.0
    """The part of a model's rates that this process may use, where several judge for the run."""
    quiet: bool = False
    """Whether the caller says itself what failed, so that the run does not."""
    trainer_state: Any = None
    """What a trainer says of where its run stands, for rewards that name a parameter so."""
    probes: bool = False
    """Whether what has no score is tried again with control answers (`blame="probe"`)."""
    offline: bool = False
    """Whether no model is to be called: what none of the run's `replies` answers raises `NotAsked`."""
    replies: ReplyStore | None = None
    """Where replies are kept beside the records of the run, to compare records when it is continued
    (what was paid for is found in the cache alone); None where it keeps no records."""
    served: dict[str, set[str]] = field(default_factory=dict)
    """The models that said they answered, where they have other names than the one that was asked,
    by that one.
    """
    batch: tuple[str, str, bool] | None = None
    """Provider, folder, and whether the run ends once it is sent, where calls go by a provider's
    batch API.
    """
    trace: Callable[[dict[str, Any]], None] | None = None
    """Called by a judge once per judgement with its prompt, reply, tokens and seconds."""
    span: Any = None
    """Where OpenTelemetry's spans of its calls belong."""
    progress: Any = None
    """What counts the outcomes of the run, once it has begun."""
    parent: RunControl | None = None
    """The run this one was started in."""
    calls_out: set[Any] = field(default_factory=set, repr=False)
    """The calls that are waited for, each with `endpoint`, `sent` and `cut()`: one set shared by a run
    and all runs inside it; for the library's event loop alone.
    """
    first_asked: dict[str, float] = field(default_factory=dict, repr=False)
    """By endpoint, when the run asked first: silence of a run that is bounded counts from then."""
    _taken: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    """By name, what it has taken from the run around it, and what it had itself: begun again by
    itself, it has that once more.
    """
    _held: dict[str, Callable[[], None]] | None = field(default_factory=dict, repr=False)
    """By name, what gives back what the run holds; None once it has ended."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(
        self, *, max_workers: int, budget: Budget | None, cache: bool | None, repeat: int
    ) -> None:
        """Start fresh, as a child of the run that this is called in, from which comes whatever is
        not given.
        """
        outer = current_run.get()
        for name, (taken, own) in self._taken.items():
            if getattr(self, name) is taken:
                setattr(self, name, own)
        self._taken = {}
        fresh = RunControl(max_workers, budget, use_cache=cache, repeat=repeat)
        for name in _BEGUN_ANEW:
            setattr(self, name, getattr(fresh, name))
        self._held = self._held or {}
        if outer is not None and outer is not self:
            self.parent, self.calls_out = outer, outer.calls_out
            self.first_asked = outer.first_asked
            unsaid = [n for n in _INHERITED if getattr(self, n) == getattr(RunControl, n)]
            for name in ("fail_fast", *unsaid):
                self._taken[name] = getattr(outer, name), getattr(self, name)
                setattr(self, name, getattr(outer, name))
        elif self.fail_fast is not None:
            self.fail_fast = FailFast(self.fail_fast.limit)

    def _and_around(self) -> Iterator[RunControl]:
        """This run and those around it, from the inside out."""
        each: RunControl | None = self
        while each is not None:
            yield each
            each = each.parent

    def add(self, other: RunControl) -> None:
        """Count what a run beside this one asked for it."""
        with self._lock:
            self.usage.add(other.usage)
            for name in get_args(CounterName):
                vars(self)[name] += vars(other)[name]

    def stop(self, reason: str, *, halt: bool = False, by: Cause = "caller") -> None:
        """Begin no further sample; the first reason given is the one reported, and its cause."""
        with self._lock:
            self.halted |= halt
            if self.stopped is None:
                self.stopped, self.stopped_by = reason, by
        if halt and self.parent is not None:  # what cannot go on here cannot go on around it
            self.parent.stop(reason, halt=True, by=by)
        elif halt and self.calls_out:
            with suppress(RuntimeError):  # the interpreter exits
                library_loop.get_loop().call_soon_threadsafe(self._cut_unsent)

    def interrupt(self) -> None:
        """Stop since the user presses Ctrl-C, whatever has stopped it before; what is in flight may
        still be finished.
        """
        self.interrupted = True
        self.stop("interrupted", halt=True)

    def _cut_unsent(self) -> None:
        """End the calls that wait for a turn, of a rate or a pause, which none of them would use."""
        for call in list(self.calls_out):
            if call.sent is None:
                call.cut()

    def stop_spending(self, budget: Any, reason: str) -> None:
        """Stop this run and those around it that spend this budget."""
        for each in self._and_around():
            if each.budget is budget:
                each.stop(reason)

    @property
    def _stopped_run(self) -> RunControl:
        """The run that has stopped, this one or the nearest around it; the outermost where none has."""
        return self if self.stopped is not None or self.parent is None else self.parent._stopped_run

    @property
    def why_stopped(self) -> str | None:
        """Why this run, or one around it, begins nothing more; None while it goes on."""
        return self._stopped_run.stopped

    @property
    def not_begun(self) -> Score[Any] | None:
        """What becomes of a job that is not begun, since this run or one around it has stopped; None
        while it goes on.
        """
        run = self._stopped_run
        return None if run.stopped is None else stopped(run.stopped, run.stopped_by)

    @property
    def over(self) -> bool:
        """Whether it has stopped and nothing is left to restore: what is still to come need not be
        read.
        """
        return self.why_stopped is not None and not (self.restoring and self.restoring())

    @property
    def who_stopped(self) -> Cause:
        """Who brought it about that this run, or one around it, begins nothing more."""
        return self._stopped_run.stopped_by

    def budgets(self) -> list[Budget]:
        """The budgets of this run and of those around it, from the inside out; each once."""
        found = list[Budget]()
        for each in self._and_around():
            if each.budget is not None and each.budget not in found:
                found.append(each.budget)
        return found

    @property
    def limited(self) -> bool:
        """Whether this run, or one around it, has a budget with a limit."""
        return any(budget.limited for budget in self.budgets())

    def check_halted(self) -> None:
        """Raise RunStopped when no further attempt is to be made."""
        for each in self._and_around():
            if each.halted:
                raise each.not_judged()

    def not_judged(self) -> RunStopped:
        """The error of a call that is not made, or cut, since the run stopped."""
        return RunStopped(f"Not judged: the run stopped ({self.why_stopped}).", self.who_stopped)

    def give_up(self, endpoint: object, reason: str) -> None:
        """Stop, since an endpoint has served nobody for too long, and end all calls of this tree of
        runs to it.
        """
        self.stop(reason, halt=True, by="endpoint")
        for call in list(self.calls_out):
            if call.endpoint is endpoint:
                call.cut()

    def hold(self, name: str, take: Callable[[], Callable[[], None]]) -> None:
        """Take something once for the whole run; what `take` returns gives it back when the run
        ends. A call of a thread that was left behind comes after that, and takes nothing.
        """
        with self._lock:
            if self._held is not None and name not in self._held:
                self._held[name] = take()

    def end(self) -> None:
        """Give back what the run held."""
        with self._lock:
            held, self._held = self._held or {}, None
        for give_back in held.values():
            give_back()

    def count(self, counter: CounterName, more: int = 1, usage: Usage | None = None) -> None:
        """Add to a counter of this run and of those around it."""
        for each in self._and_around():
            with each._lock:
                vars(each)[counter] += more
                if usage is not None:
                    each.usage.add(usage)

    def note_served(self, asked: str, answered: str) -> None:
        """Hear that another model than the one that was asked said it answered; for the library's event loop alone."""
        for each in self._and_around():
            known = each.served.setdefault(asked, set())
            if len(known) < MOST_SERVED:
                known.add(answered[:100])


@dataclass(eq=False)
class Claims:
    """What one call claims of the budgets of its run, from the inside out, so that two calls never
    wait for each other.
    """

    run: RunControl
    model: str
    expected: int
    most: int | None
    _made: list[tuple[Budget, Reservation]] = field(default_factory=list)

    async def reserve(
        self, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Claim the call, inside `waiting()` where it has to wait; BudgetExceeded stops the run whose
        budget it is.
        """
        run, asked = self.run, (self.model, self.expected, self.most)
        for budget in run.budgets():
            try:
                if (claim := budget.try_reserve(*asked)) is None:
                    with waiting():
                        claim = await budget.reserve(*asked)
            except BudgetExceeded as error:
                run.stop_spending(budget, str(error))
                raise
            self._made.append((budget, claim))

    def price_of(self, used: Usage) -> float | None:
        """What a usage costs by the first budget that knows the model's price."""
        for budget, _ in self._made:
            if (
                budget.prices is not None
                and (cost := budget.prices.cost(self.model, used)) is not None
            ):
                return cost
        return None

    def settle(self, used: Usage) -> None:
        """Replace what was claimed by what was used, at one cost for all budgets and runs."""
        if used.cost is None:
            used.cost = self.price_of(used)
        for budget, claim in self._made:
            budget.settle(claim, used, self.model)
        self._made.clear()


LIMIT_SHARE = 0.75
"""Of the time that a sample has left, what one limit of its reward may take."""
current_run: ContextVar[RunControl | None] = ContextVar("rm_gallery_run", default=None)
current_deadline: ContextVar[Deadline | None] = ContextVar("rm_gallery_deadline", default=None)
"""When the current sample runs out, or None."""


@dataclass(eq=False, slots=True)
class StopMark:
    """What happened to the calls below a job: was one stopped, which got no answer, and did a number
    hide that? Kept by whoever runs the jobs, one after another.

    A rule that falls back to a number where its judge cannot be asked would otherwise have that
    number kept as its score.
    """

    outer: StopMark | None
    call_stopped: bool = False
    unanswered: list[BaseException] = field(default_factory=list)
    """Errors of the calls that got no answer."""
    covered: list[BaseException] = field(default_factory=list)
    """Those behind which a part of the job has put a number."""
    declares_missing: bool = False
    """Whether the job says what a missing part means: its number is then none that somebody made
    up.
    """

    def taken(self, ok: bool) -> list[BaseException]:
        """The unanswered calls that stand behind the number of a job that is over; those around the
        job hear of them, too.
        """
        taken = self.covered if ok and self.declares_missing else self.unanswered + self.covered
        self.unanswered, self.covered = [], []
        if self.outer is not None:
            (self.outer.covered if ok else self.outer.unanswered).extend(taken)
        return taken if ok else []


stop_mark: ContextVar[StopMark | None] = ContextVar("rm_gallery_stop_mark", default=None)
"""That of the current job."""


def note_stop(mark: StopMark | None) -> None:
    """Say to a job and to those around it that a call below them was stopped."""
    while mark is not None:
        mark.call_stopped, mark = True, mark.outer


class NotAsked(RMGalleryError):
    """A model would have to be called, and the run calls none."""

    reason = "not_asked"
    cause: Cause = "caller"


@dataclass(eq=False)
class Questions:
    """What judges are asked about one sample: a hash of each question, in `hashes`; in a `dry_run`
    none is asked in fact.
    """

    dry_run: bool = False
    reply_missing: bool = False
    """Whether a request was made then, and its reply is not known."""
    asked_anew: bool = False
    """Whether a request is made now that was not made then."""
    hashes: set[str] = field(default_factory=set)

    def note(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Hear of a question that is about to be asked; raises NotAsked where none is."""
        self.hashes.add(digest(messages)[:12])
        if self.dry_run:
            raise NotAsked("The question alone was wanted.")


questions: ContextVar[Questions | None] = ContextVar("rm_gallery_questions", default=None)
"""Where it is noted what judges are asked about the current sample; None where nobody keeps it."""


_STEPS = 32
"""Turns of the event loop: enough for a few coroutines that wait for one another, and no time for
what waits for others.
"""


def asked_by(ways: Iterable[Callable[[], Any]]) -> Questions:
    """What coroutine functions would ask of a judge, without asking; what comes after waiting for
    anything else is not known.
    """
    asked = Questions(dry_run=True)

    async def ask(way: Callable[[], Any]) -> None:
        with suppress(Exception):  # for what cannot be asked the record has the reason
            if inspect.isawaitable(going := way()):
                await going

    async def ask_all() -> None:
        questions.set(asked)
        current_run.set(RunControl(quiet=True, offline=True))
        for way in ways:
            task = asyncio.ensure_future(ask(way))
            for _ in range(_STEPS):
                if task.done():
                    break
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    def on_a_loop() -> None:
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(ask_all())

    context = copy_context()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        context.run(on_a_loop)
    else:  # a thread runs one loop at a time
        thread = threading.Thread(target=context.run, args=(on_a_loop,))
        thread.start()
        thread.join()
    return asked


def within_deadline(seconds: float) -> float:
    """A limit of a reward's own, in seconds, cut so that it ends well before the current sample's
    deadline.

    What an answer uses up is then told by the reward, which knows that it was the answer; the
    deadline itself is the caller's.
    """
    deadline = current_deadline.get()
    return seconds if deadline is None else min(seconds, max(0.05, LIMIT_SHARE * deadline.left))


def snapshot(control: RunControl) -> dict[str, Any]:
    """The run's counters as plain numbers, for summaries."""
    return {
        "calls": control.calls,
        "cached": control.cached,
        **({"spared": control.skipped_by_gate} if control.skipped_by_gate else {}),
        "retries": control.retries,
        "input_tokens": control.usage.input_tokens,
        "output_tokens": control.usage.output_tokens,
        "cost": control.usage.cost,
    }


channel_trial: ContextVar[Literal["", "trial", "last"]] = ContextVar(
    "rm_gallery_channel_trial", default=""
)
"""Whether an output channel is being tried: that it is refused is an answer then, and no failure of
the run, unless it is the last way there is.
"""
