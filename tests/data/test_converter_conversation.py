"""The formats `chat_message` and `*`."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.data.export import to_record
from rm_gallery.core.utils.errors import DataError
from tests.data.loading import Row, answers, convert, spoken


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CHAT = [turn("system", "s"), turn("user", "u"), turn("assistant", "a")]


@pytest.mark.parametrize(
    ("messages", "given", "answer"),
    [
        (CHAT, [("system", "s"), ("user", "u")], [("a", None)]),
        (CHAT[:2], [("system", "s"), ("user", "u")], []),
        ([turn("assistant", "a")], [], [("a", None)]),
        (
            [turn("user", "u"), turn("assistant", None, tool_calls=[CALL]), turn("tool", "3", tool_call_id="c1"), turn("assistant", "a")],
            [("user", "u"), ("assistant", ""), ("tool", "3")],
            [("a", None)],
        ),
        ([turn("user", [{"type": "text", "text": "part"}]), turn("assistant", "a")], [("user", "part")], [("a", None)]),
        ('[{"role": "user", "content": "cell"}]', [("user", "cell")], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", ["chat_message", "*"])
def test_last_assistant_turn_is_the_answer(
    source: str, messages: Any, given: list[tuple[str, str]], answer: list[tuple[str, None]]
) -> None:
    sample = convert(source, {"messages": messages, "id": "x", "topic": "t"})
    assert (spoken(sample), answers(sample)) == (given, answer)
    assert (sample.unique_id, sample.metadata) == ("x", {"topic": "t"})


def test_tool_calls_and_reasoning_are_kept() -> None:
    messages = [turn("user", "u"), turn("assistant", "a", tool_calls=[CALL], reasoning_content="hmm", vendor_key=1)]
    answer = convert("chat_message", {"messages": messages}).output[0].answer
    assert answer.tool_calls is not None
    assert (answer.tool_calls[0].function.name, answer.reasoning_content) == ("add", "hmm")
    assert answer.additional_kwargs == {"vendor_key": 1}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "no messages"}, "column 'messages' is missing"),
        ({"messages": []}, "column 'messages': expected text or a list of messages"),
        ({"messages": [turn("narrator", "x")]}, "unknown role text 'narrator'; known: assistant"),
    ],
)
def test_chats_that_do_not_fit(row: Row, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        convert("chat_message", row)


@pytest.mark.parametrize("prompt", ["prompt", "question", "query", "instruction", "input", "text"])
@pytest.mark.parametrize("response", ["response", "answer", "output", "completion"])
def test_usual_names(prompt: str, response: str) -> None:
    sample = convert("*", {prompt: "q", response: "a", "ground_truth": "g"})
    assert (spoken(sample), answers(sample), sample.reference()) == ([("user", "q")], [("a", None)], "g")


@pytest.mark.parametrize(
    ("row", "given", "expected", "metadata"),
    [
        ({"prompt": "q"}, [("user", "q")], [], None),
        ({"prompt": "q", "response": None}, [("user", "q")], [], {"response": None}),
        ({"prompt": "q", "messages": None, "response": "a"}, [("user", "q")], [("a", None)], {"messages": None}),
        ({"prompt": None, "question": "q", "response": "a"}, [("user", "q")], [("a", None)], {"prompt": None}),
        ({"prompt": "q", "responses": ["a", "b"]}, [("user", "q")], [("a", None), ("b", None)], None),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, [("user", "q")], [("a", "chosen"), ("b", "rejected")], None),
        (
            {"prompt": "q", "chosen": ["a", "b"], "rejected": ["c"]},
            [("user", "q")],
            [("a", "chosen"), ("b", "chosen"), ("c", "rejected")],
            None,
        ),
        ({"instruction": "do", "input": "this", "output": "a"}, [("user", "do\n\nthis")], [("a", None)], None),
        ({"instruction": "do", "input": "", "output": "a"}, [("user", "do")], [("a", None)], None),
        ({"system": "s", "prompt": "q", "response": "a"}, [("system", "s"), ("user", "q")], [("a", None)], None),
        ({"prompt": [turn("user", "q")], "response": turn("assistant", "a")}, [("user", "q")], [("a", None)], None),
        ({"question": "q", "response": "a", "answer": "4"}, [("user", "q")], [("a", None)], {"answer": "4"}),
        ({"messages": [turn("user", "q")], "response": "a"}, [("user", "q")], [("a", None)], None),
        (
            {"prompt": "q", "metadata": {"subset": "x", "n": 1}, "n": 2},
            [("user", "q")],
            [],
            {"subset": "x", "n": 2},
        ),
    ],
)
def test_layouts(row: Row, given: list[tuple[str, str]], expected: list[tuple[str, str | None]], metadata: Any) -> None:
    sample = convert("*", row)
    assert (spoken(sample), answers(sample), sample.metadata) == (given, expected, metadata)


def test_own_fields_are_taken_over() -> None:
    sample = convert("*", {"uid": 4, "prompt": "q", "task_category": "math", "source": "mine", "subset": "s"})
    assert (sample.unique_id, sample.task_category, sample.source) == ("4", "math", "mine")
    assert sample.metadata == {"subset": "s"}


def test_samples_of_this_library_are_read_as_they_were() -> None:
    sample = convert("*", {"id": "x", "prompt": "q", "chosen": "a", "rejected": "b", "reference": "r"})
    assert convert("*", to_record(sample)) == sample


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"body": "x"}, "line 7: column 'messages' or 'prompt' or .* is missing; the row has: body"),
        ({"prompt": None, "response": "a"}, "column 'prompt': expected text or a list of messages, found null"),
        ({"prompt": "q", "response": 42}, "column 'response': expected text or a message, found int 42"),
        ({"prompt": "q", "responses": ["a", None]}, r"column 'responses\[2\]': expected text, found null"),
        ({"prompt": "q", "chosen": "a"}, "column 'rejected' is missing"),
        ({"prompt": "q", "chosen": [], "rejected": "b"}, "column 'chosen': expected at least one text"),
        ({"prompt": "q", "response": CHAT}, "expected one assistant message; whole conversations go into 'messages'"),
        ({"prompt": "q", "system": 3}, "column 'system': expected text, found int 3"),
    ],
)
def test_rows_that_do_not_fit(row: Row, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        convert("*", row)
