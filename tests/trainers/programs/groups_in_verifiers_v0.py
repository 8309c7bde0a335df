"""verifiers' own v0 rubric with group functions, which get all rollouts of a prompt at once."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from rm_gallery import FakeLLM
from rm_gallery.integrations.verifiers import verifiers_group_reward, verifiers_rubric
from tests.trainers.programs.in_verifiers_v0 import state_of
from tests.trainers.rewards import Parts


async def score(asked: dict[str, Any]) -> list[list[dict[str, Any]]]:
    rubric = verifiers_rubric(
        [
            verifiers_group_reward("ruler", llm=FakeLLM(reply=asked["reply"])),
            # one that compares nothing may come in a group as well
            verifiers_group_reward(Parts(), name="parts", components=["length", "gold"]),
            "math_verify_reward",
        ],
        weights=[1.0, 0.5, 0.25],
    )
    assert rubric.has_group_rewards
    found = []
    for rows in asked["groups"]:
        states = [state_of(row) for row in rows]
        await rubric.score_group(states)
        found.append(
            [
                {
                    "reward": each["reward"],
                    "advantage": each["advantage"],
                    "metrics": each["metrics"],
                    "error": each["error"] and type(each["error"]).__name__,
                }
                for each in states
            ]
        )
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    sys.stdout.write("\n" + json.dumps(asyncio.run(score(asked))))


if __name__ == "__main__":
    main()
