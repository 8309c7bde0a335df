"""Bodies of successful replies: chat completions and embeddings."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any


def count_tokens(text: str) -> int:
    """Rough number of tokens: one per four characters, at least one for a text that is not empty."""
    return max(1, len(text) // 4) if text else 0


def chat_body(
    body: Mapping[str, Any],
    texts: Sequence[str | None],
    prompt: str,
    *,
    number: int,
    finish_reason: str = "stop",
) -> dict[str, Any]:
    """A chat.completion object with one choice per text."""
    asked, said = count_tokens(prompt), sum(count_tokens(text or "") for text in texts)
    messages = [{"role": "assistant", "content": text, "refusal": None} for text in texts]
    ended = {"finish_reason": finish_reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{number:08d}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "judge-1"),
        "choices": [
            {"index": index, "message": message, **ended} for index, message in enumerate(messages)
        ],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def embedding(text: str, size: int) -> list[float]:
    """Unit vector of hashed words: equal texts give equal vectors, texts sharing words are near
    each other.
    """
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[number % size] += 1.0 if number & (1 << 62) else -1.0
    if not any(vector):
        vector[0] = 1.0  # words may cancel each other; a zero vector has no direction
    length = math.hypot(*vector)
    return [x / length for x in vector]


def embeddings_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """An embeddings list; `dimensions` and `encoding_format` (float or base64 of little-endian
    float32) are honoured.
    """
    given = body.get("input", "")
    texts = [str(item) for item in given] if isinstance(given, list) else [str(given)]
    wanted = int(body.get("dimensions") or 64)
    vectors: list[Any] = [embedding(text, wanted) for text in texts]
    if body.get("encoding_format") == "base64":
        vectors = [
            base64.b64encode(struct.pack(f"<{wanted}f", *vector)).decode() for vector in vectors
        ]
    tokens = sum(map(count_tokens, texts))
    return {
        "object": "list",
        "model": body.get("model", "embed-1"),
        "data": [
            {"object": "embedding", "index": k, "embedding": vector}
            for k, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
