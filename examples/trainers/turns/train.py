"""A policy of four turns trained with a reward for each turn, with the same numbers as one sum, and
with the final reward alone.

python train.py OUT [--seeds 10] [--steps 400]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from reward import rewards  # type: ignore[import-not-found]  # the file beside this one

from rm_gallery.core.utils.svg import curves

WORDS = ("north", "east", "south", "west")
ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("rows.jsonl").read_text(encoding="utf-8").splitlines()
]
TURNS = 4
WAYS = ("each turn", "one sum", "final alone")
GROUP, RATE, LEARNT = 4, 4.0, 0.9
"""Rollouts of a row in a step, the step size, and the share of open safes that counts as learnt."""
Table = NDArray[np.float64]


@cache
def paid(reward: str, place: int, words: tuple[str, ...]) -> tuple[float, ...]:
    """What an environment pays for each turn of a rollout; equal rollouts are judged once."""
    row = ROWS[place]
    episode = rewards[reward].episode(row["prompt"], row)
    earned = []
    for at, word in enumerate(words):
        earned.append(episode.step(word, done=at == TURNS - 1))
        episode.observe("Click.")
    return tuple(earned)


def returns(way: str, place: int, words: tuple[str, ...]) -> list[float]:
    """What each turn is raised by: what comes from it on, or the whole rollout's sum."""
    earned = paid("final alone" if way == "final alone" else "each turn", place, words)
    if way == "one sum":
        return [sum(earned)] * TURNS
    return [sum(earned[at:]) for at in range(TURNS)]


def chances(logits: Table) -> Table:
    """The policy: the chance of each word, by row and turn."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def opens(policy: Table) -> float:
    """The chance that the policy opens a safe, over the rows; exact."""
    right = [
        np.prod([policy[place, at, WORDS.index(word)] for at, word in enumerate(row["combination"].split())])
        for place, row in enumerate(ROWS)
    ]  # fmt: skip
    return float(np.mean(right))


def train(way: str, seed: int, steps: int) -> list[float]:
    """The chance of an open safe after each step of policy gradient (REINFORCE with the group's mean
    as baseline).
    """
    rng = np.random.default_rng(seed)
    logits = np.zeros((len(ROWS), TURNS, len(WORDS)))
    curve = []
    for _ in range(steps):
        policy = chances(logits)
        for place in range(len(ROWS)):
            said = np.array(
                [rng.choice(len(WORDS), GROUP, p=policy[place, at]) for at in range(TURNS)]
            ).T
            gains = np.array(
                [returns(way, place, tuple(WORDS[word] for word in words)) for words in said]
            )
            better = gains - gains.mean(axis=0)
            for words, above in zip(said, better, strict=True):
                for at, word in enumerate(words):
                    pull = np.eye(len(WORDS))[word] - policy[place, at]
                    logits[place, at] += RATE * above[at] * pull / GROUP
        curve.append(opens(chances(logits)))
    return curve


def learnt_at(curve: list[float]) -> int | None:
    """The first step from which the safe opens often enough; None where it never does."""
    return next((at for at, chance in enumerate(curve, 1) if chance >= LEARNT), None)


def summary(found: dict[str, list[list[float]]]) -> list[str]:
    """A line per way: how many steps it takes, over the seeds."""
    lines = []
    for way, by_seed in found.items():
        needed = [at for curve in by_seed if (at := learnt_at(curve)) is not None]
        spread = statistics.stdev(needed) if len(needed) > 1 else 0.0
        told = f"{statistics.fmean(needed):.1f} steps, spread {spread:.1f}" if needed else "never"
        lines.append(f"{way}: {told}, {len(needed)} of {len(by_seed)} seeds learnt")
    return lines


def main() -> None:
    """Train with every way and seed, write the curves, and print how soon each learns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = {way: [train(way, seed, given.steps) for seed in range(given.seeds)] for way in WAYS}
    means = {way: np.mean(by_seed, axis=0).tolist() for way, by_seed in found.items()}
    rows = [[at, *values] for at, values in enumerate(zip(*means.values(), strict=True), 1)]
    with (given.out / "curves.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows([["step", *means], *rows])
    says = f"The chance of an open safe after each step, mean of {given.seeds} seeds."
    drawn = curves("turns", "Open safes by step", means, "step", "open safes", says)
    drawn.save(given.out / "curves.svg")
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
