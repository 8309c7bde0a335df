"""skyrl-gym's own registration, making and aggregation of environments, stepped in threads as
SkyRL's generator does.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import skyrl_gym
from skyrl_gym.metrics import aggregate_for_environment

from rm_gallery.integrations.skyrl import skyrl_reward
from tests.trainers.rewards import Parts


def episode(row: list[Any]) -> dict[str, Any]:
    prompt, text, reference = row
    extras = {
        "reward_spec": {"method": "rule", "ground_truth": reference},
        "extra_info": {"index": 3},
    }
    env = skyrl_gym.make("parts", env_config={}, extras=extras)
    asked, _ = env.init([{"role": "user", "content": prompt}])
    assert asked == [{"role": "user", "content": prompt}]
    step = env.step(text)
    metrics = env.get_metrics()
    env.close()
    json.dumps(step)
    assert step["done"] is True and step["observations"] == [] and isinstance(env, skyrl_gym.Env)
    return {"reward": step["reward"], "status": step["metadata"]["status"], "metrics": metrics}


def main() -> None:
    rows = json.load(sys.stdin)
    skyrl_gym.register(
        id="parts",
        entry_point=skyrl_reward(Parts(), components=["length", "gold"], on_error="worst"),
    )
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(episode, rows))
    together = aggregate_for_environment("parts", [each["metrics"] for each in found])
    sys.stdout.write("\n" + json.dumps({"episodes": found, "together": together}))


if __name__ == "__main__":
    main()
