"""What an agent did: its tool calls against those expected, loops, steps that lead nowhere, new
information; each step by a judge.

Trajectories are messages of the OpenAI protocol; arguments may be JSON text or objects, and a
message may stand inside `{"message": …}`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field, create_model
from rapidfuzz import fuzz

from rm_gallery.core.graders.base import BaseGrader, usage_sum
from rm_gallery.core.graders.llm import RubricGrader, shown
from rm_gallery.core.model.message import ChatResponse, text_of
from rm_gallery.core.reward.template import BasePromptTemplate, Described
from rm_gallery.core.score import Bounds, Score
from rm_gallery.core.text.blocks import read_json
from rm_gallery.core.text.language import words
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.graders import wording
from rm_gallery.gallery.graders.text import jaccard
from rm_gallery.gallery.rm.agent import (
    MOST_CALLS,
    ExpectedCall,
    Metric,
    fits,
    in_any_order,
    in_order,
    match_score,
    read_wanted,
)
from rm_gallery.gallery.rm.tool_calls import MadeCall, as_call

# -- reading a trajectory --------------------------------------------------------------------------


@dataclass(eq=False)
class Action:
    """A tool call of a trajectory and what came back."""

    call: MadeCall
    number: Any
    """The id by which a tool message names the call."""
    observation: str | None = None


def listed(given: Any) -> Sequence[Any]:
    """A list as it is, and what is none as the only one of a list."""
    return given if isinstance(given, (list, tuple)) else [given]


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
    if isinstance(given, str):
        try:
            given = read_json(given)
        except ValueError as error:
            raise Unscored(
                f"{name}: the tool calls are no JSON: {error}", reason="no_tool_calls"
            ) from error
    if isinstance(given, Mapping):
        given = given.get("tool_calls", [given])
    if not isinstance(given, (list, tuple)):
        raise Unscored(
            f"{name} needs a list of tool calls, found a {type(given).__name__}.",
            reason="no_tool_calls",
        )
    return list(map(_readable_call, given))


def _readable_call(raw: Any) -> MadeCall:
    call = as_call(raw)
    return call if isinstance(call, MadeCall) else MadeCall("", {"unreadable": call})


def read_trajectory(
    messages: Any, name: str, needs: Literal["tool calls", "observations"] | None = None
) -> tuple[list[Action], list[str]]:
    """Every tool call in order with its observation, the tool message of its id, else the next one
    without an owner; and all observations, those of no call where no call has one.

    Unscored where there are none of what a grader `needs`: "tool calls" or "observations".
    """
    actions, waiting = list[Action](), list[Action]()
    stray = []
    for message in messages_of(messages, name):
        if message["role"] not in ("tool", "function"):
            made = [
                Action(_readable_call(raw), raw.get("id") if isinstance(raw, Mapping) else None)
                for raw in message.get("tool_calls") or ()
            ]
            actions += made
            waiting += made
            continue
        content, owner = message.get("content"), message.get("tool_call_id")
        text = text_of(content) if isinstance(content, (list, tuple)) else shown(content)
        if waiting:
            own = [each for each in waiting if owner is not None and each.number == owner]
            action = (own or waiting)[0]
            waiting.remove(action)
            action.observation = text
        else:
            stray.append(text)
    observed = [a.observation for a in actions if a.observation is not None] or stray
    if needs and not (actions if needs == "tool calls" else observed):
        raise Unscored(
            f"{name}: the trajectory holds no {needs}.",
            reason=f"no_{needs.replace(' ', '_')}",
            cause="answer",
        )
    return actions, observed


# -- calls against those expected ------------------------------------------------------------------


class _CallMatchGrader(BaseGrader):
    """Tool calls held against those expected."""

    match_arguments: bool = True
    """Whether arguments have to fit as well as names."""

    def _read_expected(self, given: Any) -> list[ExpectedCall]:
        wanted = read_wanted(given)
        if isinstance(wanted, str):
            raise Unscored(
                f"{self.name} cannot read the reference tool calls: {wanted}", reason="no_reference"
            )
        return wanted

    def _fit_table(self, made: list[MadeCall], wanted: list[ExpectedCall]) -> list[list[bool]]:
        """By call made and call expected, whether it fits."""
        return [
            [
                call.name == want.name != ""
                and (not self.match_arguments or fits(call, want, True, {}))
                for want in wanted[:MOST_CALLS]
            ]
            for call in made[:MOST_CALLS]
        ]


class ToolCallPrecisionRecallMatchGrader(_CallMatchGrader):
    """How many of the expected tool calls were made, each counting once, in any order.

    Fields: `tool_calls`, `reference_tool_calls` (as `tool_call_match` reads them). Range [0, 1],
    higher is better. F1 by default: recall alone is earned by calling everything. An empty
    reference says that no call is right.
    """

    metric: Metric = "f1"

    def _grade(self, tool_calls: Any, reference_tool_calls: Any) -> Score[float]:
        made, wanted = calls_of(tool_calls, self.name), self._read_expected(reference_tool_calls)
        matched = in_any_order(self._fit_table(made, wanted))
        return match_score(matched, len(made), len(wanted), metric=self.metric)


class ToolCallStepSequenceMatchGrader(_CallMatchGrader):
    """How well the steps of a trajectory follow the expected ones in order.

    Fields: `messages`; `reference_tool_calls`, a list of steps, each a call or a list of calls made
    side by side. Steps are aligned in order so that the most fit; inside a step the order of calls
    does not matter. The score is `metric` of the calls in aligned steps. Range [0, 1], higher is
    better.
    """

    metric: Metric = "f1"

    def _grade(self, messages: Any, reference_tool_calls: Any) -> Score[float]:
        made = [
            calls_of(message["tool_calls"], self.name)
            for message in messages_of(messages, self.name)
            if message.get("tool_calls")
        ]
        steps = listed(reference_tool_calls)
        wanted = [self._read_expected(listed(step)) for step in steps]
        matched = in_order([[in_any_order(self._fit_table(m, w)) for w in wanted] for m in made])
        sizes = sum(map(len, made)), sum(map(len, wanted))
        scored = match_score(matched, *sizes, "in order", self.metric)
        return replace(scored, extra={**scored.extra, "steps": [len(made), len(wanted)]})


class ToolCallSequenceMatchGrader(_CallMatchGrader):
    """Whether the tool calls come in the expected order: the longest common run of both, by F1.

    Fields: `tool_calls`, `reference_tool_calls`. Range [0, 1], higher is better; calls in between
    cost precision.
    """

    def _grade(self, tool_calls: Any, reference_tool_calls: Any) -> Score[float]:
        made, wanted = calls_of(tool_calls, self.name), self._read_expected(reference_tool_calls)
        matched = in_order(self._fit_table(made, wanted))
        scored = match_score(matched, len(made), len(wanted), "in order")
        return replace(scored, extra={"matched": matched})


# -- loops and steps that lead nowhere -------------------------------------------------------------

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

    def _grade(self, messages: Any) -> Score[float]:
        actions, _ = read_trajectory(messages, self.name)
        signatures = [action.call.signature for action in actions]
        if self.similarity_threshold == 1.0:
            same = sum(math.comb(count, 2) for count in Counter(signatures).values())
        else:
            pairs = combinations(signatures, 2)
            same = sum(_alike(*pair) >= self.similarity_threshold for pair in pairs)
        possible = math.comb(len(signatures), 2)
        reason = f"{same} of {possible} pairs of {len(signatures)} calls are the same call."
        return Score(1 - same / possible if possible else 1.0, reason)


def information_gain(observations: Sequence[str], threshold: float) -> float:
    """Mean over observations of what is new in each: 1 minus its greatest likeness to an earlier
    one, less by exp(-2 x) for a likeness x above `threshold`; the first one is new. 0 without any.
    """
    seen: list[set[str]] = []
    gains = []
    for own in map(set, map(words, observations)):
        shares = (1.0 if own == other else jaccard(own, other) for other in seen)
        overlap = max(shares, default=0.0)
        gains.append((1 - overlap) * math.exp(-2 * max(0.0, overlap - threshold)))
        seen.append(own)
    return fmean(gains) if gains else 0.0


class ObservationInformationGainGrader(BaseGrader):
    """How much new each observation brings, see `information_gain`.

    Fields: `messages`. Range [0, 1], higher is better; unscored without observations.
    """

    similarity_threshold: float = Field(default=0.5, ge=0, le=1)

    def _grade(self, messages: Any) -> Score[float]:
        _, observations = read_trajectory(messages, self.name, "observations")
        score = information_gain(observations, self.similarity_threshold)
        return Score(score, f"{len(observations)} observations.")


class ToolUsageEfficiencyGrader(BaseGrader):
    """0.4 of the information gained, 0.4 of the share of calls that are not made before, 0.2 of the
    variety of tools.

    Fields: `messages`. Variety is min(1, different tools / calls + 0.3). Range [0, 1]; unscored
    without calls.
    """

    information_gain_threshold: float = Field(default=0.3, ge=0, le=1)

    def _grade(self, messages: Any) -> Score[float]:
        actions, observations = read_trajectory(messages, self.name, "tool calls")
        n = len(actions)
        gain = information_gain(observations, self.information_gain_threshold)
        new = len({action.call.signature for action in actions}) / n
        variety = min(1.0, len({action.call.name for action in actions}) / n + 0.3)
        return Score(
            0.4 * gain + 0.4 * new + 0.2 * variety,
            f"{n} calls.",
            extra={"information_gain": gain, "new_calls": new, "variety": variety},
        )


class TrajectoryStepEfficiencyGrader(BaseGrader):
    """The share of steps that led somewhere; with `reference_step_count` 0.6 of that and 0.4 of
    min(1, expected / made).

    Fields: `messages`, optional `reference_step_count`. A step leads nowhere when the same call was
    made before and brought the same again, or brought nothing. Range [0, 1], higher is better;
    unscored without calls.
    """

    redundancy_threshold: float = Field(default=0.8, gt=0, le=1)
    """From this likeness on two observations are the same."""

    def _grade(self, messages: Any, reference_step_count: int | None = None) -> Score[float]:
        steps, _ = read_trajectory(messages, self.name, "tool calls")
        before, redundant = defaultdict[str, list[str]](list), 0
        for step in steps:
            earlier, own = before[step.call.signature], step.observation or ""
            alike = any(_alike(own, each) >= self.redundancy_threshold for each in earlier)
            redundant += alike or bool(earlier and not own)
            if own not in earlier:
                earlier.append(own)
        n, score = len(steps), 1 - redundant / len(steps)
        if reference_step_count is not None:
            expected = int(reference_step_count)
            if expected < 1:
                raise Unscored(
                    f"{self.name}: reference_step_count is {expected}; give 1 or more.",
                    reason="no_reference",
                )
            score = 0.6 * score + 0.4 * min(1.0, expected / n)
        return Score(
            score,
            f"{redundant} of {n} steps led nowhere.",
            extra={"steps": n, "redundant": redundant},
        )


# -- trajectories step by step ---------------------------------------------------------------------


@cache
def step_reply() -> type[BasePromptTemplate]:
    """A number for each part of a step's worth."""
    parts: dict[str, Any] = {
        name: (
            Annotated[int, Described(zh=told["zh"])],
            Field(ge=1, le=5, description=told["en"]),
        )
        for name, told in wording()["step"].items()
    }
    return create_model("StepReply", __base__=BasePromptTemplate, __module__=__name__, **parts)


class TrajectoryComprehensiveGrader(RubricGrader):
    """Every step of a trajectory for contribution, relevance, accuracy and efficiency; the mean of
    all, 0 to 1.

    Fields: `messages`, optional `query`. One call per tool call, each from 1 to 5 and mapped to [0,
    1]. Metadata: `steps`, and `is_resolved`, whether the score reaches the threshold. Unscored
    without tool calls; one step that cannot be judged leaves the trajectory without a score.
    """

    unheard = frozenset({"prompt", "whole", "own_form"})
    rubric = "trajectory_step"
    folder = Path(__file__).parent / "parts"
    name: str = "trajectory_comprehensive"
    score_range: Bounds = (0.0, 1.0)
    threshold: float | None = 0.8
    inputs = BaseGrader.inputs

    @property
    def reply(self) -> type[BasePromptTemplate]:
        """Four numbers."""
        return step_reply()

    async def _grade(self, messages: Any, query: str = "") -> Score[float]:
        turns = messages_of(messages, self.name)
        actions, _ = read_trajectory(messages, self.name, "tool calls")
        asked = query or next((shown(m.get("content")) for m in turns if m["role"] == "user"), "")
        lines = [
            {"call": action.call.signature, "result": action.observation or ""}
            for action in actions
        ]
        steps = [
            await self._ask({"query": asked, "history": lines[:n], "step": step}, self._read_step)
            for n, step in enumerate(lines)
        ]
        score = fmean(step.value or 0.0 for step in steps)
        metadata = {
            "steps": [{**step.extra, "reason": step.reason} for step in steps],
            "is_resolved": self.threshold is not None and score >= self.threshold,
        }
        return Score(score, steps[-1].reason, extra=metadata, usage=usage_sum(steps))

    def _read_step(self, verdict: Any, reply: ChatResponse) -> Score[float]:
        scores = {name: getattr(verdict, name) for name in wording()["step"]}
        return Score((fmean(scores.values()) - 1) / 4, extra={"scores": scores})
