"""Two answers against each other, in both places, for a reward of any kind: what the audit and the conflict detector ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Reward
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.models import copy_with
from rm_gallery.gallery.benchmarks.judgements import Pair, Status, cluster_of, judged, sign, worst

TRIES = 64
"""Names a question is given until its candidates come in the wanted order; each fits with probability one half."""


class Game(NamedTuple):
    """One comparison: who was shown first (0 or 1; None where answers are scored by themselves), and who won."""

    first: int | None
    verdict: int
    """+1 when answer 0 won, -1 when answer 1 did, 0 for a tie."""


@dataclass(frozen=True)
class Said:
    """What a reward said to one question."""

    status: Status
    scores: tuple[float | None, ...]
    games: tuple[Game, ...] = ()
    reason: str = ""
    message: str = ""


class Duel(NamedTuple):
    """Two answers to one prompt, by the keys of the questions that tell them apart."""

    keys: tuple[str, ...]
    turned: tuple[bool, ...]
    """Per question whether it shows the two the other way round."""
    cluster: str
    """Duels of one cluster are about the same prompt and are not independent."""


class Sheet:
    """Every question a reward is asked, each once however many duels need it, and what it said.

    A scoring reward (pointwise, stepwise) is asked for each answer by itself. A comparing one sees the two answers of a duel
    and nothing else, each of them once in the first place; a rule or a trained model does so, too, for it may care.
    """

    def __init__(self, reward: BaseReward) -> None:
        self.reward = reward
        self.comparing = reward.compares
        self.questions: dict[str, DataSample] = {}
        self.said: dict[str, Said] = {}

    # -- asking ---------------------------------------------------------------------------------------------------------

    def ask(self, of: DataSample, outputs: Sequence[DataOutput]) -> str:
        """Put down a question about these answers to the prompt of `of`; gives its key."""
        sample = copy_with(of, unique_id=of.sample_id, output=[_fresh(output) for output in outputs])
        name = f"{of.sample_id[:80]}/{sample.sample_key.rpartition(':')[2][:20]}"
        order = getattr(self.reward, "order", None)
        for number in range(TRIES):
            sample = copy_with(sample, unique_id=f"{name}/{number}")
            salt = "0,1" if self.reward.kind == "pairwise" else ""
            if order is None or len(outputs) < 2 or order(sample, len(outputs), salt) == [*range(len(outputs))]:
                break
        self.questions.setdefault(sample.unique_id, sample)
        return sample.unique_id

    def duel(self, of: DataSample, first: DataOutput, second: DataOutput) -> Duel:
        """Put down what tells two answers apart."""
        if not self.comparing:
            keys = [self.ask(of, [output]) for output in (first, second)]
        elif self.reward.kind == "pairwise" and self.reward.judged and getattr(self.reward, "both_orders", False):
            keys = [self.ask(of, [first, second])]
        else:
            keys = [self.ask(of, [first, second]), self.ask(of, [second, first])]
        return Duel(tuple(keys), (False, True)[: len(keys)] if self.comparing else (False, False), cluster_of(of))

    def calls(self, keys: Iterable[str] | None = None) -> int:
        """Judgements the questions take: one model call each where a model judges and no reply is in the cache."""
        return sum(len(self.reward.plan(self.questions[key])) for key in (self.questions if keys is None else keys))

    # -- hearing --------------------------------------------------------------------------------------------------------

    def hear(self, scored: Iterable[DataSample]) -> None:
        """Note what the reward said."""
        for sample in scored:
            self.said[sample.unique_id] = self._note(sample)

    def _note(self, sample: DataSample) -> Said:
        one = judged(self.reward, sample)
        issue = one.issues[0] if one.issues else None
        reason, message = (issue.reason, issue.message) if issue else ("", "")
        if one.status != "scored":
            return Said(one.status, (), (), reason or one.status, message)
        if not self.comparing:
            turn = 1.0 if self.reward.higher_is_better else -1.0
            found = [self.reward.score_of_output(output) for output in sample.output]
            return Said("scored", tuple(None if score is None else turn * score for score in found))
        if len(sample.output) != 2:
            return Said("scored", tuple(one.scores))
        shown = [(j.place, j.verdict) for j in one.judgements if isinstance(j.place, Pair) and self.reward.judged]
        if not shown:  # a rule or a model that says what it says of the two in the order given
            shown = [(Pair(0, 1), sign(*one.scores))]
        games = []
        for place, verdict in shown:
            if verdict is not None:
                # +1 is the one shown first
                games.append(Game(place.first, verdict if place.first == 0 else -verdict))
        return Said("scored", tuple(one.scores), tuple(games))

    def games(self, duel: Duel) -> list[Game]:
        """The comparisons of a duel; none unless every question of it was scored."""
        said = [self.said.get(key) for key in duel.keys]
        if any(one is None or one.status != "scored" for one in said):
            return []
        known = [one for one in said if one is not None]
        if self.comparing:
            return [
                Game(1 - game.first if turned and game.first is not None else game.first, -game.verdict) if turned else game
                for one, turned in zip(known, duel.turned, strict=True)
                for game in one.games
            ]
        verdict = sign(known[0].scores[0], known[1].scores[0])
        return [] if verdict is None else [Game(None, verdict)]

    def margin(self, duel: Duel) -> float | None:
        """How far answer 0 is ahead, over all places: 1 it always won, -1 it always lost; None without a verdict."""
        games = self.games(duel)
        return sum(game.verdict for game in games) / len(games) if games else None

    def status(self, duel: Duel) -> Status:
        """What became of a duel as a whole."""
        return worst("stopped" if (one := self.said.get(key)) is None else one.status for key in duel.keys)


def _fresh(output: DataOutput) -> DataOutput:
    """The output without what earlier rewards said of it."""
    steps = None if output.steps is None else [copy_with(step, reward=Reward()) for step in output.steps]
    return copy_with(output, answer=copy_with(output.answer, reward=Reward()), steps=steps)


def lost(statuses: Iterable[Status]) -> dict[str, Any]:
    """How many were not scored, by what became of them; empty when all were."""
    counts: dict[str, Any] = {}
    for status in statuses:
        if status != "scored":
            counts[status] = counts.get(status, 0) + 1
    return counts
