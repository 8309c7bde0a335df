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
from rm_gallery.core.model.base import Rehearsed, provider, resolve_spec
from rm_gallery.core.model.model_call import BaseModelCall
from rm_gallery.core.model.openai import (
    ODD_LAYOUT,
    OpenaiEndpoint,
    OpenaiSettings,
    given,
    unusable,
    usage_of,
)
from rm_gallery.core.model.transport import Json, Seconds

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
        requests = [
            {**chosen, "input": different[at : at + self.batch], **self.extra_body}
            for at in range(0, len(different), self.batch)
        ]
        replies = await asyncio.gather(
            *(library_loop.bridge(complete(self, each)) for each in requests)
        )
        vectors = dict(zip(different, chain(*(reply.vectors for reply in replies)), strict=True))
        return [list(vectors[text]) for text in texts]

    embed = library_loop.blocking(aembed)

    def read(self, raw: Json, payload: Json) -> Vectors:
        """The vectors in the order of the texts; ProviderError when one is missing or broken."""
        entries, wanted = raw.get("data", ()), len(payload["input"])
        fault = "200 with no vectors in the body"
        with suppress(*ODD_LAYOUT, struct.error):
            by_place = {e.get("index", at): e.get("embedding") for at, e in enumerate(entries)}
            if by_place:
                fault = f"200 with {len(entries)} vectors for {wanted} texts in the body"
            if len(entries) == wanted:
                values = [by_place[at] for at in range(wanted)]
                fault = "with a vector that is empty, broken or of another length"
                vectors = [*map(_floats, values)]
                (size,) = {*map(len, vectors)}
                if size and math.isfinite(math.fsum(chain(*vectors))):
                    return Vectors(vectors, usage_of(raw.get("usage")).input_tokens)
        raise unusable(self.endpoint_key(), f"answered {fault}")

    def kept(self, raw: Json, reply: Vectors) -> bytes:
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


class EmbeddingSettings(OpenaiSettings, total=False):
    """Settings of an embedding model."""

    dimensions: int | None
    batch: int


@provider("openai")
class OpenaiEmbeddings(BaseEmbeddings, OpenaiEndpoint):
    """Embeddings behind an OpenAI-protocol endpoint (OpenAI, vLLM, TEI, Ollama, DashScope, …);
    settings as in OpenaiLLM.
    """

    path = "/embeddings"

    def __init__(self, model: str | None = None, **settings: Unpack[EmbeddingSettings]) -> None:
        """A wrong or unknown setting is a ConfigError that names it and the nearest known one."""
        super().__init__(**given(type(self), model, dict(settings)))


@provider("fake")
class FakeEmbeddings(Rehearsed, BaseEmbeddings):
    """Vectors of hashed words, without a network: for tests, documentation and dry runs.

    Equal texts have equal vectors, and texts are nearer the more words they share; meaning plays no
    part.
    """

    dimensions: int | None = Field(default=256, gt=0)

    async def attempt(self, payload: Json, timeout: Seconds) -> Json:
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


def resolve_embeddings(spec: str | Json | BaseEmbeddings) -> BaseEmbeddings:
    """The embeddings for a spec: an object as it is, `PREFIX:NAME`, a model's name, or a dict of
    settings.
    """
    model: BaseEmbeddings = resolve_spec("embeddings", spec, BaseEmbeddings, {})
    return model
