"""One definition, same score: 60 completions through every door give the same numbers, bit for bit, and the same gaps.

The doors are the adapters of `adapters.py`, and beside them those of the library and of its server: a function from the reward's
name and the rows to a number per row, or None where the caller gets its own word for "no score".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataSample, EvaluateResult, MetricResult, RewardRegistry, reward_function
from rm_gallery.core.runner.build import build_reward
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.integrations.trl import trl_reward
from tests.integrations.adapters import ADAPTERS, Row, one_by_one, waited
from tests.integrations.packages import installed

Door = Callable[[str, list[Row]], "list[float | None]"]
DOORS: dict[str, Door] = {}
N = 60
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
        text = "" if n % 30 == 29 else answers[n % len(answers)] % (2 * n + (n % 3 == 0))
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


# -- the doors ---------------------------------------------------------------------------------------------------------------


@door("evaluate_batch")
def batch(name: str, rows: list[Row]) -> list[float | None]:
    reward = build_reward(name)
    done = reward.evaluate_batch([sample_of(row) for row in rows], progress=False)
    return [reward.score_of_output(sample.output[0]) for sample in done]


def scored(row_scorer: RowScorer, rows: list[Row]) -> Any:
    return row_scorer.score_rows(
        [row.prompt for row in rows], [row.completion for row in rows], [{"solution": row.solution} for row in rows]
    )


@door("RowScorer.score_rows")
def scorer(name: str, rows: list[Row]) -> list[float | None]:
    return [each.score for each in scored(RowScorer(name, reference="solution"), rows)]


@door("TRL, conversations, awaited")
def trl_awaited(name: str, rows: list[Row]) -> list[float | None]:
    talks = [row.talk for row in rows]

    async def go() -> list[float | None]:
        reward = trl_reward(name, reference="solution")
        given = {"prompts": [talk[:1] for talk in talks], "completions": [talk[1:] for talk in talks]}
        return list(await reward(**given, solution=[row.solution for row in rows]))

    return asyncio.run(go())


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
    "/evaluate": (lambda row: {"messages": row.talk, "ground_truth": row.solution}, lambda reply: reply["score"]),
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
        lambda row: [{"id": "1", "messages": row.talk, "reference_answer": row.solution}],
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


@door("remote:URL")
def remote(name: str, rows: list[Row]) -> list[float | None]:
    from tests.support.reward_server import RewardServer

    with RewardServer({"it": RewardRegistry.create(name)}) as server:
        found = RowScorer(f"remote:{server.url}/v1/rewards/it", reference="solution")
        return [each.score for each in scored(found, rows)]


# -- the tests ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed():
        yield


def same(found: list[Any], reward: str) -> None:
    wanted = expected(reward)
    assert len(found) == N and None in wanted
    wrong = [place for place in range(N) if repr(found[place]) != repr(wanted[place])]
    assert [(rows()[place], found[place], wanted[place]) for place in wrong[:5]] == []


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", DOORS)
def test_every_door_gives_the_same_scores(name: str, reward: str) -> None:
    same(DOORS[name](reward, rows()), reward)


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_gives_the_same_scores(name: str, reward: str) -> None:
    adapter = ADAPTERS[name]
    made = adapter.make(reward, **adapter.given, **({"on_error": "raise"} if adapter.silent else {}))
    found = one_by_one(adapter, made, rows())
    same([each if each is None else adapter.score(each) for each in found], reward)
    if adapter.batch:
        same([adapter.score(each) for each in waited(adapter.batch(made, rows()))], reward)
