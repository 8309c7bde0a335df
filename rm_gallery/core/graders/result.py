"""What a grader says: a score, a rank, or an error that never passes for either."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rm_gallery.core.engine.context import asked_by
from rm_gallery.core.engine.run_folder import RunFolder, about_code
from rm_gallery.core.engine.run_records import STATUSES
from rm_gallery.core.outcome import NOT_BEGUN, Outcome
from rm_gallery.core.utils.errors import Cause, ConfigError

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.graders.run import Plan, Row


Bounds = tuple[float | None, float | None]


class GraderMode(str, Enum):
    """Whether a grader looks at one response or orders several."""

    POINTWISE = "pointwise"
    LISTWISE = "listwise"


class GraderResult(BaseModel):
    """What all results have in common.

    Attributes:
        name: the grader's name.
        reason: why, in a sentence; of an error, what went wrong.
        metadata: further findings of the grader, as plain values.
        usage: what it cost: calls, input_tokens, output_tokens, seconds; empty where nothing was asked.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)

    name: str = ""
    reason: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, float] = Field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is a score or a rank."""
        return True


class GraderScore(GraderResult):
    """One response's score, a finite number inside `range`.

    Attributes:
        score: in the grader's own units.
        range: lowest and highest possible score; None where there is no bound.
        higher_is_better: the direction of the score.
        threshold: from where on (or down to where, if lower is better) the response passes; None without one.
    """

    score: float
    range: Bounds = (None, None)
    higher_is_better: bool = True
    threshold: float | None = None

    @field_validator("score", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, (bool, int, float)) and not hasattr(value, "__float__"):
            raise ValueError(f"a score is a number, found {type(value).__name__}")
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"a score is a finite number, found {number}")
        return number

    @property
    def normalized(self) -> float:
        """The score mapped to [0, 1], 1 being best; ConfigError without bounds."""
        low, high = self.range
        if low is None or high is None or not high > low:
            raise ConfigError(
                f"{self.name}: the score range {self.range} has no two bounds, so {self.score} cannot be normalised; give the "
                "grader a score_range."
            )
        share = (self.score - low) / (high - low)
        return share if self.higher_is_better else 1.0 - share

    def passed(self, threshold: float | None = None) -> bool:
        """Whether the score reaches a threshold in the grader's units: the given one, else its own; ConfigError without any."""
        wanted = self.threshold if threshold is None else threshold
        if wanted is None:
            raise ConfigError(f"{self.name} has no threshold; pass one: result.passed(0.5).")
        return self.score >= wanted if self.higher_is_better else self.score <= wanted


class GraderRank(GraderResult):
    """The order of several responses.

    Attributes:
        rank: the place of each response, 1 being best: `rank[i]` is the place of response i. Equal places are a tie.
    """

    rank: list[int]

    @field_validator("rank")
    @classmethod
    def _places(cls, value: list[int]) -> list[int]:
        n = len(value)
        if not value or any(not 1 <= place <= n for place in value) or 1 not in value:
            raise ValueError(f"each response has a place from 1 to their number and one is first, found {value}")
        return value

    @property
    def order(self) -> list[int]:
        """The responses' positions, counted from 0, best first; equal ones in the order given."""
        return sorted(range(len(self.rank)), key=self.rank.__getitem__)


class GraderError(GraderResult):
    """There is no score: the judge could not be read, the call failed, a field was missing. Prints as nan, sums to nan.

    Attributes:
        error: what went wrong and the next step.
        error_type: a short code: parse, missing_field, data, deadline, budget, stopped, rate_limit, transient, fatal, …
        status: `unscored` where there is nothing to judge by or no verdict to read, `failed` where something broke.
        cause: who brought it about: endpoint, judge, answer, data, rule or caller.
        range: of the scores its grader gives; `higher_is_better` their direction. Both as of `GraderScore`.
    """

    error: str
    error_type: str = "error"
    status: Literal["unscored", "failed"] = "failed"
    cause: Cause | None = None
    range: Bounds = (None, None)
    higher_is_better: bool = True

    @classmethod
    def of(cls, name: str, outcome: Outcome[Any]) -> GraderError:
        """What a grader of this name says of a job without a value."""
        status: Literal["unscored", "failed"] = "unscored" if outcome.status == "unscored" else "failed"
        why = outcome.message
        return cls(name=name, reason=why, error=why, error_type=outcome.reason, status=status, cause=outcome.cause)

    @property
    def ok(self) -> bool:
        """False."""
        return False

    @property
    def score(self) -> float:
        """NaN, so that nothing made of it passes for a score."""
        return math.nan

    @property
    def normalized(self) -> float:
        """NaN."""
        return math.nan

    @property
    def rank(self) -> list[int]:
        """No places."""
        return []

    def passed(self, threshold: float | None = None) -> bool:
        """Never."""
        return False


RunnerResult = dict[str, list[GraderResult]]
"""Results by grader (or aggregator) name, each list in the order of the rows."""


def as_result(value: Any, about: Mapping[str, Any]) -> GraderScore | GraderRank:
    """What a grader returned as a result: a number, True or False, a dict of fields, or a result.

    `about` holds what the grader knows itself (name, range, direction, threshold). A score outside its range is an error,
    never a clamp.

    Raises:
        ValueError: it is none of these; names what was found.
    """
    if isinstance(value, GraderRank):
        return value.model_copy(update={"name": value.name or about["name"]})
    if isinstance(value, GraderScore):
        known = {key: item for key, item in about.items() if key not in value.model_fields_set or key == "name"}
        known["name"] = value.name or about["name"]
        found = value.model_copy(update=known)
    elif isinstance(value, Mapping):
        if "rank" in value:
            return GraderRank(**{"name": about["name"], **value})
        if "score" not in value:
            raise ValueError(f"a dict with 'score' is needed, found the keys {sorted(map(str, value))}")
        fields = {key: item for key, item in value.items() if key in GraderScore.model_fields}
        rest = {key: item for key, item in value.items() if key not in fields}
        if rest:
            fields["metadata"] = {**fields.get("metadata", {}), **rest}
        found = GraderScore(**{**about, **fields})
    elif isinstance(value, (bool, int, float)) or (hasattr(value, "__float__") and not isinstance(value, str)):
        found = GraderScore(score=float(value), **about)
    else:
        raise ValueError(f"a number, True or False, a dict or a GraderScore is needed, found {type(value).__name__}")
    low, high = found.range
    if (low is not None and found.score < low) or (high is not None and found.score > high):
        raise ValueError(f"the score {found.score} is outside {found.range}")
    return found


_KINDS: dict[str, type[GraderResult]] = {"score": GraderScore, "rank": GraderRank, "error": GraderError}


class GraderFolder(RunFolder):
    """Keeps what each grader said of each row; a row that one of five graders failed on is judged again by that one."""

    def __init__(self, plans: Mapping[str, Plan], options: RunOptions) -> None:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run, or when a setting cannot be told
        from another one. What a mapper makes of a row is a part of the row's key, and aggregators are no part of the run: what
        they make of the results is worked out anew.
        """
        graders = {name: {"grader": plan.grader.describe(), "on_error": plan.on_error} for name, plan in plans.items()}
        super().__init__(options, {"graders": graders}, reuse=STATUSES, what="rows")
        self._plans = plans

    def key_of(self, data: Row) -> str:
        """The row's id and a hash of what its graders read."""
        return data.read_key

    def restore(self, row: Row) -> dict[str, GraderResult]:
        """What an earlier part of the run found of a row, by grader; what is missing has to be judged.

        Raises ConfigError when a judge would be asked something else now.
        """
        judged = [(job.plan.grader, job.fields) for job in row.jobs if job.plan.grader.judged]
        if judged and (record := self.record_of(row)) is not None:
            ways = [partial(grader._grade, **fields) for grader, fields in judged if isinstance(fields, dict)]
            self.check_asked(row, record, asked_by(ways))
        return self.known(row, self._read, lambda found: len(found) == len(self._plans)) or {}

    def _read(self, record: dict[str, Any]) -> dict[str, GraderResult] | None:
        results = record.get("results")
        if not isinstance(results, dict):
            return None
        found = {name: self._one(name, results.get(name)) for name in self._plans}
        return {name: result for name, result in found.items() if result is not None}

    def fits(self, record: dict[str, Any], data: Row) -> bool:
        """Whether it holds a result of one of the graders."""
        return bool(self._read(record))

    def _one(self, name: str, said: Any) -> GraderResult | None:
        """A result as it was kept; None for one that failed or does not fit."""
        if not isinstance(said, dict) or said.get("kind") not in _KINDS:
            return None
        try:
            found = _KINDS[said["kind"]].model_validate({key: item for key, item in said.items() if key != "kind"})
            if isinstance(found, GraderError):
                return found if found.status == "unscored" else None
            return as_result(found, self._plans[name].grader.about())
        except (ValidationError, ValueError):
            return None

    def append(self, row: Row, results: Mapping[str, GraderResult]) -> None:
        """Keep a finished row; it is on disk after the next `flush`. What the run did not get to leaves no record."""
        said = {name: result for name, result in results.items() if not _not_begun(result)}
        stopped = len(said) < len(results)
        statuses = {result.status for result in said.values() if isinstance(result, GraderError)}
        failed = stopped or "failed" in statuses
        status = "failed" if failed else "unscored" if statuses else "scored"
        self.keep(row, status, self.said(row, said) if said else {}, stopped)

    def said(self, data: Row, *results: Mapping[str, GraderResult]) -> dict[str, Any]:
        """What each grader said."""
        return {"results": {name: result_record(result) for name, result in results[0].items()}}

    def told(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """By grader, its score or ranks, or why it has none."""
        found: dict[str, Any] = {}
        for name, result in said["results"].items():
            if result.get("kind") != "error":
                found[name] = result.get("score", result.get("rank"))
            elif about_code(result.get("status", "failed"), result.get("error_type", ""), result.get("cause")):
                found[name] = f"no score ({result.get('error_type')})"
        return found


def _not_begun(result: GraderResult) -> bool:
    return isinstance(result, GraderError) and result.error_type in NOT_BEGUN


def result_record(result: GraderResult) -> dict[str, Any]:
    """A result in JSON's types, without what is as usual."""
    kind = next((kind for kind, cls in _KINDS.items() if isinstance(result, cls)), "error")
    out = {"kind": kind, **result.model_dump(exclude_defaults=True)}
    try:
        orjson.dumps(out)
    except TypeError:  # metadata are anybody's
        out["metadata"] = orjson.loads(orjson.dumps(out["metadata"], default=str, option=orjson.OPT_NON_STR_KEYS))
    return out
