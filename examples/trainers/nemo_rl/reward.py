"""Registers the environment `rm_gallery`, and runs NeMo-RL's examples/run_grpo.py."""

from __future__ import annotations

import runpy

from rm_gallery.integrations.nemo_rl import nemo_rl_reward, register_nemo_rl

SETTINGS = {"reward": "math_verify_reward"}
"""What `env.rm_gallery` of the configuration says."""
math = nemo_rl_reward("math_verify_reward")
"""The other door: a function of `(ground_truth, response)`."""


def main() -> None:
    """Train, from NeMo-RL's checkout."""
    register_nemo_rl("rm_gallery")
    runpy.run_path("examples/run_grpo.py", run_name="__main__")


if __name__ == "__main__":
    main()
