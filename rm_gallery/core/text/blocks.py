"""Parts of a text a model wrote: fenced blocks, tagged sections, prose without code, JSON, Python source."""

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

    A fence is three or more backticks or tildes at a line's start, closed by one at least as long; one that is never
    closed runs to the end.
    """
    blocks: list[Block] = []
    outside: list[str] = []
    body: list[str] = []
    fence, language = "", ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.fullmatch(line)
        if not fence:
            if found:
                fence, language, body = found[1], found[2].strip().lower(), []
            else:
                outside.append(line)
        elif found and found[1].startswith(fence) and not found[2].strip():
            blocks.append(Block(language, "".join(body)))
            fence = ""
        else:
            body.append(line)
    if fence:
        blocks.append(Block(language, "".join(body)))
    return blocks, "".join(outside)


def tagged(text: str, tag: str) -> tuple[list[str], str]:
    """Contents of all `<tag>…</tag>` in a text, and the text outside them; a tag without its partner stays outside."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    first, *parts = text.split(opening)
    contents, outside = [], [first]
    for part in parts:
        content, closed, rest = part.partition(closing)
        if closed:
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
    """Why a source that parses does not compile (such as a return outside a function), None when it does."""
    found = _guarded(lambda: compile(source, "<answer>", "exec", dont_inherit=True))
    return found if isinstance(found, str) else None


def _guarded(work: Callable[[], T]) -> T | str:
    try:
        # the compiler warns about bad escapes, and a warning filter may turn that into a SyntaxError
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"
