"""Every helper of `rm_gallery.envs.reward_helpers`, as tables."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.envs.reward_helpers import (
    citation_score,
    clip01,
    count_search_calls,
    extract_answer_block,
    extract_completion_text,
    extract_strict_answer,
    overlap_reward,
    percent_of_text_a_in_text_b,
    search_within_budget,
    tool_call_efficiency,
)


def said(*contents: Any, role: str = "assistant") -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for content in contents]


PARTS = [
    {"type": "text", "text": "看图"},
    {"type": "image_url", "image_url": {"url": "x"}},
    {"type": "reasoning", "text": "hm"},
    {"type": "text", "text": "猫"},
]
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]}
TOOL = {"role": "tool", "content": "found it"}


@pytest.mark.parametrize(
    ("completion", "joined", "last"),
    [
        (" as it is\r\n", " as it is\r\n", "as it is"),
        (None, "", ""),
        ([], "", ""),
        (7, "", ""),
        (said("one", " two "), "one\n two ", "two"),
        (said("one", "  ", None), "one", ""),
        ([*said("one"), *said("and?", role="user")], "one", ""),
        ([*said("hi", role="system"), *said("one")], "one", "one"),
        (said(PARTS), "看图\n猫", "看图\n猫"),
        ([CALL, TOOL, *said("done")], "done", "done"),
        ([ChatMessage(role="assistant", content="object")], "object", "object"),
        ([{"content": "no role"}, "text", None], "", ""),
    ],
)
def test_completion_text(completion: Any, joined: str, last: str) -> None:
    assert extract_completion_text(completion) == extract_completion_text(completion, which="all") == joined
    assert extract_completion_text(completion, which="last") == last


def test_completion_text_refuses_another_which() -> None:
    with pytest.raises(ConfigError, match="'first'"):
        extract_completion_text("x", which="first")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "lenient", "strict"),
    [
        ("a <answer> 4 </answer> b", "4", "4"),
        ("<ANSWER>\n4\n</Answer>", "4", "4"),
        ("<answer>1</answer> no, <answer>2</answer>", "1", "2"),
        (" just text ", "just text", ""),
        ("so <answer>4", "so <answer>4", "4"),
        ("<answer>1<answer>2</answer>", "1<answer>2", "2"),
        ("<think>or <answer>7</answer></think> It is 8.", "7", ""),
        ("<think>or <answer>7</answer></think>\r\n<answer>8", "7", "8"),
        ("<think>or <answer>7</answer> hm", "7", ""),
        ("or <answer>7</answer> hm</think>It is 8.", "7", ""),
        ("<思考>或者<answer>7</answer></思考>八", "7", ""),
        ("[THINK]<answer>7</answer>[/THINK]8", "7", ""),
        ("<answer>the <think> tag</answer>", "the <think> tag", "the <think> tag"),
        ("", "", ""),
        (None, "", ""),
    ],
)
def test_answer_blocks(text: str | None, lenient: str, strict: str) -> None:
    assert (extract_answer_block(text), extract_strict_answer(text)) == (lenient, strict)


@pytest.mark.parametrize(
    ("value", "clipped"),
    [
        (0.5, 0.5),
        (-1, 0.0),
        (7, 1.0),
        ("0.25", 0.25),
        (True, 1.0),
        (None, 0.0),
        ("x", 0.0),
        (math.nan, 0.0),
        (math.inf, 0.0),
    ]
    + [(1e300, 1.0), (10**400, 0.0), ([], 0.0)],
)
def test_clip01(value: Any, clipped: float) -> None:
    assert clip01(value) == clipped


@pytest.mark.parametrize(
    ("completion", "calls"),
    [
        ("<tool_call>a</tool_call><tool_call>b</tool_call>", 2),
        (said("<tool_call>a</tool_call>", "none", None), 1),
        (said("<tool_call>not the model's</tool_call>", role="tool"), 0),
        ([CALL, TOOL, CALL], 2),
        ([{**CALL, "content": "<tool_call>a</tool_call>"}], 1),
        (None, 0),
    ],
)
def test_search_calls(completion: Any, calls: int) -> None:
    assert count_search_calls(completion) == calls
    assert search_within_budget(calls, calls)
    assert not search_within_budget(calls + 1, calls)


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ("abcd", "xxabcdxx", 1.0),
        ("abcd", "ab--cd", 1.0),
        ("abcd", "ab", 0.5),
        ("abcd", "", 0.0),
        ("", "abcd", 0.0),
        ("a" * 300, "a" * 300, 1.0),
        ("巴黎是首都", "法国的巴黎是首都。", 1.0),
        (None, None, 0.0),
    ],
)
def test_share_of_a_text(a: str | None, b: str | None, share: float) -> None:
    assert percent_of_text_a_in_text_b(a, b) == share


CHUNKS = [{"content": "Paris is the capital", "metadata": {"source_id": "s1", "file": "a.md"}}]


@pytest.mark.parametrize(
    ("completion", "keywords", "reward"),
    [
        ([TOOL, *said("Paris is the capital")], {"reference_chunks": CHUNKS}, 0.0),
        (said("well: Paris is the capital", role="tool"), {"reference_chunks": CHUNKS}, 1.0),
        (said("well: Paris is the capital", role="tool"), {"reference_chunks": ["Paris"]}, 1.0),
        (said("Par", role="tool"), {"ground_truth": "Paris", "minimum_overlap": 0.6}, 0.6),
        (said("P", role="tool"), {"ground_truth": "Paris"}, 0.0),
        (said("P", role="tool"), {"ground_truth": "Paris", "minimum_overlap": 0.0}, 0.2),
        ([*said("Paris", role="tool"), *said("<tool_call>" * 4)], {"ground_truth": "Paris"}, 0.0),
        ("in Paris", {"ground_truth": "Paris", "rollout_id": "other keywords are taken"}, 1.0),
        (None, {"ground_truth": "Paris"}, 0.0),
        ("Paris", {}, 0.0),
    ],
)
def test_overlap(completion: Any, keywords: dict[str, Any], reward: float) -> None:
    assert overlap_reward(completion, **keywords) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("completion", "keywords", "precision", "recall"),
    [
        ("yes [Source: s1]", {}, 1.0, 1.0),
        ("yes [SOURCE:s1] and [source: s9 ]", {}, 0.5, 1.0),
        (said("no [Source: s1]", role="tool"), {}, 0.0, 0.0),
        (
            "yes [Source: A.MD]",
            {"source_field": ["path", "file"], "canonicalize": lambda s: s.strip().lower()},
            1.0,
            1.0,
        ),
        ("yes [Source: A.MD]", {"source_field": "file"}, 0.0, 0.0),
        ("none", {}, 0.0, 0.0),
        ("[Source: s1]", {"reference_chunks": []}, 0.0, 0.0),
        ("[Source: s1]", {"reference_chunks": None}, 0.0, 0.0),
        ("[Source: s1]", {"reference_chunks": ["text", {"metadata": None}, *CHUNKS]}, 1.0, 1.0),
        ("[Source: s1]", {"reference_chunks": [*CHUNKS, {"metadata": {"source_id": 2}}]}, 1.0, 0.5),
    ],
)
def test_citations(completion: Any, keywords: dict[str, Any], precision: float, recall: float) -> None:
    found = citation_score(completion, **{"reference_chunks": CHUNKS, **keywords})
    assert found == {"precision": precision, "recall": recall}


@pytest.mark.parametrize(
    ("calls", "keywords", "score"),
    [
        (0, {}, 1.0),
        (2, {}, 1.0),
        (3, {}, math.exp(-0.2)),
        (3, {"reference_chunk_count": 1}, 1.0),
        (5, {"correctness": 0.5, "decay_rate": 0.1}, 0.5 * math.exp(-0.3)),
        (5, {"correctness_raw": 0.5, "decay_rate": 0.1}, 0.5 * math.exp(-0.3)),
        (2, {"correctness": 7.0}, 1.0),
        (11, {}, 0.0),
        (1, {"correctness": -1.0}, 0.0),
        (1, {"correctness": math.nan}, 0.0),
        (1, {"ranges": [(0, 0, 0.1), (1, 2, 0.9), (3, None, 0.4)]}, 0.9),
        (50, {"ranges": [(0, 0, 0.1), (1, 2, 0.9), (3, None, 4.0)]}, 1.0),
        (5, {"ranges": [(0, 1, 0.1)]}, 0.0),
    ],
)
def test_efficiency(calls: int, keywords: dict[str, Any], score: float) -> None:
    assert tool_call_efficiency("<tool_call>" * calls, **keywords) == pytest.approx(score)


def test_the_ends_of_a_budget_and_of_a_range_belong_to_it() -> None:
    ranges = [(0, 1, 1.0), (2, 3, 0.5), (4, None, 0.25)]
    assert [tool_call_efficiency("<tool_call>" * n, ranges=ranges) for n in range(6)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert [tool_call_efficiency("<tool_call>" * n, max_calls=2) for n in (2, 3)] == [1.0, 0.0]


@pytest.mark.parametrize("keywords", [{"max_calls": -1}, {"decay_rate": math.nan}, {"reference_chunk_count": -2}])
def test_efficiency_refuses_what_is_no_count(keywords: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(keywords))):
        tool_call_efficiency("", **keywords)


def test_overlap_refuses_a_share_above_one() -> None:
    with pytest.raises(ConfigError, match="minimum_overlap"):
        overlap_reward("x", "x", minimum_overlap=2)


@pytest.mark.parametrize(
    "text", ["<answer>" * 200_000, "<Answer>x" * 200_000, "[source:" * 200_000, "[Source: a" * 200_000]
)
def test_a_model_that_writes_a_tag_over_and_over_holds_nothing_up(text: str) -> None:
    began = time.monotonic()
    assert extract_answer_block(text) == text.strip()
    assert extract_strict_answer(text) in ("", "x")
    assert citation_score(text, [{"metadata": {"source_id": "a"}}]) == {"precision": 0.0, "recall": 0.0}
    assert time.monotonic() - began < 10


def test_a_thought_is_no_answer_and_a_refusal_is() -> None:
    thought = {"type": "reasoning", "text": "<answer>4</answer>"}
    said = [{"role": "assistant", "content": [thought, {"type": "output_text", "text": "5"}]}]
    assert extract_completion_text(said) == extract_completion_text(said, "last") == "5"
    assert extract_completion_text([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]) == "No."
