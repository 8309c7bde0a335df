"""TRL's own trainers get the same advantages from the same rewards, missing ones included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm_gallery.train.signals import (
    component_advantages,
    group_advantages,
    spread_of,
    weighted_sum,
    whitened,
)
from rm_gallery.train.training_log import read_training_log
from rm_gallery.train.watch import watch
from tests.support.checkpoints import NEEDS_TRL
from tests.trainers.test_trl import QUESTIONS, trained

pytestmark = [NEEDS_TRL, pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]

RIGHT = [1.0, 0.0, None, 1.0, 0.0, 0.0, 0.0, 0.0]
LENGTH = [0.5, 30.0, None, 7.0, 12.0, None, 12.0, 12.0]
WEIGHTS = {"right": 1.0, "length": -0.1}


def right(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return RIGHT


def length(completions: list[Any], **kwargs: Any) -> list[float | None]:
    return LENGTH


def logged(
    folder: Path, trainer: str, **settings: Any
) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Advantages of one step of eight completions in two groups, and the step's figures."""
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 4}
    settings |= {**sizes, "reward_weights": [1.0, -0.1], "log_completions": True}
    made, _ = trained(trainer, folder, QUESTIONS, settings, reward_funcs=[right, length])
    made.save_state()
    return np.array(list(made._logs["advantages"])), made.state.log_history[0]


@pytest.mark.parametrize(("trainer", "settings"), [
    ("GRPO", {"scale_rewards": "group"}), ("GRPO", {"scale_rewards": "batch"}), ("GRPO", {"scale_rewards": "none"}),
    ("GRPO", {"multi_objective_aggregation": "normalize_then_sum"}), ("RLOO", {"normalize_advantages": False, "beta": 0.0}),
    ("RLOO", {"normalize_advantages": True, "beta": 0.0}),
])  # fmt: skip
def test_equal_advantages(trainer: str, settings: dict[str, Any], tmp_path: Path) -> None:
    found, figures = logged(tmp_path, trainer, **settings)
    parts: dict[str, list[float | None]] = {"right": RIGHT, "length": LENGTH}
    summed = weighted_sum(parts, WEIGHTS, missing="zero")
    if "multi_objective_aggregation" in settings:
        ours = component_advantages(parts, 4, WEIGHTS)
    elif trainer == "RLOO":
        ours = group_advantages(summed, 4, "leave_one_out", missing=np.nan)
        ours = np.nan_to_num(whitened(ours) if settings["normalize_advantages"] else ours)
    else:
        method: Any = {"group": "std", "batch": "batch_std", "none": "mean"}[
            settings["scale_rewards"]
        ]
        ours = group_advantages(summed, 4, method)
    assert found == pytest.approx(ours, abs=2e-5)
    if settings.get("scale_rewards") == "group":
        log = read_training_log(tmp_path)
        assert [None if np.isnan(value) else value for value in log.components["right"]] == RIGHT
        assert (len(log), list(log.components), set(log.steps)) == (8, ["right", "length"], {1.0})
        ((step, mean),) = log.charts["rewards/right/mean"]
        assert step == 1.0 and mean == pytest.approx(2 / 7)
        assert {finding.kind for finding in watch(log).findings} == {"cut"}  # four tokens are few
        assert figures["frac_reward_zero_std"] == spread_of(summed, 4).frac_reward_zero_std
