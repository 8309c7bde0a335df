"""Reads a judge's verdict from its own final statement, never from what it quotes."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from rm_gallery.core.text.blocks import TwoValues, object_at
from rm_gallery.core.text.canonical import Reasoned, split_reasoning, turn_text, visible
from rm_gallery.core.text.statements import CUT_OFF, FINAL, Form, Scan, StatedValue, members
from rm_gallery.core.text.values import number_named
from rm_gallery.core.utils.errors import ParseError
from rm_gallery.core.utils.shown import excerpt

LONGEST = 300_000
"""Characters of a reply, at most; no judge writes that much, reasoning included."""
LONGEST_STATEMENT = 60_000
"""Characters after the reasoning, at most; read in milliseconds."""
_LIKE_JSON = re.compile(r"\{\s*[\"'“}]")
_EARLY = 80
"""A verdict within so many characters counts as the beginning of a reply."""
_PLACEHOLDER = re.compile(
    r"(?i)\s*(?:[\[({<]?\s*(?:[nxk#?…_]|\.{2,}|number|score|the number|integer|数字|编号|分数"
    r"|整数)\s*[\])}>]?)\s*"
)
_SPEAKS_OF_TEXT = re.compile(
    r"(?i)[\"“”「」『』《》`>:：]|\b(?:reads?|says?|contain\w*|includ\w+|writes?|quot\w+|inject\w*"
    r"|claim\w*|text|ignor\w*|instruct\w*)\b"
    r"|写道|写着|包含|含有|声称|引用|注入|内容|忽略|指令"
)
_RETRACTED = re.compile(
    r"(?i)(?:\b(?:wait(?!\s+(?:for\b|\d))|actually|on (?:second thoughts?|reflection)|correction"
    r"|(?:edit|update)(?=\s*[:：])|scratch that|i mean|i meant|rather|my mistake|"
    r"sorry|apologi[sz]e|(?:take|took) (?:that|it) back|chang\w* my mind|i (?:was|am) wrong"
    r"|(?:ignore|disregard) the above|hmm|oops|no,|"
    r"korrektur|moment|eigentlich|pardon|en fait|je me trompe|correcci[oó]n|en realidad|perd[oó]n"
    r"|mejor dicho|точнее|исправл\w*)"
    r"|更正|修正|等等|等一下|不对|应该是|应为|应当是|改为|改选|改主意|再想想|再考虑|重新考虑|写错|看错|弄错|其实|抱歉)[^\n]{0,120}"
)
_TURNED = re.compile(
    r"(?i)\b(?:yes|no|true|false|(?:not\s|un)?(?:met|fulfilled|satisfied)|fails?|passe?s?)\b|[是否]"
    r"|符合|满足"
)
"""After "wait" this changes a yes or no."""
_NAMED_INSTEAD = re.compile(
    r"(?i)(?:\b(?:answer|response|option|candidate|score|rating|verdict|best|be|is|to|say|choose"
    r"|give|make|with|actually|wait|no|sorry|"
    r"meant?|that|back|edit|correction|antwort|r[ée]ponse|respuesta|resposta|risposta|ответ)"
    r"|回答|答案|分数|应该是|应为|应当是|改为|改选|选择?|给|打|是|不对|等等|更正|修正)\s*[,:，：]?\s*(?:it\s+|an?\s+)?"
    r"(?:(\d{1,4}(?:\.\d{1,4})?)(?![\d.]*\d)(?!\s*[a-z%+*/=-]*\d)|(?<!best )(?<!better )(one|two"
    r"|three|four|[一二三四])(?![a-z]))"
    r"|\bthe\s+(first|second|third|fourth)\s+(?:answer|response|option|candidate|one)"
    r"|\b(\d{1,4})\s(?:would be|is|seems|feels)\s(?:fair|better|more|right)"
)
_STATED_AGAIN = re.compile(
    r"(?i)(?:\bmy (?:(?:final|actual|real) answer|(?:final |actual |real )?(?:verdict|choice|pick"
    r"|score|rating|decision))"
    r"|\bthe (?:best|better|winning|correct|right) (?:one|choice|pick|candidate|response|option"
    r"|answer(?=\W+(?:is|should be)\W+answer)))"
    r"\W{0,4}(?:(?:is|should be)\W{1,4})?(?:(?:answer|response|candidate|option"
    r"|number)\W{1,4})?(\d{1,4})(?![\d.]*\d)(?!\s*[a-z%+*/=-]*\d)"
    r"|\b(?:lower|rais|reduc|increas|chang|revis|adjust|downgrad|upgrad|drop)\w*(?:\s(?:it|this"
    r"|that|my|the|score|rating|verdict|choice|pick)){0,4}\sto\s(\d{1,4})(?![\d.]*\d)"
)
"""A number the judge calls its own or the best after its verdict."""
_REVISES = re.compile(
    r"(?i)[\W_]*(?:wait|hmm+|hold on|actually|on (?:second thoughts?|reflection)|(?:looking|reading"
    r"|checking|thinking) (?:again|closer|it over)|"
    r"(?:after|upon|having) (?:re|check|compar|look|consider|reflect|a closer|closer|second|further"
    r"|weigh)\w*|i (?:mis|was wrong|made|got|must|have to|"
    r"need to|re-?\w+|should|take|apolog)|let me|re-?(?:read|check|consider|visit|evaluat)\w*"
    r"|correction|corrected|edit\b|sorry|apologies|oops|"
    r"my mistake|no\b|scratch|revis\w*|moment\b|nein\b|korrektur|non\b|pardon|erreur|espera"
    r"|correcci|perd[oó]n|等|不对|抱歉|更正|修正|重新|再|经过|"
    r"仔细|我(?:看错|弄错|写错|改))"
)
"""How a judge begins to revise its verdict; a quotation is introduced otherwise."""
_LABELLED = re.compile(
    r"(?:^|[\n.;。；|])[ \t*_#>|\d.)\-]*([^\n.;:：。；|<>]{2,60})(?:[:：|]|\s[-–—])[ \t*_|]*$"
)
_OF_THE_WHOLE = re.compile(
    r"(?i)\b(?:score|rating|verdict|best|better|answer|final|overall|total|my|result|decision)\b"
    r"|评分|得分|总|最佳|最好|最终|结论|回答|我的|结果"
)
_PROVISIONAL = re.compile(
    r"(?i)\b(?:first|initial\w*|preliminary|provisional|tentative\w*|draft|impression|before|raw"
    r"|base)\b|初|最早|暂定|起先|原始"
)
_VERDICT_LINE = re.compile(
    r"(?im)^[ \t*_#>\-]{0,8}(?:(?:my|the|final|overall|revised|corrected|updated"
    r"|total)\s){0,2}(?:(?:score|rating|verdict|best(?: (?:answer|response|candidate|one))?)\b"
    r"|(?:最终|综合|修正后?的?)?(?:评分|得分|分数|总分|选择)|最佳(?:回答|答案)?|最好的(?:回答|答案)?"
    r"|结论)[ \t*_]{0,4}[:：=][ \t*_]{0,4}(?:(?:answer|response|candidate|回答)\s?)?"
    r"(\d{1,4})(?![\d.])(?:\s?/\s?10\b|分)?[ \t*_.。]*$"
)
"""A verdict in words, on a line of its own."""
_PRESENTS = re.compile(
    r"(?i)\b(?:verdict|evaluation|judge?ment|result|score|rating|assessment|decision|choice)\b|评判"
    r"|评价|评分|结论|结果|判断|打分|选择"
)


def read_verdict(text: str, form: Form) -> dict[str, Any]:
    """The fields a judge's reply states, by name; one that is not stated is absent.

    A reply that is one JSON object is read as that object and nothing else. Otherwise reasoning,
    reasons, comments, fenced and quoted text are left out before tags and objects are looked for.
    Time is linear in the reply.

    Raises:
        ParseError: the reply ends inside its reasoning, is broken JSON or far too long, or a
            field's verdicts contradict each other or do not fit; where one of several stands behind
            "Final verdict:" at the end, that one counts.
    """
    if len(text) > LONGEST:
        raise ParseError(
            f"The reply has {len(text):,} characters; a verdict is read from {LONGEST:,} at most."
        )
    try:
        usual = form.usual_values(text)
        return _read_reply(text, form) if usual is None else usual
    except TwoValues as error:
        raise ParseError(
            f"The reply contradicts itself: {error}.", reply_excerpt=excerpt(text)
        ) from error
    except ParseError as error:
        error.reply_excerpt = error.reply_excerpt or excerpt(text)
        raise


def _read_reply(text: str, form: Form) -> dict[str, Any]:
    body = _unwrapped(text)
    if body.startswith("{"):
        _check_length(body)
        whole = object_at(body, 0) if body.endswith("}") else None
        if whole is not None and whole[1] == len(body):
            stated = members(whole[0], form).items()
            return {
                name: form.value(name, value)
                for name, value in stated
                if value is not None or not form.fields[name].prose
            }
    elif body.startswith('"') and body.endswith('"'):
        body = _json_string(body)
    reasoned = split_reasoning(body, later=False)
    if not reasoned.finished:
        raise ParseError(CUT_OFF)
    if reasoned.has_opening:
        return _stated(_unwrapped(reasoned.final), form, reasoned.sure)
    return _after_lone(body, reasoned, form)


def _check_length(body: str) -> None:
    if len(body) > LONGEST_STATEMENT:
        raise ParseError(
            f"The statement has {len(body):,} characters; at most {LONGEST_STATEMENT:,} are read."
        )


def _stated(body: str, form: Form, whole: bool = True) -> dict[str, Any]:
    _check_length(body)
    scan = Scan(body, form, whole)
    if _silent(scan) and ("&lt;" in body or "\\<" in body):
        scan = Scan(html.unescape(body).replace("\\<", "<").replace("\\>", ">"), form, whole)
    if _silent(scan) and (inside := _presented(scan)) is not None:
        return {**_resolved(scan), **_resolved(Scan(inside, form))}
    return _resolved(scan)


def _silent(scan: Scan) -> bool:
    return all(scan.form.fields[one.name].prose for one in scan.stated)


def _presented(scan: Scan) -> str | None:
    """The content of the only fence, introduced by "Here is my verdict:" or nothing; None for none."""
    fences = [token for token in scan.tokens if token.name == "<fence"]
    if len(fences) != 2:
        return None
    after = scan.text[fences[1].end :].strip("`~ \n")
    reasons = [part for part in scan.read if part[1] <= fences[0].start]
    before = scan.text[reasons[-1][1] if reasons else 0 : fences[0].start]
    spoken = f"{before.strip().rstrip(':：')} {after}".strip()
    if (
        len(spoken) > 300
        or _SPEAKS_OF_TEXT.search(spoken)
        or not (_PRESENTS.search(before) or reasons and not spoken)
    ):
        return None
    return scan.text[fences[0].end : fences[1].start].partition("\n")[2]


def _after_lone(body: str, reasoned: Reasoned, form: Form) -> dict[str, Any]:
    """The fields after a closing tag that nothing opened.

    Where the reply itself leads to the tag, it may be a quoted one: inside a reason or an object,
    or in words behind a verdict that began the reply. Then both readings must agree.
    """
    final = reasoned.final
    _check_length(final)
    if body.startswith("{") and not _LIKE_JSON.match(body):
        return _stated(_unwrapped(final), form, reasoned.sure)
    whole, place = Scan(body, form), len(body) - len(final)
    inside = next(
        (part for part in [*whole.read, *whole.doubted] if part[0] < place <= part[1]), None
    )
    # an object, or a reason in a reply that begins with its elements, holds the tag: it is quoted
    if inside is not None and (body[inside[0]] == "{" or body[0] == "<"):
        return _resolved(whole)
    stated = _stated(_unwrapped(final), form, reasoned.sure)
    # thoughts do not begin with a verdict; a reply that does may quote such a tag
    first = next((one for one in whole.stated if not form.fields[one.name].prose), None)
    early = (
        first is not None
        and first.start < _EARLY
        and (_PRESENTS.search(body, 0, first.start) or not body[: first.start].strip())
        and re.search(r"\w", reasoned.reasoning[first.end :])
    )
    read = _resolved(whole) if early or inside is not None else stated
    if any(
        read.get(name) != value for name, value in stated.items() if not form.fields[name].prose
    ):
        raise ParseError(
            "A closing tag of reasoning stands after a verdict or inside a reason, and it is "
            "unclear where the verdict begins."
        )
    return stated


def _unwrapped(text: str) -> str:
    """The text without invisible characters, full-width brackets and an enclosing fence or quotes."""
    text = turn_text(text)
    if not text.isascii():
        text = visible(text)
        if "＜" in text:
            text = (
                text.replace("＜", "<").replace("＞", ">").replace("</ ", "</").replace("<／", "</")
            )
    text = text.strip()
    mark = text[:3]
    if mark in ("```", "~~~"):
        _, line, inside = text.partition("\n")
        body, fence, after = inside.rpartition(f"\n{mark}")
        if (
            line
            and fence
            and (not after.strip(mark[0]) or mark not in body or body.lstrip().startswith("{"))
        ):
            return f"{body.strip()}{after.lstrip(mark[0])}".strip()
        if not line and len(text) > 6 and text.endswith(mark):
            return re.sub(r"^(?:json|xml)\s*", "", text[3:-3].strip())
    elif (text[:2], text[-2:]) in (("`{", "}`"), ("'{", "}'"), ("“<", ">”")) and text[
        -1
    ] not in text[1:-1]:
        return text[1:-1].strip()
    return text


def _json_string(body: str) -> str:
    """The text in a JSON string; the body itself if it is none."""
    try:
        return str(json.loads(body)).strip()
    except (ValueError, RecursionError):
        return body


def _resolved(scan: Scan) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, field in scan.form.fields.items():
        own = [one for one in scan.stated if one.name == name]
        if any(not one.doubtful for one in own):
            broken = [one for one in scan.broken if one.name == name]
            own = sorted([*own, *broken], key=lambda one: one.start) if broken else own
            out[name] = (
                field.read(own[0].value)
                if field.prose
                else _one_value(scan.text, name, own, scan.form)
            )
            if name.lower() in scan.form.in_words:
                _check_words_agree(scan, name, out[name])
    for name in (
        name for name, field in scan.form.fields.items() if not field.prose and name not in out
    ):
        ended = _cut_off(scan, name)
        if ended is None and name.lower() in scan.form.in_words - {t.name for t in scan.tokens}:
            ended = _last_line(scan)
        if ended is not None:
            out[name] = scan.form.value(name, ended)
    if any(isinstance(value, bool) for value in out.values()):
        _check_not_turned(scan.text, max(one.end for one in scan.stated))
    if any(scan.text[one.start] == "{" for one in scan.stated):
        _check_nothing_left_over(scan)
    return out


def _cut_off(scan: Scan, name: str) -> str | None:
    """The value after a last, unclosed tag on its own line, as a stop sequence leaves it; None for
    none.
    """
    own = [
        token
        for token in scan.tokens
        if token.name == name.lower() and not _left_out(scan, token.start)
    ]
    if len(own) != 1 or scan.tokens[-1] is not own[0] or not own[0].opens:
        return None
    value = scan.text[own[0].end :].strip()
    before = scan.text[: own[0].start].rstrip(" \t")
    if (
        (before and before[-1] not in "\n>")
        or before.rstrip().endswith((":", "："))
        or not 0 < len(value) <= 40
        or "\n" in value
    ):
        return None
    high = scan.form.fields[name].high
    # a cut may leave the first digit only: 1 may have been 10; a choice is never read this way
    return (
        None
        if high is None or name == "best" or value.isdigit() and 10 * int(value) <= high
        else value
    )


def _last_line(scan: Scan) -> str | None:
    """The number of the only line such as "Score: 7/10", at the end of the reply; None for none."""
    lines = [line for line in _verdict_lines(scan) if not _left_out(scan, line.start())]
    if len(lines) != 1 or scan.objects or scan.text[lines[0].end() :].strip():
        return None
    return None if scan.text[: lines[0].start()].rstrip().endswith((":", "：")) else lines[0][1]


def _verdict_lines(scan: Scan) -> Iterator[re.Match[str]]:
    return itertools.islice(_VERDICT_LINE.finditer(scan.text), 50)


def _left_out(scan: Scan, place: int) -> bool:
    return any(start <= place < end for start, end in (*scan.read, *scan.doubted))


def _one_value(text: str, name: str, own: list[StatedValue], form: Form) -> Any:
    real = [
        one for one in own if not (isinstance(one.value, str) and _PLACEHOLDER.fullmatch(one.value))
    ] or own
    values: list[Any] = []
    for one in real:
        try:
            values.append(form.value(name, one.value))
        except ParseError as error:
            values.append(error)
    value, readable = values[-1], not isinstance(values[-1], ParseError)
    if any(other != values[0] for other in values[1:]) and not (
        readable and _is_revised(text, real)
    ):
        stated = ", ".join(excerpt(str(one.value)[:80], 20) for one in real[:4])
        raise ParseError(f"<{name}> is stated {len(real)} times, and not alike: {stated}.")
    if not readable:
        raise value
    _check_not_retracted(text, name, value, real[-1].end)
    return value


def _is_revised(text: str, stated: list[StatedValue]) -> bool:
    """Whether the judge itself, and no quoted text, calls the last of several verdicts final.

    It directly follows the one before, begins by taking that back ("Wait, …"), or the ones before
    have other labels ("First impression:", "Accuracy:"). Any other sentence between them may
    introduce a quotation.
    """
    final, before = stated[-1], stated[:-1]
    behind = text[final.end :].strip()
    if (
        not final.marked
        or len(behind) > 120
        or _SPEAKS_OF_TEXT.search(behind)
        # a quotation may have ended an object early; then nothing after it is final
        or any(one.marked or one.doubtful or text[one.start] == "{" for one in before)
    ):
        return False
    for one, after in zip(before, before[1:], strict=False):
        if _SPEAKS_OF_TEXT.search(text, one.end, after.start) and not _of_a_part(text, after):
            return False
    between = text[before[-1].end : final.start]
    if label := FINAL.search(between):
        between = between[: len(between) - len(label[0])]
    return not (len(between) > 300 or _SPEAKS_OF_TEXT.search(between)) and (
        not re.search(r"\w", between)
        or bool(_REVISES.match(between))
        or all(_of_a_part(text, one) for one in before)
    )


def _of_a_part(text: str, one: StatedValue) -> bool:
    """Whether the label before a verdict calls it provisional or names only one aspect."""
    label = _LABELLED.search(text[max(0, one.start - 120) : one.start])
    return label is not None and bool(
        _PROVISIONAL.search(label[1]) or not _OF_THE_WHOLE.search(label[1])
    )


def _check_not_retracted(text: str, name: str, value: Any, end: int) -> None:
    """Raises ParseError if the judge then names another number after "wait" or as its own."""
    structured = (
        isinstance(value, dict | list) or isinstance(value, str) and value[:1] in ("{", "[")
    )
    if isinstance(value, bool) or not (structured or isinstance(value, int | float)):
        return
    after = text[end : end + 2000]
    for retraction in (*_RETRACTED.finditer(after), *_STATED_AGAIN.finditer(after)):
        named = [
            number_named("".join(match.groups("")))
            for match in _NAMED_INSTEAD.finditer(retraction[0])
        ]
        named += [number_named(digits) for digits in retraction.groups() if digits]
        takes_back = named and named[-1] != value
        if takes_back and not _SPEAKS_OF_TEXT.search(after[: retraction.start()]):
            raise ParseError(
                f"<{name}> is {value}, and then the reply takes it back: "
                f"{excerpt(retraction[0], 40)}"
            )


def _check_not_turned(text: str, end: int) -> None:
    """Raises ParseError if the judge then changes a yes or no after "wait"."""
    for retraction in _RETRACTED.finditer(text[end : end + 2000]):
        if _TURNED.search(retraction[0]) and not _SPEAKS_OF_TEXT.search(
            text, end, end + retraction.start()
        ):
            raise ParseError(
                f"Yes and no are stated, and then the reply takes it back: "
                f"{excerpt(retraction[0], 40)}"
            )


def _check_words_agree(scan: Scan, name: str, value: Any) -> None:
    """Raises ParseError if the only verdict line in words differs: the tag may be a quotation."""
    if isinstance(value, int) and not isinstance(value, bool):
        in_words = {
            int(line[1])
            for line in _verdict_lines(scan)
            if not any(a <= line.start() < b for a, b in scan.read)
        }
        if len(in_words) == 1 and in_words != {value}:
            raise ParseError(f"<{name}> is {value}, and the reply says {in_words.pop()} in words.")


def _check_nothing_left_over(scan: Scan) -> None:
    """Raises ParseError if members follow after their object: a quotation ended the object early."""
    position = 0
    for start, end in [*scan.read, (len(scan.text), len(scan.text))]:
        if scan.form.member.search(scan.text, position, start):
            raise ParseError("The reply goes on after its object as if it had not ended.")
        position = end
