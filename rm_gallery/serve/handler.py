"""The one handler behind every format: a target's lane scores asks in bounded time, or refuses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rm_gallery.core.outcome import Outcome
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.serve.asking import Ask, Refused
from rm_gallery.serve.lane import RewardLane

MAX_WORKERS = 128
"""Judgements of one reward in flight: many ask at once, and each of them waits for a judge."""


class Evaluators(Protocol):
    """Deployed evaluators, by id."""

    async def deployed(self) -> Sequence[Mapping[str, Any]]:
        """What is deployed now."""

    async def score(self, evaluator_id: str, asks: Sequence[Ask], seconds: float) -> list[Outcome[float]]:
        """The outcomes of the asks; Refused (404) when there is no such evaluator."""

    def problem(self) -> str:
        """Why none of them can be reached; empty while they can."""

    async def close(self) -> None:
        """End what runs."""


class Handler:
    """Scores asks with the rewards that are offered and the evaluators that are deployed.

    Args:
        rewards: by the names they are offered under.
        evaluators: the deployed ones; None where none are served.
        max_waiting: completions that may wait for one reward; more are refused with 429.
        max_workers: judgements of one reward in flight; None takes the reward's own where it was given one, else
            `MAX_WORKERS`.

    Raises:
        ConfigError: a reward cannot score at all; names it.
    """

    def __init__(
        self,
        rewards: Mapping[str, BaseReward],
        evaluators: Evaluators | None = None,
        *,
        max_waiting: int = 8192,
        max_workers: int | None = None,
    ) -> None:
        self.rewards = dict(rewards)
        self.evaluators = evaluators
        self.lanes: dict[str, RewardLane] = {}
        for name, reward in rewards.items():
            try:
                own = reward.max_workers if "max_workers" in reward.model_fields_set else MAX_WORKERS
                self.lanes[name] = RewardLane(name, reward, max_waiting=max_waiting, max_workers=max_workers or own)
            except ConfigError as error:
                raise ConfigError(f"reward {name}: {error}") from error

    async def score(self, target: str, asks: Sequence[Ask], seconds: float) -> list[Outcome[float]]:
        """The outcomes of the asks, in their order, within `seconds`.

        Args:
            target: `reward:NAME` of an offered reward, `evaluator:ID` of a deployed evaluator; without a name the only one
                there is (a reward, where no evaluator is deployed), and empty the only target there is.
            asks: completions; one with a `problem` becomes failed (invalid_item).
            seconds: what is not done by then is failed (deadline).

        Raises:
            Refused: there is no such target (404), or no room for the asks now (429).
        """
        kind, _, name = target.partition(":")
        if not name:
            kind, name = await self._only(kind)
        if kind == "reward":
            lane = self.lanes.get(name)
            if lane is None:
                hint = "GET /v1/rewards lists them."
                raise Refused(404, "unknown_reward", unknown_name("reward", name[:80], self.rewards, hint))
            return await lane.score(asks, seconds)
        if self.evaluators is None:
            raise Refused(404, "unknown_evaluator", f"There is no evaluator {name!r:.80}; none is deployed here.")
        return await self.evaluators.score(name, asks, seconds)

    async def _only(self, kind: str) -> tuple[str, str]:
        """The one target there is, of a kind where one is named."""
        deployed = await self.evaluators.deployed() if self.evaluators is not None and kind != "reward" else ()
        found = [("evaluator", str(each["id"])) for each in deployed]
        if kind != "evaluator" or not found:  # reward-kit's format is for evaluators first
            found += [("reward", name) for name in self.rewards]
        if len(found) == 1:
            return found[0]
        there = ", ".join(f"{kind} {name}" for kind, name in found[:10]) or "none"
        raise Refused(
            404,
            "no_target",
            f"This path is that of the only target, and there are {len(found)}: {there}. Name one in the path: "
            "/v1/rewards/{name}/… or /v1/evaluations/{id}/….",
        )

    def problems(self) -> list[str]:
        """What does not work at all now: rewards that cannot score, a store that cannot be read."""
        found = [f"reward {name} cannot score as it is set up" for name, lane in self.lanes.items() if lane.broken]
        problem = self.evaluators.problem() if self.evaluators is not None else ""
        return [*found, *([problem] if problem else [])]

    async def close(self) -> None:
        """Give up what is not done."""
        for lane in self.lanes.values():
            lane.close()
        if self.evaluators is not None:
            await self.evaluators.close()
