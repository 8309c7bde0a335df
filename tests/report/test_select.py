"""Judges compared on the same labels: figures as scikit-learn counts them, one verdict, gates with
two sides.
"""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, cohen_kappa_score

from rm_gallery import BaseGrader, ConfigError, GraderRank, GradingRunner, Unscored
from rm_gallery.core.graders.base import GraderMode
from rm_gallery.core.stats.agreement import spearman_filled
from rm_gallery.study.select import JudgeFigure, JudgeSelection, judge_select
from tests.support.command import command


class Reads(BaseGrader):
    """Says what stands in a column; nothing where that is empty."""

    name: str = "reads"
    column: str = "a"

    def _grade(self, row: dict[str, Any]) -> float:
        if row[self.column] is None:
            raise Unscored("it says nothing", cause="judge")
        return float(row[self.column])


def judged(rows: list[dict[str, Any]], columns: str = "ab", **arguments: Any) -> JudgeSelection:
    runner = GradingRunner({name: Reads(column=name) for name in columns})
    return judge_select(
        runner, [{"row": row, **row} for row in rows], "label", progress=False, **arguments
    )


def drawn(n: int, right: tuple[float, ...], seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        label = int(rng.random() < 0.6)
        said = {
            name: label if rng.random() < share else 1 - label
            for name, share in zip("abc", right, strict=False)
        }
        rows.append({"id": str(k), "query": f"q{k}", "label": label, **said})
    return rows


def test_figures_are_those_of_other_packages_on_the_rows_that_both_judged() -> None:
    rows = drawn(80, (0.8, 0.9), 0)
    for k in (3, 30, 31):
        rows[k]["b"] = None
    found = judged(rows)
    labels = [row["label"] for row in rows]
    a, b = found.judges
    assert a.figures["accuracy"] == accuracy_score(labels, [row["a"] for row in rows])
    kept = [row for row in rows if row["b"] is not None]
    assert b.figures["kappa"] == pytest.approx(
        cohen_kappa_score([r["label"] for r in kept], [r["b"] for r in kept])
    )
    assert (b.n, b.n_scored, b.missing, b.threshold) == (80, 77, {"judge": 3}, 0.5)
    right = sum(row["label"] == row["b"] for row in kept)
    assert b.worst["accuracy"] == right / 80
    filled = [1 - row["label"] if row["b"] is None else row["b"] for row in rows]
    assert b.worst["kappa"] == pytest.approx(cohen_kappa_score(labels, filled))
    assert found.n_shared == 77 and found.shared["a"] == accuracy_score(
        [r["label"] for r in kept], [r["a"] for r in kept]
    )
    difference = found.differences["a", "b"].paired
    assert (
        difference.difference == pytest.approx(found.shared["b"] - found.shared["a"])
        and difference.n == 77
    )


@pytest.mark.long("many judgements")
def test_numbers_are_compared_by_their_order() -> None:
    rng = np.random.default_rng(3)
    labels = rng.normal(size=120)
    noise = [labels + rng.normal(size=120) * scale for scale in (1.5, 0.2)]
    rows = [
        {"query": f"q{k}", "label": float(labels[k]), "a": noise[0][k], "b": noise[1][k]}
        for k in range(120)
    ]
    runner = GradingRunner({name: Reads(column=name, score_range=(None, None)) for name in "ab"})
    found = judge_select(runner, [{"row": row, **row} for row in rows], "label", progress=False)
    assert found.measure == "spearman" and found.shared["b"] == pytest.approx(
        spearmanr(labels, noise[1]).statistic
    )
    difference, p = found.differences["a", "b"].paired, found.differences["a", "b"].p_adjusted
    assert (
        difference.interval is not None
        and difference.interval.low > 0
        and p is not None
        and p < 0.05
    )
    assert found.verdict.startswith("Take b: it agrees more")
    with pytest.raises(ConfigError, match="`threshold: X` below a"):
        judge_select(
            runner,
            [{"row": r, **r, "label": k % 2} for k, r in enumerate(rows)],
            "label",
            progress=False,
        )


@pytest.mark.long("many judgements")
def test_a_verdict_names_a_better_judge_seldom_where_there_is_none() -> None:
    taken = [
        judged(drawn(60, (0.8, 0.8, 0.8), seed), "abc").verdict.startswith("Take")
        for seed in range(40)
    ]
    assert sum(taken) <= 5
    found = judged(drawn(400, (0.7, 0.9), 1))
    assert found.best == "b" and found.verdict.startswith(
        "Take b: it agrees more with the labels than a, by +"
    )
    small = judged(drawn(25, (0.8, 0.88), 2)).verdict
    assert "cannot be told apart" in small or small.startswith("Keep a")


def test_missing_verdicts_are_no_way_to_be_better() -> None:
    rows = drawn(200, (0.85, 0.85), 5)
    for row in rows:
        if row["b"] != row["label"]:
            row["b"] = None  # a judge that is silent wherever it would be wrong
    found = judged(rows)
    assert found.judges[1].figures["accuracy"] == 1.0 and not found.verdict.startswith("Take b")
    assert "the spearman of b is" in found.missed({"spearman": 0.7}, name="b")[0]
    assert not found.missed({"spearman": 0.5}, name="a")
    assert (
        "b has none for" in found.verdict
        and found.best == "a"
        and found.differences["a", "b"].ends.covers(0.0)
    )
    assert found.missed({"accuracy": 0.95}, name="b") and not found.missed(
        {"accuracy": 0.8}, name="b"
    )


def graded(
    seed: int, silent: float, scale: tuple[float, float] = (1.0, 1.0)
) -> list[dict[str, Any]]:
    rng, rows = np.random.default_rng(seed), []
    for k in range(120):
        label = int(rng.integers(1, 6))
        a, b = (float(np.clip(label + round(rng.normal() * noise), 1, 5)) for noise in scale)
        rows.append(
            {
                "query": f"q{k}",
                "label": label,
                "a": a,
                "b": None if b != label and rng.random() < silent else b,
            }
        )
    return rows


def ordered(rows: list[dict[str, Any]]) -> JudgeSelection:
    runner = GradingRunner({name: Reads(column=name, score_range=(1, 5)) for name in "ab"})
    return judge_select(runner, [{"row": row, **row} for row in rows], "label", progress=False)


@pytest.mark.long("many judgements")
def test_silence_is_no_way_to_order_better(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        found = ordered(graded(seed, 0.7))
        assert (
            not found.verdict.startswith("Take")
            and "Missing scores count at worst: b has none for" in found.verdict
        )
        a, b = found.judges
        assert b.figures["spearman"] > a.figures["spearman"] > b.worst["spearman"], (
            "it looks better on what it judged"
        )
        assert found.missed({"spearman": a.figures["spearman"]}, name="b")
    # a few missing scores do not hide a judge that is far better
    few = ordered(graded(0, 0.05, (3.0, 0.3)))
    assert few.judges[1].missing and few.verdict.startswith("Take b")


@pytest.mark.parametrize("integers", [False, True])
def test_the_worst_order_is_that_of_all_fillings(integers: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        other = (
            rng.integers(0, 4, 6).astype(float) if integers else rng.permutation(6).astype(float)
        )
        scores = other + rng.normal(size=6)
        missing = rng.choice(6, 2, replace=False)
        scores[missing] = math.nan
        known = np.sort(scores[~np.isnan(scores)])
        gaps = [known[0] - 1, *(known[1:] + known[:-1]) / 2, known[-1] + 1]
        found = []
        for first, second in product(gaps, gaps):
            for nudge in (1e-6, -1e-6):
                filled = scores.copy()
                filled[missing] = first, second + nudge
                found.append(float(spearmanr(filled, other).statistic))
        for best, limit in ((False, min(found)), (True, max(found))):
            value = float(spearmanr(spearman_filled(scores, other, best=best), other).statistic)
            assert value == pytest.approx(limit, abs=0.05 if integers else 1e-9)


def test_limits_hold_at_worst_or_surely() -> None:
    found = judged(drawn(100, (0.9, 0.8), 7))
    value, low = found.judges[0].figures["kappa"], found.judges[0].ci95["kappa"].low
    for least, surely, missed in (
        (value, False, 0),
        (value + 1e-9, False, 1),
        (low, True, 0),
        (low + 1e-9, True, 1),
    ):
        assert len(found.missed({"kappa": least}, surely=surely)) == missed
    assert "no accuracy" not in " ".join(found.missed({"accuracy": 1.0, "spearman": 1.0}))
    with pytest.raises(ConfigError, match="has a, b"):
        found.missed({}, name="c")


class Ranks(Reads):
    mode: GraderMode = GraderMode.LISTWISE

    def _grade(self, row: dict[str, Any]) -> GraderRank:  # type: ignore[override]
        return GraderRank(name=self.name, rank=[1])


def test_what_cannot_be_compared_is_refused() -> None:
    rows = drawn(4, (1, 1), 0)
    with pytest.raises(ConfigError, match="two or more"):
        judged(rows, "a")
    with pytest.raises(ConfigError, match="holds no label"):
        judged([{**row, "label": None} for row in rows])
    with pytest.raises(ConfigError, match="b ranks answers"):
        judge_select(GradingRunner({"a": Reads(), "b": Ranks()}), rows, "label")


CONFIG = """
graders:
  now: {grader: string_match, params: {algorithm: exact_match}}
  other: {grader: string_match, params: {algorithm: substring_match}, threshold: 0.5}
labels: ok
"""


def test_the_command_prints_a_table_and_holds_a_judge_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"response": f"it is {k}" if k % 3 else str(k), "reference_response": str(k), "ok": "pass"}
        for k in range(30)
    ]
    rows += [{"response": "no", "reference_response": str(k), "ok": "fail"} for k in range(10)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("judges.yaml").write_text(CONFIG)
    done = command("judge-select", "judges.yaml", "rows.jsonl")
    assert done.code == 0 and done.out.splitlines()[0].split()[:3] == [
        "judge",
        "accuracy",
        "(95",
    ], done.err
    assert "other: it agrees more" in done.out
    told = json.loads(command("judge-select", "judges.yaml", "rows.jsonl", "--json").out)
    assert told["best"] == "other" and [judge["name"] for judge in told["judges"]] == [
        "now",
        "other",
    ]
    page = command("judge-select", "judges.yaml", "rows.jsonl", "--format", "md").out
    assert page.splitlines()[1].startswith("|---|") and "Take other" in page
    limit = ("--fail-under", "kappa=0.6")
    for more, code in (
        ((), 1),
        (("--judge", "other"), 0),
        (("--judge", "other", "--surely"), 0),
        (("--judge", "nobody"), 2),
    ):
        assert command("judge-select", "judges.yaml", "rows.jsonl", *limit, *more).code == code, (
            more
        )
    for wrong in ("kapa=0.6", "kappa", "kappa=2", "kappa=x"):
        assert command("judge-select", "judges.yaml", "rows.jsonl", "--fail-under", wrong).code == 2
    Path("judges.yaml").write_text(CONFIG.replace("threshold: 0.5", "threshold: high"))
    assert "threshold is 'high'" in command("judge-select", "judges.yaml", "rows.jsonl").err


def with_constant(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{**row, **dict.fromkeys(names, 1)} for row in rows]


def test_a_constant_judge_is_named_and_never_recommended() -> None:
    said = "gives every answer the same verdict."
    rows = drawn(100, (0.5, 0.9), 0)
    # where nearly all labels are alike, the constant judge has the best accuracy
    for share in (0.2, 0.8):
        skewed = [
            {**row, "label": int(k % 10 != 0)}
            for k, row in enumerate(drawn(100, (share, share), 1))
        ]
        for used, judge in (("a", "b"), ("b", "a")):
            found = judged(with_constant(skewed, judge))
            assert found.best == used and f"{judge} {said}" in found.verdict
            assert not re.match(rf"(Take|Keep) {judge}\b", found.verdict), found.verdict
    kept = judged(with_constant(rows, "a"))
    assert kept.verdict.startswith("Take b: ") and kept.verdict.endswith(f"a {said}")
    worse = judged(with_constant(drawn(100, (0.1, 0.1), 2), "a"))
    assert worse.verdict.startswith(
        "a cannot be recommended, and b is not shown to agree more with the labels"
    )
    none = judged(with_constant(rows, "a", "b"))
    assert none.best is None and none.verdict == f"No judge can be recommended. a {said} b {said}"
    assert none.to_dict()["best"] is None and [
        judge["constant"] for judge in none.to_dict()["judges"]
    ] == [True, True]
    assert not any(judge.constant for judge in judged(rows).judges)


def test_of_labels_that_are_numbers_a_judge_with_one_score_is_constant() -> None:
    rows = [
        {"query": f"q{k}", "label": k / 20, "a": 0.5, "b": k / 20 if k % 5 else 0.0}
        for k in range(20)
    ]
    found = judged(rows)
    assert (
        found.measure == "spearman"
        and found.best == "b"
        and "a gives every answer the same verdict." in found.verdict
    )
    assert found.verdict.startswith("a cannot be recommended")


def test_one_cluster_passes_no_limit_that_an_interval_is_held_to() -> None:
    """Its figure alone would: the gate read a missing interval as one that reaches the limit."""
    judge = JudgeFigure("j", 9, 9, {}, {}, {"kappa": 0.9}, {}, {"kappa": 0.9}, 0.5, 0, False)
    assert judge.missed("kappa", 0.6, surely=False) == ""
    assert "no interval from one cluster" in judge.missed("kappa", 0.6, surely=True)
