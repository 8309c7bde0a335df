"""What AReaL's `trainer.train(…)` is given in place of its own workflow and reward."""

from __future__ import annotations

from typing import Any

from rm_gallery.integrations.areal import areal_reward

WORKFLOW = "rm_gallery.integrations.areal.RewardWorkflow"


def workflow_kwargs(config: Any) -> dict[str, Any]:
    """The arguments of the workflow."""
    scored = {"reward": "math_verify_reward", "reference": "answer"}
    return {**scored, "gconfig": config.gconfig, "tokenizer": config.tokenizer_path}


math = areal_reward("math_verify_reward", reference="answer")
"""The other door: `reward_fn` of AReaL's own workflows."""
