"""Does an answer, or an agent's way to it, run in circles?"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from itertools import groupby
from operator import eq
from typing import Any

from pydantic import Field

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.tokens import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.agent.tool_calls import tool_calls_of
from rm_gallery.gallery.rm.rule import RuleReward, one_score

_MIN_LOOP_WORDS = 20


@RewardRegistry.register("loop_detection")
class LoopDetectionReward(RuleReward):
    """1 - the largest share of a trajectory that only repeats itself: of its tool calls, its lines, or its words.

    A loop is a group of up to `max_period` of them (`max_word_period` for words) that comes `min_repeats` times or more
    in direct succession; all but its first round is repetition. Word loops are at least 20 words long, so "ha ha ha ha"
    is none. Tool calls are equal when name and arguments are. The trajectory is the texts and calls of the output's
    steps and its answer. Range [0, 1], higher is better: 1 is free of loops; an output without text and calls is
    unscored (`empty`).
    """

    name: str = "loop_detection"
    min_repeats: int = Field(default=3, ge=2)
    max_period: int = Field(default=10, ge=1)
    max_word_period: int = Field(default=50, ge=1, le=1000)

    example = Example(
        sample_of(
            "Find the error in the log.",
            "I open the log.\nLine 40 says that the disk is full.",
            "I open the log.\n" * 6 + "Line 40 says that the disk is full.",
        ),
        inputs={"answer": "the texts and tool calls of each `output[i]`, its steps and its answer"},
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Look for loops of each sort."""
        output = sample.output[0]
        sequences = _sequences(output)
        if not any(sequences.values()):
            raise Unscored(f"{self.name}: the output has neither text nor tool calls.", reason="empty", cause="answer")
        shares = {sort: self._share(sort, items) for sort, items in sequences.items() if items}
        worst = max(shares, key=shares.__getitem__)
        reason = f"{shares[worst]:.1%} of the {worst} repeat themselves." if shares[worst] else "No loop found."
        return one_score(self.name, 1 - shares[worst], reason, shares)

    def _share(self, sort: str, items: Sequence[Hashable]) -> float:
        if sort == "words":
            return looping(items, self.min_repeats, self.max_word_period, _MIN_LOOP_WORDS) / len(items)
        return looping(items, self.min_repeats, self.max_period) / len(items)


def _sequences(output: DataOutput) -> dict[str, list[str]]:
    messages = [*(output.steps or ()), output.answer]
    text = "\n".join(message.text for message in messages)
    calls = tool_calls_of(output, trajectory=True).calls
    return {
        "calls": [f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=repr)}" for call in calls],
        "lines": [line for line in map(str.strip, text.splitlines()) if any(map(str.isalnum, line))],
        "words": words(text),
    }


def looping(items: Sequence[Hashable], min_repeats: int, max_period: int, min_items: int = 1) -> int:
    """How many items only repeat what stands right before them.

    A loop is a group of up to `max_period` items that stands `min_repeats` times or more in direct succession, all its
    rounds together at least `min_items` long; every item after the first round counts, once however many loops it is
    in.
    """
    repeated = bytearray(len(items))
    for period in range(1, min(max_period, len(items) // min_repeats) + 1):
        position = period
        for same, run in groupby(map(eq, items[period:], items)):
            length = sum(1 for _ in run)
            if same and length >= max((min_repeats - 1) * period, min_items - period):
                repeated[position : position + length] = b"\x01" * length
            position += length
    return sum(repeated)
