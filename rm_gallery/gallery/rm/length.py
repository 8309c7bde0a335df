"""Length rewards: a baseline, penalties for too short and too long, and correctness scaled by
length.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.engine.pool import get_pool
from rm_gallery.core.reward.rule import (
    final_answer,
    known,
    references_of,
    rule,
    shown,
)
from rm_gallery.core.reward.schema import EMPTY_IS_BEST, PENALTY, Example, sample_of
from rm_gallery.core.score import Score
from rm_gallery.core.text.language import words
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.core.text.quantities import find_numbers
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.bounds import AS_WRITTEN, Signed
from rm_gallery.gallery.rm.general.numbers import matched
from rm_gallery.gallery.rm.tokens import TokenizerSetting, tokens_of

LengthUnit = Literal["chars", "words", "tokens"]

_SIX_TIMES_SEVEN = sample_of(
    "What is six times seven? Explain.", "42, since 6 · 7 = 42.", "It is 42. " * 3, "It is 42. " * 6
)


Tokenizer = Annotated[TokenizerSetting, Field(repr=False)]


def length_of(answer: Step, unit: LengthUnit, tokenizer: Any = None) -> int:
    """Length of an answer in characters, words (each Chinese character is one) or tokens.

    Without a tokenizer the counts recorded with the answer are taken: `completion_ids` or
    `completion_tokens` in its additional_kwargs, or in `usage` there.

    Raises:
        Unscored: tokens cannot be counted (reason `no_token_count`).
    """
    if unit == "chars":
        return len(answer.text)
    if unit == "words":
        return len(words(answer.text))
    if tokenizer is not None:
        return len(tokens_of(tokenizer, answer.text))
    extra: dict[str, Any] = answer.additional_kwargs
    usage = extra.get("usage")
    for source in (extra, usage if isinstance(usage, dict) else {}):
        for key in ("completion_ids", "token_ids", "response_ids"):
            if isinstance(source.get(key), Sized) and not isinstance(source[key], str):
                return len(source[key])
        for key in ("completion_tokens", "output_tokens", "num_tokens"):
            if isinstance(source.get(key), int):
                return int(source[key])
    raise Unscored(
        "tokens are counted, but there is no tokenizer, and the answer's additional_kwargs hold "
        "neither completion_ids nor completion_tokens.",
        reason="no_token_count",
    )


@rule(
    "length_baseline",
    score_range=(None, None),
    looks_at=AS_WRITTEN,
    example=Example(
        _SIX_TIMES_SEVEN,
        use="The scores are a yardstick for other rewards and nothing to train on.",
    ),
)
def length_baseline(
    text: str,
    *,
    shortest: bool = False,
) -> Score[float]:
    """Number of characters of the answer; with `shortest`, minus that number.

    Range [0, infinity) or (-infinity, 0], higher is better. A baseline, not a measure of quality:
    compare a reward's benchmark score with this one.
    """
    length = float(len(text))
    return Score(-length if shortest else length)


def _in_bounds(min_length: int, max_length: int) -> None:
    if min_length > max_length:
        raise ConfigError(f"min_length {min_length} is above max_length {max_length}.")


@rule(
    "length_penalty",
    validate=_in_bounds,
    score_range=(None, 0.0),
    looks_at=AS_WRITTEN,
    example=Example(_SIX_TIMES_SEVEN, params={"min_length": 10, "max_length": 40}, use=PENALTY),
)
def length_penalty(
    text: str,
    *,
    min_length: NonNegativeInt = 10,
    max_length: NonNegativeInt = 1000,
    penalty_rate: NonNegativeFloat = 0.01,
    max_penalty: Annotated[float | None, Field(ge=0)] = None,
) -> Score[float]:
    """0 between `min_length` and `max_length` characters; outside, -`penalty_rate` for every
    character too few or too many.

    Range [-`max_penalty`, 0], or (-infinity, 0] with `max_penalty=None`; higher is better.
    """
    length = len(text)
    excess = max(min_length - length, length - max_length, 0)
    penalty = min(penalty_rate * excess, math.inf if max_penalty is None else max_penalty)
    reason = f"{length} characters; allowed are {min_length} to {max_length}."
    return Score(-penalty if penalty else 0.0, reason)


def _cache_fits(max_length: int, cache: int) -> None:
    if cache > max_length:
        raise ConfigError(f"cache {cache} is above max_length {max_length}.")


@rule(
    "dapo_soft_overlong_punishment",
    validate=_cache_fits,
    score_range=(-1.0, 0.0),
    looks_at=AS_WRITTEN,
    example=Example(_SIX_TIMES_SEVEN, params={"max_length": 50, "cache": 25}, use=EMPTY_IS_BEST),
)
def dapo_soft_overlong_punishment(
    sample: DataSample,
    *,
    unit: LengthUnit = "chars",
    tokenizer: Tokenizer = None,
    max_length: PositiveInt = 20480,
    cache: NonNegativeInt = 4096,
) -> Score[float]:
    """0 up to `max_length - cache`, falling linearly to -1 at `max_length`, -1 beyond; to be added
    to another reward.

    R(y) = 0 for |y| <= L - C; ((L - C) - |y|) / C for L - C < |y| <= L; -1 for |y| > L. Range [-1,
    0], higher is better. Source: DAPO (arXiv 2503.14476), equation 13, whose L = 20480 and C = 4096
    are tokens: give `unit="tokens"` and a tokenizer for it.

    Args:
        unit: chars, words (each Chinese character is one), or tokens.
        tokenizer: Counts tokens. Without one the counts recorded with the answer are taken:
            `completion_ids` or `completion_tokens` in its additional_kwargs, or in `usage` there.
        cache: Length before `max_length` over which the punishment grows; C above.
    """
    length = length_of(sample.output[0].answer, unit, tokenizer)
    start = max_length - cache
    if length <= start:
        score = 0.0
    else:
        score = -1.0 if length > max_length else (start - length) / cache
    reason = f"{length} {unit}; punished above {start}, at most from {max_length}."
    return Score(score, reason)


Correctness = Literal["exact", "number", "math", "label"]
_WORDS = {
    **dict.fromkeys(("correct", "right", "true"), True),
    **dict.fromkeys(("incorrect", "wrong", "error", "false"), False),
}


def _in_order(
    min_value_wrong: float,
    max_value_wrong: float,
    min_value_correct: float,
    max_value_correct: float,
) -> None:
    if min_value_wrong > max_value_wrong or min_value_correct > max_value_correct:
        raise ConfigError(
            "min_value_wrong and min_value_correct are at most max_value_wrong and "
            "max_value_correct."
        )


@rule(
    "cosine_length_scaling",
    validate=_in_order,
    needs="reference",
    score_range=(-1.0, 1.0),
    looks_at=AS_WRITTEN,
    example=Example(
        sample_of(
            "What is six times seven?",
            "42",
            "<think>6 · 7 = 42</think>42",
            "41",
            "<think>6 · 7 = 41</think>41",
            reference="42",
        ),
        params={"max_length": 40},
    ),
)
async def cosine_length_scaling(
    sample: DataSample,
    *,
    unit: LengthUnit = "chars",
    tokenizer: Tokenizer = None,
    correctness: Correctness = "exact",
    max_length: PositiveInt = 4096,
    min_value_wrong: Signed = -1.0,
    max_value_wrong: Signed = -0.5,
    min_value_correct: Signed = 0.5,
    max_value_correct: Signed = 1.0,
    exceed_value: Annotated[float | None, Field(ge=-1, le=1)] = None,
    timeout: PositiveFloat = 5.0,
) -> Score[float]:
    """Right answers score higher the shorter they are, wrong ones lower: a long wrong attempt beats
    a short one.

    With t = min(length / `max_length`, 1): R = low + (high - low)(1 + cos(pi t)) / 2. For right
    answers high is `max_value_correct` (t = 0) and low `min_value_correct` (t = 1); for wrong ones
    `min_value_wrong` stands at t = 0 and `max_value_wrong` at t = 1. `exceed_value`, if given, is
    the score of every answer of `max_length` or more.

    `correctness` says how right is decided: "exact" (equal to the reference up to white space at
    the ends), "number" (the last number is the reference's last), "math" (as math_verify_reward
    does, `timeout` seconds each), or "label" (from `correctness` or `correct` in answer.label or
    metadata). Text before `</think>` counts only for the length.

    Range [-1, 1], higher is better; unscored without a reference (a label). Source: arXiv
    2502.03373, appendix C.1, whose defaults reach from -10 to 2; the defaults here are TRL's
    `get_cosine_scaled_reward`, which measures tokens.

    Args:
        unit: chars, words (each Chinese character is one), or tokens.
        tokenizer: Counts tokens. Without one the counts recorded with the answer are taken:
            `completion_ids` or `completion_tokens` in its additional_kwargs, or in `usage` there.
    """
    right = await _is_right(sample, correctness=correctness, timeout=timeout)
    length = length_of(sample.output[0].answer, unit, tokenizer)
    # at no length, and at the greatest one
    short, long = min_value_wrong, max_value_wrong
    if right:
        short, long = max_value_correct, min_value_correct
    score = long + (short - long) * (1 + math.cos(math.pi * min(length / max_length, 1.0))) / 2
    if exceed_value is not None and length >= max_length:
        score = exceed_value
    reason = f"{'Right' if right else 'Wrong'} with {length} of {max_length} {unit}."
    return Score(score, reason, extra={"correct": right, "length": length})


async def _is_right(sample: DataSample, *, correctness: Correctness, timeout: float) -> bool:
    if correctness == "label":
        return _labelled(known(sample, "correctness", "correct"))
    answer, references = sample.answer_text(), references_of(sample, "cosine_length_scaling")
    if correctness == "math":
        return any(
            [await _equal_by_math(answer, reference, timeout=timeout) for reference in references]
        )
    answer = final_answer(sample)
    if correctness == "exact":
        return answer.strip() in references
    given = find_numbers(answer)
    wanted = [numbers[-1:] for reference in references if (numbers := find_numbers(reference))]
    if not wanted:
        raise Unscored("the reference holds no number.", reason="no_reference")
    return any(matched(given, number, 1e-6, "final") for number in wanted)


async def _equal_by_math(answer: str, reference: str, *, timeout: float) -> bool:
    verdict = fast_verdict(answer, reference)
    if verdict is None:
        verdict = await get_pool().asubmit(
            verify_answer, answer, reference, deadline=within_deadline(timeout)
        )
    if verdict.status == "no_gold":
        raise Unscored("the reference holds no mathematical result.", reason="no_gold")
    return bool(verdict.status == "correct")


def _labelled(value: Any) -> bool:
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise Unscored(
        f"it needs answer.label['correctness']: true, false, 'correct' or 'error'; found "
        f"{shown(value)}.",
        reason="no_label",
    )
