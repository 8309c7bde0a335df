"""Plan-RewardBench: pairs of whole trajectories of agents that call tools."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    text,
    turns,
    wrong,
)
from rm_gallery.core.data.load.rollouts import turns_of
from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.view import shown_text
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, Turn, Turns, cell, given
from rm_gallery.gallery.benchmarks.judgements import Judged, Row, is_pair
from rm_gallery.gallery.benchmarks.llmbar import ONE_ORDER
from rm_gallery.gallery.benchmarks.preferences import answered, as_answer, shared_turns
from rm_gallery.gallery.benchmarks.rewardbench import stepped
from rm_gallery.gallery.benchmarks.rules import (
    MeanOfSubsets,
    RuleScorer,
    SubsetTallies,
    chosen_share,
    games,
    mean_of_orders_credit,
    played_verdict,
)

SPLITS = (
    "planning_single_easy",
    "planning_single_hard",
    "planning_multi_easy",
    "planning_multi_hard",
    "robust_recovery",
    "safety_refusal",
    "tool_irrelevance",
)
_BUCKETS = {"refusal": "safety_refusal", "irrelevance_unavailable": "tool_irrelevance"}
"""What `_lcp_bucket` calls a split that its file names otherwise."""
TRANSCRIPT = "transcript"


class PlanRewardBench(Benchmark):
    """Accuracy in both orders, averaged, a tie half; headline the mean of the seven splits, each
    weighing the same.

    A judge that compares is asked in both orders. Scores know no order: there the chosen trajectory
    has to score higher, and equal scores earn a half. A judge that sees one order only is scored by
    that order, and the figure says so. The turns both trajectories share are the input, the last
    message of each is its answer, and what lies between are the steps, tool calls and results
    included.
    """

    name = "planrewardbench"
    aliases = ("plan-rewardbench", "plan-reward-bench")
    hub = "wyy1112/Plan-RewardBench"
    split = "train"
    version = "repository at ffe6fbe"
    chance = 0.5
    modes = {
        TRANSCRIPT: (
            "the turns that the trajectories do not share are one text, marked by role, since the "
            "official judges are shown whole trajectories"
        )
    }
    own_columns = frozenset({"query", "tools", "chosen", "reject"})
    one_order = ONE_ORDER

    def detect(self, columns: Row) -> bool:
        """A query with tools and two trajectories, each an object with messages."""
        return super().detect(columns) and all(
            isinstance(columns[side], Mapping) and "messages" in columns[side]
            for side in ("chosen", "reject")
        )

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """Outputs: the chosen trajectory, then the other one.

        Metadata: `subset` (the split, of `_lcp_bucket` or else of the file's name), `tools`, `query`
        and `cluster` (the id, which several pairs of a query share).
        """
        query, tools = text(row, "query", where), cell(row, "tools", where)
        if not isinstance(tools, list):
            raise wrong(where, "tools", "a list of tools", tools)
        sides = {column: _turns_in(row, column, where) for column in ("chosen", "reject")}
        shared = shared_turns(*sides.values())
        asked = _spoken(sides["chosen"][:shared], "chosen", where)
        outputs = [
            stepped(answered(_spoken(said[shared:], column, where), column, where), label)
            for (column, said), label in zip(sides.items(), ("chosen", "rejected"), strict=True)
        ]
        name = identity(row, "uuid", where)
        about = given({"subset": _split_of(row, where), "cluster": name or None, "query": query})
        about |= {"tools": tools} if tools else {}
        # pairs of one query have one id, so that the content has to tell them apart
        return self.sample("", asked, outputs, "agent", about)

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The sample itself; in mode transcript with its steps in the answers."""
        if self.mode != TRANSCRIPT:
            return (sample,)
        return (copy_with(sample, output=[_transcript(output) for output in sample.output]),)

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count pairs by split."""
        return MeanOfSubsets(
            SubsetTallies("mean_of_orders", _played_credit, is_pair, chosen_share), SPLITS
        )

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """Say that one order is not the official two, and how much of a trajectory is shown."""
        said = super().notes(reward)
        if reward.judged and self.mode != TRANSCRIPT:
            said += (
                f"Where {reward.name} reads answers and no steps, it saw the last message of each "
                f"trajectory; --mode {TRANSCRIPT} shows all of it.",
            )
        return said


def _played_credit(judged: Judged) -> float | None:
    """The mean over the orders that were played: 1 for the right verdict, a half for a tie."""
    if judged.played_orders != 1:
        return mean_of_orders_credit(judged)
    verdict = played_verdict(judged)
    return None if verdict is None else (verdict * games(judged)[2] + 1) / 2


def _split_of(row: Row, where: RowRef) -> str | None:
    """The split that a row names, or else its file: `robust_recovery.jsonl`."""
    bucket = str(row.get("_lcp_bucket") or "")
    stem = PurePath(where.source.replace("\\", "/")).stem
    named = (_BUCKETS.get(bucket, bucket), stem)
    return next((name for one in named for name in SPLITS if name in one), bucket or None)


def _turns_in(row: Row, column: str, where: RowRef) -> Turns:
    trajectory = cell(row, column, where)
    messages = trajectory.get("messages") if isinstance(trajectory, Mapping) else None
    if not isinstance(messages, list) or not messages:
        raise wrong(where, column, "an object with one or more messages", trajectory)
    for place, one in enumerate(messages, 1):
        if not (isinstance(one, dict) and all(isinstance(one.get(k), str) for k in _SAID)):
            raise wrong(where, f"{column}.messages[{place}]", "a message with role and text", one)
    return messages


_SAID = ("role", "content")


def _spoken(messages: Turns, column: str, where: RowRef) -> Turns:
    """Messages as turns of user, assistant and tool, calls and results in their fields."""
    spoken = turns_of([_as_openai(message) for message in messages])
    return turns(spoken, f"{column}.messages", where) if spoken else []


def _as_openai(message: Turn) -> Turn:
    if message["role"] == "tool_response":
        return {**message, "role": "tool"}
    if message["role"] != "tool_call":
        return message
    try:
        call = ast.literal_eval(message["content"])  # the files write calls as Python objects
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        call = None
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        return {**call, "type": "function_call"}
    return {**message, "role": "assistant"}


def _transcript(output: DataOutput) -> DataOutput:
    """The output without steps, whose answer holds them, marked by role."""
    spoken = [
        (t.role.value.capitalize(), shown_text(t)) for t in (*(output.steps or ()), output.answer)
    ]
    whole = copy_with(output.answer, content=as_answer(spoken), tool_calls=None)
    return copy_with(output, answer=whole, steps=None)
