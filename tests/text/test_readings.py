"""What rules read as an answer's value, over languages, notations and what only looks like a
conclusion; labelled by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ChatMessage, DataOutput, DataSample, RewardRegistry, RunOptions, Step
from rm_gallery.core.model.message import ChatResponse

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("readings.jsonl").read_text(encoding="utf-8").splitlines()
]


def scores(reward: str, cases: list[dict[str, Any]], **more: Any) -> list[float | None]:
    samples = [
        DataSample(
            unique_id=str(number),
            input=[ChatMessage(content="What is it?")],
            output=[
                DataOutput(
                    answer=Step(
                        role="assistant",
                        content=case["answer"],
                        label={"reference": case["reference"]},
                        **more,
                    )
                )
            ],
        )
        for number, case in enumerate(cases)
    ]
    done = RewardRegistry.create(reward).evaluate_batch(samples, options=RunOptions(progress=False))
    return [
        sample.output[0].answer.reward.score if sample.output[0].answer.reward.details else None
        for sample in done
    ]


@pytest.mark.parametrize("reward", sorted({case["reward"] for case in CASES}))
def test_a_value_is_read_as_a_careful_person_does(reward: str) -> None:
    cases = [case for case in CASES if case["reward"] == reward]
    wrong = [
        f"{case['answer']!r} for {case['reference']!r}: {score}"
        for case, score in zip(cases, scores(reward, cases), strict=True)
        if score != case["score"]
    ]
    assert not wrong, "\n".join(wrong)


def test_an_answer_refuses_where_its_speaker_declines_the_request_and_nowhere_else() -> None:
    lines = Path(__file__).with_name("refusals.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [{**json.loads(line), "reference": ""} for line in lines]
    found = scores("refusal_detection", cases)  # 1 where the answer is none
    assert [
        case["answer"]
        for case, score in zip(cases, found, strict=True)
        if score != 1.0 - case["refuses"]
    ] == []


WORKING = "Six boxes of seven apples are on the table. Together these are 6 * 7 = 42"
STATED = "Six boxes of seven apples. The answer is 42. Let me check that with another"
ENDS = """
    stop end_turn stop_sequence tool_calls eos_token STOP FinishReason.STOP
    length max_tokens max_output_tokens MAX_TOKENS FinishReason.MAX_TOKENS model_length incomplete
    model_context_window_exceeded max_new_tokens Length max-tokens
    content_filter SAFETY refusal
""".split()
"""Words of OpenAI's, Anthropic's, Google's, Mistral's and TGI's endpoints and of trainers."""


@pytest.mark.parametrize("reward", ["math_verify_reward", "tolerance_number_match"])
@pytest.mark.parametrize("word", [*ENDS, None])
def test_an_answer_that_did_not_end_by_itself_concludes_nothing_in_its_last_sentence(
    reward: str, word: str | None
) -> None:
    """An answer is cut off by whatever word a judge's reply is."""
    message = ChatMessage(content=WORKING)
    whole = ChatResponse(message=message, finish_reason=word).ended == "done"
    cases = [{"answer": text, "reference": "42"} for text in (WORKING, STATED)]
    assert scores(reward, cases, finish_reason=word) == [float(whole), 1.0]


def test_the_words_of_endpoints_are_of_all_ways_to_end() -> None:
    ways = [ChatResponse(message=ChatMessage(), finish_reason=word).ended for word in ENDS]
    assert [ways.count(way) for way in ("done", "cut", "withheld")] == [7, 11, 3]
