"""Detects the language of a text by its script and function words, without a model."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rm_gallery.core.text.canonical import FilledTable, is_unspaced, normalized
from rm_gallery.core.utils.errors import ConfigError, MissingExtra


@cache
def word_table(name: str) -> dict[str, Any]:
    """The table `languages.yaml` or `units.yaml` of this package."""
    import yaml

    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def function_words(language: str) -> list[str]:
    """Frequent words of a language (ISO 639-1) that carry little meaning."""
    return list(word_table("languages")["function_words"][language].split())


NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
"""English numbers below twenty."""

TokenizerName = Literal["words", "whitespace", "chars", "squad", "jieba"]
"""words: runs of letters and digits, each character of an unspaced script by itself; whitespace:
what spaces separate; chars: every character that is no space; squad: SQuAD's normalisation, without
articles and punctuation; jieba: Chinese words, needs the extra zh. All but squad's articles are of
any language, and case never counts."""

_ASCII_WORDS = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256)
)  # lower case and separators in one pass of C
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _spaced(character: str) -> str:
    """The character; between spaces in a script without them; a space for what is no letter."""
    if unicodedata.category(character)[0] not in "LNM":
        return " "
    return f" {character} " if is_unspaced(character) else character


_WORDS = FilledTable(_spaced)


def words(text: str, cased: bool = False) -> list[str]:
    """Runs of letters and digits, in lower case unless `cased`, and each Chinese, Japanese or Thai
    character; other signs separate.

    Full-width and other compatibility forms count as the plain ones (NFKC).
    """
    if text.isascii() and not cased:
        return text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split()
    plain = normalized("NFKC", text)
    return (plain if cased else plain.casefold()).translate(_WORDS).split()


def _jieba(text: str) -> list[str]:
    try:
        import jieba
    except ImportError as error:
        raise MissingExtra("jieba", "zh", "The tokenizer 'jieba'") from error
    jieba.setLogLevel(60)
    return [token for token in jieba.lcut(text.casefold()) if any(map(str.isalnum, token))]


def _squad(text: str) -> list[str]:
    plain = text.lower().translate(_NO_PUNCTUATION)
    return _ARTICLES.sub(" ", plain).split() or plain.split()  # an answer "A" is no article


_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "words": words,
    "whitespace": lambda text: text.casefold().split(),
    "chars": lambda text: list("".join(text.casefold().split())),
    "squad": _squad,
    "jieba": _jieba,
}


def tokenizer(name: str) -> Callable[[str], list[str]]:
    """The tokenizer of this name; ConfigError lists the names there are."""
    if name not in _TOKENIZERS:
        raise ConfigError(
            f"There is no tokenizer '{name}'; choose one of {', '.join(_TOKENIZERS)}."
        )
    return _TOKENIZERS[name]


UNKNOWN = "und"
"""ISO 639's code for an undetermined language."""

_WORD_END = re.compile(r"[\s\d.,;:!?\"'’“”«»()\[\]{}<>*_/|\\…،؛؟۔।—–=+~`#-]+")
_GENITIVE = re.compile(r"['’]s\b")
_ALIASES = {"iw": "he", "nb": "no", "nn": "no", "in": "id"}
_JAPANESE_SHARE = 0.05
_DENSE = {"han": 3, "kana": 3, "hangul": 2}
"""Letters of other scripts that say as much as one of these."""
_MARK_WEIGHT = 0.5
_LETTER_WEIGHT = 0.3
"""A single letter may be a name, a unit or a choice as well."""
_SHORT_HAN = 16
_CHINESE_ONLY = frozenset(
    "的了是我你您他她们这那哪吗呢吧啊不在有没和就都很为会说个什么请还把被让过着"
)
_SHORT_WORDS = 3
"""Letters up to which a text in a shared script may be in any of its languages."""
_NEAR = 0.85
_ENOUGH_WORDS = 20
_LEAST_SHARE = 0.05


def known_language(code: str) -> str | None:
    """The code as used here (zh-cn is zh); None for a language that is not detected."""
    base = code.strip().lower().replace("_", "-").partition("-")[0]
    base = _ALIASES.get(base, base)
    return (
        base
        if any(
            base in script["languages"] for script in word_table("languages")["scripts"].values()
        )
        else None
    )


def candidate_languages(text: str) -> frozenset[str]:
    """ISO 639-1 codes of the languages the text may be in: one for a text of some length, several
    when it is too short.

    Empty for a text without letters; `und` for a text of twenty words or more that fits no language
    known here. Where scripts are mixed, the one with the most letters counts.
    """
    scripts = word_table("languages")["scripts"]
    counts = dict.fromkeys(scripts, 0)
    for character, count in Counter(text).items():
        script = _script_of(character) if character.isalpha() else None
        if script is not None:
            counts[script] += count
    if not any(counts.values()):
        return frozenset()
    eastern = counts["han"] + counts["kana"]
    # a Japanese text is largely Chinese characters
    counts["han"], counts["kana"] = (
        (0, eastern) if counts["kana"] > _JAPANESE_SHARE * eastern else (eastern, 0)
    )
    main = max(counts, key=lambda script: counts[script] * _DENSE.get(script, 1))
    if main == "han" and eastern <= _SHORT_HAN and not _CHINESE_ONLY.intersection(text):
        return frozenset({"zh", "ja"})  # a name or a title in Chinese characters is both
    languages = tuple(scripts[main]["languages"])
    return frozenset(languages) if len(languages) == 1 else _by_words(text.lower(), languages)


@lru_cache(maxsize=4096)
def _script_of(character: str) -> str | None:
    scripts = word_table("languages")["scripts"]
    return next(
        (
            name
            for name, one in scripts.items()
            if any(a <= ord(character) <= b for a, b in one["ranges"])
        ),
        None,
    )


def _by_words(text: str, languages: tuple[str, ...]) -> frozenset[str]:
    tokens = [token for token in _WORD_END.split(_GENITIVE.sub(" ", text)) if token]
    table, marks = _word_weights(languages), _word_weights(languages, marks=True)
    scores: dict[str, float] = dict.fromkeys(languages, 0.0)
    for token, count in Counter(tokens).items():
        for language, weight in table.get(token, ()):
            scores[language] += (weight if len(token) > 1 else _LETTER_WEIGHT * weight) * count
    for character, count in Counter(text).items():
        for language, weight in marks.get(character, ()):
            scores[language] += _MARK_WEIGHT * weight * count
    best = max(scores.values())
    if sum(map(len, tokens)) <= _SHORT_WORDS and not any(c in marks for c in text):
        return frozenset(languages)  # "hi", "no", "OK"
    if len(tokens) >= _ENOUGH_WORDS and best < _LEAST_SHARE * len(tokens):
        return frozenset({UNKNOWN})
    return frozenset(language for language, score in scores.items() if score >= _NEAR * best)


@lru_cache(maxsize=16)
def _word_weights(
    languages: tuple[str, ...], marks: bool = False
) -> dict[str, list[tuple[str, float]]]:
    """Per function word (or mark) the languages that have it; shared ones weigh less for each."""
    owners: dict[str, list[str]] = {}
    for language in languages:
        entries = (
            word_table("languages")["marks"].get(language, "")
            if marks
            else function_words(language)
        )
        for entry in set(entries):
            owners.setdefault(entry, []).append(language)
    return {
        entry: [(language, 1 / len(named)) for language in named] for entry, named in owners.items()
    }


_EASTERN = "CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA IDEOGRAPHIC".split()


class LanguageShares(NamedTuple):
    """Share of words per language, number of words, and candidate languages of the largest part."""

    shares: dict[str, float]
    words: int
    main: frozenset[str]


@lru_cache(maxsize=8192)
def _script(character: str) -> str:
    script = unicodedata.name(character, "UNKNOWN").split(" ", 1)[0]
    return "CJK" if script in _EASTERN else script


def language_shares(text: str) -> LanguageShares:
    """The share of words in each language; each Chinese or Japanese character is a word, numbers
    are none.

    The words of one script are all in one language, as `candidate_languages` detects them; if it
    leaves a choice, each candidate has the whole share, so that shares may sum to more than 1.
    Words of no known language are `und`.
    """
    by_script: dict[str, list[str]] = {}
    for word in words(text):
        letter = next((c for c in word if c.isalpha()), None)
        if letter is not None:
            by_script.setdefault(_script(letter), []).append(word)
    total = sum(map(len, by_script.values()))
    shares: dict[str, float] = {}
    main: frozenset[str] = frozenset()
    for group in sorted(by_script.values(), key=len, reverse=True):
        languages = candidate_languages(" ".join(group)) or frozenset({UNKNOWN})
        main = main or languages
        for language in sorted(languages):
            shares[language] = shares.get(language, 0.0) + len(group) / total
    return LanguageShares(shares, total, main)


CONTROL_MARKS = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<<SYS>>"
    r"|<(?:bos|eos|pad|unk|mask|sop|eop|eoa|eoh|start_of_turn|end_of_turn|extra_(?:id_)?\d{1,3}"
    r"|SPECIAL_\d{1,4}|reserved_\d{1,4})>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT|THINK|CLS|SEP"
    r"|MASK|PAD|UNK|gMASK|BOS|EOS)\]"
)
"""Marks by which the chat templates of wide-spread models divide turns."""


def broken(text: str, marks: re.Pattern[str] = CONTROL_MARKS) -> str:
    """The text with a space inside every control mark, such as <|im_end|>.

    A tokenizer would turn the mark into its special token, and the text could end its turn and
    write the next one (chat template injection).
    """
    if marks is CONTROL_MARKS and "<" not in text and "[" not in text:  # as each of them begins
        return text
    return marks.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
