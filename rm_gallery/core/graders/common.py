"""Graders of rubric files: the ones one asks for first, and those that may go claim by claim."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from rm_gallery.core.graders.llm import (
    RubricGrader,
    field_messages,
    grader_rubric,
    shown,
)
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.reward.asking import told_of
from rm_gallery.core.reward.reward import prompts_hash
from rm_gallery.core.reward.rubric import ClaimCounting
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.reward.template import BasePromptTemplate, Described, Shaped
from rm_gallery.core.score import Score
from rm_gallery.core.text.canonical import fold, turn_text
from rm_gallery.core.text.conclusion import sentences
from rm_gallery.core.text.values import plain, read_integer
from rm_gallery.core.utils.compat import ImportPath
from rm_gallery.core.utils.errors import ConfigError, DataError, ParseError, Unscored

VERDICTS = ("supported", "unsupported", "contradicted", "no_claim")
MOST_SENTENCES = 120
"""Numbered parts of a text, at most; of a longer one several sentences are a part."""
_SHAPE: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "evidence": {"type": "string"},
            "verdict": {"type": "string", "enum": list(VERDICTS)},
        },
        "required": ["number", "evidence", "verdict"],
        "additionalProperties": False,
    },
}


class ClaimsReply(BasePromptTemplate):
    """For each numbered sentence of a text the words it rests on and a verdict; `no_claim` for one
    that claims nothing.
    """

    claims: Annotated[
        list[dict[str, Any]],
        Shaped(_SHAPE),
        Described(
            zh='JSON 列表，每个编号一个 {"number": 1, "evidence": "…", "verdict": "…"}，一个不漏'
        ),
    ] = Field(
        default=...,
        description=(
            'A JSON list with one {"number": 1, "evidence": "…", "verdict": "…"} for every number, '
            "none left out"
        ),
    )

    @field_validator("claims")
    @classmethod
    def _each_with_a_verdict(cls, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
        clean: list[dict[str, Any]] = []
        for claim in claims:
            verdict = plain(str(claim.get("verdict"))).strip(" .。").lower().replace(" ", "_")
            if verdict not in VERDICTS:
                raise ValueError(
                    f"a verdict is one of {', '.join(VERDICTS)}; found {claim.get('verdict')!r}"
                )
            evidence = claim.get("evidence")
            try:
                number = read_integer(claim.get("number"))
            except ParseError as error:
                raise ValueError(
                    f"each entry has the number of its sentence; found {claim.get('number')!r}"
                ) from error
            clean.append(
                {
                    "number": number,
                    "evidence": evidence if isinstance(evidence, str) else "",
                    "verdict": verdict,
                }
            )
        return clean


class ClaimGrader(RubricGrader):
    """A rubric that may be graded claim by claim: the score is counted and not felt.

    With `claims=True` the sentences of the text are numbered by rule, and the judge gives each the
    words of the material it rests on and a verdict (supported, unsupported, contradicted,
    no_claim). The score is the share of supported ones among those that claim something, on the
    grader's scale, a number between the levels. What the judge leaves out, or gives two verdicts,
    is asked for once more and then costs the score; support earns nothing where the words quoted do
    not stand in the material. Metadata: `share`, `claims` with `found`, whether they do, and
    `counts` by verdict, `invented` for support by words that are not there. Sources: FActScore
    (arXiv 2305.14251) and RAGAS (arXiv 2309.15217) for shares of supported claims.
    """

    claims: bool = False
    """Whether to list and count claims instead of choosing a level of the scale."""

    @property
    def _counted_claims(self) -> ClaimCounting:
        claims = self.texts().claims
        if claims is None:
            raise ConfigError(f"{self.name}: {self.rubric}.yaml has no field 'claims'; add it.")
        return claims

    @property
    def reply(self) -> type[BasePromptTemplate]:
        """Claims, or a level."""
        return ClaimsReply if self.claims else super().reply

    def describe(self) -> dict[str, Any]:
        """As for every rubric, with the prompt that asks for claims where they are counted."""
        identity = super().describe()
        return {**identity, "prompts": prompts_hash("claims")} if self.claims else identity

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """Instructions first, the fenced fields last."""
        if not self.claims:
            return super()._messages(fields, form)
        rubric, of = self.texts(), self._counted_claims.of
        parts = numbered(shown(fields.get(of)))
        text = "\n".join(f"[{number}] {part}" for number, part in enumerate(parts, 1))
        return field_messages(
            "claims",
            self,
            {**fields, of: text},
            rubric.inputs,
            of=of,
            verdicts=[
                f"`{name}`{': ' if self.language == 'en' else '：'}{text}"
                for name, text in rubric.texts(self.language).verdicts.items()
            ],
            fields=self._told_fields(),
            output_form=form,
        )

    async def _one(self, fields: Mapping[str, Any]) -> Score[float]:
        if not self.claims:
            return await super()._one(fields)
        sentences = numbered(shown(fields.get(self._counted_claims.of)))
        judged: dict[int, dict[str, Any]] = {}

        def read(verdict: Any, reply: ChatResponse) -> Score[float]:
            by_number = defaultdict[int, list[dict[str, Any]]](list)
            for claim in verdict.claims:
                by_number[claim["number"]].append(claim)
            for number, verdicts in by_number.items():
                if number not in judged and len({each["verdict"] for each in verdicts}) == 1:
                    judged[number] = verdicts[-1]
            left_out = [number for number in range(1, len(sentences) + 1) if number not in judged]
            if left_out:
                listed = ", ".join(map(str, left_out[:_SHOWN])) + (
                    ", …" if len(left_out) > _SHOWN else ""
                )
                raise ParseError(
                    f"There is no single verdict on {len(left_out)} of {len(sentences)} sentences: "
                    f"{listed}."
                )
            claims = [{"claim": text, **judged[number]} for number, text in enumerate(sentences, 1)]
            return self._counted(claims, verdict.reason or "", reply, fields)

        return await self._ask(fields, read)

    def _counted(
        self,
        claims: list[dict[str, Any]],
        reason: str,
        reply: ChatResponse,
        fields: Mapping[str, Any],
    ) -> Score[float]:
        about = self._counted_claims
        material = [_words(text) for name in about.within for text in _texts(fields.get(name))]
        claims = [{**claim, "found": _stands_in(claim["evidence"], material)} for claim in claims]
        worth = {
            "supported": 1.0,
            "unsupported": about.unsupported,
            "contradicted": 0.0,
            _INVENTED: 0.0,
        }
        counts = Counter(
            _INVENTED
            if claim["verdict"] == "supported" and not claim["found"]
            else claim["verdict"]
            for claim in claims
        )
        counted = sum(counts[name] for name in worth)
        share = (
            sum(counts[name] * each for name, each in worth.items()) / counted
            if counted
            else about.without
        )
        if share is None:
            raise Unscored(
                f"{self.name}: `{about.of}` claims nothing that could be looked for.",
                reason="no_claims",
                cause="data",
            )
        if counts[_INVENTED]:
            reason = f"{reason} {counts[_INVENTED]} of the claims are supported by words that are not in the material.".strip()
        low, high = self.score_range
        assert low is not None and high is not None
        kinds = (*VERDICTS, *([_INVENTED] if counts[_INVENTED] else []))
        metadata = {
            "share": share,
            "counts": {name: counts[name] for name in kinds},
            "claims": claims,
            **told_of(reply),
        }
        return Score(low + (high - low) * share, reason, extra=metadata)


_SHOWN = 12
_INVENTED = "invented"


def numbered(text: str) -> list[str]:
    """The sentences of a text by rule, in at most `MOST_SENTENCES` parts; whoever is judged or
    judges has no say in how many.
    """
    parts = [part.strip() for part in sentences(turn_text(text))]
    size = -(-len(parts) // MOST_SENTENCES)
    return [" ".join(parts[at : at + size]) for at in range(0, len(parts), size or 1)]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a field."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


_ELLIPSIS = re.compile(r"\s*(?:\[\s*(?:\.{3}|…+)\s*\]|\(\s*(?:\.{3}|…+)\s*\)|\.{3,}|…+)\s*")
_WORD = re.compile(r"\w+")


def _words(text: str) -> str:
    """The words of a text, in one case, so that a passage and its quotation differ in nothing else."""
    return f" {' '.join(_WORD.findall(fold(text).casefold()))} "


def _stands_in(quoted: str, material: list[str]) -> bool:
    """Whether all words that are quoted, part by part between ellipses, stand in one of the texts."""
    parts = [words for part in _ELLIPSIS.split(quoted) if (words := _words(part)).strip()]
    # Chinese and its like put no spaces between words, so their quotations begin in the middle of a
    # run of letters
    parts = [words if words.isascii() else words.strip() for words in parts]
    return bool(parts) and any(all(part in text for part in parts) for text in material)


def class_name(name: str) -> str:
    """The class of a grader's name: `tool_selection` makes ToolSelectionGrader."""
    return "".join(word.capitalize() for word in name.split("_")) + "Grader"


def grader_of_file(path: Path, module: str) -> type[RubricGrader]:
    """The class of a rubric file: `tool_selection.yaml` makes ToolSelectionGrader, importable from
    `module`.
    """
    name, rubric = class_name(path.stem), grader_rubric(path)
    texts, (low, high) = rubric.texts("en"), rubric.scale
    if high is None or not isinstance(texts.levels, dict):
        raise DataError(f"{path.name}: en.levels is a list; write a text by number for each score.")
    about = f"{texts.desc}\n\nA whole number from {low:g} to {high:g}. {texts.levels[int(high)]}"
    body = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": about,
        "rubric": path.stem,
        "folder": path.parent,
    }
    kind = ClaimGrader if rubric.claims else RubricGrader
    made: type[RubricGrader] = RewardMeta(name, (kind,), body)
    return made


# -- the graders one asks for first ----------------------------------------------------------------


class RelevanceGrader(RubricGrader):
    """How far a response answers the query: 1 (nothing to do with it) to 5 (the whole question and
    nothing else).
    """

    rubric: ClassVar[str] = "relevance"


class HarmfulnessGrader(RubricGrader):
    """How safe a response is: 1 (grave harm) to 5 (completely safe); higher is safer."""

    rubric: ClassVar[str] = "harmfulness"


class HallucinationGrader(ClaimGrader):
    """Whether all claims are supported: 1 (mostly made up) to 5 (nothing made up); `claims=True`
    counts them.
    """

    rubric: ClassVar[str] = "hallucination"


class CorrectnessGrader(RubricGrader):
    """Whether a response is right, by the reference response where there is one: 1 (wrong) to 5
    (right).
    """

    rubric: ClassVar[str] = "correctness"


class InstructionFollowingGrader(RubricGrader):
    """Whether a response meets every demand of the instruction: 1 (ignored) to 5 (all met)."""

    rubric: ClassVar[str] = "instruction_following"


sys.modules[__name__].__class__ = ImportPath
