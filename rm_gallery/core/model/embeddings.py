"""Vectors for texts from any OpenAI-compatible /embeddings endpoint, over the call path of the chat
models.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import math
import re
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import embedding_providers, provider, resolve_spec
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai_endpoint import OpenaiEndpoint
from rm_gallery.core.model.openai_llm import OpenaiSettings, given
from rm_gallery.core.model.transport import token_count
from rm_gallery.core.utils.errors import ProviderError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WORD = re.compile(r"\w+")
_HEAD = struct.Struct("<II")


class Vectors(NamedTuple):
    """What one request gave: float32 vectors of one length, which is as precise as endpoints
    compute.
    """

    vectors: list[array[float]]
    input_tokens: int = 0


class BaseEmbeddings(BaseModelCall):
    """A model that turns texts into vectors of one length. `attempt` gives a raw answer in the
    OpenAI embeddings layout.
    """

    cache: bool | None = True
    """Whether vectors are kept; the same text always has the same one."""
    dimensions: int | None = Field(default=None, gt=0)
    """Length of the vectors, for models that let one choose."""
    batch: int = Field(default=64, gt=0)
    """Texts per request."""

    async def aembed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order; may be awaited from any event loop.

        Equal texts are sent once. Raises ConfigError without a key, ProviderError when the endpoint
        gives no usable answer, RequestError for text that is not valid Unicode, DeadlineExceeded,
        BudgetExceeded.
        """
        different = list(dict.fromkeys(texts))
        embedded = await library_loop.bridge(self._embed(different))
        vectors = dict(zip(different, embedded, strict=True))
        return [vectors[text] for text in texts]

    embed = library_loop.blocking(aembed)

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        from rm_gallery.core.model.client import complete

        chosen = {} if self.dimensions is None else {"dimensions": self.dimensions}
        parts = [texts[start : start + self.batch] for start in range(0, len(texts), self.batch)]
        bodies = [
            {"model": self.model, "input": part, **chosen, **self.extra_body} for part in parts
        ]
        replies: list[Vectors] = await asyncio.gather(*(complete(self, body) for body in bodies))
        return [vector.tolist() for reply in replies for vector in reply.vectors]

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> Vectors:
        """The vectors in the order of the texts."""
        counts = raw.get("usage")
        tokens = token_count(counts.get("prompt_tokens")) if isinstance(counts, dict) else 0
        return Vectors(_check_vectors(raw, len(payload["input"]), self.endpoint_key()), tokens)

    def kept(self, raw: dict[str, Any], reply: Vectors) -> bytes:
        """Number and length of the vectors, then their float32 values, little-endian."""
        size = len(reply.vectors[0]) if reply.vectors else 0
        return _HEAD.pack(len(reply.vectors), size) + b"".join(
            _swapped(v).tobytes() for v in reply.vectors
        )

    def restored(self, stored: bytes) -> Vectors:
        """The vectors of `kept`; ValueError for anything else."""
        if len(stored) < _HEAD.size:
            raise ValueError("no vectors")
        count, size = _HEAD.unpack_from(stored)
        flat = _floats(stored[_HEAD.size :])
        if len(flat) != count * size:
            raise ValueError("torn vectors")
        return Vectors([flat[at * size : (at + 1) * size] for at in range(count)])

    def usage(self, reply: Vectors, expected_input: int) -> Usage:
        """Input tokens of one call."""
        return Usage(input_tokens=reply.input_tokens or expected_input, calls=1)


class EmbeddingSettings(OpenaiSettings, total=False):
    """Settings of an embedding model."""

    dimensions: int | None
    batch: int


@provider("openai")
class OpenaiEmbeddings(BaseEmbeddings, OpenaiEndpoint):
    """Embeddings behind an OpenAI-protocol endpoint (OpenAI, vLLM, TEI, Ollama, DashScope, …);
    settings as in OpenaiLLM.
    """

    def __init__(self, model: str | None = None, **settings: Unpack[EmbeddingSettings]) -> None:
        """A wrong or unknown setting is a ConfigError that names it and the nearest known one."""
        super().__init__(**given(type(self), model, dict(settings)))

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """One POST to /embeddings; anything but a JSON object with status 200 raises ProviderError."""
        return await self.post("/embeddings", payload, timeout)


@provider("fake")
class FakeEmbeddings(BaseEmbeddings):
    """Vectors of hashed words, without a network: for tests, documentation and dry runs.

    Equal texts have equal vectors, and texts are nearer the more words they share; meaning plays no
    part.
    """

    model: str = "fake"
    cache: bool | None = False
    max_outage: float = Field(default=0.0, ge=0)
    dimensions: int | None = Field(default=256, gt=0)

    def endpoint_key(self) -> str:
        """A name of its own, so that fake and real calls never share a limit."""
        return f"fake:{self.model}"

    async def attempt(self, payload: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Vectors in the OpenAI layout."""
        size = self.dimensions or 256
        data = [
            {"index": i, "embedding": _hashed(text, size)}
            for i, text in enumerate(payload["input"])
        ]
        return {
            "model": self.model,
            "data": data,
            "usage": {"prompt_tokens": sum(map(len, payload["input"])) // 4},
        }


def _check_vectors(raw: dict[str, Any], wanted: int, endpoint: str) -> list[array[float]]:
    """The vectors of a raw answer in the order of the texts; ProviderError when one is missing or
    broken.
    """
    data = raw.get("data")
    entries = (
        data if isinstance(data, list) and all(isinstance(entry, dict) for entry in data) else []
    )
    places = [entry.get("index", place) for place, entry in enumerate(entries)]
    by_index = {
        place: entry.get("embedding")
        for place, entry in zip(places, entries, strict=True)
        if isinstance(place, int)
    }
    if len(entries) != wanted or by_index.keys() != set(range(wanted)):
        what = f"{len(entries)} vectors for {wanted} texts" if entries else "no vectors"
        raise ProviderError(f"{endpoint} answered 200 with {what} in the body.", kind="transient")
    vectors = [_vector(by_index[place]) for place in range(wanted)]
    usable = [vector for vector in vectors if vector and all(map(math.isfinite, vector))]
    if len(usable) != wanted or len({len(vector) for vector in usable}) > 1:
        raise ProviderError(
            f"{endpoint} answered with a vector that is empty, broken or of another length.",
            kind="transient",
        )
    return usable


def _vector(value: Any) -> array[float] | None:
    try:
        # float32 is as precise as endpoints compute, and half the bytes to keep
        return (
            _floats(base64.b64decode(value, validate=True))
            if isinstance(value, str)
            else array("f", value)
        )
    except (TypeError, ValueError, OverflowError, binascii.Error):
        return None


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


def resolve_embeddings(spec: str | dict[str, Any] | BaseEmbeddings) -> BaseEmbeddings:
    """The embeddings for a spec: an object as it is, `PREFIX:NAME`, a model's name, or a dict of
    settings.
    """
    if isinstance(spec, BaseEmbeddings):
        return spec
    model = resolve_spec("embeddings", spec, embedding_providers, {})
    assert isinstance(model, BaseEmbeddings)
    return model
