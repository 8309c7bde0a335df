"""verifiers' own v0 rubric scores multi-turn rollouts; each step of a trajectory has its reward."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import verifiers as vf

from rm_gallery import TurnRewards
from rm_gallery.integrations.verifiers import verifiers_reward, verifiers_rubric
from tests.reward.turns import Words


def state_of(texts: list[str]) -> Any:
    asked = [{"role": "user", "content": "2 + 2?"}]
    given = {"prompt": asked, "example_id": 0, "task": "default", "info": {}, "answer": "4"}
    spoken: list[dict[str, str]] = []
    for at, text in enumerate(texts):
        spoken += [{"role": "user", "content": "go on"}] if at else []
        spoken.append({"role": "assistant", "content": text})
    steps = [{"reward": None, "advantage": None} for _ in texts]
    state = vf.State({"input": given})
    state.update(completion=spoken, trajectory=steps, error=None, task="default")
    return state


async def score(rollouts: list[list[str]]) -> list[Any]:
    turns = TurnRewards(steps=Words(), outcome="math_verify_reward", weight=0.25)
    rubric = verifiers_rubric([verifiers_reward(turns, name="turns")])
    states = [state_of(texts) for texts in rollouts]
    await rubric.score_group(states)
    return [
        {"reward": state["reward"], "turns": [step["reward"] for step in state["trajectory"]]}
        for state in states
    ]


def main() -> None:
    sys.stdout.write("\n" + json.dumps(asyncio.run(score(json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
