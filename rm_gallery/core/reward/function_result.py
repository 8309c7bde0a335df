"""What a reward function returns: `EvaluateResult`, its metrics and step outputs, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rm_gallery.core.data.conversation import MappingRecord


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
