"""Registers an environment of one turn, and starts SkyRL as its examples do."""

from __future__ import annotations

import sys

from rm_gallery.integrations.skyrl import skyrl_reward

maths = skyrl_reward("math_verify_reward")


def main() -> None:
    """Train; the environment is registered in the task that trains."""
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp, validate_cfg
    from skyrl.train.utils import initialize_ray
    from skyrl_gym.envs import register

    def trains(cfg: SkyRLTrainConfig) -> None:
        register(id="maths", entry_point=maths)
        BasePPOExp(cfg).run()

    cfg = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(ray.remote(num_cpus=1)(trains).remote(cfg))


if __name__ == "__main__":
    main()
