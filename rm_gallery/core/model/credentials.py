"""Which headers, query parameters and fields hold a credential, going by their names."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
_WORDS = re.compile(r"[^a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CREDENTIALS = frozenset(
    "authorization auth bearer cookie token apikey secret password passwd credential credentials signature sig jwt "
    "api-key access-key account-key auth-key subscription-key private-key functions-key virtual-key".split()
)


def is_credential(name: str) -> bool:
    """Whether a header, query parameter or field of this name holds a credential."""
    words = [word for word in _WORDS.split(_HUMP.sub("-", name).lower()) if word not in ("", "x")]
    pairs = (f"{a}-{b}" for a, b in zip(words, words[1:], strict=False))
    return words == ["key"] or not _CREDENTIALS.isdisjoint(words) or not _CREDENTIALS.isdisjoint(pairs)


def without_credentials(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with *** in place of credentials; numbers are none, whatever they are called (`stop_token_ids`)."""
    return {name: HIDDEN if is_credential(name) and not _numbers(value) else value for name, value in fields.items()}


def _numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_numbers, value))
    return value is None or isinstance(value, (bool, int, float))
