"""verl's own configuration, reward loop worker and merging of a batch, with a tokenizer whose
tokens are characters.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import reward_loop
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.workers.reward_manager.batch import BatchRewardManager

from rm_gallery.integrations.verl import compute_scores


class Characters:
    """Token n is the character n; nought pads."""

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids.tolist()))


def batch(rows: list[list[Any]]) -> DataProto:
    longest = max(len(row[1]) for row in rows) + 1
    responses, masks = (torch.zeros(len(rows), n, dtype=torch.long) for n in (longest, longest + 1))
    for place, (_, text, _) in enumerate(rows):
        responses[place, : len(text)] = torch.tensor([ord(each) for each in text])
        masks[place, : len(text) + 1] = 1
    prompts = torch.ones(len(rows), 1, dtype=torch.long)
    tensors = TensorDict(
        {"prompts": prompts, "responses": responses, "attention_mask": masks}, batch_size=len(rows)
    )
    objects = {
        "data_source": np.array(["arithmetic"] * len(rows), dtype=object),
        "reward_model": np.array(
            [{"style": "rule", "ground_truth": row[2]} for row in rows], dtype=object
        ),
        "extra_info": np.array(
            [{"question": row[0], "index": np.int64(7)} for row in rows], dtype=object
        ),
    }
    return DataProto(batch=tensors, non_tensor_batch=objects)


def score(overrides: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    with (
        mock.patch.object(reward_loop, "copy_to_local", lambda path: path),
        mock.patch.object(reward_loop, "hf_tokenizer", lambda *_, **__: Characters()),
    ):
        config.actor_rollout_ref.model.path = "none"
        worker = reward_loop.RewardLoopWorker(config)
    pickle.dumps(worker.reward_manager.compute_score)
    data = batch(rows)
    # the manager's own merging, without the Ray that carries the workers' results
    handle = SimpleNamespace(
        compute_score_batch=SimpleNamespace(
            remote=lambda part: worker.loop.run_until_complete(scored(worker, part))
        )
    )
    manager: Any = object.__new__(reward_loop.RewardLoopManager)
    manager.reward_model_manager, manager.reward_loop_workers = None, [handle]
    manager.reward_manager_cls = reward_loop.resolve_reward_manager_cls(config)
    with mock.patch.object(reward_loop.ray, "get", lambda found: found):
        merged = manager.compute_rm_score(data)
    infos = {
        key: merged.non_tensor_batch[key].tolist() for key in merged.meta_info["reward_extra_keys"]
    }
    sources, uids = ["arithmetic"] * len(rows), ["one"] * len(rows)
    validated = process_validation_metrics(sources, uids, {"reward": infos["score"], **infos})
    return {
        "infos": infos,
        "tensor": merged.batch["rm_scores"].sum(-1).tolist(),
        "validated": sorted(validated["arithmetic"]),
        "extra_info_keys": sorted(set().union(*data.non_tensor_batch["extra_info"])),
    }


def score_by_batch(rows: list[list[Any]]) -> list[float]:
    """The manager of earlier versions, which calls once for a batch."""
    manager = BatchRewardManager(
        Characters(), 0, compute_scores, reward="math_verify_reward", on_error=-0.5
    )
    found = manager(batch(rows), return_dict=True)
    scores: list[float] = found["reward_extra_info"]["score"]
    assert torch.equal(found["reward_tensor"].sum(-1), torch.tensor(scores))
    return scores


def advantages(scores: list[float], divides: bool) -> list[float]:
    """verl's own advantages of the responses to one prompt, with or without division by the
    deviation.
    """
    rewards, names = (
        torch.tensor(scores).unsqueeze(-1),
        np.array(["one"] * len(scores), dtype=object),
    )
    mask = torch.ones_like(rewards)
    found: list[float] = (
        compute_grpo_outcome_advantage(rewards, mask, names, norm_adv_by_std_in_grpo=divides)[0]
        .flatten()
        .tolist()
    )
    return found


async def scored(worker: Any, part: Any) -> Any:
    return await worker.compute_score_batch(part)


def main() -> None:
    asked = json.load(sys.stdin)
    asyncio.set_event_loop(asyncio.new_event_loop())
    loop = [score(overrides, asked["rows"][:n]) for overrides, n in asked["jobs"]]
    groups = {kind: advantages(asked["group"], kind == "std") for kind in ("std", "mean")}
    sys.stdout.write(
        "\n" + json.dumps({"loop": loop, "batch": score_by_batch(asked["rows"]), **groups})
    )


if __name__ == "__main__":
    main()
