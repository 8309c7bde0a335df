"""A run's folder as a reward sees it: which samples are done, and what was said about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rm_gallery.core.data.schema import DataSample, Reward, RewardDimensionWithScore, RewardIssue, Step
from rm_gallery.core.engine.context import asked_by
from rm_gallery.core.engine.folder.kept import RunFolder, about_code
from rm_gallery.core.outcome import NOT_BEGUN
from rm_gallery.core.reward.merge import out_of_range, write
from rm_gallery.core.utils.identity import plain_form, shortened

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.reward.reward import BaseReward

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
