"""What a model is asked when it proposes and merges principles, and how its replies are read."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from rm_gallery.core.reward.prompting import render
from rm_gallery.core.reward.template import BasePromptTemplate, Prompt
from rm_gallery.core.text.objects import TwoValues, object_at
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.text.values import excerpt
from rm_gallery.core.utils.errors import ParseError

_LINE = re.compile(r"^(?:[-*•]|\d+[.)、])?\s*(?P<name>[^:：<>{}]{2,120})[:：]\s*(?P<text>.{4,})$")


class PrincipleTemplate(BasePromptTemplate):
    """A reply that holds principles: short names with one sentence each."""

    principles: dict[str, str] = Field(
        default=..., description='A JSON object {"short name": "one sentence that says what to look for", …}'
    )

    @classmethod
    def parse(cls, text: str) -> Any:
        """Principles from the tag, from any JSON object of texts, or from lines "name: sentence".

        Raises:
            ParseError: none of these is there.
        """
        stated = cls._parse(text)
        inside = stated.get("principles", split_reasoning(text).final)
        found = _texts(inside) if isinstance(inside, dict) else _from_json(inside) or _from_lines(inside)
        if not found:
            raise ParseError("The reply holds no principles.", reply_excerpt=excerpt(text))
        return cls(principles=found, reason=stated.get("reason"))


def _from_json(text: str) -> dict[str, str]:
    start = text.find("{")
    try:
        whole = object_at(text, start) if start >= 0 else None
    except TwoValues:
        return {}
    return {} if whole is None else _texts(whole[0].get("principles", whole[0]))


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    return {str(name).strip(): str(value).strip() for name, value in found.items() if str(name).strip() and value}


def _from_lines(text: str) -> dict[str, str]:
    matches = (_LINE.match(line.strip().replace("**", "")) for line in text.splitlines())
    return {match["name"].strip(): match["text"].strip() for match in matches if match}


class ProposeTemplate(PrincipleTemplate):
    """Asks why one answer is better than the others."""

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls,
        scenario: str,
        query: str,
        answers: list[str],
        best: int,
        number: int,
        enable_thinking: bool = False,
        **_: Any,
    ) -> Prompt:
        """System and user message for one sample."""
        texts = {"query": query, "answers": answers}
        form = cls.schema(enable_thinking=enable_thinking)
        return render("propose", "en", texts, scenario=scenario, best=best, number=number, output_form=form)


class MergeTemplate(PrincipleTemplate):
    """Asks for the few principles that many proposals come down to."""

    @classmethod
    def format(  # type: ignore[override]  # a concrete template names its parameters
        cls, scenario: str, proposals: str, number: int, enable_thinking: bool = False, **_: Any
    ) -> Prompt:
        """System and user message for all proposals."""
        form = cls.schema(enable_thinking=enable_thinking)
        return render("merge", "en", {"proposals": proposals}, scenario=scenario, number=number, output_form=form)
