"""Judge again what is recorded: old rewards beside new ones, rollout by rollout."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.rollouts import RECORDED, RolloutConverter
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import np
from rm_gallery.core.stats.changes import OldAndNew
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import NO_INTERVAL
from rm_gallery.core.utils.errors import Cause, DataError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Record, p_text, plain
from rm_gallery.gallery.benchmarks.judgements import (
    Candidate,
    Judged,
    Judgement,
    cluster_of,
    judged,
    not_judged,
)
from rm_gallery.gallery.benchmarks.lead import between
from rm_gallery.study.benchmark import evaluate
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.table import (
    NOT_BEGUN,
    ScoreReport,
    mean_score,
    open_ended,
    range_text,
    row_status_of,
    spread_of,
)
from rm_gallery.study.table_rows import Clusters
from rm_gallery.study.winrate_figures import Mean, named

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BESIDE = (
    "n_both", "n_recorded", "old_mean", "new_mean", "spearman", "spearman_ci95", "kendall", "kendall_ci95",
    "changed", "kept",
)  # fmt: skip
"""What the run's own report has of the rollouts with both rewards, beside their difference."""
RULE = "mean over rollouts"
BROKEN = "broken_rollout"
"""The reason of a rollout that has no end to be judged."""


@dataclass(frozen=True)
class Rejudgement(Record):
    """One rollout, judged again.

    Attributes:
        id: of the sample.
        old: the recorded reward; None where none was recorded.
        new: the reward's score; None where it has none.
        status: scored, unscored or failed.
        cause: who caused a missing score.
        reason: why there is none, or what the reward said.
        parts: the recorded parts of the old reward, which are kept and not made anew.
    """

    id: str
    old: float | None
    new: float | None
    status: str
    cause: Cause | None = None
    reason: str = ""
    parts: Mapping[str, float | None] = field(default_factory=dict)


class Rejudged(ScoreReport):
    """The new rewards, and in `extra` what they are beside the recorded ones."""

    def says(self) -> list[str]:
        """Of how many rollouts old and new rewards are known, how they differ, and what was kept."""
        beside = self.extra["recorded"]
        compared = ["{changed} changed".format_map(beside)]
        if beside["p_value"] is not None:
            compared.append(f"p {p_text(beside['p_value'])}")
        for name in ("spearman", "kendall"):
            if (value := beside[name]) is not None:
                ends = range_text(beside[f"{name}_ci95"], NO_INTERVAL)
                compared.append(f"{name.capitalize()} {value:.3f} ({ends})")
        both = "{n_both} rollouts have both, {n_recorded} a recorded reward, ".format_map(beside)
        lines = [f"{both}{self.n_scored} a new one; of those with both {', '.join(compared)}"]
        if kept := ", ".join(f"{name} ({n})" for name, n in beside["kept"].items()):
            lines.append(f"kept as recorded: {kept}")
        return lines


@dataclass(frozen=True)
class RejudgeReport(Rejudged):
    """The new rewards of all rollouts that have one, and old and new ones of the same rollouts.

    Attributes:
        n_recorded: rollouts with an old reward; `n_both` have a new one as well.
        n_both: see `n_recorded`.
        old_mean: mean of the old rewards, over the rollouts that have both.
        new_mean: mean of the new ones, over the same.
        difference: new minus old, with a 95 % interval over prompts and the two-sided p-value of
            "there is none"; None in it where no rollout has both.
        spearman: rank correlation of old and new, -1..1; `spearman_ci95` is its 95 % interval over
            prompts, None from one prompt.
        spearman_ci95: see `spearman`.
        kendall: Kendall's tau-b of old and new, -1..1, with `kendall_ci95`.
        kendall_ci95: see `kendall`.
        changed: rollouts whose reward differs by more than 1e-9.
        kept: recorded parts that the new reward does not make anew, by name to how many have them.
        rollouts: each rollout, in the order of the log.
    """

    n_recorded: int = 0
    n_both: int = 0
    old_mean: float | None = None
    new_mean: float | None = None
    difference: Mean = Mean(None, None, None)
    spearman: float | None = None
    spearman_ci95: Interval | None = None
    kendall: float | None = None
    kendall_ci95: Interval | None = None
    changed: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)
    rollouts: tuple[Rejudgement, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        own = {name: plain(getattr(self, name)) for name in _BESIDE}
        difference = plain(self.difference._asdict())
        rollouts = plain(self.rollouts)
        return {**super().to_dict(), **own, "difference": difference, "rollouts": rollouts}


@door()
def rejudge(
    asked: Asked, *, reference: str | None = None, **keywords: Unpack[Keywords]
) -> RejudgeReport:
    """Score recorded rollouts with a reward, and set the new scores beside the recorded ones.

    The data are logs of verifiers, NeMo-Gym, ATIF (Harbor) or Inspect, or dumps of messages; their
    layout is found row by row, see `LAYOUTS`. A new score is that of the reward on the same sample
    at any other door. Recorded parts, metrics and times are kept and never shown to a judge. A
    rollout that was recorded without a reward has none: it is no 0. One that crashed has no new
    score, with the cause `data`: nobody finished what would be judged. With `run_dir` the same call
    continues an unfinished run, and the folder keeps what every run keeps; the recorded reward of a
    rollout stands in the metadata of its sample.

    Args:
        reference: the column of the right answer; by default the one that the layout keeps it in.

    Raises:
        DataError: a row is no recorded rollout (`on_bad_row="skip"` counts such rows), or there is
            none at all.
    """
    source = asked.source
    if reference is not None:
        source = replace(source, columns={**(source.columns or {}), "reference": reference})
    dataset = replace(
        source, benchmark="rollouts" if source.benchmark is None else source.benchmark
    ).open()
    rollouts = Rollouts(asked.reward, list(dataset.rows()))
    if not rollouts.rows:
        raise DataError(f"{dataset.name}: no rollouts found; give a log with at least one.")
    report = evaluate(
        asked.reward,
        replace(dataset, benchmark=rollouts, chosen={"rejudge": 1, **dataset.chosen}),
        hooks=asked.hooks,
        options=replace(asked.options, total=len(rollouts.rows)),
    )
    return RejudgeReport(**vars(report), **rollouts.beside, rollouts=tuple(rollouts.rows))


class Rollouts(Benchmark):
    """Recorded rollouts as what `evaluate` judges, and their count: new rewards beside old ones."""

    version = RULE
    baselines = False
    counts_all = True

    def __init__(self, reward: BaseReward, samples: Sequence[DataSample]) -> None:
        super().__init__()
        self.reward = reward
        self.rows = []
        """Every rollout, by its place in the log."""
        for sample in samples:
            recorded = (sample.metadata or {}).get(RECORDED) or {}
            old, parts = recorded.get("reward"), recorded.get("parts") or {}
            self.rows.append(
                Rejudgement(sample.sample_id, old, None, "stopped", "caller", parts=parts)
            )
        self._places = defaultdict[str, list[int]](list)
        for place in reversed(range(len(samples))):
            self._places[samples[place].sample_key].append(place)
        self._clusters = Clusters.of_names(map(cluster_of, samples)).codes
        self._statuses = np.full(len(samples), NOT_BEGUN, dtype=np.uint8)
        self.beside: dict[str, Any] = {}

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """The rollout as one sample."""
        return RolloutConverter().convert(row, where)

    def check(self, reward: BaseReward) -> None:
        """Rewards of every kind can judge a rollout."""

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Why a rollout has no end to be judged."""
        broke = ((sample.metadata or {}).get(RECORDED) or {}).get("broke")
        return f"the rollout was not finished: {broke}" if broke else None

    def unasked(self, sample: DataSample, name: str, why: str) -> Judged:
        """It is missing, and the data are the cause."""
        return not_judged(sample, name, BROKEN, why, "data")

    def judged(self, reward: BaseReward, sample: DataSample) -> Judged:
        """The rollout with a score of its own, also where its steps were judged."""
        one, value = judged(reward, sample), said_of(reward, sample.output[0]).value
        if reward.kind != "stepwise" or value is None:
            return one
        own = Judgement(Candidate(0), score=value if reward.higher_is_better else -value)
        return replace(one, judgements=[*one.judgements, own])

    def sides(self, one: Judged) -> list[str]:
        """There is one answer."""
        return ["the answer"]

    def scorer(self, seed: int = 0) -> Rollouts:
        """It counts by itself: every rollout is known from the start."""
        return self

    def add(self, one: Judged) -> float | None:
        """Count one rollout; its credit is its new reward, where that lies within 0..1."""
        place = self._places[one.sample.sample_key].pop()
        self._statuses[place] = row_status_of(one)
        row = self.rows[place]
        if (why := self.left_out(one.sample, self.reward)) is not None:
            row = replace(row, status="unscored", cause="data", reason=why)
        else:
            score = said_of(self.reward, one.sample.output[0])
            row = replace(
                row,
                new=score.value,
                status=score.status,
                cause=score.cause,
                reason=score.reason,
            )
        self.rows[place] = row
        return row.new if row.new is not None and 0.0 <= row.new <= 1.0 else None

    def report(self) -> Rejudged:
        """The mean of the new rewards, and what they are beside the old ones."""
        old, new = (
            np.array([getattr(row, name) for row in self.rows], dtype=np.float64)
            for name in ("old", "new")
        )
        bounds = open_ended(self.reward.score_range)
        part = mean_score(new, self._clusters, self._statuses, bounds)
        shares = bounds == (0.0, 1.0) and not ((old < 0.0) | (old > 1.0)).any()
        pairs = OldAndNew(old, new, self._clusters, bounds if shares else (-math.inf, math.inf))
        gap, changed, means = pairs.difference, pairs.changed(), pairs.means
        self.beside = {
            "n_recorded": int((~np.isnan(old)).sum()),
            "n_both": int(pairs.both.sum()),
            **dict(zip(("old_mean", "new_mean"), means, strict=True)),
            "difference": Mean.of(gap, 0.0),
            "changed": 0 if changed is None else round(changed.estimate * changed.n),
            "kept": Counter(part for row in self.rows for part in row.parts),
            **named(spearman=pairs.spearman, kendall=pairs.kendall),
        }
        said = f"None of {len(new):,} rollouts has both a recorded reward and a new one."
        if gap is not None:
            ends = between({"rule": "mean_score", "ci95": gap.interval()}, " to ")
            sure = f"95 % interval {ends}" if ends else NO_INTERVAL if gap.n_clusters == 1 else ""
            said = (
                f"New less recorded: {gap.estimate:+.4g}{sure and f' ({sure})'}, {means[1]:.4g} "
                f"after {means[0]:.4g}, over the {gap.n:,} of {len(new):,} rollouts with both."
            )
        spread = spread_of(new[~np.isnan(new)])
        estimate, ci95, p_value = self.beside["difference"]
        recorded = {**self.beside, "ci95": ci95, "p_value": p_value, "difference": estimate}
        extra = {**({"spread": spread} if spread else {}), "verdict": said, "recorded": recorded}
        return Rejudged(**{**vars(part), "extra": extra})


Rollouts.name = "rollouts"  # no name of the catalogue: its rows are logs of anybody
