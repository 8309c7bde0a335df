"""ProcessBench: find the first wrong step of a solution, or say that there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rm_gallery.core.data.load.converters import RowRef, identity, required, shown, text, turns, wrong
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.stats.denominator import mean_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import DataError
from rm_gallery.gallery.benchmarks.base import ROW
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.gallery.benchmarks.recorded import Row, named
from rm_gallery.gallery.benchmarks.rules import (
    Scorer,
    Tally,
    headline,
    mean_of,
    merged,
    pooled_counts,
)
from rm_gallery.gallery.benchmarks.steps import StepBenchmark, StepRule, interval_of, solution, step_scores, step_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RULE = "first_error_f1"
SIZES = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}
NONE_WRONG = -1


class ProcessBench(StepBenchmark):
    """F1 of finding the first wrong step: the harmonic mean of the accuracies on wrong and on right solutions; mean of the sets.

    The prediction is the first step that the step rule does not call right, and -1 where it calls all of them right.
    """

    name = "processbench"
    aliases = ("process-bench",)
    hub = "Qwen/ProcessBench"
    split = "*"
    source = "Zheng et al., ProcessBench, arXiv 2412.06559, code/run_eval_prm_rlhflow.py"
    licence = "Apache-2.0"
    version = "repository at 1aad799"
    chance_note = "no single level: it depends on the share of wrong steps and on how often a reward says so"
    measures = "whether a process reward finds the first wrong step of a solution, and none in a right one"
    sizes = SIZES
    layout = {
        "id": "the set and a number, such as gsm8k-0",
        "problem": "the question",
        "steps": "the steps of the solution",
        "label": "number of the first wrong step, counted from 0; -1 where all are right",
        "generator, final_answer_correct": "who wrote the solution, and whether its answer is right; not judged",
    }
    formula = "F1 = 2 a b / (a + b), a = share of wrong solutions whose first wrong step is found, b = share of right ones found right"
    traps = (
        "calling every step right, or every first step wrong, is right about one kind of solutions only and earns 0 or little",
        "the step rule decides: a process reward is read by threshold:0.5 unless its authors say otherwise",
        "a set needs wrong and right solutions; with one kind only it has no F1 and is reported as missing",
        "a right final answer does not make a right solution: many of the labelled errors end in the right answer",
    )
    published = (
        ("o1-mini (critic)", "average F1 87.9", "abstract and results of the paper"),
        ("QwQ-32B-Preview (critic)", "average F1 71.5", "abstract and results of the paper"),
    )
    labels = ("label",)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """A problem with the steps of a solution and the number of the first wrong one."""
        return {"problem", "steps", "label"} <= columns.keys() and _label(columns["label"]) is not None

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """One output with the steps of the solution; steps up to the first wrong one have the label `correctness`.

        Metadata: `subset`, out of the id or else the file's name, and `generator` where given.
        """
        steps, label = step_texts(row, "steps", where), _label(required(row, "label", where))
        if label is None or label >= len(steps):
            raise wrong(where, "label", f"-1 or a step from 0 to {len(steps) - 1}", row["label"])
        right = [True if label == NONE_WRONG or k < label else False if k == label else None for k in range(len(steps))]
        name = identity(row, "id", where)
        about = {"subset": _set_of(name) or _set_of(PurePath(where.source).stem), "generator": row.get("generator")}
        return DataSample.model_validate(
            {
                "unique_id": name,
                "input": turns(text(row, "problem", where), "problem", where),
                "output": [solution(steps, right, first_error=label)],
                "task_category": "math",
                "source": self.name,
                "metadata": {key: value for key, value in about.items() if value},
            }
        )

    def recorded_sample(self, row: Row, number: int) -> DataSample:
        """A row with its id and label."""
        label, name = _label(row["label"]), named(row["id"] if "id" in row else row["idx"], number)
        if label is None:
            raise DataError(f"recorded row {number}, column 'label': expected -1 or a step, found {shown(row['label'])}.")
        about = {"subset": _set_of(name)} if _set_of(name) else {}
        return DataSample.model_validate(
            {"unique_id": name, "output": [solution([], [], first_error=label)], "metadata": about}
        )

    def scorer(self, seed: int = 0) -> Scorer:
        """Count solutions."""
        return FirstErrors(self.step_rule, seed)


def _label(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= NONE_WRONG else None


def _set_of(name: str) -> str | None:
    return next((known for known in sorted(SIZES, reverse=True) if name.lower().startswith(known)), None)


def harmonic_mean(a: float, b: float) -> float:
    """The harmonic mean of two shares; 0 where both are 0."""
    return 2 * a * b / (a + b) if a + b else 0.0


class Solutions:
    """Solutions of one kind, wrong or right ones: how many were read rightly, by problem."""

    def __init__(self) -> None:
        self.credits = Tally()
        self.clusters: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, judged: Judged, credit: float | None) -> None:
        """Count one solution."""
        self.credits.add(credit, judged.status, judged.cluster, judged.cause_or("data"))
        if credit is not None:
            counts = self.clusters[judged.cluster]
            counts[0] += int(credit)
            counts[1] += 1

    def draws(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Bootstrap draws of their accuracy, whole problems at a time; from Jeffreys' posterior where all earned the same or share a problem."""
        from rm_gallery.core.stats.clustered import cluster_sum_draws, mean_draws

        mean = self.credits.mean
        if mean is not None and (mean in (0.0, 1.0) or len(self.clusters) == 1):
            return mean_draws({mean: self.credits.n_scored}, rng)
        sums = cluster_sum_draws(list(self.clusters.values()), rng)
        drawn: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
        return drawn


class FirstErrors:
    """Predictions of the first wrong step, by set, for wrong and for right solutions apart."""

    def __init__(self, rule: StepRule, seed: int) -> None:
        self._rule, self._seed = rule, seed
        self._sets: defaultdict[str, dict[bool, Solutions]] = defaultdict(lambda: {True: Solutions(), False: Solutions()})

    def add(self, judged: Judged) -> float | None:
        """Count one solution; 1.0 where the prediction is the label."""
        label = (judged.sample.output[0].answer.label or {}).get("first_error") if judged.sample.output else None
        scores = step_scores(judged)
        credit = None
        if scores is not None and label is not None:
            right = self._rule.right(scores)
            credit = float((right.index(False) if False in right else NONE_WRONG) == label)
        self._sets[judged.subset][label != NONE_WRONG].add(judged, credit)
        return credit

    def report(self) -> Report:
        """Report what was counted so far."""
        parts, draws = {}, []
        for name, kinds in sorted(self._sets.items()):
            parts[name], drawn = self._figure(name, kinds)
            draws += [] if drawn is None else [drawn]
        score = mean_of(part.score for part in parts.values())
        extra = {
            name: mean_of(part.extra[name] for part in parts.values() if part.score is not None)
            for name in ("error_accuracy", "correct_accuracy")
        }
        absent = [name for name in SIZES if name not in parts or parts[name].score is None]
        figure = Figure(
            RULE,
            score=score,
            ci95=interval_of(draws, score),
            extra={**extra, "step_rule": str(self._rule), "sets_absent": absent},
            bounds=mean_bounds(part.bounds for part in parts.values()),
            **pooled_counts(parts.values()),
        )
        return headline(figure, parts)

    def _figure(self, name: str, kinds: Mapping[bool, Solutions]) -> tuple[Figure, NDArray[np.float64] | None]:
        from rm_gallery.core.stats.clustered import named_generator

        wrong_ones, right_ones = kinds[True].credits.mean, kinds[False].credits.mean
        extra = {"error_accuracy": wrong_ones, "correct_accuracy": right_ones}
        counts = merged(kind.credits for kind in kinds.values()).counts()
        wrong, right = kinds[True].credits.bounds, kinds[False].credits.bounds
        if wrong is not None and right is not None:  # the figure rises with either accuracy
            counts["bounds"] = Interval(harmonic_mean(wrong.low, right.low), harmonic_mean(wrong.high, right.high))
        if wrong_ones is None or right_ones is None:
            return Figure(RULE, score=None, ci95=None, extra=extra, **counts), None
        rng = named_generator(self._seed, f"processbench {name}")
        a, b = kinds[True].draws(rng), kinds[False].draws(rng)
        drawn = 2 * a * b / (a + b)
        score = harmonic_mean(wrong_ones, right_ones)
        return Figure(RULE, score=score, ci95=interval_of([drawn], score), extra=extra, **counts), drawn
