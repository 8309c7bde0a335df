"""The manifest of a run: what must be the same for two commands to be the same run, without its secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

MASK = "***"
_ABSENT = "(absent)"
_SHOWN = 20

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


def plain(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as it reads back from its file: redacted, and in JSON's types."""
    data = orjson.dumps(redact(manifest), default=str, option=orjson.OPT_NON_STR_KEYS)
    content: dict[str, Any] = orjson.loads(data)
    return content


def differences(old: Mapping[str, Any], new: Mapping[str, Any], not_compared: Collection[str] = ()) -> list[str]:
    """One line `key: old → new` per value that differs, with dotted keys; top-level keys can be left out."""
    before = {key: value for key, value in old.items() if key not in not_compared}
    after = {key: value for key, value in new.items() if key not in not_compared}
    lines = [f"{path or '(all)'}: {_shown_apart(a, b)}" for path, a, b in _differing("", before, after)]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more"]


def _differing(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differing(f"{path}.{key}" if path else str(key), old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differing(f"{path}[{position}]", a, b)
    elif old != new or type(old) is not type(new) and not _numbers(old, new):
        yield path, old, new


def _numbers(*values: object) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _shown_apart(old: Any, new: Any) -> str:
    """Both values, long ones from shortly before the place where they part."""
    a, b = (value if value is _ABSENT else orjson.dumps(value).decode() for value in (old, new))
    shared = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, shared - 20) if min(len(a), len(b)) > 80 else 0
    return f"{_excerpt(a, start)} → {_excerpt(b, start)}"


def _excerpt(text: str, start: int) -> str:
    return ("… " if start else "") + text[start : start + 75] + (" …" if len(text) > start + 75 else "")


def describe(lines: Sequence[str]) -> str:
    """The differences as an indented block."""
    return "\n".join(f"  {line}" for line in lines)
