"""How good are the answers of a table, by a reward: mean score with interval, spread, subgroups, and what people say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.runner.build import build_reward
from rm_gallery.core.stats.corrected import corrected_mean, label_scale
from rm_gallery.core.stats.correlation import kendall_tau_b_estimate, spearman_estimate
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Figure, Report, counted, one_line
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.report import comparing
from rm_gallery.report.sheet import number_of
from rm_gallery.report.table_task import BLANK, Columns, Fate, TableRule, TableTask, counted_part, fate_of


@dataclass(frozen=True)
class ScoreReport(Report):
    """The mean score of a table's answers; `score` and `ci95` are in the reward's own unit, and so are those of the parts.

    `extra` holds the spread (sd, min, quartiles, max) of the scores, and with labels agreement (rank correlations) and corrected.
    """

    unit: ClassVar[str] = "score"

    @staticmethod
    def limits(bounds: Interval | None) -> str:
        """Two ends in the reward's own unit."""
        return range_text(bounds)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, score and interval in the reward's own unit, and the counts that are not 0; the whole last."""
        parts: list[tuple[str, Figure]] = [*self.by_subset.items(), ("all", self)]
        return [(one_line(name), number_text(f.score), range_text(f.ci95), counted(f)) for name, f in parts]

    def about(self) -> list[str]:
        """The spread in words, what people say, and what the figures rest on."""
        extra, lines = self.extra, []
        if spread := extra.get("spread"):
            shown = [f"{name.replace('_', ' ')} {number_text(spread[name])}" for name in _SPREAD if spread[name] is not None]
            lines.append("scores: " + ", ".join(shown))
        if found := extra.get("agreement"):
            known = [name for name in ("spearman", "kendall") if found.get(name) is not None]
            shown = [f"{name} {found[name]:.2f} ({range_text(found[f'{name}_ci95'])})" for name in known]
            lines.append(f"agreement with people: {', '.join([*shown, 'n=' + str(found['n'])])}")
        if found := extra.get("corrected"):
            lines.append(
                f"corrected by labels: {number_text(found['estimate'])} ({range_text(found['ci95'])}), {found['n_labelled']} labels, "
                f"worth {found['effective_labels']:.0f}; labels alone {number_text(found['labels_alone'])} ({found['method']})"
            )
            lines += found["notes"]
        return [*lines, *super().about()]


UNBOUNDED = (-math.inf, math.inf)
_SPREAD = ("sd", "min", "lower_quartile", "median", "upper_quartile", "max")


def number_text(value: float | None) -> str:
    """A score for people; a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def range_text(bounds: Any) -> str:
    """An interval of scores for people."""
    return "-" if bounds is None else f"{number_text(bounds[0])} – {number_text(bounds[1])}"


class _Counting:
    """Collects the scores of every row, and makes the report."""

    def __init__(self, task: Scoring) -> None:
        self._of = task
        self._scores: list[list[float | None]] = [[] for _ in range(len(task.questions.sheet))]
        self._fates: dict[int, Fate] = dict.fromkeys(task.questions.blank, BLANK)

    def add(self, judged: Judged) -> float | None:
        """Count one row; its credit is the mean score of its answers where that lies within 0..1."""
        row: int = judged.metadata["row"]
        kept: list[float | None] = [None] * len(self._of.questions.answers)
        for column, score in zip(judged.metadata["columns"], judged.scores, strict=True):
            kept[column] = None if score is None else self._of.turn * score
        self._scores[row], self._fates[row] = kept, fate_of(judged)
        value = self._value(row)
        return value if value is not None and 0.0 <= value <= 1.0 else None

    def _value(self, row: int) -> float | None:
        """The mean score of a row's answers, which is scored whole or not at all: what is missing cannot leave the mean."""
        whole = self._fates.get(row, BLANK)[0] == "scored"
        return _mean(self._scores[row]) if whole else None

    def report(self) -> ScoreReport:
        """Report what was counted so far."""
        of = self._of
        values = [self._value(row) for row in range(len(self._scores))]
        rows = comparing.Rows(
            [None] * len(values),
            of.questions.clusters,
            of.labels,
            of.probabilities,
            of.groups,
        )
        whole = self._part(values, range(len(values)))
        parts: dict[str, Figure] = {}
        if len(of.questions.answers) > 1:
            for column, name in enumerate(of.questions.answers):
                own = [row[column] if row else None for row in self._scores]
                parts[name] = self._part(own, range(len(own)))
        groups = comparing.subgroups_of(values, rows, None, of.bounds)
        for name, part in groups.items():
            parts[name] = self._part(values, part["places"])
        extra: dict[str, Any] = {"spread": spread_of([value for value in values if value is not None])}
        if of.labels is not None:
            known = [
                (value, label, cluster)
                for value, label, cluster in zip(values, of.labels, of.questions.clusters, strict=True)
                if value is not None and label is not None
            ]
            judge, people = [value for value, _, _ in known], [label for _, label, _ in known]
            extra["agreement"] = {"n": len(known)}
            for name, estimate in (("spearman", spearman_estimate), ("kendall", kendall_tau_b_estimate)):
                order = estimate(judge, people, clusters=[cluster for _, _, cluster in known])
                extra["agreement"][name] = None if order is None else order.estimate
                extra["agreement"][f"{name}_ci95"] = None if order is None else order.interval()
            corrected = corrected_mean(  # in the unit of the labels, whose scale may be another one
                values,
                of.labels,
                clusters=of.questions.clusters,
                probabilities=of.probabilities,
                bounds=label_scale(of.labels, of.bounds),
            )
            extra["corrected"] = {**comparing.as_dict(corrected), "p_value": None}
        return ScoreReport(**vars(whole) | {"extra": extra}, by_subset=parts)

    def _part(self, values: Sequence[float | None], places: Sequence[int]) -> Figure:
        own = [values[place] for place in places]
        mean = comparing.mean_of(own, [self._of.questions.clusters[place] for place in places], bounds=self._of.bounds)
        return counted_part("mean_score", values, places, self._fates, self._of.bounds, ci95=mean.ci95)


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None


def spread_of(values: Sequence[float]) -> dict[str, Any]:
    """Standard deviation and quartiles of scores by name; empty without any."""
    import numpy as np

    if not values:
        return {}
    low, lower, middle, upper, high = (float(value) for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return dict(zip(_SPREAD, (sd, low, lower, middle, upper, high), strict=True))


class Scores(TableRule["Scoring"]):
    """A table as what `evaluate` judges: the mean score of its answers."""

    version = "mean over rows"

    def check(self, reward: BaseReward) -> None:
        """Raise ConfigError for a reward that only compares, when there is nothing to compare."""
        if reward.kind != "pointwise" and len(self.task.questions.answers) == 1:
            raise ConfigError(
                f"{reward.name} is {reward.kind} and one column of answers is scored by pointwise rewards; name one, or "
                "compare two columns with `rm-gallery winrate`."
            )

    def scorer(self, seed: int = 0) -> _Counting:
        """Start counting."""
        return _Counting(self.task)


Scores.name = "scores"  # no name of the catalogue: it cannot be asked for without a table


@dataclass
class Scoring(TableTask):
    """A table with answers to be scored, read and checked; nothing is judged yet."""

    turn: float = 1.0
    bounds: tuple[float, float] = UNBOUNDED

    @classmethod
    def read(cls, data: Any, prompt: str, answers: Sequence[str], columns: Columns | None = None) -> Scoring:
        """Read a table and find its columns. Raises ConfigError as `score_table` does."""
        columns = columns or Columns()
        roles = {"--answer" if len(answers) == 1 else f"--answer {k}": name for k, name in enumerate(answers, 1)}
        return cls.found(columns.open(data), prompt, roles, columns, needed=1, label=number_of, expected="a number")

    def rule(self) -> Scores:
        """The mean score."""
        return Scores(self)

    def begun(self, reward: BaseReward, options: RunOptions, seed: int) -> tuple[RunOptions, list[DataSample]]:
        """Take over the reward's range and direction."""
        low, high = reward.score_range
        self.bounds = (-math.inf if low is None else low, math.inf if high is None else high)
        self.turn = 1.0 if reward.higher_is_better else -1.0
        return super().begun(reward, options, seed)


def score_table(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    prompt: str,
    answers: str | Sequence[str],
    *,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    seed: int = 0,
    options: RunOptions | None = None,
    **keywords: Any,
) -> ScoreReport:
    """Score the answers of a table and report their mean with a 95 % interval over clusters.

    Args:
        reward: a registered name, a reward class or a reward.
        data: a file (csv, xlsx, parquet, json lines, a result file of another tool), a pandas frame or a list of rows.
        prompt: the column of prompts.
        answers: the column of answers, or several.
        params: fields of a reward that is given by name or class.
        llm: its judge; there is no default. `base_url` is its endpoint.
        base_url: the judge's endpoint; OPENAI_BASE_URL by default.
        seed: decides samples and orders.
        options: how the run goes; with `run_dir` the same call continues an unfinished run.
        **keywords: the fields of `Columns`, and of `RunOptions`, which win over `options`; labels are people's scores as numbers.

    Raises:
        ConfigError: a column is missing, blank or numeric, or a label no number; said before anything is paid.
    """
    built = build_reward(reward, params, llm, base_url, seed)
    columns, run_options = Columns.out_of({"seed": seed, **keywords})
    task = Scoring.read(data, prompt, [answers] if isinstance(answers, str) else answers, columns)
    report = task.judge(built, seed=seed, options=options, **run_options)
    assert isinstance(report, ScoreReport)
    return report
