"""Runs in AReaL's environment: our function through its process pool, our workflow through its grouped rollouts."""

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
from rm_gallery.integrations.scoring import NoScore  # noqa: E402
from tests.trainers.programs.rewards_of_tests import Sometimes  # noqa: E402

for name in ("RewardAPI", "areal"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant\n"
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
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    made.chat_template = TEMPLATE
    return made


class Engine:
    """Answers what it was told to, one answer per episode, and ends it as models do."""

    def __init__(self, tokens: PreTrainedTokenizerFast, answers: list[str]) -> None:
        self._tokens, self._answers = tokens, iter(answers)

    async def agenerate(self, request: Any) -> ModelResponse:
        said = self._tokens.encode(next(self._answers) + "<|im_end|>")
        return ModelResponse(
            input_tokens=request.input_ids,
            output_tokens=said,
            output_logprobs=[0.0] * len(said),
            output_versions=[0] * len(said),
            tokenizer=self._tokens,
        )


def rewards_of(episode: Any) -> list[float] | None:
    return None if episode is None else [float(value) for value in episode["rewards"].flatten()]


async def episodes(workflow: Any, engine: Engine, rows: list[dict[str, Any]]) -> list[list[float] | None]:
    return [rewards_of(await workflow.arun_episode(engine, row)) for row in rows]


async def refused(awaited: Any) -> str:
    try:
        return f"no error but {await awaited!r}"
    except NoScore as error:
        return str(error)


async def main(request: dict[str, Any]) -> dict[str, Any]:
    tokens = tokenizer()
    config = GenerationHyperparameters(max_new_tokens=16)
    rows = [
        {"messages": [{"role": "user", "content": row["prompt"]}], "answer": row["reference"], "prompt": "a column"}
        for row in request["rows"]
    ]
    answers = [row["completion"] for row in request["rows"]]
    plain = areal_reward("math_verify_reward", reference="answer")
    short = {"timeout_seconds": 5, "max_workers": 1, "max_retries": 0}
    began = time.monotonic()
    slow = await refused(AsyncRewardWrapper(areal_reward(Hangs, options={"deadline": 0.5}), **short)("p", "c", [], []))
    waited = time.monotonic() - began

    async def same(name: str) -> list[float | None]:
        """Episodes of our workflow, in float32 as AReaL trains on them."""
        given = request["same"]
        scored = areal_workflow(name, config, tokens, reference="answer")
        rows = [{"messages": [{"role": "user", "content": row[0]}], "answer": row[2]} for row in given]
        found = await episodes(scored, Engine(tokens, [row[1] for row in given]), rows)
        return [None if one is None else one[0] for one in found]

    own = areal_workflow("math_verify_reward", config, tokens, reference="answer")
    groups = GroupedRolloutWorkflow(
        RewardWorkflow(Sometimes, config, tokens, name="length"), 3, logging.getLogger("areal")
    )
    return {
        "same": {name: await same(name) for name in request["rewards"]},
        "through the pool": await episodes(RLVRWorkflow(plain, config, tokens), Engine(tokens, answers), rows),
        "own workflow": await episodes(own, Engine(tokens, answers), rows),
        "deadline": [slow, waited < 4],
        "unscored": await refused(AsyncRewardWrapper(areal_reward(Sometimes), **short)("p", "none", [], [])),
        "groups": await episodes(groups, Engine(tokens, ["four", "none", "fail"] + ["none"] * 3), rows[:1] * 2),
        "statistics": {key: value for key, value in stats_tracker.export_all().items() if key.startswith("rollout/re")},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.stdin.read())))) + "\n")
