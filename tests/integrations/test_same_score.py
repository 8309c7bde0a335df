"""One definition, same score: 500 completions through every door give the same numbers, bit for bit, and the same gaps.

An adapter adds one row: a function from the reward's name and the rows to a number per row, or None where the trainer gets
its own word for "no reward".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rm_gallery import DataSample, EvaluateResult, MetricResult, RewardRegistry, reward_function
from rm_gallery.core.runner.build import build_reward
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.integrations.trl import trl_reward, trl_rewards


class Row(NamedTuple):
    """What a trainer knows of one completion."""

    prompt: str
    completion: str
    solution: str | None


Door = Callable[[str, list[Row]], "list[float | None]"]
DOORS: dict[str, Door] = {}
N = 500
REWARDS = {"a rule": "math_verify_reward", "a function": f"func:{Path(__file__).resolve()}:thirds"}


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


def served(name: str, path: str, bodies: list[Any]) -> list[Any]:
    """The server's replies to requests with these bodies."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra serve)")
    from rm_gallery.serve.app import create_app
    from rm_gallery.serve.handler import Handler

    app: Any = create_app(Handler({"it": RewardRegistry.create(name)}))

    async def go() -> list[Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            return [(await client.post(path, json=body)).raise_for_status().json() for body in bodies]

    return asyncio.run(go())


# -- the test ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", DOORS)
def test_every_door_gives_the_same_scores(name: str, reward: str) -> None:
    found, wanted = DOORS[name](reward, rows()), expected(reward)
    assert len(found) == N and None in wanted
    wrong = [place for place in range(N) if repr(found[place]) != repr(wanted[place])]
    assert [(rows()[place], found[place], wanted[place]) for place in wrong[:5]] == []
