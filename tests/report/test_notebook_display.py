"""What a notebook shows of samples, results and reports: everything is there, and nothing in it runs."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from rm_gallery.core.data.schema import BaseDataSet, DataSample, RewardDimensionWithScore
from rm_gallery.core.reward.schema import RewardDimensionWithRank, RewardResult
from rm_gallery.report.scores import score_table
from rm_gallery.report.winrate import winrate
from tests.report.test_winrate import WON, Length, rows

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def sample() -> DataSample:
    answers = [{"answer": {"role": "assistant", "content": text}} for text in (ATTACK, "FAIL", "x" * 5_000)]
    given = {"unique_id": ATTACK, "input": [{"role": "user", "content": f"say\n{ATTACK} \ud800"}], "output": answers}
    return DataSample.model_validate(given)


def scored() -> DataSample:
    return Length().evaluate(sample())


def result() -> RewardResult:
    rank = RewardDimensionWithRank(name=ATTACK, reason=ATTACK, rank=[1.0, 2.0])
    return RewardResult(name=ATTACK, details=[rank, RewardDimensionWithScore(name="s", score=0.12345)])


SHOWN = [
    (sample, ["say<br/>", "5,000 characters"]),
    (scored, ["broken", "failed"]),
    (lambda: scored().output[0].answer.reward, ["score 53"]),
    (lambda: BaseDataSet(name=ATTACK, datasamples=[sample()] * 25), ["25 samples", "and 5 more"]),
    (result, ["[1.0, 2.0]", "0.1235"]),
    (lambda: winrate(Length(), rows(*[WON] * 4, **{ATTACK: ["p"] * 4}), "q", ["x", "y"], by=[ATTACK]), ["100.0"]),
    (lambda: score_table(Length(), rows(*[WON] * 4), "q", "x"), ["<th>score</th>"]),
]


@pytest.mark.parametrize(("make", "expected"), SHOWN)
def test_everything_is_shown_and_nothing_runs(make: Any, expected: list[str]) -> None:
    text = make()._repr_html_()
    assert all(part in text for part in expected)
    assert "<script" not in text and "<img" not in text
    ElementTree.fromstring(f"<div>{text}</div>")  # well-formed
    text.encode("utf-8")
