"""What a judge sees is the kind's business, and what is kept of a judgement the run's: views, withheld labels, traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rm_gallery.cli.main import app
from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.fake import FakeLLM
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.base import (
    BaseListWiseRubricReward,
    BasePairWiseReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
    BaseRubricReward,
    BaseStepWiseReward,
    BaseStepWiseRubricReward,
)
from rm_gallery.core.reward.schema import RewardDimensionWithRank, RewardDimensionWithScore, RewardResult
from rm_gallery.core.reward.template import ComparativeTemplate
from rm_gallery.core.utils.errors import ParseError
from tests.support.judge_server_prompts import fenced_blocks
from tests.support.samples import issues, make_sample


class MixedSteps(BaseRubricReward, BaseStepWiseReward):
    name = "mixed"


class MixedStepsOtherOrder(BaseStepWiseReward, BaseRubricReward):
    name = "mixed the other way"


def with_steps(*answers: list[str], label: dict[str, Any] | None = None) -> DataSample:
    outputs = [
        DataOutput(
            answer=Step(content=f"final {number}", label=label),
            steps=[Step(content=text, label=label) for text in texts],
        )
        for number, texts in enumerate(answers, 1)
    ]
    return DataSample(unique_id="s", input=[ChatMessage(content="asked")], output=outputs)


@pytest.mark.parametrize("cls", [BaseStepWiseRubricReward, MixedSteps, MixedStepsOtherOrder])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_d8_a_stepwise_rubric_judge_sees_the_step_and_what_came_before(
    cls: type[BaseRubricReward], language: str
) -> None:
    seen: list[dict[str, str]] = []

    def judge(question: str) -> str:
        shown = {block.name: block.text[1:-1] for block in fenced_blocks(question)}
        seen.append(shown)
        return f"<reason>r</reason><score>{len(shown['step'])}</score>"

    settings: dict[str, Any] = {"language": language, "rubrics": ["be brief"]}
    reward = cls(llm=FakeLLM(reply=judge), **settings)
    scored = reward.evaluate(with_steps(["one", "two", "three"], ["seven"]), max_workers=1)
    steps = [[step.reward.score for step in output.steps or ()] for output in scored.output]
    assert steps == [[3.0, 3.0, 5.0], [5.0]]
    assert sorted(shown["step"] for shown in seen) == ["one", "seven", "three", "two"]
    third = next(shown for shown in seen if shown["step"] == "three")
    assert third == {"query": "asked", "previous": "[step 1]\n    one\n\n[step 2]\n    two", "step": "three"}


CALL: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": "雨"}'}}
PICTURE = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("prompt", "completion", "query", "answer"),
    [
        (
            "q",
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "q",
            json.dumps([CALL["function"]], ensure_ascii=False),
        ),
        (
            "q",
            {"role": "assistant", "content": "I look.", "function_call": {"name": "f"}},
            "q",
            'I look.\n{"name": "f"}',
        ),
        ([{"role": "user", "content": PICTURE}], "a cat", "What is this?\n[image_url]", "a cat"),
        (
            "q",
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}, PICTURE[0]]},
            "q",
            "What is this?",
        ),
        ("q", {"role": "assistant", "content": "a", "reasoning_content": "hidden"}, "q", "a"),
    ],
)
def test_a_judge_sees_the_calls_of_an_answer_and_that_there_is_a_picture(
    prompt: Any, completion: Any, query: str, answer: str
) -> None:
    settings: dict[str, Any] = {"name": "s", "llm": FakeLLM()}
    asked = BasePointWiseRubricReward(**settings).format(sample_of_completion(prompt, completion))
    shown = {block.name: block.text[1:-1] for block in fenced_blocks(asked[1]["content"])}
    assert shown == {"query": query, "answer": answer}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_d8_the_instructions_ask_for_the_step(language: str) -> None:
    settings: dict[str, Any] = {"name": "s", "llm": FakeLLM(), "language": language}
    prompt = BaseStepWiseRubricReward(**settings).format(with_steps(["one"]))
    assert "`step`" in prompt[0]["content"]
    assert "`answer`" not in prompt[0]["content"]


@pytest.mark.parametrize(
    ("how", "winner", "score"),
    [("mean", "final 1", 6.0), ("min", "final 2", 5.0), ("last", "final 3", 8.0), ("product", "final 4", 168.0)],
)
def test_d8_best_of_n_understands_steps(how: str, winner: str, score: float) -> None:
    class Lengths(BaseStepWiseReward):
        name = "lengths"

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            said = (sample.output[0].steps or [])[-1].text
            return RewardResult(name="l", details=[RewardDimensionWithScore(name="l", score=float(said))])

    reward = Lengths.model_validate({"step_score": how})
    best = reward.best_of_n(with_steps(["4", "10", "4"], ["5", "5", "5"], ["1", "1", "8"], ["6", "7", "4"]))
    assert (best.output[0].answer.text, reward.score_of_output(best.output[0])) == (winner, score)
    unjudged = reward.evaluate(with_steps([], ["4"]))
    assert [reward.score_of_output(output) for output in unjudged.output] == [None, 4.0]


def test_r6_the_truth_about_steps_and_answers_never_reaches_a_judges_hooks() -> None:
    truth = {
        "preference": "chosen",
        "correctness": True,
        "is_correct": 1,
        "label": "good",
        "rating": 5,
        "reference": "42",
    }
    seen: list[dict[str, Any] | None] = []

    class Peeking(BaseStepWiseRubricReward):
        def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
            seen.extend([sample.output[0].answer.label, *(step.label for step in sample.output[0].steps or ())])
            return super()._before_evaluate(sample, **kwargs)

    sample = with_steps(["one", "two"], label=truth)
    scored = Peeking(name="p", llm=FakeLLM(reply="<score>3</score>")).evaluate(sample)
    assert seen
    assert all(label == {"reference": "42"} for label in seen)
    assert [step.label for step in scored.output[0].steps or ()] == [truth, truth]


def test_r5_a_partial_ranking_is_a_parse_failure() -> None:
    class Ranks(BaseListWiseRubricReward):
        template: Any = ComparativeTemplate

        def _before_evaluate(self, sample: DataSample, **kwargs: Any) -> dict[str, Any]:
            return {"question": "asked", "responses": [output.answer.text for output in sample.output]}

        def _after_evaluate(self, response: Any, sample: DataSample, **kwargs: Any) -> RewardResult:
            ranks = {r["response_index"]: 1.0 / r["rank"] for r in response.rankings}
            rank = [ranks.get(i, 0.0) for i in range(1, len(sample.output) + 1)]
            return RewardResult(name="r", details=[RewardDimensionWithRank(name="r", rank=rank)])

    whole = [{"response_index": i, "rank": 5 - i} for i in range(1, 5)]
    for ranking, status in (
        (whole, set()),
        (whole[2:], {("unscored", "parse")}),
        ([{"response_index": i + 1, "rank": i + 1} for i in range(2)], {("unscored", "parse")}),
    ):
        reward = Ranks(name="r", llm=FakeLLM(reply=f"<rankings>{json.dumps(ranking)}</rankings>"), repair_attempts=0)
        assert set(issues(reward.evaluate(make_sample("a", "b", "c", "d")))) == status


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [
        ("length", "truncated"),
        ("max_tokens", "truncated"),
        ("MAX_TOKENS", "truncated"),
        ("FinishReason.MAX_TOKENS", "truncated"),
        ("model_length", "truncated"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("RECITATION", "content_filter"),
        ("content management policy", "content_filter"),
        ("stop", None),
        ("end_turn", None),
        ("STOP", None),
        ("stop_sequence", None),
    ],
)
def test_r2_a_reply_that_did_not_end_by_itself_is_not_read(finish_reason: str, reason: str | None) -> None:
    llm = FakeLLM(reply="<reason>r</reason><score>8</score>", finish_reason=finish_reason)
    scored = BasePointWiseRubricReward(name="p", llm=llm).evaluate(make_sample("a"))
    assert issues(scored) == ([] if reason is None else [("unscored", reason)])
    assert scored.output[0].answer.reward.score == (8.0 if reason is None else None)


def test_r7_an_issue_quotes_what_was_found_cleaned_and_bounded() -> None:
    reply = "I rather like it.\x1b[2J key sk-abcdefghijklmnop " + "x" * 5000
    scored = BasePointWiseRubricReward(name="p", llm=FakeLLM(reply=reply)).evaluate(make_sample("a"))
    (issue,) = scored.output[0].answer.reward.issues
    assert "I rather like it." in issue.message
    assert "abcdefghijklmnop" not in issue.message
    assert "\x1b" not in issue.message
    assert len(issue.message) < 400


def test_s6_a_key_an_error_echoes_is_masked_wherever_the_error_is_kept(tmp_path: Path) -> None:
    def broken(question: str) -> str:
        raise RuntimeError("refused with key sk-abcdefghijklmnop1234")

    reward = BasePointWiseRubricReward(name="j", llm=FakeLLM(reply=broken))
    (scored,) = reward.evaluate_batch([make_sample("a")], run_dir=tmp_path, trace=True)
    assert "sk-***" in scored.output[0].answer.reward.issues[0].message
    assert not [f for f in tmp_path.iterdir() if "abcdefghijklmnop" in f.read_text(encoding="utf-8")]


def test_t1_the_repair_message_shows_the_judge_its_own_reply_and_the_problem() -> None:
    asked: list[list[dict[str, Any]]] = []

    class Listening(FakeLLM):
        async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
            asked.append(payload["messages"])
            return await super().attempt(payload, timeout)

    llm = Listening(
        reply=lambda question: "<score>7</score>" if "could not be read" in question else "about seven, I say"
    )
    scored = BasePointWiseRubricReward(name="p", llm=llm).evaluate(make_sample("a"))
    assert scored.output[0].answer.reward.score == 7.0
    first, second = asked
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first
    assert second[2]["content"] == "about seven, I say"
    assert "<score>" in second[3]["content"]


def test_t1_orders_that_disagree_are_a_draw_whatever_their_margins() -> None:
    class Margins(BasePairWiseReward):
        """Judged in both orders; the first shown wins by 9, or loses by 1."""

        name = "margins"
        judged = True

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            rank = [9.0, 0.0] if sample.output[0].answer.text == "a" else [1.0, 0.0]
            return RewardResult(name="m", details=[RewardDimensionWithRank(name="m", rank=rank)])

    scored = Margins().evaluate(make_sample("a", "b"))
    extra = scored.output[0].answer.reward.extra_data["margins"]
    assert [output.answer.reward.score for output in scored.output] == [0.5, 0.5]
    assert extra["flip_rate"] == 1.0
    # each margin beside the order it was seen in
    assert dict(zip(map(tuple, extra["orders"]["0,1"]), extra["pairs"]["0,1"], strict=True)) == {
        (0, 1): 9.0,
        (1, 0): -1.0,
    }


def traced(tmp_path: Path, cls: type[BaseRubricReward], sample: DataSample, reply: str) -> list[dict[str, Any]]:
    reward = cls(name="judge", llm=FakeLLM(reply=reply))
    reward.evaluate_batch([sample], run_dir=str(tmp_path / "run"), trace=True)
    return [json.loads(line) for line in (tmp_path / "run" / "trace.jsonl").read_text(encoding="utf-8").splitlines()]


def test_r7_a_trace_keeps_every_judgement(tmp_path: Path) -> None:
    sample = make_sample("a", "b", unique_id="s-1")
    entries = traced(tmp_path, BasePairWiseRubricReward, sample, "<reason>good</reason><best>1</best>")
    assert {tuple(entry["place"]) for entry in entries} == {(0, 1), (1, 0)}
    for entry in entries:
        assert (entry["id"], entry["sample_key"], entry["reward"]) == ("s-1", sample.sample_key, "judge")
        assert (entry["attempt"], entry["status"], entry["reply"]) == (
            1,
            "scored",
            "<reason>good</reason><best>1</best>",
        )
        assert [message["role"] for message in entry["prompt"]] == ["system", "user"]
        assert entry["tokens"]["output"] > 0
        assert entry["seconds"] >= 0


def test_r7_an_unreadable_reply_is_kept_with_every_attempt(tmp_path: Path) -> None:
    sample = make_sample("the key is sk-abcdefghijklmnop", unique_id="s-1")
    entries = traced(tmp_path, BasePointWiseRubricReward, sample, "no idea 你")
    assert [(entry["attempt"], entry["status"]) for entry in entries] == [(1, "unscored"), (2, "unscored")]
    assert all(entry["reply"] == "no idea 你" and entry["problem"] for entry in entries)
    assert "abcdefghijklmnop" not in json.dumps(entries)
    shown = CliRunner().invoke(app, ["trace", str(tmp_path / "run"), "s-1"])
    assert shown.exit_code == 0
    assert shown.output.count("no idea") == 3, "twice as a reply, once in the question for another one"
    listed = CliRunner().invoke(app, ["trace", str(tmp_path / "run")])
    assert listed.output.split() == ["s-1"]


@pytest.mark.parametrize(("run", "sample", "says"), [("run", "s-2", "s-1"), ("elsewhere", "s-1", "--trace")])
def test_r7_what_is_not_there_is_said(tmp_path: Path, run: str, sample: str, says: str) -> None:
    traced(tmp_path, BasePointWiseRubricReward, make_sample("a", unique_id="s-1"), "<score>3</score>")
    found = CliRunner().invoke(app, ["trace", str(tmp_path / run), sample])
    assert found.exit_code != 0
    assert says in str(found.exception)


def test_r7_a_trace_torn_by_a_kill_goes_on(tmp_path: Path) -> None:
    sample = make_sample("a", unique_id="s-1")
    assert len(traced(tmp_path, BasePointWiseRubricReward, sample, "<score>3</score>")) == 1
    path = tmp_path / "run" / "trace.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "s-')
    again = make_sample("b", unique_id="s-2")
    assert [entry["id"] for entry in traced(tmp_path, BasePointWiseRubricReward, again, "<score>3</score>")] == [
        "s-1",
        "s-2",
    ]


def test_without_trace_nothing_is_kept(tmp_path: Path) -> None:
    reward = BasePointWiseRubricReward(name="p", llm=FakeLLM(reply="<score>3</score>"))
    reward.evaluate_batch([make_sample("a")], run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "trace.jsonl").exists()


def test_a_parse_error_names_the_field() -> None:
    with pytest.raises(ParseError, match="rankings"):
        ComparativeTemplate.parse("<rankings>[]</rankings>")
