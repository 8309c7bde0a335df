"""An agent's way to its answer: does it run in circles, and what did it cost?"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from itertools import groupby
from operator import eq
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import Example, RewardResult, sample_of
from rm_gallery.core.text.language import words
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


@RewardRegistry.register("trajectory_cost")
class TrajectoryCostReward(RuleReward):
    """How well a trajectory keeps to its budgets: the least of min(1, budget / spent) over the budgets that are set.

    Within every budget 1, at twice a budget 0.5. Budgets are the fields (`max_cost` in any currency, `max_latency` in
    seconds, `max_steps`, `max_tokens` of input and output), else those in metadata `budget`, such as {"steps": 10}.

    What was spent is the first record of: the total in answer.label (`cost`, `latency`, `steps`, `tokens`); the sum
    over the output's steps and answer, of `cost`, `latency` and OpenAI's `usage` in their additional_kwargs; the total
    in the sample's metadata; for the cost, tokens at `input_price` and `output_price` per million. Range [0, 1], higher
    is better; unscored without a budget (`no_budget`) or when what it limits was not recorded (`no_record`).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"budget"})
    name: str = "trajectory_cost"
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Budget for the cost, in any currency."""
    max_latency: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Budget for the time, in seconds."""
    max_steps: int | None = Field(default=None, gt=0)
    """Budget for the number of steps."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Budget for tokens of input and output."""
    input_price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of a million tokens of input, where the cost itself is not recorded."""
    output_price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of a million tokens of output."""

    example = Example(
        sample_of(
            "Book a table for two.",
            {"content": "Booked.", "label": {"steps": 4, "tokens": 800}},
            {"content": "Booked at last.", "label": {"steps": 9, "tokens": 4000}},
            budget={"steps": 6, "tokens": 2000},
        ),
        inputs={"answer": "what each `output[i]` is recorded to have spent, in its label, its steps or its answer"},
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        budgets = self._budgets(sample)
        prices = None
        if self.input_price is not None and self.output_price is not None:
            prices = Prices(self.input_price, self.output_price)
        found = {metric: spent(sample, metric, prices) for metric in METRICS}
        known = {metric: value for metric, value in found.items() if value is not None}
        shares = {}
        for metric, budget in budgets.items():
            if metric not in known:
                raise Unscored(f"{self.name}: no {metric} is recorded with the trajectory.", reason="no_record")
            shares[metric] = min(1.0, budget / known[metric]) if known[metric] else 1.0
        worst = min(shares, key=shares.__getitem__)
        reason = f"{worst}: {known[worst]:g} spent of {budgets[worst]:g}."
        return one_score(self.name, shares[worst], reason, known)

    def _budgets(self, sample: DataSample) -> dict[str, float]:
        given = (sample.metadata or {}).get("budget")
        budgets = {}
        for metric in METRICS:
            own = getattr(self, f"max_{metric}")
            limit = own if own is not None else number(given.get(metric)) if isinstance(given, dict) else None
            if limit:
                budgets[metric] = float(limit)
        if not budgets:
            why = f"{self.name} needs a budget: set max_steps, max_tokens, max_cost, max_latency or metadata['budget']."
            raise Unscored(why, reason="no_budget")
        return budgets


METRICS = ("cost", "latency", "steps", "tokens")

_NAMES = {
    "cost": ("cost", "cost_usd", "total_cost"),
    "latency": ("latency", "latency_seconds", "duration", "elapsed"),
    "steps": ("steps", "num_steps", "turns"),
    "tokens": ("tokens", "total_tokens"),
}
_INPUT, _OUTPUT = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")


class Prices(NamedTuple):
    """Prices per million tokens."""

    input: float
    output: float


def spent(sample: DataSample, metric: str, prices: Prices | None = None) -> float | None:
    """How much of a metric the sample's one output spent, None when nothing tells.

    The first record counts: the total in answer.label; the sum over the steps and the answer (of their
    additional_kwargs; steps are counted); the total in the sample's metadata; for the cost, tokens times prices.
    """
    output, metadata = sample.output[0], sample.metadata or {}
    for found in (
        _named(output.answer.label or {}, metric),
        _summed(output, metric),
        _named(metadata, metric),
        _sum(_usage(metadata)) if metric == "tokens" else None,
    ):
        if found is not None:
            return found
    if metric != "cost" or prices is None:
        return None
    tokens = _usages(output) or _usage(metadata)
    return (tokens[0] * prices.input + tokens[1] * prices.output) / 1e6 if tokens else None


def number(value: Any) -> float | None:
    """A finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _summed(output: DataOutput, metric: str) -> float | None:
    if metric == "steps":
        return float(len(output.steps)) if output.steps else None
    if metric == "tokens":
        return _sum(_usages(output))
    parts = [_named(message.additional_kwargs, metric) for message in (*(output.steps or ()), output.answer)]
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known else None


def _usages(output: DataOutput) -> tuple[float, float] | None:
    """Input and output tokens of the steps and the answer together."""
    messages = (*(output.steps or ()), output.answer)
    found = [usage for m in messages if (usage := _usage(m.additional_kwargs)) is not None]
    return (math.fsum(u[0] for u in found), math.fsum(u[1] for u in found)) if found else None


def _usage(source: dict[str, Any]) -> tuple[float, float] | None:
    usage = source.get("usage")
    if not isinstance(usage, dict):
        return None
    given, made = _first(usage, _INPUT), _first(usage, _OUTPUT)
    if given is None and made is None:
        total = number(usage.get("total_tokens"))
        return None if total is None else (total, 0.0)
    return given or 0.0, made or 0.0


def _sum(tokens: tuple[float, float] | None) -> float | None:
    return None if tokens is None else tokens[0] + tokens[1]


def _named(source: dict[str, Any], metric: str) -> float | None:
    return _first(source, _NAMES[metric])


def _first(source: dict[str, Any], names: tuple[str, ...]) -> float | None:
    return next((found for name in names if (found := number(source.get(name))) is not None), None)
