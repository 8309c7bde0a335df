"""OpenRLHF's own executor of one turn, which loads the reward file or posts to the server; and what
it makes of the reply.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

# the generator of samples imports the engines that it hands work to; what turns a reply into
# tensors uses none of them
for absent in ("ray", "vllm", "openrlhf.trainer.ray.vllm_engine"):
    sys.modules[absent] = ModuleType(absent)
sys.modules["vllm"].SamplingParams = object  # type: ignore[attr-defined]
sys.modules["openrlhf.trainer.ray.vllm_engine"].batch_vllm_engine_call = None  # type: ignore[attr-defined]

from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402

END = "<|im_end|>"


class Characters:
    """Token n is the character n."""

    def __call__(self, text: str, **_: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[ord(each) for each in text]])}

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


class Engine:
    """Says what it is told to."""

    def __init__(self, text: str) -> None:
        self.ids = [ord(each) for each in text + END]

    async def generate(self, *_: Any, **__: Any) -> Any:
        said = SimpleNamespace(token_ids=self.ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[said])


async def rollouts(where: str, rows: list[Any]) -> list[dict[str, Any]]:
    executor, params = (
        SingleTurnAgentExecutor(where),
        SimpleNamespace(max_tokens=4000, logprobs=None),
    )

    async def rollout(prompt: str, text: str, label: Any) -> Any:
        asked = f"<|im_start|>user\n{prompt}{END}\n<|im_start|>assistant\n"
        return await executor.execute(asked, label, params, 9000, Characters(), Engine(text))

    return list(await asyncio.gather(*(rollout(*row) for row in rows)))


def experience(response: dict[str, Any]) -> dict[str, Any]:
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    made = SamplesGenerator._process_response_into_experience(None, response, max_len=9000)
    return {
        "reward": made.rewards.tolist(),
        "info": {key: value.tolist() for key, value in made.info.items()},
    }


def main() -> None:
    asked = json.load(sys.stdin)
    out = []
    for where, n in asked["where"]:
        found = asyncio.run(rollouts(where, asked["rows"][:n]))
        told = [{key: each[key] for key in ("reward", "scores", "extra_logs")} for each in found]
        tensors = [experience(each) for each in found if each["reward"] is not None]
        out.append({"told": told, "tensors": tensors})
    sys.stdout.write("\n" + json.dumps(out))


if __name__ == "__main__":
    main()
