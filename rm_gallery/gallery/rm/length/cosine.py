"""Correctness scaled by length along a cosine."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.engine.workers.pool import get_pool
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.maths import fast_verdict, verify_answer
from rm_gallery.core.text.numbers import find_numbers
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.gallery.rm.general.number_accuracy import matched
from rm_gallery.gallery.rm.length.measure import MeasuredReward
from rm_gallery.gallery.rm.rule import answer_text, known, one_score, references_of, shown

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
    """A right answer is worth more the shorter it is, a wrong one less: wrong after long thought beats wrong at once.

    With t = min(length / `max_length`, 1): R = low + (high - low)(1 + cos(pi t)) / 2. For right answers high is
    `max_value_correct` (t = 0) and low `min_value_correct` (t = 1); for wrong ones `min_value_wrong` stands at t = 0
    and `max_value_wrong` at t = 1. `exceed_value`, if given, is the score of every answer of `max_length` or more.

    `correctness` says how right is decided: "exact" (equal to the reference up to white space at the ends), "number"
    (the last number is the reference's last), "math" (as math_verify_reward does, `timeout` seconds each), or "label"
    (from `correctness` or `correct` in answer.label or metadata). What precedes `</think>` counts for the length alone.

    Range [-1, 1], higher is better; unscored without a reference (a label). Source: arXiv 2502.03373, appendix C.1,
    whose defaults reach from -10 to 2; the defaults here are TRL's `get_cosine_scaled_reward`, which measures tokens.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

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
        if self.min_value_wrong > self.max_value_wrong or self.min_value_correct > self.max_value_correct:
            raise ConfigError("min_value_wrong and min_value_correct are at most max_value_wrong and max_value_correct.")
        return self

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Decide correctness, measure, and scale."""
        right = await self._is_right(sample)
        length = self.length_of(sample.output[0].answer)
        if self.exceed_value is not None and length >= self.max_length:
            score = self.exceed_value
        elif right:
            score = cosine_scaled(length, self.max_length, self.max_value_correct, self.min_value_correct)
        else:
            score = cosine_scaled(length, self.max_length, self.min_value_wrong, self.max_value_wrong)
        reason = f"{'Right' if right else 'Wrong'} with {length} of {self.max_length} {self.unit}."
        return one_score(self.name, score, reason, {"correct": right, "length": length})

    async def _is_right(self, sample: DataSample) -> bool:
        if self.correctness == "label":
            return _labelled(known(sample, "correctness", "correct"), self.name)
        answer, references = answer_text(sample), references_of(sample, self.name)
        if self.correctness == "math":
            return any([await self._equal_by_math(answer, reference) for reference in references])
        answer = split_reasoning(answer).final
        if self.correctness == "exact":
            return answer.strip() in [reference.replace("\r\n", "\n").strip() for reference in references]
        given = find_numbers(answer)
        wanted = [numbers[-1:] for reference in references if (numbers := find_numbers(reference))]
        if not wanted:
            raise Unscored(f"{self.name}: the reference holds no number.", reason="no_reference")
        return any(matched(given, number, 1e-6, "final") for number in wanted)

    async def _equal_by_math(self, answer: str, reference: str) -> bool:
        verdict = fast_verdict(answer, reference)
        if verdict is None:
            verdict = await get_pool().asubmit(verify_answer, answer, reference, deadline=within_deadline(self.timeout))
        if verdict.status == "no_gold":
            raise Unscored(f"{self.name}: the reference holds no mathematical result.", reason="no_gold")
        return bool(verdict.status == "correct")


def cosine_scaled(length: int, max_length: int, short: float, long: float) -> float:
    """The value between `short` (length 0) and `long` (`max_length` and more) along half a cosine."""
    return long + (short - long) * (1 + math.cos(math.pi * min(length / max_length, 1.0))) / 2


def _labelled(value: Any, reward: str) -> bool:
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise Unscored(
        f"{reward} needs answer.label['correctness']: true, false, 'correct' or 'error'; found {shown(value)}.",
        reason="no_label",
    )
