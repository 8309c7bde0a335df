"""What one judged sample earns under each rule, and how samples add up."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.intervals import Interval, wilson_interval
from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.judgements import Judged, Score, Status, Verdict, cluster_of, sign, worst
from rm_gallery.gallery.benchmarks.rules import (
    Gathered,
    all_losers_credit,
    best_of_n_credit,
    both_orders_credit,
    consistency_credit,
    mean_of_orders_credit,
    pair_credit,
    single_game_credit,
    two_game_credit,
)
from rm_gallery.gallery.benchmarks.ties import TiesTally
from tests.support.benchmarks import by_hand
from tests.support.samples import make_sample

FIRST = (True, False, False, False)


@pytest.mark.parametrize(
    ("scores", "chosen", "pair", "best_of_n", "all_losers"),
    [
        ([2, 1], (True, False), 1.0, 1.0, 1.0),
        ([1, 2], (False, True), 1.0, 1.0, 1.0),
        ([1, 2], (True, False), 0.0, 0.0, 0.0),
        ([1, 1], (True, False), 0.0, 0.5, 0.0),
        ([-0.0, 0.0], (True, False), 0.0, 0.5, 0.0),
        ([1e300, -1e300], (True, False), 1.0, 1.0, 1.0),
        ([None, 1], (True, False), None, None, None),
        ([1, math.nan], (True, False), None, None, None),
        ([3, 3, 3, 1], FIRST, None, 1 / 3, 0.0),
        ([3, 1, 3, 3], (True, True, False, False), None, 1 / 3, 0.0),
        ([3, 2, 1, 0], (True, True, False, False), None, 1.0, 1.0),
    ],
)
def test_scores(
    scores: list[Score], chosen: tuple[bool, ...], pair: Score, best_of_n: Score, all_losers: Score
) -> None:
    judged = by_hand(scores, chosen)
    if len(chosen) == 2:
        assert pair_credit(judged) == pair
    assert (best_of_n_credit(judged), all_losers_credit(judged)) == (best_of_n, all_losers)


RIGHT, WRONG, TIE, NONE = 1, -1, 0, None


@pytest.mark.parametrize(
    ("first", "second", "two_games", "mean", "both", "same"),
    [
        (RIGHT, RIGHT, 1.0, 1.0, 1.0, 1.0),
        (RIGHT, TIE, 1.0, 0.75, 0.0, 0.0),
        (TIE, RIGHT, 1.0, 0.75, 0.0, 0.0),
        (RIGHT, WRONG, 0.0, 0.5, 0.0, 0.0),
        (TIE, TIE, 0.0, 0.5, 0.0, 1.0),
        (WRONG, TIE, 0.0, 0.25, 0.0, 0.0),
        (WRONG, WRONG, 0.0, 0.0, 0.0, 1.0),
        (RIGHT, NONE, None, None, None, None),
        (NONE, NONE, None, None, None, None),
    ],
)
@pytest.mark.parametrize("label", [1, -1])
def test_two_orders_of_a_pair(
    first: Verdict, second: Verdict, two_games: Score, mean: Score, both: Score, same: Score, label: int
) -> None:
    games = tuple(None if verdict is None else verdict * label for verdict in (first, second))
    judged = by_hand([0.5, 0.5], (label == 1, label == -1), games=(games[0], games[1]))
    found = [
        credit(judged) for credit in (two_game_credit, mean_of_orders_credit, both_orders_credit, consistency_credit)
    ]
    assert found == [two_games, mean, both, same]


def test_a_tie_is_right_where_the_label_is_one() -> None:
    judged = [by_hand([1, 1], (False, False), games=games) for games in ((0, 0), (0, 1), (1, 1))]
    assert [both_orders_credit(one) for one in judged] == [1.0, 0.0, 0.0]


def test_scores_are_one_verdict_in_both_orders_and_a_draw_goes_to_the_second_in_a_single_game() -> None:
    assert [sign(2.0, 1.0), sign(1.0, 2.0), sign(1.0, 1.0), sign(None, 1.0), sign(1.0, math.nan)] == [
        1,
        -1,
        0,
        None,
        None,
    ]
    assert two_game_credit(by_hand([2, 1])) == single_game_credit(by_hand([2, 1])) == 1.0
    equal = by_hand([1, 1], (False, True))
    assert (two_game_credit(equal), single_game_credit(equal)) == (0.0, 1.0)


Credit = Callable[[Judged], float | None]


def outcomes(*given: tuple[Sequence[Score], Status, str]) -> list[Judged]:
    return [by_hand(scores, status=status, subset=subset) for scores, status, subset in given]


def test_four_outcomes_are_counted_apart() -> None:
    judged = outcomes(
        ([1, 0], "scored", "a"),
        ([0, 1], "scored", "a"),
        ([None, 1], "scored", "a"),
        ([1, 0], "unscored", "b"),
        ([1, 0], "failed", "b"),
        ([None, None], "stopped", "b"),
    )
    report = get_benchmark("pairs").score(judged)
    assert (report.n, report.n_scored, report.n_unscored, report.n_failed, report.n_stopped) == (6, 2, 2, 1, 1)
    assert (report.score, report.ci95) == (0.5, wilson_interval(1, 2))
    a, b = report.by_subset["a"], report.by_subset["b"]
    assert (a.n, a.n_scored, a.score) == (3, 2, 0.5)
    assert (b.n, b.n_scored, b.n_stopped, b.score, b.ci95) == (3, 0, 1, None, None)


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_nothing_scored_is_no_score(name: str) -> None:
    lost = [by_hand([1] * 6, (True,) * 3 + (False,) * 3, status="unscored", sample_id=str(k)) for k in range(3)]
    for judged in ([], lost):
        report = get_benchmark(name).score(judged)
        assert (report.score, report.ci95, report.n, report.n_scored) == (None, None, len(judged), 0)
        assert plain(report.to_dict()) == report.to_dict()


def test_labels_that_prefer_nothing_are_counted_not_scored() -> None:
    judged = [by_hand([1, 0]), by_hand([1, 0], (False, False)), by_hand([1, 0], (True, True))]
    report = get_benchmark("preferences").score(judged)
    assert (report.rule, report.score, report.n_scored, report.n_unscored) == ("pair_strict", 1.0, 1, 2)
    assert report.extra["n_unfit_labels"] == 2


def test_one_list_among_pairs_makes_the_report_best_of_n() -> None:
    report = get_benchmark("*").score([by_hand([1, 1]), by_hand([1, 1, 1, 1], FIRST)])
    assert report.rule == "best_of_n_tie_credit"
    assert (report.score, report.chance) == pytest.approx((0.375, 0.375))


def test_u6_what_order_did_stands_beside_a_strict_pair() -> None:
    """A flip and a tie are losses under the strict rule, and shown as what they are."""
    judged = [by_hand([1, 0], games=(1, 1)), by_hand([0.5, 0.5], games=(1, -1)), by_hand([0.5, 0.5], games=(0, 0))]
    report = get_benchmark("pairs").score(judged)
    assert report.score == pytest.approx(1 / 3)
    intervals = report.extra["orders"].pop("ci95")
    assert intervals["both_orders"] == wilson_interval(1, 3)
    assert report.extra["orders"] == {
        "n": 3,
        "draws": 2,
        "mean_of_orders": pytest.approx(2 / 3),
        "both_orders": pytest.approx(1 / 3),
        "consistency": pytest.approx(2 / 3),
        "two_game_sign": pytest.approx(1 / 3),
    }
    assert "orders" not in get_benchmark("pairs").score([by_hand([1, 0])]).extra


def test_figures_and_intervals_do_not_depend_on_the_order_of_samples() -> None:
    rng = random.Random(0)
    names = {
        "rewardbench": ("math-prm", "llmbar-natural", "shp"),
        "rewardbench2": ("Math", "Focus"),
        "rm_bench": ("chat", "code"),
    }
    sizes = {"rewardbench": (1, 1), "rewardbench2": (1, 3), "rm_bench": (3, 3)}
    for name, subsets in names.items():
        right, wrong = sizes[name]
        judged = [
            by_hand(
                [float(rng.randrange(4)) for _ in range(right + wrong)],
                (True,) * right + (False,) * wrong,
                subset=rng.choice(subsets),
                sample_id=str(k),
            )
            for k in range(60)
        ]
        benchmark = get_benchmark(name)
        report = benchmark.score(judged)
        assert benchmark.score(random.Random(1).sample(judged, 60)).to_dict() == report.to_dict()
        assert report.score is not None and report.ci95 is not None and report.ci95.covers(report.score)
        assert benchmark.score(judged, seed=1).to_dict() == report.to_dict(), "no mean needs draws"


@pytest.mark.parametrize("name", ["rewardbench", "rewardbench2", "rm_bench", "pairs", "judgebench", "rmb_bon"])
def test_l_three_samples_that_agree_do_not_make_a_figure_certain(name: str) -> None:
    subset = {"rewardbench": "math-prm", "rewardbench2": "Math", "rm_bench": "chat"}.get(name, "")
    right = 3 if name == "rm_bench" else 1
    row = [*[2.0] * right, *[1.0] * right]
    judged = [by_hand(row, (True,) * right + (False,) * right, subset=subset, sample_id=str(k)) for k in range(3)]
    report = get_benchmark(name).score(judged)
    assert report.score == 1.0
    assert report.ci95 is not None
    assert report.ci95.high == 1.0 and report.ci95.low < 0.8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.inf, None),
        (Interval(0.1, math.nan), [0.1, None]),
        ({"a": (1, {"b": math.nan})}, {"a": [1, {"b": None}]}),
        ({1: "x"}, {"1": "x"}),
        (1j, "1j"),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["scored", "unscored", "failed", "stopped"], "failed"),
        (["unscored", "stopped", "scored"], "stopped"),
        (["scored", "unscored"], "unscored"),
        (["scored", "scored"], "scored"),
    ],
)
def test_one_lost_part_loses_the_whole(parts: list[Status], whole: Status) -> None:
    assert worst(parts) == worst(reversed(parts)) == whole


def _about(prompt: str, **metadata: str) -> DataSample:
    return DataSample.model_validate({"input": [{"role": "user", "content": prompt}], "metadata": metadata or None})


def test_samples_of_one_prompt_are_one_cluster() -> None:
    assert cluster_of(_about("why?", subset="a")) == cluster_of(_about("why?", subset="b"))
    assert cluster_of(_about("why?")) != cluster_of(_about("why not?"))
    assert cluster_of(_about("why?", cluster="7")) == cluster_of(_about("why not?", cluster="7")) == "7"
    assert cluster_of(DataSample(unique_id="x")) != cluster_of(DataSample(unique_id="y")), "no prompt, nothing shared"
    assert cluster_of(_about("\ud800 lone surrogates are text too"))


@pytest.mark.parametrize(
    ("name", "judged", "credit"),
    [
        ("pairs", by_hand([2, 1]), 1.0),
        ("pairs", by_hand([1, 1]), 0.0),
        ("pairs", by_hand([2, 1], status="failed"), None),
        ("preferences", by_hand([1, 1, 1, 1], FIRST), 0.25),
        ("preferences", by_hand([1, 1]), 0.0),
        ("rewardbench", by_hand([2, 1], subset="math-prm"), 1.0),
        ("rewardbench2", by_hand([1, 1, 0, 0], FIRST, subset="Math"), 0.5),
        ("rewardbench2", by_hand([2, 2, 0, 0], (True, True, False, False), subset="Ties", sample_id="tied:1"), 1.0),
        ("rm_bench", by_hand([3, 2, 1, 2, 1, 0], (True,) * 3 + (False,) * 3, subset="chat"), 6 / 9),
        ("judgebench", by_hand([1, 1], games=(1, 0)), 1.0),
        ("judgebench", by_hand([1, 1], games=(1, None)), None),
        ("rmb_bon", by_hand([3, 1, 3, 1], FIRST), 0.0),
    ],
)
def test_a_scorer_gives_the_credit_of_each_sample(name: str, judged: Judged, credit: Score) -> None:
    assert get_benchmark(name).scorer().add(judged) == (credit if credit is None else pytest.approx(credit))


def test_parts_of_rows_that_share_an_id_do_not_meet() -> None:
    wholes = [make_sample(text, "b", "c", unique_id="same", chosen=0) for text in ("one", "two")]
    parts = [[Judged(Gathered.part_of(whole, k, 2, (0, k + 1)), []) for k in range(2)] for whole in wholes]
    gathered = Gathered()
    assert gathered.add(parts[0][0]) is None and gathered.add(parts[1][1]) is None
    assert gathered.add(parts[1][0]) == parts[1] and gathered.add(parts[0][1]) == parts[0]


def test_ties_that_all_behave_alike_are_not_known_exactly() -> None:
    tally = TiesTally()
    for k in range(1, 41):  # all right, by margins of all sizes
        tally.add_row(f"ref:{k}", [2.0 + k, 0.0], (True, False))
        tally.add_row(f"tied:{k}", [2.0 + k, 1.0 + k, 0.0], (True, True, False))
    figure, _ = tally.figure(0, "ties")
    assert figure.score == pytest.approx(1.01, abs=1e-3)
    assert figure.ci95 is not None and figure.ci95.low == pytest.approx(wilson_interval(40, 40).low, abs=0.02)
