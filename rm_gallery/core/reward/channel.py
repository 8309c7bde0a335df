"""Channels of a verdict: how a judge's reply is asked for (decisions, schema, tool call, one token,
text), and which of them an endpoint takes.
"""

from __future__ import annotations

import asyncio
import math
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from rm_gallery.core.engine import coordinator
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import NotAsked, on_trial
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.model.decisions import NO, YES, Question
from rm_gallery.core.model.message import ChatResponse, Decision
from rm_gallery.core.reward.template import (
    BasePromptTemplate,
    ReadBy,
    Shaped,
    asked_fields,
    described,
)
from rm_gallery.core.text.statements import REASONS
from rm_gallery.core.utils.errors import ConfigError, ParseError, ProviderError, Unscored, logger

T = TypeVar("T")
Channel = Literal["auto", "decision", "schema", "tool", "logprobs", "text"]
FALLBACKS = ("schema", "tool", "text")
"""What `auto` takes of a chat model, the first one that its endpoint does not refuse."""
LEVELS = 20
"""Levels that a question has at most: an endpoint tells the probabilities of so many tokens."""
PATIENCE_SECONDS = 0.5
"""How long others wait for the first call to an endpoint: a refusal comes at once, and what is not
refused is being answered.
"""
FUNCTION = "verdict"
_LETTERS = "ABCDEFGHIJKLMNOPQRST"


def ways(llm: BaseLLM, template: type[BasePromptTemplate], channel: str) -> tuple[str, ...]:
    """The channels that are tried one after the other.

    A chat model decides by the probabilities of its next token. Raises ConfigError for a channel
    that the model or the template does not have.
    """
    own, open_keys = _form_of_replies(template)
    if llm.decides:
        if channel not in ("auto", "decision") or own:
            problem = f"{template.__name__} reads a text" if own else f"channel is {channel!r}"
            raise ConfigError(
                f"{problem}, and the decision model {llm.model} writes none; use a chat model."
            )
        return ("decision",)
    if own and channel not in ("auto", "text"):
        raise ConfigError(
            f"{template.__name__} reads replies in its own way; leave channel={channel!r} out, or "
            f"say 'text'."
        )
    if own:
        return ("text",)
    if channel == "auto" and open_keys:
        return ("text",)  # an object whose keys are not known beforehand is no strict schema
    if channel in ("decision", "logprobs"):
        if llm.enable_thinking:
            raise ConfigError(
                f"channel is {channel!r}, which asks for one token, and {llm.model} thinks first; "
                f"use another one."
            )
        return ("logprobs",)
    return FALLBACKS if channel == "auto" else (channel,)


@lru_cache(maxsize=256)
def _form_of_replies(template: type[BasePromptTemplate]) -> tuple[bool, bool]:
    """Whether a template reads replies in its own way, and whether a field of it has keys of its
    own.
    """
    base: Any = BasePromptTemplate
    given: Any = template
    own = given.parse.__func__ is not base.parse.__func__
    own = own or given._parse.__func__ is not base._parse.__func__
    return own, any(get_origin(_kind(info)) is dict for info in template.model_fields.values())


# -- what is asked for -----------------------------------------------------------------------------


def request_fields(
    template: type[BasePromptTemplate], way: str, enable_thinking: bool, shown: int | None
) -> dict[str, Any]:
    """The request fields that ask for a reply by this channel; none for text."""
    if way not in ("schema", "tool"):
        return {}
    schema = _schema(template, enable_thinking, shown)
    if way == "schema":
        return {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": FUNCTION, "strict": True, "schema": schema},
            }
        }
    function = {"name": FUNCTION, "description": "States the verdict.", "parameters": schema}
    chosen = {"type": "function", "function": {"name": FUNCTION}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": chosen}


@lru_cache(maxsize=256)
def _schema(
    template: type[BasePromptTemplate], enable_thinking: bool, shown: int | None
) -> dict[str, Any]:
    names = asked_fields(template, enable_thinking)
    properties = {name: _property(name, template.model_fields[name], shown) for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def _property(name: str, info: FieldInfo, shown: int | None) -> dict[str, Any]:
    """The JSON schema of a field: its type with bounds, or the answers there are."""
    shaped = next((note for note in info.metadata if isinstance(note, Shaped)), None)
    if shaped is not None:
        return shaped.schema
    kind, answers = (
        _kind(info),
        next((note.answers for note in info.metadata if isinstance(note, ReadBy)), ()),
    )
    if get_origin(kind) is Literal:
        answers = get_args(kind)
    if answers:
        return {"type": "string", "enum": list(answers)}
    if kind is bool:
        return {"type": "boolean"}
    if kind not in (int, float):
        return (
            {"type": "array", "items": {"type": "string"}}
            if kind == list[str]
            else {"type": "string"}
        )
    low, high = _bounds(name, info, shown)
    if kind is int and low is not None and high is not None and high - low < LEVELS:
        return {"type": "integer", "enum": list(range(math.ceil(low), math.floor(high) + 1))}
    schema: dict[str, Any] = {"type": "integer" if kind is int else "number"}
    for word, bound in (("minimum", low), ("maximum", high)):
        if bound is not None:
            schema[word] = int(bound) if float(bound).is_integer() else bound
    return schema


def _kind(info: FieldInfo) -> Any:
    kind = info.annotation
    if get_origin(kind) in (Union, types.UnionType):
        options = [a for a in get_args(kind) if a is not type(None)]
        return options[0] if len(options) == 1 else None
    return kind


def _bounds(name: str, info: FieldInfo, shown: int | None) -> tuple[float | None, float | None]:
    low = next((float(note.ge) for note in info.metadata if isinstance(note, Ge)), None)  # type: ignore[arg-type]  # a number's
    high = next((float(note.le) for note in info.metadata if isinstance(note, Le)), None)  # type: ignore[arg-type]
    return low, float(shown) if high is None and name == "best" and shown else high


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
    more, questions = dict(about), []
    for name, info in template.model_fields.items():
        if name.lower() in REASONS:
            continue
        kind, low, high = _kind(info), *_bounds(name, info, shown)
        answers = next((note.answers for note in info.metadata if isinstance(note, ReadBy)), ())
        instructions = described(name, info, language) + (f"\n{more[name]}" if name in more else "")
        if get_origin(kind) is Literal:
            answers = tuple(map(str, get_args(kind)))
        if answers:
            questions.append(Question(name, "choice", instructions, tuple(answers)))
        elif kind is bool:
            questions.append(Question(name, "predicate", instructions))
        elif (
            kind in (int, float)
            and low is not None
            and high is not None
            and math.isfinite(low)
            and low < high
        ):
            choice = name == "best"
            if choice and high - low >= LEVELS:
                raise ConfigError(
                    f"{high:g} answers are shown, and one of at most {LEVELS} is chosen by "
                    f"probabilities."
                )
            questions.append(
                Question(name, "choice" if choice else "score", instructions, _levels(low, high))
            )
        else:
            raise ConfigError(
                f"{template.__name__} states <{name}>, which is neither yes or no nor a choice nor "
                f"a number with bounds, so no "
                "probabilities tell it; use a chat model and channel 'schema', 'tool' or 'text'."
            )
    return tuple(questions)


def _levels(low: float, high: float) -> tuple[str, ...]:
    """The whole numbers between the bounds where they are few, else eleven numbers evenly spaced."""
    if (
        low.is_integer()
        and high.is_integer()
        and 2 <= high - low < LEVELS
        or high - low == 1
        and low >= 1
    ):
        return tuple(f"{level:g}" for level in range(int(low), int(high) + 1))
    return tuple(f"{low + (high - low) * step / 10:g}" for step in range(11))


def token_form(question: Question, language: str) -> tuple[str, dict[str, str]]:
    """What one token is to be, for the prompt; and by token (lower case) the answer that it stands
    for.
    """
    if question.kind == "predicate" or all(len(answer) == 1 for answer in question.answers):
        tokens = {answer.lower(): answer for answer in question.answers}
        return f"{' / '.join(question.answers)}\n{question.instructions}", tokens
    letters = dict(zip(_LETTERS, question.answers, strict=False))
    means = {"en": "A letter stands for each answer", "zh": "每个字母代表一个答案"}[language]
    legend = ", ".join(f"{letter} = {answer}" for letter, answer in letters.items())
    return f"{question.instructions}\n{means}: {legend}", {
        letter.lower(): answer for letter, answer in letters.items()
    }


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


def expected(verdict: Any, decisions: Mapping[str, Decision], questions: Sequence[Question]) -> Any:
    """A verdict whose numbers are the expected ones of their probabilities, between the levels."""
    scores = {
        q.name: {answer: float(answer) for answer in q.answers}
        for q in questions
        if q.kind == "score"
    }
    update = {
        name: decisions[name].expected(values)
        for name, values in scores.items()
        if name in decisions
    }
    return verdict.model_copy(update=update) if update else verdict


def stated(decisions: Mapping[str, Decision]) -> dict[str, Any]:
    """The most probable answers, as the values of a JSON object."""
    return {name: {YES: True, NO: False}.get(one.top, one.top) for name, one in decisions.items()}


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


async def by_channel(
    llm: BaseLLM,
    tried: Sequence[str],
    ask: Callable[[str], Awaitable[T]],
    taken: Callable[[str], str],
) -> T:
    """`ask` by the first of the channels that the model's endpoint takes; `taken` says which one
    its reply came by.

    The first call for an endpoint and a model finds out, while others wait for it, though not for
    long: a channel that is refused, or whose reply is empty, gives way to the next at once. What
    was found holds for the process; a call without any reply finds nothing out, and then each finds
    out for itself.
    """
    if len(tried) == 1:
        return await ask(tried[0])
    key = _key(llm)
    if key in _known:
        return await ask(_known[key])
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
    why: Exception | None = None
    known = True
    for way in tried:
        trial = on_trial.set("trial" if way != tried[-1] else "last")
        try:
            reply = await ask(way)
        except ProviderError as error:
            if not error.of_a_field or way == tried[-1]:
                raise
            why = error
        except NotAsked:  # no model is called: the way that was taken then has a reply
            if way == tried[-1]:
                raise
            known = False
        except (ParseError, Unscored) as error:
            # a reply shows that the endpoint takes it, even one that cannot be read; some take a
            # schema and say nothing
            if isinstance(error, Unscored) and error.reason == "empty" and way != tried[-1]:
                why = error
                continue
            if known:
                _note(key, taken(way), why)
            raise
        else:
            if known:
                _note(key, taken(way), why)
            return reply
        finally:
            on_trial.reset(trial)
    raise AssertionError("unreachable")


def _note(key: tuple[str, str], way: str, why: Exception | None) -> None:
    """Remember the channel of an endpoint and a model, and say once what was refused."""
    if key not in _known and why is not None:
        logger.warning(
            "model {} is asked for its verdicts as {} from now on: {}", key[1], WORDS[way], why
        )
    _known.setdefault(key, way)
    coordinator.share_fact("channel", key, way)


coordinator.listeners["channel"] = _known.setdefault


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
