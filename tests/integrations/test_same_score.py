"""One definition, same score: 60 completions through every door give the same numbers, bit for bit,
and the same gaps.

The doors are the adapters of `adapters.py`, and beside them those of the library and of its server:
a function from the reward's name and the rows to a number per row, or None where the caller gets
its own word for "no score".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from rm_gallery import DataSample, EvaluateResult, RewardRegistry, RunOptions, reward_function
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.integrations.scoring import RowScorer
from tests.integrations.adapters import ADAPTERS, Row, one_by_one, waited
from tests.support.choice import covering
from tests.support.samples import make_sample

pytestmark = pytest.mark.usefixtures("there")
Door = Callable[[str, list[Row]], "list[float | None]"]
DOORS: dict[str, Door] = {}
N = 60
REWARDS = {
    "a rule": "math_verify_reward",
    "a function": f"func:{Path(__file__).resolve()}:thirds",
    "an environment": f"env:{Path(__file__).resolve()}:Sevenths",
}


class Sevenths:
    """Two components; one that cannot be judged for every 5th length, an error for every 13th and
    for some truths.
    """

    async def compute_reward(
        self, rollout_id: str, messages: Any, task: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """The length and whether the truth is named."""
        text = messages[-1]["content"]
        truth = str((task or {}).get("ground_truth", "-"))
        if len(text) % 13 == 12 or truth.endswith("8"):
            raise RuntimeError("broken")
        return {
            "length": None if len(text) % 5 == 4 else len(text) / 700,
            "named": float(truth in text),
        }


@reward_function(score_range=(0, None))
def thirds(messages: list[Any], ground_truth: Any = None, **kwargs: Any) -> EvaluateResult:
    """A score with no short decimal form; broken for every 11th length, not valid for every 7th and
    for some truths.
    """
    text = messages[-1].text
    if len(text) % 11 == 10:
        raise RuntimeError("broken")
    score = len(text) / 3 + (text.strip() == ground_truth)
    return EvaluateResult(
        score=score, is_score_valid=len(text) % 7 != 6 and str(ground_truth)[-1] != "8", reason=""
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
        found.append(
            Row(f"What is {n}+{n}?", text + " " * (n % 4), None if n % 25 == 24 else str(2 * n))
        )
    return found


@cache
def expected(name: str, blame: Literal["off", "probe"] = "off") -> tuple[float | None, ...]:
    """What `evaluate` says, sample by sample."""
    reward = RowScorer(name, worst=0.0).reward
    options = RunOptions(blame=blame)
    return tuple(
        reward.score_of_output(reward.evaluate(sample_of(row), options=options).output[0])
        for row in rows()
    )


def sample_of(row: Row) -> DataSample:
    """The sample as a loader would make it."""
    metadata = None if row.solution is None else {"reference": row.solution}
    return make_sample(row.completion, query=row.prompt, metadata=metadata)


@door("evaluate_batch")
def batch(name: str, rows: list[Row]) -> list[float | None]:
    reward = build_reward(name)
    done = reward.evaluate_batch([sample_of(row) for row in rows], progress=False)
    return [reward.score_of_output(sample.output[0]) for sample in done]


def scored(row_scorer: RowScorer, rows: list[Row]) -> Any:
    prompts, completions = [row.prompt for row in rows], [row.completion for row in rows]
    return row_scorer.score_rows(prompts, completions, [{"solution": row.solution} for row in rows])


@door("RowScorer.score_rows")
def scorer(name: str, rows: list[Row]) -> list[float | None]:
    return [each.value for each in scored(RowScorer(name, reference="solution"), rows)]


def items(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {"prompt": row.prompt, "completion": row.completion, "reference": row.solution}
        for row in rows
    ]


@door("RewardClient")
def reward_client(name: str, rows: list[Row]) -> list[float | None]:
    from rm_gallery.serve.client import RewardClient
    from tests.support.reward_server import RewardServer

    with RewardServer({"it": RewardRegistry.create(name)}) as server:
        return RewardClient(server.url).score_batch("it", items(rows))


@door("remote:URL")
def remote(name: str, rows: list[Row]) -> list[float | None]:
    from tests.support.reward_server import RewardServer

    with RewardServer({"it": RewardRegistry.create(name)}) as server:
        found = RowScorer(f"remote:{server.url}/v1/rewards/it", reference="solution")
        return [each.value for each in scored(found, rows)]


def same(found: list[Any], reward: str, blame: Literal["off", "probe"] = "off") -> None:
    wanted = expected(reward, blame)
    assert len(found) == N and None in wanted
    wrong = [place for place in range(N) if repr(found[place]) != repr(wanted[place])]
    assert [(rows()[place], found[place], wanted[place]) for place in wrong[:5]] == []


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", DOORS)
def test_every_door_gives_the_same_scores(name: str, reward: str) -> None:
    # a server tries what gave no score beside a neutral answer where the reward has a worst score
    # to give
    probes = name in ("RewardClient", "remote:URL") and reward == REWARDS["a function"]
    same(DOORS[name](reward, rows()), reward, "probe" if probes else "off")


@pytest.mark.parametrize(
    ("name", "reward"),
    covering(product(ADAPTERS, REWARDS.values()), lambda name, reward: name),
)
def test_every_adapter_gives_the_same_scores(name: str, reward: str) -> None:
    adapter = ADAPTERS[name]
    # where scores train, who broke it is found out
    blame: Literal["off", "probe"] = "probe" if adapter.chooses else "off"
    made = adapter.make(
        reward, worst=0.0, **adapter.given, **({"on_error": "raise"} if adapter.silent else {})
    )
    found = one_by_one(adapter, made, rows())
    same([each if each is None else adapter.score(each) for each in found], reward, blame)
    if adapter.batch:
        same([adapter.score(each) for each in waited(adapter.batch(made, rows()))], reward, blame)
