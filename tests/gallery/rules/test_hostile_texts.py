"""Huge and odd answers cost every rule little time and give a score or a reason."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from rm_gallery.core.data.schema import RewardDimensionWithScore, Step
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.text.expressions import find_answer
from rm_gallery.core.text.letters import choice_letter
from rm_gallery.core.text.quantities import find_quantities
from rm_gallery.core.utils.errors import MissingExtra, Unscored
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.gallery.rm.general.choice_match import chosen
from rm_gallery.gallery.rm.general.tolerance_number import answer_quantity
from rm_gallery.gallery.rm.rule import RuleReward
from tests.gallery.rules.support import result_of, sample_of

SIZE = 40_000
PIECES = {
    "letters": "a",
    "words": "the cat sat. ",
    "digits": "1",
    "numbers": "1,000.5 ",
    "chinese": "中文。",
    "windows_lines": "a\r\n",
    "brackets": "[",
    "braces": "\\boxed{",
    "thoughts": "<think>",
    "closings": "</think>",
    "tags": "<tool_call>{}</tool_call>",
    "fences": "```\n",
    "blocks": "```python\nx = 1\n```\n",
    "mail": "a@a.",
    "dashes": "----- ",
    "phrases": "the answer is ",
    "sorry": "I'm sorry, ",
    "citations": "a [1]. ",
    "calls": "f(",
    "quotes": '{"a":',
    "units": "5 km/h ",
    "surrogates": "\ud800",
    "marks": "e\u0301\u200b",
    "dollars": "$5$ ",
    "options": "A. B. ",
    "plus": "+1 ",
    "open_calls": "<tool_call>",
    "open_formulas": "\\[ ",
    "open_text": "\\text{",
    "dollar_pairs": "$$ ",
    "fence_and_tick": "```" + " " * 500 + "`\n",
    "at": "x@ ",
    "letters_in_brackets": "(A",
    "blanks": " ",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "regex_match": {"pattern": r"\d+$"},
    "json_schema": {"json_schema": {"type": "object"}},
    "choice_match": {"choices": ("a", "b")},
    "language_match": {"language": "en"},
    "trajectory_cost": {"max_steps": 3},
    "cosine_length_scaling": {"correctness": "number"},
}
METADATA: dict[str, Any] = {"sources": ["a cat", "a dog"], "steps": 4, "tool_calls": [{"name": "f", "arguments": {}}]}
ELSEWHERE = frozenset({"llm", "embeddings", "tests"})
"""Needs of rewards that ask a model or run code."""
REFERENCES = {"multiple_choice_letter": "A", "choice_match": "a"}


def _rules() -> list[str]:
    classes = {name: RewardRegistry.get(name) for name in RewardRegistry.list()}
    return [name for name, c in classes.items() if issubclass(c, RuleReward) and not c.needs & ELSEWHERE]


def _reward(name: str) -> RuleReward:
    reward = RewardRegistry.create(name, **SETTINGS.get(name, {}))
    assert isinstance(reward, RuleReward)
    try:
        reward.check()
    except MissingExtra as error:
        pytest.skip(str(error))
    return reward


def _runs(reward: RuleReward, answer: str | Step) -> None:
    sample = sample_of(answer, REFERENCES.get(reward.name, "the cat is 42"), prompt="How is it?", **METADATA)
    low, high = reward.score_range
    try:
        result = result_of(reward, sample)
    except Unscored as reason:
        assert reason.reason and str(reason)
        return
    result.model_dump_json()
    for detail in result.details:
        assert isinstance(detail, RewardDimensionWithScore) and math.isfinite(detail.score)
        assert (low is None or detail.score >= low) and (high is None or detail.score <= high)


def test_all_rules_are_here() -> None:
    assert len(_rules()) >= 29


@pytest.mark.parametrize("name", _rules())
def test_long_answers(name: str) -> None:
    reward = _reward(name)
    slow = {}
    for piece, text in PIECES.items():
        size = SIZE if name not in ("bleu", "chrf") else SIZE // 8
        started = time.process_time()
        _runs(reward, (text * (size // len(text) + 1))[:size])
        if time.process_time() - started > 1.5:
            slow[piece] = time.process_time() - started
    assert not slow


@pytest.mark.parametrize("name", _rules())
def test_odd_answers(name: str) -> None:
    reward = _reward(name)
    for answer in ("", " ", "\r\n", "\x00", "\ufeff42", "\ud83d", "🙂" * 3, "\u202e42"):
        _runs(reward, answer)


@pytest.mark.parametrize("name", _rules())
def test_content_parts(name: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    _runs(_reward(name), Step(content=[{"type": "text", "text": "The answer is 42."}, image]))


READERS: dict[str, Callable[[str], object]] = {
    "final_answer": find_answer,
    "choice_letter": choice_letter,
    "quantities": lambda text: answer_quantity(text, find_quantities("5 km")[0]),
    "choices": lambda text: chosen(text, ("positive", "negative", "a")),
    "refusals": refusal_in,
}
STATEMENTS = [
    "the answer is ",
    "The answer is B. ",
    "答案是",
    "正解は",
    "<answer>",
    "<answer>5</answer>",
    '"answer": ',
    '{"answer": {',
]
STATEMENTS += [
    "Wait, no: 5. ",
    "It's B. ",
    "A ",
    "not 5, ",
    "I cannot ",
    "#### 5\n",
    "A: 5\n",
    "1/",
    "5 or ",
    "=",
    "½",
    "“",
    "Step 1: ",
    "so ",
]


@pytest.mark.parametrize("name", READERS)
def test_readers_take_linear_time(name: str) -> None:
    slow = {}
    for piece in [*STATEMENTS, *PIECES.values()]:
        text = (piece * (160_000 // len(piece) + 1))[:160_000]
        # measured below 0.3; a collection of the whole test process may fall into one of the tries
        for _ in range(3):
            started = time.process_time()
            READERS[name](text)
            spent = time.process_time() - started
            if spent <= 0.5:
                break
        else:
            slow[piece] = spent
    assert not slow
