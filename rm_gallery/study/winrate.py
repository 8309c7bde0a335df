"""Win rates of answer columns in a user's table: reading, judging, early stopping, report."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rm_gallery.core.data.labels import VERDICT, verdict_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import Bools, np
from rm_gallery.core.stats.intervals import shown_side
from rm_gallery.core.stats.significance import ConfidenceSequence, SequentialTest
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.figures import Figure, Report, uncertainty_of
from rm_gallery.gallery.benchmarks.judgements import Judged, Status
from rm_gallery.study import winrate_figures as figures
from rm_gallery.study.runs import is_run, open_run
from rm_gallery.study.sheet import joined, open_sheet
from rm_gallery.study.table import (
    NOT_BEGUN,
    ROW_STATUSES,
    Columns,
    TableTask,
    counted_part,
    row_status_of,
)
from rm_gallery.study.winrate_figures import WinRateReport

_NO_WIN = ROW_STATUSES.index(("unscored", "judge"))


@dataclass
class _UntilDecided:
    """Counts rows in an order fixed beforehand, and stops the run when the confidence sequence
    excludes 50 % with missing rows at worst and at best.

    How long a judgement takes may depend on who wins, so results count in the fixed order, not as
    they finish, and later ones not at all. Verdicts may be missing where the judge would be wrong:
    a row without one counts as lost in one sequence and as won in another, and both have to lie on
    the same side of 50 %.
    """

    clusters: Sequence[Sequence[int]]
    """Rows by cluster, in the order of their turn; a cluster goes in as the mean of its rows,
    weighed by their number.
    """
    control: RunControl
    blank: Collection[int] = ()
    """Rows of which nothing is asked, since an answer is missing."""
    decided: bool = False
    settled: bool = False
    """Whether an earlier part of the run decided it, and nothing is left to ask."""
    sequence: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    """Of the rows with a verdict alone."""
    judged: Counter[int] = field(default_factory=Counter)
    """How many rows were judged, by their number of answers, those behind the stop too."""
    parts: int = 0
    """Judgements of rows that the stop left half judged."""
    _limits: Mapping[float, tuple[ConfidenceSequence, SequentialTest]] = field(
        default_factory=lambda: {end: (ConfidenceSequence(), SequentialTest(0.5)) for end in (0, 1)}
    )
    """With what is missing at worst, 0, and at best, 1."""
    _wins: dict[int, float | None] = field(default_factory=dict)
    _held: dict[int, Judged] = field(default_factory=dict)
    _passed: list[int] = field(default_factory=list)
    _turn: int = 0

    def __post_init__(self) -> None:
        self._largest = max(map(len, self.clusters), default=1)
        self._wins.update(dict.fromkeys(self.blank))

    def add(self, row: int, win: float | None, status: Status) -> None:
        """Count a row; one that was not begun holds back all rows after it."""
        if status == "stopped":
            return
        self._wins[row] = win
        while (
            not self.decided
            and self._turn < len(self.clusters)
            and all(r in self._wins for r in self.clusters[self._turn])
        ):
            rows = self.clusters[self._turn]
            self._turn += 1
            self._passed += rows
            self._count([self._wins[place] for place in rows])

    def _count(self, wins: Sequence[float | None]) -> None:
        known = [win for win in wins if win is not None]
        if known:
            self.sequence.add(sum(known) / len(known), len(known) / self._largest)
        p_values = []
        weight = len(wins) / self._largest
        for filling, (sequence, test) in self._limits.items():
            value = (sum(known) + filling * (len(wins) - len(known))) / len(wins)
            sequence.add(value, weight)
            p_values.append(test.add(value, weight))
        # the tests ask about one value, which is quick; the intervals are looked at when it matters
        worst, best = (sequence for sequence, _ in self._limits.values())
        if max(p_values) <= 0.05 and shown_side(0.5, worst.interval, best.interval):
            self.decided = True
            self.stop()

    def hold(self, one: Judged) -> Iterable[Judged]:
        """The samples whose turn has passed with this one, which waits for its own; none after the
        stop.
        """
        if one.status == "stopped":
            self.parts += sum(part.status != "stopped" for part in one.judgements)
            return () if self.decided else (one,)
        self.judged[len(one.sample.output)] += bool(one.judgements)
        self._held[one.metadata["row"]] = one
        passed = [self._held.pop(row) for row in self._passed if row in self._held]
        self._passed.clear()
        return passed

    def counted(self, n: int) -> Bools:
        """Per row of a table of `n` rows whether its turn has passed."""
        passed: Bools = np.zeros(n, dtype=np.bool_)
        passed[[row for cluster in self.clusters[: self._turn] for row in cluster]] = True
        return passed

    def stop(self) -> None:
        """Begin no further row."""
        self.control.stop("decided: the comparison is settled")

    def look_back(self, folder: Path) -> None:
        """Set `settled` if the rows in the folder decide already, so that a continued run asks no
        more.
        """
        known = _UntilDecided(self.clusters, RunControl(), self.blank)
        rows = {row for cluster in self.clusters for row in cluster}
        for sample in open_run(folder).samples():
            row = (sample.metadata or {}).get("row")
            if row in rows and sample.status in ("scored", "unscored"):
                known.add(row, sample.credit, "scored")
        self.settled = known.decided


class _WinCounter:
    """Collects what became of every row, and makes the report."""

    def __init__(self, task: WinRateTask) -> None:
        self._task = task
        self._rows = figures.ComparedRows(
            task.samples.clusters.codes,
            task.labels,
            task.probabilities,
            task.groups,
            len(task.samples.answers),
        )
        self._row_statuses = task.row_statuses()

    def add(self, judged: Judged) -> float | None:
        """Count one row; its credit is the win of the first column over the second."""
        row: int = judged.metadata["row"]
        win = self._rows.add(row, judged)
        any_win = judged.status != "scored" or self._rows.any_win(row)
        self._row_statuses[row] = row_status_of(judged) if any_win else _NO_WIN
        if win is None:
            self._task.lacks_answer(judged)
        if self._task.until is not None:
            self._task.until.add(row, win, judged.status)
        return win

    def report(self) -> WinRateReport:
        """Report what was counted so far."""
        task, names = self._task, self._task.samples.answers
        rows, row_statuses = self._rows, self._row_statuses
        every: Any = slice(None)
        if task.until is not None:
            counted = task.until.counted(len(row_statuses))
            rows = rows.only(counted)
            row_statuses = np.where(counted, row_statuses, np.uint8(NOT_BEGUN))
            if task.until.decided:  # the rows behind the stop are no part of what was asked
                every = counted
                rows.groups = {
                    by: [name if own else None for name, own in zip(cells, counted, strict=True)]
                    for by, cells in rows.groups.items()
                }
        wins = rows.wins()
        mean = figures.mean_estimate(wins, rows.clusters)
        subgroups = figures.subgroups_of(rows)
        extra: dict[str, Any] = {
            "a": names[0],
            "b": names[1],
            **figures.counts_of(wins),
            "test": {"null": 0.5, "p_value": mean and mean.p_value(0.5)},
            "flips": figures.flips_of(rows),
        }
        if task.labels is not None:
            extra["agreement"] = figures.agreement_of(rows)
            extra["corrected"] = rows.corrected(wins, 0.5)
        if task.length_controlled:
            extra["length_controlled"] = figures.equal_length_of(rows)
        extra["subgroups"] = subgroups
        if len(names) > 2:
            extra["ranking"] = figures.ranking_of(rows, names)
            extra["pairs"] = figures.pairs_of(rows, names)

        def rate(places: Any, **known: Any) -> Figure:
            known |= {"chance": 0.5, "baselines": figures.baselines_of(rows, places)}
            return counted_part("win_rate", wins[places], row_statuses[places], **known)

        parts = {
            name: rate(places, ci95=subgroups[name]["ci95"])
            for name, places in rows.subgroups().items()
        }
        whole = rate(every, **uncertainty_of(mean))
        kept = {name: value for name, value in extra.items() if value not in ({}, [])}
        return WinRateReport(**vars(whole) | {"extra": kept}, by_subset=parts)


@dataclass(eq=False)
class WinRateTask(TableTask):
    """A table with columns of answers to be compared: the win rate of the first over the second.
    `labels` are the win of the first column by people.
    """

    length_controlled: bool = False
    until_decided: bool = False
    until: _UntilDecided | None = field(default=None, repr=False)

    version = "ties count half, both orders of a row are one row"
    unnamed = ("a", "b")
    expected = VERDICT

    @classmethod
    def read(
        cls,
        data: Any,
        prompt: str | None = None,
        answers: Sequence[str] = (),
        columns: Columns | None = None,
        *,
        other: Any = None,
        length_controlled: bool = False,
        until_decided: bool = False,
    ) -> WinRateTask:
        """Read a table and find its columns; arguments as in `winrate`. Raises ConfigError as it
        does.
        """
        columns = columns or Columns()
        if len(answers) == 1:
            raise ConfigError(
                f"a win rate compares at least two columns of answers; found {len(answers)}."
            )
        if until_decided and columns.labels is not None:
            raise ConfigError(
                "--until-decided leaves rows unjudged and --labels correct a mean over all rows; "
                "give one."
            )
        if until_decided and columns.shard is not None:
            raise ConfigError(
                "--until-decided looks at the whole run as it goes, and --shard judges a share of "
                "it; give one."
            )
        sheet = columns.open(data)
        if other is not None:
            other_sheet = open_sheet(other, on_bad_row=columns.on_bad_row)
            if prompt is None or not answers:
                raise ConfigError("--with FILE takes --b from it: name --prompt, --a and --b.")
            sheet, second = joined(sheet, other_sheet, answers[1], columns.id or "id", prompt)
            answers = [answers[0], second, *answers[2:]]
        options = ["--a", "--b", *(f"--b {k}" for k in range(1, len(answers)))]
        return cls.from_sheet(
            sheet,
            prompt,
            dict(zip(options, answers, strict=False)),
            columns,
            lambda cell: (verdict_of(cell, answers[:2] or "ab") or (None,))[0],
            length_controlled=length_controlled,
            until_decided=until_decided,
        )

    def questions(self, sample: DataSample, reward: BaseReward) -> Iterable[DataSample]:
        """The row; what was settled by an earlier part of the run is read again, and nothing more
        is asked.
        """
        if self.until is not None and self.until.settled:
            self.until.stop()
        return super().questions(sample, reward)

    def in_turn(self, one: Judged) -> Iterable[Judged]:
        """Where the run may stop early, the rows whose turn has come."""
        return (one,) if self.until is None else self.until.hold(one)

    def agrees(self, one: Judged) -> float | None:
        """Whether the row is won, tied or lost by people as well."""
        label, win = self.label_of(one), figures.first_win(one)
        if label is None or win is None:
            return None
        return float(figures.winner(win) == figures.winner(label))

    def scorer(self, seed: int = 0) -> _WinCounter:
        """Start counting."""
        return _WinCounter(self)

    def understood(self, reward: BaseReward, *, early: bool = False) -> list[str]:
        """What was understood and what it will take, a line each."""
        return super().understood(reward, early=early or self.until_decided)

    def begun(
        self, reward: BaseReward, options: RunOptions, seed: int
    ) -> tuple[RunOptions, Sequence[DataSample]]:
        """Prepare to stop where it is settled, if that is wanted."""
        control = options.control or RunControl()
        manifest = {"until_decided": self.until_decided, **(options.manifest or {})}
        options = replace(options, control=control, manifest=manifest)
        if not self.until_decided:
            return options, self.samples
        clusters: dict[int, list[int]] = {}  # in a seeded order, clusters together
        for row, cluster in enumerate(self.samples.clusters.codes.tolist()):
            clusters.setdefault(cluster, []).append(row)
        turns = list(clusters.values())
        random.Random(seed).shuffle(turns)
        self.until = _UntilDecided(turns, control, self.samples.blank)
        if options.run_dir and not options.force_new and is_run(options.run_dir):
            self.until.look_back(Path(options.run_dir))
        by_row = {sample.place["row"]: place for place, sample in enumerate(self.samples)}
        order = [by_row[row] for turn in turns for row in turn if row in by_row]
        return options, [self.samples[place] for place in order]

    def finished(self, report: Report, reward: BaseReward) -> WinRateReport:
        """For a run that may stop early, add the interval valid at every look."""
        assert isinstance(report, WinRateReport)
        if self.until is None:
            return report
        sequence, total = self.until.sequence, len(self.samples.sheet)
        saved = total - report.n if self.until.decided else 0
        each = self.samples.judgements(reward)
        made = self.samples.judgements(reward, self.until.judged) + self.until.parts
        if self.samples.one_call_each(reward):  # an order of a pair that stopped before the other
            asked = self.until.control.calls - self.until.control.retries
            made = max(made, asked + self.until.control.cached)
        sequential = {
            "decided": self.until.decided,
            "n_sequence": sequence.n,
            "unit": "clusters" if self.samples.clustered_by else "rows",
            "ci95": sequence.interval,
            "rows": total,
            "rows_saved": saved,
            # what nobody judged, in this run or in the part of it that the folder holds
            "judgements_saved": max(0, each - made) if self.until.decided else 0,
        }
        # after looking often only the sequence's interval holds
        extra = {**report.extra, "until_decided": sequential}
        del extra["test"]
        ci95 = sequence.interval if sequence.n else None
        report = replace(report, extra=extra, ci95=ci95, detectable=None)
        if not self.until.decided:
            return report
        reasons = {
            name: why for name, why in report.reasons.items() if not name.startswith("stopped: ")
        }
        return replace(report, stopped=None, reasons=reasons)

    def n_counted(self, rows: Sequence[int]) -> int:
        """How many of these rows come before the stop."""
        if self.until is None or not self.until.decided:
            return len(rows)
        return int(self.until.counted(len(self.samples.sheet))[rows].sum())


WinRateTask.name = "winrate"  # no name of the catalogue: it cannot be asked for without a table


@library_loop.blocks
def winrate(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    prompt: str | None = None,
    answers: Sequence[str] = (),
    *,
    other: Any = None,
    length_controlled: bool = False,
    until_decided: bool = False,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    seed: int = 0,
    options: RunOptions | None = None,
    **keywords: Any,
) -> WinRateReport:
    """Say how often the first column of answers beats the second, by a reward, with ties, flips, n
    and a 95 % interval.

    A pairwise judge sees each row in both orders, whose mean is the row's result; other rewards
    compare their scores.

    Args:
        reward: a registered name, a reward class or a reward.
        data: a file (csv, xlsx, parquet, json lines, a result file of another tool), a pandas frame
            or a list of rows.
        prompt: the column of prompts; it and the answers may be left out for a reward that reads
            neither, such as `column:NAME`.
        answers: two or more columns of answers; with more than two there is a Bradley–Terry ranking
            as well.
        other: another table that holds the second column, joined by `id` (default: the column
            `id`), such as the result file of another model on the same questions.
        length_controlled: adds the win rate at equal length.
        until_decided: stop as soon as a confidence sequence leaves 50 % out. The order of rows is
            then seeded.
        params: fields of a reward that is given by name or class.
        llm: its judge; there is no default. `base_url` is its endpoint.
        base_url: the judge's endpoint; OPENAI_BASE_URL by default.
        seed: decides samples, orders and bootstrap draws.
        options: how the run goes; with `run_dir` the same call continues an unfinished run.
        **keywords: the fields of `Columns`, and of `RunOptions`, which win over `options`. Labels
            are people's verdicts: a, b, tie, the name of a column, or the win of a as a number
            0..1; they give agreement and the win rate corrected for the judge's errors.

    Raises:
        ConfigError: a column is missing, blank or numeric, a label cannot be read or joined,
            options exclude each other; said before anything is paid.
    """
    built = resolve(reward, params, llm, base_url, seed)
    columns, run_options = Columns.out_of({"seed": seed, **keywords})
    comparison = WinRateTask.read(
        data,
        prompt,
        answers,
        columns,
        other=other,
        length_controlled=length_controlled,
        until_decided=until_decided,
    )
    report = comparison.judge(built, seed=seed, options=options, **run_options)
    assert isinstance(report, WinRateReport)
    return report
