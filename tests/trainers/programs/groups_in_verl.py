"""verl's own configuration and reward loop workers, whose manager is ours for groups: rollouts come
one by one, in any order and to any worker.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any
from unittest import mock

import numpy as np
import ray
from hydra import compose, initialize_config_module
from verl.experimental.reward_loop import reward_loop

from rm_gallery import ConfigError
from tests.trainers.programs.in_verl import Characters, batch


def workers_of(overrides: list[str], count: int) -> list[Any]:
    more = [f"reward.num_workers={count}", "actor_rollout_ref.rollout.n=4", *overrides]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=more)
    config.actor_rollout_ref.model.path = "none"
    with (
        mock.patch.object(reward_loop, "copy_to_local", lambda path: path),
        mock.patch.object(reward_loop, "hf_tokenizer", lambda *_, **__: Characters()),
    ):
        return [reward_loop.RewardLoopWorker(config) for _ in range(count)]


async def scored(workers: list[Any], groups: list[Any], seed: int) -> list[Any]:
    """What each rollout of each group gets; each goes to a random worker, as verl's agents do."""
    rows, uids, splits = zip(*groups, strict=True)
    data = batch(rows)  # type: ignore[arg-type]
    data.non_tensor_batch["uid"] = np.array(uids, dtype=object)
    for info, split in zip(data.non_tensor_batch["extra_info"], splits, strict=True):
        info.update({} if split is None else {"split": split})
    rolling = random.Random(seed)

    async def one(place: int) -> Any:
        await asyncio.sleep(rolling.random() / 10)
        worker = rolling.choice(workers)
        try:
            return await worker.compute_score(data[place : place + 1])
        except ConfigError as error:
            return str(error)

    places = list(range(len(rows)))
    rolling.shuffle(places)
    found = await asyncio.gather(*map(one, places))
    return [each for _, each in sorted(zip(places, found, strict=True), key=lambda pair: pair[0])]


def merged(workers: list[Any], groups: list[Any]) -> list[float]:
    """The scores at the last token of each response, by verl's own call."""
    cls = type(workers[0].reward_manager)
    data = batch([row for row, _, _ in groups])
    found: list[float] = cls.assemble_rm_scores(data, list(range(len(data)))).sum(-1).tolist()
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    answers: dict[str, Any] = {"refused": []}
    for place, (overrides, groups) in enumerate(asked["jobs"]):
        workers = workers_of(overrides, 1)
        answers[str(place)] = loop.run_until_complete(scored(workers, groups, place))
        answers["merged"] = merged(workers, groups)
    for overrides in asked["refused"]:
        try:
            workers_of(overrides, 1)
        except ConfigError as error:
            answers["refused"].append(str(error))
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        overrides, groups = asked["jobs"][0]
        several = workers_of(overrides, 3)
        answers["ray"] = loop.run_until_complete(scored(several, groups, 7))
    finally:
        ray.shutdown()
    sys.stdout.write("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
