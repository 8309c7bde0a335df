"""Rewards over time: a score for each turn, their total, and the credit of a final reward to turns.

A turn without a score is None here as everywhere: it is no 0, and moves nothing.

>>> total_of([0.25, 0.5, 1.0], "discounted", gamma=0.5)  # 0.25 + 0.5·0.5 + 0.25·1
0.75
>>> credited(1.0, 4, "equal")
[0.25, 0.25, 0.25, 0.25]
>>> differences([0.25, None, 0.75])  # what a turn adds; the second hands its progress on
[0.25, None, 0.5]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Total = Literal["sum", "mean", "min", "last", "product", "discounted"]
"""How the scores of turns become one."""
Credit = Literal["last", "equal", "discounted", "every"]
"""How a final reward is credited to the turns that led to it."""
TurnScores = Sequence[float | None]


def total_of(scores: TurnScores, how: Total, gamma: float = 1.0) -> float | None:
    """One number from the scores of turns; None where there is no turn, or one without a score.

    `discounted` is Σ γ^t r_t with t from 0: the return of the first turn (Sutton and Barto,
    Reinforcement Learning, eq. 3.8).
    """
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    match how:
        case "sum":
            return math.fsum(known)
        case "mean":
            return math.fsum(known) / len(known)
        case "min":
            return min(known)
        case "last":
            return known[-1]
        case "product":
            return math.prod(known)
        case "discounted":
            return math.fsum(gamma**t * score for t, score in enumerate(known))


def credited(outcome: float, n: int, how: Credit, gamma: float = 1.0) -> list[float]:
    """A final reward as a reward for each of `n` turns.

    - `last`: all of it at the last turn, 0 at the others, as an environment pays at the end.
    - `equal`: 1/n of it each (uniform return redistribution: Gangwani et al., 2020, arXiv
      2010.12718, §3). The sum is the outcome.
    - `discounted`: shares in proportion to γ^(n-1-t), so that late turns get more. The sum is the
      outcome.
    - `every`: the whole of it at each turn, as outcome supervision in GRPO (arXiv 2402.03300,
      §4.1.2) gives each token. The sum is n times the outcome.
    """
    match how:
        case "last":
            return [0.0] * (n - 1) + [outcome]
        case "equal":
            return [outcome / n] * n
        case "discounted":
            weights = [gamma ** (n - 1 - t) for t in range(n)]
            return [outcome * weight / math.fsum(weights) for weight in weights]
        case "every":
            return [outcome] * n


def differences(scores: TurnScores, gamma: float = 1.0, start: float = 0.0) -> list[float | None]:
    """What each turn adds to a potential: γ·s_t - s_(t-1), where s_(-1) is `start`.

    Potential-based shaping leaves the best policy what it is (Ng, Harada and Russell, ICML 1999,
    eq. 2). With γ = 1 the sum is the last score less `start`. A turn without a score has no
    difference; the next one is taken from the last score there was.
    """
    added: list[float | None] = []
    before = start
    for score in scores:
        if score is None:
            added.append(None)
            continue
        added.append(gamma * score - before)
        before = score
    return added
