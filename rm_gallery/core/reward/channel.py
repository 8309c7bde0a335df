"""Channels of a verdict: how a judge's reply is asked for (decisions, schema, tool call, one token,
text), and which of them an endpoint takes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import NotAsked, channel_trial
from rm_gallery.core.engine.ray import listeners, share_fact
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.decisions import Question
from rm_gallery.core.model.message import ChatResponse, Decision
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    ReadBy,
    Shaped,
    asked_fields,
    described,
    kind_of,
    note_at,
    verdict_fields,
)
from rm_gallery.core.utils.errors import ConfigError, ParseError, ProviderError, Unscored
from rm_gallery.core.utils.log import logger

T = TypeVar("T")
Channel = Literal["auto", "decision", "schema", "tool", "logprobs", "text"]
FALLBACKS = ("schema", "tool", "text")
"""What `auto` takes of a chat model, the first one that its endpoint does not refuse."""
WEIGHED = ("decision", "logprobs")
"""What asks for probabilities, and for no words."""
LEVELS = 20
"""Levels that a question has at most: an endpoint tells the probabilities of so many tokens."""
ONE_TOKEN = 4
"""Tokens a reply of one token may have: some models begin with a space or a line break."""
PATIENCE_SECONDS = 0.5
"""How long others wait for the first call to an endpoint: a refusal comes at once, and what is not
refused is being answered.
"""
FUNCTION = "verdict"
JSON_TYPES = {bool: "boolean", int: "integer", float: "number"}
_LETTERS = "abcdefghijklmnopqrst"


def ways(llm: BaseLLM, template: type[BasePromptTemplate], channel: str) -> tuple[str, ...]:
    """The channels that are tried one after the other.

    A chat model decides by the probabilities of its next token. Raises ConfigError for a channel
    that the model or the template does not have.
    """
    own, open_keys = _form_of_replies(template)
    if channel != "auto" or llm.decides:
        return (_chosen(llm, template, channel, own),)
    # an object whose keys are not known beforehand is no strict schema
    return ("text",) if own or open_keys else FALLBACKS


def _chosen(llm: BaseLLM, template: type[BasePromptTemplate], channel: str, own: bool) -> str:
    """The one channel there is, for a template that may read replies in its `own` way."""
    if llm.decides:
        if channel not in ("auto", "decision") or own:
            problem = f"{template.__name__} reads a text" if own else f"channel is {channel!r}"
            raise ConfigError(
                f"{problem}, and the decision model {llm.model} writes none; use a chat model."
            )
        return "decision"
    if own and channel != "text":
        raise ConfigError(
            f"{template.__name__} reads replies in its own way; leave channel={channel!r} out, or "
            f"say 'text'."
        )
    if channel not in WEIGHED:
        return channel
    if llm.enable_thinking:
        raise ConfigError(
            f"channel is {channel!r}, which asks for one token, and {llm.model} thinks first; "
            f"use another one."
        )
    return "logprobs"


@lru_cache(maxsize=256)
def _form_of_replies(template: type[BasePromptTemplate]) -> tuple[bool, bool]:
    """Whether a template reads replies in its own way, and whether a field of it has keys of its
    own.
    """
    own = any(
        getattr(template, name).__func__ is not getattr(BasePromptTemplate, name).__func__
        for name in ("parse", "_parse")
    )
    return own, any(get_origin(kind_of(info)) is dict for info in template.model_fields.values())


# -- what is asked for -----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def request_fields(
    template: type[BasePromptTemplate], way: str, enable_thinking: bool, shown: int | None
) -> Mapping[str, Any]:
    """The request fields that ask for a reply by this channel; none for text."""
    if way == "logprobs":
        return {"logprobs": True, "top_logprobs": 20, "max_tokens": ONE_TOKEN}
    if way not in ("schema", "tool"):
        return {}
    names = asked_fields(template, enable_thinking)
    schema = {
        "type": "object",
        "properties": {name: _property(name, template.model_fields[name], shown) for name in names},
        "required": names,
        "additionalProperties": False,
    }
    if way == "schema":
        stated = {"name": FUNCTION, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": stated}}
    function = {"name": FUNCTION, "description": "States the verdict.", "parameters": schema}
    chosen = {"type": "function", "function": {"name": FUNCTION}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": chosen}


class _Range(NamedTuple):
    """What may be said in a field."""

    kind: Any
    answers: tuple[Any, ...]
    low: float | None
    high: float | None


def _range_of(name: str, info: FieldInfo, shown: int | None) -> _Range:
    kind, read_by = kind_of(info), note_at(info, ReadBy)
    listed = get_args(kind) if get_origin(kind) is Literal else ()
    least: Any = note_at(info, Ge)
    most: Any = note_at(info, Le)
    high = float(most.le) if most else float(shown) if name == "best" and shown else None
    return _Range(
        kind,
        listed or (read_by.answers if read_by else ()),
        float(least.ge) if least else None,
        high,
    )


def _property(name: str, info: FieldInfo, shown: int | None) -> dict[str, Any]:
    """The JSON schema of a field: its type with bounds, or the answers there are."""
    if shaped := note_at(info, Shaped):
        return shaped.schema
    kind, answers, low, high = _range_of(name, info, shown)
    if answers:
        return {"type": "string", "enum": list(answers)}
    if kind == list[str]:
        return {"type": "array", "items": {"type": "string"}}
    schema: dict[str, Any] = {"type": JSON_TYPES.get(kind, "string")}
    if kind is int and low is not None and high is not None and high - low < LEVELS:
        schema["enum"] = list(range(math.ceil(low), math.floor(high) + 1))
    elif kind in (int, float):
        bounds = {"minimum": low, "maximum": high}
        schema |= {
            word: int(bound) if bound.is_integer() else bound
            for word, bound in bounds.items()
            if bound is not None
        }
    return schema


@lru_cache(maxsize=256)
def questions_of(
    template: type[BasePromptTemplate],
    language: str,
    shown: int | None,
    about: tuple[tuple[str, str], ...] = (),
) -> tuple[Question, ...]:
    """A verdict's fields as typed questions, reasons left out; `about` says more of some of them.

    Yes or no is a predicate, the best of several answers a choice, a number with bounds a score on
    at most 20 levels. Raises ConfigError for a field that is none of these.
    """
    more = dict(about)
    questions = []
    for name in verdict_fields(template):
        info = template.model_fields[name]
        kind, answers, low, high = _range_of(name, info, shown)
        instructions = described(name, info, language) + (f"\n{more[name]}" if name in more else "")
        if answers:
            asked = Question(name, "choice", instructions, tuple(map(str, answers)))
        elif kind is bool:
            asked = Question(name, "predicate", instructions)
        elif (
            kind in (int, float) and low is not None and high is not None and -math.inf < low < high
        ):
            if name == "best" and high - low >= LEVELS:
                raise ConfigError(
                    f"{high:g} answers are shown, and one of at most {LEVELS} is chosen by "
                    f"probabilities."
                )
            kind_asked: Literal["choice", "score"] = "choice" if name == "best" else "score"
            asked = Question(name, kind_asked, instructions, _levels(low, high))
        else:
            raise ConfigError(
                f"{template.__name__} states <{name}>, which is neither yes or no nor a choice nor "
                f"a number with bounds, so no "
                "probabilities tell it; use a chat model and channel 'schema', 'tool' or 'text'."
            )
        questions.append(asked)
    return tuple(questions)


def _levels(low: float, high: float) -> tuple[str, ...]:
    """The whole numbers between the bounds where they are few, else eleven numbers evenly spaced."""
    span, whole = high - low, low.is_integer() and high.is_integer()
    few = whole and 2 <= span < LEVELS or span == 1 and low >= 1
    steps = int(span) if few else 10
    return tuple(f"{low + span * step / steps:g}" for step in range(steps + 1))


def token_form(question: Question, language: str) -> tuple[str, dict[str, str]]:
    """What one token is to be, for the prompt; and by token (lower case) the answer that it stands
    for.
    """
    answers, told = question.answers, question.instructions
    if question.kind == "predicate" or all(len(answer) == 1 for answer in answers):
        return f"{' / '.join(answers)}\n{told}", {answer.lower(): answer for answer in answers}
    letters = dict(zip(_LETTERS, answers, strict=False))
    means = {"en": "A letter stands for each answer", "zh": "每个字母代表一个答案"}[language]
    legend = ", ".join(f"{letter.upper()} = {answer}" for letter, answer in letters.items())
    return f"{told}\n{means}: {legend}", letters


# -- what came -------------------------------------------------------------------------------------


def decision_of(reply: ChatResponse, question: Question, tokens: Mapping[str, str]) -> Decision:
    """The probabilities of a question's answers at the first token of a reply that says anything.

    Raises:
        Unscored: the endpoint gave no probabilities. ParseError: the answers have less than half of
            the probability.
    """
    entry = next((e for e in token_entries(reply.logprobs) if _plain(e.get("token"))), None)
    found = token_shares(entry or {}, lambda token: tokens.get(_plain(token)))
    shares = {answer: found.get(answer, 0.0) for answer in question.answers}
    total = math.fsum(shares.values())
    if entry is None or total > 1.01:  # beyond 1 they are no probabilities
        raise Unscored(
            "The endpoint gave no probabilities of tokens; use an endpoint with logprobs, or "
            "another channel.",
            reason="no_logprobs",
            cause="judge",
        )
    if total < 0.5:
        raise ParseError(
            f"One of {', '.join(question.answers)} was asked for, and other words are more "
            f"probable."
        )
    return Decision(
        {answer: share / total for answer, share in shares.items()}, outside=max(0.0, 1.0 - total)
    )


def token_entries(logprobs: Any) -> list[Mapping[str, Any]]:
    """What an endpoint says of each token of a reply."""
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return [e for e in content if isinstance(e, Mapping)] if isinstance(content, list) else []


def token_shares(entry: Mapping[str, Any], answer_of: Callable[[Any], T | None]) -> dict[T, float]:
    """The probabilities at one token, by the answers that tokens stand for; what is no
    log-probability is passed over.
    """
    options = entry.get("top_logprobs") or [entry]
    shares: dict[T, float] = {}
    for option in options if isinstance(options, list) else ():
        answer = answer_of(option.get("token")) if isinstance(option, Mapping) else None
        if answer is None:
            continue
        value = option.get("logprob")
        if isinstance(value, (int, float)) and value is not True and -1e4 < value <= 0:
            shares[answer] = shares.get(answer, 0.0) + math.exp(value)
    return shares


def _plain(token: Any) -> str:
    return token.strip(" \n\t\r.,:;*_`\"'<>()[]▁Ġ").lower() if isinstance(token, str) else ""


# -- what an endpoint takes ------------------------------------------------------------------------

_known: dict[tuple[str, str], str] = {}
_probing: dict[tuple[str, str], asyncio.Future[None]] = {}


def taken_by(llm: BaseLLM) -> str | None:
    """The channel that the model's endpoint was found to take; None where nobody has asked it yet."""
    return "decision" if llm.decides else _known.get(_key(llm))


def note_on(judged: object) -> list[str]:
    """One line for a report on how a reward's judge was asked; none where nobody has asked it, or
    it was in words.
    """
    llm, way = getattr(judged, "llm", None), getattr(judged, "channel", None)
    if way == "auto" and isinstance(llm, BaseLLM):
        way = taken_by(llm)
    return [f"the judge is asked for {WORDS[way]}"] if way in WORDS and way != "text" else []


def _key(llm: BaseLLM) -> tuple[str, str]:
    return llm.route(), llm.model


async def find_out(
    llm: BaseLLM,
    tried: Sequence[str],
    ask: Callable[[str], Awaitable[T]],
    taken: Callable[[str], str],
) -> T:
    """`ask` by the first of the channels that the model's endpoint takes, which nobody knew yet;
    `taken` says which one its reply came by.

    The first call for an endpoint and a model finds out, while others wait for it, though not for
    long: a channel that is refused, or whose reply is empty, gives way to the next at once. What
    was found holds for the process; a call without any reply finds nothing out, and then each finds
    out for itself.
    """
    key = _key(llm)
    first = _probing.get(key)
    if first is None:
        _probing[key] = done = asyncio.get_running_loop().create_future()
        try:
            return await _probe(key, tried, ask, taken)
        finally:
            done.set_result(None)
    if not first.done() and first.get_loop() is asyncio.get_running_loop():
        # awaited without `wait` it would be cancelled with the first of those who wait
        await asyncio.wait([first], timeout=PATIENCE_SECONDS)
    return await (ask(_known[key]) if key in _known else _probe(key, tried, ask, taken))


async def _probe(
    key: tuple[str, str],
    tried: Sequence[str],
    ask: Callable[[str], Awaitable[T]],
    taken: Callable[[str], str],
) -> T:
    left_out: list[Exception] = []
    for way in tried:
        last = way == tried[-1]
        trial = channel_trial.set("last" if last else "trial")
        try:
            reply = await ask(way)
        except (ProviderError, NotAsked, ParseError, Unscored) as error:
            if not last and _gives_way(error):
                left_out.append(error)
                continue
            # a reply shows that the endpoint takes it, even one that cannot be read
            if isinstance(error, ParseError | Unscored):
                _note(key, taken(way), left_out)
            raise
        else:
            _note(key, taken(way), left_out)
            return reply
        finally:
            channel_trial.reset(trial)
    raise AssertionError("unreachable")


def _gives_way(error: Exception) -> bool:
    """Whether the next channel is tried: this one is refused, or taken without a word (some take a
    schema and say nothing), or no model is called, and another one may have been taken then.
    """
    if isinstance(error, ProviderError):
        return error.of_a_field
    return isinstance(error, NotAsked) or (isinstance(error, Unscored) and error.reason == "empty")


def _note(key: tuple[str, str], way: str, left_out: Sequence[Exception]) -> None:
    """Remember the channel of an endpoint and a model, and say once what was refused; nothing is
    known where no model was called.
    """
    if any(isinstance(error, NotAsked) for error in left_out):
        return
    if left_out and key not in _known:
        logger.warning(
            "model {} is asked for its verdicts as {} from now on: {}",
            key[1],
            WORDS[way],
            left_out[-1],
        )
    _known.setdefault(key, way)
    share_fact("channel", key, way)


listeners["channel"] = _known.setdefault


WORDS = {
    "decision": "typed questions",
    "schema": "JSON by a schema",
    "tool": "a tool call",
    "logprobs": "the probabilities of one token",
    "text": "tags in a text",
}


def forget() -> None:
    """Forget what was found out about endpoints."""
    _known.clear()
    _probing.clear()


library_loop.after_fork(forget)
