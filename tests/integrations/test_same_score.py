"""One definition, same score: 500 completions through every door give the same numbers, bit for bit, and the same gaps.

An adapter adds one row: a function from the reward's name and the rows to a number per row, or None where the trainer gets
its own word for "no reward".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from rm_gallery import DataSample, EvaluateResult, MetricResult, RewardRegistry, reward_function
from rm_gallery.core.runner.build import build_reward
from rm_gallery.integrations.areal import areal_reward
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.callables import endpoint_function, langfuse_evaluator, langsmith_evaluator
from rm_gallery.integrations.nemo_rl import nemo_rl_reward
from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.scoring import NoScore, RowScorer
from rm_gallery.integrations.slime import slime_reward
from rm_gallery.integrations.trl import trl_reward, trl_rewards
from rm_gallery.integrations.verifiers import verifiers_reward
from rm_gallery.integrations.verl import compute_scores, verl_reward


class Row(NamedTuple):
    """What a trainer knows of one completion."""

    prompt: str
    completion: str
    solution: str | None


Door = Callable[[str, list[Row]], "list[float | None]"]
DOORS: dict[str, Door] = {}
N = 500
REWARDS = {
    "a rule": "math_verify_reward",
    "a function": f"func:{Path(__file__).resolve()}:thirds",
    "an environment": f"env:{Path(__file__).resolve()}:Sevenths",
}


class Sevenths:
    """Two components; one that cannot be judged for every 5th length, an error for every 13th."""

    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, Any]:
        """The length and whether the truth is named."""
        text = messages[-1]["content"]
        if len(text) % 13 == 12:
            raise RuntimeError("broken")
        named = float(str((task or {}).get("ground_truth", "-")) in text)
        return {"length": None if len(text) % 5 == 4 else len(text) / 700, "named": named}


@reward_function
def thirds(messages: list[Any], ground_truth: Any = None, **kwargs: Any) -> EvaluateResult:
    """A score with no short decimal form; not valid for every 7th length, broken for every 11th."""
    text = messages[-1].text
    if len(text) % 11 == 10:
        raise RuntimeError("broken")
    metric = MetricResult(score=float(len(text)), is_score_valid=True, reason="")
    return EvaluateResult(
        score=len(text) / 3 + (text.strip() == ground_truth),
        is_score_valid=len(text) % 7 != 6,
        reason="",
        metrics={"length": metric},
    )


def door(name: str) -> Callable[[Door], Door]:
    """Add a row to the table."""

    def add(function: Door) -> Door:
        DOORS[name] = function
        return function

    return add


def rows() -> list[Row]:
    """Right and wrong answers in many forms, some empty, some without a reference."""
    answers = [
        "\\boxed{%d}", "The answer is %d.", "%d", "  %d\r\n", "答案是 %d。", "<think>%d?</think> no idea", "#### %d",
        "%d apples", "x" * 40 + " %d", "-%d",
    ]  # fmt: skip
    found = []
    for n in range(N):
        wrong = n % 3 == 0
        text = "" if n % 50 == 49 else answers[n % len(answers)] % (2 * n + wrong)
        found.append(Row(f"What is {n}+{n}?", text + " " * (n % 4), None if n % 25 == 24 else str(2 * n)))
    return found


@cache
def expected(name: str) -> tuple[float | None, ...]:
    """What `evaluate` says, sample by sample."""
    reward = RewardRegistry.create(name)
    found = []
    for row in rows():
        outcome = reward.evaluate(sample_of(row)).output[0]
        found.append(reward.score_of_output(outcome))
    return tuple(found)


def sample_of(row: Row) -> DataSample:
    """The sample as a loader would make it."""
    metadata = None if row.solution is None else {"reference": row.solution}
    return DataSample.model_validate(
        {
            "input": [{"role": "user", "content": row.prompt}],
            "output": [{"answer": {"role": "assistant", "content": row.completion}}],
            "metadata": metadata,
        }
    )


def columns_of(rows: list[Row]) -> dict[str, list[Any]]:
    """The rows as a batch trainer hands them over, texts."""
    return {
        "prompts": [row.prompt for row in rows],
        "completions": [row.completion for row in rows],
        "solution": [row.solution for row in rows],
    }


def chats_of(rows: list[Row]) -> dict[str, list[Any]]:
    """The same as conversations."""
    return {
        "prompts": [[{"role": "user", "content": row.prompt}] for row in rows],
        "completions": [[{"role": "assistant", "content": row.completion}] for row in rows],
        "solution": [row.solution for row in rows],
    }


# -- the doors ---------------------------------------------------------------------------------------------------------------


@door("evaluate_batch")
def batch(name: str, rows: list[Row]) -> list[float | None]:
    reward = build_reward(name)
    done = reward.evaluate_batch([sample_of(row) for row in rows], progress=False)
    return [reward.score_of_output(sample.output[0]) for sample in done]


@door("RowScorer.score_rows")
def scorer(name: str, rows: list[Row]) -> list[float | None]:
    given = columns_of(rows)
    found = RowScorer(name, reference="solution").score_rows(
        given["prompts"], given["completions"], [{"solution": row.solution} for row in rows]
    )
    return [each.score for each in found]


@door("RowScorer.ascore")
def scorer_alone(name: str, rows: list[Row]) -> list[float | None]:
    one = RowScorer(name, reference="solution")

    async def go() -> list[float | None]:
        asked = (one.ascore(row.prompt, row.completion, {"solution": row.solution}) for row in rows)
        return [each.score for each in await asyncio.gather(*asked)]

    return asyncio.run(go())


@door("TRL, texts")
def trl_texts(name: str, rows: list[Row]) -> list[float | None]:
    return list(trl_reward(name, reference="solution")(**columns_of(rows)))


@door("TRL, conversations, awaited")
def trl_awaited(name: str, rows: list[Row]) -> list[float | None]:
    reward = trl_reward(name, reference="solution")

    async def go() -> list[float | None]:
        return list(await reward(**chats_of(rows)))

    return asyncio.run(go())


@door("TRL, beside another reward")
def trl_together(name: str, rows: list[Row]) -> list[float | None]:
    return list(trl_rewards([name, "length_penalty"], reference="solution")[0](**columns_of(rows)))


@door("HTTP, one by one")
def http_single(name: str, rows: list[Row]) -> list[float | None]:
    def body(row: Row) -> dict[str, Any]:
        return {"prompt": row.prompt, "completion": row.completion, "reference": row.solution}

    found = served(name, "/v1/rewards/it", [body(row) for row in rows])
    return [each["score"] for each in found]


@door("HTTP, a batch")
def http_batch(name: str, rows: list[Row]) -> list[float | None]:
    items = [{"prompt": row.prompt, "completion": row.completion, "reference": row.solution} for row in rows]
    (found,) = served(name, "/v1/rewards/it/batch", [{"items": items}])
    return [each["score"] for each in found["results"]]


def served(name: str, path: str, bodies: list[Any], may_refuse: bool = False) -> list[Any]:
    """The server's replies to requests with these bodies; None for a refusal, where there may be one."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra serve)")
    from rm_gallery.serve.app import create_app
    from rm_gallery.serve.handler import Handler

    app: Any = create_app(Handler({"it": RewardRegistry.create(name)}))

    async def go() -> list[Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            found = [await client.post(path, json=body) for body in bodies]
            refused = [may_refuse and reply.status_code in (422, 503) for reply in found]
            return [None if no else reply.raise_for_status().json() for reply, no in zip(found, refused, strict=True)]

    return asyncio.run(go())


def answered(path: str, body: Callable[[Row], Any], read: Callable[[Any], float | None]) -> Door:
    """The door of one of the server's foreign formats: a request per row, None where it is refused for want of a score."""

    def scores(name: str, rows: list[Row]) -> list[float | None]:
        replies = served(name, path, [body(row) for row in rows], may_refuse=True)
        return [None if reply is None else read(reply) for reply in replies]

    return scores


FORMATS: dict[str, tuple[Callable[[Row], Any], Callable[[Any], Any]]] = {
    "/evaluate": (lambda row: {"messages": talk(row), "ground_truth": row.solution}, lambda reply: reply["score"]),
    "/get_reward": (
        lambda row: {"query": [f"{row.prompt}{row.completion}</s>"], "prompts": [row.prompt], "labels": [row.solution]},
        lambda reply: reply["rewards"][0],
    ),
    "/rm": (lambda row: {"prompt": row.prompt, "response": row.completion, "label": row.solution}, lambda reply: reply),
    "/google": (
        lambda row: {
            "example": {
                "contents": [{"role": "user", "parts": [{"text": row.prompt}]}],
                "references": {} if row.solution is None else {"answer": row.solution},
            },
            "response": {"parts": [{"text": row.completion}]},
        },
        lambda reply: reply["reward"],
    ),
    "/azure": (
        lambda row: {"sample": {"output_text": row.completion}, "item": {"prompt": row.prompt, "answer": row.solution}},
        lambda reply: reply["score"],
    ),
    "/aws": (
        lambda row: [{"id": "1", "messages": talk(row), "reference_answer": row.solution}],
        lambda reply: reply[0]["aggregate_reward_score"],
    ),
    "/run": (
        lambda row: {"model_sample": row.completion, "item": {"prompt": row.prompt, "answer": row.solution}},
        lambda reply: reply["reward"],
    ),
}
DOORS |= {f"HTTP {path}": answered(path, *how) for path, how in FORMATS.items()}


@door("RewardClient")
def reward_client(name: str, rows: list[Row]) -> list[float | None]:
    from rm_gallery.serve.client import RewardClient
    from tests.support.reward_server import RewardServer

    items = [{"prompt": row.prompt, "completion": row.completion, "reference": row.solution} for row in rows]
    with RewardServer({"it": RewardRegistry.create(name)}) as server:
        return RewardClient(server.url).score_batch("it", items)


@door("remote:URL in TRL")
def remote(name: str, rows: list[Row]) -> list[float | None]:
    from tests.support.reward_server import RewardServer

    with RewardServer({"it": RewardRegistry.create(name)}) as server:
        return list(trl_reward(f"remote:{server.url}/v1/rewards/it", reference="solution")(**chats_of(rows)))


def one_by_one(call: Callable[[Row], Any], rows: list[Row]) -> list[Any]:
    """What a call gives for each row, None where it raises what leaves the row out."""
    found = []
    for row in rows:
        try:
            found.append(call(row))
        except NoScore:
            found.append(None)
    return found


def unflagged(numbers: Mapping[str, Any], key: str = "score") -> float | None:
    """The number of a target that has no word for "no score", None where its flags say there is none."""
    return None if numbers["unscored"] or numbers["failed"] else numbers[key]


@door("verl")
def verl(name: str, rows: list[Row]) -> list[float | None]:
    compute_score = verl_reward(name)

    async def go() -> list[float | None]:
        asked = (compute_score("d", row.completion, row.solution, {"prompt": row.prompt}) for row in rows)
        return [unflagged(each) for each in await asyncio.gather(*asked)]

    return asyncio.run(go())


@door("verl, a batch")
def verl_batch(name: str, rows: list[Row]) -> list[float | None]:
    texts, golds = [row.completion for row in rows], [row.solution for row in rows]
    return [unflagged(each) for each in compute_scores(["d"] * len(rows), texts, golds, reward=name)]


@door("OpenRLHF")
def openrlhf(name: str, rows: list[Row]) -> list[float | None]:
    reward_func = openrlhf_reward(name)
    replies = [reward_func([f"{row.prompt}{row.completion}</s>"], [row.prompt], [row.solution]) for row in rows]
    return [unflagged({**reply["extra_logs"], "score": reply["rewards"]}) for reply in replies]


@door("verifiers v0")
def verifiers_v0(name: str, rows: list[Row]) -> list[float | None]:
    reward = verifiers_reward(name)

    async def go(row: Row) -> float | None:
        state: dict[str, Any] = {}
        asked, said = talk(row)
        value = await reward(prompt=[asked], completion=[said], answer=row.solution, info={}, state=state)
        return None if "error" in state else value

    async def all_of_them() -> list[float | None]:
        return await asyncio.gather(*map(go, rows))

    return asyncio.run(all_of_them())


@door("NeMo-RL, a function")
def nemo_rl(name: str, rows: list[Row]) -> list[float | None]:
    function = nemo_rl_reward(name, on_error="raise")
    return one_by_one(lambda row: function(row.solution, row.completion)[0], rows)


def talk(row: Row) -> list[dict[str, Any]]:
    """The row as one conversation."""
    return [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.completion}]


@door("AReaL")
def areal(name: str, rows: list[Row]) -> list[float | None]:
    reward = areal_reward(name, reference="solution")
    return one_by_one(lambda row: reward("q", f"{row.completion}<|im_end|>", [], [], solution=row.solution), rows)


@door("slime, one by one")
def slime_alone(name: str, rows: list[Row]) -> list[float | None]:
    reward = slime_reward(name, on_error="raise")

    async def go(row: Row) -> Any:
        return await reward(SimpleNamespace(), slime_sample(row))

    return one_by_one(lambda row: asyncio.run(go(row)), rows)


@door("slime, a list")
def slime_list(name: str, rows: list[Row]) -> list[float | None]:
    samples = [slime_sample(row) for row in rows]

    async def go() -> Any:
        return await slime_reward(name)(SimpleNamespace(), samples)

    # its word for "no score": the sample is out of the loss
    return [None if out.remove_sample else value for value, out in zip(asyncio.run(go()), samples, strict=True)]


def slime_sample(row: Row) -> SimpleNamespace:
    """The fields of slime's sample."""
    own = {"prompt": row.prompt, "response": row.completion, "label": row.solution}
    return SimpleNamespace(**own, metadata={}, remove_sample=False)


def benchmax(generation: int) -> Door:
    """The door of one of benchmax' contracts."""

    def scores(name: str, rows: list[Row]) -> list[float | None]:
        env = type("Env", (BenchmaxRewards,), {"rewards": {"it": name}, "reference": "solution"})()

        def call(row: Row) -> Any:
            task = {"solution": row.solution}
            rollout = SimpleNamespace(rollout_id="r", messages=talk(row), example_args=task)
            given = {1: ("r", row.completion, row.solution), 2: ("r", talk(row), task), 3: (rollout,)}[generation]
            named = {"prompt": row.prompt} if generation == 1 else {}
            return asyncio.run(env.compute_reward(*given, **named))["it"]

        return one_by_one(call, rows)

    return scores


DOORS |= {f"benchmax {generation}": benchmax(generation) for generation in (1, 2, 3)}


@door("LangSmith")
def langsmith(name: str, rows: list[Row]) -> list[float | None]:
    judge = langsmith_evaluator(name, reference="solution")
    calls = (({"question": row.prompt}, {"answer": row.completion}, {"solution": row.solution}) for row in rows)
    given = iter(calls)
    return one_by_one(lambda row: judge(*next(given))["results"][0]["score"], rows)


@door("Langfuse")
def langfuse(name: str, rows: list[Row]) -> list[float | None]:
    judge = langfuse_evaluator(name)

    def call(row: Row) -> float | None:
        found = asyncio.run(judge(input=row.prompt, output=row.completion, expected_output=row.solution))
        return None if found[0]["name"].endswith(".unscored") else found[0]["value"]

    return one_by_one(call, rows)


@door("reward-kit")
def reward_kit(name: str, rows: list[Row]) -> list[float | None]:
    function = endpoint_function(name)
    found = [function(talk(row), ground_truth=row.solution) for row in rows]
    return [one.score if one.is_score_valid else None for one in found]


# -- the test ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", DOORS)
def test_every_door_gives_the_same_scores(name: str, reward: str) -> None:
    found, wanted = DOORS[name](reward, rows()), expected(reward)
    assert len(found) == N and None in wanted
    wrong = [place for place in range(N) if repr(found[place]) != repr(wanted[place])]
    assert [(rows()[place], found[place], wanted[place]) for place in wrong[:5]] == []
