"""The manifest of a run: what must be the same for two commands to be the same run, without its secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from rm_gallery.core.utils.secrets import redact

_ABSENT = "(absent)"
_SHOWN = 20


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
