"""Pins environments as rewards: each file is an environment of `tests/envs/environments.py`, each
line a sample of answers.
"""

from __future__ import annotations

from typing import Any

from rm_gallery import ConfigError, environment_reward
from tests.envs import environments
from tests.golden import golden
from tests.support.samples import make_sample


def answer(name: str, line: golden.Line) -> golden.Line:
    try:
        reward = environment_reward(getattr(environments, name)(), **line.get("settings", {}))
        sample = make_sample(*line["answers"], query="2 + 2?", metadata=line.get("task"))
        found = reward.evaluate(sample, hooks=line.get("keywords"))
    except ConfigError as error:
        return {"error": str(error)}
    return {"each": [said(output.answer.reward) for output in found.output], "kind": reward.kind}


test_environments = golden.runner("environments", answer, "each", "kind", "error")


def said(reward: Any) -> dict[str, Any]:
    """The score, or why there is none; the components, the reason and what was logged."""
    extra: dict[str, Any] = next(iter(reward.extra_data.values()), {})
    parts = {
        name: one["score"]
        for name, one in extra.get("metrics", {}).items()
        if one["is_score_valid"]
    }
    told = {"components": parts, "logs": extra.get("logs", [])}
    if reward.issues:
        (issue,) = reward.issues
        return {
            "status": issue.status,
            "cause": issue.cause,
            "reason": issue.reason,
            "message": issue.message,
            **told,
        }
    return {"score": reward.score, "words": [detail.reason for detail in reward.details], **told}
