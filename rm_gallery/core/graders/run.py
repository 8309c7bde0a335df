"""From graders and rows to the engine and back: every door of a grader and of the runner goes
through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine import run as engine
from rm_gallery.core.engine.context import asked_by, questions, stop_mark
from rm_gallery.core.engine.lanes import awaitable
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.run_folder import Again, RunFolder, about_code
from rm_gallery.core.engine.run_records import STATUSES
from rm_gallery.core.engine.standing import Alone, Batch, arun_alone, run_alone
from rm_gallery.core.graders.base import (
    BaseGrader,
    GraderError,
    GraderRank,
    GraderResult,
    GraderScore,
    OutOfRange,
    as_result,
)
from rm_gallery.core.graders.rows import Mapper, TableRow, bound
from rm_gallery.core.reward.asking import repeat_index
from rm_gallery.core.reward.blame import attempts
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.outputs import may_be_the_answers_doing, neutral
from rm_gallery.core.reward.reward import current_job
from rm_gallery.core.reward.run import alone
from rm_gallery.core.score import (
    NOT_BEGUN,
    Missing,
    Score,
    is_run_level,
    outside,
    score_of_error,
    worst_of,
)
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, RMGalleryError, Unscored

DEADLINE = 600.0
ANEW = 1 << 16
"""Distance between the numbers of a question that is asked anew, beyond those of votes: no reply
comes from the cache.
"""


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


@dataclass(frozen=True)
class GraderPlan:
    """A grader and how the rows reach it."""

    grader: BaseGrader
    mapper: Mapper = None
    on_error: Missing = "none"
    """`none` gives a GraderError, `raise` ends the run, a number stands in for the score and
    says so.
    """


class GraderJob(NamedTuple):
    """One grader over one row."""

    place: str
    plan: GraderPlan
    fields: dict[str, Any] | Exception
    of: TableRow


# -- execution -------------------------------------------------------------------------------------


def _graded(grader: BaseGrader, fields: Any) -> Any:
    """The grader's result for these fields, or a coroutine of it."""
    began = time.perf_counter()
    value = grader._grade(**fields)
    return (
        _awaited(grader, value, fields, began)
        if awaitable(value)
        else _checked(grader, value, fields)
    )


async def _awaited(grader: BaseGrader, value: Any, fields: Any, began: float) -> GraderResult:
    result = _checked(grader, await value, fields)
    result.usage.setdefault("seconds", round(time.perf_counter() - began, 4))
    return result


def _checked(grader: BaseGrader, value: Any, fields: Any) -> GraderResult:
    if isinstance(value, GraderError):
        return value
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


async def agraded(grader: BaseGrader, fields: dict[str, Any]) -> GraderResult:
    """A grader inside another one: its result for these fields, as a part of the job this is called
    in.

    Raises what the grader raises. Only the fields it asks for reach it; what would block the loop
    runs on a thread.
    """
    job = GraderJob(grader.name, GraderPlan(grader), bound(grader, fields), TableRow(fields))
    result: GraderResult = await (
        _graded(grader, job.fields) if grader.is_async else _on_a_thread(job)
    )
    return result


def _execute(job: GraderJob) -> Any:
    if isinstance(job.fields, Exception):
        raise job.fields
    if job.plan.grader.is_async:
        current_job.set(job)  # type: ignore[arg-type]  # a trace asks it for its place and its row only
    return _graded(job.plan.grader, job.fields)


def _execute_beside(job: GraderJob) -> Any:
    """`_execute` on the library loop, where what would block is handed to a thread."""
    if isinstance(job.fields, Exception) or job.plan.grader.is_async:
        return _execute(job)
    return _on_a_thread(job)


def _outcome(found: Any) -> Score[Any]:
    """A result, or the error, as an outcome."""
    if isinstance(found, GraderError):
        return found.outcome()
    return score_of_error(found) if isinstance(found, Exception) else Score()


def _suspected(job: GraderJob, found: Any) -> Score[Any] | None:
    """Why a job gave nothing, where that may be the response's own doing; else None."""
    if not isinstance(job.fields, dict) or not isinstance(job.fields.get("response"), str):
        return None
    why = _outcome(found)
    return why if may_be_the_answers_doing(asks_a_model(job.plan.grader), why) else None


def _tried(job: GraderJob) -> Generator[GraderJob, Any, Any]:
    """What is graded for a job where an answer may have made itself impossible to grade: the job,
    and what `attempts` asks for. Takes what came of each, a result or the error.
    """
    first = yield job
    if (why := _suspected(job, first)) is not None and isinstance(job.fields, dict):
        judged = asks_a_model(job.plan.grader)
        trying = attempts(judged, why, neutral(judged, job.fields.get("reference_response")))
        again = None
        try:
            text = next(trying)
            while True:
                other = (
                    yield job
                    if text is None
                    else job._replace(fields={**job.fields, "response": text})
                )
                again = again or other
                text = trying.send(_outcome(other))
        except StopIteration as end:
            verdict = end.value
        if verdict == "again":
            return again
        if verdict == "answer":
            said = (
                f"The answer made it impossible to judge; another answer could be judged. "
                f"{why.reason}"
            )
            raise Unscored(said, reason=why.code, cause="answer")
    if isinstance(first, Exception):
        raise first
    return first


def _looked_at_twice(execute: Callable[[GraderJob], Any], job: GraderJob) -> Any:
    """What `execute` gives for the job after a second look, or a coroutine of it."""
    trying = _tried(job)
    try:
        found = execute(next(trying))
        if awaitable(found):
            return _alooked_at_twice(execute, trying, found)
    except Exception as error:  # noqa: BLE001 - raised again, or settled, by `_tried`
        found = error
    try:
        while True:
            asked, undo = trying.send(found), _asking_anew()
            try:
                found = execute(asked)
            except Exception as error:  # noqa: BLE001 - as above
                found = error
            finally:
                undo()
    except StopIteration as end:
        return end.value


async def _alooked_at_twice(
    execute: Callable[[GraderJob], Any], trying: Generator[GraderJob, Any, Any], first: Any
) -> Any:
    pending, undo = first, list[Callable[[], None]]()
    try:
        while True:
            try:
                found = await pending
            except Exception as error:  # noqa: BLE001 - raised again, or settled, by `_tried`
                found = error
            asked = trying.send(found)
            undo.append(_asking_anew())
            pending = execute(asked)
    except StopIteration as end:
        return end.value
    finally:
        for each in reversed(undo):
            each()


def _asking_anew() -> Callable[[], None]:
    """Have what is asked next be another repeat of it, which no record keeps: that is of what was
    asked about the answer itself. Returns what undoes it.
    """
    noted, number = questions.set(None), repeat_index.set(repeat_index.get() + ANEW)

    def undo() -> None:
        repeat_index.reset(number)
        questions.reset(noted)

    return undo


def _on_a_thread(job: GraderJob) -> Coroutine[Any, Any, GraderResult]:
    return arun_alone((None, [job]), _execute, _value_of, **_alone(job.plan.grader, "threads"))


def _value_of(_: Any, __: list[Any], outcomes: list[Score[Any]]) -> Any:
    outcome = outcomes[0]
    return outcome.value if outcome.ok else GraderError.of("", outcome)


def _alone(grader: BaseGrader, lane: engine.LaneName) -> Alone:
    return alone(type(grader), grader.max_workers, grader.deadline, lane)


def _found(job: GraderJob, outcome: Score[Any]) -> GraderResult:
    """What the grader itself said."""
    grader = job.plan.grader
    found: GraderResult
    if outcome.value is not None:
        found = outcome.value
    elif (
        outcome.cause == "answer"
        and (worst := worst_of(grader.score_range, grader.higher_is_better)) is not None
    ):
        found = as_result(worst, grader.about()).model_copy(
            update={
                "reason": outcome.reason,
                "metadata": {"caused_by": "answer", "reason": outcome.code},
            }
        )
    else:
        found = GraderError.of(grader.name, outcome)
    return found if found.name else found.model_copy(update={"name": grader.name})


def _settled(plan: GraderPlan, found: GraderResult, row: TableRow) -> GraderResult:
    """The result as it is handed on: for an error, what `on_error` says."""
    grader, on_error = plan.grader, plan.on_error
    if isinstance(found, GraderError):
        found = found.model_copy(
            update={"range": grader.score_range, "higher_is_better": grader.higher_is_better}
        )
    if found.ok or on_error == "none":
        return found
    if on_error == "raise":
        assert isinstance(found, GraderError)
        raise GraderFailed(f"{grader.name} of row {row.sample_id}: {found.error}")
    stand_in = as_result(on_error, grader.about())
    return stand_in.model_copy(
        update={"reason": found.reason, "metadata": {"on_error": found.model_dump()}}
    )


def _job(name: str, plan: GraderPlan, row: TableRow) -> GraderJob:
    try:
        return GraderJob(name, plan, bound(plan.grader, row.fields, plan.mapper), row)
    except Exception as error:
        if is_run_level(error):
            raise
        return GraderJob(name, plan, error, row)


class GraderFailed(ConfigError):
    """A row has no result and its grader was to raise."""


def lane_of(plans: Iterable[GraderPlan]) -> engine.LaneName:
    """Where the jobs run: threads when nothing is awaited, else the library loop."""
    return "loop" if any(plan.grader.is_async for plan in plans) else "threads"


# -- one row ---------------------------------------------------------------------------------------


def _single(grader: BaseGrader, fields: Mapping[str, Any]) -> tuple[TableRow, list[GraderJob]]:
    row = TableRow(fields)
    return row, [_job(grader.name, GraderPlan(grader), row)]


def _one(row: TableRow, jobs: list[GraderJob], outcomes: list[Score[Any]]) -> GraderResult:
    return _settled(jobs[0].plan, _found(jobs[0], outcomes[0]), row)


def grade_one(
    grader: BaseGrader, fields: Mapping[str, Any], options: RunOptions | None
) -> GraderResult:
    """Grade one row, which costs itself; with options it is a batch of one."""
    library_loop.refuse_blocking(f"{type(grader).__name__}.evaluate", "aevaluate")
    plan = GraderPlan(grader)
    if options is not None:
        return GraderBatch({grader.name: plan}, [fields], options).all()[0][grader.name]
    grader.check()
    return run_alone(_single(grader, fields), _execute, _one, **_alone(grader, lane_of([plan])))


async def agrade_one(
    grader: BaseGrader, fields: Mapping[str, Any], options: RunOptions | None
) -> GraderResult:
    """Awaitable twin of `grade_one`."""
    plan = GraderPlan(grader)
    if options is not None:
        return (await GraderBatch({grader.name: plan}, [fields], options).aall())[0][grader.name]
    grader.check()
    return await arun_alone(
        _single(grader, fields), _execute, _one, **_alone(grader, lane_of([plan]))
    )


# -- many rows -------------------------------------------------------------------------------------

Results = dict[str, GraderResult]
Finish = Callable[[Results, TableRow], Results] | None
"""Adds to a row's results, such as what aggregators make of them."""


_KINDS: dict[str, type[GraderResult]] = {
    "score": GraderScore,
    "rank": GraderRank,
    "error": GraderError,
}


class GraderFolder(RunFolder):
    """Keeps what each grader said of each row; a row that one of five graders failed on is judged
    again by that one.
    """

    def __init__(self, plans: Mapping[str, GraderPlan], options: RunOptions) -> None:
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
            for name, plan in plans.items()
        }
        super().__init__(options, {"graders": graders}, reuse=STATUSES, what="rows")
        self._plans = plans

    def key_of(self, data: TableRow) -> str:
        """The row's id and a hash of what its graders read."""
        return data.read_key

    def restore(self, row: TableRow) -> dict[str, GraderResult]:
        """What an earlier part of the run found of a row, by grader; what is missing has to be
        judged.

        Raises ConfigError when a judge would be asked something else now.
        """
        asking = [
            (job.plan.grader, job.fields) for job in row.jobs if asks_a_model(job.plan.grader)
        ]
        if asking and (record := self.record_of(row)) is not None:
            ways = [
                partial(grader._grade, **fields)
                for grader, fields in asking
                if isinstance(fields, dict)
            ]
            self.check_asked(row, record, asked_by(ways))
        return self.known(row, self._read, lambda found: len(found) == len(self._plans)) or {}

    def _read(self, record: dict[str, Any]) -> dict[str, GraderResult] | None:
        results = record.get("results")
        if not isinstance(results, dict):
            return None
        found = {name: self._one(name, results.get(name)) for name in self._plans}
        return {name: result for name, result in found.items() if result is not None}

    def unscored(self, data: TableRow) -> Mapping[str, Any]:
        """The row's fields."""
        return data.fields

    def fits(self, record: dict[str, Any], data: TableRow) -> bool:
        """Whether it holds a result of one of the graders."""
        return bool(self._read(record))

    def _one(self, name: str, said: Any) -> GraderResult | None:
        """A result as it was kept; None for one that failed or does not fit."""
        if not isinstance(said, dict) or said.get("kind") not in _KINDS:
            return None
        try:
            found = _KINDS[said["kind"]].model_validate(
                {key: item for key, item in said.items() if key != "kind"}
            )
            if isinstance(found, GraderError):
                return found if found.status == "unscored" else None
            return as_result(found, self._plans[name].grader.about())
        except (ValidationError, ValueError):
            return None

    def append(self, row: TableRow, results: Mapping[str, GraderResult]) -> None:
        """Keep a finished row; it is on disk after the next `flush`. What the run did not get to
        leaves no record.
        """
        said = {
            name: result
            for name, result in results.items()
            if getattr(result, "error_type", "") not in NOT_BEGUN
        }
        stopped = len(said) < len(results)
        statuses = {result.status for result in said.values() if isinstance(result, GraderError)}
        status = (
            "failed" if stopped or "failed" in statuses else "unscored" if statuses else "scored"
        )
        self.keep(row, status, self.said(row, said) if said else {}, stopped)

    def said(self, data: TableRow, *results: Mapping[str, GraderResult]) -> dict[str, Any]:
        """What each grader said."""
        return {"results": {name: result_record(result) for name, result in results[0].items()}}

    def told(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """By grader, its score or ranks, or why it has none."""
        found: dict[str, Any] = {}
        for name, result in said["results"].items():
            if result.get("kind") != "error":
                found[name] = result.get("score", result.get("rank"))
            elif about_code(
                result.get("status", "failed"), result.get("error_type", ""), result.get("cause")
            ):
                found[name] = f"no score ({result.get('error_type')})"
        return found


def result_record(result: GraderResult) -> dict[str, Any]:
    """A result in JSON's types, without what is as usual."""
    kind = next((kind for kind, cls in _KINDS.items() if isinstance(result, cls)), "error")
    out = {"kind": kind, **result.model_dump(exclude_defaults=True)}
    try:
        orjson.dumps(out)
    except TypeError:  # metadata are anybody's
        out["metadata"] = orjson.loads(
            orjson.dumps(out["metadata"], default=str, option=orjson.OPT_NON_STR_KEYS)
        )
    return out


def _row(fields: Any, number: int) -> TableRow:
    if not isinstance(fields, Mapping):
        raise DataError(
            f"row {number} is a {type(fields).__name__}; a row is a dict of named fields."
        )
    return TableRow(fields)


class _PartlyGraded(NamedTuple):
    """A row of which an earlier part of the run found some results."""

    row: TableRow
    results: Results


class GraderBatch(Batch[Results]):
    """Rows that graders grade: the results by name, to which `finish` may add, such as what
    aggregators make of them.
    """

    def __init__(
        self,
        plans: Mapping[str, GraderPlan],
        rows: Iterable[Mapping[str, Any]],
        options: RunOptions,
        finish: Finish = None,
    ) -> None:
        for plan in plans.values():
            plan.grader.check()
        deadlines = [plan.grader.deadline for plan in plans.values()]
        longest = (
            None
            if None in deadlines
            else max((d for d in deadlines if d is not None), default=DEADLINE)
        )
        super().__init__(
            rows,
            replace(options, deadline=None if options.batch else options.deadline or longest),
            "graders",
            lane_of(plans.values()),
        )
        self._plans, self._finish = plans, finish

    def _opened(self, options: RunOptions) -> GraderFolder:
        return GraderFolder(self._plans, options)

    @property
    def _compared(self) -> bool:
        return all(plan.grader.compared_again for plan in self._plans.values())

    def known(self) -> dict[str, Any]:
        """The graders."""
        return dict(self._plans)

    def _elsewhere(self, options: RunOptions) -> dict[str, Any] | None:
        return {"plans": self._plans, "rows": []}

    def _parts(
        self,
        items: Iterable[Mapping[str, Any]],
        folder: GraderFolder | Again | None,
        options: RunOptions,
    ) -> Any:
        here = _execute if self.lane == "threads" else _execute_beside

        def execute(job: GraderJob) -> Any:
            if job.plan.grader.declares_missing and (mark := stop_mark.get()) is not None:
                mark.declared = True
            if folder is not None:
                questions.set(folder.questions_of(job.of))
            return _looked_at_twice(here, job) if options.blame == "probe" else here(job)

        return self._planned(items, folder), execute, partial(self._merge, folder), options

    def _planned(
        self, rows: Iterable[Mapping[str, Any]], folder: GraderFolder | Again | None
    ) -> Iterator[engine.Planned]:
        for number, fields in enumerate(rows):
            row = _row(fields, number)
            row.jobs = [_job(name, plan, row) for name, plan in self._plans.items()]
            known = folder.restore(row) if folder is not None else None
            if known:
                yield (
                    _PartlyGraded(row, known),
                    [job for job in row.jobs if job.place not in known] or None,
                )
            else:
                yield row, row.jobs

    def _not_begun(self, outcome: Score[Any]) -> Callable[[Mapping[str, Any], int], Results]:
        shared: Results = {}

        def result(fields: Mapping[str, Any], number: int) -> Results:
            row = _row(fields, number)
            if not shared:
                for name, plan in self._plans.items():
                    shared[name] = _settled(
                        plan, _found(GraderJob(name, plan, {}, row), outcome), row
                    )
            return dict(shared) if self._finish is None else self._finish(dict(shared), row)

        return result

    def _merge(
        self,
        folder: GraderFolder | Again | None,
        data: TableRow | _PartlyGraded,
        jobs: list[GraderJob],
        outcomes: list[Score[Any]],
    ) -> Results:
        row, known = (data, {}) if isinstance(data, TableRow) else data
        made = {
            job.place: _found(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)
        }
        results = {name: known[name] if name in known else made[name] for name in self._plans}
        if jobs and folder is not None:
            folder.append(row, results)
        results = {name: _settled(self._plans[name], found, row) for name, found in results.items()}
        return results if self._finish is None else self._finish(results, row)
