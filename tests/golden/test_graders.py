"""What becomes of a judge's replies, of a rule's fields and of a row's results, as the golden lines
of judged things, graders and aggregators have it.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rm_gallery import (
    BaseGrader,
    BaseReward,
    ConfigError,
    FakeLLM,
    GraderError,
    GraderRank,
    GraderRegistry,
    GraderScore,
    LLMGrader,
    RewardRegistry,
)
from rm_gallery.core.graders import strategy
from rm_gallery.core.graders.base import GraderResult
from rm_gallery.core.runner import aggregator as aggregators
from tests.golden import golden
from tests.support.samples import make_sample


class Scripted(FakeLLM):
    """Gives its replies one after another, the last one again and again; with the log-probabilities
    it was told.
    """

    replies: list[str] = Field(default_factory=list)
    logprobs: Any = None
    refusal: str | None = None
    called: list[str] = Field(default_factory=list)
    """Arguments of the tool calls it makes, beside no text."""
    asked: list[dict[str, Any]] = Field(default_factory=list)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        self.reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append(payload)
        found = await super().attempt(payload, timeout)
        found["choices"][0]["logprobs"] = self.logprobs
        message = found["choices"][0]["message"]
        message["refusal"] = self.refusal
        if self.called:
            calls = [
                {"id": "1", "type": "function", "function": {"name": "verdict", "arguments": each}}
                for each in self.called
            ]
            message.update(content=None, tool_calls=calls)
            found["choices"][0]["finish_reason"] = "tool_calls"
        return found


def judged(_: str, line: golden.Line) -> golden.Line:
    given = {
        key: line[key]
        for key in ("replies", "logprobs", "finish_reason", "refusal", "called")
        if key in line
    }
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
        assert len({issue.message for issue in issues}) == 1
        return {
            **({"scores": scores} if any(score is not None for score in scores) else {}),
            "status": issues[0].status,
            "cause": issues[0].cause,
            "reason": issues[0].reason,
            "why": issues[0].message,
        }
    extra = outputs[0].answer.reward.extra_data.get(reward.name) if outputs else None
    return {"scores": scores, "metadata": extra}


def of_grader(line: golden.Line, judge: Scripted) -> golden.Line:
    params = line.get("params", {})
    named = line["grader"] != "llm"
    made = (
        GraderRegistry.create(line["grader"], llm=judge, **params)
        if named
        else LLMGrader(model=judge, **params)
    )
    for name, settings in line.get("around", ()):
        made = getattr(strategy, name)(made, **settings)
    fields: Any = line.get("fields", {"query": "q", "response": "r"})
    found: Any = made.evaluate(fields, options=None)
    return told(made, found)


def told(grader: BaseReward, found: GraderResult) -> golden.Line:
    assert found.name == grader.name
    if isinstance(found, GraderError):
        return {
            "status": found.status,
            "cause": found.cause,
            "reason": found.error_type,
            "why": found.error,
        }
    usage = {name: number for name, number in found.usage.items() if name != "seconds"}
    scored = {"rank": getattr(found, "rank", None), "score": getattr(found, "score", None)}
    return {
        **scored,
        "why": found.reason or None,
        "metadata": found.metadata or None,
        "usage": usage or None,
    }


SAID = ("score", "status", "cause", "reason", "why", "metadata", "refused")
test_replies = golden.runner("judged", judged, *SAID, "scores", "rank", "usage", "calls")


def of_rule(_: str, line: golden.Line) -> golden.Line:
    try:
        found: Any = GraderRegistry.create(line["grader"], **line.get("params", {})).evaluate(
            line["fields"]
        )
    except ConfigError as error:
        return {"refused": str(error)}
    if isinstance(found, GraderError):
        return {
            "status": found.status,
            "cause": found.cause,
            "reason": found.error_type,
            "why": found.error,
        }
    assert isinstance(found, GraderScore)
    return {"score": found.score, "why": found.reason or None, "metadata": found.metadata or None}


test_rules_as_graders = golden.runner("graders", of_rule, *SAID)


def test_every_rule_that_is_no_reward_has_its_lines() -> None:
    """Rules among the rewards have their lines with the rewards; a few stand here for all, to see
    their names and doors.
    """
    kinds = {name: GraderRegistry.get(name) for name in GraderRegistry.list()}
    rules = {
        name for name, kind in kinds.items() if not kind.judged and issubclass(kind, BaseGrader)
    }
    found = [line for path in golden.HERE.glob("graders/*.jsonl") for _, line in golden.lines(path)]
    assert rules - {line["grader"] for line in found} == set(), (
        "a rule has no line in tests/golden/graders"
    )
    assert [line for line in found if line.get("reason") == "invalid_result"] == [], (
        "a rule leaves its range"
    )


KINDS: dict[str, type[GraderResult]] = {
    "score": GraderScore,
    "rank": GraderRank,
    "error": GraderError,
}


def result(given: dict[str, Any]) -> GraderResult:
    return next(kind for key, kind in KINDS.items() if key in given)(**given)


def built(name: str, params: dict[str, Any]) -> aggregators.BaseAggregator:
    inner = params.get("secondary")
    if inner is not None:
        params = {**params, "secondary": built(inner["aggregator"], inner.get("params", {}))}
    made: aggregators.BaseAggregator = getattr(aggregators, name)(**params)
    return made


def aggregated(_: str, line: golden.Line) -> golden.Line:
    try:
        made = built(line["aggregator"], line.get("params", {}))
        made.check(list(line["results"]))
        found = made({name: result(given) for name, given in line["results"].items()})
    except ConfigError as error:
        return {"refused": str(error)}
    said = {"name": found.name, "reason": found.reason, "metadata": found.metadata}
    if isinstance(found, GraderError):
        return {
            **said,
            "status": found.status,
            "error_type": found.error_type,
            "cause": found.cause,
        }
    assert isinstance(found, GraderScore)
    return {
        **said,
        "score": found.score,
        "range": found.range,
        "higher_is_better": found.higher_is_better,
    }


OF_A_ROW = (
    "name",
    "reason",
    "metadata",
    "status",
    "error_type",
    "cause",
    "score",
    "range",
    "higher_is_better",
    "refused",
)
test_aggregators = golden.runner("aggregators", aggregated, *OF_A_ROW)


def test_every_aggregator_has_its_lines() -> None:
    kinds = {
        name
        for name, kind in vars(aggregators).items()
        if isinstance(kind, type) and name.endswith("Aggregator")
    }
    seen = {
        line["aggregator"]
        for path in golden.HERE.glob("aggregators/*.jsonl")
        for _, line in golden.lines(path)
    }
    assert kinds - seen == {"BaseAggregator", "CallableAggregator"}, (
        "an aggregator has no line in tests/golden/aggregators"
    )
