"""`bench --scores` and `--replay` from the command: groups, folders, exports, exit codes and usage
errors.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from rm_gallery import ConfigError, DataError, evaluate
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.study.benchmark import score_recorded
from rm_gallery.study.runs import open_run
from rm_gallery.study.source import Source
from tests.benchmarks.excerpts import EXCERPTS, Row, rows_of
from tests.data.loading import write
from tests.support.command import command

GOOD: list[Row] = [
    {"id": row["id"], "candidate": place, "score": float(len(row[side]))}
    for row in EXCERPTS["preferences"]
    for place, side in enumerate(("chosen", "rejected"))
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.jsonl", EXCERPTS["preferences"])


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet", "scores.jsonl"])
def test_candidates_of_every_format_are_scored_and_exported(
    name: str, data: Path, tmp_path: Path
) -> None:
    path, table = write(tmp_path / name, GOOD), tmp_path / "out.csv"
    given = ("bench", "preferences", "--data", str(data), "--export", str(table), "--json")
    done = command(*given, "--scores", str(path))
    assert (done.code, json.loads(done.out)["score"]) == (0, 0.5), done.err
    frame = pd.read_csv(table)
    assert list(frame["score"]) == [row["score"] for row in GOOD]
    assert set(frame["answer"]) == {
        EXCERPTS["preferences"][0][side] for side in ("chosen", "rejected")
    }
    several = [{**row, "judge_model": model} for model in "ab" for row in GOOD]
    refused = command(*given, "--scores", str(write(tmp_path / "m.jsonl", several)))
    assert refused.code == 2 and "the file holds 2; keep one" in refused.err


def test_several_models_in_a_file_are_groups(data: Path, tmp_path: Path) -> None:
    rows = [
        {**row, "judge_model": m, "score": sign * row["score"]}
        for m, sign in (("a", 1), ("b", -1))
        for row in GOOD
    ]
    path, out = write(tmp_path / "s.jsonl", rows), tmp_path / "run"
    done = command(
        "bench",
        "preferences",
        "--scores",
        str(path),
        "--data",
        str(data),
        "--json",
        "--out",
        str(out),
    )
    told = [(line["judge_model"], line["score"], line["n"]) for line in json.loads(done.out)]
    assert (done.code, told) == (0, [("a", 0.5, 2), ("b", 0.5, 2)]), done.err
    kept = {model: open_run(out / model) for model in "ab"}
    assert [[row.credit for row in run.samples()] for run in kept.values()] == [
        [1.0, 0.0],
        [0.0, 1.0],
    ]
    assert kept["a"].report["reward"] == "a"


def test_a_folder_of_recorded_scores_is_written_anew_and_never_over_a_run(tmp_path: Path) -> None:
    benchmark, out = get_benchmark("preferences"), tmp_path / "run"
    rows = Source(EXCERPTS["preferences"], benchmark).open()
    for sign in (1, -1):
        path = write(tmp_path / "s.jsonl", [{**row, "score": sign * row["score"]} for row in GOOD])
        score_recorded(benchmark, scores=path, data=rows, run_dir=out)
        assert [row.credit for row in open_run(out).samples()] == (
            [1.0, 0.0] if sign == 1 else [0.0, 1.0]
        )
    evaluate("length_baseline", EXCERPTS["preferences"], run_dir=str(tmp_path / "judged"))
    with pytest.raises(ConfigError, match="holds a run with a reward"):
        score_recorded(benchmark, scores=path, data=rows, run_dir=tmp_path / "judged")
    with pytest.raises(DataError, match="no line|no rows|empty|holds no"):
        score_recorded(benchmark, scores=write(tmp_path / "none.jsonl", []), data=rows)


def test_a_folder_of_step_scores_keeps_each_step(tmp_path: Path) -> None:
    """Logs bring one score more than there are steps, or fewer; texts only where the data are at
    hand.
    """
    rows = [{"id": "gsm8k-0", "scores": [0.9, 0.1, 0.9, 0.8]}, {"id": "gsm8k-1", "scores": [0.7]}]
    benchmark, scores = get_benchmark("processbench"), write(tmp_path / "s.jsonl", rows)
    given = Source(EXCERPTS["processbench"][:2], benchmark).open()
    score_recorded(benchmark, scores=scores, data=given, run_dir=tmp_path / "run")
    kept = {
        row.id: [(step.text, step.score) for step in row.steps[0]]
        for row in open_run(tmp_path / "run").samples()
    }
    assert kept["gsm8k-0"] == [("right 0", 0.9), ("wrong 1", 0.1), ("right 2", 0.9), ("", 0.8)]
    assert kept["gsm8k-1"] == [("right 0", 0.7), ("right 1", None)]


def test_nothing_scored_is_exit_code_1(data: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [{**row, "score": None} for row in GOOD])
    done = command("bench", "pairs", "--scores", str(path), "--data", str(data))
    assert done.code == 1
    assert "2 samples unscored: no_score" in done.err and "no sample could be scored" in done.err


def test_labels_by_message_are_read_in_the_order_of_the_messages(tmp_path: Path) -> None:
    """A table writes the keys of an object in the order in which its rows first have them."""
    labels = {"10": -1, "2": 1, "4": 0}
    row = {"id": "a", "scores": [0.9, 0.5, 0.1], "step_labels": labels}
    path = write(tmp_path / "scores.jsonl", [row])
    [(_, report)] = score_recorded(get_benchmark("agent_process_bench"), scores=path)
    assert (report.score, report.extra["first_error"].score) == (1.0, 1.0)
    path = write(tmp_path / "named.jsonl", [{**row, "step_labels": {"first": 1}}])
    with pytest.raises(DataError, match="labels by the number of a message"):
        score_recorded(get_benchmark("agent_process_bench"), scores=path)


def test_scores_of_trajectories_that_people_were_unsure_about_are_left_out(tmp_path: Path) -> None:
    whole = rows_of("agent_reward_bench")[0]
    rows = [
        {**whole, "task_id": f"{n}", "trajectory_success": said}
        for n, said in enumerate(("Unsure", "Successful", "Unsuccessful"))
    ]
    data = Source(str(write(tmp_path / "data.jsonl", rows)), "agent_reward_bench").open()
    scores = [{"id": f"webarena/gpt/{n}", "candidate": 0, "score": 1.0} for n in range(3)]
    path = write(tmp_path / "scores.jsonl", scores)
    [(_, report)] = score_recorded(data.benchmark, scores=path, data=data)
    assert (report.score, report.extra["FP"], report.n_scored) == (0.5, 1, 2)
    assert (report.missing, report.bounds) == ({}, (0.5, 0.5))
