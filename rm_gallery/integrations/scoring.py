"""Rows of a trainer or a request in, outcomes out: what every adapter and the server share.

A row is a prompt, a completion (texts or lists of messages) and the dataset's other columns. Rows
of every reward go through `BaseReward.evaluate*`, so an adapter adds no score of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeAlias

from rm_gallery.core.data.conversation import group_of, sample_of_completion
from rm_gallery.core.data.load.padding import fields_in, without_padding
from rm_gallery.core.data.schema import DataOutput, DataSample, is_absent, without_nan
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.compose import TURNS
from rm_gallery.core.reward.outputs import METRICS, said_of, said_of_step
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.turn_rewards import TurnRewards, turn_rewards_of
from rm_gallery.core.score import Score, failed
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.identity import digest
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.names import check_known, nearest
from rm_gallery.integrations.causes import GroupMeans, OnError, checked_on_error, flags, value_of

Conversation: TypeAlias = "str | Sequence[Any] | None"
"""A text, or messages: dicts in the OpenAI layout, `ChatMessage`s, or objects that dump themselves
as such.
"""
Row: TypeAlias = "Mapping[str, Any] | None"
_OWN = ("reference", "columns", "llm", "base_url", "on_error", "worst", "name", "options")
"""The scorer's own arguments, apart from the fields of its reward."""
TOKEN_IDS = ("completion_ids", "response_ids", "token_ids")
"""Columns under which trainers hand over the tokens of a completion."""
LARGEST = 3.4028234663852886e38
"""The largest 32-bit float: trainers would turn a larger score into infinity, and then into NaN."""
_WITHOUT_GROUP = ""
"""Group of rows that give no sample and so have no prompt: the mean of all groups replaces their
scores.
"""
_FIRST_ROWS = 4
"""Consecutive single rows without a score before a warning; also the first scores checked for
components.
"""


def scored_of(reward: BaseReward, output: DataOutput) -> Score[float]:
    """The score that `reward` wrote to an evaluated output."""
    outcome = said_of(reward, output)
    if outcome.value is None:
        return replace(outcome, extra=_turns(reward, output))
    said = outcome.steps or (outcome,)
    own = said_of_step(reward, output.answer) if outcome.steps else outcome
    components: dict[str, float] = {detail.name: detail.value for detail in own.details}
    for one in said:
        components.update(_finite_metrics(one.extra.get(METRICS, {})))
    reasons = "; ".join(filter(None, (one.reasons for one in said)))
    extra = {**own.extra, **_turns(reward, output)}
    return Score(outcome.value, reasons, components, extra=extra)


def _turns(reward: BaseReward, output: DataOutput) -> dict[str, list[float | None]]:
    """The reward of each turn, of a reward that pays turns."""
    return {TURNS: turn_rewards_of(reward, output)} if pays_turns(reward) else {}


def pays_turns(reward: BaseReward) -> bool:
    """Whether it gives each turn a reward of its own."""
    return reward.kind == "stepwise" or isinstance(reward, TurnRewards)


def _finite_metrics(metrics: Any) -> dict[str, float]:
    """The finite numbers among a result's metrics: plain numbers, or the `score` of valid ones."""
    numbers = {}
    for name, value in fields_in(metrics).items():
        if isinstance(value, Mapping):
            value = value.get("score") if value.get("is_score_valid", True) else None
        if (number := finite(value)) is not None:
            numbers[str(name)] = number
    return numbers


def finite(value: Any) -> float | None:
    """A number that a 64-bit float holds; None for anything else."""
    fits = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return float(value) if fits else None


def broken_by_answer(score: Score[float]) -> bool:
    """Whether a score is the worst one because the completion broke the reward; such a score has no
    components.
    """
    return score.extra.get("caused_by") == "answer"


def rows_of(
    columns: Mapping[str, Any], n: int, without: Container[str] = ()
) -> list[dict[str, Any]]:
    """The columns of `n` values as `n` rows: a trainer's further arguments are none of them."""
    kept = {
        name: values
        for name, values in columns.items()
        if name not in without and isinstance(values, list | tuple) and len(values) == n
    }
    return [{name: values[place] for name, values in kept.items()} for place in range(n)]


def picked(
    given: Mapping[str, Any],
    key: str | None,
    usual: Sequence[str],
    what: str,
    option: str = "prompt=",
    noun: str = "key",
) -> Any:
    """The value under `key`, or without one under the first usual key that has a value, else None.

    Raises:
        ConfigError: `what` has no such key; names those it has, and the option that says which.
    """
    if key is None:
        return next((given[name] for name in usual if given.get(name) is not None), None)
    if key not in given:
        there = ", ".join(sorted(map(str, given))) or "none"
        raise ConfigError(f"{what} has no {noun} '{key}' ({option}); its {noun}s: {there}.")
    return given[key]


class RowScorer:
    """A reward that scores rows; picklable, and safe in any number of threads and calls at once.

    Args:
        reward: whatever `resolve` takes: a registered name, a class, a reward, a grader, a
            reward function, an environment, a plain function of messages.
        reference: the column that holds the reference answer. Without it a column `reference` or
            `ground_truth` is it.
        columns: where the reward finds further fields: {field: column}. All columns are the
            sample's metadata anyway; `context` is shown to judges.
        llm: the judge, for a reward that needs one.
        base_url: the judge's endpoint.
        on_error: what `value` makes of a row without a score.
        worst: what a completion gets that makes itself impossible to judge; the worst score of the
            reward's range by default.
        name: what the reward is called in charts; its registered name, else its own, by default.
        options: how runs go (deadline, budget, cache, …); `max_workers` is the reward's own unless
            it is named here.
        **params: constructor fields of the reward.

    A reward that compares (listwise, pairwise) sees the rows of a call that have the same prompt
    and reference as one group.

    Raises:
        ConfigError: as `resolve` does, and for options that do not fit.
    """

    def __init__(
        self,
        reward: object,
        *,
        reference: str | None = None,
        columns: Mapping[str, str] | None = None,
        llm: str | dict[str, Any] | BaseLLM | None = None,
        base_url: str | None = None,
        on_error: OnError = "none",
        worst: float | None = None,
        name: str | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
        **params: Any,
    ) -> None:
        """Build the reward and check the choices; no column is looked at yet."""
        try:
            self.reward = resolve(reward, params, llm, base_url)
        except ConfigError as error:
            meant = {name: nearest(name, _OWN, 1) for name in params if f"'{name}'" in str(error)}
            if not any(meant.values()):
                raise
            hints = "; ".join(
                f"'{name}' may be meant as {near[0]}=" for name, near in meant.items() if near
            )
            raise ConfigError(f"{error} Of the adapter's own arguments, {hints}.") from error
        if worst is not None:
            self.reward = self.reward.model_copy(update={"worst": worst})
            self.reward.check_worst()
        self.on_error = checked_on_error(on_error, "RowScorer")
        self.columns = dict(columns or {})
        if reference is not None:
            self.columns["reference"] = reference
        for field, column in self.columns.items():
            if not isinstance(column, str):
                raise ConfigError(
                    f"columns maps '{field}' to {column!r:.80}; give the name of a column."
                )
        registered = reward if isinstance(reward, str) and reward.isidentifier() else None
        self.name = name or registered or self.reward.name
        self.options, self._chosen = _run_options(self.reward, options or {}), bool(options)
        self.largest = math.inf
        """Larger scores fail, and larger components are left out."""
        self.padded = False
        """Whether rows come from Arrow, as trainers' rows do: null fields of dicts in prompts and
        columns are padding. Nulls in completions are the model's own
        and stay.
        """
        self._watch = _Watch(self.name)
        self._lowest: dict[str, float] = {}
        self._means = GroupMeans(_identity(self.reward) if self.on_error == "mean" else "")
        self._fits = False
        """Whether a single row had all columns."""

    def look_twice(self) -> None:
        """Re-judge every row without a score with a control answer (`blame="probe"`), unless the
        options say otherwise.
        """
        if self.options.blame is None:
            self.options = replace(self.options, blame="probe")

    # -- doors -------------------------------------------------------------------------------------

    async def ascore_rows(
        self,
        prompts: Sequence[Conversation],
        completions: Sequence[Conversation],
        rows: Sequence[Row] | None = None,
        trainer_state: Any = None,
    ) -> list[Score[float]]:
        """Score rows, in their order and from any event loop; one that cannot be judged never costs
        another. `score_rows` is the blocking twin.

        `trainer_state` reaches functions that name a parameter so, and nothing else. Raises
        ConfigError for what holds for all rows: a column none of them has, a judge without a key.
        """
        if library_loop.is_driven():
            library_loop.refuse_blocking()
        samples, places, kept = self._samples(prompts, completions, rows)
        done = await self.reward.async_evaluate_batch(
            samples, options=_quiet(self.options, trainer_state)
        )
        return self._outcomes(done, places, kept)

    score_rows = library_loop.blocking(ascore_rows, drives=True)

    async def ascore(
        self, prompt: Conversation, completion: Conversation, row: Row = None
    ) -> Score[float]:
        """Score one row, from any event loop; `score` is the blocking twin.

        A missing column is a ConfigError until one row has had all columns; afterwards only its row
        fails.
        """
        sample = self._sample_or_failure(prompt, completion, row)
        if isinstance(sample, Score):
            return self.lost(sample)
        options: RunOptions | None = self.options
        if self._chosen:
            options = _quiet(self.options)
        elif self.options.blame is None:
            options = None  # the reward's own, which cost a single row nothing
        done = await self.reward.async_evaluate(sample, options=options)
        return self._outcomes([done], [[0]], [None])[0]

    score = library_loop.blocking(ascore, drives=True)

    def lost(self, score: Score[float]) -> Score[float]:
        """The failed score of a single row that gives no sample, counted like any other."""
        return self._outcomes([], [], [score])[0]

    def value(self, score: Score[float]) -> float | None:
        """The number a trainer gets: the score's value, else what `on_error` says.

        Raises:
            NoScore: there is no score and `on_error` is "raise".
        """
        return value_of(score, self.on_error, self.name, self.reward.worst_score)

    def numbers(self, score: Score[float], components: Sequence[str] = ()) -> dict[str, float]:
        """Finite numbers under the same keys for every completion, for targets without a word for
        "no score".

        `score` is what `value` gives, then come the named components, `unscored` and `failed` (1.0
        where that is the outcome). A missing component gets the number of `score` where there is no
        score or the completion broke the reward, and 0.0 otherwise.

        Raises:
            NoScore: there is no score and `on_error` is "raise".
        """
        given = self.value(score)
        value = 0.0 if given is None else given
        if components:
            self._watch.note_parts(score, components)
        absent = value if score.value is None or broken_by_answer(score) else 0.0
        for name, part in score.components.items():
            self._lowest[name] = min(part, self._lowest.get(name, part))
        # a component may reach below the total's range: breaking the reward must not pay more than
        # the worst answer so far got
        lowest = self._lowest if broken_by_answer(score) else {}
        parts = {
            name: score.components.get(name, min(absent, lowest.get(name, absent)))
            for name in components
        }
        return {**parts, "score": value, **flags(score)}

    # -- rows to samples, samples to outcomes ------------------------------------------------------

    def _sample_of_row(
        self, prompt: Conversation, completion: Conversation, given: Row
    ) -> DataSample:
        columns = without_nan(given or {})
        if self.padded:
            columns = {name: without_padding(value) for name, value in columns.items()}
        for column in self.columns.values():
            if column not in columns:
                there = ", ".join(sorted(map(str, columns))) or "none"
                raise ConfigError(
                    f"{self.name}: there is no column '{column}'; the columns are: {there}."
                )
        self._fits = True
        # read all before writing any: `columns` may swap two names
        row = {**columns, **{field: columns[column] for field, column in self.columns.items()}}
        if is_absent(completion):
            raise DataError("The completion is None; give the text, or messages, the model wrote.")
        if "reference" in self.columns:
            reference = row.pop("reference")
            row.pop("ground_truth", None)  # the named column is the truth, even where it is empty
            row |= {} if reference is None else {"reference": reference}
        if self.padded and not isinstance(prompt, str):
            prompt = without_padding(prompt)
        sample = sample_of_completion(prompt, completion, row=row)
        if sample.input and row.get("context") and "context" in self.columns:
            sample.input[-1].additional_kwargs["context"] = row["context"]
        extra = sample.output[0].answer.additional_kwargs
        # the trainer's own count of tokens, which length rewards measure by
        for name in TOKEN_IDS:
            if isinstance(row.get(name), Sized):
                extra.setdefault(name, row[name])
        return sample

    def _sample_or_failure(
        self, prompt: Conversation, completion: Conversation, row: Row
    ) -> DataSample | Score[float]:
        """The row's sample, or a failed score for malformed messages; ConfigError for a column that
        no row has had.
        """
        try:
            return self._sample_of_row(prompt, completion, row)
        except ConfigError as error:
            if not (self._fits or isinstance(error, DataError)):
                raise
            return failed("data", str(error), "data")

    def _samples(
        self,
        prompts: Sequence[Conversation],
        completions: Sequence[Conversation],
        rows: Sequence[Row] | None,
    ) -> tuple[list[DataSample], list[list[int]], list[Score[float] | None]]:
        """Samples, the rows of each sample's outputs, and the scores of rows that give no sample."""
        rows = [None] * len(completions) if rows is None else rows
        if not len(prompts) == len(completions) == len(rows):
            raise ConfigError(
                f"{self.name} got {len(prompts)} prompts, {len(completions)} completions and "
                f"{len(rows)} rows; give one "
                "of each per completion."
            )
        kept: list[Score[float] | None] = [None] * len(rows)
        groups: dict[str, tuple[DataSample, list[int]]] = {}
        absent: list[ConfigError] = []
        for place, given in enumerate(zip(prompts, completions, rows, strict=True)):
            try:
                sample = self._sample_or_failure(*given)
            except ConfigError as error:
                absent.append(error)
                sample = failed("data", str(error), "data")
            if isinstance(sample, Score):
                kept[place] = sample
                continue
            group = group_of(sample) if self.reward.compares else str(place)
            first, own = groups.setdefault(group, (sample, []))
            if own:
                first.output.extend(sample.output)
            own.append(place)
        if absent and len(absent) == len(rows):
            raise absent[0]
        return [first for first, _ in groups.values()], [own for _, own in groups.values()], kept

    def _outcomes(
        self, samples: list[DataSample], places: list[list[int]], kept: list[Score[float] | None]
    ) -> list[Score[float]]:
        groups = {_WITHOUT_GROUP: [score for score in kept if score is not None]}
        for sample, own in zip(samples, places, strict=True):
            outcomes = [
                self._within_largest(scored_of(self.reward, each)) for each in sample.output
            ]
            if self.on_error == "mean":
                groups.setdefault(group_of(sample), []).extend(outcomes)
            for place, outcome in zip(own, outcomes, strict=True):
                kept[place] = outcome
        if self.on_error == "mean":
            self._means.note(groups)
        scores = [score for score in kept if score is not None]
        self._watch.note(scores)
        return scores

    def _within_largest(self, score: Score[float]) -> Score[float]:
        """The score, failed where its value exceeds `largest`, without components that do."""
        if score.value is not None and abs(score.value) > self.largest:
            return failed(
                "invalid_score", f"The score {score.value:g} is too large for a trainer.", "rule"
            )
        parts = {
            name: value for name, value in score.components.items() if abs(value) <= self.largest
        }
        return score if len(parts) == len(score.components) else replace(score, components=parts)


def component_names(components: Sequence[str], *own: str) -> tuple[str, ...]:
    """Names of components to report; ConfigError for a name that `numbers` or the adapter (`own`)
    uses already.
    """
    names = (components,) if isinstance(components, str) else tuple(components)
    taken = next((name for name in names if name in ("score", "unscored", "failed", *own)), None)
    if taken is not None:
        raise ConfigError(
            f"components names '{taken}', which is reported anyway, for the score itself; leave it "
            f"out."
        )
    return names


def refuse_comparing(scorer: RowScorer, instead: str) -> None:
    """Raise ConfigError for a reward that compares completions where each comes alone: all would
    get the same score.
    """
    if scorer.reward.compares:
        raise ConfigError(
            f"{scorer.name} compares the completions of a prompt, and here each comes by itself, "
            f"so that all would get the same score. {instead} Else take a reward that scores each "
            f"by itself (rm-gallery list --kind pointwise)."
        )


def for_training(
    scorer: RowScorer,
    advice: str = "give a WeightedSum of it with a negative weight",
    *,
    one_by_one: str = "",
) -> RowScorer:
    """The scorer, set up for training: 32-bit scores, blame probing, and a warning where a lower
    score is better.

    `one_by_one` says what to do instead where the trainer hands over completions one by one and the
    reward compares them.

    Raises:
        ConfigError: the reward could not score at all, nothing says what a completion is worth that
            breaks it, or it compares what comes one by one.
    """
    if one_by_one:
        refuse_comparing(scorer, one_by_one)
    scorer.reward.check()
    if scorer.reward.worst_score is None and not scorer.reward.settles_worst:
        low, high = scorer.reward.score_range
        raise ConfigError(
            f"{scorer.name} has no worst score: its range ({low}, {high}) is open there, so "
            f"nothing says what a completion gets "
            "that cannot be judged by its own doing. Say worst=NUMBER, no better than a wrong "
            "answer gets, or declare the range."
        )
    scorer.largest = LARGEST
    scorer.padded = True
    scorer.look_twice()
    if not scorer.reward.higher_is_better:
        logger.warning(
            "{}: a lower score is better, and a trainer raises what it is given: {}.",
            scorer.name,
            advice,
        )
    return scorer


class TrainerReward:
    """Base of trainer adapters: a picklable reward with the options of `RowScorer`, checked for
    training.
    """

    takes_none: ClassVar[bool] = False
    """Whether the trainer has a word for "no score"."""
    one_by_one: ClassVar[str] = ""
    """What to do instead where completions come one by one and the reward compares them; empty
    where they come in groups.
    """
    advice: ClassVar[str] = "give a WeightedSum of it with a negative weight"
    """What to do where a lower score is better."""
    reported: ClassVar[tuple[str, ...] | None] = None
    """Reported names that no component may have; None for an adapter without components."""

    def __init__(
        self,
        reward: object,
        *,
        components: Sequence[str] = (),
        on_error: OnError = "mean",
        **scoring: Any,
    ) -> None:
        """Build the reward; nothing is scored yet.

        Raises:
            ConfigError: as `RowScorer` does, and for a choice that the trainer cannot take.
        """
        if components and self.reported is None:
            raise ConfigError(
                f"components is {components!r:.80}; {type(self).__name__} has no place for any."
            )
        checked = checked_on_error(on_error, type(self).__name__, none=self.takes_none)
        self.scorer = for_training(
            RowScorer(reward, on_error=checked, **scoring), self.advice, one_by_one=self.one_by_one
        )
        self.components = component_names(components, *(self.reported or ()))
        self.__name__ = self.scorer.name


def _identity(reward: BaseReward) -> str:
    """A digest of the reward's definition, equal in every process; empty for a reward without one."""
    try:
        return digest(reward.describe())
    except ConfigError:
        return ""


def _run_options(reward: BaseReward, given: RunOptions | Mapping[str, Any]) -> RunOptions:
    if isinstance(given, RunOptions):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"options is {given!r:.80}; give RunOptions(…) or a dict of its fields.")
    known = [each.name for each in fields(RunOptions) if each.init]
    check_known("option of a run", given, known)
    return RunOptions(**{"max_workers": reward.max_workers, "progress": False, **given})


def _quiet(options: RunOptions, trainer_state: Any = None) -> RunOptions:
    """The options of one quiet call: `_Watch` warns of failures once, not at every step of a
    training run.
    """
    if options.control is not None:
        return options
    return replace(
        options,
        control=RunControl(quiet=True, max_outage=options.deadline, trainer_state=trainer_state),
    )


def call_arguments(
    names: Sequence[str], given: Sequence[Any], named: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of a call by their names: those given by place, the others taken out of `named`;
    None for one that is not given.
    """
    by_place = dict(zip(names, given, strict=False))
    return {name: by_place[name] if name in by_place else named.pop(name, None) for name in names}


def made_when_asked(
    module: dict[str, Any], name: str, make: Callable[[], Any], needs: str
) -> Callable[[str], Any]:
    """The `__getattr__` of a module with a class whose base is another package's, which is imported
    when the class is first asked for; it is then a class of the module.

    Calling it raises:
        AttributeError: another name is asked for.
        ConfigError: the package is not installed; `needs` says so, with room for the error.
    """

    def made_of(asked: str) -> Any:
        if asked != name:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {asked!r}")
        with needed(needs):
            made = module[name] = make()
        if isinstance(made, type):
            made.__module__, made.__qualname__ = module["__name__"], name
        return made

    return made_of


@contextmanager
def needed(needs: str) -> Iterator[None]:
    """ConfigError for a package that is not installed: `needs` says so, with room for the error."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(needs.format(error)) from error


class _Watch:
    """Warns once while every row fails; re-arms after the next score."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._row = 0
        self._warned: set[str] = set()
        self._scores = 0
        self._parts: set[str] = set()

    def note_parts(self, score: Score[float], wanted: Sequence[str]) -> None:
        """Warn once when the first scores lack a requested component, which may be misspelt."""
        if score.value is None or self._scores == _FIRST_ROWS:
            return
        self._scores += 1
        self._parts.update(score.components)
        absent = [name for name in wanted if name not in self._parts]
        if absent and self._scores == _FIRST_ROWS:
            logger.warning(
                "{}: the first {} scores have no component '{}', which is 0.0 there; there are: {}.",
                self._name,
                _FIRST_ROWS,
                absent[0],
                ", ".join(sorted(self._parts)) or "none",
            )

    def note(self, scores: Sequence[Score[float]]) -> None:
        """Note the outcomes of one call."""
        if not scores or any(outcome.value is not None for outcome in scores):
            self._row = 0
            self._warned.discard("failed")
            return
        self._row += len(scores)
        # rows left out by a stopped run carry the cause of the stop
        causes = {outcome.code: outcome for outcome in scores if outcome.code != "stopped"}
        if len(causes) > 1:
            return
        cause = next(iter(causes.values()), scores[0])
        certain = (
            len(scores) > 1 or self._row >= _FIRST_ROWS or cause.code in ("unreachable", "fatal")
        )
        kind = "failed" if cause.status == "failed" else cause.code
        if certain and kind not in self._warned:
            self._warned.add(kind)
            which = (
                f"none of {len(scores)} completions"
                if len(scores) > 1
                else "no completion any more"
            )
            logger.warning(
                "{}: {} got a score ({}, {}): {}. This is said once, until one gets a score again.",
                self._name,
                which,
                cause.status,
                cause.code,
                cause.reason.rstrip("."),
            )
