"""A reward paid turn by turn, for environments that say what a turn is worth when it is taken.

SkyRL's `step`, OpenRLHF's agents, NeMo-RL's environments, OpenEnv and tools of the Open Reward
Standard ask for a number per turn and add them up. An episode gives the very numbers that the
finished trajectory has (`turn_rewards_of`), and judges each turn once. Only whether a turn is to
blame that it has no score may be known better at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rm_gallery.core.data.conversation import turns_said
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.reward.base_kinds import BaseStepWiseReward
from rm_gallery.core.reward.turn_rewards import TurnRewards
from rm_gallery.core.reward.turns import differences
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import OnError
from rm_gallery.integrations.scoring import (
    Conversation,
    Row,
    RowScorer,
    TrainerReward,
)

TurnTaken = str | Mapping[str, Any] | Sequence[Any]
"""What a turn adds to the conversation: a text, a message or messages."""


class EpisodeRewards(TrainerReward):
    """Makes an `Episode` per rollout; picklable, and safe in any number of threads.

    A stepwise reward pays each turn its score, `TurnRewards` what it makes of it, any other reward
    pays its score at the last turn and 0 before.

    Args:
        reward: whatever `RowScorer` takes.
        on_error: what the end of an episode pays where the outcome has no score: "mean" (by
            default), "worst", "raise" or a number. A turn whose step has no score pays 0:
            in a sum that moves nothing.
        **scoring: `reference`, `columns`, `llm`, `options`, … of `RowScorer`.

    Raises:
        ConfigError: as `RowScorer` does; the reward compares completions; or it is a `TurnRewards`
            whose turns are worth something only at the end (`credit` other than "last").

    >>> from rm_gallery.integrations.episodes import EpisodeRewards
    >>> episode = EpisodeRewards("math_verify_reward").episode("2 + 2?", {"reference": "4"})
    >>> episode.step("I add the two."), episode.observe("Go on."), episode.step("4", done=True)
    (0.0, None, 1.0)
    """

    one_by_one = "An environment sees one rollout."

    def __init__(self, reward: object, *, on_error: OnError = "mean", **scoring: Any) -> None:
        """Build the reward; nothing is scored yet."""
        super().__init__(reward, on_error=on_error, **scoring)
        self._scoring = {**scoring, "worst": None}
        self._split()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Be what was pickled."""
        self.__dict__.update(state)
        self._split()

    def _split(self) -> None:
        """Make what is asked about a turn, and what is asked at the end."""
        whole = self.scorer.reward
        self.turns = whole if isinstance(whole, TurnRewards) else None
        parts = self.turns.parts() if self.turns else {"steps": whole, "outcome": whole}
        steps, outcome = parts.get("steps"), parts.get("outcome")
        if self.turns is not None and outcome is not None and self.turns.credit != "last":
            raise ConfigError(
                f"{self.scorer.name}: credit is '{self.turns.credit}', which is known at the end of "
                f"an episode alone; take credit='last', or give the trainer the whole vector."
            )
        self.step_scorer = self.outcome_scorer = None
        if isinstance(steps, BaseStepWiseReward):
            self.step_scorer = RowScorer(steps.for_newest_turn(), **self._scoring)
            self.step_scorer.look_twice()
        self.hears = steps is not None and steps.kind.hears
        if outcome is not None and outcome.kind != "stepwise":
            self.outcome_scorer = self.scorer
            if self.turns is not None:
                on_error = self.scorer.on_error
                self.outcome_scorer = RowScorer(outcome, **self._scoring, on_error=on_error)
                self.outcome_scorer.look_twice()

    def episode(self, prompt: Conversation, row: Row = None) -> Episode:
        """The rewards of one rollout: its prompt, and the columns of its row."""
        return Episode(self, prompt, row)


class Episode:
    """One rollout: `step` for each turn of the policy, `observe` for what comes between.

    Attributes:
        rewards: what was paid so far, a number per turn; None for a turn whose step has no score.
    """

    def __init__(self, made_by: EpisodeRewards, prompt: Conversation, row: Row) -> None:
        """Begin the rollout."""
        self._by, self._prompt, self._row = made_by, prompt, row
        self._spoken: list[dict[str, Any]] = []
        self._potential = made_by.turns.start if made_by.turns else 0.0
        self.rewards: list[float | None] = []

    def observe(self, observation: TurnTaken, role: str = "user") -> None:
        """Note what a tool, the user or the environment said; a text is said by `role`."""
        self._spoken += turns_said(observation, role, "turn")

    async def astep(self, turn: TurnTaken, *, done: bool = False) -> float:
        """What a turn is worth: text or message of the policy; `done` ends the episode. `step` is
        the blocking twin.

        Raises:
            NoScore: the outcome has no score, and `on_error` is "raise".
            ConfigError: the reward reads what tools answered to a turn, and a turn that calls some
                comes without: at the end of the episode it would be worth another number.
        """
        self.observe(turn, "assistant")
        if self._by.hears and not done and self._spoken[-1].get("tool_calls"):
            raise ConfigError(
                f"{self._by.scorer.name} reads what tools answered to a turn, and this one comes "
                f"without; hand both over together: step([turn, *results])."
            )
        given = (self._prompt, self._spoken, self._row)
        turns, outcome = self._by.turns, self._by.outcome_scorer if done else None
        value: float | None = 0.0
        if self._by.step_scorer is not None:
            value = (await self._by.step_scorer.ascore(*given)).value
        end = await outcome.ascore(*given) if outcome else None
        if turns is not None and self._by.step_scorer is not None and value is not None:
            if turns.differences:
                [added] = differences([value], turns.gamma, self._potential)
                self._potential, value = value, added
            value = None if value is None else turns.weight * value
        self.rewards.append(value)
        if outcome is None or end is None:
            return value or 0.0
        number = outcome.value(end)
        self.rewards[-1] = None if end.value is None or value is None else value + end.value
        assert number is not None
        return (value or 0.0) + number

    step = library_loop.blocking(astep, drives=True)
