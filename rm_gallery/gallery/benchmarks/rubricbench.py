"""RubricBench: pairs of answers with criteria that people wrote for the task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    optional_text,
    output,
    required,
    text,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, given
from rm_gallery.gallery.benchmarks.judgements import Row, integer

_LABELS = {0: ("chosen", "rejected"), 1: ("rejected", "chosen")}
HUMAN_RUBRICS = "human_rubrics"


class RubricBench(Benchmark):
    """Strict pairs, pooled, with the domains beside it.

    A reward judges by criteria of its own unless `--mode human_rubrics` shows it those that people
    wrote; the difference of the two figures is what the benchmark is about.
    """

    name = "rubricbench"
    aliases = ("rubric-bench",)
    hub = "DonJoey/rubricbench"
    split = "train"
    version = "columns of the hub card at 430cfa4, accuracy of the paper"
    chance = 0.5
    modes: ClassVar[dict[str, str]] = {
        HUMAN_RUBRICS: "the criteria that people wrote are shown as the context of the task"
    }
    own_columns = frozenset({"instruction", "response_a", "response_b", "label", "rubrics"})

    def detect(self, columns: Row) -> bool:
        """An instruction with two responses, rubrics, and a label that is 0 or 1."""
        return super().detect(columns) and integer(columns["label"]) in _LABELS

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: response A, then B; label 0 prefers A. Metadata: `subset` (the domain), `rubrics`
        and `origin` (the source).
        """
        label = integer(required(row, "label", where))
        if label not in _LABELS:
            raise wrong(where, "label", "0 or 1", row["label"])
        answers = [text(row, column, where) for column in ("response_a", "response_b")]
        rubrics = text(row, "rubrics", where)
        asked = turns(text(row, "instruction", where), "instruction", where)
        outputs = [
            output(a, preference) for a, preference in zip(answers, _LABELS[label], strict=True)
        ]
        about = {
            "subset": optional_text(row, "domain", where),
            "rubrics": rubrics,
            "origin": row.get("source"),
        }
        return self.sample(
            identity(row, "case_id", where), asked, outputs, about["subset"], given(about)
        )

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The sample itself; in mode human_rubrics with people's rubrics as the context of its task."""
        rubrics = (sample.metadata or {}).get("rubrics")
        if self.mode != HUMAN_RUBRICS or rubrics is None or not sample.input:
            return (sample,)
        *before, task = sample.input
        known = {**task.additional_kwargs, "context": rubrics}
        return (copy_with(sample, input=[*before, copy_with(task, additional_kwargs=known)]),)
