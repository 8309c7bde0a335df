"""Labelled replies and recorded grades of judges, read as a careful person reads them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from rm_gallery.core.graders.llm import LLMGrader
from rm_gallery.core.graders.result import GraderScore
from rm_gallery.core.models import FakeLLM
from tests.support.shared_data import labelled_cases, shared_file


def read(reply: str, scale: tuple[float, float]) -> float | None:
    judge = FakeLLM(reply=reply or " ")
    grader = LLMGrader(model=judge, prompt="{response}", score_range=scale, repair_attempts=0, structured=False)
    found = grader.evaluate(response="r")
    return found.score if isinstance(found, GraderScore) else None


def test_labelled_replies_are_read_as_a_careful_person_does() -> None:
    cases = [case for case in labelled_cases("judge_replies") if case["kind"] == "pointwise"]
    missed = [(case, score) for case in cases if (score := read(case["reply"], (1, 10))) not in case["expected"]]
    assert [(case, score) for case, score in missed if score is not None] == []
    assert len(missed) <= 0.05 * len(cases)


@pytest.mark.parametrize("form", ["<reason>{0}</reason><score>{1}</score>", "JSON"])
def test_recorded_grades_are_read_as_they_were_recorded(form: str) -> None:
    rows = pq.read_table(shared_file("prometheus_gpt4_absolute.parquet")).to_pylist()
    for row in rows:
        for reason, score in zip(row["gpt4_feedback"], row["gpt4_score"], strict=True):
            told = json.dumps({"reason": reason, "score": score}) if form == "JSON" else form.format(reason, score)
            assert read(told, (1, 5)) == score
