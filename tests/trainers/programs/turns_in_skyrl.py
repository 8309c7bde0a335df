"""A multi-turn environment of skyrl-gym that pays each turn what an `Episode` says."""

from __future__ import annotations

import json
import sys
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rm_gallery import TurnRewards
from rm_gallery.integrations.episodes import EpisodeRewards
from tests.reward.turns import Words

REWARDS = EpisodeRewards(TurnRewards(steps=Words(), outcome="math_verify_reward", weight=0.25))


class Sums(BaseTextEnv):  # type: ignore[misc, unused-ignore]  # the trainer is not installed where types are checked
    """Asks on until it has heard three turns."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.max_turns, self.reference = 3, extras["reward_spec"]["ground_truth"]

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        self.episode = REWARDS.episode(prompt, {"reference": self.reference})
        return prompt, {}

    def step(self, action: str) -> Any:
        self.turns += 1
        done = self.turns >= self.max_turns
        reward = self.episode.step(action, done=done)
        asked = [] if done else [{"role": "user", "content": "go on"}]
        self.episode.observe(asked)
        return BaseTextEnvStepOutput(observations=asked, reward=reward, done=done, metadata={})


def main() -> None:
    skyrl_gym.register(id="sums", entry_point=Sums)
    rollouts = []
    for texts in json.load(sys.stdin):
        extras = {"reward_spec": {"ground_truth": "4"}}
        env = skyrl_gym.make("sums", env_config={}, extras=extras)
        env.init([{"role": "user", "content": "2 + 2?"}])
        rollouts.append([env.step(text)["reward"] for text in texts])
    sys.stdout.write("\n" + json.dumps(rollouts))


if __name__ == "__main__":
    main()
