"""Benchmarks of agents' trajectories: did they succeed, which of their steps helped, did they cheat?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rm_gallery.core.data.load.converters import RowRef, identity, json_cell, required, text, wrong
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.kinds import conversation_text
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.benchmarks.base import ROW, given
from rm_gallery.gallery.benchmarks.verdicts import VerdictBenchmark

Turn = dict[str, Any]


def trajectory(
    turns: Sequence[Turn], right: Sequence[float | None] = (), **label: Any
) -> dict[str, Any]:
    """One output of an agent: its turns, with those of tools and users, as steps, and all of them
    as one text for rewards that look at the answer; `right` are labels of the turns.
    """
    told = conversation_text([ChatMessage.model_validate(turn) for turn in turns])
    known = right or [None] * len(turns)
    steps = [
        {**turn, "label": {} if value is None else {"correctness": value}}
        for turn, value in zip(turns, known, strict=True)
    ]
    return {"answer": {"role": "assistant", "content": told, "label": label}, "steps": steps}


# -- AgentRewardBench ------------------------------------------------------------------------------

SUCCESS: Mapping[str, str | None] = {
    "successful": "chosen",
    "unsuccessful": "rejected",
    "unsure": None,
}
BESIDE = ("trajectory_side_effect", "trajectory_optimality", "trajectory_looping")


class AgentRewardBench(VerdictBenchmark):
    """Precision of "successful", from the counts of all trajectories; recall and F1 stand in
    `extra`, the five web benchmarks beside it.

    A trajectory that its annotator was unsure about is not asked about. The second of two
    annotations of one trajectory is not counted, as upstream. Upstream counts an unread verdict as
    "unsuccessful"; here it is missing.
    """

    name = "agent_reward_bench"
    aliases = ("agentrewardbench", "agent-reward-bench")
    version = "repository at 2737c03"
    own_columns = frozenset({"goal", "steps", "trajectory_success"})
    rule = "success_precision"

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """One output: address, reasoning and action of each step, and the page before the last one.
        Its label says `preference` (chosen: successful) and what else people saw.

        Metadata: `subset` (the web benchmark), `cluster` (the task), `generator`, and the recorded
        reward of the rule checker under `rule_reward`.
        """
        said = text(row, "trajectory_success", where).strip().lower()
        if said not in SUCCESS:
            raise wrong(where, "trajectory_success", "Successful, Unsuccessful or Unsure", said)
        task, agent = identity(row, "task_id", where), identity(row, "model_name", where)
        preference, subset = SUCCESS[said], identity(row, "benchmark", where)
        if subset == "workarena" and "l2" in task.lower():
            subset = "workarena++"
        recorded = json_cell(row.get("summary_info"))
        about = {
            "subset": subset or None,
            "cluster": task or None,
            "generator": agent or None,
            "rule_reward": recorded.get("cum_reward") if isinstance(recorded, dict) else None,
        }
        label = given({"preference": preference, **{name: row.get(name) for name in BESIDE}})
        return self.sample(
            "/".join(filter(None, (subset, agent, task))),
            [{"role": "user", "content": text(row, "goal", where)}],
            [trajectory(_web_turns(row, where), **label)],
            "agent",
            given(about),
        )

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Trajectories that people were unsure about."""
        known = (sample.output[0].answer.label or {}).get("preference")
        return None if known else "its annotator was unsure whether it succeeded"


def _web_turns(row: Mapping[str, Any], where: RowRef) -> list[Turn]:
    """What the agent saw (the address, at the end also the page) and did (reasoning, then action)."""
    steps = json_cell(required(row, "steps", where))
    if not isinstance(steps, list) or not steps or not all(isinstance(s, dict) for s in steps):
        raise wrong(where, "steps", "a list of steps with action and reasoning", steps)
    said: list[Turn] = []
    for step in steps:
        seen = [step.get("url")]
        if step is steps[-1]:
            seen.append(step.get("axtree_pruned") or step.get("axtree"))
        told = ("tool", seen), ("assistant", [step.get("reasoning"), step.get("action")])
        said += [
            {"role": who, "content": str(words)} for who, all_ in told for words in all_ if words
        ]
    if not said:
        raise wrong(where, "steps", "a list of steps with action and reasoning", steps)
    return said
