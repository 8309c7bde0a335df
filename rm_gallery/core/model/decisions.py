"""Decision models: they write no text, and say of typed questions how probable each answer is. Two
dialects, one request a rubric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import model_validator

from rm_gallery.core.model.base import BaseLLM, Messages, provider
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.message import (
    ChatMessage,
    ChatResponse,
    Decision,
    MessageRole,
    picture_of,
    text_of,
)
from rm_gallery.core.model.openai import OpenaiEndpoint, given, object_of, usage_of
from rm_gallery.core.model.transport import Json, Seconds
from rm_gallery.core.utils.errors import ConfigError, ProviderError, RequestError

Kind = Literal["predicate", "choice", "score"]
Dialect = Literal["openai", "systemone"]
YES, NO = "yes", "no"
MOST = 400
"""Questions that one request may hold."""
_WRITTEN = ("temperature", "top_p", "max_tokens", "stop", "seed", "n", "enable_thinking")
_known: dict[str, str] = {}
"""By endpoint, the dialect that it was found to speak."""


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
    def _writes_nothing(self) -> DecisionLLM:
        if written := sorted(self.model_fields_set.intersection(_WRITTEN)):
            raise ValueError(
                f"'{written[0]}' has no effect on a decision model, which writes no text; leave it out"
            )
        return self

    def payload(self, messages: Messages, **overrides: Any) -> Json:
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
        return {
            "model": self.model,
            "messages": super().payload(messages)["messages"],
            "questions": [question._asdict() for question in asked],
            **self.extra_body,
        }

    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
        """The answer in the endpoint's dialect by question, and its token counts.

        What was found out of an endpoint is where the search begins, not a setting: another server may
        stand behind the address by now. One that has no such path, or whose dialect cannot hold the
        request, is asked in the other; if that fails as well, the first failure counts.
        """
        questions, key = _asked_in(payload), self.endpoint_key()
        dialect = self.dialect or _known.get(key, "openai")
        path, written, other = _DIALECTS[dialect]
        try:
            body = {**payload, **written(payload["messages"], questions)}
            del body["messages"]
            raw = await self.post(path, body, timeout)
        except (ProviderError, RequestError) as error:
            if self.dialect or not _gives_way(error):
                raise
            try:
                return await self.model_copy(update={"dialect": other}).attempt(payload, timeout)
            except ProviderError as again:
                raise (error if _gives_way(again) else again) from None
        _known[key] = dialect
        return {**raw, "asked": len(questions)}

    def read(self, raw: Json, payload: Json) -> ChatResponse:
        """The decisions by question, and as text one JSON object with the most probable answers."""
        with self.layout_of("decisions", raw, "transient"):
            decisions = _decisions(raw.get("answers"), _asked_in(payload))
        usage = usage_of(raw.get("usage"), "input_tokens", "output_tokens")
        return decided(decisions, usage, str(raw.get("model") or ""))

    def kept(self, raw: Json, reply: ChatResponse) -> bytes | None:
        """Answers to all questions; one that was refused may be answered another time."""
        decisions = reply.decisions or {}
        if len(decisions) < raw["asked"]:
            return None
        shares = {name: one.probabilities for name, one in decisions.items()}
        return orjson.dumps(
            {"decisions": shares, "model": reply.model, "input": reply.usage.input_tokens}
        )

    def restored(self, stored: bytes) -> ChatResponse:
        """The decisions, marked as cached."""
        with self.layout_of("decisions", stored):
            raw = orjson.loads(stored)
            decisions = {name: Decision(shares) for name, shares in raw["decisions"].items()}
            return decided(decisions, Usage(raw["input"]), raw["model"], True)

    def usage(self, reply: ChatResponse, expected_input: int) -> Usage:
        """One call and the tokens that were read."""
        read = reply.usage.input_tokens or expected_input
        return replace(reply.usage, input_tokens=read, calls=1)


def decided(
    decisions: Mapping[str, Decision], usage: Usage, model: str, cached: bool = False
) -> ChatResponse:
    """A reply whose text states the most probable answers."""
    text = orjson.dumps({name: one.top for name, one in decisions.items()}).decode()
    return ChatResponse(
        message=ChatMessage(role=MessageRole.ASSISTANT, content=text),
        usage=usage,
        model=model,
        decisions=dict(decisions),
        cached=cached,
        finish_reason="stop",
    )


def _gives_way(error: ProviderError | RequestError) -> bool:
    """Whether the endpoint may take the other dialect: it has no such path, or this dialect cannot
    hold the request.
    """
    return not isinstance(error, ProviderError) or error.status in (404, 405)


def _asked_in(payload: Json) -> list[Question]:
    return [Question(**each) for each in payload["questions"]]


# -- dialects --------------------------------------------------------------------------------------


def _as_openai(messages: Sequence[Any], questions: Sequence[Question]) -> Json:
    """Input and questions as OpenAI's endpoint takes them."""
    lists = {"choice": ("choices", "value"), "score": ("levels", "label")}
    asked = []
    for name, kind, instructions, answers in questions:
        one: Json = {"type": kind, "name": name, "instructions": instructions}
        if kind in lists:
            field, each = lists[kind]
            one[field] = [{each: answer} for answer in answers]
        asked.append(one)
    turns = [{"role": each["role"], "content": _items(each["content"])} for each in messages]
    return {"input": turns, "questions": asked}


def _items(content: Any) -> Any:
    """Content parts of a chat message as items of an input."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "input_image", "image_url": picture_of(part)}
        if part.get("type") == "image_url"
        else {"type": "input_text", "text": part.get("text", "")}
        for part in content
    ]


def _as_systemone(messages: Sequence[Any], questions: Sequence[Question]) -> Json:
    """State and questions as System One takes them; its state holds no pictures."""
    contents = [each["content"] for each in messages]
    parts = chain(*(content for content in contents if isinstance(content, list)))
    if any("image_url" in part for part in parts):
        raise RequestError(
            "This sample shows pictures, and the System One dialect is sent text alone here; use "
            "dialect='openai'."
        )
    asked = {}
    for name, kind, instructions, answers in questions:
        one: Json = {"type": kind, "instructions": instructions}
        if kind == "predicate":
            one["type"] = "noul"
        else:
            one["criteria"] = dict.fromkeys(answers) if kind == "choice" else answers
        asked[name] = one
    return {"state": "\n\n".join(map(text_of, contents)), "questions": asked}


_DIALECTS = {
    "openai": ("/decisions", _as_openai, "systemone"),
    "systemone": ("/systemone", _as_systemone, "openai"),
}
"""Path below the base URL, how messages and questions are written, and what else an endpoint may
speak; the answers of either are read alike.
"""


def _decisions(answers: Any, questions: Sequence[Question]) -> dict[str, Decision]:
    """The answers of either dialect by question; a question that was refused, or answered as
    another type, is left out. What are no answers raises ValueError and its like.
    """
    if isinstance(answers, list):
        answers = dict(zip((question.name for question in questions), answers, strict=True))
    decisions = {}
    for name, kind, _, options in questions:
        answer = object_of(answers.get(name))
        shares = answer.get("probabilities")
        if kind == "predicate":
            yes = answer.get("probability", answer.get("noul"))
            shares = None if yes is None else {YES: yes, NO: 1.0 - yes}
        elif isinstance(shares, list):
            shares = {str(each["value"]): each["probability"] for each in shares}
        if not answer.get("refusal") and isinstance(shares, dict):
            # levels are named by their place
            keys = map(str, range(len(options))) if kind == "score" else options
            decisions[name] = _decision(options, [shares.get(key, 0.0) for key in keys])
    return decisions


def _decision(answers: Sequence[str], shares: Sequence[float]) -> Decision:
    """How probable each answer is; the shares come rounded."""
    total = math.fsum(shares)
    if min(shares) < 0 or not 0.9 <= total <= 1.1:
        raise ValueError("probabilities that do not sum to 1")
    return Decision(dict(zip(answers, (share / total for share in shares), strict=True)))
