"""Judge again what is recorded: old rewards beside new ones, rollout by rollout."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.rollouts import RECORDED
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.outputs import said_of
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import np
from rm_gallery.core.stats.agreement import kendall_tau_b, spearman
from rm_gallery.core.utils.errors import Cause, DataError
from rm_gallery.core.utils.file import as_json, write_whole
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.judgements import cluster_of
from rm_gallery.study.conflicts import samples_of
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.table_rows import Clusters
from rm_gallery.study.task import Reasons, begun, judge_of
from rm_gallery.study.winrate_figures import Mean, mean_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

REJUDGED = "rejudged.json"


@dataclass(frozen=True)
class Rejudgement:
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
class RejudgeReport:
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

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        own = {name: plain(value) for name, value in vars(self).items() if name != "rollouts"}
        difference = plain(self.difference._asdict())
        return {
            **own,
            "difference": difference,
            "rollouts": [plain(vars(one)) for one in self.rollouts],
        }


@door()
def rejudge(asked: Asked, **keywords: Unpack[Keywords]) -> RejudgeReport:
    """Score recorded rollouts with a reward, and set the new scores beside the recorded ones.

    The data are logs of verifiers, NeMo-Gym, ATIF (Harbor) or Inspect, or dumps of messages; their
    layout is found row by row, see `LAYOUTS`. A new score is that of the reward on the same sample
    at any other door. Recorded parts, metrics and times are kept and never shown to a judge. A
    rollout that was recorded without a reward has none: it is no 0. With `run_dir` the same call
    continues an unfinished run, and `rejudged.json` is kept there.

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
    chosen, control = begun(asked.options, {"rejudge": 1, **identity}, total=len(samples))
    reasons, rollouts = Reasons(), []
    for sample in built.evaluate_batch(samples, options=chosen, **asked.hooks):
        recorded = (sample.metadata or {}).get(RECORDED) or {}
        outcome = said_of(built, sample.output[0])
        if outcome.value is None:
            reasons.add(f"{outcome.status}: {outcome.code}", outcome.reason)
        rollouts.append(
            Rejudgement(
                sample.sample_id,
                recorded.get("reward"),
                outcome.value,
                outcome.status,
                outcome.cause,
                outcome.reason,
                recorded.get("parts") or {},
            )
        )
    report = _report(built, name, samples, rollouts)
    report = replace(report, reasons=reasons.sorted(), calls=control.calls, stopped=control.stopped)
    if chosen.run_dir is not None:
        write_whole(Path(chosen.run_dir) / REJUDGED, as_json(report.to_dict()))
    return report


def _report(
    reward: BaseReward, data: str, samples: list[DataSample], rollouts: list[Rejudgement]
) -> RejudgeReport:
    pairs = [
        (one.old, one.new, cluster_of(sample))
        for one, sample in zip(rollouts, samples, strict=True)
        if one.old is not None and one.new is not None
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
