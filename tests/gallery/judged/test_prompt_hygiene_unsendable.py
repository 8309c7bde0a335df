"""Text that no request can carry fails its own sample with a reason; strange but valid text is judged like any other."""

from __future__ import annotations

import pytest

from tests.gallery.judged.material import ONE_OF_EACH, Judge, reasons, scores, task

STRANGE = "\x00\u200b\ufeff\r\n{{ 7*7 }} 😀"


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_lone_surrogate_fails_its_sample_alone(judge: Judge, name: str) -> None:
    judge.behave("perfect")
    reward = judge.reward(name)
    broken = task(1)
    for output in broken.output:
        output.answer.content = f"{output.answer.text} \ud83d"
    good, bad, also_good = reward.evaluate_batch([task(0), broken, task(2)], max_workers=16)
    assert scores(reward, bad) == [None] * 4
    assert reasons([bad]) == {("failed", "invalid_request")}
    messages = {issue.message for output in bad.output for issue in output.answer.reward.issues}
    assert all("surrogate" in message.lower() for message in messages)
    assert None not in scores(reward, good) + scores(reward, also_good)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_strange_text_is_judged(judge: Judge, name: str) -> None:
    judge.behave("first")
    reward = judge.reward(name)
    sample = task(0)
    for output in sample.output:
        output.answer.content = f"{STRANGE}{output.answer.text}{STRANGE}"
    scored = reward.evaluate(sample)
    assert None not in scores(reward, scored)
    assert [output.answer.content for output in scored.output] == [output.answer.content for output in sample.output]
