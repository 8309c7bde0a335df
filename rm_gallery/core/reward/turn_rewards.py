"""A reward for each turn of a trajectory: scores of steps, a final reward credited to turns, or both."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from rm_gallery.core.data.schema import DataOutput
from rm_gallery.core.reward.compose import TURNS, Composition, Scores, noted
from rm_gallery.core.reward.resolve import as_part
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.turns import Credit, Total, credited, differences, total_of
from rm_gallery.core.score import Bounds, Score, deciding, scored
from rm_gallery.core.utils.errors import ConfigError


class TurnRewards(Composition):
    """A reward for each turn of the policy; their total is the score.

    `TurnRewards(steps=my_step_judge, outcome="math_verify_reward", credit="equal")`: the reward of a
    turn is its share of the outcome plus `weight` times its step's score. Trainers that take a
    vector get it (`turn_rewards_of`), all others the total. The turns are those of
    `DataOutput.turns`.

    Range: that of the total; open at an end that the number of turns decides. A turn whose step has
    no score has no reward. Then there is no total either, for the step's reason (`missing="none"`),
    or it is that of the other turns, to which alone the outcome is credited (`missing="skip"`; where
    no step had anything to judge, to all as without steps).
    Without an outcome's score no turn has a reward.

    Args:
        steps: a stepwise reward; anything `as_part` takes.
        outcome: a reward of the whole; anything `as_part` takes that is not stepwise.
        credit: how the outcome is credited to turns, see `credited`; "last" by default.
        total: how the turns' rewards become the score, see `total_of`; "sum" by default.
        differences: pay what a step adds to the score of the one before, see
            `rm_gallery.core.reward.turns.differences`.
        gamma: the discount of "discounted" and of differences, in (0, 1].
        start: the score before the first step, for differences.
        weight: what a step's score is multiplied by, above 0.
        missing: "none" or "skip".

    Raises:
        ConfigError: neither steps nor outcome is given, `steps` is not stepwise, or `outcome` is.
    """

    # a turn that breaks its judge must not cost the turns around it
    finds_blame_in_parts: ClassVar[bool] = True

    rewards: dict[str, SerializeAsAny[BaseReward]] = Field(min_length=1)
    credit: Credit = "last"
    total: Total = "sum"
    differences: bool = False
    gamma: float = Field(default=1.0, gt=0, le=1)
    start: float = Field(default=0.0, allow_inf_nan=False)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    missing: Literal["none", "skip"] = "none"

    def __init__(self, steps: Any = None, outcome: Any = None, **settings: Any) -> None:
        """Take the parts and how they become one."""
        given = {"steps": steps, "outcome": outcome}
        parts = {name: as_part(part) for name, part in given.items() if part is not None}
        if parts:
            settings["rewards"] = parts
        elif "rewards" not in settings:
            raise ConfigError("TurnRewards: give steps=, a stepwise reward, or outcome=, or both.")
        super().__init__(**self._with_judge("rewards", settings))

    def model_post_init(self, context: Any) -> None:
        """Check that the parts fit."""
        for name, part in self.rewards.items():
            if (part.kind == "stepwise") != (name == "steps"):
                other = "outcome" if name == "steps" else "steps"
                raise ConfigError(
                    f"TurnRewards: {name} is {part.name}, which is {part.kind}; give it as "
                    f"{other}=, or take a {'stepwise' if name == 'steps' else 'pointwise'} reward."
                )
        if len({part.higher_is_better for part in self.rewards.values()}) > 1:
            raise ConfigError(
                "TurnRewards: higher is better in one of steps and outcome, and lower in the other; "
                "give two of one direction."
            )
        super().model_post_init(context)

    def parts(self) -> dict[str, BaseReward]:
        """The step reward and the outcome, as far as they are given."""
        return dict(self.rewards)

    @property  # type: ignore[misc]  # it follows from the parts
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The direction of the parts."""
        return all(part.higher_is_better for part in self.rewards.values())

    @property  # type: ignore[misc]  # it follows from the parts
    def score_range(self) -> Bounds:  # type: ignore[override]
        """The range of the total; None at an end that the number of turns decides."""
        summed = self.total in ("sum", "discounted")
        ends: list[Bounds] = []
        if (steps := self.rewards.get("steps")) is not None:
            telescopes = self.differences and self.gamma == 1 and self.total == "sum"
            bounds, start = steps.score_range, self.start if telescopes else 0.0
            if self.differences and not telescopes:
                bounds = (None, None)
            low, high = (None if end is None else self.weight * (end - start) for end in bounds)
            ends.append(_of_any_number(low, high) if summed and not telescopes else (low, high))
        if (outcome := self.rewards.get("outcome")) is not None:
            low, high = outcome.score_range
            if self.credit == "every" and summed:
                low, high = _of_any_number(low, high)
            elif self.credit != "every" and self.total != "sum":  # some turns get nothing of it
                low, high = low and min(0.0, low), high and max(0.0, high)
            ends.append((low, high))
        low, high = (None if None in end else math.fsum(end) for end in zip(*ends, strict=True))
        if self.total == "product" and (low is None or low < 0 or high is None or high > 1):
            return None, None
        return low, high

    def _made_whole(self, scores: Scores, output: DataOutput) -> Score[float]:
        """The total of the rewards of an output's turns."""
        n = len(output.turns)
        rewards: list[float | None] = [0.0] * n
        steps: tuple[Score[Any], ...] = ()
        if "steps" in scores:
            steps = scores["steps"].steps
            values = [step.value for step in steps]
            added = differences(values, self.gamma, self.start) if self.differences else values
            rewards = [None if each is None else self.weight * each for each in added]
        if "outcome" in scores:
            outcome = scores["outcome"]
            if outcome.value is None:
                return noted(outcome.without_value(f"outcome: {outcome.reason}"), scores)
            if self.missing == "skip" and all(step.status == "unscored" for step in steps):
                rewards, steps = [0.0] * n, ()  # no step had anything to judge
            # a turn that is skipped takes no share of the outcome with it
            paid = [t for t in range(n) if rewards[t] is not None or self.missing == "none"]
            shares = credited(outcome.value, len(paid), self.credit, self.gamma) if paid else []
            for t, share in zip(paid, shares, strict=True):
                reward = rewards[t]
                rewards[t] = None if reward is None else reward + share
        known = [each for each in rewards if each is not None]
        total = total_of(known if self.missing == "skip" else rewards, self.total, self.gamma)
        if total is None:
            lost = [step for step in steps if step.value is None]
            why = deciding(lost)
            reason = f"{len(lost)} of {n} turns have no score: {why.reason}"
            return noted(why.without_value(reason), scores, turns=rewards)
        shown = ", ".join("none" if each is None else f"{each:g}" for each in rewards)
        whole = scored(total, f"{self.total} of the turns' {shown}")
        return noted(whole, scores, turns=rewards)


def turn_rewards_of(reward: BaseReward, output: DataOutput) -> list[float | None]:
    """What `reward` gave to each of `output.turns`, once it has judged the output.

    A stepwise reward gives each turn's score, `TurnRewards` what it made of them. Any other reward
    is one of the whole: its score is the last turn's, and the others have 0. All are None where
    there is no score.
    """
    written, n = output.answer.reward, len(output.turns)
    if reward.kind == "stepwise":
        return [reward.score_of(turn.reward) for turn in output.turns]
    rewards: list[float | None] = written.extra_data.get(reward.key_in(written), {}).get(TURNS, [])
    if len(rewards) == n:
        return list(rewards)
    score = reward.score_of_output(output)
    return [None] * n if score is None else [*credited(score, n, "last")]


def _of_any_number(low: float | None, high: float | None) -> Bounds:
    """The range of a sum of one or more numbers of this range."""
    return (None if low is None or low < 0 else low), (None if high is None or high > 0 else high)
