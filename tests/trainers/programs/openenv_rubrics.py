"""Runs in openenv's environment: our rubric in its containers and environments, its rubrics as rewards of ours."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import pickle
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402
from openenv.core.rubrics import Gate, LLMJudge, Rubric, Sequential, TrajectoryRubric, WeightedSum  # noqa: E402

from rm_gallery import DataSample  # noqa: E402
from rm_gallery.integrations.openenv import OUTCOMES, SCORES, RubricReward, openenv_rubric  # noqa: E402
from rm_gallery.integrations.scoring import NoScore, RowScorer  # noqa: E402
from tests.trainers.programs.rewards_of_tests import Sometimes  # noqa: E402


class Say(Action):  # type: ignore[misc]
    message: str


class Seen(Observation):  # type: ignore[misc]
    prompt: str = ""
    answer: str = ""


class Half(Rubric):  # type: ignore[misc]
    """A plain rubric."""

    def forward(self, action: Any, observation: Any) -> float:
        return 0.5


class Matches(Rubric):  # type: ignore[misc]
    """A rubric that knows the reference."""

    def forward(self, action: Any, observation: Any) -> float:
        return float(action.message.strip() == observation.metadata["reference"])


class Won(TrajectoryRubric):  # type: ignore[misc]
    """Counts its steps, so that a shared buffer would show."""

    def score_trajectory(self, trajectory: Any) -> float:
        return 1.0 / len(trajectory)

    def compute_step_rewards(self) -> list[float]:
        return []


class Client:
    """A language model that answers at once and cannot be copied."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, prompt: str) -> str:
        self.prompts.append(prompt)
        await asyncio.sleep(0.01 if "slow" in prompt else 0)
        return "0.25" if "slow" in prompt else "0.75"

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot copy a client")


class World(Environment[Say, Seen, State]):  # type: ignore[misc]
    """An environment whose reward is its rubric's."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Seen:
        self._reset_rubric()
        return Seen()

    def step(self, action: Say, timeout_s: Any = None, **kwargs: Any) -> Seen:
        raise NotImplementedError

    async def step_async(self, action: Say, timeout_s: Any = None, **kwargs: Any) -> Seen:
        seen = Seen(prompt="What is 1/2?", answer="0.5", done=True)
        seen.reward = await self._apply_rubric_async(action, seen)
        return seen

    @property
    def state(self) -> State:
        return State()


def raised(call: Any) -> str:
    try:
        value = call()
    except NoScore as error:
        return str(error)
    return f"no error but {value!r}"


def forward(request: dict[str, Any]) -> dict[str, Any]:
    rubric = openenv_rubric("math_verify_reward", reference="answer")

    async def in_containers() -> dict[str, Any]:
        right, seen = Say(message="\\boxed{0.5}"), Seen(answer="0.5", done=True)
        found = {
            "gate": await Gate(rubric, threshold=0.5)(right, seen),
            "sum": await WeightedSum([rubric, Half()], [0.5, 0.5])(right, seen),
            "sequential": await Sequential(Half(), rubric)(right, seen),
            "world": (await World(rubric=rubric).step_async(right)).reward,
        }
        return {name: float(value) for name, value in found.items()}

    async def beside() -> dict[str, Any]:
        sometimes = openenv_rubric(Sometimes, on_error=-1.0)
        seen, none, failed = Seen(), Seen(), Seen()
        values = [
            await sometimes(Say(message=text), place)
            for text, place in (("four", seen), ("none", none), ("fail", failed))
        ]
        copied = pickle.loads(pickle.dumps(copy.deepcopy(sometimes)))
        return {
            "values": values,
            "statuses": [value.outcome.status for value in values],
            "scores": seen.metadata.get(SCORES),
            "outcomes": [list(place.metadata.get(OUTCOMES, {}).values()) for place in (none, failed)],
            "children": {name: child.last_score for name, child in sometimes.named_rubrics()},
            "reset is still a method": callable(sometimes.reset),
            "copied": await copied(Say(message="four"), Seen()),
        }

    async def same(name: str) -> list[float | None]:
        one = openenv_rubric(name, reference="gold")

        async def score(row: Any) -> float | None:
            try:
                seen = Seen(prompt=row[0], metadata={"gold": row[2]})
                return float(await Gate(WeightedSum([one], [1.0]), threshold=-math.inf)(Say(message=row[1]), seen))
            except NoScore:
                return None

        return await asyncio.gather(*map(score, request["same"]))

    gate = Gate(openenv_rubric(Sometimes))
    return {
        "same": {name: asyncio.run(same(name)) for name in request["rewards"]},
        "containers": asyncio.run(in_containers()),
        "beside": asyncio.run(beside()),
        "unscored in a gate": raised(lambda: asyncio.run(gate(Say(message="none"), Seen()))),
        "failed in a gate": raised(lambda: asyncio.run(gate(Say(message="fail"), Seen()))),
    }


def backward() -> dict[str, Any]:
    def sample(text: str, reference: str | None = None) -> DataSample:
        about = None if reference is None else {"reference": reference}
        return DataSample.model_validate(
            {
                "input": [{"role": "user", "content": "Q"}],
                "output": [{"answer": {"role": "assistant", "content": text}}],
                "metadata": about,
            }
        )

    def outcome(reward: Any, *given: Any) -> Any:
        scored = reward.evaluate(sample(*given)).output[0]
        found = RowScorer(reward).score("Q", given[0], None if len(given) == 1 else {"reference": given[1]})
        assert reward.score_of_output(scored) == found.score
        return [found.score, found.status, found.components]

    client = Client()
    judge = LLMJudge("Rate {action} after {observation}", client)
    weighted = RubricReward(WeightedSum([judge, Half()], [0.5, 0.5]))
    texts = ["slow one", "quick one"] * 20
    batch = weighted.evaluate_batch([sample(text, "the secret") for text in texts], max_workers=40)
    matches = RubricReward(Sequential(Gate(Matches()), Won()))
    ours = RubricReward(openenv_rubric("math_verify_reward"))
    return {
        "matches": [outcome(matches, "4", "4"), outcome(matches, "5", "4")],
        "apart": [
            (text, *(d.score for d in done.output[0].answer.reward.details))
            for text, done in zip(texts[-2:], batch[-2:], strict=True)
        ],
        "members": outcome(weighted, "slow one")[2],
        "secret": any("secret" in prompt for prompt in client.prompts),
        "shown": client.prompts[0],
        "there and back": outcome(ours, "\\boxed{4}", "4")[:2],
        "pickled": outcome(pickle.loads(pickle.dumps(matches)), "4", "4")[0],
    }


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps({"forward": forward(asked), "backward": backward()}) + "\n")
