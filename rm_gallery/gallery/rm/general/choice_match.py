"""Does the answer name the right one of several choices?"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import field_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.answer import LIMIT, final_text, read_statements, value_part
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, known, one_score, references_of, shown

_EDGES = " \t\n.,;:!?*_`\"'()[]{}。，；：！？“”‘’「」（）【】"
_LEAD = 200
_ASKED = re.compile(
    r"(?:^|(?<=[.!?\n]))[ \t]*(?:is|are|was|were|could|would|should|might|does|do|did)\b[^.!?\n]{0,200}\?",
    re.IGNORECASE | re.M,
)
_REASON = re.compile(r"\s(?:because|since|although|though|despite)\b|因为|尽管", re.IGNORECASE)
_NO_NOUN = re.compile(r"\s+(?!(?:because|since|as|it|he|she|they|i|we|you|this|that|the|there|and|but)\b)[a-z]", re.IGNORECASE)
_CONCLUDED = re.compile(
    r".*(?:,\s*(?:so|but|hence|thus|therefore|it['’]s|it\s+is|the\s+(?:overall\s+)?\w+\s+is)\b|\b(?:overall|so|therefore|hence|thus)\b[,:]?)((?:\s+[^\s.!?]+){1,8})[.!]?\Z",
    re.IGNORECASE,
)
"""The clause that draws the conclusion: "While it has negative words, the overall sentiment is positive"."""
_PART_END = re.compile(r"[.!?,:;。！？，：；\n]+")
_DENIED = re.compile(
    r"(?:\b(?:not|no(?!\s+(?:doubt|question))|hardly|scarcely|barely|far\s+from|anything\s+but|nowhere\s+near|doubt|не|never|neither|nor|without|rather\s+than|instead\s+of|nicht|kein\w*|pas|ni)|n['’]t)"
    r"(?:\s+(?!but\b)[\w'’]+){0,3}[\s\"'*(“]*\Z|(?:不是?|并?非|没有?|无)\Z",
    re.IGNORECASE,
)
_IS_WRONG = re.compile(
    r"[\s\"'*)”]*(?:(?:if|unless)\b|isn['’]t|(?:is|was|would\s+be|seems)\s+(?:wrong|incorrect|not)|是?(?:错|不对)|では(?:な|あり)|じゃ(?:な|あり)|[이가]\s?아니|[이가]\s?아닙|ではな)",
    re.IGNORECASE,
)


@RewardRegistry.register("choice_match")
class ChoiceMatchReward(RuleReward):
    """1 when the answer names the reference choice and no other, else 0.

    The choices are the field `choices`, else `choices` in answer.label or metadata; the reference is one of them. The
    first of these that names a choice decides: the whole answer, its final statement (an `<answer>` tag, a JSON answer, a
    box, "the answer is …" in eight languages), what the text begins with, its last line, all of it. Choices are found as
    whole words, the longer one where two overlap ("very good" is not "good"); one that is denied ("not positive") is not
    named; case does not count unless `case_sensitive`. A thought is left out. Range [0, 1], higher is better; unscored
    without choices (`no_choices`) or without a reference among them.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference", "choices"})

    name: str = "choice_match"
    choices: tuple[str, ...] | None = None
    case_sensitive: bool = False

    example = Example(
        sample_of(
            "Is the mood of the text positive, negative or neutral?",
            "The answer is negative.",
            "Partly positive, partly negative.",
            choices=["positive", "negative", "neutral"],
            reference="negative",
        )
    )

    @field_validator("choices")
    @classmethod
    def _are_choices(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and (len(value) < 2 or not all(choice.strip() for choice in value)):
            raise ConfigError("it holds at least two choices, none of them blank.")
        return value

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Find the choice and compare."""
        choices = self.choices if self.choices is not None else known(sample, "choices")
        if not isinstance(choices, list | tuple) or not choices:
            raise Unscored(f"{self.name} needs the choices: set the field choices or metadata['choices'].", reason="no_choices")
        names = tuple(_normal(str(choice), self.case_sensitive) for choice in choices)
        wanted = {_normal(text, self.case_sensitive) for text in references_of(sample, self.name)} & set(names)
        if not wanted:
            raise Unscored(f"{self.name}: the reference is none of the choices {shown(choices)}.", reason="no_reference")
        given = chosen(answer_text(sample), names, self.case_sensitive)
        reason = f"The answer names {shown(given)}." if given is not None else "The answer names no single choice."
        return one_score(self.name, float(given in wanted), reason)


def chosen(text: str, choices: tuple[str, ...], case_sensitive: bool = False) -> str | None:
    """The one of `choices` (in lower case unless `case_sensitive`) that a text names, else None."""

    def normal(part: str) -> str:
        return _normal(part, case_sensitive)

    def named(part: str) -> set[str]:
        part = normal(part)
        return {m.group() for m in _pattern(choices).finditer(part) if not _is_denied(part, m.start(), m.end())}

    reading = read_statements(final_text(text))
    if normal(reading.text) in choices:
        return normal(reading.text)
    for statement in reading.statements:
        if found := named(value_part(statement.text)) or named(statement.text):
            return found.pop() if len(found) == 1 else None
    rest = _ASKED.sub(" ", reading.rest).strip()
    end = rest[-LIMIT:]
    first, second, *_ = [*(part for part in map(normal, _PART_END.split(rest[:_LEAD], maxsplit=2)) if part), "", ""]
    last = end.rpartition("\n")[2]
    if (concluded := _CONCLUDED.match(last[-2 * _LEAD :])) and len(found := named(concluded[1])) == 1:
        return found.pop()
    if first in choices and second not in choices and normal(last) not in {*choices} - {first}:
        return first
    said = _REASON.split(last, maxsplit=1)[0]
    return next((found.pop() for found in map(named, (last, said, end)) if len(found) == 1), None)


def _is_denied(text: str, start: int, end: int) -> bool:
    if text[start:end].casefold() == "no" and _NO_NOUN.match(text, end):  # "no doubt", "no idea"
        return True
    return bool(_DENIED.search(text, max(0, start - 40), start) or _IS_WRONG.match(text, end))


def _normal(text: str, case_sensitive: bool) -> str:
    text = unicodedata.normalize("NFKC", text).replace("\r\n", "\n").strip(_EDGES)
    return text if case_sensitive else text.casefold()


@lru_cache(maxsize=256)
def _pattern(choices: tuple[str, ...]) -> re.Pattern[str]:
    ordered = sorted(set(choices), key=len, reverse=True)
    # Chinese has no spaces, so only Latin letters and digits can make a find a part of a longer word
    return re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(c)}(?![A-Za-z0-9])" for c in ordered if c) or r"(?!)")
