"""verl's own group advantages of four responses to one prompt, with and without division by the deviation."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage


def main() -> None:
    scores = json.load(sys.stdin)
    rewards = torch.tensor(scores).unsqueeze(-1)
    names = np.array(["one"] * len(scores), dtype=object)
    found = {
        kind: compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), names, norm_adv_by_std_in_grpo=divides)[0]
        for kind, divides in (("std", True), ("mean", False))
    }
    sys.stdout.write("\n" + json.dumps({kind: values.flatten().tolist() for kind, values in found.items()}))


if __name__ == "__main__":
    main()
