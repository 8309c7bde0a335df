"""Rankings of systems: published fits, what cannot be told, and errors that know prompts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rm_gallery.core.stats.bradley_terry import Standings, bradley_terry, style_difference
from rm_gallery.core.stats.ranking import bradley_terry_group

TEN = "AB AB AC BC BC CA AC BA CB AB".split()
TEN_RESULTS = [1, 1, 1, 1, 0.5, 0, 0.5, 1, 1, 0]
EIGHT = "01 02 12 01 12 20 01 21".split()
EIGHT_RESULTS = [1, 1, 0.5, 0, 1, 0, 1, 0]
TOKENS_FIRST = [300, 250, 200, 180, 220, 150, 400, 160]
TOKENS_SECOND = [200, 240, 210, 260, 150, 300, 190, 230]


def ranked(games: list[str], results: list[Any], **options: Any) -> Standings:
    return bradley_terry([game[0] for game in games], [game[1] for game in games], results, **options)


def strengths(found: Standings) -> dict[str, float]:
    return {system.name: system.strength for system in found.systems}


def test_published_style_control() -> None:
    feature = style_difference(TOKENS_FIRST, TOKENS_SECOND)
    plain = ranked(EIGHT, EIGHT_RESULTS, ridge=0.25)
    styled = ranked(EIGHT, EIGHT_RESULTS, ridge=0.25, features={"tokens": feature - feature.mean()})
    for found, expected in ((plain, [0.468371, 0.130190, -0.598562]), (styled, [0.305833, 0.113330, -0.419163])):
        assert [s.strength / math.log(10) for s in found.systems] == pytest.approx(expected, abs=1e-6)
    assert styled.effects["tokens"][0] == pytest.approx(1.427046, abs=1e-6)
    assert styled.effects["tokens"][1].covers(1.427046)


def test_the_same_as_other_packages() -> None:
    evalica = pytest.importorskip("evalica")
    winners = [getattr(evalica.Winner, {1: "X", 0: "Y", 0.5: "Draw"}[r]) for r in TEN_RESULTS]
    theirs = evalica.bradley_terry([g[0] for g in TEN], [g[1] for g in TEN], winners, tolerance=1e-12).scores
    logs = {name: math.log(float(theirs[name])) for name in "ABC"}
    mean = sum(logs.values()) / 3
    assert strengths(ranked(TEN, TEN_RESULTS)) == pytest.approx({k: v - mean for k, v in logs.items()}, abs=1e-5)


def test_the_same_as_the_scores_of_one_group_without_their_prior() -> None:
    wins = [[0, 6, 9], [4, 0, 7], [3, 3, 0]]
    games = [(a, b, 1.0) for a in range(3) for b in range(3) for _ in range(wins[a][b])]
    found = bradley_terry([str(a) for a, _, _ in games], [str(b) for _, b, _ in games], [r for *_, r in games])
    scores = bradley_terry_group(wins, prior=1e-7)
    known = [score for score in scores if score is not None]
    centred = [score - sum(known) / 3 for score in known]
    assert [strengths(found)[str(i)] for i in range(3)] == pytest.approx(centred, abs=1e-5)


def test_a_game_told_twice_under_its_prompt_is_no_news() -> None:
    names = list(range(10))
    once = ranked(TEN, TEN_RESULTS, clusters=names)
    rows = ranked(TEN * 4, TEN_RESULTS * 4)
    prompts = ranked(TEN * 4, TEN_RESULTS * 4, clusters=names * 4)
    widths = [found.systems[0].ci95.high - found.systems[0].ci95.low for found in (once, rows, prompts)]
    assert widths[1] < 0.6 * widths[0]
    assert widths[2] == pytest.approx(widths[0], rel=0.2)


def arena(rng: np.random.Generator, prompts: int, taste: float) -> dict[str, Any]:
    """Three systems, every pair on every prompt in both orders; answers to one prompt are liked or not together."""
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
    assert covered["rows"] / 360 < 0.85
    assert 0.925 <= covered["prompts"] / 360 <= 0.975


def test_style_is_taken_out() -> None:
    rng = np.random.default_rng(1)
    longer = rng.normal(0.3, 0.2, 6000)  # A writes more, and the judge likes that
    results = (rng.random(6000) < 1 / (1 + np.exp(-5 * longer))) * 1.0
    first, second = ["A"] * 6000, ["B"] * 6000
    plain = strengths(bradley_terry(first, second, results))
    styled = bradley_terry(first, second, results, features={"length": longer})
    assert plain["A"] - plain["B"] > 1.0
    assert strengths(styled)["A"] - strengths(styled)["B"] == pytest.approx(0.0, abs=0.25)
    assert styled.effects["length"][0] == pytest.approx(1.0, rel=0.15)
