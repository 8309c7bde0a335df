"""RewardBench rows become samples of two labelled outputs."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.utils.errors import DataError
from tests.data.loading import Row, answers, convert, spoken

ROW: Row = {
    "prompt": "What is 2 + 2?",
    "chosen": "4",
    "chosen_model": "human",
    "rejected": "5",
    "rejected_model": "unknown",
    "subset": "math-prm",
    "id": 17,
}
LABELS = ["chosen", "rejected"]


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_published_layout() -> None:
    sample = convert("rewardbench", ROW)
    assert (sample.unique_id, sample.source, sample.task_category) == ("17", "rewardbench", "reasoning")
    assert spoken(sample) == [("user", "What is 2 + 2?")]
    assert answers(sample) == [("4", "chosen"), ("5", "rejected")]
    assert [output.steps for output in sample.output] == [None, None]
    assert sample.metadata == {"subset": "math-prm", "chosen_model": "human", "rejected_model": "unknown"}


@pytest.mark.parametrize(
    ("subset", "section"),
    [
        ("alpacaeval-easy", "chat"),
        ("mt-bench-med", "chat"),
        ("mt-bench-hard", "chat_hard"),
        ("llmbar-adver-GPTInst", "chat_hard"),
        ("refusals-dangerous", "safety"),
        ("xstest-should-respond", "safety"),
        ("donotanswer", "safety"),
        ("math-prm", "reasoning"),
        ("hep-cpp", "reasoning"),
        ("anthropic_helpful", None),
    ],
)
def test_task_category_is_the_section(subset: str, section: str | None) -> None:
    assert convert("rewardbench", {**ROW, "subset": subset}).task_category == section


@pytest.mark.parametrize("absent", ["id", "subset", "chosen_model"])
def test_optional_columns_may_be_absent(absent: str) -> None:
    sample = convert("rewardbench", {key: value for key, value in ROW.items() if key != absent})
    assert answers(sample) == [("4", "chosen"), ("5", "rejected")]
    assert absent not in (sample.metadata or {})


SYSTEM_AND_USER = [turn("system", "be brief"), turn("user", "q")]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (SYSTEM_AND_USER, [("system", "be brief"), ("user", "q")]),
        (turn("user", "q"), [("user", "q")]),
        ([{"content": "q", "role": "Human"}], [("user", "q")]),
        ("[1, 2]", [("user", "[1, 2]")]),
        ("[not json", [("user", "[not json")]),
    ],
)
def test_prompts_may_be_messages(prompt: Any, expected: list[tuple[str, str]]) -> None:
    assert spoken(convert("rewardbench", {**ROW, "prompt": prompt})) == expected


def test_messages_stand_as_json_in_files_that_know_only_text() -> None:
    prompt = '[{"role": "user", "content": "from a csv cell"}]'
    assert spoken(convert("rewardbench", {**ROW, "prompt": prompt}, untyped=True)) == [("user", "from a csv cell")]
    assert spoken(convert("rewardbench", {**ROW, "prompt": prompt})) == [("user", prompt)]


U, A, B, C = turn("user", "u2"), turn("assistant", "a1"), turn("assistant", "b1"), turn("assistant", "c1")


@pytest.mark.parametrize(
    ("chosen", "rejected", "added", "finals", "steps"),
    [
        (["one text"], "5", [], ["one text", "5"], [[], []]),
        ([A], [B], [], ["a1", "b1"], [[], []]),
        ([A, U, B], [A, U, C], ["a1", "u2"], ["b1", "c1"], [[], []]),
        ([A, U, B], [C, U, B], [], ["b1", "b1"], [["a1", "u2"], ["c1", "u2"]]),
        ([A, U, B], [A], [], ["b1", "a1"], [["a1", "u2"], []]),
        ([turn("user", "What is 2 + 2?"), A], [turn("user", "What is 2 + 2?"), B], [], ["a1", "b1"], [[], []]),
    ],
    ids=["list of one text", "one turn", "shared turns", "different turns", "different length", "prompt repeated"],
)
def test_answers_of_several_turns(
    chosen: Any, rejected: Any, added: list[str], finals: list[str], steps: list[list[str]]
) -> None:
    sample = convert("rewardbench", {**ROW, "chosen": chosen, "rejected": rejected})
    assert [words for _, words in spoken(sample)] == ["What is 2 + 2?", *added]
    assert answers(sample) == list(zip(finals, LABELS, strict=True))
    assert [[step.text for step in output.steps or []] for output in sample.output] == steps


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"chosen": [A, U]}, "test.jsonl, line 7, column 'chosen': the last turn must be the assistant's, found user"),
        ({"chosen": []}, "column 'chosen': expected text or a list of turns, found an empty list"),
        ({"rejected": None}, "column 'rejected': expected text or a list of turns, found null"),
        ({"rejected": ["a", "b"]}, r"column 'rejected\[1\]': expected a message"),
    ],
)
def test_answers_that_do_not_fit(change: Row, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        convert("rewardbench", {**ROW, **change})
