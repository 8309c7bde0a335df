"""Strategies: a grader asked several times, in both orders, or pair by pair, as a grader of its
own.

Each call of the inner grader has its own number in cache key and sampling seed, so that a vote is
never a copy of another. A strategy says which calls it makes and what their results come to.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, cycle
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny

from rm_gallery.core.engine.loop import RunStopped
from rm_gallery.core.graders.base import (
    BaseGrader,
    GraderMode,
    places_of,
    usage_sum,
)
from rm_gallery.core.graders.results import OWN, scale_of
from rm_gallery.core.graders.run import agraded, error_of
from rm_gallery.core.reward.asking import side_by_side
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import NOT_BEGUN, Score, deciding, score_of_error, unscored
from rm_gallery.core.utils.errors import ConfigError, Unscored

TieBreak = Callable[[Sequence[float], Sequence[float]], float]
TIE_BREAKS: dict[str, TieBreak] = {
    "min": lambda tied, votes: min(tied),
    "max": lambda tied, votes: max(tied),
    "first": lambda tied, votes: next(vote for vote in votes if vote in tied),
    "closest_to_mean": lambda tied, votes: min(
        # to nine places: 0.1 and 0.2 are equally far from 0.15
        tied,
        key=lambda score: (round(abs(score - statistics.fmean(votes)), 9), score),
    ),
}
Ranks = Sequence[list[int]]


class _Wrapper(BaseGrader):
    """A grader around another one: its fields, range and direction."""

    taken: ClassVar[Sequence[str]] = (
        *("name", "score_range", "higher_is_better", "threshold", "description", "deadline"),
        *("worst", "mode"),
    )
    """The settings of the inner grader that are its own where none are given."""
    grader: SerializeAsAny[BaseReward]

    def __init__(self, grader: BaseReward | None = None, **settings: Any) -> None:
        """Take name, range, direction and threshold of the inner grader where none is given."""
        if isinstance(grader, BaseReward):
            own = {name: getattr(grader, name) for name in self.taken if hasattr(grader, name)}
            settings = {**own, "grader": grader, **settings}
        super().__init__(**settings)

    def check(self) -> None:
        """Raise ConfigError when the inner grader could not grade at all."""
        self.grader.check()

    @property
    def inputs(self) -> dict[str, bool]:
        """The inner grader's fields."""
        return self.grader.inputs

    @property
    def llm(self) -> Any:
        """The model that judges, None where none does."""
        return getattr(self.grader, "llm", None)

    @property
    def judged(self) -> bool:  # type: ignore[override]  # it depends on the inner grader
        """Whether the inner grader asks a model."""
        return self.grader.judged

    @property
    def declares_missing(self) -> bool:
        """Whether the inner grader does; the wrapper itself says how many gradings it needs."""
        return self.grader.declares_missing

    async def _ask_all(
        self, calls: Sequence[Mapping[str, Any]], first: int = 0
    ) -> list[Score[Any]]:
        asked = [partial(agraded, self.grader, dict(fields)) for fields in calls]
        results: list[Score[Any]] = []
        for one in await side_by_side(enumerate(asked, first)):
            if isinstance(one, Exception):  # an error of the run is raised again
                one = score_of_error(one)
            if isinstance(one, BaseException):
                raise one
            if one.code in NOT_BEGUN:
                # what was never asked is no missing vote: the whole is owed again
                raise RunStopped(one.reason, one.cause or "caller")
            results.append(one)
        return results


def _missed(message: str, results: Sequence[Score[Any]], reason: str) -> Exception:
    """Why there is no result: failed where a part failed, which another run asks again, else
    unscored.
    """
    lost = [one for one in results if not one.ok]
    why = deciding(lost) if lost else unscored(reason, message, "rule")
    code = why.code if why.status == "failed" else reason
    return error_of(replace(why, reason=message, code=code))


class _Repeated(_Wrapper):
    """A strategy that grades the same several times, and takes the mean."""

    what: ClassVar[str] = "gradings"
    n: int = Field(default=3, ge=2)
    least: int | None = Field(default=None, ge=1)
    """So many of them have to give a score; by default all gradings of an average, and more than
    half of the votes.
    """

    def check(self) -> None:
        """Raise ConfigError for more scores than there are gradings, and for an order, which has no
        mean.
        """
        super().check()
        if self.grader.compares:
            raise ConfigError(
                f"{self.name}: {self.grader.name} orders responses, and {self.what} of scores are "
                f"wanted; take TournamentGrader or BothOrdersGrader around it."
            )
        if self.least is not None and self.least > self.n:
            raise ConfigError(
                f"{self.name}: least is {self.least}, and there are {self.n} {self.what}."
            )

    async def _grade(self, /, **fields: Any) -> Score[float]:
        results: list[Score[Any]] = []
        while wave := self._wave(results):
            results += await self._ask_all([fields] * wave, len(results))
        noted = list(map(_noted, results))
        votes = [one for one in results if isinstance(one.value, float)]
        if len(votes) < (least := self.least or self._usual()):
            why = next((note["error"] for note in noted if "error" in note), "")
            raise _missed(
                f"{len(votes)} of {len(results)} {self.what} gave a score, {least} are needed: "
                f"{why}",
                results,
                "votes",
            )
        scales = {scale_of(vote, self) for vote in votes}
        if len(scales) > 1:
            raise ValueError(f"{self.what} of different scales have no common one: {scales}")
        verdict = self._verdict(votes, self.n - len(results))
        own = {OWN: votes[0].extra[OWN]} if OWN in votes[0].extra else {}
        extra = {**verdict.extra, "results": noted, **own}
        return replace(verdict, extra=extra, usage=usage_sum(results))

    def _usual(self) -> int:
        return self.n

    def _wave(self, results: Sequence[Score[Any]]) -> int:
        """How many to ask next."""
        return self.n - len(results)

    def _verdict(self, graded: Sequence[Score[Any]], saved: int) -> Score[float]:
        """What the gradings come to, `saved` of which were not asked for."""
        scores: list[float] = [each.value or 0.0 for each in graded]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        metadata = {"n": len(scores), "std": spread, "min": min(scores), "max": max(scores)}
        return Score(math.fsum(scores) / len(scores), graded[0].reason, extra=metadata)


def _noted(one: Score[Any]) -> dict[str, Any]:
    """What the metadata say of one grading."""
    if isinstance(one.value, float):
        return {"score": one.value, "reason": one.reason}
    why = "it gave a GraderRank" if one.ok else one.reason
    return {"error": why, "type": one.code or "GraderRank"}


class AverageGrader(_Repeated):
    """The mean of `n` gradings, with their spread in the metadata; all have to give a score unless
    `least` is lower.
    """

    __init__ = _Wrapper.__init__


class VotingGrader(_Repeated):
    """The score that most of `n` gradings give.

    With `early_stop` it asks only as many as are needed: no more once the leader cannot be caught;
    the metadata say how many calls that saved.
    """

    __init__ = _Wrapper.__init__

    what = "votes"
    tie_break: str | TieBreak = "min"
    """Which of several equally frequent scores: min, max, first, closest_to_mean, or a function of
    (tied, votes).
    """
    early_stop: bool = False

    def check(self) -> None:
        """Raise ConfigError for a tie-break there is not."""
        super().check()
        if not callable(self.tie_break) and self.tie_break not in TIE_BREAKS:
            raise ConfigError(
                f"{self.name}: tie_break is {self.tie_break!r}; it is one of "
                f"{', '.join(TIE_BREAKS)}."
            )

    def _usual(self) -> int:
        return self.n // 2 + 1

    def _wave(self, results: Sequence[Score[Any]]) -> int:
        left = super()._wave(results)
        if not self.early_stop:
            return left
        counts = Counter(one.value for one in results if isinstance(one.value, float))
        first, second = ([count for _, count in counts.most_common(2)] + [0, 0])[:2]
        if first > second + left and first >= (self.least or 1):
            return 0  # the leader cannot be caught
        return min(left, max(1, (left + second - first) // 2 + 1))

    def _verdict(self, graded: Sequence[Score[Any]], saved: int) -> Score[float]:
        votes: list[float] = [each.value or 0.0 for each in graded]
        counts = Counter(votes)
        top = max(counts.values())
        tied = sorted(score for score in counts if counts[score] == top)
        choose = TIE_BREAKS[self.tie_break] if isinstance(self.tie_break, str) else self.tie_break
        score = tied[0] if len(tied) == 1 else float(choose(tied, votes))
        metadata = {"votes": votes, "share": counts[score] / len(votes), "tied": len(tied) > 1}
        metadata |= {"calls_saved": saved} if self.early_stop else {}
        reason = next((each.reason for each in graded if each.value == score), "")
        return Score(score, reason, extra=metadata)


class _Comparing(_Wrapper):
    """A strategy over comparisons of two."""

    # whatever mode the inner grader has: a function that compares need not say that it does
    taken = _Wrapper.taken[:-1]
    mode: GraderMode = GraderMode.LISTWISE

    def check(self) -> None:
        """Raise ConfigError when the inner grader compares nothing."""
        super().check()
        if not {"responses", "*"} & self.grader.inputs.keys():
            raise ConfigError(
                f"{self.name}: {self.grader.name} takes {', '.join(self.grader.inputs)}; "
                f"{type(self).__name__} is put around a "
                "grader that takes 'responses', a list, and orders them."
            )

    async def _compare_pairs(
        self, fields: Mapping[str, Any], responses: list[Any], both_orders: bool
    ) -> tuple[list[Score[Any]], Ranks, Ranks]:
        """What came of the comparisons of every pair, the places that they give the first and the
        second of it, and those where the pair was shown in the other order.
        """
        pairs = list(combinations(responses, 2))
        shown = pairs + [pair[::-1] for pair in pairs if both_orders]
        results = await self._ask_all([{**fields, "responses": list(pair)} for pair in shown])
        ranks = [places_of(result) for result in results if isinstance(result.value, tuple)]
        if len(ranks) < len(results):
            lost = next(result for result in results if not isinstance(result.value, tuple))
            what = "it gave a GraderScore" if lost.ok else lost.reason
            raise _missed(f"a comparison gave no rank: {what}", results, "no_rank")
        return results, ranks[: len(pairs)], [rank[::-1] for rank in ranks[len(pairs) :]]


class BothOrdersGrader(_Comparing):
    """A comparison of two responses shown in both orders; verdicts that contradict each other are a
    tie, marked `flipped`.

    The inner grader takes `responses`, a list, and gives a GraderRank.
    """

    __init__ = _Wrapper.__init__

    async def _grade(self, /, **fields: Any) -> Score[tuple[float, ...]]:
        responses = list(fields["responses"])
        if len(responses) != 2:
            raise Unscored(
                f"{self.name} compares two responses, found {len(responses)}.", reason="not_a_pair"
            )
        results, [forth], [back] = await self._compare_pairs(fields, responses, both_orders=True)
        flipped = forth != back
        return Score(
            (0.0, 0.0) if flipped else results[0].value,
            results[0].reason,
            extra={"flipped": flipped, "verdicts": [forth, back]},
            usage=usage_sum(results),
        )


class TournamentGrader(_Comparing):
    """Every pair of the responses is compared, by default in both orders; places by points won,
    equal points share a place.

    The inner grader takes `responses` and gives a GraderRank. Metadata: `points` per response, 0 to
    1 (a tie counts half), `pairs` judged, `flips`.
    """

    __init__ = _Wrapper.__init__

    both_orders: bool = True

    async def _grade(self, /, **fields: Any) -> Score[tuple[float, ...]]:
        responses = list(fields["responses"])
        n = len(responses)
        if n < 2:
            raise Unscored(
                f"{self.name} needs two responses or more, found {n}.", reason="no_pairs"
            )
        results, forth, back = await self._compare_pairs(fields, responses, self.both_orders)
        pairs = combinations(range(n), 2)
        points = [0.0] * n
        for (a, b), rank in zip(cycle(pairs), [*forth, *back]):
            share = (1 + rank[1] - rank[0]) / 2  # the places are 1 and 2, or both 1
            points[a] += share
            points[b] += 1.0 - share
        games = 2 * len(results) / n  # of each response: in every game there are two
        shares = [won / games for won in points]
        metadata: dict[str, Any] = {"points": shares, "pairs": len(forth)}
        if back:
            metadata["flips"] = sum(one != other for one, other in zip(forth, back, strict=True))
        return Score(tuple(shares), extra=metadata, usage=usage_sum(results))
