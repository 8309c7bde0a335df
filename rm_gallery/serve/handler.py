"""The one handler behind every format: a target's lane scores asks in bounded time, or refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name
from rm_gallery.integrations.scoring import scored_of
from rm_gallery.serve.asking import Ask, Refused, Scored


class Evaluators(Protocol):
    """Deployed evaluators, by id."""

    def list(self) -> Sequence[Mapping[str, Any]]:
        """What is deployed now."""

    async def evaluate(self, evaluator_id: str, ask: Ask, deadline: float) -> Scored:
        """Score one ask; Refused (404) when there is no such evaluator."""


class Handler:
    """Scores asks with the rewards that are offered and the evaluators that are deployed."""

    def __init__(self, rewards: Mapping[str, BaseReward], evaluators: Evaluators | None = None) -> None:
        self.rewards = dict(rewards)
        self.evaluators = evaluators

    async def score(self, target: str, asks: Sequence[Ask], deadline: float) -> list[Scored]:
        """The outcomes of the asks, in their order, within `deadline` seconds.

        Args:
            target: `reward:NAME` of an offered reward, or `evaluator:ID` of a deployed evaluator; empty for the only one there
                is, `evaluator:` for the only evaluator.
            asks: completions; one with a `problem` becomes failed (invalid_item).
            deadline: seconds; what is not done by then is failed (deadline).

        Raises:
            Refused: there is no such target (404), or there is no room for the asks now (429, 503).
        """
        kind, _, name = (target if target[-1:] not in ("", ":") else self._only(target)).partition(":")
        if kind == "evaluator":
            if self.evaluators is None:
                raise Refused(404, "unknown_evaluator", f"There is no evaluator {name!r:.80}; none is deployed here.")
            waiting = [self._evaluated(self.evaluators, name, ask, deadline) for ask in asks]
            return list(await asyncio.gather(*waiting))
        reward = self.rewards.get(name)
        if reward is None:
            hint = "GET /v1/rewards lists them."
            raise Refused(404, "unknown_reward", unknown_name("reward", name[:80], self.rewards, hint))
        return await self._rewarded(reward, asks, deadline)

    def _only(self, target: str) -> str:
        """The one target that is meant where a path names none."""
        deployed = [f"evaluator:{each['id']}" for each in self.evaluators.list()] if self.evaluators else []
        found = deployed if target and deployed else [*deployed, *(f"reward:{name}" for name in self.rewards)]
        if len(found) == 1:
            return found[0]
        there = f"there are {len(found)}: {', '.join(sorted(found)[:10])}" if found else "there is none"
        raise Refused(
            404,
            "unknown_target",
            f"This path is that of the only reward or evaluator, and {there}. Name one with a path below /v1/rewards/NAME or "
            "/v1/evaluations/ID.",
        )

    async def _evaluated(self, evaluators: Evaluators, name: str, ask: Ask, deadline: float) -> Scored:
        return refused_item(ask) if ask.problem else await evaluators.evaluate(name, ask, deadline)

    async def _rewarded(self, reward: BaseReward, asks: Sequence[Ask], deadline: float) -> list[Scored]:
        found: list[Scored | None] = [refused_item(ask) if ask.problem else None for ask in asks]
        places = [place for place, scored in enumerate(found) if scored is None]
        samples = []
        for place in places:
            samples.append(sample_of(asks[place]))
        scored = await reward.async_evaluate_batch(samples, deadline=deadline, progress=False)
        for place, sample in zip(places, scored, strict=True):
            found[place] = scored_of(reward, sample.output[0])
        return [each for each in found if each is not None]


def refused_item(ask: Ask) -> Scored:
    """The outcome of an item that could not be read."""
    return Scored(None, "failed", "invalid_item", ask.problem, {})


def sample_of(ask: Ask) -> DataSample:
    """The sample an ask is about."""
    if ask.messages is not None:
        *before, last = ask.messages
        answer: dict[str, Any] = last
    else:
        before = [{"role": "user", "content": ask.prompt}] if isinstance(ask.prompt, str) else list(ask.prompt)
        if isinstance(ask.completion, list):
            before, answer = before + ask.completion[:-1], ask.completion[-1]
        else:
            answer = {"role": "assistant", "content": ask.completion}
    label = {} if ask.reference is None else {"reference": ask.reference}
    return DataSample(
        unique_id=ask.id,
        input=[ChatMessage.model_validate(message) for message in before],
        output=[DataOutput(answer=Step.model_validate({**answer, "label": label}))],
        metadata=dict(ask.row) if ask.row else None,
    )


def offered(rewards: Mapping[str, BaseReward]) -> dict[str, BaseReward]:
    """The rewards as they are, each checked to be able to score at all; ConfigError names the one that is not."""
    for name, reward in rewards.items():
        try:
            reward.check()
        except ConfigError as error:
            raise ConfigError(f"reward {name}: {error}") from error
    return dict(rewards)
