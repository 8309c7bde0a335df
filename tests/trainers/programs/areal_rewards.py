"""Runs in AReaL's environment: our function through its process pool, our workflow through its
grouped rollouts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import warnings
from typing import Any

warnings.simplefilter("ignore")

from areal.api import AsyncRewardWrapper, ModelResponse  # noqa: E402
from areal.api.cli_args import GenerationHyperparameters  # noqa: E402
from areal.infra.remote_inf_engine import GroupedRolloutWorkflow  # noqa: E402
from areal.utils import stats_tracker  # noqa: E402
from areal.workflow.rlvr import RLVRWorkflow  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from rm_gallery import BasePointWiseReward, DataSample, RewardResult  # noqa: E402
from rm_gallery.integrations.areal import RewardWorkflow, areal_reward, areal_workflow  # noqa: E402
from rm_gallery.integrations.causes import NoScore  # noqa: E402
from tests.integrations.adapters import Moody  # noqa: E402

for name in ("RewardAPI", "areal"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor "
    "%}<|im_start|>assistant\n"
)


class Hangs(BasePointWiseReward):
    """Takes longer than a reward worker waits."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await asyncio.sleep(30)
        raise AssertionError


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, whose special tokens are those of a chat model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={sign: at for at, sign in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    made.chat_template = TEMPLATE
    return made


TOKENS = tokenizer()


class Engine:
    """Answers what it was told to, one answer per episode, and ends it as models do."""

    def __init__(self, answers: list[str]) -> None:
        self._answers = iter(answers)

    async def agenerate(self, request: Any) -> ModelResponse:
        said = TOKENS.encode(next(self._answers) + "<|im_end|>")
        return ModelResponse(
            input_tokens=request.input_ids, output_tokens=said, output_logprobs=[0.0] * len(said),
            output_versions=[0] * len(said), tokenizer=TOKENS,
        )  # fmt: skip


async def episodes(workflow: Any, rows: list[Any], groups: int = 1) -> list[float | None]:
    """What a workflow trains on, of an answer each row, or of as many as its groups have members."""
    found = []
    engine = Engine([row[1] for row in rows])
    for prompt, _, reference in rows[::groups]:
        asked = {
            "messages": [{"role": "user", "content": prompt}],
            "answer": reference,
            "prompt": "a column",
        }
        episode = await workflow.arun_episode(engine, asked)
        found.append(None if episode is None else float(episode["rewards"].flatten()[0]))
    return found


async def refused(awaited: Any) -> str:
    try:
        return f"no error but {await awaited!r}"
    except NoScore as error:
        return str(error)


async def main(request: dict[str, Any]) -> dict[str, Any]:
    config = GenerationHyperparameters(max_new_tokens=16)
    short = {"timeout_seconds": 5, "max_workers": 1, "max_retries": 0}
    began = time.monotonic()
    slow = await refused(
        AsyncRewardWrapper(areal_reward(Hangs, worst=0.0, options={"deadline": 0.5}), **short)(
            "p", "c", [], []
        )
    )
    waited = time.monotonic() - began
    pooled = RLVRWorkflow(areal_reward("math_verify_reward", reference="answer"), config, TOKENS)
    flows = {
        name: areal_workflow(name, config, TOKENS, reference="answer", worst=0.0)
        for name in request["rewards"]
    }
    members = RewardWorkflow(Moody, config, TOKENS, name="length")
    said = [["q", text, None] for text in ("four", "none", "fail", "none", "none", "none")]
    return {
        "same": {name: await episodes(flow, request["same"]) for name, flow in flows.items()},
        "through the pool": await episodes(pooled, request["same"][:12]),
        "deadline": [slow, waited < 4],
        "unscored": await refused(
            AsyncRewardWrapper(areal_reward(Moody), **short)("p", "none", [], [])
        ),
        "groups": await episodes(
            GroupedRolloutWorkflow(members, 3, logging.getLogger("areal")), said, 3
        ),
        "statistics": {
            key: value
            for key, value in stats_tracker.export_all().items()
            if key.startswith("rollout/re")
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.stdin.read())))) + "\n")
