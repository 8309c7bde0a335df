"""Messages of any make are read alike, as objects and as mappings; how they become samples stands
in `tests/golden`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from rm_gallery import ChatMessage, Message
from rm_gallery.core.data.conversation import (
    as_messages,
    chat_messages,
    group_of,
    message_dicts,
    sample_of_messages,
)
from rm_gallery.envs.reward_helpers import extract_completion_text


@dataclass
class Turn:
    role: str
    content: str


class OpenAIStyle(BaseModel):
    role: str
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Part(BaseModel):
    type: str = "text"
    text: str


class Said(BaseModel):
    role: str = "assistant"
    content: str | list[Part] | None = None
    name: str | None = None


@pytest.mark.parametrize("message", [
    {"role": "assistant", "content": "a"}, Message(role="assistant", content="a"),
    ChatMessage(role="assistant", content="a"), OpenAIStyle(role="assistant", content="a"), Turn("assistant", "a"),
    Said(content="a"),
])  # fmt: skip
def test_messages_of_any_make(message: Any) -> None:
    (found,) = as_messages([message])
    assert (found.role, found.content, found.text, found["role"]) == (
        "assistant",
        "a",
        "a",
        "assistant",
    )
    assert (found.get("nothing"), "role" in found, "nothing" in found, bool(found)) == (
        None,
        True,
        False,
        True,
    )
    assert (len(found), set(found.keys()), dict(found)["content"]) == (
        len(list(found)),
        set(found),
        "a",
    )
    assert list(found.values()) == [value for _, value in found.items()]
    (chat,) = chat_messages((message,))
    assert (chat.role.value, chat.text) == ("assistant", "a")
    assert extract_completion_text([message]) == "a"
    made = [found]
    assert as_messages(made) is made


def test_tool_calls_and_keys_of_ones_own_read_as_objects_and_as_mappings() -> None:
    given = {"role": "assistant", "weight": 3, "tool_calls": [{"name": "f", "arguments": None}]}
    (message,) = as_messages([given])
    assert message.tool_calls is not None
    assert (message.content, message.text, message.tool_calls[0].function.name) == (None, "", "f")
    assert (message["tool_calls"][0]["function"]["arguments"], message["weight"]) == ("", 3)
    assert given["tool_calls"] == [{"name": "f", "arguments": None}], (
        "what was given stays as it was"
    )


def test_what_a_client_s_object_leaves_empty_is_no_key() -> None:
    class Call(BaseModel):
        name: str
        arguments: str = "{}"
        index: int | None = None

    (message,) = as_messages([{"role": "assistant", "tool_calls": [Call(name="f")]}])
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], "index" in call["function"], "index" in call) == (
        "f",
        False,
        False,
    )


def test_roles_and_types_of_parts_may_be_defaults_of_their_classes() -> None:
    said = [
        Said(role="user", content="hi"),
        Said(content=[Part(type="reasoning", text="hm"), Part(text="4")]),
    ]
    found = message_dicts(said)
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "4"}]
    assert found == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": parts}]


def test_completions_of_one_prompt_and_reference_are_a_group() -> None:
    def group(asked: str, said: str, reference: Any) -> str:
        turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        return group_of(sample_of_messages(turns, ground_truth=reference))

    assert group("q", "a", 1) == group("q", "b", 1)
    assert len({group("q", "a", 1), group("q", "a", 2), group("r", "a", 1)}) == 3
