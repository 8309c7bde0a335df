"""The kinds: how a sample becomes jobs, and how their results come back to its outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from textwrap import indent
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from rm_gallery.core.data.conversation import at_turn, turns_after
from rm_gallery.core.data.schema import (
    DataOutput,
    DataSample,
    Step,
)
from rm_gallery.core.reward.founding import checked
from rm_gallery.core.reward.job import Job
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.turns import total_of
from rm_gallery.core.reward.view import View, shown_text, step_title, turns_text, view_of, withheld
from rm_gallery.core.score import Bounds, Score, deciding, scored_by, unscored
from rm_gallery.core.utils.models import build, copy_with
from rm_gallery.core.utils.prompt import seeded_order

S = TypeVar("S", bound="BaseStepWiseReward")
_NEWEST_ONLY = "(newest turn only)"
UNFINISHED = frozenset(("stopped", "budget"))
"""Reasons of judgements that the same run makes when it is continued."""


class BasePointWiseReward(BaseReward):
    """Scores each output by itself: one job per output, whose `_evaluate` sees a sample with just
    that output.
    """

    kind: ClassVar[str] = "pointwise"

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job per output; with a single output the job's sample is the sample itself."""
        outputs = [withheld(o) for o in sample.output] if self.judged else sample.output
        if len(outputs) == 1 and not self.judged:
            return [Job(sample, 0, sample)]
        return [
            Job(copy_with(sample, output=[output]), i, sample) for i, output in enumerate(outputs)
        ]

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Each outcome is that of its own output."""
        return list(map(self.settled, outcomes))


class BaseTrajectoryReward(BasePointWiseReward):
    """Scores each trajectory by itself: one job per output, like a pointwise reward, and a judge sees
    all turns of it: those of the policy with the tools they call, of tools, users and environments.
    """

    kind: ClassVar[str] = "trajectory"

    def view(self, sample: DataSample) -> View:
        """The query, its context, and the turns of each output, each below its speaker."""
        view = view_of(sample)
        answers = [
            turns_text([*(o.steps or ()), o.answer, *turns_after(o)], view.parts)
            for o in sample.output
        ]
        return view._replace(answers=answers)


class EachOutput(BaseReward):
    """What rewards share whose `_evaluate` returns a `Score` for each output of its job's sample."""

    def _as_score(self, returned: Any, sample: DataSample) -> Any:
        """A score for each output."""
        return [checked(self, score) for score in returned]

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Each output gets what was said of it; of several together nobody can tell whose doing it
        is that there is no score.
        """
        scores = list[Score[Any]]()
        for job, outcome in zip(jobs, outcomes, strict=True):
            n = 1 if isinstance(job.place, int) else len(sample.output)
            if outcome.value is None:
                scores += [outcome.without_value()] * n if n > 1 else [self.settled(outcome)]
            else:
                scores += [
                    self.settled(one) for _, one in zip(range(n), outcome.value, strict=True)
                ]
        return scores


class PerOutputReward(EachOutput, BasePointWiseReward):
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
    def kind(self) -> str:  # type: ignore[override]  # it depends on what the reward is made of
        """`listwise` where outputs are compared, else `pointwise`."""
        return "listwise" if self.compares else "pointwise"

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job per output; one for the whole sample where outputs are compared."""
        if not self.compares:
            return super().jobs(sample)
        return [Job(sample, None, sample)] if sample.output else []


class BaseStepWiseReward(BaseReward):
    """Scores each step of each output: one job per step, whose `_evaluate` sees that output's steps
    up to this one.

    The steps are `DataOutput.turns`: of a trajectory the policy's own turns, the last of which is
    the answer, with what tools, users and environments said among the steps before; an answer
    without steps is the one step there is.
    """

    kind: ClassVar[str] = "stepwise"

    step_score: Literal["mean", "min", "last", "product"] = "mean"
    """How the scores of an output's steps become the one it is ranked by, in `best_of_n` and
    reports.
    """

    def for_newest_turn(self: S) -> S:
        """A copy that judges only the last turn of each output: for environments that pay each turn
        when it is taken, which would else judge the turns before it again and again.
        """
        copied: S = self.model_copy()
        copied.__dict__[_NEWEST_ONLY] = True
        return copied

    def view(self, sample: DataSample) -> View:
        """The query, its context, the steps before, and the step to judge; neither later steps nor
        the final answer.
        """
        steps = sample.output[0].steps or []
        view, solution = view_of(sample), not sample.output[0].is_trajectory
        before = [
            f"[{step_title(step, number, solution)}]\n{indent(shown_text(step, view.parts), '    ')}"
            for number, step in enumerate(steps[:-1], 1)
        ]
        return view._replace(
            previous="\n\n".join(before), step=shown_text(steps[-1], view.parts) if steps else ""
        )

    def score_of_output(self, output: DataOutput) -> float | None:
        """One number from the scores of all steps, by `step_score`; None when a step has none."""
        return total_of(
            [self.score_of(turn.reward) for turn in self.places(output)], self.step_score
        )

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job per turn of the policy; `sample.output[0].steps[-1]` is the one to judge."""
        jobs = []
        for i, output in enumerate(sample.output):
            shown = withheld(output) if self.judged else output
            spoken = [*(shown.steps or ()), shown.answer]
            places = list(enumerate(output.turn_places))
            for j, place in places[-1:] if _NEWEST_ONLY in self.__dict__ else places:
                part = build(DataOutput, {"answer": shown.answer, "steps": spoken[: place + 1]})
                jobs.append(Job(copy_with(sample, output=[part]), (i, j), sample))
        return jobs

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Each outcome is that of its own step."""
        steps: list[list[Score[Any]]] = [[] for _ in sample.output]
        for job, outcome in zip(jobs, outcomes, strict=True):
            steps[job.place[0]].append(self.settled(outcome))
        return list(map(self.of_places, steps))

    def places(self, output: DataOutput) -> Sequence[Step]:
        """Its turns, or the newest one."""
        return output.turns[-1:] if _NEWEST_ONLY in self.__dict__ else output.turns

    def of_places(self, scores: Sequence[Score[Any]]) -> Score[Any]:
        """The scores of its steps as one, by `step_score`."""
        total = total_of([score.value for score in scores], self.step_score)
        missing = [score for score in scores if score.value is None]
        whole = Score(total) if total is not None else deciding(missing).without_value()
        return replace(whole, steps=tuple(scores))


class EachTurn(BaseStepWiseReward):
    """Scores each turn by what there was when it had been heard: a job's sample holds the turn as
    its answer, and what tools and others said to it behind that.
    """

    hears: ClassVar[bool] = True
    """Whether a score may depend on what tools answered to the turn."""

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job per turn."""
        made = []
        for job in super().jobs(sample):
            i, j = job.place
            shown = copy_with(sample, output=[at_turn(sample.output[i], j)])
            made.append(job._replace(sample=shown))
        return made


class _ComparingReward(BaseReward):
    """What listwise and pairwise judging share: a seeded order and writing one number per output."""

    seed: int = 0
    """Decides, with the sample's id, the order in which a judge sees the candidates."""

    def order(self, sample: DataSample, n: int, salt: str = "") -> list[int]:
        """The permutation of `n` candidates a judge sees, from (sample id, seed) alone; the given
        order for rules.
        """
        return (
            seeded_order(n, f"{self.seed}\x1f{sample.sample_id}\x1f{salt}")
            if self.judged
            else list(range(n))
        )

    def arranged(self, sample: DataSample, order: list[int]) -> DataSample:
        """The sample with its outputs in this order, labels withheld when a model judges."""
        outputs = [sample.output[i] for i in order]
        return copy_with(sample, output=[withheld(o) for o in outputs] if self.judged else outputs)

    def _too_few(self, sample: DataSample) -> list[Score[Any]]:
        message = "One output alone cannot be compared; use the pointwise reward of the same name."
        return self.everywhere(sample, unscored("single_output", message, "data"))


class BaseListWiseReward(_ComparingReward):
    """Judges all outputs together: one job, whose result holds one number per output in the order
    it saw them.
    """

    kind: ClassVar[str] = "listwise"

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job with every output; none for a sample with nothing to compare."""
        if not sample.output or (self.judged and len(sample.output) == 1):
            return []
        order = self.order(sample, len(sample.output))
        return [Job(self.arranged(sample, order), order, sample)]

    def _gives(self, sample: DataSample) -> tuple[int, Bounds]:
        return len(sample.output), self.score_range

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """The numbers go back to the outputs they were given for."""
        if not jobs:
            return self._too_few(sample)
        order: list[int] = jobs[0].place
        score = outcomes[0]
        if score.value is None:
            return self.everywhere(sample, score.without_value())
        extra = {**score.components, **score.extra}
        if self.judged:
            extra["order"] = order
        given = dict[int, Score[Any]]()
        for position, index in enumerate(order):
            details = [detail._replace(value=detail.value[position]) for detail in score.details]
            given[index] = (
                scored_by(details, extra)
                if details
                else Score(score.value[position], score.reason, extra=extra)
            )
        return [given[index] for index in range(len(order))]


class BasePairWiseReward(_ComparingReward):
    """Judges every pair of outputs; an output's score is its share of pairs won, a draw counting
    half.

    `_evaluate` sees a sample with two outputs and returns two numbers; the larger one wins. A judge
    is asked in both orders by default, and a pair it decides differently in the two is a draw;
    `extra_data` holds the share of such flips.

    A pair counts that was judged in all its orders. Where some were not, outputs are scored by the
    others: those of which at least half were judged. The output whose comparisons fail is left out,
    and costs its rivals nothing.
    """

    kind: ClassVar[str] = "pairwise"
    score_range: Bounds = (0.0, 1.0)

    both_orders: bool = Field(default=True)
    """Whether a judge sees each pair in both orders; otherwise in one seeded order."""

    @property
    def trial_size(self) -> int:
        """A pair."""
        return 2

    def jobs(self, sample: DataSample) -> list[Job]:
        """One job per pair and order."""
        if len(sample.output) < 2:
            return []
        jobs = []
        for i, j in combinations(range(len(sample.output)), 2):
            first, second = (i, j) if self.order(sample, 2, f"{i},{j}") == [0, 1] else (j, i)
            orders = (
                [(first, second), (second, first)]
                if self.judged and self.both_orders
                else [(first, second)]
            )
            jobs += [Job(self.arranged(sample, list(order)), order, sample) for order in orders]
        return jobs

    def _gives(self, sample: DataSample) -> tuple[int, Bounds]:
        return 2, (None, None)

    def merge(
        self, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Share of pairs won per output, of the pairs that were judged; an output of which less
        than half were has no score.
        """
        if not jobs:
            return self._too_few(sample)
        margins: dict[tuple[int, int], list[float]] = {}
        orders: dict[str, list[list[int]]] = {}
        reasons: list[list[str]] = [[] for _ in sample.output]
        lost: dict[tuple[int, int], Score[Any]] = {}
        for job, score in zip(jobs, outcomes, strict=True):
            first, second = job.place
            pair = (min(first, second), max(first, second))
            if score.value is None:
                if score.code in UNFINISHED:  # to be judged when the run goes on
                    return self.everywhere(sample, score.without_value())
                lost.setdefault(pair, score)
                continue
            told = score.dimensions(self.name)
            shown = [sum(detail.value[k] for detail in told) for k in (0, 1)]
            sign = 1.0 if first < second else -1.0
            orders.setdefault(f"{pair[0]},{pair[1]}", []).append([first, second])
            margins.setdefault(pair, []).append(sign * (shown[0] - shown[1]) + 0.0)
            for reason in filter(None, (detail.reason for detail in told)):
                reasons[first].append(reason)
                reasons[second].append(reason)
        kept = _compared(len(sample.output), lost)
        # a pair that was judged in one order alone says which stood first as much as which is better
        judged = {
            p: seen
            for p, seen in margins.items()
            if p not in lost and p[0] in kept and p[1] in kept
        }
        shares = self._shares(len(sample.output), kept, judged, orders, reasons) if kept else {}
        return [
            shares[index]
            if index in shares
            else deciding(
                [outcome for pair, outcome in lost.items() if index in pair] or lost.values()
            ).without_value()
            for index in range(len(sample.output))
        ]

    def aggregate(self, n: int, margins: dict[tuple[int, int], list[float]]) -> list[float]:
        """One score per output, in the declared range, from what was seen of each pair; here the
        share of pairs won.

        `margins[i, j]`, i < j, holds one number per judgement, positive where output i was the
        better one; up to half of an output's pairs may be absent. A pair whose judgements disagree
        is a draw.
        """
        won, judged = [0.0] * n, [0] * n
        for (i, j), seen in margins.items():
            signs = set(map(_sign, seen))
            verdict = signs.pop() if len(signs) == 1 else 0
            won[i] += (1 + verdict) / 2
            won[j] += (1 - verdict) / 2
            judged[i] += 1
            judged[j] += 1
        return [share / count for share, count in zip(won, judged, strict=True)]

    def _shares(
        self,
        n: int,
        kept: list[int],
        margins: dict[tuple[int, int], list[float]],
        orders: dict[str, list[list[int]]],
        reasons: list[list[str]],
    ) -> dict[int, Score[Any]]:
        places = {index: place for place, index in enumerate(kept)}
        scores = self.aggregate(
            len(kept), {(places[i], places[j]): seen for (i, j), seen in margins.items()}
        )
        flips = sum(len(set(map(_sign, seen))) > 1 for seen in margins.values())
        pairs = {f"{i},{j}": seen for (i, j), seen in margins.items()}
        extra: dict[str, Any] = {"pairs": pairs}
        if self.judged:
            extra |= {
                "orders": {pair: orders[pair] for pair in pairs},
                "flip_rate": flips / len(margins),
            }
        if len(margins) < math.comb(n, 2):
            extra["judged_pairs"] = f"{len(margins)} of {math.comb(n, 2)}"
        return {
            index: checked(self, Score(score, "\n".join(reasons[index]), extra=extra))
            for index, score in zip(kept, scores, strict=True)
        }


def _compared(n: int, lost: Collection[tuple[int, int]]) -> list[int]:
    """Of `n` outputs those of which at least half of the comparisons with one another were judged;
    none where that is one.

    The worst is left out first, so that one that cannot be judged at all costs the others nothing.
    """
    kept = list(range(n))
    while len(kept) > 1:
        missing = {
            i: sum(i in pair and pair[0] in kept and pair[1] in kept for pair in lost) for i in kept
        }
        worst = max(missing.values())
        if 2 * worst <= len(kept) - 1:
            return kept
        kept = [i for i in kept if missing[i] < worst]
    return []


def _sign(margin: float) -> int:
    return (margin > 0) - (margin < 0)
