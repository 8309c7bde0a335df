"""What a judge is shown of a sample: its messages as texts with marks for what is none, and without
the truth that the judge is to find.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import indent
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Reward, Step
from rm_gallery.core.model.message import (
    TEXT_PARTS,
    THOUGHT_PARTS,
    ChatMessage,
    MessageRole,
    part_text,
    picture_of,
)
from rm_gallery.core.reward.founding import no_reward
from rm_gallery.core.utils.models import build, copy_with

TRUTH_LABELS = frozenset(
    "preference response_type is_preferred preference_score type process_type correctness correct "
    "is_correct label rating human_score human_rating".split()
)
"""What a label may call the truth that a judge is to find; a reference is no such label, it is
shown on request.
"""


class Parts(NamedTuple):
    """The parts of messages that are no texts."""

    pictures: list[str]
    """URLs of images in the order of their marks: `[image 1]` in the texts is the first."""
    unseen: list[str]
    """Kinds of parts that no judge is shown: audio, files, images without a URL."""


class View(NamedTuple):
    """What a judge sees of one job, as the reward's kind shows it."""

    query: str
    """What was asked, or the conversation so far."""
    context: str
    answers: list[str]
    """Whole answers, in the order of the job; none where a step is judged."""
    previous: str = ""
    """The steps before the one to judge."""
    step: str | None = None
    parts: Parts | None = None
    """What its messages hold beside texts."""


def shown_text(message: ChatMessage, parts: Parts | None = None) -> str:
    """A message's text, a mark for each part that is none, such as `[image 1]` or `[input_audio]`,
    and the tools it calls.
    """
    text = message.text
    if not isinstance(message.content, str):
        shown = (
            _mark(part, parts) for part in message.content if part.get("type") not in THOUGHT_PARTS
        )
        text = "\n".join(filter(None, shown))
    calls = message.additional_kwargs.get("function_call")
    if message.tool_calls:
        calls = [call.function.model_dump() for call in message.tool_calls]
    elif not calls:
        return text
    return "\n".join(
        filter(None, [text, json.dumps(calls, ensure_ascii=False, default=str) if calls else ""])
    )


def _mark(part: dict[str, Any], parts: Parts | None) -> str | None:
    kind = str(part.get("type"))[:40]
    if part.get("type") in TEXT_PARTS:
        return part_text(part)
    if parts is not None and (url := picture_of(part)) is not None:
        parts.pictures.append(url)
        return f"[image {len(parts.pictures)}]"
    if parts is not None:
        parts.unseen.append(kind)
    return f"[{kind}]"


def holds_parts(sample: DataSample) -> bool:
    """Whether a message of the sample, or a step or answer, is made of parts."""
    for message in sample.input:
        if not isinstance(message.content, str):
            return True
    for output in sample.output:
        for step in (*(output.steps or ()), output.answer):
            if not isinstance(step.content, str):
                return True
    return False


def unseen_in(sample: DataSample) -> bool:
    """Whether the sample holds what a text cannot show: images, audio, files."""
    parts = Parts([], [])
    if holds_parts(sample):
        for message in (
            *sample.input,
            *(s for output in sample.output for s in (*(output.steps or ()), output.answer)),
        ):
            shown_text(message, parts)
    return bool(parts.pictures or parts.unseen)


def withheld(output: DataOutput) -> DataOutput:
    """The output without the truth about answer and steps and without earlier rewards: what a
    judge's hooks may see.
    """
    answer, steps = _unlabelled(output.answer), output.steps
    if steps:
        shown = [_unlabelled(step) for step in steps]
        steps = (
            shown if any(new is not old for new, old in zip(shown, steps, strict=True)) else steps
        )
    if answer is output.answer and steps is output.steps:
        return output
    return build(DataOutput, {"answer": answer, "steps": steps})


def _unlabelled(step: Step) -> Step:
    given, reward = step.label, step.reward
    hidden = bool(given) and not TRUTH_LABELS.isdisjoint(given or ())
    if not hidden and not (reward.details or reward.issues or reward.extra_data):
        return step
    label = {k: v for k, v in (given or {}).items() if k not in TRUTH_LABELS} if hidden else given
    return copy_with(step, label=label, reward=build(Reward, no_reward()))


def conversation_text(messages: list[ChatMessage], parts: Parts | None = None) -> str:
    """A conversation for a judge: the bare text of a single user turn, else one labelled paragraph
    per turn.

    In a conversation every line of a turn is indented, so that no text can pass for a turn of its
    own.
    """
    if len(messages) == 1 and messages[0].role.value == "user":
        return shown_text(messages[0], parts)
    return turns_text(messages, parts)


def turns_text(turns: Sequence[ChatMessage], parts: Parts | None = None) -> str:
    """Turns for a judge: each below its speaker, indented, so that no text can pass for a turn."""
    return "\n\n".join(
        f"[{turn.role.value}]\n{indent(shown_text(turn, parts), '    ')}" for turn in turns
    )


def step_title(step: Step, number: int, in_solution: bool) -> str:
    """What a judge is told a step is."""
    return (
        f"step {number}" if in_solution or step.role is MessageRole.ASSISTANT else step.role.value
    )


def view_of(sample: DataSample) -> View:
    """The query and its context, without answers."""
    context = sample.input[-1].additional_kwargs.get("context", "") if sample.input else ""
    parts = Parts([], [])
    query = conversation_text(sample.input, parts)
    return View(query, context if isinstance(context, str) else str(context), [], parts=parts)


def whole_answers(sample: DataSample) -> View:
    """The query, its context, and the answers with the tools they call, in the order of the job."""
    view = view_of(sample)
    return view._replace(answers=[shown_text(o.answer, view.parts) for o in sample.output])
