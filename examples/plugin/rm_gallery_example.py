"""A reward, a grader, a benchmark, a provider and an adapter of another package; pyproject.toml
says which is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rm_gallery import Message, reward_function
from rm_gallery.core.data.load.converters import RowRef, output, text, turns
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.integrations.causes import Trainer
from rm_gallery.integrations.scoring import RowScorer


@reward_function(score_range=(0, 1))
def asks_back(messages: list[Message], **kwargs: Any) -> float:
    """1 when the answer ends with a question, else 0."""
    return float(messages[-1].text.rstrip().endswith("?"))


class ShortEnough(BaseGrader):
    """1 for an answer of at most `limit` words, else 0. Range [0, 1], higher is better."""

    name: str = "short_enough"
    limit: int = 20

    async def _grade(self, response: str) -> float:
        return float(len(response.split()) <= self.limit)


class LeftRight(Benchmark):
    """Strict pairs, pooled."""

    name = "left_right"
    version = "strict pairs, pooled"
    chance = 0.5
    own_columns = frozenset({"question", "left", "right", "better"})

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Both answers with the label that says which is better."""
        better, asked = (
            text(row, "better", where),
            turns(text(row, "question", where), "question", where),
        )
        sides = {side: text(row, side, where) for side in ("left", "right")}
        outputs = [
            output(words, "chosen" if side == better else "rejected")
            for side, words in sides.items()
        ]
        return self.sample("", asked, outputs, "conversation")


class Parrot(BaseLLM):
    """`--llm parrot:anything` says what it was asked."""

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """The last message as the reply."""
        message = {"role": "assistant", "content": payload["messages"][-1]["content"]}
        return {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }

    def endpoint_key(self) -> str:
        """Limits are kept by this name."""
        return "parrot:here"


def our_reward(
    reward: object, prompts: Sequence[str], completions: Sequence[str]
) -> list[float | None]:
    """What our trainer calls: a number per completion, None where there is no score."""
    return [
        found.value
        for found in RowScorer(reward).score_rows(prompts, completions, [{} for _ in prompts])
    ]


OURS = Trainer("rm_gallery_example.our_reward", "none", "-")
