"""JudgeBench: pairs with an objectively right answer, played in both orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rm_gallery.core.data.load.fields import RowRef, identity, output, text, turns, wrong
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged, is_pair
from rm_gallery.gallery.benchmarks.rules import (
    Orders,
    Scorer,
    SubsetTallies,
    headline,
    single_game_credit,
    two_game_credit,
)

CATEGORIES = ("mmlu-pro", "livebench-reasoning", "livebench-math", "livecodebench")
_PREFERRED = {"A>B": ("chosen", "rejected"), "B>A": ("rejected", "chosen")}
_EXTRA_COLUMNS = ("original_id", "response_model")


class JudgeBench(Benchmark):
    """Two games, sign rule: right verdicts have to outnumber wrong ones. Pooled over all pairs, with the categories.

    A judge that sees only one order (a listwise one, or `both_orders=False`) is scored by the benchmark's single game, and
    the figure says so. `extra["single_game"]` holds that figure wherever it can be had. Upstream counts a missing verdict as a
    tie; here the pair is unscored and counted.
    """

    name = "judgebench"
    aliases = ("judge-bench",)
    hub = "ScalerLab/JudgeBench"
    split = "gpt"
    source = "Tan et al., JudgeBench, arXiv 2410.12784, utils/metrics.py"
    licence = "none stated"
    version = "repository at e2c52c2"
    chance = 0.5

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """A question with two responses A and B and a label that names the better one."""
        own = {"pair_id", "question", "response_A", "response_B", "label"} <= columns.keys()
        return own and columns["label"] in _PREFERRED

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Outputs: response A, then response B, labelled by the better one.

        Metadata: `subset` (the category), `category` (the source as given), `original_id`, `response_model`.
        """
        label, source = text(row, "label", where), text(row, "source", where)
        if label not in _PREFERRED:
            raise wrong(where, "label", "'A>B' or 'B>A'", label)
        answers = [text(row, column, where) for column in ("response_A", "response_B")]
        category = next((name for name in CATEGORIES if source.startswith(name)), "other")
        metadata: dict[str, Any] = {"subset": category, "category": source}
        metadata |= {column: row[column] for column in _EXTRA_COLUMNS if row.get(column) is not None}
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "pair_id", where),
                "input": turns(text(row, "question", where), "question", where),
                "output": [output(a, preference) for a, preference in zip(answers, _PREFERRED[label], strict=True)],
                "task_category": category,
                "source": self.name,
                "metadata": metadata,
            }
        )

    def scorer(self, seed: int = 0) -> Scorer:
        """Count games."""
        return Games()

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """Say that one order is not the official two games."""
        if not _one_order(reward):
            return ()
        return (f"{reward.name} sees each pair in one order, so this is the single game; a pairwise judge plays both.",)


def _one_order(reward: BaseReward) -> bool:
    return reward.judged and (reward.kind == "listwise" or not getattr(reward, "both_orders", True))


class Games:
    """Pairs under both rules; the official one holds unless some pair was played once only."""

    def __init__(self) -> None:
        self._both = SubsetTallies("two_game_sign", two_game_credit, is_pair)
        self._single = SubsetTallies("single_game", single_game_credit, is_pair)
        self._orders = Orders()
        self._one_order = False

    def add(self, judged: Judged) -> float | None:
        """Count one pair; gives what it earned, in the single game where it was played once."""
        both, single = self._both.add(judged), self._single.add(judged)
        self._orders.add(judged)
        once = judged.played_orders == 1
        self._one_order = self._one_order or once
        return single if once else both

    def report(self) -> Report:
        """Report what was counted so far."""
        single, singles = self._single.pooled(), self._single.figures()
        if self._one_order:
            return headline(single, singles)
        parts = {name: _beside(part, singles[name]) for name, part in self._both.figures().items()}
        figure = _beside(self._both.pooled(), single)
        return headline(replace(figure, extra={**figure.extra, **self._orders.extra()}), parts)


def _beside(figure: Figure, single: Figure) -> Figure:
    return replace(figure, extra={**figure.extra, "single_game": single.score})
