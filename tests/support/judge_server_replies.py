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

_WORD = re.compile(r"\w+", re.UNICODE)


def count_tokens(text: str) -> int:
    """Rough number of tokens: one per four characters, at least one for a text that is not empty."""
    return max(1, len(text) // 4) if text else 0


def chat_body(
    body: Mapping[str, Any], texts: Sequence[str | None], prompt: str, *, number: int, finish_reason: str = "stop"
) -> dict[str, Any]:
    """A chat.completion object with one choice per text; token counts follow `count_tokens`."""
    prompt_tokens = count_tokens(prompt)
    completion_tokens = sum(count_tokens(text or "") for text in texts)
    return {
        "id": f"chatcmpl-{number:08d}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "judge-1"),
        "choices": [_choice(index, text, finish_reason) for index, text in enumerate(texts)],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _choice(index: int, text: str | None, finish_reason: str) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "finish_reason": finish_reason,
        "logprobs": None,
    }


def embedding(text: str, size: int) -> list[float]:
    """Unit vector of hashed words: equal texts give equal vectors, texts sharing words are near each other."""
    vector = [0.0] * size
    for word in _WORD.findall(text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[number % size] += 1.0 if number & (1 << 62) else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    if not length:
        # words may cancel each other; a zero vector has no direction
        vector[0] = length = 1.0
    return [x / length for x in vector]


def embeddings_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """An embeddings list; `dimensions` and `encoding_format` (float or base64 of little-endian float32) are honoured."""
    given = body.get("input", "")
    many = isinstance(given, list) and not all(isinstance(item, int) for item in given)
    texts = [str(item) for item in given] if many else [str(given)]
    wanted = int(body.get("dimensions") or 64)
    vectors: list[Any] = [embedding(text, wanted) for text in texts]
    if body.get("encoding_format") == "base64":
        vectors = [base64.b64encode(struct.pack(f"<{wanted}f", *vector)).decode() for vector in vectors]
    tokens = sum(count_tokens(text) for text in texts)
    return {
        "object": "list",
        "model": body.get("model", "embed-1"),
        "data": [{"object": "embedding", "index": k, "embedding": vector} for k, vector in enumerate(vectors)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
