"""The official protocols of a benchmark by name: what is asked, which rule holds, and what upstream would print."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.load.fields import RowRef
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.gallery.benchmarks.rewardbench import PRIOR_SETS
from rm_gallery.report.evaluate import estimate, evaluate
from tests.benchmarks.excerpts import EXCERPTS, LONG, MIDDLE, SHORT, Row, judgebench, rewardbench, rewardbench2, turns
from tests.benchmarks.test_kinds import List, Point, Two, first_wins, lengths, one_winner
from tests.support.benchmarks import by_hand
from tests.support.command import command


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_an_unknown_mode_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"(There is no mode of {name} 'rankings'|{name} has no modes)"):
        get_benchmark(name, "rankings")


def test_a_near_mode_is_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean ranking"):
        get_benchmark("rewardbench2", "rankings")


# -- RewardBench 2 ---------------------------------------------------------------------------------------------------------


def test_ranking_leaves_ties_out_and_says_so() -> None:
    asked: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append(len(sample.output))
        return one_winner(sample)

    report = evaluate(List(judge=listen), EXCERPTS["rewardbench2"], get_benchmark("rewardbench2", "ranking"))
    assert len(asked) == 3, "the two rows of Ties cost nothing"
    assert (report.score, report.n, report.n_scored, report.n_unscored) == (0.375, 5, 3, 2)
    assert (report.by_subset["Ties"].score, report.by_subset["Ties"].n_unscored) == (None, 2)
    assert report.extra["subsets_without_score"] == ["Ties"]
    assert report.extra["subsets_absent"] == ["Factuality", "Precise IF", "Safety"]
    assert report.chance == 0.25
    assert report.baselines == {"longest": 0.375, "shortest": pytest.approx(0.25)}
    assert "mode ranking" in report.version and "Ties is rated" in report.notes[0]
    assert "with_upstream_defaults" not in report.extra


def test_ratings_score_each_answer() -> None:
    rated = evaluate(Point(), EXCERPTS["rewardbench2"], get_benchmark("rewardbench2", "ratings"))
    assert rated.score == evaluate(Point(), EXCERPTS["rewardbench2"]).score
    assert "mode ratings" in rated.version


@pytest.mark.parametrize(
    ("name", "mode", "reward", "message"),
    [
        ("rewardbench2", "ranking", Point(), "which is --mode ratings; name a listwise one"),
        ("rewardbench2", "ratings", List(), "which is --mode ranking; name a pointwise one"),
        ("judgebench", "two_games", List(), "or take --mode single_game"),
        ("judgebench", "two_games", Two(both_orders=False), "name a pairwise judge that plays both"),
    ],
)
def test_a_reward_of_another_kind_is_refused(name: str, mode: str, reward: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(reward, EXCERPTS[name], get_benchmark(name, mode))


def silent_about(*texts: str) -> Any:
    def judge(sample: DataSample) -> list[float]:
        if sample.output[0].answer.text in texts:
            raise Unscored("no verdict", reason="parse")
        return lengths(sample)

    return judge


class Rating(Point):
    """Rates an answer by its length and has nothing to say about some."""

    silent: tuple[str, ...] = ()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        silent_about(*self.silent)(sample)
        return super()._evaluate(sample)


def test_what_cannot_be_read_is_unscored_and_what_upstream_makes_of_it_stands_beside_it() -> None:
    rows = [
        rewardbench2("1", "Math", [LONG], [SHORT, "x", "y"]),
        rewardbench2("2", "Math", [MIDDLE], [SHORT, "x", "y"]),
        rewardbench2("3", "Focus", [LONG], [MIDDLE, SHORT, "x"]),
    ]
    report = evaluate(Rating(silent=(MIDDLE,)), rows)
    assert {name: part.score for name, part in report.by_subset.items()} == {"Focus": None, "Math": 1.0}
    # row 2: the rating of the right answer is missing, so the longest wrong one wins; row 3: the right one wins the others
    assert report.extra["with_upstream_defaults"] == pytest.approx((0.5 + 1.0) / 2)
    silent = evaluate(Rating(silent=(LONG, MIDDLE, SHORT, "x", "y")), rows)
    assert (silent.score, silent.n_unscored) == (None, 3)
    assert silent.extra["with_upstream_defaults"] == 0.25, "four ratings upstream cannot read earn a quarter"


def test_upstream_takes_a_rating_of_ties_it_cannot_read_as_minus_one() -> None:
    ref = by_hand([5, 1, 0], (True, False, False), subset="Ties", sample_id="ref:1")
    tied = by_hand([5, None, 1], (True, True, False), subset="Ties", sample_id="tied:1", status="unscored")
    extra = get_benchmark("rewardbench2").score([ref, tied]).extra
    # gaps 4 and -2, spread 6: only the ref row is accurate
    assert extra["with_upstream_defaults"] == pytest.approx(0.30 + 0.01 * math.tanh(-2 / 6 - 1))


# -- JudgeBench ------------------------------------------------------------------------------------------------------------


def test_single_game_is_the_order_of_the_file() -> None:
    rows = [judgebench(str(k), "mmlu-pro", LONG, SHORT, label) for k, label in enumerate(["A>B", "A>B", "A>B", "B>A"])]
    single = evaluate(Two(judge=first_wins), rows, get_benchmark("judgebench", "single_game"))
    assert (single.rule, single.score) == ("single_game", 0.75), (
        "the first answer of the file is right in three of four"
    )
    assert evaluate(Two(judge=first_wins), rows).score == 0.0


def test_a_game_without_a_verdict_is_a_tie_upstream() -> None:
    judged: list[Judged] = [by_hand([1, 0], games=(1, 1)), by_hand([0, 1], games=(-1, -1))]
    judged.append(by_hand([1, 0], games=(1, None), status="unscored"))
    report = get_benchmark("judgebench").score(judged)
    assert (report.score, report.n_scored, report.n_unscored) == (0.5, 2, 1)
    assert report.extra["with_upstream_defaults"] == pytest.approx(2 / 3)


# -- RewardBench 1 ---------------------------------------------------------------------------------------------------------


def prior(number: int, chosen: str, rejected: str) -> Row:
    """A row of the published preference sets."""
    return {"prompt": turns(f"q{number}"), "chosen": chosen, "rejected": rejected, "subset": "own", "id": number}


def test_prior_sets_are_told_by_their_files_and_weigh_half_a_section(tmp_path: Path) -> None:
    """Two of three are right in helpful, one of two in hhh, none in harmless, which does not enter."""
    sets = {
        "anthropic_helpful-00000-of-00001.jsonl": [prior(k, LONG, SHORT) for k in range(2)] + [prior(2, SHORT, LONG)],
        "anthropic_hhh.jsonl": [prior(3, LONG, SHORT), prior(4, SHORT, LONG)],
        "anthropic_harmless/0000.jsonl": [prior(5, SHORT, LONG)],
    }
    for name, rows in sets.items():
        path = tmp_path / "sets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    main = tmp_path / "filtered.jsonl"
    main.write_text(json.dumps(rewardbench(9, "math-prm", LONG, SHORT)) + "\n", encoding="utf-8")
    alone = evaluate("length_baseline", tmp_path / "sets", "rewardbench_prior_sets")
    assert alone.rule == "unweighted_mean_of_subsets"
    assert alone.score == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert alone.extra["prior_sets_absent"] == ["shp", "summarize"]
    assert alone.extra["sets_outside_the_mean"] == ["anthropic_harmless"]
    assert alone.ci95 is not None and alone.ci95.low < (alone.score or 0) < alone.ci95.high
    both = [main, tmp_path / "sets"]
    sections = evaluate("length_baseline", both, "rewardbench")
    assert (sections.rule, sections.score) == ("rewardbench1_sections", 1.0)
    leaderboard = evaluate("length_baseline", both, get_benchmark("rewardbench", "leaderboard"))
    assert leaderboard.rule == "rewardbench1_leaderboard"
    assert leaderboard.score == pytest.approx((2 * 1.0 + (2 / 3 + 1 / 2) / 2) / 3)
    assert leaderboard.score == sections.extra["leaderboard_total"]
    assert leaderboard.extra["sections_absent"] == ["Chat", "Chat Hard", "Safety"]
    done = command(
        "bench", "rewardbench", "-r", "length_baseline", "--data", str(main), "--mode", "leaderboard", "--json"
    )
    assert json.loads(done.out)["extra"]["prior_sets_absent"] == list(PRIOR_SETS), done.err


@pytest.mark.parametrize(
    ("source", "subset", "found"),
    [
        ("allenai/preference-test-sets[shp]", None, "shp"),
        ("/data/summarize-00000-of-00001.parquet", "tldr", "summarize"),
        ("C:\\sets\\anthropic_hhh\\0000.parquet", "harmless", "anthropic_hhh"),
        ("/data/shp.parquet", "math-prm", "math-prm"),
        ("/data/summarized.parquet", "mine", "mine"),
    ],
)
def test_the_name_of_a_prior_set(source: str, subset: str | None, found: str) -> None:
    row = {**prior(1, "a", "b"), "subset": subset}
    sample = get_benchmark("rewardbench").convert(row, RowRef(source, 1))
    assert (sample.metadata or {})["subset"] == found


def test_half_a_point_upstream_for_a_verdict_that_cannot_be_read() -> None:
    judged = [by_hand([1, 0], subset="math-prm"), by_hand([1, None], subset="math-prm", status="unscored")]
    report = get_benchmark("rewardbench").score(judged)
    assert (report.score, report.extra["with_upstream_defaults"]) == (1.0, 0.75)


def test_an_estimate_does_not_ask_what_the_mode_leaves_out() -> None:
    asked: list[int] = []

    def listen(sample: DataSample) -> list[float]:
        asked.append(len(sample.output))
        return one_winner(sample)

    found = estimate(List(judge=listen), EXCERPTS["rewardbench2"], get_benchmark("rewardbench2", "ranking"))
    assert (len(asked), found.samples) == (3, 0)


MISSING = [
    ("rewardbench", EXCERPTS["rewardbench"], "sections: Chat, Safety; subsets: alpacaeval-easy"),
    ("rewardbench2", EXCERPTS["rewardbench2"], "subsets: Factuality, Precise IF, Safety"),
    ("rm_bench", EXCERPTS["rm_bench"], "domains: code, math"),
    ("rmb", EXCERPTS["rmbbenchmark_pairwise"][:1], "goals: Harmlessness"),
    ("rmb_bon", EXCERPTS["rmbbenchmark_bestofn"][1:], "goals: Helpfulness"),
]


@pytest.mark.parametrize(("name", "rows", "said"), MISSING, ids=[name for name, _, _ in MISSING])
def test_what_is_missing_is_said_and_is_no_zero(name: str, rows: list[Row], said: str) -> None:
    report = evaluate("length_baseline", rows, name)
    assert f"missing, and not in the figure: {said}" in str(report)
    assert all(part.score is not None for part in report.by_subset.values())
