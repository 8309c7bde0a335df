"""JSON objects in a model's text, also those with trailing commas, comments or single quotes."""

from __future__ import annotations

import json
import re
from typing import Any

LENIENT = 50_000
"""Characters of an object that is not strict JSON, at most."""
DEEPEST = 20

_SPACE = re.compile(r"(?:[ \t\r\n\u00a0]+|//[^\n]*|/\*.*?\*/|#[^\n]*)*", re.S)
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|“([^“”]*)”", re.S)
_KEY = re.compile(_STRING.pattern + r"|([A-Za-z_]\w{0,40}|\d{1,4})(?=\s*[:：])", re.S)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"'“”，：]{1,40}")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.S)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class TwoValues(ValueError):
    """An object says two different things under one key."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, value in pairs:
            if found[key] != value or type(found[key]) is not type(value):
                raise TwoValues(f"{key!r} stands twice in one object, with different values")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_once, strict=False)


def object_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The object that begins at `start` and where it ends; None when there is no complete one.

    Raises:
        TwoValues: a key has two values.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except TwoValues:
        raise
    except (ValueError, RecursionError):
        return _lenient(text[start : start + LENIENT], start)
    return (value, end) if isinstance(value, dict) else None


def _lenient(text: str, offset: int) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = _value(text, 0, 0)
    except TwoValues:
        raise
    except (ValueError, IndexError):
        return None
    return (value, offset + end) if isinstance(value, dict) else None


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _after_space(text, at)
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if text[at] == "{":
        return _members(text, at + 1, depth)
    if text[at] == "[":
        return _items(text, at + 1, depth)
    string = _STRING.match(text, at)
    if string:
        return _unescaped(next(part for part in string.groups() if part is not None)), string.end()
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise ValueError("no value")
    word = scalar[0]
    if word.lower() in _WORDS:
        return _WORDS[word.lower()], scalar.end()
    return json.loads(word), scalar.end()


def _items(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found = []
    at = _after_space(text, at)
    while text[at] != "]":
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _after_comma(text, at, "]")
    return found, at + 1


def _members(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    pairs = []
    at = _after_space(text, at)
    while text[at] != "}":
        key = _KEY.match(text, at)
        if key is None:
            raise ValueError("no key")
        at = _after_space(text, key.end())
        if text[at] not in ":：":
            raise ValueError("no colon")
        value, at = _value(text, at + 1, depth + 1)
        pairs.append((next(part for part in key.groups() if part is not None), value))
        at = _after_comma(text, at, "}")
    return _once(pairs), at + 1


def _after_comma(text: str, at: int, closing: str) -> int:
    at = _after_space(text, at)
    if text[at] in ",，":
        return _after_space(text, at + 1)
    if text[at] != closing:
        raise ValueError("no comma")
    return at


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]), text) if "\\" in text else text
