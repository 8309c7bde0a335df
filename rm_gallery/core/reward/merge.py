"""Writing scores and reasons to outputs: by index, idempotent, and checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rm_gallery.core.data.schema import (
    DataSample,
    IssueStatus,
    Reward,
    RewardDimensionWithScore,
    RewardIssue,
    Step,
)
from rm_gallery.core.engine.context import asked_by
from rm_gallery.core.engine.run_folder import RunFolder, about_code
from rm_gallery.core.outcome import NOT_BEGUN, Outcome
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.identity import plain_form, shortened
from rm_gallery.core.utils.models import build, copy_with, remake

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
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


Said = tuple[list[RewardDimensionWithScore], RewardIssue | None, dict[str, Any] | None]


class RewardFolder(RunFolder):
    """Keeps every finished sample of a reward's run; scored and unscored ones are restored, failed ones judged again."""

    def __init__(self, reward: BaseReward, options: RunOptions, kwargs: dict[str, Any]) -> None:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run, or when a setting or a
        keyword of the hooks cannot be told from another one.
        """
        hooks = {key: shortened(plain_form(value, f"keyword '{key}'")) for key, value in sorted(kwargs.items())}
        super().__init__(options, {"reward": reward.describe(), "hooks": hooks})
        self._reward, self._hooks = reward, kwargs

    def restore(self, sample: DataSample) -> bool:
        """Write to `sample` what an earlier part of the run found; False when it has to be judged.

        Raises ConfigError when the judge would be asked something else now.
        """
        asks = self._reward.judged and self._reward.is_async()
        if asks and (record := self.record_of(sample)) is not None:
            evaluate = self._reward._evaluate  # type: ignore[attr-defined]  # checked when the reward was built
            ways = (partial(evaluate, job.sample, **self._hooks) for job in self._reward.plan(sample))
            self.check_asked(sample, record, asked_by(ways))
        found = self.known(sample, lambda record: self._read(record, sample))
        for step, (details, issue, extra) in found or ():
            write(step, self._reward, details, issue, extra)
        return found is not None

    def fits(self, record: dict[str, Any], data: DataSample) -> bool:
        """Whether it says something of each of its answers and steps."""
        return self._read(record, data) is not None

    def _read(self, record: dict[str, Any], sample: DataSample) -> list[tuple[Step, Said]] | None:
        """What a record says about each place of the sample; None when it does not fit it."""
        rewards, places = record.get("rewards"), list(_places(sample))
        if not isinstance(rewards, list) or len(rewards) != len(places):
            return None
        found = []
        for step, data in zip(places, rewards, strict=True):
            if data is None:
                continue
            try:
                said = Reward.model_validate(data, strict=True)
            except ValidationError:
                return None
            if any(out_of_range(detail.score, self._reward.score_range) for detail in said.details):
                return None
            issue = said.issues[0] if said.issues else None
            if issue is None and not said.details:
                return None
            found.append((step, (said.details, issue, said.extra_data.get(""))))
        return found if found or not places else None

    def append(self, sample: DataSample) -> None:
        """Keep a finished sample; it is on disk after the next `flush`. One the run did not get to leaves no record."""
        said = self.said(sample)
        issues = [issue for reward in said["rewards"] if reward for issue in reward.get("issues", ())]
        stopped = any(issue["reason"] in NOT_BEGUN for issue in issues)
        statuses = {issue["status"] for issue in issues}
        status = "failed" if "failed" in statuses else "unscored" if statuses else "scored"
        self.keep(sample, status, {} if stopped else said, stopped)

    def said(self, data: DataSample, *results: Any) -> dict[str, Any]:
        """What the reward said of each answer and step."""
        return {"rewards": [self._own(step.reward) for step in _places(data)]}

    def told(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """By answer and step, its scores, or why it has none."""
        found: dict[str, Any] = {}
        for number, reward in enumerate(said["rewards"]):
            issues = reward.get("issues") or () if reward else ()
            if reward and all(about_code(issue["status"], issue["reason"], issue.get("cause")) for issue in issues):
                scores = [detail["score"] for detail in reward["details"]]
                found[f"answer {number + 1}"] = scores or [f"no score ({issue['reason']})" for issue in issues]
        return found

    def _own(self, reward: Reward) -> dict[str, Any] | None:
        key = self._reward.key_in(reward)
        details = [{"name": d.name, "reason": d.reason, "score": d.score} for d in reward.details if d.source == key]
        own: dict[str, Any] = {"details": details}
        if reward.issues:
            own["issues"] = [i.model_dump() for i in reward.issues if i.name == key]
        if not details and not own.get("issues"):
            return None
        extra = reward.extra_data.get(key)
        if extra:
            own["extra_data"] = {"": extra}
        return own


def _places(sample: DataSample) -> Iterator[Step]:
    """Every answer and step of a sample, in a fixed order."""
    for output in sample.output:
        yield output.answer
        yield from output.steps or ()
