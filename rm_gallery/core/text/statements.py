"""The tags and objects that a judge states in its reply, apart from all that it quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rm_gallery.core.text.blocks import TwoValues, object_at
from rm_gallery.core.utils.errors import ParseError

CUT_OFF = "The reply ends inside its reasoning, which is never closed: it was cut off."
MOST = 200
"""Verdicts and objects looked at in one reply, at most."""

REASONS = (
    "reason reasons reasoning rationale explanation analysis justification critique comment comments feedback quote "
    "thought thoughts think thinking reflection work 理由 原因 分析 解释 说明 评语"
).split()
"""Elements that hold prose about the candidates: nothing in them is a verdict."""

_THOUGHTS = "think thinking thought thoughts reasoning reflection".split()


class VerdictField(NamedTuple):
    """How one field is read: `read` turns text or a JSON value into the value or raises ParseError."""

    read: Callable[[Any], Any]
    prose: bool = False
    """True for free text, which may quote anything."""
    high: float | None = None
    """The largest value of a number that has one."""


class Form:
    """The fields that a reply must state, with the patterns to read them; made once per template."""

    def __init__(self, fields: Mapping[str, VerdictField]) -> None:
        self.fields = dict(fields)
        self.names = {name.lower(): name for name in fields}
        self.verdicts = verdicts = {
            name.lower() for name, field in fields.items() if not field.prose
        }
        self.prose = ({*REASONS} | set(self.names)) - verdicts
        every = "|".join(
            re.escape(name) for name in sorted(self.prose | verdicts, key=len, reverse=True)
        )
        any_verdict = "|".join(map(re.escape, sorted(verdicts))) or "(?!)"
        self.tokens = re.compile(
            r"(?im)<[ \t]?(?P<slash>/?)[ \t]?(?P<sure>(?:final|corrected|revised|overall)[_-])?"
            rf"(?P<name>{every})(?P<attributes>\s[^<>]{{0,200}})?[ \t]?(?P<self>/?)>"
            r"|(?P<comment><!--)|(?P<fence>^[ \t]{0,8}(?:`{3,}|~{3,}))"
            r"|(?P<object>\{)(?=\s*[\"'“}/])"
            rf"|(?:<[ \t]?|&lt;|\[|[\"'“](?=\w+[\"'”]\s?[:：]))(?P<broken>{any_verdict})\b"
        )
        self.member = re.compile(rf"(?i)[\"'“](?:{any_verdict})[\"'”]\s*[:：]")
        self.held = {"<object", "<fence", "<comment", *self.names}
        """What may stand inside a verdict's element."""
        self.in_words = verdicts if len(verdicts) == 1 else {"score", "best"}
        """Fields that a line of words, "Score: 7/10", may state."""
        # the usual reply: at most one reason that holds no tag, then one verdict, and nothing else
        reason = r"\s*(?:<reason>([^<]*)</reason>\s*)?" if "reason" in self.names else r"\s*()"
        named = "|".join(re.escape(name) for name in fields if name.lower() in verdicts)
        self.usual = re.compile(rf"{reason}<({named})>([^<{{]{{1,200}})</\2>\s*")

    def usual_values(self, text: str) -> dict[str, Any] | None:
        """The fields of a reply that is only a tagless reason and one verdict; None for any other."""
        match = self.usual.fullmatch(text)
        if match is None:
            return None
        values = {match[2]: self.value(match[2], match[3].strip())}
        if match[1]:
            values["reason"] = match[1].strip()
        return values

    def value(self, name: str, raw: Any) -> Any:
        """A field's value from its text or JSON value; ParseError names the field."""
        try:
            return self.fields[name].read(raw)
        except ParseError as error:
            raise ParseError(f"<{name}>: {error}") from error


class _Token(NamedTuple):
    start: int
    end: int
    name: str
    """The element's name in lower case, or the mark: `<comment`, `<fence`, `<object`, `<broken`."""
    opens: bool
    sure: bool
    """Whether its attributes call it final."""


class StatedValue(NamedTuple):
    """One statement of a field."""

    name: str
    value: Any
    start: int
    end: int
    marked: bool
    """Whether the judge itself calls it final or corrected."""
    doubtful: bool
    """True behind a fence that is never closed: it may contradict another verdict, but is not read."""


FINAL = re.compile(
    r"(?i)(?:^|[\n.!;,。！；，>])[ \t*_#>\-–—]*(?:(?:so|therefore|thus|hence|所以|因此"
    r"|综上)[,，]?\s*)?(?:here is\s+)?(?:my\s+|the\s+|我的)?"
    r"(?:(?:final|overall|total|corrected|revised|updated|definitive|最终|最后|总体|综合|总|更正后?的?"
    r"|修正后?的?)的?[ _]*"
    r"(?:verdict|answer|score|decision|judge?ment|choice|rating|result|conclusion|pick|结论|判断|评分|得分"
    r"|分数?|答案|选择|决定|结果)?"
    r"|verdict|correction|conclusion|if i must(?: choose)?|if forced(?: to choose)?|更正|修正|结论"
    r"|如果必须选择?|非要选的话)"
    r"[ \t*_]*(?:is|是|为)?[ \t*_]*[:：]?[ \t*_]*\n?[ \t*_]*$"
)
_GOES_ON = re.compile(
    r"(?i)[.,]?\d+(?:\.\d+)?|%|½|[-–—~～]\d+(?![a-z\d])|[ \t][-–—][ \t]?\d+(?=[ \t]*(?:$|\n))"
    r"|[ \t*_`]{0,4}[(（]?(?:/|out of|of|or|and|to|&|至|到|或|和|与"
    r"|满分)\s?\d+(?:\.\d+)?(?![a-z\d])(?:\s?[)）])?"
)
"""After a closing tag, on its line, this belongs to the number in it."""
_QUOTING = re.compile(
    r"(?i)(?<!best )(?<!better )(?<!final )(?<!my )\b(?:answers?|responses?|candidates?|assistants?"
    r"|texts?|it|which|that|they|user)\b"
    r"[^.!?。\n]{0,80}?\b(?:reads?|says?|said|contain\w*|includ\w+|writ\w+|wrote|end(?:s"
    r"|ed)? (?:with|in|by|like|as)|begin\w* with|"
    r"start\w* with|claim\w*|stat(?:es|ed)|quot\w+|inject\w*|insert\w*|add(?:s|ed)|append\w*"
    r"|embed\w*|hid\w+|tries|tried|"
    r"attempt\w*|demand\w*|ask\w*)\b(?P<en>[^.!?。\n]{0,60})$"
    r"|(?<!最好的)(?<!更好的)(?<!最佳)(?<!最优)(?<!最终)(?<!我的)(?:(?:回答|答案|回复|候选|文本|内容|它)[^。！？\n]{0,60}?"
    r"(?:写道|写着|写了|包含|含有|声称|说|引用|注入|结尾|夹带|要求|插入|试图|读作)|(?:内容|原文|全文|文本)(?:是|为|如下))"
    r"(?P<zh>[^。！？\n]{0,40})$"
    r"|\b(?:(?:ends?|ending|bottom|tail|beginning|top) of (?:the|its|an?|this|answer|response)\b"
    r"|(?:last|closing|final|first|opening) (?:lines?|words?|sentences?|paragraph)\b|(?:at"
    r"|near) (?:the|its) (?:very )?(?:end|bottom)\b"
    r"|(?:inject\w*|quot(?:e|ed|ation)|excerpt|snippet|manipulat\w*"
    r"|jailbreak)\b)(?P<at>[^.!?:\n]{0,60}[:(（]\s*)$"
    r"|(?:antwort|kandidat|r[ée]ponse|texte?|respuesta|risposta|resposta|ответ\w*)\b[^.!?\n]{0,60}?"
    r"(?:enthält|endet|beginnt|schreibt|behauptet|lautet|contient|termine|écrit|prétend|contiene"
    r"|termina|dice|incluye|afirma|contém|"
    r"содерж\w*|заканчива\w*|пишет|утвержда\w*)\b(?P<other>[^.!?\n]{0,60})$"
)
_QUOTED_BEFORE = re.compile(
    r"(?i)[\s\"'`)）*]{0,4}(?:[,，]?\s*(?:which|that|and|was|is|as)\s(?:\w+\s){0,3}?"
    r"(?:ignor\w*|disregard\w*|discount\w*|inject\w*|manipulat\w*|attack|attempt|quot\w*|how (?:it"
    r"|the))\b"
    r"|と(?:書|記|あ|い)|라고|이라|的?字样|这(?:样|种|句)的?|等(?:内容|字样))"
)
"""After a statement this says that it is somebody else's."""
_CONCLUDING = re.compile(
    r"(?i)[^:：\"“]{4,}?(?:(?:[,;，；]|\band|[-–—])\s*(?:(?:my|the)\s)?(?:so|therefore|thus|hence|also"
    r"|daher|deshalb|donc|luego|quindi|"
    r"portanto|поэтому|verdict|conclu\w+|accordingly|wins?|i (?:pick|choose|select|prefer|give"
    r"|go))\b"
    r"|[,;，；]\s*(?:所以|因此|故|综上|结论|我?选)|[,，]\s*$)"
)
"""After "it contains …," this makes the judge's own statement of what follows."""
_CLOSED_IN_QUOTES = re.compile(r"([\"'`])</[^\"'`\n]{0,400}>\1")
"""A closing tag, and what follows it, in quotation marks of its own."""
_OWN_LINE = re.compile(r"\n[ \t]*<([a-z_]{1,40})>[^<>\n]{0,300}</\1>$", re.I)
_IN_BROKEN = re.compile(
    r"(?:<[ \t]?(?:(?:final|corrected|revised|overall)[_-])?|&lt;|\[|[\"'“])([\w-]+?)"
    r"(?:[\s:：=>\]\"'”]|&gt;){1,6}([\w.+-]{1,20})(?=\s*(?:$|[<\[\n/,;>\"'}&]|\.(?:\s|$)))"
)
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_OBJECT_IN_FENCE = re.compile(r"[^\n]*\n\s*\{")
_BEFORE_CLOSE = re.compile(r"(^|[\s>])([\w.+-]{1,20})\s{0,4}$")
_QUOTES = dict(zip("“„「『«‘", "”“」』»’", strict=True))


def _list_tokens(text: str, form: Form) -> list[_Token]:
    tokens = []
    for match in form.tokens.finditer(text):
        if match["self"] and not match["slash"]:
            continue  # it holds nothing
        name = match["name"].lower() if match["name"] else f"<{match.lastgroup}"
        sure = bool(match["sure"]) or "final" in (match["attributes"] or "").lower()
        tokens.append(_Token(match.start(), match.end(), name, not match["slash"], sure))
    return tokens


class Scan:
    """All values stated outside of reasons, comments, fences and quotations, in order; one pass."""

    def __init__(self, text: str, form: Form, whole: bool = True) -> None:
        """`whole`: the text is surely all that the judge stated, so its beginning is the judge's own."""
        self.text = text
        self.form = form
        self.whole = whole
        self.names = form.names
        self.prose = form.prose
        self.tokens = _list_tokens(text, form)
        self.last: dict[str, int] = {}
        for i, token in enumerate(self.tokens):
            if not token.opens or token.name == "<fence":
                self.last[token.name] = i
        self.stated: list[StatedValue] = []
        self.broken: list[StatedValue] = []
        self.read: list[tuple[int, int]] = []
        """Spans that are done: read or skipped as a whole."""
        self.position = 0
        self.counted = 0
        self.odd = False
        self.doubtful = False
        self.doubted: list[tuple[int, int]] = []
        """Spans not skipped, because a verdict before them may itself be a quotation."""
        self.objects = 0
        if text.startswith("{") and (not self.tokens or object_at(text, 0) is None):
            raise ParseError("The reply begins like JSON and is none.")
        self._walk()

    def _walk(self) -> None:
        for i, token in enumerate(self.tokens):
            if token.start < self.position or self.doubted and self._among_doubted(i):
                continue
            if token.name == "<comment":
                end = self.text.find("-->", token.end) if not self.doubtful else -1
                if end >= 0:
                    self._skip(token.start, end + 3)
                else:
                    self.doubtful = True
            elif token.name == "<fence":
                self._fence(i)
            elif token.name == "<object":
                self._object(token.start)
            elif token.name == "<broken" or not token.opens:
                self._broken(i)
            elif token.name in self.prose:
                self._prose(i)
            else:
                self._element(i)
            if len(self.stated) > MOST:
                raise ParseError(f"The reply holds more than {MOST} verdicts.")

    def _skip(self, start: int, end: int) -> None:
        self.read.append((start, end))
        self.position = self.counted = end
        self.odd = False

    def _pass_over(self, start: int, end: int) -> None:
        """Skips a reason or fences. A verdict before them may be a quoted one that opened them to hide
        the real verdict; then their content may contradict it.
        """
        if any(
            one.name.lower() not in self.prose and not self._began_with(one) for one in self.stated
        ):
            self.doubted.append((start, end))
        else:
            self._skip(start, end)

    def _among_doubted(self, i: int) -> bool:
        """Reads a verdict inside the last doubted span; False after it."""
        token, end = self.tokens[i], self.doubted[-1][1]
        if token.start >= end:
            if self.position < end:
                self.position = self.counted = end
                self.odd = False
            return False
        if token.name == "<object":
            self._object(token.start)
        elif token.opens and token.name in self.names and token.name not in self.prose:
            self._element(i)
        return True

    def _in_doubt(self, start: int) -> bool:
        return self.doubtful or bool(self.doubted) and start < self.doubted[-1][1]

    def _began_with(self, one: StatedValue) -> bool:
        """Whether the reply begins with this tag; an object may be broken by what it quotes."""
        return self.whole and self.text[one.start] == "<" and not self.text[: one.start].strip()

    def _fence(self, i: int) -> None:
        """Skips from the first fence to the last: a quoted text may hold any number of fences."""
        token = self.tokens[i]
        last = self.tokens[self.last["<fence"]]
        holds_object = _OBJECT_IN_FENCE.match(self.text, token.end)
        if (
            holds_object
            and not self._introduced(token.start)
            and self._object(holds_object.end() - 1)
        ):
            close = _FENCE.match(self.text, self.position)
            self._skip(token.start, close.end() if close else self.position)
        elif last.start > token.start:
            self._pass_over(token.start, last.end)
        elif token.start:
            self.doubtful = True

    def _object(self, start: int) -> bool:
        self.objects += 1
        if self.objects > MOST:
            raise ParseError(f"The reply holds more than {MOST} objects.")
        whole = object_at(self.text, start) if self.objects < 20 else None
        if whole is None:
            return False
        values, end = whole
        stated = members(values, self.form)
        doubtful = (
            self._in_doubt(start) or not self._set_off(start, end) and self._after_its_line(start)
        )
        if stated and (doubtful or not self._quoted(start, end)):
            for name, value in stated.items():
                if value is not None or not self.form.fields[name].prose:
                    self.stated.append(StatedValue(name, value, start, end, False, doubtful))
        self._skip(start, end)
        return bool(stated)

    def _prose(self, i: int) -> None:
        """A reason ends at the last closing tag of its name: it may quote closing tags."""
        token = self.tokens[i]
        if self._mentioned(token):
            return
        last = self.last.get(token.name, -1)
        if last > i:
            close = self.tokens[last]
            body, end = self.text[token.end : close.start], close.end
        else:
            if token.name in _THOUGHTS:
                if self.text[max(0, token.start - 80) : token.start].rpartition("\n")[2].strip()[
                    -1:
                ] not in ("", ">"):
                    return  # spoken of in a sentence
                raise ParseError(CUT_OFF)
            body, end = self._unclosed(i)
        if token.name in self.names:
            self.stated.append(
                StatedValue(
                    self.names[token.name], body.strip(), token.start, end, False, self.doubtful
                )
            )
        earlier = (t for t in self.tokens[i + 1 : last] if t.name == token.name and not t.opens)
        own = (
            next((t for t in earlier if not self._led_to(t, close)), None)
            if token.name not in _THOUGHTS
            else None
        )
        if own is None and last <= i and self._hides(token):
            self.doubted.append((token.start, end))
        elif own is None:
            self._pass_over(token.start, end)
        else:
            # the verdict may follow this closing tag, and the last one be in a later quotation
            self._skip(token.start, own.end)
            self.doubted.append((own.start, end))

    def _led_to(self, close: _Token, last: _Token) -> bool:
        """Whether a closing tag is surely quoted: in quotation marks, right after "it says", or after
        a colon with no more words before the last closing tag.
        """
        if _CLOSED_IN_QUOTES.match(self.text, close.start - 1):
            return True
        quoting = _QUOTING.search(self.text[max(0, close.start - 240) : close.start].rstrip(" "))
        shown = "".join(quoting.groups("")) if quoting is not None else ""
        if quoting is None or not shown.strip(" :：\"'“「"):
            return quoting is not None
        between = re.sub(
            r"<([\w-]{1,40})>[^<>]{0,200}</\1>|</?[\w-]{1,40}>",
            "",
            self.text[close.end : last.start],
        )
        return bool(re.search(r"[:：]", quoting[0])) and not re.search(r"\w", between)

    def _hides(self, token: _Token) -> bool:
        """Whether a verdict may have opened this unclosed element to hide the real one: nobody asked
        for the element, or it ends with a verdict on its own line.
        """
        return any(one.name.lower() not in self.prose for one in self.stated) and (
            token.name not in self.names
            or _OWN_LINE.search(self.text[token.end :].rstrip()[-400:]) is not None
        )

    def _unclosed(self, i: int) -> tuple[str, int]:
        """An unclosed reason runs to the end, or to the one verdict on the last line of the reply."""
        token = self.tokens[i]
        rest = [
            t for t in self.tokens[i + 1 :] if t.name in self.names and t.name not in self.prose
        ]
        # a reply that began with its verdict contradicts a later one, which may be quoted
        first = {one.name.lower() for one in self.stated if not self.text[: one.start].strip()}
        pair = (
            len(rest) == 2 and rest[0].name == rest[1].name and rest[0].opens and not rest[1].opens
        )
        if pair and rest[0].name not in first:
            before = self.text[token.end : rest[0].start].rstrip(" \t")
            introduced = before.rstrip().endswith((":", "："))
            if before.endswith("\n") and not introduced and not self.text[rest[1].end :].strip():
                return before, rest[0].start
        return self.text[token.end :], len(self.text)

    def _element(self, i: int) -> None:
        token = self.tokens[i]
        name = self.names[token.name]
        # an object may be the value, fenced or not; another field's tag may stand in a text
        closing = (
            other
            for other in self.tokens[i + 1 : i + 40]
            if other.name == token.name or other.name not in self.form.held
        )
        close = next(closing, None)
        if close is None or close.name != token.name or close.opens:
            self._broken(i)
            return
        value: Any = self.text[token.end : close.start].strip()
        if value.startswith("{"):
            whole = object_at(value, 0)
            value = (
                whole[0].get(name, value) if whole is not None and whole[1] == len(value) else value
            )
        elif more := _GOES_ON.match(self.text, close.end):
            value += more[0]
        doubtful = (
            self._in_doubt(token.start)
            or not self._set_off(token.start, close.end)
            and self._after_its_line(token.start)
        )
        quoted = not doubtful and self._quoted(token.start, close.end)
        if quoted and any(one.name == name and not one.doubtful for one in self.stated):
            # "it says" before this verdict may itself be quoted, together with the verdict before
            # it; at the end of a line this one then contradicts that one
            ends = not self.text[close.end :].partition("\n")[0].strip(" \t.。*_`")
            doubtful = ends and not self._set_off(token.start, close.end)
        if doubtful or not quoted:
            before = self.text[max(0, token.start - 120) : token.start]
            marked = token.sure or FINAL.search(before) is not None
            self.stated.append(StatedValue(name, value, token.start, close.end, marked, doubtful))
        self._skip_quotes_to(close.end)
        self.position = close.end

    def _broken(self, i: int) -> None:
        """A verdict whose tag or object is broken (`<score 7`, `7</score>`, `{"score": 7`) is none, and
        contradicts another one.
        """
        token = self.tokens[i]
        if token.opens:
            shown = _IN_BROKEN.match(self.text, token.start)
            name = shown[1].lower() if shown else ""
        else:
            shown = _BEFORE_CLOSE.search(self.text[max(0, token.start - 30) : token.start])
            name = token.name
        if shown is None or name not in self.names or name in self.prose:
            return
        name = self.names[name]
        try:
            self.form.value(name, shown[2])
        except ParseError:
            return
        if not self._quoted(token.start, token.end):
            self.broken.append(StatedValue(name, shown[2], token.start, token.end, False, True))

    # -- what is quoted ----------------------------------------------------------------------------

    def _skip_quotes_to(self, end: int) -> None:
        self.odd ^= self.text.count('"', self.counted, end) % 2 == 1
        self.counted = end

    def _mentioned(self, token: _Token) -> bool:
        before, after = (
            self.text[token.start - 1 : token.start],
            self.text[token.end : token.end + 1],
        )
        return bool(before) and before in "\"'`“‘「『«" and bool(after) and after in "\"'`”’」』»"

    def _quoted(self, start: int, end: int) -> bool:
        """Whether a statement is in quotation marks, code or a block quote, or after "it reads"."""
        return self._set_off(start, end) or self._introduced(start)

    def _after_its_line(self, start: int) -> bool:
        """Whether the words that introduce a statement end with their line and without a colon: the
        statement may be the judge's own.
        """
        before = self.text[:start].rstrip(" \t")
        return (
            before.endswith("\n") and before.rstrip()[-1:] not in ":：" and self._introduced(start)
        )

    def _set_off(self, start: int, end: int) -> bool:
        """Whether a statement is in quotation marks, code or a block quote, or is then called one."""
        text = self.text
        self._skip_quotes_to(start)
        before, after = text[max(0, start - 240, self.position) : start], text[end : end + 240]
        line = before.rpartition("\n")[2]
        line_start = text.rfind("\n", 0, start) + 1
        left_out = any(a <= line_start < b for a, b in (*self.read[-3:], *self.doubted[-3:]))
        if not left_out and text[line_start : line_start + 8].lstrip().startswith(">"):
            return True
        near, next_to = before.rstrip(" \t")[-1:], after.lstrip(" \t")[:1]
        return bool(
            next_to
            and (near in ('"', "'", "`") and next_to == near or _QUOTES.get(near) == next_to)
            # a thought cut short may leave a quotation mark open, and the judge's own words look
            # quoted
            or (self.odd and '"' in after and (self.whole or not self.stated))
            or (line.count("`") % 2 and "`" in after.partition("\n")[0])
            or any(
                before.rfind(o) > before.rfind(c) and c in after
                for o, c in _QUOTES.items()
                if o in before
            )
            or _QUOTED_BEFORE.match(after)
        )

    def _introduced(self, start: int) -> bool:
        sentence = self.text[max(0, start - 240, self.position) : start]
        if sentence.rstrip().endswith((":", "：")):
            sentence = sentence.rstrip()
        quoting = _QUOTING.search(sentence) if sentence.strip() else None
        return quoting is not None and _CONCLUDING.match("".join(quoting.groups(""))) is None


def members(json_object: dict[str, Any], form: Form, depth: int = 0) -> dict[str, Any]:
    """The wanted members of an object, keys in any case; else those of the one object inside it."""
    values: dict[str, Any] = {}
    for key, value in json_object.items():
        name = form.names.get(key.strip().lower())
        if name is None:
            continue
        if name in values and values[name] != value:
            raise TwoValues(f"{name!r} stands twice in one object, with different values")
        values[name] = value
    if any(not form.fields[name].prose for name in values) or depth > 3:
        return values
    inner = [
        v
        for k, v in json_object.items()
        if isinstance(v, dict) and k.strip().lower() not in REASONS
    ]
    return {**values, **members(inner[0], form, depth + 1)} if len(inner) == 1 else values
