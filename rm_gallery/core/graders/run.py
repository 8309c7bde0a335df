"""How named fields are judged: a row is a sample, the graders over it are one reward, and what
rewards go through (batch, run folder, single sample) is what graders go through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from functools import cached_property, partial
from operator import length_hint
from typing import Any, ClassVar, NamedTuple

import orjson
from pydantic import ValidationError

from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.engine.context import stop_mark
from rm_gallery.core.engine.engine import Plan, awaitable
from rm_gallery.core.engine.folder import Again, RunFolder
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.single import run_single
from rm_gallery.core.graders.abstract import (
    AbstractGrader,
    GraderError,
    GraderRank,
    GraderResult,
    GraderScore,
    OutOfRange,
    as_result,
)
from rm_gallery.core.graders.rows import Mapper, TableRow, bound, row_of
from rm_gallery.core.reward.blame import REMEMBERED
from rm_gallery.core.reward.founding import write_score
from rm_gallery.core.reward.job import Job
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.kinds import Kind
from rm_gallery.core.reward.outputs import RewardFolder, may_be_the_answers_doing, said_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RewardBatch, look_again, run_one
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.score import (
    NOT_BEGUN,
    STATUSES,
    Missing,
    Score,
    about_code,
    failed,
    is_run_level,
    outside,
)
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, RMGalleryError, Unscored
from rm_gallery.core.utils.models import build, copy_with

ANSWER = "response"
"""The field of the answer that is graded."""
RESULT = "result"
"""Under what an answer keeps its grader's result."""


class InvalidGraderResult(RMGalleryError):
    """A grader returned what is no result."""

    def __init__(self, message: str, reason: str = "invalid_result") -> None:
        super().__init__(message)
        self.reason = reason


class NotGraded(RMGalleryError):
    """A grader inside a reward or another grader gave no result; `reason` is the grader's."""

    def __init__(self, message: str, reason: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause or "rule"


def error_of(outcome: Score[Any]) -> Exception:
    """What a missing score is raised as inside another judgement."""
    if outcome.status == "unscored":
        return Unscored(outcome.reason, reason=outcome.code, cause=outcome.cause)
    return NotGraded(outcome.reason, outcome.code, outcome.cause)


class GraderPlan(NamedTuple):
    """A grader and how the rows reach it."""

    grader: AbstractGrader
    mapper: Mapper = None
    on_error: Missing = "none"
    """`none` gives a GraderError, `raise` ends the run, a number stands in for the score and says
    so.
    """


Plans = Mapping[str, GraderPlan]


# -- one grader, some fields --------------------------------------------------------------------------


def _graded(grader: AbstractGrader, fields: Any) -> Any:
    """The grader's result for these fields, or a coroutine of it."""
    began = time.perf_counter()
    value = grader._grade(**fields)
    return (
        _awaited(grader, value, fields, began)
        if awaitable(value)
        else _checked(grader, value, fields)
    )


async def _awaited(grader: AbstractGrader, value: Any, fields: Any, began: float) -> GraderResult:
    result = _checked(grader, await value, fields)
    result.usage.setdefault("seconds", round(time.perf_counter() - began, 4))
    return result


def _checked(grader: AbstractGrader, value: Any, fields: Any) -> GraderResult:
    try:
        result = as_result(value, grader.about())
    except OutOfRange as error:
        declared = grader.range_declared or error.bounds != grader.score_range
        problem = outside(grader.name, error.score, error.bounds, declared)
        raise InvalidGraderResult(problem.reason, problem.code) from error
    except (ValidationError, ValueError, TypeError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InvalidGraderResult(f"{grader.name} returned no usable result: {what}") from error
    responses = fields.get("responses") if isinstance(fields, Mapping) else None
    if (
        isinstance(result, GraderRank)
        and isinstance(responses, (list, tuple))
        and len(result.rank) != len(responses)
    ):
        raise InvalidGraderResult(
            f"{grader.name} returned no usable result: {len(result.rank)} places for "
            f"{len(responses)} responses"
        )
    return result


async def agraded(grader: AbstractGrader, fields: dict[str, Any]) -> Score[Any]:
    """A grader inside another one: its score of these fields, as a part of the job this is called
    in.

    Raises what the grader raises. Only the fields it asks for reach it; what would block the loop
    runs on a thread.
    """
    return (await _agraded(grader, bound(grader, fields))).as_score()


async def _agraded(grader: AbstractGrader, fields: Any) -> GraderResult:
    """The grader's result, for the library loop; what would block it is handed to a thread."""
    value: Any = _graded(grader, fields) if grader.awaits else _on_a_thread(grader, fields)
    # a grader that asks a model may have a plain `_grade` of its own
    result: GraderResult = await value if awaitable(value) else value
    return result


def _on_a_thread(grader: AbstractGrader, fields: Any) -> Coroutine[Any, Any, GraderResult]:
    how = type(grader), grader.max_workers, grader.deadline
    return run_single(_one(fields), partial(_graded, grader), *how, "threads")


def _one(fields: Any) -> Plan:
    [score] = yield [fields]
    return score.value if score.ok else GraderError.of("", score)


# -- rows as samples, graders as a reward of them --------------------------------------------------


class GraderFailed(ConfigError):
    """A row has no result and its grader was to raise."""


class _Rows(Kind):
    """Graders over a row: each of them has a job."""

    def jobs(self, reward: Any, sample: Any) -> list[Job]:
        """A job per grader that has no result yet."""
        jobs = []
        for name, fields in reward.shown(sample).items():
            if sample.output:
                fields = {**fields, ANSWER: sample.output[0].answer.text}
            if name not in sample.results:
                job = copy_with(sample, fields=fields, grader=name, shown=None)
                jobs.append(Job(job, name, sample))
        return jobs

    def merge(
        self, reward: Any, sample: Any, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Note in the row what came of each grader's job; the score of its answer, if it has one."""
        made = dict(sample.results)
        for job, outcome in zip(jobs, outcomes, strict=True):
            made[job.place] = _result(reward.plans[job.place].grader, outcome)
        sample.__dict__["results"] = {name: made[name] for name in reward.plans}
        return list(map(_said_of_answer, sample.results.values())) if sample.output else []

    def read(self, reward: Any, returned: Any, sample: Any) -> Any:
        """A grader's result, as it is."""
        return returned


class RowReward(BaseReward):
    """Graders over rows as one reward: a job per grader, and each row keeps their results.

    Nothing is awaited; `AwaitingRowReward` is for the others.
    """

    kind: ClassVar[Kind] = _Rows("pointwise")
    plans: Any
    """By name, `GraderPlan`s."""

    @property
    def may_ask_others(self) -> bool:  # type: ignore[override]
        """Whether one of the graders is code of its user."""
        return not all(plan.grader.declares_missing for plan in self.plans.values())

    @property
    def declares_missing(self) -> bool:
        """False here: each grader says it for its own jobs."""
        return False

    def check(self) -> None:
        """Raise ConfigError when one of the graders could not grade at all."""
        for plan in self.plans.values():
            plan.grader.check()

    def shown(self, row: TableRow) -> dict[str, Any]:
        """By grader, the fields it is shown of a row, or the error that says why there are none."""
        shown = row.shown
        if shown is None:
            shown = {name: _fields_for(plan, row) for name, plan in self.plans.items()}
            row.__dict__["shown"] = shown
        return shown

    def _evaluate(self, sample: Any) -> Any:
        return self._begun(sample, _graded)

    def _begun(self, sample: TableRow, grade: Callable[[AbstractGrader, Any], Any]) -> Any:
        grader = self.plans[sample.grader].grader
        if grader.declares_missing and (mark := stop_mark.get()) is not None:
            mark.declares_missing = True
        if isinstance(sample.fields, Exception):
            raise sample.fields
        return grade(grader, sample.fields)

    def answer_in(self, row: TableRow, name: str) -> TableRow | None:
        """What one grader was shown of a row and said of it, as a sample of one answer, so that
        others can be tried in its place; None where it holds no answer.
        """
        fields = self.shown(row)[name]
        if isinstance(fields, Exception) or not isinstance(fields.get(ANSWER), str):
            return None
        about = {"reference": fields.get("reference_response")}
        made = sample_of(str(fields.get("query", "")), fields[ANSWER], **about)
        write_score(self, made.output[0].answer, _said_of_answer(row.results[name]))
        own = {"input": made.input, "output": made.output, "metadata": about}
        return copy_with(row, results={}, shown={name: fields}, **own)

    def result_of(self, answer: TableRow, name: str) -> GraderResult:
        """What is known now of such an answer."""
        written = answer.output[0].answer.reward
        made: GraderResult | None = written.extra_data.get(self.key_in(written), {}).get(RESULT)
        return made or _result(self.plans[name].grader, said_of(self, answer.output[0]))

    def settle(self, row: TableRow) -> TableRow:
        """The row with its results as they are handed on: for an error, what `on_error` says."""
        if not all(result.ok for result in row.results.values()):
            row.__dict__["results"] = {
                name: result if result.ok else _settled(self.plans[name], result, row)
                for name, result in row.results.items()
            }
        return row


def _said_of_answer(result: GraderResult) -> Score[Any]:
    """A result as the score of the answer that it is about."""
    score = result.as_score()
    if result.metadata.get("caused_by") == "answer":
        score = failed("error", score.reason, "answer")
    return replace(score, extra={RESULT: result})


class AwaitingRowReward(RowReward):
    """As `RowReward`, on the library loop: what would block it runs on a thread."""

    judged: ClassVar[bool] = True  # a trace asks for the job

    async def _evaluate(self, sample: Any) -> Any:
        return await self._begun(sample, _agraded)


def row_reward(plans: Plans) -> RowReward:
    """The reward of these graders over a row, whose deadline is that of the most patient one."""
    graders = [plan.grader for plan in plans.values()]
    patient = [each.deadline for each in graders if each.deadline is not None]
    settings = {
        "name": "graders",
        "max_workers": max(each.max_workers for each in graders),
        "deadline": max(patient) if len(patient) == len(graders) else None,
        "worst": None,
        "plans": dict(plans),
    }
    awaits = any(each.awaits for each in graders)
    return build(AwaitingRowReward if awaits else RowReward, settings)


def _fields_for(plan: GraderPlan, row: TableRow) -> Any:
    try:
        return bound(plan.grader, row.fields, plan.mapper)
    except Exception as error:
        if is_run_level(error):
            raise
        return error


def _result(grader: AbstractGrader, outcome: Score[Any]) -> GraderResult:
    """The founding shape of what became of a grader's job."""
    result: GraderResult
    if outcome.value is not None:
        result = outcome.value
    elif outcome.cause == "answer" and (worst := grader.worst_score) is not None:
        result = as_result(worst, grader.about()).model_copy(
            update={
                "reason": outcome.reason,
                "metadata": {"caused_by": "answer", "reason": outcome.code},
            }
        )
    else:
        result = GraderError.of(grader.name, outcome)
    return result if result.name else result.model_copy(update={"name": grader.name})


def _settled(plan: GraderPlan, result: GraderResult, row: TableRow) -> GraderResult:
    """The result as it is handed on: for an error, what `on_error` says."""
    grader, on_error = plan.grader, plan.on_error
    if isinstance(result, GraderError):
        result = result.model_copy(
            update={"range": grader.score_range, "higher_is_better": grader.higher_is_better}
        )
    # what the run did not get to is graded when it is continued, and no policy is for it
    if on_error == "none" or (isinstance(result, GraderError) and result.error_type in NOT_BEGUN):
        return result
    if on_error == "raise":
        assert isinstance(result, GraderError)
        raise GraderFailed(f"{grader.name} of row {row.named}: {result.error}")
    stand_in = as_result(on_error, grader.about())
    return stand_in.model_copy(
        update={"reason": result.reason, "metadata": {"on_error": result.model_dump()}}
    )


# -- doors -----------------------------------------------------------------------------------------


async def grade_one(
    grader: AbstractGrader, fields: Mapping[str, Any], options: RunOptions | None
) -> GraderResult:
    """Grade one row, which costs itself; with options it is a batch of one."""
    plans = {grader.name: GraderPlan(grader)}
    result: GraderResult
    if options is not None:
        [results] = await grader_batch(plans, [fields], options).results()
        (result,) = results.values()
    else:
        reward = row_reward(plans)
        row: Any = await run_one(reward, row_of(fields), None, None, {})
        row = reward.settle(row)
        (result,) = row.results.values()
    return result


Results = dict[str, Any]


def results_of(row: Any) -> Results:
    """What a row that comes out of a batch was given, by grader."""
    results: Results = row.results
    return results


def grader_batch(
    plans: Plans, rows: Iterable[Mapping[str, Any]], options: RunOptions
) -> GraderBatch:
    """The rows on their way through the graders; each comes back with its `results`."""
    size = len(rows) if isinstance(rows, Sized) else length_hint(rows) or options.total
    samples = (_row(fields, number) for number, fields in enumerate(rows))
    return GraderBatch(row_reward(plans), samples, replace(options, total=size), {})


_KINDS: dict[str, Any] = {each.kind: each for each in (GraderScore, GraderRank, GraderError)}


class GraderFolder(RewardFolder):
    """Keeps what each grader said of each row; a row that one of five graders failed on is judged
    again by that one.
    """

    def __init__(self, reward: RowReward, options: RunOptions) -> None:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run, or
        when a setting cannot be told from another one. What a mapper makes of a row is a part of
        the row's key, and aggregators are no part of the run: what they make of the results is
        worked out anew.
        """
        graders = {
            # run folders keep the spelling of the first ones
            name: {
                "grader": plan.grader.describe(),
                "on_error": "propagate" if plan.on_error == "none" else plan.on_error,
            }
            for name, plan in reward.plans.items()
        }
        asks = any(asks_a_model(plan.grader) for plan in reward.plans.values())
        about = {"graders": graders}
        RunFolder.__init__(self, options, about, reuse=STATUSES, what="rows", asks=asks)
        self._graders, self._plans = reward, reward.plans

    def key_of(self, data: Any) -> str:
        """The row's id and a hash of what its graders read."""
        self._graders.shown(data)
        key: str = data.read_key
        return key

    def same_as(self, data: Any) -> str:
        """The given id, else all that its graders read: rows without an id that differ in another
        column alone are equal.
        """
        return data.given_id or self.key_of(data)

    def restore(self, sample: Any) -> bool:
        """Give the row the results that an earlier part of the run left; False when one is missing.

        Raises ConfigError when a judge would be asked something else now.
        """
        sample.results = self.register(sample, self._whole) or {}
        return self._whole(sample.results)

    def asking(self, data: Any, record: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
        """What asks the judges of those graders that the record has results of."""
        for name, fields in self._graders.shown(data).items():
            grader, kept = self._plans[name].grader, name in record.get("results", {})
            if kept and asks_a_model(grader) and isinstance(fields, dict):
                yield partial(grader._grade, **fields)

    def _whole(self, results: Results) -> bool:
        return len(results) == len(self._plans)

    def read(self, record: dict[str, Any], data: Any) -> Results | None:
        """By grader, the results that are kept."""
        results = record.get("results")
        if not isinstance(results, dict):
            return None
        kept = {name: self._one(name, results.get(name)) for name in self._plans}
        return {name: result for name, result in kept.items() if result is not None}

    def unscored(self, data: Any) -> TableRow:
        """The row without results."""
        return row_of(data.fields)

    def _one(self, name: str, kept: Any) -> GraderResult | None:
        """A result as it was kept; None for one that failed or does not fit."""
        if not isinstance(kept, dict) or kept.get("kind") not in _KINDS:
            return None
        try:
            result = _KINDS[kept["kind"]].model_validate(
                {key: item for key, item in kept.items() if key != "kind"}
            )
            if isinstance(result, GraderError):
                return result if result.status == "unscored" else None
            return as_result(result, self._plans[name].grader.about())
        except (ValidationError, ValueError):
            return None

    def append(self, sample: Any) -> None:
        """Keep a finished row, at once. What the run did not get to leaves no record."""
        results = {
            name: result
            for name, result in sample.results.items()
            if getattr(result, "error_type", "") not in NOT_BEGUN
        }
        missing = [each.status for each in sample.results.values() if isinstance(each, GraderError)]
        record = {"results": {name: result_record(result) for name, result in results.items()}}
        stopped = len(results) < len(sample.results)
        self.keep(sample, missing, record if results else {}, stopped)

    def new_record(self, data: Any) -> dict[str, Any]:
        """What each grader gave."""
        return {"results": {name: result_record(result) for name, result in data.results.items()}}

    def scores_in(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """By grader, its score or ranks, or why it has none."""
        scores: dict[str, Any] = {}
        for name, result in record["results"].items():
            # what a second look found is not what the code says of the answer
            if "caused_by" in (result.get("metadata") or {}):
                continue
            if result.get("kind") != "error":
                scores[name] = result.get("score", result.get("rank"))
            elif about_code(
                result.get("status", "failed"), result.get("error_type", ""), result.get("cause")
            ):
                scores[name] = f"no score ({result.get('error_type')})"
        return scores


def result_record(result: GraderResult) -> dict[str, Any]:
    """A result in JSON's types, without what is as usual."""
    out = {"kind": result.kind, **result.model_dump(exclude_defaults=True)}
    try:
        orjson.dumps(out)
    except TypeError:  # metadata are anybody's
        out["metadata"] = _as_json(out.get("metadata", {}))
    return out


def _as_json(metadata: Any) -> Any:
    try:
        return orjson.loads(orjson.dumps(metadata, default=str, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:  # lone surrogates, integers beyond 64 bits, keys that JSON has no form for
        try:
            return json.loads(json.dumps(plain(metadata), default=str))
        except (TypeError, ValueError, RecursionError) as error:
            return {"not_kept": str(error)}


def _row(fields: Any, number: int) -> TableRow:
    if not isinstance(fields, Mapping):
        raise DataError(
            f"row {number} is a {type(fields).__name__}; a row is a dict of named fields."
        )
    return row_of(fields, number)


class GraderBatch(RewardBatch):
    """Rows that graders grade; `settle`d, and kept in a folder by grader."""

    _reward: RowReward

    @cached_property
    def _alone(self) -> dict[str, RowReward]:
        """A reward of each grader by itself."""
        return {name: row_reward({name: plan}) for name, plan in self._reward.plans.items()}

    async def _look_once_more(self, results: Any) -> None:
        if self.options.blame != "probe":
            return
        options = replace(self.options, budget=self._control.budget)
        for name, alone in self._alone.items():
            # where nothing is missing the last rows tell those that come later what can be read
            missing = any(not row.results[name].ok for row in results)
            looked_at = results if missing else results[-REMEMBERED:]
            rows = [(row, each) for row in looked_at if (each := alone.answer_in(row, name))]
            changed = {
                id(answer)
                for answer in await look_again(alone, [each for _, each in rows], options, {})
            }
            for row, answer in rows:
                if id(answer) in changed:
                    row.results[name] = alone.result_of(answer, name)
                    if self._folder is not None and self._folder.reopen(row):
                        self._folder.append(row)
        for row in results:
            self._reward.settle(row)

    async def results(self) -> list[Results]:
        """The results of all rows, in order."""
        return [results_of(row) for row in await self.all()]

    def _open_folder(self, options: RunOptions) -> GraderFolder:
        return GraderFolder(self._reward, options)

    def _run_plan(
        self, items: Any, folder: RewardFolder | Again | None, options: RunOptions
    ) -> Any:
        plans, execute, options = super()._run_plan(items, folder, options)
        return map(self._settled, plans), execute, options

    def _settled(self, plan: Plan) -> Plan:
        row = yield from plan
        # else once it is known whose doing what is missing is
        if self.options.blame != "probe" or any(
            self._ends_run(self._reward.plans[name], result) for name, result in row.results.items()
        ):
            row = self._reward.settle(row)
        return row

    @staticmethod
    def _ends_run(plan: GraderPlan, result: GraderResult) -> bool:
        """Whether a missing result is no answer's doing and its grader is to raise."""
        return (
            not result.ok
            and plan.on_error == "raise"
            and not may_be_the_answers_doing(asks_a_model(plan.grader), result.as_score())
        )

    def _not_begun(self, outcome: Score[Any]) -> Callable[[Any, int], Any]:
        shared = {name: _result(plan.grader, outcome) for name, plan in self._reward.plans.items()}

        def result(row: Any, number: int) -> Any:
            row.results = shared
            return self._reward.settle(row)

        return result
