"""Every trainer adapter in one table: how it is made, how its target calls it, and which number the
target then has.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from rm_gallery import (
    BasePointWiseReward,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.integrations.areal import areal_reward, areal_workflow
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.callables import (
    endpoint_function,
    langfuse_evaluator,
    langsmith_evaluator,
)
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.episodes import EpisodeRewards
from rm_gallery.integrations.nemo_rl import RewardEnvironment, nemo_rl_reward
from rm_gallery.integrations.openenv import RolloutReward, openenv_rubric
from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.skyrl import skyrl_reward
from rm_gallery.integrations.slime import slime_reward
from rm_gallery.integrations.trl import trl_reward, trl_rewards
from rm_gallery.integrations.verifiers import verifiers_group_reward, verifiers_reward
from rm_gallery.integrations.verl import verl_reward


class Moody(BasePointWiseReward):
    """The length of an answer, with a part; unscored for "none", an error for "fail"."""

    score_range: tuple[float | None, float | None] = (-1.0, 9.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "none" in text:
            raise Unscored("nothing to judge by", reason="no_reference")
        if "fail" in text:  # no answer is found to have caused that
            raise ConnectionError("the judge is gone")
        score = 1e300 if "huge" in text else float(len(text))
        details = [RewardDimensionWithScore(name=self.name, score=score)]
        beside = {} if "bare" in text else {"metrics": {"words": float(len(text.split()))}}
        return RewardResult(name=self.name, details=list(details), extra_data=beside)


class Cost(Moody):
    """The same, and less of it is better."""

    higher_is_better = False


class Unbounded(Moody):
    """The same, without a worst score."""

    score_range = (None, None)


class Row(NamedTuple):
    """What a trainer knows of one completion."""

    prompt: str
    completion: Any
    solution: str | None = None
    more: Mapping[str, Any] = {}

    @property
    def columns(self) -> dict[str, Any]:
        """The dataset's columns."""
        return {"solution": self.solution, **self.more}

    @property
    def talk(self) -> list[dict[str, Any]]:
        """The row as one conversation."""
        said = self.completion
        return [{"role": "user", "content": self.prompt}, {"role": "assistant", "content": said}]


class Adapter(NamedTuple):
    """`make(reward, **settings)`; `call(made, row)` gives, or awaits, what the target reads;
    `score` is the number in it.
    """

    make: Callable[..., Any]
    call: Callable[[Any, Row], Any]
    score: Callable[[Any], Any] = lambda given: given
    """None where the target is told that there is none."""
    batch: Callable[[Any, Sequence[Row]], Any] | None = None
    """What the target reads of each row of a batch."""
    given: Mapping[str, Any] = {"reference": "solution"}
    """Settings by which the solution is the reference."""
    chooses: bool = True
    """Whether `on_error` says what stands for a missing score."""
    silent: str = ""
    """Why a missing score cannot be told from a bad one, where the target has no place for it."""
    pickles: bool = True
    groups: bool = False
    """Whether the completions of a prompt come together, so that a reward may compare them."""


def unflagged(numbers: Mapping[str, Any], key: str = "score") -> float | None:
    """The number of a target that has no word for "no score", None where its flags say there is
    none.
    """
    return None if numbers["unscored"] or numbers["failed"] else numbers[key]


def waited(found: Any) -> Any:
    """The value, also of what is to be awaited."""

    async def value() -> Any:
        return await found

    return asyncio.run(value()) if inspect.isawaitable(found) else found


def openrlhf(made: Any, rows: Sequence[Row]) -> Any:
    texts = [f"{row.prompt}{row.completion}</s>" for row in rows]
    return made(texts, [row.prompt for row in rows], [json.dumps(row.columns) for row in rows])


def openrlhf_batch(made: Any, rows: Sequence[Row]) -> list[Any]:
    found = openrlhf(made, rows)
    if len(rows) == 1:
        return [found]
    logs = [
        {name: values[at] for name, values in found["extra_logs"].items()}
        for at in range(len(rows))
    ]
    numbers = zip(found["rewards"], found["scores"], logs, strict=True)
    return [
        {"rewards": reward, "scores": score, "extra_logs": log} for reward, score, log in numbers
    ]


def nemo(made: Any, rows: Sequence[Row]) -> list[Any]:
    pytest.importorskip("torch", reason="torch is not installed")
    found = made.step([row.talk for row in rows], [row.columns for row in rows])
    return [
        [r, kept["rm_gallery"]]
        for r, kept in zip(found.rewards.tolist(), found.metadata, strict=True)
    ]


async def v0(made: Any, row: Row) -> Any:
    state: dict[str, Any] = {}
    asked, said = row.talk
    value = await made(
        prompt=[asked], completion=[said], answer=row.solution, info=dict(row.more), state=state
    )
    return {
        "reward": value,
        "error": str(state["error"]) if "error" in state else None,
        **state["rm_gallery"],
    }


async def v0_group(made: Any, rows: Sequence[Row]) -> list[Any]:
    states: list[dict[str, Any]] = [{} for _ in rows]
    values = await made(
        prompts=[row.talk[:1] for row in rows],
        completions=[row.talk[1:] for row in rows],
        answers=[row.solution for row in rows],
        infos=[dict(row.more) for row in rows],
        states=states,
    )
    return [
        {
            "reward": value,
            "error": str(state["error"]) if "error" in state else None,
            **state["rm_gallery"],
        }
        for value, state in zip(values, states, strict=True)
    ]


async def v0_alone(made: Any, row: Row) -> Any:
    return (await v0_group(made, [row]))[0]


def trace(row: Row, sampled: bool = True) -> Any:
    """A trace of verifiers v1."""
    turns = [
        SimpleNamespace(model_dump=partial(_dumped, turn), role=turn["role"]) for turn in row.talk
    ]
    nodes = [
        SimpleNamespace(sampled=sampled and turn.role == "assistant", message=turn)
        for turn in turns
    ]
    metrics: dict[str, float] = {}
    return SimpleNamespace(
        branches=[SimpleNamespace(nodes=nodes)],
        record_metrics=metrics.update,
        metrics=metrics,
        info={},
    )


def _dumped(turn: dict[str, Any], exclude_none: bool) -> dict[str, Any]:
    return {key: value for key, value in turn.items() if not exclude_none or value is not None}


async def v1(made: Any, row: Row) -> Any:
    seen = trace(row)
    try:
        return [await made(task=row.columns, trace=seen), seen.metrics]
    except NoScore as error:
        return [None, seen.metrics, str(error)]


def trl(made: Any, rows: Sequence[Row]) -> Any:
    columns = {
        name: [row.columns.get(name) for row in rows]
        for name in {k: 0 for row in rows for k in row.columns}
    }
    return made(
        prompts=[row.prompt for row in rows],
        completions=[row.completion for row in rows],
        **columns,
    )


def trl_batch(made: Any, rows: Sequence[Row]) -> list[Any]:
    return [[score] for score in trl(made, rows)]


def slime_sample(row: Row, metadata: Any = None) -> SimpleNamespace:
    """The fields of slime's sample."""
    own = {"prompt": row.prompt, "response": row.completion, "label": row.solution}
    return SimpleNamespace(
        **own, metadata=dict(row.more) if metadata is None else metadata, remove_sample=False
    )


async def slime(made: Any, rows: Sequence[Row]) -> list[Any]:
    samples = [slime_sample(row) for row in rows]
    keys = SimpleNamespace(reward_key="score", eval_reward_key=None)
    found = await made(keys, samples if len(samples) > 1 else samples[0])
    told = zip(found if len(samples) > 1 else [found], samples, strict=True)
    return [
        {**reward, "out of the loss": s.remove_sample, "status": s.metadata["reward_status"]}
        for reward, s in told
    ]


async def slime_batch(made: Any, rows: Sequence[Row]) -> list[Any]:
    return [[reward] for reward in await slime(made, rows)]


class Env(BenchmaxRewards):
    """A user's environment, told its rewards where it is made."""

    def __init__(self, reward: Any, **settings: Any) -> None:
        self.on_error = settings.pop("on_error", "raise")
        self.rewards = {"r": {"reward": reward, **settings}}


def benchmax(generation: int) -> Callable[[Any, Row], Any]:
    """The call of one of benchmax' contracts."""

    def call(made: Any, row: Row) -> Any:
        rollout = SimpleNamespace(rollout_id="r", messages=row.talk, example_args=row.columns)
        one = ("r", row.completion, row.solution)
        given: Any = {1: one, 2: ("r", row.talk, row.columns), 3: (rollout,)}[generation]
        return made.compute_reward(
            *given, **({"prompt": row.prompt, **row.more} if generation == 1 else {})
        )

    return call


def skyrl(made: Any, row: Row) -> Any:
    extras = {
        "reward_spec": {"ground_truth": row.solution},
        "extra_info": dict(row.more),
        "data_source": "x",
    }
    env = made(env_config={}, extras=extras)
    assert env.init([row.talk[0]]) == ([row.talk[0]], {}) and env.get_metrics() == {}
    step = env.step(row.completion)
    return {**step, "metrics": env.get_metrics(), "turns": env.turns}


def episode(made: Any, row: Row) -> Any:
    begun = made.episode(row.prompt, row.columns)
    return {"paid": begun.step(row.completion, done=True), "rewards": begun.rewards}


async def rubric(made: Any, row: Row) -> Any:
    seen = SimpleNamespace(prompt=row.prompt, done=True, metadata=dict(row.columns))
    found = await made(SimpleNamespace(message=row.completion), seen)
    beside = {name: value for name, value in seen.metadata.items() if name.startswith("rubric_")}
    return {"score": float(found), "status": found.outcome.status, **beside}


def areal_flow(reward: Any, **settings: Any) -> Any:
    decodes = SimpleNamespace(decode=lambda ids, skip_special_tokens: ids)
    return areal_workflow(reward, None, decodes, **settings)


def rollout(made: Any, row: Row) -> Any:
    return made(SimpleNamespace(completion=row.talk, columns=row.columns))


def columns_of(outcome: Any) -> Any:
    return outcome.columns


def endpoint(made: Any, row: Row) -> Any:
    return made(row.talk, ground_truth=row.solution, **row.more).model_dump(exclude_defaults=True)


ADAPTERS: dict[str, Adapter] = {
    "verl.verl_reward": Adapter(
        partial(verl_reward, components=["words"]),
        lambda made, row: made("d", row.completion, row.solution, {"prompt": row.prompt, **row.more}),
        unflagged, lambda made, rows: made.__self__.compute_scores(
            ["d"] * len(rows), [r.completion for r in rows], [r.solution for r in rows],
            [{"prompt": r.prompt, **r.more} for r in rows],
        ), given={}, groups=True,
    ),
    "openrlhf.openrlhf_reward": Adapter(
        partial(openrlhf_reward, json_label=True), lambda made, row: openrlhf(made, [row]),
        lambda found: unflagged({**found["extra_logs"], "score": found["rewards"]}), openrlhf_batch,
    ),
    "nemo_rl.RewardEnvironment": Adapter(
        lambda reward, **settings: RewardEnvironment({"reward": reward, "components": ["words"], **settings}),
        lambda made, row: nemo(made, [row])[0], lambda found: unflagged(found[1]), nemo, groups=True,
    ),
    "nemo_rl.nemo_rl_reward": Adapter(
        nemo_rl_reward, lambda made, row: made(row.solution, row.completion), lambda found: found[0], given={},
        silent="NeMo-RL takes two numbers, and makes a 0.0 of an exception",
    ),
    "verifiers.verifiers_reward": Adapter(
        verifiers_reward, v0, lambda found: None if found["error"] else found["reward"], given={},
    ),
    "verifiers.verifiers_group_reward": Adapter(
        verifiers_group_reward, v0_alone, lambda found: None if found["error"] else found["reward"], v0_group, given={}, groups=True,
    ),
    "verifiers.verifiers_reward-v1": Adapter(verifiers_reward, v1, lambda found: found[0]),
    "trl.trl_reward": Adapter(trl_reward, lambda made, row: trl(made, [row]), lambda found: found[0], trl_batch, groups=True),
    "trl.trl_rewards": Adapter(
        lambda reward, **settings: trl_rewards([{"reward": reward, **settings}, {"reward": "length_penalty", "worst": -1.0}])[0],
        lambda made, row: trl(made, [row]), lambda found: found[0], trl_batch, groups=True,
    ),
    "skyrl.skyrl_reward": Adapter(
        partial(skyrl_reward, components=["words"]), skyrl, lambda found: unflagged(found["metrics"]), given={},
    ),
    "episodes.EpisodeRewards": Adapter(
        EpisodeRewards, episode, lambda found: None if None in found["rewards"] else found["paid"],
    ),
    "slime.slime_reward": Adapter(
        slime_reward, lambda made, row: slime(made, [row]),
        lambda found: None if found[0]["out of the loss"] else found[0]["score"], slime_batch, given={}, groups=True,
    ),
    **{
        f"benchmax.BenchmaxRewards-{n}": Adapter(
            Env, benchmax(n), lambda found: found["r"], given={} if n == 1 else {"reference": "solution"}, groups=True,
        )
        for n in (1, 2, 3)
    },
    "areal.areal_reward": Adapter(
        areal_reward, lambda made, row: made("q", f"{row.completion}<|im_end|>\n", [1], [2], **row.columns)
    ),
    "areal.areal_workflow": Adapter(
        areal_flow, lambda made, row: made.arun_episode(None, {"completion": row.completion, **row.columns}), pickles=False,
    ),
    "openenv.openenv_rubric": Adapter(openenv_rubric, rubric, lambda found: found["score"] if found["status"] == "scored" else None),
    "openenv.RolloutReward": Adapter(partial(RolloutReward, row=columns_of), rollout),
    "callables.langsmith_evaluator": Adapter(
        langsmith_evaluator, lambda made, row: made({"question": row.prompt}, {"answer": row.completion}, row.columns),
        lambda found: found["results"][0]["score"], chooses=False,
    ),
    "callables.langfuse_evaluator": Adapter(
        langfuse_evaluator,
        lambda made, row: made(input=row.prompt, output=row.completion, expected_output=row.solution, metadata=row.more),
        lambda found: None if found[0]["name"].endswith(".unscored") else found[0]["value"], given={}, chooses=False,
    ),
    "callables.endpoint_function": Adapter(
        endpoint_function, endpoint, lambda found: None if found.get("error") else found["score"], given={}, chooses=False,
    ),
}  # fmt: skip


def one_by_one(adapter: Adapter, made: Any, rows: Sequence[Row]) -> list[Any]:
    """What the target reads of each row, None where it is left out because the call raises."""
    found = []
    for row in rows:
        try:
            found.append(waited(adapter.call(made, row)))
        except NoScore:
            found.append(None)
    return found
