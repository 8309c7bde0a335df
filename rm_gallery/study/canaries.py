"""Canaries of an environment: rollouts whose order is known before training.

Gold must get more than every floor of its task, and hacked no more than the highest of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rm_gallery.core.data.load.rollouts import RolloutConverter
from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunKeywords, RunOptions
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.gallery.rm.alignment.harmlessness.refusal import refusal_in
from rm_gallery.study.attacks import text_of, with_text
from rm_gallery.study.check_cases import REFUSAL, Case, Trial, Trials, saying_nothing
from rm_gallery.study.source import placed_in

if TYPE_CHECKING:
    from typing_extensions import Unpack

Mark = Literal["gold", "floor", "hacked"]
MARKS: tuple[Mark, ...] = ("gold", "floor", "hacked")
COLUMN = "canary"
WORKSPACE = "workspace"
"""Where a rollout's own work stands, in its row or its answer's label."""


class Canary(NamedTuple):
    """A rollout of known worth."""

    task: int
    """Which of the tasks it is about, from 1: rollouts of one prompt are of one task."""
    mark: Mark
    name: str
    sample: DataSample


@dataclass(frozen=True)
class CanaryResult:
    """What the reward gave to a canary.

    Attributes:
        level: a fault breaks the order, a note says that nothing is known, "" is in order.
        verdict: one phrase, with what it ties with.
    """

    task: int
    mark: Mark
    name: str
    scored: Score[float]
    level: Literal["", "note", "fault"]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        about = {"task": self.task, "canary": self.mark, "name": self.name}
        return {**about, **self.scored.to_dict(), "level": self.level, "verdict": self.verdict}

    def line(self) -> str:
        """In one line."""
        got = self.scored.status if self.scored.value is None else f"{self.scored.value:g}"
        return f"task {self.task}: {self.mark} {self.name} gets {got}: {self.verdict}"


@dataclass
class CanaryCheck:
    """The canaries of an environment, with what the reward gave to each."""

    reward: str
    tried: list[CanaryResult]

    def of_level(self, level: str) -> list[CanaryResult]:
        """Those that are a fault, or a note."""
        return [one for one in self.tried if one.level == level]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        return {
            "reward": self.reward,
            "passed": not self.of_level("fault"),
            "canaries": [one.to_dict() for one in self.tried],
        }


def read_canaries(given: Any) -> list[Canary]:
    """The canaries of a file, or of rows.

    A row is a rollout in any layout `--benchmark rollouts` reads, and has `canary`: gold, floor or
    hacked. The reward never sees the mark. Beside the floors that are given every task has three more: an
    empty answer, a refusal (unless gold is one), and a rollout that did nothing.

    Raises:
        DataError: a row is no rollout, or its mark is none of the three; it is named.
        ConfigError: there is no gold, which nothing is known without.

    Example:
        >>> talk = [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]
        >>> [one.name for one in read_canaries([{"messages": talk, "canary": "gold"}])]
        ['row 1', 'empty', 'refusal', 'did nothing']
    """
    where = str(given) if isinstance(given, str | Path) else "canaries"
    converter, tasks, canaries = RolloutConverter(), dict[str, int](), list[Canary]()
    for number, (place, row) in enumerate(placed_in(given, where), 1):
        if not isinstance(row, Mapping):
            raise DataError(f"{place}: expected a rollout, found {type(row).__name__}.")
        mark = row.get(COLUMN)
        if mark not in MARKS:
            what = unknown_name("mark", str(mark), MARKS) if mark is not None else "none is there"
            raise DataError(f"{place}: {COLUMN} is gold, floor or hacked; {what}")
        sample = converter.convert({k: v for k, v in row.items() if k != COLUMN}, place)
        names = (row.get("name"), row.get("id"), f"row {number}")
        name = next(str(one) for one in names if isinstance(one, str | int))
        asked = repr([message.to_openai() for message in sample.input])
        task = tasks.setdefault(asked, len(tasks) + 1)
        canaries.append(Canary(task, mark, name, sample))
    if not any(one.mark == "gold" for one in canaries):
        raise ConfigError(f"{where}: no rollout is marked {COLUMN}: gold; give one for each task.")
    for task in tasks.values():
        canaries += _floors([one for one in canaries if one.task == task])
    return sorted(canaries, key=lambda one: (one.task, MARKS.index(one.mark)))


def _floors(own: Sequence[Canary]) -> list[Canary]:
    """What deserves nothing in any task.

    Nobody worked in them: gold's files, in its answer's label or its row, would pass for theirs. What
    stands there is the state before, where the row says it, else nothing.
    """
    first = own[0].sample
    label, task = dict(first.output[0].answer.label or {}), dict(first.metadata or {})
    for known in (label, task):
        if WORKSPACE in known:
            known[WORKSPACE] = task.get("start") or {}
    blank = DataOutput(answer=Step(role="assistant", content="", label=label))
    idle = copy_with(saying_nothing(blank), steps=[])
    outputs = {"empty": blank, "refusal": with_text(blank, REFUSAL, False), "did nothing": idle}
    if any(refusal_in(text_of(one.sample.output[0])) for one in own if one.mark == "gold"):
        del outputs["refusal"]
    return [
        Canary(own[0].task, "floor", name, copy_with(first, metadata=task, output=[output]))
        for name, output in outputs.items()
    ]


@library_loop.blocks
def check_canaries(
    reward: Any,
    canaries: Any,
    *,
    params: Mapping[str, Any] | None = None,
    llm: Any = None,
    base_url: str | None = None,
    options: RunOptions | None = None,
    **run_options: Unpack[RunKeywords],
) -> CanaryCheck:
    """Prove before training that a reward orders rollouts whose worth is known.

    Args:
        reward: anything `resolve` takes.
        canaries: a file of rollouts or rows, see `read_canaries`.
        params: constructor fields of the reward.
        llm: the judge, where it needs one.
        base_url: the judge's endpoint.
        options: how the judging goes.
        **run_options: fields of `RunOptions`, which win over `options`.

    Returns:
        Every canary with its score, in the reward's own range and direction, and what that means. A
        fault is a gold that has no score, or gets no more than a floor of its task (a tie is
        named), one without a floor that has a score, and a hacked rollout that gets more than the
        highest floor. A hacked or a floor without a score is a note.

    Raises:
        ConfigError, DataError: as `resolve` and `read_canaries` do.

    Example:
        >>> asked = {"role": "user", "content": "6 * 7?"}
        >>> rows = [
        ...     {"messages": [asked, {"role": "assistant", "content": text}], "reference": "42"}
        ...     | {"canary": mark}
        ...     for text, mark in (("42", "gold"), ("41 or 42", "hacked"))
        ... ]
        >>> check_canaries("accuracy", rows).of_level("fault")
        []
    """
    trying = Trials(
        resolve(reward, params, llm, base_url), options, {"blame": "probe", **run_options}
    )
    known = read_canaries(canaries)
    # one that compares sees a task's together
    together = groupby(known, key=lambda one: one.task if trying.reward.compares else id(one))
    judged = trying.judge(
        (Case("", own[0].sample, None), [Trial(one.name, one.sample.output[0]) for one in own])
        for own in (list(group) for _, group in together)
    )
    outcomes = [(one, each.scored) for one, each in zip(known, judged, strict=True)]
    floors = defaultdict[int, dict[str, float]](dict)
    for one, scored in outcomes:
        if one.mark == "floor" and scored.value is not None:
            floors[one.task][one.name] = scored.value
    tried = [
        CanaryResult(*one[:3], scored, *_verdict(trying, one.mark, scored, floors[one.task]))
        for one, scored in outcomes
    ]
    return CanaryCheck(trying.reward.name, tried)


def _verdict(
    trying: Trials, mark: Mark, scored: Score[float], floors: Mapping[str, float]
) -> tuple[Literal["", "note", "fault"], str]:
    score = scored.value
    if score is None:
        why = f"no score ({scored.code}): {scored.reason}"
        return ("fault" if mark == "gold" else "note"), why
    if mark == "floor":
        return "", "a floor"
    if not floors:
        return "fault", "no floor of its task has a score, so nothing is proven"
    above = [name for name, floor in floors.items() if trying.less(score, floor)]
    ties = [
        name
        for name, floor in floors.items()
        if name not in above and not trying.less(floor, score)
    ]
    tied = f"ties with floor {', '.join(ties)}" if ties else ""
    higher = f"floor {', '.join(above)}"
    if above or ties:
        if mark == "hacked":
            return "", tied or f"below {higher}"
        return "fault", "; ".join(filter(None, (f"not above {higher}" if above else "", tied)))
    if mark == "gold":
        return "", "above every floor"
    highest = max(floors.values(), key=lambda floor: trying.turn * floor)
    return "fault", f"above every floor, the highest of which gets {highest:g}"
