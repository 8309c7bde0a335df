"""Parts of a text a model wrote: reasoning and the final text after it, fenced blocks, tagged sections, prose without code, JSON,
Python source.
"""

from __future__ import annotations

import ast
import json
import re
import threading
import warnings
from collections.abc import Callable
from itertools import islice
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


LENIENT = 50_000
"""Characters of an object that is not strict JSON, at most."""
DEEPEST = 20

_SPACE = re.compile(r"(?s)(?:[ \t\r\n\u00a0]+|//[^\n]*|/\*.*?\*/|#[^\n]*)*")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|“([^“”]*)”", re.S)
_KEY = re.compile(_STRING.pattern + r"|([A-Za-z_]\w{0,40}|\d{1,4})(?=\s*[:：])", re.S)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"'“”，：]{1,40}")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPE = re.compile(r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))")
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
        try:
            value, end = _value(text[start : start + LENIENT], 0, 0)
        except TwoValues:
            raise
        except (ValueError, IndexError):
            return None
        end += start
    return (value, end) if isinstance(value, dict) else None


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it may be empty


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


# -- reasoning ----------------------------------------------------------------------------------------------------------

INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")

_NAMES = "think|thinking|thoughts?|reasoning|reasoning_content|reflection|scratchpad|antthinking|cot|"
_NAMES += "chain_of_thought|thought_process|inner_monologue|internal_monologue|deliberation|思考|思考过程|推理|推理过程|反思"
# every alternative starts with its own uncased character: the scan then skips ordinary text at full speed
_MARK = re.compile(
    rf"(?i)<\s?(?P<a>/?)\s?(?:[A-Za-z]{{1,12}}[:_])?(?P<tag>{_NAMES})(?:\s[^<>]{{0,200}})?\s?>"
    rf"|＜\s?(?P<b>/?)\s?(?P<wide>{_NAMES})\s?＞"
    r"|\[(?P<c>/?)(?P<square>THINK|THINKING|REASONING)\]"
    r"|◁(?P<d>/?)(?P<kimi>think)▷"
    r"|<\|(?P<e>/|START_|END_|begin_of_|end_of_)?(?P<bar>think|thinking|thought|reasoning)\|>"
    r"|<unused(?P<unused>94>thought|95>)"
    r"|<details\s(?P<details>type=[\"']reasoning[\"'])[^<>]{0,200}>|<(?P<summary>/)details>"
    r"|【(?P<h>/?)(?P<lens>思考|思考过程|推理|推理过程)(?P<i>开始|结束|完毕)?】|【(?P<j>(?:最终)?(?:回答|答案|结论))】"
)
_LEADING = re.compile(r"\s*(?:<\|(?:im_start|start|start_header_id)\|>\s*assistant\s*(?:<\|end_header_id\|>)?\s*)?")
_DRAFTS = re.compile(r"\s*(?:<(\w{1,20})>[^<>]{0,40}</\1>\s*){0,4}")
_MENTIONED = re.compile(
    r"(?i)\s*[.,;:!?)\"'`”’»」』，。；：！？）、]|\s*(?:tags?|tokens?|markers?|and|or|in|is|was)\b|\s*(?:标签|标记|符号)"
)
_QUOTE_BEFORE = "\"'`“‘«「『(（"

_HARMONY_START = re.compile(r"\s*(?:<\|start\|>\s*assistant\s*)?<\|channel\|>")
_HARMONY_FINAL = re.compile(r"<\|channel\|>\s?final\b[^<]{0,40}<\|message\|>")
_HARMONY_MARK = re.compile(r"<\|(?:end|return|start\|>assistant|channel\|>[^<]{0,60}<\|message|message)\|>")
_BARE_HARMONY = re.compile(r"\s*analysis(?=[A-Z\u4e00-\u9fff])")
_CHINESE_HEADER = re.compile(r"\s*(?:#{1,4}\s*|\*\*)?(?:思考过程|思考|推理过程|分析过程)(?:\*\*)?\s*(?:[：:]|(?=\n))")
_CHINESE_FINAL = re.compile(
    r"\n[ \t]{0,8}(?:(?:#{1,4} ?|\*\*)?(?:最终(?:回答|答案|结论|判断|评分)|正式回答|回答|答案|结论)(?:\*\*)? ?"
    r"(?:[：:](?:\*\*)?|(?=\n))|【(?:最终)?(?:回答|答案|结论)】)"
)


MOST_MARKS = 20_000
"""Tags of reasoning looked at in one text, at most; only a text made to be slow holds more."""


class Reasoned(NamedTuple):
    """A model's text in two parts."""

    final: str
    """What it says when it has finished thinking; empty when it never finished."""
    reasoning: str
    """Its thoughts, without their tags; empty when there are none."""
    closed: bool
    """False when a thought was begun and never ended: the text was cut off."""
    opened: bool = True
    """False when the thought's opening tag is not in the text: a chat template had written it."""
    sure: bool = True
    """False when the end of the thought may be one that the thought quotes: another one follows, or nothing opened it."""


class _Mark(NamedTuple):
    start: int
    end: int
    opens: bool
    family: str


def split_reasoning(text: str, later: bool = True) -> Reasoned:
    """The final text and the reasoning before it.

    Known are tags (`<think>`, `<thinking>`, `<reasoning>`, `<reflection>`, … with attributes, in any case, also where the
    chat template wrote the opening one), `[THINK]`, `◁think▷`, `<|begin_of_thought|>`, harmony channels and Chinese forms
    (`<思考>`, `【思考】`, "思考过程：…最终回答：…"). A tag that is merely mentioned in a sentence stays text. In doubt more of
    the text is final, never less. With `later=False` only thoughts at the start count. Takes time linear in the text.
    """
    if not text.isascii():
        text = text.translate(INVISIBLE)
    start = _HARMONY_START.match(text)
    if start:
        return _harmony(text, start.end())
    bare = _BARE_HARMONY.match(text)
    if bare:
        before, found, final = text.partition("assistantfinal")
        if found:
            return Reasoned(final, before[bare.end() :].strip(), True, sure="assistantfinal" not in final)
    header = _CHINESE_HEADER.match(text)
    ends = _CHINESE_FINAL.search(text, header.end()) if header else None
    if header and ends:
        sure = _CHINESE_FINAL.search(text, ends.end()) is None
        return Reasoned(text[ends.end() :], text[header.end() : ends.start()].strip(), True, sure=sure)
    return _blocks(text, later) if _MARK.search(text) else Reasoned(text, "", True)


def _harmony(text: str, start: int) -> Reasoned:
    found = _HARMONY_FINAL.search(text, start - len("<|channel|>"))
    if found is None:
        return Reasoned("", _HARMONY_MARK.sub("\n", text).strip(), False)
    # what follows stays whole: were it cut at a later marker, a quoted marker could choose what is read
    final, reasoning = (_HARMONY_MARK.sub("\n", part) for part in (text[found.end() :], text[: found.start()]))
    return Reasoned(final, reasoning.strip(), True, sure=_HARMONY_FINAL.search(text, found.end()) is None)


def _marks(text: str) -> list[_Mark]:
    marks = []
    for found in islice(_MARK.finditer(text), MOST_MARKS):
        kind = found.lastgroup or ""
        group = found.group
        if kind in ("tag", "wide"):
            family, opens = "tag", not (group("a") or group("b"))
        elif kind in ("square", "kimi"):
            family, opens = kind, not (group("c") or group("d"))
        elif kind == "bar":
            family, opens = kind, (group("e") or "").lower() not in ("/", "end_", "end_of_")
        elif kind == "unused":
            family, opens = kind, group("unused").startswith("94")
        elif kind in ("details", "summary"):
            family, opens = "details", kind == "details"
        else:
            family, opens = "lens", bool(group("lens")) and not group("h") and group("i") in (None, "开始")
        marks.append(_Mark(found.start(), found.end(), opens, family))
    return marks


def _is_mention(text: str, mark: _Mark) -> bool:
    """Whether a tag is spoken of rather than used: in quotation marks, or followed by punctuation or "tag"."""
    if mark.start and text[mark.start - 1] in _QUOTE_BEFORE:
        return True
    return not mark.opens and _MENTIONED.match(text, mark.end) is not None


def _blocks(text: str, later: bool) -> Reasoned:
    marks = _marks(text)
    closes = _closes(text, marks)
    begin = _LEADING.match(text)
    position = begin.end() if begin else 0
    thoughts: list[str] = []
    draft = ""
    index, opened = 0, True
    # the model's own thoughts stand at the start; short elements between two of them are drafts
    while index < len(marks) and marks[index].opens:
        start = marks[index].start
        if start != position and not (thoughts and _DRAFTS.fullmatch(text, position, start)):
            break
        close = closes[index]
        if close is None:
            return Reasoned("", "\n".join([*thoughts, text[marks[index].end :].strip()]), False)
        draft = text[position:start].strip() or draft if thoughts else draft
        thoughts.append(text[marks[index].end : marks[close].start].strip())
        position, index = marks[close].end, close + 1
    if draft and not text[position:].strip():
        return Reasoned(draft, "\n".join(thoughts), True)
    if not thoughts:
        lone = _lone_close(text, marks)
        if lone is None:
            position = 0
        else:
            thoughts.append(text[: marks[lone].start].strip())
            position, index, opened = marks[lone].end, lone + 1, False
    if not later:
        sure = not thoughts or (opened and all(mark.opens for mark in marks[index:]))
        return Reasoned(text[position:], "\n".join(thoughts), True, opened, sure)
    return _without_later(text, position, index, marks, closes, thoughts)._replace(opened=opened)


def _closes(text: str, marks: list[_Mark]) -> list[int | None]:
    """For each opening mark the next one that ends it; one merely mentioned counts when there is no other."""
    real: dict[str, int] = {}
    mentioned: dict[str, int] = {}
    closes: list[int | None] = [None] * len(marks)
    for k in range(len(marks) - 1, -1, -1):
        mark = marks[k]
        if mark.opens:
            closes[k] = real.get(mark.family, mentioned.get(mark.family))
        else:
            (mentioned if _is_mention(text, mark) else real)[mark.family] = k
    return closes


def _lone_close(text: str, marks: list[_Mark]) -> int | None:
    """The closing tag of a thought the chat template had opened; none in a text that begins with a tag or an object."""
    if text.lstrip()[:1] in ("<", "{", "`"):
        return None
    opened: set[str] = set()
    for k, mark in enumerate(marks):
        if mark.family in ("details", "lens") or _is_mention(text, mark):
            continue
        if mark.opens:
            opened.add(mark.family)
        elif mark.family in opened:
            opened.discard(mark.family)
        else:
            return k
    return None


def _own_line(text: str, mark: _Mark) -> bool:
    before = text[max(0, mark.start - 80) : mark.start]
    return not before.rpartition("\n")[2].strip()


def _without_later(
    text: str, position: int, index: int, marks: list[_Mark], closes: list[int | None], thoughts: list[str]
) -> Reasoned:
    """Thoughts that begin on a line of their own further down are left out too; one never ended means a cut text."""
    kept: list[str] = []
    for k in range(index, len(marks)):
        mark, close = marks[k], closes[k]
        if mark.start < position or not mark.opens or mark.family in ("details", "lens") or not _own_line(text, mark):
            continue
        kept.append(text[position : mark.start])
        if close is None:
            return Reasoned("".join(kept), "\n".join([*thoughts, text[mark.end :].strip()]), False)
        thoughts.append(text[mark.end : marks[close].start].strip())
        position = marks[close].end
    kept.append(text[position:])
    return Reasoned("".join(kept), "\n".join(thoughts), True)
