"""How good are the answers of a table, by a reward: mean score with interval, spread, subgroups,
and what people say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from rm_gallery.core.data.labels import VALUE, value_of
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of
from rm_gallery.core.score import CAUSES, Bounds
from rm_gallery.core.stats import Array, Floats, Integers, np
from rm_gallery.core.stats.agreement import kendall_tau_b_estimate, spearman_estimate
from rm_gallery.core.stats.denominator import Trait, lengths, worst_case_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.uncertainty import NO_INTERVAL
from rm_gallery.core.utils.errors import Cause, ConfigError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report, uncertainty_of
from rm_gallery.gallery.benchmarks.judgements import Judged, Status
from rm_gallery.study import winrate_figures as figures
from rm_gallery.study.benchmark import estimate, evaluate
from rm_gallery.study.estimate import Forecast
from rm_gallery.study.sheet import Sheet, groups_of, label_chances, labels_of
from rm_gallery.study.source import Data, sharded
from rm_gallery.study.table_rows import Columns as Columns
from rm_gallery.study.table_rows import TableSamples

if TYPE_CHECKING:
    from typing_extensions import Self

Label = Callable[[Any], float | None]


@dataclass(eq=False)
class TableTask(Benchmark):
    """A table with columns of answers, read and checked, as what `evaluate` judges by a rule.

    Attributes:
        samples: the rows that can be judged.
        labels: people's labels, per row of the table.
        probabilities: with which each row was chosen for labelling.
        groups: subgroups by column.
        named_columns: the columns that were named, for the manifest.
        shard: the share of the rows that is judged.
        short: rows that were scored and have a blank answer, so that they have no value.
    """

    samples: TableSamples
    labels: list[float | None] | None = None
    probabilities: list[float | None] | None = None
    groups: dict[str, list[str | None]] = field(default_factory=dict)
    named_columns: dict[str, Any] = field(default_factory=dict)
    shard: str | None = None
    short: list[int] = field(default_factory=list, repr=False)

    baselines = False
    counts_all = True
    unnamed: ClassVar[tuple[str, ...]]
    """What answers are called that no column holds; a row needs as many."""
    expected: ClassVar[str]
    """What a cell of labels may hold."""

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def from_sheet(
        cls: type[T],
        sheet: Sheet,
        prompt: str | None,
        roles: Mapping[str, str],
        columns: Columns,
        label: Label,
        **more: Any,
    ) -> T:
        """The task of a sheet; `roles` maps options to columns of answers, `label` reads a label."""
        samples = TableSamples(sheet, prompt, roles, columns, cls.unnamed)
        labels = None
        if columns.labels is not None:
            labels = labels_of(
                sheet,
                columns.labels,
                label,
                cls.expected,
                id_column=columns.id,
                label_column=columns.label_column,
            )
        named = {"prompt": prompt, "answers": list(roles.values()), "cluster": columns.cluster}
        return cls(
            samples,
            labels,
            label_chances(sheet, labels, columns.label_probability),
            groups_of(sheet, columns.by),
            {**named, "reference": columns.reference, **({"id": columns.id} if columns.id else {})},
            columns.shard,
            **more,
        )

    # -- what it is judged and counted by --------------------------------------------------------

    def check(self, reward: BaseReward) -> None:
        """Raise ConfigError for a kind that is not judged so, and where no column holds what the
        reward reads.
        """
        super().check(reward)
        self.samples.check(reward)

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Never: its columns are named."""
        return False

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Not called: the rows are samples already."""
        raise ConfigError(f"the rows of a {self.name} are read by {type(self).__name__}.read")

    def label_of(self, one: Judged) -> float | None:
        """What people say of a judged row."""
        return None if self.labels is None else self.labels[one.metadata["row"]]

    def sides(self, one: Judged) -> list[str]:
        """The names of the columns that hold the answers."""
        return [f"'{self.samples.answers[column]}'" for column in one.metadata["columns"]]

    def traits(self, one: Judged) -> dict[str, Trait]:
        """Lengths by column, what people say of the row, and its subgroups."""
        texts = [len(output.answer.text) for output in one.sample.output]
        traits: dict[str, Trait] = {
            **lengths(dict(zip(self.sides(one), texts, strict=True))),
            "length of the prompt": float(sum(len(m.text) for m in one.sample.input)),
        }
        if (label := self.label_of(one)) is not None:
            traits["people's label"] = label
        for name, cells in self.groups.items():
            if (cell := cells[one.metadata["row"]]) is not None:
                traits[f"column '{name}'"] = cell
        return traits

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """How the table was read."""
        return tuple(self.samples.sheet.notes)

    def lacks_answer(self, judged: Judged) -> bool:
        """Whether a row has a blank answer, which is noted of one that is scored."""
        lacks = len(judged.metadata["columns"]) < len(self.samples.answers)
        if lacks and judged.status == "scored":
            self.short.append(judged.metadata["row"])
        return lacks

    def row_statuses(self) -> RowStatuses:
        """The status of every row of the table before the first is judged."""
        statuses = np.full(len(self.samples.sheet), NOT_BEGUN, dtype=np.uint8)
        statuses[list(self.samples.blank)] = BLANK
        return statuses

    # -- judging ---------------------------------------------------------------------------------

    def data(self, samples: Sequence[DataSample], seed: int) -> Data:
        """The samples as what `evaluate` judges."""
        chosen = {"limit": None, "data_seed": seed}
        return Data(self, f"{len(samples)} samples", chosen, samples=samples)

    def understood(self, reward: BaseReward, *, early: bool = False) -> list[str]:
        """What was understood and what it will take, a line each; `early` where it may stop before
        the end.
        """
        self.check(reward)
        return self.samples.understood(reward, self.labels, early=early)

    def estimate(
        self,
        reward: BaseReward,
        *,
        seed: int = 0,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> Forecast:
        """Judge ten rows and extrapolate."""
        return estimate(
            reward, self.data(self.samples, seed), seed=seed, options=options, **keywords
        )

    def judge(
        self,
        reward: BaseReward,
        *,
        seed: int = 0,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> Report:
        """Judge the rows and report; arguments as in `evaluate`. Rows of other shards count as not
        begun.
        """
        columns = Columns.__dataclass_fields__
        chosen, hooks = options_of(reward, options, None, keywords, progress=None, beside=columns)
        shard, chosen = sharded(self.shard, chosen)
        self.short.clear()
        chosen, samples = self.begun(reward, chosen, seed)
        if chosen.run_dir is not None:
            about = {"sheet": self.samples.sheet.digest(), "columns": self.named_columns}
            chosen = replace(chosen, manifest={**about, **(chosen.manifest or {})})

        def concluded(report: Report) -> Report:
            reasons = dict(report.reasons)
            blank = [*self.samples.blank]
            for name, rows in ((BLANK_REASON, blank), (BLANK_ANSWER, self.short)):
                if n := self.n_counted(rows):
                    reasons[name] = {"n": n, "example": self.samples.why_blank(rows[0])}
            if chosen.run_dir is not None:
                self.samples.keep_blank(chosen.run_dir)
            return self.finished(
                replace(report, data=self.samples.sheet.name, reasons=reasons), reward
            )

        return evaluate(
            reward,
            replace(self.data(samples, seed), shard=shard),
            seed=seed,
            hooks=hooks,
            options=chosen,
            conclude=concluded,
        )

    def begun(
        self, reward: BaseReward, options: RunOptions, seed: int
    ) -> tuple[RunOptions, Sequence[DataSample]]:
        """How the run goes, and the samples in the order in which they are judged."""
        return options, self.samples

    def n_counted(self, rows: Sequence[int]) -> int:
        """How many of these rows are part of what was asked."""
        return len(rows)

    def finished(self, report: Report, reward: BaseReward) -> Report:
        """The report with figures that are known only after the run."""
        return report


T = TypeVar("T", bound=TableTask)
ROW_STATUSES: tuple[tuple[Status, Cause], ...] = tuple(product(get_args(Status), CAUSES))
"""Every status of a row with every cause of there being no value."""
RowStatuses = Array
"""Per row the place of its status and cause in `ROW_STATUSES`: a byte where a tuple takes 64."""
BLANK = ROW_STATUSES.index(("unscored", "data"))
BLANK_REASON, BLANK_ANSWER = "unscored: blank row", "unscored: blank answer"
"""Not the reason "blank" of a judge: both count, and a sum over reasons is what is missing."""
NOT_BEGUN = ROW_STATUSES.index(("stopped", "caller"))


def row_status_of(judged: Judged) -> int:
    """Status and cause of a judged row; a scored row without a value has nothing to judge in the
    table (`data`).
    """
    return ROW_STATUSES.index((judged.status, judged.cause or "data"))


def counted_part(
    rule: str,
    values: Floats,
    row_statuses: RowStatuses,
    scale: tuple[float, float] = (0.0, 1.0),
    **more: Any,
) -> Figure:
    """The mean of rows: how many there are, how many have a value, and what became of the others.

    `values` are an array, not a number where a row has none. `scale` holds the lowest and the
    highest value a row can have, which is what is missing at worst and at best.
    """
    missing = np.isnan(values)
    known = values[~missing]
    statuses, causes = Counter({"scored": len(known)}), Counter[str]()
    for code, n in zip(*np.unique(row_statuses[missing], return_counts=True), strict=True):
        status, cause = ROW_STATUSES[code]
        statuses["unscored" if status == "scored" else status] += int(n)
        causes[cause] += int(n)
    return figure_of(rule, known, statuses, causes, scale, **more)


def figure_of(
    rule: str,
    known: Floats,
    statuses: Counter[str],
    causes: Mapping[str, int],
    scale: tuple[float, float],
    **more: Any,
) -> Figure:
    """The mean of the values that are known, with what became of the rows by status, and its limits
    where some have none.
    """
    total = math.fsum(known)
    score = total / len(known) if len(known) else None
    scored, unscored, failed, stopped = (
        statuses[status] for status in ("scored", "unscored", "failed", "stopped")
    )
    whole = worst_case_bounds(statuses.total(), scored, total, causes, scale)
    limits = {"missing": whole.missing, "bounds": whole.bounds, **more}
    return Figure(rule, whole.n, scored, unscored, failed, stopped, score, **limits)


def middle_of(low: float | None, high: float | None) -> float | None:
    """The middle of a range, from where on a score passes without a threshold; None of an open one."""
    return None if low is None or high is None else (low + high) / 2


def open_ended(bounds: Bounds) -> tuple[float, float]:
    """A range with infinite ends where it is open."""
    low, high = bounds
    return -math.inf if low is None else low, math.inf if high is None else high


@dataclass(frozen=True)
class ScoreReport(Report):
    """The mean score of a table's answers; `score` and `ci95` are in the reward's own unit, and so
    are those of the parts.

    `extra` holds the spread (sd, min, quartiles, max) of the scores, and with labels agreement
    (rank correlations) and corrected.
    """

    unit: ClassVar[str] = "score"

    @staticmethod
    def number(value: float | None) -> str:
        """A score in the reward's own unit."""
        return number_text(value)

    @staticmethod
    def limits(bounds: Interval | None) -> str:
        """Two ends in the reward's own unit."""
        return range_text(bounds)

    def says(self) -> list[str]:
        """The spread in words, and what people say."""
        extra, lines = self.extra, []
        if spread := extra.get("spread"):
            shown = [
                f"{name.replace('_', ' ')} {number_text(spread[name])}"
                for name in _SPREAD
                if spread[name] is not None
            ]
            lines.append("scores: " + ", ".join(shown))
        if agreement := extra.get("agreement"):
            orders = "".join(
                f"{name} {agreement[name]:.2f} ({range_text(agreement[f'{name}_ci95'], NO_INTERVAL)}), "
                for name in ("accuracy", "kappa", "spearman", "kendall")
                if agreement.get(name) is not None
            )
            lines.append(f"agreement with people: {orders}n={agreement['n']}")
        if corrected := extra.get("corrected"):
            mean = f"{number_text(corrected['estimate'])} ({range_text(corrected['ci95'])})"
            lines += figures.corrected_in_words(corrected, mean, number_text)
        return [*lines, *super().says()]


UNBOUNDED = (-math.inf, math.inf)
_SPREAD = ("sd", "min", "lower_quartile", "median", "upper_quartile", "max")


def number_text(value: float | None) -> str:
    """A score for people; a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def range_text(bounds: Any, unknown: str = "-") -> str:
    """An interval of scores for people; `unknown` where there is none."""
    return unknown if bounds is None else f"{number_text(bounds[0])} – {number_text(bounds[1])}"


class _ScoreCounter:
    """Collects the scores of every row, and makes the report."""

    def __init__(self, task: Scoring) -> None:
        self._task = task
        n = len(task.samples.sheet)
        self._scores = np.full((n, len(task.samples.answers)), math.nan)
        self._row_statuses = task.row_statuses()

    def add(self, judged: Judged) -> float | None:
        """Count one row; its credit is the mean score of its answers where that lies within 0..1."""
        row: int = judged.metadata["row"]
        for column, score in zip(judged.metadata["columns"], judged.scores, strict=True):
            if score is not None:
                self._scores[row, column] = self._task.turn * score
        self._row_statuses[row] = row_status_of(judged)
        value = None if self._task.lacks_answer(judged) else self._task.value_of(judged)
        return value if value is not None and 0.0 <= value <= 1.0 else None

    def report(self) -> ScoreReport:
        """Report what was counted so far."""
        task, scores = self._task, self._scores
        # a row is scored whole or not at all: what is missing, a blank answer too, cannot leave the mean
        scored = np.array([status == "scored" for status, _ in ROW_STATUSES])
        values = np.where(scored[self._row_statuses], scores.mean(axis=1), math.nan)
        clusters = task.samples.clusters.codes
        rows = figures.ComparedRows(clusters, task.labels, task.probabilities, task.groups)

        def part(values: Floats, places: Any = slice(None)) -> Figure:
            statuses = self._row_statuses[places]
            return mean_score(values[places], clusters[places], statuses, task.bounds)

        answers = task.samples.answers
        parts = {name: part(scores[:, k]) for k, name in enumerate(answers) if len(answers) > 1}
        parts |= {name: part(values, places) for name, places in rows.subgroups().items()}
        extra: dict[str, Any] = {"spread": spread_of(values[~np.isnan(values)])}
        if task.labels is not None:
            labels = rows.people
            extra["agreement"] = self._agreement(values, labels)
            extra["corrected"] = rows.corrected(values, None, task.bounds)
            low, high = task.bounds
            if outside := int(((labels < low) | (labels > high)).sum()):
                extra["labels_outside"] = {"n": outside, "range": [low, high]}
        return ScoreReport(**vars(part(values)) | {"extra": extra}, by_subset=parts)

    def _agreement(self, values: Floats, labels: Floats) -> dict[str, Any]:
        """How far the scores agree with people: where labels are verdicts, how often a score passes
        where it should, and kappa; and rank correlations.
        """
        task, clusters = self._task, self._task.samples.clusters.codes
        both = ~(np.isnan(values) | np.isnan(labels))
        agreement: dict[str, Any] = {"n": int(both.sum())}
        if task.verdicts:
            passed, wanted = task.passes(values[both]).tolist(), (labels[both] > 0.5).tolist()
            share, kappa = figures.accordance(passed, wanted, clusters[both])
            agreement |= figures.named(accuracy=share, kappa=kappa)
        return agreement | figures.named(
            spearman=spearman_estimate(values, labels, clusters=clusters),
            kendall=kendall_tau_b_estimate(values, labels, clusters=clusters),
        )


def mean_score(
    values: Floats, clusters: Integers, row_statuses: RowStatuses, bounds: tuple[float, float]
) -> Figure:
    """The mean score of rows, as `counted_part` has it, with its interval over clusters."""
    mean = uncertainty_of(figures.mean_estimate(values, clusters, bounds))
    return counted_part("mean_score", values, row_statuses, bounds, **mean)


def spread_of(values: Floats) -> dict[str, Any]:
    """Standard deviation and quartiles of an array of scores by name; empty without any."""
    if not len(values):
        return {}
    low, lower, middle, upper, high = (
        float(value) for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    )
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return dict(zip(_SPREAD, (sd, low, lower, middle, upper, high), strict=True))


@dataclass(eq=False)
class Scoring(TableTask):
    """A table with answers to be scored: the mean score of its answers."""

    turn: float = 1.0
    bounds: tuple[float, float] = UNBOUNDED
    threshold: float | None = None
    """From where on a score passes; None where nothing says."""

    version = "mean over rows"
    kinds = TableTask.kinds | {"stepwise"}
    unnamed = ("answer",)
    expected = VALUE

    @classmethod
    def read(
        cls,
        data: Any,
        prompt: str | None = None,
        answers: Sequence[str] = (),
        columns: Columns | None = None,
    ) -> Scoring:
        """Read a table and find its columns. Raises ConfigError as `score_table` does."""
        columns = columns or Columns()
        roles = {
            "--answer" if len(answers) == 1 else f"--answer {k}": name
            for k, name in enumerate(answers, 1)
        }
        return cls.from_sheet(columns.open(data), prompt, roles, columns, value_of)

    def check(self, reward: BaseReward) -> None:
        """Raise ConfigError also for a reward that only compares, when there is nothing to compare."""
        super().check(reward)
        if reward.kind != "pointwise" and len(self.samples.answers) == 1:
            raise ConfigError(
                f"{reward.name} is {reward.kind} and one column of answers is scored by pointwise "
                f"rewards; name one, or "
                "compare two columns with `rm-gallery winrate`."
            )

    @cached_property
    def verdicts(self) -> bool:
        """Whether people's labels are verdicts, and something says from where on a score passes."""
        known = {label for label in self.labels or () if label is not None}
        return self.threshold is not None and known <= {0.0, 1.0}

    def passes(self, values: Any) -> Any:
        """Whether a score passes the threshold, or which of an array do."""
        assert self.threshold is not None
        return self.turn * values >= self.turn * self.threshold

    def value_of(self, one: Judged) -> float | None:
        """The mean score of a judged row's answers; None unless all are scored."""
        known = [self.turn * score for score in one.scores if score is not None]
        whole = one.status == "scored" and len(known) == len(self.samples.answers)
        return math.fsum(known) / len(known) if whole else None

    def agrees(self, one: Judged) -> float | None:
        """Whether a score passes where people say it should; None where labels are no verdicts."""
        label, value = self.label_of(one), self.value_of(one)
        if label is None or value is None or not self.verdicts:
            return None
        return float(self.passes(value) == (label > 0.5))

    def scorer(self, seed: int = 0) -> _ScoreCounter:
        """Start counting."""
        return _ScoreCounter(self)

    def facing(self, reward: BaseReward) -> Self:
        """Take over the reward's range and direction."""
        within = reward.range_over(self.samples.sheet.rows)
        self.bounds = open_ended(within)
        self.threshold = middle_of(*within) if reward.threshold is None else reward.threshold
        self.turn = 1.0 if reward.higher_is_better else -1.0
        return self


Scoring.name = "scores"  # no name of the catalogue: it cannot be asked for without a table


@library_loop.blocks
def score_table(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    prompt: str | None = None,
    answers: str | Sequence[str] = (),
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
        data: a file (csv, xlsx, parquet, json lines, a result file of another tool), a pandas frame
            or a list of rows.
        prompt: the column of prompts; it and the answers may be left out for a reward that reads
            neither, such as `column:NAME`.
        answers: the column of answers, or several.
        params: fields of a reward that is given by name or class.
        llm: its judge; there is no default. `base_url` is its endpoint.
        base_url: the judge's endpoint; OPENAI_BASE_URL by default.
        seed: decides samples and orders.
        options: how the run goes; with `run_dir` the same call continues an unfinished run.
        **keywords: the fields of `Columns`, and of `RunOptions`, which win over `options`; labels
            are people's scores as numbers, or verdicts such as pass and fail.

    Raises:
        ConfigError: a column is missing, blank or numeric, or a label no number; said before
            anything is paid.
    """
    built = resolve(reward, params, llm, base_url, seed)
    columns, run_options = Columns.out_of({"seed": seed, **keywords})
    task = Scoring.read(data, prompt, [answers] if isinstance(answers, str) else answers, columns)
    report = task.judge(built, seed=seed, options=options, **run_options)
    assert isinstance(report, ScoreReport)
    return report
