"""Perfect, worst and biased judges get what they deserve, under every judged name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rm_gallery.core.data.schema import DataSample, preference_of
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.chance import chance_interval
from tests.gallery.judged.material import BY_KIND, JUDGED, LANGUAGES, create
from tests.support.judge_server import JudgeServer, make_query_oracle
from tests.support.samples import issues, make_sample, scores

NAMES = [name for name in JUDGED if name != "ruler"]  # whose judge says a number for each answer
ONE_OF_EACH = [names[0] for names in BY_KIND.values()]


def task(number: int) -> DataSample:
    """An addition with one right and three wrong answers; the right one always stands first."""
    right = 7 * number + 5
    texts = [f"{7 * number} plus 5 is {value}." for value in (right, right + 1, right - 2, right + 10)]
    return make_sample(*texts, query=f"What is {7 * number} plus 5?", unique_id=f"sum-{number}", chosen=0)


def tasks(count: int) -> list[DataSample]:
    return [task(number) for number in range(count)]


class Judge(NamedTuple):
    """A judge server and a model that asks it."""

    server: JudgeServer
    llm: OpenaiLLM

    def behaving(self, name: str, behaviour: str) -> BaseReward:
        """A judged reward whose judge behaves like this."""
        self.server.set(behaviour=behaviour)
        return create(name, self.llm)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """A judge that knows the right answers; what it does with that is its behaviour."""
    oracle = make_query_oracle(
        (s.input[0].text, [o.answer.text for o in s.output], [preference_of(o) == "chosen" for o in s.output])
        for s in tasks(40)
    )
    with JudgeServer("perfect", oracle=oracle) as server:
        yield Judge(server, OpenaiLLM("judge-1", base_url=server.base_url, api_key="none", cache=False, max_attempts=1))


def accuracy(found: list[DataSample]) -> tuple[int, float]:
    """Number of samples scored whole, and the share of them whose right answer alone has the highest score."""
    whole = [row for row in map(scores, found) if None not in row]
    return len(whole), sum(row[0] > max(row[1:]) for row in whole) / max(1, len(whole))  # type: ignore[operator,type-var]


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_judge_is_always_right(judge: Judge, name: str) -> None:
    reward = judge.behaving(name, "perfect").model_copy(update={"language": LANGUAGES[NAMES.index(name) % 2]})
    count = 2 if reward.kind == "pairwise" else 4
    assert accuracy(reward.evaluate_batch(tasks(count), max_workers=32)) == (count, 1.0)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_worst_judge_is_always_wrong(judge: Judge, name: str) -> None:
    reward = judge.behaving(name, "worst")
    found = reward.evaluate_batch(tasks(4), max_workers=32)
    assert accuracy(found) == (4, 0.0)
    assert [scores(sample)[0] for sample in found] == [reward.score_range[0]] * 4


@pytest.mark.parametrize("behaviour", ["first", "last"])
def test_a_liking_for_a_place_is_worth_what_guessing_is(judge: Judge, behaviour: str) -> None:
    listwise, pairwise, pointwise = (BY_KIND[kind][0] for kind in ("listwise", "pairwise", "pointwise"))
    count, share = accuracy(judge.behaving(listwise, behaviour).evaluate_batch(tasks(40), max_workers=32))
    low, high = chance_interval([1 / 4] * 40)
    assert count == 40 and low <= share <= high < 0.5
    for sample in judge.behaving(pairwise, behaviour).evaluate_batch(tasks(2), max_workers=32):
        assert scores(sample) == [0.5] * 4
        assert {output.answer.reward.extra_data[pairwise]["flip_rate"] for output in sample.output} == {1.0}
    alone = judge.behaving(pointwise, behaviour).evaluate_batch(tasks(2), max_workers=32)
    assert [len(set(scores(sample))) for sample in alone] == [1, 1], "a judge who likes everything prefers nothing"


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_text_that_no_request_can_carry_fails_its_sample_alone(judge: Judge, name: str) -> None:
    lone, odd = task(1), task(2)
    for output in (*lone.output, *odd.output):
        output.answer.content = f"{output.answer.text} " + (
            "\ud83d" if output in lone.output else "\x00\u200b\ufeff\r\n😀"
        )
    good, bad, strange = judge.behaving(name, "first").evaluate_batch([task(0), lone, odd], max_workers=16)
    assert scores(bad) == [None] * 4 and set(issues(bad)) == {("failed", "invalid_request")}
    assert all("surrogate" in issue.message.lower() for output in bad.output for issue in output.answer.reward.issues)
    assert None not in scores(good) + scores(strange)
