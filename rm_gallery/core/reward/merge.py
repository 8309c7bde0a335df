"""Writing scores and reasons to outputs: by index, idempotent, and checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.schema import (
    DataSample,
    IssueStatus,
    Reward,
    RewardDimensionWithScore,
    RewardIssue,
    Step,
)
from rm_gallery.core.outcome import Outcome
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.models import build, copy_with, remake

if TYPE_CHECKING:
    from rm_gallery.core.reward.reward import BaseReward


def writable_copy(sample: DataSample) -> DataSample:
    """A copy whose outputs, answers and steps can be written to; texts and metadata are shared with the original."""
    outputs = []
    for output in sample.output:
        answer = remake(output.answer, output.answer.__dict__.copy())
        steps = None if output.steps is None else [remake(step, step.__dict__.copy()) for step in output.steps]
        outputs.append(remake(output, {"answer": answer, "steps": steps}))
    fields = sample.__dict__.copy()
    fields["output"] = outputs
    return remake(sample, fields)


def write(
    step: Step,
    reward: BaseReward,
    details: list[RewardDimensionWithScore],
    issue: RewardIssue | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Set what `reward` says about one answer or step, replacing what it said before.

    It goes under the reward's name, or under `name#hash` where a reward of that name with other settings has written.
    """
    before = step.reward
    key = reward.key_in(before) if before.sources else reward.name
    for position, detail in enumerate(details):
        if detail.source is None:
            detail.__dict__["source"] = key  # fresh from the reward: no copy is needed
        elif detail.source != key:
            details[position] = copy_with(detail, source=key)
    kept = [detail for detail in before.details if detail.source != key] + details if before.details else details
    issues = [known for known in before.issues if known.name != key] if before.issues else []
    if issue is not None:
        issues.append(issue if issue.name == key else copy_with(issue, name=key))
    extra_data = {name: value for name, value in before.extra_data.items() if name != key} if before.extra_data else {}
    if extra:
        extra_data[key] = extra
    score = None if not kept else kept[0].score if len(kept) == 1 else sum(d.score for d in kept) / len(kept)
    sources = {**before.sources, key: reward.settings_hash}
    step.__dict__["reward"] = build(
        Reward, {"score": score, "details": kept, "issues": issues, "extra_data": extra_data, "sources": sources}
    )


def write_plain(reward: BaseReward, step: Step, result: object) -> bool:
    """`write` the one score in range of a result to an answer nobody has written to; False, and nothing done, otherwise.

    That is what nearly every rule comes to, and going through all that may be is most of its cost.
    """
    if type(result) is not RewardResult or len(result.details) != 1:
        return False
    detail, before = result.details[0], step.reward
    if before.sources or before.details or before.issues or before.extra_data:
        return False
    name = reward.name
    if type(detail) is not RewardDimensionWithScore or (detail.source is not None and detail.source != name):
        return False
    score = detail.score
    low, high = reward.score_range
    if not (-math.inf if low is None else low) <= score <= (math.inf if high is None else high) or math.isinf(score):
        return False
    detail.__dict__["source"] = name
    extra = result.extra_data
    step.__dict__["reward"] = build(
        Reward,
        {
            "score": score,
            "details": [detail],
            "issues": [],
            "extra_data": {name: extra} if extra else {},
            "sources": {name: reward.settings_hash},
        },
    )
    return True


def no_reward() -> dict[str, Any]:
    """Fields of a `Reward` nobody has written to."""
    return {"score": None, "details": [], "issues": [], "extra_data": {}, "sources": {}}


def issue_of(source: str, outcome: Outcome[Any]) -> RewardIssue:
    """The record of an outcome that is not scored."""
    status: IssueStatus = "unscored" if outcome.status == "unscored" else "failed"
    return RewardIssue(
        name=source, status=status, reason=outcome.reason or "error", message=outcome.message, cause=outcome.cause
    )


def out_of_range(score: float, bounds: tuple[float | None, float | None]) -> str | None:
    """What is wrong with a score: not finite or outside the declared range; None when it is fine."""
    low, high = bounds
    if not math.isfinite(score):
        return f"The score is {score}; a score is a finite number."
    if (low is not None and score < low - 1e-9) or (high is not None and score > high + 1e-9):
        return f"The score {score} lies outside the declared range [{low}, {high}]."
    return None
