"""What an example of a reward is: a sample it can score, and what it has to be given for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ChatMessage

if TYPE_CHECKING:
    from rm_gallery.core.reward.reward import BaseReward

PENALTY = "The scores are penalties: add them to a reward for the task itself."
EMPTY_IS_BEST = f"{PENALTY} Alone, they make an empty answer the best one."


@dataclass(frozen=True)
class PhraseJudge:
    """A scripted judge for examples and tests: it knows each answer by a phrase; `phrases` stand best first.

    One reply holds a verdict of every form: the best answer shown, a score from 9 (best) down to 3, and a score per place.
    """

    phrases: tuple[str, ...]

    def __call__(self, prompt: str) -> str:
        """The reply to a prompt that shows one answer or more."""
        step = 6 / max(len(self.phrases) - 1, 1)
        shown = sorted((phrase for phrase in self.phrases if phrase in prompt), key=prompt.index)
        grades = [round(9 - step * self.phrases.index(phrase)) for phrase in shown]
        scores = json.dumps({place: grade / 10 for place, grade in enumerate(grades, 1)})
        best = grades.index(max(grades)) + 1
        return f"<best>{best}</best>\n<score>{max(grades)}</score>\n<scores>{scores}</scores>"


@dataclass(frozen=True)
class Example:
    """A sample that fits a reward, with everything the reward needs to score it; stands on the class as `example`."""

    sample: DataSample
    params: dict[str, Any] = field(default_factory=dict)
    """Constructor fields; only where the defaults score nothing, or show too little."""
    judge: PhraseJudge | None = None
    """What replies in place of a model, for a reward that asks one."""
    environment: str = ""
    """What has to be there beside the package, such as bubblewrap; the output is then the recorded one."""
    recorded: tuple[str, ...] = ()
    """Lines the example prints where that environment is; none where they depend on more than the environment."""
    note: str = ""
    """What the reader has to know about it, such as what stands in for a model."""
    use: str = ""
    """What the scores are good for, when that is not what those of its kind usually are."""
    inputs: dict[str, str] = field(default_factory=dict)
    """By need, where the reward reads it, when that is not where such a thing usually stands; under `answer`, what of the
    outputs it looks at, when that is not the answer's text alone."""

    def create(self, reward: type[BaseReward], **settings: Any) -> BaseReward:
        """The reward as the example wants it, with the scripted judge where there is one."""
        from rm_gallery.core.model.fake import FakeLLM

        judge = {"llm": FakeLLM(reply=self.judge)} if self.judge is not None else {}
        return reward(**{**judge, **self.params, **settings})


def sample_of(question: str, *answers: str | dict[str, Any], **metadata: Any) -> DataSample:
    """A sample with one user turn and these answers, given as texts or as the fields of a step."""
    fields = [{"content": answer} if isinstance(answer, str) else answer for answer in answers]
    outputs = [DataOutput(answer=Step.model_validate({"role": "assistant", **answer})) for answer in fields]
    return DataSample(input=[ChatMessage(content=question)], output=outputs, metadata=metadata or None)
