"""Prompts of a judged reward, taken apart into what the instructions and what the material say."""

from __future__ import annotations

from dataclasses import dataclass

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.reward.judge import BaseLLMReward
from tests.gallery.judged.material import LANGUAGES, NAMES, ONE_OF_EACH, judged
from tests.support.judge_server_prompts import fenced_blocks

EVERY = [(name, language) for name in NAMES for language in LANGUAGES]
FEW = [(name, language) for name in ONE_OF_EACH for language in LANGUAGES]
FEW_ID = [f"{name}-{language}" for name, language in FEW]
EVERY_ID = [f"{name}-{language}" for name, language in EVERY]


@dataclass(frozen=True)
class Shown:
    """One prompt: the system message, the user message, and the user message's fenced blocks in order."""

    system: str
    user: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def whole(self) -> str:
        """Everything the judge reads."""
        return f"{self.system}\n{self.user}"


def shown(prompt: object) -> Shown:
    """A prompt taken apart; it has to be one system and one user message, and blocks and nothing else in the latter."""
    assert isinstance(prompt, list)
    assert [message["role"] for message in prompt] == ["system", "user"]
    system, user = (message["content"] for message in prompt)
    blocks = fenced_blocks(user)
    assert "\n\n".join(user[block.start : block.end] for block in blocks) == user
    assert all(block.text.startswith("\n") and block.text.endswith("\n") for block in blocks)
    return Shown(system, user, tuple((block.name, block.text[1:-1]) for block in blocks))


def prompts_of(reward: BaseLLMReward, sample: DataSample) -> list[Shown]:
    """Every prompt this reward would send for the sample, in the order of its jobs."""
    return [shown(reward._prompt(job.sample, {})) for job in reward.plan(sample)]


def first_prompt(name: str, language: str, sample: DataSample) -> Shown:
    """The prompt `format` shows."""
    return shown(judged(name, language=language).format(sample))


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
