"""The length of an answer: how far it alone gets, penalties for too short and too long, and
correctness scaled by it.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from rm_gallery.core.data.schema import DataSample, Step
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.engine.processes.pool import get_pool
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import (
    RuleReward,
    answer_text,
    final_answer,
    known,
    one_score,
    references_of,
    shown,
)
from rm_gallery.core.reward.schema import EMPTY_IS_BEST, PENALTY, Example, RewardResult, sample_of
from rm_gallery.core.text.canonical import Form
from rm_gallery.core.text.language import words
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.core.text.quantities import find_numbers
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.general.numbers import matched
from rm_gallery.gallery.rm.tokens import TokenizerSetting, tokens_of

LengthUnit = Literal["chars", "words", "tokens"]

_SIX_TIMES_SEVEN = sample_of(
    "What is six times seven? Explain.", "42, since 6 · 7 = 42.", "It is 42. " * 3, "It is 42. " * 6
)


class MeasuredReward(RuleReward):
    """Base of rewards that look at an answer's length."""

    unit: LengthUnit = "chars"
    """chars, words (each Chinese character is one), or tokens."""
    tokenizer: TokenizerSetting = Field(default=None, repr=False)
    """Counts tokens. Without one the counts recorded with the answer are taken: `completion_ids` or
    `completion_tokens` in its additional_kwargs, or in `usage` there."""

    def length_of(self, answer: Step) -> int:
        """Length of an answer in the reward's unit; Unscored (`no_token_count`) when tokens cannot
        be counted.
        """
        if self.unit == "chars":
            return len(answer.text)
        if self.unit == "words":
            return len(words(answer.text))
        if self.tokenizer is not None:
            return len(tokens_of(self.tokenizer, answer.text))
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
            f"{self.name} counts tokens, but it has no tokenizer, and the answer's "
            f"additional_kwargs hold neither "
            "completion_ids nor completion_tokens.",
            reason="no_token_count",
        )


@RewardRegistry.register("length_baseline")
class LengthBaselineReward(RuleReward):
    """Number of characters of the answer; with `shortest`, minus that number.

    Range [0, infinity) or (-infinity, 0], higher is better. Not a measure of quality: a benchmark
    score means as much as it differs from this one.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (None, None)
    looks_at: ClassVar[frozenset[Form]] = frozenset({"thought", "characters"})
    name: str = "length_baseline"
    shortest: bool = False

    example = Example(
        _SIX_TIMES_SEVEN,
        use="The scores are a yardstick for other rewards and nothing to train on.",
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        length = float(len(answer_text(sample)))
        return one_score(self.name, -length if self.shortest else length)


@RewardRegistry.register("length_penalty")
class LengthPenaltyReward(BasePointWiseReward):
    """0 between `min_length` and `max_length` characters; outside, -`penalty_rate` for every
    character too few or too many.

    Range [-`max_penalty`, 0], or (-infinity, 0] with `max_penalty=None`; higher is better.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (None, 0.0)
    looks_at: ClassVar[frozenset[Form]] = frozenset({"thought", "characters"})
    name: str = "length_penalty"
    min_length: int = Field(default=10, ge=0)
    max_length: int = Field(default=1000, ge=0)
    penalty_rate: float = Field(default=0.01, ge=0)
    max_penalty: float | None = Field(default=None, ge=0)

    example = Example(_SIX_TIMES_SEVEN, params={"min_length": 10, "max_length": 40}, use=PENALTY)

    @model_validator(mode="after")
    def _bounds(self) -> LengthPenaltyReward:
        if self.min_length > self.max_length:
            raise ConfigError(
                f"min_length {self.min_length} is above max_length {self.max_length}."
            )
        return self

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        length = len(answer_text(sample))
        excess = max(self.min_length - length, length - self.max_length, 0)
        penalty = min(
            self.penalty_rate * excess, math.inf if self.max_penalty is None else self.max_penalty
        )
        reason = f"{length} characters; allowed are {self.min_length} to {self.max_length}."
        return one_score(self.name, -penalty if penalty else 0.0, reason)


@RewardRegistry.register("dapo_soft_overlong_punishment")
class DapoSoftOverlongPunishmentReward(MeasuredReward):
    """0 up to `max_length - cache`, falling linearly to -1 at `max_length`, -1 beyond; to be added
    to another reward.

    R(y) = 0 for |y| <= L - C; ((L - C) - |y|) / C for L - C < |y| <= L; -1 for |y| > L. Range [-1,
    0], higher is better. Source: DAPO (arXiv 2503.14476), equation 13, whose L = 20480 and C = 4096
    are tokens: give `unit="tokens"` and a tokenizer for it.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 0.0)
    looks_at: ClassVar[frozenset[Form]] = frozenset({"thought", "characters"})
    name: str = "dapo_soft_overlong_punishment"
    max_length: int = Field(default=20480, gt=0)
    cache: int = Field(default=4096, ge=0)
    """Length before `max_length` over which the punishment grows; C above."""

    example = Example(_SIX_TIMES_SEVEN, params={"max_length": 50, "cache": 25}, use=EMPTY_IS_BEST)

    @model_validator(mode="after")
    def _fits(self) -> DapoSoftOverlongPunishmentReward:
        if self.cache > self.max_length:
            raise ConfigError(f"cache {self.cache} is above max_length {self.max_length}.")
        return self

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        length = self.length_of(sample.output[0].answer)
        start = self.max_length - self.cache
        if length <= start:
            score = 0.0
        else:
            score = -1.0 if length > self.max_length else (start - length) / self.cache
        reason = f"{length} {self.unit}; punished above {start}, at most from {self.max_length}."
        return one_score(self.name, score, reason)


Correctness = Literal["exact", "number", "math", "label"]
_WORDS = {
    "correct": True,
    "right": True,
    "true": True,
    "incorrect": False,
    "wrong": False,
    "error": False,
    "false": False,
}


@RewardRegistry.register("cosine_length_scaling")
class CosineLengthScalingReward(MeasuredReward):
    """A right answer is worth more the shorter it is, a wrong one less: wrong after long thought
    beats wrong at once.

    With t = min(length / `max_length`, 1): R = low + (high - low)(1 + cos(pi t)) / 2. For right
    answers high is `max_value_correct` (t = 0) and low `min_value_correct` (t = 1); for wrong ones
    `min_value_wrong` stands at t = 0 and `max_value_wrong` at t = 1. `exceed_value`, if given, is
    the score of every answer of `max_length` or more.

    `correctness` says how right is decided: "exact" (equal to the reference up to white space at
    the ends), "number" (the last number is the reference's last), "math" (as math_verify_reward
    does, `timeout` seconds each), or "label" (from `correctness` or `correct` in answer.label or
    metadata). What precedes `</think>` counts for the length alone.

    Range [-1, 1], higher is better; unscored without a reference (a label). Source: arXiv
    2502.03373, appendix C.1, whose defaults reach from -10 to 2; the defaults here are TRL's
    `get_cosine_scaled_reward`, which measures tokens.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"reference"})
    looks_at: ClassVar[frozenset[Form]] = frozenset({"thought", "characters"})
    name: str = "cosine_length_scaling"
    correctness: Correctness = "exact"
    max_length: int = Field(default=4096, gt=0)
    min_value_wrong: float = Field(default=-1.0, ge=-1, le=1)
    max_value_wrong: float = Field(default=-0.5, ge=-1, le=1)
    min_value_correct: float = Field(default=0.5, ge=-1, le=1)
    max_value_correct: float = Field(default=1.0, ge=-1, le=1)
    exceed_value: float | None = Field(default=None, ge=-1, le=1)
    timeout: float = Field(default=5.0, gt=0)

    example = Example(
        sample_of(
            "What is six times seven?",
            "42",
            "<think>6 · 7 = 42</think>42",
            "41",
            "<think>6 · 7 = 41</think>41",
            reference="42",
        ),
        params={"max_length": 40},
    )

    @model_validator(mode="after")
    def _in_order(self) -> CosineLengthScalingReward:
        if (
            self.min_value_wrong > self.max_value_wrong
            or self.min_value_correct > self.max_value_correct
        ):
            raise ConfigError(
                "min_value_wrong and min_value_correct are at most max_value_wrong and "
                "max_value_correct."
            )
        return self

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        right = await self._is_right(sample)
        length = self.length_of(sample.output[0].answer)
        # at no length, and at the greatest one
        of_right, of_wrong = (
            (self.max_value_correct, self.min_value_correct),
            (self.min_value_wrong, self.max_value_wrong),
        )
        short, long = of_right if right else of_wrong
        score = (
            long + (short - long) * (1 + math.cos(math.pi * min(length / self.max_length, 1.0))) / 2
        )
        if self.exceed_value is not None and length >= self.max_length:
            score = self.exceed_value
        reason = f"{'Right' if right else 'Wrong'} with {length} of {self.max_length} {self.unit}."
        return one_score(self.name, score, reason, {"correct": right, "length": length})

    async def _is_right(self, sample: DataSample) -> bool:
        if self.correctness == "label":
            return _labelled(known(sample, "correctness", "correct"), self.name)
        answer, references = answer_text(sample), references_of(sample, self.name)
        if self.correctness == "math":
            return any([await self._equal_by_math(answer, reference) for reference in references])
        answer = final_answer(sample)
        if self.correctness == "exact":
            return answer.strip() in references
        given = find_numbers(answer)
        wanted = [numbers[-1:] for reference in references if (numbers := find_numbers(reference))]
        if not wanted:
            raise Unscored(f"{self.name}: the reference holds no number.", reason="no_reference")
        return any(matched(given, number, 1e-6, "final") for number in wanted)

    async def _equal_by_math(self, answer: str, reference: str) -> bool:
        verdict = fast_verdict(answer, reference)
        if verdict is None:
            verdict = await get_pool().asubmit(
                verify_answer, answer, reference, deadline=within_deadline(self.timeout)
            )
        if verdict.status == "no_gold":
            raise Unscored(
                f"{self.name}: the reference holds no mathematical result.", reason="no_gold"
            )
        return bool(verdict.status == "correct")


def _labelled(value: Any, reward: str) -> bool:
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    why = (
        f"{reward} needs answer.label['correctness']: true, false, 'correct' or 'error'; found "
        f"{shown(value)}."
    )
    raise Unscored(why, reason="no_label")
