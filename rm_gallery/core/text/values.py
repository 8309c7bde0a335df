"""Short answers as values: a whole number, a number, yes or no, a list; strict, so that nothing is guessed."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from rm_gallery.core.text.reasoning import INVISIBLE
from rm_gallery.core.utils.errors import ParseError

LONGEST = 400
"""Characters of a short answer that are looked at, at most; longer ones are no short answers."""

_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth".split()
_CHINESE = "零一二三四五六七八九十"
_NAMED = {word: n for n, word in enumerate(_WORDS)} | {word: n for n, word in enumerate(_ORDINALS)}
_NAMED |= {sign: n for n, sign in enumerate(_CHINESE)} | {"两": 2, "十一": 11, "十二": 12}
_NAME = "|".join(sorted(_NAMED, key=len, reverse=True))

_MARKUP = "*_`\"'()[]{}#$«»“”‘’「」【】（）✓✔✅👍⭐★☆🌟🏆 \t\r\n\u200e\u00a0\ufe0f\u20e3"
_ELEMENT = re.compile(r"\s*<(?!/)([a-z]{1,12})>(.{0,200})</\1>\s*", re.I | re.S)
_COMMENT = re.compile(r"<!--.{0,200}?-->", re.S)
_CDATA = re.compile(r"<!\[CDATA\[(.{0,200}?)\]\]>", re.S)
_BOXED = re.compile(r"\\boxed\s*\{([^{}]{1,80})\}|\\text(?:bf)?\s*\{([^{}]{1,80})\}")
_NOUN = (
    "answer|response|option|candidate|assistant|output|choice|model|score|rating|verdict|winner|number|no\\.|nr\\.|n[º°]|"
    "completion|reply|no(?=\\d)|réponse|respuesta|opción|antwort|antwoord|odpowiedź|svar|risposta|resposta|ответ|вариант|답변|응답|応答|解答|"
    "level|grade|nota|note|bewertung|punteggio|puntuación|pontuação|оценка|점수|等级|级别|级|回答|回复|答案|选项|候选|助手|模型|评分|得分|总分|总评|分数|打分|编号|序号"
)
_IS = r"(?:\s*(?:is|are|ist|est|es|是|为))?"
_PREFIX = re.compile(
    rf"(?:(?:definitely|clearly|certainly)\s+)?(?:(?:i|we)(?:'d|\s+would)?\s+(?:choose|pick|select|prefer|(?:give|rate|score)(?:\s+(?:it|this))?)\s+"
    rf"|我?选择?(?!项))?(?:an?\s+(?:solid\s+|strong\s+)?(?=\d))?(?:(?:the|la|le|die|der)\s+)?(?:(?:best|better|final|overall|total|winning|最好|最佳|更好|最终|综合|总(?![分评]))的?{_IS}\s*)?"
    rf"(?:(?:the\s+)?(?:{_NOUN}){_IS}\s*)?(?:[:：#=_]|-(?=\s)|(?<=[a-z])-(?=\d))?\s*(?:(?:the\s+)?(?:{_NOUN})\s*[#_]?\s*)?",
    re.I,
)
_UNIT = (
    rf"(?:one|points?|pts?\.?|stars?|marks?|punkten?|punt[oi]s?|pontos?|балл[а-я]{{0,3}}|점|分|[个号点]?(?:{_NOUN})|[个号点])"
)
_COUNTED = re.compile(rf"^(?:st|nd|rd|th)?(?![a-z])(?:\s*{_UNIT}(?![a-z]))?", re.I)
_WINS = (
    r"(?:\s*(?:is|was|是)\s*(?:the\s+|clearly\s+|slightly\s+|much\s+){0,2}(?:better|best|winner|stronger|strongest|superior|更好|最好|最佳|更优)"
    r"(?:\s(?:answer|response|one|option|choice|overall)|的)?(?![a-z])"
    r"|\s*(?:wins?(?![a-z])|更好|最好|最佳|更优|胜出|胜))?"
)
_TAIL = re.compile(
    _WINS
    + r"\s*(?:[(（][^()（）0-9]{0,160}[)）]|(?:[:：,，;；.。!]|\s[-–—]|\s(?:because|since|overall|in total)\b)\s*[^0-9]{0,160})?\s*"
)
_SPLIT = re.compile(rf"\b(?:or|no|wait|maybe|either|{'|'.join(_WORDS[2:])})\b|或", re.I)
"""After a number this makes it doubtful, even in what explains a score."""
_LEVEL = re.compile(r"\s*(?:[:：(（]|[-–—]\s)")
_DOUBT = re.compile(
    rf"\b(?:wait|maybe|perhaps|either|{'|'.join(_WORDS[2:])})\b|(?:或[者许]?|应该?[是为]?|[改正][为成])\s*[两{_CHINESE}](?:[分级,，.。;；]|$)",
    re.I,
)
"""In the meaning of a level, put behind its number, this makes the number doubtful."""
_EVEN = re.compile(r"\b(?:not|tie|tied|equal|both|versus|vs)\b|[不非平]", re.I)
"""In what explains the number of a best answer this makes it doubtful, too."""
_JOINED = re.compile(r"\b(?:and|to)\b|[和与至到]", re.I)
_EXPLAINED = re.compile(r"\s*[(（:：,，;；.。!\-–—]")
_REJECTED = re.compile(
    r"\b(?:wors[et]|bad|incorrect|inferior|wrong|loses?|lost|loser|second|weak\w*|poor\w*|except|fail\w*|refus\w*)\b|[差错输除]",
    re.I,
)
"""Of the number of a best answer this says the opposite; of a score it gives the reason."""
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?", re.I)
_VALUE = re.compile(
    rf"(?:第\s?)?(?:(?P<digits>\d{{1,15}}(?:\.\d{{1,15}})?)(?![\d.,]*\d)|(?P<name>{_NAME})(?![a-z\d{_CHINESE}]))", re.I
)
_OUT_OF = re.compile(
    r"\s*[(,]?\s*(?:/|out of(?: a (?:maximum|possible|total)(?: of)?)?|of|von|van|av|sur|su|sobre|de|из|满分|总分|max(?:imum)?)\s*(?:is|为|是|:)?\s*"
    r"(\d{1,4}(?:\.0)?|ten|十)(?:\s*分)?(?:\s*\))?",
    re.I,
)
_SAME_AGAIN = re.compile(rf"\s*[(（]\s*(?:{_NOUN})?\s*[#_]?\s*(\d{{1,4}}|{_NAME})\s*[)）]\s*", re.I)


def excerpt(text: str, length: int = 120) -> str:
    """First and last characters of a long text, on one line and without control characters."""
    if len(text) > 8 * length:
        text = f"{text[: 4 * length]}{text[-4 * length :]}"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 2 * length else f"{text[:length]} … {text[-length:]}"


def bare(text: str) -> str:
    """A short answer without markup, a leading "Answer:" and closing punctuation."""
    text = plain(text).rstrip("。.!！;；,，").strip(_MARKUP)
    return text[_PREFIX.match(text).end() :].strip(_MARKUP)  # type: ignore[union-attr]  # every part is optional


def plain(text: str) -> str:
    """A short answer in plain digits, without invisible characters, CDATA, enclosing elements, boxes and markup."""
    text = unicodedata.normalize("NFKC", text[: LONGEST + 1]).translate(INVISIBLE)
    if "<!" in text:
        text = _COMMENT.sub("", _CDATA.sub(r"\1", text))
    while found := _ELEMENT.fullmatch(text):
        text = found[2]
    boxed = _BOXED.search(text)
    while boxed:
        text = text[: boxed.start()] + (boxed[1] or boxed[2]) + text[boxed.end() :]
        boxed = _BOXED.search(text)
    return text.strip(_MARKUP)


def read_integer(value: Any, high: float | None = None, scale: bool = False) -> int:
    """The one whole number a short answer states, also as "Answer 3", "8 points", "third" or "八分".

    "8/10" counts where 10 is `high`, the end of the scale. "8.5", "7-8", "2 or 3" and "not 3" are errors, not misread.
    Below 5 `high` may as well be the number of answers to choose from, unless it is called a `scale`.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    number = _stated(value, high, scale) if isinstance(value, str) else None
    if number is None or not number.is_integer():
        raise ParseError(f"Expected a whole number, found {excerpt(str(value)[:LONGEST], 40)!r}.")
    return int(number)


def read_number(value: Any, high: float | None = None, scale: bool = False) -> float:
    """The one number a short answer states; "95%" is 0.95, and "8/10" is 8 where 10 is the end of the scale."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = bare(value) if isinstance(value, str) else ""
    if text.endswith("%") and _NUMBER.fullmatch(text.rstrip("% ")):
        return float(text.rstrip("% ")) / 100
    number = _stated(value, high, scale) if isinstance(value, str) else None
    if number is None:
        raise ParseError(f"Expected a number, found {excerpt(str(value)[:LONGEST], 40)!r}.")
    return number


def number_named(text: str) -> float:
    """A number in digits or as a word, an ordinal or a Chinese numeral; KeyError and ValueError for what is none."""
    return float(_NAMED[text.lower()]) if text.lower() in _NAMED else float(text)


def _stated(answer: str, high: float | None, scale: bool) -> float | None:
    if len(answer) > LONGEST:
        return None
    scale = scale or high is not None and high >= 5
    text = bare(answer)
    if _NUMBER.fullmatch(text):
        return float(text)
    # what stood in brackets after the number lost its closing one with the markup
    text = plain(answer)
    begin = _PREFIX.match(text)
    text = text[begin.end() :].lstrip(_MARKUP) if begin else text
    found = _VALUE.match(text)
    if found is None:
        return None
    if found["name"] == "两" and not text.startswith("分", found.end()):
        return None  # "两个" is both of them
    number = number_named(found["digits"] or found["name"])
    rest = _COUNTED.sub("", text[found.end() :].lstrip("*_`'\"]}")[:LONGEST])
    out_of = _OUT_OF.match(rest)
    if out_of:
        # of two answers "1/2" is no choice
        if not scale or number_named(out_of[1]) != high:
            return None
        rest = _COUNTED.sub("", rest[out_of.end() :])
    again = _SAME_AGAIN.fullmatch(f"{rest})" if "(" in rest and ")" not in rest else rest)
    if again:
        return number if number_named(again[1]) == number else None
    if rest.count("(") > rest.count(")"):
        rest += ")"
    if not _TAIL.fullmatch(rest):
        return None
    against = [_SPLIT, _EVEN, _REJECTED, _JOINED]
    if _EXPLAINED.match(rest):
        against = against[:1] if scale else against[:3]
        # "4: Right; a minor point is missing or imprecise." is the level as the prompt has it
        against = [_DOUBT] if scale and _LEVEL.match(rest) else against
    return None if any(pattern.search(rest) for pattern in against) else number


_YES = re.compile(r"(?:true|yes|y)(?![\w/?])|是的?(?!否)|对的?|正确|符合|满足|达到")
_NO = re.compile(r"(?:false|no|n)(?![\w/?]|\.\w)|否|不是|不对|错误?|(?:不|没有?|未)(?:符合|满足|达到)")
_MARKED = {**dict.fromkeys("✓✔✅☑", True), **dict.fromkeys("✗✘❌✖", False)}
_REASONED = re.compile(
    r"\s*(?:$|[,，.。;；:：!！、(（–—]|-\s|(?:because|since|as|it|the|this|that|there|they)\b|因为|[\u2700-\u27bf✅❌])"
)
"""What follows a yes or no that is the whole answer."""
_UNDECIDED = re.compile(
    r"\b(?:or|maybe|perhaps|unsure|(?:not|un)\s?(?:sure|clear)|wait|actually|hmm+)\b|或|也许|可能|等等|其实|不确定",
    re.I,
)
_NOT_WHOLLY = re.compile(
    r"\b(?:partial\w*|in part|partly|mostly|mainly|largely|almost|nearly|somewhat|un(?:met|fulfilled|satisfied)"
    r"|not\s+(?:\w+\s+)?(?:met|fulfilled|satisfied|fully|wholly|entirely|completely|quite|really))\b"
    r"|[,，.。;；:：!(（]\s*(?:(?:so|then|but|rather)\s+)?(?:no|false|否)\s*(?:$|[),，.。;:!）])|部分|一半|不完全|没有?完全|基本|几乎|[不未](?:符合|满足)|不对",
    re.I,
)
"""In what explains a yes this says no."""
_MET = re.compile(
    r"\b(?:is|are|fully|wholly|criterion)\s(?:met|fulfilled|satisfied)\b|[,，.。;；:：!(（]\s*(?:(?:so|then|but|rather)\s+)?(?:(?:yes|true)\b|是\s*(?:$|[),，.。;:!）]))"
    r"|不对|(?:完全|已)(?:符合|满足)",
    re.I,
)
"""In what explains a no this says yes, unless it is denied."""
_DENIED = re.compile(r"\b(?:not|never|only|hardly|partial\w*|part)\b|n't\b|部分|[没未不](?!对)", re.I)


def read_boolean(value: Any) -> bool:
    """True or false from yes, no, true, false, 是 or 否, a tick or a cross, and what explains it.

    "yes, but only in part", "no problems" and "yes or no" are errors, not misread.
    """
    if isinstance(value, bool):
        return value
    text = unicodedata.normalize("NFKC", str(value)[: LONGEST + 1]).translate(INVISIBLE)
    marks = {_MARKED[sign] for sign in text if sign in _MARKED}
    words = "".join(" " if sign in _MARKED else sign for sign in plain(text)).strip(_MARKUP).lower()
    said = _decided(words) if words else next(iter(marks), None)
    if said is None or len(text) > LONGEST or marks - {said}:
        raise ParseError(f"Expected true or false, found {excerpt(str(value)[:LONGEST], 40)!r}.")
    return said


def _decided(words: str) -> bool | None:
    found = _NO.match(words)
    negative = found is not None
    found = found or _YES.match(words)
    if found is None:
        return None
    rest = words[found.end() :].lstrip("*_`'\"")
    if not _REASONED.match(rest) or _UNDECIDED.search(rest):
        return None
    if negative:
        return None if _MET.search(rest) and not _DENIED.search(rest) else False
    return None if _NOT_WHOLLY.search(rest) else True


def read_list(value: Any) -> list[Any]:
    """A list from JSON, or from lines with or without bullets; "none" and an empty text are the empty list."""
    if isinstance(value, list):
        return value
    text = str(value).strip()
    if text.startswith("["):
        try:
            decoded = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"Expected a JSON list, found {excerpt(text, 40)!r}.") from error
        if isinstance(decoded, list):
            return decoded
    lines = [re.sub(r"^(?:[-*•]|\d+[.)、])\s*", "", line.strip()) for line in text.splitlines()]
    kept = [line for line in lines if line]
    return [] if len(kept) == 1 and bare(kept[0]).lower() in ("none", "n/a", "无", "没有") else kept
