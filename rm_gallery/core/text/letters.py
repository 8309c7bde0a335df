"""Reading the letter that an answer to a multiple-choice question picks."""

from __future__ import annotations

import re
import unicodedata

from rm_gallery.core.text.answer import final_text, read_statements

__all__ = ["LETTERS", "choice_letter"]

LETTERS = "ABCDEFGHIJ"
_LIMIT = 10_000

_MARKS = re.compile(r"\*\*|__|[*_`$]|\\[()\[\]]|\\(?:text(?:bf|rm|it)?|math(?:rm|bf)|mbox|boldsymbol)\s*(?=\{)|\\[,;:! ]|~")
_QUOTED = re.compile(r"[\"'“”‘’«»「」<]\s?([A-Za-z])\s?[.)]?\s?[\"'“”‘’«»「」>]")
_IN_BRACES = re.compile(r"\{\s*(or|and|,)\s*\}")
_HERE = re.compile(
    r"(?:(?:the|la|le|el|die|option|choice|letter|answer|correct|right|best|opción|вариант|statement|antwort|réponse|ответ|верный|правильный)s?\b\s*){0,4}"
    r"(?:选项|选择?)?\s*:?\s*(?P<open>[(\[{]{0,2})?\s*(?P<letter>[A-Za-z])(?P<close>\s*[)\]}]{1,2})?",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[A-Za-z0-9'’_+#]|-\w")
_ENDS = re.compile(r"\s*(?:$|\n|[.,;:。)/]|(?:and|or|are)\b|[\u3040-\u30ff\uac00-\ud7a3])")
_A_WORD_FOLLOWS = re.compile(
    r"[ \t]+(?!(?:because|since|as|is|and|or|for|due|not|but|which|by|rather|instead|here|fits?|best|matches)\b)[A-Za-z]"
)
_JOINS = re.compile(
    r"(?:\s*(?:\)[^.\n]{0,40})??[,;]?\s*\b(?:or|and(?!\s+not)|as\s+well\s+as|plus|maybe|perhaps|possibly|oder|ou|o|und|et|y|или|и)\b\s*(?:maybe|perhaps|possibly|also|even|else|both)?\s*"
    r"|\s*(?:[/,&+;、或和与か]|または|もしくは|あるいは|또는|혹은|이나)\s*(?:or\b|and\b)?\s*)(?:(?:option|choice|the)\s+){0,2}",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\s*(?:[)\].,:]\s*)?(?:is|was|seems|would\s+be|can(?:no|')t\s+be|cannot\s+be|looks|isn['’]t)\s*(?:clearly\s+|also\s+|therefore\s+)?"
    r"(?:wrong|incorrect|false|not\b|n['’]t|mistaken|tempting|eliminated|ruled|a\s+distractor|invalid|impossible|out\b)"
    r"|\s*(?:isn['’]t|wasn['’]t|can(?:no|['’])t|cannot|fails)\b|\s*还是|\s*(?:ist|est|es|[—–-])?\s*(?:falsch|nicht\s+richtig|fausse?\b|faux\b|incorrecta?\b|неверн|неправильн|не\s)|\s*(?:是|为)?(?:错误?|不对|不正确)|\s*(?:不|错|吗|项错)",
    re.IGNORECASE,
)
_THERE = r"(?=[(\[{\"'“]{0,2}\s?[A-J](?:[)\]}\"'”.,;:!?\s]|$|[^\x00-\x7f]))"
_CHOICE = r"(?:choice|option|pick|letter|answer|selection|guess|statement|one)"
_PICKS = re.compile(
    # I'd go with, let's choose, select
    r"(?:\b(?i:go(?:ing)?\s+(?:with|for)|(?:choose|pick|select)(?:ed)?|choosing|picking|selecting|opt(?:ing)?\s+for|i(?:['’]d|\s+would)?\s+(?:say|guess|think|chose)|vote\s+for"
    r"|bet\s+on|settle\s+(?:on|for)|lean(?:ing)?\s+towards?|chosen|selection"
    # my choice is, the best option that … is
    rf"|(?:my|the|final|best|right|correct|our|selected|chosen)\s+(?:\w+\s+)?{_CHOICE}(?:\s+(?:that|which)\s[^.\n]{{0,40}}?)?\s*(?:(?:is|would\s+be|must\s+be|should\s+be)\b|:)"
    # it's, must be, leaves us with, therefore
    r"|(?:it|this|that)(?:['’]s|\s+(?:is|must\s+be|should\s+be|has\s+to\s+be|would\s+be))|must\s+be|has\s+to\s+be|leaves(?:\s+us\s+with)?|points\s+to"
    r"|left\s+with|(?i:looks\s+like|corresponds?\s+to|matches|(?:most\s+)?likely|yes(?=,)|settled\s+(?:on|for)|würde|s['’]agit\s+de|вариант|это|definitely|probably|surely|certainly|selected|w[äa]hle|nehme|choisis|elijo|escojo|выбираю)|therefore|thus|hence|so|conclude|conclusion|verdict|final|correct:|is|ist|es|est)(?:\b|(?<=['’]s)|(?<=:))"
    r"\s*(?:,|:|with|that|[—–-](?=\s))?\s*(?i:\b(?:actually|really|in\s+fact|clearly|obviously|definitely|probably|(?:most\s+)?likely|indeed|just|simply)\s+)?"
    rf"(?i:(?:the\s+|la\s+)?(?:correct\s+|right\s+|best\s+)?(?:{_CHOICE}\s+)?(?:is\s+)?)"
    r"|(?:(?:正しい|適切な|正解な)のは|选择?|故选?|则选?|是|=>|⇒|→|∴)\s*[:：]?\s*)" + _THERE
)
_IS_RIGHT = re.compile(
    r"(?<![A-Za-z0-9])[(\[\"']?([A-J])(?:[)\]\"']?\s*|[).:]\s[^.\n;]{1,60}?\s)\b(?:is|would\s+be|must\s+be|(?:seems|appears|looks)(?:\s+to\s+be)?|are|ist|est|es)\s+"
    r"(?:(?!(?:not|nicht|never|hardly|no|pas|wrong|worst|incorrect|false|least|bad)\b)\w+\s+){0,2}?"
    r"(?P<how>correct|right|best(?!\s+(?:wrong|incorrect|distractor))|true|answer|réponse|respuesta|antwort|only|likely|it(?=\s*(?:[.!,;]|$))|richtig|korrekt|juste|correcte|correcta|correcto)\b"
    r"(?!\s+(?:that|to\s+say|in\s+part|if|when|unless|only|provided|assuming|except|wrong)\b|\?)"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])[)\]]?\s+(?:best\s+)?(?:matches|fits|works|holds|remains|it\s+is)\b"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])(?:[)\]]?\s*[:–—-]\s*|[)\].]\s*|\s+(?=[✓✔✅☑]))(?i:(?:correct|right|true|yes)\b|[✓✔✅☑])(?!\s+[a-z])"
    r"|(?<![A-Za-z0-9])[(\[]?([A-J])[)\]]?\s*(?:が|は|는|은|가|이)\s*(?:正解|正しい|答え|정답|맞)(?!\s*(?:では|じゃ|とは|이\s?아니|이\s?아닙|지\s?않))"
    r"|\b[Oo]nly\s+(?:option|choice|answer)\s+[(\[]?([A-J])(?![A-Za-z0-9])"
    r"|([A-J])\s*(?:项|选项)?\s*(?:是|为)?(?:正确的?|对的?)(?!吗|么)"
)
_SURE = frozenset({"correct", "best", "answer", "only", "it"})
_REPEATED = re.compile(r"(?<![A-Za-z])([A-J])\1{3,5}(?![A-Za-z])")
_ALSO = re.compile(r"(?<![A-Za-z])([A-J])[)\]]?\s*(?:,|/|&|and|or|、|和)\s*(?:option\s+)?[(\[]?$")
_BEFORE_WRONG = re.compile(
    r"\b(?:not|n['’]t|nor|neither|if|whether|than|tempted|why|suppose|(?:you|one|some|people|many|might|may|would|could)\s+(?:\w+\s+)?(?:think|say|guess|argue))\b(?:(?!\bbut\b|\bhowever\b)[^.\n]){0,20}$|[不非若][^\s，,。；;]{0,3}$",
    re.I,
)
_LINE = re.compile(
    r"^[ \t#>*-]*[(\[]?([A-J])(?:[)\]]|[.:、](?=\s|$)|(?=[ \t]*$))(?!\W{0,4}(?i:incorrect|wrong|false|no|maybe|perhaps|possibly)\b|\s*[✗✘❌×])",
    re.MULTILINE,
)
_LAST_LINE = re.compile(r"\n[ \t#>(\[{-]*([A-J])[ \t)\]}.]*\Z")
_POLITE = re.compile(r"\s?(?:です|である|だ|번?\s?(?:입니다|이다)|번)[.。]?$")
_AGAIN = re.compile(
    r"\b(?:wait|no(?=[,:.!—-])|hmm+|actually|sorry|correction|oops)\b[,:.!\s]*(?:(?:actually|it['’]s|it\s+is|i\s+mean|make\s+that|no|wait|the\s+answer\s+is)\b[,:\s]*)*"
    r"\(?([A-J])\)?[.!]?\s*\Z",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"[a-z)A-J][.!;:]\s+\(?([A-J])\)?[.!]*\Z")
_LAST = 60
_LETTERED = re.compile(r"(?<![A-Za-z\\])[A-Ja-j](?![A-Za-z])")
_LEAD = re.compile(
    r"(?:(?:option|choice|letter)\b|选项)?[\s#>:(\[{\"']*([A-J])(?:[)\]}\"']*[.:]?\s*(?:\n|$)|[)\]]\.?\s|[.:、]\s|\s[-–—]\s"
    r"|,\s+(?:definitely|certainly|clearly|obviously|for\s+sure|of\s+course|i\s+(?:think|believe|guess))\b|\s+\((?![A-J]\))[^()\n]{1,60}\)\W*\Z"
    r"|,\s*(?:因为|由于)|,?\s+\(?(?:because|since|as(?!\s+well)|due|(?:and\s+)?not|rather|instead)\b)(?!\s*(?:incorrect|wrong|false|no|maybe|perhaps|possibly)\b)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"^[ \t#>*-]*[(\[]?([A-J])[)\].]?[ \t]*$", re.MULTILINE)
_SAYS = re.compile(r"\b(?:is|are|because|since|as|not|rather|instead|than|but|and)\b", re.IGNORECASE)
_SEEMS = re.compile(r"\b(?:seems|looks)\b")
_LISTED = re.compile(r"[(\[]?([A-J])[)\]](?:\s*[^\s()\[\].,;!?]+){0,6}?\s*[(\[]?([A-J])[)\]]")
"""The options themselves, told again: "(A) Paris (B) London"."""
_BRACKETED = re.compile(r"[(\[{]\s*([A-J])\s*[)\]}]")


def choice_letter(text: str, letters: str = LETTERS) -> str | None:
    """The letter a text picks, in upper case, by the rules of `MultipleChoiceLetterReward`; None for none or two."""
    text = _REPEATED.sub(r"\1", _plain(final_text(text)))
    reading = read_statements(text, _PICKS)
    if reading.kind == "box" and not _LETTERED.search(reading.statements[0].text):
        reading = read_statements(text, _PICKS, boxes=False)  # the box holds the value of the option
    last = _LAST_LINE.search(text[-_LAST:]) if not reading.kind else None
    if last is not None and last[1] in letters:
        return last[1]
    for statement in reading.statements:
        found = _leading(statement.text, letters)
        if found is not None:
            return found or None
    text = reading.rest[-_LIMIT:].strip()
    whole = _HERE.fullmatch(_POLITE.sub("", text).rstrip(".,;:!? -。"))
    if whole is not None and whole["letter"].upper() in letters:
        return str(whole["letter"].upper())
    lines = {match[1] for match in _LINE.finditer(text)} & set(letters)
    lead = _lead(text, letters, lines)
    if lead is not None:
        return lead or None
    if found_right := _called_right(text, letters):
        return found_right.pop() if len(found_right) == 1 else None
    if (last := _LAST_WORD.search(text[-_LAST:])) is not None and last[1] in letters:
        return last[1]
    picked = lines or {match[1] for match in _BRACKETED.finditer(text)} & set(letters)
    return picked.pop() if len(picked) == 1 else None


def _lead(text: str, letters: str, lines: set[str]) -> str | None:
    """The letter a text begins with, or corrects it to; "" when it only lists the options, None without one."""
    again = _AGAIN.search(text[-_LAST:])
    if again is not None and again[1] in letters:
        return again[1]
    lead = _LEAD.match(text)
    alone = {match[1] for match in _ALONE.finditer(text)} & set(letters)
    if lead is None or lead[1].upper() not in letters or not (alone or lines) <= {lead[1].upper()}:
        return None
    listed = _LISTED.match(text)
    return "" if listed and listed[1] != listed[2] and not _SAYS.search(listed.group()) else lead[1].upper()


def _called_right(text: str, letters: str) -> set[str]:
    """The letters a text calls right: those it is sure of, else all."""
    picks: dict[bool, set[str]] = {True: set(), False: set()}
    for match in _IS_RIGHT.finditer(text):
        letter = next(group for group in match.group(1, 3, 4, 5, 6, 7) if group)
        before = text[max(0, match.start() - 40) : match.start()]
        if letter in letters and not _BEFORE_WRONG.search(before):
            sure = match["how"] in _SURE and not _SEEMS.search(match.group())
            picks[sure] |= {letter, *_ALSO.findall(before)}
    return picks[True] or picks[False]


def _leading(phrase: str, letters: str) -> str | None:
    """The letter a phrase starts with; "" when it names two, None when it starts with none or denies it."""
    match = _HERE.match(phrase)
    if match is None or match["letter"].upper() not in letters:
        return None
    letter, rest = match["letter"].upper(), phrase[match.end() :]
    if not match["close"]:
        if _GOES_ON.match(rest):
            return None
        if match["letter"].islower() and rest.strip(" .,;:!。"):
            return None
        if letter in "AI" and _A_WORD_FOLLOWS.match(rest):
            return None  # an article or a pronoun
    if _DENIED.match(rest):
        return None
    joined = _JOINS.match(rest)
    other = _HERE.match(rest, joined.end()) if joined else None
    if other is None or other["letter"] not in letters or _DENIED.match(rest, other.end()):
        return letter
    if not other["close"] and not _ENDS.match(rest, other.end()):
        return letter
    return letter if other["letter"] == letter else ""


def _plain(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("【", "(").replace("】", ")")
    return _IN_BRACES.sub(r" \1 ", _QUOTED.sub(r"\1", _MARKS.sub("", text))).strip()
