"""Runs held against each other: what is joined, what is refused, and what the difference is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePairWiseReward, BasePointWiseReward
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.stats.paired import mcnemar
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.report.compare import compare, under, worse_than
from rm_gallery.report.evaluate import evaluate
from rm_gallery.report.opened import open_run
from tests.reward.rewards import ranked, scored
from tests.support.command import command


def pairs(n: int, subset: str = "") -> list[dict[str, Any]]:
    """Numbered pairs, two to a prompt."""
    return [
        {
            "id": f"{subset}{k}",
            "prompt": f"question {k // 2} {subset}",
            "chosen": f"right {k}",
            "rejected": f"wrong {k}",
            **({"subset": subset} if subset else {}),
        }
        for k in range(n)
    ]


class Knows(BasePointWiseReward):
    """Right on the rows whose number leaves a remainder below `right` of ten; fails on those above `fails_from`."""

    name: str = "knows"
    right: int = 5
    fails_from: int = 10_000

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        word, number = sample.output[0].answer.text.split()
        if int(number) >= self.fails_from:
            raise ValueError("no answer")
        good = (int(number) % 10 < self.right) == (word == "right")
        return scored(self.name, float(good), "because")


def run(folder: Path, data: Any, right: int, **more: Any) -> Path:
    fields = {key: more.pop(key) for key in ("fails_from",) if key in more}
    evaluate(Knows(right=right, **fields), data, run_dir=str(folder), progress=False, **more)
    return folder


def test_the_difference_is_taken_sample_by_sample(tmp_path: Path) -> None:
    data = pairs(60, "a") + pairs(40, "b")
    worse, better = run(tmp_path / "one", data, 5), run(tmp_path / "two", data, 8)
    (found,) = compare(worse, better)
    assert (found.whole.first, found.whole.second) == (0.5, 0.8)
    assert found.whole.paired.difference == pytest.approx(0.3)
    assert found.whole.paired.interval is not None and found.whole.paired.interval.low > 0.1
    assert (found.n_both, found.n_first_only, found.n_second_only, found.n_unscored) == (100, 0, 0, 0)
    assert found.whole.paired.n_clusters == 50, "two rows ask the same"
    assert (found.only_first, found.only_second) == (0, 30)
    assert found.mcnemar_p == mcnemar([False] * 30, [True] * 30).p_value
    assert [part.name for part in found.by_subset] == ["a", "b"]
    for part in found.by_subset:
        assert part.p_adjusted is not None and part.paired.p_value is not None
        assert part.p_adjusted >= part.paired.p_value
    assert {one["better"] for one in found.examples} == {"second"} and len(found.examples) == 5
    assert found.examples[0]["second"]["credit"] == 1.0 and found.examples[0]["second"]["reasons"][0] == "because"
    assert json.loads(json.dumps(found.to_dict()))["whole"]["difference"] == pytest.approx(0.3)
    assert "worse than two by 30.0 points" in str(worse_than(open_run(worse), open_run(better)))
    assert worse_than(open_run(better), open_run(worse)) is None


def test_a_run_is_not_worse_than_itself_and_nothing_is_certain(tmp_path: Path) -> None:
    one = run(tmp_path / "one", pairs(30), 5)
    (found,) = compare(one, one)
    interval = found.whole.paired.interval
    assert found.whole.paired.difference == 0.0 and found.whole.paired.p_value == 1.0
    assert interval is not None and interval.low < -0.01 < 0.01 < interval.high
    assert found.by_subset == () and found.whole.p_adjusted == 1.0
    assert worse_than(open_run(one), open_run(one)) is None


def test_several_runs_are_held_against_the_first_and_corrected_together(tmp_path: Path) -> None:
    data = pairs(40)
    runs = [run(tmp_path / str(right), data, right) for right in (5, 6, 7)]
    found = compare(*runs)
    assert [round(one.whole.paired.difference or 0, 9) for one in found] == [0.1, 0.2]
    assert found[0].whole.p_adjusted is not None and found[1].whole.p_adjusted is not None
    assert found[1].whole.p_adjusted <= found[0].whole.p_adjusted


def test_samples_that_are_missing_or_unscored_are_said(tmp_path: Path) -> None:
    data = pairs(40)
    whole = run(tmp_path / "whole", data, 5)
    part = run(tmp_path / "part", data, 5, limit=30, fails_from=35)
    (found,) = compare(whole, part)
    failed = sum(row.status == "failed" for row in open_run(part).samples())
    assert failed > 0
    assert (found.n_both, found.n_first_only, found.n_unscored) == (30 - failed, 10, failed)


def test_equal_rows_are_each_compared(tmp_path: Path) -> None:
    data = pairs(20)
    (found,) = compare(run(tmp_path / "one", data * 2, 5), run(tmp_path / "two", data * 2, 8))
    assert (found.n_both, found.only_second) == (40, 12)


class Takes(BasePairWiseReward):
    """The right answer wins, or the wrong one."""

    name: str = "takes"
    word: str = "right"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *(float(self.word in output.answer.text) for output in sample.output))


def test_rows_that_were_judged_in_parts_are_compared_as_wholes(tmp_path: Path) -> None:
    styles = ("short", "plain", "# rich")
    data = [
        {
            "id": str(k),
            "prompt": f"q{k}",
            "chosen": [f"right {style} {k}" for style in styles],
            "rejected": [f"wrong {style} {k}" for style in styles],
            "domain": "chat",
        }
        for k in range(6)
    ]
    folders = [tmp_path / word for word in ("wrong", "right")]
    for folder in folders:
        evaluate(Takes(word=folder.name), data, "rm_bench", run_dir=str(folder), progress=False)
    (found,) = compare(*folders)
    assert (found.whole.first, found.whole.second, found.n_both, found.n_unscored) == (0.0, 1.0, 6, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": "lists"}, "another benchmark 'pairs' and 'lists'"),
        ({"data": pairs(40, "other")}, "no sample in common"),
    ],
)
def test_runs_of_different_data_or_rules_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    settings: dict[str, Any] = {"data": pairs(20), "benchmark": "pairs"}
    one = run(tmp_path / "one", right=5, **settings)
    two = run(tmp_path / "two", right=5, **{**settings, **change})
    with pytest.raises(ConfigError, match=said):
        compare(one, two)


def test_one_run_or_none_is_no_comparison(tmp_path: Path) -> None:
    one = run(tmp_path / "one", pairs(4), 5)
    with pytest.raises(ConfigError, match="two runs"):
        compare(one)
    with pytest.raises(DataError, match="no folder"):
        compare(one, tmp_path / "nothing")


def ties_rows(n: int) -> list[dict[str, Any]]:
    rows = []
    for k in range(n):
        rows.append({"id": f"ref:{k}", "prompt": f"q{k}", "chosen": [f"right {k}"], "rejected": [f"wrong {k}"]})
        rows.append({"id": f"tied:{k}", "prompt": f"q{k}", "chosen": [f"right {k}"] * 2, "rejected": [f"wrong {k}"]})
    ties = [{**row, "subset": "Ties"} for row in rows]
    math = [
        {"id": f"m{k}", "prompt": f"m{k}", "chosen": [f"right {k}"], "rejected": [f"wrong {k}"] * 3, "subset": "Math"}
        for k in range(n)
    ]
    return ties + math


def test_the_composite_of_ties_is_compared_as_what_it_is(tmp_path: Path) -> None:
    data = ties_rows(40)
    one, two = (run(tmp_path / str(right), data, right, benchmark="rewardbench2") for right in (5, 8))
    (found,) = compare(one, two)
    scores = [open_run(folder).report["score"] for folder in (one, two)]
    assert found.whole.paired.difference == pytest.approx(scores[1] - scores[0])
    ties = next(part for part in found.by_subset if part.name == "Ties")
    assert ties.paired.difference == pytest.approx((ties.second or 0) - (ties.first or 0))
    assert ties.second == open_run(two).report["by_subset"]["Ties"]["score"]


@pytest.mark.parametrize(
    ("score", "ci95", "least", "said"),
    [
        (0.8, (0.7, 0.9), 0.8, None),
        (0.7, (0.6, 0.8), 0.75, "holds the limit"),
        (0.7, (0.6, 0.74), 0.75, "below it, too"),
        (None, None, 0.5, "no score"),
    ],
)
def test_the_least_score(score: float | None, ci95: tuple[float, float] | None, least: float, said: str | None) -> None:
    found = under(score, ci95, least)
    assert found is None if said is None else said in str(found)
    with pytest.raises(ConfigError, match="0 to 1"):
        under(score, ci95, 80)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    found = [
        {"id": str(k), "prompt": f"q{k}", "chosen": "long " * (3 + k % 4), "rejected": "x" * 15} for k in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return path


def test_the_command_compares_and_gates(rows: Path, tmp_path: Path) -> None:
    longest, shortest = tmp_path / "longest", tmp_path / "shortest"
    assert command("eval", "length_baseline", str(rows), "--out", str(longest)).code == 0
    short = ("eval", "length_baseline", str(rows), "--param", "shortest=true")
    assert command(*short, "--out", str(shortest)).code == 0
    shown = command("compare", str(longest), str(shortest))
    assert shown.code == 0 and "the first is better" in shown.out and "McNemar" in shown.out
    found = json.loads(command("compare", str(longest), str(shortest), "--json", "--examples", "1").out)
    assert found[0]["whole"]["difference"] < 0 and len(found[0]["examples"]) == 1
    assert command("compare", str(longest), str(shortest), "--fail-if-worse").code == 1
    several = command("compare", str(longest), str(shortest), str(longest)).out
    assert several.count("\n\nsubset ") == 1, "comparisons stand apart"
    assert command("compare", str(longest)).code == 2
    missing = command("compare", str(longest), str(tmp_path / "nothing"))
    assert missing.code == 2 and len(missing.err.splitlines()) == 1
    worse = command(*short, "--fail-if-worse-than", str(longest))
    assert worse.code == 1 and "worse than longest by" in worse.err
    passed = command("eval", "length_baseline", str(rows), "--fail-if-worse-than", str(shortest))
    assert passed.code == 0 and "not shown to be worse than shortest: +" in passed.err
    itself = command(*short, "--out", str(shortest), "--fail-if-worse-than", str(shortest))
    assert itself.code == 2 and "held against itself" in itself.err


@pytest.mark.parametrize(("least", "code"), [("0.2", 0), ("0.99", 1), ("80", 2)])
def test_the_least_score_of_the_command(rows: Path, least: str, code: int) -> None:
    done = command("bench", "pairs", "--reward", "length_baseline", "--data", str(rows), "--fail-under", least)
    assert done.code == code


def test_a_gate_of_other_data_is_refused_before_anything_is_judged(rows: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(rows.read_text(encoding="utf-8").replace("q1", "question 1"), encoding="utf-8")
    assert command("eval", "length_baseline", str(other), "--out", str(tmp_path / "run")).code == 0
    done = command("eval", "length_baseline", str(rows), "--fail-if-worse-than", str(tmp_path / "run"))
    assert done.code == 2 and "content of the data" in done.err and "done" not in done.err


def test_a_gate_does_not_pass_by_the_few_samples_of_an_unfinished_run(rows: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command("eval", "length_baseline", str(rows), "--out", str(run)).code == 0
    (run / "report.json").unlink()
    done = command("eval", "length_baseline", str(rows), "--fail-if-worse-than", str(run))
    assert done.code == 2 and "is not finished (there is no report)" in done.err and len(done.err.splitlines()) == 1
