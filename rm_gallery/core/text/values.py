"""Reads short answers as values: a number, a yes or no, a list, a letter. Nothing is guessed."""

from __future__ import annotations

import json
import re
from typing import Any

from rm_gallery.core.text.answer import Extraction, concluded, final_text, read_statements
from rm_gallery.core.text.canonical import normalized, rewrites, rewritten, visible
from rm_gallery.core.text.language import NUMBERS
from rm_gallery.core.utils.errors import ParseError
from rm_gallery.core.utils.shown import excerpt

__all__ = ["LETTERS", "choice_letter"]


LONGEST = 400
"""Characters of a short answer, at most."""

_WORDS = NUMBERS[:13]
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth".split()
_CHINESE = "零一二三四五六七八九十"
_NAMED = {word: n for n, word in enumerate(_WORDS)} | {word: n for n, word in enumerate(_ORDINALS)}
_NAMED |= {sign: n for n, sign in enumerate(_CHINESE)} | {"两": 2, "十一": 11, "十二": 12}
_NAME = "|".join(sorted(_NAMED, key=len, reverse=True))

_MARKUP = "*_`\"'()[]{}#$«»“”‘’「」【】（）✓✔✅👍⭐★☆🌟🏆 \t\r\n\u200e\u00a0\ufe0f\u20e3"
_ELEMENT = re.compile(r"(?is)\s*<(?!/)([a-z]{1,12})>(.{0,200})</\1>\s*")
_COMMENT = re.compile(r"(?s)<!--.{0,200}?-->")
_CDATA = re.compile(r"(?s)<!\[CDATA\[(.{0,200}?)\]\]>")
_BOXED = re.compile(r"\\boxed\s*\{([^{}]{1,80})\}|\\text(?:bf)?\s*\{([^{}]{1,80})\}")
_NOUN = (
    "answer|response|option|candidate|assistant|output|choice|model|score|rating|verdict|winner|number|no\\.|nr\\.|n[º°]|"
    "completion|reply|no(?=\\d)|réponse|respuesta|opción|antwort|antwoord|odpowiedź|svar|risposta|resposta|ответ|вариант|답변|응답|応答|解答|"
    "level|grade|nota|note|bewertung|punteggio|puntuación|pontuação|оценка|점수|等级|级别|级|回答|回复|答案|选项|候选|助手|模型|评分|得分|总分|总评|分数|打分|编号|序号"
)
_IS = r"(?:\s*(?:is|are|ist|est|es|是|为))?"
_PREFIX = re.compile(
    rf"(?i)(?:(?:definitely|clearly|certainly)\s+)?(?:(?:i|we)(?:'d|\s+would)?\s+(?:choose|pick"
    rf"|select|prefer|(?:give|rate|score)(?:\s+(?:it|this))?)\s+"
    rf"|我?选择?(?!项))?(?:an?\s+(?:solid\s+|strong\s+)?(?=\d))?(?:(?:the|la|le|die|der)\s+)?(?:(?:best"
    rf"|better|final|overall|total|winning|最好|最佳|更好|最终|综合|总(?![分评]))的?{_IS}\s*)?"
    rf"(?:(?:the\s+)?(?:{_NOUN}){_IS}\s*)?(?:[:：#=_]|-(?=\s)"
    rf"|(?<=[a-z])-(?=\d))?\s*(?:(?:the\s+)?(?:{_NOUN})\s*[#_]?\s*)?"
)
_UNIT = (
    rf"(?:one|points?|pts?\.?|stars?|marks?|punkten?|punt[oi]s?|pontos?|балл[а-я]{{0,3}}|점|分"
    rf"|[个号点]?(?:{_NOUN})|[个号点])"
)
_COUNTED = re.compile(rf"(?i)^(?:st|nd|rd|th)?(?![a-z])(?:\s*{_UNIT}(?![a-z]))?")
_WINS = (
    r"(?:\s*(?:is|was|是)\s*(?:the\s+|clearly\s+|slightly\s+|much\s+){0,2}(?:better|best|winner"
    r"|stronger|strongest|superior|更好|最好|最佳|更优)"
    r"(?:\s(?:answer|response|one|option|choice|overall)|的)?(?![a-z])"
    r"|\s*(?:wins?(?![a-z])|更好|最好|最佳|更优|胜出|胜))?"
)
_TAIL = re.compile(
    _WINS
    + (
        r"\s*(?:[(（][^()（）0-9]{0,160}[)）]|(?:[:：,，;；.。!]|\s[-–—]|\s(?:because|since|overall"
        r"|in total)\b)\s*[^0-9]{0,160})?\s*"
    )
)
_SPLIT = re.compile(rf"(?i)\b(?:or|no|wait|maybe|either|{'|'.join(_WORDS[2:])})\b|或")
"""After a number this makes it doubtful, even in what explains a score."""
_LEVEL = re.compile(r"\s*(?:[:：(（]|[-–—]\s)")
_DOUBT = re.compile(
    rf"(?i)\b(?:wait|maybe|perhaps|either|{'|'.join(_WORDS[2:])})\b|(?:或[者许]?|应该?[是为]?"
    rf"|[改正][为成])\s*[两{_CHINESE}](?:[分级,，.。;；]|$)"
)
"""In the description after a level, this makes the number doubtful."""
_EVEN = re.compile(r"(?i)\b(?:not|tie|tied|equal|both|versus|vs)\b|[不非平]")
"""In an explanation of the best answer, this makes its number doubtful, too."""
_JOINED = re.compile(r"(?i)\b(?:and|to)\b|[和与至到]")
_EXPLAINED = re.compile(r"\s*[(（:：,，;；.。!\-–—]")
_REJECTED = re.compile(
    r"(?i)\b(?:wors[et]|bad|incorrect|inferior|wrong|loses?|lost|loser|second|weak\w*|poor\w*"
    r"|except|fail\w*|refus\w*)\b|[差错输除]"
)
"""This contradicts the number of a best answer; for a score it is only the reason."""
_NUMBER = re.compile(r"(?i)[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?")
_VALUE = re.compile(
    rf"(?i)(?:第\s?)?(?:(?P<digits>\d{{1,15}}(?:\.\d{{1,15}})?)(?![\d.,]*\d)"
    rf"|(?P<name>{_NAME})(?![a-z\d{_CHINESE}]))"
)
_OUT_OF = re.compile(
    r"(?i)\s*[(,]?\s*(?:/|out of(?: a (?:maximum|possible|total)(?: of)?)?|of|von|van|av|sur|su"
    r"|sobre|de|из|满分|总分|max(?:imum)?)\s*(?:is|为|是|:)?\s*"
    r"(\d{1,4}(?:\.0)?|ten|十)(?:\s*分)?(?:\s*\))?"
)
_SAME_AGAIN = re.compile(rf"(?i)\s*[(（]\s*(?:{_NOUN})?\s*[#_]?\s*(\d{{1,4}}|{_NAME})\s*[)）]\s*")


def bare(text: str) -> str:
    """A short answer without markup, a leading "Answer:" and closing punctuation."""
    return _bared(plain(text))


def _bared(text: str) -> str:
    return _after_prefix(text.rstrip("。.!！;；,，").strip(_MARKUP)).strip(_MARKUP).lstrip("~≈约")


def _after_prefix(text: str) -> str:
    return text[_PREFIX.match(text).end() :]  # type: ignore[union-attr]  # every part is optional


def plain(text: str) -> str:
    """A short answer in plain digits, without invisible characters, CDATA, enclosing elements,
    boxes and markup.
    """
    text = visible(normalized("NFKC", text[: LONGEST + 1]))
    if "<!" in text:
        text = _COMMENT.sub("", _CDATA.sub(r"\1", text))
    while element := _ELEMENT.fullmatch(text):
        text = element[2]
    while boxed := _BOXED.search(text):
        text = text[: boxed.start()] + (boxed[1] or boxed[2]) + text[boxed.end() :]
    return text.strip(_MARKUP)


def read_integer(value: Any, high: float | None = None, scale: bool = False) -> int:
    """The one whole number a short answer states, also as "Answer 3", "8 points", "third" or "八分".

    "8/10" counts where 10 is `high`, the end of the scale. "8.5", "7-8", "2 or 3" and "not 3" are
    errors, not misread. Below 5 `high` may as well be the number of answers to choose from, unless
    it is called a `scale`.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return int(_single_number(value, high, scale, whole=True))


def read_number(value: Any, high: float | None = None, scale: bool = False) -> float:
    """The one number a short answer states; "95%" is 0.95, and "8/10" is 8 where 10 is the end of
    the scale.
    """
    return float(_single_number(value, high, scale, whole=False))


def _single_number(value: Any, high: float | None, scale: bool, whole: bool) -> float:
    """The number that a JSON value or a short answer states; ParseError for any other."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    number: float | None = None
    if isinstance(value, str):
        if not whole and (text := bare(value)).endswith("%"):
            if _NUMBER.fullmatch(text.rstrip("% ")):
                return float(text.rstrip("% ")) / 100
        number = _stated(value, high, scale)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    if number is None or whole and number % 1:
        expected = "a whole number" if whole else "a number"
        raise ParseError(f"Expected {expected}, found {excerpt(str(value)[:LONGEST], 40)!r}.")
    return number


def number_named(text: str) -> float:
    """A number in digits or as a word, an ordinal or a Chinese numeral; KeyError and ValueError for
    what is none.
    """
    return float(_NAMED[text.lower()]) if text.lower() in _NAMED else float(text)


def _stated(answer: str, high: float | None, scale: bool) -> float | None:
    if len(answer) > LONGEST:
        return None
    scale = scale or high is not None and high >= 5
    text = plain(answer)
    number = _bared(text)
    if _NUMBER.fullmatch(number):
        return float(number)
    # `_bared` stripped the closing bracket after the number with the markup
    text = _after_prefix(text).lstrip(_MARKUP)
    match = _VALUE.match(text)
    if match is None:
        return None
    if match["name"] == "两" and not text.startswith("分", match.end()):
        return None  # "两个" is both of them
    stated = number_named(match["digits"] or match["name"])
    rest = _COUNTED.sub("", text[match.end() :].lstrip("*_`'\"]}")[:LONGEST])
    out_of = _OUT_OF.match(rest)
    if out_of:
        # of two answers "1/2" is no choice
        if not scale or number_named(out_of[1]) != high:
            return None
        rest = _COUNTED.sub("", rest[out_of.end() :])
    if rest.count("(") > rest.count(")"):
        rest += ")"
    if again := _SAME_AGAIN.fullmatch(rest):
        return stated if number_named(again[1]) == stated else None
    if not _TAIL.fullmatch(rest):
        return None
    against = [_SPLIT, _EVEN, _REJECTED, _JOINED]
    if scale and _LEVEL.match(rest):
        # "4: Right; a minor point is missing or imprecise." is the level as the prompt has it
        against = [_DOUBT]
    elif _EXPLAINED.match(rest):
        against = against[:1] if scale else against[:3]
    return None if any(pattern.search(rest) for pattern in against) else stated


_YES = re.compile(r"(?:true|yes|y)(?![\w/?])|是的?(?!否)|对的?|正确|符合|满足|达到")
_NO = re.compile(
    r"(?:false|no|n)(?![\w/?]|\.\w)|否|不是|不对|错误?|(?:不|没有?|未)(?:符合|满足|达到)"
)
_MARKED = {**dict.fromkeys("✓✔✅☑", True), **dict.fromkeys("✗✘❌✖", False)}
_REASONED = re.compile(
    r"\s*(?:$|[,，.。;；:：!！、(（–—]|-\s|(?:because|since|as|it|the|this|that|there|they)\b|因为"
    r"|[\u2700-\u27bf✅❌])"
)
"""What follows a yes or no that is the whole answer."""
_UNDECIDED = re.compile(
    r"(?i)\b(?:or|maybe|perhaps|unsure|(?:not|un)\s?(?:sure|clear)|wait|actually|hmm+)\b|或|也许|可能|等等"
    r"|其实|不确定"
)
_NOT_WHOLLY = re.compile(
    r"(?i)\b(?:partial\w*|in part|partly|mostly|mainly|largely|almost|nearly|somewhat|un(?:met"
    r"|fulfilled|satisfied)"
    r"|not\s+(?:\w+\s+)?(?:met|fulfilled|satisfied|fully|wholly|entirely|completely|quite"
    r"|really))\b"
    r"|[,，.。;；:：!(（]\s*(?:(?:so|then|but|rather)\s+)?(?:no|false|否)\s*(?:$|[),，.。;:!）])|部分|一半|不完全"
    r"|没有?完全|基本|几乎|[不未](?:符合|满足)|不对"
)
"""In what explains a yes this says no."""
_MET = re.compile(
    r"(?i)\b(?:is|are|fully|wholly|criterion)\s(?:met|fulfilled|satisfied)\b"
    r"|[,，.。;；:：!(（]\s*(?:(?:so|then|but|rather)\s+)?(?:(?:yes|true)\b|是\s*(?:$|[),，.。;:!）]))"
    r"|不对|(?:完全|已)(?:符合|满足)"
)
"""In what explains a no this says yes, unless it is denied."""
_DENIED = re.compile(r"(?i)\b(?:not|never|only|hardly|partial\w*|part)\b|n't\b|部分|[没未不](?!对)")


def read_boolean(value: Any) -> bool:
    """True or false from yes, no, true, false, 是 or 否, a tick or a cross, and what explains it.

    "yes, but only in part", "no problems" and "yes or no" are errors, not misread.
    """
    if isinstance(value, bool):
        return value
    text = visible(normalized("NFKC", str(value)[: LONGEST + 1]))
    marks = {_MARKED[sign] for sign in text if sign in _MARKED}
    words = "".join(" " if sign in _MARKED else sign for sign in plain(text)).strip(_MARKUP).lower()
    decision = _decided(words) if words else next(iter(marks), None)
    if decision is None or len(text) > LONGEST or marks - {decision}:
        raise ParseError(f"Expected true or false, found {excerpt(str(value)[:LONGEST], 40)!r}.")
    return decision


def _decided(words: str) -> bool | None:
    negative = _NO.match(words)
    match = negative or _YES.match(words)
    rest = words[match.end() :].lstrip("*_`'\"") if match else ""
    if match is None or not _REASONED.match(rest) or _UNDECIDED.search(rest):
        return None
    if negative:
        return None if _MET.search(rest) and not _DENIED.search(rest) else False
    return None if _NOT_WHOLLY.search(rest) else True


def read_list(value: Any) -> list[Any]:
    """A list from JSON, or from lines with or without bullets; "none" and an empty text are the
    empty list.
    """
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
    lines = (re.sub(r"^(?:[-*•]|\d+[.)、])\s*", "", line.strip()) for line in text.splitlines())
    kept = list(filter(None, lines))
    return [] if len(kept) == 1 and bare(kept[0]).lower() in ("none", "n/a", "无", "没有") else kept


LETTERS = "ABCDEFGHIJ"
_LIMIT = 10_000

_HERE = re.compile(
    r"(?i)(?:(?:the|la|le|el|die|option|choice|letter|answer|correct|right|best|opción|вариант"
    r"|statement|antwort|réponse|ответ|верный|правильный)s?\b\s*){0,4}"
    r"(?:选项|选择?)?\s*:?\s*(?P<open>[(\[{]{0,2})?\s*(?P<letter>[A-Za-z])(?P<close>\s*[)\]}]{1,2})?"
)
_GOES_ON = re.compile(r"[A-Za-z0-9'’_+#]|-\w")
_A_WORD_FOLLOWS = re.compile(
    r"[ \t]+(?!(?:because|since|as|is|and|or|for|due|not|but|which|by|rather|instead|here|fits?"
    r"|best|matches)\b)[A-Za-z]"
)
_JOINS = re.compile(
    r"(?i)(?:\s*(?:\)[^.\n]{0,40})??[,;]?\s*\b(?:or|and(?!\s+not)|as\s+well\s+as|plus|maybe|perhaps"
    r"|possibly|oder|ou|o|und|et|y|или|и)\b\s*(?:maybe|perhaps|possibly|also|even|else|both)?\s*"
    r"|\s*(?:[/,&+;、或和与か]|または|もしくは|あるいは|또는|혹은|이나)\s*(?:or\b|and\b)?\s*)(?:(?:option|choice"
    r"|the)\s+){0,2}"
)
_LETTER_DENIED = re.compile(
    r"(?i)\s*(?:[)\].,:]\s*)?(?:is|was|seems|would\s+be|can(?:no|')t\s+be|cannot\s+be|looks"
    r"|isn['’]t)\s*(?:clearly\s+|also\s+|therefore\s+)?"
    r"(?:wrong|incorrect|false|not\b|n['’]t|mistaken|tempting|eliminated|ruled|a\s+distractor"
    r"|invalid|impossible|out\b)"
    r"|\s*(?:isn['’]t|wasn['’]t|can(?:no|['’])t|cannot|fails)\b|\s*还是|\s*(?:ist|est|es"
    r"|[—–-])?\s*(?:falsch|nicht\s+richtig|fausse?\b|faux\b|incorrecta?\b|неверн|неправильн|не\s)"
    r"|\s*(?:是|为)?(?:错误?|不对|不正确)|\s*(?:不|错|吗|项错)"
)
_THERE = r"(?=[(\[{\"'“]{0,2}\s?[A-J](?:[)\]}\"'”.,;:!?\s]|$|[^\x00-\x7f]))"
_CHOICE = r"(?:choice|option|pick|letter|answer|selection|guess|statement|one)"
_PICKS = re.compile(
    # I'd go with, let's choose, select
    r"(?:\b(?i:go(?:ing)?\s+(?:with|for)|(?:choose|pick|select)(?:ed)?|choosing|picking|selecting"
    r"|opt(?:ing)?\s+for|i(?:['’]d|\s+would)?\s+(?:say|guess|think|chose)|vote\s+for"
    r"|bet\s+on|settle\s+(?:on|for)|lean(?:ing)?\s+towards?|chosen|selection"
    # my choice is, the best option that … is
    rf"|(?:my|the|final|best|right|correct|our|selected|chosen)\s+(?:\w+\s+)?{_CHOICE}(?:\s+(?:that"
    rf"|which)\s[^.\n]{{0,40}}?)?\s*(?:(?:is|would\s+be|must\s+be|should\s+be|(?:seems"
    rf"|appears)\s+to\s+be)\b|:)"
    # it's, must be, leaves us with, therefore
    r"|(?:it|this|that)(?:['’]s|\s+(?:is|must\s+be|should\s+be|has\s+to\s+be|would\s+be))|must\s+be"
    r"|has\s+to\s+be|leaves(?:\s+us\s+with)?|points\s+to"
    r"|left\s+with|(?i:looks\s+like|corresponds?\s+to|matches|(?:most\s+)?likely|yes(?=,)"
    r"|settled\s+(?:on|for)|würde|s['’]agit\s+de|вариант|это|definitely|probably|surely|certainly"
    r"|selected|w[äa]hle|nehme|choisis|elijo|escojo|выбираю)|therefore|thus|hence|so|conclude"
    r"|conclusion|verdict|final|correct:|is|ist|es|est)(?:\b|(?<=['’]s)|(?<=:))"
    r"\s*(?:,|:|with|that|[—–-](?=\s))?\s*(?i:\b(?:actually|really|in\s+fact|clearly|obviously"
    r"|definitely|probably|(?:most\s+)?likely|indeed|just|simply)\s+)?"
    rf"(?i:(?:the\s+|la\s+)?(?:correct\s+|right\s+|best\s+)?(?:{_CHOICE}\s+)?(?:is\s+)?)"
    r"|(?:(?:正しい|適切な|正解な)のは|选择?|故选?|则选?|是|=>|⇒|→|∴)\s*[:：]?\s*)" + _THERE
)
_IS_RIGHT = re.compile(
    r"(?<![A-Za-z0-9])[(\[\"']?([A-J])(?:[)\]\"']?\s*|[).:]\s[^.\n;]{1,60}?\s)\b(?:is|would\s+be"
    r"|must\s+be|(?:seems|appears|looks)(?:\s+to\s+be)?|are|ist|est|es)\s+"
    r"(?:(?!(?:not|nicht|never|hardly|no|pas|wrong|worst|incorrect|false|least|bad)\b)\w+\s+){0,2}?"
    r"(?P<how>correct|right|best(?!\s+(?:wrong|incorrect|distractor))|plausible|appropriate"
    r"|suitable|fitting|true|answer|réponse|respuesta|antwort|only|likely|it(?=\s*(?:[.!,;]|$))"
    r"|richtig|korrekt|juste|correcte|correcta|correcto)\b"
    r"(?!\s+(?:that|to\s+say|in\s+part|if|when|unless|only|provided|assuming|except|wrong)\b|\?)"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])[)\]]?\s+(?:best\s+)?(?:matches|fits|works|holds|remains"
    r"|it\s+is)\b"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])(?:[)\]]?\s*[:–—-]\s*|[)\].]\s*|\s+(?=[✓✔✅☑]))(?i:(?:correct"
    r"|right|true|yes)\b|[✓✔✅☑])(?!\s+[a-z])"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])[)\]]?\s*(?:が|は|는|은|가|이)\s*(?:正解|正しい|答え|정답|맞)(?!\s*(?:では|じゃ|とは"
    r"|이\s?아니|이\s?아닙|지\s?않))"
    r"|\b[Oo]nly\s+(?:option|choice|answer)\s+[(\[]?([A-J])(?![A-Za-z0-9])"
    r"|([A-J])\s*(?:项|选项)?\s*(?:是|为)?(?:正确的?|对的?)(?!吗|么)"
)
_SURE = "correct best answer only it".split()
_REPEATED = re.compile(r"(?<![A-Za-z])([A-J])\1{3,5}(?![A-Za-z])")
_ALSO = re.compile(r"(?<![A-Za-z])([A-J])[)\]]?\s*(?:,|/|&|and|or|、|和)\s*(?:option\s+)?[(\[]?$")
_BEFORE_WRONG = re.compile(
    r"(?i)\b(?:not|n['’]t|nor|neither|if|whether|than|tempted|why|suppose|(?:you|one|some|people"
    r"|many|might|may|would|could)\s+(?:\w+\s+)?(?:think|say|guess|argue))\b(?:(?!\bbut\b"
    r"|\bhowever\b)[^.\n]){0,20}$|[不非若][^\s，,。；;]{0,3}$"
)
_LINE = re.compile(
    r"(?m)^[ \t#>*-]*[(\[]?([A-J])(?:[)\]]|[.:、](?=\s|$)|(?=[ \t]*$))(?!\W{0,4}(?i:incorrect|wrong"
    r"|false|no|maybe|perhaps|possibly)\b|\s*[✗✘❌×])"
)
_LAST_LINE = re.compile(r"\n[ \t#>(\[{-]*([A-J])[ \t)\]}.]*\Z")
_POLITE = re.compile(r"\s?(?:です|である|だ|번?\s?(?:입니다|이다)|번)[.。]?$")
_AGAIN = re.compile(
    r"(?i)\b(?:wait|no(?=[,:.!—-])|hmm+|actually|sorry|correction|oops)\b[,:.!\s]*(?:(?:actually"
    r"|it['’]s|it\s+is|i\s+mean|make\s+that|no|wait|the\s+answer\s+is)\b[,:\s]*)*"
    r"\(?([A-J])\)?[.!]?\s*\Z"
)
_LAST_WORD = re.compile(r"[a-z)A-J][.!;:]\s+\(?([A-J])\)?[.!]*\Z")
_LAST = 60
_OR_ELSE = re.compile(
    r"(?<![A-Za-z0-9])([A-J])[)\]]?\s*(?:\((?:or|或)|[,(]?\s*(?:(?:or|或)\s+)?(?i:maybe|perhaps"
    r"|possibly|alternatively|也许|可能))\s*(?i:(?:maybe|perhaps|possibly|else)\s+)?"
    r"[(\[]?([A-J])[)\].\s]*\Z"
)
"""A letter at the end of a text, and another one that it may be as well."""
_LETTERED = re.compile(r"(?<![A-Za-z\\])[A-Ja-j](?![A-Za-z])")
_LEAD = re.compile(
    r"(?i)(?:(?:option|choice|letter)\b|选项)?[\s#>:(\[{\"']*([A-J])(?:[)\]}\"']*[.:]?\s*(?:\n|$)"
    r"|[)\]]\.?\s|[.:、]\s|\s[-–—]\s"
    r"|,\s+(?:definitely|certainly|clearly|obviously|for\s+sure|of\s+course|i\s+(?:think|believe"
    r"|guess))\b|\s+\((?![A-J]\))[^()\n]{1,60}\)\W*\Z"
    r"|,\s*(?:因为|由于)|,?\s+\(?(?:because|since|as(?!\s+well)|due|(?:and\s+)?not|rather"
    r"|instead)\b)(?!\s*(?:incorrect|wrong|false|no|maybe|perhaps|possibly)\b)"
)
_OWN_LINE = re.compile(r"(?m)^[ \t#>*-]*[(\[]?([A-J])[)\].]?[ \t]*$")
_SAYS = re.compile(r"(?i)\b(?:is|are|because|since|as|not|rather|instead|than|but|and)\b")
_SEEMS = re.compile(r"\b(?:seems|looks)\b")
_LISTED = re.compile(r"[(\[]?([A-J])[)\]](?:\s*[^\s()\[\].,;!?]+){0,6}?\s*[(\[]?([A-J])[)\]]")
"""The options, repeated: "(A) Paris (B) London"."""
_BRACKETED = re.compile(r"[(\[{]\s*([A-J])\s*[)\]}]")


_NONE_OF = re.compile(
    r"(?i)(?:none|neither|no one) of (?:the |these |those )?(?:above|options?|choices?|answers?"
    r"|letters?|them)\b(?![^.\n]{0,60}\([A-J]\))[^.\n]{0,60}\.?"
)


def choice_letter(text: str, letters: str = LETTERS, extraction: Extraction = "any") -> str | None:
    """The upper-case letter that a text picks, by the rules of `MultipleChoiceLetterReward`; None
    for none or two.
    """
    text = _REPEATED.sub(r"\1", _without_marks(concluded(final_text(text), extraction, _PICKS)))
    other = _OR_ELSE.search(text[-_LAST:])
    if _NONE_OF.fullmatch(text.strip()) or (other is not None and other[1] != other[2]):
        return None
    reading = read_statements(text, _PICKS)
    if reading.kind == "box" and not any(_LETTERED.search(one.text) for one in reading.statements):
        # the box holds the value of the option
        reading = read_statements(text, _PICKS, boxes=False)
    last = None if reading.kind else _LAST_LINE.search(text[-_LAST:])
    if last is not None and last[1] in letters:
        column = set(letters).intersection(map(str.strip, text[-_LAST:].splitlines()))
        others = len(text) > _LAST or set(text.split()) - column
        return last[1] if len(column) == 1 or others else None
    for statement in reading.statements:
        letter = _leading(statement.text, letters)
        if letter is not None:
            return letter or None
    text = reading.rest[-_LIMIT:].strip()
    whole = _HERE.fullmatch(_POLITE.sub("", text).rstrip(".,;:!? -。"))
    if whole is not None and whole["letter"].upper() in letters:
        return str(whole["letter"].upper())
    lines = set(letters).intersection(_LINE.findall(text))
    lead = _lead(text, letters, lines)
    if lead is not None:
        return lead or None
    if right_letters := _called_right(text, letters):
        return right_letters.pop() if len(right_letters) == 1 else None
    if (last := _LAST_WORD.search(text[-_LAST:])) is not None and last[1] in letters:
        return last[1]
    picked = lines or set(letters).intersection(_BRACKETED.findall(text))
    return picked.pop() if len(picked) == 1 else None


def _lead(text: str, letters: str, lines: set[str]) -> str | None:
    """The letter a text begins with or corrects itself to; "" if it only lists the options."""
    again = _AGAIN.search(text[-_LAST:])
    if again is not None and again[1] in letters:
        return again[1]
    lead = _LEAD.match(text)
    letter = lead[1].upper() if lead else ""
    alone = set(letters).intersection(_OWN_LINE.findall(text)) or lines
    if not letter or letter not in letters or not alone <= {letter}:
        return None
    listed = _LISTED.match(text)
    only_lists = listed and listed[1] != listed[2] and not _SAYS.search(listed[0])
    return "" if only_lists else letter


def _called_right(text: str, letters: str) -> set[str]:
    """The letters a text calls right: the sure ones, else all."""
    picks: dict[bool, set[str]] = {True: set(), False: set()}
    for match in _IS_RIGHT.finditer(text):
        letter = next(group for group in match.group(1, 3, 4, 5, 6, 7) if group)
        before = text[max(0, match.start() - 40) : match.start()]
        if letter in letters and not _BEFORE_WRONG.search(before):
            sure = match["how"] in _SURE and not _SEEMS.search(match[0])
            picks[sure] |= {letter, *_ALSO.findall(before)}
    return picks[True] or picks[False]


def _leading(phrase: str, letters: str) -> str | None:
    """The letter a phrase starts with; "" for two letters, None for no letter or a denied one."""
    match = _HERE.match(phrase)
    if match is None or match["letter"].upper() not in letters:
        return None
    letter, rest = match["letter"].upper(), phrase[match.end() :]
    no_letter = not match["close"] and (
        _GOES_ON.match(rest)
        or (match["letter"].islower() and rest.strip(" .,;:!。"))
        # an article or a pronoun
        or (letter in "AI" and _A_WORD_FOLLOWS.match(rest))
    )
    if no_letter or _LETTER_DENIED.match(rest):
        return None
    joined = _JOINS.match(rest)
    other = _HERE.match(rest, joined.end()) if joined else None
    if other is None or other["letter"] not in letters or _LETTER_DENIED.match(rest, other.end()):
        return letter
    words_follow = (
        other["letter"] in "AI" or rest[: other.start()].strip() == ","
    ) and _A_WORD_FOLLOWS.match(rest, other.end())
    no_letter = not other["close"] and (_GOES_ON.match(rest, other.end()) or words_follow)
    return letter if no_letter or other["letter"] == letter else ""


_WITHOUT_MARKS = rewrites(
    (
        r"\*\*|__|[*_`$]|\\[()\[\]]|\\(?:text(?:bf|rm|it)?|math(?:rm|bf)|mbox|boldsymbol)\s*(?=\{)"
        r"|\\[,;:! ]|~",
        "",
    ),
    (r"[\"'“”‘’«»「」<]\s?([A-Za-z])\s?[.)]?\s?[\"'“”‘’«»「」>]", r"\1"),
    (r"\{\s*(or|and|,)\s*\}", r" \1 "),
)


def _without_marks(text: str) -> str:
    if not text.isascii():
        text = normalized("NFKC", text).replace("【", "(").replace("】", ")")
    return rewritten(text, _WITHOUT_MARKS).strip()
