"""What every rule reward with a reference keeps to: a reference equals itself, however it is
stated, and nothing else.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rm_gallery import BaseReward, RewardRegistry
from rm_gallery.core.reward.rule import RuleReward
from rm_gallery.core.utils.errors import MissingExtra
from tests.golden.golden import Line
from tests.golden.test_rules import outcome, rows, rules, text_of
from tests.support.samples import make_sample


class Case(NamedTuple):
    """A reference and a text that states clearly something else."""

    reference: str
    other: str
    metadata: dict[str, Any] = {}


GIVEN = json.loads((Path(__file__).parent / "references.json").read_text(encoding="utf-8"))
FORMS: list[str] = GIVEN["forms"]
CASES = {
    name: [Case(*case) for family in families for case in GIVEN["families"][family]]
    for name, families in GIVEN["rules"].items()
}
SIMILARITIES = frozenset({"f1_score", "rouge", "bleu", "chrf", "code_patch_similarity"})
""""Clearly different" is a little alike for these."""
STATED = ("math_verify_reward", "tolerance_number_match", "multiple_choice_letter", "choice_match")
NOT_ANSWERS = frozenset(
    {"code", "llm", "embeddings", "tests", "calls", "database", "group", "sources"}
)


def _scores(name: str, answers: list[tuple[str, Case]]) -> list[float | None]:
    reward: BaseReward = RewardRegistry.create(name)
    try:
        reward.check()
    except MissingExtra as error:
        pytest.skip(str(error))
    samples = [
        make_sample(
            answer, unique_id=str(index), metadata={"reference": case.reference, **case.metadata}
        )
        for index, (answer, case) in enumerate(answers)
    ]
    found = [sample.output[0].answer.reward.details for sample in reward.evaluate_batch(samples)]
    return [details[0].score if details else None for details in found]


def _own(name: str, text: str) -> str:
    forms = {
        "boxed_answer": r"\boxed{%s}",
        "search_answer": "<answer>%s</answer>",
        "calibrated_math": r"\boxed{%s} <confidence>1</confidence>",
    }
    return forms.get(name, "%s") % text


def test_every_rule_reward_with_a_reference_is_here() -> None:
    classes = {name: RewardRegistry.get(name) for name in RewardRegistry.list()}
    wanted = {
        name
        for name, found in classes.items()
        if issubclass(found, RuleReward)
        and found.__module__.startswith("rm_gallery.")  # not one that a page of the docs registers
        and "reference" in found.needs
        and not found.needs & NOT_ANSWERS
    }
    assert wanted - set(CASES) == set()


@pytest.mark.parametrize("name", CASES)
def test_a_reference_equals_itself_and_nothing_else(name: str) -> None:
    cases = CASES[name]
    same = _scores(name, [(_own(name, case.reference), case) for case in cases])
    assert [
        case for case, score in zip(cases, same, strict=True) if score is not None and score < 0.999
    ] == []
    assert sum(score is None for score in same) <= 0.05 * len(cases)
    other = _scores(name, [(_own(name, case.other), case) for case in cases])
    limit = 0.3 if name in SIMILARITIES else 0.0
    assert [
        case
        for case, score in zip(cases, other, strict=True)
        if score is not None and score > limit
    ] == []


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"tool_call_match"}))
def test_one_of_several_references_is_enough(name: str) -> None:
    cases = CASES[name][:10]
    alone = [(_own(name, case.reference), case) for case in cases]
    beside = [
        (text, case._replace(metadata={**case.metadata, "reference": [case.other, case.reference]}))
        for text, case in alone
    ]
    found = zip(cases, _scores(name, alone), _scores(name, beside), strict=True)
    assert [
        case for case, one, two in found if one is not None and (two is None or two < one)
    ] == []


def _state(form: str, text: str) -> str:
    return form.format(text.replace("\\", r"\\") if '"answer"' in form else text)


@pytest.mark.long("much work")
@pytest.mark.parametrize("name", STATED)
def test_how_an_answer_is_stated_does_not_change_its_score(name: str) -> None:
    cases = random.Random(3).sample(CASES[name], min(len(CASES[name]), 25))
    for text, expected in (("reference", 1.0), ("other", 0.0)):
        stated = [(_state(form, getattr(case, text)), case) for case in cases for form in FORMS]
        found = zip(stated, _scores(name, stated), strict=True)
        assert [(answer, case) for (answer, case), score in found if score != expected] == []


THOUGHTS_COUNT, LENGTHS_COUNT = set(GIVEN["thoughts_count"]), set(GIVEN["lengths_count"])
"""Rules that look at the whole answer, its thought included; and to which a line end of two
characters is longer than of one.
"""
QUICK = sorted(
    rules().keys()
    - {
        "code_execution",
        "code_unit_tests",
        "math_verify_reward",
        "calibrated_math",
        "sql_result_equality",
    }
)


def _lines(name: str) -> list[Line]:
    """Some of a rule's golden lines that give a text and get a score; those with line ends and
    several references first.

    What takes long is left to its own line: a worker that has done it once is quicker the second
    time.
    """
    scored = [
        {**line, "answer": text_of(line["answer"]), "tell": False}
        for line in rows(name)
        if "score" in line
    ]
    texts = [
        line
        for line in scored
        if isinstance(line["answer"], str) and "timeout" not in line.get("params", {})
    ]
    return sorted(
        texts,
        key=lambda line: ("\n" not in line["answer"]) + isinstance(line.get("reference"), str),
    )[:40]


def _changed(name: str, change: Any) -> list[Line]:
    """The golden lines that score otherwise when they are changed so."""
    return [
        line
        for line in _lines(name)
        if outcome(name, change(line)).get("score") != pytest.approx(line["score"])
    ]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    for reward in rules().values():
        monkeypatch.setattr(reward, "cpu_bound", False)


@pytest.mark.parametrize("name", QUICK)
def test_a_thought_is_no_part_of_the_answer_unless_the_rule_says_so(name: str) -> None:
    changed = _changed(
        name,
        lambda line: {**line, "answer": f"<think>zebra@zoo.cn 777, H.</think>{line['answer']}"},
    )
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
        return (
            {**line, "reference": line["reference"][::-1]}
            if isinstance(line.get("reference"), list)
            else line
        )

    assert name == "tool_call_match" or _changed(name, turned) == []
