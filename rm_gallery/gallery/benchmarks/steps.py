"""What the benchmarks of process rewards share: how step scores become labels, and files of step scores."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rm_gallery.core.data.load.converters import RowRef, shown, text_list
from rm_gallery.core.data.schema import DataSample, RewardIssue
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.judgements import Judged, Judgement, Score, StepOf
from rm_gallery.gallery.benchmarks.recorded import Group, Row, named, need, number_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self


@dataclass(frozen=True)
class StepRule:
    """How the score of a step says whether it is right.

    `threshold:X`: the score is above X. `delta:X`: it is more than X above the score of the step before, where the first step
    starts from 0; with a negative X a step may fall a little.
    """

    by: Literal["threshold", "delta"]
    bound: float

    @staticmethod
    def parse(text: str) -> StepRule:
        """The rule that "threshold:0.5" or "delta:-0.05" names; ConfigError for anything else."""
        by, colon, bound = text.strip().partition(":")
        try:
            value = float(bound) if colon else math.nan
        except ValueError:
            value = math.nan
        if by not in ("threshold", "delta") or not math.isfinite(value):
            raise ConfigError(f"step rule is '{text[:40]}'; give threshold:X or delta:X, such as threshold:0.5 or delta:-0.05.")
        return StepRule("threshold" if by == "threshold" else "delta", value)

    def right(self, scores: Sequence[float]) -> list[bool]:
        """Per step whether it counts as right."""
        if self.by == "threshold":
            return [score > self.bound for score in scores]
        return [score - before > self.bound for before, score in zip([0.0, *scores], scores, strict=False)]

    def __str__(self) -> str:
        return f"{self.by}:{self.bound:g}"


class StepBenchmark(Benchmark):
    """A benchmark whose labels are about steps: stepwise rewards serve it, and a step rule turns their scores into labels.

    `--step-rule` sets that rule; it is named beside every figure.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"stepwise"})
    baselines: ClassVar[bool] = False
    labels: ClassVar[tuple[str, ...]]
    """Columns with the truth, in a file of scores that needs no data beside it."""
    step_rule: StepRule = StepRule("threshold", 0.5)

    def under(self, **rule: str) -> Self:
        """This benchmark under another step rule."""
        step_rule = rule.pop("step_rule", None)
        changed = super().under(**rule)
        if step_rule is None:
            return changed
        changed = copy.copy(changed)
        changed.step_rule = StepRule.parse(step_rule)
        return changed

    @property
    def protocol(self) -> str:
        """Version of the rule, and how scores become labels."""
        return f"{super().protocol}, steps by {self.step_rule}"

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """What made labels of scores, for the figure stands and falls with it."""
        said = f"scores of steps become labels by {self.step_rule}"
        return (f"{said}; --step-rule has to fit the scale of {reward.name}.",)

    def check(self, reward: BaseReward) -> None:
        """Also raise ConfigError for a threshold that no score of the reward can pass, or every one does."""
        super().check(reward)
        low, high = getattr(reward, "score_range", (None, None))
        if self.step_rule.by == "threshold" and low is not None and high is not None:
            if not low <= self.step_rule.bound < high:
                raise ConfigError(
                    f"{reward.name} scores a step from {low:g} to {high:g}, so {self.step_rule} tells no step from another; "
                    f"give --step-rule threshold:{(low + high) / 2:g} or another one within that range."
                )

    @abstractmethod
    def recorded_sample(self, row: Row, number: int) -> DataSample:
        """The sample, without its texts, that a row of step scores brings its labels for."""

    def recorded_scores(
        self, rows: Iterable[Row], samples: Iterable[DataSample] | None = None, **rule: str
    ) -> Iterator[tuple[Group, Judged]]:
        """One row a solution, with its `id` (or `idx`) and the list `scores` of its steps; several `judge_model` are groups.

        The truth stands in the row, as in the published logs, or in the samples it is joined to by id.
        """
        self.under(**rule)
        known = None if samples is None else self._by_name(samples)
        seen: dict[str, set[str]] = {}
        groups: dict[str, Group] = {}
        for number, row in enumerate(rows, 1):
            column = "idx" if "idx" in row and "id" not in row else "id"
            need(row, (column, "scores"), number)
            group = {"judge_model": str(row["judge_model"])} if row.get("judge_model") is not None else {}
            name = named(row[column], number, column)
            if all(label in row for label in self.labels):
                sample = self.recorded_sample(row, number)
            elif known is None:
                raise DataError(
                    f"recorded row {number} holds no {' and '.join(self.labels)}; say where the rows of {self.name} are, with --data."
                )
            elif name not in known:
                raise DataError(f"recorded row {number}: the data has no row with the id '{name[:80]}'.")
            else:
                sample = known[name]
            groups[repr(group)] = group
            seen.setdefault(repr(group), set()).add(sample.sample_id)
            yield group, _with_steps(sample, row["scores"], number)
        for key, names in seen.items():
            for sample in {s.sample_id: s for s in (known or {}).values()}.values():
                if sample.sample_id not in names:
                    yield groups[key], Judged(sample, [], "unscored", [_NO_SCORES])

    def _by_name(self, samples: Iterable[DataSample]) -> dict[str, DataSample]:
        found: dict[str, DataSample] = {}
        for sample in samples:
            for name in self.ids(sample):
                found.setdefault(name, sample)
        return found


_NO_SCORES = RewardIssue(name="scores", status="unscored", reason="no_score", message="A step has no score.", cause="data")


def _with_steps(sample: DataSample, scores: Any, number: int) -> Judged:
    if not isinstance(scores, (list, tuple)):
        raise DataError(f"recorded row {number}, column 'scores': expected a list of numbers, found {shown(scores)}.")
    found = [number_of(score, f"scores[{place}]", number) for place, score in enumerate(scores)]
    judgements = [
        Judgement(StepOf(0, place), "unscored" if score is None else "scored", score) for place, score in enumerate(found)
    ]
    lost = not found or None in found
    return Judged(sample, judgements, "unscored" if lost else "scored", [_NO_SCORES] if lost else [])


def step_scores(judged: Judged) -> list[float] | None:
    """The scores of the first output's steps; None where the sample is not scored or one is missing."""
    scores: list[Score] = judged.steps(0) if judged.sample.output else []
    known = [score for score in scores if score is not None and not math.isnan(score)]
    return known if judged.status == "scored" and known and len(known) == len(scores) else None


def interval_of(draws: Sequence[NDArray[np.float64]], score: float | None) -> Interval | None:
    """95 % interval of the mean of some parts' bootstrap draws, each weighing the same; it holds the score itself."""
    import numpy as np

    from rm_gallery.core.stats.clustered import draws_interval

    found = draws_interval(np.mean(np.stack(list(draws)), axis=0)) if draws else None
    if found is None or score is None:
        return None
    return Interval(min(found.low, score), max(found.high, score))


def solution(steps: Sequence[str], right: Sequence[bool | None], **label: Any) -> dict[str, Any]:
    """One output with its steps, as `DataSample` takes it; `right` is None for a step that nobody labelled."""
    return {
        "answer": {"role": "assistant", "content": "\n\n".join(steps), "label": label},
        "steps": [
            {"role": "assistant", "content": step, "label": {} if known is None else {"correctness": known}}
            for step, known in zip(steps, right, strict=True)
        ],
    }


def step_texts(row: Mapping[str, Any], column: str, where: RowRef) -> list[str]:
    """The steps of a solution."""
    return text_list(row, column, where)
