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


_NEW_LESS_OLD = (
    "New less recorded: {difference.estimate:+.4g}{within}, {new_mean:.4g} after {old_mean:.4g}, "
    "over the {n_both:,} of {n:,} rollouts with both."
)


@dataclass(frozen=True)
class RejudgeReport(Record):
    """Old and new rewards of the same rollouts.

    Attributes:
        reward: name of the reward that judged again.
        judge: the model that judged; None where none did.
        data: where the rollouts came from.
        n: rollouts read; `n_scored` of them have a new score, `n_recorded` an old one, `n_both`
            both.
        missing: rollouts without a new score by who caused it.
        old_mean: mean of the old rewards, over the rollouts that have both.
        new_mean: mean of the new ones, over the same.
        difference: new minus old, with a 95 % interval over prompts and the two-sided p-value of
            "there is none"; None in it where no rollout has both.
        spearman: rank correlation of old and new, -1..1.
        kendall: Kendall's tau-b of old and new, -1..1.
        changed: rollouts whose reward differs by more than 1e-9.
        kept: recorded parts that the new reward does not make anew, by name to how many have them.
        reasons: why rollouts have no new score, "status: reason" to how many and an example.
        rollouts: each rollout, in the order of the log.
        calls: requests made to the judge.
        stopped: why the run ended early.
        report: the new rewards of all rollouts that have one, as a run folder keeps them.
    """

    reward: str
    judge: str | None
    data: str
    n: int
    n_scored: int
    n_recorded: int
    n_both: int
    missing: Mapping[str, int]
    old_mean: float | None
    new_mean: float | None
    difference: Mean
    spearman: float | None
    kendall: float | None
    changed: int
    kept: Mapping[str, int]
    rollouts: tuple[Rejudgement, ...]
    reasons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: int = 0
    stopped: str | None = None
    report: ScoreReport | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """How old and new rewards differ, in a sentence."""
        gap = self.difference
        if gap.estimate is None or self.old_mean is None or self.new_mean is None:
            return f"None of {self.n:,} rollouts has both a recorded reward and a new one."
        ends = between({"rule": "mean_score", "ci95": gap.ci95}, " to ")
        within = f" (95 % interval {ends})" if ends else ""
        return _NEW_LESS_OLD.format(within=within, **vars(self))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types, but for `report`."""
        own = super().to_dict()
        rollouts, _ = own.pop("rollouts"), own.pop("report")
        return {**own, "difference": plain(self.difference._asdict()), "rollouts": rollouts}


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
    spent = spent_by(control, began_at)
    out = _compare_runs(built, name, rows)
    out = replace(out, reasons=reasons.sorted(), calls=spent["calls"], stopped=spent["stopped"])
    values = np.array([row.new for row, _ in rows], dtype=np.float64)
    part = mean_score(
        values,
        Clusters.of_names(one.cluster for _, one in rows).codes,
        np.arange(len(rows)),
        np.array([row_status_of(one) for _, one in rows], dtype=np.uint8),
        open_ended(built.score_range),
    )
    spread = spread_of(values[~np.isnan(values)])
    recorded = {name: getattr(out, name) for name in _BESIDE}
    recorded["difference"], recorded["ci95"], recorded["p_value"] = out.difference
    extra = {
        **({"spread": spread} if spread else {}),
        "verdict": out.verdict,
        "recorded": recorded,
    }
    report = ScoreReport(
        **{**vars(part), "extra": extra},
        benchmark="rollouts",
        version=RULE,
        reward=built.name,
        judge=judge,
        endpoint=endpoint,
        data=name,
        reasons=reasons.sorted(),
        **spent,
    )
    out = replace(out, report=report)
    if keeping is not None:
        keeping.finish(report.to_dict())
    return out


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


def _compare_runs(
    reward: BaseReward, data: str, rows: Sequence[tuple[Rejudgement, Judged]]
) -> RejudgeReport:
    rollouts = [row for row, _ in rows]
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
    return RejudgeReport(
        reward=reward.name,
        judge=judge_of(reward)[0],
        data=data,
        n=len(rollouts),
        n_scored=sum(one.new is not None for one in rollouts),
        n_recorded=sum(one.old is not None for one in rollouts),
        n_both=len(pairs),
        missing=Counter(one.cause or "none" for one in rollouts if one.new is None),
        old_mean=math.fsum(old) / len(old) if pairs else None,
        new_mean=math.fsum(new) / len(new) if pairs else None,
        difference=mean_of(gaps, clusters.codes, 0.0, bounds),
        spearman=spearman(old, new) if len(pairs) > 1 else None,
        kendall=kendall_tau_b(old, new) if len(pairs) > 1 else None,
        changed=int((abs(gaps) > 1e-9).sum()),
        kept=Counter(part for one in rollouts for part in one.parts),
        rollouts=tuple(rollouts),
    )
