"""Rewards that are called by named fields: which fields they take, the sample that these make, and
the one score of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rm_gallery.core.data.conversation import chat_messages
from rm_gallery.core.data.load.padding import plain
from rm_gallery.core.data.schema import DataOutput, DataSample, Step, is_absent
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import DataError

OPTIONAL = "query messages context reference_response steps label metadata".split()
"""What a reward may be given beside the response."""
_READ = frozenset(("id", "response", "responses", *OPTIONAL))


def inputs_of(reward: AnyReward) -> dict[str, bool]:
    """The fields that a reward takes, and whether each is required: `response` (or `responses`, a
    list, for rewards that compare), and where they are given `query`, `messages` (the conversation,
    instead of the query), `context`, `reference_response`, `steps` (a list of texts), `label` (a
    dict) and `metadata`.

    To a rule every other field is a part of the label and of the metadata, so that it finds its
    tests, schema or pattern there. A judge is shown nothing but what is named here.
    """
    others = OPTIONAL if reward.judged else [*OPTIONAL, "*"]
    needed = "responses" if reward.compares else "response"
    return {needed: True, **dict.fromkeys(others, False)}


def is_row(reward: Any, given: Any) -> bool:
    """Whether what a reward is given are named fields, and no sample or dict of one's fields."""
    own = hasattr(reward, "_grade")  # as graders have
    if not isinstance(given, Mapping):
        return own and not isinstance(given, DataSample)
    outputs, inputs = given.get("output"), reward.inputs
    if isinstance(outputs, list) and all(isinstance(one, Mapping) for one in outputs):
        return own and not inputs.keys().isdisjoint(("output", "*"))
    return own or (
        given.keys().isdisjoint(("input", "output"))
        and not given.keys().isdisjoint(inputs.keys() - {"metadata"})
    )


def sample_of_fields(fields: Mapping[str, Any], compares: bool) -> DataSample:
    """The sample that a reward sees of named fields: of `responses` where it compares, else of
    `response`, whichever columns there are beside.
    """
    if fields.get("messages"):
        messages = chat_messages(fields["messages"])
    else:
        messages = [ChatMessage(content=str(fields.get("query") or ""))]
    if fields.get("context"):
        last = messages[-1]
        messages[-1] = last.model_copy(
            update={"additional_kwargs": {**last.additional_kwargs, "context": fields["context"]}}
        )
    others = {
        name: value for name, value in fields.items() if name not in _READ and value is not None
    }
    given_label, label = fields.get("label"), dict(others)
    if fields.get("reference_response") is not None:  # whatever columns there are beside
        label["reference"] = fields["reference_response"]
    # a table's column `label` of 0 and 1 holds verdicts of people, and is no part of an answer
    label |= given_label if isinstance(given_label, Mapping) else {}
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):  # a column like any other
        others["metadata"], metadata = metadata, None
    steps = [Step(role="assistant", content=str(text)) for text in _steps_of(fields.get("steps"))]
    responses = fields["responses"] if compares else [fields["response"]]
    return DataSample(
        unique_id=str(fields.get("id") or ""),
        input=messages,
        output=[
            DataOutput(
                answer=Step(role="assistant", content=_text(text), label=dict(label) or None),
                steps=steps or None,
            )
            for text in responses
        ],
        metadata={**others, **(metadata or {})} or None,
    )


def _text(given: Any) -> Any:
    """A response as text, or as the parts of a message; DataError for what is neither: of Python's
    repr of a conversation a number would be made all the same.
    """
    given = plain(given)
    parts = isinstance(given, list) and all(isinstance(p, Mapping) and "type" in p for p in given)
    if isinstance(given, Mapping | list | tuple | bytes) and not parts:
        raise DataError(
            f"response: a text is needed, found {type(given).__name__} {given!r:.60}; a conversation "
            f"is given as messages=, the answer as response=."
        )
    return given if parts else str(given)


def _steps_of(given: Any) -> list[Any]:
    """The steps' texts; DataError for what is no list of them: the letters of a text are no steps."""
    steps = plain([] if given is None else given)
    if not isinstance(steps, list) or any(map(is_absent, steps)):
        raise DataError(f"steps: expected a list of texts, found {steps!r:.80}.")
    return steps


def as_one(reward: AnyReward, said: Sequence[Score[Any]]) -> Score[Any]:
    """What a reward said of each output, as one score: of those that it compares a number for each,
    higher for a better one.
    """
    if missing := [score for score in said if score.value is None]:
        return missing[0].without_value()
    first = said[0].steps[-1] if said[0].steps else said[0]
    if not reward.compares:
        return Score(said[0].value, first.reasons)
    scores: list[Any] = [score.value for score in said]
    turn = 1 if reward.higher_is_better else -1
    better = tuple(turn * score for score in scores)
    return Score(better, first.reasons, extra={"scores": scores})
