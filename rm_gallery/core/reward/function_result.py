"""What a reward function returns: `EvaluateResult`, its metrics and step outputs, checked.

These are the founding shapes, for doors and pipes alone: inside, a `Score` is what travels.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rm_gallery.core.data.conversation import MappingRecord
from rm_gallery.core.score import Score, failed, scored, unscored
from rm_gallery.core.utils.errors import Cause

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _number(value: Any) -> Any:
    """A number as a plain float, also one of numpy or torch; texts are no numbers."""
    if value is None or isinstance(value, (str, bytes)):
        raise ValueError(f"a number is needed, not {'None' if value is None else 'text'}")
    return value if isinstance(value, int) or not hasattr(value, "__float__") else float(value)


FiniteScore = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]


class _Record(MappingRecord):
    """Has the fields below and no other."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class MetricResult(_Record):
    """One component of a result: a finite score, why, and whether it could be judged at all."""

    score: FiniteScore
    is_score_valid: bool = True
    reason: str = ""


class StepOutput(_Record):
    """What was found out about one step of a conversation."""

    step_index: int | str
    base_reward: FiniteScore
    metrics: dict[str, Any] = Field(default_factory=dict)
    reason: str | None = None
    terminated: bool = False
    control_plane_info: dict[str, Any] | None = None


class EvaluateResult(_Record):
    """What a reward function says about a conversation: a finite score, why, and the components it
    was made of.

    `is_score_valid=False` says that there was nothing to judge by (unscored, never a 0); `error`
    that the judging broke.
    """

    score: FiniteScore
    is_score_valid: bool = True
    reason: str | None = None
    metrics: dict[str, MetricResult] = Field(default_factory=dict)
    step_outputs: list[StepOutput] | None = None
    error: str | None = None


def checked_result(value: Any, name: str) -> EvaluateResult:
    """What a function returned as a result: a result, a mapping of its fields, or a number alone."""
    if isinstance(value, EvaluateResult):
        if not math.isfinite(value.score):  # set after it was made
            raise ValueError(f"{name} gave the score {value.score}; a score is a finite number.")
        return value
    known = EvaluateResult.model_fields.keys()
    if isinstance(value, BaseModel) and type(value).model_fields.keys() <= known:
        value = value.model_dump()
    if isinstance(value, Mapping):
        return EvaluateResult.model_validate(dict(value))
    if value is None:
        reason = f"{name} returned None: no score."
        return EvaluateResult(score=0.0, is_score_valid=False, reason=reason)
    if isinstance(value, Sequence) or not hasattr(value, "__float__"):
        raise TypeError(
            f"{name} returned {type(value).__name__}; a reward function returns an EvaluateResult, "
            f"a dict of its fields or a number."
        )
    return EvaluateResult(score=value)


def score_of_evaluated(returned: object, causes: Mapping[str, Cause] = {}) -> Score[float]:
    """A result, or a mapping of its fields, as a score, with the valid metrics as components and all
    metrics and step outputs, as plain data, in `extra`.

    An invalid result is unscored. An error is failed: it begins with one of the codes in `causes`
    and a colon, or is a function_error as a whole, which `extra` keeps.

    Raises:
        ValueError: its fields do not fit, or are nested too deep to be plain data.
    """
    result = EvaluateResult.model_validate(returned)
    parts = result.model_dump(include={"metrics", "step_outputs"})
    extra = {name: part for name, part in parts.items() if part}
    reason = result.reason or ""
    if result.error:
        code, _, reason = result.error.partition(": ")
        if code not in causes:
            code, reason = "function_error", result.error
            extra["error"] = reason
        return replace(failed(code, reason, causes.get(code, "rule")), extra=extra)
    if not result.is_score_valid:
        return replace(unscored("invalid_score", reason, "rule"), extra=extra)
    valid = {name: metric.score for name, metric in result.metrics.items() if metric.is_score_valid}
    return scored(float(result.score), reason, valid, extra)


def evaluated(score: Score[float]) -> EvaluateResult:
    """A score as the result that it was read from; `extra` holds fields that it is to have besides,
    or instead.
    """
    broke = score.status == "failed"
    message = f"{score.code}: {score.reason}" if broke else score.reason or None
    fields = {"score": score.value or 0.0, "is_score_valid": score.ok}
    return EvaluateResult.model_validate(
        {**fields, "error" if broke else "reason": message, **score.extra}
    )


def each_evaluated(scores: Iterable[Score[float]]) -> list[EvaluateResult]:
    """Scores as results."""
    return list(map(evaluated, scores))


def told_as(
    shape: Callable[[T], R],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Make a coroutine function a door: what it gives is told in this shape."""

    def door(inside: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @wraps(inside)
        async def told(*args: P.args, **kwargs: P.kwargs) -> R:
            return shape(await inside(*args, **kwargs))

        return told

    return door
