"""Results of graders in the founding shapes: a score, a rank, or an error, made and read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.score import Bounds, Score, out_of_range, outside
from rm_gallery.core.utils.errors import Cause, ConfigError
from rm_gallery.core.utils.models import build


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
        usage: what it cost: calls, input_tokens, output_tokens, seconds; empty where nothing was
            asked.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)

    kind: ClassVar[Literal["score", "rank", "error"]]
    name: str = ""
    reason: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, float] = Field(default_factory=dict)

    if TYPE_CHECKING:

        @property
        def score(self) -> float:
            """Of a GraderScore; NaN of a GraderError. A GraderRank has none."""

    @property
    def ok(self) -> bool:
        """Whether there is a score or a rank."""
        return self.kind != "error"


class GraderScore(GraderResult):
    """One response's score, a finite number inside `range`.

    Attributes:
        score: in the grader's own units.
        range: lowest and highest possible score; None where there is no bound.
        higher_is_better: the direction of the score.
        threshold: from where on (or down to where, if lower is better) the response passes; None
            without one.
    """

    kind = "score"
    score: float
    range: Bounds = (None, None)
    higher_is_better: bool = True
    threshold: float | None = None

    @field_validator("score", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> float:
        return finite(value)

    @property
    def normalized(self) -> float:
        """The score mapped to [0, 1], 1 being best; ConfigError without bounds."""
        low, high = self.range
        if low is None or high is None or not high > low:
            raise ConfigError(
                f"{self.name}: the score range {self.range} has no two bounds, so {self.score} "
                f"cannot be normalised; give the "
                "grader a score_range."
            )
        share = (self.score - low) / (high - low)
        return share if self.higher_is_better else 1.0 - share

    def passed(self, threshold: float | None = None) -> bool:
        """Whether the score reaches a threshold in the grader's units: the given one, else its own;
        ConfigError without any.
        """
        wanted = self.threshold if threshold is None else threshold
        if wanted is None:
            raise ConfigError(f"{self.name} has no threshold; pass one: result.passed(0.5).")
        return self.score >= wanted if self.higher_is_better else self.score <= wanted


class GraderRank(GraderResult):
    """The order of several responses.

    Attributes:
        rank: the place of each response, 1 being best: `rank[i]` is the place of response i. Equal
            places are a tie.
    """

    kind = "rank"
    rank: list[int]

    @field_validator("rank")
    @classmethod
    def _places(cls, value: list[int]) -> list[int]:
        n = len(value)
        if not value or any(not 1 <= place <= n for place in value) or 1 not in value:
            raise ValueError(
                f"each response has a place from 1 to their number and one is first, found {value}"
            )
        return value

    @property
    def order(self) -> list[int]:
        """The responses' positions, counted from 0, best first; equal ones in the order given."""
        return sorted(range(len(self.rank)), key=self.rank.__getitem__)


class GraderError(GraderResult):
    """There is no score: the judge could not be read, the call failed, a field was missing. Prints
    as nan, sums to nan.

    Attributes:
        error: what went wrong and the next step.
        error_type: a short code: parse, missing_field, data, deadline, budget, stopped, rate_limit,
            transient, fatal, …
        status: `unscored` where there is nothing to judge by or no verdict to read, `failed` where
            something broke.
        cause: who brought it about: endpoint, judge, answer, data, rule or caller.
        range: of the scores its grader gives; `higher_is_better` their direction. Both as of
            `GraderScore`.
    """

    kind = "error"
    error: str
    error_type: str = "error"
    status: Literal["unscored", "failed"] = "failed"
    cause: Cause | None = None
    range: Bounds = (None, None)
    higher_is_better: bool = True

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


KINDS: dict[str, type[GraderResult]] = {
    each.kind: each for each in (GraderScore, GraderRank, GraderError)
}


def usage_sum(results: Iterable[GraderResult | Score[Any]]) -> dict[str, float]:
    """What results cost together."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.usage or {})
    return dict(total)


def places_of(score: Score[tuple[float, ...]]) -> list[int]:
    """The place of each response by its number, 1 being best; equal numbers share one."""
    values = score.value or ()
    return [1 + sum(other > own for other in values) for own in values]


RunnerResult = dict[str, list[GraderResult]]
"""Results by grader (or aggregator) name, each list in the order of the rows."""


# -- read, and written -----------------------------------------------------------------------------

OWN = "(own)"
"""Under what the extra data of a score hold what the result it was read of says itself."""
_OF_GRADER = {"name": "", "range": (None, None), "higher_is_better": True, "threshold": None}
"""What a result says where its grader says it else, and what it is where neither does."""


def is_number(value: object) -> bool:
    """Whether it is a number, True or False, or what becomes one."""
    return hasattr(value, "__float__") and not isinstance(value, str)


def finite(value: Any, what: str = "a score") -> float:
    """A number as a float; ValueError, which names what was found, for what is no finite number."""
    if not is_number(value):
        raise ValueError(f"{what} is a number, found {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # 10**400
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{what} is a finite number, found {number}")
    return number


def score_of(returned: Any, grader: AnyReward | None = None) -> Score[Any]:
    """What a grader returned, read: a number, True or False, a dict of fields, a Score, or a result,
    which may name a range of its own. A score outside its range is a failed one, never a clamp.

    Raises ValueError, which names what was found, where it is none of these.
    """
    own: dict[str, Any] = {}
    beside: dict[str, Any]
    if is_number(returned):  # as most are
        number, beside = finite(returned), {}
    elif isinstance(returned, Score) and returned.value is None:
        return replace(returned, status="failed") if returned.ok else returned
    else:
        result = returned if isinstance(returned, GraderResult) else _result_of_fields(returned)
        # an error tells what went wrong, and may give a reason beside that
        names = (*_OF_GRADER, "reason") if isinstance(result, GraderError) else _OF_GRADER
        said = {each: getattr(result, each) for each in names if each in result.model_fields_set}
        own = {each: value for each, value in said.items() if value != ""}
        beside = {
            "extra": {**result.metadata, OWN: own} if own else result.metadata,
            "usage": result.usage,
        }
        if isinstance(result, GraderError):
            beside |= {"status": result.status, "cause": result.cause, "code": result.error_type}
            return Score(None, result.error, **beside)
        if isinstance(result, GraderRank):
            return Score(tuple(-float(place) for place in result.rank), result.reason, **beside)
        number, beside["reason"] = result.score, result.reason
    bounds = (None, None) if grader is None else grader.score_range
    given = own.get("range", bounds)
    if out_of_range("", number, given) is None:
        return Score(number, **beside)
    declared = grader is None or given != bounds or grader.range_declared
    name = own.get("name", "a result") if grader is None else grader.name
    return outside(name, number, given, declared)


def _result_of_fields(returned: Any) -> GraderResult:
    if isinstance(returned, Score):
        gave = {"score": returned.value}
        if isinstance(returned.value, tuple):  # NaN beside a number would be a tie
            gave = {"rank": places_of(Score(tuple(map(finite, returned.value))))}
        for part, number in returned.components.items():
            finite(number, f"the component '{part}'")
        metadata = {**returned.components, **returned.extra}
        returned = {
            **metadata.pop(OWN, {}),
            **gave,
            "reason": returned.reason,
            "metadata": metadata,
            "usage": dict(returned.usage or {}),
        }
    if not isinstance(returned, Mapping):
        raise ValueError(
            f"a number, True or False, a dict or a Score is needed, found {type(returned).__name__}"
        )
    if "rank" in returned:
        return GraderRank(**returned)
    if "score" not in returned:
        raise ValueError(
            f"a dict with 'score' is needed, found the keys {sorted(map(str, returned))}"
        )
    fields = {key: item for key, item in returned.items() if key in GraderScore.model_fields}
    rest = {key: item for key, item in returned.items() if key not in fields}
    if rest:
        fields["metadata"] = {**fields.get("metadata", {}), **rest}
    return GraderScore(**fields)


def scale_of(score: Score[Any], grader: AnyReward) -> tuple[Bounds, bool]:
    """The range that a score is of, and whether higher is better there: of the result it was read
    of, else of its grader.
    """
    own = score.extra.get(OWN, {})
    low, high = own.get("range", grader.score_range)
    return (low, high), own.get("higher_is_better", grader.higher_is_better)


def said_alone(score: Score[Any]) -> Score[Any]:
    """The score without what the result that it was read of says itself."""
    return replace(score, extra={key: each for key, each in score.extra.items() if key != OWN})


def about_of(grader: Any) -> dict[str, Any]:
    """What each score of a grader carries: name, range, direction, threshold."""
    return {
        "name": grader.name,
        "range": grader.score_range,
        "higher_is_better": grader.higher_is_better,
        "threshold": grader.threshold,
    }


def as_result(score: Score[Any], about: Mapping[str, Any]) -> GraderResult:
    """A score in its founding shape, by what its grader says `about` itself (name, range, direction,
    threshold), as it is handed out.
    """
    metadata = {**score.components, **score.extra}
    said = {**_OF_GRADER, **about, **metadata.pop(OWN, {})}
    fields: dict[str, Any] = {
        "name": said["name"],
        "reason": said.get("reason", score.reason),
        "metadata": metadata,
        "usage": dict(score.usage or {}),
    }
    scale = {"range": said["range"], "higher_is_better": said["higher_is_better"]}
    if score.value is None:
        status = "unscored" if score.status == "unscored" else "failed"
        fields |= {"error": score.reason, "error_type": score.code, "status": status}
        return build(GraderError, {**fields, "cause": score.cause, **scale})
    if isinstance(score.value, tuple):
        return build(GraderRank, {**fields, "rank": places_of(score)})
    fields["score"] = score.value
    return build(GraderScore, {**fields, **scale, "threshold": said["threshold"]})
