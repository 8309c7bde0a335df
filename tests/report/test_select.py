"""Judges compared on the same labels: figures as scikit-learn counts them, one verdict, gates with
two sides.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_1samp, ttest_ind
from sklearn.metrics import accuracy_score, cohen_kappa_score

from rm_gallery import (
    BaseGrader,
    ConfigError,
    GraderRank,
    GradingRunner,
    RewardRegistry,
    Unscored,
)
from rm_gallery.core.graders.base import GraderMode
from rm_gallery.core.stats.agreement import spearman_filled
from rm_gallery.core.stats.significance import holm
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
    assert done.code == 0 and done.out.splitlines()[1].split()[:3] == [
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
    assert page.splitlines()[3].startswith("|---|") and page.startswith("Take other")
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
    done = command(
        "judge-select", "judges.yaml", "rows.jsonl", "--as-good-within", "5", "--by", "ok"
    )
    assert done.code == 0 and "as good as now within 5.0 points: other." in done.out, done.err
    for option in (("--as-good-within", "0"), ("--by", "kind"), ("--second-labels", "second")):
        assert command("judge-select", "judges.yaml", "rows.jsonl", *option).code == 2
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


def right(rows: list[dict[str, Any]], name: str) -> Any:
    return np.array([row[name] == row["label"] for row in rows], dtype=float)


def test_as_good_is_two_one_sided_t_tests_by_hand() -> None:
    """A judge in use at 90 %, another at 89: no difference is shown, which shows no likeness."""
    rows = drawn(400, (0.9, 0.89), 2)
    change, whole = right(rows, "b") - right(rows, "a"), judged(rows, as_good_within=8.5)
    for points in np.arange(0.5, 9.0, 0.5):
        margin = points / 100
        p_low = ttest_1samp(change, -margin, alternative="greater").pvalue
        p_high = ttest_1samp(change, margin, alternative="less").pvalue
        if min(abs(p_low - 0.025), abs(p_high - 0.025)) < 0.01:
            continue  # a score test and a t-test differ a little
        found = replace(whole, margin=margin)
        expected = {"b": bool(p_high < 0.025)} if p_low < 0.025 else {}
        assert found.as_good["a"] == expected, (points, found.verdict)
        low, high = found.differences["a", "b"].limits or (None, None)
        assert low is not None and high is not None
        assert bool(expected) == low.surely_above(-margin)
        assert any(expected.values()) == (low.within(margin) and high.within(margin))
    assert "Shown to be as good as a within 8.5 points: b (equivalent)." in whole.verdict
    assert whole.to_dict()["margin"] == 0.085 and whole.to_dict()["as_good"]["a"] == {"b": True}
    assert judged(rows).as_good == {}


def test_silence_where_it_would_be_wrong_makes_no_judge_as_good() -> None:
    rows = drawn(400, (0.9, 0.9), 5)
    assert judged(rows, as_good_within=8).as_good["a"] == {"b": True}
    silent = [{**row, "b": row["b"] if row["b"] == row["label"] else None} for row in rows]
    worse = [{**row, "b": None} if k % 8 == 0 else row for k, row in enumerate(silent)]
    found = judged(worse, as_good_within=8)
    assert found.judges[1].figures["accuracy"] == 1.0 and found.as_good["a"] == {}
    # neither is one that gives every answer the same verdict, however common that is
    skewed = [
        {**row, "label": int(k % 20 != 0), "a": 1 - (k % 10 == 0), "b": 1}
        for k, row in enumerate(rows)
    ]
    assert judged(skewed, as_good_within=20).as_good["a"] == {}
    for wrong in (0.0, -1.0, 100.0, math.nan):
        with pytest.raises(ConfigError, match="as-good-within is .*such as 3"):
            judged(rows, as_good_within=wrong)


def test_order_has_its_margin_in_hundredths_of_a_correlation() -> None:
    rows = graded(1, 0.0)
    runner = GradingRunner({name: Reads(column=name, score_range=(1, 5)) for name in "ab"})
    data = [{"row": row, **row} for row in rows]
    told = [
        judge_select(runner, data, "label", as_good_within=points, progress=False).verdict
        for points in (1, 30)
    ]
    assert "as good as a within 0.010: none" in told[0]
    assert "as good as a within 0.300: b (equivalent)" in told[1]


def test_pairs_of_judges_are_corrected_by_turning_rows_at_random() -> None:
    """Three judges, of which two nearly always say the same: Holm counts them as three tests."""
    rows = drawn(300, (0.75, 0.82), 4)
    rng = np.random.default_rng(0)
    for row in rows:
        row["c"] = row["b"] if rng.random() < 0.97 else 1 - row["b"]
    found = judged(rows, "abc")
    pairs = list(found.differences)
    changes = np.array([right(rows, b) - right(rows, a) for a, b in pairs])
    signs = rng.choice([-1.0, 1.0], (4000, 300))
    size = np.sqrt((changes**2).sum(axis=1))
    turned, own = np.abs(signs @ changes.T / size), np.abs(changes.sum(axis=1) / size)
    # the least significant is held against itself alone, the most significant against all
    by_hand = [float((turned[:, own <= t].max(axis=1) >= t).mean()) for t in own]
    adjusted = [found.differences[pair].p_adjusted or 0.0 for pair in pairs]
    assert adjusted == pytest.approx(by_hand, abs=0.02)
    plain = [found.differences[pair].paired.p_value or 0.0 for pair in pairs]
    assert all(p >= q for p, q in zip(adjusted, plain, strict=True))
    assert adjusted < holm(plain) and all(
        p <= q for p, q in zip(adjusted, holm(plain), strict=True)
    ), "shared rows cost less"
    assert found.correction == found.to_dict()["correction"] == "max-T over 3 pairs"
    assert judged(rows).correction is None, "one pair"
    assert judged(rows).differences["a", "b"].p_adjusted == pytest.approx(plain[0])


def test_what_people_reach_stands_beside_the_judges() -> None:
    rows = drawn(300, (0.85, 0.6, 0.99), 8)
    rng = np.random.default_rng(1)
    for k, row in enumerate(rows):
        row["second"] = (row["label"] + (rng.random() < 0.15)) % 2 if k % 3 else None
    found = judged(rows, "abc", second_labels="second")
    both = [row for row in rows if row["second"] is not None]
    assert found.person is not None
    kappa = cohen_kappa_score([r["label"] for r in both], [r["second"] for r in both])
    assert found.person.figure.n == len(both) == 200
    assert found.person.figure.figures["kappa"] == pytest.approx(kappa)
    for name, gap in found.person.differences.items():
        own = cohen_kappa_score([r["label"] for r in both], [r[name] for r in both])
        assert gap.paired.difference == pytest.approx(own - kappa) == pytest.approx(gap.ends.low)
        # the interval is about the sum of the two variances where people and judge err apart
        interval, one = gap.paired.interval, found.person.figure.ci95["kappa"]
        assert interval is not None and interval.high - interval.low > one.high - one.low
    told = found.verdict
    assert f"People agree with each other by kappa {kappa:.3f} [" in told
    assert "Cannot be told from a person: a; these rows would show a difference of 0." in told
    assert "Agree less than people: b." in told and "Agree more than people: c." in told
    assert found.rows()[-1][0] == "second" and found.to_dict()["person"]["measure"] == "kappa"
    # silent where it would be wrong, it is no better than people
    silent = [{**row, "a": row["a"] if row["a"] == row["label"] else None} for row in rows]
    quiet = judged(silent, "ab", second_labels="second")
    assert quiet.person is not None and quiet.person.differences["a"].shown == 0
    with pytest.raises(ConfigError, match="'second' holds 3; beside labels of 0 and 1"):
        judged([{**row, "second": 3} for row in rows[:9]], second_labels="second")
    with pytest.raises(ConfigError, match="'second' holds no label beside"):
        judged([{**row, "second": None} for row in rows[:9]], second_labels="second")
    with pytest.raises(ConfigError, match="second_labels: .*absent"):
        judged(rows[:9], second_labels="absent")


def test_whether_a_difference_differs_between_subsets_is_welchs_test_of_two() -> None:
    rows = drawn(400, (0.8, 0.86), 6)
    for k, row in enumerate(rows):
        row["kind"] = "xy"[k % 2]
        if row["kind"] == "y":
            row["a"], row["b"] = row["b"], row["a"]
    found = judged(rows, by="kind")
    change = right(rows, "b") - right(rows, "a")
    by_hand = ttest_ind(change[::2], change[1::2], equal_var=False).pvalue
    p = found.differences["a", "b"].heterogeneity
    assert p is not None and p == pytest.approx(by_hand, rel=0.1) and p < 0.05
    assert f"The difference differs by kind: a and b (p = {p:.2g})." in found.verdict
    # where the judges never differ, so many rows might still have shown a difference
    alike = [{**row, "b": row["a" if row["kind"] == "y" else "label"]} for row in rows]
    q = judged(alike, by="kind").differences["a", "b"].heterogeneity
    assert q is not None and q < 0.05
    same = judged([{**row, "kind": "xy"[k // 2 % 2]} for k, row in enumerate(rows)], by="kind")
    assert "No difference is shown to differ by kind (least p = " in same.verdict
    # of what is missing all may be otherwise
    gone = [{**row, "b": None} if k % 3 else row for k, row in enumerate(rows)]
    assert judged(gone, by="kind").differences["a", "b"].heterogeneity == 1.0
    # rows of one cluster in both subsets are no witnesses of their own
    shared = [{**row, "group": str(k // 2)} for k, row in enumerate(rows)]
    crossed = judged(shared, by="kind", cluster="group")
    assert crossed.differences["a", "b"].heterogeneity is None
    assert "Whether a difference differs by kind cannot be told" in crossed.verdict
    with pytest.raises(ConfigError, match="by: .*kinds"):
        judged(rows[:9], by="kinds")


def test_no_difference_comes_with_the_smallest_that_one_would_have_seen() -> None:
    rows = drawn(200, (0.85, 0.85), 13)
    found = judged(rows)
    change = right(rows, "b") - right(rows, "a")
    seen = (1.96 + 0.8416) * change.std() / math.sqrt(len(change))
    paired = found.differences["a", "b"].paired
    assert paired.detectable == pytest.approx(seen, rel=1e-3)
    assert f"; these rows would show a difference of {100 * seen:.1f} points" in found.verdict
    assert found.to_dict()["differences"][0]["detectable"] == paired.detectable


def test_one_cluster_shows_nothing_and_says_so() -> None:
    rows = [{**row, "group": "one", "second": row["label"]} for row in drawn(60, (0.7, 0.95), 1)]
    found = judged(rows, cluster="group", second_labels="second", as_good_within=50)
    gap = found.differences["a", "b"]
    assert (gap.p_adjusted, gap.shown, gap.paired.interval) == (None, None, None)
    assert found.as_good == {"a": {}, "b": {}} and "[no interval from one cluster]" in found.verdict
    assert "Cannot be compared with people: a, b." in found.verdict


def test_a_third_judge_with_gaps_changes_nothing_between_the_others() -> None:
    """The figure was of the rows that all three judged, the p-value of those of the two."""
    rows = [
        {"response": str(k), "human": float(k % 2), "old": (k + (k % 3 == 0)) % 2, "new": k % 2}
        for k in range(120)
    ]
    for k, row in enumerate(rows):
        row["third"] = k % 2 if k < 12 else None
    found = judge_select(
        GradingRunner(
            {
                f"column:{name}": RewardRegistry.create(f"column:{name}")
                for name in ("old", "new", "third")
            },
            show_progress=False,
        ),
        rows,
        "human",
        progress=False,
    )
    paired = found.differences["column:old", "column:new"].paired
    assert paired.n == 120 and paired.difference == pytest.approx(1 / 3)


def test_the_report_says_whose_the_headline_is(tmp_path: Path) -> None:
    rows = [{"id": str(k), "good": k % 2, "bad": k % 3 > 0, "label": k % 2} for k in range(40)]
    file, folder = tmp_path / "rows.jsonl", str(tmp_path / "run")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("column:bad", "column:good", str(file), "--labels", "label", "--out", folder)
    assert command("judge-select", *words).code == 0
    page = command("report", folder, "--format", "md").out
    assert "column:good agrees with people more than chance: " in page
    assert "| headline: column:good |" in page and "| all |" not in page
