"""Secrets are told by their keys and shapes, and never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

# Last words of a key that name a secret; `max_tokens`, `api_key_env` and a tokenizer's `eos_token` do not.
_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|apikey|access_?key|private_?key|secret_?key|subscription_?key|auth|authorization|password|passwd|"
    r"passphrase|secret|credentials?|cookie|bearer)$"
)
_TOKENIZER = re.compile(r"(^|_)(bos|eos|pad|unk|sep|cls|mask|stop|start|end|image|special)_token$")
_SECRET_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"\b(sk|pk|hf|ghp|gho|xoxb)[-_][\w-]{12,}"), rf"\1-{MASK}"),
    (re.compile(r"(://)[^/\s:@]+:[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)([?&](?:api[-_]?key|key|token|sig|signature|password)=)[^&\s#]+"), rf"\1{MASK}"),
)


def redact(obj: Any) -> Any:
    """A copy with `***` in place of secrets: values of telling keys, and keys and passwords inside texts and URLs."""
    if isinstance(obj, Mapping):
        return {key: MASK if _is_secret(key, value) else redact(value) for key, value in obj.items()}
    if isinstance(obj, str):
        for pattern, replacement in _SECRET_TEXT:
            obj = pattern.sub(replacement, obj)
        return obj
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [redact(value) for value in (obj if isinstance(obj, (list, tuple)) else sorted(obj, key=repr))]
    return obj


def _is_secret(key: object, value: object) -> bool:
    if not isinstance(key, str) or value is None or isinstance(value, (bool, int, float)) or value in ("", MASK):
        return False
    # apiKey and X-Api-Key are spelled like api_key.
    name = re.sub(r"[-\s.]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)).lower()
    if _SECRET_KEY.search(name):
        return True
    return bool(re.search(r"(^|_)token$", name)) and not _TOKENIZER.search(name)


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
