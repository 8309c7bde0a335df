"""`evaluate`: any form of data, any reward, one report that says what it rests on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from rm_gallery import (
    Budget,
    ConfigError,
    DataError,
    FakeLLM,
    RewardRegistry,
    create_loader,
    evaluate,
)
from rm_gallery.core.data.schema import BaseDataSet, to_jsonl
from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import RULES
from rm_gallery.study import benchmark
from rm_gallery.study.benchmark import estimate
from tests.benchmarks.excerpts import (
    EXCERPTS,
    LONG,
    SHORT,
    Row,
    rewardbench,
    rewardbench2,
    rows_of,
)
from tests.benchmarks.judges import Point
from tests.data.loading import write
from tests.support.samples import make_sample


def test_every_form_of_data_gives_the_same_figure(tmp_path: Path) -> None:
    rows = EXCERPTS["rewardbench2"]
    path = write(tmp_path / "a.jsonl", rows)
    halves = [
        write(tmp_path / "halves" / "b.parquet", rows[:2]),
        write(tmp_path / "halves" / "c.json", rows[2:]),
    ]
    samples = create_loader(
        name="rewardbench2", data_source="rewardbench2", config={"data": rows}
    ).run()
    cells = [
        {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
    ]
    table = write(tmp_path / "lists.csv", cells)
    forms: list[Any] = [
        path,
        str(path),
        table,
        halves,
        tmp_path / "halves",
        pd.DataFrame(rows),
        rows,
        samples,
    ]
    forms.append(list(samples))
    figures = [
        (r.benchmark, r.score, r.n) for r in (evaluate("length_baseline", data) for data in forms)
    ]
    assert set(figures) == {("rewardbench2", figures[0][1], 5)}


def test_the_hub_name_of_a_benchmark_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(path: str, config: object, **options: Any) -> list[Row]:
        asked.append((path, options["split"]))
        return EXCERPTS["judgebench"]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    report = evaluate("length_baseline", "ScalerLab/JudgeBench", progress=False)
    assert (report.benchmark, report.data, report.n) == ("judgebench", "ScalerLab/JudgeBench", 4)
    assert set(asked) == {("ScalerLab/JudgeBench", "gpt")}


def test_a_reward_by_name_class_or_object() -> None:
    rows = EXCERPTS["preferences"]
    shortest = RewardRegistry.create("length_baseline", shortest=True)
    forms: list[Any] = ["length_baseline", RewardRegistry.get("length_baseline")]
    scores = [evaluate(reward, rows[:1], params={"shortest": True}).score for reward in forms]
    assert [*scores, evaluate(shortest, rows[:1]).score] == [0.0, 0.0, 0.0]
    with pytest.raises(ConfigError, match="is built already"):
        evaluate(shortest, rows, params={"shortest": True})


def test_another_rule_or_another_part_of_the_data_is_another_run(tmp_path: Path) -> None:
    path, folder = write(tmp_path / "a.jsonl", EXCERPTS["rewardbench"]), tmp_path / "run"
    arguments: dict[str, Any] = {"limit": 3, "seed": 1, "run_dir": str(folder)}
    score = evaluate("length_baseline", path, **arguments).score
    for other in ({"benchmark": "preferences"}, {"seed": 2}, {"limit": 2}):
        with pytest.raises(ConfigError, match="holds a different run"):
            evaluate("length_baseline", path, **{**arguments, **other})
    assert evaluate("length_baseline", path, **arguments).score == score


def test_a_limit_draws_by_the_seed_from_samples_as_from_a_file(tmp_path: Path) -> None:
    rows = [rewardbench(n, "hep-cpp", LONG, LONG[:n]) for n in range(1, 30)]
    samples = list(create_loader("x", data_source="rewardbench", config={"data": rows}).run())
    path = write(tmp_path / "a.jsonl", rows)

    def judged_ids(data: Any, seed: int) -> list[str]:
        folder = tmp_path / f"{type(data).__name__}{seed}"
        evaluate("length_baseline", data, limit=5, seed=seed, run_dir=str(folder))
        return sorted(
            json.loads(line)["id"] for line in (folder / "results.jsonl").read_text().splitlines()
        )

    drawn = [judged_ids(samples, seed) for seed in (0, 1, 2)]
    assert drawn == [judged_ids(path, seed) for seed in (0, 1, 2)]
    assert len({tuple(ids) for ids in drawn}) == 3 and all(len(ids) == 5 for ids in drawn)


def test_an_estimate_keeps_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = estimate(
        "length_baseline", [*EXCERPTS["rewardbench"]] * 5, run_dir=str(folder), trace=True
    )
    assert found.samples == 10
    assert not folder.exists()


def test_the_report_names_judge_endpoint_benchmark_and_version(tmp_path: Path) -> None:
    judge = {
        "model": "judge-1",
        "base_url": "http://127.0.0.1:1/v1",
        "max_attempts": 1,
        "api_key": "SECRET",
    }
    rows, folder = EXCERPTS["rewardbench2"][:1], tmp_path / "run"
    report = evaluate("safety_listwise_reward", rows, llm=judge, run_dir=str(folder))
    shown = report.to_dict()
    assert shown["judge"] == "judge-1"
    assert shown["endpoint"] == "http://127.0.0.1:1/v1"
    assert (shown["benchmark"], shown["version"]) == (
        "rewardbench2",
        get_benchmark("rewardbench2").version,
    )
    kept = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert kept == {**shown, "n_lines": 1}
    for text in (str(report), report._repr_html_(), json.dumps(shown)):
        assert "SECRET" not in text
        assert "judge-1" in text and "rewardbench2" in text


def many(count: int) -> list[Row]:
    return [rewardbench2(str(k), "Math", [LONG], [SHORT, SHORT, SHORT]) for k in range(count)]


def test_samples_stopped_by_a_budget_are_a_count_of_their_own() -> None:
    judge = FakeLLM(reply="<best>1</best>", cache=False)
    reward = RewardRegistry.create("safety_listwise_reward", llm=judge)
    report = evaluate(reward, many(20), budget=Budget(max_calls=5), max_workers=1)
    assert (report.n, report.n_failed, report.n_unscored) == (20, 0, 0)
    assert (report.n_scored, report.n_stopped) == (5, 15)
    assert report.stopped is not None
    assert report.to_dict()["n_stopped"] == 15
    assert report.by_subset["Math"].n_stopped == 15
    assert "n=20, 15 stopped" in str(report)


def test_the_limits_of_rows_never_read_go_down_to_the_lowest_figure() -> None:
    """A tau may be -1, so that lists which were never read could pull the mean that far."""
    for name, lowest in (("if_reward_bench", -1.0), ("longjudgebench", 0.0)):
        report = evaluate(Point(), rows_of(name), name, progress=False)
        over: Any = SimpleNamespace(unread=9, stopped="budget", who_stopped="caller")
        assert benchmark._with_unread(get_benchmark(name), report, over).bounds == (lowest, 1.0)


def test_a_run_is_continued_and_its_reasons_are_counted(tmp_path: Path) -> None:
    reward = RewardRegistry.create(
        "safety_listwise_reward", llm=FakeLLM(reply="I would rather not say.")
    )
    report = evaluate(reward, many(3), run_dir=str(tmp_path / "run"))
    assert (report.score, report.n_unscored) == (None, 3)
    assert [(key, found["n"]) for key, found in report.reasons.items()] == [("unscored: parse", 3)]
    again = evaluate(reward, many(3), run_dir=str(tmp_path / "run"))
    assert (again.calls, again.n_unscored) == (0, 3)
    with pytest.raises(ConfigError, match="limit"):
        evaluate(reward, many(3), run_dir=str(tmp_path / "run"), limit=2)


def test_estimate_asks_ten_of_many() -> None:
    reward = RewardRegistry.create(
        "safety_listwise_reward", llm=FakeLLM(reply="<best>1</best>", cache=False)
    )
    found = estimate(reward, many(40))
    assert (found.samples, found.calls.mean) == (30, 30)


@pytest.mark.parametrize("seed", range(6))
def test_an_estimate_of_rows_sorted_by_length_is_near(seed: int) -> None:
    rows = [
        {"prompt": "q", "chosen": "word " * int(1.02**k), "rejected": "no"} for k in range(400)
    ]  # a few hold nearly everything
    judge = FakeLLM(reply="<best>1</best>", cache=False)
    arguments: dict[str, Any] = {"llm": judge, "params": {"channel": "text"}}
    found = estimate("safety_listwise_reward", rows, seed=seed, **arguments)
    spent = evaluate("safety_listwise_reward", rows, progress=False, **arguments).usage[
        "input_tokens"
    ]
    assert found.input_tokens.mean * 400 / 390 == pytest.approx(spent, rel=0.3)


def test_names_from_data_are_text_in_every_form() -> None:
    bad = "[/foo]\x1b[31m\u202e <b>\n"
    report = evaluate("length_baseline", [{**EXCERPTS["preferences"][0], "subset": bad}])
    for shown in (str(report), report._repr_html_()):
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "[/foo]" in str(report)
    assert "<b>" not in report._repr_html_()
    assert report.to_dict()["by_subset"][bad]["score"] == 1.0, "JSON keeps the name as it is"


def test_samples_of_no_or_of_two_benchmarks(tmp_path: Path) -> None:
    own = make_sample("longest", "b", chosen=0)
    assert evaluate("length_baseline", [own]).benchmark == "preferences"
    path = to_jsonl(BaseDataSet(name="own", datasamples=[own]), tmp_path / "own.jsonl")
    assert evaluate("length_baseline", path).score == 1.0
    with pytest.raises(DataError, match="no output is labelled chosen or rejected"):
        evaluate("length_baseline", [make_sample("a", "b")])
    first, second = (
        own.model_copy(update={"source": "judgebench"}),
        own.model_copy(update={"source": "hh_rlhf"}),
    )
    with pytest.raises(DataError, match="hh_rlhf and judgebench"):
        evaluate("length_baseline", [first, second])
    assert evaluate("length_baseline", [first, second], "pairs").score == 1.0


def test_the_report_is_plain_json_and_its_rule_is_explained(tmp_path: Path) -> None:
    report = evaluate("length_baseline", EXCERPTS["rm_bench"])
    shown = report.to_dict()
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert (
        json.loads(report.save(tmp_path / "deep" / "report.json").read_text(encoding="utf-8"))
        == shown
    )
    assert shown["extra"]["hard"] == pytest.approx((0 + 0.5) / 2)
    assert "hard 25.0 · normal 25.0 · easy 75.0" in str(report)
    assert {report.rule, *(part.rule for part in report.by_subset.values())} <= RULES.keys()
    assert shown["n"] == sum(
        shown[f"n_{status}"] for status in ("scored", "unscored", "failed", "stopped")
    )


def test_a_report_is_saved_whatever_the_names_of_subsets_hold(tmp_path: Path) -> None:
    about = {"subset": "half \ud800", "big": 2**80}
    samples = [
        make_sample("longer", "no", chosen=0, unique_id=str(k), metadata=about) for k in range(3)
    ]
    report = evaluate("length_baseline", samples, run_dir=str(tmp_path / "run"), progress=False)
    saved = json.loads((tmp_path / "run" / "report.json").read_bytes())
    assert (saved["score"], list(report.by_subset), list(saved["by_subset"])) == (
        1.0,
        ["half \ud800"],
        ["half ?"],
    )
