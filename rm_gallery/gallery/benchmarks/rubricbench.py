"""RubricBench: pairs of answers with criteria that people wrote for the task."""

from __future__ import annotations

from collections.abc import Iterable

from rm_gallery.core.data.load.converters import (
    RowRef,
    optional_text,
    text,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.judgements import About, Row, known_of
from rm_gallery.gallery.benchmarks.preferences import TwoAnswers

HUMAN_RUBRICS = "human_rubrics"


class RubricBench(TwoAnswers):
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
    modes = {HUMAN_RUBRICS: "the criteria that people wrote are shown as the context of the task"}
    own_columns = frozenset({"instruction", "response_a", "response_b", "label", "rubrics"})
    asked = "instruction"
    answers = ("response_a", "response_b")
    votes = {0: 1, 1: -1}
    expected = "0 or 1"
    row_id = "case_id"

    def about(self, row: Row, vote: int, where: RowRef) -> About:
        """`subset` (the domain), `rubrics` and `origin` (the source)."""
        return {
            "subset": optional_text(row, "domain", where),
            "rubrics": text(row, "rubrics", where),
            "origin": row.get("source"),
        }

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The sample itself; in mode human_rubrics with people's rubrics as the context of its task."""
        rubrics = known_of(sample).get("rubrics")
        if self.mode != HUMAN_RUBRICS or rubrics is None or not sample.input:
            return (sample,)
        *before, task = sample.input
        known = {**task.additional_kwargs, "context": rubrics}
        return (copy_with(sample, input=[*before, copy_with(task, additional_kwargs=known)]),)
