"""openreward's own client in an environment that `rm-gallery serve --tasks` offers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

asked = json.load(sys.stdin)
os.environ["OPENREWARD_SESSION_URL"] = os.environ["OPENREWARD_API_URL"] = asked["url"]

from openreward import AsyncOpenReward  # noqa: E402 - it reads the addresses above
from openreward.api.environments.types import (  # noqa: E402
    GroupCandidate,
    Message,
    TextBlock,
)
from openreward.api.errors import ToolCallError  # noqa: E402


async def tried(session: Any, name: str, given: dict[str, Any]) -> Any:
    try:
        output = await session.call_tool(name, given)
    except ToolCallError as error:
        return error.reason
    return {"reward": output.reward, "finished": output.finished, "metadata": output.metadata}


async def rollout(env: Any, split: str, index: int, answer: str) -> dict[str, Any]:
    async with env.session(split=split, index=index) as session:
        prompt = await session.get_prompt()
        turns = await session.get_messages()
        tools = await session.list_tools(format="openai")
        return {
            "prompt": [block.text for block in prompt],
            "roles": [turn.role for turn in turns],
            "tools": [tool["name"] for tool in tools],
            "unknown": await tried(session, "bash", {}),
            "misshaped": await tried(session, "submit", {"text": 3}),
            "output": await tried(session, "submit", {"answer": answer}),
            "again": await tried(session, "submit", {"answer": answer}),
            "another": await tried(session, "submit", {"answer": answer + "!"}),
        }


async def compared(env: Any, texts: list[str]) -> list[float]:
    async with env.session(split="train", index=0) as session:
        assert await session.supports_score_group()
        candidates = [GroupCandidate([Message("assistant", [TextBlock(text)])]) for text in texts]
        return [score.reward for score in await session.score_group(candidates)]


async def main() -> dict[str, Any]:
    async with AsyncOpenReward(api_key=asked["token"]).environments as api:
        env = api.get(asked["name"])
        splits = await env.list_splits()
        tasks = {split: await env.list_tasks(split) for split in splits}
        one = await env.get_task("train", 1)
        found = {
            "specs": {split: [task.task_spec for task in each] for split, each in tasks.items()},
            "numbers": [await env.num_tasks(split) for split in splits],
            "one": one.task_spec,
            "slice": [task.task_spec for task in await env.get_task_range("train", -1)],
            "rollouts": await asyncio.gather(*(rollout(env, *each) for each in asked["rollouts"])),
        }
        async with env.session(task=tasks["train"][0]) as session:
            output = await session.call_terminal_tool("42")
            found["message"] = [output.reward, output.finished]

        found["compared"] = await compared(api.get(asked["group"]), ["I say 42.", "42"])
        return found


sys.stdout.write("\n" + json.dumps(asyncio.run(main())))
