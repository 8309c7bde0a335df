"""slime and miles: a reward for `--custom-rm-path`, for one sample or a group.

Written against slime of August 2026 (no release on PyPI) and miles, its sibling with the same
contract. There is no word for "no score": every sample needs a number, because the group's mean is
taken of all. So a sample without a score gets the mean of its group, is taken out of the loss
(`remove_sample`) and marked in its metadata; `post_process` then keeps it out of its group's mean
as well. One that broke the reward itself has the worst score of the range, or `worst=`, and stays
in the loss.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rm_gallery.core.data.load.padding import fields_in
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import TrainerReward, broken_by_answer, refuse_comparing

SCORE = "score"
COMPONENTS, STATUS = "reward_components", "reward_status"
"""Keys of a sample's metadata: the score and its parts, and "scored" or why there is no score."""
_NORMALISED = ("grpo", "gspo", "cispo", "rloo", "reinforce_plus_plus_baseline")
_DIVIDED = ("grpo", "gspo", "cispo")


class SlimeReward(TrainerReward):
    """An async object that scores a sample or a list of samples; keep it in a module:
    `--custom-rm-path my_rewards.math`.

    Args:
        reward: whatever `RowScorer` takes. One that compares sees a list as groups of equal prompts
            (`--group-rm`).
        reference: the column with the reference; the sample's `label` by default, its `metadata`
            holds the others.
        on_error: what a sample without a score gets; it is also taken out of the loss: "mean" (by
            default), see `RowScorer`; "worst"; "raise", which ends the rollout; or a number. A
            sample that broke the reward itself has the worst score and stays in the loss.
        **scoring: `columns`, `llm`, `options`, … of `RowScorer`.

    The special tokens that end a response, which slime leaves in by default, are cut off.
    With `--reward-key` (or `--eval-reward-key`) the reward is a dict of `score`, the components,
    `unscored` and `failed`; train on `--reward-key score`. Without it the reward is the number
    alone. Either way `sample.metadata["reward_components"]` and `["reward_status"]` say what it is
    made of. Beside it belongs
    `--custom-reward-post-process-path rm_gallery.integrations.slime.post_process`.
    """

    def __init__(
        self,
        reward: object,
        *,
        reference: str | None = "label",
        on_error: OnError = "mean",
        **scoring: Any,
    ) -> None:
        """Build the reward; ConfigError as `RowScorer` raises it."""
        super().__init__(reward, reference=reference, on_error=on_error, **scoring)
        self._seen: set[str] = set()

    async def __call__(self, args: Any, samples: Any, **kwargs: Any) -> Any:
        """The reward of a sample, or a list with one per sample.

        Raises:
            NoScore: a sample got no score, and `on_error` is "raise".
        """
        several = isinstance(samples, list | tuple)
        given = list(samples) if several else [samples]
        asked, said = [each.prompt for each in given], [each.response for each in given]
        rows = [_columns(each) for each in given]
        if len(given) == 1:
            refuse_comparing(
                self.scorer, "Start with --group-rm and at least two samples a prompt."
            )
            scores = [await self.scorer.ascore(asked[0], said[0], rows[0])]
        else:
            scores = await self.scorer.ascore_rows(asked, said, rows)
        trained, judged = (getattr(args, name, None) for name in ("reward_key", "eval_reward_key"))
        keys = [key for key in (trained, judged) if key]
        means: dict[str, float] = {}
        for key in keys if self.scorer.on_error == "mean" else ():
            # for the outcomes that do not have the component
            if there := [each.components[key] for each in scores if key in each.components]:
                means[key] = statistics.fmean(there)
        for outcome in scores:
            self._check_keys(outcome, keys)
        rewards = [
            self._reward_of(s, outcome, means, keys, trained)
            for s, outcome in zip(given, scores, strict=True)
        ]
        return rewards if several else rewards[0]

    def _check_keys(self, score: Score[float], keys: Sequence[str]) -> None:
        """ConfigError for a key that no score has had yet."""
        if score.value is None:
            return
        self._seen |= {*score.components, *self.scorer.numbers(score)}
        unknown = next((key for key in keys if key not in self._seen), None)
        if unknown is not None:
            there = ", ".join(sorted(self._seen))
            raise ConfigError(
                f"--reward-key {unknown}: {self.scorer.name} gives {there}; name one of them."
            )

    def _reward_of(
        self,
        sample: Any,
        score: Score[float],
        means: dict[str, float],
        keys: Sequence[str],
        trained: str | None,
    ) -> Any:
        numbers = self.scorer.numbers(score)
        reward = {**score.components, **numbers}
        absent = [key for key in keys if key not in reward]
        status = score.status if score.value is not None else f"{score.status}: {score.code}"
        broken = broken_by_answer(score)
        if score.value is not None and trained in absent and not broken:
            status = f"unscored: no {trained}"
        if status != "scored":
            sample.remove_sample = True
        if isinstance(sample.metadata, dict):
            sample.metadata[COMPONENTS] = {**score.components, SCORE: score.value}
            sample.metadata[STATUS] = status
        if not keys:
            return numbers[SCORE]
        return reward | {
            key: numbers[SCORE] if broken else means.get(key, numbers[SCORE]) for key in absent
        }


slime_reward = SlimeReward


def _columns(sample: Any) -> dict[str, Any]:
    row = fields_in(sample.metadata)
    return {k: v for k, v in row.items() if k not in (COMPONENTS, STATUS)} | {"label": sample.label}


def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """The rewards as they are, and normalised in their groups as slime does it, without the samples
    that got no score.

    For `--custom-reward-post-process-path`. Where all samples have a score the numbers are slime's
    own; one without a score gets 0 after normalisation, which is "no advantage", and changes
    neither mean nor deviation of its group.
    """
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    estimator = getattr(args, "advantage_estimator", None)
    if estimator not in _NORMALISED or not args.rewards_normalization:
        return raw, list(raw)
    size = args.n_samples_per_prompt
    even = len(raw) == size * args.rollout_batch_size
    divide = estimator in _DIVIDED and bool(getattr(args, "grpo_std_normalization", False))
    done: list[float] = []
    status = [fields_in(sample.metadata).get(STATUS, "scored") for sample in samples]
    # slime takes a batch whose groups are not all full as one group
    for start in range(0, len(raw), size if even else max(1, len(raw))):
        places = range(start, start + size) if even else range(len(raw))
        done += _normalised([raw[i] if status[i] == "scored" else None for i in places], divide)
    return raw, done


def _normalised(group: list[float | None], divide: bool) -> list[float]:
    scored = [value for value in group if value is not None]
    mean = statistics.fmean(scored) if scored else 0.0
    # the 1e-6 and the deviation with n - 1 are slime's
    by = statistics.stdev(scored) + 1e-6 if divide and len(scored) > 1 else 1.0
    return [0.0 if value is None else (value - mean) / by for value in group]
