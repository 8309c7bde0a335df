"""benchmax: a mixin that scores the rollouts of an environment, for the three versions of
benchmax's contract.

Generation 1 calls `compute_reward(rollout_id, completion, ground_truth, **row)`, generation 2
`compute_reward(rollout_id, messages, task, **kwargs)`, generation 3 `compute_reward(rollout)`. All
want a dict of finite floats with the same keys every time, and sum them with the weights of the
training configuration. Only generation 3 knows a rollout that could not be scored: it labels one
whose hook raised and leaves its siblings alone.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rm_gallery.core.data.conversation import split_turns
from rm_gallery.core.reward.resolve import judges_for
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.log import logger
from rm_gallery.integrations.causes import NoScore, OnError, checked_on_error
from rm_gallery.integrations.scoring import RowScorer, call_arguments, for_training

_TRUTH = "ground_truth"
_FAILURES = ("benchmax.envs.shared_types", "benchmax.envs")
"""Modules of generation 3 that define `RolloutFailure`."""


class BenchmaxRewards:
    """Mixin for a benchmax environment: `class Maths(BenchmaxRewards, BaseEnv)`, with `rewards` and
    what else is below.

    Each reward is a component under its name; weights belong into the training configuration,
    negative ones for penalties. Rewards that compare the rollouts of a group score in the group
    hook, all others rollout by rollout. Nothing is built before the first rollout, so the
    environment can be pickled and sent away.

    A component without a score raises (`on_error = "raise"`): benchmax labels the rollout where it
    can (generation 3: as `judge_error` or `reward_error`), and nothing is trained on an invented
    number. A number as `on_error` is put in its place, and logged: the dict has no room for a flag,
    since all its values are summed.
    """

    rewards: Mapping[str, Any] | Sequence[Any] = ()
    """{component: reward}, or a list of rewards whose names are the components. A reward is
    whatever `RowScorer` takes, or a dict of its arguments:
    `{"reward": "helpfulness", "llm": "gpt-4o", "reference": "answer"}`."""
    reference: str | None = None
    """The key of the task (the dataset's row) that holds the reference; `ground_truth` and
    `reference` are found without.
    """
    llm: Any = None
    """The judge of those rewards that ask a model and name none."""
    on_error: OnError = "raise"
    generation: int | None = None
    """1, 2 or 3; None detects it from the call."""

    def scorers(self) -> dict[str, RowScorer]:
        """The rewards by component, built at the first call.

        Raises:
            ConfigError: `rewards` is empty, two have one name, or one cannot be built.
        """
        return self._rm_gallery_scorers

    @cached_property
    def _rm_gallery_scorers(self) -> dict[str, RowScorer]:
        checked_on_error(self.on_error, type(self).__name__, none=False)
        named = (
            list(self.rewards.items())
            if isinstance(self.rewards, Mapping)
            else [(None, r) for r in self.rewards]
        )
        entries = [(name, self._entry(name, reward)) for name, reward in named]
        judges = judges_for([entry["reward"] for _, entry in entries], self.llm, None)
        made: dict[str, RowScorer] = {}
        for (name, entry), judge in zip(entries, judges, strict=True):
            usual = {"name": name, "reference": self.reference, "on_error": self.on_error}
            scorer = for_training(
                RowScorer(**{**usual, **judge, **entry}),
                "set a negative weight in the training configuration",
            )
            if scorer.name in made:
                raise ConfigError(
                    f"two rewards are called '{scorer.name}'; give rewards as a dict with a name "
                    f"for each."
                )
            made[scorer.name] = scorer
        if not made:
            raise ConfigError(
                f"{type(self).__name__}.rewards is empty; give {{component: reward}}."
            )
        return made

    @staticmethod
    def _entry(name: str | None, reward: Any) -> dict[str, Any]:
        own = dict(reward) if isinstance(reward, Mapping) else {"reward": reward}
        if "reward" not in own:
            raise ConfigError(
                f"rewards['{name}'] names no reward; its keys: "
                f"{', '.join(map(str, own)) or 'none'}."
            )
        return own

    # -- hooks of benchmax -------------------------------------------------------------------------

    async def compute_reward(self, *given: Any, **named: Any) -> dict[str, float]:
        """Score one rollout, in the contract it is called by.

        Raises:
            NoScore: a component has no score and `on_error` is "raise"; in generation 3 benchmax'
                own `RolloutFailure`.
        """
        generation, prompt, completion, row = self._read_call(given, named)
        pointwise = {
            name: scorer for name, scorer in self.scorers().items() if not scorer.reward.compares
        }
        scores = await asyncio.gather(
            *(scorer.ascore(prompt, completion, row) for scorer in pointwise.values())
        )
        return self._reward_dict(pointwise, scores, generation)

    async def compute_group_reward(self, *given: Any, **named: Any) -> list[dict[str, float]]:
        """Score the rollouts of a group against each other (generations 1 and 2); empty dicts where
        no reward compares.
        """
        arguments = call_arguments(("rollout_ids", "messages_list", "tasks"), given, named)
        arguments |= {
            new: named.pop(old)
            for old, new in (("completions", "messages_list"), ("ground_truths", "tasks"))
            if old in named
        }
        calls = zip(
            arguments["rollout_ids"], arguments["messages_list"], arguments["tasks"], strict=True
        )
        return await self._score_group([self._read_call(call, dict(named)) for call in calls])

    async def compute_group_rewards(
        self, rollouts: Sequence[Any]
    ) -> dict[str, dict[str, float]] | None:
        """Score the rollouts of a group against each other (generation 3); None where no reward
        compares.
        """
        by_rollout = await self._score_group(
            [self._read_call((rollout,), {}) for rollout in rollouts]
        )
        if not any(by_rollout):
            return None
        return {
            rollout.rollout_id: values for rollout, values in zip(rollouts, by_rollout, strict=True)
        }

    async def _score_group(
        self, read: list[tuple[int, Any, Any, dict[str, Any]]]
    ) -> list[dict[str, float]]:
        together = {
            name: scorer for name, scorer in self.scorers().items() if scorer.reward.compares
        }
        given: list[Any] = [[one[part] for one in read] for part in (1, 2, 3)]
        columns = await asyncio.gather(*(s.ascore_rows(*given) for s in together.values()))
        return [
            self._reward_dict(together, [column[place] for column in columns], one[0])
            for place, one in enumerate(read)
        ]

    # -- reading and answering ---------------------------------------------------------------------

    def _read_call(
        self, given: Sequence[Any], named: dict[str, Any]
    ) -> tuple[int, Any, Any, dict[str, Any]]:
        """Generation, prompt, completion and row of a call."""
        rollout: Any = (
            named.pop("rollout") if "rollout" in named else given[0] if len(given) == 1 else None
        )
        if self.generation == 3 or (self.generation is None and hasattr(rollout, "messages")):
            return 3, *split_turns(rollout.messages), dict(rollout.example_args or {})
        first = (
            "completion" in named
            or "ground_truth" in named
            or (len(given) > 1 and isinstance(given[1], str))
        )
        if self.generation == 1 or (self.generation is None and first):
            arguments = call_arguments(("rollout_id", "completion", "ground_truth"), given, named)
            return (
                1,
                named.pop("prompt", None),
                arguments["completion"],
                {**named, self.reference or _TRUTH: arguments["ground_truth"]},
            )
        arguments = call_arguments(("rollout_id", "messages", "task"), given, named)
        # a playground example has no task: rewards that need a reference are unscored, the others
        # score
        task = dict(arguments["task"] or ({} if self.reference is None else {self.reference: None}))
        return 2, *split_turns(arguments["messages"], task.get("prompt_messages")), task

    def _reward_dict(
        self, scorers: Mapping[str, RowScorer], scores: Sequence[Score[float]], generation: int
    ) -> dict[str, float]:
        values: dict[str, float] = {}
        for (name, scorer), outcome in zip(scorers.items(), scores, strict=True):
            try:
                values[name] = scorer.numbers(outcome)["score"]
            except NoScore as error:
                raise _failure(error, generation) from error
            if outcome.value is None:
                logger.warning(
                    "{} got no score ({}, {}): {}",
                    name,
                    outcome.status,
                    outcome.code,
                    outcome.reason,
                )
        return values


def _failure(error: NoScore, generation: int) -> Exception:
    """The error to raise: in generation 3 benchmax' own, so that the rollout is labelled with what
    went wrong.
    """
    if generation == 3:
        for module in _FAILURES:
            try:
                failure = importlib.import_module(module).RolloutFailure
            except (ImportError, AttributeError):
                continue
            made: Exception = failure(
                "reward_error" if error.reason in ("no_reference", "data") else "judge_error",
                str(error),
            )
            return made
    return error
