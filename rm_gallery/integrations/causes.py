"""What a missing score becomes in training, by who caused it and by trainer: the one table, which documents and checks print."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rm_gallery.core.outcome import CAUSES, failed, scored
from rm_gallery.core.utils.errors import Cause
from rm_gallery.integrations.scoring import GROUP_MEAN, NoScore, OnError, RowScorer


class Trainer(NamedTuple):
    """What an adapter does by default with what has no score, and where the trainer finds the flag."""

    adapter: str
    on_error: OnError
    flag: str


_FLAGS = "unscored, failed"
TRAINERS: dict[str, Trainer] = {
    "TRL": Trainer("trl.trl_reward", "none", "rewards/NAME/failed"),
    "TRL's OpenEnv harness": Trainer("openenv.RolloutReward", "none", "-"),
    "verl": Trainer("verl.verl_reward", "mean", _FLAGS),
    "OpenRLHF": Trainer("openrlhf.openrlhf_reward", "mean", f"extra_logs: {_FLAGS}"),
    "SkyRL": Trainer("skyrl.skyrl_reward", "mean", f"metrics: {_FLAGS}"),
    "NeMo-RL": Trainer("nemo_rl.RewardEnvironment", "mean", f"metadata: {_FLAGS}"),
    "slime and miles": Trainer("slime.slime_reward", "mean", "remove_sample"),
    "verifiers": Trainer("verifiers.verifiers_reward", "none", f"NAME/{_FLAGS}; state: error"),
    "OpenEnv": Trainer("openenv.openenv_rubric", "raise", "the error"),
    "AReaL function": Trainer("areal.areal_reward", "raise", "the error"),
    "AReaL workflow": Trainer("areal.areal_workflow", "none", "reward_unscored"),
    "benchmax": Trainer("benchmax.BenchmaxRewards-3", "raise", "the rollout's label"),
}
"""Trainers with the rows of their adapters; the flag of what the completion caused is none, for that is a score."""


def given(reward: Any, cause: Cause, on_error: OnError) -> str:
    """What a trainer gets where `cause` brought it about that there is no score: a number, mean, none, error or refused."""
    scorer = RowScorer(reward, on_error=on_error)
    worst = scorer.reward.worst_score
    if worst is None:
        return "refused"
    lost = failed("error", "", cause)
    lost.extra = {GROUP_MEAN: math.nan}
    try:
        value = scorer.value(scored(worst) if cause == "answer" else lost)
    except NoScore:
        return "error"
    return "none" if value is None else "mean" if math.isnan(value) else f"{value:g}"


def table(reward: Any) -> str:
    """The table for a reward, as lines of equal columns.

    What a judge or a rule caused is the answer's doing where a neutral answer can be judged. "mean" is that of the others of the
    group, "none" leaves the completion out, "error" is raised, and "refused" says that the adapter asks for `worst=`.
    """
    rows = [["trainer", *CAUSES, "flag"]]
    rows += [
        [name, *(given(reward, cause, trainer.on_error) for cause in CAUSES), trainer.flag]
        for name, trainer in TRAINERS.items()
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
