"""Every judged reward, samples that fit it, and what its judge reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rm_gallery import BaseReward, ChatMessage, DataOutput, DataSample, RewardRegistry, Step
from rm_gallery.core.reward.base import BaseStepWiseRubricReward
from tests.reward.rewards import Listening
from tests.support.judge_server_prompts import fenced_blocks

JUDGED = [
    name
    for name in RewardRegistry.list()
    # judges that act are asked in many turns, and have tests of their own
    if RewardRegistry.get(name).judged and RewardRegistry.get(name).kind != "trajectory"
]
ONE_OF_EACH = [
    "base_helpfulness_listwise",
    "math_pairwise_reward",
    "safety_pointwise_reward",
    "ruler",
    "group_elo",
    "steps",
]
"""Enough for what all of a family share: those rewards differ in their texts alone. `steps` judges
steps by rubrics.
"""
LANGUAGES = ("en", "zh")
VERDICTS = '<best>1</best><score>5</score><scores>{"1": 1, "2": 0.5, "3": 0}</scores>'


def create(name: str, llm: Any, **settings: Any) -> BaseReward:
    """A judged reward by its name, or the judge of steps."""
    if name == "steps":
        return BaseStepWiseRubricReward(name=name, llm=llm, **settings)
    return RewardRegistry.create(name, llm=llm, **settings)


def sample_of(
    query: str, answers: Sequence[str], unique_id: str = "s-1", **fields: Any
) -> DataSample:
    """A sample with one user turn and these answers, which are the only step of each, too."""
    outputs = [DataOutput(answer=Step(content=text)) for text in answers]
    given = {
        "unique_id": unique_id,
        "input": [ChatMessage(content=query)],
        "output": outputs,
        **fields,
    }
    return DataSample.model_validate(given)


class Shown(NamedTuple):
    """One prompt: the system message, and the fenced blocks of the user message in order."""

    system: str
    user: str
    blocks: list[tuple[str, str]]


def shown(request: dict[str, Any]) -> Shown:
    """A request taken apart; it has to be one system and one user message, and blocks and nothing
    else in the latter.
    """
    messages = request["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    system, user = (message["content"] for message in messages)
    blocks = fenced_blocks(user)
    assert "\n\n".join(user[block.start : block.end] for block in blocks) == user
    assert all(block.text.startswith("\n") and block.text.endswith("\n") for block in blocks)
    return Shown(system, user, [(block.name, block.text[1:-1]) for block in blocks])


def prompts_of(name: str, sample: DataSample, **settings: Any) -> list[Shown]:
    """Everything the judge of this reward is asked about the sample."""
    judge = Listening(reply=VERDICTS)
    if name == "steps" and not any(output.steps for output in sample.output):
        sample = sample.model_copy(deep=True)
        for output in sample.output:
            output.steps = [output.answer.model_copy()]
    create(name, judge, **{"repair_attempts": 0, "channel": "text", **settings}).evaluate(
        sample, max_workers=1
    )
    return [shown(request) for request in judge.asked]


def candidates(prompts: Iterable[Shown]) -> list[str]:
    """What was shown to be judged, in the order shown."""
    return [
        text
        for prompt in prompts
        for tag, text in prompt.blocks
        if re.fullmatch(r"answer(_\d+)?|step", tag)
    ]
