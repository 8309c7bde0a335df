"""What a reward returns for one job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from rm_gallery.core.data.display import cell, table
from rm_gallery.core.data.schema import (
    Reward,
    RewardDimension,
    RewardDimensionWithRank,
    RewardDimensionWithScore,
    RewardIssue,
)

__all__ = [
    "Reward",
    "RewardDimension",
    "RewardDimensionWithRank",
    "RewardDimensionWithScore",
    "RewardIssue",
    "RewardResult",
]


class RewardResult(BaseModel):
    """Scores of one job and what else was found out on the way.

    A pointwise or stepwise reward returns `RewardDimensionWithScore`, a listwise or pairwise one
    `RewardDimensionWithRank` with one number per output, in the order of the outputs it was given.
    """

    name: str
    details: list[RewardDimensionWithScore | RewardDimensionWithRank] = Field(default_factory=list)
    extra_data: dict[str, Any] = Field(default_factory=dict)

    def _repr_html_(self) -> str:
        rows = [(d.name, d.score if isinstance(d, RewardDimensionWithScore) else d.rank, d.reason) for d in self.details]
        return f"<p><b>{cell(self.name)}</b></p>" + table(("", "score", "reason"), rows)
