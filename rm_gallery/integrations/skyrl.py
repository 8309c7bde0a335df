"""SkyRL: a reward as an environment of one turn for `skyrl_gym.register`.

SkyRL (skyrl-gym 0.4) adds up what `step` gives, in threads, and has no word for "no score": a
completion without one has `on_error`'s number, with `unscored` or `failed` in the environment's
metrics. The default is the mean of those of its prompt before, which moves advantages least:
raising would end the rollouts of the whole batch. What the completion broke itself is the worst
score of the range, or `worst=`, so that breaking the reward never pays.

skyrl_gym is imported when the first environment is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rm_gallery.core.data.load.padding import fields_in, plain
from rm_gallery.core.score import Score
from rm_gallery.integrations.scoring import TrainerReward, made_when_asked

_SPECS = ("reward_spec", "reward_model")


class SkyRLReward(TrainerReward):
    """What `skyrl_gym.register(id="math", entry_point=…)` takes; the data's rows name it with
    `env_class: math`.

    It makes an environment per rollout, all with the same reward; picklable.
    The action is the answer; the columns are the row's `extra_info` and its other fields, and
    `ground_truth` of `reward_spec` (or `reward_model`), which is the reference unless another is
    named. `step` ends the episode; its `metadata` has the outcome, `get_metrics` the numbers.

    Args:
        reward: whatever `RowScorer` takes.
        **scoring: `components`, names of the parts of the score that go into the metrics;
            `on_error`, "mean" (by default), "worst", "raise" or a number; and `reference`,
            `columns`, `llm`, `options`, … of `RowScorer`.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    one_by_one = "SkyRL's environments know nothing of one another."
    reported = ()

    def __call__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> Any:
        """The environment of one rollout, with the row of the dataset that SkyRL gives it."""
        return __getattr__("RewardEnv")(self, _columns(extras or {}))

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """The means of several rollouts' metrics, as SkyRL computes them."""
        means: dict[str, Any] = __getattr__("RewardEnv").aggregate_metrics(metrics)
        return means


skyrl_reward = SkyRLReward


def _columns(extras: Mapping[str, Any]) -> dict[str, Any]:
    row = {str(key): plain(value) for key, value in extras.items()}
    spec: dict[str, Any] = next(
        (row.pop(name) for name in _SPECS if isinstance(row.get(name), dict)), {}
    )
    about = row.pop("extra_info", None)
    return {**row, **fields_in(about), **spec}


def _env_class() -> type[Any]:
    from skyrl_gym.envs.base_text_env import BaseTextEnv as base

    class RewardEnv(base):  # type: ignore[misc]  # the base class is SkyRL's, which is not installed here
        """One rollout: the first action is scored, and is the last."""

        def __init__(self, made_by: SkyRLReward, row: dict[str, Any]) -> None:
            super().__init__()
            self._by, self._columns = made_by, row
            self._prompt: Any = None
            self._outcome: Score[float] | None = None

        def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
            self._prompt = plain(prompt)
            return prompt, {}

        def step(self, action: str) -> dict[str, Any]:
            self.turns += 1
            score = self._outcome = self._by.scorer.score(self._prompt, action, self._columns)
            outcome = {"status": score.status, "reason": score.code, "message": score.reason}
            metadata = {**outcome, "components": score.components}
            reward = self._by.scorer.numbers(score)["score"]
            return {"observations": [], "reward": reward, "done": True, "metadata": metadata}

        def get_metrics(self) -> dict[str, float]:
            return (
                {}
                if self._outcome is None
                else self._by.scorer.numbers(self._outcome, self._by.components)
            )

    return RewardEnv


__getattr__ = made_when_asked(
    globals(),
    "RewardEnv",
    _env_class,
    "skyrl_reward needs skyrl-gym ({}). Install it with: pip install skyrl-gym",
)
