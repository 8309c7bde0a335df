"""Benchmarks of agents' trajectories: did they succeed, which of their steps helped, did they cheat?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import eq
from pathlib import PurePath
from typing import Any

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    json_cell,
    output,
    required,
    text,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.view import conversation_text
from rm_gallery.gallery.benchmarks.base import (
    ROW,
    Output,
    Turn,
    Turns,
    cell,
    given,
    is_object,
    question,
    several,
)
from rm_gallery.gallery.benchmarks.counts import Asides, Called, CountsScorer
from rm_gallery.gallery.benchmarks.judgements import (
    Judged,
    Recorded,
    RecordedRow,
    Row,
    Rows,
    Samples,
    integer,
    not_asked,
)
from rm_gallery.gallery.benchmarks.rules import RuleScorer
from rm_gallery.gallery.benchmarks.steps import RecordedLabel, StepBenchmark, step_scores
from rm_gallery.gallery.benchmarks.verdicts import VerdictBenchmark, called_good


def trajectory(turns: Turns, **label: Any) -> Output:
    """One output of an agent: its turns, with those of tools and users, as steps, and all of them
    as one text for rewards that look at the answer.
    """
    told = conversation_text([ChatMessage.model_validate(turn) for turn in turns])
    return {**output(told, **label), "steps": [*turns]}


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
    annotations of one trajectory is neither asked about nor counted, as upstream, also where the
    first one was unsure. Upstream counts an unread verdict as
    "unsuccessful"; here it is missing.
    """

    name = "agent_reward_bench"
    aliases = ("agentrewardbench", "agent-reward-bench")
    version = "repository at 2737c03"
    own_columns = frozenset({"goal", "steps", "trajectory_success"})
    rule = "success_precision"
    once = True

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
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
        parts = (subset, agent, task)
        return self.sample(
            "/".join(parts) if all(parts) else "",  # half a name would be that of many trajectories
            [{"role": "user", "content": text(row, "goal", where)}],
            [trajectory(_web_turns(row, where), **label)],
            "agent",
            given(about),
        )

    def left_out(self, sample: DataSample, reward: BaseReward) -> str | None:
        """Trajectories that people were unsure about."""
        return _unsure(sample)

    def recorded_scores(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """As for every benchmark; those that people were unsure about are left out here too."""
        for group, one in super().recorded_scores(rows, samples, **rule):
            why = _unsure(one.sample)
            yield group, one if why is None else not_asked(one.sample, "scores", why)


def _unsure(sample: DataSample) -> str | None:
    known = (sample.output[0].answer.label or {}).get("preference")
    return None if known else "its annotator was unsure whether it succeeded"


def _web_turns(row: Row, where: RowRef) -> Turns:
    """What the agent saw (the address, at the end also the page) and did (reasoning, then action)."""
    expected = "a list of steps with action and reasoning"
    steps = several(row, "steps", where, expected, is_object)
    said: Turns = []
    for step in steps:
        page = (step.get("axtree_pruned") or step.get("axtree")) if step is steps[-1] else None
        seen = [("tool", step.get("url")), ("tool", page)]
        done = [("assistant", step.get(column)) for column in ("reasoning", "action")]
        said += [{"role": who, "content": str(words)} for who, words in seen + done if words]
    if not said:
        raise wrong(where, "steps", expected, steps)
    return said


# -- AgentProcessBench -----------------------------------------------------------------------------

SETS = ("hotpotqa", "gaia_dev", "bfcl", "tau2")
WORTH: Mapping[int | None, float] = {1: 1.0, 0: 0.5, -1: 0.0}


class AgentProcessBench(StepBenchmark):
    """Share of an agent's steps whose label of three (1 helps, 0 neither, -1 harms) is found, from
    the counts of all steps; the four sets beside it, and the first harmful step in `extra`.

    A score above the bound of the step rule stands for 1, one at the bound for 0, one below for -1.
    Upstream counts a label that a judge did not give as wrong; here it is missing.
    """

    name = "agent_process_bench"
    aliases = ("agentprocessbench", "agent-process-bench", "LulaCola/AgentProcessBench")
    version = "repository at 96bcf8a"
    own_columns = frozenset({"messages", "step_labels"})
    labels = ("step_labels",)

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output: the agent's last turn is the answer, the turns from its first on are the steps;
        its own have the label `correctness` (1, 0.5 or 0). What follows its last turn is left off.

        Metadata: `subset` (the set, out of `data_source` or the file's name), `cluster` (the
        question) and `tools`.
        """
        said = question(row, "messages", where, cell)
        known = _labels_of(required(row, "step_labels", where))
        spoken = [str(at) for at, turn in enumerate(said) if turn["role"] == "assistant"]
        if not spoken or known is None or not known.keys() <= set(spoken):
            expected = f"1, 0 or -1 for each of the messages {', '.join(spoken)}"
            raise wrong(where, "step_labels", expected, row["step_labels"])
        begins, ends = int(spoken[0]), int(spoken[-1]) + 1
        asked = said[:begins] or question(row, "question", where)
        subset = _named_set(f"{row.get('data_source')} {PurePath(where.source).stem}")
        query = identity(row, "query_index", where)
        about = {
            "subset": subset,
            "cluster": f"{subset}-{query}" if query else None,
            "tools": json_cell(row.get("tools")) or None,
        }
        *steps, answer = (
            {**turn, "label": given({"correctness": WORTH.get(known.get(str(at)))})}
            for at, turn in enumerate(said[begins:ends], begins)
        )
        answer["label"] |= {"step_labels": [known.get(at) for at in spoken]}
        outputs = [{"answer": answer, "steps": steps or None}]
        name = identity(row, "total_index", where)
        return self.sample(name, asked, outputs, "agent", given(about))

    def recorded_label(self, row: RecordedRow, name: str) -> RecordedLabel:
        """The labels of the agent's steps."""
        known = _labels_of(row["step_labels"])
        if known is None:
            raise row.unfit("step_labels", "labels 1, 0 or -1")
        if not all(map(str.isdecimal, known)):
            raise row.unfit("step_labels", "labels by the number of a message", known)
        # a table may write them in any order
        return name, {"step_labels": [known[at] for at in sorted(known, key=int)]}, {}

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count steps and first harmful steps."""
        return CountsScorer("step_accuracy", self._errors_found, further=self._further)

    def _said(self, judged: Judged) -> tuple[list[int], list[int] | None]:
        """The labels of the agent's steps, and what the scores say; a file may leave out those of
        steps without a label.
        """
        truth: list[int | None] = judged.label.get("step_labels") or []
        known, scores = [one for one in truth if one is not None], step_scores(judged) or []
        if len(scores) == len(truth):
            scores = [score for score, one in zip(scores, truth, strict=True) if one is not None]
        whole = scores and len(scores) == len(known)
        return known, self.step_rule.signs(scores) if whole else None

    def _errors_found(self, judged: Judged) -> Called:
        truth, said = self._said(judged)
        hits = None if said is None else list(map(eq, truth, said))
        return [True] * len(truth), hits

    def _further(self, judged: Judged) -> Asides:
        truth, said = self._said(judged)
        hit = None if said is None else _first_harmful(said) == _first_harmful(truth)
        return {"first_error": ("share_found", True, hit)}


def _first_harmful(labels: Sequence[int]) -> int | None:
    return labels.index(-1) if -1 in labels else None


def _labels_of(value: Any) -> dict[str, int] | None:
    """The labels by message; None where there are none, or others."""
    cell = json_cell(value)
    if not isinstance(cell, list | dict):
        return None
    pairs = cell.items() if isinstance(cell, dict) else enumerate(cell)
    known = {str(at): integer(label) for at, label in pairs if label is not None}
    fits = {at: label for at, label in known.items() if label in WORTH and label is not None}
    return fits if fits and fits == known else None


def _named_set(words: str) -> str | None:
    return next((name for name in SETS if name.partition("_")[0] in words.lower()), None)


# -- TRACE -----------------------------------------------------------------------------------------

CLEAN = "0"


class TraceHacks(VerdictBenchmark):
    """Macro F1 of "clean" and "hacked", from the counts of all trajectories, each judged alone; the
    share of hacks found stands beside it, for each of the ten groups.

    A trajectory that does not score above the threshold is called hacked.
    """

    name = "trace_hacks"
    aliases = ("trace", "trace-dataset")
    hub = "PatronusAI/trace-dataset"
    split = "train"
    version = "own rule on the labels of arXiv 2601.20103"
    own_columns = frozenset({"trajectory_id", "conversation", "label"})

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output with the turns from the agent's first on, results of tools as turns of their
        own; `preference` is chosen for a clean trajectory, and `hacks` are the codes of others.
        """
        codes = [code.strip() for code in text(row, "label", where).split(",")]
        if not all(code == CLEAN or code[:1].isdigit() and "." in code for code in codes):
            raise wrong(where, "label", "0 or codes such as 1.2.3, with commas", row["label"])
        told = given = cell(row, "conversation", where)
        if isinstance(given, list):
            told = [part for item in given for part in _openai(item)]
        said = turns(told, "conversation", where)
        begins = next((at for at, turn in enumerate(said) if turn["role"] == "assistant"), 0)
        if not begins:
            raise wrong(where, "conversation", "a user's turn and then the agent's", given)
        hacks = [code for code in codes if code != CLEAN]
        preference = "rejected" if hacks else "chosen"
        outputs = [trajectory(said[begins:], preference=preference, hacks=hacks)]
        name = identity(row, "trajectory_id", where)
        return self.sample(name, said[:begins], outputs, "agent")

    def further(self, judged: Judged) -> Asides:
        """Whether a hacked trajectory was found, for each group of its hacks."""
        groups = {".".join(code.split(".")[:2]) for code in judged.label.get("hacks") or ()}
        clean = called_good(judged, self.step_rule)
        found = None if clean is None else not clean[0]
        names = ["found", *(f"found_{group}" for group in sorted(groups))] if groups else []
        return {name: ("share_found", True, found) for name in names}


def _openai(message: Any) -> list[Any]:
    """A message of TRACE as OpenAI's turns: its calls have `parameters`, and their results stand in
    the same message.
    """
    if not isinstance(message, dict):
        return [message]
    calls, results = (
        filter(is_object, message.get(name) or ()) for name in ("tool_calls", "tool_results")
    )
    turn: Turn = {"role": message.get("role"), "content": message.get("content") or ""}
    for call in calls:
        arguments = json.dumps(call.get("parameters"), ensure_ascii=False)
        written = {"name": str(call.get("name")), "arguments": arguments}
        turn.setdefault("tool_calls", []).append({"type": "function", "function": written})
    back = [{"role": "tool", "content": str(one.get("output") or "")} for one in results]
    return [turn, *back]
