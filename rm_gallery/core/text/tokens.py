"""Words of a text, the same on every machine: no network, no vocabulary to load."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Literal

from rm_gallery.core.utils.errors import ConfigError, MissingExtra

__all__ = ["TokenizerName", "is_unspaced", "tokenizer", "words"]

TokenizerName = Literal["words", "whitespace", "chars", "squad", "jieba"]
"""words: runs of letters and digits, each character of an unspaced script by itself; whitespace: what spaces separate;
chars: every character that is no space; squad: SQuAD's normalisation, without articles and punctuation; jieba: Chinese
words, needs the extra zh. All but squad's articles are of any language, and case never counts."""

_ASCII_WORDS = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256)
)  # lower case and separators in one pass of C
_UNSPACED = (
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def is_unspaced(code: int) -> bool:
    """Whether a character's script puts no spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
    return any(low <= code <= high for low, high in _UNSPACED)


class _Words(dict[int, str]):
    """Character by character: kept, set apart, or a separator; learned as characters turn up."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character)[0] not in "LNM":
            found = " "
        else:
            found = f" {character} " if is_unspaced(code) else character
        self[code] = found
        return found


_WORDS = _Words()


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, and each Chinese, Japanese or Thai character; other signs separate.

    Full-width and other compatibility forms count as the plain ones (NFKC).
    """
    if text.isascii():
        return text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split()
    return unicodedata.normalize("NFKC", text).casefold().translate(_WORDS).split()


def _whitespace(text: str) -> list[str]:
    return text.casefold().split()


def _chars(text: str) -> list[str]:
    return list("".join(text.casefold().split()))


def _squad(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _jieba(text: str) -> list[str]:
    try:
        import jieba
    except ImportError as error:
        raise MissingExtra("jieba", "zh", "The tokenizer 'jieba'") from error
    jieba.setLogLevel(60)
    return [token for token in jieba.lcut(text.casefold()) if any(map(str.isalnum, token))]


_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "words": words,
    "whitespace": _whitespace,
    "chars": _chars,
    "squad": _squad,
    "jieba": _jieba,
}


def tokenizer(name: str) -> Callable[[str], list[str]]:
    """The tokenizer of this name; ConfigError lists the names there are."""
    found = _TOKENIZERS.get(name)
    if found is None:
        raise ConfigError(f"There is no tokenizer '{name}'; choose one of {', '.join(_TOKENIZERS)}.")
    return found
