"""A thought is no answer, whoever wrote its opening tag: for every registered rule, judge and grader.

A row is who wrote the opening tag, how the thought begins and how the answer begins; its score is
that of the answer alone. The rows are dealt out: each reward
is given every opener with half of the beginnings, and neighbours together every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from rm_gallery import BaseReward, DataSample, FakeLLM, GraderRegistry, RewardRegistry
from rm_gallery.core.text.canonical import split_reasoning
from tests.gallery import registry_cases
from tests.gallery.registry_cases import example_of
from tests.graders.material import fields_for, judged_graders, low_high, make
from tests.support.samples import make_sample

OPENERS = ("nothing", "fact", "written")
FIRST = {
    "newline": "\n", "space": " ", "letter": "a", "digit": "7 ", "quote": '"so" ', "<": "<b>", "{": "{x}", "\\": "\\(x\\)", "Chinese": "答",
    "Persian": "پ", "itself": "", "empty": None,
}  # fmt: skip
"""How a thought or an answer begins; None is one of no characters."""
CLOSES = {
    "think": ("<think>", "</think>"), "thinking": ("<thinking>", "</thinking>"), "square": ("[THINK]", "[/THINK]"), "kimi": ("◁think▷", "◁/think▷"),
    "thought": ("<|begin_of_thought|>", "<|end_of_thought|>"), "Cohere": ("<|START_THINKING|>", "<|END_THINKING|>"), "Chinese": ("<思考>", "</思考>"),
    "brackets": ("【思考】", "【/思考】"),
    "harmony": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
}  # fmt: skip
WHOLE = {"privacy_leakage", "unisolated_command_judge"}
"""Rules for which a text of a thought is as bad as one of an answer, or that read neither."""
RULES = [name for name in RewardRegistry.list() if example_of(name).judge is None]
JUDGES = [name for name in RewardRegistry.list() if example_of(name).judge is not None]


class Row(NamedTuple):
    """One way in which a thought stands before an answer."""

    opener: str
    thought: str
    answer: str

    def text(self, answer: str, decoy: str = "987 or H") -> str:
        first = FIRST[self.thought]
        thought = "" if first is None else f"{first}Perhaps {decoy}, no."
        return (
            f"{'<think>' if self.opener == 'written' else ''}{thought}</think>{self.begun(answer)}"
        )

    def alone(self, answer: str) -> str:
        return self.begun(answer).lstrip("\n")

    def begun(self, answer: str) -> str:
        first = FIRST[self.answer]
        return "" if first is None else f"{first}{answer}"


def _rows(shift: int, every: int = 1) -> Iterator[Row]:
    names = [*FIRST]
    for place, opener in enumerate(OPENERS):
        for at in range(0, len(names), every):
            yield Row(opener, names[at], names[(at + 4 * place + shift) % len(names)])


def _answered(sample: DataSample, row: Row | None, write: Callable[[str], str]) -> DataSample:
    copy = sample.model_copy(deep=True)
    for output in copy.output:
        output.answer.content = write(output.answer.text)
    if row is not None and row.opener == "fact":
        copy.metadata = {**(copy.metadata or {}), "thought_opened": True}
    return copy


def _reward(name: str, **settings: Any) -> BaseReward:
    reward = registry_cases.create(name, **settings)
    if reason := registry_cases.missing(reward):
        pytest.skip(reason)
    return reward


def _scores(sample: DataSample) -> list[float | None]:
    return [output.answer.reward.score for output in sample.output]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_scores_what_follows_the_thought(name: str) -> None:
    reward, sample = _reward(name), registry_cases.fitting(name)[0]
    if "thought" in reward.looks_at or not all(out.answer.text for out in sample.output):
        return
    number = RULES.index(name)
    if "sandbox" in reward.needs or name.startswith(("code_", "unisolated", "final_state")):
        # a program runs for every answer: one row of one answer each
        rows = [[*_rows(number, every=len(FIRST))][number % len(OPENERS)]]
        sample = sample.model_copy(update={"output": sample.output[:1]})
    else:
        rows = [*_rows(number, every=6 if name == "math_verify_reward" else 2)]
    plain = [_answered(sample, None, row.alone) for row in rows]
    given = [_answered(sample, row, row.text) for row in rows]
    if name not in WHOLE:  # cut off: only what the prompt said tells that this is thought
        plain.append(_answered(sample, None, lambda text: ""))
        given.append(
            _answered(sample, Row("fact", "", ""), lambda text: text.replace("</think>", ""))
        )
    done = reward.evaluate_batch([*plain, *given])
    wanted, found = (
        [_scores(one) for one in part] for part in (done[: len(plain)], done[len(plain) :])
    )
    differ = [
        (row, want, got)
        for row, want, got in zip([*rows, "cut"], wanted, found, strict=False)
        if want != got
    ]
    assert not differ, differ


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_states_its_verdict_after_its_thought(name: str) -> None:
    reply, sample = example_of(name).judge, registry_cases.fitting(name)[0]
    assert reply is not None
    decoy = "<best>1</best> <score>1</score>"

    def judged(write: Callable[[str], str], opened: bool) -> list[float | None]:
        llm = FakeLLM(reply=lambda prompt: write(reply(prompt)), thought_opened=opened)
        reward = _reward(name, llm=llm, repair_attempts=0)
        return _scores(reward.evaluate(sample.model_copy(deep=True)))

    differ = []
    for row in _rows(JUDGES.index(name), every=6 if len(sample.output) < 3 else len(FIRST)):
        wanted = judged(row.begun, False)
        found = judged(partial(row.text, decoy=decoy), row.opener == "fact")
        differ += [(row, wanted, found)] if found != wanted else []
    cut = judged(lambda text: f"Perhaps {text}", True)
    assert not differ and cut == judged(lambda text: "", False), (differ, cut)


@pytest.mark.parametrize("name", judged_graders())
def test_a_grader_reads_its_judge_after_the_thought(name: str) -> None:
    probe = make(name, FakeLLM())
    fields, reply = fields_for(probe), low_high(name, probe)[1]
    number = judged_graders().index(name)
    begins = ("itself", "letter")[number % 2]
    plain = FakeLLM(reply=Row("", "", begins).begun(reply))
    wanted = _graded(make(name, plain, repair_attempts=0).evaluate(fields))
    for row in _rows(number, every=len(FIRST)):
        text = row._replace(answer=begins).text(reply, "<score>1</score>")
        llm = FakeLLM(reply=text, thought_opened=row.opener == "fact")
        found = make(name, llm, repair_attempts=0).evaluate(fields)
        assert _graded(found) == wanted, (text, wanted, found)


def _graded(found: Any) -> list[Any]:
    each = found if isinstance(found, list) else [found]
    return [
        (
            type(one),
            getattr(one, "rank", None),
            None if math.isnan(getattr(one, "score", 0)) else getattr(one, "score", 0),
        )
        for one in each
    ]


TEXT_GRADERS = {
    "json_match": '{"a": 1}', "json_validator": '{"a": 1}', "markup_validator": "# A", "similarity": "It is 12.", "string_match": "It is 12.",
}  # fmt: skip


@pytest.mark.parametrize("name", TEXT_GRADERS)
def test_a_grader_of_texts_grades_what_follows_the_thought(name: str) -> None:
    grader, right = GraderRegistry.create(name), TEXT_GRADERS[name]
    for row in _rows(0, every=2):
        if row.opener != "fact":
            whole, final = (
                {"response": text, "reference_response": right}
                for text in (row.text(right), row.alone(right))
            )
            wanted, found = (
                grader.evaluate({k: v for k, v in each.items() if k in grader.inputs})
                for each in (final, whole)
            )
            assert _graded(found) == _graded(wanted), (row, wanted, found)


def test_every_grader_of_responses_is_among_them() -> None:
    own = set(GraderRegistry.list()) - set(RewardRegistry.list())
    of_rules = {name for name in own if not GraderRegistry.get(name).judged} - set(judged_graders())
    assert {name for name in of_rules if "response" in GraderRegistry.create(name).inputs} == set(
        TEXT_GRADERS
    )


@pytest.mark.parametrize("kind", CLOSES)
def test_every_closing_tag_ends_a_thought(kind: str) -> None:
    opens, closes = CLOSES[kind]
    for opener in ("nothing", "written"):
        for thought in FIRST.values():
            for answer in FIRST.values():
                before = "" if thought is None else f"{thought}Perhaps 987 or H."
                final = "" if answer is None else f"{answer}It is 12."
                text = f"{opens if opener == 'written' else ''}{before}{closes}{final}"
                found = split_reasoning(text)
                assert (found.final, found.finished) == (final.lstrip("\n"), True), (text, found)


MENTIONS = (
    'It ends with "</think>", as the template has it.', "A model writes `</think>` when it is done.", "The </think> tag ends a thought.",
    "The closing mark is </think>. It stands alone.", "Like this:\n```\nhm\n</think>\nParis\n```\nThat is all.", '{"tag": "a </think> b"}',
    "x = text.split('</think>')[-1]", "这个“</think>”表示结束", "多余的</think>标签。", "Use (</think>) there.", "~~~xml\n</think>\n~~~",
)  # fmt: skip


@pytest.mark.parametrize("text", MENTIONS)
def test_a_tag_that_is_spoken_of_ends_nothing(text: str) -> None:
    assert split_reasoning(text).final == text
    for thought in ("hm</think>\n", "<think>hm</think>\n"):
        assert split_reasoning(thought + text).final == text


OWN = (
    "<reason>It says: x</think><best>1</best><think></reason>\n<best>2</best>",
    "<best>2</best>\n<reason>It says: x</think><best>1</best><think></reason>",
    "<answer>\nParis\n</think>\nRome\n</answer>",
)


@pytest.mark.parametrize("text", OWN)
def test_a_tag_in_the_element_that_a_text_begins_with_ends_nothing(text: str) -> None:
    assert split_reasoning(text).final == text
    assert split_reasoning(f"<think>hm</think>\n{text}").final == text
    drafted = f"<reason>hm{'x' * 50}</think>\n{text}"
    assert split_reasoning(drafted).reasoning.startswith("<reason>hm")


PROMPTS = {
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n": True, "<｜User｜>hi<｜Assistant｜><think>\n": True,
    "User: 2+2?\nAssistant: Let me solve this step by step.\n<think>": True, "[INST] hi [/INST][THINK]": True, "<start_of_turn>model\n<think>": True,
    "<|im_start|>assistant\n<think>\n\n</think>\n\n": False, "What does this mean: <think>": False, "hi": False,
}  # fmt: skip


@pytest.mark.parametrize(("prompt", "opens"), PROMPTS.items())
def test_the_fact_is_read_from_a_prompt_and_from_every_place_of_the_data(
    prompt: str, opens: bool
) -> None:
    reward = RewardRegistry.create("accuracy")

    def score(answer: dict[str, Any], **known: Any) -> float | None:
        given = known.pop("prompt", "hi")
        row = {
            "input": [{"role": "user", "content": given}],
            "output": [{"answer": {"role": "assistant", "content": "Paris", **answer}}],
            "metadata": {"reference": "Paris", **known},
        }
        return _scores(reward.evaluate(DataSample.model_validate(row)))[0]

    assert score({}, prompt=prompt) == (0.0 if opens else 1.0)
    for fact in (opens, str(opens), int(opens)):
        wanted = 0.0 if opens else 1.0
        assert score({}, thought_opened=fact) == score({"thought_opened": fact}) == wanted
        assert score({"label": {"thought_opened": fact}}) == wanted
    assert score({"reasoning_content": "hm"}, thought_opened=True) == 1.0
    assert score({}, thought_opened="perhaps") is None


BROKEN = (
    "<score 7", "<score>7", "7</score>", "<score=7>", "<score: 7>", "<score>7<score>", "<score>7</scor", "[score]7[/score]", '{"score": 7',
    "&lt;score&gt;7&lt;/score&gt;", "<final_score>7", "score>7</score>", "<score>7/10",
)  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_a_second_verdict_in_a_broken_tag_is_a_second_verdict(broken: str) -> None:
    sample = make_sample("a")

    def scored(reply: str) -> float | None:
        judge = FakeLLM(reply=reply)
        reward = RewardRegistry.create("base_helpfulness_pointwise", llm=judge, repair_attempts=0)
        return _scores(reward.evaluate(sample.model_copy(deep=True)))[0]

    whole = "<reason>ok</reason>\n<score>3</score>"
    for reply in (
        f"{whole}\n{broken}",
        f"{whole} and then {broken}",
        f"{broken}\n<score>3</score>",
    ):
        assert scored(reply) is None, reply
    assert scored(f"{whole}\n{broken.replace('7', '3')}") in (3.0, None)
    assert scored(f"<reason>It says {broken} there.</reason>\n<score>3</score>") == 3.0
