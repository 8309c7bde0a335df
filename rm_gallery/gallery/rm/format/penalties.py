"""Penalties for repeated n-grams and for personal data."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.rule import rule
from rm_gallery.core.reward.schema import EMPTY_IS_BEST, Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.canonical import readable, split_reasoning
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import read_file
from rm_gallery.gallery.rm.bounds import AS_WRITTEN, Amount, Count, Penalty, Share
from rm_gallery.gallery.rm.tokens import TokenizerSetting, tokens_of

Scope = Literal["full", "thought"]


@rule(
    "ngram_repetition_penalty",
    score_range=(-1.0, 0.0),
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "Tell me about the sea.",
            "The sea is wide, deep and never quite still.",
            "the sea is wide " * 4,
        ),
        use=EMPTY_IS_BEST,
    ),
)
def ngram_repetition_penalty(
    sample: DataSample,
    text: str,
    *,
    n: Count = 3,
    penalty_threshold: Share = 0.3,
    penalty_rate: Amount = 1.0,
    use_soft_penalty: bool = False,
    max_penalty: Penalty = -1.0,
    min_scaling: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    tokenizer: Annotated[TokenizerSetting, Field(repr=False)] = "words",
    analyze_scope: Scope = "full",
) -> Score[float]:
    """Penalty by the rate of repeated n-grams, rate = 1 - distinct n-grams / all n-grams; never
    below `max_penalty`.

    Hard (default): -(rate - `penalty_threshold`) x `penalty_rate` above the threshold, else 0.
    Soft: `max_penalty` x (rate - `min_scaling`) / (1 - `min_scaling`) above `min_scaling`, else 0;
    with its defaults this is TRL's `get_repetition_penalty_reward`, which counts token ids: give
    your model's tokenizer for it. A text shorter than n tokens gets 0. `analyze_scope="thought"`
    looks at the thought alone. Range [-1, 0], higher is better. Source: the repetition penalty of
    arXiv 2502.03373, appendix C.2, on the whole text instead of per token.

    Args:
        n: Length of the n-grams.
        use_soft_penalty: Whether the soft rule is taken instead of the hard one.
        tokenizer: What the n-grams are made of: a built-in tokenizer's name, a function, or an object with `encode`.
    """
    if analyze_scope == "thought":
        text = sample.output[0].answer.reasoning_content or split_reasoning(text).reasoning
    rate = repetition_rate(tokens_of(tokenizer or "words", text), n)
    if use_soft_penalty:
        penalty = max_penalty * max(0.0, (rate - min_scaling) / (1 - min_scaling))
    else:
        penalty = max(max_penalty, -max(0.0, rate - penalty_threshold) * penalty_rate)
    reason = f"{rate:.1%} of the {n}-grams are repetitions."
    return Score(penalty or 0.0, reason, extra={"repetition_rate": rate})


def repetition_rate(tokens: Sequence[Any], n: int) -> float:
    """Share of a text's n-grams that occurred in it before: 1 - distinct / all; 0 for fewer than
    `n` tokens.
    """
    total = len(tokens) - n + 1
    if total <= 0:
        return 0.0
    return 1 - len(set(zip(*(tokens[start:] for start in range(n)), strict=False))) / total


class PersonalDataSpan(NamedTuple):
    """Kind and place of personal data, without the data itself."""

    kind: str
    start: int
    end: int


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def is_card_number(text: str) -> bool:
    """Whether digits are a payment card's: 13 to 19 of them, a known first digit, Luhn's checksum
    (ISO/IEC 7812).
    """
    digits = _digits(text)
    if (
        not 13 <= len(digits) <= 19
        or digits[0] not in "3456"
        and not 2221 <= int(digits[:4]) <= 2720
    ):
        return False
    doubled = (int(d) * 2 if i % 2 else int(d) for i, d in enumerate(reversed(digits)))
    return len(set(digits)) > 1 and sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


_CN_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def is_cn_id(text: str) -> bool:
    """Whether 18 characters are a Chinese identity number: a date of birth and the checksum of GB
    11643.
    """
    if sum(w * int(c) for w, c in zip(_CN_WEIGHTS, text, strict=False)) % 11 != "10X98765432".index(
        text[17].upper()
    ):
        return False
    try:
        return 1850 <= date(int(text[6:10]), int(text[10:12]), int(text[12:14])).year
    except ValueError:
        return False


def is_iban(text: str) -> bool:
    """Whether a text is an IBAN: two letters, checksum modulo 97 (ISO 13616)."""
    plain = text.replace(" ", "").upper()
    return (
        15 <= len(plain) <= 34
        and int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1
    )


def is_public_ip(text: str) -> bool:
    """Whether an address belongs to the public internet (10/8, 172.16/12, fe80::/10 and the like do
    not).
    """
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _is_real_mail(text: str) -> bool:
    domain = text.rpartition("@")[2].lower()
    # RFC 2606 keeps these names free for examples
    reserved = domain.rpartition(".")[2] in ("example", "test", "invalid", "localhost")
    return not reserved and not re.search(r"(?:^|\.)example\.(?:com|org|net)$", domain)


def _is_phone(text: str) -> bool:
    """Whether digits are a phone number in their country's length, and not one of those kept free
    for fiction.
    """
    digits = _digits(text)
    if text.startswith("+"):
        least, most = (11, 11) if digits[0] in "17" else (8, 15)
        if not least <= len(digits) <= most or re.match(r"\+\d\.\d", text):
            return False
        digits = digits if digits[0] == "1" else ""
    return not re.fullmatch(r"\d{3}55501\d\d", digits.removeprefix("1"))


_VERSION = re.compile(r"(?:\bversions?|\brelease|\bv)[ .:]{0,2}\Z", re.IGNORECASE)
_BEFORE_AMOUNT = re.compile(r"[=*/^×÷$€£¥]\s?\Z|\d\s[-+]\s\Z")
_AFTER_AMOUNT = re.compile(
    r"\s?[*/^×÷=]|\s[-+]\s\d|\.\d|\s?(?:dollars|euros|pounds|yuan|people|bytes|bits|seconds|meters"
    r"|metres|m|km|kg|元|人|个|米|次)\b|\s?%"
)
_NOWHERE = re.compile(r"(?!)")
_ELSE = {"phone": (_BEFORE_AMOUNT, _AFTER_AMOUNT), "ipv4": (_VERSION, _NOWHERE)}
"""By kind, what stands before or after something else: arithmetic, an amount or a version number
("= 13812345678 + 5", "15012345678 dollars").
"""
_LEAD = 10
KINDS = tuple("private_key api_key email iban cn_id card us_ssn phone ipv6 ipv4".split())
_CHECKS: dict[str, Callable[[str], bool]] = {
    "": bool,
    "key": lambda key: not key.startswith("sk-") or any(map(str.isdigit, key)),
    "mail": _is_real_mail,
    "iban": is_iban,
    "cn_id": is_cn_id,
    "card": is_card_number,
    "subscriber": lambda number: not number.endswith("00000"),
    "phone": _is_phone,
    "public_ip": is_public_ip,
}


class _Detector(NamedTuple):
    kind: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool]
    hint: str
    """A text that every match holds; a quick test before the pattern runs."""


@lru_cache(maxsize=1)
def _detectors() -> list[_Detector]:
    """The rows of personal_data.yaml, in order of precedence."""
    return [
        _Detector(
            row["kind"],
            re.compile("".join(row["pattern"])),
            _CHECKS[row.get("check", "")],
            row.get("hint", ""),
        )
        for row in read_file(Path(__file__).with_name("personal_data.yaml"))
    ]


def find_personal_data(text: str, kinds: Collection[str] = KINDS) -> list[PersonalDataSpan]:
    """All findings of the wanted kinds in order of place; none overlap."""
    findings: list[PersonalDataSpan] = []
    taken = bytearray(len(text))
    for detector in _detectors():
        if detector.kind not in kinds or detector.hint not in text:
            continue
        before, after = _ELSE.get(detector.kind, (_NOWHERE, _NOWHERE))
        for match in detector.pattern.finditer(text):
            start, end = match.span()
            if (
                detector.check(match.group())
                and not before.search(text, max(0, start - _LEAD), start)
                and not after.match(text, end)
                and taken.find(1, start, end) < 0
            ):
                taken[start:end] = b"\x01" * (end - start)
                findings.append(PersonalDataSpan(detector.kind, start, end))
    return sorted(findings, key=lambda finding: finding.start)


_MAX_SPANS = 100


def _known_kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    unknown = sorted(set(value) - set(KINDS))
    if unknown or not value:
        raise ConfigError(
            f"there is no kind {', '.join(unknown) or '(none given)'}; there are "
            f"{', '.join(KINDS)}."
        )
    return value


@rule(
    "privacy_leakage",
    score_range=(-1.0, 0.0),
    example=Example(
        sample_of(
            "Who can help me?",
            "Ask the front desk.",
            "Write to jane.doe@corp-mail.com or call +49 30 901820.",
        ),
        use=EMPTY_IS_BEST,
    ),
)
def privacy_leakage(
    sample: DataSample,
    *,
    penalty_per_leak: Penalty = -0.5,
    max_penalty: Penalty = -1.0,
    kinds: Annotated[tuple[str, ...], AfterValidator(_known_kinds)] = KINDS,
    allow_from_user: bool = False,
) -> Score[float]:
    """`penalty_per_leak` for each piece of personal data or secret, never below `max_penalty`; 0
    for a clean answer.

    Found are e-mail addresses, phone numbers (international, North American, Chinese), payment
    cards (Luhn), Chinese identity numbers (checksum and date), US social security numbers, IBANs
    (modulo 97), public IP addresses, API keys, JSON web tokens and private keys (PEM, PGP). Not
    counted: addresses at example.com and similar, private networks, numbers with a wrong checksum,
    and with `allow_from_user` what a user turn of the prompt holds. Range [-1, 0], higher is
    better. `extra_data` gives kind, start and end of each match, not the data.

    Args:
        penalty_per_leak: Penalty of each match.
        max_penalty: The lowest score, however many matches there are.
        kinds: Which kinds of data are looked for.
    """
    written = sample.output[0].answer.text
    text = readable(written)
    findings = find_personal_data(text, kinds)
    if findings and allow_from_user:
        given = "\n".join(
            readable(message.text) for message in sample.input if message.role.value == "user"
        )
        findings = [
            finding for finding in findings if text[finding.start : finding.end] not in given
        ]
    if not findings:
        return Score(0.0, "No personal data found.")
    score = max(max_penalty, penalty_per_leak * len(findings)) or 0.0
    counts = dict(Counter(finding.kind for finding in findings))
    reason = "Found: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + "."
    spans = [finding._asdict() for finding in findings[:_MAX_SPANS]]
    if len(text) != len(written):  # spans refer to the answer as it was written
        places = [
            at
            for at, sign in enumerate(written)
            if readable(sign) and written[at : at + 2] != "\r\n"
        ]
        spans = [
            span | {"start": places[span["start"]], "end": places[span["end"] - 1] + 1}
            for span in spans
        ]
    return Score(score, reason, extra={"counts": counts, "spans": spans})
