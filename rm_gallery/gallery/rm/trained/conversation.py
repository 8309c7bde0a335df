"""What a reward model reads of a sample: the conversation and an answer, as turns or as one text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import (
    DataSample,
    Step,
)
from rm_gallery.core.model.message import TEXT_PARTS, ChatMessage, MessageRole
from rm_gallery.core.reward.base import BaseStepWiseReward
from rm_gallery.core.reward.founding import checked, score_of_result
from rm_gallery.core.reward.job import Job
from rm_gallery.core.reward.kinds import Stepwise
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.score import Score, unscored
from rm_gallery.core.text.canonical import without_turn_end
from rm_gallery.core.text.language import broken
from rm_gallery.core.utils.errors import ConfigError, Unscored
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import unknown_name

Turns = list[dict[str, str]]
_ROLES = {"developer": "system", "function": "tool"}


class Dialogue(NamedTuple):
    """One thing to score: the turns before the answer, the answer, and its steps where they are
    scored.
    """

    turns: Turns
    answer: str
    steps: tuple[str, ...] = ()

    def messages(self) -> Turns:
        """All turns, the answer last."""
        return [*self.turns, {"role": "assistant", "content": self.answer}]

    def query(self) -> str:
        """The turns before the answer as text: a single user turn bare, several with their roles."""
        if len(self.turns) == 1:
            return self.turns[0]["content"]
        return _with_roles(self.turns)

    def plain(self) -> str:
        """The whole conversation as text, each turn with its role."""
        return _with_roles(self.messages())


def _with_roles(turns: Turns) -> str:
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def dialogue_of(sample: DataSample, name: str, steps: bool = False) -> Dialogue:
    """The conversation and the first output of a sample.

    Raises Unscored (`not_applicable`) for an answer that only calls tools, and for images and other
    parts that are no text: a score of the remaining text would judge something else.
    """
    output = sample.output[0]
    turns = [
        {
            "role": _ROLES.get(message.role.value, message.role.value),
            "content": _written_text(message, name, asked=True),
        }
        for message in sample.input
    ]
    if steps:
        return Dialogue(turns, "", tuple(_written_text(step, name) for step in output.turns))
    return Dialogue(turns, text_of_answer(output.answer, _written_text(output.answer, name), name))


def text_of_answer(answer: Step, text: str, name: str) -> str:
    """The text of an answer; Unscored (`not_applicable`) for one that has none and only calls
    tools.
    """
    if not text and answer.tool_calls:
        raise Unscored(
            f"{name} reads text; this answer only calls tools.",
            reason="not_applicable",
            cause="answer",
        )
    return without_turn_end(text)


def _written_text(message: ChatMessage, name: str, asked: bool = False) -> str:
    content = message.content
    if not isinstance(content, str):
        odd = next(
            (part.get("type") for part in content if part.get("type") not in TEXT_PARTS), None
        )
        if odd is not None:
            raise Unscored(
                f"{name} reads text; the conversation holds {str(odd)[:40]!r}.",
                reason="not_applicable",
                cause="rule" if asked else "answer",
            )
    # a checkpoint's score is that of the text as it was written; lone surrogates are no text any
    # tokenizer or server takes
    text = message.written if isinstance(message, Step) else message.text
    return text.encode("utf-8", "replace").decode("utf-8")


def without_marks(dialogue: Dialogue, marks: re.Pattern[str]) -> Dialogue:
    """The dialogue with every control mark of the model in its texts, such as <|im_end|>, broken by
    a space.

    A tokenizer turns such text into the real mark, with which an answer could end its turn and
    forge the next one.
    """

    def clean(text: str) -> str:
        return broken(text, marks)

    turns = [{**turn, "content": clean(turn["content"])} for turn in dialogue.turns]
    return Dialogue(turns, clean(dialogue.answer), tuple(map(clean, dialogue.steps)))


def any_of(marks: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of these texts, the longest first, or nothing without any."""
    return re.compile(
        "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) or r"(?!)"
    )


def rendered(template: str, turns: Turns) -> str:
    """Turns in a Jinja chat template, as transformers would render it; raises jinja2's
    TemplateError where it refuses them.

    Special tokens that the template takes from a tokenizer (bos_token, eos_token) are empty here:
    the server adds its own.
    """
    return str(
        _compiled(template).render(
            messages=turns, add_generation_prompt=False, bos_token="", eos_token=""
        )
    )


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template)


def template_text(value: str, names: Iterable[str]) -> str:
    """One of the names, Jinja text, or the text of a file; ValueError for anything else."""
    names = tuple(names)
    if value in names or "{{" in value or "{%" in value:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"{value[:200]!r} is neither {', '.join(names)}, nor a Jinja template or the file of one"
        ) from error


def place_of_label(label: str | int, names: Sequence[str], named: str) -> int:
    """Which of a model's numbers, whose names these are, a label means: by name, else by number;
    ConfigError for one that is none of them.
    """
    text, known = str(label), [name.casefold() for name in names]
    if text.casefold() in known:
        return known.index(text.casefold())
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    raise ConfigError(unknown_name(f"label of {named}", text, names))


def preference_example(environment: str) -> Example:
    """The example of reward models that score whole answers."""
    return Example(
        sample_of(
            "How do I get a coffee stain out of a cotton shirt?",
            "Rinse it from the back with cold water, rub in dish soap, wait ten minutes, then "
            "wash as usual.",
            "idk",
        ),
        use="The scores say which of several answers to the same prompt is better: take them for best-of-N and preference "
        "pairs, and in training only within a group.",
        environment=environment,
    )


_STEPS = ["Multiplication comes first: 2 * 3 = 6.", "Then 2 + 6 = 12."]
STEPPED = sample_of("What is 2 + 2 * 3?", "12")
STEPPED.output[0].steps = [Step(role=MessageRole.ASSISTANT, content=step) for step in _STEPS]
"""For examples: the first step is right, the second is not."""


class _Solutions(Stepwise):
    """All steps of a solution in one job."""

    def jobs(self, reward: Any, sample: DataSample) -> list[Job]:
        """One job per output, with its steps up to the last one to judge; none for a trajectory,
        which no process reward model was trained on.
        """
        jobs = []
        for place, output in enumerate(sample.output):
            if not output.is_trajectory:
                steps = output.steps and output.steps[: self.numbers(output)[-1] + 1]
                read = copy_with(output, steps=steps)
                jobs.append(Job(copy_with(sample, output=[read]), place, sample))
        return jobs

    def read(self, reward: Any, returned: Any, sample: DataSample) -> Any:
        """A number for each step."""
        score = score_of_result(returned, reward.name)
        return checked(reward, score, len(sample.output[0].turns))

    def merge(
        self, reward: Any, sample: DataSample, jobs: list[Job], outcomes: list[Score[Any]]
    ) -> list[Score[Any]]:
        """Each number is its step's; one that is missing or out of range costs the whole answer."""
        none = unscored("trajectory", "The output is no solution in steps.", "data")
        said = self.everywhere(reward, sample, none)
        for job, outcome in zip(jobs, outcomes, strict=True):
            places = self.places(sample.output[job.place])
            if outcome.value is not None:
                steps = list(map(Score, outcome.value[-len(places) :]))
            else:
                lost = outcome.without_value()
                if lost.code == "invalid_result":  # the numbers are the model's
                    lost = replace(lost, cause="judge")
                steps = [lost] * len(places)
            said[job.place] = self.whole(reward, steps)
        return said


class ProcessReward(BaseStepWiseReward):
    """A process reward model: P(step is right) for every step of an answer, each given the steps
    before it.

    Range [0, 1], higher is better. `step_score` (mean, min, last, product) says how the steps of an
    answer become the one number it is ranked by. One pass of the model scores all steps of an
    answer; an answer whose number of scores is not its number of steps is failed, never shifted or
    cut. An answer without steps is the one step there is; a trajectory, with turns of tools or
    others, is unscored (`trajectory`).

    Source: H. Lightman et al., "Let's Verify Step by Step", arXiv 2305.20050 (product and minimum);
    for the last step as the answer's score, C. Snell et al., arXiv 2408.03314.
    """

    kind = _Solutions("stepwise")
    score_range = (0.0, 1.0)
