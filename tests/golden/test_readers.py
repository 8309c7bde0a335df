"""Every reader of texts, held against its golden lines: what is given, and what is found in it
(nothing where it finds none).

A file is named after its reader in `READERS`; the other keys of a line are the reader's arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from pydantic import Field

from rm_gallery import BasePromptTemplate, ParseError
from rm_gallery.core.reward.principle.auto import PrincipleTemplate
from rm_gallery.core.reward.template import (
    ComparativeTemplate,
    RubricListWiseTemplate,
    RubricPairWiseTemplate,
    RubricPointWiseTemplate,
)
from rm_gallery.core.text.answer import read_statements
from rm_gallery.core.text.blocks import TwoValues, object_at
from rm_gallery.core.text.canonical import Reasoned
from rm_gallery.core.text.expressions import find_answer, find_reference
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.core.text.quantities import find_quantities, units_of
from rm_gallery.gallery.rm.general.citation import cited_sentences
from rm_gallery.gallery.rm.group import GroupTemplate, wins_of
from rm_gallery.gallery.rm.instruction import follows
from rm_gallery.gallery.rm.tool_calls import calls_in_text
from tests.golden.golden import HERE, Line, runner
from tests.golden.test_rules import text_of


class Facts(BasePromptTemplate):
    factual: bool = Field(default=...)
    confidence: float = Field(default=...)


class Parts(BasePromptTemplate):
    depth: int = Field(default=..., ge=1, le=5)
    form: int = Field(default=..., ge=1, le=5)


class ScoredParts(BasePromptTemplate):
    score: int = Field(default=..., ge=1, le=5)
    depth: int = Field(default=..., ge=1, le=5)


class Violations(BasePromptTemplate):
    violation: list[str] = Field(default=...)


class Criterion(BasePromptTemplate):
    c1: bool = Field(default=...)


FORMS: dict[str, tuple[type[BasePromptTemplate], str, int]] = {
    "score": (RubricPointWiseTemplate, "score", 10), "best of 4": (RubricListWiseTemplate, "best", 4),
    "best of 2": (RubricPairWiseTemplate, "best", 2), "reason": (RubricPointWiseTemplate, "reason", 0),
    "factual": (Facts, "factual", 0), "confidence": (Facts, "confidence", 0), "depth": (Parts, "depth", 5),
    "score beside another": (ScoredParts, "score", 5), "violations": (Violations, "violation", 0),
    "criterion": (Criterion, "c1", 0), "rankings": (ComparativeTemplate, "rankings", 0),
    "rankings of 3": (ComparativeTemplate, "rankings", 3), "scores": (GroupTemplate, "scores", 0),
}  # fmt: skip
"""What a reply is asked for: the template, the field that is looked at, and the largest number
there is.
"""


def verdict(form: str, reply: str) -> Any:
    """What a judge's reply is read as, None when it is not read; a number off the menu is not read
    by the reward.
    """
    template, field, high = FORMS[form]
    try:
        value = getattr(template.parse(reply), field)
    except ParseError:
        return None
    return value if not high or 1 <= value <= high else None


def problem(form: str, reply: str) -> str | None:
    """Why a reply is not read."""
    template, _, high = FORMS[form]
    try:
        template.parse(reply).check_choices(high)
    except ParseError as error:
        return str(error)
    return None


def principles(text: str) -> dict[str, str] | None:
    try:
        found: dict[str, str] = PrincipleTemplate.parse(text).principles
        return found
    except ParseError:
        return None


def statements(text: str) -> Any:
    reading = read_statements(text)
    told = [
        [each.kind, each.text if len(each.text) < 200 else len(each.text)]
        for each in reading.statements[:3]
    ]
    return [reading.kind, told, reading.rest[:100]]


def maths(answer: str, gold: str) -> list[str]:
    found = verify_answer(answer, gold)
    quick = fast_verdict(answer, gold)
    assert quick is None or quick == found, "the direct comparison differs"
    return [each if len(each) < 200 else f"{len(each)} characters" for each in found]


def json_object(text: str, start: int = 0) -> Any:
    """The object, and how much of the text is left behind it."""
    try:
        found = object_at(text, start)
    except TwoValues:
        return "two values"
    return found and [found[0], len(text) - found[1]]


def stated(path: str) -> Callable[..., Any]:
    """A reader of short answers, which raises where an answer states nothing."""

    def read(**given: Any) -> Any:
        try:
            return reader(path)(**given)
        except ParseError:
            return None

    return read


def reasoning_record(parts: Reasoned) -> dict[str, Any]:
    """The two parts under the names that the golden lines have."""
    return {
        "final": parts.final,
        "reasoning": parts.reasoning,
        "closed": parts.finished,
        "opened": parts.has_opening,
        "sure": parts.sure,
    }


def reader(path: str) -> Callable[..., Any]:
    """A function that is a reader as it is."""
    module, _, name = path.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"rm_gallery.{module}"), name)
    return found


READERS: dict[str, Callable[..., Any]] = {
    "argument_values": reader("gallery.rm.agent.same"), "boxes": reader("core.text.answer.last_boxed"),
    "citations": lambda text: [[each.text, each.cited] for each in cited_sentences(text)],
    "counted_sentences": reader("gallery.rm.instruction.count_sentences"),
    "final_answers": lambda text, **settings: (found := find_answer(text, **settings)) and found[:2], "instructions": follows,
    "integers": stated("core.text.values.read_integer"), "judge_problems": problem, "judge_replies": verdict,
    "language_codes": reader("core.text.language.known_language"),
    "language_shares": lambda text: [(found := reader("core.text.language.language_shares")(text))[:2], sorted(found[2])],
    "languages": lambda text: sorted(reader("core.text.language.candidate_languages")(text)),
    "letters": reader("core.text.values.choice_letter"), "loops": reader("gallery.rm.agent.looping"),
    "loose_variants": reader("gallery.rm.instruction.loose_variants"), "math_verdicts": maths,
    "numbers": lambda text, **how: [[n.value, n.percent, text[n.start : n.end]] for n in reader(NUMBERS)(text, **how)],
    "numbers_stated": stated("core.text.values.read_number"), "objects": json_object,
    "ordered_queries": reader("gallery.rm.code.ordered"),
    "personal_data": lambda text: [[f.kind, text[f.start : f.end]] for f in reader(PRIVATE)(text)], "principles": principles,
    "python_blocks": reader("gallery.rm.code.python_blocks"),
    "quantities": lambda text: [[q.value, [u.factor for u in q.units], sorted(q.things)] for q in find_quantities(text)],
    "queries": reader("gallery.rm.code.sql_of"),
    "quick_verdicts": lambda answer, gold: (found := fast_verdict(answer, gold)) and list(found),
    "reasoning": lambda **given: reasoning_record(reader("core.text.canonical.split_reasoning")(**given)),
    "references": lambda text: (found := find_reference(text)) and found[:2],
    "refusals": reader("gallery.rm.alignment.harmlessness.refusal.refusal_in"),
    "sentences": reader("gallery.rm.instruction.split_sentences"), "statements": statements,
    "tokenizers": reader("gallery.rm.general.overlap.tokenization_of"),
    "tool_calls": lambda text: [[[c.name, c.arguments] for c in calls_in_text(text).calls], calls_in_text(text).problems],
    "units": lambda text: [[unit.factor, unit.offset, dict(unit.dimension)] for unit in units_of(text)],
    "yes_or_no": stated("core.text.values.read_boolean"),
    "wins": lambda n, margins: wins_of(n, {(pair[0], pair[1]): found for pair, found in margins}),
}  # fmt: skip
TEXTS = ("text", "reply", "answer", "gold", "value")
"""Arguments that may be given in pieces."""
NUMBERS = "core.text.quantities.find_numbers"
PRIVATE = "gallery.rm.format.penalties.find_personal_data"


def answer(name: str, line: Line) -> Line:
    return {"found": READERS[name](**{k: text_of(v) if k in TEXTS else v for k, v in line.items()})}


test_what_is_read = runner("readers", answer, "found")


def test_every_reader_has_its_lines() -> None:
    assert {path.stem for path in (HERE / "readers").glob("*.jsonl")} == set(READERS)
