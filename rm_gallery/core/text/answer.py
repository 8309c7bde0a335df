r"""Where a text states its final answer: in tags, JSON, boxes, marks, or announcing phrases.

Every reader of answers (letters, mathematics, choices, quantities) takes the statements from here,
best first, and reads the first one that holds what it looks for.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Literal, NamedTuple

from rm_gallery.core.text.canonical import readable, split_reasoning, turn_text
from rm_gallery.core.text.conclusion import ANOTHERS, is_denied, taken_back

Kind = Literal["tag", "json", "box", "hashes", "line", "phrase", "correction"]
Extraction = Literal["boxed", "announced", "any"]
"""What counts as an answer's conclusion. boxed: `\\boxed{}` or `\\fbox{}` alone. announced: that,
an `<answer>` tag, a JSON answer, `#### x`, "the answer is x" and their like, or a text that is
nothing but its value. any: these, else what the closing sentence asserts."""
LIMIT = 20_000
"""Characters from the end of a text in which announcements are looked for."""
_CUES = 32
"""Announcements that are considered, counted from the end."""
WINDOW = 2000
"""Characters of one statement."""
_BEFORE = 160
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
"""Characters of Chinese, Japanese and Korean, for a set in a pattern."""
FORMULA = re.compile(r"(?s)\$\$(.+?)\$\$|\\\[(.+?)\\\]|(?<![\\\d])\$([^$\n]+)\$|\\\((.+?)\\\)")


class Statement(NamedTuple):
    """One stated answer: from the value to the end of the line at most; a box is kept whole."""

    text: str
    kind: Kind
    start: int = 0
    """Its offset in `Reading.text`."""
    end: int = 0
    """The end of a box in `Reading.text`."""


class Reading(NamedTuple):
    """A text after its reasoning, its statements (best first), and the rest without denied ones."""

    text: str
    statements: list[Statement]
    rest: str
    kind: Literal["tag", "json", "box", ""] = ""
    """The mark that makes the statements the only ones that count; empty without one."""


_OPEN_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_NOT_THE_BOX = re.compile(r"\b(?:not|rather\s+than|instead\s+of)\s+\$?\Z|不是\s?\$?\Z")
_SIGNS = re.compile(r"(?s)\\(?:boxed|fbox)\s*\{|\\.|[{}]")
_BRACES = re.compile(r"[{}]")
_TAG = re.compile(r"(?i)<\s?(/?)\s?(?:final[_ -]?)?answer\s?>")
_KEY = re.compile(
    r"(?i)[\"'](?:(?:final[_ ]?)?(answer)|choice|option|result|solution|prediction|答案)[\"']\s*:\s*"
)
_BARE_VALUE = re.compile(
    r"(\[[^\[\]{}\n]{0,400}\])|'([^'\n]{0,400})'|\"([^\"\n]{0,400})\"|([^,}\n]{1,400})"
)
_HASHES = re.compile(r"####[ \t]*(.*)")
_HEADING = re.compile(
    r"(?i)[^\w\n]{0,6}(?:(?:final|correct)\s+)?(?:answers?|solution|step|conclusion)\b|\s*$"
)
_NUMERIC = re.compile(r"[\s$-]*\d[\d.,/%$]*\s*$")
_TRAILER = 300
_A_LINE = re.compile(r"(?m)^[ \t]*(?:\*\*)?A(?:\*\*)?[ \t]*:(?:\*\*)?[ \t]*(\S.*)$")
_OPTION_LINE = re.compile(r"(?m)^[ \t]*[B-E][ \t]*[:.)]")

_EUROPEAN = re.compile(
    r"(?im)\b(?:answers?|ans|antwort|loesung|lösung|ergebnis|r[ée]ponse|résultat|respuesta"
    r"|soluci[óo]n|resultado|risposta"
    r"|resposta|ответ(?:ом|а)?|antwoord|odpowiedź|jawaban(?:nya)?|svaret|đáp\s+án|câu\s+trả\s+lời"
    r"|kết\s+quả|solutions(?=\s+are\b))\b"
    r"(?:(?!\.\s|;|,\s*(?:but|however|yet|though|aber|mais|pero|но)\b)[^:=?!\n→⇒]){0,60}?"
    r"(?:\b(?:is|are|was|being|equals|would\s+be|used\s+to\s+be|will\s+be|should\s+be|must\s+be"
    r"|can(?:not|['’]t)?\s+be|could\s+be|might\s+be"
    r"|may\s+be|(?:appears?|seems?)\s+to\s+be|ist|sind|lautet|beträgt|wäre|est|sont|vaut|serait|es"
    r"|son|sería|è|é|равен|равна|равно|является"
    r"|составляет|будет|это|adalah|ialah|jest|brzmi|är|là)\b|n['’]est\b|\bis(?=n['’]t\b)|[:=→⇒]"
    r"|[-=]>)"
    r"|\b(?:answers?|antwort|r[ée]ponse|respuesta|ответ)(?:\*\*|__)?\s*(?:[:=→⇒]|[-=]>|[-–—](?=\s))"
    r"|[\[(]\s?(?:final\s+)?answer\s?[\])]|\bans\.\s|\bответ(?=\s+(?:не\s+)?[\dA-J])|\b(?:right"
    r"|correct)\s+(?:one|value|number|result|solution)\s+(?:is|was)\b"
    r"|^[^\w\n]{0,8}(?:the\s+)?(?:final\s+|correct\s+)?answer[^\w\n]{0,4}$(?=\n)"
    # in Turkish the verb follows the value
    r"|\b(?:cevab?[pıi]?|yanıt|sonuç)\s*(?:[:=]|(?=\s(?-i:[\d$\\]|[A-J]\b)))"
)
_EASTERN = re.compile(
    r"[(\[【]答案[)\]】]|(?:答案|正确选项|结果)(?:[^。！？\n:：是为不]{0,12}?)(?:应该|应当|应)?(?:不?(?:可能)?是|不?为|等于|选择?"
    r"|[:：=])"
    r"|答\s*(?:应该|应当|应)?\s*(?:是|为|[:：])|(?:答え?|正解|解答|回答)\s*(?:は|[:：=])"
    # Arabic, Persian, Hindi; in the last two the verb follows the value
    r"|(?:الإجابة|الاجابة|الجواب)(?:\s+[\u0620-\u065f]+){0,3}?\s*(?:هي|هو|[:：=])"
    r"|(?:پاسخ|جواب)(?:\s+[\u0620-\u06d3]+){0,3}?\s*(?:[:：=]|برابر(?:\s+با)?|گزینه(?:\s?ی)?"
    r"|(?=\s(?:[\d$\\]|[A-J](?![A-Za-z]))))"
    r"|(?:उत्तर|जवाब)(?:\s+[\u0900-\u0965]+){0,2}?\s*(?:[:：=]|विकल्प|(?=\s(?:[\d$\\]"
    r"|[A-J](?![A-Za-z]))))"
    r"|(?:정답|답안?)\s*(?:은|는|[:：=])|(?:정답|답)이\s|故选|应选"
    r"|(?<![不可])选(?=\s*[:：]?\s*[(\[]?[A-J](?![A-Za-z]))"
)
_DENIES = re.compile(
    r"(?i)\s*(?:(?:definitely|certainly|clearly|surely|probably|obviously|really|actually|also"
    r"|simply)\s+(?=not\b))?"
    r"(?:n['’]t\b|anything\s+but\b|far\s+from\b|nowhere\s+near\b|different\s+from\b|other\s+than\b"
    r"|hardly\b|unlikely\b|not\b|never\b|neither\b|nicht\b|niet\b|kein|pas\b|bukan|không\s+phải"
    r"|inte\b|nie\b|no longer\b|не\b|不是|不为|并不是|并非|不选)"
)
_DENIED_CUE = re.compile(
    r"(?i)n['’]est\b|\bnon\s+è\b|\bnão\s+é\b|\bnie\s+jest\b|không\s+phải|\b(?:no|не)\s+(?:es|son"
    r"|равен|является)|can(?:not|['’]t)\s+be|不(?:可能)?[是为]"
)
_DENIED_AFTER = re.compile(
    r"(?i)^[^.!?。！？\n]{0,40}?(?:では(?:な|あり)|じゃ(?:な|あり)|이 아니|가 아니|아닙니다|아니고|\bdeğil|नहीं|نیست)"
    r"|^\s*[^\s.!?\n]{1,20}\s+(?:is|was|would\s+be|seems)\s+(?:wrong|incorrect|false|not\b"
    r"|mistaken)|^[^。？！\n]{0,12}吗"
)
_BUT = re.compile(
    r"(?i)(?:[,，]\s*(?=c['’]est|il\s+s['’]agit|es\s+ist|it['’]s\b|it\s+is\b|其实|实际"
    r"|die\s+richtige)(?:c['’]est|il\s+s['’]agit\s+de|es\s+ist|it['’]s|it\s+is"
    r"|其实是?|实际上?是?|die\s+richtige\s+(?:ist|lautet))"
    r"|\b(?:(?<!anything )(?<!nothing )but(?:\s+rather)?|rather|sondern|mais|sino|а|however|yet)\b"
    r"|而是|应该?是|;|；|ではなく|じゃなく|아니라|아니고)"
    r"[,，、:\s]*(?:it\s+is|it['’]s|is|是|为|plutôt|c'est|es)?\s*"
)
_WRONG = re.compile(
    r"(?i)\b(?:wrong|incorrect|worst|false|other|another|alternative|tempting|mistaken|naive"
    r"|intermediate|partial|preliminary"
    r"|previous|earlier|initial|original|first|old|student['’]?s?|distractor|bad|unlikely"
    r"|impossible|falsche?n?|fausse|mauvaise"
    r"|incorrecta|неправильн\w+|неверн\w+)\s+(?:\w+\s+)?(?:answers?|options?|choices?|solutions?"
    r"|ones?|statements?|guess|antwort|r[ée]ponse|"
    r"respuesta|ответ)\b|\b(?:antwort|r[ée]ponse|respuesta|ответ)\s+(?:incorrect[ae]|equivocada"
    r"|fausse|falsa|неверный)\b|間違|誤答|오답|不正解|错误(?:的)?答案|错误选项|干扰|\banswers?\s+(?:to|for"
    r"|of)\s+(?:the\s+)?(?:first|second|part|step|sub)"
)
_NOT_MEANT = re.compile(
    r"(?i)\b(?:tempted|suppose|supposing|pretend|what\s+if|let['’]?s\s+(?:say|assume|suppose)"
    r"|assume\s+(?:that\s+)?the\s+answer"
    r"|(?:one|some|many|you|people|someone|students?|others?)\s+(?:\w+\s+)?(?:might|may|could|would"
    r"|think|say|often|argue|guess)"
    r"|at\s+first\s+(?:sight|glance)|thought|used\s+to|not\s+(?:true|correct|the\s+case)\s+that"
    r"|i\s+doubt|if\s+you(?:['’]d)?\s+(?:had\s+)?"
    r"(?:forg[eo]t|ignore|miss|add|use)\w*)\b|有人(?:可能)?(?:认为|说)|乍一?看|容易误"
)
_DENIED_BEFORE = re.compile(
    r"(?i)(?:n['’]t|\b(?:not|never|cannot|dont|wont))\s+(?:(?:think|believe|say|suppose|guess|feel"
    r"|choose|pick|select|going|go|with|for|that|the|it|its"
    r"|be|be\s+that|really|sure|certain|convinced|see\s+how|correct|right|true|final|best|our|my"
    r"|this|to)\s+){0,5}\Z"
    r"|\b(?:не|nicht|nie|pas)\s+\Z|n['’]\Z|\b(?:glaube|denke|meine)\s+nicht,?\s+dass\s+(?:die|das"
    r"|der|es)?\s*(?:richtige\s+)?\Z|\bno\s+creo\s+que\s+(?:la|el|sea)?\s*\Z"
    r"|\bne\s+(?:pense|crois)\s+pas\s+que\s+(?:la|le|ce)?\s*\Z|\bне\s+думаю,?\s+что\s*\Z|(?:还是"
    r"|不(?:可能|认为|觉得|相信)|不能?|不应该?|不该|不要|不可以?|别|并非|非|排除)\s*\Z"
    r"|\b(?:unlikely|improbable|impossible|false|untrue|doubtful|doubt)\s+(?:that\s+)?(?:(?:the|it"
    r"|its|correct|right|final)\s+){0,3}\Z"
    r"|\b(?:know|unsure|sure|clear|certain|tell|say|decide)\s+(?:whether|if)\s+(?:(?:the|it|its"
    r"|correct|right|final)\s+){0,3}\Z"
)
"""Right before an announcement, this denies it."""
_VALUE_BEFORE = re.compile(
    r"(?i)\d[\d.,]*\s+is\s+(?:the|our|my)\s+(?:(?:final|correct|right)\s+)*\Z"
)
"""The value comes before the noun: "18 is the answer, which is 7 less than 25"."""
_ASKED = re.compile(
    r"(?i)\s*(?:(?:so|or|and|but|hmm+|wait)\W+)?(?:is|are|was|were|isn['’]t|could|can|would|should"
    r"|might|may|does|do|did|will|what|why|how|which|who)\b"
)
_SPANISH = re.compile(r"(?i)\b(?:respuesta|resultado|soluci[óo]n|es)\b")
_NO_OTHER = re.compile(r"(?i),?\s+no\s+(?:(?:el|la|es)\s+)?(?=[$-]?\d|[A-J](?![A-Za-z]))")
_ELSE = re.compile(
    r"(?i)[^.!?\n]{0,40}[.!?]?\s*(?:\bor\s+(?:maybe|perhaps|possibly|else|it)\b"
    r"|(?:\w+\s+){0,2}\b(?:could|might|may)\s+(?:also|just\s+as\s+well|equally)\s+be\b"
    r"|\balternatively\b)|[^。！？\n]{0,20}也(?:可能|许|有可能)"
)
_IF = re.compile(r"(?i)\b(?:if|were|had|unless|otherwise|without|wenn|si|если)\b|如果|若|要是")
_WOULD = re.compile(r"(?i)\b(?:would|could|might|may|wäre|serait|sería)\b")
_DOUBT = re.compile(
    r"(?i)\b(?:if|common|maybe|perhaps|possibly|might|may|could|guess(?:ed)?)\b|也许|可能"
)
_CLAUSE = re.compile(
    r"(?i)[.!?;]\s|[。！？；\n]|,\s*(?:but|however|yet|though|aber|mais|pero|но)\b|[,，]?\s?但是?"
)
_SENTENCE = re.compile(r"[.!?](?=\s|$)|[。！？\n]")
_FILLER = re.compile(
    r"(?i)(?:(?:Rs\.?|INR|USD|EUR|GBP|US(?=\$))\s*(?=[\d$])|[\s*_:=≈~“”：，]+|[=-]>|⇒|→|\\(?:approx"
    r"|simeq|sim)\b|(?:about|approx(?:imately|\.)?|roughly|around|nearly|almost|exactly"
    r"|simply|just|clearly|therefore|thus|then|also|indeed|obviously|definitely"
    r"|(?:most\s+)?(?:probably|likely)|certainly"
    r"|actually|precisely|equal\s+to|given\s+by|going\s+to\s+be|the\s+(?:following|number|value"
    r"|letter|option|choice|one)|as\s+follows"
    r"|correct|hence|now|still|clearly|is|be|a\s+total\s+of|etwa|ungefähr|circa|ca\.|environ"
    r"|aproximadamente|unos|de"
    r"|примерно|около|constituye|exactement|genau)\b(?!-)|大约|大概|约为?|就是?|应该是|是|为|等于|およそ|約|대략|약\s)"
)
_CORRECTION = re.compile(
    r"(?i)\b(?P<weak>wait|hmm+|hold on)\b|\b(?:actually|correction|scratch that|oops|my mistake"
    r"|on second thought|i (?:meant?|made an?"
    r"|misread|miscalculated)|let me (?:correct|fix|redo)|no(?=[,:;.!—-])|sorry)\b|不对|更正|纠正|错了|等等"
    r"|等一下"
)
_CORRECTED = re.compile(
    r"(?i)(?:[\s,.:;!?—–*…-]+|\b(?:wait|no|actually|hmm+|sorry|oops|that['’]?s|that is|this is"
    r"|it['’]?s|it is|is|was|were|wrong|not right|incorrect"
    r"|a|an|the|error|mistake|correct|right|answer|value|result|one|should|must|be|i|mean|meant"
    r"|made|make|that|it|so|there|instead|rather)\b"
    r"|不对|应该?|是|为|更正|错了|等等|，|。|：)+"
)
_VALUE = re.compile(
    r"[-+−±]?\s?[$€£¥]?\s?(?:\d|\.\d|√|π|\\(?:d?frac|sqrt|pi|boxed|\()|\$)"
    r"|[(\[{\"'*]*[A-HJ](?![A-Za-z0-9_'’])"
)
_SENTENCE_END = re.compile(r"(?<=[^\s.])[.!?]\s+(?=[A-Z0-9\"'" + CJK + r"])")
_AFTERTHOUGHT = re.compile(
    r"(?i)\s+or\s+so\b|,?\s+i\.e\.|(?:,|;|:)?\s+(?:\(|[-–—]\s?)?(?:not|because|since|as(?=\s+[a-z])"
    r"|rather|instead|which|where|when|so|although|though|while|given"
    r"|due|assuming|hence|therefore|thus|and\s+not|but|for\s+(?:the|a)|nicht|weil|denn|und\s+nicht"
    r"|pas|et\s+non|car|parce|porque|pues|y\s+no"
    r"|потому|а\s+не|так\s+как)\b|,\s+(?!and\b|or\b)(?=[A-Za-z]{3,}\b)|[,，]?\s?(?:而?不是|而非|因为)|;\s"
    r"|\s\((?=[A-Za-z]{3,}|[A-Za-z]?\s?=|\d+\s*[*×x+/=-]\s*\d)"
    r"|\s[-–—]\s(?=[A-Za-z]{2,})|\s[–—]\s(?=\d+\s+[A-Za-z])"
    rf"|(?<=[^{CJK}\s])\s?(?:です|でした|である|となり|になり|だ(?=$|。|\.)|입니다|이다|이에요|예요)"
)
_ENDS = re.compile(r"[^.!?\n]{0,30}(?:[.!?](?:\s|$)|\n|$)")


_ANOTHERS = re.compile(
    r"(?s)(?:<\|(?:im_start|start|start_header_id)\|>\s*(?:user|system|developer)\b|<\|(?:user"
    r"|system)\|>|<start_of_turn>\s*user\b|<｜User｜>)"
    r".*?(?=<\|(?:im_start|start|start_header_id)\|>\s*assistant\b|<\|assistant\|>"
    r"|<start_of_turn>\s*model\b|<｜Assistant｜>|\Z)"
)
PHANTOM = re.compile(r"\\[hv]?phantom\s*\{[^{}]*\}")
"""LaTeX that nobody sees."""


def final_text(text: str) -> str:
    """The readable text after the reasoning; empty when the reasoning never ends.

    Left out are HTML comments and phantoms, which nobody sees, and turns of a user or system that
    the text invents.
    """
    return readable(turn_text(_seen(split_reasoning(text).final))).strip()


def _seen(text: str) -> str:
    kept, place = [], 0
    while (begin := text.find("<!--", place)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[place:begin])
        place = end + 3
    return PHANTOM.sub(" ", _ANOTHERS.sub(" ", "".join([*kept, text[place:]])))


def read_statements(
    text: str, extra: re.Pattern[str] | None = None, *, boxes: bool = True
) -> Reading:
    r"""The statements of a text (after its reasoning), best first.

    The first of these there is decides, and nothing else is then listed: the last `<answer>` tag; a
    JSON value under "answer"; the last group of `\boxed{}`; the last `#### x` or `A: x` line. Else
    every announcement ("the answer is x", 答案是, Antwort, réponse, respuesta, ответ, 答え, 정답) and
    whatever `extra` finds, the last one first; what is denied ("is not x", "a wrong answer is x"),
    supposed or asked is left out and blanked in `rest`; a correction ("wait, no: y") comes first.
    """
    reading = _read_once(text, extra, boxes)
    for _ in range(_CUES):
        cut = _retracted(reading)
        if cut is None:
            break
        reading = _read_once(reading.text[cut:], extra, boxes)
    return reading


_MOST_WORDS = 4
_LONGEST_VALUE = 80


def concluded(text: str, extraction: Extraction, extra: re.Pattern[str] | None = None) -> str:
    """The part of a text (after its reasoning) that an `extraction` may read; "" for none."""
    if extraction == "any":
        return text
    reading = read_statements(text, extra)
    if extraction == "boxed":
        box = next((one.text for one in reading.statements if one.kind == "box"), None)
        return "" if box is None else rf"\boxed{{{box}}}"
    if reading.kind:
        return reading.text if reading.kind == "box" else text
    if reading.statements:
        best = next(
            (one for one in reading.statements if _VALUE.match(one.text)), reading.statements[0]
        )
        return f"Answer: {best.text}"
    bare = (
        "\n" not in text.strip()
        and len(text) <= _LONGEST_VALUE
        and len(re.findall(r"(?<!\\)\b[^\W\d_]{2,}", text)) < _MOST_WORDS
    )
    return text if bare and not re.search(r"[.!?]\s+\S", text) else ""


def _read_once(text: str, extra: re.Pattern[str] | None, boxes: bool) -> Reading:
    marked = _marked(text, extra, boxes)
    if marked is not None:
        return marked
    if "box" in text:
        text = _UNFILLED.sub(
            lambda box: " " * len(box[0]) if not _is_filled(box[1]) else box[0], text
        )
    line = _hashes(text) or _last_a_line(text)
    return _announced(text, extra) if line is None else Reading(text, [line], text)


_UNFILLED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]{0,40})(?:\}|\Z)")
_FIRST_WORDS = re.compile(r"\S+")


def _retracted(reading: Reading) -> int | None:
    """The offset after which a text counts that takes its statement back; None if it does not."""
    if not reading.statements or reading.kind in ("tag", "json"):
        return None
    best = reading.statements[0]
    if best.kind == "box":
        return taken_back(reading.text, best.end)
    first = _FIRST_WORDS.match(reading.text, best.start)
    return taken_back(reading.text, first.end()) if first else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _hashes(text: str) -> Statement | None:
    """The last #### line, unless it is a Markdown heading with text below it."""
    last = _last(_HASHES, text)
    if (
        last is None
        or (len(text) - last.end() > _TRAILER and not _NUMERIC.match(last[1]))
        or _HEADING.match(last[1])
    ):
        return None
    return Statement(last[1], "hashes", last.start(1))


def _marked(text: str, extra: re.Pattern[str] | None, boxes: bool) -> Reading | None:
    kind: Literal["tag", "json"] = "tag"
    inside = _tagged(text)
    if inside is None:
        inside, kind = _json_value(text), "json"
    if inside is not None:
        reading = _marked(inside, extra, boxes) or _announced(inside, extra)
        whole = [Statement(inside, kind)] if len(inside) <= WINDOW else []
        return Reading(inside, [*reading.statements, *whole], reading.rest, kind)
    joined_boxes = _last_boxes(text) if boxes else []
    if not joined_boxes:
        return None
    content = ", ".join(dict.fromkeys(box.strip() for _, _, box in joined_boxes))
    start, end = joined_boxes[0][0], joined_boxes[-1][1]
    if statement := _later_word(text, start, end, extra):
        return Reading(text, [statement], text[end:])
    return Reading(
        text,
        [Statement(content, "box", start, end)] if not is_denied(content) else [],
        content,
        "box",
    )


_A_VALUE_ANNOUNCED = re.compile(
    r"(?im)^[^\w\n]{0,8}(?:(?:final|correct|the)\s+)*answer\W{0,4}(?:[:：]|\bis\b)[ \t]*\S"
    r"|^\W{0,8}答案\W{0,4}(?:[:：]|是)"
)
"""A line that announces the answer; after a box it overrides the box."""
_NOT_OURS = re.compile(
    r"(?i)\b(?:(?:common|frequent|typical|usual|classic|easy)\s+(?:mistake|error|trap)|(?:many|some"
    r"|most)\s+(?:students|people)|(?:might|may|could|would)\s+(?:\w+\s+)?(?:get|give|be|answer"
    r"|think|say))\b[^.!?\n]{0,60}\Z"
)
"""Ends before a box that holds somebody else's answer: a common mistake, what many would say."""


def _later_word(text: str, start: int, end: int, extra: re.Pattern[str] | None) -> Statement | None:
    """The value announced after the last box: on its own line, after a correction, or after a box
    that was called a mistake. None if the box is the last word.
    """
    sentence = text[max(0, start - _BEFORE) : start]
    clause = _last(_SENTENCE, sentence)
    anothers = _NOT_OURS.search(sentence[clause.end() if clause else 0 :])
    # within its own sentence the box wins: a trainer's parser takes the box
    ends = _SENTENCE.search(text, end, end + WINDOW)
    corrected = _CORRECTION.search(text, ends.end(), end + WINDOW) if ends else None
    if corrected and (restated := _restated(text, corrected.end())):
        return restated
    if anothers or corrected or _A_VALUE_ANNOUNCED.search(text, end):
        behind = _announced(text[end:], extra).statements
        if behind and _VALUE.match(behind[0].text):
            return behind[0]._replace(start=behind[0].start + end)
    return None


def _tagged(text: str) -> str | None:
    """Content of the last answer tag; one that is never closed runs to the end."""
    if "<" not in text:
        return None
    last, begin = None, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            begin = tag.end()
        elif begin is not None:
            last, begin = (begin, tag.start()), None
    if begin is not None and last is None:
        last = (begin, len(text))
    return text[last[0] : last[1]].strip() if last else None


def _json_value(text: str) -> str | None:
    """The value under the last key "answer" of a JSON object, also of one in a fence or in prose."""
    if ":" not in text or "{" not in text:
        return None
    last = None
    for key in _KEY.finditer(text, max(0, len(text) - LIMIT)):
        if last is None or not last[1] or key[1]:
            last = key
    if last is None or "{" not in text[: last.start()]:
        return None
    end = last.end()
    try:
        value, _ = json.JSONDecoder().raw_decode(text[end : end + WINDOW])
    except (ValueError, RecursionError):
        bare = _BARE_VALUE.match(text, end)
        return None if bare is None else (bare[bare.lastindex or 0]).strip()
    values = value if isinstance(value, list) else [value]
    if value is None or any(isinstance(part, dict | list) for part in values):
        return None
    joined = ", ".join(part if isinstance(part, str) else json.dumps(part) for part in values)
    # \frac and \boxed, written with one backslash
    return joined.replace("\f", "\\f").replace("\b", "\\b").strip()


_PLACEHOLDER = re.compile(
    r"(?i)\W*(?:(?:your|the|my|final)\s+)*(?:answer|result|solution|value)?(?:\s+here)?\W*"
)
"""A box that is mentioned or left as a placeholder."""


def _is_filled(content: str) -> bool:
    return _PLACEHOLDER.fullmatch(content) is None or (
        content.strip() != "" and not content.isascii()
    )


def last_boxed(text: str) -> str | None:
    r"""Content of the last filled `\boxed{}` or `\fbox{}` with balanced braces, the outer of nested
    ones. None without one, and if the text takes it back.
    """
    if "box" not in text:
        return None
    last, end = None, 0
    starts: list[int] = []
    for sign in _SIGNS.finditer(text):
        written = sign[0]
        if written.endswith("{") and written != r"\{":
            denied = len(written) > 1 and _NOT_THE_BOX.search(
                text, max(0, sign.start() - 24), sign.start()
            )
            starts.append(sign.end() if len(written) > 1 and not denied else -1)
        elif written == "}" and starts and (start := starts.pop()) >= 0:
            content = text[start : sign.start()]
            if last is None or _is_filled(content):
                last, end = content, sign.end()
    return None if last is None or taken_back(text, end) is not None else last


def _last_boxes(text: str) -> list[tuple[int, int, str]]:
    boxes: list[tuple[int, int, str]] = []
    empty = 0
    limit = len(text)
    while (
        len(boxes) < 8
        and empty < 64
        and (start := max(text.rfind(r"\boxed", 0, limit), text.rfind(r"\fbox", 0, limit))) >= 0
    ):
        limit = start
        if _NOT_THE_BOX.search(text, max(0, start - 24), start):
            continue
        end, content = _box_content(text, start)
        # "x = \boxed{1} or x = \boxed{2}" is one answer of two values; otherwise the last box wins.
        if boxes and not _LIST_SEPARATOR.fullmatch(text[end : boxes[-1][0]]):
            break
        if not _is_filled(content):
            empty += 1
            continue
        boxes.append((start, end, content))
    return boxes[::-1]


_LIST_SEPARATOR = re.compile(
    r"(?!\s*\n\s*\n)(?:\bor\s+(?:maybe\s+|perhaps\s+|possibly\s+)?(?:it\s+)?(?:could|might"
    r"|may)\s+(?:also\s+)?be\b|[\s$,;、，；&]|\\[ ,;:!()\[\]]|\\q?quad\b|\\text\s*\{|\}|\b(?:and|or"
    r"|und|oder|et|ou|y|o|и|или)\b|[和或与]|(?<![A-Za-z])\(?[A-Za-z](?:_\{?\w{1,3}\}?)?\)?\s*=)"
    r"{0,24}"
)


def _box_content(text: str, start: int) -> tuple[int, str]:
    opening = _OPEN_BOX.match(text, start)
    if opening is None:  # \boxedsomething
        return start, ""
    begin = opening.end()
    if text[begin : begin + 1] != "{":
        token = text[begin : begin + WINDOW].split(maxsplit=1)[:1]
        return begin, token[0].rstrip("$.") if token else ""
    depth = 0
    for brace in _BRACES.finditer(text, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end(), text[begin + 1 : brace.start()]
    return len(text), text[begin + 1 :]


def _last_a_line(text: str) -> Statement | None:
    last = _last(_A_LINE, text)
    # Options of a multiple choice question look alike.
    if last is None or _OPTION_LINE.search(text, last.end()):
        return None
    return Statement(last[1], "line", last.start(1))


def _announced(text: str, extra: re.Pattern[str] | None) -> Reading:
    offset = max(0, len(text) - LIMIT)
    patterns = [_EUROPEAN, None if text.isascii() else _EASTERN, extra]
    cues = sorted(
        (
            (match.start(), match.end())
            for pattern in filter(None, patterns)
            for match in pattern.finditer(text, offset)
        ),
        key=lambda span: (span[1], -span[0]),
    )[-_CUES:]
    sure: list[Statement] = []
    doubtful: list[Statement] = []
    rest: list[str] = []
    position = 0
    undecided = False
    for start, end in cues:
        value, verdict = end, _judge(text, start, end)
        if verdict == "doubtful" and _ELSE.match(text, value):
            undecided = True
            continue
        if verdict == "denied":
            stop = _SENTENCE.search(text, value)
            rest.append(text[position : max(position, start)])
            position = max(position, stop.start() if stop else len(text))
            but = _BUT.search(text, value, min(position, value + _BEFORE))
            if but is None:
                continue
            rest.append(", " + text[but.end() : position])
            if not _VALUE.match(text, skip_fillers(text, but.end())):
                continue
            value, verdict = but.end(), "sure"
        statement = _statement(text, value)
        if _SPANISH.search(text, start, end) and (other := _NO_OTHER.search(statement.text)):
            statement = statement._replace(text=statement.text[: other.start()])
        if statement.text:
            (sure if verdict == "sure" else doubtful).append(statement)
    rest.append(text[position:])
    if undecided and not sure:  # "it could be 7, or maybe 18" names no answer
        return Reading(text, [], "")
    best = sure[::-1] + doubtful[::-1]
    if best and (corrected := _corrected(text, best[0])) is not None:
        best.insert(0, corrected)
    return Reading(text, best, "".join(rest))


def _judge(text: str, start: int, end: int) -> Literal["sure", "doubtful", "denied"]:
    """Whether the sentence asserts what it announces, doubts it or denies it."""
    lead = text[max(0, start - _BEFORE) : start]
    clause = _last(_CLAUSE, lead)
    before, cue = lead[clause.end() if clause else 0 :], text[start:end]
    following, context = text[end : end + 60], before + cue
    if (
        _DENIES.match(following)
        or _DENIED_CUE.search(cue)
        or _DENIED_AFTER.search(following)
        or _DENIED_BEFORE.search(before)
        or _VALUE_BEFORE.search(before)
        or (cue.startswith("es") and before.lower().endswith("no "))
        # only words close before the noun make it another answer
        or _WRONG.search(context[-100:])
        or _NOT_MEANT.search(context)
        or ANOTHERS.search(context)
    ):
        return "denied"
    stop = _SENTENCE.search(text, end, end + _BEFORE)
    asked = stop is not None and stop[0] in "?？"
    if (asked and _ASKED.match(context)) or (
        _WOULD.search(cue)
        and _IF.search(f"{before} {text[end : stop.start()] if stop else following}")
    ):
        return "denied"
    return "doubtful" if asked or _DOUBT.search(context) else "sure"


def value_part(text: str) -> str:
    """The value of a statement without later remarks: "18, not 7" is 18."""
    begin = 0
    if formula := FORMULA.match(text):
        begin = formula.end()
    end = _SENTENCE_END.search(text + " ", begin)
    text = text[: end.start()] if end else text
    for after in _AFTERTHOUGHT.finditer(text, begin):
        if text[: after.start()].strip(" ,;("):
            return text[: after.start()]
    return text


def skip_fillers(text: str, position: int) -> int:
    """The offset after words and signs that lead up to a value: "about", "clearly", "=", "**"."""
    while (filler := _FILLER.match(text, position)) is not None:
        position = filler.end()
    return position


def _statement(text: str, position: int, kind: Kind = "phrase") -> Statement:
    begin = skip_fillers(text, position)
    return Statement(text[begin : begin + WINDOW + 1].split("\n", 1)[0].strip(), kind, begin)


_RESTATES = re.compile(
    r"(?i)[^\d\n$\\]{0,80}?(?:\b(?:so|hence|therefore|thus|then)\s+(?:it|that|this)(?:['’]s"
    r"|\s+(?:is|should\s+be|must\s+be|becomes|equals))"
    r"|\b(?:it|that|this)\s+(?:should|must)\s+be|应该?[是为]|所以[是为]?|故[是为])\s*"
)
"""Restates the value after a correction: "I forgot to halve that, so it is 21", 检查一下，应该是 7."""


def _restated(text: str, position: int) -> Statement | None:
    again = _RESTATES.match(text, position)
    if again is None:
        # the factor that was forgotten is no value: "I forgot the factor 2, so it is 10 V"
        again = re.compile(r"[^\n]{0,80}?,\s*(?=so\s)").match(text, position)
        again = again and _RESTATES.match(text, again.end())
    if again is None:
        return None
    place = skip_fillers(text, again.end())
    return (
        _statement(text, place, "correction")
        if _VALUE.match(text, place) or re.match(r"\$?[A-Za-z]\s*=", text[place : place + 8])
        else None
    )


def _corrected(text: str, statement: Statement) -> Statement | None:
    """The value a text gives after it takes its statement back; None if it does neither."""
    latest = None
    for mark in _CORRECTION.finditer(text, statement.start, statement.start + WINDOW):
        if mark.start() == statement.start:
            continue
        if (restated := _restated(text, mark.end())) is not None:
            latest = restated
            continue
        begin = _CORRECTED.match(text, mark.end())
        place = skip_fillers(text, begin.end() if begin else mark.end())
        value = _VALUE.match(text, place)
        if value is None or (mark["weak"] and not _ENDS.match(text, value.end())):
            continue
        latest = _statement(text, place, "correction")
    return latest
