"""Recorded texts and scores of real judges through `bench --replay` and `--scores`: the published figures come out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.gallery.benchmarks.auto_j import GROUPS
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.judgebench import CATEGORIES
from rm_gallery.gallery.benchmarks.judgements import Verdict
from rm_gallery.gallery.benchmarks.protocols import (
    auto_j_rating,
    judgebench_reader,
    llmbar_answer,
    llmbar_explained,
    llmbar_ratings,
)
from rm_gallery.report.recorded import score_recorded
from tests.support.command import command
from tests.support.shared_data import shared_file

SIGNS: dict[str | None, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0, None: None}


def columns(name: str, wanted: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(shared_file(f"{name}.parquet"), columns=wanted).to_pylist()
    return rows


def recorded(benchmark: str, option: str, name: str) -> Any:
    """What `bench BENCHMARK --replay|--scores FILE --json` prints."""
    done = command("bench", benchmark, option, str(shared_file(f"{name}.parquet")), "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def percent(share: float) -> float:
    return round(100 * share, 2)


def as_published(text: str) -> float:
    """A share out of "28 / 54 = 51.85185185185185%"."""
    return float(text.rsplit("=", 1)[-1].strip().rstrip("%")) / 100


def test_llmbar_every_published_statistic() -> None:
    found = {
        (r["subset"], r["evaluator"], r["method"]): r for r in recorded("llmbar", "--replay", "llmbar_judge_outputs")
    }
    figures = ["correct_False", "correct_True", "correct_average", "correct_both", "equal"]
    published = columns("llmbar_published_statistics", ["subset", "evaluator", "method", "n", *figures])
    assert len(published) == len(found) > 100
    for row in published:
        mine = found[row["subset"], row["evaluator"], row["method"]]
        assert mine["n"] == row["n"]
        assert {name: mine[name] for name in figures} == pytest.approx(
            {name: as_published(row[name]) for name in figures}, abs=1e-12
        )
        assert mine["ci95"][0] <= mine["correct_average"] <= mine["ci95"][1]


def test_llmbar_reads_every_text_as_recorded() -> None:
    """Not only the figures: each winner, the ratings' included."""
    benchmark, winners = get_benchmark("llmbar"), {"1": 1, "2": -1, None: None}
    rows = columns("llmbar_judge_outputs", ["subset", "evaluator", "method", "index", "label", "stage", "kind", "swap", "raw_text", "winner", "is_final"])  # fmt: skip
    expected: dict[tuple[Any, ...], Verdict] = {
        (r["subset"], r["evaluator"], r["method"], str(r["index"]), r["swap"]): winners[r["winner"]]
        for r in rows
        if r["is_final"] and not r["kind"].startswith("rating_output")
    }
    n = 0
    for group, judged in benchmark.replayed(rows):
        index = judged.sample_id.rpartition(":")[2]
        swapped = judged.verdict(1, 0)
        read = {False: judged.verdict(0, 1), True: None if swapped is None else -swapped}
        for swap, verdict in read.items():
            assert verdict == expected[(*group.values(), index, swap)], (group, index, swap)
            n += 1
    assert n == len(expected)


@pytest.mark.parametrize(
    ("option", "name", "model", "n", "overall", "by_category"),
    [
        (
            "--scores",
            "judgebench_rm_scores",
            "Skywork/Skywork-Reward-Llama-3.1-8B",
            350,
            62.29,
            (59.09, 64.29, 76.79, 50.0),
        ),  # fmt: skip
        (
            "--scores",
            "judgebench_rm_scores",
            "Ray2333/GRM-Gemma-2B-rewardmodel-ft",
            350,
            59.43,
            (62.99, 53.06, 64.29, 54.76),
        ),  # fmt: skip
        ("--replay", "judgebench_judge_outputs", "claude-3-haiku-20240307", 270, 32.22, (37.66, 29.41, 32.35, 9.68)),
    ],
)
def test_judgebench(option: str, name: str, model: str, n: int, overall: float, by_category: tuple[float, ...]) -> None:
    found = next(line for line in recorded("judgebench", option, name) if line["judge_model"] == model)
    assert (found["n"], percent(found["score"])) == (n, overall)
    assert tuple(percent(found["by_category"][category]) for category in CATEGORIES) == by_category


def test_judgebench_reads_every_text_and_score_as_recorded() -> None:
    wanted = ["judge_name", "raw_text", "decision"]
    for row in columns("judgebench_judge_outputs", wanted):
        decision = row["decision"].replace(">>", ">") if row["decision"] else None
        assert judgebench_reader(row["judge_name"])(row["raw_text"]) == SIGNS[decision]
    rows = columns("judgebench_rm_scores", ["pair_id", "source", "label", "judge_model", "decision_1", "decision_2_raw", "score_A", "score_B", "score_A_swapped", "score_B_swapped"])  # fmt: skip
    for row, (_, judged) in zip(rows, get_benchmark("judgebench").recorded_scores(rows), strict=True):
        assert (judged.verdict(0, 1), judged.verdict(1, 0)) == (SIGNS[row["decision_1"]], SIGNS[row["decision_2_raw"]])


def test_judgebench_figures_differ_by_rule_on_the_same_verdicts() -> None:
    """Why a figure has to name its rule: the official one, one order alone, and both orders right."""
    path = shared_file("judgebench_judge_outputs.parquet")
    [(_, report)] = score_recorded(get_benchmark("judgebench"), replay=path)
    assert (report.score, report.extra["single_game"], report.extra["orders"]["both_orders"]) == pytest.approx(
        (0.3222, 0.2963, 0.1407), abs=5e-5
    )
    assert report.extra["n_unreadable"] == 13


AUTO_J = {
    "Summarization": (45.83, 73.61),
    "Exam Questions": (38.89, 69.44),
    "Code": (47.5, 75.83),
    "Rewriting": (49.17, 74.17),
    "Creative Writing": (59.72, 87.04),
    "Functional Writing": (61.67, 81.67),
    "General Communication": (55.21, 92.36),
    "NLP Tasks": (57.58, 86.36),
}


def test_auto_j_agreement_consistency_and_the_first_order() -> None:
    found = recorded("auto_j", "--replay", "autoj_pairwise_preds")
    assert found["n"] == 1392
    assert tuple(percent(found[name]) for name in ("agreement", "consistency", "single")) == (54.96, 83.41, 59.99)
    groups = {name: (percent(g["agreement"]), percent(g["consistency"])) for name, g in found["by_group"].items()}
    assert groups == AUTO_J
    rows = columns("autoj_pairwise_preds", ["scenario", "group", "label", "pred"])
    for group, figures in found["by_group"].items():
        own = [row for row in rows if row["group"] == group]
        assert {row["scenario"] for row in own} == set(GROUPS[group])
        assert figures["single"] == pytest.approx(sum(row["label"] == row["pred"] for row in own) / len(own))


def test_auto_j_reads_960_ratings() -> None:
    rows = columns("autoj_single_gpt4_ratings", ["target_output", "pred_score"])
    assert [auto_j_rating(row["target_output"]) for row in rows] == [row["pred_score"] for row in rows]
    assert len(rows) == 960


# -- quirks of the protocols, on texts written for the test ----------------------------------------------------------------

READ: list[tuple[str, str, Verdict]] = [
    ("arena_hard", "so [[A>B]]", 1),
    ("arena_hard", "first [[B>>A]], and again [[B>>A]]", -1),
    ("arena_hard", "equal: [[A=B]]", 0),
    ("arena_hard", "[[A>B]] and then [[A>>B]]", None),
    ("arena_hard", "no label", None),
    ("arena_hard", "[[AB]]", None),
    ("vanilla", " Output (b) ", -1),
    ("vanilla", "Output (b).", None),
    ("panda_lm", "2\nbecause", -1),
    ("panda_lm", "The first", 0),
    ("judge_lm", "7, 5\nbecause", 0),
    ("judge_lm", "7 5\nbecause", 1),
    ("judge_lm", "4.5 8", -1),
    ("judge_lm", "seven five", 0),
    ("auto_j", "the final decision is Response 1? No: the final decision is Tie.", 0),
    ("auto_j", "my choice is Response 1", None),
    ("prometheus_2", "Feedback: fine [RESULT] B", -1),
    ("prometheus_2", "Feedback: A is fine\nResult: A", 1),
    ("prometheus_2", "A", None),
    ("prometheus_2", "[result] response b", -1),
    ("prometheus_2", "[RESULT ] A", None),
    ("prometheus_2", "[RESULT: ] A", None),
    ("skywork_critic", "[[B]] because B", -1),
    ("skywork_critic", "[[B]] And so", 1),
    ("skywork_critic", "none", None),
]


@pytest.mark.parametrize(("judge", "text", "verdict"), READ)
def test_readers_of_judgebench(judge: str, text: str, verdict: Verdict) -> None:
    assert judgebench_reader(judge)(text) == verdict


@pytest.mark.parametrize(
    ("text", "answer", "explained"),
    [
        ("Output (a)", 1, None),
        ("so:\n Output (b)", -1, None),
        ("so: Output (b)", None, None),
        ("Output (b)\nOutput (a)", 1, None),
        ("I think Output (b) is better.", None, -1),
        ("Output (b) is better", -1, None),
        ("Output (b) is better. No, Output (a) is better.", -1, 1),
        ("\r\nOutput (a)\r\n", 1, None),
        ("", None, None),
    ],
)
def test_readers_of_llmbar(text: str, answer: Verdict, explained: Verdict) -> None:
    assert (llmbar_answer(text), llmbar_explained(text)) == (answer, explained)


@pytest.mark.parametrize(
    ("first", "second", "verdicts"),
    [("8", "3", (1, 1)), (" 3\n", "8", (-1, -1)), ("5", "5", (-1, 1)), ("", "5", (1, -1)), ("8.5", "3", (1, -1))],
)
def test_ratings_of_llmbar(first: str, second: str, verdicts: tuple[Verdict, Verdict]) -> None:
    assert llmbar_ratings(first, second) == verdicts
