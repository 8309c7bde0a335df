"""Labelled answers and replies: rules score them, and the parser of replies reads them, as they are labelled."""

from __future__ import annotations

import pytest

from tests.golden.test_readers import verdict
from tests.golden.test_rules import outcome
from tests.support.shared_data import labelled_cases

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
    assert [case for case in cases if verdict(KINDS[case["kind"]], case["reply"]) not in case["expected"]] == []
