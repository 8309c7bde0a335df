"""Rankings: published fits, scores from pairwise wins, what best-of-N selection is worth, and win
rates at equal length.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.interval_coverage import ranked_settings, strengths_covered
from rm_gallery.core.stats.bradley_terry import (
    Ranking,
    bradley_terry,
    fit_logistic,
    length_controlled,
    style_difference,
)
from rm_gallery.core.stats.ranking import (
    best_of_n_curve,
    bradley_terry_group,
    copeland,
    elo,
    expected_best,
    win_rate,
)

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


@pytest.mark.parametrize("prior", [0.01, 1.0, 10.0])
@pytest.mark.parametrize(
    "wins",
    [
        CHAIN,
        CYCLE,
        DRAWS,
        APART,
        NARROW,
        *(random_matrix(seed, n) for seed, n in enumerate(range(2, 10))),
    ],
)
def test_bradley_terry_is_where_expected_and_seen_wins_agree(wins: Matrix, prior: float) -> None:
    """The score equations of the penalised likelihood, which has one maximum."""
    found = bradley_terry_group(wins, prior=prior)
    strengths = [s or 0.0 for s in found]
    for i, s in enumerate(strengths):
        if found[i] is None:
            continue
        others = [(j, wins[i][j] + wins[j][i]) for j in range(len(wins)) if j != i]
        expected = prior / (1 + math.exp(-s)) + sum(
            n / (1 + math.exp(strengths[j] - s)) for j, n in others
        )
        assert expected == pytest.approx(prior / 2 + sum(wins[i][j] for j, _ in others), rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(2))
def test_places_in_the_matrix_decide_nothing(rule: Rule, seed: int) -> None:
    wins = random_matrix(seed, 5)
    found = rule(wins)
    for order in itertools.permutations(range(5)):
        assert rule([[wins[i][j] for j in order] for i in order]) == [found[i] for i in order]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_expected_best_is_the_mean_over_all_draws(n: int) -> None:
    scores, values = [3.0, 1.0, 3.0, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0, 1.0]
    picked = []
    for draw in itertools.combinations(range(5), n):
        top = max(scores[place] for place in draw)
        tied = [values[place] for place in draw if scores[place] == top]
        picked.append(sum(tied) / len(tied))
    assert expected_best(scores, values, n) == pytest.approx(math.fsum(picked) / len(picked))


def test_the_curve_rises_with_a_good_reward_and_falls_with_a_gamed_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 16))
    good = best_of_n_curve((truth + rng.normal(size=truth.shape)).tolist(), truth.tolist())
    assert [point.n for point in good] == [1, 2, 4, 8, 16] and all(
        a.value < b.value for a, b in itertools.pairwise(good)
    )
    assert all(
        point.ci95 is not None
        and point.ci95.low < point.value < point.ci95.high
        and point.value <= point.oracle
        for point in good
    )
    # half of the reliability: sqrt(1/2) of the expected maximum of 16
    assert good[-1].value == pytest.approx(1.766 * math.sqrt(0.5), abs=0.12)
    gamed = best_of_n_curve((-truth).tolist(), truth.tolist())
    assert gamed[-1].score > gamed[0].score and gamed[-1].value < gamed[0].value


TEN = "AB AB AC BC BC CA AC BA CB AB".split()
TEN_RESULTS = [1, 1, 1, 1, 0.5, 0, 0.5, 1, 1, 0]
EIGHT = "01 02 12 01 12 20 01 21".split()
EIGHT_RESULTS = [1, 1, 0.5, 0, 1, 0, 1, 0]
TOKENS_FIRST = [300, 250, 200, 180, 220, 150, 400, 160]
TOKENS_SECOND = [200, 240, 210, 260, 150, 300, 190, 230]


def ranked(games: list[str], results: list[Any], **options: Any) -> Ranking:
    return bradley_terry(
        [game[0] for game in games], [game[1] for game in games], results, **options
    )


def strengths(found: Ranking) -> dict[str, float]:
    return {system.name: system.strength for system in found.systems}


def test_published_style_control() -> None:
    feature = style_difference(TOKENS_FIRST, TOKENS_SECOND)
    plain = ranked(EIGHT, EIGHT_RESULTS, ridge=0.25)
    styled = ranked(EIGHT, EIGHT_RESULTS, ridge=0.25, features={"tokens": feature - feature.mean()})
    for found, expected in (
        (plain, [0.468371, 0.130190, -0.598562]),
        (styled, [0.305833, 0.113330, -0.419163]),
    ):
        assert [s.strength / math.log(10) for s in found.systems] == pytest.approx(
            expected, abs=1e-6
        )
    assert styled.effects["tokens"][0] == pytest.approx(1.427046, abs=1e-6) and styled.effects[
        "tokens"
    ][1].covers(1.427046)


def test_the_same_as_other_packages() -> None:
    evalica = pytest.importorskip("evalica")
    winners = [getattr(evalica.Winner, {1: "X", 0: "Y", 0.5: "Draw"}[r]) for r in TEN_RESULTS]
    theirs = evalica.bradley_terry(
        [g[0] for g in TEN], [g[1] for g in TEN], winners, tolerance=1e-12
    ).scores
    logs = {name: math.log(float(theirs[name])) for name in "ABC"}
    mean = sum(logs.values()) / 3
    assert strengths(ranked(TEN, TEN_RESULTS)) == pytest.approx(
        {k: v - mean for k, v in logs.items()}, abs=1e-5
    )


def arena(rng: np.random.Generator, prompts: int, taste: float) -> dict[str, Any]:
    """Three systems, every pair on every prompt in both orders; answers to one prompt are liked or
    not together.
    """
    true = np.array([0.5, 0.0, -0.5])
    a, b = np.array([[0, 1], [0, 2], [1, 2], [1, 0], [2, 0], [2, 1]]).T
    liked = true + taste * rng.standard_normal((prompts, 3))
    draws = rng.random((prompts, 3))
    p = 1 / (1 + np.exp(-(liked[:, a[:3]] - liked[:, b[:3]])))
    won = (draws < p) * 1.0  # the judge repeats itself in the other order
    results = np.concatenate([won, 1 - won], axis=1).ravel()
    return {
        "first": np.tile(a, prompts).astype(str).tolist(),
        "second": np.tile(b, prompts).astype(str).tolist(),
        "results": results,
        "clusters": np.repeat(np.arange(prompts), 6).tolist(),
    }


@pytest.mark.long("coverage by simulation")
def test_prompt_level_errors_hold_where_rows_do_not() -> None:
    rng = np.random.default_rng(0)
    big = bradley_terry(**arena(rng, 8_000, 1.0))
    truth = strengths(big)
    covered = {"prompts": 0, "rows": 0}
    for _ in range(120):
        case = arena(rng, 60, 1.0)
        for kind, clusters in (("prompts", case["clusters"]), ("rows", None)):
            found = bradley_terry(**{**case, "clusters": clusters})
            covered[kind] += sum(s.ci95.covers(truth[s.name]) for s in found.systems)
    assert covered["rows"] / 360 < 0.85 and 0.925 <= covered["prompts"] / 360 <= 0.975


@pytest.mark.long("coverage by simulation")
def test_strengths_are_covered_with_few_prompts_and_with_a_giant_one() -> None:
    """A giant prompt was counted as many: .73 where three systems met on 30 prompts."""
    for number, of in enumerate(ranked_settings(12, seed=3)):
        assert strengths_covered(of, 60, seed=number).held >= 0.9, of


@pytest.mark.parametrize("seed", range(4))
def test_prompts_that_are_taken_together_never_narrow_a_strength(seed: int) -> None:
    case = arena(np.random.default_rng(seed), 12, 1.0)
    rows = bradley_terry(**{**case, "clusters": None})
    for size in (1, 2, 4):
        prompts = [cluster // size for cluster in case["clusters"]]
        together = bradley_terry(**{**case, "clusters": prompts})
        for alone, other in zip(rows.systems, together.systems, strict=True):
            assert (
                other.ci95.high - other.ci95.low >= 0.999 * (alone.ci95.high - alone.ci95.low)
                and other.strength == alone.strength
            )


def test_one_prompt_says_nothing_of_others() -> None:
    case = arena(np.random.default_rng(0), 12, 1.0)
    found = bradley_terry(**{**case, "clusters": ["p"] * 72, "features": {"x": range(72)}})
    for system in found.systems:
        assert system.ci95 == (-math.inf, math.inf)
        assert (system.best_rank, system.worst_rank) == (1, 3)
    assert found.effects["x"][1] == (-math.inf, math.inf)
    controlled = length_controlled([1, 0, 1], [3, 2, 5], [1, 4, 2], clusters="aaa")
    assert controlled.estimate is not None and controlled.ci95 is None


def test_a_comparison_that_is_there_twice_changes_little() -> None:
    case = arena(np.random.default_rng(1), 100, 1.0)
    case["clusters"] = list(range(600))
    again: dict[str, Any] = {side: [*values, values[0]] for side, values in case.items()}
    once, twice = bradley_terry(**case), bradley_terry(**again)
    for one, other in zip(once.systems, twice.systems, strict=True):
        assert other.ci95 == pytest.approx(one.ci95, abs=0.02)


@pytest.mark.parametrize("wins", range(8, 31, 2))
def test_a_rank_is_sure_exactly_where_the_interval_leaves_0(wins: int) -> None:
    results = [1] * wins + [0] * (32 - wins)
    found = bradley_terry(["A"] * 32, ["B"] * 32, results, clusters=[k // 2 for k in range(32)])
    for system in found.systems:
        assert (system.best_rank == system.worst_rank) is not system.ci95.covers(0.0)
    fit = fit_logistic(np.ones((32, 1)), np.array(results, dtype=float), np.arange(32) // 2)
    figure = fit.figure(np.ones(1))
    p, interval = figure.p_value(0.0), figure.interval()
    assert p is not None and interval is not None and (p < 0.05) is not interval.covers(0.0)


PREFERENCES = [1, 0, 1, 1, 0, 0.5, 1, 0, 1, 0, 1, 0.2]
THEIRS = [900, 1200, 700, 1500, 1100, 800, 950, 1300, 1000, 1250, 600, 1400]
OURS = [1400, 1000, 1300, 1450, 900, 900, 1500, 1000, 1500, 1300, 1250, 1500]


def test_published_fit() -> None:
    difference = np.subtract(THEIRS, OURS)
    sd = float(difference.std(ddof=1))
    design = np.stack([np.tanh(difference / sd), np.ones(12)], axis=1)
    fit = fit_logistic(design, np.array(PREFERENCES), np.arange(12), firth=False)
    beta, figure = fit.beta, fit.figure(np.array([0.0, 1.0]))
    assert sd == pytest.approx(348.916070) and beta == pytest.approx(
        [-4.038516, -0.784125], abs=6e-7
    )
    rate = 1 / (1 + np.exp(-beta[1]))
    assert 100 * rate == pytest.approx(31.343160, abs=6e-6)
    # the plain sandwich gives 23.3 points; ours counts what the fit itself has taken out of the
    # residuals
    assert 23.3 <= 100 * rate * (1 - rate) * figure.standard_error <= 30


def simulated(
    rng: np.random.Generator, n: int, strength: float, effect: float, per_prompt: int = 1
) -> dict[str, Any]:
    theirs = rng.lognormal(7, 0.5, n * per_prompt)
    ours = theirs * rng.lognormal(0.5, 0.4, n * per_prompt)
    difference = ours - theirs
    logit = strength + effect * np.tanh(difference / difference.std(ddof=1))
    if per_prompt > 1:
        logit += np.repeat(1.5 * rng.standard_normal(n), per_prompt)
    wins = (rng.random(n * per_prompt) < 1 / (1 + np.exp(-logit))) * 1.0
    clusters = np.repeat(np.arange(n), per_prompt).tolist() if per_prompt > 1 else None
    return {"preferences": wins, "lengths_a": ours, "lengths_b": theirs, "clusters": clusters}


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(
    ("n", "strength", "effect", "per_prompt", "truth", "most"),
    [
        (200, 0.0, 0.9, 1, 0.5, 0.98),
        (60, 2.0, 1.0, 1, 0.8808, 0.99),
        (40, 2.2, 1.0, 1, 0.9002, 0.99),
    ]
    + [(100, 0.5, 1.5, 3, 0.5884, 0.975)],
)
def test_coverage(
    n: int, strength: float, effect: float, per_prompt: int, truth: float, most: float
) -> None:
    rng = np.random.default_rng(2)
    intervals = [
        length_controlled(**simulated(rng, n, strength, effect, per_prompt)).ci95
        for _ in range(250)
    ]
    assert (
        0.92
        <= float(
            np.mean([interval is not None and interval.covers(truth) for interval in intervals])
        )
        <= most
    )
