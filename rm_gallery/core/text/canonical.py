r"""Canonical views of a text, shared by all that reads or compares texts.

Stored texts never change: a comparison passes both sides through the same function of this module.

- `turn_text`: a turn without its end marks, BOM and Windows line ends; all else as written.
- `split_reasoning`: the thought and the final text of a turn; `opened`: the turn of a model whose
  thought the prompt opened.
- `readable`: for readers of values. Removes invisible characters; every space becomes " ", digits
  of every script 0 to 9, minus signs a hyphen.
- `fold`: for equality. `readable`, with plain quotation marks and apostrophes, composed (NFC).
- `whole_word`: a pattern that matches a word as a whole, in any script.

Persian, Hindi, Khmer and emoji are written with joiners (ZWJ, ZWNJ): executed and shown texts keep
them, compared texts lose them on both sides.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any, Literal, NamedTuple

Form = Literal["thought", "ends", "characters"]
"""What a reward may look at apart from the content: the presence of a thought, the end of the text,
its characters and their number."""

# -- the turn --------------------------------------------------------------------------------------

TURN_ENDS = re.compile(
    # ChatML, Qwen, Llama 3, Phi, GLM, Kimi, Cohere, harmony; no token that ends a thought, a call
    # or a box
    r"(?i:<\|(?!/|[^|]*(?:tool|action|python|plugin|box|think|thought|reason|channel|message|begin"
    r"|start))[^|<>\s]{1,40}\|>)"
    r"|<｜(?!tool)[^｜<>\s]{1,40}｜>"  # DeepSeek, Hunyuan
    r"|</s>|<(?:eos|pad|unk|eod|eop|eoa|eoh|sep|EOT|turn\||end_of_turn|end_of_utterance|endofturn"
    r"|seed:eos|extra_id_\d{1,3}|SPECIAL_\d{1,4})>"
    r"|\[(?:EOS|EOT|PAD)\]|\[\|endofturn\|\]|\[e~\["
)
"""A special token that ends a turn or pads it."""
_LONGEST_END = 48
_STRUCK = re.compile(r"<s>(?=[^\s\[<])")
"""HTML strike-out, whose `</s>` is no end of a turn."""
_BLANK_EDGES = "\ufeff\u200b\u2060\u200e\u200f"
_BLANKS = " \t\n\r\f\v" + _BLANK_EDGES
_ASSISTANT = re.compile(
    r"\s*<\|(?:im_start|start_header_id)\|>\s*assistant\s*(?:<\|end_header_id\|>)?\s*"
)


def turn_text(text: str) -> str:
    """A turn without its special end tokens (of any model family), BOM and Windows line ends.

    Marks further inside stay, and so does the `</s>` of HTML strike-out. Linear in the text.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if not text.isascii():
        text = text.lstrip(_BLANK_EDGES)
        content = text.rstrip(_BLANKS)
        text = content + text[len(content) :].translate(_VISIBLE)
    if "<|" in text[:40] and (header := _ASSISTANT.match(text)):
        text = text[header.end() :]
    return (
        text[: _turn_end(text)].rstrip(_BLANK_EDGES)
        if text.rstrip(_BLANKS)[-1:] in (">", "]", "[")
        else text
    )


def without_turn_end(text: str) -> str:
    """The text without the special tokens that end a turn, otherwise as written. Linear."""
    return text[: _turn_end(text)]


def _turn_end(text: str) -> int:
    """The offset at which the special tokens at the end of a text begin."""
    end, unclosed = len(text), None
    while True:
        stop = end
        while stop and text[stop - 1] in _BLANKS:
            stop -= 1
        start = next(
            (
                at
                for at in range(max(0, stop - _LONGEST_END), stop)
                if text[at] in "<[" and TURN_ENDS.fullmatch(text, at, stop)
            ),
            stop,
        )
        if start == stop:
            return end
        if text[start:stop] == "</s>":
            unclosed = (
                len(_STRUCK.findall(text)) - text.count("</s>", 0, start)
                if unclosed is None
                else unclosed + 1
            )
            if unclosed > 0:
                return end
        end = start


# -- characters ------------------------------------------------------------------------------------

_INVISIBLE = re.compile(
    r"[\xad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    r"\ufeff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, without the Hangul fillers, which show as blanks."""
_MINUS = "\u2212\ufe63\uff0d"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\ufe58"
_SIGN = re.compile(rf"(?<![\w)\]}}%°{_DASHES}-])[{_DASHES}](?=[$€£¥]?(?:\.?\d|\\[a-zA-Z]|[√π∞]))")
"""A dash in front of a number, with none before it: a range (3–5) has no sign."""
_OTHER = {
    **dict.fromkeys("\u2028\u2029\x85", "\n"),
    **dict.fromkeys(_MINUS, "-"),
    "\u066b": ".",
    "\u066c": ",",
}
_QUOTES = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\uff07", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\uff02", '"')
)


class FilledTable(dict[int, str]):
    """A table for `str.translate`, filled by a function as characters turn up."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self.plain = plain

    def __missing__(self, code: int) -> str:
        self[code] = self.plain(chr(code))
        return self[code]


def _visible_character(character: str) -> str:
    return "" if _INVISIBLE.match(character) else character


def _readable_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    return " " if category == "Zs" else _OTHER.get(character) or _visible_character(character)


_READABLE, _VISIBLE = FilledTable(_readable_character), FilledTable(_visible_character)


def visible(text: str) -> str:
    """The text without invisible characters: zero width, joiners, soft hyphens, bidi controls,
    variation selectors.
    """
    return text if text.isascii() else text.translate(_VISIBLE)


def readable(text: str) -> str:
    """The text for readers of values; see the module. Linear in the text."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text if text.isascii() else _SIGN.sub("-", text.translate(_READABLE))


def fold(text: str) -> str:
    """The text for comparisons: texts that look alike fold alike. Keeps case and outer blanks.

    Linear in the text.
    """
    text = readable(text)
    return text if text.isascii() else normalized("NFC", text.translate(_QUOTES))


def folded(value: Any) -> Any:
    """A JSON value with all of its texts folded, keys too."""
    if isinstance(value, str):
        return fold(value)
    if isinstance(value, dict):
        return {folded(key): folded(item) for key, item in value.items()}
    return [folded(item) for item in value] if isinstance(value, list | tuple) else value


def compared(text: str) -> str:
    """A reference, label or choice, ready to compare with an answer's folded final text."""
    return fold(turn_text(text)).strip()


@cache
def _combining() -> str:
    """Combining marks, for a set in a pattern."""
    signs = map(chr, range(0x300, 0x1E94B))
    return "".join(sign for sign in signs if unicodedata.category(sign) in ("Mn", "Mc"))


_MOST_MARKS_ON_A_LETTER = 30
_SHORT = 2000


@cache
def _long_run() -> re.Pattern[str]:
    return re.compile(rf"[{_combining()}]{{{_MOST_MARKS_ON_A_LETTER}}}")


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Unicode's normal form, in time linear in the text.

    The standard library sorts the marks on one letter by the square of their number: 128 KB of them
    took 14 s. So more than 30 in a row are taken in pieces (UAX #15, Stream-Safe Text Format).
    """
    if len(text) < _SHORT or text.isascii() or _long_run().search(text) is None:
        return unicodedata.normalize(form, text)
    parts, start = [], 0
    for run in _long_run().finditer(text):
        parts.append(text[start : run.end()])
        start = run.end()
    return "".join(unicodedata.normalize(form, part) for part in [*parts, text[start:]])


# -- rewriting -------------------------------------------------------------------------------------

Rewrites = tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]


def rewrites(*pairs: tuple[str, str | Callable[[re.Match[str]], str]]) -> Rewrites:
    """Patterns, each with what replaces it, for `rewritten`."""
    return tuple((re.compile(pattern), plain) for pattern, plain in pairs)


def rewritten(text: str, pairs: Rewrites) -> str:
    """The text after all replacements, one after the other."""
    for pattern, plain in pairs:
        text = pattern.sub(plain, text)
    return text


# -- words -----------------------------------------------------------------------------------------


_UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
"""Scripts that put no spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def is_unspaced(character: str) -> bool:
    """Whether a character's script puts no spaces between words."""
    return _IS_UNSPACED.match(character) is not None


@cache
def _edges(joins: str) -> tuple[str, str]:
    sign, mark = rf"[^\W_{_UNSPACED}]", f"[{_combining()}{joins}]"
    return rf"(?<!{sign})(?<!{mark})", rf"(?!{sign}|{mark})"


def whole_word(word: str, joins: str = "") -> str:
    """A pattern of the word as a whole, in any script: no letter, digit or mark adjoins it.

    Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have no word ends. An
    underscore is one, unless it is among the characters that `joins` names as parts of words.
    """

    def of_words(sign: str) -> bool:
        return not is_unspaced(sign) and (
            sign.isalnum() or sign in joins or unicodedata.category(sign) in ("Mn", "Mc")
        )

    before, after = _edges(joins)
    return f"{before if of_words(word[0]) else ''}{re.escape(word)}{after if of_words(word[-1]) else ''}"


# -- reasoning -------------------------------------------------------------------------------------

_NAMES = (
    "think|thinking|thoughts?|reasoning|reasoning_content|reflection|scratchpad|antthinking|cot|"
)
_NAMES += "chain_of_thought|thought_process|inner_monologue|internal_monologue|deliberation|思考|思考过程|推理|推理过程|反思"
_LENS = "(?:思考|思考过程|推理|推理过程)"
# every alternative starts with its own uncased character, so the scan skips ordinary text fast
_MARK = re.compile(
    rf"(?i)<\s?(?:(?P<tag_end>/)|(?P<tag>))\s?(?:[A-Za-z]{{1,12}}[:_])?(?:{_NAMES})(?:\s[^<>]{{0,200}})?\s?>"
    rf"|＜\s?(?:(?P<tag_wide_end>/)|(?P<tag_wide>))\s?(?:{_NAMES})\s?＞"
    r"|\[(?:(?P<square_end>/)|(?P<square>))(?:THINK|THINKING|REASONING)\]"
    r"|◁(?:(?P<kimi_end>/)|(?P<kimi>))think▷"
    r"|<\|(?:(?P<bar_end>/|END_|end_of_)|(?P<bar>START_|begin_of_|))(?:think|thinking|thought|reasoning)\|>"
    r"|<unused(?:(?P<unused>94>thought)|(?P<unused_end>95>))"
    r"|<details\s(?P<details>type=[\"']reasoning[\"'])[^<>]{0,200}>|<(?P<details_end>/)details>"
    rf"|【(?:(?P<lens_end>/{_LENS}(?:开始|结束|完毕)?|{_LENS}(?:结束|完毕))|(?P<lens>{_LENS}(?:开始)?))】"
    r"|【(?P<lens_answer_end>(?:最终)?(?:回答|答案|结论))】"
    r"|<\|end\|>\s?<\|start\|>assistant(?P<harmony_end><)\|channel\|>\s?final\b[^<]{0,40}<\|message\|>"
)
"""The one group that matches is called after the family of the mark; of one that closes it ends with `_end`."""
_LEADING = re.compile(
    r"\s*(?:<\|(?:im_start|start|start_header_id)\|>\s*assistant\s*(?:<\|end_header_id\|>)?\s*)?"
)
_DRAFTS = re.compile(r"\s*(?:<(\w{1,20})>[^<>]{0,40}</\1>\s*){0,4}")
_OWN_ELEMENT = re.compile(
    rf"(?i){_DRAFTS.pattern}(?P<all><(?!(?:{_NAMES})>)(?P<name>\w{{1,20}})>"
    r"(?:(?!</?(?P=name)>)[\s\S])*</(?P=name)>)"
)
_MENTIONED = re.compile(
    r"[.,;:!?)，。；：！？）、](?!\w)|[ \t]{0,3}(?:tags?|tokens?|markers?|标签|标记|符号)(?![a-z])"
)
"""A tag in a sentence is followed by its punctuation or its name …"""
_SPOKEN_OF = re.compile(r"[ \t](?:and|or|in|is|was)[ \t]")
"""… or, behind a blank, by the rest of the sentence."""
_PAIRS = dict(zip("“‘«「『（('", "”’»」』）)'", strict=True))
_FENCE = re.compile(r"^[ \t]{0,8}(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)

_HARMONY_START = re.compile(r"\s*(?:<\|start\|>\s*assistant\s*)?<\|channel\|>")
_HARMONY_FINAL = re.compile(r"<\|channel\|>\s?final\b[^<]{0,40}<\|message\|>")
_HARMONY_MARK = re.compile(
    r"<\|(?:end|return|start\|>assistant|channel\|>[^<]{0,60}<\|message|message)\|>"
)
_BARE_HARMONY = re.compile(r"\s*analysis(?=[A-Z\u4e00-\u9fff])")
_CHINESE_HEADER = re.compile(
    r"\s*(?:#{1,4}\s*|\*\*)?(?:思考过程|思考|推理过程|分析过程)(?:\*\*)?\s*(?:[：:]|(?=\n))"
)
_CHINESE_FINAL = re.compile(
    r"\n[ \t]{0,8}(?:(?:#{1,4} ?|\*\*)?(?:最终(?:回答|答案|结论|判断|评分)|正式回答|回答|答案|结论)(?:\*\*)? ?"
    r"(?:[：:](?:\*\*)?|(?=\n))|【(?:最终)?(?:回答|答案|结论)】)"
)


MOST_MARKS = 20_000
"""Reasoning tags read in one text, at most; only a text built to be slow holds more."""


class Reasoned(NamedTuple):
    """A model's text in two parts."""

    final: str
    """The text after the thought; empty when the thought never ends."""
    reasoning: str
    """Its thoughts, without their tags; empty when there are none."""
    finished: bool
    """False when a thought begins and never ends: the text was cut off."""
    has_opening: bool = True
    """False when the opening tag is not in the text: the chat template wrote it."""
    sure: bool = True
    """False when the closing tag may be a quoted one: another follows, or nothing opened it."""


class _Mark(NamedTuple):
    start: int
    end: int
    opens: bool
    family: str


OPENED = "thought_opened"
"""Key of a message, column of a sample and setting of a model: the prompt already opened the thought."""


def _header_end(text: str) -> int:
    """Where a turn begins, behind the header that names the assistant."""
    return _LEADING.match(text).end()  # type: ignore[union-attr]  # every part is optional


def opened(text: str) -> str:
    """The text of a turn whose thought the prompt opened, with the opening tag that stood there.

    It is what every reader of such a turn is given: `split_reasoning` then reads no text that never
    leaves the thought as an answer.
    """
    mark = _MARK.match(text, _header_end(text))
    written = _HARMONY_START.match(text) or (mark and _marks(mark[0])[0].opens)
    return text if written else f"<think>{text}"


_ASSISTANT_BEGINS = re.compile(
    r"(?i)(?:(?:\A|[\n|>｜])\s{0,4}assistant\s{0,4}(?:[:|>｜\n]|<\|)|\[/INST\]|of_turn>model\b)[^<\[]{0,120}"
    r"(?:<\|\w{1,20}\|>\s{0,4})?\Z"
)


def opens_thought(prompt: str, prefill: bool = False) -> bool:
    """Whether a prompt, as a chat template wrote it, ends with the opening tag of a thought.

    Behind the assistant's header, since a user may end a question with such a tag; a `prefill` is
    the assistant's own text.
    """
    end = prompt[-300:]
    *_, last = [None, *_marks(end)]
    if last is None or not last.opens or end[last.end :].strip():
        return False
    return prefill or _ASSISTANT_BEGINS.search(end[: last.start]) is not None


def split_reasoning(text: str, later: bool = True) -> Reasoned:
    """The final text and the reasoning before it.

    It knows tags (`<think>`, `<thinking>`, `<reasoning>`, `<reflection>`, … with attributes, in
    any case), `[THINK]`, `◁think▷`, `<|begin_of_thought|>`, harmony channels and Chinese forms
    (`<思考>`, `【思考】`, "思考过程：…最终回答：…"). Of the text counts what `turn_text` leaves.

    One rule for a closing tag that nothing in the text opened: all before the last such tag is
    thought, since the chat template wrote the opening one. No tag is one that is merely mentioned:
    in a fenced block, in code or quotation marks on its line, in the element that a text begins
    with (`<reason>It says </think>.</reason>`), in a text that is one JSON value, or in a sentence
    that goes on ("the </think> tag is …").

    Blank lines between the thought and what follows belong to neither. With `later=False` only
    thoughts at the start count. Takes time linear in the text.
    """
    text = _unhidden(turn_text(text))
    parts = _split(text, later)
    return parts if text.startswith(parts.final) else parts._replace(final=_unled(parts.final))


def _unled(final: str) -> str:
    blank = len(final) - len(final.lstrip())
    return final[final.rfind("\n", 0, blank) + 1 :]


def _split(text: str, later: bool) -> Reasoned:
    start = _HARMONY_START.match(text)
    if start:
        return _harmony(text, start.end())
    bare = _BARE_HARMONY.match(text)
    if bare:
        before, marker, final = text.partition("assistantfinal")
        if marker:
            return Reasoned(
                final, before[bare.end() :].strip(), True, sure="assistantfinal" not in final
            )
    header = _CHINESE_HEADER.match(text)
    ends = _CHINESE_FINAL.search(text, header.end()) if header else None
    if header and ends:
        sure = _CHINESE_FINAL.search(text, ends.end()) is None
        return Reasoned(
            text[ends.end() :], text[header.end() : ends.start()].strip(), True, sure=sure
        )
    return _blocks(text, later) if _MARK.search(text) else Reasoned(text, "", True)


def _unhidden(text: str) -> str:
    """The text; without invisible characters if they hide a mark of reasoning."""
    shown = visible(text)
    if shown is text or len(shown) == len(text):
        return text
    hidden = any(
        len(mark.findall(shown)) != len(mark.findall(text)) for mark in (_MARK, _HARMONY_MARK)
    )
    return shown if hidden else text


def _harmony(text: str, start: int) -> Reasoned:
    channel = _HARMONY_FINAL.search(text, start - len("<|channel|>"))
    if channel is None:
        return Reasoned("", _HARMONY_MARK.sub("\n", text).strip(), False)
    # no cut at a later marker: a quoted marker could choose what is read (forged final channel)
    final, reasoning = (
        _HARMONY_MARK.sub("\n", part) for part in (text[channel.end() :], text[: channel.start()])
    )
    return Reasoned(
        final, reasoning.strip(), True, sure=_HARMONY_FINAL.search(text, channel.end()) is None
    )


def _marks(text: str) -> list[_Mark]:
    marks = []
    for match in islice(_MARK.finditer(text), MOST_MARKS):
        kind = match.lastgroup or ""
        opens, family = not kind.endswith("_end"), kind.partition("_")[0]
        marks.append(_Mark(match.start(), match.end(), opens, family))
    return marks


def _set_apart(text: str) -> list[tuple[int, int]]:
    """Where the element that the text begins with and fenced blocks stand. A block that holds the
    start of another was never closed.
    """
    own = _OWN_ELEMENT.match(text)
    spans, begin = [own.span("all")] if own else [], None
    for fence in _FENCE.finditer(text, own.end() if own else 0):
        if begin is None or fence[2].strip() or not fence[1].startswith(begin[1]):
            begin = fence
        else:
            spans.append((begin.start(), fence.end()))
            begin = None
    return spans


_LINE = 240


def _is_mention(text: str, mark: _Mark, apart: list[tuple[int, int]]) -> bool:
    """Whether a tag is mentioned, not used; `split_reasoning` states the rule."""
    at = bisect_right(apart, (mark.start, len(text))) - 1
    if at >= 0 and mark.start < apart[at][1]:
        return True
    before = text[max(0, mark.start - _LINE) : mark.start].rpartition("\n")[2]
    after = text[mark.end : mark.end + _LINE].partition("\n")[0]
    closing = _PAIRS.get(before[-1:])
    if (closing and after.startswith(closing)) or any(
        before.count(quote) % 2 and quote in after for quote in '`"'
    ):
        return True
    if mark.opens or not before.strip():
        return False
    spoken = before[-1:] in " \t" and _SPOKEN_OF.match(after)
    return bool(spoken or _MENTIONED.match(after))


def _blocks(text: str, later: bool) -> Reasoned:
    marks, apart = _marks(text), _set_apart(text)
    mentioned = {mark.start for mark in marks if _is_mention(text, mark, apart)}
    closes = _closes(marks, mentioned)
    position = _header_end(text)
    thoughts: list[str] = []
    draft = ""
    index, has_opening = 0, True
    if not (marks[0].opens and marks[0].start == position):
        lone = _lone_close(text, marks, mentioned)
        if lone is not None:
            thoughts.append(text[: marks[lone].start].strip())
            position, index, has_opening = marks[lone].end, lone + 1, False
    # the model's own thoughts come first; short elements between two of them are drafts
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
        return Reasoned(draft, "\n".join(thoughts), True, has_opening)
    if not thoughts:
        position = 0
    if not later:
        sure = not thoughts or (has_opening and all(mark.opens for mark in marks[index:]))
        return Reasoned(text[position:], "\n".join(thoughts), True, has_opening, sure)
    return _without_later(text, position, index, marks, closes, thoughts)._replace(
        has_opening=has_opening
    )


def _closes(marks: list[_Mark], mentioned: set[int]) -> list[int | None]:
    """For each opening mark its closing mark: the nested one, else the next, else a mentioned one."""
    inner: dict[str, list[int]] = {}
    own: dict[int, int] = {}
    for k, mark in enumerate(marks):
        if mark.opens:
            inner.setdefault(mark.family, []).append(k)
        elif inner.get(mark.family) and mark.start not in mentioned:
            own[inner[mark.family].pop()] = k
    used: dict[str, int] = {}
    spoken: dict[str, int] = {}
    closes: list[int | None] = [None] * len(marks)
    for k in range(len(marks) - 1, -1, -1):
        mark = marks[k]
        if mark.opens:
            closes[k] = own.get(k, used.get(mark.family, spoken.get(mark.family)))
        else:
            (spoken if mark.start in mentioned else used)[mark.family] = k
    return closes


def _lone_close(text: str, marks: list[_Mark], mentioned: set[int]) -> int | None:
    """The last closing tag that no tag in the text opened; None where there is none."""
    found: int | None = None
    depth: dict[str, int] = {}
    for k, mark in enumerate(marks):
        heads = mark.family == "lens" and text[mark.start + 1] in "最回答结"
        if mark.start in mentioned or mark.family == "details" or heads:
            continue
        inside = depth.get(mark.family, 0)
        if not mark.opens and not inside:
            found = k
        depth[mark.family] = max(0, inside + (1 if mark.opens else -1))
    return None if found is None or _is_json(text) else found


def _is_json(text: str) -> bool:
    """Whether the text is one object or list of JSON, whose strings may hold any tag."""
    if text.lstrip()[:1] + text.rstrip()[-1:] not in ("{}", "[]"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _own_line(text: str, mark: _Mark) -> bool:
    before = text[max(0, mark.start - 80) : mark.start]
    return not before.rpartition("\n")[2].strip()


def _without_later(
    text: str,
    position: int,
    index: int,
    marks: list[_Mark],
    closes: list[int | None],
    thoughts: list[str],
) -> Reasoned:
    """Leaves out later thoughts that begin on their own line; an unclosed one means a cut text."""
    kept: list[str] = []
    for k in range(index, len(marks)):
        mark, close = marks[k], closes[k]
        if (
            mark.start < position
            or not mark.opens
            or mark.family in ("details", "lens")
            or not _own_line(text, mark)
        ):
            continue
        kept.append(text[position : mark.start])
        if close is None:
            return Reasoned("".join(kept), "\n".join([*thoughts, text[mark.end :].strip()]), False)
        thoughts.append(text[mark.end : marks[close].start].strip())
        position = marks[close].end
    return Reasoned("".join([*kept, text[position:]]), "\n".join(thoughts), True)
