"""The rules of RewardBench 1 and 2, Ties, RM-Bench and RMB on samples judged by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged, Score, Status
from rm_gallery.gallery.benchmarks.rewardbench import SECTION_WEIGHTS
from rm_gallery.gallery.benchmarks.ties import margin_term, parse_ties_id
from tests.support.benchmarks import by_hand


def pairs(subset: str, right: int, wrong: int = 0, status: Status = "scored") -> list[Judged]:
    return [by_hand(s, subset=subset, status=status) for s in [[1.0, 0.0]] * right + [[0.0, 1.0]] * wrong]


def rb1(judged: list[Judged]) -> Report:
    return get_benchmark("rewardbench").score(judged)


def test_sections_use_the_official_weights() -> None:
    report = rb1(pairs("math-prm", 10) + pairs("hep-cpp", 0, 40) + pairs("llmbar-natural", 3, 1))
    sections = report.extra["sections"]
    assert (report.rule, report.by_subset["llmbar-natural"].rule) == ("rewardbench1_sections", "pair_strict")
    assert sections["Reasoning"].score == pytest.approx(984 / 1148)
    assert sections["Chat Hard"].score == 0.75
    assert report.score == report.extra["leaderboard_total"] == pytest.approx((984 / 1148 + 0.75) / 2)
    assert report.extra["sections_absent"] == ["Chat", "Safety"]
    assert {name: sum(weights.values()) for name, weights in SECTION_WEIGHTS.items()} == {
        "Chat": 358,
        "Chat Hard": 456,
        "Safety": 740,
        "Reasoning": 1968,
    }


def test_a_section_nothing_was_scored_of_leaves_the_mean_but_is_shown() -> None:
    report = rb1(pairs("math-prm", 4) + pairs("donotanswer", 5, status="failed"))
    assert (report.score, report.n, report.n_scored, report.n_failed) == (1.0, 9, 4, 5)
    assert (report.extra["sections"]["Safety"].score, report.extra["sections"]["Safety"].n_failed) == (None, 5)
    assert "Safety" in report.extra["sections_absent"]


def test_own_subsets_are_shown_and_do_not_enter() -> None:
    report = rb1(pairs("math-prm", 1, 1) + pairs("mine", 9) + pairs("shp", 1))
    assert (report.score, report.extra["subsets_outside_sections"]) == (0.5, ["mine", "shp"])
    assert report.extra["leaderboard_total"] == pytest.approx((2 * 0.5 + 1.0) / 3), "prior sets weigh half a section"
    own = rb1(pairs("mine", 3, 1))
    assert (own.rule, own.score) == ("pair_strict", 0.75)


def test_interval_widens_with_the_weight_of_a_small_subset() -> None:
    """math-prm weighs six times a code subset: few rows there leave the section uncertain, however many there are elsewhere."""
    code = [row for name in SECTION_WEIGHTS["Reasoning"] if name != "math-prm" for row in pairs(name, 500, 500)]
    few, many = rb1(code + pairs("math-prm", 8, 8)).ci95, rb1(code + pairs("math-prm", 800, 800)).ci95
    assert few is not None and many is not None
    # half the weight on sixteen fair coins: 1.96 * 0.5 * 0.125
    assert (few.high - few.low) / 2 == pytest.approx(0.1225, abs=0.01)
    assert many.high - many.low < 0.03


REF, TIED = (True, False, False), (True, True, False)


def ties(
    prompt: int, ref: Sequence[Score], tied: Sequence[Score], labels: tuple[bool, ...] = TIED, subset: str = "Ties"
) -> list[Judged]:
    first = by_hand(ref, REF, subset=subset, sample_id=f"ref:{prompt}")
    return [first, by_hand(tied, labels, subset=subset, sample_id=f"tied:{prompt}")]


def composite(judged: list[Judged]) -> Figure:
    report = get_benchmark("rewardbench2").score(judged)
    return report.by_subset[judged[0].subset]


@pytest.mark.parametrize(
    ("ref", "tied", "value"),
    [
        # gaps 4 and 4, spread 1: all right, margin tanh(4/1 - 1)
        ([5, 1, 0], [6, 5, 1], 1.0 + 0.01 * math.tanh(3)),
        # spread 0: the ratio is infinite, the margin 1
        ([5, 1, 0], [5, 5, 1], 1.01),
        # tied gap 1, spread 4: accurate, but not closer to each other; margin tanh(1/4 - 1)
        ([5, 1, 0], [6, 2, 1], 0.60 + 0.01 * math.tanh(-0.75)),
        # ref gap 1, tied gap 4, spread 2: preferred, not preferred hard; margin tanh(1/2 - 1)
        ([2, 1, 0], [8, 6, 2], 0.80 + 0.01 * math.tanh(-0.5)),
        # ref wrong by 1, tied gap 3, spread 1: margin tanh(-1/1 - 1)
        ([1, 2, 0], [5, 4, 1], 0.50 + 0.01 * math.tanh(-2)),
        # both wrong and no spread: minus infinity, so -1
        ([0, 1, 0], [2, 2, 3], -0.01),
        # equal to the best wrong one is not accurate; 0/0 counts 0
        ([1, 1, 0], [2, 2, 2], 0.0),
        # one winner named, the right one in both rows: gaps 1 and 0, spread 1
        ([1, 0, 0], [1, 0, 0], 0.30 + 0.01 * math.tanh(-1)),
        # one winner named, the wrong one in both rows: gaps -1 and -1, spread 0
        ([0, 1, 0], [0, 0, 1], -0.01),
    ],
)
def test_ties_of_one_prompt(ref: list[Score], tied: list[Score], value: float) -> None:
    figure = composite(ties(0, ref, tied))
    assert figure.rule == "ties_composite"
    assert figure.score == pytest.approx(value, abs=1e-12)
    assert figure.ci95 is not None and figure.ci95.high - figure.ci95.low > 0.3, "one prompt proves little"


def test_a_prompt_with_one_row_counts_in_the_accuracies_only() -> None:
    rows = [*ties(0, [5, 1, 0], [5, 5, 1]), ties(1, [0, 1, 1], [9, 9, 9])[0], ties(2, [9, 9, 9], [1, 1, 3])[1]]
    figure = composite(rows)
    assert figure.score == pytest.approx(0.71)
    assert figure.extra == {
        "ref_accuracy": 0.5,
        "tied_accuracy": 0.5,
        "correctness_preferred": 1.0,
        "correctness_preferred_hard": 1.0,
        "margin": 1.0,
        "n_ref": 2,
        "n_tied": 2,
        "n_pairs": 1,
    }


def test_t1_a_tied_row_with_a_single_right_answer_makes_no_pair() -> None:
    """It has no spread among right answers: counted as a pair it would earn the full preference and margin terms."""
    figure = composite([*ties(0, [5, 1, 0], [6, 2, 1]), *ties(1, [5, 1, 0], [5, 1, 0], REF)])
    assert (figure.extra["n_pairs"], figure.extra["n_tied"], figure.extra["tied_accuracy"]) == (1, 2, 1.0)
    assert figure.extra["correctness_preferred"] == 0.0
    assert figure.score == pytest.approx(0.60 + 0.01 * math.tanh(-0.75))
    alone = composite(ties(1, [5, 1, 0], [5, 1, 0], REF))
    assert (alone.score, alone.extra["ref_accuracy"], alone.extra["n_pairs"]) == (None, 1.0, 0)


def test_rows_of_one_id_are_pooled() -> None:
    """Right answers 6, 5, 9, 8 and wrong ones 4, 1: a gap of 1, and a spread of 4 among the right ones."""
    figure = composite([*ties(0, [5, 1, 0], [6, 5, 4]), ties(0, [5, 1, 0], [9, 8, 1])[1]])
    assert (figure.n, figure.extra["n_tied"], figure.extra["n_pairs"]) == (3, 1, 1)
    assert figure.score == pytest.approx(0.60 + 0.01 * math.tanh(-0.75), abs=1e-12)


def test_a_missing_score_takes_the_row_out_and_its_partner_stays() -> None:
    figure = composite([*ties(0, [5, 1, 0], [5, None, 1]), *ties(1, [5, 1, 0], [6, 5, 1])])
    assert (figure.n, figure.n_scored, figure.n_unscored) == (4, 3, 1)
    assert (figure.extra["n_ref"], figure.extra["n_tied"], figure.extra["n_pairs"]) == (2, 1, 1)
    upstream = composite([*ties(0, [5, 1, 0], [5, -1, 1]), *ties(1, [5, 1, 0], [6, 5, 1])])
    assert upstream.extra["tied_accuracy"] == 0.5, "upstream enters a failed rating as -1"


@pytest.mark.parametrize("subset", ["Ties", "ties", " TIES "])
def test_ties_is_recognised_in_any_case_and_unmarked_rows_are_paired_with_nothing(subset: str) -> None:
    marked = ties(0, [5, 1, 0], [6, 5, 1], subset=subset)
    unmarked = [
        by_hand([5, 1, 0], REF, subset=subset, sample_id="x"),
        by_hand([5, 5, 6], TIED, subset=subset, sample_id="x"),
    ]
    extra = composite(marked + unmarked).extra
    assert (extra["n_ref"], extra["n_tied"], extra["n_pairs"]) == (2, 2, 1)
    assert (extra["ref_accuracy"], extra["tied_accuracy"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("gap", "spread", "term"),
    [
        (0.0, 0.0, 0.0),
        (-1.0, 0.0, -1.0),
        (1.0, 1.0, 0.0),
        (math.inf, math.inf, 0.0),
        (-math.inf, 0.0, -1.0),
    ],
)
def test_margin_term_has_the_limits_of_floating_point(gap: float, spread: float, term: float) -> None:
    assert margin_term(gap, spread) == term


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("ref:12", ("ref", "12")),
        ("tied:a:b", ("tied", "a:b")),
        ("x/ref:3", ("ref", "3")),
        ("href:3", None),
        ("ref:", None),
    ],
)
def test_ids_of_ties_rows(text: str, parsed: object) -> None:
    assert parse_ties_id(text) == parsed


def best_of_4(subset: str, *rows: Sequence[Score]) -> list[Judged]:
    return [by_hand(row, (True, False, False, False), subset=subset) for row in rows]


def test_the_headline_of_rewardbench2_is_the_unweighted_mean() -> None:
    right, wrong = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]
    judged = best_of_4("Math", *[right] * 9, wrong) + best_of_4("Focus", [5.0] * 4)
    report = get_benchmark("rewardbench2").score(judged)
    assert report.rule == "unweighted_mean_of_subsets"
    assert (report.score, report.chance) == pytest.approx(((0.9 + 0.25) / 2, 0.25))
    wide = get_benchmark("rewardbench2").score(
        best_of_4("A", *[right, wrong] * 50)
        + best_of_4("B", *[right, wrong] * 200)
        + best_of_4("C", *[right, wrong] * 200)
    )
    # sqrt(0.25/100 + 0.25/400 + 0.25/400) / 3
    assert wide.ci95 == pytest.approx((0.5 - 1.96 * 0.02041, 0.5 + 1.96 * 0.02041), abs=0.004)
    lost = get_benchmark("rewardbench2").score(best_of_4("Math", right) + ties(0, [5, 1, 0], [6, None, 1]))
    assert (lost.score, lost.extra["subsets_without_score"]) == (1.0, ["Ties"])


def row(chosen: list[Score], rejected: list[Score], subset: str = "chat", **more: Any) -> Judged:
    return by_hand([*chosen, *rejected], (True,) * 3 + (False,) * 3, subset=subset, **more)


@pytest.mark.parametrize(
    ("chosen", "rejected", "hard", "normal", "easy"),
    [
        ([2, 2, 2], [1, 1, 1], 1.0, 1.0, 1.0),
        # style alone decides: a plainer right answer loses, a richer one wins, equal style is a draw
        ([1, 2, 3], [1, 2, 3], 0.0, 0.0, 1.0),
        ([1, 2, 3], [0, 1, 2], 0.0, 1.0, 1.0),
        ([3, 2, 1], [3, 2, 1], 1.0, 0.0, 0.0),
        ([5, 0, 0], [0, 1, 1], 2 / 3, 1 / 3, 0.0),
    ],
)
def test_rm_bench_of_one_row(
    chosen: list[Score], rejected: list[Score], hard: float, normal: float, easy: float
) -> None:
    report = get_benchmark("rm_bench").score([row(chosen, rejected)])
    assert [report.extra[name] for name in ("hard", "normal", "easy")] == pytest.approx([hard, normal, easy])
    assert report.score == pytest.approx((hard + normal + easy) / 3)


def test_rm_bench_matrix_is_chosen_style_by_rejected_style_and_domains_weigh_the_same() -> None:
    judged = [row([1, 2, 3], [1, 2, 3]), row([9, 9, 9], [0, 0, 0]), row([1, 1, 1], [1, 1, 1], "code")]
    judged += [row([2, None, 2], [1, 1, 1]), row([2, 2, 2], [1, 1, 1], status="failed")]
    report = get_benchmark("rm_bench").score(judged)
    chat = report.by_subset["chat"]
    assert chat.extra["matrix"] == [[0.5, 0.5, 0.5], [1.0, 0.5, 0.5], [1.0, 1.0, 0.5]]
    assert (chat.n, chat.n_scored, chat.n_unscored, chat.n_failed) == (4, 2, 1, 1)
    assert report.score == pytest.approx((chat.score or 0) / 2), "the code domain has one row and weighs as much"
    assert report.extra["domains_absent"] == ["math", "safety"]
