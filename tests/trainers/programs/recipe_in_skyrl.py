"""The reward file of examples/trainers/skyrl in skyrl-gym's own registration and environments."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import skyrl_gym


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    maths = runpy.run_path(asked["file"])["maths"]
    skyrl_gym.register(id="maths", entry_point=maths)
    found = []
    for row, said in zip(asked["rows"], asked["said"], strict=True):
        extras = {key: row[key] for key in ("reward_spec", "extra_info", "data_source")}
        env = skyrl_gym.make(row["env_class"], env_config={}, extras=extras)
        env.init(row["prompt"])
        found.append(env.step(said)["reward"])
    sys.stdout.write("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
