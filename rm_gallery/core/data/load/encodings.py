"""Which encoding a text file is in: read off the bytes, and left at UTF-8 where they do not say it clearly."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import IO

from rm_gallery.core.utils.errors import ConfigError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
WIDE = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"})
"""Encodings in which a line does not end with the byte of a line feed."""
_HEAD, _CHUNK, _ENOUGH = 4096, 1 << 20, 1 << 18
_WESTERN = frozenset(
    "äöüÄÖÜßéèêëáàâãåçíìîïñóòôõøúùûýæœÉÈÊËÁÀÂÃÅÇÍÌÎÏÑÓÒÔÕØÚÙÛÆŒšžŠŽ¿¡«»‹›„“”‚‘’–—…•·°§€£¥©®™´µ×²³½¼¾±¹ºª\xa0¦¬¨"
)
_SIGN_IN_WORD = re.compile(r"(?<=[^\W\d_])[¿¡³¹²¼½¾±×»«¦¬º£](?=[^\W\d_])")
_KOREAN_TELLS = 20
"""Characters it takes to tell Korean from Chinese: their bytes overlap."""


def detect_encoding(opened: Callable[[], AbstractContextManager[IO[bytes]]]) -> str:
    """Name of the encoding of what `opened` gives, by Python's names.

    A byte order mark decides, then valid UTF-8, then bytes that are 0 (UTF-16), then what the text would be: kana
    (Shift-JIS, EUC-JP), Hangul, common Chinese characters (GB 18030), Western letters and quotes (cp1252). Where none fits, or
    most lines are UTF-8, it is `utf-8`, and the lines that are not are named when they are read.
    """
    with opened() as file:
        head = file.read(_HEAD)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if zeros := head.count(0):
        odd = head[1::2].count(0)
        if zeros > len(head) // 4 and max(odd, zeros - odd) > 0.9 * zeros:
            return "utf-16-le" if odd * 2 > zeros else "utf-16-be"
    with opened() as file:
        if _is_utf8(iter(lambda: file.read(_CHUNK), b"")):
            return "utf-8"
    with opened() as file:
        return _by_content(file)


def check_encoding(name: str) -> str:
    """The name, when Python knows a text encoding of that name; else ConfigError."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        raise ConfigError(f"encoding is {name!r}; give one such as utf-8, utf-16, cp1252, gb18030 or shift_jis.") from None
    return name


def _is_utf8(chunks: Iterable[bytes]) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _by_content(lines: Iterable[bytes]) -> str:
    fine, strange, size = 0, [], 0
    for line in lines:
        if line.isascii():
            continue
        if _is_utf8([line]):
            fine += 1
            continue
        strange.append(line)
        size += len(line)
        if size > _ENOUGH:
            break
    if fine >= len(strange):
        return "utf-8"
    sample = b"".join(strange)
    return next((name for name, fits in _CANDIDATES if fits(sample)), "utf-8")


def _beyond_ascii(sample: bytes, encoding: str) -> str:
    """The characters that are no ASCII; empty where the bytes are not of this encoding."""
    try:
        return "".join(character for character in sample.decode(encoding) if character > "\x7f")
    except UnicodeDecodeError:
        return ""


def _share(text: str, belongs: Callable[[str], bool]) -> float:
    return sum(map(belongs, text)) / max(1, len(text))


def _is_kana(character: str) -> bool:
    return "぀" <= character <= "ヿ"


def _is_shift_jis(sample: bytes) -> bool:
    text = _beyond_ascii(sample, "cp932")
    return _share(text, _is_kana) >= 0.2 and _share(text, lambda c: "｡" <= c <= "ﾟ") < 0.1


def _is_euc_jp(sample: bytes) -> bool:
    return _share(_beyond_ascii(sample, "euc_jp"), _is_kana) >= 0.2


def _is_korean(sample: bytes) -> bool:
    text = _beyond_ascii(sample, "cp949")
    return len(text) >= _KOREAN_TELLS and _share(text, lambda c: "가" <= c <= "힣") > 0.9


def _is_chinese(sample: bytes) -> bool:
    text = _beyond_ascii(sample, "gb18030")
    known = text.encode("gb2312", "ignore")
    common = sum(0xB0 <= lead <= 0xD7 or 0xA1 <= lead <= 0xA3 for lead in known[::2])
    # other alphabets of one byte a letter fall among the rare characters
    return bool(text) and len(known) / 2 >= 0.9 * len(text) and common >= 0.7 * len(text)


def _is_western(sample: bytes) -> bool:
    text = _beyond_ascii(sample, "cp1252")
    letters = sum(map(bytes.isalpha, (sample[i : i + 1] for i in range(len(sample)))))
    if not text or _share(text, _WESTERN.__contains__) < 0.95 or len(text) >= 0.5 * (letters + len(text)):
        return False
    # letters of central Europe look like signs in the middle of words
    return len(_SIGN_IN_WORD.findall(sample.decode("cp1252"))) <= 0.1 * len(text)


_CANDIDATES: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("cp932", _is_shift_jis),
    ("euc_jp", _is_euc_jp),
    ("cp949", _is_korean),
    ("gb18030", _is_chinese),
    ("cp1252", _is_western),
)
