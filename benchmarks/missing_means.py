"""What a score that nobody's fault left out does to its group, where completions come one by one
and workers share them.

    python -m benchmarks.missing_means [--steps 100] [--fail 0.333] [--seed 0]

Rewards are 0 and 1, in groups of eight; a share of the calls fails; each completion goes to a
worker by lot. Printed is, over the last third of the run, how far the distances of the others from
their group's mean move (mean of the absolute values) and the mean distance of the failed ones
themselves, which should be 0; for a policy that stays at 0.5 and one that rises from 0.1 to 0.9.
Workers of one Ray job on a machine share what they saw, others do not. The last table is a bandit
trained so: the share of right answers it ends with, beside one without failures.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from statistics import fmean
from unittest.mock import patch

from rm_gallery.core.score import Score, failed, scored
from rm_gallery.integrations.causes import GROUP_MEAN, GroupMeans

GROUPS, SIZE = 16, 8


def workers(n: int, together: bool, seed: int) -> list[GroupMeans]:
    """The means of `n` workers, of one Ray job or each for itself."""
    made = [GroupMeans(f"benchmark {os.getpid()} {seed} {n}") for _ in range(n)]
    with patch.dict(os.environ, {"RAY_JOB_ID": "benchmark" if together else ""}):
        for each in made:
            each.note({"": []})  # opens what it remembers
    return made


def moves(
    n: int, together: bool, rising: bool, fresh: bool, steps: int, fail: float, seed: int
) -> tuple[float, float]:
    """How far the others move, and the failed ones' own distance."""
    rng = random.Random(seed)
    means = workers(n, together, seed * 1000 + 100 * rising + 10 * fresh + together)
    others: list[float] = []
    own: list[float] = []
    for step in range(steps):
        p = 0.1 + 0.8 * step / (steps - 1) if rising else 0.5
        calls = []
        for group in range(GROUPS):
            skill = min(1.0, max(0.0, rng.gauss(p, 0.15)))
            calls += [
                (group, float(rng.random() < skill), rng.random() < fail) for _ in range(SIZE)
            ]
        rng.shuffle(calls)
        seen: dict[int, list[tuple[float | None, float]]] = {}
        for group, reward, gone in calls:
            outcome: Score[float] = failed("error", "", "endpoint") if gone else scored(reward)
            rng.choice(means).note({f"{step * GROUPS + group if fresh else group}": [outcome]})
            value = float(outcome.extra.get(GROUP_MEAN, 0.0)) if gone else reward
            seen.setdefault(group, []).append((None if gone else reward, value))
        if step < steps * 2 // 3:
            continue
        for rows in seen.values():
            known = [reward for reward, _ in rows if reward is not None]
            if known and len(known) < len(rows):
                center = fmean(value for _, value in rows)
                others.append(abs(center - fmean(known)))
                own += [value - center for reward, value in rows if reward is None]
    return fmean(others), fmean(own)


def bandit(fail: float, stand_in: str, steps: int, seed: int) -> float:
    """The chance of the right one of two arms after training by group advantages."""
    rng, logit = random.Random(seed), -1.5
    means = workers(8, True, seed + 7_000_000)
    for step in range(steps):
        p = 1 / (1 + math.exp(-logit))
        gradient = 0.0
        for group in range(GROUPS):
            rows = []
            for _ in range(SIZE):
                right = rng.random() < p
                gone = rng.random() < fail
                outcome: Score[float] = (
                    failed("error", "", "endpoint") if gone else scored(float(right))
                )
                rng.choice(means).note({f"{step} {group}": [outcome]})
                mean = float(outcome.extra.get(GROUP_MEAN, 0.0)) if stand_in == "mean" else 0.0
                rows.append((right, mean if gone else float(right)))
            center = fmean(value for _, value in rows)
            gradient += sum((value - center) * (right - p) for right, value in rows)
        logit += 2.0 * gradient / (GROUPS * SIZE)
    return 1 / (1 + math.exp(-logit))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fail", type=float, default=1 / 3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print("workers            prompts   policy   others move   failed one's own distance")
    for rising in (False, True):
        for fresh in (True, False):
            for n, together in ((1, False), (8, False), (8, True)):
                shift, own = moves(n, together, rising, fresh, asked.steps, asked.fail, asked.seed)
                who = f"{n} of one job" if together else f"{n} by themselves" if n > 1 else "1"
                what = "fresh" if fresh else "again"
                print(
                    f"{who:<18} {what:<9} {'rising' if rising else 'steady':<8} {shift:.3f}        "
                    f" {own:+.3f}"
                )
    for stand_in, fail in (("none missing", 0.0), ("mean", asked.fail), ("worst", asked.fail)):
        ends = fmean(bandit(fail, stand_in, asked.steps, seed) for seed in range(5))
        print(f"bandit, {stand_in:<13} {ends:.3f}")


if __name__ == "__main__":
    main()
