"""What a judge sees is the kind's business, what it quotes is no verdict, and what is kept of a
judgement the run's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePromptTemplate,
    BaseStepWiseReward,
    ChatMessage,
    DataOutput,
    DataSample,
    FakeLLM,
    ParseError,
    Step,
)
from rm_gallery.core.data.conversation import sample_of_completion
from rm_gallery.core.reward.base import (
    BaseListWiseRubricReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
    BaseRubricReward,
    BaseStepWiseRubricReward,
)
from rm_gallery.core.reward.template import (
    RubricListWiseTemplate,
    RubricPairWiseTemplate,
    RubricPointWiseTemplate,
)
from tests.reward.rewards import Listening
from tests.support.judge_server_prompts import fenced_blocks
from tests.support.samples import make_sample

TEXTS = json.loads((Path(__file__).parent / "attacks.json").read_text(encoding="utf-8"))
"""`attacks`: texts that try to pass for the verdict 77 in the tag `qtag`; `sloppy`: replies around
a reason {r} and a verdict {v}; `quoted`: ways to quote."""


class MixedSteps(BaseRubricReward, BaseStepWiseReward): ...


class MixedStepsOtherOrder(BaseStepWiseReward, BaseRubricReward): ...


def blocks(question: str) -> dict[str, str]:
    return {block.name: block.text[1:-1] for block in fenced_blocks(question)}


def steps_of(*answers: list[str]) -> DataSample:
    made = [
        DataOutput(answer=Step(content="final"), steps=[Step(content=text) for text in texts])
        for texts in answers
    ]
    return DataSample(unique_id="s", input=[ChatMessage(content="asked")], output=made)


@pytest.mark.parametrize("kind", [BaseStepWiseRubricReward, MixedSteps, MixedStepsOtherOrder])
def test_a_stepwise_rubric_judge_sees_the_step_and_what_came_before_it(
    kind: type[BaseRubricReward],
) -> None:
    judge = Listening(
        reply=lambda question: f"<reason>r</reason><score>{len(blocks(question)['step'])}</score>"
    )
    scored = kind(llm=judge, rubrics=["be brief"]).evaluate(
        steps_of(["one", "two", "three"], ["seven"]), max_workers=1
    )
    assert [[step.reward.score for step in output.steps or ()] for output in scored.output] == [
        [3.0, 3.0, 5.0],
        [5.0],
    ]
    shown = [blocks(payload["messages"][-1]["content"]) for payload in judge.asked]
    assert shown[2] == {
        "query": "asked",
        "previous": "[step 1]\n    one\n\n[step 2]\n    two",
        "step": "three",
    }
    assert shown[3] == {"query": "asked", "step": "seven"}


CALL: dict[str, Any] = {
    "id": "1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"q": "雨"}'},
}
PICTURE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "x"}},
]


@pytest.mark.parametrize(("prompt", "completion", "query", "answer"), [
    ("q", {"content": None, "tool_calls": [CALL]}, "q", json.dumps([CALL["function"]], ensure_ascii=False)),
    ("q", {"content": "I look.", "function_call": {"name": "f"}}, "q", 'I look.\n{"name": "f"}'),
    ([{"role": "user", "content": PICTURE}], {"content": "a cat"}, "What is this?\n[image_url]", "a cat"),
    ("q", {"content": [{"type": "thinking", "thinking": "h"}, PICTURE[0]]}, "q", "What is this?"),
    ("q", {"content": "a", "reasoning_content": "hidden"}, "q", "a"),
])  # fmt: skip
def test_a_judge_sees_the_calls_of_an_answer_and_that_there_is_a_picture(
    prompt: Any, completion: Any, query: str, answer: str
) -> None:
    reward = BasePointWiseRubricReward(name="s", llm=FakeLLM(), images="leave_out")
    asked = reward.format(sample_of_completion(prompt, {"role": "assistant", **completion}))
    assert blocks(asked[1]["content"]) == {"query": query, "answer": answer}


TURNS = {
    "one user's turn": "user",
    "system and user": "system user",
    "an example before": "user assistant user",
    "examples and a system": "system user assistant user assistant user",
    "two of a user in a row": "user user",
    "a reply that is begun": "system user assistant",
    "nobody's but the system's": "system",
}


@pytest.mark.parametrize("layout", TURNS.values(), ids=TURNS)
def test_images_stand_where_the_user_speaks_last(layout: str) -> None:
    """Behind an example's question they would be the example's."""

    class Layout(RubricPointWiseTemplate):
        @classmethod
        def format(cls, **kwargs: Any) -> Any:  # type: ignore[override]
            return [{"role": role, "content": f"{role} {at}"} for at, role in enumerate(roles)]

    roles = layout.split()
    urls = ["https://pictures.example/1.png", "https://pictures.example/2.png"]
    asked = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    sample = sample_of_completion([{"role": "user", "content": asked}], "a cat")
    judge = Listening(reply="<reason>fine</reason><score>7</score>")
    reward = BasePointWiseRubricReward(name="s", llm=judge, template=Layout)
    assert reward.evaluate(sample).output[0].answer.reward.score == 7.0
    sent = judge.asked[0]["messages"]
    last = max((at for at, role in enumerate(roles) if role == "user"), default=len(roles) - 1)
    for at, message in enumerate(sent):
        assert message["role"] == roles[at]
        if at != last:
            assert message["content"] == f"{roles[at]} {at}"
    first, *parts = sent[last]["content"]
    assert first == {"type": "text", "text": f"{roles[last]} {last}"}
    assert [part["image_url"]["url"] for part in parts if "image_url" in part] == urls


GOOD = "The right answer, said plainly."
INTRODUCED = {"en": "The answer reads: {}", "zh": "回答的内容是：{}"}
KINDS: dict[str, tuple[type[BaseRubricReward], str]] = {
    "pointwise": (BasePointWiseRubricReward, "score"),
    "stepwise": (BaseStepWiseRubricReward, "score"),
    "listwise": (BaseListWiseRubricReward, "best"),
    "pairwise": (BasePairWiseRubricReward, "best"),
}


def attacks(tag: str, value: int) -> list[str]:
    """Texts that try to pass for a verdict `value`."""
    return [
        text.replace("qtag", tag).replace("QTAG", tag.upper()).replace("77", str(value))
        for text in TEXTS["attacks"]
    ]


def tags(reason: str, tag: str, value: int, last: bool = True) -> str:
    parts = [f"<reason>{reason}</reason>", f"<{tag}>{value}</{tag}>"]
    return "\n".join(parts if last else parts[::-1])


def as_json(reason: str, tag: str, value: int, last: bool = True, indent: int | None = None) -> str:
    members: list[tuple[str, Any]] = [("reason", reason), (tag, value)]
    return json.dumps(dict(members if last else members[::-1]), ensure_ascii=False, indent=indent)


FORMS: dict[str, Callable[[str, str, int], str]] = {
    "tags, reason first": tags,
    "tags, verdict first": lambda r, t, v: tags(r, t, v, last=False),
    "JSON, reason first": as_json,
    "JSON, verdict first": lambda r, t, v: as_json(r, t, v, last=False),
    "fenced JSON, reason first": lambda r, t, v: f"```json\n{as_json(r, t, v)}\n```",
    "fenced JSON, verdict first": lambda r, t, v: (
        f"```json\n{as_json(r, t, v, last=False, indent=2)}\n```"
    ),
    "introduced JSON": lambda r, t, v: (
        f"Here is my verdict:\n```json\n{as_json(r, t, v, last=False)}\n```"
    ),
    "fenced tags": lambda r, t, v: f"```xml\n{tags(r, t, v, last=False)}\n```",
    "after reasoning": lambda r, t, v: f"<think>Let me see.</think>\n{tags(r, t, v)}",
}


@pytest.mark.parametrize("language", INTRODUCED)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_quoted_attack_changes_no_verdict(kind: str, form: str, language: str) -> None:
    """A judge that is always right (2 for an attack, 9 for a good answer, the good one of several)
    and quotes the attack.
    """
    cls, tag = KINDS[kind]

    def judge(question: str) -> str:
        candidates = [
            text
            for name, text in blocks(question).items()
            if name == "step" or name.startswith("answer")
        ]
        reason = INTRODUCED[language].format(
            next((text for text in candidates if text != GOOD), GOOD)
        )
        verdict = candidates.index(GOOD) + 1 if tag == "best" else 9 if candidates == [GOOD] else 2
        return FORMS[form](reason, tag, verdict)

    samples, alone = [], kind in ("pointwise", "stepwise")
    for number, attack in enumerate(
        attacks(tag, 10) if tag == "score" else attacks(tag, 1) + attacks(tag, 2)
    ):
        made = make_sample(
            *([attack] if alone else [GOOD, attack]), unique_id=f"{kind}-{number}", query="asked"
        )
        if kind == "stepwise":
            made.output[0].steps = [Step(content=attack)]
        samples.append(made)
    reward = cls(name="judge", llm=FakeLLM(reply=judge), language=language, repair_attempts=0)  # type: ignore[arg-type]
    found = [
        [reward.score_of_output(output) for output in sample.output]
        for sample in reward.evaluate_batch(samples)
    ]
    expected = [2.0] if alone else [1.0, 0.0]
    pairs = zip(samples, found, strict=True)
    assert [s.output[-1].answer.text for s, got in pairs if got != expected] == []


def reading(template: type[BasePromptTemplate], tag: str, reply: str) -> int | None:
    try:
        value: int = getattr(template.parse(reply), tag)
    except ParseError:
        return None
    return value


@pytest.mark.parametrize("sloppy", TEXTS["sloppy"])
def test_a_sloppy_judge_is_not_read_rather_than_misread(sloppy: str) -> None:
    """Where a judge quotes without any order the verdict may be lost; it is never the quoted one."""
    misread, read, count = [], 0, 0
    for template, tag, value, other in (
        (RubricPointWiseTemplate, "score", 2, 10),
        (RubricListWiseTemplate, "best", 3, 1),
        (RubricPairWiseTemplate, "best", 1, 2),
    ):
        for attack in attacks(tag, other):
            for quoted in (
                form.format(way.format(attack))
                for form in INTRODUCED.values()
                for way in TEXTS["quoted"].values()
            ):
                reply = TEXTS["sloppy"][sloppy].format(
                    r=quoted, v=f"<{tag}>{value}</{tag}>", t=tag, n=value
                )
                found = reading(template, tag, reply)
                count += 1
                read += found == value
                misread += [(reply, found)] if found not in (value, None) else []
    assert misread == []
    assert read > (0.45 if "broken" not in sloppy and sloppy != "Python" else 0.0) * count


def traced(folder: Path, reward: BaseRubricReward, sample: DataSample) -> list[dict[str, Any]]:
    reward.evaluate_batch([sample], run_dir=str(folder / "run"), trace=True)
    lines = (folder / "run" / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def pointwise(reply: Any) -> BasePointWiseRubricReward:
    return BasePointWiseRubricReward(name="judge", llm=FakeLLM(reply=reply))


def test_a_trace_keeps_every_judgement_with_its_place(tmp_path: Path) -> None:
    sample, reply = make_sample("a", "b", unique_id="s-1"), "<reason>good</reason><best>1</best>"
    pairwise = BasePairWiseRubricReward(name="judge", llm=FakeLLM(reply=reply))
    entries = traced(tmp_path, pairwise, sample)
    assert {tuple(entry["place"]) for entry in entries} == {(0, 1), (1, 0)}
    known = {"id": "s-1", "sample_key": sample.sample_key, "reward": "judge", "attempt": 1}
    known |= {"status": "scored", "reply": reply, "problem": "", "finish_reason": "stop"}
    for entry in entries:
        assert not entry["cached"]
        assert {key: entry[key] for key in known} == known
        assert [message["role"] for message in entry["prompt"]] == ["system", "user"]
        assert entry["tokens"] == {"input": entry["tokens"]["input"], "output": 9}
        assert entry["tokens"]["input"] > 5
        assert 0 <= entry["seconds"] < 10
    listwise = BaseListWiseRubricReward(name="judge", llm=FakeLLM(reply=reply))
    assert sorted(traced(tmp_path / "list", listwise, sample)[0]["place"]) == [0, 1]


def test_an_unreadable_reply_is_kept_with_every_attempt(tmp_path: Path) -> None:
    sample = make_sample("the key is sk-abcdefghijklmnop", unique_id="s-1")
    entries = traced(tmp_path, pointwise("no idea 你"), sample)
    told = [(entry["attempt"], entry["status"]) for entry in entries]
    assert told == [(1, "unscored"), (2, "unscored")]
    assert all(entry["reply"] == "no idea 你" and entry["problem"] for entry in entries)
    assert "abcdefghijklmnop" not in json.dumps(entries)


def test_a_trace_torn_by_a_kill_goes_on_and_without_trace_nothing_is_kept(tmp_path: Path) -> None:
    reward = pointwise("<score>3</score>")
    assert len(traced(tmp_path, reward, make_sample("a", unique_id="s-1"))) == 1
    path = tmp_path / "run" / "trace.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "s-')
    again = traced(tmp_path, reward, make_sample("b", unique_id="s-2"))
    assert [entry["id"] for entry in again] == ["s-1", "s-2"]
    reward.evaluate_batch([make_sample("a")], run_dir=str(tmp_path / "other"))
    assert not (tmp_path / "other" / "trace.jsonl").exists()


def test_secrets_are_masked_and_texts_cleaned_and_bounded_wherever_they_are_kept(
    tmp_path: Path,
) -> None:
    reply = "I rather like it.\x1b[2J key sk-abcdefghijklmnop " + "x" * 5000
    [issue] = pointwise(reply).evaluate(make_sample("a")).output[0].answer.reward.issues
    assert "I rather like it." in issue.message and len(issue.message) < 400
    assert "abcdefghijklmnop" not in issue.message and "\x1b" not in issue.message

    def broken(question: str) -> str:
        raise RuntimeError("refused with key sk-abcdefghijklmnop1234")

    (scored,) = pointwise(broken).evaluate_batch([make_sample("a")], run_dir=tmp_path, trace=True)
    assert "sk-***" in scored.output[0].answer.reward.issues[0].message
    for file in tmp_path.iterdir():
        assert "abcdefghijklmnop" not in file.read_text(encoding="utf-8")


class Answering(FakeLLM):
    """Says that another model answered."""

    remote: ClassVar[bool] = True
    named: str = ""

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Under its own name."""
        return {**await super().attempt(payload, timeout), "model": self.named}


@pytest.mark.parametrize(("asked", "named", "same"), [
    ("gpt-4o", "gpt-4o-2024-08-06", True),
    ("openai/gpt-4o", "gpt-4o", True),
    ("m", "", True),
    ("m", "another-m", False),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_says_at_its_end_that_another_model_answered(
    kind: str, asked: str, named: str, same: bool, warned: list[str]
) -> None:
    reply = "<reason>r</reason><score>4</score><best>1</best>"
    judge = Answering(model=asked, named=named, reply=reply)
    sample = make_sample("a", "b")
    sample.output[0].steps = [Step(content="s")]
    KINDS[kind][0](name="judge", llm=judge, channel="text").evaluate_batch([sample, sample])
    assert [text for text in warned if "answered" in text] == (
        [] if same else [f"judge: model {asked} was asked, and {named} answered.\n"]
    )
