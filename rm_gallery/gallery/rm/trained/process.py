"""What process reward models share: all steps of an answer are scored in one pass, and each step gets its own score."""

from __future__ import annotations

from typing import ClassVar

from rm_gallery.core.data.schema import DataOutput, DataSample, RewardDimensionWithRank, RewardDimensionWithScore
from rm_gallery.core.outcome import Outcome, failed, unscored
from rm_gallery.core.reward.base import BaseStepWiseReward
from rm_gallery.core.reward.kinds import Bounds
from rm_gallery.core.reward.merge import issue_of, out_of_range, write
from rm_gallery.core.reward.reward import Job
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.models import copy_with

STEPPED = DataSample.model_validate(
    {
        "input": [{"role": "user", "content": "What is 2 + 2 * 3?"}],
        "output": [
            {
                "answer": {"role": "assistant", "content": "12"},
                "steps": [
                    {"role": "assistant", "content": "Multiplication comes first: 2 * 3 = 6."},
                    {"role": "assistant", "content": "Then 2 + 6 = 12."},
                ],
            }
        ],
    }
)
"""For examples: the first step is right, the second is not."""


class ProcessReward(BaseStepWiseReward):
    """A process reward model: P(step is right) for every step of an answer, each given the steps before it.

    Range [0, 1], higher is better. `step_score` (mean, min, last, product) says how the steps of an answer become the one
    number it is ranked by. One pass of the model scores all steps of an answer; an answer whose number of scores is not its
    number of steps is failed, never shifted or cut. An output without steps is unscored (`no_steps`).

    Source: H. Lightman et al., "Let's Verify Step by Step", arXiv 2305.20050 (product and minimum); for the last step as the
    answer's score, C. Snell et al., arXiv 2408.03314.
    """

    score_range: ClassVar[Bounds] = (0.0, 1.0)

    def plan(self, sample: DataSample) -> list[Job]:
        """One job per output that has steps."""
        return [
            Job(copy_with(sample, output=[output]), place, sample) for place, output in enumerate(sample.output) if output.steps
        ]

    def merge(self, sample: DataSample, jobs: list[Job], outcomes: list[Outcome[RewardResult]]) -> None:
        """Each number goes to its step; one that is missing or out of range costs the whole answer."""
        for output in sample.output:
            if not output.steps:
                missing = unscored("no_steps", "The output holds no steps.", "data")
                write(output.answer, self, [], issue_of(self.name, missing))
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._write_steps(sample.output[job.place], outcome)

    def _write_steps(self, output: DataOutput, outcome: Outcome[RewardResult]) -> None:
        steps = output.steps or []
        details = outcome.value.details if outcome.value is not None else []
        numbers = [number for detail in details if isinstance(detail, RewardDimensionWithRank) for number in detail.rank]
        if outcome.ok:
            odd = next(filter(None, (out_of_range(number, self.score_range) for number in numbers)), None)
            if len(numbers) != len(steps):
                odd = f"The model gave {len(numbers)} scores for {len(steps)} steps."
            if odd is not None:
                outcome = failed("invalid_result", odd, "judge")
        for place, step in enumerate(steps):
            if outcome.ok:
                write(step, self, [RewardDimensionWithScore(name=self.name, score=numbers[place])])
            else:
                write(step, self, [], issue_of(self.name, outcome))

    def steps_result(self, numbers: list[float]) -> RewardResult:
        """The numbers of an answer's steps as a result."""
        return RewardResult(name=self.name, details=[RewardDimensionWithRank(name=self.name, rank=numbers)])
