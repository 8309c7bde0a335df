"""Scores from pairwise wins: worked values, and what must hold for any matrix."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from rm_gallery.core.stats.ranking import bradley_terry_group, copeland, elo, win_rate

Matrix = list[list[float]]
Rule = Callable[[Matrix], list[float | None]]
RULES: list[Rule] = [win_rate, copeland, elo, bradley_terry_group]

CHAIN: Matrix = [[0, 2, 2], [0, 0, 2], [0, 0, 0]]
CYCLE: Matrix = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
DRAWS: Matrix = [[0, 0.5, 1], [0.5, 0, 1], [1, 1, 0]]
APART: Matrix = [[0, 3, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
NARROW: Matrix = [[0, 6, 0], [5, 0, 9], [1, 2, 0]]


def random_matrix(seed: int, n: int) -> Matrix:
    rng = random.Random(seed)
    wins = [[0.0] * n for _ in range(n)]
    for i, j in itertools.combinations(range(n), 2):
        for _ in range(rng.randrange(4)):
            won = rng.choice([0.0, 0.5, 1.0])
            wins[i][j] += won
            wins[j][i] += 1 - won
    return wins


def test_elo_of_two_games_by_hand() -> None:
    second = 32 * (1 - 1 / (1 + 10 ** (-32 / 400)))
    assert elo([[0, 2], [0, 0]]) == pytest.approx([1016 + second, 984 - second])


@pytest.mark.parametrize("seed", range(8))
def test_elo_does_not_depend_on_the_order_of_the_candidates(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(3, 9)
    wins = [[0.0] * n for _ in range(n)]
    for i, j in itertools.combinations(range(n), 2):
        wins[i][j] = rng.choice([0.0, 0.5, 1.0, 1.5, 2.0])
        wins[j][i] = rng.choice([2.0 - wins[i][j], 0.0])
    order = rng.sample(range(n), n)
    found = elo(wins)
    assert elo([[wins[i][j] for j in order] for i in order]) == [found[i] for i in order]


def test_elo_depends_on_the_seed_and_on_nothing_else() -> None:
    wins = random_matrix(3, 6)
    assert elo(wins, seed=1) == elo(wins, seed=1) != elo(wins, seed=2)
    near = zip(elo(wins, seed=1, orders=400), elo(wins, seed=2, orders=400), strict=True)
    assert all(abs((a or 0) - (b or 0)) < 2 for a, b in near)


@pytest.mark.parametrize("prior", [0.01, 1.0, 10.0])
@pytest.mark.parametrize(
    "wins", [CHAIN, CYCLE, DRAWS, APART, NARROW, *(random_matrix(seed, n) for seed, n in enumerate(range(2, 10)))]
)
def test_bradley_terry_is_where_expected_and_seen_wins_agree(wins: Matrix, prior: float) -> None:
    """The score equations of the penalised likelihood, which has one maximum."""
    found = bradley_terry_group(wins, prior=prior)
    strengths = [s or 0.0 for s in found]
    for i, s in enumerate(strengths):
        if found[i] is None:
            continue
        others = [(j, wins[i][j] + wins[j][i]) for j in range(len(wins)) if j != i]
        expected = prior / (1 + math.exp(-s)) + sum(n / (1 + math.exp(strengths[j] - s)) for j, n in others)
        assert expected == pytest.approx(prior / 2 + sum(wins[i][j] for j, _ in others), rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(2))
def test_places_in_the_matrix_decide_nothing(rule: Rule, seed: int) -> None:
    wins = random_matrix(seed, 5)
    found = rule(wins)
    for order in itertools.permutations(range(5)):
        assert rule([[wins[i][j] for j in order] for i in order]) == [found[i] for i in order]


@pytest.mark.parametrize("rule", RULES)
def test_equals_are_exactly_equal(rule: Rule) -> None:
    for wins in (CYCLE, DRAWS, [[0.0] * 2 + [2.0, 2.0]] * 2 + [[0.0] * 4] * 2):
        found = rule(wins)
        assert found[0] == found[1] is not None
    assert len(set(rule(CYCLE))) == 1
