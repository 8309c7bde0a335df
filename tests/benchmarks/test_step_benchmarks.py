"""PRMBench and ProcessBench: step scores become labels by a named rule, and labels the official figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.base import BaseStepWiseReward
from rm_gallery.core.reward.judge import BaseStepWiseRubricReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError, DataError, Unscored
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.prmbench import f_scores
from rm_gallery.gallery.benchmarks.steps import StepRule
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.opened import open_run
from rm_gallery.report.recorded import recorded_json, score_recorded
from rm_gallery.report.task import open_data
from tests.benchmarks.excerpts import EXCERPTS, Row, prmbench, processbench
from tests.data.loading import write
from tests.support.command import command

Judge = Callable[[str], float]


class Steps(BaseStepWiseReward):
    """Scores a step by its text."""

    judge: Any

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = self.judge((sample.output[0].steps or [])[-1].text)
        if score is None:
            raise Unscored("no idea", reason="parse")
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name="x", score=score)])


def perfect(step: str) -> float:
    return float(step.startswith("right"))


JUDGES: dict[str, Judge] = {
    "perfect": perfect,
    "worst": lambda step: 1.0 - perfect(step),
    "all right": lambda step: 1.0,
    "all wrong": lambda step: 0.5,
}


@pytest.mark.parametrize(
    ("name", "judge", "score", "by_subset"),
    [
        ("prmbench", "perfect", 1.0, {"circular": 1.0, "confidence": 1.0, "multi_solutions": 1.0}),
        ("prmbench", "worst", -1.0, {"circular": -1.0, "confidence": -1.0, "multi_solutions": 0.0}),
        ("prmbench", "all right", 5 / 13, {"circular": 1 / 3, "confidence": 1 / 3, "multi_solutions": 1.0}),
        ("prmbench", "all wrong", 3 / 11, {"circular": 1 / 3, "confidence": 1 / 3, "multi_solutions": 0.0}),
        ("processbench", "perfect", 1.0, {"gsm8k": 1.0, "math": 1.0}),
        ("processbench", "worst", 0.0, {"gsm8k": 0.0, "math": 0.0}),
        ("processbench", "all right", 0.0, {"gsm8k": 0.0, "math": 0.0}),
        ("processbench", "all wrong", 0.0, {"gsm8k": 0.0, "math": 0.0}),
    ],
)
def test_judges_of_known_quality(name: str, judge: str, score: float, by_subset: dict[str, float]) -> None:
    report = evaluate(Steps(judge=JUDGES[judge]), EXCERPTS[name])
    assert (report.benchmark, report.n, report.n_scored) == (name, len(EXCERPTS[name]), report.n)
    assert report.score == pytest.approx(score)
    assert {part: figure.score for part, figure in report.by_subset.items()} == pytest.approx(by_subset)
    assert report.ci95 is not None and report.ci95.low <= score <= report.ci95.high
    assert report.ci95.high > report.ci95.low, "a few rows prove nothing, whatever they say"
    assert "threshold:0.5" in report.version and "threshold:0.5" in report.notes[0]
    if name == "prmbench":
        assert report.extra["first_error_accuracy"] == float(judge in ("perfect", "all wrong"))


@pytest.mark.parametrize("name", ["prmbench", "processbench"])
def test_a_step_without_score_loses_its_solution_and_nothing_else(name: str) -> None:
    rows = EXCERPTS[name]
    some = evaluate(Steps(judge=lambda step: None if step == "right 3" or step == "right 2" else perfect(step)), rows)
    assert (some.n, some.n_unscored) == (len(rows), 2 if name == "prmbench" else 1)
    assert some.reasons["unscored: parse"]["n"] == some.n_unscored
    none = evaluate(Steps(judge=lambda step: None), rows)
    assert (none.score, none.ci95, none.n_scored, none.n_unscored) == (None, None, 0, len(rows))


def test_a_judge_of_steps_needs_a_threshold_on_its_own_scale() -> None:
    reply = FakeLLM(
        reply=lambda asked: "<score>9</score>" if "right" in asked.rsplit("<step", 1)[-1] else "<score>2</score>"
    )
    judge = BaseStepWiseRubricReward(name="steps", llm=reply)
    with pytest.raises(ConfigError, match=r"from 1 to 10, so threshold:0.5 .* --step-rule threshold:5.5"):
        evaluate(judge, EXCERPTS["processbench"])
    for name in ("processbench", "prmbench"):
        report = evaluate(judge, EXCERPTS[name], get_benchmark(name).under(step_rule="threshold:5.5"))
        assert (report.score, report.n_scored) == (1.0, report.n) and report.calls > 0
        assert "threshold:5.5" in report.version
        garbage = BaseStepWiseRubricReward(name="steps", llm=FakeLLM(reply="?"), repair_attempts=0)
        lost = evaluate(garbage, EXCERPTS[name], get_benchmark(name).under(step_rule="threshold:5.5"))
        assert (lost.score, lost.n_scored, lost.n_unscored) == (None, 0, lost.n)


def test_prmbench_keeps_labels_from_a_judge_and_counts_a_repeated_id_once() -> None:
    rows = [*EXCERPTS["prmbench"], EXCERPTS["prmbench"][0]]
    report = evaluate(Steps(judge=perfect), rows)
    assert (report.n, report.extra["n_repeated"]) == (3, 1)
    sample = get_benchmark("prmbench").convert(rows[0])
    assert (sample.unique_id, sample.metadata) == ("circular_p_0", {"subset": "circular", "cluster": "p_0"})
    assert [(step.label or {})["correctness"] for step in sample.output[0].steps or []] == [True, False, True, False]


def test_parts_that_are_absent_are_named_and_no_zero() -> None:
    prm = evaluate(Steps(judge=perfect), EXCERPTS["prmbench"])
    assert (prm.extra["simplicity"], prm.extra["soundness"]) == (None, None)
    assert "redundency" in prm.extra["classes_absent"] and "circular" not in prm.extra["classes_absent"]
    only_right = [processbench("omnimath-1", ["right 0"], -1)]
    process = evaluate(Steps(judge=perfect), [*EXCERPTS["processbench"], *only_right])
    assert process.by_subset["omnimath"].score is None and process.score == 1.0
    assert process.extra["sets_absent"] == ["olympiadbench", "omnimath"]


@pytest.mark.parametrize(
    ("text", "scores", "right"),
    [
        ("threshold:0.5", [0.6, 0.5, 0.4], [True, False, False]),
        ("threshold:0", [-1, 0, 1e300], [False, False, True]),
        ("delta:-0.05", [0.5, 0.46, 0.3, 0.3], [True, True, False, True]),
        ("delta:0", [-0.1, 0.0], [False, True]),
        (" delta:-5e-2 ", [0.1], [True]),
    ],
)
def test_step_rules(text: str, scores: list[float], right: list[bool]) -> None:
    assert StepRule.parse(text).right(scores) == right


@pytest.mark.parametrize(
    "text", ["", "0.5", "threshold", "threshold:", "threshold:inf", "delta:x", "Delta:1", "mean:1"]
)
def test_a_step_rule_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="give threshold:X or delta:X"):
        get_benchmark("prmbench").under(step_rule=text)


@pytest.mark.parametrize(
    ("cells", "figures"),
    [
        ((2, 0, 1, 0), (1.0, 1.0)),
        ((0, 1, 0, 1), (-1.0, -1.0)),
        ((1, 0, 0, 0), (1.0, -1.0)),
        ((1, 0, 0, 1), (2 / 3, 0.0)),
        ((0, 0, 1, 1), (0.0, 2 / 3)),
    ],
)
def test_a_share_of_nothing_is_minus_one_as_upstream(cells: tuple[int, ...], figures: tuple[float, float]) -> None:
    assert f_scores(*cells) == pytest.approx(figures)


BAD: list[tuple[str, Row, str]] = [
    ("prmbench", {"error_steps": "2"}, "column 'error_steps': expected a list of whole numbers"),
    ("prmbench", {"modified_process": []}, "column 'modified_process': expected at least one text"),
    ("processbench", {"label": 3}, "column 'label': expected -1 or a step from 0 to 2"),
    ("processbench", {"label": -2}, "column 'label': expected -1 or a step"),
    ("processbench", {"steps": "one"}, "column 'steps': expected a list of texts"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD)
def test_a_row_that_does_not_fit_is_named(name: str, change: Row, message: str) -> None:
    with pytest.raises(DataError, match=message):
        get_benchmark(name).convert({**EXCERPTS[name][0], **change})


SCORES = {"circular_p_0": [1.0, 0.0, 1.0, 0.0], "confidence_p_1": [0.9, 0.8], "multi_solutions_p_0": [0.7, 0.2]}


def test_step_scores_are_joined_to_the_data_or_bring_their_labels(tmp_path: Path) -> None:
    rows = [{"id": name, "scores": scores} for name, scores in SCORES.items()]
    data = write(tmp_path / "prm.jsonl", EXCERPTS["prmbench"])
    joined = command(
        "bench", "prmbench", "--scores", str(write(tmp_path / "s.parquet", rows)), "--data", str(data), "--json"
    )
    assert joined.code == 0, joined.err
    found = json.loads(joined.out)
    assert [found[cell] for cell in ("TP", "FP", "TN", "FN")] == [4, 1, 2, 1]
    logs = [
        {"idx": f"{row['classification']}_{row['idx']}", "classification": row["classification"], "error_steps": row["error_steps"]}
        for row in EXCERPTS["prmbench"]
    ]  # fmt: skip
    alone = write(tmp_path / "logs.jsonl", [{**row, "scores": SCORES[str(row["idx"])]} for row in logs])
    benchmark = get_benchmark("prmbench")
    again = recorded_json(benchmark, score_recorded(benchmark, scores=alone))
    same = ("TP", "FP", "TN", "FN", "F1", "F1neg", "PRMScore", "score", "ci95", "n")
    assert {name: again[name] for name in same} == {name: found[name] for name in same}


def test_a_folder_of_step_scores_keeps_each_step(tmp_path: Path) -> None:
    """Logs bring one score more than there are steps, or fewer; texts only where the data are at hand."""
    rows = [{"id": "gsm8k-0", "scores": [0.9, 0.1, 0.9, 0.8]}, {"id": "gsm8k-1", "scores": [0.7]}]
    benchmark, scores = get_benchmark("processbench"), write(tmp_path / "s.jsonl", rows)
    data = open_data(EXCERPTS["processbench"][:2], benchmark)
    score_recorded(benchmark, scores=scores, data=data, run_dir=tmp_path / "run")
    kept = {row.id: [(step.text, step.score) for step in row.steps[0]] for row in open_run(tmp_path / "run").samples()}
    assert kept["gsm8k-0"] == [("right 0", 0.9), ("wrong 1", 0.1), ("right 2", 0.9), ("", 0.8)]
    assert kept["gsm8k-1"] == [("right 0", 0.7), ("right 1", None)]


def test_recorded_solutions_without_scores_are_counted(tmp_path: Path) -> None:
    scores = write(
        tmp_path / "s.jsonl", [{"id": "gsm8k-0", "scores": [0.9, 0.1, 0.9]}, {"id": "math-1", "scores": [None]}]
    )
    benchmark = get_benchmark("processbench")
    data = open_data(write(tmp_path / "p.jsonl", EXCERPTS["processbench"]), benchmark)
    [(group, report)] = score_recorded(benchmark, scores=scores, data=data)
    assert (group, report.n, report.n_scored, report.n_unscored) == ({}, 4, 1, 3)
    assert report.by_subset["gsm8k"].extra["error_accuracy"] == 1.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "x", "scores": [1.0]}, "holds no classification and error_steps; say where the rows of prmbench are"),
        ({"id": "x"}, "column 'scores' is missing"),
        ({"id": "x", "scores": 1.0, "classification": "circular", "error_steps": []}, "expected a list of numbers"),
        ({"id": "x", "scores": ["one"], "classification": "circular", "error_steps": []}, r"column 'scores\[0\]': expected a number"),
        ({"id": "x", "scores": [1.0], "classification": "circular", "error_steps": "1"}, "expected whole numbers"),
    ],
)  # fmt: skip
def test_recorded_rows_that_do_not_fit_are_named(row: Row, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        score_recorded(get_benchmark("prmbench"), scores=write(tmp_path / "s.jsonl", [row]))


def test_problems_are_the_witnesses_not_their_variants() -> None:
    """Six variants of each problem, judged alike: the interval is that of the problems."""
    kinds = ("circular", "confidence", "counterfactual", "deception", "redundency", "missing_condition")

    def rows(copies: int) -> list[Row]:
        texts = [["right 1", "wrong 2" if k % 3 else "wrong x"] for k in range(40)]
        return [prmbench(f"p{k}", kind, text, [2]) for k, text in enumerate(texts) for kind in kinds[:copies]]

    judge = Steps(judge=lambda step: float(not step.endswith("2")))
    widths = [r.ci95.high - r.ci95.low for r in (evaluate(judge, rows(n)) for n in (1, 6)) if r.ci95 is not None]
    assert widths[1] == pytest.approx(widths[0], rel=0.25)
