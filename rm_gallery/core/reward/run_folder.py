"""A run's folder as a reward sees it: which samples are done, and what was said about them."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from rm_gallery import __version__
from rm_gallery.core.data.schema import DataSample, Reward, RewardDimensionWithScore, RewardIssue, Step
from rm_gallery.core.engine.calls.prices import Usage
from rm_gallery.core.engine.context import RunControl, snapshot
from rm_gallery.core.engine.folder.store import SUMMARY, RunStore, record_key
from rm_gallery.core.engine.outcome import NOT_BEGUN
from rm_gallery.core.reward.merge import out_of_range, write
from rm_gallery.core.utils.identity import plain_form, shortened
from rm_gallery.core.utils.log import logger

if TYPE_CHECKING:
    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.core.reward.run import RunOptions

Said = tuple[list[RewardDimensionWithScore], RewardIssue | None, dict[str, Any] | None]


class RunFolder:
    """Keeps every finished sample of a run, and restores the finished ones when the run is continued.

    Scored and unscored samples are restored; failed ones are judged again. A record belongs to a sample's key, which holds
    all that a reward may read, and to its number among equal samples: of three equal ones each has its own.
    """

    def __init__(self, store: RunStore, reward: BaseReward) -> None:
        self._store = store
        self._reward = reward
        self._finished = store.finished()
        if store.damaged:
            self._warn(store.damaged)
        self._unfit = 0
        # hashes rather than texts: a run may have millions of samples
        self._numbers: dict[int, int] = {}
        self._ids: set[int] = set()
        self._pending: dict[int, tuple[str, int] | None] = {}
        self._noted: list[dict[str, Any]] = []
        self._guard = threading.Lock()
        self.counts = dict.fromkeys(
            ("scored", "unscored", "failed", "stopped", "reused", "duplicates", "id_collisions"), 0
        )

    @classmethod
    def open(cls, reward: BaseReward, options: RunOptions, kwargs: dict[str, Any]) -> RunFolder:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run, or when a setting or a
        keyword of the hooks cannot be told from another one.
        """
        manifest = {
            "versions": {"rm_gallery": __version__, "python": platform.python_version()},
            "reward": reward.describe(),
            "hooks": {key: shortened(plain_form(value, f"keyword '{key}'")) for key, value in sorted(kwargs.items())},
            "repeat": options.repeat,
            **(options.manifest or {}),
        }
        store = RunStore.open(options.run_dir or "", manifest, force_new=options.force_new)
        return cls(store, reward)

    def restore(self, sample: DataSample) -> bool:
        """Write to `sample` what an earlier part of the run found; False when it has to be judged.

        Raises ConfigError for a sample whose content cannot be told.
        """
        key, number = self._placed(sample)
        record = self._finished.pop(record_key(key, number), None)
        if record is not None:
            found = self._read(record, sample)
            if found is not None:
                for step, (details, issue, extra) in found:
                    write(step, self._reward, details, issue, extra)
                self.counts["reused"] += 1
                return True
            self._unfit += 1
        self._pending[id(sample)] = (key, number)
        return False

    def _placed(self, sample: DataSample) -> tuple[str, int]:
        """The sample's key, and its number among equal samples of this run."""
        key = sample.sample_key
        number = self._numbers.get(hash(key), 0)
        self._numbers[hash(key)] = number + 1
        sample_id = hash(sample.sample_id)
        if number:
            self.counts["duplicates"] += 1
        elif sample_id in self._ids:
            self.counts["id_collisions"] += 1
        self._ids.add(sample_id)
        return key, number

    def _warn(self, count: int) -> None:
        logger.warning(
            "run folder {}: {} lines of results.jsonl hold no usable result; their samples are judged again",
            self._store.folder, count,
        )  # fmt: skip

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
        rewards = [self._own(step.reward) for step in _places(sample)]
        issues = [issue for reward in rewards if reward and "issues" in reward for issue in reward["issues"]]
        stopped = any(issue["reason"] in NOT_BEGUN for issue in issues)
        statuses = {issue["status"] for issue in issues}
        status = "failed" if "failed" in statuses else "unscored" if statuses else "scored"
        with self._guard:
            pending = self._pending.pop(id(sample), None)
            key, number = pending if pending is not None else self._placed(sample)
            self.counts["stopped" if stopped else status] += 1
            if not stopped:
                record = {"id": sample.sample_id, "key": key, "status": status, "rewards": rewards}
                self._noted.append({**record, "n": number} if number else record)

    def flush(self) -> None:
        """Write what was appended, in one piece; when this returns it survives a killed process."""
        with self._guard:
            noted, self._noted = self._noted, []
        self._store.append_all(noted)

    def close(self, control: RunControl, kept: Usage) -> None:
        """Write what is noted and the summary, and release the folder; `kept` is what all parts of the run spent."""
        try:
            self.flush()
            if self._unfit:
                self._warn(self._unfit)
            spent = snapshot(control)
            before = self._spent_before()
            total = {key: _sum(before.get(key), value) for key, value in spent.items()}
            if kept.calls:  # a part that was killed left no summary
                total.update(calls=kept.calls, cost=kept.cost)
                total.update(input_tokens=kept.input_tokens, output_tokens=kept.output_tokens)
            self._store.write_summary(
                {"samples": self.counts, "spent": total, "last": spent, "stopped": control.stopped}
            )
        finally:
            self._store.close()

    def _spent_before(self) -> dict[str, Any]:
        try:
            known = orjson.loads((self._store.folder / SUMMARY).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        spent = known.get("spent") if isinstance(known, dict) else None
        return spent if isinstance(spent, dict) else {}

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


def _sum(before: Any, now: float | None) -> float | None:
    known = [value for value in (before, now) if isinstance(value, int | float)]
    return sum(known) if known else None


def _places(sample: DataSample) -> Iterator[Step]:
    """Every answer and step of a sample, in a fixed order."""
    for output in sample.output:
        yield output.answer
        yield from output.steps or ()
