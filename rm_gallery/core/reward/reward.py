"""`BaseReward`: what every reward is (settings that identify it, its range, what it needs), how a
sample becomes jobs and jobs become scores, and the doors through which every reward is called.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rm_gallery.core.data.schema import DataOutput, DataSample, FiniteFloat, Reward
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.engine import Plan
from rm_gallery.core.reward.fields import as_one, inputs_of, sample_of_fields
from rm_gallery.core.reward.job import Touches
from rm_gallery.core.reward.kinds import Kind
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.run import (
    RunOptions,
    Samples,
    are_rows,
    checked_samples,
    options_of,
    run_list,
    run_one,
    run_rows,
    run_stream,
    scores_of,
    scores_of_one,
)
from rm_gallery.core.reward.schema import OF_SCORES, Example, RewardMeta
from rm_gallery.core.score import (
    Bounds,
    Score,
    checked_bounds,
    finite_score,
    is_run_level,
    mean_of,
    score_of_error,
    worst_of,
)
from rm_gallery.core.text.canonical import Form
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.identity import class_name, digest, is_users, plain_form
from rm_gallery.core.utils.models import Configured, copy_with
from rm_gallery.core.utils.shown import MASK, redact

if TYPE_CHECKING:
    from typing_extensions import Self

UNRELATED = ("max_workers", "deadline")
"""Settings that decide how a run goes and not what comes out."""
_HASH, KIND = "(settings hash)", "(kind)"
"""What a reward works out once of its settings; with another setting it is another one."""


class BaseReward(Configured, metaclass=RewardMeta):
    """A named way to score a sample's outputs.

    A subclass picks a kind (pointwise, listwise, pairwise, stepwise, trajectory) and implements
    `_evaluate(sample, **kwargs)`, plain or async, returning a `Score` of a number, or of a tuple
    with one for each output where they are compared; a `RewardResult` will do as well. It may raise
    `Unscored` when there is nothing to judge by. Instances keep nothing of a call: one object
    serves any number of threads and calls at once, and it can be pickled.

    A plain `_evaluate` runs on threads. An async one runs on the library's event loop with all
    others: what blocks in it (a sleep, a long computation) holds up every call in flight, so such
    work belongs in a plain or `cpu_bound` reward.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, validate_default=True, protected_namespaces=()
    )

    touches: ClassVar[Touches] = {}
    """What of this machine it reads, runs or asks while it scores, beside the model that judges
    (`needs`), and by which fields of a sample. A server takes content alone in fields that name
    files, and no word of a client in the others.
    """
    deterministic: ClassVar[bool] = True
    """Whether it says the same of the same whenever it is asked; what is not deterministic is not
    scored again by a run that is continued to see whether its code still does what it did."""
    fingerprint: ClassVar[Any] = None
    """What stands for the code, by value: with it nothing is scored again, and another fingerprint
    is another run.
    """
    judged: ClassVar[bool] = False
    """Whether a model judges: candidate order is then permuted and preference labels are withheld
    from the hooks.
    """
    needs: ClassVar[frozenset[str]] = frozenset()
    """What a sample or the machine must offer: reference, tests, schema, llm, vision, embeddings, an
    extra's name.
    """

    takes_scale: ClassVar[bool] = False
    """Whether a class of the library is told the range and direction of its scores; those of most
    follow from what they measure.
    """

    name: str = Field(default="", validate_default=True)
    """The name under which scores and issues are recorded."""
    score_range: Bounds = (None, None)
    """Lowest and highest possible score; None where there is no bound. A score outside is an error,
    never a clamp.
    """
    higher_is_better: bool = True
    """Whether a higher score is the better one."""
    threshold: float | None = None
    """From where on an answer passes, in the units of the score."""
    max_workers: int = Field(default=MAX_WORKERS, ge=1)
    """Judgements in flight at once, unless a batch says otherwise."""
    deadline: float | None = Field(default=600.0, gt=0)
    """Seconds one sample or row may take from its first job's start; None for no limit."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.threshold is not None or not self.model_fields_set.isdisjoint(OF_SCORES):
            self.check_scale()
        return self

    def check_scale(self) -> None:
        """Raise ConfigError for a range, a direction or a threshold that is given and does not fit."""
        kind = type(self)
        for name in () if self.takes_scale or is_users(kind.__module__) else OF_SCORES[:2]:
            if getattr(self, name) != (own := getattr(kind, name)):
                raise ConfigError(
                    f"{kind.__name__}: {name} is {own}, which follows from what it measures; leave "
                    f"it out."
                )
        low, high = checked_bounds(self.score_range, f"{kind.__name__}: score_range")
        if self.threshold is not None and not (
            (low is None or low <= self.threshold) and (high is None or self.threshold <= high)
        ):
            raise ConfigError(
                f"{kind.__name__}: threshold is {self.threshold}; it lies inside the score "
                f"range {self.score_range}."
            )

    def describe(self) -> dict[str, Any]:
        """What identifies it in a run's manifest: class, settings by value, prompt and model, and
        its `fingerprint`.

        How fast or how patiently it judges (`max_workers`, `deadline`) and secrets are no part of
        it. What its code does is seen when a run is continued. Raises ConfigError for a setting
        whose content cannot be told, such as a lambda.
        """
        out: dict[str, Any] = {"class": class_name(type(self))}
        llm = getattr(self, "llm", None)
        for name, info in type(self).model_fields.items():
            judge = llm is not None and getattr(self, name) is llm
            unsaid = name in self.said_if_given and getattr(self, name) == info.default
            if name not in ("llm", "template", *UNRELATED) and not judge and not unsaid:
                out[name] = plain_form(getattr(self, name), f"{self.name}: setting '{name}'")
        if self.fingerprint is not None:
            out["fingerprint"] = plain_form(self.fingerprint, f"{self.name}: fingerprint")
        template = getattr(self, "template", None)
        if isinstance(template, type):
            out["template"] = plain_form(template)
            prompt_name = getattr(template, "prompt_name", "")
            if prompt_name or not is_users(
                next((c.__module__ for c in template.__mro__ if "format" in vars(c)), "")
            ):
                out["template"]["prompts"] = prompts_hash(prompt_name)
        if llm is not None:
            out["llm"] = {**llm.describe(), **sent_along(llm)}
        return out

    @property
    def says_the_same(self) -> bool:
        """Whether it and all its parts are deterministic."""
        return self.deterministic and all(part.says_the_same for part in _parts(self))

    @property
    def compared_again(self) -> bool:
        """Whether a run that is continued may hold its records against what it says now: it and all
        its parts can be.
        """
        return (
            self.deterministic
            and self.fingerprint is None
            and all(part.compared_again for part in _parts(self))
        )

    @property
    def settings_hash(self) -> str:
        """A hash of what `describe` tells: equal for equal settings in every process, worked out
        once per object.
        """
        known: str | None = self.__dict__.get(_HASH)
        if known is None:
            try:
                known = digest(redact(self.describe()))
            except ConfigError:
                known = digest(["object", id(self), type(self).__qualname__])
            self.__dict__[_HASH] = known
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; the reward is another one afterwards."""
        _forget(self)
        super().__setattr__(name, value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Any:
        """A copy with some fields changed."""
        copied = super().model_copy(update=update, deep=deep)
        _forget(copied)
        return copied

    range_declared: ClassVar[bool] = True
    """Whether somebody stated the range; False for the [0, 1] of a function that declares none."""
    looks_at: ClassVar[frozenset[Form]] = frozenset()
    """What of a text's form its score depends on, besides what the text says; nothing for most."""
    kind: ClassVar[Kind] = Kind("")
    """What it does with a sample's outputs; equal to its name, such as `pointwise`."""
    cpu_bound: ClassVar[bool] = False
    """Whether `_evaluate` runs in a killable worker process: for work that can hang, crash or eat
    memory.
    """
    kill_after: ClassVar[float | None] = None
    """Seconds that one answer may take in a worker process of a `cpu_bound` reward; None for most
    of the sample's deadline.
    """
    settles_worst: ClassVar[bool] = False
    """Whether the worst score is settled where it is judged, such as behind a server, and need not
    be said here.
    """
    said_if_given: ClassVar[frozenset[str]] = frozenset({"worst", *OF_SCORES})
    """Settings that identify it only where they are not the default: there are runs that are older
    than they.
    """
    finds_blame_in_parts: ClassVar[bool] = False
    """Whether it finds out itself, part by part, which missing scores are an answer's own doing."""
    may_ask_others: ClassVar[bool] = False
    """Whether it is code of its user, which may settle a bad answer itself and ask a service about
    the others.
    """

    example: ClassVar[Example | None] = None
    """A sample that fits the reward, and what the reward needs to score it: shown on its card, and
    run by the tests.
    """

    worst: FiniteFloat | None = None
    """What an answer gets that makes itself impossible to judge; the worst score of the range
    unless it is given.
    """

    @field_validator("worst", mode="before")
    @classmethod
    def _worst_is_a_number(cls, given: Any) -> float | None:
        return None if given is None else finite_score("worst", given)

    def model_post_init(self, context: Any) -> None:
        """Fill in the name of an unnamed reward."""
        if not self.name:
            object.__setattr__(self, "name", self._unnamed())
        if not self.kind:
            raise ConfigError(
                f"{type(self).__name__} has no kind: derive it from BasePointWiseReward, "
                f"BaseListWiseReward, "
                "BasePairWiseReward, BaseStepWiseReward or BaseTrajectoryReward as well."
            )
        if not hasattr(self, "_evaluate"):
            raise ConfigError(
                f"{type(self).__name__} has no _evaluate(sample, **kwargs) that returns a Score."
            )
        self.check_worst()
        if self.cpu_bound and self.is_async():
            raise ConfigError(
                f"{type(self).__name__} is cpu_bound and its _evaluate is async: worker processes "
                f"run plain functions only. "
                "Leave cpu_bound out: a judge or another coroutine runs on the library's event "
                "loop."
            )

    @classmethod
    def _unnamed(cls) -> str:
        """What a reward is called that was given no name."""
        return cls.__name__

    @property
    def inputs(self) -> dict[str, bool]:
        """The fields it is called with by their names, and whether each is required; ``"*"`` stands
        for any other field.
        """
        return inputs_of(self)

    def _graded(self, fields: Mapping[str, Any]) -> Any:
        """The score of named fields, or a coroutine of it."""
        return self._scored(sample_of_fields(fields, self.compares))

    async def _scored(self, sample: DataSample) -> Score[Any]:
        return as_one(self, await scores_of_one(self, sample, {}))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of a table that it reads in the place of prompts and answers; none for most."""
        return ()

    def range_over(self, rows: Iterable[Mapping[str, Any]]) -> Bounds:
        """The range of its scores of these rows: `score_range`, unless that follows from the rows."""
        return self.score_range

    @property
    def compares(self) -> bool:
        """Whether it judges outputs against one another, so that all answers to one prompt belong
        into one sample.
        """
        return self.kind.compares

    @property
    def made_of_parts(self) -> bool:
        """Whether its scores are made of those of other rewards."""
        return False

    @property
    def declares_missing(self) -> bool:
        """Whether it says itself what a part without a score means, as all of the library does;
        code of one's own may hide one.
        """
        return not is_users(type(self)._evaluate.__module__)

    def kept_parts(self, extras: Mapping[int, Any]) -> Iterator[tuple[BaseReward, list[int]]]:
        """The rewards its scores are made of, at any depth, each with the places of the outputs whose
        extra data tell of it.
        """
        yield from ()

    @property
    def asked_times(self) -> int:
        """How often each judgement is asked for."""
        return 1

    def check_worst(self) -> None:
        """Raise ConfigError for a worst score that is none of the reward's."""
        low, high = self.score_range
        if self.worst is None:
            return
        worst = finite_score(
            "worst", self.worst
        )  # a copy's, or a class's own, which nothing has checked
        if (low is not None and worst < low) or (high is not None and worst > high):
            raise ConfigError(
                f"{self.name}: worst is {worst:g}, outside the range [{low}, {high}]."
            )

    @property
    def worst_score(self) -> float | None:
        """What an answer gets that makes itself impossible to judge; None where the range is open
        and nothing was said.
        """
        return (
            self.worst
            if self.worst is not None
            else worst_of(self.score_range, self.higher_is_better)
        )

    @property
    def least_workers(self) -> int:
        """Judgements in flight it takes to fill the batches of a model in this process; a smaller
        `max_workers` is raised.
        """
        return 1

    def plan(self, sample: DataSample) -> Plan:
        """Ask what judges the sample, and say what came of it: a score, or why there is none, for
        each output. What raises costs this sample alone, unless it is an error of the run.
        """
        kind = self.kind
        try:
            jobs: list[Any] = kind.jobs(self, sample)
        except Exception as error:
            if is_run_level(error):
                raise
            jobs = [error]
        outcomes = yield jobs
        try:
            if jobs and isinstance(jobs[0], Exception):
                return kind.everywhere(self, sample, outcomes[0])
            return kind.merge(self, sample, jobs, outcomes)
        except Exception as error:
            if is_run_level(error):
                raise
            return kind.everywhere(self, sample, score_of_error(error))

    def at_once(self) -> Callable[[DataSample], list[Score[Any]]] | None:
        """What says of each output of a sample at once what its plan would; None for most, which
        the engine runs.
        """
        return None

    def check(self) -> None:
        """Raise ConfigError when no sample could be scored at all (no model, no key, a missing
        extra).
        """

    def score_of_output(self, output: DataOutput) -> float | None:
        """The number an output is ranked by: its answer's score, or one made of the scores of its
        steps.
        """
        return self.score_of(output.answer.reward)

    def score_of(self, reward: Reward) -> float | None:
        """This reward's own score in an output's `Reward`: the mean of its dimensions, None when it
        gave none.

        A reward of the same name with other settings is another reward.
        """
        key = self.key_in(reward)
        own = [detail.score for detail in reward.details if detail.source == key]
        return mean_of(own) if own else None

    def key_in(self, reward: Reward) -> str:
        """The key of this reward in an output's details, issues and extra data.

        Its name; `name#hash` where a reward of that name with other settings was there first.
        """
        first = reward.sources.get(self.name)
        return (
            self.name
            if first is None or first == self.settings_hash
            else f"{self.name}#{self.settings_hash[:8]}"
        )

    def normalized(self, score: float) -> float:
        """A score of this reward mapped to [0, 1], 1 being best; ConfigError when its range has no
        bounds.
        """
        low, high = self.score_range
        if low is None or high is None:
            raise ConfigError(
                f"{self.name} has no bounded score range ({low}, {high}), so it cannot be "
                f"normalised."
            )
        share = (score - low) / (high - low)
        return share if self.higher_is_better else 1.0 - share

    def is_async(self) -> bool:
        """Whether `_evaluate` is seen to be a coroutine function; one that only returns something
        awaitable is awaited too.
        """
        return inspect.iscoroutinefunction(getattr(self, "_evaluate", None))

    # a class taken from the registry is known as a reward alone, and takes settings of its own
    if TYPE_CHECKING:
        _evaluate: ClassVar[Callable[..., Any]]
        """Each reward has its own."""

        def __init__(self, **settings: Any) -> None: ...

    # -- doors -------------------------------------------------------------------------------------

    # All of them take the names of RunOptions as keywords (max_workers, deadline, progress, cache,
    # budget, run_dir, repeat, trace, …), which win over `options=`, and the named parameters of the
    # reward's hooks. A keyword that is neither is a ConfigError; values for hooks that only take
    # **kwargs go into `hooks={…}`. A call inside a run is a part of that run.
    #
    # `evaluate` and `evaluate_batch` are called by named fields as well, `evaluate(response=…)` or
    # a dict of them, a row: they give a GraderResult then, an error of which is not raised.

    @overload
    def evaluate(self, sample: DataSample, /, *args: Any, **keywords: Any) -> DataSample: ...
    @overload
    def evaluate(self, sample: Any = None, *args: Any, **keywords: Any) -> Any: ...
    def evaluate(
        self,
        sample: Any = None,
        thread_pool: Any = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        """Score one sample and return a scored copy; the given sample stays as it is. Of named
        fields (`inputs`) it gives a GraderResult.

        A judgement that fails is recorded in the outputs' `answer.reward.issues`, not raised. Only
        errors of the caller's making (ConfigError) are raised. `thread_pool` is accepted for
        compatibility and not used.
        """
        called = f"{type(self).__name__}.evaluate", "async_evaluate(…)"
        return library_loop.drive(run_one(self, sample, options, hooks, keywords), *called)

    @overload
    async def async_evaluate(
        self, sample: DataSample, /, *args: Any, **keywords: Any
    ) -> DataSample: ...
    @overload
    async def async_evaluate(self, sample: Any = None, *args: Any, **keywords: Any) -> Any: ...
    async def async_evaluate(
        self,
        sample: Any = None,
        semaphore: Any = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        """Awaitable twin of `evaluate`, from any event loop; `semaphore` bounds calls you start
        yourself.
        """
        if semaphore is None:
            return await run_one(self, sample, options, hooks, keywords)
        async with semaphore:
            return await run_one(self, sample, options, hooks, keywords)

    def __call__(self, /, *args: Any, **fields: Any) -> Any:
        """As `evaluate`."""
        return self.evaluate(*args, **fields)

    aevaluate = async_evaluate

    async def async_evaluate_batch(
        self,
        samples: Iterable[Any],
        max_workers: int | None = None,
        *,
        mapper: Any = None,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        thread_pool: Any = None,
        **keywords: Any,
    ) -> list[Any]:
        """Score many samples, at most `max_workers` judgements at a time, and return scored copies
        in the given order; of rows of named fields GraderResults.

        One failing sample never costs another. `evaluate_batch` waits, in scripts, threads and under
        a running event loop; `async_evaluate_batch` is awaited, from any event loop.

        Args:
            samples: samples, or dicts of their fields.
            max_workers: the true number in flight; None or 0 takes the reward's own.
            mapper: of rows, where each field is: {field: path in the row}, or a function of the row
                that returns fields.
            options: how the run goes; keywords win over it.
            hooks: values handed to the reward's hooks.
            thread_pool: accepted for compatibility, not used.
            **keywords: options by name, such as `deadline` (seconds one sample may take),
                `progress`, `run_dir` (a folder that keeps results as they come; the same call
                continues an unfinished run), `budget`, `cache`; and named parameters of the hooks.
        """
        given = {**keywords, "max_workers": max_workers}
        if mapper is not None or are_rows(self, samples):
            return await run_rows(self, samples, mapper, options, given)
        return await run_list(*self._run_of(samples, options, hooks, given))

    evaluate_batch = library_loop.blocking(
        async_evaluate_batch, "evaluate_batch", drives=True, refused=True
    )
    aevaluate_batch = async_evaluate_batch

    async def async_score_batch(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[list[Score[Any]]]:
        """As `evaluate_batch`, and gives the scores alone: for each sample, in the given order, what
        is said of each of its outputs. No copy is made that they would be written to. With
        `run_dir=` or `blame="probe"` they are read from what was written, where `components` stand
        in `extra`. `score_batch` waits, `async_score_batch` is awaited.

        >>> from rm_gallery import DataSample, RewardRegistry
        >>> row = {"input": [{"role": "user", "content": "2 + 2?"}], "metadata": {"reference": "4"}}
        >>> said = [{"answer": {"role": "assistant", "content": text}} for text in ("4", "five")]
        >>> [scores] = RewardRegistry.create("accuracy").score_batch([{**row, "output": said}])
        >>> [score.value for score in scores]
        [1.0, 0.0]
        """
        given = {**keywords, "max_workers": max_workers}
        return await scores_of(*self._run_of(samples, options, hooks, given, "score_batch"))

    score_batch = library_loop.blocking(async_score_batch, "score_batch", drives=True, refused=True)

    def _run_of(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        options: RunOptions | None,
        hooks: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        door: str = "evaluate_batch",
    ) -> tuple[BaseReward, Samples, RunOptions, dict[str, Any]]:
        progress = False if door == "evaluate_stream" else None
        chosen, values = options_of(self, options, hooks, keywords, progress)
        return self, checked_samples(samples, door), chosen, values

    def evaluate_stream(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Iterator[DataSample]:
        """Score an endless or huge iterable as it comes, in order and in flat memory; arguments as
        in `evaluate_batch`.

        At most a few times `max_workers` samples are begun before their turn to be taken. The
        iterable is drawn from on a thread of its own, so it may wait for what the caller does with
        earlier results.
        """
        library_loop.refuse_blocking(
            f"{type(self).__name__}.evaluate_stream", "async_evaluate_stream(…)"
        )
        given = {**keywords, "max_workers": max_workers}
        run = self._run_of(samples, options, hooks, given, "evaluate_stream")
        return library_loop.driven(run_stream(*run, streaming=True))

    def async_evaluate_stream(
        self,
        samples: Iterable[DataSample | dict[str, Any]],
        max_workers: int | None = None,
        *,
        options: RunOptions | None = None,
        hooks: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[DataSample, None]:
        """Twin of `evaluate_stream` for `async for`, from any event loop."""
        given = {**keywords, "max_workers": max_workers}
        run = self._run_of(samples, options, hooks, given, "evaluate_stream")
        return run_stream(*run, streaming=True)

    async def async_best_of_n(
        self, sample: DataSample | dict[str, Any], n: int = 1, **keywords: Any
    ) -> DataSample:
        """Score a sample and keep its `n` best outputs, best first; keywords as in `evaluate`.

        Outputs without a score are never chosen; equal scores keep their order. `best_of_n` waits,
        `async_best_of_n` is awaited. Raises Unscored when no output got a score, ConfigError when
        `n` is below 1.
        """
        _check_count(n)
        return self._best(await self.async_evaluate(sample, **keywords), n)

    best_of_n = library_loop.blocking(async_best_of_n, "best_of_n", drives=True)

    def _best(self, result: DataSample, n: int) -> DataSample:
        ranked = [o for o in result.output if self.score_of_output(o) is not None]
        if not ranked:
            why = said_of(self, result.output[0]).reason if result.output else "there is none"
            raise Unscored(
                f"{self.name} gave none of the {len(result.output)} outputs a score: {why}",
                reason="all_unscored",
            )
        sign = -1.0 if self.higher_is_better else 1.0
        ranked.sort(key=lambda output: sign * (self.score_of_output(output) or 0.0))
        return copy_with(result, output=ranked[:n])


def _forget(reward: BaseReward) -> None:
    for worked_out in (_HASH, KIND):
        reward.__dict__.pop(worked_out, None)


def _check_count(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(
            f"n is {n!r:.80}; best_of_n keeps a whole number of outputs, at least one."
        )


def _parts(value: Any) -> Iterator[BaseReward]:
    """The rewards and graders in the settings of one, at any depth."""
    inner = (
        value.__dict__.values()
        if isinstance(value, BaseModel)
        else value.values()
        if isinstance(value, dict)
        else value
    )
    for each in inner:
        if isinstance(each, BaseReward):
            yield each
        elif isinstance(each, (Configured, dict, list, tuple)):
            yield from _parts(each)


def sent_along(llm: Any) -> dict[str, Any]:
    """A hash per header and query field a model sends with every request; credentials have none."""
    from rm_gallery.core.utils.shown import is_credential

    out = {}
    for name in ("default_headers", "default_query"):
        given = redact(dict(getattr(llm, name, None) or {}))
        hidden = {key for key, value in given.items() if is_credential(key) or MASK in str(value)}
        kept = {key: digest(value)[:8] for key, value in given.items() if key not in hidden}
        if kept:
            out[name.removeprefix("default_")] = kept
    return out


@lru_cache(maxsize=64)
def prompts_hash(prompt_name: str) -> str:
    """A hash of the library's prompt files a template is made from; of all of them when it names
    none.
    """
    files = sorted((Path(__file__).parent / "prompts").iterdir())
    used = [
        file for file in files if not prompt_name or file.name.startswith((f"{prompt_name}.", "_"))
    ]
    return digest([[file.name, file.read_text(encoding="utf-8")] for file in used])
