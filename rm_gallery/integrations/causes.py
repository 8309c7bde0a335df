"""What a missing score becomes in training, by cause and trainer: the rule, and the table that the
docs print.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.score import CAUSES, Missing, Score, failed, missing_policy
from rm_gallery.core.utils.errors import Cause, RMGalleryError
from rm_gallery.core.utils.plugins import plugins
from rm_gallery.core.utils.recent import Recent, recent_scores

OnError: TypeAlias = Missing
"""What stands where there is no score through no fault of the completion: "none", "raise", "mean"
(of its group, which leaves everybody's advantage alone), "worst" (of the reward's range), or a
number. What the completion caused is a score, the worst."""
GROUP_MEAN = "group_mean"
"""Key of a score's extra data: the mean of the other scores of its group."""


class NoScore(RMGalleryError):
    """A completion has no score and `on_error` is "raise"; `reason` is the score's code."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def no_score(name: str, score: Score[float]) -> NoScore:
    """The error that says why the reward called `name` gave no score."""
    return NoScore(
        f"{name} gave no score ({score.status}, {score.code}): {score.reason}", score.code
    )


def checked_on_error(on_error: OnError, adapter: str, *, none: bool = True) -> OnError:
    """`on_error` as given; ConfigError, with the adapter's name, for an unknown choice or one that
    the target cannot express.
    """
    words = ("none", "raise", "mean", "worst")[0 if none else 1 :]
    why = ', and what it reports to has no word for "no score"' if on_error == "none" else ""
    return missing_policy(on_error, f"{adapter}: on_error", *words, why=why)


def value_of(
    score: Score[float], on_error: OnError, name: str, worst: float | None
) -> float | None:
    """The number a trainer gets for an outcome: its score, else what `on_error` says; `worst` where
    the answer is to blame.

    Raises:
        NoScore: there is no score, and `on_error` is "raise" or the reward has no worst one.
    """
    if score.value is not None or on_error == "none":
        return score.value
    if on_error == "raise":
        raise no_score(name, score)
    blamed = score.cause == "answer"
    if not (blamed or isinstance(on_error, str)):
        return float(on_error)
    mean = score.extra.get(GROUP_MEAN) if on_error == "mean" and not blamed else None
    value = worst if mean is None else mean
    if value is None:
        raise NoScore(
            f"{name} gave no score, and has no worst one ({score.code}): {score.reason}",
            score.code,
        )
    return float(value)


class GroupMeans:
    """Recent mean score of each group, which replaces a missing score that the answer did not
    cause.

    For a group in one call it is the mean of the others in the call. Where completions come one by
    one, it is the mean of the group's previous ones and, counted as one more, of the latest of all
    groups. Older scores are dropped: the policy improves, and a mean over the whole run would
    punish late failures. Processes of one Ray job on a machine share the scores.
    """

    def __init__(self, definition: str = "") -> None:
        """Share with processes that score by the same definition; without one, keep the scores in
        this object.
        """
        self._definition = definition
        self._recent: Recent | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[GroupMeans], tuple[str]]:
        # another process starts without scores, unless both belong to one job
        return GroupMeans, (self._definition,)

    def note(self, groups: Mapping[str, Sequence[Score[float]]]) -> None:
        """Take in the scores of a call, by group, and attach the group's mean to those without a
        value.
        """
        with self._lock:
            if self._recent is None:
                self._recent = recent_scores(self._definition)
            known = {
                name: [score.value for score in group if score.value is not None]
                for name, group in groups.items()
            }
            for name, scores in known.items():
                self._recent.add(_group_number(name), scores)
            for name, group in groups.items():
                missing, scores = [score for score in group if score.value is None], known[name]
                if not missing:
                    continue
                mean = (
                    math.fsum(scores) / len(scores)
                    if scores
                    else self._recent.mean(_group_number(name))
                )
                for score in missing if mean is not None else ():
                    score.extra = {**score.extra, GROUP_MEAN: mean}


def _group_number(group: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


class Trainer(NamedTuple):
    """An adapter's default for missing scores, and where the trainer finds the flag."""

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
    "episodes": Trainer("episodes.EpisodeRewards", "mean", "the episode's rewards"),
    "NeMo-RL": Trainer("nemo_rl.RewardEnvironment", "mean", f"metadata: {_FLAGS}"),
    "slime and miles": Trainer("slime.slime_reward", "mean", "remove_sample"),
    "verifiers": Trainer("verifiers.verifiers_reward", "none", f"NAME/{_FLAGS}; state: error"),
    "OpenEnv": Trainer("openenv.openenv_rubric", "raise", "the error"),
    "AReaL function": Trainer("areal.areal_reward", "raise", "the error"),
    "AReaL workflow": Trainer("areal.areal_workflow", "none", "reward_unscored"),
    "benchmax": Trainer("benchmax.BenchmaxRewards-3", "raise", "the rollout's label"),
}
"""Rows of the table by trainer. A completion that caused its missing score has no flag: it gets a
score.
"""


def trainers() -> dict[str, Trainer]:
    """`TRAINERS`, and those of adapters that packages add by `rm_gallery.adapters` (name =
    "module:TRAINER", a `Trainer`).
    """
    return {
        **{name: row for name, row in plugins("adapters") if isinstance(row, Trainer)},
        **TRAINERS,
    }


def flags(score: Score[float]) -> dict[str, float]:
    """Flags that mark the number of a missing score: `unscored` and `failed`, each 0.0 or 1.0."""
    return {
        "unscored": float(score.status == "unscored"),
        "failed": float(score.status == "failed"),
    }


def given(reward: Any, cause: Cause, on_error: OnError) -> str:
    """What a trainer gets where `cause` caused the missing score: a number, mean, none, error or
    refused.
    """
    built = resolve(reward, {}, None, None)
    worst = built.worst_score
    if worst is None:
        return "refused"
    lost = failed("error", "", cause)
    lost.extra = {GROUP_MEAN: math.nan}
    try:
        value = value_of(Score(worst) if cause == "answer" else lost, on_error, built.name, worst)
    except NoScore:
        return "error"
    return "none" if value is None else "mean" if math.isnan(value) else f"{value:g}"


def table(reward: Any) -> str:
    """The table for a reward, as lines of equal columns.

    A failure of a judge or a rule counts as the answer's where a control answer can be judged.
    "mean" is that of the others of the group, "none" leaves the completion out, "error" is raised,
    and "refused" says that the adapter asks for `worst=`.
    """
    rows = [["trainer", *CAUSES, "flag"]]
    rows += [
        [name, *(given(reward, cause, trainer.on_error) for cause in CAUSES), trainer.flag]
        for name, trainer in trainers().items()
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
