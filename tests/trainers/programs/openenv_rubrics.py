"""Runs in openenv's environment: our rubric in its containers and environments, its rubrics as
rewards of ours.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402
from openenv.core.rubrics import Gate, LLMJudge, Rubric, Sequential, TrajectoryRubric, WeightedSum  # noqa: E402

from rm_gallery.integrations.causes import NoScore  # noqa: E402
from rm_gallery.integrations.openenv import RubricReward, openenv_rubric  # noqa: E402
from rm_gallery.integrations.scoring import RowScorer  # noqa: E402
from tests.integrations.adapters import Moody  # noqa: E402


class Say(Action):  # type: ignore[misc]
    message: str


class Seen(Observation):  # type: ignore[misc]
    prompt: str = ""
    answer: str = ""


class Half(Rubric):  # type: ignore[misc]
    def forward(self, action: Any, observation: Any) -> float:
        return 0.5


class Matches(Rubric):  # type: ignore[misc]
    def forward(self, action: Any, observation: Any) -> float:
        return float(action.message.strip() == observation.metadata["reference"])


class Won(TrajectoryRubric):  # type: ignore[misc]
    """Counts its steps, so that a shared buffer would show."""

    def score_trajectory(self, trajectory: Any) -> float:
        return 1.0 / len(trajectory)

    def compute_step_rewards(self) -> list[float]:
        return []


class Client:
    """A language model that gives back what it was asked, and cannot be copied."""

    asked = ""

    async def complete(self, prompt: str) -> str:
        self.asked = prompt
        return "0.25"

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot copy a client")


class World(Environment[Say, Seen, State]):  # type: ignore[misc]
    """An environment whose reward is its rubric's."""

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Seen:
        raise NotImplementedError

    def step(self, action: Say, timeout_s: Any = None, **kwargs: Any) -> Seen:
        raise NotImplementedError

    async def step_async(self, action: Say, timeout_s: Any = None, **kwargs: Any) -> Seen:
        seen = Seen(prompt="What is 1/2?", answer="0.5", done=True)
        seen.reward = await self._apply_rubric_async(action, seen)
        return seen

    @property
    def state(self) -> State:
        return State()


async def containers() -> dict[str, Any]:
    rubric = openenv_rubric("math_verify_reward", reference="answer")
    right, seen = Say(message="\\boxed{0.5}"), Seen(answer="0.5", done=True)
    found = {
        "gate": await Gate(rubric, threshold=0.5)(right, seen),
        "sum": await WeightedSum([rubric, Half()], [0.5, 0.5])(right, seen),
        "sequential": await Sequential(Half(), rubric)(right, seen),
        "world": (await World(rubric=rubric).step_async(right)).reward,
    }
    return {name: float(value) for name, value in found.items()}


async def scores(rubric: Any, rows: list[Any]) -> list[float | str]:
    async def score(row: Any) -> float | str:
        seen = Seen(prompt=row[0], metadata={"gold": row[2]})
        try:
            return float(
                await Gate(WeightedSum([rubric], [1.0]), threshold=-math.inf)(
                    Say(message=row[1]), seen
                )
            )
        except NoScore as error:
            return str(error)

    return await asyncio.gather(*map(score, rows))


def outcome(reward: Any, text: str, reference: str) -> Any:
    found = RowScorer(reward).score("Q", text, {"reference": reference})
    return [found.value, found.status, found.components]


def main(request: dict[str, Any]) -> dict[str, Any]:
    named = {name: openenv_rubric(name, reference="gold", worst=0.0) for name in request["rewards"]}
    moods = [["q", text, None] for text in ("four", "none", "fail")]
    client = Client()
    judge = LLMJudge("Rate {action} after {observation}", client)
    matches = RubricReward(Sequential(Gate(Matches()), Won()))
    return {
        "same": {
            name: asyncio.run(scores(rubric, request["same"])) for name, rubric in named.items()
        },
        "containers": asyncio.run(containers()),
        "moods": asyncio.run(scores(openenv_rubric(Moody), moods)),
        "matches": [outcome(matches, text, "4") for text in "45"],
        "judged": [
            *outcome(
                RubricReward(WeightedSum([judge, Half()], [0.5, 0.5])), "an answer", "the secret"
            ),
            client.asked,
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.stdin.read()))) + "\n")
