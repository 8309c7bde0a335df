"""verifiers' own v0 rubric, which injects arguments by name and weighs what the functions return."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import verifiers as vf

from rm_gallery.integrations.verifiers import verifiers_reward, verifiers_rubric
from tests.trainers.rewards import Parts


def state_of(row: list[Any]) -> Any:
    prompt, text, reference = row
    given = {
        "prompt": [{"role": "user", "content": prompt}],
        "example_id": 0,
        "task": "default",
        "info": {"level": 3},
    }
    state = vf.State({"input": {**given, "answer": "" if reference is None else reference}})
    state.update(
        completion=[{"role": "assistant", "content": text}],
        trajectory=[],
        error=None,
        task="default",
    )
    return state


async def score(rows: list[Any]) -> list[dict[str, Any]]:
    parts = verifiers_reward(Parts(), name="parts", components=["length", "gold"])
    rubric = verifiers_rubric([parts, "math_verify_reward"], weights=[1.0, 0.5])
    states = [state_of(row) for row in rows]
    await rubric.score_group(states)
    alone = state_of(rows[0])
    await rubric.score_rollout(alone)
    assert alone["metrics"] == states[0]["metrics"]
    return [
        {
            "reward": each["reward"],
            "metrics": each["metrics"],
            "error": each["error"] and type(each["error"]).__name__,
        }
        for each in states
    ]


def main() -> None:
    rows = json.load(sys.stdin)
    sys.stdout.write("\n" + json.dumps(asyncio.run(score(rows))))


if __name__ == "__main__":
    main()
