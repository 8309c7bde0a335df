"""verifiers' own v1 task scores multi-turn traces; the vector stands where prime-rl reads it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage

from rm_gallery import TurnRewards
from rm_gallery.integrations.verifiers import verifiers_reward
from tests.reward.turns import Words

TURNS = TurnRewards(steps=Words(), outcome="math_verify_reward", weight=0.25)


class Sum(vf.TaskData):  # type: ignore[misc, unused-ignore]  # the trainer is not installed where types are checked
    """One row."""

    answer: str | None = None


class Sums(vf.Task[Sum]):  # type: ignore[misc, unused-ignore]
    """The reward is declared in the class."""

    turns = vf.reward(verifiers_reward(TURNS, name="turns", reference="answer"))


async def score(texts: list[str]) -> dict[str, Any]:
    nodes = [MessageNode(message=UserMessage(content="2 + 2?"))]
    for at, text in enumerate(texts):
        if at:
            nodes.append(MessageNode(parent=len(nodes) - 1, message=UserMessage(content="go on")))
        said = AssistantMessage(content=text)
        nodes.append(MessageNode(parent=len(nodes) - 1, message=said, sampled=True))
    empty: dict[str, Any] = {"rewards": {}, "metrics": {}, "info": {}}
    trace = vf.Trace.model_construct(
        task=None, nodes=nodes, extra_usage=[], root_reply=None, errors=[], **empty
    )
    try:
        await Sums(Sum(prompt="2 + 2?", answer="4")).score(trace)
    except vf.TaskError:
        pass
    reward = trace.rewards["turns"]
    return {"reward": reward and reward.score, "turns": trace.info["turn_rewards"]}


async def main() -> None:
    found = [await score(texts) for texts in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
