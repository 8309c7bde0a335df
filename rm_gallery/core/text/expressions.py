"""Finds the final answer in a solution and rewrites it so that a mathematics parser can read it."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple
from unicodedata import numeric

from rm_gallery.core.text.answer import (
    CJK,
    FORMULA,
    WINDOW,
    final_text,
    read_statements,
    value_part,
)
from rm_gallery.core.text.canonical import rewrites, rewritten
from rm_gallery.core.text.conclusion import CONTRAST, asserted, without_rejected
from rm_gallery.core.text.language import NUMBERS
from rm_gallery.core.text.moments import Moment, moments_in, read_moment
from rm_gallery.core.text.quantities import SUPERSCRIPTS, is_unit

Shape = Literal["number", "latex", "words", "mixed", "text", "moment"]
"""number: a plain number or fraction; latex: one expression; words: no digit in it; mixed: words
around a number; text: prose or several expressions, where the last one counts; moment: a date or a
time of day."""


class FinalAnswer(NamedTuple):
    """The answer that a solution gives."""

    text: str
    shape: Shape
    fallback: str
    """Searched when `text` holds nothing to compare; empty if the answer was marked beyond doubt."""


_LIMIT = 50_000
_SHORT = 200
_PUNCTUATION = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x3002: ". ",
    0x3001: ", ",
}
_SYMBOLS = {
    ord(sign): rf"\{command} "
    for sign, command in zip(
        "π∞×·÷±≤≥≠∪∩∅",
        "pi infty times cdot div pm le ge ne cup cap emptyset".split(),
        strict=True,
    )
}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_WORDS = {word: value for value, word in enumerate(NUMBERS)} | {
    f"{ten}{joint}{unit}" if unit else ten: 10 * tens + value
    for tens, ten in enumerate(_TENS, 2)
    for value, unit in enumerate(["", *NUMBERS[1:10]])
    for joint in ("-", " ")
}
_SCALES = {
    "hundred": 2,
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
    "万": 4,
    "亿": 8,
}

_CHINESE_DIGITS = {sign: n for n, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_POWERS = {"十": 1, "百": 2, "千": 3, "万": 4, "亿": 8}
_NUMERAL = f"[{''.join((*_CHINESE_DIGITS, *_CHINESE_POWERS))}]{{1,20}}"
_IN_CHINESE = rf"(?P<sign>负)?(?:(?P<below>{_NUMERAL})分之)?(?P<whole>{_NUMERAL})(?:点(?P<decimals>[{''.join(_CHINESE_DIGITS)}]{{1,20}}))?"
_CHINESE = re.compile(rf"{_IN_CHINESE}[个位只条本块元岁天]?")
_CHINESE_NUMBER = re.compile(
    rf"(?:(?<![{CJK}])|(?<=[是为约有共])){_IN_CHINESE}(?![些样般起定直种下致旦切律])"
)
_PARTS = {
    word: n
    for n, word in enumerate("half third fourth fifth sixth seventh eighth ninth tenth".split(), 2)
} | {"quarter": 4}
_SPELT_PART = re.compile(
    r"(?:(one|two|three|four|five|six|seven|eight|nine|ten|a|an)[\s-])?(hal(?:f|ves)|(?:third"
    r"|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?)"
)

_NUMBER = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?"
_PLAIN = re.compile(rf"-?{_NUMBER}|-?\d+/\d+")
_NUMBERS = re.compile(r"\d+(?:[.,/]\d+)*")
_COMMA_LANGUAGE = re.compile(
    r"(?i)\b(?:antwort|lösung|ergebnis|réponse|résultat|respuesta|solución|resultado|risposta"
    r"|resposta|ответ)\b"
)
_DECIMAL_COMMA = re.compile(
    r"(?<![\d.])(-?(?:\d{1,3}(?:[. ]\d{3})+|\d+)),(\d{1,2}|\d{4,})(?![\d,])"
)
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u26ff\u2705\u274c\u2728\ufe0f]+")
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}")
_NO_WORD = r"(?!(?:and|or|sin|cos|tan|cot|sec|csc|log|exp|sqrt|mod|pi|infinity)\b)"
_WORD = re.compile(
    rf"(?:^|(?<=[\s(])){_NO_WORD}(?:[^\W\d_]{{3,}}|(?:of|is|to|in|at|by|on|we|so|it|he)\b)|[{CJK}]"
)
_UNIT = re.compile(
    rf"(-?{_NUMBER}|-?\d+/\d+)\s+"
    r"(?:[mcdk]?m|ft|in|[mk]?g|lbs?|oz|m[lL]|L|sec|s|min|hrs?|h|mph|km/h|m/s"
    r"|[ap]\.?m\.?)(?:\^\{?[23]\}?)?"
)
_LEADING_NUMBER = re.compile(rf"(-?{_NUMBER}%?|-?\d+/\d+)(?:\s+(?:[^\W\d_]|\()|\s*[{CJK}])")
_SCALED = re.compile(
    rf"(-?{_NUMBER})\s*(?:({'|'.join(k for k in _SCALES if k.isascii())})\b|([万亿]))\s*"
)
_RESULT_FOLLOWS = re.compile(r"=|\bis\b|\bare\b|\bequals\b")

_VALUED = re.compile(r"(?i)[\d\\√π∞]|[=<>]|[¼½¾⅐-⅞]|\b(?:yes|no|true|false|[A-HJ-Z])\b")
_NOT_BELIEVED = re.compile(
    r"(?i)\b(?:never|don['’]t|do\s+not|wouldn['’]t|would\s+not|cannot|can['’]t|doubt)\s+(?:think"
    r"|believe|say|agree|know|be|that|it)\b[^.,;\n]{0,60}"
    r"|\b(?:glaube|denke)\s+nicht\b[^.;\n]{0,60}|\bno\s+creo\b[^.;\n]{0,60}|\bne\s+(?:pense|crois"
    r"|peut|peux)\s+pas\b[^.,;\n]{0,60}|不(?:认为|觉得|相信)[^。.；\n]{0,40}"
)
_NO_IN_OTHERS = (
    r"\bbukan(?:lah)?\b|\bkhông\s+phải\b|\bniet\b|\bnie\s+jest\b|\binte\b|\bnon\s+è\b|\bnão\s+é\b"
    r"|\bno\s+es\b|\bn['’]est\s+pas\b|ليست?\b"
)
"""What denies the value after it, in Indonesian, Vietnamese, Dutch, Polish, Swedish, Italian,
Portuguese, Spanish, French, Arabic.
"""
_NOT_THIS = re.compile(
    r"(?i)^не\s+-?\d[^.,;\n]{0,20}|(?:^|,\s*|\(|\s)(?:(?:and\s+|but\s+)?not|rather\s+than"
    r"|instead\s+of|unlike|nicht|и\s+не|а\s+не)\b(?!\s+(?:only|just|nur)\b)(?:(?!\s(?:but|sondern"
    r"|sino|а)\s|而是)[^.,;)\n]){0,60}"
    r"|(?:不是|不等于|不为|而非|并非)(?:(?!而是)[^.,;)\n，。；）]){0,60}|(?:"
    + _NO_IN_OTHERS
    + r")\s[^.,;)\n]{0,20}?\d[\d.,/]{0,20}|(?:\\neq?(?![A-Za-z])|≠|!=)\s*\$?-?\d[\d.,/]{0,20}"
    r"|\b(?:anything\s+but|(?:(?:it|that|this)\s+)?(?:is|was|are"
    r"|were)n['’]t)\s+(?=[-$€£¥]?\s?\d)(?:(?!\s(?:but|sondern|sino|а)\s|而是)[^.,;)\n]){0,60}"
    r"|\b(?:a|the|one)\s+(?:common|frequent|typical|usual)\s[^.\n]{0,80}|\b(?:wrong|incorrect"
    r"|mistaken)(?:ly)?\b[^.\n]{0,80}"
)
_IS_WRONG = re.compile(
    r"(?i)-?\$?(?<![\d.,])\d[\d.,/]{0,20}%?(?:\s+|\s+which\s+)(?:(?:is|was|would\s+be"
    r"|seems)\s+(?:wrong|incorrect|not\b|false|mistaken)|(?:is|was)n['’]t\b)[^.\n]{0,60}"
    r"|-?\d[\d.,/]{0,20}%?\s?[個円人本枚個回개원명]?(?:ではな[くい]|じゃな[くい]|[이가]\s?아니라)"
    r"|-?\d[\d.,/]{0,20}%?\s+(?:değil|नहीं|نیست)"
)
_NOT_A_NUMBER = re.compile(
    rf"(?i)(?:\b(?:not|nicht|anything\s+but)|n['’]t|不是|不等于"
    rf"|{_NO_IN_OTHERS})\s*(?:\w+\s+){{0,2}}?(?:\\boxed\s*\{{|\$)*-?\d"
)
_STEP = re.compile(
    r"(?im)^[ \t#*]*(?:step|part|case|question|problem|example|figure)\s+\d+\s*[:.)]"
    r"|^[ \t]*\d{1,2}[.)](?=\s)"
)
_NOT_GIVEN = re.compile(
    r"(?i)(?:un(?:known|clear|determined|certain)|not\s+(?:known|clear|given|certain|possible)"
    r"|impossible\s+to)\b"
)
_BOUND = re.compile(
    r"(?i)(?:over|under|above|below|at\s+(?:most|least)|(?:more|less|greater|fewer)\s+than|up\s+to"
    r"|anything\s+but)\s+\$?-?\d|(?:\\[gl]eq?(?![a-z])|[<>≤≥]=?)\s*-?\d"
    r"|(?:\\text\s*\{\s*)?(?:(?:definitely\s+|certainly\s+)?not\b|nicht\b|≠|\\neq?\b)|至[少多]|最[少多]"
    r"|[^\d\n,]{0,12}(?:不是|不等于|不为|并非|≠|\\neq?(?![a-z]))"
)
_QUESTION = re.compile(
    r"(?im)^\s*[-$]?\d[\d.,/]{0,20}%?\?(?=\s+\S)|(?:^|(?<=[.!?\n]))[ \t]*(?:(?:so|or|and"
    r"|but)\s+)?(?:is|are|was|were|could|can|would|should|might|does|do|did|will|what|why|how|which"
    r"|who)\b(?:[^.!?\n]|\.\d){0,200}\?"
)
_NO_VALUE = re.compile(
    r"(?i)(?:somewhere\s+)?(?:between|from\s+\S+\s+to)\b|(?:more|less|greater|fewer|bigger"
    r"|smaller)\s+than\b"
    r"|(?:größer|kleiner|mehr|weniger)\s+als\b|(?:plus|moins)\s+(?:de|grand|petit)\b|(?:mayor|menor"
    r"|más|menos)\s+(?:que|de)\b|大于|小于|超过|多于|少于|より(?:大|小)"
    r"|\d[^\n\d]{0,20}\b(?:alternatively|maybe|perhaps|possibly|resp(?:ectively)?)\b[^\n\d]{0,12}\d"
)
_BEGINS_WITH_VALUE = re.compile(r"[\s*_`\"'“(\[{]*(?:[-±$€£¥√π\\]|\.?\d|[A-Za-z]{0,3}\s?=)")
_CLAUSES = re.compile(
    r"(?i)[.!?;]\s|,\s+(?:so|hence|thus|therefore|then|but|and|which\s+(?:gives|leaves|makes|is))\b"
    r"|:\s"
)
_HOLDS_VALUE = re.compile(r"[\d\\√π]|^\S+$")
_IS_THE_ANSWER = re.compile(
    r"(?i)(-?\$?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:[./]\d+)?%?)\s+(?:is|was|must\s+be)\s+(?:the|our"
    r"|my)\s+(?:final\s+|correct\s+|right\s+)*(?:answer|result|solution)\b"
)
_CHAIN = re.compile(
    r"(?:[\d\s+*/×÷().,=$%-]+|[^=<>≤≥≠∈\d+*/^\\$-]{1,30})=\s*(-?\$?[\d.,]*\d%?)\s?°?\.?"
)
_LEAD_IN = re.compile(
    r"(?i)[\s,;]*(?:(?:so|thus|therefore|hence|then|and|finally|ergo|sondern|mais|sino|а|но)\b,?"
    r"|(?:no|yes)[.,!]|而是|[=-]>|⇒|→|∴|\\(?:Rightarrow|therefore|implies)\b|[=≈~])\s*"
)
_SAYS = re.compile(
    r"(?i).*\b(?:is|are|was|were|be|equals|becomes|(?:it|that|this)['’]s)\s+(?:about\s+"
    r"|approximately\s+|exactly\s+|equal\s+to\s+)?(?=[-$±√\\(\[]|\.?\d)"
)
_VALUE = rf"[-±]?\$?(?:{_NUMBER}|\d+/\d+)%?"
_SEVERAL = re.compile(
    rf"(?i)(?:either\s+|both\s+)?({_VALUE}(?:\s*,\s*{_VALUE})*)\s*,?\s*"
    rf"(?:and|or|und|oder|et|ou|y|o|и|или|和|或者?|と|か|または|もしくは|あるいは|과|또는|혹은|이나)\s*({_VALUE})"
    rf"(?![A-Za-z0-9_/^*]|\s*[-+*/=])(?:\s+[A-Za-z]|$|[.,;{CJK}])"
)


def find_answer(text: str, *, factorial: bool = False) -> FinalAnswer | None:
    r"""The final answer of a solution, None when the text gives none.

    The first of its statements (see `read_statements`) that holds a value, else the whole of a
    short line or the end of a longer text. Of "18 eggs for 3 days", "18, not 7" and "18 because of
    the 3 days" it is 18. `18!` in prose is an exclamation unless `factorial`; in a formula or a box
    it is a factorial.
    """
    text = without_rejected(_readable(text))
    answer = _find(text, factorial)
    if (answer is None or _is_prose(answer)) and (spelt := with_digits(text)) is not text:
        number = _find(spelt, factorial)
        if number is not None and len(_NUMBERS.findall(number.text)) == 1:
            answer = number
    return None if answer is None else _leading_number(answer)


def find_reference(text: str) -> FinalAnswer | None:
    """The value a reference gives, None when it gives no single one: prose, two numbers, an
    unmarked derivation.
    """
    reference = _find(_readable(text), True, reference=True)
    if reference is None or reference.shape == "text" or _is_prose(reference):
        return None
    if reference.shape == "mixed" and len(_NUMBERS.findall(reference.text)) != 1:
        return None
    return _leading_number(reference)


def find_moment(text: str) -> Moment | None:
    """The date or time of day that a solution gives as its answer, None where it gives none, or
    several.
    """
    reading = read_statements(_readable(text))
    for statement in reading.statements:
        if moments := moments_in(value_part(statement.text)):
            return moments[0] if all(moments[0].same_as(other) for other in moments) else None
    moments = [] if reading.kind else moments_in(without_asides(reading.rest))
    return moments[-1] if moments else None


def _find(text: str, factorial: bool, reference: bool = False) -> FinalAnswer | None:
    if len(text) <= 40 and _PLAIN.fullmatch(text):
        return FinalAnswer(text, "number", "")
    comma = "," in text and _COMMA_LANGUAGE.search(text) is not None
    reading = read_statements(text)
    tail = without_asides(reading.rest, reference=reference)
    for statement in reading.statements:
        if _BOUND.match(statement.text.strip()):
            return None
        if statement.kind == "box":
            return _marked(statement.text, True)
        if statement.kind in ("hashes", "line"):
            return _marked(_cut(statement.text), factorial)
        if statement.kind in ("tag", "json"):
            return _unmarked(statement.text, factorial or statement.kind == "json")
        if _NO_VALUE.match(statement.text) or _NOT_GIVEN.match(statement.text):
            return None
        segment = _cut(statement.text)
        if comma:
            segment = _DECIMAL_COMMA.sub(lambda f: f"{re.sub('[. ]', '', f[1])}.{f[2]}", segment)
        answer = _marked(segment, factorial)
        if answer is not None and not _is_prose(answer):
            return answer._replace(fallback=tail)
    if not tail or _BOUND.match(tail):
        return None
    if len(reading.rest) <= WINDOW:
        return _unmarked(tail, factorial)
    return FinalAnswer(_spaced(tail), "text", "")


def without_asides(text: str, *, reference: bool = False) -> str:
    """The end of a text, where a value is looked for. Cut between words, never inside a number.

    An answer keeps what its last sentence with a value asserts; a `reference` keeps everything.
    """
    text = text.strip()
    tail = text if len(text) <= WINDOW else "".join(text[-WINDOW:].split(maxsplit=1)[1:])
    remaining = _QUESTION.sub(" ", _STEP.sub(" ", tail))
    remaining = _NOT_BELIEVED.sub(" ", remaining if reference else asserted(remaining))
    if remaining != tail and not _VALUED.search(remaining):
        return ""
    tail = remaining
    kept = without_denied(tail)
    if re.search(r"\d", kept):
        return kept.strip()
    denied = re.search(r"\d", tail) and (_IS_WRONG.search(tail) or _NOT_A_NUMBER.search(tail))
    return "" if denied else tail.strip()


def without_denied(text: str) -> str:
    """The text without the values that it denies: "not 5", "rather than 5", "5 is wrong"."""
    return CONTRAST.sub(" ", _NOT_THIS.sub(" ", _IS_WRONG.sub(" ", text)))


def _unmarked(tail: str, factorial: bool) -> FinalAnswer | None:
    """One formula or one short line is its own answer; in other texts the last expression counts."""
    if "\n" not in tail or FORMULA.fullmatch(tail) or tail.startswith(r"\begin{"):
        line = tail.replace("\n", " ")
        if len(line) <= _SHORT:
            if _NO_VALUE.search(line) and not FORMULA.search(line):
                return None
            if named := _IS_THE_ANSWER.search(line) or _CHAIN.fullmatch(line):
                return _marked(named[1], factorial)
            lead = _SAYS.match(line) or _LEAD_IN.match(line)
            line = line[lead.end() if lead else 0 :]
            if (
                not _BEGINS_WITH_VALUE.match(line)
                and len(_NUMBERS.findall(line)) > 1
                and _CLAUSES.search(line)
            ):
                return FinalAnswer(_spaced(line), "text", "")
            value = _cut(line)
            line = value if _HOLDS_VALUE.search(value) else line
        answer = _marked(line, factorial)
        if answer is None or _is_prose(answer):
            return None
        if len(tail) <= _SHORT or answer.shape in ("number", "latex"):
            return answer
    elif (line := tail[-60:].rsplit("\n", 1)[-1].strip())[:1] in "`\"'“「*" and _PLAIN.fullmatch(
        last := _tidy(line, factorial)
    ):
        return FinalAnswer(last, "number", "")
    return FinalAnswer(_spaced(tail), "text", "")


def _cut(text: str) -> str:
    """The value of a statement; two values become a list."""
    text = value_part(text)
    several = _SEVERAL.match(text)
    return f"{several[1]}, {several[2]}" if several else text


def _is_prose(answer: FinalAnswer) -> bool:
    return answer.shape == "words" and " " in answer.text


def _leading_number(answer: FinalAnswer) -> FinalAnswer:
    if (
        answer.shape != "mixed"
        or _RESULT_FOLLOWS.search(answer.text)
        or (leading := _LEADING_NUMBER.match(answer.text)) is None
    ):
        return answer
    return answer._replace(text=leading[1], shape=_shape(leading[1]))


_CONTINENTAL = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d{1,2}(?![\d,]|\.\d)")
"""1.234,5: both signs together say which is which."""


def _readable(text: str) -> str:
    text = final_text(text)[-_LIMIT:]
    if "," in text:
        text = _CONTINENTAL.sub(lambda number: number[0].replace(".", "").replace(",", "."), text)
    return _EMOJI.sub("", text.translate(_PUNCTUATION)).strip() if not text.isascii() else text


def _marked(segment: str, factorial: bool) -> FinalAnswer | None:
    if len(segment) > WINDOW:  # cut short it might equal something
        return None
    text = _tidy(segment, factorial)
    if not text:
        return None
    shape = _shape(text)
    return FinalAnswer(_spaced(text) if shape in ("mixed", "text") else text, shape, "")


def _shape(text: str) -> Shape:
    if _PLAIN.fullmatch(text):
        return "number"
    if read_moment(text) is not None:
        return "moment"
    if FORMULA.search(text):
        return "text"
    if not _WORD.search(_TEXT_COMMAND.sub(" ", text)):
        return "latex"
    return "mixed" if re.search(r"\d", text) else "words"


_WITHOUT_MARKUP = rewrites(
    (r"(?<![\d)])\*\*|\*\*(?![\d(])", ""),
    (r"(?i)</?(?:b|i|u|em|strong|p|span)>", ""),
)
_WITHOUT_FRAME = rewrites(
    # a reference mark, 8 [3], and a suffix of a language that declines numbers, 42'dir
    (r"(?<=[\d%])(?:\s?\[\d{1,3}\]|['’][^\W\d_]{1,6})$", ""),
    (
        r"^(?:\\text(?:bf)?\s*\{\s*\(?[A-E]\)?[.:]?\s*\}(?:\\[ ,;]|~|\s)*|\([A-E]\)\s*"
        r"|[A-E][.:)]\s+)(?=[-$\\]?[\d\\])",
        "",
    ),
    (r"(?i)^(?:negative|minus|moins|menos|минус|负|マイナス|마이너스)\s*(?=\$?\d)", "-"),
)
_WITHOUT_MONEY = rewrites(
    (r"\\\$", "$"),
    (r"[$€£¥₹]\s*(?=-?[\d.])", ""),
    (r"(?<=\d)\s*[€£¥₹]$", ""),
)


def _tidy(segment: str, factorial: bool) -> str:
    text = (
        rewritten(segment, _WITHOUT_MARKUP)
        .strip()
        .rstrip(".,;:? ")
        .strip("`\"'“”「」『』*_ ")
        .rstrip(" .,;:?")
        .strip()
    )
    text = rewritten(text, _WITHOUT_FRAME)
    if not factorial and text.endswith("!") and not FORMULA.search(text):
        text = text.rstrip("! .")
    if _PLAIN.fullmatch(text):
        return text
    whole = FORMULA.fullmatch(text)
    if whole is not None:
        text = whole[whole.lastindex or 0].strip().rstrip(" .,;")
    elif text.count("$") == 1 or not FORMULA.search(text):
        text = rewritten(text, _WITHOUT_MONEY)
    if (words := _TEXT_COMMAND.fullmatch(text)) is not None:
        text = words[1].strip()
    if not text.isascii():
        text = rewritten(text, _PLAIN_SYMBOLS).translate(_SYMBOLS)
    return _plain_numbers(text.strip().removeprefix("=").strip())


def _plain_numbers(text: str) -> str:
    """Rewrites numbers plainly: no separators or units, exponents and mixed fractions worked out."""
    if "\\" in text or "~" in text or "{" in text:
        text = _plain_latex(text)
    text = rewritten(text, _PLAIN_NUMBERS)
    if (scaled := _SCALED.match(text)) is not None:
        power = _SCALES[(scaled[2] or scaled[3]).lower()]
        text = f"{format(Decimal(scaled[1].replace(',', '')).scaleb(power), 'f')} {text[scaled.end() :]}".strip()
    if text[:1].isalpha() and text.isascii():
        text = _in_digits(text.lower()) or text
    elif (spelt := _CHINESE.fullmatch(text)) is not None:
        text = _from_chinese(spelt) or text
    if (money := re.match(r"(\d+)\s+dollars?\s+and\s+(\d{1,2})\s+cents?\b", text)) is not None:
        text = f"{money[1]}.{money[2]:0>2}"
    unit = _UNIT.fullmatch(text)
    return unit[1] if unit and not text.rstrip(".").endswith(("am", "pm", "a.m", "p.m")) else text


def _in_digits(words: str) -> str | None:
    """A number in words: "two hundred and five", "half", "three quarters"; None for anything else."""
    if words in _NUMBER_WORDS:
        return str(_NUMBER_WORDS[words])
    if part := _SPELT_PART.fullmatch(words):
        above = _NUMBER_WORDS.get(part[1] or "one", 1)
        return f"{above}/{_PARTS[part[2].removesuffix('s').replace('halve', 'half')]}"
    total = part_value = 0
    tokens = [token for token in re.split(r"[\s-]+", words) if token != "and"]
    for place, token in enumerate(tokens):
        if token in _NUMBER_WORDS:
            part_value += _NUMBER_WORDS[token]
        elif token == "hundred" and (place or len(tokens) == 1) and part_value < 100:
            part_value = max(1, part_value) * 100
        elif token in _SCALES and (part_value or len(tokens) == 1):
            total, part_value = total + max(1, part_value) * 10 ** _SCALES[token], 0
        elif not (token == "a" and place == 0 and len(tokens) > 1):
            return None
        else:
            part_value = 1
    return str(total + part_value) if any(token in _SCALES for token in tokens) else None


_SPELT_WORD = rf"(?:{'|'.join(sorted({*NUMBERS, *_TENS, 'hundred', 'thousand', 'million', 'billion'}, key=len, reverse=True))})"
_SPELT = re.compile(
    rf"(?i)\b(?:(?:minus|negative)\s+)?{_SPELT_WORD}(?:(?:\s+|-|\s+and\s+){_SPELT_WORD}){{0,12}}\b"
)
_PRONOUN = re.compile(
    r"(?i)\b(?:the|this|that|no|any|some|every|each|which|first|second|last|right|correct|other"
    r"|another|only|same)\s+$"
)
_ONE_OF = re.compile(
    r"(?i)\s*(?:$|[.,;:!?]|(?:of|is|that|which|who|can|could|was|has|would|may|might|should|must"
    r"|needs?|by|or|and(?!\s+a\s+half))\b)"
)


def with_digits(text: str) -> str:
    """A text without digits, its spelled-out numbers in digits: twelve meters, half an hour, 三公里."""
    if re.search(r"\d", text):
        return text
    if not text.isascii():
        text = _CHINESE_NUMBER.sub(lambda match: _from_chinese(match) or match[0], text)
    text = rewritten(text, _SPELT_PARTS)
    text = _SPELT.sub(lambda match: _spelt(match, text), text)
    return re.sub(r"(?i)(?<=\d) and a half\b", ".5", text)


def _spelt(match: re.Match[str], text: str) -> str:
    words = match[0].lower()
    if (
        words == "one"
        and text.strip(" .!") != match[0]
        and (
            _PRONOUN.search(text, max(0, match.start() - 20), match.start())
            or _ONE_OF.match(text, match.end())
        )
    ):
        return match[0]
    sign = "-" if words.startswith(("minus", "negative")) else ""
    digits = _in_digits(re.sub(r"^(?:minus|negative)\s+", "", words))
    return f"{sign}{digits}" if digits else match[0]


def _from_chinese(spelt: re.Match[str]) -> str | None:
    """A number in Chinese numerals: 一百二十三, 负三点五, 三分之二; None for what is none."""
    whole, below = (_chinese_integer(spelt[name] or "") for name in ("whole", "below"))
    if whole is None or spelt["below"] and not below:
        return None
    decimals = "".join(str(_CHINESE_DIGITS[digit]) for digit in spelt["decimals"] or "")
    return f"{'-' if spelt['sign'] else ''}{whole}{f'.{decimals}' if decimals else ''}{f'/{below}' if below else ''}"


_SPELT_PARTS = rewrites(
    (
        r"(?i)\b(?:an?\s+|one\s+)?(half|quarter)\s+(?:of\s+)?an?\s+(?=[a-z])"
        r"|\b(three)[\s-]quarters\s+of\s+an?\s+(?=[a-z])",
        lambda match: {"half": "0.5 ", "quarter": "0.25 "}.get((match[1] or "").lower(), "0.75 "),
    ),
    (r"(?i)\b(?:an?|one)\s+([a-z]+)\s+and\s+a\s+half\b", r"1.5 \1"),
)


def _chinese_integer(text: str) -> int | None:
    if text and all(sign in _CHINESE_DIGITS for sign in text):
        return int("".join(str(_CHINESE_DIGITS[sign]) for sign in text))
    total = section = digit = 0
    for sign in text:
        if sign in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[sign]
        elif (power := _CHINESE_POWERS[sign]) < 4:
            section, digit = section + (digit or 1) * 10**power, 0
        else:
            part = section + digit
            if not total + part:
                return None
            total = (
                total + part * 10**power
                if total >= 10**8 > 10**power
                else (total + part) * 10**power
            )
            section = digit = 0
    return total + section + digit


def _plain_latex(text: str) -> str:
    text = text.replace(r"\$", "").replace("{,}", ",").replace("~", " ")
    text = rewritten(text, _PLAIN_LATEX)
    if re.search(r"(?:sin|cos|tan|cot|sec|csc)(?![a-z])", text):
        return text
    return rewritten(text, _WITHOUT_LATEX_UNIT).strip()


_UPRIGHT = re.compile(r"\\(?:text|mathrm|rm)\s*\{\s*([^{}]*?)\s*\}")


def _without_unit(match: re.Match[str]) -> str:
    """Drops a unit and the words for what is counted; an upright letter that is no unit stays."""
    upright = _UPRIGHT.search(match[0])
    name = upright[1] if upright else ""
    return match[0] if name and re.fullmatch(r"[A-Za-z]{1,2}", name) and not is_unit(name) else ""


def _as_fraction(match: re.Match[str]) -> str:
    whole, fixed, repeating = (group[:40] for group in match.groups())
    denominator = (10 ** len(repeating) - 1) * 10 ** len(fixed)
    numerator = int(whole + fixed + repeating) - int(whole + fixed or "0")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _improper(match: re.Match[str]) -> str:
    sign, whole, numerator, denominator = match.groups()
    return f"{sign}{int(whole) * int(denominator) + int(numerator)}/{denominator}"


_PLAIN_SYMBOLS = rewrites(
    (r"√\s*(\d+|\([^()]*\)|[a-z])", r"\\sqrt{\1}"),
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda match: f"^{{{match[0].translate(SUPERSCRIPTS)}}}"),
    (
        r"(\d?)([½¼¾⅓⅔⅕⅛⅜⅝])",
        lambda match: f"{match[1]} {Fraction(numeric(match[2])).limit_denominator(8)}".lstrip(),
    ),
    (r"(?<=[\d)])\s*(?:°|º)(?!\s?[CFK]\b)", ""),
    (r"^\s*[≈≃~∼]\s*", ""),
    (r"(?<=[\d)}])\s*[ΩµμÅ]\w*$", ""),
)
_PLAIN_NUMBERS = rewrites(
    (r"(?<![\d_])(\d{1,3}(?:_\d{3})+)(?![\d_])", lambda match: match[0].replace("_", "")),
    (r"^-?\d{1,3}(?: \d{3})+(?:\.\d+)?\Z", lambda match: match[0].replace(" ", "")),
    (
        r"^-?\d{1,3}(?:(?:\.\d{3})+,\d{1,2}|(?:\.\d{3}){2,})\Z",
        lambda match: match[0].replace(".", "").replace(",", "."),
    ),
    (r"^\+(?=[\d.])", ""),
    (
        rf"^(?:[A-Za-z]|\\[a-z]+)(?:_\{{?\w\}}?)?\s*(?:=|\\approx)\s*(-?{_NUMBER}|-?\d+/\d+)\Z",
        r"\1",
    ),
    (r"(?<![\w.)}])\.(?=\d)", "0."),
    (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
    (
        r"(?<![\w.\\])\d+(?:\.\d+)?[eE][+-]?\d{1,2}(?![\w^])",
        lambda match: format(Decimal(match[0]), "f"),
    ),
    (r"(?<=[\w)])\*\*(?=[\w(-])", "^"),
    (r"\^(-\d+)", r"^{\1}"),
    (
        r"(?i)(?<=\d)\s*(?:percent(?:age)?|pct|Prozent|por\s?ciento|pour\s?cent|процент\w*)\b",
        "%",
    ),
    (r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", r"\\times "),
    (rf"^[A-Za-z][A-Za-z -]{{2,40}}\s\((-?{_NUMBER})\)\Z", r"\1"),
    (r"(\d*)\.(\d*)\\overline\s*\{(\d+)\}", _as_fraction),
    (r"^(-?)(\d{1,6})\s+(\d{1,6})/(\d{1,6})(?![\d.])", _improper),
    (r"(?i)^(\d{1,6})\s+dozen\b", lambda match: str(12 * int(match[1]))),
)
_PLAIN_LATEX = rewrites(
    (r"\\(?:text|mathrm)\s*\{\s*((?:hundred|thousand|[mbtr]+illion)\b[^{}]*)\}", r" \1"),
    (r"\\varnothing", r"\\emptyset"),
    (r"^\s*\\(?:approx|simeq|thickapprox|sim|cong|doteq)(?![A-Za-z])\s*", ""),
    (r"\\!", ""),
    (r"^\s*[A-Za-z]\s*\\in\s*(?=(?:\\left)?\s*(?:[\[(]|\\\{))", ""),
    (r"(?<=\d)\\[,; ](?=\d{3}(?!\d))", ""),
    (r"^(?:\\text\s*\{[^{}]*[A-Za-z]{2}[^{}]*\}\s*)(?=[-+]?[\d.]|\\d?frac|\\sqrt)", ""),
)
_WITHOUT_LATEX_UNIT = rewrites(
    (
        r"(?<=[\d)}])\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree)(?!\s*(?:\\(?:text"
        r"|mathrm)\s*\{\s*)?[CFK])",
        "",
    ),
    (
        r"(?i)(?<=[\d)}])(?:\\[,;: ]|\s)*(?:\\mu\s*)?(?:\\Omega|\\(?:text|mathrm"
        r"|rm)\s*\{(?!\s*(?:[ap]\.?m|hundred|thousand|[mbtr]+illion|percent"
        r"|and|or))[^{}]*\})(?:\^\{?-?\d\}?)?\s*$",
        _without_unit,
    ),
    (r"(?<=[\d)}])(?:\\[,;: ]|\s)+$", ""),
)


def _spaced(text: str) -> str:
    """Puts a space between Chinese characters and numbers: a number search sees one word otherwise."""
    return re.sub(rf"(?<=[{CJK}])(?=[-\d$\\])", " ", text) if not text.isascii() else text
