"""Benchmarks of process rewards: how step scores become labels, files of step scores, and
ProcessBench.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rm_gallery.core.data.load.converters import (
    RowRef,
    identity,
    output,
    required,
    text_list,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark, Output, beginning, given, question
from rm_gallery.gallery.benchmarks.figures import (
    Extra,
    Figure,
    Report,
    uncertainty_of,
)
from rm_gallery.gallery.benchmarks.judgements import (
    About,
    Judged,
    Recorded,
    RecordedRow,
    Row,
    Rows,
    Samples,
    StepOf,
    group_of,
    integer,
    judge_of,
    number_of,
    recorded,
    recorded_rows,
    whole,
)
from rm_gallery.gallery.benchmarks.rules import (
    RuleScorer,
    Tally,
    absent,
    headline,
    mean_of,
    mean_of_parts,
    merged,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from rm_gallery.core.stats import Floats
    from rm_gallery.core.stats.uncertainty import Estimate


@dataclass(frozen=True)
class StepRule:
    """How the score of a step says whether it is right.

    `threshold:X`: the score is above X. `delta:X`: it is more than X above the score of the step
    before, where the first step starts from 0; with a negative X a step may fall a little. A
    threshold is in the reward's own unit: where lower is better (`turned`), the score is below X.
    """

    by: Literal["threshold", "delta"]
    bound: float
    turned: bool = False

    @staticmethod
    def parse(text: str) -> StepRule:
        """The rule that "threshold:0.5" or "delta:-0.05" names; ConfigError for anything else."""
        by, _, bound = text.strip().partition(":")
        try:
            value = float(bound)
        except ValueError:
            value = math.nan
        if by not in ("threshold", "delta") or not math.isfinite(value):
            raise ConfigError(
                f"step rule is '{text[:40]}'; give threshold:X or delta:X, such as threshold:0.5 "
                f"or delta:-0.05."
            )
        return StepRule("threshold" if by == "threshold" else "delta", value)

    def right(self, scores: Sequence[float]) -> list[bool]:
        """Per step whether it counts as right."""
        return [label > 0 for label in self.signs(scores)]

    def signs(self, scores: Sequence[float]) -> list[int]:
        """Per step 1 above the bound, 0 at it, -1 below it, of scores of which higher is better."""
        rises, bound = scores, self.bound
        if self.by == "delta":
            rises = [score - prior for prior, score in pairwise([0.0, *scores])]
        elif self.turned:
            bound = -bound
        return [(rise > bound) - (rise < bound) for rise in rises]

    def __str__(self) -> str:
        return f"{self.by}:{self.bound:g}"


class ScoredByRule(Benchmark):
    """A benchmark whose truth is a label: a step rule turns scores into labels.

    `--step-rule` sets that rule; it is named beside every figure.
    """

    baselines = False
    judges: ClassVar[str] = "step"
    """What a score is about."""
    step_rule: StepRule = StepRule("threshold", 0.5)

    def under(self, **rule: str) -> Self:
        """This benchmark under another step rule."""
        step_rule = rule.pop("step_rule", None)
        changed = copy.copy(super().under(**rule))
        if step_rule is not None:
            changed.step_rule = StepRule.parse(step_rule)
        return changed

    @property
    def protocol(self) -> str:
        """Version of the rule, and how scores become labels."""
        return f"{super().protocol}, {self.judges}s by {self.step_rule}"

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """What made labels of scores, for the figure stands and falls with it."""
        origin = f"scores of {self.judges}s become labels by {self.step_rule}"
        return (f"{origin}; --step-rule has to fit the scale of {reward.name}.",)

    def facing(self, reward: BaseReward) -> Self:
        """This benchmark, with its threshold in the direction of the reward."""
        faced = copy.copy(super().facing(reward))
        faced.step_rule = replace(self.step_rule, turned=not reward.higher_is_better)
        return faced

    def check(self, reward: BaseReward) -> None:
        """Also raise ConfigError for a threshold that no score of the reward can pass, or every one
        does.
        """
        super().check(reward)
        low, high = getattr(reward, "score_range", (None, None))
        if self.step_rule.by == "threshold" and low is not None and high is not None:
            bound = self.step_rule.bound
            if not (low < bound <= high if self.step_rule.turned else low <= bound < high):
                raise ConfigError(
                    f"{reward.name} scores a {self.judges} from {low:g} to {high:g}, so "
                    f"{self.step_rule} tells no {self.judges} from another; give --step-rule "
                    f"threshold:{(low + high) / 2:g} or another one within that range."
                )


RecordedLabel = tuple[str, About, About]
"""The id of a recorded solution, its label and its metadata."""


class StepBenchmark(ScoredByRule):
    """A benchmark whose labels are about steps: stepwise rewards serve it."""

    kinds = frozenset({"stepwise"})
    labels: ClassVar[tuple[str, ...]]
    """Columns with the truth, in a file of scores that needs no data beside it."""

    names: ClassVar[tuple[str, str]] = ("id", "idx")
    """The columns of the id in such a file; the first that is there is read."""

    @abstractmethod
    def recorded_label(self, row: RecordedRow, name: str) -> RecordedLabel:
        """Of a row of step scores that brings its labels: the id, the label and the metadata of its
        sample.
        """

    def recorded_sample(self, row: RecordedRow) -> DataSample:
        """The sample, without its texts, that a row of step scores brings its labels for."""
        column = next(name for name in self.names if name in row)
        name, label, about = self.recorded_label(row, row.named(column))
        outputs = [solution([], [], **label)]
        return DataSample.model_validate(
            {"unique_id": name, "output": outputs, "metadata": about or None}
        )

    def recorded_scores(self, rows: Rows, samples: Samples = None, **rule: str) -> Recorded:
        """One row a solution, with its `id` (or `idx`) and the list `scores` of its steps; several
        `judge_model` are groups.

        The truth stands in the row, as in the published logs, or in the samples it is joined to by
        id.
        """
        self.under(**rule)
        # of several samples of one name, the first
        known = {name: s for s in reversed(list(samples or ())) for name in self.ids(s)}
        by_judge: dict[str | None, dict[str, DataSample]] = {}
        """The samples that a judge has no row of."""
        for row in recorded_rows(rows):
            column = "idx" if "idx" in row and "id" not in row else "id"
            row.need(column, "scores")
            name = row.named(column)
            if all(label in row for label in self.labels):
                sample = self.recorded_sample(row)
            elif samples is None:
                raise DataError(
                    f"recorded row {row.number} holds no {' and '.join(self.labels)}; say where the "
                    f"rows of {self.name} are, with --data."
                )
            elif name not in known:
                raise DataError(
                    f"recorded row {row.number}: the data has no row with the id '{name[:80]}'."
                )
            else:
                sample = known[name]
            judge = judge_of(row)
            if judge not in by_judge:
                by_judge[judge] = {s.sample_id: s for s in known.values()}
            by_judge[judge].pop(sample.sample_id, None)
            if not isinstance(row["scores"], (list, tuple)):
                raise row.unfit("scores", "a list of numbers")
            values = [
                number_of(score, f"scores[{place}]", row.number)
                for place, score in enumerate(row["scores"])
            ]
            yield group_of(judge), _with_steps(sample, values)
        for judge, left in by_judge.items():
            for sample in left.values():
                yield group_of(judge), _with_steps(sample, ())


def _with_steps(sample: DataSample, values: Sequence[float | None]) -> Judged:
    places = [StepOf(0, place) for place in range(len(values))]
    return recorded(sample, places, values, "A step has no score.")


def step_scores(judged: Judged) -> list[float] | None:
    """The scores of the first output's steps; None where the sample is not scored or one is
    missing.
    """
    scores: list[float | None] = []
    if judged.sample.output:
        # an answer without steps is one, and is judged as an answer
        scores = judged.steps(0) or judged.scores[:1]
    return whole(scores) or None if judged.status == "scored" else None


def solution(steps: Sequence[str], right: Sequence[bool | None], **label: Any) -> Output:
    """One output with its steps, as `DataSample` takes it; `right` is None for a step that nobody
    labelled.
    """
    return {
        **output("\n\n".join(steps), None, **label),
        "steps": [
            output(step, None, **given({"correctness": known}))["answer"]
            for step, known in zip(steps, right, strict=True)
        ],
    }


# -- ProcessBench ----------------------------------------------------------------------------------

PROCESSBENCH_RULE = "first_error_f1"
PROCESSBENCH_SETS = ("gsm8k", "math", "olympiadbench", "omnimath")
NONE_WRONG = -1


class ProcessBench(StepBenchmark):
    """F1 of finding the first wrong step: the harmonic mean of the accuracies on wrong and on right
    solutions; mean of the sets.

    The prediction is the first step that the step rule does not call right, and -1 where it calls
    all of them right.
    """

    name = "processbench"
    aliases = ("process-bench",)
    hub = "Qwen/ProcessBench"
    split = "*"
    version = "repository at 1aad799"
    labels = ("label",)

    own_columns = frozenset({"problem", "steps", "label"})

    def detect(self, columns: Row) -> bool:
        """A problem with the steps of a solution and the number of the first wrong one."""
        return super().detect(columns) and _label(columns["label"]) is not None

    def convert(self, row: Row, where: RowRef = ROW) -> DataSample:
        """One output with the steps of the solution; steps up to the first wrong one have the label
        `correctness`.

        Metadata: `subset`, out of the id or else the file's name, and `generator` where given.
        """
        steps, label = text_list(row, "steps", where), _label(required(row, "label", where))
        if label is None or label >= len(steps):
            raise wrong(where, "label", f"-1 or a step from 0 to {len(steps) - 1}", row["label"])
        right = [None if NONE_WRONG < label < k else k != label for k in range(len(steps))]
        name = identity(row, "id", where)
        about = {
            "subset": _set_of(name) or _set_of(PurePath(where.source).stem),
            "generator": row.get("generator") or None,
        }
        asked, outputs = (
            question(row, "problem", where),
            [solution(steps, right, first_error=label)],
        )
        return self.sample(name, asked, outputs, "math", given(about))

    def recorded_label(self, row: RecordedRow, name: str) -> RecordedLabel:
        """The number of the first wrong step."""
        label = _label(row["label"])
        if label is None:
            raise row.unfit("label", "-1 or a step")
        return name, {"first_error": label}, given({"subset": _set_of(name)})

    def scorer(self, seed: int = 0) -> RuleScorer:
        """Count solutions."""
        return _FirstErrors(self.step_rule)


def _label(value: Any) -> int | None:
    label = integer(value.strip() if isinstance(value, str) else value)
    return label if label is not None and label >= NONE_WRONG else None


def _set_of(name: str) -> str | None:
    return beginning(name.lower(), PROCESSBENCH_SETS) or None


def harmonic_mean(a: float, b: float) -> float:
    """The harmonic mean of two shares; 0 where both are 0."""
    return 2 * a * b / (a + b) if a + b else 0.0


_KINDS = ((1, 1, 0, 0), (0, 1, 0, 0), (0, 0, 1, 1), (0, 0, 0, 1))
"""What one solution adds, by what it is and whether it was found: found and all of the wrong ones,
then of the right ones.
"""


def _first_errors(kinds: Mapping[bool, Tally]) -> Estimate | None:
    """The harmonic mean of both accuracies, over problems; None without solutions of either kind."""
    import numpy as np

    from rm_gallery.core.stats.uncertainty import of_sums

    problems: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * 4)
    for first, tally in ((0, kinds[True]), (2, kinds[False])):
        for credit, problem in zip(tally.credits, tally.clusters, strict=True):
            problems[problem][first] += credit
            problems[problem][first + 1] += 1.0

    def measure(sums: Floats) -> Floats:
        wrong_ones, right_ones = sums[:, 0] / sums[:, 1], sums[:, 2] / sums[:, 3]
        found: Floats = 2.0 * wrong_ones * right_ones / (wrong_ones + right_ones)
        return np.where(wrong_ones + right_ones == 0.0, 0.0, found)

    table = np.array(sorted(problems.values()), dtype=np.float64).reshape(-1, 4)
    return of_sums(table, measure, unseen=np.array(_KINDS, dtype=np.float64))


class _FirstErrors:
    """Predictions of the first wrong step, by set, for wrong and for right solutions apart."""

    def __init__(self, rule: StepRule) -> None:
        self._rule = rule
        self._sets: defaultdict[str, dict[bool, Tally]] = defaultdict(
            lambda: {True: Tally(), False: Tally()}
        )

    def add(self, judged: Judged) -> float | None:
        """Count one solution; 1.0 where the prediction is the label."""
        label, scores = judged.label.get("first_error"), step_scores(judged)
        credit = None
        if scores is not None and label is not None:
            right = self._rule.right(scores)
            credit = float((right.index(False) if False in right else NONE_WRONG) == label)
        return self._sets[judged.subset][label != NONE_WRONG].count(judged, credit)

    def report(self) -> Report:
        from rm_gallery.core.stats.uncertainty import pooled

        sets = {name: self._set_figure(kinds) for name, kinds in sorted(self._sets.items())}
        parts = {name: figure for name, (figure, _) in sets.items()}
        known = [(whole, 1.0) for _, whole in sets.values() if whole is not None]
        mean = pooled(known)
        extra: Extra = {
            name: mean_of(part.extra[name] for part in parts.values() if part.score is not None)
            for name in ("error_accuracy", "correct_accuracy")
        }
        extra |= {"step_rule": str(self._rule), "sets_absent": absent(PROCESSBENCH_SETS, parts)}
        return headline(mean_of_parts(PROCESSBENCH_RULE, parts, mean, extra), parts)

    def _set_figure(self, kinds: Mapping[bool, Tally]) -> tuple[Figure, Estimate | None]:
        extra = {"error_accuracy": kinds[True].mean, "correct_accuracy": kinds[False].mean}
        counts = merged(kinds.values()).counts()
        bounds = [kinds[wrong].bounds or () for wrong in (True, False)]
        if all(bounds):  # the figure rises with either accuracy
            counts["bounds"] = Interval(*map(harmonic_mean, *bounds))
        whole = _first_errors(kinds)
        counts |= {"score": None if whole is None else whole.estimate, **uncertainty_of(whole)}
        return Figure(PROCESSBENCH_RULE, extra=extra, **counts), whole
