"""The founding shapes: what a reward returns for one job, read into a `Score`, and what is written of
a `Score` to answers and steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from rm_gallery.core.data.schema import (
    DataSample,
    IssueStatus,
    Reward,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardIssue,
    Step,
    cell,
    table,
)
from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.score import (
    CAUSES,
    STATUSES,
    Bounds,
    Detail,
    Score,
    failed,
    mean_of,
    out_of_range,
    scored_by,
)
from rm_gallery.core.utils.models import build, copy_with


class RewardResult(BaseModel):
    """Scores of one job and what else was found out on the way, for those who do not return a
    `Score`.

    A pointwise or stepwise reward returns `RewardDimensionWithScore`, a listwise or pairwise one
    `RewardDimensionWithRank` with one number per output, in the order of the outputs it was given.
    """

    name: str
    details: list[RewardDimensionWithScore | RewardDimensionWithRank] = Field(default_factory=list)
    extra_data: dict[str, Any] = Field(default_factory=dict)

    def _repr_html_(self) -> str:
        rows = [
            (d.name, d.score if isinstance(d, RewardDimensionWithScore) else d.rank, d.reason)
            for d in self.details
        ]
        return f"<p><b>{cell(self.name)}</b></p>" + table(("", "score", "reason"), rows)


def score_of_result(returned: object, name: str) -> Score[Any]:
    """What the reward of this name returned, as a score; failed where it is nothing that one
    returns.
    """
    if isinstance(returned, Score):
        return returned if is_plain(returned) else _plain(returned, name)
    if isinstance(returned, RewardResult):
        return _of_details(returned, name)
    return _invalid(
        f"{name} returned {type(returned).__name__}; return a Score, such as Score(0.5)"
    )


def _of_details(returned: RewardResult, name: str) -> Score[Any]:
    given: list[Any] = returned.details  # which may have been changed since it was checked
    details, lengths = [], set()
    for detail in given:
        if not isinstance(detail, RewardDimensionWithScore | RewardDimensionWithRank):
            return _invalid(
                f"{name} returned a result that holds {type(detail).__name__}; give scores or ranks"
            )
        value: Any = (
            tuple(detail.rank) if isinstance(detail, RewardDimensionWithRank) else detail.score
        )
        details.append(Detail(detail.name, value, detail.reason))
        lengths.add(len(value) if isinstance(value, tuple) else -1)
    if len(lengths) > 1:
        return _invalid(
            f"{name} returned scores beside ranks, or ranks of several lengths; give one or the other"
        )
    return scored_by(details, returned.extra_data)


def settled(reward: AnyReward, score: Score[Any]) -> Score[Any]:
    """A score that was `checked`; the worst one where the answer itself made it impossible to judge:
    no text gains by that.
    """
    worst = reward.worst_score if score.cause == "answer" and score.value is None else None
    if worst is None:
        return score
    told = {**score.components, **score.extra, "caused_by": "answer", "reason": score.code}
    return Score(worst, score.reason, extra=told)


def is_plain(score: Score[Any]) -> bool:
    """Whether it is a float, or several, with a reason and nothing beside, as most are."""
    value, beside = score.value, score.details or score.components or score.extra
    if type(value) is not float and not (type(value) is tuple and {*map(type, value)} == {float}):
        return False
    return type(score.reason) is str and not beside and score.status == "scored"


def _plain(score: Score[Any], name: str) -> Score[Any]:
    """A score of somebody's own as the library keeps it: floats, texts and mappings."""
    value, status = score.value, score.status
    try:
        value = None if value is None else _numbers(value)
        details = tuple(Detail(_text(n), _numbers(v), r and _text(r)) for n, v, r in score.details)
        if details and status == "scored":
            mean = mean_of([detail.value for detail in details])
            if value not in (None, mean) and value == value:  # NaN is named when it is `checked`
                raise ValueError(f"the value {value} beside details whose mean is {mean}")
            value = mean
        if status not in STATUSES or score.cause not in (None, *CAUSES):
            raise ValueError(f"the status {status!r:.80} and the cause {score.cause!r:.80}")
        if value is not None and status != "scored":
            raise ValueError(f"the value {value} with the status {status}")
        return Score(
            value,
            _text(score.reason or ""),
            {_text(name): _numbers(number) for name, number in score.components.items()},
            status,
            score.cause,
            _text(score.code),
            {**score.extra},
            details,
        )
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return _invalid(f"{name} returned a Score that does not fit: {error}")


def _numbers(given: Any) -> Any:
    if isinstance(given, tuple | list):
        return tuple(map(_numbers, given))
    if isinstance(given, str | bytes):  # which float() would read
        raise ValueError(f"the score {given!r:.80}; give a number or a tuple of such")
    return float(given)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r:.80} in the place of a text")
    return given


def _invalid(what: str) -> Score[Any]:
    return failed("invalid_result", f"{what}.", "rule")


def checked(
    reward: AnyReward, score: Score[Any], n: int | None = None, bounds: Bounds | None = None
) -> Score[Any]:
    """The score, or a failed one where it is not what this reward gives: a number in its range, or
    one for each of the `n` outputs or steps it judges.
    """
    value, (low, high) = score.value, reward.score_range if bounds is None else bounds
    # most rewards give one number, in their range
    beside = score.details or score.components
    if n is None and type(value) is float and not beside and math.isfinite(value):
        if (low is None or low <= value) and (high is None or value <= high):
            return score
    return _checked(reward, score, n, (low, high))


def _checked(reward: AnyReward, score: Score[Any], n: int | None, bounds: Bounds) -> Score[Any]:
    name, status = reward.name, score.status
    if score.value is None:
        return replace(
            score,
            reason=score.reason or f"{name} gave no value.",
            status="unscored" if score.ok else status,
            cause=score.cause or "rule",
            code=score.code or ("error" if status == "failed" else "not_applicable"),
        )
    beside: Mapping[str, Any] = score.components  # of a list, a number for each
    for part, number in beside.items():
        if not all(map(math.isfinite, number if isinstance(number, tuple) else (number,))):
            return _invalid(
                f"{name} gave the component '{part}' as {number}; a component is a finite number"
            )
    parts = score.details if len(score.details) > 1 else ()
    for detail in (*parts, Detail(name, score.value)):
        who = name if detail.name == name else f"{name}: {detail.name}"
        several = isinstance(detail.value, tuple)
        if several is (n is None) or (several and len(detail.value) != n):
            gave = f"{len(detail.value)} numbers" if several else "one number"
            wanted = "one number" if n is None else f"one for each of the {n} it judges"
            return _invalid(f"{who} gave {gave}; a {reward.kind} reward gives {wanted}")
        for number in detail.value if several else (detail.value,):
            problem = out_of_range(who, number, bounds, reward.range_declared)
            if problem is not None:
                return problem
    return score


# -- written to outputs ----------------------------------------------------------------------------


def write(
    step: Step,
    reward: AnyReward,
    details: list[RewardDimensionWithScore],
    issue: RewardIssue | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Set what `reward` says about one answer or step, replacing what it said before.

    It goes under the reward's name, or under `name#hash` where a reward of that name with other
    settings has written.
    """
    before = step.reward
    key = reward.key_in(before) if before.sources else reward.name
    for position, detail in enumerate(details):
        if detail.source is None:
            detail.__dict__["source"] = key  # fresh from the reward: no copy is needed
        elif detail.source != key:
            details[position] = copy_with(detail, source=key)
    issues = [] if issue is None else [issue if issue.name == key else copy_with(issue, name=key)]
    extra_data, sources = {key: extra} if extra else {}, {key: reward.settings_hash}
    if before.sources or before.details or before.issues or before.extra_data:
        details = [detail for detail in before.details if detail.source != key] + details
        issues = [known for known in before.issues if known.name != key] + issues
        others = {name: value for name, value in before.extra_data.items() if name != key}
        extra_data, sources = {**others, **extra_data}, {**before.sources, **sources}
    scores = [detail.score for detail in details]
    score = scores[0] if len(scores) == 1 else mean_of(scores) if scores else None
    step.__dict__["reward"] = build(
        Reward,
        {
            "score": score,
            "details": details,
            "issues": issues,
            "extra_data": extra_data,
            "sources": sources,
        },
    )


def no_reward() -> dict[str, Any]:
    """Fields of a `Reward` nobody has written to."""
    return {"score": None, "details": [], "issues": [], "extra_data": {}, "sources": {}}


def issue_of(source: str, outcome: Score[Any]) -> RewardIssue:
    """The record of an outcome that is not scored."""
    status: IssueStatus = "unscored" if outcome.status == "unscored" else "failed"
    return RewardIssue(
        name=source,
        status=status,
        reason=outcome.code or "error",
        message=outcome.reason,
        cause=outcome.cause,
    )


def write_scores(reward: AnyReward, sample: DataSample, scores: Sequence[Score[Any]]) -> None:
    """Write to each output what was said of it, or to its steps what was said of each."""
    places = reward.kind.places
    for output, score in zip(sample.output, scores, strict=True):
        for place, own in zip(places(output), score.steps or (score,), strict=True):
            write_score(reward, place, own)


def write_score(reward: AnyReward, step: Step, score: Score[Any]) -> None:
    """Write a score to its answer or step, or the reason why there is none."""
    beside = {**score.components, **score.extra} if score.components or score.extra else {}
    if score.value is None:
        return write(step, reward, [], issue_of(reward.name, score), beside)
    before, own = step.reward, reward.name
    if before.sources or before.details or before.issues or before.extra_data or score.details:
        details = [_detail(own, *each) for each in score.dimensions(own)]
        return write(step, reward, details, None, beside)
    # most rewards give one number to an answer that nobody has written to
    step.__dict__["reward"] = build(
        Reward,
        {
            "score": score.value,
            "details": [_detail(own, own, score.value, score.reason or None)],
            "issues": [],
            "extra_data": {own: beside} if beside else {},
            "sources": {own: reward.settings_hash},
        },
    )
    return None


def _detail(source: str, name: str, score: float, reason: str | None) -> RewardDimensionWithScore:
    fields = {"name": name, "reason": reason, "source": source, "score": score}
    return build(RewardDimensionWithScore, fields)
