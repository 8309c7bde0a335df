"""What becomes of the reply of a judge of a group."""

from __future__ import annotations

import itertools

import pytest

from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.utils.errors import ParseError
from rm_gallery.gallery.rm.group.ruler import GroupTemplate
from tests.gallery.groups.judges import answers_in, create, group_judge, reason_of
from tests.support.samples import make_sample, scores


def test_scores_go_back_to_their_answers_whatever_the_order_shown() -> None:
    answers = ("0.1", "0.9", "0.4", "0.6")
    reward = create("ruler", llm=group_judge(float))
    for seed, order in enumerate(itertools.permutations(answers)):
        sample = make_sample(*order, unique_id=f"s{seed}")
        assert scores(reward.evaluate(sample)) == [float(text) for text in order]


def test_equal_outputs_get_the_same_score_in_one_call() -> None:
    asked: list[int] = []

    def reply(prompt: str) -> str:
        asked.append(len(answers_in(prompt)))
        return f'<scores>{{"1": {answers_in(prompt)[0]}, "2": {answers_in(prompt)[1]}}}</scores>'

    scored = create("ruler", llm=FakeLLM(reply=reply)).evaluate(make_sample("0.2", "0.7", "0.2"))
    assert scores(scored) == [0.2, 0.7, 0.2]
    assert asked == [2]


@pytest.mark.parametrize(("answers", "code"), [(("a", "a", "a"), "identical_outputs"), (("a",), "single_output")])
def test_where_there_is_nothing_to_compare(answers: tuple[str, ...], code: str) -> None:
    scored = create("ruler", llm=group_judge(lambda text: 1.0)).evaluate(make_sample(*answers))
    assert reason_of(scored) == {("unscored", code)}


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('<scores>{"1": 0.5, "2": 1}</scores>', {1: 0.5, 2: 1.0}),
        ('<think>{"scores": {"1": 0}}</think><scores>\n{"2": 0, "1": 1}\n</scores>', {1: 1.0, 2: 0.0}),
        ('<scores>```json\n{"answer_1": "80%", "Answer 2": "0.25"}\n```</scores>', {1: 0.8, 2: 0.25}),
        ('<scores>[{"answer": 2, "score": 0.1}, {"answer": 1, "score": 0.2}]</scores>', {1: 0.2, 2: 0.1}),
        ("<scores>{'1': 0.1, 2: 0.2,}</scores>", {1: 0.1, 2: 0.2}),
        ("<scores>[0.1, 0.2]</scores>", {1: 0.1, 2: 0.2}),
        ('{"reason": "so", "scores": {"1": 0.1, "2": 0.2}}', {1: 0.1, 2: 0.2}),
        ('```json\n{"scores": [{"id": "1", "score": 0}, {"id": "2", "score": 1}]}\n```', {1: 0.0, 2: 1.0}),
    ],
)
def test_forms_that_are_read(reply: str, found: dict[int, float]) -> None:
    assert GroupTemplate.parse(reply).scores == found


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ('<scores>{"1": 0.1, "2": 0.2}</scores>\n\nWait, answer 2 should be 0.8.', "takes it back"),
        ("Both are good.", "no complete <scores>"),
        ("<scores>high</scores>", "JSON"),
        ("<scores>7</scores>", "JSON"),
        ('<scores>{"1": 0.5, "1": 0.7}</scores>', "twice"),
        ('<scores>{"1": 0.5, "2": 1.5}</scores>', "from 0 to 1"),
        ('<scores>{"1": -0.1}</scores>', "from 0 to 1"),
        ('<scores>{"1": "8/10"}</scores>', "Expected a number"),
        ('<scores>{"1": NaN}</scores>', "from 0 to 1"),
        ('<scores>{"1": null}</scores>', "Expected a number"),
        ('<scores>{"1": true}</scores>', "Expected a number"),
        ('<scores>{"best": 0.5}</scores>', "whole number"),
        ('<scores>[{"answer": 1}]</scores>', "lacks"),
        ("<scores>" + "[" * 5000 + "</scores>", "JSON"),
    ],
)
def test_forms_that_are_no_verdict(reply: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        GroupTemplate.parse(reply)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ('<scores>{"1": 0.5, "2": 0.7}</scores>', "no score for answer 3"),
        ('<scores>{"1": 0.5, "2": 0.7, "3": 1, "4": 0}</scores>', "there is no answer 4"),
        ("<scores>{}</scores>", "no score for answer 1, 2, 3"),
        ('<scores>{"0": 0.5, "1": 0.7, "2": 1}</scores>', "no score for answer 3"),
    ],
)
def test_an_incomplete_reply_is_no_score_for_anybody(reply: str, problem: str) -> None:
    scored = create("ruler", llm=FakeLLM(reply=reply)).evaluate(make_sample("a", "b", "c"))
    assert scores(scored) == [None] * 3
    assert reason_of(scored) == {("unscored", "parse")}
    assert problem in scored.output[0].answer.reward.issues[0].message


def test_an_incomplete_reply_gets_one_more_try() -> None:
    def reply(question: str) -> str:
        numbers = 3 if "no score for answer 3" in question else 2
        return "<scores>{" + ", ".join(f'"{n}": 0.{n}' for n in range(1, numbers + 1)) + "}</scores>"

    scored = create("ruler", llm=FakeLLM(reply=reply)).evaluate(make_sample("a", "b", "c"))
    assert sorted(score for score in scores(scored) if score is not None) == [0.1, 0.2, 0.3]
