"""Vectors for texts from any OpenAI-compatible /embeddings endpoint, over the call path of the chat models."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import math
import re
import sys
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import BaseLLM, Messages
from rm_gallery.core.model.message import ChatResponse
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.utils.errors import ConfigError, ProviderError

_WORD = re.compile(r"\w+")


class BaseEmbeddings(BaseLLM):
    """A model that turns texts into vectors of one length; cache, limits, retries and budget are those of every model call.

    A provider implements `request` (one request, one raw answer in the OpenAI layout) and `endpoint_key`.
    """

    cache: bool | None = True
    """Whether vectors are kept; the same text always has the same one."""
    dimensions: int | None = Field(default=None, gt=0)
    """Length of the vectors, for models that let one choose."""
    batch: int = Field(default=64, gt=0)
    """Texts per request."""

    @abstractmethod
    async def request(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Make one request and return the decoded answer; raises ProviderError or ConfigError."""

    async def aembed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order; may be awaited from any event loop.

        Equal texts are sent once. Raises ConfigError without a key, ProviderError when the endpoint gives no usable answer,
        RequestError for text that is not valid Unicode, DeadlineExceeded, BudgetExceeded.
        """
        different = list(dict.fromkeys(texts))
        found = await library_loop.bridge(self._embed(different))
        vectors = dict(zip(different, found, strict=True))
        return [vectors[text] for text in texts]

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Blocking twin of `aembed`; works with and without a running event loop."""
        return library_loop.run(self.aembed(texts), "embed", "aembed")

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        from rm_gallery.core.model.call import complete

        parts = [texts[start : start + self.batch] for start in range(0, len(texts), self.batch)]
        replies = await asyncio.gather(*(complete(self, self._body(part)) for part in parts))
        return [v for part, reply in zip(parts, replies, strict=True) for v in _unpacked(reply.text, len(part))]

    def _body(self, texts: list[str]) -> dict[str, Any]:
        chosen = {} if self.dimensions is None else {"dimensions": self.dimensions}
        return {"model": self.model, "input": texts, **chosen, **self.extra_body}

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One request; the vectors travel on as the text of a reply, so that one call path serves all models."""
        raw = await self.request(payload, timeout)
        vectors = _checked(raw, len(payload["input"]), self.endpoint_key())
        message = {"role": "assistant", "content": _packed(vectors)}
        usage = raw.get("usage") if isinstance(raw.get("usage"), dict) else {}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"model": str(raw.get("model") or self.model), "choices": [choice], "usage": usage}

    async def achat(self, messages: Messages, *, repeat: int = 0, **overrides: Any) -> ChatResponse:
        """Raise ConfigError: this model does not chat."""
        raise ConfigError(f"'{self.model}' is set up for embeddings and cannot chat; use OpenaiLLM for that.")


class OpenaiEmbeddings(BaseEmbeddings, OpenaiLLM):
    """Embeddings behind an OpenAI-protocol endpoint (OpenAI, vLLM, TEI, Ollama, DashScope, …); settings as in OpenaiLLM."""

    model: str = "text-embedding-3-small"

    async def request(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to /embeddings; anything but a JSON object with status 200 raises ProviderError."""
        return await self.post("/embeddings", payload, timeout)


class FakeEmbeddings(BaseEmbeddings):
    """Vectors of hashed words, without a network: for tests, documentation and dry runs.

    Equal texts have equal vectors, and texts are nearer the more words they share; meaning plays no part.
    """

    model: str = "fake"
    cache: bool | None = False
    dimensions: int | None = Field(default=256, gt=0)

    def endpoint_key(self) -> str:
        """A name of its own, so that fake and real calls never share a limit."""
        return f"fake:{self.model}"

    async def request(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Vectors in the OpenAI layout."""
        size = self.dimensions or 256
        data = [{"index": i, "embedding": _hashed(text, size)} for i, text in enumerate(payload["input"])]
        return {"model": self.model, "data": data, "usage": {"prompt_tokens": sum(map(len, payload["input"])) // 4}}


def resolve_embeddings(spec: str | dict[str, Any] | BaseEmbeddings) -> BaseEmbeddings:
    """The embeddings for a spec: an object as it is, a model name, `fake:`, or a dict of OpenaiEmbeddings' fields."""
    if isinstance(spec, BaseEmbeddings):
        return spec
    if isinstance(spec, dict):
        return OpenaiEmbeddings(**spec)
    if not isinstance(spec, str) or not spec:
        raise ConfigError(
            f"embeddings is {spec!r}; give an OpenaiEmbeddings, a model's name or a dict of its settings."
        )
    return FakeEmbeddings() if spec.startswith("fake:") else OpenaiEmbeddings(model=spec)


def _checked(raw: dict[str, Any], wanted: int, endpoint: str) -> list[array[float]]:
    """The vectors of a raw answer in the order of the texts; ProviderError when one is missing or broken."""
    data = raw.get("data")
    entries = data if isinstance(data, list) and all(isinstance(entry, dict) for entry in data) else []
    by_index = {entry.get("index", place): entry.get("embedding") for place, entry in enumerate(entries)}
    if len(entries) != wanted or set(by_index) != set(range(wanted)):
        what = f"{len(entries)} vectors for {wanted} texts" if entries else "no vectors"
        raise ProviderError(f"{endpoint} answered 200 with {what} in the body.", kind="transient")
    vectors = [_vector(by_index[place]) for place in range(wanted)]
    found = [vector for vector in vectors if vector and all(map(math.isfinite, vector))]
    if len(found) != wanted or len({len(vector) for vector in found}) > 1:
        raise ProviderError(
            f"{endpoint} answered with a vector that is empty, broken or of another length.", kind="transient"
        )
    return found


def _vector(value: Any) -> array[float] | None:
    try:
        # float32 is as precise as endpoints compute, and half the bytes to keep
        return _floats(base64.b64decode(value, validate=True)) if isinstance(value, str) else array("f", value)
    except (TypeError, ValueError, OverflowError, binascii.Error):
        return None


def _packed(vectors: list[array[float]]) -> str:
    return base64.b64encode(b"".join(_swapped(vector).tobytes() for vector in vectors)).decode()


def _unpacked(text: str, count: int) -> Iterator[list[float]]:
    flat = _floats(base64.b64decode(text)).tolist()
    size = len(flat) // count
    return (flat[start : start + size] for start in range(0, size * count, size))


def _floats(data: bytes) -> array[float]:
    return _swapped(array("f", data))


def _swapped(values: array[float]) -> array[float]:
    """From or to little-endian, which is how endpoints and the cache write numbers."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


def _hashed(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in _WORD.findall(text.lower()) or [text]:
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
        vector[int.from_bytes(digest[:8], "big") % size] += 1.0 if digest[8] & 1 else -1.0
    return vector
