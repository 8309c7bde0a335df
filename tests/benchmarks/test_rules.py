"""A benchmark is one class in one file, found by its name and columns; how its samples add up
beyond the golden files.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataError, DataSample, evaluate
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.judgements import cluster_of
from rm_gallery.gallery.benchmarks.rewardbench import SECTION_WEIGHTS
from rm_gallery.gallery.benchmarks.rewardbench2 import (
    ScoredRow,
    TiesRow,
    TiesTally,
    ties_difference,
)
from rm_gallery.gallery.benchmarks.rules import MeanOfSubsets, RuleScorer, strict_pairs
from tests.benchmarks.excerpts import EXCERPTS, LONG, SHORT, rewardbench
from tests.data.loading import write
from tests.support.wilson import wilson


@pytest.mark.parametrize(
    "name", ["allenai/reward-bench-2", "REWARD_BENCH 2", "rewardbench2", "Reward-Bench-2"]
)
def test_case_owner_and_separators_of_a_name_do_not_matter(name: str) -> None:
    assert get_benchmark(name).name == "rewardbench2"
    assert get_benchmark(get_benchmark(name)).name == "rewardbench2"


def test_files_of_two_benchmarks_are_not_scored_together_unless_one_rule_is_asked_for(
    tmp_path: Path,
) -> None:
    paths = [
        write(tmp_path / f"{name}.jsonl", EXCERPTS[name][:1])
        for name in ("rewardbench2", "rm_bench")
    ]
    with pytest.raises(
        DataError,
        match="rm_bench.jsonl has the columns of rm_bench, and rewardbench2 has another rule",
    ):
        evaluate("length_baseline", paths)
    assert evaluate("length_baseline", EXCERPTS["rewardbench"], "pairs").rule == "pair_strict"
    assert (
        evaluate("length_baseline", EXCERPTS["rewardbench2"], "lists").rule
        == "best_of_n_tie_credit"
    )


def test_a_mean_over_subsets_weighs_each_the_same_and_names_what_is_not_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longer answer is right in one of three about the sea and in the one about the air."""
    benchmark = get_benchmark("pairs")

    def scorer(self: Any, seed: int = 0) -> RuleScorer:
        return MeanOfSubsets(strict_pairs(), ("sea", "air", "land"))

    monkeypatch.setattr(type(benchmark), "scorer", scorer)
    asked = ["sea", "sea", "sea", "air", "fire"]
    right = {0, 3}
    rows = [
        rewardbench(n, subset, *((LONG, SHORT) if n in right else (SHORT, LONG)))
        for n, subset in enumerate(asked)
    ]
    report = evaluate("length_baseline", rows, benchmark, progress=False)
    assert (report.rule, report.n, report.chance) == ("unweighted_mean_of_subsets", 5, 0.5)
    assert report.score == pytest.approx((1 / 3 + 1) / 2) and report.ci95 is not None
    assert report.by_subset["fire"].score == 0.0
    assert report.extra["subsets_without_score"] == ["land"]
    assert report.extra["subsets_outside_the_mean"] == ["fire"]
    assert report.baselines["longest"] == pytest.approx(2 / 3)
    assert "subsets without a score: land" in str(report)


def test_prior_sets_are_told_by_their_files_and_weigh_half_a_section(tmp_path: Path) -> None:
    """Two of three are right in helpful, one of two in hhh, none in harmless, which does not enter."""
    long, short = "at some length", "short"

    def prior(*chosen: str) -> list[dict[str, object]]:
        asked = [{"role": "user", "content": "q"}]
        return [
            {
                "prompt": asked,
                "chosen": one,
                "rejected": short if one == long else long,
                "subset": "own",
            }
            for one in chosen
        ]

    sets = tmp_path / "sets"
    write(sets / "anthropic_helpful-00000-of-00001.jsonl", prior(long, long, short))
    write(sets / "anthropic_hhh.jsonl", prior(long, short))
    write(sets / "anthropic_harmless" / "0000.jsonl", prior(short))
    main = write(tmp_path / "filtered.jsonl", EXCERPTS["rewardbench"][:1])
    alone = evaluate("length_baseline", sets, "rewardbench_prior_sets")
    assert alone.score == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert alone.extra["subsets_without_score"] == ["shp", "summarize"]
    sections = evaluate("length_baseline", [main, sets], "rewardbench")
    leaderboard = evaluate(
        "length_baseline", [main, sets], get_benchmark("rewardbench", "leaderboard")
    )
    assert sections.score == 1.0
    assert leaderboard.score == pytest.approx((2 * 1.0 + (2 / 3 + 1 / 2) / 2) / 3)


def _about(*turns: str, **metadata: str) -> DataSample:
    said = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(turns)]
    return DataSample.model_validate({"input": said, "metadata": metadata or None})


def test_samples_of_one_prompt_are_one_cluster() -> None:
    assert cluster_of(_about("why?", subset="a")) == cluster_of(_about("why?", subset="b"))
    different = [("why?",), ("why not?",), ("why?", "so"), ("wh", "y?"), ("\ud800",)]
    assert len({cluster_of(_about(*turns)) for turns in different}) == len(different)
    asked = {"input": [{"role": "user", "content": "why?"}]}
    roles = ("user", "system", "assistant")
    of_roles = [
        DataSample.model_validate({"input": [{**asked["input"][0], "role": role}]})
        for role in roles
    ]
    assert len(set(map(cluster_of, of_roles))) == len(roles), (
        "the same words of a user and of a system are two prompts"
    )
    # a role is no text, and a text no role
    one_turn, two_turns = _about("a", "user"), _about("auser")
    assert cluster_of(one_turn) != cluster_of(two_turns)
    assert (
        cluster_of(_about("why?", cluster="7"))
        == cluster_of(_about("why not?", cluster="7"))
        == "7"
    )
    assert cluster_of(_about("why?", cluster="")) == cluster_of(_about("why?"))
    assert cluster_of(DataSample(unique_id="x")) == "id:x", "no prompt, nothing shared"


def test_figures_are_told_in_plain_json() -> None:
    told = {
        "a": (1, {"b": math.nan}),
        1: "x",
        "c": Interval(0.1, math.nan),
        "d": (math.inf, 1j, True),
    }
    assert plain(told) == {
        "a": [1, {"b": None}],
        "1": "x",
        "c": [0.1, None],
        "d": [None, "1j", True],
    }


def test_the_sections_of_rewardbench_weigh_as_many_rows_as_they_have() -> None:
    sums = {name: sum(weights.values()) for name, weights in SECTION_WEIGHTS.items()}
    assert sums == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1968}


def test_ties_that_all_behave_alike_are_not_known_exactly() -> None:
    tally = TiesTally()
    for k in range(1, 41):  # all right, by margins of all sizes
        tally.add_row(f"ref:{k}", [2.0 + k, 0.0], (True, False))
        tally.add_row(f"tied:{k}", [2.0 + k, 1.0 + k, 0.0], (True, True, False))
    figure, _ = tally.figure()
    assert figure.score == pytest.approx(1.01, abs=1e-3)
    assert figure.ci95 is not None and figure.ci95.low == pytest.approx(
        wilson(40, 40).low, abs=0.02
    )


def test_equal_infinities_are_no_distance_apart_and_what_reorders_text_is_a_space() -> None:
    row = TiesRow(math.inf, math.inf, math.inf, 1)
    assert (row.gap, row.spread) == (0.0, 0.0)
    assert one_line("a\ud800b\x1b\u202ec\u2028d\u2029 e") == "a b c d e"


def test_two_rewards_on_ties_are_compared_prompt_by_prompt() -> None:
    """Prompt 1 is right in both; in prompt 2 the second reward rates a wrong answer best in both
    rows.
    """
    ref, tied = (True, False), (True, True, False)
    kinds = (("ref", [5.0, 1.0], ref), ("tied", [5.0, 5.0, 1.0], tied))
    first = [(f"{kind}:{k}", scores, right) for k in (1, 2) for kind, scores, right in kinds]
    second = [*first[:2], ("ref:2", [1.0, 5.0], ref), ("tied:2", [1.0, 1.0, 5.0], tied)]
    found, *both = ties_difference(first, second) or (None,)
    # one of two prompts: half of everything, and the margin falls from 1 to (1 - 1) / 2
    assert found is not None and found.estimate == pytest.approx(1.01 - (0.5 + 0.01 * 0.0))
    assert found.bounds == pytest.approx((-1.02, 1.02)) and found.n_clusters == 2
    turned, *turned_both = ties_difference(second, first) or (None,)
    assert both == pytest.approx([1.01, 0.5]) and turned_both == both[::-1]
    assert turned is not None and turned.estimate == pytest.approx(-found.estimate)
    assert ties_difference([], []) is None
    lost: list[ScoredRow] = [("ref:1", [None, 1.0], ref), ("tied:1", [5.0, math.nan, 1.0], tied)]
    assert ties_difference(first, lost) is None, "a composite of nothing cannot be compared"
