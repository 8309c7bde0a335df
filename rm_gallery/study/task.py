"""What is judged with what: a reward and samples that fit each other, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.reward.judges import models_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.study.source import Data


@dataclass
class Task:
    """A reward and a benchmark's samples, which fit each other."""

    reward: BaseReward
    data: Data
    left_out: list[Judged] = field(default_factory=list)
    """Samples the reward is not asked about in this mode, unscored with the reason; complete when
    all questions are out.
    """

    benchmark: Benchmark = field(init=False)
    """Whose rule holds: that of the data."""

    def __post_init__(self) -> None:
        self.benchmark = self.data.benchmark.facing(self.reward)
        self.benchmark.check(self.reward)

    def questions(self, control: RunControl | None = None) -> Iterator[DataSample]:
        """What the reward is asked: the samples, or where the benchmark compares parts of one,
        those.

        Once the run with this `control` is over no further sample is asked about: the others are
        counted in `control.unread`.
        """
        self.left_out.clear()
        rows, shard, n = self.data.rows(), self.data.shard, 0
        as_they_are, seen = self._asked_as_they_are, set[str]()
        for sample in rows:
            held = shard is None or shard.holds(sample.sample_key)
            if control is not None and control.over:
                control.unread = held + self._count(rows, n + 1)
                return
            n += 1
            repeated = self.benchmark.once and sample.sample_id in seen
            if self.benchmark.once:
                seen.add(sample.sample_id)
            if not held:
                continue
            if repeated:
                self._leave_out(sample, "a row before it has the same id")
                continue
            if as_they_are:  # speed: nothing to ask the benchmark, row by row
                yield sample
            else:
                yield from self.asked_of(sample)

    @property
    def _asked_as_they_are(self) -> bool:
        """Whether every sample is a question, and the only one made of it."""
        kind = type(self.benchmark)
        return (
            kind.questions is Benchmark.questions
            and kind.left_out is Benchmark.left_out
            and not kind.once
        )

    def _count(self, rows: Iterator[DataSample], n: int) -> int:
        """How many samples of the shard there are still, after `n`; they are read only where
        nothing else tells.
        """
        shard, met = self.data.shard, self.data.met
        total = (
            self.data.count()
            if shard is None and met.rows in (0, met.samples + met.skipped)
            else None
        )
        if total is not None:
            return max(0, total - n - met.skipped)
        return sum(shard is None or shard.holds(sample.sample_key) for sample in rows)

    def asked_of(self, sample: DataSample) -> Iterable[DataSample]:
        """What the reward is asked about one sample; where that is nothing, it is `left_out`."""
        why = self.benchmark.left_out(sample, self.reward)
        if why is None:
            return self.benchmark.questions(sample, self.reward)
        self._leave_out(sample, why)
        return ()

    def _leave_out(self, sample: DataSample, why: str) -> None:
        self.left_out.append(self.benchmark.unasked(sample, self.reward.name, why))

    def n_questions(self) -> int | None:
        """Number of questions; reads the data where the benchmark asks several of one sample, or
        leaves some out.
        """
        if self.data.shard is None and self._asked_as_they_are:
            return self.data.count()
        return sum(1 for _ in self.questions())


class Reasons(dict[str, dict[str, Any]]):
    """Why samples or questions have no score: "status: reason" to how many (`n`), and the message
    of one (`example`).
    """

    def add(self, key: str, message: str, n: int = 1) -> None:
        """Count so many."""
        self.setdefault(key, {"n": 0, "example": message})["n"] += n

    def sorted(self) -> dict[str, dict[str, Any]]:
        """The most frequent first."""
        return dict(sorted(self.items(), key=lambda item: -item[1]["n"]))


def repeat_folder(run_dir: str | None, number: int) -> str | None:
    """The run folder of a repeat: the first one's is `run_dir` itself, the others' are below it."""
    return str(Path(run_dir) / f"repeat-{number}") if run_dir is not None and number else run_dir


def begun(
    options: RunOptions, identity: Mapping[str, Any], **changes: Any
) -> tuple[RunOptions, RunControl]:
    """The options of a run with what it is about, and its control."""
    control, manifest = options.control or RunControl(), {**identity, **(options.manifest or {})}
    return replace(options, control=control, manifest=manifest, **changes), control


def usage_of(control: RunControl) -> dict[str, Any]:
    """Tokens and cost of a run so far."""
    return {
        name: getattr(control.usage, name) for name in ("input_tokens", "output_tokens", "cost")
    }


def spent_by(control: RunControl, began: float) -> dict[str, Any]:
    """What a run that began at a moment of the monotonic clock took, by the names of `Report`."""
    return {
        "seconds": time.monotonic() - began,
        "calls": control.calls,
        "cached": control.cached,
        "usage": usage_of(control),
        "stopped": control.stopped,
    }


def judge_of(reward: Any) -> tuple[str | None, str | None]:
    """Name and endpoint of the model that judges for a reward or a grader, without credentials;
    None where none does.

    Of several, such as the judges of a composition's parts, the names and the different endpoints
    with commas between.
    """
    judges = models_of(reward)
    if not judges:
        return None, None
    endpoints: dict[str, None] = {}
    for key in (llm.endpoint_key() for llm in judges):
        url = urlsplit(key)
        host = url.netloc.rpartition("@")[2]
        endpoints[f"{url.scheme}://{host}{url.path}" if url.netloc else key] = None
    return ", ".join(llm.model for llm in judges), ", ".join(endpoints)
