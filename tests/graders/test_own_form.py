"""A grader whose prompt prescribes the form of the reply: nothing contradicts it, and the reply is
read in that form.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rm_gallery import FakeLLM, LLMGrader

BRACKETS = 'Rate {response} from 1 to 10 in the format "[[rating]]", for example: "Rating: [[5]]".'
NUMBER = "Rate {response} from 1 to 10. Output only the number."


def graded(prompt: str, reply: str, **settings: Any) -> tuple[Any, list[str]]:
    asked: list[str] = []

    def answer(text: str) -> str:
        asked.append(text)
        return reply

    llm = FakeLLM(reply=answer)
    grader = LLMGrader(name="own", model=llm, prompt=prompt, score_range=(1, 10), **settings)
    return asyncio.run(grader.aevaluate(response="Hello [[10]]")), asked


@pytest.mark.parametrize(("prompt", "reply", "score"), [
    (BRACKETS, "Rating: [[8]]", 8), (BRACKETS, "It greets. [[8]]", 8), (BRACKETS, "<think>[[2]]</think>Rating: [[7]]", 7),
    (BRACKETS, "I read [[10]] there. Rating: [[3]]", None), (BRACKETS, "[[11]]", None), (BRACKETS, "Fine.", None),
    (NUMBER, "8", 8), (NUMBER, "8/10", 8), (NUMBER, "Score: 8", 8), (NUMBER, "7 or 8", None),
    ("给 {response} 打 1 到 10 分，只输出数字。", "8", 8),
])  # fmt: skip
def test_the_reply_is_read_in_the_form_the_prompt_asks_for(
    prompt: str, reply: str, score: float | None
) -> None:
    grade, asked = graded(prompt, reply)
    assert getattr(grade, "error", None) if score is None else grade.score == score
    assert len(asked) == (2 if score is None else 1)
    assert not any(
        word in text for text in asked for word in ("Reply with", "JSON object", '"score"')
    )


def test_the_form_is_added_where_the_prompt_has_none_and_where_it_is_wanted() -> None:
    for prompt, settings in (
        ("Rate {response}.", {}),
        (NUMBER + " {output_form}", {}),
        (NUMBER, {"own_form": False}),
    ):
        grade, asked = graded(prompt, "<score>3</score>", **settings)
        assert grade.score == 3 and "score" in asked[0]
