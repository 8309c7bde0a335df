"""Scores of a group of answers from a judge's pairwise verdicts: win rate, Copeland, Elo and Bradley–Terry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field

from rm_gallery.core.reward.base import BasePairWiseRubricReward
from rm_gallery.core.reward.example import Example, PhraseJudge, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.stats import ranking
from rm_gallery.gallery.rm.alignment.base import LANGUAGES, scenario

Aggregation = Literal["win_rate", "copeland", "elo", "bradley_terry"]
_ELO_START = 1000.0


class GroupPairWiseReward(BasePairWiseRubricReward):
    """Compares every pair of answers in both orders and turns the wins into one score per answer by `aggregation`.

    A draw, and a pair that two orders decide differently, is half a win for both. All scores are in [0, 1], higher is better,
    and say how an answer stands within its group: they cannot be compared between groups. n answers cost n(n - 1) calls, half
    of that with `both_orders=False`. An answer of which less than half of the pairs were judged has no score, nor has one alone.

    Without rubrics of your own it judges general helpfulness. `extra_data` holds the verdicts by pair and the flip rate.
    """

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 1.0)
    scenario_texts: ClassVar[dict[str, dict[str, Any]]] = {
        language: scenario("base_helpfulness")[language] for language in LANGUAGES
    }

    name: str = "group_pairwise"
    aggregation: Aggregation = "win_rate"
    """How wins become scores; each reward of this family has its own."""
    prior: float = Field(default=1.0, gt=0)
    """Bradley–Terry: drawn games of each answer against an average one; the more, the nearer scores are to 0.5."""

    example = Example(
        sample_of(
            "How do I get a coffee stain out of a cotton shirt?",
            "There are many products on the market for that.",
            "Rinse it from the back with cold water, rub in dish soap, wait ten minutes, then wash as usual.",
            "Wash it twice.",
        ),
        judge=PhraseJudge(("cold water", "Wash it twice", "many products")),
    )

    def aggregate(self, n: int, margins: dict[tuple[int, int], list[float]]) -> list[float]:
        """One score per output from the wins of each pair."""
        wins = wins_of(n, margins)
        rules: dict[str, Callable[[], list[float | None]]] = {
            "win_rate": lambda: ranking.win_rate(wins),
            "copeland": lambda: [_share(net) for net in ranking.copeland(wins)],
            "elo": lambda: [_elo_share(rating) for rating in ranking.elo(wins, initial=_ELO_START, seed=self.seed)],
            "bradley_terry": lambda: [_logistic(s) for s in ranking.bradley_terry_group(wins, prior=self.prior)],
        }
        # each has a pair that was judged, so that no score is missing
        return [score for score in rules[self.aggregation]() if score is not None]


@RewardRegistry.register("group_win_rate")
class GroupWinRateReward(GroupPairWiseReward):
    """Share of its comparisons that an answer won, draws half: a judge asks about every pair in both orders.

    Range [0, 1], higher is better, within the group only. Needs two answers or more; see GroupPairWiseReward.
    """

    name: str = "group_win_rate"
    aggregation: Aggregation = "win_rate"


@RewardRegistry.register("group_copeland")
class GroupCopelandReward(GroupPairWiseReward):
    """Copeland score of an answer: (1 + (answers beaten - answers lost to) / other answers) / 2.

    How clearly an answer is beaten does not matter; in a cycle all get 0.5. A judge asks about every pair in both orders.
    Range [0, 1], higher is better, within the group only. Source: Copeland 1951. Needs two answers or more.
    """

    name: str = "group_copeland"
    aggregation: Aggregation = "copeland"


@RewardRegistry.register("group_elo")
class GroupEloReward(GroupPairWiseReward):
    """Elo rating of an answer as its expected score against an average one: 1 / (1 + 10^(-(R - 1000) / 400)).

    Ratings start at 1000 with k = 32 and are the mean over seeded orders of play, which the order of the answers does not
    change; beating a strong answer is worth more than beating a weak one. A judge asks about every pair in both orders. Range [0, 1], higher is better, within the group
    only. Source: Elo 1978. Needs two answers or more.
    """

    name: str = "group_elo"
    aggregation: Aggregation = "elo"


@RewardRegistry.register("group_bradley_terry")
class GroupBradleyTerryReward(GroupPairWiseReward):
    """Bradley–Terry strength of an answer as its probability to beat an average one.

    The log-strengths s with P(i beats j) = 1 / (1 + exp(s_j - s_i)) are fitted to all verdicts at once, with `prior` drawn
    games each that keep an undefeated answer finite; the score is 1 / (1 + exp(-s)), so s = log(score / (1 - score)). A
    judge asks about every pair in both orders. Range [0, 1], higher is better, within the group only. Source: Bradley and
    Terry 1952; Hunter 2004. Needs two answers or more.
    """

    name: str = "group_bradley_terry"
    aggregation: Aggregation = "bradley_terry"


def wins_of(n: int, margins: dict[tuple[int, int], list[float]]) -> list[list[float]]:
    """The matrix of wins for `n` outputs, a draw counting half for both; positive margins are wins of the first."""
    wins = [[0.0] * n for _ in range(n)]
    for (i, j), seen in margins.items():
        for margin in seen:
            won = (1 + (margin > 0) - (margin < 0)) / 2
            wins[i][j] += won
            wins[j][i] += 1 - won
    return wins


def _share(net: float | None) -> float | None:
    return None if net is None else (1 + net) / 2


def _elo_share(rating: float | None) -> float | None:
    return None if rating is None else ranking.expected_win(rating - _ELO_START)


def _logistic(strength: float | None) -> float | None:
    return None if strength is None else 1 / (1 + math.exp(-strength))
