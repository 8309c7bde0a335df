"""Do the reference's numbers appear in the answer?"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, ClassVar, Literal

from pydantic import Field
from rapidfuzz.distance import LCSseq

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.numbers import Number, close, find_numbers
from rm_gallery.core.text.reasoning import split_reasoning
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score, references_of

Mode = Literal["ordered", "any_order", "final"]


@RewardRegistry.register("number_accuracy")
class NumberAccuracyReward(RuleReward):
    """Share of the reference's numbers that the answer gives: matched / numbers in the reference.

    `mode` says which numbers of the answer count. "ordered": all, as long as they come in the reference's order; others
    may stand between them ("In 2024 it was 42" has the 42). "any_order": all. "final": the last ones only, as many as
    the reference holds; take this one for training, since a list of all numbers fulfils the other two.

    1,000 equals 1000, 1e3 and 1.0 thousand; 50% equals 50 and 0.5; numbers are equal when they differ by at most
    `tolerance`, absolutely or relative to the reference: below 1e-4 relatively alone, and whole numbers not at all unless
    the tolerance is above 1e-6. A thought is left out. Range [0, 1], higher is better; the best of several references
    counts; unscored when the reference is missing or holds no number.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "number_accuracy"
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    mode: Mode = "ordered"

    example = Example(
        sample_of(
            "How many women and how many men work there?",
            "There are 1,204 women and 987 men.",
            "There are 1204 women and 978 men.",
            reference="1204 women, 987 men",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Match the numbers."""
        given = find_numbers(split_reasoning(answer_text(sample)).final)
        wanted = [numbers for text in references_of(sample, self.name) if (numbers := find_numbers(text))]
        if not wanted:
            raise Unscored(f"{self.name}: the reference holds no number.", reason="no_reference")
        best = max(wanted, key=lambda numbers: matched(given, numbers, self.tolerance, self.mode) / len(numbers))
        count = matched(given, best, self.tolerance, self.mode)
        reason = f"{count} of the reference's {len(best)} numbers found; the answer holds {len(given)}."
        return one_score(self.name, count / len(best), reason)


def matched(given: list[Number], wanted: list[Number], tolerance: float, mode: Mode = "ordered") -> int:
    """How many of the `wanted` numbers are met by `given` ones, under the rules of `NumberAccuracyReward`."""
    if mode == "final":
        pairs = zip(given[-len(wanted) :], wanted[-len(given) :] if given else [], strict=True)
        return sum(_equal(a, b, tolerance) for a, b in pairs)
    places = _Places(wanted, tolerance)
    found = [place for number in given if (place := places.of(number)) is not None]
    target = [place for number in wanted if (place := places.of(number)) is not None]
    if mode == "ordered":
        return int(LCSseq.similarity(found, target))
    limits = Counter(target)
    return sum(min(count, limits[place]) for place, count in Counter(found).items())


def _equal(given: Number, wanted: Number, tolerance: float) -> bool:
    return any(close(a, b, tolerance) for a in _readings(given) for b in _readings(wanted))


def _readings(number: Number) -> tuple[float, ...]:
    return (number.value, number.value / 100) if number.percent else (number.value,)


class _Places:
    """Gives equal numbers the same small integer, so that lists of numbers can be compared as sequences."""

    def __init__(self, wanted: list[Number], tolerance: float) -> None:
        self.tolerance = tolerance
        readings = sorted((value, index) for index, number in enumerate(wanted) for value in _readings(number))
        self.values = [value for value, _ in readings]
        self.owner: list[int] = []
        representative = list(range(len(wanted)))
        for position, (value, index) in enumerate(readings):
            if position and close(value, readings[position - 1][0], tolerance):
                representative[index] = representative[readings[position - 1][1]]
            self.owner.append(index)
        self.representative = representative

    def of(self, number: Number) -> int | None:
        """The integer of the wanted number this one equals, None when it equals none."""
        for value in _readings(number):
            position = bisect_left(self.values, value)
            for near in (position, position - 1):
                if 0 <= near < len(self.values) and close(value, self.values[near], self.tolerance):
                    return self.representative[self.owner[near]]
        return None
