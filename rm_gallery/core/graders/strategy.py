"""Strategies: a grader asked several times, in both orders, or pair by pair, as a grader of its
own.

Each call of the inner grader has its own number in cache key and sampling seed, so that a vote is
never a copy of another.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, SerializeAsAny

from rm_gallery.core.engine.loop import RunStopped
from rm_gallery.core.graders.base import (
    BaseGrader,
    GraderError,
    GraderMode,
    GraderRank,
    GraderResult,
    GraderScore,
    usage_sum,
)
from rm_gallery.core.graders.run import agraded, error_of
from rm_gallery.core.reward.asking import repeat_index
from rm_gallery.core.score import NOT_BEGUN, deciding, score_of_error, unscored
from rm_gallery.core.utils.errors import ConfigError, Unscored

TIE_BREAKS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "min": lambda tied, votes: min(tied),
    "max": lambda tied, votes: max(tied),
    "first": lambda tied, votes: next(vote for vote in votes if vote in tied),
    "closest_to_mean": lambda tied, votes: min(
        tied, key=lambda score: (abs(score - statistics.fmean(votes)), score)
    ),
}


class _Wrapper(BaseGrader):
    """A grader around another one: its fields, range and direction."""

    grader: SerializeAsAny[BaseGrader]

    def __init__(self, grader: BaseGrader | None = None, **settings: Any) -> None:
        """Take name, range, direction and threshold of the inner grader where none is given."""
        if isinstance(grader, BaseGrader):
            own = {
                "name": grader.name,
                "score_range": grader.score_range,
                "higher_is_better": grader.higher_is_better,
            }
            own |= {
                "threshold": grader.threshold,
                "description": grader.description,
                "deadline": grader.deadline,
            }
            settings = {"mode": grader.mode, **own, "grader": grader, **settings}
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
    def declares_missing(self) -> bool:
        """Whether the inner grader does; the wrapper itself says how many gradings it needs."""
        return self.grader.declares_missing

    @property
    def is_async(self) -> bool:
        """True: several calls wait side by side."""
        return True

    async def _ask(self, fields: Mapping[str, Any], number: int) -> GraderResult:
        repeat_index.set(repeat_index.get() * 1024 + number)  # the context is this task's own
        try:
            result = await agraded(self.grader, dict(fields))
        except Exception as error:  # noqa: BLE001 - an error of the run is raised again
            result = GraderError.of(self.grader.name, score_of_error(error))
        if isinstance(result, GraderError) and result.error_type in NOT_BEGUN:
            # what was never asked is no missing vote: the whole is owed again
            raise RunStopped(result.error, result.cause or "caller")
        return result

    async def _ask_all(self, many: Sequence[tuple[Mapping[str, Any], int]]) -> list[GraderResult]:
        # all end before one raises: what is in flight is paid for, and belongs into the cache
        asked = (self._ask(fields, number) for fields, number in many)
        results = await asyncio.gather(*asked, return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException):
                raise one
        return [one for one in results if not isinstance(one, BaseException)]


def _noted(results: Sequence[GraderResult]) -> list[dict[str, Any]]:
    return [
        {"score": result.score, "reason": result.reason}
        if isinstance(result, GraderScore)
        else {"error": result.reason, "type": getattr(result, "error_type", type(result).__name__)}
        for result in results
    ]


def _scores(results: Sequence[GraderResult], least: int, what: str) -> list[float]:
    """The scores among the results; Unscored when fewer than `least` came of them."""
    scores = [result.score for result in results if isinstance(result, GraderScore)]
    if len(scores) < least:
        missing = [result for result in results if not isinstance(result, GraderScore)]
        why = missing[0].reason if missing else ""
        raise _missed(
            f"{len(scores)} of {len(results)} {what} gave a score, {least} are needed: {why}",
            missing,
            "votes",
        )
    return scores


def _missed(message: str, missing: Sequence[GraderResult], reason: str) -> Exception:
    """Why there is no result: failed where a part failed, which another run asks again, else
    unscored.
    """
    lost = [one.outcome() for one in missing if isinstance(one, GraderError)]
    why = deciding(lost) if lost else unscored(reason, message, "rule")
    code = why.code if why.status == "failed" else reason
    return error_of(replace(why, reason=message, code=code))


class AverageGrader(_Wrapper):
    """The mean of `n` gradings, with their spread in the metadata; all have to give a score unless
    `least` is lower.
    """

    if TYPE_CHECKING:

        def __init__(self, grader: BaseGrader, **settings: Any) -> None: ...

    n: int = Field(default=3, ge=2)
    least: int | None = Field(default=None, ge=1)
    """So many gradings have to give a score; all of them by default."""

    async def _grade(self, /, **fields: Any) -> GraderScore:
        results = await self._ask_all([(fields, number) for number in range(self.n)])
        scores = _scores(results, self.least or self.n, "gradings")
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        metadata = {
            "n": len(scores),
            "std": spread,
            "min": min(scores),
            "max": max(scores),
            "results": _noted(results),
        }
        reason = next(result.reason for result in results if isinstance(result, GraderScore))
        mean = math.fsum(scores) / len(scores)
        return GraderScore(
            score=mean, reason=reason, metadata=metadata, usage=usage_sum(results), **self.about()
        )


class VotingGrader(_Wrapper):
    """The score that most of `n` gradings give.

    With `early_stop` it asks only as many as are needed: no more once the leader cannot be caught;
    the metadata say how many calls that saved.
    """

    if TYPE_CHECKING:

        def __init__(self, grader: BaseGrader, **settings: Any) -> None: ...

    n: int = Field(default=3, ge=2)
    tie_break: str | Callable[[Sequence[float], Sequence[float]], float] = "min"
    """Which of several equally frequent scores: min, max, first, closest_to_mean, or a function of
    (tied, votes).
    """
    early_stop: bool = False
    least: int | None = Field(default=None, ge=1)
    """So many votes have to be valid; more than half of them by default."""

    def check(self) -> None:
        """Raise ConfigError for a tie-break there is not."""
        super().check()
        if not callable(self.tie_break) and self.tie_break not in TIE_BREAKS:
            raise ConfigError(
                f"{self.name}: tie_break is {self.tie_break!r}; it is one of "
                f"{', '.join(TIE_BREAKS)}."
            )

    async def _grade(self, /, **fields: Any) -> GraderScore:
        results: list[GraderResult] = []
        while len(results) < self.n:
            missing = self.n - len(results)
            wave = min(missing, self._needed(results)) if self.early_stop else missing
            if wave <= 0:
                break
            results += await self._ask_all(
                [(fields, len(results) + number) for number in range(wave)]
            )
        votes = _scores(results, self.least or self.n // 2 + 1, "votes")
        counts = Counter(votes)
        top = max(counts.values())
        tied = sorted(score for score, count in counts.items() if count == top)
        choose = TIE_BREAKS[self.tie_break] if isinstance(self.tie_break, str) else self.tie_break
        score = tied[0] if len(tied) == 1 else float(choose(tied, votes))
        reason = next(
            (r.reason for r in results if isinstance(r, GraderScore) and r.score == score), ""
        )
        metadata = {
            "votes": votes,
            "share": counts[score] / len(votes),
            "tied": len(tied) > 1,
            "results": _noted(results),
        }
        if self.early_stop:
            metadata["calls_saved"] = self.n - len(results)
        return GraderScore(
            score=score, reason=reason, metadata=metadata, usage=usage_sum(results), **self.about()
        )

    def _needed(self, results: Sequence[GraderResult]) -> int:
        """How many more votes could decide it at the earliest; 0 when the leader cannot be caught."""
        counts = Counter(result.score for result in results if isinstance(result, GraderScore))
        left = self.n - len(results)
        first, second = ([count for _, count in counts.most_common(2)] + [0, 0])[:2]
        if results and first > second + left and first >= (self.least or 1):
            return 0
        return max(1, (left + second - first) // 2 + 1) if left else 0


class _Comparing(_Wrapper):
    """A strategy over comparisons."""

    mode: GraderMode = GraderMode.LISTWISE

    def __init__(self, grader: BaseGrader | None = None, **settings: Any) -> None:
        """Give ranks, whatever mode the inner grader has: a function that compares need not say
        that it does.
        """
        super().__init__(grader, **{"mode": GraderMode.LISTWISE, **settings})

    def check(self) -> None:
        """Raise ConfigError when the inner grader compares nothing."""
        super().check()
        if not {"responses", "*"} & self.grader.inputs.keys():
            raise ConfigError(
                f"{self.name}: {self.grader.name} takes {', '.join(self.grader.inputs)}; "
                f"{type(self).__name__} is put around a "
                "grader that takes 'responses', a list, and orders them."
            )


class BothOrdersGrader(_Comparing):
    """A comparison of two responses shown in both orders; verdicts that contradict each other are a
    tie, marked `flipped`.

    The inner grader takes `responses`, a list, and gives a GraderRank.
    """

    if TYPE_CHECKING:

        def __init__(self, grader: BaseGrader, **settings: Any) -> None: ...

    pair: ClassVar[int] = 2

    async def _grade(self, /, **fields: Any) -> GraderRank:
        responses = list(fields["responses"])
        if len(responses) != self.pair:
            raise Unscored(
                f"{self.name} compares two responses, found {len(responses)}.", reason="not_a_pair"
            )
        shown = [{**fields, "responses": responses}, {**fields, "responses": responses[::-1]}]
        results = await self._ask_all([(one, number) for number, one in enumerate(shown)])
        ranks = _ranks(results)
        there, back = ranks[0], ranks[1][::-1]
        flipped = there != back
        rank = [1, 1] if flipped else there
        metadata = {"flipped": flipped, "verdicts": [there, back]}
        return GraderRank(
            name=self.name,
            rank=rank,
            reason=results[0].reason,
            metadata=metadata,
            usage=usage_sum(results),
        )


class TournamentGrader(_Comparing):
    """Every pair of the responses is compared, by default in both orders; places by points won,
    equal points share a place.

    The inner grader takes `responses` and gives a GraderRank. Metadata: `points` per response, 0 to
    1 (a tie counts half), `pairs` judged, `flips`.
    """

    if TYPE_CHECKING:

        def __init__(self, grader: BaseGrader, **settings: Any) -> None: ...

    both_orders: bool = True

    async def _grade(self, /, **fields: Any) -> GraderRank:
        responses = list(fields["responses"])
        if len(responses) < 2:
            raise Unscored(
                f"{self.name} needs two responses or more, found {len(responses)}.",
                reason="no_pairs",
            )
        pairs = list(combinations(range(len(responses)), 2))
        orders = [(a, b) for a, b in pairs] + (
            [(b, a) for a, b in pairs] if self.both_orders else []
        )
        asked = [
            ({**fields, "responses": [responses[a], responses[b]]}, number)
            for number, (a, b) in enumerate(orders)
        ]
        results = await self._ask_all(asked)
        points = [0.0] * len(responses)
        for (a, b), rank in zip(orders, _ranks(results), strict=True):
            share = 0.5 if rank[0] == rank[1] else float(rank[0] < rank[1])
            points[a] += share
            points[b] += 1.0 - share
        games = (len(responses) - 1) * (2 if self.both_orders else 1)
        shares = [won / games for won in points]
        rank = [1 + sum(other > own for other in shares) for own in shares]
        metadata: dict[str, Any] = {"points": shares, "pairs": len(pairs)}
        if self.both_orders:
            ranks = _ranks(results)
            back = ranks[len(pairs) :]
            metadata["flips"] = sum(
                one != other[::-1] for one, other in zip(ranks[: len(pairs)], back, strict=True)
            )
        return GraderRank(
            name=self.name, rank=rank, reason="", metadata=metadata, usage=usage_sum(results)
        )


def _ranks(results: Sequence[GraderResult]) -> list[list[int]]:
    for result in results:
        if not isinstance(result, GraderRank):
            what = (
                result.reason
                if isinstance(result, GraderError)
                else f"it gave a {type(result).__name__}"
            )
            raise _missed(f"a comparison gave no rank: {what}", results, "no_rank")
    return [result.rank for result in results if isinstance(result, GraderRank)]
