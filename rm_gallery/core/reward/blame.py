"""Who broke it: what has no score is tried once more with a neutral answer in the place of the real one.

A judge that cannot be read and a function that raises do not say whether the answer made them. Where the stand-in gets a score,
the answer did, and has the worst score of the range; where it gets none either, the cause stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.outcome import NOT_BEGUN, Outcome
from rm_gallery.core.reward.compose import said_of
from rm_gallery.core.reward.kinds import write_scores
from rm_gallery.core.utils.models import copy_with

if TYPE_CHECKING:
    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.core.reward.run import RunOptions

NEUTRAL = "I am not sure; it depends on what exactly is meant."
PLAIN = ("0", "{}")
"""For functions that read a number or JSON."""
DEADLINE_SHARE = 0.25
"""Of a sample's deadline, what finding out may take on top."""


def suspected(reward: BaseReward, output: DataOutput) -> Outcome[float] | None:
    """Why an output has no score, where it may be the answer's own doing; else None.

    An endpoint, the data and the caller do not become the answer's fault. A deadline is the caller's where a judge was waited
    for, but a rule that found no end may have been led there.
    """
    if reward.kind != "pointwise" or output.answer.reward.details:
        return None
    found = said_of(reward, output)
    slow = found.reason == "deadline" and not reward.judged
    if found.ok or found.reason in NOT_BEGUN or not (slow or found.cause in ("judge", "rule")):
        return None
    return found


def stand_ins(reward: BaseReward, sample: DataSample, output: DataOutput) -> list[DataSample]:
    """The sample with a neutral answer: for a rule its own reference, which a working rule can read, else the plainest texts.

    They do not depend on what else is in the batch, so that a batch says what single calls say.
    """
    texts = [NEUTRAL]
    if not reward.judged:
        reference = copy_with(sample, output=[output]).reference()
        texts = [reference] if isinstance(reference, str) and reference.strip() else [NEUTRAL, *PLAIN]
    steps = [Step(role=MessageRole.ASSISTANT, content=text, label=output.answer.label) for text in texts]
    return [copy_with(sample, output=[DataOutput(answer=step)]) for step in steps]


class Probe(NamedTuple):
    """An output that may have made itself impossible to judge: why it has no score, and what is asked instead."""

    output: DataOutput
    found: Outcome[float]
    instead: list[DataSample]
    once_more: list[DataSample]
    """The same again where code broke, which may have been a network: only what breaks twice is the answer's doing."""


def to_probe(reward: BaseReward, samples: Sequence[DataSample]) -> list[Probe]:
    """What is to be looked at twice."""
    outputs = [(sample, output) for sample in samples for output in sample.output]
    found = [(sample, output, why) for sample, output in outputs if (why := suspected(reward, output)) is not None]
    return [
        Probe(
            output,
            why,
            stand_ins(reward, sample, output),
            [] if reward.judged or why.reason == "deadline" else [copy_with(sample, output=[DataOutput(answer=output.answer)])],
        )
        for sample, output, why in found
    ]


def to_judge(probes: Sequence[Probe]) -> list[DataSample]:
    """The samples to judge for them, in this order."""
    return [sample for probe in probes for sample in (*probe.instead, *probe.once_more)]


def probing(reward: BaseReward, options: RunOptions) -> RunOptions:
    """The options of the second look: it keeps nothing, and may take a quarter of the deadline."""
    seconds = options.deadline or reward.deadline
    deadline = None if seconds is None else DEADLINE_SHARE * seconds
    control = RunControl(quiet=True)
    return replace(
        options, control=control, deadline=deadline, run_dir=None, trace=False, progress=False, blame="off", total=None
    )


def blame(reward: BaseReward, probes: Sequence[Probe], judged: Sequence[DataSample]) -> None:
    """Write to the outputs whose stand-in got a score that the answer caused what became of it, or the score of the second try."""
    answers = iter(judged)
    for output, found, neutral, once_more in probes:
        instead, again = ([next(answers) for _ in each] for each in (neutral, once_more))
        if again and reward.score_of_output(again[0].output[0]) is not None:
            output.answer.reward = again[0].output[0].answer.reward
            continue
        if all(reward.score_of_output(one.output[0]) is None for one in instead):
            continue
        why = f"The answer made it impossible to judge; another answer could be judged. {found.message}"
        write_scores(reward, output.answer, Outcome(found.status, None, found.reason, why, "answer"))
