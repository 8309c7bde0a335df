"""`BaseLLM`, the providers by prefix (from `openai:gpt-x`, or a dict in a configuration, to a model
object), and `FakeLLM` for tests.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

import orjson
from pydantic import ConfigDict, Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.repeat import current_repeat, seed_of
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.message import ChatMessage, ChatResponse, MessageRole
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai import object_of, to_response
from rm_gallery.core.model.transport import Json, Seconds
from rm_gallery.core.text.canonical import OPENED
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.plugins import plugins

Messages = str | Sequence[ChatMessage | Json]


class BaseLLM(BaseModelCall):
    """A chat model with its sampling settings. `attempt` gives a raw answer in the OpenAI chat
    layout.
    """

    decides: ClassVar[bool] = False
    """Whether it answers typed questions by probabilities, and writes no text."""

    temperature: float | None = Field(default=0.0, ge=0)
    """Sent as it stands, 0 included; None leaves it to the endpoint."""
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    stop: list[str] | None = None
    seed: int | None = None
    n: int = Field(default=1, ge=1)
    enable_thinking: bool = False
    """Whether the model reasons before it answers; prompts then ask for no reason field of their
    own.
    """
    thought_opened: bool = False
    """Whether the model's chat template writes the opening tag of its thought: a reply whose thought
    never ends then states nothing.
    """

    def read(self, raw: Json, payload: Json) -> ChatResponse:
        """The first choice with its usage."""
        return to_response(raw, self.endpoint_key)

    def kept(self, raw: Json, reply: Any) -> bytes | None:
        """Replies that ended by themselves and hold text."""
        says = reply.text.strip() or reply.message.tool_calls
        return orjson.dumps(raw) if says and reply.ended == "done" else None

    def kept_beside(self, stored: bytes) -> bytes:
        """What it says, without ids, times and counts: the same reply is then the same bytes."""
        raw = orjson.loads(stored)
        if "choices" not in object_of(raw):
            return stored
        return orjson.dumps({"model": raw.get("model"), "choices": raw["choices"]})

    def restored(self, stored: bytes) -> ChatResponse:
        """The reply, marked as cached."""
        return to_response(object_of(orjson.loads(stored)), self.endpoint_key, cached=True)

    def usage(self, reply: ChatResponse, expected_input: int) -> Usage:
        """Its token counts, of one call. What the endpoint did not say is estimated."""
        used = reply.usage
        read = used.input_tokens or expected_input
        written = used.output_tokens or _tokens(*(reply.choices or [reply.text]))
        return Usage(read, written, used.cached_tokens, used.reasoning_tokens, calls=1)

    def payload(self, messages: Messages, **overrides: Any) -> Json:
        """The request in the OpenAI layout; `overrides` win over this object's settings, None
        removes a field.
        """
        body: Json = {
            "model": self.model,
            "messages": as_messages(messages),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "stop": self.stop,
            "seed": self.seed,
            "n": self.n if self.n > 1 else None,
            **self.extra_body,
            **overrides,
        }
        return {key: value for key, value in body.items() if value is not None}

    async def achat(
        self, messages: Messages, *, repeat: int | None = None, **overrides: Any
    ) -> ChatResponse:
        """Ask the model and return a checked reply; may be awaited from any event loop.

        Args:
            messages: a text (one user turn) or messages.
            repeat: which of several equal questions this is; equal questions with equal numbers
                share one cached reply. A seed is another one for each number. None is the number of
                the run, and of the vote, that this is called in; 0 outside of any.
            **overrides: request fields for this call only.

        Raises:
            ConfigError: no key, or a URL that is none. ProviderError: the endpoint gave no usable
                reply.
            Unscored: the endpoint's content filter refused the question. NotAsked: the run calls no
                model, and has no reply to this. DeadlineExceeded, BudgetExceeded, RunStopped. A reply
                that was cut or is empty is returned as it is.
        """
        from rm_gallery.core.model.client import complete

        payload = self.payload(messages, **overrides)
        repeat = current_repeat() if repeat is None else repeat
        if repeat and isinstance(seed := payload.get("seed"), int):
            payload["seed"] = seed_of(seed, repeat)
        reply: ChatResponse = await library_loop.bridge(complete(self, payload, repeat))
        return _with_opened_thought(reply) if self.thought_opened else reply

    chat = library_loop.blocking(achat)

    def simple_chat(
        self,
        query: str,
        history: Sequence[ChatMessage] | None = None,
        sys_prompt: str = "",
        **overrides: Any,
    ) -> str:
        """Text of the reply to one question, with optional earlier turns and system prompt."""
        system = [ChatMessage(role=MessageRole.SYSTEM, content=sys_prompt)] if sys_prompt else []
        return self.chat([*system, *(history or ()), ChatMessage(content=query)], **overrides).text


def _with_opened_thought(reply: ChatResponse) -> ChatResponse:
    kwargs = {**reply.message.additional_kwargs, OPENED: True}
    return copy_with(reply, message=copy_with(reply.message, additional_kwargs=kwargs))


def as_messages(messages: Messages) -> list[Json]:
    """Messages as a request holds them; a text is one user turn."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [m.to_openai() if isinstance(m, ChatMessage) else dict(m) for m in messages]


def _tokens(*texts: str) -> int:
    """About four characters each."""
    return sum(map(len, texts)) // 4 + 1


# -- providers -------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModelCall)
Providers: TypeAlias = dict[str, type[BaseModelCall]]
DEFAULT = "openai"
"""Protocol of a name without a prefix."""
_providers: dict[bool, Providers] = {True: {}, False: {}}
"""Chat models, and others such as embeddings."""
# Tags such as llama3:8b or mistral:latest, and fine-tuned models (ft:gpt-4o:org::id), belong to the
# model's name.
_TAG = re.compile(r"\d|latest\b|instruct\b|chat\b|text\b|code\b|v\d|q\d|fp\d", re.IGNORECASE)


def provider(prefix: str) -> Callable[[type[M]], type[M]]:
    """Register a model class under a prefix; chat models and embeddings have a list each.

    A module of `rm_gallery.core.model` that holds such a class is found by itself, one of an
    installed package by the entry-point group `rm_gallery.providers` (prefix = "module:Class"), any
    other once it is imported.
    """

    def register(cls: type[M]) -> type[M]:
        _list_of(cls)[prefix] = cls
        return cls

    return register


def _list_of(cls: type[BaseModelCall]) -> Providers:
    return _providers[issubclass(cls, BaseLLM)]


def resolve_llm(llm: str | Json | BaseLLM, **settings: Any) -> BaseLLM:
    """The model for a spec: a model object as it is, `PREFIX:NAME`, a model's name, or a dict of
    settings.

    `settings` are further fields (base_url, temperature, …). In a dict, `provider` may name the
    prefix. Raises ConfigError for anything else.
    """
    model: BaseLLM = resolve_spec("llm", llm, BaseLLM, settings)
    return model


def resolve_spec(what: str, spec: Any, kind: Any, settings: Json) -> Any:
    """The model of this kind for a spec; `what` names the option in errors."""
    if isinstance(spec, kind):
        return spec
    known = _list_of(kind)
    if isinstance(spec, dict):
        settings = {**spec, **settings}
        prefix, name = str(settings.pop("provider", DEFAULT)), settings.pop("model", "")
    elif isinstance(spec, str):
        prefix, name = _prefix_and_name(spec, known)
    else:
        raise ConfigError(
            f"{what} is {type(spec).__name__}; give a model object, a model's name or a dict of "
            f"settings."
        )
    if not _knows(known, prefix):
        raise ConfigError(unknown_name(f"provider of {what}", prefix, known))
    if "base_url" in settings and "base_url" not in known[prefix].model_fields:
        raise Inapplicable(
            f"{prefix}: has no endpoint; leave out --base-url (base_url=).", "base_url"
        )
    return known[prefix].from_name(name, **settings)


def _prefix_and_name(spec: str, known: Providers) -> tuple[str, str]:
    """Prefix and name of a spec; a name without a known prefix means the OpenAI protocol.

    Raises ConfigError for what looks like a provider and is none.
    """
    prefix, colon, name = spec.partition(":")
    if colon and "/" not in prefix:
        if _knows(known, prefix):
            return prefix, name
        if prefix.isalpha() and prefix != "ft" and not _TAG.match(name):
            raise ConfigError(
                f"There is no provider '{prefix}'. Known: {', '.join(sorted(known))}. A model that "
                f"is called '{spec}' is written '{DEFAULT}:{spec}'."
            )
    return DEFAULT, spec


def registered() -> list[tuple[str, type[BaseModelCall]]]:
    """Prefix and class of every provider, chat models first."""
    _import_all()
    return [each for listed in _providers.values() for each in listed.items()]


def _knows(known: Providers, prefix: str) -> bool:
    if prefix not in known:
        _import_all()
    return prefix in known


@cache
def _import_all() -> None:
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    for prefix, given in plugins("providers"):
        if not (isinstance(given, type) and issubclass(given, BaseModelCall)):
            raise ConfigError(
                f"The provider '{prefix}' of an installed package is {given!r:.80}; expected a "
                f"subclass of BaseModelCall."
            )
        _list_of(given).setdefault(prefix, given)


# -- for tests -------------------------------------------------------------------------------------


class Rehearsed(BaseModelCall):
    """A model that answers by a script, without a network."""

    model: str = "fake"
    cache: bool | None = False
    max_outage: float = Field(default=0.0, ge=0)
    """A script does not come back by itself: every failure counts."""

    def endpoint_key(self) -> str:
        """A name of its own, so that fake and real calls never share a limit."""
        return f"fake:{self.model}"


@provider("fake")
class FakeLLM(Rehearsed, BaseLLM):
    """Answers with a fixed text, with texts from a list chosen by the question's hash, or with what
    a function returns.

    The function is given the text of the last message. It may raise, which is how failures are
    rehearsed. The same question always gets the same answer unless the function decides otherwise.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    remote: ClassVar[bool] = False

    reply: str | list[str] | Callable[[str], str] = ""
    latency: float = 0.0
    """Seconds every answer takes."""
    finish_reason: str = "stop"

    @classmethod
    def from_name(cls, name: str, **settings: Any) -> FakeLLM:
        """`fake:TEXT` always answers TEXT."""
        return cls(reply=name, **settings)

    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
        """One scripted answer in the OpenAI layout, with token counts of about four characters
        each.
        """
        if self.latency:
            await asyncio.sleep(self.latency)
        question = str(payload["messages"][-1]["content"]) if payload.get("messages") else ""
        # a stable hash: Python's own differs from process to process
        first = sum(question.encode("utf-8", "surrogatepass"))
        numbers = range(int(payload.get("n", 1)))
        if callable(self.reply):
            texts = [self.reply(question) for _ in numbers]
        elif script := [self.reply] if isinstance(self.reply, str) else self.reply:
            texts = [script[(first + number) % len(script)] for number in numbers]
        else:
            raise ConfigError("FakeLLM.reply is an empty list; give it at least one text.")
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": text},
                "finish_reason": self.finish_reason,
            }
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": _tokens(question), "completion_tokens": _tokens(*texts)}
        return {"model": self.model, "choices": choices, "usage": usage}
