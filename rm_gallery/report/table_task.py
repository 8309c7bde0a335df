"""Anybody's table on its way to a report: what a win rate and a mean score share, from the named columns to the saved figures."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from rm_gallery.core.data.load.fields import RowRef
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.calls.estimate import Estimate
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of
from rm_gallery.core.stats.denominator import closed
from rm_gallery.core.stats.missing import Trait, lengths
from rm_gallery.core.utils.errors import Cause, ConfigError
from rm_gallery.gallery.benchmarks.base import ROW, Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged, Status
from rm_gallery.report.evaluate import estimate, evaluate
from rm_gallery.report.sheet import Questions, Sheet, groups_of, label_chances, labels_of, open_sheet, questions_of

T = TypeVar("T", bound="TableTask")
Label = Callable[[Any], float | None]


@dataclass(frozen=True)
class Columns:
    """How a table is read and which of its columns mean what, beside the prompt and the answers.

    Attributes:
        reference: column of reference answers, for rewards that read one.
        id: column of ids, which labels in a file of their own need.
        labels: column of people's labels for some rows, or a file that holds them by id.
        label_column: the file's column of labels, where it has several.
        label_probability: column of the probability with which a row was chosen for labelling, where that was no plain chance.
        cluster: column that says which rows belong together; rows with the same prompt do anyway.
        by: columns whose values are subgroups; p-values are corrected for all of them.
        numbers: take columns of numbers for texts.
        limit: judge a seeded sample of this many rows.
        seed: decides that sample.
        on_bad_row: `raise`, or `skip` and count.
        encoding: of csv files, `separator` their separator; found unless given.
        separator: see `encoding`.
        sheet: of a workbook, and `header_row` (from 1) where its names stand.
        header_row: see `sheet`.
    """

    reference: str | None = None
    id: str | None = None
    labels: str | None = None
    label_column: str | None = None
    label_probability: str | None = None
    cluster: str | None = None
    by: Sequence[str] = ()
    numbers: bool = False
    limit: int | None = None
    seed: int = 0
    on_bad_row: str = "raise"
    encoding: str | None = None
    separator: str | None = None
    sheet: str | None = None
    header_row: int | None = None

    @classmethod
    def out_of(cls, keywords: Mapping[str, Any]) -> tuple[Columns, dict[str, Any]]:
        """The keywords that are fields of this, and the others."""
        own = {field.name for field in fields(cls)}
        rest = {name: value for name, value in keywords.items() if name not in own}
        return cls(**{name: value for name, value in keywords.items() if name in own}), rest

    def open(self, data: Any) -> Sheet:
        """Read the table."""
        names = ("limit", "seed", "on_bad_row", "encoding", "separator", "sheet", "header_row")
        return open_sheet(data, **{name: getattr(self, name) for name in names})


@dataclass
class TableTask:
    """A table with columns of answers, read and checked; nothing is judged yet.

    Attributes:
        questions: the rows that can be judged.
        labels: people's labels, per row of the table.
        probabilities: with which each row was chosen for labelling.
        groups: subgroups by column.
        columns: the columns that were named, for the manifest.
    """

    questions: Questions
    labels: list[float | None] | None = None
    probabilities: list[float | None] | None = None
    groups: dict[str, list[str | None]] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def found(
        cls: type[T],
        sheet: Sheet,
        prompt: str,
        roles: Mapping[str, str],
        columns: Columns,
        *,
        needed: int,
        label: Label,
        expected: str,
        **own: Any,
    ) -> T:
        """Find the columns of a table; `label` reads a cell of labels, of which `expected` says what it may hold."""
        questions = questions_of(
            sheet,
            prompt,
            dict(roles),
            reference=columns.reference,
            id_column=columns.id,
            cluster=columns.cluster,
            numbers=columns.numbers,
            needed=needed,
        )
        known = None
        if columns.labels is not None:
            where = {"id_column": columns.id, "label_column": columns.label_column}
            known = labels_of(sheet, columns.labels, label, expected, **where)
        named = {"prompt": prompt, "answers": list(roles.values()), "cluster": columns.cluster}
        return cls(
            questions,
            known,
            label_chances(sheet, known, columns.label_probability),
            groups_of(sheet, columns.by),
            {**named, "reference": columns.reference},
            **own,
        )

    @abstractmethod
    def rule(self) -> TableRule[Any]:
        """What the rows are judged and counted by."""

    def understood(self, reward: BaseReward, *, early: bool = False) -> list[str]:
        """What was understood and what it will take, a line each; `early` where it may stop before the end."""
        return self.questions.understood(self.columns["prompt"], reward, self.labels, early=early)

    def estimate(self, reward: BaseReward, *, seed: int = 0, options: RunOptions | None = None, **keywords: Any) -> Estimate:
        """Judge ten rows and extrapolate."""
        return estimate(reward, self.questions.samples, self.rule(), seed=seed, options=options, **keywords)

    def judge(self, reward: BaseReward, *, seed: int = 0, options: RunOptions | None = None, **keywords: Any) -> Report:
        """Judge the rows and report; arguments as in `evaluate`."""
        chosen, hooks = options_of(reward, options, None, keywords, progress=None)
        chosen, samples = self.begun(reward, chosen, seed)
        about = {"sheet": self.questions.sheet.digest(), "columns": self.columns}
        chosen = replace(chosen, manifest={**about, **(chosen.manifest or {})})
        report = evaluate(reward, samples, self.rule(), seed=seed, hooks=hooks, options=chosen)
        reasons = dict(report.reasons)
        if self.questions.blank:
            reasons["unscored: blank"] = self.questions.blank_reason()
        report = self.finished(replace(report, data=self.questions.sheet.name, reasons=reasons), reward)
        if chosen.run_dir is not None:
            self.questions.keep_blank(chosen.run_dir)
            report.save(Path(chosen.run_dir) / "report.json")
        return report

    def begun(self, reward: BaseReward, options: RunOptions, seed: int) -> tuple[RunOptions, list[DataSample]]:
        """How the run goes, and the samples in the order in which they are judged."""
        return options, self.questions.samples

    def finished(self, report: Report, reward: BaseReward) -> Report:
        """The report with what is known only in the end."""
        return report


class TableRule(Benchmark, Generic[T]):
    """A table as what `evaluate` judges by a rule: its rows are samples already, and its columns were named."""

    source = "none: anybody's table"
    licence = "that of the table"
    baselines = False

    def __init__(self, task: T) -> None:
        super().__init__()
        self.task = task

    def detect(self, columns: Mapping[str, Any]) -> bool:
        """Never: its columns are named."""
        return False

    def convert(self, row: dict[str, Any], where: RowRef = ROW) -> DataSample:
        """Not called: the rows are samples already."""
        raise ConfigError(f"the rows of a {self.name} are read by {type(self.task).__name__}.read")

    def sides(self, one: Judged) -> list[str]:
        """The names of the columns that hold the answers."""
        return [f"'{self.task.questions.answers[column]}'" for column in one.metadata["columns"]]

    def traits(self, one: Judged) -> dict[str, Trait]:
        """Lengths by column, what people say of the row, and its subgroups."""
        row: int = one.metadata["row"]
        sides = dict(zip(self.sides(one), (output.answer.text for output in one.sample.output), strict=True))
        traits = {**lengths(sides), "length of the prompt": float(sum(len(m.text) for m in one.sample.input))}
        if self.task.labels is not None and (label := self.task.labels[row]) is not None:
            traits["people's label"] = label
        groups = {f"column '{name}'": cells[row] for name, cells in self.task.groups.items()}
        return traits | {name: cell for name, cell in groups.items() if cell is not None}

    def notes(self, reward: BaseReward) -> tuple[str, ...]:
        """How the table was read."""
        return tuple(self.task.questions.sheet.notes)


Fate = tuple[Status, Cause]
"""What became of a row, and who caused it where it has no value."""
BLANK: Fate = ("unscored", "data")
_NOT_BEGUN: Fate = ("stopped", "caller")


def fate_of(judged: Judged) -> Fate:
    """What became of a judged row; where it is scored and one of its values is not there, the table had nothing to judge."""
    return judged.status, judged.cause or "data"


def counted_part(
    rule: str,
    values: Sequence[float | None],
    places: Sequence[int],
    fates: Mapping[int, Fate],
    scale: tuple[float, float] = (0.0, 1.0),
    **more: Any,
) -> Figure:
    """The mean of some rows: how many there are, how many have a value, and what became of the others.

    `scale` holds the lowest and the highest value a row can have, which is what is missing at worst and at best.
    """
    known = [value for place in places if (value := values[place]) is not None]
    lost = [fates.get(place, _NOT_BEGUN) for place in places if values[place] is None]
    statuses = Counter("unscored" if status == "scored" else status for status, _ in lost)
    whole = closed(len(places), len(known), math.fsum(known), Counter(cause for _, cause in lost), scale)
    score = math.fsum(known) / len(known) if known else None
    unscored, failed, stopped = (statuses[status] for status in ("unscored", "failed", "stopped"))
    limits = {"missing": whole.missing, "bounds": whole.bounds, **more}
    return Figure(rule, whole.n, whole.n_scored, unscored, failed, stopped, score, **limits)
