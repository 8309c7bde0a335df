"""Is the answer's quantity the reference's, units converted, within a tolerance?"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.text.answer import final_text, read_statements
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.general.quantities import Quantity, find_quantities
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score, references_of


@RewardRegistry.register("tolerance_number_match")
class ToleranceNumberMatchReward(RuleReward):
    r"""1 when |answer - reference| <= max(`absolute_tolerance`, `relative_tolerance` x |reference|), else 0.

    Both are read with their units and compared in the reference's: "5 km" is 5000 m, "68 °F" is 20 °C, "50%" is 0.5, "1
    h 30 min" is 90 minutes, "$1,000" is 1000 USD. Known are units of length, area, volume, mass, time, speed,
    temperature, force, energy, power, pressure and frequency with SI prefixes, some currencies (never converted) and
    percent, in English and Chinese. A reference without a unit accepts any; an answer without one is taken in the
    reference's unless `require_unit`; a unit of another kind is wrong.

    The answer's quantity is the first one after its last "answer is" or in its last `\boxed{}`, else the last one of
    its text that fits the reference's kind. Range [0, 1], higher is better; unscored when the reference is missing or
    holds no number.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"reference"})

    name: str = "tolerance_number_match"
    relative_tolerance: float = Field(default=1e-3, ge=0, allow_inf_nan=False)
    absolute_tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    require_unit: bool = False

    example = Example(
        sample_of("How long is a marathon?", "It is 42.195 km.", "About 26.2 miles.", "40 km", reference="42195 m")
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Read both quantities and compare."""
        wanted = [found[0] for text in references_of(sample, self.name) if (found := find_quantities(text))]
        if not wanted:
            raise Unscored(f"{self.name}: the reference holds no number.", reason="no_reference")
        text = answer_text(sample)
        reasons = []
        for reference in wanted:
            given = answer_quantity(text, reference, self.require_unit)
            if given is None:
                reasons.append("The answer holds no quantity of the reference's kind.")
                continue
            for value in _values(given, reference):
                if self._near(value, reference.value):
                    return one_score(self.name, 1.0, f"{value:.12g} is near {reference.value:.12g}.")
            reasons.append(f"{_values(given, reference)[0]:.12g} is not near {reference.value:.12g}.")
        return one_score(self.name, 0.0, reasons[0])

    def _near(self, value: float, wanted: float) -> bool:
        # the last digits of a conversion are never exact
        slack = 1e-12 * max(abs(value), abs(wanted))
        return abs(value - wanted) <= max(self.absolute_tolerance, self.relative_tolerance * abs(wanted)) + slack


def answer_quantity(text: str, reference: Quantity, require_unit: bool = False) -> Quantity | None:
    """The quantity a text gives as its answer, None when it gives none of the reference's kind."""
    reading = read_statements(final_text(text))
    found = next((found[:1] for statement in reading.statements if (found := find_quantities(statement.text))), [])
    if not found:
        found = find_quantities(reading.rest)
    same = [q for q in found if _same_kind(q, reference)]
    bare = [] if require_unit and reference.unit is not None else [q for q in found if q.unit is None]
    fitting = same or bare
    return fitting[-1] if fitting else None


def _same_kind(given: Quantity, reference: Quantity) -> bool:
    if reference.unit is None:
        return True
    return given.unit is not None and given.unit.dimension == reference.unit.dimension


def _values(given: Quantity, reference: Quantity) -> list[float]:
    """The answer's value in the reference's unit; without one as written, and a percentage also as a share."""
    if reference.unit is None:
        percent = given.unit is not None and not given.unit.dimension
        return [given.value, given.value / 100] if percent else [given.value]
    return [given.in_unit(reference.unit)]
