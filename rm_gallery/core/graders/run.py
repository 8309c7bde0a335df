"""From graders and rows to the engine and back: every door of a grader and of the runner goes through here."""

from __future__ import annotations

import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine import run as engine
from rm_gallery.core.engine.context import RunControl, questions
from rm_gallery.core.engine.lanes import JobCost, awaitable
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.run_folder import Again, Looking, drawn
from rm_gallery.core.engine.standing import Alone, arun_alone, run_alone
from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.result import GraderError, GraderFolder, GraderResult, as_result
from rm_gallery.core.outcome import Outcome, is_run_level, worst_of
from rm_gallery.core.reward.reward import current_job
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, RMGalleryError
from rm_gallery.core.utils.identity import digest

Mapper = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]] | None
"""What puts a row's columns under the names a grader asks for; see `mapped`."""
DEADLINE = 600.0
_costs: weakref.WeakKeyDictionary[type, JobCost] = weakref.WeakKeyDictionary()


class InvalidResult(RMGalleryError):
    """A grader returned what is no result."""

    reason = "invalid_result"


class MissingField(RMGalleryError):
    """A row lacks a field that a grader needs."""

    reason = "missing_field"
    cause: Cause = "data"


class NotGraded(RMGalleryError):
    """A grader inside a reward or another grader gave no result; `reason` is the grader's."""

    def __init__(self, message: str, reason: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause or "rule"


@dataclass(frozen=True)
class Plan:
    """A grader and how the rows reach it."""

    grader: BaseGrader
    mapper: Mapper = None
    on_error: str | float = "propagate"
    """`propagate` gives a GraderError, `raise` ends the run, a number stands in for the score and says so."""


# -- rows ---------------------------------------------------------------------------------------------------------------------


class Row:
    """One row of the data with its identity, for traces and run folders."""

    __slots__ = ("__dict__", "fields", "jobs")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields
        self.jobs: list[Job] = []
        """What graders read of it."""

    @cached_property
    def read_key(self) -> str:
        """The id and a hash of what graders read of it: another column makes it no other row."""
        read = {job.place: str(job.fields) if isinstance(job.fields, Exception) else job.fields for job in self.jobs}
        return f"{self.given_id}:{digest(read, 'row')}"

    @property
    def given_id(self) -> str:
        """What it holds as `id`, `unique_id` or `row_id`; empty where it has none."""
        for name in ("id", "unique_id", "row_id"):
            given = self.fields.get(name)
            if isinstance(given, (str, int)) and not isinstance(given, bool) and str(given):
                return str(given)
        return ""

    @cached_property
    def sample_key(self) -> str:
        """Its id and a hash of all it holds."""
        return f"{self.sample_id}:{digest(dict(self.fields), 'row')}"

    @cached_property
    def sample_id(self) -> str:
        """The given id, else a hash of its content."""
        return self.given_id or digest(dict(self.fields), "row")


class Job(NamedTuple):
    """One grader over one row."""

    place: str
    plan: Plan
    fields: dict[str, Any] | Exception
    of: Row


_ABSENT = object()


def at_path(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted and indexed path: `a.b`, `items.0`, `items[-1].text`; a column of that very name comes first.

    Raises:
        MissingField: there is nothing there; names how far the path leads and what is there.
    """
    if path in row:
        return row[path]
    here: Any = row
    done: list[str] = []
    for part in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(here, Mapping):
            found = here.get(part, _ABSENT)
            there = f"the columns {_shown(here)}" if not done else f"the keys {_shown(here)}"
        elif isinstance(here, (list, tuple)):
            index = int(part) if part.lstrip("-").isdigit() else None
            found = here[index] if index is not None and -len(here) <= index < len(here) else _ABSENT
            there = f"{len(here)} items"
        else:
            found, there = _ABSENT, f"a {type(here).__name__}"
        if found is _ABSENT:
            before = f"'{'.'.join(done)}' holds" if done else "the row has"
            raise MissingField(f"the path '{path}' leads nowhere at '{part}': {before} {there}")
        here = found
        done.append(part)
    return here


def _shown(mapping: Mapping[Any, Any]) -> str:
    names = sorted(map(str, mapping))
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def mapped(row: Mapping[str, Any], mapper: Mapper) -> Mapping[str, Any]:
    """The row with the mapper's fields laid over it: every other column still reaches the grader.

    A dict maps a grader's parameter to a path in the row, or to a function of the row; a function returns the fields.

    Raises:
        MissingField: a path leads nowhere; names the key, the path and the columns there are.
    """
    if mapper is None:
        return row
    if callable(mapper):
        made = mapper(row)
        if not isinstance(made, Mapping):
            raise MissingField(f"the mapper returned {type(made).__name__}; it returns a dict of fields")
        return {**row, **made}
    over = {}
    for name, path in mapper.items():
        try:
            over[name] = path(row) if callable(path) else at_path(row, str(path))
        except MissingField as error:
            raise MissingField(f"mapper '{name}': {error}") from error
    return {**row, **over}


def bound(grader: BaseGrader, row: Mapping[str, Any], mapper: Mapper = None) -> dict[str, Any]:
    """Of a row, the fields that the grader asks for.

    Raises:
        MissingField: a required one is absent; names it and the columns there are.
    """
    fields, inputs = mapped(row, mapper), grader.inputs
    for name, required in inputs.items():
        if required and name not in fields:
            raise MissingField(
                f"{grader.name} needs '{name}', and the row has the columns {_shown(row)}; say where it is with "
                f'mapper={{"{name}": "COLUMN"}}.'
            )
    if "*" in inputs:
        return {str(name): value for name, value in fields.items()}
    return {name: fields[name] for name in inputs if name in fields}


# -- execution ----------------------------------------------------------------------------------------------------------------


def _graded(grader: BaseGrader, fields: dict[str, Any]) -> Any:
    """The grader's result for these fields, or a coroutine of it."""
    began = time.perf_counter()
    value = grader._grade(**fields)
    return _awaited(grader, value, began) if awaitable(value) else _checked(grader, value)


async def _awaited(grader: BaseGrader, value: Any, began: float) -> GraderResult:
    result = _checked(grader, await value)
    result.usage.setdefault("seconds", round(time.perf_counter() - began, 4))
    return result


def _checked(grader: BaseGrader, value: Any) -> GraderResult:
    if isinstance(value, GraderError):
        return value
    try:
        return as_result(value, grader.about())
    except (ValidationError, ValueError, TypeError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InvalidResult(f"{grader.name} returned no usable result: {what}") from error


async def agraded(grader: BaseGrader, fields: dict[str, Any]) -> GraderResult:
    """A grader inside another one: its result for these fields, as a part of the job this is called in.

    Raises what the grader raises. Only the fields it asks for reach it; what would block the loop runs on a thread.
    """
    plan = Plan(grader)
    asked = bound(grader, fields)
    if grader.is_async:
        found: GraderResult = await _graded(grader, asked)
        return found
    job = Job(grader.name, plan, asked, Row(fields))
    result: GraderResult = await arun_alone((None, [job]), _execute, _value_of, **_alone(grader, "threads"))
    return result


def _execute(job: Job) -> Any:
    if isinstance(job.fields, Exception):
        raise job.fields
    if job.plan.grader.is_async:
        current_job.set(job)  # type: ignore[arg-type]  # a trace asks it for its place and its row only
    return _graded(job.plan.grader, job.fields)


def _execute_beside(job: Job) -> Any:
    """`_execute` on the library loop, where what would block is handed to a thread."""
    if isinstance(job.fields, Exception) or job.plan.grader.is_async:
        return _execute(job)
    return arun_alone((None, [job]), _execute, _value_of, **_alone(job.plan.grader, "threads"))


def _value_of(_: Any, __: list[Any], outcomes: list[Outcome[Any]]) -> Any:
    outcome = outcomes[0]
    return outcome.value if outcome.ok else GraderError.of("", outcome)


def _alone(grader: BaseGrader, lane: engine.LaneName) -> Alone:
    cost = _costs.get(type(grader)) or _costs.setdefault(type(grader), JobCost())
    return {"max_workers": grader.max_workers, "deadline": grader.deadline, "lane": lane, "cost": cost}


def _found(job: Job, outcome: Outcome[Any]) -> GraderResult:
    """What the grader itself said."""
    grader = job.plan.grader
    found: GraderResult
    if outcome.value is not None:
        found = outcome.value
    elif outcome.cause == "answer" and (worst := worst_of(grader.score_range, grader.higher_is_better)) is not None:
        found = as_result(worst, grader.about()).model_copy(
            update={"reason": outcome.message, "metadata": {"caused_by": "answer", "reason": outcome.reason}}
        )
    else:
        found = GraderError.of(grader.name, outcome)
    return found if found.name else found.model_copy(update={"name": grader.name})


def _settled(plan: Plan, found: GraderResult, row: Row) -> GraderResult:
    """The result as it is handed on: for an error, what `on_error` says."""
    grader, on_error = plan.grader, plan.on_error
    if isinstance(found, GraderError):
        found = found.model_copy(update={"range": grader.score_range, "higher_is_better": grader.higher_is_better})
    if found.ok or on_error == "propagate":
        return found
    if on_error == "raise":
        assert isinstance(found, GraderError)
        raise GraderFailed(f"{grader.name} of row {row.sample_id}: {found.error}")
    stand_in = as_result(on_error, grader.about())
    return stand_in.model_copy(update={"reason": found.reason, "metadata": {"on_error": found.model_dump()}})


class GraderFailed(ConfigError):
    """A row has no result and its grader was to raise."""


def lane_of(plans: Iterable[Plan]) -> engine.LaneName:
    """Where the jobs run: threads when nothing is awaited, else the library loop."""
    return "loop" if any(plan.grader.is_async for plan in plans) else "threads"


# -- one row ------------------------------------------------------------------------------------------------------------------


def _single(grader: BaseGrader, fields: Mapping[str, Any]) -> tuple[Row, list[Job]]:
    row = Row(fields)
    return row, [_job(grader.name, Plan(grader), row)]


def _job(name: str, plan: Plan, row: Row) -> Job:
    try:
        return Job(name, plan, bound(plan.grader, row.fields, plan.mapper), row)
    except Exception as error:
        if is_run_level(error) and not isinstance(error, DataError):
            raise
        return Job(name, plan, error, row)


def _one(row: Row, jobs: list[Job], outcomes: list[Outcome[Any]]) -> GraderResult:
    return _settled(jobs[0].plan, _found(jobs[0], outcomes[0]), row)


def grade_one(grader: BaseGrader, fields: Mapping[str, Any], options: RunOptions | None) -> GraderResult:
    """Grade one row, which costs itself; with options it is a batch of one."""
    library_loop.refuse_blocking(f"{type(grader).__name__}.evaluate", "aevaluate")
    if options is not None:
        return grade_rows({grader.name: Plan(grader)}, [fields], options)[0][grader.name]
    grader.check()
    return run_alone(_single(grader, fields), _execute, _one, **_alone(grader, lane_of([Plan(grader)])))


async def agrade_one(grader: BaseGrader, fields: Mapping[str, Any], options: RunOptions | None) -> GraderResult:
    """Awaitable twin of `grade_one`."""
    if options is not None:
        found = [results async for _, results in agrade_rows({grader.name: Plan(grader)}, [fields], options)]
        return found[0][grader.name]
    grader.check()
    return await arun_alone(_single(grader, fields), _execute, _one, **_alone(grader, lane_of([Plan(grader)])))


# -- many rows ----------------------------------------------------------------------------------------------------------------

Results = dict[str, GraderResult]


Finish = Callable[[Results, Row], Results] | None
"""Adds to a row's results, such as what aggregators make of them."""


class _Known(NamedTuple):
    """A row of which an earlier part of the run found some results."""

    row: Row
    results: Results


_Parts = tuple[Iterator[engine.Planned], Callable[[Job], Any], Callable[..., Results], RunOptions]
"""What the engine runs: what is to do, what does it, what writes down what came of it, and how it goes."""


class _Grading(Looking):
    """What the engine needs to know of graders and rows, and the folder their results are kept in."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        rows: Iterable[Mapping[str, Any]],
        options: RunOptions,
        finish: Finish,
    ) -> None:
        for plan in plans.values():
            plan.grader.check()
        deadlines = [plan.grader.deadline for plan in plans.values()]
        known = None if None in deadlines else max((d for d in deadlines if d is not None), default=DEADLINE)
        self._options = replace(
            options,
            control=options.control or RunControl(),
            deadline=options.deadline or known,
            total=options.total or (len(rows) if isinstance(rows, Sized) else None),
        )
        self._plans, self._rows, self._finish = plans, rows, finish
        self.lane: engine.LaneName = lane_of(plans.values())
        self.label = "graders"

    def __enter__(self) -> _Grading:
        options = self._options
        if options.run_dir:
            self._folder = GraderFolder(self._plans, options)
            options = self._folder.begin(options)
            if self._folder.begun and all(plan.grader.compared_again for plan in self._plans.values()):
                self._rows, self._drawn = drawn(self._rows, self._folder, self._row)
        self.flush = None if self._folder is None else self._folder.flush
        self.parts = self._parts(self._rows, self._folder, options)
        return self

    def _parts(self, rows: Iterable[Mapping[str, Any]], folder: GraderFolder | Again | None, options: RunOptions) -> _Parts:
        beside = _execute if self.lane == "threads" else _execute_beside

        def execute(job: Job) -> Any:
            if folder is not None:
                questions.set(folder.questions_of(job.of))
            return beside(job)

        return self._planned(rows, folder), execute, partial(self._merge, folder), options

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            assert self._options.control is not None
            self._folder.close(self._options.control)

    def _row(self, fields: Mapping[str, Any]) -> Row:
        row = Row(fields)
        row.jobs = [_job(name, plan, row) for name, plan in self._plans.items()]
        return row

    def _planned(self, rows: Iterable[Mapping[str, Any]], folder: GraderFolder | Again | None) -> Iterator[engine.Planned]:
        for number, fields in enumerate(rows):
            if not isinstance(fields, Mapping):
                raise DataError(f"row {number} is a {type(fields).__name__}; a row is a dict of named fields.")
            row = self._row(fields)
            known = folder.restore(row) if folder is not None else None
            if known:
                yield _Known(row, known), [job for job in row.jobs if job.place not in known] or None
            else:
                yield row, row.jobs

    def _merge(
        self, folder: GraderFolder | Again | None, data: Row | _Known, jobs: list[Job], outcomes: list[Outcome[Any]]
    ) -> Results:
        row, known = (data, None) if isinstance(data, Row) else data
        results = {job.place: _found(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)}
        if known:
            results = {name: known[name] if name in known else results[name] for name in self._plans}
        if jobs and folder is not None:
            folder.append(row, results)
        results = {name: _settled(self._plans[name], found, row) for name, found in results.items()}
        return results if self._finish is None else self._finish(results, row)


def grade_rows(
    plans: Mapping[str, Plan],
    rows: Iterable[Mapping[str, Any]],
    options: RunOptions,
    finish: Finish = None,
) -> list[Results]:
    """Grade all rows by all graders: results by name, in the order of the rows; `finish` may add to a row's results."""
    library_loop.refuse_blocking("run", "arun")
    with _Grading(plans, rows, options, finish) as going:
        going.look()
        return engine.run_all(*going.parts, label="graders", lane=going.lane, flush=going.flush)


def stream_rows(
    plans: Mapping[str, Plan],
    rows: Iterable[Mapping[str, Any]],
    options: RunOptions,
    finish: Finish = None,
) -> Generator[tuple[int, Results], None, None]:
    """(index, results) of each row as it comes, in order and in flat memory."""
    with _Grading(plans, rows, options, finish) as grading:
        grading.look()
        going = engine.run(*grading.parts, label="graders", lane=grading.lane, streaming=True, flush=grading.flush)
        with closing(going):
            yield from going


async def agrade_rows(
    plans: Mapping[str, Plan],
    rows: Iterable[Mapping[str, Any]],
    options: RunOptions,
    finish: Finish = None,
    streaming: bool = False,
) -> AsyncIterator[tuple[int, Results]]:
    """(index, results) of each row, from any event loop: as they finish, or, `streaming`, in order and in flat memory."""
    with _Grading(plans, rows, options, finish) as grading:
        await grading.alook()
        async for pair in engine.arun(
            *grading.parts,
            label="graders",
            lane=grading.lane,
            ordered=streaming,
            streaming=streaming,
            flush=grading.flush,
        ):
            yield pair
