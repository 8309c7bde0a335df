"""Decision models: they write no text, and say of typed questions how probable each answer is. Two
dialects, one request a rubric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import model_validator

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import BaseLLM, Messages, provider
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.message import ChatMessage, ChatResponse, Decision, MessageRole, text_of
from rm_gallery.core.model.openai_endpoint import OpenaiEndpoint
from rm_gallery.core.model.openai_llm import given
from rm_gallery.core.model.transport import token_count
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RequestError
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    from typing_extensions import Self

Kind = Literal["predicate", "choice", "score"]
Dialect = Literal["openai", "systemone"]
YES, NO = "yes", "no"
PATHS: dict[str, str] = {"openai": "/decisions", "systemone": "/systemone"}
MOST = 400
"""Questions that one request may hold."""
_WRITTEN = ("temperature", "top_p", "max_tokens", "stop", "seed", "n", "enable_thinking")


class Question(NamedTuple):
    """One typed question; `answers` are yes and no, the choices, or the levels with the lowest
    first.
    """

    name: str
    kind: Kind
    instructions: str
    answers: tuple[str, ...] = (YES, NO)


@provider("decision")
class DecisionLLM(BaseLLM, OpenaiEndpoint):
    """A decision model: `decision:MODEL`, behind `POST /decisions` (OpenAI) or `/systemone` (System
    One) below `base_url`.

    Without `dialect` it is found out by the first call. As a judge it answers every field of a
    verdict by probabilities, all in one request; what asks for a text cannot use it. Replies are
    cached unless `cache` says otherwise.
    """

    decides: ClassVar[bool] = True

    dialect: Dialect | None = None
    cache: bool | None = True

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        """A wrong or unknown setting is a ConfigError that names it and the nearest known one."""
        super().__init__(**given(type(self), model, settings))

    @model_validator(mode="after")
    def _writes_nothing(self) -> Self:
        written = sorted(self.model_fields_set.intersection(_WRITTEN))
        if written:
            raise ValueError(
                f"'{written[0]}' has no effect on a decision model, which writes no text; leave it out"
            )
        return self

    def payload(self, messages: Messages, **overrides: Any) -> dict[str, Any]:
        """The request as it is cached, in no dialect: model, messages and questions."""
        asked: Sequence[Question] = overrides.pop("questions", ())
        if not asked:
            raise ConfigError(
                f"{self.model} is a decision model: it answers typed questions, and this asks it "
                f"for a text."
            )
        if len(asked) > MOST:
            raise RequestError(
                f"{len(asked)} questions in one request; at most {MOST} are taken. Set "
                f"max_criteria={MOST}."
            )
        whole = super().payload(messages)
        return {
            "model": self.model,
            "messages": whole["messages"],
            "questions": [question._asdict() for question in asked],
            **self.extra_body,
        }

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST in the endpoint's dialect; its answer by question, and its token counts."""
        questions = [
            Question(**{**q, "answers": tuple(q["answers"])}) for q in payload["questions"]
        ]
        settings = {
            name: value for name, value in payload.items() if name not in ("messages", "questions")
        }
        key = self.endpoint_key()
        known: Dialect | None = self.dialect or _dialects.get(key)
        order: tuple[Dialect, ...] = (
            (known,)
            if known
            else ("systemone", "openai")
            if "typesafe" in key
            else ("openai", "systemone")
        )
        for dialect in order:
            write = openai_body if dialect == "openai" else systemone_body
            try:
                raw = await self.post(
                    PATHS[dialect], {**settings, **write(payload["messages"], questions)}, timeout
                )
            except ProviderError as error:
                if error.status in (404, 405) and dialect != order[-1]:
                    continue
                raise
            _dialects.setdefault(key, dialect)
            return {
                **{name: raw.get(name) for name in ("answers", "usage", "model")},
                "asked": len(questions),
            }
        raise AssertionError("unreachable")

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> ChatResponse:
        """The decisions by question, and as text one JSON object with the most probable answers."""
        questions = [
            Question(**{**q, "answers": tuple(q["answers"])}) for q in payload["questions"]
        ]
        try:
            decisions = decisions_of(raw.get("answers"), questions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            shown = one_line(str(raw)[:400], 120)
            raise ProviderError(
                f"{self.endpoint_key()} answered 200 in a layout that is not that of decisions: "
                f"{shown}",
                kind="transient",
            ) from error
        reported = raw.get("usage")
        counts: dict[str, Any] = reported if isinstance(reported, dict) else {}
        details = counts.get("input_tokens_details")
        usage = Usage(
            input_tokens=token_count(counts.get("input_tokens")),
            output_tokens=token_count(counts.get("output_tokens")),
            cached_tokens=token_count(details.get("cached_tokens"))
            if isinstance(details, dict)
            else 0,
        )
        return decided(decisions, usage, str(raw.get("model") or ""))

    def kept(self, raw: dict[str, Any], reply: ChatResponse) -> bytes | None:
        """Answers to all questions; one that was refused may be answered another time."""
        if len(reply.decisions or ()) < raw["asked"]:
            return None
        probabilities = {
            name: dict(one.probabilities) for name, one in (reply.decisions or {}).items()
        }
        return orjson.dumps(
            {"decisions": probabilities, "model": reply.model, "input": reply.usage.input_tokens}
        )

    def restored(self, stored: bytes) -> ChatResponse:
        """The decisions, marked as cached."""
        raw = orjson.loads(stored)
        try:
            decisions = {name: Decision(shares) for name, shares in raw["decisions"].items()}
            return decided(decisions, Usage(input_tokens=raw["input"]), raw["model"], True)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no decisions") from error

    def usage(self, reply: ChatResponse, expected_input: int) -> Usage:
        """One call and the tokens that were read."""
        return Usage(
            input_tokens=reply.usage.input_tokens or expected_input,
            output_tokens=reply.usage.output_tokens,
            calls=1,
        )


def decided(
    decisions: Mapping[str, Decision], usage: Usage, model: str, cached: bool = False
) -> ChatResponse:
    """A reply whose text states the most probable answers."""
    text = orjson.dumps({name: one.top for name, one in decisions.items()}).decode()
    message = ChatMessage(role=MessageRole.ASSISTANT, content=text)
    return ChatResponse(
        message=message,
        usage=usage,
        model=model,
        decisions=dict(decisions),
        cached=cached,
        finish_reason="stop",
    )


# -- dialects --------------------------------------------------------------------------------------

_dialects: dict[str, Dialect] = {}


def openai_body(
    messages: Sequence[Mapping[str, Any]], questions: Sequence[Question]
) -> dict[str, Any]:
    """Input and questions as OpenAI's endpoint takes them."""
    asked: list[dict[str, Any]] = []
    for question in questions:
        one: dict[str, Any] = {
            "type": question.kind,
            "name": question.name,
            "instructions": question.instructions,
        }
        if question.kind == "choice":
            one["choices"] = [{"value": answer} for answer in question.answers]
        elif question.kind == "score":
            one["levels"] = [{"label": answer} for answer in question.answers]
        asked.append(one)
    return {
        "input": [{"role": m["role"], "content": _content_parts(m["content"])} for m in messages],
        "questions": asked,
    }


def _content_parts(content: Any) -> Any:
    """Content parts of a chat message as items of an input."""
    if not isinstance(content, list):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        picture = part.get("image_url")
        if part.get("type") == "image_url":
            parts.append(
                {
                    "type": "input_image",
                    "image_url": picture["url"] if isinstance(picture, dict) else picture,
                }
            )
        else:
            parts.append({"type": "input_text", "text": part.get("text", "")})
    return parts


def systemone_body(
    messages: Sequence[Mapping[str, Any]], questions: Sequence[Question]
) -> dict[str, Any]:
    """State and questions as System One takes them; its state holds no pictures."""
    if any(
        part.get("type") == "image_url"
        for m in messages
        if isinstance(m["content"], list)
        for part in m["content"]
    ):
        raise RequestError(
            "This sample shows pictures, and the System One dialect is sent text alone here; use "
            "dialect='openai'."
        )
    asked: dict[str, Any] = {}
    for question in questions:
        one: dict[str, Any] = {"type": "noul" if question.kind == "predicate" else question.kind}
        one["instructions"] = question.instructions
        if question.kind == "choice":
            one["criteria"] = dict.fromkeys(question.answers)
        elif question.kind == "score":
            one["criteria"] = list(question.answers)
        asked[question.name] = one
    return {"state": "\n\n".join(text_of(m["content"]) for m in messages), "questions": asked}


def decisions_of(answers: Any, questions: Sequence[Question]) -> dict[str, Decision]:
    """The answers of either dialect by question; a question that was refused, or answered as
    another type, is left out.

    Raises ValueError for what are no answers.
    """
    if isinstance(answers, list):
        if len(answers) != len(questions):
            raise ValueError("not one answer per question")
        answers = {
            question.name: answer for question, answer in zip(questions, answers, strict=True)
        }
    if not isinstance(answers, dict):
        raise ValueError("no answers")
    decisions: dict[str, Decision] = {}
    for question in questions:
        answer = answers.get(question.name)
        shares = (
            _shares(answer, question)
            if isinstance(answer, dict) and not answer.get("refusal")
            else None
        )
        if shares is not None:
            total = math.fsum(shares.values())
            decisions[question.name] = Decision(
                {name: share / total for name, share in shares.items()}
            )
    return decisions


def _shares(answer: Mapping[str, Any], question: Question) -> dict[str, float] | None:
    """By answer how probable it is; None for an answer of another type. They come rounded, so their
    sum is about 1.
    """
    if question.kind == "predicate":
        yes = answer.get("probability", answer.get("noul"))
        return None if yes is None else {YES: _probability(yes), NO: 1.0 - _probability(yes)}
    probabilities = answer.get("probabilities")
    if isinstance(probabilities, list):
        probabilities = {
            str(one["value"]).lower() if isinstance(one["value"], bool) else str(one["value"]): one[
                "probability"
            ]
            for one in probabilities
        }
    if not isinstance(probabilities, dict):
        return None
    # levels are named by their place
    keys = map(str, range(len(question.answers))) if question.kind == "score" else question.answers
    shares = {
        name: _probability(probabilities.get(key, 0.0))
        for name, key in zip(question.answers, keys, strict=True)
    }
    if not 0.9 <= math.fsum(shares.values()) <= 1.1:
        raise ValueError("probabilities that do not sum to 1")
    return shares


def _probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("no probability")
    return float(value)


@library_loop.after_fork
def _forget_dialects() -> None:
    _dialects.clear()
