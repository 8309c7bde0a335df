"""Recorded verdicts and scores of real judges through the rules, against the published figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq
import pytest

from rm_gallery.gallery.benchmarks.base import get_benchmark
from rm_gallery.gallery.benchmarks.figures import Figure
from rm_gallery.gallery.benchmarks.judgebench import CATEGORIES
from rm_gallery.gallery.benchmarks.judgements import Judged, Verdict, sign
from rm_gallery.gallery.benchmarks.rules import Tally, both_orders_credit, consistency_credit
from tests.support.benchmarks import by_hand
from tests.support.shared_data import shared_file

SIGNS: dict[str | None, Verdict] = {"A>B": 1, "B>A": -1, "A=B": 0}


def columns(name: str, wanted: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(shared_file(f"{name}.parquet"), columns=wanted).to_pylist()
    return rows


def percent(figure: Figure | float | None) -> float:
    value = figure.score if isinstance(figure, Figure) else figure
    assert value is not None
    return round(100 * value, 2)


def played(first: Verdict, second: Verdict, label: int, subset: str = "") -> Judged:
    """A pair of which only the verdicts are known; `label` is 1 where the first answer is right, 0 for a tie."""
    return by_hand([0.5, 0.5], (label == 1, label == -1), games=(first, second), subset=subset)


@pytest.mark.parametrize(
    ("model", "overall", "by_category"),
    [
        ("Skywork/Skywork-Reward-Llama-3.1-8B", 62.29, (59.09, 64.29, 76.79, 50.00)),
        ("Ray2333/GRM-Gemma-2B-rewardmodel-ft", 59.43, (62.99, 53.06, 64.29, 54.76)),
    ],
)
def test_judgebench_reward_models(model: str, overall: float, by_category: tuple[float, ...]) -> None:
    wanted = ["source", "label", "judge_model", "score_A", "score_B", "score_A_swapped", "score_B_swapped"]
    judged = []
    for row in columns("judgebench_rm_scores", wanted):
        if row["judge_model"] == model:
            games = sign(row["score_A"], row["score_B"]), sign(row["score_A_swapped"], row["score_B_swapped"])
            category = next(name for name in CATEGORIES if row["source"].startswith(name))
            judged.append(played(*games, SIGNS[row["label"]] or 0, category))
    report = get_benchmark("judgebench").score(judged)
    assert (report.n, percent(report)) == (350, overall)
    assert tuple(percent(report.by_subset[name]) for name in CATEGORIES) == by_category


def test_judgebench_judge_in_two_games() -> None:
    games: dict[str, dict[int, Verdict]] = defaultdict(dict)
    labels: dict[str, int] = {}
    for row in columns("judgebench_judge_outputs", ["pair_id", "label", "game", "order", "decision"]):
        verdict = SIGNS.get((row["decision"] or "").replace(">>", ">"))
        games[row["pair_id"]][row["game"]] = -verdict if verdict is not None and row["order"] == "BA" else verdict
        labels[row["pair_id"]] = SIGNS[row["label"]] or 0
    # upstream counts a missing verdict as a tie
    official = get_benchmark("judgebench").score(
        played(games[name][1] or 0, games[name][2] or 0, label) for name, label in labels.items()
    )
    assert (percent(official), official.n_scored) == (32.22, 270)
    # one order only and both orders right, on the same verdicts: why a figure has to name its rule
    assert percent(sum(games[name][1] == label for name, label in labels.items()) / 270) == 29.63
    assert percent(official.extra["orders"]["both_orders"]) == 14.07
    strict = get_benchmark("judgebench").score(
        played(games[name][1], games[name][2], label) for name, label in labels.items()
    )
    assert (strict.n, strict.n_unscored) == (270, 13)


def as_share(text: str) -> float:
    return float(text.rsplit("=", 1)[-1].strip().rstrip("%")) / 100


def test_llmbar_published_statistics() -> None:
    runs: dict[tuple[str, str, str], dict[tuple[int, bool], tuple[Verdict, int]]] = defaultdict(dict)
    winners: dict[str | None, Verdict] = {"1": 1, "2": -1, None: None}
    wanted = ["subset", "evaluator", "method", "index", "label", "is_final", "kind", "swap", "winner"]
    for row in columns("llmbar_judge_outputs", wanted):
        if row["is_final"] and not row["kind"].startswith("rating_output"):
            run = runs[row["subset"], row["evaluator"], row["method"]]
            run[row["index"], row["swap"]] = winners[row["winner"]], 1 if row["label"] == 1 else -1
    wanted = ["subset", "evaluator", "method", "n", "correct_average", "correct_both"]
    published = columns("llmbar_published_statistics", wanted)
    assert len(published) == 162
    for row in published:
        verdicts = runs[row["subset"], row["evaluator"], row["method"]]
        judged = []
        for index in sorted({index for index, _ in verdicts}):
            (first, label), (second, _) = verdicts[index, False], verdicts[index, True]
            # upstream counts a missing verdict as a wrong one
            judged.append(played(-label if first is None else first, -label if second is None else second, label))
        orders = get_benchmark("pairs").score(judged).extra["orders"]
        assert orders["n"] == row["n"]
        expected = {"mean_of_orders": as_share(row["correct_average"]), "both_orders": as_share(row["correct_both"])}
        assert {name: orders[name] for name in expected} == pytest.approx(expected, abs=1e-11)


def mean(credits: Iterable[float | None]) -> float | None:
    counts = Tally()
    for credit in credits:
        counts.add(credit)
    return counts.mean


def test_auto_j_agreement_and_consistency() -> None:
    signs, exchanged = {0: 1, 1: -1, 2: 0}, {0: -1, 1: 1, 2: 0}
    rows = columns("autoj_pairwise_preds", ["label", "pred", "pred_exchanged_raw"])
    judged = [played(signs[r["pred"]], exchanged[r["pred_exchanged_raw"]], signs[r["label"]]) for r in rows]
    assert percent(mean(map(both_orders_credit, judged))) == 54.96
    assert percent(mean(map(consistency_credit, judged))) == 83.41
