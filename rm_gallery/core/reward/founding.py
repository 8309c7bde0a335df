"""The founding shape of what a reward returns for one job, read into a `Score`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from rm_gallery.core.data.schema import (
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    cell,
    table,
)
from rm_gallery.core.score import Detail, Score, failed, scored_by


class RewardResult(BaseModel):
    """Scores of one job and what else was found out on the way, for those who do not return a
    `Score`.

    A pointwise or stepwise reward returns `RewardDimensionWithScore`, a listwise or pairwise one
    `RewardDimensionWithRank` with one number per output, in the order of the outputs it was given.
    """

    name: str
    details: list[RewardDimensionWithScore | RewardDimensionWithRank] = Field(default_factory=list)
    extra_data: dict[str, Any] = Field(default_factory=dict)

    def _repr_html_(self) -> str:
        rows = [
            (d.name, d.score if isinstance(d, RewardDimensionWithScore) else d.rank, d.reason)
            for d in self.details
        ]
        return f"<p><b>{cell(self.name)}</b></p>" + table(("", "score", "reason"), rows)


def score_of_result(returned: object) -> Score[Any]:
    """What `_evaluate` or `_after_evaluate` returned, as a score; failed where it is nothing that
    they return.
    """
    if isinstance(returned, Score):
        return _plain(returned)
    if not isinstance(returned, RewardResult):
        return _invalid(f"_evaluate returned {type(returned).__name__}; it returns a Score")
    given: list[Any] = returned.details  # which may have been changed since it was checked
    details, lengths = [], set()
    for detail in given:
        if not isinstance(detail, RewardDimensionWithScore | RewardDimensionWithRank):
            return _invalid(f"The result holds {type(detail).__name__}; give scores or ranks")
        value: Any = (
            tuple(detail.rank) if isinstance(detail, RewardDimensionWithRank) else detail.score
        )
        details.append(Detail(detail.name, value, detail.reason))
        lengths.add(len(value) if isinstance(value, tuple) else -1)
    if len(lengths) > 1:
        return _invalid("The dimensions of a result are all scores, or ranks of one length")
    return scored_by(details, returned.extra_data)


def _plain(score: Score[Any]) -> Score[Any]:
    """The score with a float, or a tuple of floats, whatever numbers it is of."""
    value = score.value
    if value is None or type(value) is float:
        return score
    try:
        several = isinstance(value, tuple | list)
        return replace(score, value=tuple(map(float, value)) if several else float(value))
    except (TypeError, ValueError, OverflowError):
        return _invalid(
            f"_evaluate returned the score {value!r:.80}; give a number or a tuple of such"
        )


def _invalid(what: str) -> Score[Any]:
    return failed("invalid_result", f"{what}.", "rule")
