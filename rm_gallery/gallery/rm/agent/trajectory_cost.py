"""What a trajectory cost, against a budget."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import Unscored
from rm_gallery.gallery.rm.agent.spending import METRICS, Prices, number, spent
from rm_gallery.gallery.rm.rule import RuleReward, one_score


@RewardRegistry.register("trajectory_cost")
class TrajectoryCostReward(RuleReward):
    """How well a trajectory keeps to its budgets: the least of min(1, budget / spent) over the budgets that are set.

    Within every budget 1, at twice a budget 0.5. Budgets are the fields (`max_cost` in any currency, `max_latency` in
    seconds, `max_steps`, `max_tokens` of input and output), else those in metadata `budget`, such as {"steps": 10}.

    What was spent is the first record of: the total in answer.label (`cost`, `latency`, `steps`, `tokens`); the sum
    over the output's steps and answer, of `cost`, `latency` and OpenAI's `usage` in their additional_kwargs; the total
    in the sample's metadata; for the cost, tokens at `input_price` and `output_price` per million. Range [0, 1], higher
    is better; unscored without a budget (`no_budget`) or when what it limits was not recorded (`no_record`).
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    needs: ClassVar[frozenset[str]] = frozenset({"budget"})

    name: str = "trajectory_cost"
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Budget for the cost, in any currency."""
    max_latency: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Budget for the time, in seconds."""
    max_steps: int | None = Field(default=None, gt=0)
    """Budget for the number of steps."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Budget for tokens of input and output."""
    input_price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of a million tokens of input, where the cost itself is not recorded."""
    output_price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of a million tokens of output."""

    example = Example(
        sample_of(
            "Book a table for two.",
            {"content": "Booked.", "label": {"steps": 4, "tokens": 800}},
            {"content": "Booked at last.", "label": {"steps": 9, "tokens": 4000}},
            budget={"steps": 6, "tokens": 2000},
        ),
        inputs={"answer": "what each `output[i]` is recorded to have spent, in its label, its steps or its answer"},
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Compare what was spent with the budgets."""
        budgets = self._budgets(sample)
        prices = None
        if self.input_price is not None and self.output_price is not None:
            prices = Prices(self.input_price, self.output_price)
        found = {metric: spent(sample, metric, prices) for metric in METRICS}
        known = {metric: value for metric, value in found.items() if value is not None}
        shares = {}
        for metric, budget in budgets.items():
            if metric not in known:
                raise Unscored(f"{self.name}: no {metric} is recorded with the trajectory.", reason="no_record")
            shares[metric] = min(1.0, budget / known[metric]) if known[metric] else 1.0
        worst = min(shares, key=shares.__getitem__)
        reason = f"{worst}: {known[worst]:g} spent of {budgets[worst]:g}."
        return one_score(self.name, shares[worst], reason, known)

    def _budgets(self, sample: DataSample) -> dict[str, float]:
        given = (sample.metadata or {}).get("budget")
        budgets = {}
        for metric in METRICS:
            own = getattr(self, f"max_{metric}")
            limit = own if own is not None else number(given.get(metric)) if isinstance(given, dict) else None
            if limit:
                budgets[metric] = float(limit)
        if not budgets:
            raise Unscored(
                f"{self.name} needs a budget: set max_steps, max_tokens, max_cost, max_latency or metadata['budget'].",
                reason="no_budget",
            )
        return budgets
