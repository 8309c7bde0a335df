"""Conversations as samples, and back as they were: where the prompt ends, which turn is the answer,
what is no conversation.
"""

from __future__ import annotations

from typing import Any

from rm_gallery import DataError, DataSample
from rm_gallery.core.data.conversation import (
    as_messages,
    messages_of,
    sample_of_completion,
    sample_of_messages,
    split_turns,
)
from tests.golden.golden import Line, runner


def answer(_: str, given: Line) -> Line:
    """How a conversation is divided, or the error that names the message that does not fit."""
    options: dict[str, Any] = {
        k: given[k] for k in ("ground_truth", "tools", "row", "unique_id") if k in given
    }
    try:
        if "messages" in given:
            prompt = given.get("original_messages")
            sample = sample_of_messages(given["messages"], original_messages=prompt, **options)
            divided = [len(part) for part in split_turns(given["messages"], prompt)]
            texts = [message.text for message in as_messages(given["messages"])]
        else:
            sample, texts = (
                sample_of_completion(given["prompt"], given["completion"], **options),
                [],
            )
            divided = None
    except DataError as error:
        return {"error": str(error)}
    (output,) = sample.output
    back = messages_of(sample, output)
    again = DataSample.model_validate_json(sample.model_dump_json())
    assert messages_of(again, again.output[0]) == back and again.sample_key == sample.sample_key
    return {
        "divided": divided,
        "input": [f"{turn.role.value}: {turn.text}" for turn in sample.input],
        "steps": [f"{step.role.value}: {step.text}" for step in output.steps or ()],
        "answer": output.answer.text,
        "metadata": sample.metadata,
        "reference": sample.reference(),
        "texts": texts,
        "back": None if back == given.get("messages") else back,
    }


FOUND = ("divided", "input", "steps", "answer", "metadata", "reference", "texts", "back", "error")
test_conversations_become_samples_and_come_back = runner("conversations", answer, *FOUND)
