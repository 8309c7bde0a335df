"""One small reward of every kind and scorer, importable by worker processes."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from pydantic import Field

from rm_gallery import (
    BaseListWiseReward,
    BaseLLMReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BasePromptTemplate,
    BaseStepWiseReward,
    DataSample,
    FakeLLM,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardResult,
)


def scored(name: str, score: float, reason: str | None = None) -> RewardResult:
    """A result with one score."""
    return RewardResult(
        name=name, details=[RewardDimensionWithScore(name=name, score=score, reason=reason)]
    )


def ranked(name: str, *rank: float) -> RewardResult:
    """A result with one number per output."""
    return RewardResult(name=name, details=[RewardDimensionWithRank(name=name, rank=list(rank))])


def value(text: str) -> float:
    """The number of words, which all of these rewards judge by."""
    return float(len(text.split()))


class Rule(BasePointWiseReward):
    """A plain function."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(
            self.name, value(sample.output[0].answer.text) + float(kwargs.get("bonus", 0))
        )


class AsyncRule(BasePointWiseReward):
    """A coroutine function."""

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        await asyncio.sleep(0.001)
        return scored(
            self.name, value(sample.output[0].answer.text) + float(kwargs.get("bonus", 0))
        )


class CpuBound(Rule):
    """A plain function in a worker process."""

    cpu_bound: ClassVar[bool] = True


class ListRule(BaseListWiseReward):
    """All outputs at once."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *(value(output.answer.text) for output in sample.output))


class PairRule(BasePairWiseReward):
    """Two outputs at a time."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *(value(output.answer.text) for output in sample.output))


class StepRule(BaseStepWiseReward):
    """The last of the steps shown; its score tells how many are shown, too."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        steps = sample.output[0].steps or []
        return scored(self.name, 100 * len(steps) + value(steps[-1].text))


class NumberTemplate(BasePromptTemplate):
    """A prompt that lists the answers below its first line; a reply with one number."""

    score: float = Field(default=...)

    @classmethod
    def format(cls, enable_thinking: bool = False, **kwargs: Any) -> str:
        """The question and the answers."""
        return "\n".join(["Which has most words?", *kwargs["answers"]])


class BestTemplate(NumberTemplate):
    """A reply that names the best answer."""

    score: float = 0.0
    best: int = Field(default=...)


class Judged(BaseLLMReward):
    """Asks about the answers as the hook sees them."""

    template: type[BasePromptTemplate] | None = NumberTemplate

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        return {"answers": [output.answer.text for output in sample.output]}

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, response.score, response.reason)


class PointJudge(Judged, BasePointWiseReward):
    """One answer per question."""


class StepJudge(Judged, BaseStepWiseReward):
    """One step per question."""

    def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
        return {"answers": [step.text for step in sample.output[0].steps or []]}


class NamesBest(Judged):
    """1 for the answer the judge named."""

    template: type[BasePromptTemplate] | None = BestTemplate

    def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(
            self.name, *(float(k == response.best) for k in range(1, len(sample.output) + 1))
        )


class ListJudge(NamesBest, BaseListWiseReward):
    """All answers in one question."""


class PairJudge(NamesBest, BasePairWiseReward):
    """Two answers per question."""


def longest(question: str) -> str:
    """A judge that names the answer with the most words, and scores by them."""
    words = [value(line) for line in question.split("\n")[1:]]
    return f"<score>{words[-1]}</score><best>{words.index(max(words)) + 1}</best>"


class Listening(FakeLLM):
    """A scripted judge that notes every request."""

    asked: list[dict[str, Any]] = Field(default_factory=list)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Note the request, then answer as scripted."""
        self.asked.append(payload)
        return await super().attempt(payload, timeout)

    @property
    def prompts(self) -> list[str]:
        """Of each request everything it says, in one text."""
        return [
            "\n".join(str(message["content"]) for message in payload["messages"])
            for payload in self.asked
        ]
