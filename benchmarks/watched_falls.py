"""How often the test of a live watch finds a fall, and how often it finds one in a flat run.

    python -m benchmarks.watched_falls [--runs 200] [--flat 2000] [--seed 0]

A fall begins at step 15 and is over at step 30; 150 steps in all, or 200 flat ones. Scores are 0 or
1; with an intraclass correlation, the rate of a step is drawn from a beta distribution. The third
table takes what `LiveWatch` scores of a step at its default share.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from rm_gallery.core.stats.falling import FallTest
from rm_gallery.train.live import LiveWatch

FALLS = ((0.5, 0.35), (0.5, 0.2), (0.8, 0.7), (0.05, 0.007))
SHARE: float = inspect.signature(LiveWatch).parameters["share"].default


def falling(early: float, late: float) -> list[float]:
    """The rates of 150 steps that fall."""
    between: list[float] = np.linspace(early, late, 15).tolist()
    return [early] * 15 + between + [late] * 120


def told(
    rates: Sequence[float], size: float, rng: np.random.Generator, icc: float = 0.0
) -> int | None:
    """The step at which a fall is told with false alarms of 5 %; None where none is. `size`: scores
    a step, on average.
    """
    test, odds = FallTest(first=10), (1.0 - icc) / icc if icc else 0.0
    for step, rate in enumerate(rates):
        chance = rng.beta(rate * odds, (1.0 - rate) * odds) if icc else rate
        scores = rng.binomial(1, chance, int(size + rng.random()))
        if test.add(scores.astype(float).tolist()) >= 20.0:
            return step
    return None


def found(rates: Sequence[float], size: float, runs: int, seed: int, icc: float = 0.0) -> list[int]:
    """The steps at which falls are told, of so many runs."""
    drawn: Iterator[int | None] = (
        told(rates, size, np.random.default_rng([seed, run]), icc) for run in range(runs)
    )
    return [step for step in drawn if step is not None]


def _print(what: str, steps: Sequence[int], runs: int) -> None:
    at = f", step {median(steps):g} in the median" if steps else ""
    print(f"{what}: {len(steps)} of {runs}{at}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--flat", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print("falls, by scores a step and correlation within steps")
    for (early, late), size, icc in (
        (FALLS[0], 51, 0.0), (FALLS[2], 51, 0.0), (FALLS[3], 51, 0.0), (FALLS[1], 6, 0.0),
        (FALLS[0], 51, 0.05), (FALLS[1], 51, 0.05),
    ):  # fmt: skip
        steps = found(falling(early, late), size, asked.runs, asked.seed, icc)
        _print(f"{early} to {late}, {size} scores, {icc}", steps, asked.runs)
    print(f"falls at the default share {SHARE}, by completions a step")
    for early, late in FALLS:
        for completions in (64, 128, 256, 512):
            steps = found(falling(early, late), SHARE * completions, asked.runs, asked.seed)
            _print(f"{early} to {late}, {completions} completions", steps, asked.runs)
    print("flat runs")
    for rate, size, icc, runs in (
        (0.5, 51, 0.05, asked.runs), (0.9, 51, 0.05, asked.runs), (0.05, 51, 0.05, asked.runs),
        (0.5, 51, 0.02, asked.runs), (0.5, 6, 0.3, asked.runs),
        (0.5, 51, 0.0, asked.flat), (0.05, 51, 0.0, asked.flat),
    ):  # fmt: skip
        steps = found([rate] * 200, size, runs, asked.seed, icc)
        _print(f"{rate}, {size} scores, {icc}", steps, runs)


if __name__ == "__main__":
    main()
