"""Writing scores and reasons to outputs: by index, idempotent, and checked."""

from __future__ import annotations

import math
from typing import Any

from rm_gallery.core.data.schema import (
    DataOutput,
    DataSample,
    IssueStatus,
    Reward,
    RewardDimensionWithScore,
    RewardIssue,
    Step,
)
from rm_gallery.core.engine.outcome import Outcome
from rm_gallery.core.utils.models import build, copy_with


def writable_copy(sample: DataSample) -> DataSample:
    """A copy whose outputs, answers and steps can be written to; texts and metadata are shared with the original."""
    return copy_with(sample, output=[_copy_output(output) for output in sample.output])


def _copy_output(output: DataOutput) -> DataOutput:
    steps = None if output.steps is None else [copy_with(step) for step in output.steps]
    return build(DataOutput, {"answer": copy_with(output.answer), "steps": steps})


def write(
    step: Step,
    source: str,
    details: list[RewardDimensionWithScore],
    issue: RewardIssue | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Set what reward `source` says about one answer or step, replacing what it said before."""
    before = step.reward
    kept = [detail for detail in before.details if detail.source != source] + details if before.details else details
    issues = [known for known in before.issues if known.name != source] if before.issues else []
    if issue is not None:
        issues.append(issue)
    extra_data = {key: value for key, value in before.extra_data.items() if key != source} if before.extra_data else {}
    if extra:
        extra_data[source] = extra
    score = None if not kept else kept[0].score if len(kept) == 1 else sum(d.score for d in kept) / len(kept)
    step.__dict__["reward"] = build(
        Reward, {"score": score, "details": kept, "issues": issues, "extra_data": extra_data}
    )


def no_reward() -> dict[str, Any]:
    """Fields of a `Reward` nobody has written to."""
    return {"score": None, "details": [], "issues": [], "extra_data": {}}


def issue_of(source: str, outcome: Outcome[Any]) -> RewardIssue:
    """The record of an outcome that is not scored."""
    status: IssueStatus = "unscored" if outcome.status == "unscored" else "failed"
    return RewardIssue(name=source, status=status, reason=outcome.reason or "error", message=outcome.message)


def out_of_range(score: float, bounds: tuple[float | None, float | None]) -> str | None:
    """What is wrong with a score: not finite or outside the declared range; None when it is fine."""
    low, high = bounds
    if not math.isfinite(score):
        return f"The score is {score}; a score is a finite number."
    if (low is not None and score < low - 1e-9) or (high is not None and score > high + 1e-9):
        return f"The score {score} lies outside the declared range [{low}, {high}]."
    return None
