"""Samples with a known best answer, a judge for them, what its scores say, and prompts taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.model.openai_llm import OpenaiLLM
from rm_gallery.core.reward.judge import BaseLLMReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.gallery.rm import judged_name, scenario_keys
from tests.support.judge_server import JudgeServer, make_query_oracle
from tests.support.judge_server_prompts import fenced_blocks

LISTWISE, POINTWISE, PAIRWISE = (
    sorted(judged_name(key, kind) for key in scenario_keys()) for kind in ("listwise", "pointwise", "pairwise")
)
NAMES = [*LISTWISE, *POINTWISE, *PAIRWISE]
ONE_OF_EACH = [LISTWISE[0], POINTWISE[0], PAIRWISE[0]]
"""Enough for what all share: rewards of a kind differ in their texts alone."""
LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Judge:
    """A judge server and a model that asks it."""

    server: JudgeServer
    llm: OpenaiLLM

    def behave(self, behaviour: str, always: int | None = None) -> None:
        """Judge like this from now on, or answer every request with an HTTP status."""
        self.server.set(behaviour=behaviour, faults={"always": always})

    def reward(self, name: str, **settings: Any) -> BaseReward:
        """A judged reward that asks this judge."""
        return RewardRegistry.create(name, llm=self.llm, **settings)


def task(number: int) -> DataSample:
    """An addition with one right and three wrong answers; the right one always stands first."""
    right = 7 * number + 5
    texts = [f"{7 * number} plus 5 is {value}." for value in (right, right + 1, right - 2, right + 10)]
    return sample_of(f"What is {7 * number} plus 5?", texts, unique_id=f"sum-{number}")


def tasks(count: int) -> list[DataSample]:
    """So many samples; the same number always gives the same ones."""
    return [task(number) for number in range(count)]


def oracle_for(samples: Iterable[DataSample]) -> dict[str, dict[str, Any]]:
    """What a judge server has to know to judge these samples perfectly."""
    return make_query_oracle(
        (s.input[0].text, [o.answer.text for o in s.output], [o is s.output[0] for o in s.output]) for s in samples
    )


def scores(reward: BaseReward, sample: DataSample) -> list[float | None]:
    """The reward's score of each output, None where it gave none."""
    return [reward.score_of(output.answer.reward) for output in sample.output]


def reasons(samples: Iterable[DataSample]) -> set[tuple[str, str]]:
    """Status and reason of every issue."""
    return {(i.status, i.reason) for s in samples for o in s.output for i in o.answer.reward.issues}


def accuracy(reward: BaseReward, samples: Iterable[DataSample]) -> tuple[int, float | None]:
    """Number of samples scored whole, and the share of them whose right answer alone has the highest score."""
    whole = [[s for s in found if s is not None] for sample in samples if None not in (found := scores(reward, sample))]
    won = [found[0] > max(found[1:]) for found in whole]
    return len(whole), sum(won) / len(won) if won else None


def judged(name: str, **settings: Any) -> BaseLLMReward:
    """A judged reward for looking at its prompts; its model is never asked."""
    reward = RewardRegistry.create(name, llm="fake:not asked", **settings)
    assert isinstance(reward, BaseLLMReward)
    return reward


@dataclass(frozen=True)
class Shown:
    """One prompt: the system message, the user message, and the user message's fenced blocks in order."""

    system: str
    user: str
    blocks: tuple[tuple[str, str], ...]


def shown(prompt: object) -> Shown:
    """A prompt taken apart; it has to be one system and one user message, and blocks and nothing else in the latter."""
    assert isinstance(prompt, list)
    assert [message["role"] for message in prompt] == ["system", "user"]
    system, user = (message["content"] for message in prompt)
    blocks = fenced_blocks(user)
    assert "\n\n".join(user[block.start : block.end] for block in blocks) == user
    return Shown(system, user, tuple((block.name, block.text[1:-1]) for block in blocks))


def prompts_of(reward: BaseLLMReward, sample: DataSample) -> list[Shown]:
    """Every prompt this reward would send for the sample, in the order of its jobs."""
    return [shown(reward._prompt(job.sample, {})) for job in reward.plan(sample)]


def sample_of(query: str, answers: list[str], **fields: object) -> DataSample:
    """A sample with one user turn and these answers."""
    outputs = [DataOutput(answer=Step(content=text)) for text in answers]
    return DataSample.model_validate(
        {"unique_id": "s-1", "input": [ChatMessage(content=query)], "output": outputs, **fields}
    )


def answers_for(name: str, texts: list[str]) -> list[str]:
    """As many of the texts as one prompt of this reward shows."""
    return texts[:1] if "pointwise" in name else texts[:2] if "pairwise" in name else texts


def answer_tags(name: str, count: int) -> list[str]:
    """Names of the answer blocks in one prompt of this reward."""
    return ["answer"] if "pointwise" in name else [f"answer_{number}" for number in range(1, count + 1)]
