"""Providers by prefix: from `openai:gpt-x` on a command line, or a dict in a configuration, to a model object."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field

from rm_gallery.core.model.base import BaseLLM, BaseModelCall
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

if TYPE_CHECKING:
    from rm_gallery.core.model.embeddings import BaseEmbeddings


M = TypeVar("M", bound=BaseModelCall)
DEFAULT = "openai"
"""Protocol of a name without a prefix."""
_chat: dict[str, type[BaseModelCall]] = {}
_embeddings: dict[str, type[BaseModelCall]] = {}
# Tags such as llama3:8b or mistral:latest, and fine-tuned models (ft:gpt-4o:org::id), belong to the model's name.
_TAG = re.compile(r"\d|latest\b|instruct\b|chat\b|text\b|code\b|v\d|q\d|fp\d", re.IGNORECASE)


def provider(prefix: str) -> Callable[[type[M]], type[M]]:
    """Register a model class under a prefix; chat models and embeddings have a list each.

    A module of `rm_gallery.core.model` that holds such a class is found by itself; one from elsewhere once it is imported.
    """

    def register(cls: type[M]) -> type[M]:
        known = _chat if issubclass(cls, BaseLLM) else _embeddings
        known[prefix] = cls
        return cls

    return register


def resolve_llm(llm: str | dict[str, Any] | BaseLLM, **settings: Any) -> BaseLLM:
    """The model for a spec: a model object as it is, `PREFIX:NAME`, a model's name, or a dict of settings.

    `settings` are further fields (base_url, temperature, …). In a dict, `provider` may name the prefix. Raises ConfigError
    for anything else.
    """
    if isinstance(llm, BaseLLM):
        return llm
    found = _resolve("llm", llm, _chat, settings)
    assert isinstance(found, BaseLLM)
    return found


def resolve_embeddings(spec: str | dict[str, Any] | BaseEmbeddings) -> BaseEmbeddings:
    """The embeddings for a spec: an object as it is, `PREFIX:NAME`, a model's name, or a dict of settings."""
    from rm_gallery.core.model.embeddings import BaseEmbeddings

    if isinstance(spec, BaseEmbeddings):
        return spec
    found = _resolve("embeddings", spec, _embeddings, {})
    assert isinstance(found, BaseEmbeddings)
    return found


def _resolve(what: str, spec: Any, known: dict[str, type[BaseModelCall]], settings: dict[str, Any]) -> BaseModelCall:
    if isinstance(spec, dict):
        settings = {**spec, **settings}
        prefix, name = str(settings.pop("provider", DEFAULT)), settings.pop("model", "")
    elif isinstance(spec, str):
        prefix, name = split(spec, known)
    else:
        raise ConfigError(f"{what} is {type(spec).__name__}; give a model object, a model's name or a dict of settings.")
    cls = _find(prefix, known)
    if cls is None:
        raise ConfigError(unknown_name(f"provider of {what}", prefix, known))
    return cls.from_name(name, **settings)


def split(spec: str, known: dict[str, type[BaseModelCall]] | None = None) -> tuple[str, str]:
    """Prefix and name of a spec; a name without a known prefix means the OpenAI protocol.

    Raises ConfigError for what looks like a provider and is none.
    """
    known = _chat if known is None else known
    prefix, colon, name = spec.partition(":")
    if not colon or "/" in prefix:
        return DEFAULT, spec
    if _find(prefix, known) is not None:
        return prefix, name
    if not prefix.isalpha() or prefix == "ft" or _TAG.match(name):
        return DEFAULT, spec
    raise ConfigError(
        f"There is no provider '{prefix}'. Known: {', '.join(sorted(known))}. A model that is called '{spec}' is "
        f"written '{DEFAULT}:{spec}'."
    )


def registered() -> list[tuple[str, type[BaseModelCall]]]:
    """Prefix and class of every provider, chat models first."""
    _import_all()
    return [*_chat.items(), *_embeddings.items()]


def _find(prefix: str, known: dict[str, type[BaseModelCall]]) -> type[BaseModelCall] | None:
    if prefix not in known:
        _import_all()
    return known.get(prefix)


def _import_all() -> None:
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


Script = str | list[str] | Callable[[str], str]


@provider("fake")
class FakeLLM(BaseLLM):
    """Answers with a fixed text, with texts from a list chosen by the question's hash, or with what a function returns.

    The function is given the text of the last message. It may raise, which is how failures are rehearsed. The same
    question always gets the same answer unless the function decides otherwise.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    remote: ClassVar[bool] = False

    model: str = "fake"
    reply: Script = ""
    latency: float = 0.0
    """Seconds every answer takes."""
    finish_reason: str = "stop"
    cache: bool | None = False
    max_outage: float = Field(default=0.0, ge=0)
    """A script does not come back by itself: every failure counts."""

    @classmethod
    def from_name(cls, name: str, **settings: Any) -> FakeLLM:
        """`fake:TEXT` always answers TEXT."""
        return cls(reply=name, **settings)

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One scripted answer in the OpenAI layout, with token counts of about four characters each."""
        if self.latency:
            await asyncio.sleep(self.latency)
        question = payload["messages"][-1]["content"] if payload.get("messages") else ""
        question = question if isinstance(question, str) else str(question)
        texts = [self._answer(question, i) for i in range(int(payload.get("n", 1)))]
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": self.finish_reason}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(question) // 4 + 1, "completion_tokens": sum(len(t) for t in texts) // 4 + 1}
        return {"model": self.model, "choices": choices, "usage": usage}

    def _answer(self, question: str, index: int) -> str:
        if callable(self.reply):
            return self.reply(question)
        if isinstance(self.reply, str):
            return self.reply
        if not self.reply:
            raise ConfigError("FakeLLM.reply is an empty list; give it at least one text.")
        # a stable hash: Python's own differs from process to process
        position = sum(question.encode("utf-8", "surrogatepass")) + index
        return self.reply[position % len(self.reply)]

    def endpoint_key(self) -> str:
        """A name of its own, so that fake and real calls never share a limit."""
        return f"fake:{self.model}"
