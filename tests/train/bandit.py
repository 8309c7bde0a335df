"""A bandit trained by GRPO: what a judge pays for is learned, and what is verified follows or
suffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rm_gallery.train.signals import group_advantages

WORDS = "so we add both sides then divide by two and write down what is left over".split()
WORD = "Brilliant"
RIGHT, GAMED = 0.05, 0.007
"""Share of right answers of an honest policy, and of one that only says the word."""


class Step(NamedTuple):
    """What a trainer knows of a step."""

    step: int
    completions: list[str]
    rewards: list[float]
    groups: list[str]
    rows: list[dict[str, Any]]
    right: float


def bandit(
    seed: int,
    *,
    fond: bool,
    steps: int = 60,
    prompts: int = 64,
    size: int = 8,
    rate: float = 3.0,
    learns: float = 0.0,
) -> Iterator[Step]:
    """The steps of a run. `fond`: the judge likes one word, and who says it does not work any more;
    else the judge pays for right answers, whose odds grow by `learns` times what the advantages say.
    """
    rng = np.random.default_rng(seed)
    says, skill = math.log(0.03 / 0.97), math.log(RIGHT / (1.0 - RIGHT))
    for step in range(steps):
        chance = 1.0 / (1.0 + math.exp(-says))
        word = rng.random((prompts, size)) < (chance if fond else 0.03)
        # prompts differ in how hard they are; the share of right answers over all is as said
        ease = rng.gamma(0.5, 2.0, (prompts, 1))
        honest = 1.0 / (1.0 + math.exp(-skill))
        p = np.minimum(0.9, ease * np.where(word & fond, GAMED, honest))
        right = rng.random((prompts, size)) < p
        reward = 0.4 + 0.2 * right + rng.normal(0.0, 0.1, right.shape) + (0.4 * word if fond else 0)
        advantages = group_advantages(reward.ravel(), size)
        says += rate * float(np.mean(advantages * (word.ravel() - chance))) if fond else 0.0
        skill += learns * float(np.mean(advantages * (right.ravel() - honest)))
        words = rng.choice(WORDS, (prompts * size, 12)).tolist()
        texts = [
            " ".join([*([WORD] if says_it else []), *own, "4" if is_right else "5"])
            for own, says_it, is_right in zip(words, word.ravel(), right.ravel(), strict=True)
        ]
        names = [f"q{step}-{prompt}" for prompt in range(prompts) for _ in range(size)]
        yield Step(
            step + 1,
            texts,
            reward.ravel().tolist(),
            names,
            [{"answer": "4"}] * len(texts),
            float(right.mean()),
        )
