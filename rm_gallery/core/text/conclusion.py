"""The conclusion that a text asserts at its end, if any.

Only clauses that assert a value count. A supposed, tried, denied, bounded, unfinished or quoted
value is no conclusion, and a clause that takes a value back removes all before it.
"""

from __future__ import annotations

import re
from itertools import islice

_SENTENCE_END = re.compile(
    r"(?<![\s.][A-Za-z])[.!?](?=[\"'*_]{0,4}(?:\s|$))(?!\s*[-=+*/^)<>])|[。！？؟۔।\n]"
)
_FORMULA = re.compile(r"(?s)\$\$.+?\$\$|\\\[.+?\\\]|\\begin\{(\w{1,12}\*?)\}.*?\\end\{\1\}")
_VALUED = re.compile(r"\d|\\[A-Za-z]|[√π∞¼½¾⅐-⅞]|[$=<>≤≥]")
_ANAPHOR = (
    r"(?:this|that|it|which|these|those|both|(?:the|my|our)\s+(?:(?:above|previous|last|first|final"
    r"|earlier)\s+)?"
    r"(?:answer|result|value|number|calculation|computation|reasoning|solution))"
)
_COPULA = (
    r"(?:['’]s|\s+(?:is|was|are|were|seems?|looks?|must\s+be|has\s+to\s+be|turn(?:s"
    r"|ed)\s+out(?:\s+to\s+be)?|proved(?:\s+to\s+be)?)"
    r"(?=\s|n['’]t\b)|\s+(?=can(?:no|['’])t\s+be\b|cannot\s+be\b))"
)
_ADVERB = (
    r"(?:\s+(?:actually|clearly|also|obviously|completely|simply|surely|of\s+course|still|all|just"
    r"|in\s+fact))?"
)
_NEGATIVE = (
    rf"(?:{_COPULA}{_ADVERB}\s*(?:(?:\s(?:wrong|incorrect|false|invalid|mistaken|impossible"
    rf"|extraneous)|\san?\s+(?:error|mistake|extraneous|"
    r"contradiction|wrong|spurious|invalid)|(?:\snot|n['’]t|\s?can(?:no|['’])t\s+be"
    r"|\s?cannot\s+be)\s+(?:quite\s+|really\s+)?"
    r"(?:right|correct|true|valid|it|possible|so|the\s+(?:answer|result|case|solution)"
    r"|an?\s+(?:solution|root|answer)|allowed))\b)"
    r"|\s+(?:does|do|did)(?:\s+not|n['’]t)\s+(?:satisfy|work|hold|fit|check|match|add\s+up"
    r"|make\s+sense|solve|qualify|count)\b"
    r"|\s+(?:fails?|contradicts?|violates?)\b)"
)
_TAKES_BACK = re.compile(
    rf"(?i)(?:\b(?:{_ANAPHOR}|but){_NEGATIVE}|\b(?:neither|none)\b[^.,;\n]{{0,20}}\s(?:fits?|works?"
    rf"|holds?|satisf(?:y|ies)|match(?:es)?|(?:is|are)\s+(?:right|correct))\b|(?<![上也并])(?:这"
    rf"|那)(?:个答案|个结果)?(?:是错|不对|不正确))"
)
_OWN_MISTAKE = re.compile(
    r"(?i)\b(?:i|we)(?:['’]ve|\s+have|\s+must\s+have)?\s+(?:just\s+)?(?:made|notice|see|spot"
    r"|found)\s+(?:an?|my|the)\s+(?:\w+\s+){0,2}(?:error|mistake)|我(?:算|做|写)错了"
)
_IS_DENIED = re.compile(rf"(?i)(?:\d|[)}}$%]|\\[a-z]+)\s*{_NEGATIVE}")
_GIVES_UP = re.compile(
    r"(?i)\b(?:i|we)(?:\s+(?:still|also|really|just|simply|then))?\s*(?:(?:can(?:no|['’])t|cannot"
    r"|could\s*(?:not|n['’]t)|(?:am|are|was|were)\s+(?:unable|not\s+able)\s+to|did\s*(?:not|n['’]t)"
    r"|do\s*(?:not|n['’]t)|failed\s+to|(?:am|are)\s+not\s+(?:sure|certain))\s*(?:(?:really|actually"
    r"|even|quite|to)\s+)*"
    r"(?:determine|find|finish|complete|solve|know|tell|continue|work\s+(?:it|this|that)\s+out"
    r"|compute|figure|conclude|decide|say|get\s+(?:it|any|further)|what|which|how|$|(?=[.,;]))"
    r"|have\s+no\s+(?:\w+\s+)?(?:idea|clue|answer|result|conclusion)|g[ai]ve\s+up|(?:am"
    r"|are)\s+(?:stuck|lost|unsure))"
)
_SUPPOSES = re.compile(
    r"(?i)\s*[\"'(*_]*(?:(?:so|now|then|next|but|and|ok|okay|first|hmm"
    r"|well)\b[,:]?\s+)*(?:(?:let\s+me|let['’]?s|let\s+us|i(?:['’]ll|\s+will)?|we(?:\s+will)?"
    r"|you)\s+)?"
    r"(?:(?:suppose|assume|imagine|pretend|hypothesi[sz]e|say\s+that|what\s+if|try|guess)\b"
    r"|(?:trying|testing|guessing|supposing)\s+[^,:]{0,40}?\s(?:gives|yields|makes|leads|results|is"
    r"|we)\b)"
)
_CONDITION = re.compile(
    r"(?i)(?:^|(?<=[,;:(]))\s*(?:(?:so|but|and|then)\s+)?(?:if|unless|suppos(?:e|ing)(?:\s+that)?"
    r"|assum(?:e|ing)(?:\s+that)?|were|had|when)\s[^,;:\n]{1,200}[,;:]\s*(?:then\s+)?(?=\S)"
)
_ACCEPTS = re.compile(
    r"(?i)\b(?:works|correct|right|satisf(?:ies|y)|holds|checks?\s+out|matches|fits"
    r"|as\s+(?:required|desired|expected))\b|[✓✔✅]|=\s*\S+\s*$"
)
ANOTHERS = re.compile(
    r"(?i)\b(?:according\s+to|(?:wikipedia|wolfram\s*alpha|google|chatgpt|the\s+(?:internet|source"
    r"|article))\s+(?:says?|said|gives?|claims?|lists?|states?)"
    r"|is\s+what\s+(?!i\b|we\b)(?:\S+\s+){1,3}?(?:says?|said|claims?|got|gets?|wrote|writes|lists?"
    r"|gives?)"
    r"|(?:the|my|his|her|a|an|our|one|some|many|another)\s+(?:\w+\s+)?(?:(?:text)?book|teacher"
    r"|friend|students?|classmate|people|solution\s+manual"
    r"|answer\s+key|neighbou?r|brother|sister|colleague|calculator)\s+(?:\w+\s+)?(?:says?|said"
    r"|claims?|thinks?|got|gets|told|wrote|writes?|lists?|gives?|insists?))\b"
)
"""Attributes a value to someone else: a friend, a book, a student."""
_BOUNDED = re.compile(
    r"(?i)\b(?:at\s+(?:most|least)|(?:more|less|greater|fewer|higher|lower|larger|smaller|longer"
    r"|shorter)\s+than(?:\s+or\s+equal\s+to)?|no\s+(?:more|less|fewer)\s+than|up\s+to"
    r"|not\s+(?:exceed(?:ing)?|above|below))\s+(?:[$€£¥]|\\\(|about\s+)?\s?-?\d[\d.,]*(?:\s*[.!]*$"
    r"|(?=[\s.,;]))"
)
_MAY_BE = re.compile(
    r"(?i)\b(?:could|might|may|can(?:no|['’])t|cannot)\s+(?:\w+\s+)?be\b"
    r"|\bwould\s+(?:\w+\s+)?be\b[^.!?\n]*\b(?:if|were|had)\b"
)
"""A modal verb ("may be", "cannot be", "would be if") asserts no value."""
_ORDINAL = re.compile(r"(?<![\w.,])\d{1,9}(?:st|nd|rd|th)\b")
# "A" behind a number is ampere, no article
_BREAKS_OFF = re.compile(
    r"(?i)(?<=[\w.,;:!?)}$]\s)(?:(?:the|(?-i:an?)|of|to|with|by|from|and|or|but|which|because"
    r"|(?<!or )so|then|next|for|into|than|as|let|we|he|she|they|you|our|his|her|their"
    r"|this\s+means|step\s+\d{1,3}:?|minus|plus|times|divided|multiplied|subtract(?:ing)?"
    r"|add(?:ing)?|multiply(?:ing)?|divid(?:e|ing)|comput(?:e|ing)"
    r"|calculat(?:e|ing)|need|must|have|has|is|are|equals?)|[+*/×=−–-])\s*\Z"
)


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with its end, without blank ones."""
    parts, place = [], 0
    inside = (
        [formula.span() for formula in _FORMULA.finditer(text)]
        if "$$" in text or "\\" in text
        else []
    )
    for end in _SENTENCE_END.finditer(text):
        if any(start <= end.start() < stop - 1 for start, stop in inside):
            continue
        parts.append(text[place : end.end()])
        place = end.end()
    return [part for part in [*parts, text[place:]] if part.strip()]


def breaks_off(text: str) -> bool:
    """Whether a text ends in the middle of a clause: "Step 2: subtract the", "Next we"."""
    return _BREAKS_OFF.search(text[-40:]) is not None


def is_denied(text: str) -> bool:
    """Whether a short text denies its value: "42 is wrong", "x=5 does not satisfy it"."""
    return _IS_DENIED.search(text) is not None


_REACH = 400


def taken_back(text: str, end: int) -> int | None:
    """The end of the clause that takes back the value before `end`; None without one.

    "This", "that" and "it" mean the nearest value before them, so no other value may come between.
    The clause is in the sentence of the value or the next one, and is no supposition.
    """
    reach = text[end : end + _REACH]
    parts = sentences(reach)[:2]
    if parts and not parts[0].strip(" .,;:!*_$)}\n。"):
        parts = sentences(reach)[:3]
    near = (
        reach[: reach.find(parts[-1], sum(map(len, parts[:-1]))) + len(parts[-1])] if parts else ""
    )
    denied = re.match(rf"(?i)[\s$)}}*_.]{{0,4}}{_NEGATIVE}", near)
    back = denied or _TAKES_BACK.search(near) or _OWN_MISTAKE.search(near)
    if back is None or re.search(
        r"\d|\\boxed|\b(?:if|had|were|would|otherwise|unless)\b", near[: back.start()]
    ):
        return None
    stop = _SENTENCE_END.search(reach, back.end())
    clause = re.compile(r"[,;:]|\b(?:it|so)\b").search(reach, back.end())
    ends = min((match.start() for match in (stop, clause) if match), default=len(reach))
    return end + max(back.end(), ends)


CONTRAST = re.compile(
    r"(?i)[,،，;]\s*(?:(?:y|e|et|und|and|и|و)\s+)?(?:no|non|não|nicht|pas|не|نه|not|niet|nie|inte"
    r"|bukan|değil)\s+(?=[-$€£¥]?\s?\d)[^.,;،!?。\n]*"
)
"""A contrast after a value: "5 V, no 6 V", ۱۷ سیب، نه ۱۹."""
_REJECTED = re.compile(
    r"(?i)(?:^|[,;.:]\s{0,8}|\n)[^\S\n]{0,8}(?:(?:but|however|although|though|while|note\s+that|of\s+these"
    r"|here)\b,?\s*)*"
    r"(?:(?:the\s+)?(?:value|root|solution"
    r"|case)\s+)?\$?\s*(?P<name>[A-Za-z]\s*=\s*)?(?P<value>-?\d[\d./]{0,60})\s{0,8}\$?"
    r"(?=\s)(?:(?!\b(?:if|not)\b)[^.,;\n$=\d]){0,80}?\s(?:is|be|are|as)\s+(?:an?\s+|therefore\s+)?"
    r"(?:extraneous|discarded|rejected|excluded|ruled\s+out|eliminated|inadmissible"
    r"|thrown\s+out)\b[^.;\n]{0,60}"
)
"""A solution that the text itself strikes from its list; its parts are bounded, for every stop of
"1.000.1.000.…" may begin one.
"""


_LISTED = (
    r"(?:\s*,)?(?:\s*(?:and|or))?\s*\$?(?:[A-Za-z]\s*=\s*)?(?<![\w.^/{{-]){}(?![\w^/]|\.\d)\$?"
    r"(?=\s*(?:[,;.$]|and\b|or\b|but\b|\Z|\n))"
)
_MOST_REJECTED = 8


def without_rejected(text: str) -> str:
    """The text without solutions that it lists and then rejects: of "x = 1, 2, or 3, but 3 is
    extraneous" it is "x = 1, 2".
    """
    for rejected in [*islice(_REJECTED.finditer(text), _MOST_REJECTED)][::-1]:
        begin = max(0, rejected.start() - _REACH)
        listed = [
            *re.finditer(
                _LISTED.format(re.escape(rejected["value"])), text[begin : rejected.start()]
            )
        ]
        # the only value before is what the sentence is about, not one of a list
        if not listed or not re.search(r"\d", text[begin : begin + listed[-1].start()]):
            continue
        before = (
            text[: begin + listed[-1].start()] + text[begin + listed[-1].end() : rejected.start()]
        )
        text = re.sub(r"([=,])\s*(?:,|and\b|or\b)\s*", r"\1 ", before[-_REACH:]).join(
            [before[:-_REACH], text[rejected.end() :]]
        )
    return text


def asserted(text: str) -> str:
    """What the last sentence with a value asserts; "" if it asserts nothing, the whole text if it
    holds no value.
    """
    if breaks_off(text):
        return ""
    parts = sentences(text)
    if not any(_VALUED.search(part) for part in parts):
        return text
    accepted = False
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        if not _VALUED.search(part):
            if _GIVES_UP.search(part) or _TAKES_BACK.search(part):
                return ""
            accepted = accepted or _ACCEPTS.search(part) is not None
            continue
        if _SUPPOSES.match(part) and not accepted:
            return ""
        kept = _clauses(part)
        return "".join([kept, *parts[number + 1 :]]).strip() if _VALUED.search(kept) else ""
    return ""


def _clauses(sentence: str) -> str:
    """A sentence without its clauses that assert nothing."""
    main = _CONDITION.sub(" ", sentence)
    # the consequence of a condition is what a solution concludes; a condition by itself asserts
    # nothing
    sentence = _ORDINAL.sub(" ", _BOUNDED.sub(" ", sentence if _VALUED.search(main) else main))
    sentence = CONTRAST.sub(" ", sentence)
    kept: list[str] = []
    for clause in re.split(r"(?<=[,;])\s+(?=(?:but|so|and|however|although|which)?\b)", sentence):
        if _TAKES_BACK.search(clause) or _GIVES_UP.search(clause):
            kept = []
        elif not (is_denied(clause) or ANOTHERS.search(clause) or _MAY_BE.search(clause)):
            kept.append(clause)
    return " ".join(kept)
