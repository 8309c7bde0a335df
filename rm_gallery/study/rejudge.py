"""Judge again what is recorded: old rewards beside new ones, rollout by rollout."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.rollouts import RECORDED
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import run_stream
from rm_gallery.core.score import Score, unscored
from rm_gallery.core.stats import np
from rm_gallery.core.stats.agreement import kendall_tau_b, spearman
from rm_gallery.core.utils.errors import Cause, DataError
from rm_gallery.gallery.benchmarks.figures import Record, plain
from rm_gallery.gallery.benchmarks.judgements import Judged, judged, not_judged
from rm_gallery.gallery.benchmarks.lead import between
from rm_gallery.study.conflicts import samples_of
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.runs import kept_in, sample_record
from rm_gallery.study.table import (
    ScoreReport,
    mean_score,
    open_ended,
    row_status_of,
    spread_of,
)
from rm_gallery.study.table_rows import Clusters
from rm_gallery.study.task import Reasons, begun, judge_of, spent_by
from rm_gallery.study.winrate_figures import Mean, mean_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BESIDE = ("n_both", "n_recorded", "old_mean", "new_mean", "spearman", "kendall", "changed", "kept")
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


@dataclass(frozen=True)
class RejudgeReport(ScoreReport):
    """The new rewards of all rollouts that have one, and old and new ones of the same rollouts.

    Attributes:
        n_recorded: rollouts with an old reward; `n_both` have a new one as well.
        n_both: see `n_recorded`.
        old_mean: mean of the old rewards, over the rollouts that have both.
        new_mean: mean of the new ones, over the same.
        difference: new minus old, with a 95 % interval over prompts and the two-sided p-value of
            "there is none"; None in it where no rollout has both.
        spearman: rank correlation of old and new, -1..1.
        kendall: Kendall's tau-b of old and new, -1..1.
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
    kendall: float | None = None
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
def rejudge(asked: Asked, **keywords: Unpack[Keywords]) -> RejudgeReport:
    """Score recorded rollouts with a reward, and set the new scores beside the recorded ones.

    The data are logs of verifiers, NeMo-Gym, ATIF (Harbor) or Inspect, or dumps of messages; their
    layout is found row by row, see `LAYOUTS`. A new score is that of the reward on the same sample
    at any other door. Recorded parts, metrics and times are kept and never shown to a judge. A
    rollout that was recorded without a reward has none: it is no 0. One that crashed has no new
    score, with the cause `data`: nobody finished what would be judged. With `run_dir` the same call
    continues an unfinished run, and the folder keeps what every run keeps; the recorded reward of a
    rollout stands in the metadata of its sample.

    Raises:
        DataError: a row is no recorded rollout (`on_bad_row="skip"` counts such rows), or there is
            none at all.
    """
    source = asked.source
    source = replace(source, benchmark="rollouts" if source.benchmark is None else source.benchmark)
    samples, name, identity = samples_of(source)
    if not samples:
        raise DataError(f"{name}: no rollouts found; give a log with at least one.")
    built = asked.reward
    about = {"rejudge": 1, "benchmark": "rollouts", "rule": RULE, **identity}
    whole = [sample for sample in samples if not _broke(sample)]
    chosen, control = begun(asked.options, about, total=len(whole))
    began_at, reasons = time.monotonic(), Reasons()
    rows: list[tuple[Rejudgement, Judged]] = []
    scored = library_loop.driven(run_stream(built, whole, chosen, asked.hooks, streaming=True))
    with closing(scored), kept_in(chosen.run_dir) as keeping:
        # the run ends where its last sample is asked for
        for sample in chain(scored, filter(_broke, samples)):
            row, one = _judged_again(built, sample)
            if row.new is None:
                reasons.add(
                    f"{one.status}: {one.issues[0].reason if one.issues else ''}", row.reason
                )
            rows.append((row, one))
            if keeping is not None:
                value = row.new
                share = value if value is not None and 0.0 <= value <= 1.0 else None
                record = sample_record(built, one, share)
                if (
                    value is not None
                ):  # of steps that were judged the rollout's own score stands there
                    record["scores"] = [value if built.higher_is_better else -value]
                keeping.add(record)
    ended, crashed = iter(rows[: len(whole)]), iter(rows[len(whole) :])
    rows = [next(crashed if _broke(sample) else ended) for sample in samples]
    judge, endpoint = judge_of(built)
    values = np.array([row.new for row, _ in rows], dtype=np.float64)
    part = mean_score(
        values,
        Clusters.of_names(one.cluster for _, one in rows).codes,
        np.arange(len(rows)),
        np.array([row_status_of(one) for _, one in rows], dtype=np.uint8),
        open_ended(built.score_range),
    )
    spread, beside = spread_of(values[~np.isnan(values)]), _beside(built, rows)
    recorded = {
        **beside,
        **dict(zip(("difference", "ci95", "p_value"), beside["difference"], strict=True)),
    }
    extra = {
        **({"spread": spread} if spread else {}),
        "verdict": _verdict(len(rows), **beside),
        "recorded": recorded,
    }
    out = RejudgeReport(
        **{**vars(part), "extra": extra},
        benchmark="rollouts",
        version=RULE,
        reward=built.name,
        judge=judge,
        endpoint=endpoint,
        data=name,
        reasons=reasons.sorted(),
        rollouts=tuple(row for row, _ in rows),
        **beside,
        **spent_by(control, began_at),
    )
    if keeping is not None:
        keeping.finish(ScoreReport.to_dict(out))
    return out


def _verdict(n: int, n_both: int, difference: Mean, **means: Any) -> str:
    """How old and new rewards differ, in a sentence."""
    if difference.estimate is None:
        return f"None of {n:,} rollouts has both a recorded reward and a new one."
    ends = between({"rule": "mean_score", "ci95": difference.ci95}, " to ")
    within = f" (95 % interval {ends})" if ends else ""
    return (
        f"New less recorded: {difference.estimate:+.4g}{within}, {means['new_mean']:.4g} after "
        f"{means['old_mean']:.4g}, over the {n_both:,} of {n:,} rollouts with both."
    )


def _broke(sample: DataSample) -> str:
    """Why a rollout has no end to be judged; empty for one that has."""
    return str(((sample.metadata or {}).get(RECORDED) or {}).get("broke") or "")


def _judged_again(reward: BaseReward, sample: DataSample) -> tuple[Rejudgement, Judged]:
    recorded = (sample.metadata or {}).get(RECORDED) or {}
    if broke := _broke(sample):
        why = f"the rollout was not finished: {broke}"
        outcome: Score[float] = unscored(BROKEN, why, "data")
        one = not_judged(sample, reward.name, BROKEN, why, "data")
    else:
        outcome, one = said_of(reward, sample.output[0]), judged(reward, sample)
    row = Rejudgement(
        sample.sample_id,
        recorded.get("reward"),
        outcome.value,
        outcome.status,
        outcome.cause,
        outcome.reason,
        recorded.get("parts") or {},
    )
    return row, one


def _beside(reward: BaseReward, rows: Sequence[tuple[Rejudgement, Judged]]) -> dict[str, Any]:
    """Old and new rewards of the rollouts with both, as fields of `RejudgeReport`."""
    pairs = [
        (row.old, row.new, one.cluster)
        for row, one in rows
        if row.old is not None and row.new is not None
    ]
    old, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    gaps = np.array(new) - np.array(old)
    clusters = Clusters.of_names(cluster for *_, cluster in pairs)
    shares = reward.score_range == (0.0, 1.0) and all(0 <= value <= 1 for value in old)
    bounds = (-1.0, 1.0) if shares else (-math.inf, math.inf)
    return {
        "n_recorded": sum(row.old is not None for row, _ in rows),
        "n_both": len(pairs),
        "old_mean": math.fsum(old) / len(old) if pairs else None,
        "new_mean": math.fsum(new) / len(new) if pairs else None,
        "difference": mean_of(gaps, clusters.codes, 0.0, bounds),
        "spearman": spearman(old, new) if len(pairs) > 1 else None,
        "kendall": kendall_tau_b(old, new) if len(pairs) > 1 else None,
        "changed": int((abs(gaps) > 1e-9).sum()),
        "kept": Counter(part for row, _ in rows for part in row.parts),
    }
