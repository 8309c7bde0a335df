"""The kinds: how a sample becomes jobs, and how their scores come back to its outputs.

A kind is a value that a class of rewards has as `kind`; it equals its name.

>>> POINTWISE == "pointwise", LISTWISE.compares
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from textwrap import indent
from typing import Any

from rm_gallery.core.data.conversation import at_turn, turns_after
from rm_gallery.core.data.schema import TURN, DataOutput, DataSample, Step
from rm_gallery.core.reward.founding import checked, score_of_result, settled
from rm_gallery.core.reward.job import AnyReward, Job
from rm_gallery.core.reward.turns import total_of
from rm_gallery.core.reward.view import (
    View,
    shown_text,
    step_title,
    turns_text,
    view_of,
    whole_answers,
    withheld,
)
from rm_gallery.core.score import Score, deciding, scored_by, unscored
from rm_gallery.core.utils.models import build, copy_with
from rm_gallery.core.utils.prompt import seeded_order

UNFINISHED = frozenset(("stopped", "budget"))
"""Reasons of judgements that the same run makes when it is continued."""
Scores = list[Score[Any]]
ONE_ALONE = "One output alone cannot be compared"


class Kind(str):
    """What a kind does with a sample, whatever judges it.

    Args:
        name: what it equals and is shown as.
        each: whether `_evaluate` returns a `Score` for each output of its job's sample, else one
            for the job, which holds several numbers where outputs are compared.
        compares: whether outputs are judged against one another, so that all answers to one prompt
            belong into one sample.
        trial_size: answers that have to be judged together to judge one: 1, 2 for pairs, None for
            the whole group.
        hears: whether a score may depend on what tools answered to the turn that is judged.
    """

    def __new__(
        cls,
        name: str,
        *,
        each: bool = False,
        compares: bool = False,
        trial_size: int | None = 1,
        hears: bool = False,
    ) -> Kind:
        """Make the value."""
        made = super().__new__(cls, name)
        made.each, made.compares, made.trial_size, made.hears = each, compares, trial_size, hears
        return made

    each: bool
    compares: bool
    trial_size: int | None
    hears: bool

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """The jobs that judge a sample."""
        raise NotImplementedError

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """What the outcomes of the jobs come to for each output."""
        raise NotImplementedError

    def read(self, reward: AnyReward, returned: Any, sample: DataSample) -> Any:
        """What `_evaluate` returned for a job, as a score, or as one for each output."""
        if self.each:
            return [checked(reward, score) for score in returned]
        return checked(reward, score_of_result(returned, reward.name))

    def order(self, reward: AnyReward, sample: DataSample, n: int, salt: str = "") -> list[int]:
        """The order in which a job shows `n` outputs; as they are given, for most."""
        return list(range(n))

    def view(self, sample: DataSample) -> View:
        """What a judge sees of a job's sample."""
        return whole_answers(sample)

    def places(self, output: DataOutput) -> Sequence[Step]:
        """Where scores of an output are written."""
        return [output.answer]

    def whole(self, reward: AnyReward, scores: Sequence[Score[Any]]) -> Score[Any]:
        """What is said of an output at whose places these scores are."""
        return scores[0]

    def everywhere(self, reward: AnyReward, sample: DataSample, score: Score[Any]) -> Scores:
        """The same said at each place of each output."""
        return [self.whole(reward, [score] * len(self.places(out))) for out in sample.output]


class Pointwise(Kind):
    """Each output by itself: a job's sample holds just that one."""

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """One job per output; with a single output the job's sample is the sample itself."""
        outputs = [withheld(o) for o in sample.output] if reward.judged else sample.output
        if len(outputs) == 1 and not reward.judged:
            return [Job(sample, 0, sample)]
        return [
            Job(copy_with(sample, output=[output]), i, sample) for i, output in enumerate(outputs)
        ]

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """Each outcome is that of its own output."""
        if self.each:
            outcomes = [one if one.value is None else _only(one.value) for one in outcomes]
        return [settled(reward, outcome) for outcome in outcomes]


class Trajectory(Pointwise):
    """Each output by itself, and a judge sees all turns of it: those of the policy with the tools
    they call, of tools, users and environments.
    """

    def view(self, sample: DataSample) -> View:
        """The query, its context, and the turns of each output, each below its speaker."""
        view = view_of(sample)
        answers = [
            turns_text([*(o.steps or ()), o.answer, *turns_after(o)], view.parts)
            for o in sample.output
        ]
        return view._replace(answers=answers)


class Stepwise(Kind):
    """Each step of each output, with that output's steps up to this one."""

    newest_only = False

    def newest(self) -> Stepwise:
        """The same for the last turn of each output alone."""
        made = type(self)(self)
        made.__dict__ |= {**self.__dict__, "newest_only": True}
        return made

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """One job per turn of the policy; `sample.output[0].steps[-1]` is the one to judge."""
        jobs = []
        for i, output in enumerate(sample.output):
            shown = withheld(output) if reward.judged else output
            spoken = [*(shown.steps or ()), shown.answer]
            for j in self.numbers(output):
                steps = spoken[: output.turn_places[j] + 1]
                part = build(DataOutput, {"answer": shown.answer, "steps": steps})
                jobs.append(Job(copy_with(sample, output=[part]), (i, j), sample))
        return jobs

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """Each outcome is that of its own step."""
        steps: list[Scores] = [[] for _ in sample.output]
        for job, outcome in zip(jobs, outcomes, strict=True):
            steps[job.place[0]].append(settled(reward, outcome))
        return [self.whole(reward, each) for each in steps]

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

    def places(self, output: DataOutput) -> Sequence[Step]:
        """Its turns, or the one that is to be judged."""
        turns = output.turns
        return [turns[j] for j in self.numbers(output)]

    def numbers(self, output: DataOutput) -> Sequence[int]:
        """The numbers of the turns to judge."""
        numbers = range(len(output.turn_places))
        last = -1 if self.newest_only else None
        only = output.answer.additional_kwargs.get(TURN, last)
        return numbers if only is None else [numbers[only]]

    def whole(self, reward: Any, scores: Sequence[Score[Any]]) -> Score[Any]:
        """The scores of its steps as one, by `step_score`."""
        total = total_of([score.value for score in scores], reward.step_score)
        missing = [score for score in scores if score.value is None]
        made = Score(total) if total is not None else deciding(missing).without_value()
        return replace(made, steps=tuple(scores))


class Turnwise(Stepwise):
    """Each turn by what there was when it had been heard: a job's sample holds the turn as its
    answer, and what tools and others said to it behind that.
    """

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """One job per turn."""
        made = []
        for job in super().jobs(reward, sample):
            i, j = job.place
            shown = copy_with(sample, output=[at_turn(sample.output[i], j)])
            made.append(job._replace(sample=shown))
        return made


class Comparing(Kind):
    """Outputs beside one another, in a seeded order where a model judges."""

    def order(self, reward: Any, sample: DataSample, n: int, salt: str = "") -> list[int]:
        """The permutation of `n` candidates a judge sees, from (sample id, seed) alone; the given
        order for rules.
        """
        if not reward.judged:
            return super().order(reward, sample, n)
        return seeded_order(n, f"{reward.seed}\x1f{sample.sample_id}\x1f{salt}")

    @staticmethod
    def arranged(reward: AnyReward, sample: DataSample, order: list[int]) -> Job:
        """The job of these outputs in this order, labels withheld where a model judges."""
        outputs = [sample.output[i] for i in order]
        if reward.judged:
            outputs = [withheld(output) for output in outputs]
        return Job(copy_with(sample, output=outputs), order, sample)

    def too_few(self, reward: AnyReward, sample: DataSample) -> Scores:
        """Why there is nothing to compare."""
        why = f"{ONE_ALONE}; use the pointwise reward of the same name."
        return self.everywhere(reward, sample, unscored("single_output", why, "data"))


class Listwise(Comparing):
    """All outputs together: one job, whose result holds one number per output in the order it saw
    them.
    """

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """One job with every output; none for a sample with nothing to compare."""
        if not sample.output or (reward.judged and len(sample.output) == 1):
            return []
        return [self.arranged(reward, sample, self.order(reward, sample, len(sample.output)))]

    def read(self, reward: AnyReward, returned: Any, sample: DataSample) -> Any:
        """A number for each output."""
        return checked(reward, score_of_result(returned, reward.name), len(sample.output))

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """The numbers go back to the outputs they were given for."""
        if not jobs:
            return self.too_few(reward, sample)
        order: list[int] = jobs[0].place
        score = outcomes[0]
        if score.value is None:
            return self.everywhere(reward, sample, score.without_value())
        extra = {**score.components, **score.extra}
        if reward.judged:
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


class Together(Kind):
    """All outputs in one job, which says of each by itself what came of it: one of them may have a
    score while another has none.
    """

    def jobs(self, reward: AnyReward, sample: DataSample) -> list[Job]:
        """One for the whole sample."""
        return [Job(sample, None, sample)] if sample.output else []

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """Each output gets what was said of it; of several together nobody can tell whose doing it
        is that there is no score.
        """
        n = len(sample.output)
        scores: Scores = []
        for outcome in outcomes:
            if outcome.value is None:
                alone = n == 1
                scores += [settled(reward, outcome) if alone else outcome.without_value()] * n
            else:
                both = zip(range(n), outcome.value, strict=True)
                scores += [settled(reward, one) for _, one in both]
        return scores


class Pairwise(Comparing):
    """Every pair of outputs; an output's score is its share of pairs won, a draw counting half.

    A pair counts that was judged in all its orders. Where some were not, outputs are scored by the
    others: those of which at least half were judged. The output whose comparisons fail is left out,
    and costs its rivals nothing.
    """

    def jobs(self, reward: Any, sample: DataSample) -> list[Job]:
        """One job per pair and order."""
        jobs = []
        for pair in combinations(range(len(sample.output)), 2):
            shown = self.order(reward, sample, 2, f"{pair[0]},{pair[1]}")
            first = [pair[place] for place in shown]
            both = reward.judged and reward.both_orders
            for order in [first, first[::-1]] if both else [first]:
                jobs.append(self.arranged(reward, sample, order))
        return jobs

    def read(self, reward: AnyReward, returned: Any, sample: DataSample) -> Any:
        """A number for each of the two; of any size, since the larger one wins."""
        return checked(reward, score_of_result(returned, reward.name), 2, (None, None))

    def merge(
        self, reward: AnyReward, sample: DataSample, jobs: list[Job], outcomes: Scores
    ) -> Scores:
        """Share of pairs won per output, of the pairs that were judged; an output of which less
        than half were has no score.
        """
        if not jobs:
            return self.too_few(reward, sample)
        margins: dict[tuple[int, int], list[float]] = {}
        orders: dict[str, list[list[int]]] = {}
        reasons: list[list[str]] = [[] for _ in sample.output]
        lost: dict[tuple[int, int], Score[Any]] = {}
        for job, score in zip(jobs, outcomes, strict=True):
            first, second = job.place
            pair = (min(first, second), max(first, second))
            if score.value is None:
                if score.code in UNFINISHED:  # to be judged when the run goes on
                    return self.everywhere(reward, sample, score.without_value())
                lost.setdefault(pair, score)
                continue
            told = score.dimensions(reward.name)
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
        shares = _shares(reward, len(reasons), kept, judged, orders, reasons) if kept else {}
        return [
            shares[index]
            if index in shares
            else deciding(
                [outcome for pair, outcome in lost.items() if index in pair] or lost.values()
            ).without_value()
            for index in range(len(sample.output))
        ]


def _shares(
    reward: Any,
    n: int,
    kept: list[int],
    margins: dict[tuple[int, int], list[float]],
    orders: dict[str, list[list[int]]],
    reasons: list[list[str]],
) -> dict[int, Score[Any]]:
    places = {index: place for place, index in enumerate(kept)}
    scores = reward.aggregate(
        len(kept), {(places[i], places[j]): seen for (i, j), seen in margins.items()}
    )
    flips = sum(len(set(map(sign, seen))) > 1 for seen in margins.values())
    pairs = {f"{i},{j}": seen for (i, j), seen in margins.items()}
    extra: dict[str, Any] = {"pairs": pairs}
    if reward.judged:
        extra["orders"] = {pair: orders[pair] for pair in pairs}
        if reward.both_orders:  # else nothing can flip
            extra["flip_rate"] = flips / len(margins)
    if len(margins) < math.comb(n, 2):
        extra["judged_pairs"] = f"{len(margins)} of {math.comb(n, 2)}"
    return {
        index: checked(reward, Score(score, "\n".join(reasons[index]), extra=extra))
        for index, score in zip(kept, scores, strict=True)
    }


def _only(scores: Scores) -> Score[Any]:
    [score] = scores
    return score


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


def sign(margin: float) -> int:
    """1, 0 or -1."""
    return (margin > 0) - (margin < 0)


POINTWISE = Pointwise("pointwise")
TRAJECTORY = Trajectory("trajectory")
STEPWISE = Stepwise("stepwise")
TURNWISE = Turnwise("stepwise", hears=True)
TURNWISE_UNHEARD = Turnwise("stepwise")
LISTWISE = Listwise("listwise", compares=True, trial_size=None)
PAIRWISE = Pairwise("pairwise", compares=True, trial_size=2)
EACH_ALONE = Pointwise("pointwise", each=True)
EACH_TOGETHER = Together("listwise", each=True, compares=True, trial_size=None)
EACH_IN_PAIRS = Together("listwise", each=True, compares=True, trial_size=2)
"""Of outputs that are scored together and tried two by two, since whole groups would cost a part
that compares pairs the square of their size."""
