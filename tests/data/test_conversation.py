"""A conversation of any make becomes a sample and comes back as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from rm_gallery.core.data.conversation import (
    Message,
    as_messages,
    chat_messages,
    message_dicts,
    messages_of,
    sample_of_completion,
    sample_of_messages,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import DataError
from rm_gallery.envs.reward_helpers import extract_completion_text

SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "天气怎么样?\r\n"}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "Köln"}'}}
CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
FOUND = {"role": "tool", "content": "rain", "tool_call_id": "1"}
SAYS = {"role": "assistant", "content": "It rains."}
PARTS = {
    "role": "assistant",
    "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}],
}
AGAIN = {"role": "user", "content": "Sure?"}
HUMAN = {"role": "human", "content": "q", "weight": 3}
THOUGHT = {"role": "assistant", "content": "a", "reasoning_content": "hm", "name": "bot"}
OLD_CALL = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}


def shape(sample: DataSample) -> tuple[int, int, str]:
    """Turns of input, number of steps, text of the answer."""
    (output,) = sample.output
    return len(sample.input), len(output.steps or ()), output.answer.text


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([], (0, 0, "")),
        ([ASK], (1, 0, "")),
        ([ASK, SAYS], (1, 0, "It rains.")),
        ([SAYS], (0, 0, "It rains.")),
        ([SYSTEM, ASK, CALLS, FOUND, SAYS], (2, 2, "It rains.")),
        ([SYSTEM, ASK, CALLS, FOUND], (2, 0, "")),  # cut off after the tool spoke
        ([ASK, SAYS, AGAIN, SAYS], (3, 0, "It rains.")),
        ([ASK, SAYS, AGAIN], (1, 0, "It rains.")),
        ([ASK, PARTS], (1, 0, "a")),
        ([HUMAN, {"role": "gpt", "content": "a"}], (1, 0, "a")),
        ([{"role": "User", "content": "q"}, {"role": "Assistant", "content": "a"}], (1, 0, "a")),
        ([ASK, THOUGHT], (1, 0, "a")),
        ([ASK, OLD_CALL], (1, 0, "")),
        ([ASK, {"role": "assistant", "content": ""}], (1, 0, "")),
    ],
)
def test_a_conversation_is_split_and_comes_back(turns: list[Any], expected: tuple[int, int, str]) -> None:
    sample = sample_of_messages(turns)
    assert shape(sample) == expected
    assert messages_of(sample, sample.output[0]) == turns
    again = DataSample.model_validate_json(sample.model_dump_json())
    assert messages_of(again, again.output[0]) == turns
    assert again.sample_key == sample.sample_key


@pytest.mark.parametrize(
    ("prompt", "expected", "kept"),
    [
        ([ASK], (1, 2, "It rains."), False),  # what the environment said is a step
        ([ASK, SAYS, AGAIN], (3, 0, "It rains."), False),
        ([SYSTEM], (3, 0, "It rains."), True),  # not how the conversation begins
        ([ASK, SAYS, AGAIN, SAYS], (3, 0, "It rains."), True),  # the whole of it
        ([], (0, 3, "It rains."), False),
    ],
)
def test_the_prompt_says_where_the_completion_begins(prompt: list[Any], expected: Any, kept: bool) -> None:
    sample = sample_of_messages([ASK, SAYS, AGAIN, SAYS], original_messages=prompt)
    assert shape(sample) == expected
    assert ("original_messages" in (sample.metadata or {})) is kept
    assert messages_of(sample, sample.output[0]) == [ASK, SAYS, AGAIN, SAYS]


@pytest.mark.parametrize("said", [[], [FOUND], [{**SAYS, "content": None}]])
def test_a_policy_that_says_nothing_is_not_judged_by_a_turn_of_its_prompt(said: list[Any]) -> None:
    prompt = [ASK, SAYS, AGAIN]
    sample = sample_of_messages([*prompt, *said], original_messages=prompt)
    assert shape(sample) == (3, 0, "")
    assert messages_of(sample, sample.output[0]) == [*prompt, *said]


def test_keys_of_a_message_cannot_take_an_answer_away() -> None:
    sample = sample_of_completion("q", {**SAYS, "(absent)": True, "(after)": 7})
    assert messages_of(sample, sample.output[0])[1] == SAYS


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "output_text", "text": "a"}, "a"),
        ({"type": "refusal", "refusal": "No."}, "No."),
        ({"type": "reasoning", "text": "hm"}, ""),
        ({"type": "thinking", "thinking": "hm"}, ""),
    ],
)
def test_parts_that_say_something_are_text_and_thoughts_are_not(part: dict[str, str], text: str) -> None:
    message = {"role": "assistant", "content": [part]}
    assert sample_of_completion("q", message).output[0].answer.text == text
    assert as_messages([message])[0].text == text


def test_columns_reference_and_tools_are_found_by_rewards() -> None:
    row = {"ground_truth": "no", "reference": "no", "tests": ["t"]}
    sample = sample_of_messages([ASK, SAYS], ground_truth=["yes"], tools=[{"a": 1}], row=row, unique_id="7")
    assert sample.reference() == ["yes"]
    assert sample.metadata == {"ground_truth": "no", "reference": ["yes"], "tests": ["t"], "tools": [{"a": 1}]}
    assert sample.sample_id == "7"
    assert row["reference"] == "no"
    assert sample_of_messages([ASK, SAYS], row={"ground_truth": 0}).reference() == 0


@pytest.mark.parametrize(
    ("prompt", "completion", "expected", "turns"),
    [
        ("q", "a", (1, 0, "a"), [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]),
        (None, "a", (0, 0, "a"), [{"role": "assistant", "content": "a"}]),
        ("q", None, (1, 0, ""), [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]),
        ([ASK], SAYS, (1, 0, "It rains."), [ASK, SAYS]),
        ([ASK], [CALLS, FOUND, SAYS], (1, 2, "It rains."), [ASK, CALLS, FOUND, SAYS]),
        ([ASK, SAYS], [AGAIN, SAYS], (2, 1, "It rains."), [ASK, SAYS, AGAIN, SAYS]),
        ([ASK], [], (1, 0, ""), [ASK]),
    ],
)
def test_a_row_of_a_trainer(prompt: Any, completion: Any, expected: Any, turns: list[Any]) -> None:
    sample = sample_of_completion(prompt, completion)
    assert shape(sample) == expected
    assert messages_of(sample, sample.output[0]) == turns


@dataclass
class Turn:
    role: str
    content: str


class OpenAIStyle(BaseModel):
    role: str
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "a"},
        Message(role="assistant", content="a"),
        ChatMessage(role="assistant", content="a"),
        OpenAIStyle(role="assistant", content="a"),
        Turn("assistant", "a"),
    ],
)
def test_messages_of_any_make(message: Any) -> None:
    (found,) = as_messages([message])
    assert (found.role, found.content, found.text, found["role"], found.get("nothing")) == (
        "assistant",
        "a",
        "a",
        "assistant",
        None,
    )
    (chat,) = chat_messages((message,))
    assert (chat.role.value, chat.text) == ("assistant", "a")


def test_tool_calls_read_as_objects_and_as_mappings() -> None:
    (message,) = as_messages([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": None}]}])
    assert message.tool_calls is not None
    assert (message.content, message.text, message.tool_calls[0].function.name) == (None, "", "f")
    assert message["tool_calls"][0]["function"]["arguments"] == ""


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("text", "messages: expected a list of messages with role and content, found text 'text'"),
        (None, "messages: expected a list of messages"),
        (7, "found int 7"),
        ({"role": "user", "content": "x"}, "messages: expected a list of messages"),
        ([ASK, "text"], "messages[1]: expected a message with role and content"),
        ([{"content": "x"}], "messages[0]: expected a message with role and content, found an object with content"),
        ([{"role": None, "content": "x"}], "messages[0]: expected a message"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role: unknown role text 'wizard'"),
        ([{"role": "user", "content": 3}], "messages[0].content: expected text, null or a list of content parts"),
        ([{"role": "user", "content": [3]}], "messages[0].content[0]: expected a content part"),
        ([{"role": "assistant", "tool_calls": "f"}], "messages[0].tool_calls: expected a list of tool calls"),
        ([{"role": "assistant", "tool_calls": ["f"]}], "messages[0].tool_calls[0]: expected a tool call"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}], "messages[0].tool_calls.0.function.name"),
    ],
)
def test_what_is_no_conversation_is_named(messages: Any, told: str) -> None:
    with pytest.raises(DataError) as raised:
        sample_of_messages(messages)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}], "a\nb"),
        ([{"type": "reasoning", "text": "thought"}, {"type": "text", "text": "said"}], "said"),
        ([{"text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": None}], "a"),
    ],
)
def test_the_text_of_a_message_is_the_same_wherever_it_is_read(parts: Any, text: str) -> None:
    said = {"role": "assistant", "content": parts}
    sample = sample_of_messages([{"role": "user", "content": "q"}, said])
    assert sample.output[0].answer.text == as_messages([said])[0].text == extract_completion_text([said]) == text


class _Part(BaseModel):
    type: str = "text"
    text: str


class _Said(BaseModel):
    role: str = "assistant"
    content: str | list[_Part] | None = None
    name: str | None = None


def test_a_role_may_be_the_default_of_its_class() -> None:
    said = [
        _Said(role="user", content="hi"),
        _Said(content="four"),
        _Said(content=[_Part(type="reasoning", text="hm"), _Part(text="4")]),
    ]
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "4"}]
    found = message_dicts(said)
    assert [(turn["role"], turn["content"]) for turn in found] == [
        ("user", "hi"),
        ("assistant", "four"),
        ("assistant", parts),
    ]
    assert all("name" not in turn for turn in found)
