"""The length baseline on the files of every benchmark: digits that were recorded, and those its
page claims.

Own rows of equal branches stand in `tests/golden/scoring`.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery import Report, evaluate
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.gallery.benchmarks.base import benchmarks, detect_benchmark, own_layouts
from rm_gallery.gallery.benchmarks.figures import Figure
from rm_gallery.study.source import Source
from tests.support.shared_data import shared_file

LLMBAR = (
    "natural",
    "adversarial_neighbor",
    "adversarial_gptinst",
    "adversarial_gptout",
    "adversarial_manual",
)
SAFETY = ("rm_bench_safety_refuse", "rm_bench_safety_response")
Gold = dict[str, Any]


def baseline(*names: str) -> Report:
    """The report of the longest answer; the benchmark is found from the columns, and the shortest
    one stands beside it.
    """
    return evaluate(
        "length_baseline", [shared_file(f"{name}.parquet") for name in names], progress=False
    )


def digits(value: Figure | float | None, n: int = 4) -> float:
    """A figure in percent, as it is recorded."""
    score = value.score if isinstance(value, Figure) else value
    assert score is not None
    return round(100 * score, n)


def parts(report: Report) -> dict[str, float]:
    return {name: digits(part) for name, part in report.by_subset.items()}


@pytest.fixture(scope="module")
def gold() -> Gold:
    percent: Gold = json.loads(shared_file("baseline_longest.json").read_text(encoding="utf-8"))[
        "percent"
    ]
    return percent


def test_rewardbench_1_and_2(gold: Gold) -> None:
    report, expected = baseline("rewardbench1_style"), gold["rewardbench1_style"]
    assert (parts(report), digits(report)) == (expected["subsets"], expected["mean_of_sections"])
    assert {name: digits(part) for name, part in report.extra["sections"].items()} == expected[
        "sections"
    ]
    report, expected = baseline("rewardbench2_style"), dict(gold["rewardbench2_style"])
    ties, found = expected.pop("Ties"), parts(report)
    assert (digits(report), found.pop("Ties")) == (expected.pop("unweighted_mean"), ties["overall"])
    assert found == expected
    names = ("ref_accuracy", "tied_accuracy", "correctness_preferred", "correctness_preferred_hard")
    assert {name: digits(report.by_subset["Ties"].extra[name]) for name in names} == {
        name: ties[name] for name in names
    }
    assert round(report.by_subset["Ties"].extra["margin"], 6) == ties["margin_term"]


@pytest.mark.parametrize(
    ("domain", "files"),
    [("chat", ("rm_bench_chat",)), ("code", ("rm_bench_code",)), ("safety", SAFETY)],
)
def test_rm_bench(gold: Gold, domain: str, files: tuple[str, ...]) -> None:
    report, expected = baseline(*files), gold["rm_bench"][domain]
    extra = report.by_subset[domain].extra
    found: Gold = {name: digits(extra[name]) for name in ("hard", "normal", "easy")}
    found |= {
        "n": report.n,
        "avg": digits(report),
        "matrix": [[digits(cell) for cell in line] for line in extra["matrix"]],
    }
    assert found == {name: expected[name] for name in found}


@pytest.mark.parametrize(
    ("name", "two_games"), [("judgebench_gpt4o", 46.0), ("judgebench_claude", 43.7037)]
)
def test_judgebench(gold: Gold, name: str, two_games: float) -> None:
    """The recorded figures come from one game, in which equal scores are a win of the second
    answer; two games cancel it.
    """
    report = baseline(name)
    single = {
        part: digits(figure.extra["single_game"]) for part, figure in report.by_subset.items()
    }
    assert {**single, "overall": digits(report.extra["single_game"])} == gold[name]
    assert (report.rule, digits(report)) == ("two_game_sign", two_games)


def test_rmb_and_llmbar(gold: Gold) -> None:
    assert parts(baseline("rmb_bon")) == gold["rmb_bon_all_pass"]
    report = baseline(*(f"llmbar_{name}" for name in LLMBAR))
    assert parts(report) == gold["llmbar"]
    adversarial = [gold["llmbar"][name] for name in LLMBAR[1:]]
    assert digits(report.extra["adversarial_mean"]) == pytest.approx(sum(adversarial) / 4, abs=1e-4)


FILES: dict[tuple[str, str], tuple[str, ...]] = {
    ("judgebench", "gpt split"): ("judgebench_gpt4o",), ("judgebench", "claude split"): ("judgebench_claude",),
    ("rm_bench", "chat"): ("rm_bench_chat",), ("rm_bench", "code"): ("rm_bench_code",), ("rm_bench", "safety"): SAFETY,
    ("rmbbenchmark_pairwise", ""): ("rmb_pairwise",), ("rmbbenchmark_bestofn", ""): ("rmb_bon",),
    ("hh_rlhf", "harmless-base test"): ("hh_rlhf_harmless_test",), ("hhh", ""): ("hhh_alignment",),
    ("auto_j", "all"): ("autoj_pairwise",), **{("llmbar", name): (f"llmbar_{name}",) for name in LLMBAR},
}  # fmt: skip


def test_no_length_is_claimed_that_no_file_backs() -> None:
    assert {name for name, found in benchmarks().items() if found.page().length} == {
        name for name, _ in FILES
    }


@pytest.mark.parametrize(
    ("name", "part"), FILES, ids=[f"{name} {part}".strip() for name, part in FILES]
)
def test_a_page_claims_what_length_reaches_on_the_files(name: str, part: str) -> None:
    report = baseline(*FILES[name, part])
    assert report.benchmark == name
    for label, figure in ({part: report} if part else report.by_subset).items():
        n, *claimed = benchmarks()[name].page().length[label]
        held_out = figure.n != n  # a part of the file is here
        assert (
            held_out
            or [digits(figure.baselines[key], 1) for key in ("longest", "shortest")] == claimed
        )


NO_ROWS = [
    "autoj_pairwise_preds", "autoj_single_gpt4_ratings", "gsm8k_test", "humaneval", "judgebench_judge_outputs",
    "judgebench_rm_scores", "llmbar_judge_outputs", "prmbench_skywork7b_step_scores", "rewardbench2_style_provenance",
]  # fmt: skip


def test_recorded_judgements_and_plain_tasks_are_no_benchmark_s_rows() -> None:
    for name in NO_ROWS:
        row = next(rows_in(shared_file(f"{name}.parquet")))
        assert own_layouts(row) == [], name


def test_every_row_of_a_file_is_found_by_its_own_benchmark_and_becomes_a_sample() -> None:
    expected = {
        "prmbench": "prmbench",
        "rewardbench1_style": "rewardbench",
        "rewardbench2_style": "rewardbench2",
    }
    expected |= {file: name for (name, _), files in FILES.items() for file in files}
    for file, name in expected.items():
        path = shared_file(f"{file}.parquet")
        data = Source(path).open()
        assert data.benchmark.name == name
        assert {detect_benchmark(row).name for row in islice(rows_in(path), 40)} == {name}
        assert sum(1 for _ in data.rows()) == pq.read_metadata(path).num_rows
