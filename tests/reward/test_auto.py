"""Principles are proposed sample by sample, merged by one call, and nothing paid for is thrown away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.principle.auto import AutoPrincipleGenerator, PrincipleTemplate
from rm_gallery.core.utils.errors import ConfigError, ParseError
from tests.support.samples import make_sample

SAMPLES = [make_sample("right", "wrong", query=f"q{i}", unique_id=str(i), chosen=0) for i in range(6)]
PROPOSED = '<principles>{"Truth": "It is right.", "Tone": "It is polite."}</principles>'
MERGED = '```json\n{"Truth": "It is right.", "Care": "It is careful.", "More": "One too many."}\n```'


def judge(proposal: str, merged: str) -> FakeLLM:
    return FakeLLM(reply=lambda question: merged if "<proposals " in question else proposal)


def generator(llm: FakeLLM, **settings: int) -> AutoPrincipleGenerator:
    return AutoPrincipleGenerator(llm=llm, scenario="chat", generate_number=5, cluster_number=2, **settings)


def test_at_most_the_asked_number_comes_back_in_order() -> None:
    found = generator(judge(PROPOSED, MERGED)).run_batch(SAMPLES)
    assert found == {"Truth": "It is right.", "Care": "It is careful."}


def test_a_small_pool_of_the_caller_is_accepted_in_every_way() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        made = generator(judge(PROPOSED, MERGED))
        assert (
            made.run_batch(SAMPLES, pool)
            == made.run_batch(SAMPLES, thread_pool=pool)
            == made.run_batch(SAMPLES, executor=pool)
        )


def test_without_a_merged_list_the_most_frequent_proposals_stand_in() -> None:
    assert list(generator(judge(PROPOSED, "I cannot say.")).run_batch(SAMPLES)) == ["Truth", "Tone"]


FAILURES: list[tuple[list[DataSample], str, type[Exception], str]] = [
    (SAMPLES, "nothing of use", ParseError, "None of 6 replies"),
    ([make_sample("a", "b")], PROPOSED, ConfigError, "chosen and a rejected"),
    ([], PROPOSED, ConfigError, "0 samples"),
]


@pytest.mark.parametrize(("samples", "reply", "error", "message"), FAILURES)
def test_failures_are_errors_and_not_an_empty_dict(
    samples: list[DataSample], reply: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        generator(judge(reply, reply)).run_batch(samples)


READ = [
    ('{"A": "one thing", "B": "another thing"}', {"A": "one thing", "B": "another thing"}),
    ('{"principles": {"A": "one thing"}}', {"A": "one thing"}),
    ("1. **A**: one thing\n2. B: another thing", {"A": "one thing", "B": "another thing"}),
    ('<think>{"X": "no"}</think>- 准确：内容必须属实', {"准确": "内容必须属实"}),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_replies_in_several_forms_are_read(text: str, expected: dict[str, str]) -> None:
    assert PrincipleTemplate.parse(text).principles == expected
