"""What becomes of a judge's pairwise verdicts under each aggregation; single replies and refusals are golden lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.judge_server_prompts import fenced_blocks
from tests.support.samples import make_sample, scores

NAMES = ("group_win_rate", "group_copeland", "group_elo", "group_bradley_terry")
Beats = Callable[[str, str], bool]


def judged(name: str, beats: Beats, *answers: str) -> list[Any]:
    """Scores by a judge that is asked whether the first answer shown beats the second."""

    def reply(prompt: str) -> str:
        first, second = (block.text.strip() for block in fenced_blocks(prompt) if block.name.startswith("answer"))
        return f"<best>{1 if beats(first, second) else 2}</best>"

    return scores(RewardRegistry.create(name, llm=FakeLLM(reply=reply)).evaluate(make_sample(*answers)))


def larger(first: str, second: str) -> bool:
    return float(first) > float(second)


@pytest.mark.parametrize("name", NAMES)
def test_a_judge_of_one_mind_gives_its_order_and_a_cycle_is_a_tie(name: str) -> None:
    middle, best, worst = judged(name, larger, "5", "9", "1")
    assert 1 >= best > middle > worst >= 0
    if name != "group_elo":
        assert [middle, best + worst] == pytest.approx([0.5, 1.0], abs=1e-9)
    wins = {("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")}
    assert judged(name, lambda *pair: pair in wins, "rock", "scissors", "paper") == [0.5] * 3
    assert judged(name, lambda *pair: False, "1", "2", "3", "4") == [0.5] * 4


def test_elo_and_bradley_terry_can_be_told_from_their_scores() -> None:
    _, high = judged("group_elo", larger, "1", "2")
    second = 32 * (1 - 1 / (1 + 10 ** (-32 / 400)))
    assert 400 * math.log10(high / (1 - high)) == pytest.approx(16 + second)
    # two wins and half a drawn game against the phantom each
    _, high = judged("group_bradley_terry", larger, "1", "2")
    strength = math.log(high / (1 - high))
    assert 1 * high + 2 / (1 + math.exp(-2 * strength)) == pytest.approx(2.5, abs=1e-6)
