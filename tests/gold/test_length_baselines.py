"""The length baseline from file to figure: the recorded digits of every file come out of one call."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.schema import preference_of
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.report.evaluate import evaluate
from tests.support.command import command
from tests.support.shared_data import shared_file


def baseline(*names: str, **params: Any) -> Report:
    """The report of the longest answer on benchmark files; the benchmark is found from their columns."""
    report = evaluate("length_baseline", [shared_file(f"{name}.parquet") for name in names], params=params)
    assert report.n == report.n_scored > 0
    return report


def digits(value: Figure | float | None) -> float:
    """A figure in percent, as it is recorded."""
    score = value.score if isinstance(value, Figure) else value
    assert score is not None
    return round(100 * score, 4)


@pytest.fixture(scope="module")
def gold() -> dict[str, Any]:
    percent: dict[str, Any] = json.loads(shared_file("baseline_longest.json").read_text(encoding="utf-8"))["percent"]
    return percent


def test_rewardbench1(gold: dict[str, Any]) -> None:
    report, expected = baseline("rewardbench1_style"), gold["rewardbench1_style"]
    assert (report.benchmark, report.n) == ("rewardbench", 1573)
    assert {name: digits(part) for name, part in report.by_subset.items()} == expected["subsets"]
    assert {name: digits(part) for name, part in report.extra["sections"].items()} == expected["sections"]
    assert digits(report) == expected["mean_of_sections"]


def test_rewardbench2(gold: dict[str, Any]) -> None:
    report, expected = baseline("rewardbench2_style"), dict(gold["rewardbench2_style"])
    assert (report.benchmark, report.n) == ("rewardbench2", 1280)
    ties, expected_ties = report.by_subset["Ties"], expected.pop("Ties")
    assert digits(report) == expected.pop("unweighted_mean")
    assert {name: digits(part) for name, part in report.by_subset.items() if name != "Ties"} == expected
    assert digits(ties) == expected_ties["overall"]
    for name in ("ref_accuracy", "tied_accuracy", "correctness_preferred", "correctness_preferred_hard"):
        assert digits(ties.extra[name]) == expected_ties[name]
    assert round(ties.extra["margin"], 6) == expected_ties["margin_term"]
    shortest = baseline("rewardbench2_style", shortest=True)
    assert digits(shortest.by_subset["Ties"]) == 24.2643, "as upstream code has it"


FILES = {"chat": ["chat"], "code": ["code"], "safety": ["safety_refuse", "safety_response"]}


@pytest.mark.parametrize("domain", FILES)
def test_i5_rm_bench_is_told_from_rewardbench2_and_gives_the_official_matrix(gold: dict[str, Any], domain: str) -> None:
    report, expected = baseline(*(f"rm_bench_{name}" for name in FILES[domain])), gold["rm_bench"][domain]
    part = report.by_subset[domain]
    assert (report.benchmark, report.rule, report.n) == ("rm_bench", "rm_bench_matrix", expected["n"])
    assert digits(report) == digits(part) == expected["avg"]
    assert {name: digits(part.extra[name]) for name in ("hard", "normal", "easy")} == {
        name: expected[name] for name in ("hard", "normal", "easy")
    }
    assert [[digits(cell) for cell in line] for line in part.extra["matrix"]] == expected["matrix"]


def test_rm_bench_of_all_domains(gold: dict[str, Any]) -> None:
    report = baseline(*(f"rm_bench_{name}" for names in FILES.values() for name in names))
    assert digits(report) == gold["rm_bench"]["three_domain_mean"]
    assert report.extra["domains_absent"] == ["math"]


@pytest.mark.parametrize(("name", "two_games"), [("judgebench_gpt4o", 46.0), ("judgebench_claude", 43.7037)])
def test_judgebench(gold: dict[str, Any], name: str, two_games: float) -> None:
    """The recorded figures come from one game, in which equal scores are a win of the second answer; two games cancel it."""
    report = baseline(name)
    single = {part: digits(figure.extra["single_game"]) for part, figure in report.by_subset.items()}
    assert {**single, "overall": digits(report.extra["single_game"])} == gold[name]
    assert (report.rule, digits(report)) == ("two_game_sign", two_games)


def test_rmb_best_of_n(gold: dict[str, Any]) -> None:
    report = baseline("rmb_bon")
    assert {name: digits(part) for name, part in report.by_subset.items()} == gold["rmb_bon_all_pass"]


def test_rmb_pairwise() -> None:
    """No digits are recorded for it: the expected ones are counted straight from the file."""
    report = baseline("rmb_pairwise")
    rows = pq.read_table(shared_file("rmb_pairwise.parquet"), columns=["category_path", "chosen", "reject"]).to_pylist()
    assert report.extra["categories"].keys() == report.by_subset.keys()
    for goal, part in report.by_subset.items():
        pairs = [(r["chosen"]["answer"], r["reject"]["answer"]) for r in rows if f"/{goal}/" in r["category_path"]]
        assert part.n_scored == len(pairs) > 4000
        assert digits(part) == round(100 * sum(len(a) > len(b) for a, b in pairs) / len(pairs), 4)


def test_hh_rlhf() -> None:
    """No digits are recorded for it; both transcripts of a row begin alike, so the longer one ends in the longer answer."""
    report = baseline("hh_rlhf_harmless_test")
    rows = pq.read_table(shared_file("hh_rlhf_harmless_test.parquet")).to_pylist()
    longer = sum(len(row["chosen"].rstrip()) > len(row["rejected"].rstrip()) for row in rows)
    assert report.n_scored == len(rows)
    assert digits(report) == round(100 * longer / len(rows), 4)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("rewardbench1_style",), [75.2, 72.6, 50.5, 60.3]),
        (("rm_bench_chat",), [97.4, 64.3, 18.9]),
        (("rm_bench_code",), [74.6, 48.1, 22.5]),
        (("rm_bench_safety_refuse", "rm_bench_safety_response"), [89.9, 61.9, 7.6]),
        (("judgebench_gpt4o",), [54.0]),
        (("judgebench_claude",), [56.3]),
        (("rmb_bon",), [18.1, 26.8]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_shortest_answer(names: tuple[str, ...], expected: list[float]) -> None:
    """One decimal of these is recorded."""
    report = baseline(*names, shortest=True)
    extra = report.extra
    found: dict[str, list[Figure | float | None]] = {
        "rewardbench": [extra.get("sections", {}).get(name) for name in ("Chat", "Chat Hard", "Safety", "Reasoning")],
        "rm_bench": [extra.get(name) for name in ("hard", "normal", "easy")],
        "judgebench": [extra.get("single_game")],
        "rmbbenchmark_bestofn": [report.by_subset.get(name) for name in ("Helpfulness", "Harmlessness")],
    }
    assert [digits(figure) for figure in found[report.benchmark]] == pytest.approx(expected, abs=0.0501)


LLMBAR = ("natural", "adversarial_neighbor", "adversarial_gptinst", "adversarial_gptout", "adversarial_manual")


def test_llmbar(gold: dict[str, Any]) -> None:
    report = baseline(*(f"llmbar_{name}" for name in LLMBAR))
    assert (report.benchmark, report.rule, report.n) == ("llmbar", "pair_strict", 419)
    assert {name: digits(part) for name, part in report.by_subset.items()} == gold["llmbar"]
    shortest = baseline(*(f"llmbar_{name}" for name in LLMBAR), shortest=True)
    assert [round(digits(shortest.by_subset[name]), 1) for name in LLMBAR] == [43.0, 88.1, 87.0, 55.3, 80.4]
    adversarial = [gold["llmbar"][name] for name in LLMBAR[1:]]
    assert digits(report.extra["adversarial_mean"]) == pytest.approx(sum(adversarial) / 4, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "benchmark", "longest", "shortest"),
    [("autoj_pairwise", "auto_j", 52.9, 21.3), ("hhh_alignment", "hhh", 62.9, 36.2)],
)
def test_one_decimal_is_recorded_of(name: str, benchmark: str, longest: float, shortest: float) -> None:
    report = baseline(name)
    assert (report.benchmark, round(digits(report), 1)) == (benchmark, longest)
    assert round(digits(report.baselines["shortest"]), 1) == shortest


def test_hhh_gives_the_same_pairs_from_grading_prompts() -> None:
    rows = pq.read_table(shared_file("hhh_alignment.parquet")).to_pylist()
    benchmark = get_benchmark("hhh")
    for row in rows:
        listed = benchmark.convert(row)
        graded = benchmark.convert(
            {name: row[name] for name in ("subset", "chosen_instruction", "rejected_instruction")}
        )
        texts = [{o.answer.text.strip(): preference_of(o) for o in s.output} for s in (listed, graded)]
        assert texts[0] == texts[1]
        assert listed.query_text().strip() == graded.query_text().strip()


def test_i5_the_command_prints_the_official_figure() -> None:
    done = command("eval", "length_baseline", str(shared_file("rm_bench_chat.parquet")), "--json")
    assert (done.code, round(100 * json.loads(done.out)["score"], 4)) == (0, 37.3816)
