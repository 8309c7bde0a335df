"""IF-RewardBench: does a reward rank answers by how well they follow an instruction?"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    output,
    text,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, cell, is_object, question, several
from rm_gallery.gallery.benchmarks.figures import Extra, Figure, Report, with_extra
from rm_gallery.gallery.benchmarks.judgements import Judged, Pair, Row, sign
from rm_gallery.gallery.benchmarks.rules import MeanOfSubsets, RuleScorer, SubsetTallies

TYPES = ("Single_Turn", "Multi_Turn", "System_Prompt")
EPOCHS, STEP, START, SEED = 100, 32.0, 1200.0, "42"
F = TypeVar("F", bound=Figure)


class IFRewardBench(Benchmark):
    """Kendall's tau (-1..1) of the ranking and the edges of each graph: the mean of the lists, then
    of the three types of instructions. `extra` holds the share of edges ranked rightly.

    Verdicts on pairs become Elo ratings first; scores of single answers, or of a whole list, are
    the ranking themselves. A tie of a judge enters no rating. Upstream asks about each pair once,
    in an order from a file, and shuffles with one seed for the whole file; here a judge's both
    orders count, and each list is shuffled with that seed and its id, so that no list depends on
    another. A verdict that cannot be read is a tie there, and makes the list unscored here.
    """

    name = "if_reward_bench"
    aliases = ("if-reward-bench", "ifrewardbench")
    version = "repository at c192fe9, seed 42 and id of each list"
    lowest = -1.0
    own_columns = frozenset({"messages", "checklist", "responses", "preference_graph"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the responses in order, with the share of the checklist they meet as the label
        `correctness`.

        Metadata: `subset` (the type of the instruction), `pairs` (better and worse place of each
        edge), `generator` and `checklist`.
        """
        given = several(row, "responses", where, "a list of objects", is_object)
        answers = [text(one, "response", where) for one in given]
        places = {str(one.get("response_id", at)): at for at, one in enumerate(given)}
        pairs = []
        for edge in several(row, "preference_graph", where, "a list of objects", is_object):
            ends = [edge.get(side) for side in ("chosen", "rejected")]
            ids = [str(end.get("response_id")) if isinstance(end, dict) else "" for end in ends]
            if not all(one in places for one in ids):
                expected = "chosen and rejected with the response_id of a response"
                raise wrong(where, "preference_graph", expected, edge)
            pairs.append([places[one] for one in ids])
        about = {
            "subset": identity(row, "instruction_type", where),
            "pairs": pairs,
            "generator": identity(row, "response_generation_model", where),
            "checklist": json_cell(row.get("checklist")),
        }
        asked = question(row, "messages", where, cell)
        outputs = [
            output(answer, **_met(one.get("labels")))
            for answer, one in zip(answers, given, strict=True)
        ]
        known = {name: value for name, value in about.items() if value}
        return self.sample(identity(row, "id", where), asked, outputs, "instructions", known)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count lists by type."""
        return _Taus()


def _met(labels: Any) -> dict[str, Any]:
    known = isinstance(labels, list) and labels and all(label in (0, 1) for label in labels)
    return {"correctness": sum(labels) / len(labels)} if known else {}


def shuffled_elo(n: int, games: Sequence[tuple[int, int]], seed: str = SEED) -> list[float]:
    """Elo ratings of `n` players out of games, each (winner, loser); higher is better, 1,200 for one
    who never played.

    The games are played a hundred times, shuffled anew each time; after a fifth of them the step
    shrinks from 32 to 1. The order of the ratings can depend on the seed where games contradict
    each other.

    Source: IF-RewardBench (arXiv 2603.04738), metrics/analysis_overall_assessment.py.

    >>> [round(rating) for rating in shuffled_elo(2, [(0, 1)])]
    [1463, 937]
    """
    ratings, order, rng = [START] * n, list(games), random.Random(seed)
    for epoch in range(EPOCHS):
        rng.shuffle(order)
        decay = (epoch - EPOCHS * 0.2) / (EPOCHS * 0.8)
        step = max(1.0, STEP * (1 - decay)) if decay > 0 else STEP
        for winner, loser in order:
            gain = step * (1 - 1 / (1 + 10 ** ((ratings[loser] - ratings[winner]) / 400)))
            ratings[winner] += gain
            ratings[loser] -= gain
    return ratings


def edge_verdicts(judged: Judged) -> list[int] | None:
    """Per edge of the graph 1 where the better answer ranks higher, -1 where it ranks lower, 0 where
    they rank alike; None without all verdicts.
    """
    ranks: Sequence[float] | None = judged.complete()
    if ranks is None:
        return None
    played = sorted(
        (one.place, one.verdict) for one in judged.judgements if isinstance(one.place, Pair)
    )
    if any(verdict is None for _, verdict in played):
        return None
    if played:
        games = [(a, b) if verdict > 0 else (b, a) for (a, b), verdict in played if verdict]
        ranks = shuffled_elo(len(ranks), games, f"{SEED} {judged.sample_id}")
    edges = judged.metadata.get("pairs") or []
    return [sign(ranks[better], ranks[worse]) or 0 for better, worse in edges]


def graph_tau(verdicts: Sequence[int]) -> float:
    """Kendall's tau of edges, -1..1, higher is better: (C - D) / sqrt((C + D)(C + D + T)), with C
    edges ranked rightly, D wrongly and T alike; the denominator is at least 1.

    Source: IF-RewardBench (arXiv 2603.04738), metrics/analysis_overall_assessment.py.

    >>> graph_tau([1, 1, 1, -1])
    0.5
    """
    right, wrongly = verdicts.count(1), verdicts.count(-1)
    played = right + wrongly
    return (right - wrongly) / max(1.0, math.sqrt(played * len(verdicts)))


def _tau_credit(judged: Judged) -> float | None:
    """Tau from 0 to 1 instead of -1 to 1."""
    verdicts = edge_verdicts(judged)
    return (graph_tau(verdicts) + 1) / 2 if verdicts else None


def _right_edges(judged: Judged) -> float | None:
    verdicts = edge_verdicts(judged)
    return verdicts.count(1) / len(verdicts) if verdicts else None


class _Taus(MeanOfSubsets):
    """Taus of lists by type."""

    def __init__(self) -> None:
        super().__init__(SubsetTallies("graph_tau", _tau_credit, lambda chosen: True), TYPES)
        right = SubsetTallies("pair_strict", _right_edges, lambda chosen: True)
        self._right = MeanOfSubsets(right, TYPES)

    def add(self, judged: Judged) -> float | None:
        """Count one list; gives its tau, from 0 to 1 instead of -1 to 1."""
        self._right.add(judged)
        return super().add(judged)

    def report(self) -> Report:
        """Report the lists that were counted so far, on the scale of tau."""
        report = _on_scale(super().report())
        parts = {name: _on_scale(part) for name, part in report.by_subset.items()}
        right = {"edges_ranked_rightly": self._right.report().score}
        return with_extra(replace(report, by_subset=parts), right)


def _on_scale(figure: F) -> F:
    def of(value: Interval | None) -> Interval | None:
        return None if value is None else Interval(*(2 * end - 1 for end in value))

    score = None if figure.score is None else 2 * figure.score - 1
    known: Extra = {"ci95": of(figure.ci95), "bounds": of(figure.bounds)}
    known["detectable"] = None if figure.detectable is None else 2 * figure.detectable
    return replace(figure, score=score, **known)
