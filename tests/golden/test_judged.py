"""What becomes of a judge's replies: scores, ranks and refusals of judged rewards, graders and strategies, as the golden lines have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from rm_gallery.core.graders import strategy
from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.graders.llm import LLMGrader
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderError, GraderResult
from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from tests.golden import golden
from tests.support.samples import make_sample


class Scripted(FakeLLM):
    """Gives its replies one after another, the last one again and again; with the log-probabilities it was told."""

    replies: list[str] = Field(default_factory=list)
    logprobs: Any = None
    refusal: str | None = None
    asked: list[dict[str, Any]] = Field(default_factory=list)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append(payload)
        found = await super().attempt(payload, timeout)
        found["choices"][0]["logprobs"] = self.logprobs
        found["choices"][0]["message"]["refusal"] = self.refusal
        return found


def answer(line: golden.Line) -> golden.Line:
    given = {key: line[key] for key in ("replies", "logprobs", "finish_reason", "refusal") if key in line}
    judge = Scripted(**given)
    try:
        said = of_reward(line, judge) if "reward" in line else of_grader(line, judge)
    except ConfigError as error:
        return {"refused": str(error)}
    return {**said, "calls": len(judge.asked)}


def of_reward(line: golden.Line, judge: Scripted) -> golden.Line:
    reward = RewardRegistry.create(line["reward"], llm=judge, **line.get("params", {}))
    outputs = reward.evaluate(make_sample(*line["answers"]), max_workers=1).output
    scores = [output.answer.reward.score for output in outputs]
    issues = [issue for output in outputs for issue in output.answer.reward.issues]
    if issues:
        assert scores == [None] * len(outputs) and len({issue.message for issue in issues}) == 1
        return {"status": issues[0].status, "reason": issues[0].reason, "why": issues[0].message}
    extra = outputs[0].answer.reward.extra_data.get(reward.name) if outputs else None
    return {"scores": scores, "metadata": extra}


def of_grader(line: golden.Line, judge: Scripted) -> golden.Line:
    params = line.get("params", {})
    made = (
        LLMGrader(model=judge, **params)
        if line["grader"] == "llm"
        else GraderRegistry.create(line["grader"], llm=judge, **params)
    )
    for name, settings in line.get("around", ()):
        made = getattr(strategy, name)(made, **settings)
    return told(made, made.evaluate(line.get("fields", {"query": "q", "response": "r"}), options=None))


def told(grader: BaseGrader, found: GraderResult) -> golden.Line:
    assert found.name == grader.name
    if isinstance(found, GraderError):
        return {"status": found.status, "reason": found.error_type, "why": found.error}
    usage = {name: number for name, number in found.usage.items() if name != "seconds"}
    scored = {"rank": getattr(found, "rank", None), "score": getattr(found, "score", None)}
    return {**scored, "why": found.reason or None, "metadata": found.metadata or None, "usage": usage or None}


EXPECTED = ("score", "scores", "rank", "status", "reason", "why", "metadata", "usage", "refused", "calls")


@pytest.mark.parametrize("path", golden.files("judged"))
def test_replies(path: Path) -> None:
    golden.check(path, answer, EXPECTED)
