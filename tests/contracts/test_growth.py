"""Every registered rule takes time in proportion to its texts: of the answer, of the reference, and
of both. Rules come from the registry.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rm_gallery import DataSample, RewardRegistry
from rm_gallery.core.reward.schema import sample_of
from tests.contracts.test_texts import RULES, WORDED
from tests.gallery import registry_cases
from tests.support.cpu import grows

PIECES = {
    "dots": "1.000.", "commas": "1,000,", "signs": "+-", "brackets": "([{", "closed": ")]}", "boxes": "\\boxed{", "full boxes": "\\boxed{1}",
    "thoughts": "<think>", "closing tags": "</x>", "digits": "7", "fractions": "\\frac{1}{", "spaces": ", \t", "slashes": "1/2/",
    "mixture": "1.000,<x>[-\\boxed{", "lines": "- 1.\n+ 1,\n",
}  # fmt: skip
SIZE = 8_000


def _filled(known: dict[str, Any], text: str) -> bool:
    """Put the text in the place of every text to compare with; whether there is one."""
    found = False
    for key in {*WORDED, "ground_truth"} & known.keys():
        one, value = isinstance(known[key], str), known[key]
        if one or (isinstance(value, list) and all(isinstance(part, str) for part in value)):
            known[key], found = text if one else [text, *value[1:]], True
    return found


def _sample(name: str, text: str, side: str) -> DataSample | None:
    sample = registry_cases.fitting(name)[0]
    sample.output = sample.output[:1]
    answer = sample.output[0].answer
    if side != "answer":
        places = [known for known in (sample.metadata, answer.label) if known]
        if not any([_filled(known, text) for known in places]):
            return None
    if side != "reference":
        answer.content = text
    return sample


@pytest.mark.long("large texts")
@pytest.mark.parametrize("side", ["answer", "reference", "both"])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_takes_time_in_proportion(name: str, side: str) -> None:
    reward = registry_cases.create(name)
    if reason := registry_cases.missing(reward):
        pytest.skip(reason)
    if _sample(name, "a", side) is None:
        return  # it compares with no text

    def work(text: str) -> None:
        sample = _sample(name, text, side)
        assert sample is not None
        reward.evaluate(sample)

    slow = [kind for kind, piece in PIECES.items() if grows(work, piece, SIZE)]
    assert slow == []


@pytest.mark.parametrize("end", ["{0}-{0}\n", "- same\n", "-"])
def test_long_patches_are_compared_in_time_in_proportion(end: str) -> None:
    reward = RewardRegistry.create("code_patch_similarity")

    def work(text: str) -> None:
        sample = registry_cases.fitting("code_patch_similarity")[0]
        sample.output = sample.output[:1]
        sample.output[0].answer.content = text
        _filled(sample.metadata or {}, text[::-1])
        _filled(sample.output[0].answer.label or {}, text[::-1])
        reward.evaluate(sample)

    assert not grows(
        work, "".join(end.format(number) for number in range(200_000))[:300_000], 300_000
    )


def test_a_long_patch_with_one_changed_line_is_nearly_the_same() -> None:
    reward = RewardRegistry.create("code_patch_similarity")
    lines = [f"+line {number}" for number in range(6_000)]
    sample = registry_cases.fitting("code_patch_similarity")[0]
    sample.output = sample.output[:1]
    sample.output[0].answer.content = "\n".join(["+a new line", *lines, "+end"])
    for known in (sample.metadata or {}, sample.output[0].answer.label or {}):
        _filled(known, "\n".join(lines))
    score = reward.evaluate(sample).output[0].answer.reward.score
    assert score is not None and 0.9995 < score < 1


@pytest.mark.parametrize("ordered", [False, True])
def test_thousands_of_calls_are_compared_within_a_bound(ordered: bool) -> None:
    """20,000 calls against 5,000 took two gigabytes, and went on when nobody waited."""
    reward = RewardRegistry.create("tool_call_match", ordered=ordered)
    call = {"name": "look", "arguments": {"at": 1}}
    text = f"<tool_call>{json.dumps(call)}</tool_call>" * 3_000
    sample = reward.evaluate(sample_of("q", text, tool_calls=[call] * 400))
    extra = sample.output[0].answer.reward.extra_data["tool_call_match"]
    assert (extra["matched"], extra["expected"], extra["made"]) == (400, 400, 3_000)
    sample = reward.evaluate(sample_of("q", text, tool_calls=[call] * 501))
    assert sample.output[0].answer.reward.issues[0].reason == "no_reference"


def test_long_texts_are_compared_in_order_within_a_bound() -> None:
    """The work grows with the product of words, and lets no other thread run meanwhile."""
    words = " ".join(map(str, range(100_000)))
    reward = RewardRegistry.create("rouge")
    sample = reward.evaluate(sample_of("q", words, reference=words + " more"))
    score = sample.output[0].answer.reward.score
    assert score is not None and 0.25 < score < 0.35, "what is not compared matches nothing"
