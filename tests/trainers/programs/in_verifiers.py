"""verifiers' own v1 task: it discovers and plugs rewards, injects task and trace, and records what
they give.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage

from rm_gallery.integrations.verifiers import verifiers_reward
from tests.trainers.rewards import Parts


class Sum(vf.TaskData):  # type: ignore[misc, unused-ignore]  # the trainer is not installed where types are checked
    """One row."""

    answer: str | None = None


class Declared(vf.Task[Sum]):  # type: ignore[misc, unused-ignore]
    """The reward is declared in the class."""

    parts = vf.reward(verifiers_reward(Parts(), name="parts", reference="answer"), weight=0.5)


class Bare(vf.Task[Sum]):  # type: ignore[misc, unused-ignore]
    """The reward is plugged by the configuration."""


def trace_of(task: Any, row: list[Any]) -> Any:
    nodes = [
        MessageNode(message=UserMessage(content=row[0])),
        MessageNode(parent=0, message=AssistantMessage(content=row[1]), sampled=True),
    ]
    return vf.Trace.model_construct(
        task=None,
        nodes=nodes,
        rewards={},
        metrics={},
        info={},
        extra_usage=[],
        root_reply=None,
        errors=[],
    )


async def score(task: Any, row: list[Any]) -> dict[str, Any]:
    trace = trace_of(task, row)
    error = None
    try:
        await task.score(trace)
    except vf.TaskError as raised:
        error = str(raised)
    rewards = {
        name: None if each is None else [each.score, each.weight]
        for name, each in trace.rewards.items()
    }
    return {"rewards": rewards, "metrics": trace.metrics, "error": error}


async def main() -> None:
    asked = json.load(sys.stdin)
    plugged = vf.TaskConfig(rewards={"parts": {"fn": asked["file"] + ":correct", "weight": 0.5}})
    judged = vf.TaskConfig(rewards={"helpful": {"fn": asked["file"] + ":helpful"}})
    out = []
    for place, row in enumerate(asked["rows"]):
        data = Sum(prompt=row[0], answer=row[2])
        tasks = [
            Declared(data),
            *([Bare(data, plugged), Bare(data, judged)] if place < asked["few"] else []),
        ]
        out.append([await score(task, row) for task in tasks])
    sys.stdout.write("\n" + json.dumps(out))


if __name__ == "__main__":
    asyncio.run(main())
