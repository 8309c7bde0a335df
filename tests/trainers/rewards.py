"""Rewards and completions that the trainers' own code is run with, and what `evaluate` says of
them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    DataSample,
    OpenaiLLM,
    RewardDimensionWithScore,
    RewardRegistry,
    RewardResult,
    RunOptions,
    Unscored,
)
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample


class Parts(BasePointWiseReward):
    """Two parts whose mean no float has exactly; some texts it cannot score, and some break it."""

    score_range = (-1.0, 1.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "breaks" in text:
            raise RuntimeError("the judge is gone")
        if sample.reference() is None:
            raise Unscored("nothing to compare with", reason="no_reference")
        parts = {
            "length": len(text) % 7 / 7,
            "gold": 0.9 if str(sample.reference()) in text else -0.3,
        }
        details = [
            RewardDimensionWithScore(name=name, score=value) for name, value in parts.items()
        ]
        return RewardResult(name=self.name, details=list(details))


def judged(base_url: str) -> BaseReward:
    """A judge behind a local server, asked once per completion."""
    llm = OpenaiLLM(model="judge", base_url=base_url, api_key="k", max_attempts=1)
    return RewardRegistry.create("base_helpfulness_pointwise", llm=llm)


@contextmanager
def flaky_judge() -> Iterator[JudgeServer]:
    """A local judge that breaks for a third of the prompts, whoever asks."""
    with JudgeServer(
        "fixed:<score>4</score>", faults={"server_error": 1 / 3, "sticky": True}
    ) as server:
        yield server


class Row(NamedTuple):
    """A prompt, what a model said, and the reference."""

    prompt: str
    completion: str
    reference: str | None


TEXTS = (
    "It is 4.", "\\boxed{4}", "\\boxed{5}", "", "答案是 4。", "so\r\n\r\n4", "<think>5?</think> 4", "4 " * 300, "this breaks",
)  # fmt: skip
ROWS = tuple(
    Row(
        f"What is 2+2? ({place})",
        TEXTS[place % 9] + "!" * (place // 9 % 7),
        None if place % 5 == 3 else "4",
    )
    for place in range(500)
)
FEW = ROWS[:18]
"""For a judge."""


class Expected(NamedTuple):
    """The score of `evaluate`, or how there is none."""

    score: float | None
    status: str
    components: dict[str, float]

    def part(self, name: str, none: float) -> float:
        """A component, or what stands for it: what the completion broke is the worst score in all
        of them.
        """
        return self.components.get(name, none if self.score is None else self.score)


def expected(reward: BaseReward, rows: tuple[Row, ...] = ROWS) -> tuple[Expected, ...]:
    """What `evaluate` says of each row, by itself."""
    return tuple(_expected(reward, row) for row in rows)


def _expected(reward: BaseReward, row: Row) -> Expected:
    sample = make_sample(row.completion, query=row.prompt, reference=row.reference)
    output = reward.evaluate(sample, options=RunOptions(blame="probe")).output[0]
    given = output.answer.reward
    status = given.issues[0].status if given.issues else "scored"
    parts = {each.name: each.score for each in given.details if each.name != reward.name}
    return Expected(reward.score_of_output(output), status, parts)


def as_float32(value: float) -> float:
    """What is left of a number in a trainer's tensor."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
