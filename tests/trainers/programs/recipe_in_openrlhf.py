"""The reward file of examples/trainers/openrlhf in OpenRLHF's own executor of one turn."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from tests.trainers.programs.in_openrlhf import END, Characters, Engine


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    rows = [
        [row["prompt"][0]["content"], said, row["label"]]
        for row, said in zip(asked["rows"], asked["said"], strict=True)
    ]
    found = asyncio.run(one_by_one(asked["file"], rows))
    sys.stdout.write("\n" + json.dumps(found))


async def one_by_one(file: str, rows: list[Any]) -> list[Any]:
    """One after another, since the mean that stands in is that of the scores so far."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(file)
    params, found = SimpleNamespace(max_tokens=4000, logprobs=None), []
    for prompt, text, label in rows:
        asked = f"<|im_start|>user\n{prompt}{END}\n<|im_start|>assistant\n"
        told = await executor.execute(asked, label, params, 9000, Characters(), Engine(text))
        found.append(told["reward"])
    return found


if __name__ == "__main__":
    main()
