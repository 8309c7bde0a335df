"""A run's folder as a reward sees it: which samples are done, and what was said about them."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from rm_gallery._version import __version__
from rm_gallery.core.data.schema import DataSample, Reward, Step
from rm_gallery.core.engine.context import RunControl, snapshot
from rm_gallery.core.engine.folder.store import SUMMARY, RunStore
from rm_gallery.core.engine.outcome import NOT_BEGUN
from rm_gallery.core.reward.merge import write

if TYPE_CHECKING:
    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.core.reward.run import RunOptions


class RunFolder:
    """Keeps every finished sample of a run, and restores the finished ones when the run is continued.

    Scored and unscored samples are restored; failed ones are judged again. A sample whose content changed under the same
    id is judged again as well.
    """

    def __init__(self, store: RunStore, source: str) -> None:
        self._store = store
        self._source = source
        self._finished = store.finished()
        self._noted: list[dict[str, Any]] = []
        self._guard = threading.Lock()
        self.counts = {"scored": 0, "unscored": 0, "failed": 0, "reused": 0}

    @classmethod
    def open(cls, reward: BaseReward, options: RunOptions, kwargs: dict[str, Any]) -> RunFolder:
        """Open or continue the folder; ConfigError with a diff when it belongs to another run."""
        manifest = {
            "versions": {"rm_gallery": __version__, "python": platform.python_version()},
            "reward": reward.describe(),
            "hooks": sorted(kwargs),
            "repeat": options.repeat,
            **(options.manifest or {}),
        }
        store = RunStore.open(options.run_dir or "", manifest, force_new=options.force_new)
        return cls(store, reward.name)

    def restore(self, sample: DataSample) -> bool:
        """Write to `sample` what an earlier part of the run found; False when it has to be judged."""
        record = self._finished.get(sample.sample_id)
        if record is None or record["status"] == "failed" or record["hash"] != sample.content_hash():
            return False
        for step, data in zip(_places(sample), record["rewards"], strict=True):
            if data is not None:
                reward = Reward.model_validate(data)
                issue = reward.issues[0] if reward.issues else None
                write(step, self._source, reward.details, issue, reward.extra_data.get(self._source))
        self.counts["reused"] += 1
        return True

    def append(self, sample: DataSample) -> None:
        """Keep a finished sample; it is on disk after the next `flush`. One the run did not get to leaves no record."""
        rewards = [self._own(step.reward) for step in _places(sample)]
        issues = [issue for reward in rewards if reward and "issues" in reward for issue in reward["issues"]]
        statuses = {issue["status"] for issue in issues}
        status = "failed" if "failed" in statuses else "unscored" if statuses else "scored"
        self.counts[status] += 1
        if any(issue["reason"] in NOT_BEGUN for issue in issues):
            return
        record = {"id": sample.sample_id, "status": status, "hash": sample.content_hash(), "rewards": rewards}
        with self._guard:
            self._noted.append(record)

    def flush(self) -> None:
        """Write what was appended, in one piece; when this returns it survives a killed process."""
        with self._guard:
            noted, self._noted = self._noted, []
        self._store.append_all(noted)

    def close(self, control: RunControl) -> None:
        """Write what is noted and the summary, and release the folder."""
        try:
            self.flush()
            spent = snapshot(control)
            before = self._summary().get("spent", {})
            total = {key: _sum(before.get(key), value) for key, value in spent.items()}
            self._store.write_summary(
                {"samples": self.counts, "spent": total, "last": spent, "stopped": control.stopped}
            )
        finally:
            self._store.close()

    def _summary(self) -> dict[str, Any]:
        try:
            known = orjson.loads((self._store.folder / SUMMARY).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return known if isinstance(known, dict) else {}

    def _own(self, reward: Reward) -> dict[str, Any] | None:
        details = [
            {"name": d.name, "reason": d.reason, "score": d.score, "source": d.source}
            for d in reward.details
            if d.source == self._source
        ]
        own: dict[str, Any] = {"details": details}
        if reward.issues:
            own["issues"] = [i.model_dump() for i in reward.issues if i.name == self._source]
        if not details and not own.get("issues"):
            return None
        extra = reward.extra_data.get(self._source)
        if extra:
            own["extra_data"] = {self._source: extra}
        return own


def _sum(before: Any, now: float | None) -> float | None:
    known = [value for value in (before, now) if isinstance(value, int | float)]
    return sum(known) if known else None


def _places(sample: DataSample) -> Iterator[Step]:
    """Every answer and step of a sample, in a fixed order."""
    for output in sample.output:
        yield output.answer
        yield from output.steps or ()
