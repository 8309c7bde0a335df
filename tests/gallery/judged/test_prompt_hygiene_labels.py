"""What is known about the truth stays with the sample: no label, reference or earlier reward reaches a prompt."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataOutput, DataSample, Reward, RewardDimensionWithScore, RewardIssue, Step
from rm_gallery.core.model.message import ChatMessage, ToolCall, ToolFunction
from tests.gallery.judged.material import judged
from tests.gallery.judged.prompts import FEW, FEW_ID, Shown, prompts_of

SECRET = "QSECRETQ"
PREFERENCES = ("preference", "response_type", "is_preferred", "preference_score", "type", "process_type")


def _step(text: str, preference: str) -> Step:
    label: dict[str, Any] = {key: f"{preference}{SECRET}" for key in PREFERENCES}
    label |= {"reference": f"R{SECRET}", "correctness": SECRET, "note": [SECRET]}
    detail = RewardDimensionWithScore(name=SECRET, reason=SECRET, score=1.0, source=SECRET)
    issue = RewardIssue(name=SECRET, status="failed", reason=SECRET, message=SECRET)
    return Step(
        content=text,
        name=SECRET,
        reasoning_content=SECRET,
        tool_calls=[
            ToolCall(id=SECRET, function=ToolFunction(name="search", arguments="{}"))
        ],  # a call is said, its id is not
        additional_kwargs={"hint": SECRET, "context": SECRET},
        label=label,
        reward=Reward(score=1.0, details=[detail], issues=[issue], extra_data={SECRET: {SECRET: SECRET}}),
    )


def _sample() -> DataSample:
    outputs = [
        DataOutput(answer=_step(text, preference), steps=[_step(SECRET, preference)])
        for text, preference in (("one", "chosen"), ("two", "rejected"), ("three", "rejected"))
    ]
    return DataSample(
        unique_id=SECRET,
        input=[ChatMessage(content="asked", name=SECRET, additional_kwargs={"label": SECRET, "preference": SECRET})],
        output=outputs,
        task_category=SECRET,
        source=SECRET,
        created_at=datetime(2099, 12, 31, tzinfo=timezone.utc),
        metadata={"reference": SECRET, "ground_truth": SECRET, "chosen": SECRET, "subset": SECRET},
    )


def _prompts(name: str, language: str, **settings: Any) -> list[Shown]:
    return prompts_of(judged(name, language=language, **settings), _sample())


@pytest.mark.parametrize(("name", "language"), FEW, ids=FEW_ID)
def test_nothing_but_texts_is_shown(name: str, language: str) -> None:
    prompts = _prompts(name, language)
    assert prompts
    for prompt in prompts:
        assert SECRET not in prompt.whole
        assert "2099" not in prompt.whole


@pytest.mark.parametrize(("name", "language"), FEW, ids=FEW_ID)
def test_a_reference_is_shown_on_request_and_nothing_else_with_it(name: str, language: str) -> None:
    for prompt in _prompts(name, language, show_reference=True):
        assert dict(prompt.blocks)["reference"] == f"R{SECRET}"
        assert prompt.whole.count(SECRET) == 1


@pytest.mark.parametrize(("name", "language"), FEW, ids=FEW_ID)
def test_the_hooks_see_no_preference_either(name: str, language: str) -> None:
    """A reward of one's own builds on these hooks; what they cannot see, they cannot leak."""
    for job in judged(name, language=language).plan(_sample()):
        for output in job.sample.output:
            assert not set(PREFERENCES) & set(output.answer.label or {})
            assert not output.answer.reward
