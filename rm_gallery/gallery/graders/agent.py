"""What an agent did: its tool calls against those expected, loops, steps that lead nowhere, new
information; each step by a judge.

Trajectories are messages of the OpenAI protocol; arguments may be JSON text or objects, and a
message may stand inside `{"message": …}`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, create_model
from rapidfuzz import fuzz

from rm_gallery.core.graders.base import BaseGrader, GraderScore
from rm_gallery.core.graders.llm import RubricGrader, shown, usage_of
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.reward.asking import parsed
from rm_gallery.core.reward.template import BasePromptTemplate, Described
from rm_gallery.core.score import Bounds
from rm_gallery.core.text.language import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.agent import (
    MOST_CALLS,
    ExpectedCall,
    fits,
    in_any_order,
    in_order,
    read_wanted,
)
from rm_gallery.gallery.rm.tool_calls import MadeCall, as_call

Metric = Literal["f1", "precision", "recall", "jaccard"]


class Action(NamedTuple):
    """A tool call of a trajectory and what came back."""

    call: MadeCall
    observation: str | None

    @property
    def signature(self) -> str:
        """Name and arguments, whatever the order of the keys."""
        return (
            f"{self.call.name} "
            f"{json.dumps(self.call.arguments, sort_keys=True, ensure_ascii=False, default=str)}"
        )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        parts = (part.get("text", "") if isinstance(part, Mapping) else part for part in content)
        return "\n".join(str(part) for part in parts if part)
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)


def messages_of(messages: Any, name: str) -> list[Mapping[str, Any]]:
    """The messages of a trajectory; Unscored for what is none."""
    turns = [m.get("message", m) if isinstance(m, Mapping) else m for m in messages or ()]
    if not turns or not all(isinstance(m, Mapping) and "role" in m for m in turns):
        raise Unscored(
            f"{name} needs messages: a list of dicts with a role, and there are none.",
            reason="no_messages",
        )
    return turns


def calls_of(given: Any, name: str) -> list[MadeCall]:
    """The tool calls of a list in any usual layout; one that cannot be read is a call of its own
    that fits nothing.
    """
    if isinstance(given, Mapping):
        given = given.get("tool_calls", [given])
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise Unscored(
                f"{name}: the tool calls are no JSON: {error}", reason="no_tool_calls"
            ) from error
    if not isinstance(given, (list, tuple)):
        raise Unscored(
            f"{name} needs a list of tool calls, found a {type(given).__name__}.",
            reason="no_tool_calls",
        )
    calls = [as_call(call) for call in given]
    return [
        call if isinstance(call, MadeCall) else MadeCall("", {"unreadable": call}) for call in calls
    ]


def actions_of(messages: Sequence[Mapping[str, Any]]) -> list[Action]:
    """Every tool call in order with its observation: the tool message of its id, else the next one
    without an owner.
    """
    waiting: list[tuple[str | None, MadeCall]] = []
    answers: dict[int, str] = {}
    free: dict[int, str | None] = {}
    for message in messages:
        if message["role"] in ("tool", "function"):
            owner = message.get("tool_call_id")
            own = (i for i, number in free.items() if owner is not None and number == owner)
            place = next(own, next(iter(free), None))
            if place is not None:
                del free[place]
                answers[place] = _text(message.get("content"))
            continue
        for raw in message.get("tool_calls") or ():
            call = as_call(raw)
            number = raw.get("id") if isinstance(raw, Mapping) else None
            free[len(waiting)] = number
            waiting.append(
                (number, call if isinstance(call, MadeCall) else MadeCall("", {"unreadable": call}))
            )
    return [Action(call, answers.get(i)) for i, (_, call) in enumerate(waiting)]


def _share(matched: int, made: int, wanted: int, metric: Metric) -> float:
    if not made and not wanted:
        return 1.0
    if metric == "f1":
        return 2 * matched / (made + wanted)
    if metric == "jaccard":
        return matched / (made + wanted - matched)
    return (
        matched / made
        if metric == "precision" and made
        else matched / wanted
        if metric == "recall" and wanted
        else 0.0
    )


def _wanted(given: Any, arguments: bool, name: str) -> list[ExpectedCall]:
    wanted = read_wanted(given)
    if isinstance(wanted, str):
        raise Unscored(
            f"{name} cannot read the reference tool calls: {wanted}", reason="no_reference"
        )
    return wanted


def _table(
    made: Sequence[MadeCall], wanted: Sequence[ExpectedCall], arguments: bool
) -> list[list[bool]]:
    return [
        [
            fits(c, w, True, {}) if arguments else bool(c.name) and c.name == w.name
            for w in wanted[:MOST_CALLS]
        ]
        for c in made[:MOST_CALLS]
    ]


class ToolCallPrecisionRecallMatchGrader(BaseGrader):
    """How many of the expected tool calls were made, each counting once, in any order.

    Fields: `tool_calls`, `reference_tool_calls` (as `tool_call_match` reads them). Range [0, 1],
    higher is better. F1 by default: recall alone is earned by calling everything. An empty
    reference says that no call is right.
    """

    metric: Metric = "f1"
    match_arguments: bool = True
    """Whether arguments have to fit as well as names."""

    def _grade(self, tool_calls: Any, reference_tool_calls: Any) -> GraderScore:
        made = calls_of(tool_calls, self.name)
        wanted = _wanted(reference_tool_calls, self.match_arguments, self.name)
        matched = in_any_order(_table(made, wanted, self.match_arguments))
        metadata = {"matched": matched, "made": len(made), "expected": len(wanted)}
        reason = f"{matched} of {len(wanted)} expected calls made; {len(made)} calls in all."
        score = _share(matched, len(made), len(wanted), self.metric)
        return GraderScore(score=score, reason=reason, metadata=metadata)


class ToolCallStepSequenceMatchGrader(BaseGrader):
    """How well the steps of a trajectory follow the expected ones in order.

    Fields: `messages`; `reference_tool_calls`, a list of steps, each a call or a list of calls made
    side by side. Steps are aligned in order so that the most fit; inside a step the order of calls
    does not matter. The score is `metric` of the calls in aligned steps. Range [0, 1], higher is
    better.
    """

    metric: Metric = "f1"
    match_arguments: bool = True

    def _grade(self, messages: Any, reference_tool_calls: Any) -> GraderScore:
        made = [
            calls_of(message["tool_calls"], self.name)
            for message in messages_of(messages, self.name)
            if message.get("tool_calls")
        ]
        steps = (
            reference_tool_calls
            if isinstance(reference_tool_calls, (list, tuple))
            else [reference_tool_calls]
        )
        wanted = [
            _wanted(step if isinstance(step, (list, tuple)) else [step], True, self.name)
            for step in steps
        ]
        fit = [[in_any_order(_table(m, w, self.match_arguments)) for w in wanted] for m in made]
        matched = _aligned(fit)
        n_made, n_wanted = sum(map(len, made)), sum(map(len, wanted))
        metadata = {
            "matched": matched,
            "made": n_made,
            "expected": n_wanted,
            "steps": [len(made), len(wanted)],
        }
        reason = f"{matched} of {n_wanted} expected calls in order; {n_made} calls in all."
        score = _share(matched, n_made, n_wanted, self.metric)
        return GraderScore(score=score, reason=reason, metadata=metadata)


def _aligned(fit: Sequence[Sequence[int]]) -> int:
    """The most calls that fit when steps are paired without crossing."""
    best = [0] * (len(fit[0]) + 1 if fit else 1)
    for row in fit:
        before = best[:]
        for column, fits_here in enumerate(row):
            best[column + 1] = max(before[column] + fits_here, before[column + 1], best[column])
    return best[-1]


class ToolCallSequenceMatchGrader(BaseGrader):
    """Whether the tool calls come in the expected order: the longest common run of both, by F1.

    Fields: `tool_calls`, `reference_tool_calls`. Range [0, 1], higher is better; calls in between
    cost precision.
    """

    match_arguments: bool = True

    def _grade(self, tool_calls: Any, reference_tool_calls: Any) -> GraderScore:
        made = calls_of(tool_calls, self.name)
        wanted = _wanted(reference_tool_calls, self.match_arguments, self.name)
        matched = in_order(_table(made, wanted, self.match_arguments)) if made and wanted else 0
        score = _share(matched, len(made), len(wanted), "f1")
        reason = f"{matched} of {len(wanted)} expected calls in order; {len(made)} calls in all."
        return GraderScore(score=score, reason=reason, metadata={"matched": matched})


COMPARED = 20_000
"""Characters of a text that are compared, at most: the time grows with the square of it."""


def _alike(one: str, other: str) -> float:
    return 1.0 if one == other else fuzz.ratio(one[:COMPARED], other[:COMPARED]) / 100


class ActionLoopDetectionGrader(BaseGrader):
    """1 minus the share of pairs of tool calls that are the same call again.

    Fields: `messages`. Calls are the same when name and arguments are, in whatever order the keys
    stand, or as alike as `similarity_threshold` of their characters. Range [0, 1], 1 is free of
    loops; fewer than two calls cannot loop.
    """

    similarity_threshold: float = Field(default=1.0, gt=0, le=1)

    def _grade(self, messages: Any) -> GraderScore:
        signatures = [action.signature for action in actions_of(messages_of(messages, self.name))]
        n = len(signatures)
        if self.similarity_threshold == 1.0:
            same = sum(count * (count - 1) // 2 for count in Counter(signatures).values())
        else:
            pairs = ((signatures[i], signatures[j]) for i in range(n) for j in range(i))
            same = sum(_alike(one, other) >= self.similarity_threshold for one, other in pairs)
        possible = n * (n - 1) // 2
        reason = f"{same} of {possible} pairs of {n} calls are the same call."
        return GraderScore(score=1 - same / possible if possible else 1.0, reason=reason)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def information_gain(observations: Sequence[str], threshold: float) -> float:
    """Mean over observations of what is new in each: 1 minus its greatest likeness to an earlier
    one, less by exp(-2 x) for a likeness x above `threshold`; the first one is new.
    """
    seen: list[frozenset[str]] = []
    gains = []
    for text in observations:
        own = frozenset(words(text))
        overlap = max((_jaccard(own, other) for other in seen), default=0.0)
        gains.append((1 - overlap) * math.exp(-2 * max(0.0, overlap - threshold)))
        seen.append(own)
    return math.fsum(gains) / len(gains)


def _observations(actions: Sequence[Action], messages: Sequence[Mapping[str, Any]]) -> list[str]:
    observations = [action.observation for action in actions if action.observation is not None]
    return observations or [
        _text(m.get("content")) for m in messages if m["role"] in ("tool", "function")
    ]


class ObservationInformationGainGrader(BaseGrader):
    """How much new each observation brings, see `information_gain`.

    Fields: `messages`. Range [0, 1], higher is better; unscored without observations.
    """

    similarity_threshold: float = Field(default=0.5, ge=0, le=1)

    def _grade(self, messages: Any) -> GraderScore:
        read = messages_of(messages, self.name)
        observations = _observations(actions_of(read), read)
        if not observations:
            raise Unscored(
                f"{self.name}: the trajectory holds no observations.",
                reason="no_observations",
                cause="answer",
            )
        score = information_gain(observations, self.similarity_threshold)
        return GraderScore(score=score, reason=f"{len(observations)} observations.")


class ToolUsageEfficiencyGrader(BaseGrader):
    """0.4 of the information gained, 0.4 of the share of calls that are not made before, 0.2 of the
    variety of tools.

    Fields: `messages`. Variety is min(1, different tools / calls + 0.3). Range [0, 1]; unscored
    without calls.
    """

    information_gain_threshold: float = Field(default=0.3, ge=0, le=1)

    def _grade(self, messages: Any) -> GraderScore:
        read = messages_of(messages, self.name)
        actions = actions_of(read)
        if not actions:
            raise Unscored(
                f"{self.name}: the trajectory holds no tool calls.",
                reason="no_tool_calls",
                cause="answer",
            )
        observations = _observations(actions, read)
        gain = (
            information_gain(observations, self.information_gain_threshold) if observations else 0.0
        )
        new = len({action.signature for action in actions}) / len(actions)
        variety = min(1.0, len({action.call.name for action in actions}) / len(actions) + 0.3)
        metadata = {"information_gain": gain, "new_calls": new, "variety": variety}
        score = 0.4 * gain + 0.4 * new + 0.2 * variety
        return GraderScore(score=score, reason=f"{len(actions)} calls.", metadata=metadata)


class TrajectoryStepEfficiencyGrader(BaseGrader):
    """The share of steps that led somewhere; with `reference_step_count` 0.6 of that and 0.4 of
    min(1, expected / made).

    Fields: `messages`, optional `reference_step_count`. A step leads nowhere when the same call was
    made before and brought the same again, or brought nothing. Range [0, 1], higher is better;
    unscored without calls.
    """

    redundancy_threshold: float = Field(default=0.8, gt=0, le=1)
    """From this likeness on two observations are the same."""

    def _grade(self, messages: Any, reference_step_count: int | None = None) -> GraderScore:
        actions = actions_of(messages_of(messages, self.name))
        if not actions:
            raise Unscored(
                f"{self.name}: the trajectory holds no tool calls.",
                reason="no_tool_calls",
                cause="answer",
            )
        before: dict[str, list[str]] = {}
        redundant = 0
        for action in actions:
            same, own = before.setdefault(action.signature, []), action.observation or ""
            redundant += self._again(own, same)
            if own not in same:
                same.append(own)
        productive = 1 - redundant / len(actions)
        metadata = {"steps": len(actions), "redundant": redundant}
        score = productive
        if reference_step_count is not None:
            expected = int(reference_step_count)
            if expected < 1:
                raise Unscored(
                    f"{self.name}: reference_step_count is {expected}; give 1 or more.",
                    reason="no_reference",
                )
            score = 0.6 * productive + 0.4 * min(1.0, expected / len(actions))
        return GraderScore(
            score=score,
            reason=f"{redundant} of {len(actions)} steps led nowhere.",
            metadata=metadata,
        )

    def _again(self, own: str, before: Sequence[str]) -> bool:
        """Whether the same call brought this before, or brings nothing now."""
        if own in before or (before and not own):
            return True
        return any(_alike(own, earlier) >= self.redundancy_threshold for earlier in before)


# -- trajectories step by step ---------------------------------------------------------------------

PARTS = {
    "contribution": ("how far it brings the task forward", "对任务的推进程度"),
    "relevance": ("how far it belongs to the task", "与任务的相关程度"),
    "accuracy": ("whether call and parameters are right", "调用和参数是否正确"),
    "efficiency": ("whether it was needed and not done before", "是否必要且未曾做过"),
}


@lru_cache(maxsize=1)
def _step_reply() -> type[BasePromptTemplate]:
    fields: dict[str, Any] = {
        name: (
            Annotated[int, Described(zh=f"{zh}，1（最差）到 5（最好）的整数")],
            Field(
                default=...,
                ge=1,
                le=5,
                description=f"A whole number from 1 (worst) to 5 (best): {en}",
            ),
        )
        for name, (en, zh) in PARTS.items()
    }
    made: type[BasePromptTemplate] = create_model(
        "StepReply", __base__=BasePromptTemplate, __module__=__name__, **fields
    )
    return made


class TrajectoryComprehensiveGrader(RubricGrader):
    """Every step of a trajectory for contribution, relevance, accuracy and efficiency; the mean of
    all, 0 to 1.

    Fields: `messages`, optional `query`. One call per tool call, each from 1 to 5 and mapped to [0,
    1]. Metadata: `steps`, and `is_resolved`, whether the score reaches the threshold. Unscored
    without tool calls; one step that cannot be judged leaves the trajectory without a score.
    """

    unheard: ClassVar[frozenset[str]] = frozenset({"prompt", "whole", "own_form"})
    rubric: ClassVar[str] = "trajectory_step"
    folder: ClassVar[Path] = Path(__file__).parent / "parts"
    name: str = "trajectory_comprehensive"
    score_range: Bounds = (0.0, 1.0)
    threshold: float | None = 0.8

    @property
    def inputs(self) -> dict[str, bool]:
        """`messages`, and `query` where it is not in them."""
        return {"messages": True, "query": False}

    @property
    def reply(self) -> type[BasePromptTemplate]:
        """Four numbers."""
        return _step_reply()

    async def _grade(self, messages: Any, query: str = "") -> GraderScore:
        read = messages_of(messages, self.name)
        asked = query or next((shown(m.get("content")) for m in read if m["role"] == "user"), "")
        actions = actions_of(read)
        if not actions:
            raise Unscored(
                f"{self.name}: the trajectory holds no tool calls.",
                reason="no_tool_calls",
                cause="answer",
            )
        lines = [
            {"call": action.signature, "result": action.observation or ""} for action in actions
        ]
        steps, usages = [], []
        for number, step in enumerate(lines):
            fields = {"query": asked, "history": lines[:number], "step": step}
            verdicts, usage = await self._ask(fields, self._read_step)
            steps.append(verdicts)
            usages.append(usage)
        score = math.fsum(
            (value - 1) / 4 for step in steps for value in step["scores"].values()
        ) / (4 * len(steps))
        usage = {name: math.fsum(one[name] for one in usages) for name in usages[0]}
        metadata = {
            "steps": steps,
            "is_resolved": self.threshold is not None and score >= self.threshold,
        }
        return GraderScore(
            score=score, reason=steps[-1]["reason"], metadata=metadata, usage=usage, **self.about()
        )

    def _read_step(self, reply: ChatResponse) -> tuple[dict[str, Any], dict[str, float]]:
        verdict = parsed(self.reply, reply)
        scores = {name: getattr(verdict, name) for name in PARTS}
        return {"scores": scores, "reason": verdict.reason or ""}, usage_of(reply)
