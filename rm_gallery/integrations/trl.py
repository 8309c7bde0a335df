"""Rewards as reward functions of TRL: GRPO, RLOO, online DPO and asynchronous GRPO.

    trainer = GRPOTrainer(..., reward_funcs=[trl_reward("math_verify_reward",
    reference="solution")])

TRL has a word for "no score": None leaves a completion out of its group's mean and gives it no
advantage. So `on_error` is "none" here; it may be "raise", which ends the training, "mean", "worst"
or a number. A completion that breaks the reward gets the worst score of the range, or `worst=`:
with None, breaking the reward would cost nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.resolve import judges_for
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import RowScorer, broken_by_answer, for_training, rows_of

Values = list["float | None"]
_STATE = "trainer_state"
_ON_REQUEST = "environments"
"""An argument of TRL that a reward sees only where `columns` names it."""
HELPERS = frozenset((_STATE, "log_extra", "log_metric", _ON_REQUEST))
"""Arguments of TRL that are no columns of the dataset."""
_LOOSE_KEYS = (1, 14)
"""The first version whose processes may log different names; in older ones they deadlock."""
_KEPT = 64
"""Batches whose outcomes are kept for functions that have not asked yet."""
_UNREAD = frozenset({"parse", "truncated", "content_filter", "no_logprobs"})
"""Reasons of unscored completions that a judge was asked about in vain; any other says the reward
is not about them.
"""


def trl_reward(
    reward: object,
    *,
    reference: str | None = None,
    columns: Mapping[str, str] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    on_error: OnError = "none",
    name: str | None = None,
    options: Any = None,
    logs: bool = True,
    **params: Any,
) -> TrlReward:
    """A reward as one of TRL's `reward_funcs`; arguments as in `RowScorer`.

    Its chart is `rewards/NAME/mean`. Beside it stand, where TRL offers to log,
    `rewards/NAME/unscored` and `rewards/NAME/failed` (shares of the completions, 0 to 1) and each
    component as `rewards/NAME/COMPONENT` (the mean of those that have it); the table of completions
    gets the outcome and the judge's reason. `logs=False` leaves that out.
    """
    scorer = RowScorer(
        _refuse_trl_function(reward),
        reference=reference,
        columns=columns,
        llm=llm,
        base_url=base_url,
        on_error=on_error,
        name=name,
        options=options,
        **params,
    )
    return TrlReward(_Batches([scorer]), logs=logs)


def trl_rewards(
    rewards: Iterable[object], *, together: bool = True, **shared: Any
) -> list[TrlReward]:
    """Several rewards for `reward_funcs`, in their order; their weights go into `reward_weights` of
    the trainer's config.

    TRL sums a completion's rewards and counts None as 0 next to a number, so a failed judge would
    count as the worst verdict. Therefore a completion that one of these rewards should have scored
    and could not gets None from all of them, and `rewards/dropped` charts their share. A reward
    that is not about a completion (no reference, not applicable) is None alone.

    Args:
        rewards: what `trl_reward` takes or returned, or dicts of its arguments:
            `{"reward": "length_penalty", "name": "short"}`.
        together: whether completions are dropped so; otherwise each reward stands alone, as with
            `trl_reward`.
        **shared: arguments for all of them; those of a dict win, and `llm` and `base_url` are for
            those that ask a model; a ConfigError where none does.
            Of two with one name the second gets `_2`, since TRL would draw both into one chart.
    """
    if isinstance(rewards, str | Mapping):
        raise ConfigError(
            f"rewards is {rewards!r:.80}; give a list of rewards, or use trl_reward for one."
        )
    scorers: list[RowScorer] = []
    logs: list[bool] = []
    taken: Counter[str] = Counter()
    entries = [
        given
        if isinstance(given, TrlReward) and given.component is None
        else dict(given)
        if isinstance(given, Mapping)
        else {"reward": given}
        for given in rewards
    ]
    for entry in entries:
        if isinstance(entry, dict) and "reward" not in entry:
            raise ConfigError(
                f"An entry of trl_rewards has no 'reward'; it has: "
                f"{', '.join(map(str, entry)) or 'nothing'}."
            )
    named = [_refuse_trl_function(entry["reward"]) for entry in entries if isinstance(entry, dict)]
    judges = iter(judges_for(named, shared.pop("llm", None), shared.pop("base_url", None)))
    for entry in entries:
        if isinstance(entry, TrlReward):
            scorer, log = entry.scorer, entry._logs
        else:
            settings = {**shared, **next(judges), **entry}
            log = settings.pop("logs", True)
            scorer = RowScorer(**settings)
        taken[scorer.name] += 1
        if taken[scorer.name] > 1 and isinstance(entry, dict):
            scorer.name = f"{scorer.name}_{taken[scorer.name]}"
        scorers.append(scorer)
        logs.append(log)
    batches = _Batches(scorers, users=len(scorers))
    return [
        TrlReward(batches, at, logs=log)
        if together
        else TrlReward(_Batches([scorers[at]]), logs=log)
        for at, log in enumerate(logs)
    ]


def trl_components(reward: object, components: Iterable[str], **settings: Any) -> list[TrlReward]:
    """One reward function per component of a reward, which still scores each completion once.

    So each has its own chart `rewards/NAME/COMPONENT/mean`, its own place in `reward_weights`, and
    is normalised by itself with `multi_objective_aggregation="normalize_then_sum"`. A completion
    without the component is None there. `settings` are the arguments of `trl_reward`.
    """
    logs = settings.pop("logs", True)
    names = [components] if isinstance(components, str) else list(components)
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"components is {names!r:.80}; name at least one component, each once.")
    batches = _Batches([RowScorer(reward, **settings)], users=len(names))
    return [TrlReward(batches, logs=logs, component=name) for name in names]


def _refuse_trl_function(reward: object) -> object:
    """The reward as it is; ConfigError for a function that TRL calls itself."""
    if inspect.isroutine(reward):
        taken = inspect.signature(reward).parameters
        if "completions" in taken and "messages" not in taken:
            raise ConfigError(
                f"{reward.__name__} takes completions, so it is a reward function of TRL already: "
                f"put it into reward_funcs "
                "as it is. A function of messages can be given here."
            )
    return reward


class TrlReward:
    """A callable for `reward_funcs`, one object for every trainer and version.

    Called where an event loop runs it returns what can be awaited and, for a trainer that does not,
    iterated over; elsewhere the list itself. Picklable, with a `__name__` of its own for the
    charts.
    """

    seen_by: Callable[..., None] | None = None
    """Who sees each batch with its values (`TrlWatch`); not pickled along."""

    def __init__(
        self, batches: _Batches, at: int = 0, *, logs: bool = True, component: str | None = None
    ) -> None:
        """Take the batches of scorers, and which of them is asked."""
        self.scorer = scorer = for_training(
            batches.scorers[at], "set a negative weight in reward_weights"
        )
        self.component = component
        self.__name__ = scorer.name if component is None else f"{scorer.name}/{component}"
        self._batches, self._at = batches, at
        self._logs = logs
        self._missed = False
        self._show_async()

    def _show_async(self) -> None:
        # TRL looks at the attribute to learn whether to await; Python calls the class's, which also
        # serves who does not
        self.__dict__["__call__"] = self.ascored

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("__call__", "seen_by")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._show_async()

    def __repr__(self) -> str:
        return f"trl_reward({self.__name__!r})"

    def __call__(
        self, /, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Any:
        """A number, or None, per completion; `columns` are the dataset's, and TRL's helpers."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.scored(prompts, completions, **columns)
        return _Later(
            partial(self.scored, prompts, completions, **columns),
            partial(self.ascored, prompts, completions, **columns),
        )

    async def ascored(
        self, /, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> Values:
        """The same, awaited; `scored` waits for it."""
        while True:
            batch, first = self._batches.claim(completions)
            if first:
                with _settling(batch):
                    batch.set_result(await self._batches.ascore(prompts, completions, columns))
            with suppress(_GivenUp):
                driven = library_loop.is_driven()
                found = batch.result() if driven else await asyncio.wrap_future(batch)
                values = self._values(found, columns, first)
                if self.seen_by is not None:
                    self.seen_by(prompts, completions, values, columns)
                return values

    scored = library_loop.blocking(ascored, drives=True)

    def _values(self, batch: _ScoredBatch, helpers: Mapping[str, Any], first: bool) -> Values:
        scores, dropped = batch.scores[self._at], batch.dropped
        if self._logs and (first or self.component is None):
            log_metric, log_extra = helpers.get("log_metric"), helpers.get("log_extra")
            self._chart(scores, log_metric, log_extra)
            if first and len(batch.scores) > 1 and callable(log_metric):
                log_metric("rewards/dropped", sum(dropped) / max(1, len(dropped)))
        if self.component is not None:
            self._warn_if_missing(scores)
        return [
            None if out else self._number_of(each)
            for each, out in zip(scores, dropped, strict=True)
        ]

    def _number_of(self, score: Score[float]) -> float | None:
        if score.value is None or self.component is None:
            return self.scorer.value(score)
        # a completion that broke the reward has no components: None would spare it the worst score
        return score.components.get(
            self.component, score.value if broken_by_answer(score) else None
        )

    # -- charts ------------------------------------------------------------------------------------

    def _chart(self, scores: list[Score[float]], log_metric: Any, log_extra: Any) -> None:
        name, parts = self.scorer.name, dict[str, list[float | None]]()
        # none where each has its own function, or where all processes must log equal names
        if self.component is None and _names_may_differ():
            for part in dict.fromkeys(part for each in scores for part in each.components):
                parts[part] = [each.components.get(part) for each in scores]
        if callable(log_metric):
            for status in ("unscored", "failed"):
                share = sum(each.status == status for each in scores) / max(1, len(scores))
                log_metric(f"rewards/{name}/{status}", share)
            for part, values in parts.items():
                there = [value for value in values if value is not None]
                log_metric(f"rewards/{name}/{part}", math.fsum(there) / len(there))
        if callable(log_extra):
            log_extra(f"{name}/outcome", [each.code or each.status for each in scores])
            log_extra(f"{name}/message", [each.reason for each in scores])
            for part, values in parts.items():
                log_extra(f"{name}/{part}", values)

    def _warn_if_missing(self, scores: list[Score[float]]) -> None:
        """Warn once when no score of a batch has the component, which may be misspelt."""
        there = {name for each in scores for name in each.components}
        unmet = self.component not in there and any(each.value is not None for each in scores)
        if unmet and not self._missed:
            self._missed = True
            logger.warning(
                "{}: no completion of a batch has the component '{}'; there are: {}.",
                self.scorer.name,
                self.component,
                ", ".join(sorted(there)) or "none",
            )


class _Later(Sequence["float | None"]):
    """Values that are worked out when they are awaited, or else when they are looked at."""

    def __init__(
        self, scored: Callable[[], Values], ascored: Callable[[], Coroutine[Any, Any, Values]]
    ) -> None:
        self._values, self._awaited = cache(scored), ascored

    def __await__(self) -> Generator[Any, None, Values]:
        return self._awaited().__await__()

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return repr(self._values())

    def __getitem__(self, index: Any) -> Any:
        return self._values()[index]


class _ScoredBatch(NamedTuple):
    """Outcomes of a batch by scorer, and which completions are left out by all of them."""

    scores: list[list[Score[float]]]
    dropped: list[bool]


class _GivenUp(Exception):
    """The call that scored a batch was cancelled: another waiting call takes over."""


@contextmanager
def _settling(batch: Future[_ScoredBatch]) -> Iterator[None]:
    """Passes an error on to all other waiters of the batch."""
    try:
        yield
    except asyncio.CancelledError:
        batch.set_exception(_GivenUp())
        raise
    except BaseException as error:
        batch.set_exception(error)
        raise


class _Batches:
    """Scores each batch once for all reward functions, which identify it by the list object of its
    completions.
    """

    def __init__(self, scorers: list[RowScorer], users: int = 1) -> None:
        self.scorers = scorers
        self._users = users
        self._lock = threading.Lock()
        self._open: list[tuple[Any, Future[_ScoredBatch], list[int]]] = []

    def __reduce__(self) -> tuple[type[_Batches], tuple[list[RowScorer], int]]:
        return _Batches, (self.scorers, self._users)

    def claim(self, completions: Any) -> tuple[Future[_ScoredBatch], bool]:
        """The outcomes to come, and whether it is the caller's to find them."""
        with self._lock:
            for entry in self._open:
                if entry[0] is completions and not (entry[1].done() and entry[1].exception()):
                    entry[2].append(1)
                    if len(entry[2]) == self._users:
                        self._open.remove(entry)
                    return entry[1], False
            batch: Future[_ScoredBatch] = Future()
            # so that a cancelled waiter does not cancel the batch for others
            batch.set_running_or_notify_cancel()
            if self._users > 1:
                self._open = [*self._open[-_KEPT:], (completions, batch, [1])]
            return batch, True

    async def ascore(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> _ScoredBatch:
        """Score a batch with every scorer, at once where there are several."""
        n = len(completions)
        named = {column for scorer in self.scorers for column in scorer.columns.values()}
        rows = rows_of(columns, n, HELPERS - (named & {_ON_REQUEST}))
        asked = (prompts, completions, rows, columns.get(_STATE))
        if len(self.scorers) == 1:
            return _ScoredBatch([await self.scorers[0].ascore_rows(*asked)], [False] * n)
        going = self._all(asked)
        scores = library_loop.run(going) if library_loop.is_driven() else await going
        dropped = [
            any(
                outcomes[place].status == "failed" or outcomes[place].code in _UNREAD
                for scorer, outcomes in zip(self.scorers, scores, strict=True)
                if scorer.on_error == "none"
            )
            for place in range(n)
        ]
        return _ScoredBatch(scores, dropped)

    async def _all(self, asked: tuple[Any, ...]) -> list[list[Score[float]]]:
        return await asyncio.gather(*(scorer.ascore_rows(*asked) for scorer in self.scorers))


@lru_cache(maxsize=1)
def _names_may_differ() -> bool:
    """Whether processes may log names that the others do not have at that step."""
    if int(os.environ.get("WORLD_SIZE") or 1) < 2:
        return True
    try:
        return tuple(int(part) for part in version("trl").split(".")[:2]) >= _LOOSE_KEYS
    except (PackageNotFoundError, ValueError):
        return False
