"""Texts and numbers as people see them: safe for a terminal, nothing hidden, cut to what one reads, told apart."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable

_UNSEEN = re.compile(r"[\u202a-\u202e\u2066-\u2069\u200b\ufeff\u2060-\u2064\U000e0000-\U000e007f\ufff9-\ufffb]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def one_line(text: str) -> str:
    """Text from outside for a terminal: control characters and what reorders text become spaces."""
    return " ".join(plain_line(text).split())


def plain_line(text: str) -> str:
    """As `one_line`, with the spaces as they are: for lines in columns."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text)


def visible(text: str) -> str:
    """Text from outside with what hides in it made visible: controls, what turns the direction, what has no width.

    Line ends become line feeds; characters that are none (lone surrogates) become U+FFFD.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    text = _UNSEEN.sub(lambda found: f"⟦U+{ord(found.group()):04X}⟧", text)
    return _CONTROL.sub(_pictured, text)


def _pictured(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


def cut(text: str, limit: int) -> str:
    """Text of at most about `limit` bytes of UTF-8: its beginning and its end, and how much is left out between."""
    if len(text) <= limit // 4 or len(raw := text.encode("utf-8", "replace")) <= limit:
        return text
    head = raw[: limit * 3 // 4].decode("utf-8", "ignore")
    tail = raw[-(limit // 4) :].decode("utf-8", "ignore") if limit >= 80 else ""
    return f"{head}\n⟦… {len(text) - len(head) - len(tail):,} characters left out …⟧\n{tail}"


def excerpt(text: str, length: int = 120) -> str:
    """First and last characters of a long text, on one line and without control characters."""
    if len(text) > 8 * length:
        text = f"{text[: 4 * length]}{text[-4 * length :]}"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 2 * length else f"{text[:length]} … {text[-length:]}"


def ended(text: str, limit: int) -> str:
    """Text of at most `limit` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show(value: float | None, digits: int = 3) -> str:
    """A number for people: some three digits, never a long tail; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size and (size >= 1e6 or size < 1e-3):
        return f"{value:.2g}".replace("-", "−")
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.{digits}g}"
    return text.replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def told_apart(value: float, limit: float, shown: Callable[[float, int], str], digits: int) -> tuple[str, str]:
    """Two different numbers as text, with `digits` or as many more as it takes to see that they differ."""
    for more in range(digits, 18):
        texts = shown(value, more), shown(limit, more)
        if texts[0] != texts[1]:
            return texts
    return repr(value), repr(limit)
