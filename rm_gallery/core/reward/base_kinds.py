"""The base classes of rewards, one for each kind, and the one of rewards that say something of each
output.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from rm_gallery.core.data.schema import DataOutput
from rm_gallery.core.reward.kinds import (
    EACH_ALONE,
    EACH_TOGETHER,
    LISTWISE,
    PAIRWISE,
    POINTWISE,
    STEPWISE,
    TRAJECTORY,
    Kind,
    sign,
)
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.turns import total_of
from rm_gallery.core.score import Bounds

S = TypeVar("S", bound="BaseStepWiseReward")


class BasePointWiseReward(BaseReward):
    """Scores each output by itself: one job per output, whose `_evaluate` sees a sample with just
    that output.
    """

    kind: ClassVar[Kind] = POINTWISE


class BaseTrajectoryReward(BaseReward):
    """Scores each trajectory by itself: one job per output, like a pointwise reward, and a judge sees
    all turns of it: those of the policy with the tools they call, of tools, users and environments.
    """

    kind: ClassVar[Kind] = TRAJECTORY


class BaseStepWiseReward(BaseReward):
    """Scores each step of each output: one job per step, whose `_evaluate` sees that output's steps
    up to this one.

    The steps are `DataOutput.turns`: of a trajectory the policy's own turns, the last of which is
    the answer, with what tools, users and environments said among the steps before; an answer
    without steps is the one step there is.

    In `_evaluate` the step to judge is `sample.output[0].steps[-1]`; `answer` is the output's final
    one at every step. What tools answered to the step itself is not there: that a rule sees, under
    `@rule(mode="stepwise")`, as `results`.
    """

    kind: ClassVar[Kind] = STEPWISE

    step_score: Literal["mean", "min", "last", "product"] = "mean"
    """How the scores of an output's steps become the one it is ranked by, in `best_of_n` and
    reports.
    """

    def for_newest_turn(self: S) -> S:
        """A copy that judges only the last turn of each output: for environments that pay each turn
        when it is taken, which would else judge the turns before it again and again.
        """
        copied: S = self.model_copy()
        kind: Any = self.kind
        copied.__dict__["kind"] = kind.newest()
        return copied

    def score_of_output(self, output: DataOutput) -> float | None:
        """One number from the scores of all steps, by `step_score`; None when a step has none."""
        turns = self.kind.places(output)
        return total_of([self.score_of(turn.reward) for turn in turns], self.step_score)


class BaseListWiseReward(BaseReward):
    """Judges all outputs together: one job, whose result holds one number per output in the order
    it saw them.
    """

    kind: ClassVar[Kind] = LISTWISE

    seed: int = 0
    """Decides, with the sample's id, the order in which a judge sees the candidates."""


class BasePairWiseReward(BaseReward):
    """Judges every pair of outputs; an output's score is its share of pairs won, a draw counting
    half.

    `_evaluate` sees a sample with two outputs and returns two numbers; the larger one wins. A judge
    is asked in both orders by default, and a pair it decides differently in the two is a draw;
    `extra_data` holds the share of such pairs as `flip_rate`, and none where one order alone was
    asked for (`both_orders=False`).

    A pair counts that was judged in all its orders. Where some were not, outputs are scored by the
    others: those of which at least half were judged. The output whose comparisons fail is left out,
    and costs its rivals nothing.
    """

    kind: ClassVar[Kind] = PAIRWISE
    score_range: Bounds = (0.0, 1.0)

    seed: int = 0
    """Decides, with the sample's id, the order in which a judge sees the candidates."""
    both_orders: bool = Field(default=True)
    """Whether a judge sees each pair in both orders; otherwise in one seeded order."""

    def aggregate(self, n: int, margins: dict[tuple[int, int], list[float]]) -> list[float]:
        """One score per output, in the declared range, from what was seen of each pair; here the
        share of pairs won.

        `margins[i, j]`, i < j, holds one number per judgement, positive where output i was the
        better one; up to half of an output's pairs may be absent. A pair whose judgements disagree
        is a draw.
        """
        won, judged = [0.0] * n, [0] * n
        for (i, j), seen in margins.items():
            signs = set(map(sign, seen))
            verdict = signs.pop() if len(signs) == 1 else 0
            won[i] += (1 + verdict) / 2
            won[j] += (1 - verdict) / 2
            judged[i] += 1
            judged[j] += 1
        return [share / count for share, count in zip(won, judged, strict=True)]


class PerOutputReward(BaseReward):
    """Says of every output by itself what came of it: `_evaluate` returns a `Score` for each output
    of its job's sample, whose `extra` is kept with it, whether or not there is a value.

    A job is one output, or all of a sample where outputs are compared (`compares`): then one of
    them may have a score while another has none.
    """

    @property
    def compares(self) -> bool:
        """Whether a sample's outputs have to be seen together."""
        return False

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # it depends on what the reward is made of
        """`listwise` where outputs are compared, else `pointwise`."""
        return EACH_TOGETHER if self.compares else EACH_ALONE
