"""Texts and numbers as people see them: safe for a terminal, nothing hidden, secrets masked, cut to
what one reads, told apart.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

_UNSEEN = re.compile(
    r"[\u202a-\u202e\u2066-\u2069\u200b\ufeff\u2060-\u2064\U000e0000-\U000e007f\ufff9-\ufffb]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -~]?"
)


def one_line(text: str, limit: int | None = None) -> str:
    """Text from outside for a terminal, at most `limit` long: no escape sequences; controls and
    what reorders text become spaces.
    """
    if limit is not None:
        text = text[: 20 * limit]
    text = " ".join(plain_line(_ESCAPES.sub("", text)).split())
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def plain_line(text: str) -> str:
    """As `one_line`, with the spaces as they are: for lines in columns."""
    return "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text
    )


def visible(text: str) -> str:
    """Text from outside with what hides in it made visible: controls, what turns the direction,
    what has no width.

    Line ends become line feeds; characters that are none (lone surrogates) become U+FFFD.
    """
    text = (
        text.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\u2028", "\n")
        .replace("\u2029", "\n")
    )
    text = _UNSEEN.sub(lambda match: f"⟦U+{ord(match.group()):04X}⟧", text)
    return _CONTROL.sub(_pictured, text)


def _pictured(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


def cut(text: str, limit: int) -> str:
    """Text of at most about `limit` bytes of UTF-8: its beginning and its end, and how much is left
    out between.
    """
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


def told_apart(
    value: float, limit: float, shown: Callable[[float, int], str], digits: int
) -> tuple[str, str]:
    """Two different numbers as text, with `digits` or as many more as it takes to see that they
    differ.
    """
    for more in range(digits, 18):
        texts = shown(value, more), shown(limit, more)
        if texts[0] != texts[1]:
            return texts
    return repr(value), repr(limit)


MASK = "***"
_WORDS = re.compile(r"[^a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Last words of a key that name a secret; `max_tokens`, `api_key_env` and a tokenizer's `eos_token`
# do not.
_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|apikey|access_?key|private_?key|secret_?key|subscription_?key|auth"
    r"|authorization|password|passwd|"
    r"passphrase|secret|credentials?|cookie|bearer|token)$"
)
_TOKENIZER = re.compile(r"(^|_)(bos|eos|pad|unk|sep|cls|mask|stop|start|end|image|special)_token$")
_SECRET_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"\b(sk|pk|hf|ghp|gho|xoxb)[-_][\w-]{12,}"), rf"\1-{MASK}"),
    (re.compile(r"(://)[^/\s:@]+:[^/\s@]+@"), rf"\1{MASK}@"),
    (
        re.compile(r"(?i)([?&](?:api[-_]?key|key|token|sig|signature|password)=)[^&\s#]+"),
        rf"\1{MASK}",
    ),
)


def redact(obj: Any) -> Any:
    """A copy with `***` in place of secrets: values of telling keys, and keys and passwords inside
    texts and URLs.
    """
    if isinstance(obj, Mapping):
        return {
            key: MASK if _is_secret(key, value) else redact(value) for key, value in obj.items()
        }
    if isinstance(obj, str):
        for pattern, replacement in _SECRET_TEXT:
            obj = pattern.sub(replacement, obj)
        return obj
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [
            redact(value)
            for value in (obj if isinstance(obj, (list, tuple)) else sorted(obj, key=repr))
        ]
    return obj


def _is_secret(key: object, value: object) -> bool:
    if (
        not isinstance(key, str)
        or value is None
        or isinstance(value, (bool, int, float))
        or value in ("", MASK)
    ):
        return False
    name = "_".join(_words(key))
    return bool(_SECRET_KEY.search(name)) and not _TOKENIZER.search(name)


def _words(name: str) -> list[str]:
    """The words of a name: apiKey and X-Api-Key are spelled like api_key."""
    return [word for word in _WORDS.split(_HUMP.sub("-", name).lower()) if word]


_CREDENTIALS = frozenset(
    "authorization auth bearer cookie token apikey secret password passwd credential credentials "
    "signature sig jwt api-key access-key account-key auth-key subscription-key private-key functions-key virtual-key".split()
)


def is_credential(name: str) -> bool:
    """Whether a header, query parameter or field of this name holds a credential."""
    words = [word for word in _words(name) if word != "x"]
    pairs = (f"{a}-{b}" for a, b in zip(words, words[1:], strict=False))
    return (
        words == ["key"] or not _CREDENTIALS.isdisjoint(words) or not _CREDENTIALS.isdisjoint(pairs)
    )


def without_credentials(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with *** in place of credentials; numbers are none, whatever they are called
    (`stop_token_ids`).
    """
    return {
        name: MASK if is_credential(name) and not _only_numbers(value) else value
        for name, value in fields.items()
    }


def _only_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_only_numbers, value))
    return value is None or isinstance(value, (bool, int, float))


def number(value: Any, default: float = 0.0) -> float:
    """A number from a file; what is none, or not finite, is the default."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits else default
