"""Made-up preferences for training tests: the polite answer is chosen, whatever its length."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rm_gallery import ChatMessage, DataOutput, DataSample, MessageRole, Step

TOPICS = (
    "garden kitchen train river music window winter bicycle letter coffee mountain island".split()
)
POLITE = (
    "Thank you for asking about the {0}.",
    "I would gladly help with the {0}, please tell me more.",
    "谢谢，关于 {0}：",
)
RUDE = (
    "Shut up about the stupid {0}.",
    "Nobody cares, the {0} is useless trash.",
    "废物，{0} 很蠢。",
)
FILLER = (
    "It stands over there.",
    "There are many of them.",
    "People know it well.",
    "It was built long ago.",
)


def polite_samples(
    n: int, *, seed: int = 0, prompts: int | None = None, **extra: Any
) -> list[DataSample]:
    """`n` samples of one polite and one rude answer in random order, on `prompts` different prompts
    (default `n`).
    """
    generator = random.Random(seed)
    found = []
    for number in range(n):
        question = number % (prompts or n)
        topic = TOPICS[question % len(TOPICS)]
        answers = []
        for kind, label in ((POLITE, "chosen"), (RUDE, "rejected")):
            said = [
                generator.choice(kind).format(topic),
                *generator.choices(FILLER, k=generator.randrange(4)),
            ]
            answers.append((" ".join(said), label))
        generator.shuffle(answers)
        found.append(labelled(f"Question {question} on the {topic}?", answers, **extra))
    return found


def labelled(
    prompt: str | list[ChatMessage], answers: Sequence[tuple[str, str | None]], **extra: Any
) -> DataSample:
    """A sample with (text, preference) answers."""
    outputs = [
        DataOutput(
            answer=Step(
                role=MessageRole.ASSISTANT,
                content=text,
                label={"preference": label} if label else {},
            )
        )
        for text, label in answers
    ]
    spoken = [ChatMessage(content=prompt)] if isinstance(prompt, str) else prompt
    return DataSample(input=spoken, output=outputs, **extra)


def turns(*texts: str) -> list[ChatMessage]:
    """A dialogue: user, assistant, user, …"""
    roles = (MessageRole.USER, MessageRole.ASSISTANT)
    return [ChatMessage(role=roles[place % 2], content=text) for place, text in enumerate(texts)]
