"""What a judge's reply copies from the material it judges: a verdict in such a passage is the
material's own, not the judge's.

A judge that repeats an answer before it decides, or is cut off while it quotes, would else hand
over the score that the answer gives itself. So passages that stand in the prompt's fenced texts are
blanked before a verdict is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from rm_gallery.core.text.canonical import visible
from rm_gallery.core.text.statements import REASONS

_SHORTEST = 40
"""Characters alike from which on a passage counts as copied, blanks and signs of quoting not
counted; of a shorter text all of it. A bare verdict is shorter, so that an answer cannot make the
judge's own unreadable by writing down every one there is."""
_OWN_SIGNS = 3
"""Characters that a short text has beside tags and numbers, where several are compared: one that is
nothing but a verdict in the judge's own form cannot be told from the judge's, and would cost the
others theirs."""
_DROPPED = dict.fromkeys(map(ord, " \t\n\r\f\v>\"'`*_\\|\u201c\u201d\u00a0"))
_NUMBER = re.compile(r"\d+")


def without_echoes(
    reply: str, material: Collection[tuple[str, str]], names: tuple[str, ...]
) -> str:
    """The reply with blanks for what it copies from fenced texts, each with its tag, that name a
    field of the verdict, one of `names`. Linear in both.
    """
    field = _naming(names)
    telling = tuple([text for _, text in material if field.search(_lower(text))])
    if not telling:
        return reply
    answers = sum(tag.startswith(("answer", "response")) for tag, _ in material)
    return _blanked(reply, telling, answers <= 1, field.pattern)


@lru_cache(maxsize=256)
def _naming(names: tuple[str, ...]) -> re.Pattern[str]:
    """The names of fields in a text of one case."""
    return re.compile("|".join(re.escape(name.lower().replace("_", "")) for name in names))


def _blanked(reply: str, texts: tuple[str, ...], one: bool, fields: str) -> str:
    """The reply with blanks for what it copies from these texts; of `one` answer alone, what makes
    the judge unreadable costs nobody else.
    """
    passages, short = _passages(texts, fields, one)
    if not (passages or short):
        return reply
    plain, exact = _compared(reply), _compared(reply, digits=True)
    spans = [
        (at, at + _SHORTEST)
        for at in _near(plain, fields)
        if plain[at : at + _SHORTEST] in passages
    ]
    as_written = [span for text, _ in short for span in _found(text, exact)]
    if not as_written:  # a copy may have another number, which is no more the judge's own
        spans += [
            span for written, text in short if text != written for span in _found(text, plain)
        ]
    copied = _places(reply, spans, digits=False) | _places(reply, as_written, digits=True)
    if not copied:
        return reply
    return "".join(
        " " if place in copied and sign != "\n" else sign for place, sign in enumerate(reply)
    )


def _found(text: str, where: str) -> list[tuple[int, int]]:
    """Where a text stands in another."""
    return [match.span() for match in re.finditer(re.escape(text), where)]


def is_copied(words: str, texts: Iterable[str]) -> bool:
    """Whether words stand in a text as they are, whatever its blanks and signs of quoting; of few
    words nobody can tell. Linear.
    """
    plain = _compared(words, digits=True)
    return len(plain) >= _SHORTEST and any(plain in _compared(text, digits=True) for text in texts)


@lru_cache(maxsize=64)
def _passages(
    texts: tuple[str, ...], fields: str, one: bool
) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Passages of the shortest length near a field's name, and texts that are shorter and hold more
    than a verdict.
    """
    passages: set[str] = set()
    short: list[tuple[str, str]] = []
    bare = re.compile(
        rf"</?(?:{'|'.join(name for name in REASONS if name.isascii())}|answer)|<?/?(?:{fields}):?|\d"
    )
    begun = re.compile(rf"<(?:{fields})[^<]{{1,20}}|(?:{fields}):[^,:]{{1,20}}")
    for text in texts:
        plain = _compared(text)
        if not begun.search(plain):  # a tag alone would make that of the judge unreadable
            continue
        if len(plain) < _SHORTEST:
            more = len(bare.sub("", plain)) >= _OWN_SIGNS
            if more or one:
                exact = _compared(text, digits=True)
                short.append((exact, plain if more else exact))
        passages.update(plain[at : at + _SHORTEST] for at in _near(plain, fields))
    return frozenset(passages), tuple(short)


def _near(plain: str, fields: str) -> Iterator[int]:
    """Where in a text passages of the shortest length begin that name a field or stand beside one."""
    begin = 0
    for mark in re.finditer(fields, plain):
        end = min(len(plain), mark.end() + _SHORTEST) - _SHORTEST + 1
        yield from range(max(begin, mark.start() - _SHORTEST), end)
        begin = max(begin, end)


def _compared(text: str, digits: bool = False) -> str:
    """The text in one case, without blanks, signs of quoting and what cannot be seen; numbers are
    alike unless `digits` count.
    """
    plain = _lower(text).translate(_DROPPED)
    return plain if digits else _NUMBER.sub("0", plain)


def _lower(text: str) -> str:
    return visible(text).lower().replace("_", "")


def _places(text: str, spans: list[tuple[int, int]], digits: bool) -> set[int]:
    """Where the characters of spans of the compared text stand in the text itself."""
    if not spans:
        return set()
    places: list[tuple[int, int]] = []
    after_digit = False
    for place, sign in enumerate(text):
        for _ in visible(sign).lower().translate(_DROPPED):
            if not digits and sign.isdecimal() and after_digit:
                places[-1] = places[-1][0], place
            else:
                places.append((place, place))
            after_digit = sign.isdecimal()
    return {
        place
        for start, end in spans
        for at in range(start, min(end, len(places)))
        for place in range(places[at][0], places[at][1] + 1)
    }
