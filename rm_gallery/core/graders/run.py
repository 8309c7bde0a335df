"""How named fields are judged: a row is a sample, the graders over it are one reward, and what
rewards go through (batch, run folder, single sample) is what graders go through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property, partial
from operator import length_hint
from typing import Any, ClassVar, NamedTuple

import orjson
from pydantic import ValidationError

from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import stop_mark
from rm_gallery.core.engine.engine import Plan, awaitable
from rm_gallery.core.engine.folder import Again, RunFolder
from rm_gallery.core.engine.options import OPTIONS, RunOptions, chosen_options
from rm_gallery.core.engine.single import run_single
from rm_gallery.core.graders.results import (
    KINDS,
    GraderResult,
    about_of,
    as_result,
    score_of,
)
from rm_gallery.core.graders.rows import Mapper, TableRow, bound, checked_mapper, row_of
from rm_gallery.core.reward.blame import REMEMBERED
from rm_gallery.core.reward.founding import settled, write_score
from rm_gallery.core.reward.job import Job
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.kinds import Kind
from rm_gallery.core.reward.outputs import SampleForm, may_be_the_answers_doing, said_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import RewardBatch, scores_of_one
from rm_gallery.core.reward.schema import sample_of
from rm_gallery.core.score import (
    NOT_BEGUN,
    STATUSES,
    Missing,
    Score,
    about_code,
    failed,
    is_run_level,
)
from rm_gallery.core.utils.errors import ConfigError, DataError, ScoreError, Unscored
from rm_gallery.core.utils.models import build, copy_with
from rm_gallery.core.utils.names import nearest, unknown_name

ANSWER = "response"
"""The field of the answer that is graded."""
WHOLE = "whole"
"""Under what an answer keeps its grader's score."""


def error_of(outcome: Score[Any]) -> Exception:
    """What a missing score is raised as inside another judgement."""
    if outcome.status == "unscored":
        return Unscored(outcome.reason, reason=outcome.code, cause=outcome.cause)
    error = ScoreError(outcome.reason)
    error.reason, error.cause = outcome.code, outcome.cause or "rule"
    return error


class GraderPlan(NamedTuple):
    """A grader, which is any reward, and how the rows reach it."""

    grader: BaseReward
    mapper: Mapper = None
    on_error: Missing = "none"
    """`none` gives a GraderError, `raise` ends the run, a number stands in for the score and says
    so.
    """


Plans = Mapping[str, GraderPlan]


# -- one grader, some fields --------------------------------------------------------------------------


def graded(grader: BaseReward, fields: Any) -> Any:
    """The grader's score of these fields, or a coroutine of it."""
    began = time.perf_counter()
    score = grader._graded(fields)
    return _timed(score, began) if awaitable(score) else score


async def _timed(score: Any, began: float) -> Score[Any]:
    score = await score
    seconds = round(time.perf_counter() - began, 4)
    return replace(score, usage={"seconds": seconds, **(score.usage or {})})


async def agraded(grader: BaseReward, fields: dict[str, Any]) -> Score[Any]:
    """A grader inside another one: its score of these fields, as a part of the job this is called
    in.

    Raises what the grader raises. Only the fields it asks for reach it; what would block the loop
    runs on a thread.
    """
    value: Any = _on_loop(grader, bound(grader, fields))
    # a grader that asks a model may have a plain `_grade` of its own
    score: Score[Any] = await value if awaitable(value) else value
    return score


def _on_loop(grader: BaseReward, fields: Any) -> Any:
    """As `graded`, for the library loop: what would block it is handed to a thread."""
    if _awaits(grader):
        return graded(grader, fields)
    how = type(grader), grader.max_workers, grader.deadline
    return run_single(_one(fields), partial(graded, grader), *how, "threads")


def _awaits(grader: BaseReward) -> bool:
    """Whether it is awaited, as all are that have no function of fields."""
    return bool(getattr(grader, "awaits", True))


def _one(fields: Any) -> Plan:
    [score] = yield [fields]
    return score


# -- rows as samples, graders as a reward of them --------------------------------------------------


class GraderFailed(ConfigError):
    """A row has no result and its grader was to raise."""


class _Rows(Kind):
    """Graders over a row: each of them has a job."""

    def jobs(self, reward: Any, sample: Any) -> list[Job]:
        """A job per grader that has no result yet."""
        jobs = []
        for name in reward.owed(sample):
            fields = reward.shown(sample)[name]
            if sample.output:
                fields = {**fields, ANSWER: sample.output[0].answer.text}
            job = copy_with(sample, fields=fields, grader=name, shown=None)
            jobs.append(Job(job, name, sample))
        return jobs

    def merge(
        self, reward: Any, sample: Any, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """The score of each grader that had a job; the score of an answer can be read from it as a
        whole.
        """
        return list(map(_whole, outcomes)) if sample.output else outcomes

    def read(self, reward: Any, returned: Any, sample: Any) -> Any:
        """A grader's score, as it was read."""
        return returned

    def everywhere(self, reward: Any, sample: Any, score: Score[Any]) -> list[Score[Any]]:
        """The same said by each grader."""
        return [score] * len(reward.owed(sample))


class RowReward(BaseReward):
    """Graders over rows as one reward: a job per grader, and a score of each."""

    kind: ClassVar[Kind] = _Rows("pointwise")
    plans: Any
    """By name, `GraderPlan`s."""
    awaits: bool
    """Whether one of them is awaited, on the library loop, where what would block it is handed to a
    thread.
    """

    def is_async(self) -> bool:
        """Whether one of the graders is awaited."""
        return self.awaits

    @property
    def judged(self) -> bool:  # type: ignore[override]
        """Whether one of them asks a model: a trace asks for the job."""
        return any(plan.grader.judged for plan in self.plans.values())

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

    def owed(self, row: TableRow) -> list[str]:
        """The graders of which it has no result yet."""
        return [name for name in self.plans if name not in row.results]

    def _evaluate(self, sample: Any) -> Any:
        grader = self.plans[sample.grader].grader
        if grader.declares_missing and (mark := stop_mark.get()) is not None:
            mark.declares_missing = True
        if isinstance(sample.fields, Exception):
            raise sample.fields
        return (_on_loop if self.awaits else graded)(grader, sample.fields)

    def answer_in(self, row: TableRow, name: str, fields: Any) -> TableRow | None:
        """What one grader was shown of a row and said of it, as a sample of one answer, so that
        others can be tried in its place; None where it holds no answer.
        """
        if isinstance(fields, Exception) or not isinstance(fields.get(ANSWER), str):
            return None
        about = {"reference": fields.get("reference_response")}
        made = sample_of(str(fields.get("query", "")), fields[ANSWER], **about)
        write_score(self, made.output[0].answer, _whole(row.results[name]))
        own = {"input": made.input, "output": made.output, "metadata": about, "of": row}
        return copy_with(row, results={}, shown={name: fields}, **own)


def _whole(score: Score[Any]) -> Score[Any]:
    """A score that can be read as a whole from the answer to which it is written."""
    return replace(score, extra={**score.extra, WHOLE: score})


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
        "awaits": any(map(_awaits, graders)),
    }
    return build(RowReward, settings)


def _fields_for(plan: GraderPlan, row: TableRow) -> Any:
    try:
        return bound(plan.grader, row.fields, plan.mapper)
    except Exception as error:
        if is_run_level(error):
            raise
        return error


def result_of(plan: GraderPlan, score: Score[Any], row: TableRow) -> GraderResult:
    """What is handed out for a grader's score: for a missing one, what `on_error` says."""
    grader, on_error = plan.grader, plan.on_error
    about = about_of(grader)
    result = as_result(score, about)
    # what the run did not get to is graded when it is continued, and no policy is for it
    if score.value is not None or on_error == "none" or score.code in NOT_BEGUN:
        return result
    if on_error == "raise":
        raise GraderFailed(f"{grader.name} of row {row.named}: {score.reason}")
    noted = {"on_error": result.model_dump()}
    return as_result(Score(float(on_error), score.reason, extra=noted), about)


def _settled(grader: BaseReward, score: Score[Any]) -> Score[Any]:
    """A score as of every reward; of several responses together nobody can tell whose doing it is that
    there is none.
    """
    return score if grader.compares else settled(grader, score)


# -- doors -----------------------------------------------------------------------------------------


async def grade_one(
    grader: BaseReward,
    row: Mapping[str, Any] | None,
    options: RunOptions | None,
    keywords: Mapping[str, Any],
) -> GraderResult:
    """Grade one row, which costs itself; with options it is a batch of one. Keywords are its further
    fields, and options.
    """
    if library_loop.is_driven():
        library_loop.refuse_blocking()
    if row is not None and not isinstance(row, Mapping):
        raise DataError(f"a row is a dict of named fields, found {type(row).__name__}.")
    inputs, named = grader.inputs, dict(keywords)
    mapper = None if "mapper" in inputs else named.pop("mapper", None)
    fields, chosen = dict(row or {}), dict[str, Any]()
    for name, value in named.items():
        more = name not in inputs and (name in OPTIONS or "*" not in inputs)
        (chosen if more else fields)[name] = value
    for name in chosen.keys() - OPTIONS:
        grader.check()  # what is wrong with the grader itself comes first
        hint = "What a row has beside goes into its dict: evaluate({…})."
        known = OPTIONS.union(inputs)
        known = known if nearest(name, known) else frozenset(inputs)
        raise ConfigError(unknown_name("field or option", name, known, hint))
    if options is not None or chosen:
        return (await grade_all(grader, mapper, [fields], options, chosen))[0]
    plan, whole = GraderPlan(grader, checked_mapper(grader, mapper)), row_of(fields)
    [score] = await scores_of_one(row_reward({grader.name: plan}), whole, {})
    return result_of(plan, _settled(grader, score), whole)


async def grade_all(
    grader: BaseReward,
    mapper: Mapper,
    rows: Iterable[Mapping[str, Any]],
    options: RunOptions | None,
    keywords: Mapping[str, Any],
) -> list[GraderResult]:
    """Grade many rows; the results in their order."""
    plans = {grader.name: GraderPlan(grader, checked_mapper(grader, mapper))}
    own = RunOptions(max_workers=grader.max_workers)
    chosen = chosen_options(options, own, keywords, None)[0]
    graded_rows = await grader_batch(plans, rows, chosen).all()
    return [result for row in graded_rows for result in results_of(plans, row).values()]


Results = dict[str, Any]


def results_of(plans: Plans, row: Any) -> Results:
    """What a row that comes out of a batch was given, by grader."""
    return {name: result_of(plan, row.results[name], row) for name, plan in plans.items()}


def grader_batch(
    plans: Plans, rows: Iterable[Mapping[str, Any]], options: RunOptions
) -> RewardBatch:
    """The rows on their way through the graders; each comes back with its `results`."""
    size = len(rows) if isinstance(rows, Sized) else length_hint(rows) or options.total
    samples = (_row(fields, number) for number, fields in enumerate(rows))
    form = RowForm(plans, options.blame == "probe")
    return RewardBatch(form, samples, replace(options, total=size))


class RowForm(SampleForm):
    """What each grader said of each row is kept in the row, by grader. In a run's folder a row that
    one of five graders failed on is judged again by that one.
    """

    what, reuse = "rows", STATUSES
    reward: RowReward

    def __init__(self, plans: Plans, probes: bool) -> None:
        """For these graders; whether what has no score is looked at once more."""
        super().__init__(row_reward(plans), {})
        self._plans, self._probes = plans, probes

    @cached_property
    def _alone(self) -> dict[str, RowReward]:
        """A reward of each grader by itself."""
        return {name: row_reward({name: plan}) for name, plan in self._plans.items()}

    def manifest(self) -> dict[str, Any]:
        """The graders. What a mapper makes of a row is a part of the row's key, and aggregators are no
        part of the run: what they make of the results is worked out anew.
        """
        graders = {
            # run folders keep the spelling of the first ones
            name: {
                "grader": plan.grader.describe(),
                "on_error": "propagate" if plan.on_error == "none" else plan.on_error,
            }
            for name, plan in self._plans.items()
        }
        return {"graders": graders}

    def write(self, data: Any, scores: Sequence[Score[Any]]) -> Any:
        """Note in the row what each grader gave: what an answer caused is worth the worst score."""
        given = zip(self.reward.owed(data), scores, strict=True)
        made = {name: _settled(self._plans[name].grader, score) for name, score in given}
        data.__dict__["results"] = {**data.results, **made}
        return data

    def plan(self, data: Any, folder: RunFolder | Again | None = None) -> Plan:
        """As of samples; GraderFailed where a grader was to raise, unless it may still turn out that
        the answer caused it.
        """
        row = yield from super().plan(data, folder)
        for name, plan in self._plans.items():
            score = row.results[name]
            if score.ok or plan.on_error != "raise":
                continue
            if not (self._probes and may_be_the_answers_doing(asks_a_model(plan.grader), score)):
                result_of(plan, score, row)
        return row

    def second_looks(self, results: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
        """Each grader by itself, with the answers that rows hold."""
        for name, alone in self._alone.items():
            # where nothing is missing the last rows tell those that come later what can be read
            missing = any(not row.results[name].ok for row in results)
            looked_at = results if missing else results[-REMEMBERED:]
            answers = (
                alone.answer_in(row, name, self.reward.shown(row)[name]) for row in looked_at
            )
            yield alone, list(filter(None, answers))

    def found_out(self, reward: Any, shown: Any) -> Any:
        """The row of an answer, in which it is noted what is known now of that."""
        [(name, plan)] = reward.plans.items()
        said = said_of(reward, shown.output[0])
        shown.of.results[name] = said.extra.get(WHOLE) or _settled(plan.grader, said)
        return shown.of

    def keys_of(self, data: Any) -> tuple[str, str]:
        """The row's id and a hash of what its graders read; rows without an id that differ in another
        column alone are equal.
        """
        self.reward.shown(data)
        key: str = data.read_key
        return key, data.given_id or key

    def restore(self, data: Any, kept: Results) -> bool:
        """Give the row the results that are kept; whether none is missing."""
        data.results = kept
        return len(kept) == len(self._plans)

    def asking(self, data: Any, record: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
        """What asks the judges of those graders that the record has results of."""
        for name, fields in self.reward.shown(data).items():
            grader, kept = self._plans[name].grader, name in record.get("results", {})
            if kept and asks_a_model(grader) and isinstance(fields, dict):
                yield partial(graded, grader, fields)

    def read(self, record: Mapping[str, Any], data: Any) -> Results | None:
        """By grader, the scores that are kept; of one that failed, or does not fit, none."""
        results = record.get("results")
        if not isinstance(results, dict):
            return None
        kept = {}
        for name, plan in self._plans.items():
            score = _score_in(results.get(name), plan.grader)
            if score.status != "failed":
                kept[name] = score
        return kept

    def record_of(self, data: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """What each grader gave; of what the run did not get to nothing is kept."""
        kept, missing = {}, []
        for name, plan in self._plans.items():
            score = data.results[name]
            if not score.ok:
                missing.append((score.status, score.code))
            if score.code not in NOT_BEGUN:
                kept[name] = _as_record(as_result(score, about_of(plan.grader)))
        return {"results": kept} if kept else {}, missing

    def scores_in(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """By grader, its score or ranks, or why it has none."""
        scores: dict[str, Any] = {}
        for name, kept in record.get("results", {}).items():
            score = _score_in(kept, self._plans[name].grader)
            # what a second look found is not what the code says of the answer
            if "caused_by" in score.extra:
                continue
            if score.ok:
                scores[name] = kept.get("score", kept.get("rank"))
            elif about_code(score.status, score.code, score.cause):
                scores[name] = f"no score ({score.code})"
        return scores


_NOT_KEPT = failed("not_kept", "", "caller")


def _score_in(kept: Any, grader: BaseReward) -> Score[Any]:
    """A score as it was kept; a failed one where it does not fit."""
    try:
        fields = dict(kept)
        return score_of(KINDS[fields.pop("kind")](**fields), grader)
    except (ValidationError, ValueError, TypeError, KeyError):
        return _NOT_KEPT


def _as_record(result: GraderResult) -> dict[str, Any]:
    """A result in JSON's types, without what is as usual."""
    of_grader = {"range", "higher_is_better"} if result.kind == "error" else None
    out = {"kind": result.kind, **result.model_dump(exclude_defaults=True, exclude=of_grader)}
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
