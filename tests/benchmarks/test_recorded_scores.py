"""`bench --scores`: scores made elsewhere earn what the same scores of a reward do, and what does not join is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.recorded import joined
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.opened import open_run
from rm_gallery.report.recorded import score_recorded
from rm_gallery.report.task import Data, open_data
from tests.benchmarks.excerpts import EXCERPTS, LONGEST, Row, judgebench, rm_bench
from tests.data.loading import write
from tests.support.command import command
from tests.support.shared_data import shared_file


def ordered(sample: DataSample) -> list[int]:
    """The outputs as a scores file counts them: chosen ones, then rejected ones."""
    return sorted(range(len(sample.output)), key=lambda place: preference_of(sample.output[place]) == "rejected")


def lengths(samples: list[DataSample], names: bool = False) -> list[Row]:
    """The length of every answer as a row of a scores file, by id; `names` says A and B."""
    rows: list[Row] = []
    for number, sample in enumerate(samples):
        given = sample.unique_id != sample.content_hash()
        places = range(len(sample.output)) if names else ordered(sample)
        for candidate, place in enumerate(places):
            said = "AB"[candidate] if names else candidate
            score = float(len(sample.output[place].answer.text))
            rows.append({"id": sample.unique_id if given else number, "candidate": said, "score": score})
    return rows


def scored(name: str, rows: list[Row], data: list[Row], tmp_path: Path) -> Report:
    benchmark = get_benchmark(name)
    found = score_recorded(
        benchmark, scores=write(tmp_path / "scores.jsonl", rows), data=open_data(list(data), benchmark)
    )
    assert len(found) == 1 and found[0][0] == {}
    return found[0][1]


LISTS = ("rewardbench2", "rm_bench", "rmbbenchmark_bestofn")
FORMS = [
    (n, form) for n in LONGEST for form in ("jsonl", "parquet", "csv", "by name") if form != "by name" or n not in LISTS
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_lengths_from_a_file_are_the_length_baseline(name: str, form: str, tmp_path: Path) -> None:
    benchmark = get_benchmark(name)
    data = open_data(EXCERPTS[name], benchmark)
    samples = list(data.rows())
    rows = [{**row, "id": str(row["id"])} for row in lengths(samples, names=form == "by name")]
    path = tmp_path / f"scores.{'jsonl' if form == 'by name' else form}"
    if form == "csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        write(path, rows)
    [(_, report)] = score_recorded(benchmark, scores=path, data=data)
    by_reward = evaluate("length_baseline", EXCERPTS[name])
    same = ("rule", "n", "n_scored", "score", "ci95", "benchmark", "version", "chance", "baselines")
    assert {field: getattr(report, field) for field in same} == {field: getattr(by_reward, field) for field in same}
    assert report.by_subset == by_reward.by_subset


def test_both_orders_are_two_games(tmp_path: Path) -> None:
    """A scores the first one shown higher: right + wrong is no win, and the flips are reported."""
    data = [judgebench("a", "mmlu-pro", "x", "y", "A>B"), judgebench("b", "mmlu-pro", "x", "y", "B>A")]
    shown_first = [
        {"id": name, "candidate": candidate, "order": order, "score": 1.0 if order[0] == candidate else 0.0}
        for name in ("a", "b")
        for order in ("AB", "BA")
        for candidate in "AB"
    ]
    report = scored("judgebench", shown_first, data, tmp_path)
    assert (report.score, report.extra["orders"]["consistency"], report.extra["orders"]["n"]) == (0.0, 0.0, 2)
    steady = [{**row, "score": 1.0 if (row["candidate"] == "A") == (row["id"] == "a") else 0.0} for row in shown_first]
    assert scored("judgebench", steady, data, tmp_path).score == 1.0
    assert scored("judgebench", steady[:2], data[:1], tmp_path).rule == "single_game"


def test_equal_scores_earn_half_of_llmbar_s_mean_of_orders(tmp_path: Path) -> None:
    data = [{"input": f"do {n}", "output_1": "x", "output_2": "y", "label": 1} for n in range(2)]
    rows = [{"id": n, "candidate": place, "score": float(n)} for n in (0, 1) for place in (0, 1)]
    rows[0]["score"] = 1.0
    report = scored("llmbar", rows, data, tmp_path)
    assert (report.score, report.extra["mean_of_orders"]) == (0.5, 0.75)


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), "row"])
def test_a_missing_score_is_unscored_and_counted_never_zero(missing: Any, tmp_path: Path) -> None:
    rows = lengths(list(open_data(EXCERPTS["preferences"], "preferences").rows()))
    rows = rows[:-1] if missing == "row" else [*rows[:-1], {**rows[-1], "score": missing}]
    path = tmp_path / "s.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    benchmark = get_benchmark("preferences")
    [(_, report)] = score_recorded(benchmark, scores=path, data=open_data(EXCERPTS["preferences"], benchmark))
    assert (report.n, report.n_scored, report.n_unscored, report.score) == (2, 1, 1, 1.0)
    assert report.reasons["unscored: no_score"]["n"] == 1
    assert report.baselines["longest"] == 0.5, "what length reaches is known of all rows"


GOOD = lengths(list(open_data(EXCERPTS["preferences"], "preferences").rows()))
BAD: list[tuple[str, list[Row], str]] = [
    ("a column is absent", [{"id": "1", "score": 1.0}], "row 1: column 'candidate' is missing; a row holds id, candidate, score"),
    ("an id is unknown", [*GOOD, {"id": "9", "candidate": 0, "score": 1.0}], r"1 of 3 ids are not in the data, such as '9'; .*'1', '2'"),
    ("a score stands twice", [*GOOD, GOOD[0]], "row 5: candidate 0 of id '1' was given before"),
    ("a score is text", [{**GOOD[0], "score": "high"}], "column 'score': expected a number, found text 'high'"),
    ("a score has a decimal comma", [{**GOOD[0], "score": "1,5"}], "column 'score': expected a number, found text '1,5'"),
    ("a score is a truth value", [{**GOOD[0], "score": True}], "column 'score': expected a number"),
    ("a candidate is no place", [{**GOOD[0], "candidate": "C"}], "column 'candidate': expected A, B or a position"),
    ("a candidate is beyond the last", [{**GOOD[0], "candidate": 2}], "has 2 candidates, found one named '2'"),
    ("a candidate is below the first", [{**GOOD[0], "candidate": -1}], "column 'candidate': expected A, B or a position"),
    ("an order is none", [{**GOOD[0], "order": "first"}], "column 'order': expected AB or BA"),
    ("orders are mixed", [{**GOOD[0], "order": "AB"}, GOOD[1]], "some of sample '1' name an order and some do not"),
    ("an id is empty", [{**GOOD[0], "id": ""}], "column 'id': expected an id"),
    ("nothing is there", [], "no line|no rows|empty|holds no"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "message"), [(rows, m) for _, rows, m in BAD], ids=[why for why, _, _ in BAD])
def test_what_does_not_fit_is_refused_and_named(rows: list[Row], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        scored("preferences", rows, EXCERPTS["preferences"], tmp_path)


def test_scores_of_lists_have_no_order_and_need_data(tmp_path: Path) -> None:
    rows = lengths(list(open_data(EXCERPTS["rewardbench2"][:1], "rewardbench2").rows()))
    with pytest.raises(DataError, match="is no pair, so its scores have no order"):
        scored("rewardbench2", [{**row, "order": "AB"} for row in rows], EXCERPTS["rewardbench2"][:1], tmp_path)
    with pytest.raises(ConfigError, match="say where they are with --data PATH"):
        score_recorded(get_benchmark("rewardbench2"), scores=write(tmp_path / "s.jsonl", rows))


def test_rows_that_share_an_id_take_its_scores_when_they_are_equal(tmp_path: Path) -> None:
    """The files of RM-Bench count from 0 each: a bare number fits several rows, the domain in front of it tells them apart."""
    short, long = ["a", "b", "c"], ["aa", "bb", "cc"]
    data = [rm_bench(0, "chat", long, short), rm_bench(0, "code", short, long)]
    bare = [{"id": 0, "candidate": k, "score": float(k)} for k in range(6)]
    with pytest.raises(DataError, match="different rows with the id '0'"):
        scored("rm_bench", bare, data, tmp_path)
    assert scored("rm_bench", bare, [data[0], data[0]], tmp_path).n_scored == 2
    named = [{**row, "id": f"{domain}:0"} for domain in ("chat", "code") for row in bare]
    assert scored("rm_bench", named, data, tmp_path).n_scored == 2


def test_several_models_in_a_file_are_groups(tmp_path: Path) -> None:
    rows = [
        {**row, "judge_model": model, "score": sign * row["score"]}
        for model, sign in (("a", 1), ("b", -1))
        for row in GOOD
    ]
    path, data = write(tmp_path / "s.jsonl", rows), write(tmp_path / "d.jsonl", EXCERPTS["preferences"])
    out = tmp_path / "run"
    done = command("bench", "preferences", "--scores", str(path), "--data", str(data), "--json", "--out", str(out))
    assert done.code == 0, done.err
    assert [(line["judge_model"], line["score"], line["n"]) for line in json.loads(done.out)] == [
        ("a", 0.5, 2),
        ("b", 0.5, 2),
    ]
    kept = {model: open_run(out / model) for model in "ab"}
    assert {model: run.report["score"] for model, run in kept.items()} == {"a": 0.5, "b": 0.5}
    assert [[row.credit for row in run.samples()] for run in kept.values()] == [[1.0, 0.0], [0.0, 1.0]]
    assert kept["a"].report["reward"] == "a"


def test_a_folder_of_recorded_scores_is_written_anew_and_never_over_a_run(tmp_path: Path) -> None:
    benchmark, out = get_benchmark("preferences"), tmp_path / "run"
    for sign in (1, -1):
        path = write(tmp_path / "s.jsonl", [{**row, "score": sign * row["score"]} for row in GOOD])
        data: Data = open_data(EXCERPTS["preferences"], benchmark)
        score_recorded(benchmark, scores=path, data=data, run_dir=out)
        assert [row.credit for row in open_run(out).samples()] == ([1.0, 0.0] if sign == 1 else [0.0, 1.0])
    evaluate("length_baseline", EXCERPTS["preferences"], run_dir=str(tmp_path / "judged"))
    with pytest.raises(ConfigError, match="holds a run with a reward"):
        score_recorded(benchmark, scores=path, data=data, run_dir=tmp_path / "judged")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rmb", "--replay", "{file}"], "reads no recorded judge texts; leave out --replay"),
        (["rmb", "--scores", "{file}", "--reward", "length_baseline"], "--scores and --reward exclude each other"),
        (["rmb", "--scores", "{file}", "--step-rule", "delta:1"], "has no step rule to set; leave out --step-rule"),
        (["rmb", "--scores", "{file}", "--data", "{file}", "--limit", "1"], "--limit draws rows to judge"),
        (["rmb", "--scores", "{file}.absent", "--data", "{file}"], "no such file"),
        (["judgebench", "--replay", "{file}"], "column 'pair_id' is missing"),
        (["llmbar", "--replay", "{file}"], "column 'subset' is missing"),
        (["auto_j", "--replay", "{file}"], "column 'scenario' is missing"),
    ],
)
def test_usage_errors_are_one_line_with_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    file = str(write(tmp_path / "s.jsonl", GOOD))
    done = command("bench", *(argument.format(file=file) for argument in arguments))
    assert done.code == 2 and done.out == ""
    assert message in done.err and len(done.err.strip().splitlines()) == 1


LLMBAR = {"subset": "natural", "evaluator": "e", "method": "Vanilla", "index": 0, "label": 1, "stage": 0, "kind": "compare", "swap": False, "raw_text": "Output (a)"}  # fmt: skip
GAME = {"pair_id": "p", "label": "A>B", "judge_model": "m", "order": "AB", "raw_text": "[[A>B]]", "source": "mmlu-pro"}
PAIR = {
    "scenario": "chitchat",
    "label": 0,
    "raw_text": "the final decision is Response 1",
    "raw_text_exchanged": "none",
}


@pytest.mark.parametrize(
    ("name", "row", "change", "message"),
    [
        ("llmbar", LLMBAR, {"index": "first"}, "column 'index': expected a whole number, found text 'first'"),
        ("llmbar", LLMBAR, {"label": 3}, "column 'label': expected 1 or 2"),
        ("llmbar", LLMBAR, {"swap": None}, "column 'swap': expected true or false"),
        ("llmbar", LLMBAR, {"raw_text": 1}, "column 'raw_text': expected text"),
        ("llmbar", LLMBAR, {"method": "Vanila"}, "There is no method of LLMBar 'Vanila'"),
        ("judgebench", GAME, {"label": "A"}, "column 'label': expected 'A>B' or 'B>A'"),
        ("judgebench", GAME, {"order": "1"}, "column 'order': expected AB or BA"),
        ("judgebench", GAME, {"judge_name": "arena_hrd"}, "There is no judge of JudgeBench 'arena_hrd'"),
        ("judgebench", GAME, {}, "has a second text of order AB"),
        ("auto_j", PAIR, {"label": 3}, "column 'label': expected 0, 1 or 2"),
    ],
)
def test_recorded_texts_that_do_not_fit_are_named(
    name: str, row: Row, change: Row, message: str, tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        score_recorded(get_benchmark(name), replay=write(tmp_path / "s.jsonl", [row, {**row, **change}]))


def test_an_unreadable_recorded_verdict_counts_what_its_protocol_says(tmp_path: Path) -> None:
    """Wrong in its order in LLMBar, a tie in JudgeBench, in agreement with nothing in Auto-J; never out of the denominator."""

    def replayed(name: str, *rows: Row) -> Report:
        [(_, report)] = score_recorded(get_benchmark(name), replay=write(tmp_path / f"{name}.jsonl", list(rows)))
        return report

    llmbar = replayed("llmbar", LLMBAR, {**LLMBAR, "swap": True, "raw_text": None})
    assert (llmbar.score, llmbar.extra["correct_False"], llmbar.extra["equal"], llmbar.n) == (0.5, 1.0, 0.0, 1)
    games = replayed("judgebench", GAME, {**GAME, "order": "BA", "raw_text": "no label"})
    assert (games.score, games.n, games.n_unscored) == (1.0, 1, 0)
    alone = replayed("judgebench", GAME)
    assert (alone.score, alone.extra["n_unreadable"]) == (1.0, 1), "a game that was not played is a tie as well"
    pair = replayed("auto_j", PAIR, {**PAIR, "raw_text_exchanged": "so the final decision is Response 2"})
    assert (pair.score, pair.extra["consistency"], pair.extra["single"], pair.n) == (0.5, 0.5, 1.0, 2)
    assert {report.extra["n_unreadable"] for report in (llmbar, games, pair)} == {1}


def test_llmbar_s_last_stage_decides(tmp_path: Path) -> None:
    """A swap method looks again where its orders disagree; what it wrote to itself before is no verdict."""
    swap = {**LLMBAR, "method": "Swap", "label": 2}
    rows = [
        {**swap, "kind": "auxiliary", "swap": None, "raw_text": "Output (a) is better."},
        *({**swap, "swap": swapped, "raw_text": "Output (a) is better."} for swapped in (False, True)),
        {**swap, "stage": 1, "kind": "synthesize", "raw_text": "Output (b)"},
        {**swap, "stage": 1, "kind": "synthesize", "swap": True, "raw_text": "Output (a)"},
    ]
    [(_, report)] = score_recorded(get_benchmark("llmbar"), replay=write(tmp_path / "s.jsonl", rows))
    assert (report.score, report.extra["correct_both"], report.extra["equal"]) == (1.0, 1.0, 1.0)


def test_candidates_with_their_recorded_scores_are_exported(tmp_path: Path) -> None:
    path, data = write(tmp_path / "s.jsonl", GOOD), write(tmp_path / "d.jsonl", EXCERPTS["preferences"])
    table = tmp_path / "out.csv"
    given = ("bench", "preferences", "--data", str(data), "--export", str(table), "--json")
    done = command(*given, "--scores", str(path))
    assert done.code == 0, done.err
    frame = pd.read_csv(table)
    assert list(frame["score"]) == [row["score"] for row in GOOD]
    assert set(frame["answer"]) == {EXCERPTS["preferences"][0][side] for side in ("chosen", "rejected")}
    several = [{**row, "judge_model": model} for model in "ab" for row in GOOD]
    refused = command(*given, "--scores", str(write(tmp_path / "m.jsonl", several)))
    assert refused.code == 2 and "the file holds 2; keep one" in refused.err


def test_nothing_scored_is_exit_code_1(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [{**row, "score": None} for row in GOOD])
    done = command(
        "bench", "pairs", "--scores", str(path), "--data", str(write(tmp_path / "d.jsonl", EXCERPTS["preferences"]))
    )
    assert done.code == 1
    assert "2 samples unscored: no_score" in done.err and "no sample could be scored" in done.err


def test_ten_thousand_pairs_take_seconds(tmp_path: Path) -> None:
    data = shared_file("rmb_pairwise.parquet")
    rows = lengths(list(open_data(data).rows()))
    unique = list({(row["id"], row["candidate"]): row for row in rows}.values())
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.Table.from_pylist(unique), path)
    began = time.process_time()
    done = command("bench", "rmb", "--scores", str(path), "--data", str(data), "--json")
    took = time.process_time() - began
    found = json.loads(done.out)
    assert done.code == 0 and found["n_scored"] > 10_000
    assert found["score"] == found["baselines"]["longest"]
    assert took <= 3.0


ONE_PAIR = {"id": "p", "prompt": "q", "chosen": "right", "rejected": "wrong"}


def placed(order: str, *scores: float) -> list[Row]:
    return [{"id": "p", "candidate": k, "order": order, "score": score} for k, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("rows", "status", "games"),
    [
        (placed("AB", 2, 1) + placed("BA", 2, 1), "scored", (1, -1)),
        (placed("AB", 2, 1) + placed("BA", 1, 2), "scored", (1, 1)),
        (placed("AB", 2, 1), "scored", (1, None)),
        (placed("BA", 2, 1), "scored", (None, -1)),
        (placed("AB", 2, 1) + placed("BA", 1), "unscored", (1, None)),
    ],
    ids=["both orders", "the first place wins", "one order", "the other order", "half an order"],
)
def test_scores_of_an_order_are_the_verdict_on_whoever_was_shown_first(
    rows: list[Row], status: str, games: tuple[int | None, int | None]
) -> None:
    benchmark = get_benchmark("pairs")
    ((_, judged),) = joined(benchmark, rows, list(open_data([ONE_PAIR], benchmark).rows()))
    assert (judged.status, judged.verdict(0, 1), judged.verdict(1, 0)) == (status, *games)
