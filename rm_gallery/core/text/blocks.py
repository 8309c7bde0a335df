"""Parts of a text a model wrote: fenced blocks, tagged sections, prose without code, JSON, Python
source.
"""

from __future__ import annotations

import ast
import json
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from rm_gallery.core.utils.identity import syntax_tree

T = TypeVar("T")

_WARNINGS = threading.Lock()

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)*(`{3,}|~{3,})([^\n`]*)\n?")
_INLINE_CODE = re.compile(r"`[^`\n]*`")


class Block(NamedTuple):
    """One fenced block: its language as written after the fence, in lower case, and its body."""

    language: str
    body: str


def split_fences(text: str) -> tuple[list[Block], str]:
    """The fenced blocks of a Markdown text, and the text outside them.

    A fence is three or more backticks or tildes at a line's start, closed by one at least as long;
    one that is never closed runs to the end.
    """
    blocks: list[Block] = []
    outside: list[str] = []
    body: list[str] = []
    fence, language = "", ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.fullmatch(line)
        if not fence:
            if mark:
                fence, language, body = mark[1], mark[2].strip().lower(), []
            else:
                outside.append(line)
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            blocks.append(Block(language, "".join(body)))
            fence = ""
        else:
            body.append(line)
    if fence:
        blocks.append(Block(language, "".join(body)))
    return blocks, "".join(outside)


def tagged(text: str, tag: str) -> tuple[list[str], str]:
    """Contents of all `<tag>…</tag>` in a text, and the text outside them; a tag without its
    partner stays outside.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    first, *parts = text.split(opening)
    contents, outside = [], [first]
    for part in parts:
        content, end_tag, rest = part.partition(closing)
        if end_tag:
            contents.append(content)
            outside.append(rest)
        else:
            outside.append(opening + part)
    return contents, "".join(outside)


def prose_of(text: str) -> str:
    """The text without fenced blocks and inline code."""
    return _INLINE_CODE.sub(" ", split_fences(text)[1]) if "`" in text or "~~~" in text else text


def read_json(text: str) -> Any:
    """The value of a JSON text (RFC 8259: no NaN, no Infinity).

    Raises:
        ValueError: it is no JSON, is nested too deeply, or holds a number of thousands of digits.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def parse_python(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST | str:
    """The syntax tree of `source`, or one sentence on why there is none."""
    return _guarded(lambda: syntax_tree(source, mode))


def compile_problem(source: str) -> str | None:
    """Why a source that parses does not compile (such as a return outside a function), None when it
    does.
    """
    compiled = _guarded(lambda: compile(source, "<answer>", "exec", dont_inherit=True))
    return compiled if isinstance(compiled, str) else None


def _guarded(work: Callable[[], T]) -> T | str:
    try:
        # the compiler warns about bad escapes, and a warning filter may turn that into a
        # SyntaxError
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"


LENIENT = 50_000
"""Characters of an object that is read leniently, at most."""
DEEPEST = 20

_SPACE = re.compile(r"(?s)(?:[ \t\r\n\u00a0]+|//[^\n]*|/\*.*?\*/|#[^\n]*)*")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|“([^“”]*)”", re.S)
_KEY = re.compile(_STRING.pattern + r"|([A-Za-z_]\w{0,40}|\d{1,4})(?=\s*[:：])", re.S)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"'“”，：]{1,40}")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))")
_PLAIN = dict(zip("ntrbf", "\n\t\r\b\f", strict=True))


class TwoValues(ValueError):
    """An object says two different things under one key."""


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        for key, value in pairs:
            if members[key] != value or type(members[key]) is not type(value):
                raise TwoValues(f"{key!r} stands twice in one object, with different values")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, strict=False)


def object_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The object that begins at `start`, and its end; None if it is not complete.

    Raises:
        TwoValues: a key has two values.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except TwoValues:
        raise
    except (ValueError, RecursionError):
        try:
            value, end = _lenient_value(text[start : start + LENIENT], 0, 0)
        except TwoValues:
            raise
        except (ValueError, IndexError):
            return None
        end += start
    return (value, end) if isinstance(value, dict) else None


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it may be empty


def _lenient_value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _after_space(text, at)
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if text[at] in "{[":
        return _lenient_held(text, at + 1, depth, "}" if text[at] == "{" else "]")
    string = _STRING.match(text, at)
    if string:
        return _unescaped(string[string.lastindex or 0]), string.end()
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise ValueError("no value")
    word = scalar[0]
    if word.lower() in _WORDS:
        return _WORDS[word.lower()], scalar.end()
    return json.loads(word), scalar.end()


def _lenient_held(text: str, at: int, depth: int, closing: str) -> tuple[Any, int]:
    """The object or list whose content begins at `at`."""
    keys, values = [], []
    at = _after_space(text, at)
    while text[at] != closing:
        if closing == "}":
            key = _KEY.match(text, at)
            if key is None:
                raise ValueError("no key")
            keys.append(key[key.lastindex or 0])
            at = _after_space(text, key.end())
            if text[at] not in ":：":
                raise ValueError("no colon")
            at += 1
        value, at = _lenient_value(text, at, depth + 1)
        values.append(value)
        at = _after_space(text, at)
        if text[at] in ",，":
            at = _after_space(text, at + 1)
        elif text[at] != closing:
            raise ValueError("no comma")
    held = _unique_members(list(zip(keys, values, strict=True))) if closing == "}" else values
    return held, at + 1


def _unescaped(text: str) -> str:
    return (
        _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]), text)
        if "\\" in text
        else text
    )
