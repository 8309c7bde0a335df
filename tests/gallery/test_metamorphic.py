"""What every rule reward with a reference keeps to: a reference equals itself, however it is stated, and nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.rm.rule import RuleReward
from tests.golden.golden import Line
from tests.golden.test_rules import outcome, rows, rules, text_of

FORMS = """
The answer is {}.
the answer is: {}
So the answer is **{}**.
Therefore, the final answer is {}
Answer: {}
**Answer:** {}
**Final Answer**\\n\\n{}
## Answer\\n{}
#### {}
\\boxed{{{}}}
We get $\\boxed{{{}}}$.
<answer>{}</answer>
<think>It may be 777 or H.</think>\\n<answer>\\n{}\\n</answer>
<thinking>The answer is 777.</thinking>The answer is {}.
[THINK]\\boxed{{777}}[/THINK]Answer: {}
{{"answer": "{}"}}
```json\\n{{"reasoning": "777 is wrong", "answer": "{}"}}\\n```
The answer is not 777. The answer is {}.
The answer is 777. Wait, no: the answer is {}.
The answer is {}.\\n\\nExplanation: a common wrong answer is 777.
The wrong answer is 777. The correct answer is {}.
One might think the answer is 777, but the answer is {}.
答案是{}。
答案：{}
Die Antwort ist {}.
La réponse est {}.
La respuesta es {}.
Ответ: {}
答えは{}です。
정답은 {}입니다.
The answer is {}.\\r\\n\\r\\nThat is all.\\r\\n
  The answer is   {} .
""".strip().splitlines()


class Case(NamedTuple):
    """A reference and a text that states clearly something else."""

    reference: str
    other: str
    metadata: dict[str, Any] = {}


def _numbers() -> Iterator[Case]:
    rng = random.Random(7)
    for _ in range(40):
        whole, part = rng.randint(2, 99_999), rng.randint(1, 99)
        yield Case(str(whole), str(whole * 2 + 1))
        yield Case(str(-whole), str(whole))
        yield Case(f"{whole + 1000:,}", str(whole))
        yield Case(f"{whole}.{part:02}", f"{whole + whole // 9 + 1}.{part:02}")
        yield Case(f"{part}e-{rng.randint(5, 30)}", f"{part + 1}e-{rng.randint(31, 40)}")
    yield from (Case("0", "1"), Case("1e300", "1e299"), Case("6.6e-34", "1.6e-19"))


def _exact_numbers() -> Iterator[Case]:
    yield from _numbers()
    yield from (Case("1000001", "1000000"), Case("17", "18"), Case("3.14159", "3.14"), Case("0.00001", "0.000011"))


def _maths() -> Iterator[Case]:
    yield from _exact_numbers()
    rng = random.Random(8)
    for _ in range(12):
        a, b = rng.randint(1, 40), rng.randint(2, 41)
        yield Case(f"{a}/{b}", f"{a + b}/{b}")
        yield Case(rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{a}}}{{{b + 1}}}")
        yield Case(rf"{a}\sqrt{{{b * b + 1}}}", rf"{a}\sqrt{{{b * b + 2}}}")
        yield Case(f"({a}, {b})", f"({a}, {b + 1})")
        yield Case(rf"\{{{a}, {a + b}\}}", rf"\{{{a}, {a + b + 1}\}}")
        yield Case(f"{b}x^2 + {a}", f"{b}x^2 - {a}")
        yield Case(f"{a}%", f"{a + 1}%")
        yield Case(rf"{b}\pi", rf"{b + 1}\pi")
        yield Case(rf"[{a}, {a + b})", rf"[{a}, {a + b}]")
        yield Case(f"x = {a}", f"x = {a + 1}")
    yield from (
        Case("2024-05-01", "2024-04-02"),
        Case("3:30", "3:45"),
        Case(r"\infty", "0"),
        Case(r"\text{Monday}", "Sunday"),
    )


def _quantities() -> Iterator[Case]:
    yield from _numbers()
    units = "km m cm mm kg g mg s min hours days V mV A mA W kW J kJ eV N Pa bar mol GB MB °C K m/s km/h m/s^2 m² ft lb USD apples % Ω"
    rng = random.Random(9)
    for unit, other in zip(units.split(), [*units.split()[1:], "km"], strict=True):
        for _ in range(3):
            size = rng.randint(11, 98)
            yield Case(f"{size} {unit}", f"{size} {other}")
            yield Case(f"{size}.5 {unit}", f"{size + 1}.5 {unit}")
    yield from (Case("3/4", "3"), Case("$5", "€5"), Case("5 ft 3 in", "5 ft 4 in"), Case("2024-05-01", "2024-05-02"))


def _letters() -> Iterator[Case]:
    for index, letter in enumerate("ABCDEFGHJ"):
        other = "ABCDEFGHJ"[(index + 4) % 9]
        yield from (Case(letter, other), Case(f"({letter})", f"({other})"), Case(f"{letter}. Paris", f"{other}. Rome"))


def _choices() -> Iterator[Case]:
    for choices in (
        ["positive", "negative"],
        ["very good", "good", "bad"],
        ["正面", "负面"],
        ["yes", "no"],
        ["U.S.", "U.K."],
    ):
        for choice, other in zip(choices, [*choices[1:], choices[0]], strict=True):
            yield Case(choice, other, {"choices": choices})


def _texts() -> Iterator[Case]:
    yield from (
        Case("the cat sat on the mat today", "buy cheap stocks"),
        Case("猫坐在垫子上睡觉了", "股票价格"),
        Case("42 is it now or then", "seven"),
    )


def _patches() -> Iterator[Case]:
    for name in ("alpha", "beta", "gamma"):
        patch = f"--- a/{name}.py\n+++ b/{name}.py\n@@ -1 +1 @@\n-return {name}\n+return {name} + 1\n"
        yield Case(patch, "0123456789 " * 12)


def _queries() -> Iterator[Case]:
    schema = {"schema": "CREATE TABLE t (x INTEGER); INSERT INTO t VALUES (1), (2), (3);"}
    yield from (Case(f"SELECT x FROM t WHERE x > {low}", "SELECT x + 7 FROM t", schema) for low in (0, 1, 2))


def _calls() -> Iterator[Case]:
    for city in ("Oslo", "北京", "Rome"):
        yield Case(
            f'[{{"name": "weather", "arguments": {{"city": "{city}", "days": 3}}}}]',
            f'[{{"name": "weather", "arguments": {{"city": "{city}", "days": 4}}}}]',
        )


CASES = {
    "accuracy": _texts,
    "f1_score": _texts,
    "rouge": _texts,
    "bleu": _texts,
    "chrf": _texts,
    "boxed_answer": _maths,
    "math_verify_reward": _maths,
    "number_accuracy": _exact_numbers,
    "tolerance_number_match": _quantities,
    "multiple_choice_letter": _letters,
    "choice_match": _choices,
    "code_patch_similarity": _patches,
    "sql_result_equality": _queries,
    "tool_call_match": _calls,
    "cosine_length_scaling": _texts,
}
SIMILARITIES = frozenset({"f1_score", "rouge", "bleu", "chrf", "code_patch_similarity"})
""""Clearly different" is a little alike for these."""
STATED = ("math_verify_reward", "tolerance_number_match", "multiple_choice_letter", "choice_match")
NOT_ANSWERS = frozenset({"code", "llm", "embeddings", "tests", "calls", "database", "group", "sources"})


def _scores(name: str, answers: list[tuple[str, Case]]) -> list[float | None]:
    reward: BaseReward = RewardRegistry.create(name)
    try:
        reward.check()
    except MissingExtra as error:
        pytest.skip(str(error))
    samples = [
        DataSample(
            unique_id=str(index),
            input=[],
            output=[DataOutput(answer=Step(role=MessageRole.ASSISTANT, content=answer))],
            metadata={"reference": case.reference, **case.metadata},
        )
        for index, (answer, case) in enumerate(answers)
    ]
    found = [sample.output[0].answer.reward.details for sample in reward.evaluate_batch(samples)]
    return [details[0].score if details else None for details in found]


def _own(name: str, text: str) -> str:
    return rf"\boxed{{{text}}}" if name == "boxed_answer" else text


def test_every_rule_reward_with_a_reference_is_here() -> None:
    classes = {name: RewardRegistry.get(name) for name in RewardRegistry.list()}
    wanted = {
        name
        for name, found in classes.items()
        if issubclass(found, RuleReward) and "reference" in found.needs and not found.needs & NOT_ANSWERS
    }
    assert wanted - set(CASES) == set()


@pytest.mark.parametrize("name", CASES)
def test_a_reference_equals_itself_and_nothing_else(name: str) -> None:
    cases = list(CASES[name]())
    same = _scores(name, [(_own(name, case.reference), case) for case in cases])
    assert [case for case, score in zip(cases, same, strict=True) if score is not None and score < 0.999] == []
    assert sum(score is None for score in same) <= 0.05 * len(cases)
    other = _scores(name, [(_own(name, case.other), case) for case in cases])
    limit = 0.3 if name in SIMILARITIES else 0.0
    assert [case for case, score in zip(cases, other, strict=True) if score is not None and score > limit] == []


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"tool_call_match"}))
def test_one_of_several_references_is_enough(name: str) -> None:
    cases = list(CASES[name]())[:10]
    alone = [(_own(name, case.reference), case) for case in cases]
    beside = [
        (text, case._replace(metadata={**case.metadata, "reference": [case.other, case.reference]}))
        for text, case in alone
    ]
    found = zip(cases, _scores(name, alone), _scores(name, beside), strict=True)
    assert [case for case, one, two in found if one is not None and (two is None or two < one)] == []


def _state(form: str, text: str) -> str:
    form = form.replace(r"\n", "\n").replace(r"\r", "\r")
    return form.format(text.replace("\\", r"\\") if '"answer"' in form else text)


@pytest.mark.parametrize("name", STATED)
def test_how_an_answer_is_stated_does_not_change_its_score(name: str) -> None:
    cases = list(CASES[name]())
    cases = random.Random(3).sample(cases, min(len(cases), 25))
    for text, expected in (("reference", 1.0), ("other", 0.0)):
        stated = [(_state(form, getattr(case, text)), case) for case in cases for form in FORMS]
        found = zip(stated, _scores(name, stated), strict=True)
        assert [(answer, case) for (answer, case), score in found if score != expected] == []


THOUGHTS_COUNT = frozenset(
    ["accuracy", "bleu", "chrf", "code_patch_similarity", "code_style", "code_syntax_check", "cosine_length_scaling"]
    + ["dapo_soft_overlong_punishment", "f1_score", "length_baseline", "length_penalty", "loop_detection"]
    + ["ngram_repetition_penalty", "privacy_leakage", "reasoning_format", "reasoning_tool_call_format", "regex_match"]
    + ["rouge", "think_format", "xml_tag_count"]
)
"""Rules that look at the whole answer, its thought included."""
LENGTHS_COUNT = frozenset(
    ["cosine_length_scaling", "dapo_soft_overlong_punishment", "length_baseline", "length_penalty"]
)
"""Rules to which a line end of two characters is longer than one of one."""
QUICK = sorted(rules().keys() - {"code_execution", "code_unit_tests", "math_verify_reward", "sql_result_equality"})


def _lines(name: str) -> list[Line]:
    """Some of a rule's golden lines that give a text and get a score; those with line ends and several references first."""
    scored = [{**line, "answer": text_of(line["answer"]), "tell": False} for line in rows(name) if "score" in line]
    texts = [line for line in scored if isinstance(line["answer"], str)]
    return sorted(texts, key=lambda line: ("\n" not in line["answer"]) + isinstance(line.get("reference"), str))[:40]


def _changed(name: str, change: Any) -> list[Line]:
    """The golden lines that score otherwise when they are changed so."""
    return [line for line in _lines(name) if outcome(name, change(line)).get("score") != pytest.approx(line["score"])]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    for reward in rules().values():
        monkeypatch.setattr(reward, "cpu_bound", False)


@pytest.mark.parametrize("name", QUICK)
def test_a_thought_is_no_part_of_the_answer_unless_the_rule_says_so(name: str) -> None:
    changed = _changed(name, lambda line: {**line, "answer": f"<think>zebra@zoo.cn 777, H.</think>{line['answer']}"})
    changed = [line for line in changed if not line.get("params", {}).get("include_thought")]
    assert bool(changed) is (name in THOUGHTS_COUNT), changed


@pytest.mark.parametrize("name", sorted(set(QUICK) - LENGTHS_COUNT))
def test_windows_line_ends_change_nothing(name: str) -> None:
    plain = re.compile(r"(?<!\r)\n")
    assert _changed(name, lambda line: {**line, "answer": plain.sub("\r\n", line["answer"])}) == []


@pytest.mark.parametrize("name", QUICK)
def test_an_answer_in_content_parts_is_the_same_answer(name: str) -> None:
    def parts(line: Line) -> Line:
        return {**line, "answer": {"content": [{"type": "text", "text": line["answer"]}]}}

    assert _changed(name, parts) == []


@pytest.mark.parametrize("name", QUICK)
def test_the_order_of_references_does_not_matter(name: str) -> None:
    def turned(line: Line) -> Line:
        return {**line, "reference": line["reference"][::-1]} if isinstance(line.get("reference"), list) else line

    assert name == "tool_call_match" or _changed(name, turned) == []
