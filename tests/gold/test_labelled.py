"""Labelled answers and replies, and recorded texts of real judges: scored and read as a careful
person does, with no verdict invented.
"""

from __future__ import annotations

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from rm_gallery import FakeLLM, GraderScore, LLMGrader
from tests.golden.test_readers import verdict
from tests.golden.test_rules import outcome
from tests.support.shared_data import labelled_cases, shared_file

RULES = {
    "math_answers": "math_verify_reward",
    "quantities": "tolerance_number_match",
    "choice_letters": "multiple_choice_letter",
    "refusals": "refusal_detection",
}
KINDS = {"pointwise": "score", "listwise": "best of 4", "pairwise": "best of 2"}


@pytest.mark.parametrize("name", RULES)
def test_answers_are_scored_as_labelled(name: str) -> None:
    params = {"want": "refusal"} if name == "refusals" else {}
    wrong = []
    for row in labelled_cases(name):
        given = {key: value for key, value in row.items() if key in ("answer", "reference")}
        found = outcome(RULES[name], {**given, "params": params}).get("score")
        wrong += [(row, found)] if found != row["expected"] else []
    assert wrong == []


def test_replies_are_read_as_labelled() -> None:
    cases = labelled_cases("judge_replies")
    assert [
        case
        for case in cases
        if verdict(KINDS[case["kind"]], case["reply"]) not in case["expected"]
    ] == []


def read(reply: str, scale: tuple[float, float]) -> float | None:
    judge = FakeLLM(reply=reply or " ")
    grader = LLMGrader(
        model=judge, prompt="{response}", score_range=scale, repair_attempts=0, channel="text"
    )
    found = grader.evaluate(response="r")
    return found.score if isinstance(found, GraderScore) else None


def test_labelled_replies_are_read_as_a_careful_person_does() -> None:
    cases = [case for case in labelled_cases("judge_replies") if case["kind"] == "pointwise"]
    missed = [
        (case, score)
        for case in cases
        if (score := read(case["reply"], (1, 10))) not in case["expected"]
    ]
    assert [(case, score) for case, score in missed if score is not None] == []
    assert len(missed) <= 0.05 * len(cases)


@pytest.mark.parametrize("form", ["<reason>{0}</reason><score>{1}</score>", "JSON"])
def test_recorded_grades_are_read_as_they_were_recorded(form: str) -> None:
    rows = pq.read_table(shared_file("prometheus_gpt4_absolute.parquet")).to_pylist()
    for row in rows:
        for reason, score in zip(row["gpt4_feedback"], row["gpt4_score"], strict=True):
            told = (
                json.dumps({"reason": reason, "score": score})
                if form == "JSON"
                else form.format(reason, score)
            )
            assert read(told, (1, 5)) == score


RECORDED = {
    "as it is": ("{}", None, 0.0),
    "reason first": ("<reason>{}</reason>\n<best>2</best>", 2, 0.0),
    "verdict first": ("<best>2</best>\n<reason>{}</reason>", 2, 0.0),
    "prose first": ("{}\n\n<best>2</best>", 2, 0.005),
    "prose after": ("<best>2</best>\n\n{}", 2, 0.005),
    "after reasoning": ("<think>{}</think>\n<best>2</best>", 2, 0.0),
    "after reasoning the template opened": ("{}\n</think>\n\n<best>2</best>", 2, 0.005),
    "reasoning that never ends": ("<think>{} <best>2</best>", None, 0.0),
}


@pytest.mark.parametrize("form", RECORDED)
def test_nothing_is_invented_and_hardly_anything_lost(form: str) -> None:
    layout, expected, lost = RECORDED[form]
    texts = {
        text
        for name in ("judgebench_judge_outputs", "llmbar_judge_outputs")
        for text in pq.read_table(shared_file(f"{name}.parquet"), columns=["raw_text"])
        .column(0)
        .to_pylist()
        if text
    }
    readings = Counter(
        verdict("best of 4", layout.replace("{}", text)) for text in sorted(texts)[::3]
    )
    assert set(readings) <= {expected, None}
    assert (readings[None] if expected else 0) <= lost * readings.total()
