"""What a model said after thinking: reasoning blocks of every known form are told from the final text."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

INVISIBLE = str.maketrans("", "", "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")

_NAMES = "think|thinking|thoughts?|reasoning|reasoning_content|reflection|scratchpad|antthinking|cot|"
_NAMES += "chain_of_thought|thought_process|inner_monologue|internal_monologue|deliberation|思考|思考过程|推理|推理过程|反思"
# every alternative starts with its own uncased character: the scan then skips ordinary text at full speed
_MARK = re.compile(
    rf"<\s?(?P<a>/?)\s?(?:[A-Za-z]{{1,12}}[:_])?(?P<tag>{_NAMES})(?:\s[^<>]{{0,200}})?\s?>"
    rf"|＜\s?(?P<b>/?)\s?(?P<wide>{_NAMES})\s?＞"
    r"|\[(?P<c>/?)(?P<square>THINK|THINKING|REASONING)\]"
    r"|◁(?P<d>/?)(?P<kimi>think)▷"
    r"|<\|(?P<e>/|START_|END_|begin_of_|end_of_)?(?P<bar>think|thinking|thought|reasoning)\|>"
    r"|<unused(?P<unused>94>thought|95>)"
    r"|<details\s(?P<details>type=[\"']reasoning[\"'])[^<>]{0,200}>|<(?P<summary>/)details>"
    r"|【(?P<h>/?)(?P<lens>思考|思考过程|推理|推理过程)(?P<i>开始|结束|完毕)?】|【(?P<j>(?:最终)?(?:回答|答案|结论))】",
    re.IGNORECASE,
)
_LEADING = re.compile(r"\s*(?:<\|(?:im_start|start|start_header_id)\|>\s*assistant\s*(?:<\|end_header_id\|>)?\s*)?")
_DRAFTS = re.compile(r"\s*(?:<(\w{1,20})>[^<>]{0,40}</\1>\s*){0,4}")
_MENTIONED = re.compile(
    r"\s*[.,;:!?)\"'`”’»」』，。；：！？）、]|\s*(?:tags?|tokens?|markers?|and|or|in|is|was)\b|\s*(?:标签|标记|符号)",
    re.I,
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
