"""Graders of rubric files: the ones one asks for first, and those that may go claim by claim."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from rm_gallery.core.graders.base import GraderScore
from rm_gallery.core.graders.llm import RubricGrader, last_what_differs, rubric_texts, shown, told_fields, usage_of
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.reward.asking import parsed, told_of
from rm_gallery.core.reward.reward import prompts_hash
from rm_gallery.core.reward.schema import RewardMeta
from rm_gallery.core.reward.template import BasePromptTemplate, Described, Shaped, render
from rm_gallery.core.text.values import plain
from rm_gallery.core.utils.errors import Unscored

VERDICTS = ("supported", "unsupported", "contradicted", "no_claim")
_SHAPE: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "claim": {"type": "string"},
            "evidence": {"type": "string"},
            "verdict": {"type": "string", "enum": list(VERDICTS)},
        },
        "required": ["claim", "evidence", "verdict"],
        "additionalProperties": False,
    },
}


class ClaimsReply(BasePromptTemplate):
    """The claims of a text, each with the words it rests on and a verdict; `no_claim` for a sentence that claims nothing."""

    claims: Annotated[
        list[dict[str, Any]],
        Shaped(_SHAPE),
        Described(zh='JSON 列表，每项陈述一个 {"claim": "…", "evidence": "…", "verdict": "…"}，按文中顺序'),
    ] = Field(
        default=...,
        description='A JSON list with one {"claim": "…", "evidence": "…", "verdict": "…"} per claim, in the order of the text',
    )

    @field_validator("claims")
    @classmethod
    def _each_with_a_verdict(cls, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
        clean = []
        for claim in claims:
            said = plain(str(claim.get("verdict"))).strip(" .。").lower().replace(" ", "_")
            if said not in VERDICTS:
                raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}; found {claim.get('verdict')!r}")
            evidence = claim.get("evidence")
            texts = {"claim": str(claim.get("claim") or ""), "evidence": evidence if isinstance(evidence, str) else ""}
            clean.append({**texts, "verdict": said})
        if not clean:
            raise ValueError(f"no claim is listed; a sentence that claims nothing is listed as {VERDICTS[-1]}")
        return clean


class ClaimGrader(RubricGrader):
    """A rubric that may be graded claim by claim: the judge lists what a text claims, the score is counted and not felt.

    With `claims=True` the judge lists each claim with the words of the material it rests on and a verdict (supported,
    unsupported, contradicted), and the score is the share of supported claims on the grader's scale, a number between the
    levels. Metadata: `share`, `claims` with `found`, whether the words quoted stand in the material, and `counts` by verdict.
    Sources: FActScore (arXiv 2305.14251) and RAGAS (arXiv 2309.15217) for shares of supported claims.
    """

    claims: bool = False
    """Whether to list and count claims instead of choosing a level of the scale."""

    @property
    def reply(self) -> type[BasePromptTemplate]:
        """Claims, or a level."""
        return ClaimsReply if self.claims else super().reply

    def describe(self) -> dict[str, Any]:
        """As for every rubric, with the prompt that asks for claims where they are counted."""
        said = super().describe()
        return {**said, "prompts": prompts_hash("claims")} if self.claims else said

    def _messages(self, fields: Mapping[str, Any], form: str) -> list[dict[str, Any]]:
        """Instructions first, the fenced fields last."""
        if not self.claims:
            return super()._messages(fields, form)
        found = self.texts()
        return render(
            "claims",
            self.language,
            texts={name: shown(fields.get(name)) for name in last_what_differs(found["inputs"])},
            always=[name for name, required in found["inputs"].items() if required],
            desc=self.desc,
            scenario="",
            rubrics=list(self.rubrics),
            examples=[],
            of=found["claims"]["of"],
            verdicts=[
                f"`{name}`{': ' if self.language == 'en' else '：'}{text}"
                for name, text in found[self.language]["verdicts"].items()
            ],
            fields=told_fields(found["inputs"], self.language),
            output_form=form,
        )

    async def _one(self, fields: Mapping[str, Any]) -> GraderScore:
        if not self.claims:
            return await super()._one(fields)
        graded: GraderScore = await self._ask(fields, lambda reply: self._counted(reply, fields))
        return graded

    def _counted(self, reply: ChatResponse, fields: Mapping[str, Any]) -> GraderScore:
        said, about = parsed(self.reply, reply), self.texts()["claims"]
        material = [_folded(text) for name in about["within"] for text in _texts(fields.get(name))]
        claims = [{**claim, "found": _stands_in(claim["evidence"], material)} for claim in said.claims]
        counts = Counter(claim["verdict"] for claim in claims)
        worth = {"supported": 1.0, "unsupported": about.get("unsupported", 0.0), "contradicted": 0.0}
        counted = sum(counts[name] for name in worth)
        share = sum(counts[name] * each for name, each in worth.items()) / counted if counted else about["without"]
        if share is None:
            raise Unscored(
                f"{self.name}: `{about['of']}` claims nothing that could be looked for.", reason="no_claims", cause="data"
            )
        low, high = self.score_range
        assert low is not None and high is not None
        metadata = {"share": share, "counts": {name: counts[name] for name in VERDICTS}, "claims": claims, **told_of(reply)}
        score = low + (high - low) * share
        return GraderScore(score=score, reason=said.reason or "", metadata=metadata, usage=usage_of(reply), **self.about())


def _texts(value: Any) -> Iterator[str]:
    """Every text in a field."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)


_ELLIPSIS = re.compile(r"\s*(?:\[\s*(?:\.{3}|…+)\s*\]|\(\s*(?:\.{3}|…+)\s*\)|\.{3,}|…+)\s*")


def _folded(text: str) -> str:
    """A text without what differs between a passage and its quotation: case, white space, forms of quotes and dashes."""
    alike = text.translate(str.maketrans("“”„«»‘’‚–—", '"""""\'\'\'--'))
    return " ".join(alike.casefold().split())


def _stands_in(quoted: str, material: list[str]) -> bool:
    """Whether all that is quoted, part by part between ellipses, stands in one of the texts."""
    parts = [part.strip(" \"'") for part in _ELLIPSIS.split(_folded(quoted))]
    parts = [part for part in parts if part]
    return bool(parts) and any(all(part in text for part in parts) for text in material)


def grader_of_file(path: Path, module: str) -> type[RubricGrader]:
    """The class of a rubric file: `tool_selection.yaml` makes ToolSelectionGrader, importable from `module`."""
    name = "".join(word.capitalize() for word in path.stem.split("_")) + "Grader"
    texts = rubric_texts(path)
    low, high = texts["scale"]
    about = f"{texts['en']['desc']}\n\nA whole number from {low:g} to {high:g}. {texts['en']['levels'][high]}"
    body = {"__module__": module, "__qualname__": name, "__doc__": about, "rubric": path.stem, "folder": path.parent}
    kind = ClaimGrader if "claims" in texts else RubricGrader
    made: type[RubricGrader] = RewardMeta(name, (kind,), body)
    return made


# -- the graders one asks for first ---------------------------------------------------------------------------------------------


class RelevanceGrader(RubricGrader):
    """How far a response answers the query: 1 (nothing to do with it) to 5 (the whole question and nothing else)."""

    rubric: ClassVar[str] = "relevance"


class HarmfulnessGrader(RubricGrader):
    """How safe a response is: 1 (grave harm) to 5 (completely safe); higher is safer."""

    rubric: ClassVar[str] = "harmfulness"


class HallucinationGrader(ClaimGrader):
    """Whether all claims are supported: 1 (mostly made up) to 5 (nothing made up); `claims=True` counts them."""

    rubric: ClassVar[str] = "hallucination"


class CorrectnessGrader(RubricGrader):
    """Whether a response is right, by the reference response where there is one: 1 (wrong) to 5 (right)."""

    rubric: ClassVar[str] = "correctness"


class InstructionFollowingGrader(RubricGrader):
    """Whether a response meets every demand of the instruction: 1 (ignored) to 5 (all met)."""

    rubric: ClassVar[str] = "instruction_following"
