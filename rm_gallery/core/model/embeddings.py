"""Vectors for texts from any OpenAI-compatible /embeddings endpoint, over the call path of the chat
models.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.model.base import embedding_providers, provider, resolve_spec
from rm_gallery.core.model.budget import Usage
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai import OpenaiEndpoint, OpenaiSettings, given, token_count
from rm_gallery.core.utils.errors import ProviderError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Vectors(NamedTuple):
    """What one request gave: vectors of one length, of float32 values, which is as precise as
    endpoints compute.
    """

    vectors: list[tuple[float, ...]]
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
        from rm_gallery.core.model.client import complete

        different, size = list(dict.fromkeys(texts)), self.dimensions
        chosen = {"model": self.model, **({} if size is None else {"dimensions": size})}
        replies = await asyncio.gather(
            *(
                library_loop.bridge(
                    complete(
                        self,
                        {**chosen, "input": different[at : at + self.batch], **self.extra_body},
                    )
                )
                for at in range(0, len(different), self.batch)
            )
        )
        vectors = dict(zip(different, chain(*(reply.vectors for reply in replies)), strict=True))
        return [list(vectors[text]) for text in texts]

    embed = library_loop.blocking(aembed)

    def read(self, raw: dict[str, Any], payload: dict[str, Any]) -> Vectors:
        """The vectors in the order of the texts; ProviderError when one is missing or broken."""
        entries: Any = raw.get("data")
        counts, wanted = raw.get("usage"), len(payload["input"])
        fault = "200 with no vectors in the body"
        with suppress(
            TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error
        ):
            found = {e.get("index", at): e.get("embedding") for at, e in enumerate(entries)}
            if found:
                fault = f"200 with {len(entries)} vectors for {wanted} texts in the body"
            if len(entries) == wanted:
                values = [found[at] for at in range(wanted)]
                fault = "with a vector that is empty, broken or of another length"
                vectors = [*map(_floats, values)]
                (size,) = {*map(len, vectors)}
                if size and math.isfinite(math.fsum(chain(*vectors))):
                    tokens = counts.get("prompt_tokens") if isinstance(counts, dict) else 0
                    return Vectors(vectors, token_count(tokens))
        raise ProviderError(f"{self.endpoint_key()} answered {fault}.", kind="transient")

    def kept(self, raw: dict[str, Any], reply: Vectors) -> bytes:
        """Number and length of the vectors, then their float32 values, little-endian."""
        count, size = len(reply.vectors), len(reply.vectors[0])
        return struct.pack(f"<II{count * size}f", count, size, *chain(*reply.vectors))

    def restored(self, stored: bytes) -> Vectors:
        """The vectors of `kept`; ValueError for anything else."""
        with suppress(struct.error):
            count, size = struct.unpack_from("<II", stored)
            vectors = [*struct.iter_unpack(f"<{size}f", stored[8:])]
            if len(vectors) == count:
                return Vectors(vectors)
        raise ValueError("torn vectors")

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
        return {"data": [{"embedding": _hashed(text, size)} for text in payload["input"]]}


def _floats(vector: Any) -> tuple[float, ...]:
    """A list or base64 as the float32 values that the cache keeps."""
    packed = (
        base64.b64decode(vector, validate=True)
        if isinstance(vector, str)
        else struct.pack(f"<{len(vector)}f", *vector)
    )
    return struct.unpack(f"<{len(packed) // 4}f", packed)


def _hashed(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()) or [text]:
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
