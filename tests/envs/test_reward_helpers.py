"""The helpers of `compute_reward`: what the golden files cannot hold (`tests/golden/envs`)."""

from __future__ import annotations

import pytest

from rm_gallery.core.model.message import ChatMessage
from rm_gallery.envs.reward_helpers import (
    citation_score,
    extract_answer_block,
    extract_completion_text,
    extract_strict_answer,
)


def test_messages_may_be_objects() -> None:
    assert extract_completion_text([ChatMessage(role="assistant", content="object")], "last") == "object"


@pytest.mark.parametrize("tag", ["<answer>", "<Answer>x", "[source:", "[Source: a"])
def test_a_model_that_writes_a_tag_over_and_over_holds_nothing_up(tag: str) -> None:
    text = tag * 200_000  # whose pairs would take hours
    assert extract_answer_block(text) == text.strip() and extract_strict_answer(text) in ("", "x")
    assert citation_score(text, [{"metadata": {"source_id": "a"}}]) == {"precision": 0.0, "recall": 0.0}
