"""Graders over a table: their scores, agreement with each other and with labels, and consistency over
repeats.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rm_gallery.core.data.labels import VALUE, value_of
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.readers import SOURCE_NAME
from rm_gallery.core.data.schema import blank_is_none
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunKeywords, RunOptions, chosen_options
from rm_gallery.core.graders.llm import shown
from rm_gallery.core.graders.results import as_result, score_of
from rm_gallery.core.graders.rows import MissingField, TableRow, mapped, row_of
from rm_gallery.core.graders.run import Results
from rm_gallery.core.runner.grading_runner import GradingRunner, rows_of
from rm_gallery.core.score import NOT_BEGUN, Bounds, Score, stopped
from rm_gallery.core.stats import Floats, Integers, np
from rm_gallery.core.stats.agreement import spearman_estimate
from rm_gallery.core.stats.consistency import variance_parts
from rm_gallery.core.stats.constant import Constancy
from rm_gallery.core.stats.denominator import NEVER_BEGUN, MissingnessTest, labelled_traits
from rm_gallery.core.stats.uncertainty import NO_INTERVAL
from rm_gallery.core.stats.validation import validate
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.names import check_known, unknown_name
from rm_gallery.gallery.benchmarks.figures import Figure, uncertainty_of
from rm_gallery.gallery.benchmarks.judgements import Status
from rm_gallery.gallery.benchmarks.lead import MEAN_SCORE
from rm_gallery.study.runs import RowChange, kept_in, without_empty
from rm_gallery.study.source import Shard, file_sha256, placed_in, sharded
from rm_gallery.study.table import (
    ScoreReport,
    figure_of,
    middle_of,
    number_text,
    open_ended,
    range_text,
    spread_of,
)
from rm_gallery.study.table_rows import Clusters, hash_of
from rm_gallery.study.task import Reasons, begun, judge_of, spent_by
from rm_gallery.study.winrate_figures import ComparedRows, mean_estimate

if TYPE_CHECKING:
    from typing_extensions import Unpack

ASKED = ("query", "instruction", "prompt", "messages")
ANSWERED = ("responses", "response", "answer", "output", "messages")


@dataclass(frozen=True)
class GradeReport(ScoreReport):
    """The results of graders over a table. `score` is the mean of the first aggregator, else of the first
    grader, in its own unit.

    `by_subset` has a part per grader and aggregator. `extra` holds by their names `distributions`
    (spread and how many pass), `agreement` between every two (Spearman), `validation` against
    labels, and `consistency` over repeats; with labels of what `score` is the mean of also
    `corrected`, that mean corrected by them, in their unit.
    """

    unit: ClassVar[str] = "mean score"

    def says(self) -> list[str]:
        """How graders agree with each other, with labels and with themselves."""
        lines = [
            f"{name} against {figures['label']}: {_validation_text(figures)}"
            for name, figures in self.extra["validation"].items()
        ]
        for name, figures in self.extra["agreement"].items():
            lines.append(
                _AGREEMENT.format(
                    name=name, ends=range_text(figures["ci95"], NO_INTERVAL), **figures
                )
            )
        for name, figures in self.extra["consistency"].items():
            lines.append(_REPEATS.format(name=name, scatter=number_text(figures["sd"]), **figures))
        return lines


_AGREEMENT = "{name}: spearman {spearman:.2f} ({ends}), n={n}"
_REPEATS = (
    "{name} over {repeats} repeats: {unstable:.0%} of rows change, standard deviation {scatter} "
    "from asking again"
)
_MEASURES = (
    "accuracy",
    "exact_agreement",
    "precision",
    "recall",
    "f1",
    "kappa",
    "weighted_kappa",
    "spearman",
    "mae",
)


def _validation_text(figures: Mapping[str, Any]) -> str:
    parts, known = list[str](), 0
    for m in (m for m in _MEASURES if m in figures):
        ends = figures.get(f"{m}_ci95")
        known += ends is not None
        parts.append(
            f"{m.replace('_', ' ')} {figures[m]:.3g}" + (f" ({range_text(ends)})" if ends else "")
        )
    if parts and not known:
        parts.append(NO_INTERVAL)
    threshold = figures.get("threshold")
    at = "" if threshold is None else f"as verdicts at the threshold {threshold:g}: "
    return at + ", ".join([*parts, f"n={figures['n']}"])


class GradedRow(NamedTuple):
    """A row: its group, the results by grader, the labels by grader, the key of its sample, the label
    of a second person, the subset, and where it stands.
    """

    cluster: str
    results: Results
    labels: Mapping[str, float | None]
    key: str
    second_label: float | None = None
    subset: str = ""
    where: str = ""


_UNKNOWN = as_result(Score(0.0), {})
"""Stands for a score of a grader that gave none: of an open range, without a threshold."""


@dataclass
class _Column:
    """The results of one grader or aggregator, row by row."""

    raw_scores: array[float] = field(default_factory=lambda: array("d"))
    """A score a row; not a number where there is none."""
    statuses: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    repeats: list[list[float | None]] = field(default_factory=list)
    passed: Counter[bool] = field(default_factory=Counter)
    labels: list[float | None] = field(default_factory=list)
    """What people say of each row, where they do."""
    known: Any = field(default_factory=lambda: _UNKNOWN)
    """Its first score, for its direction and threshold."""
    ranges: set[Bounds] = field(default_factory=set)
    """Of its scores: one, unless results name ranges of their own."""

    def add(self, result: Any) -> None:
        self.statuses[status_of(result)] += 1
        if not result.ok:
            self.missing[cause_of(result)] += 1
        if result.kind != "score":
            self.raw_scores.append(math.nan)
            return
        if self.known is _UNKNOWN:
            self.known = result
        self.ranges.add(tuple(result.range))
        self.raw_scores.append(result.score)
        if result.threshold is not None:
            self.passed[result.passed()] += 1
        again = result.metadata.get("results")
        if isinstance(again, list) and None not in result.range and "n" in result.metadata:
            each = [item.get("score") if isinstance(item, Mapping) else None for item in again]
            one = [
                result.model_copy(update={"score": float(s)}).normalized if s is not None else None
                for s in each
            ]
            self.repeats.append(one)

    @property
    def scores(self) -> Floats:
        """A score a row; not a number where there is none."""
        return np.array(self.raw_scores)

    @property
    def verdicts(self) -> bool:
        """Whether all labels are verdicts, 0 or 1."""
        return {label for label in self.labels if label is not None} <= {0.0, 1.0}

    @property
    def threshold(self) -> float | None:
        """From where on a score is the verdict 1: the grader's threshold, else the middle of its
        range; None where neither is known.
        """
        threshold = self.known.threshold
        if threshold is None and len(self.ranges) == 1:
            [one] = self.ranges
            return middle_of(*one)
        return None if threshold is None else float(threshold)

    @property
    def constant(self) -> str:
        """What every score was, in a sentence, where all are the same; else empty."""
        seen = Constancy()
        seen.add(self.raw_scores)
        return seen.sentence()

    @property
    def bounds(self) -> tuple[float, float]:
        """What holds all ranges of its scores."""
        lows, highs = zip(*map(open_ended, self.ranges or {self.known.range}), strict=True)
        return min(lows), max(highs)

    @property
    def turn(self) -> float:
        """-1 where lower is better."""
        return 1.0 if self.known.higher_is_better else -1.0

    def figure(self, clusters: Integers) -> Figure:
        scores = self.scores
        mean = uncertainty_of(mean_estimate(scores, clusters, self.bounds))
        counts = self.statuses, self.missing, self.bounds
        figure = figure_of("mean_score", scores[~np.isnan(scores)], *counts, **mean)
        # of a grader that only ranks there is no mean
        return figure if figure.score is not None else replace(figure, bounds=None)

    def distribution(self) -> dict[str, Any]:
        scores = self.scores
        spread = spread_of(scores[~np.isnan(scores)])
        if self.passed:
            spread |= {"passed": self.passed[True], "of": self.passed.total()}
        return {name: value for name, value in spread.items() if value is not None}

    def consistency(self) -> dict[str, Any] | None:
        if not self.repeats:
            return None
        n = max(map(len, self.repeats))
        runs = [[row[k] if k < len(row) else None for row in self.repeats] for k in range(n)]
        parts = variance_parts(runs)
        if parts is None or parts.judge_variance is None:
            return None
        low, high = self.bounds
        share = {} if parts.judge_share is None else {"judge_share": parts.judge_share}
        sd = math.sqrt(parts.judge_variance) * (high - low)
        return {"repeats": n, "n": parts.n, "unstable": parts.unstable, "sd": sd, **share}


def status_of(result: Any) -> Status:
    """scored, unscored, failed, or stopped where the run did not get to it."""
    why = score_of(result)
    return "stopped" if why.code in NOT_BEGUN else why.status


def cause_of(error: Any) -> str:
    """Who caused an error: the judge or the endpoint where its record does not say."""
    if status_of(error) == "stopped":
        return "caller"
    return error.cause or ("endpoint" if error.status == "failed" else "judge")


@library_loop.blocks
def grade(
    runner: GradingRunner,
    data: Any,
    *,
    labels: str | Mapping[str, str] | None = None,
    cluster: str | None = None,
    second_labels: str | None = None,
    by: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    shard: str | None = None,
    options: RunOptions | None = None,
    on_graded: Callable[[GradedRow], None] | None = None,
    conclude: Callable[[GradeReport], tuple[dict[str, Any], RowChange]] | None = None,
    **run_options: Unpack[RunKeywords],
) -> GradeReport:
    """Grade the rows of a data set and report how far the scores can be trusted.

    Args:
        runner: the graders and aggregators.
        data: as for `GradingRunner.run`.
        labels: the column of people's labels (numbers, true and false, or words such as pass and
            fail), for every grader or as {grader or aggregator: column}.
        cluster: column that says which rows belong together; by default those that ask the same.
        second_labels: column of a second person's labels, and
        by: column of subsets, both for `on_graded`.
        limit: grade a seeded sample of this many rows, in the order of the data.
        seed: of that sample.
        shard: as in `evaluate`.
        options: how the run goes. With `run_dir` the same call continues an unfinished run, and the
            folder keeps `samples.jsonl` and `report.json`, of which `rm-gallery report` makes a
            page.
        on_graded: called with every row and what was said of it, in the order of the data.
        conclude: makes of the report the figures that the run folder keeps, and what it says of
            each row.
        **run_options: fields of `RunOptions`, which win over `options`, and these over the
            runner's.

    Raises:
        ConfigError: labels of a grader there is not; a label that is none, naming row and column.
    """
    columns = [*runner.grader_configs, *(aggregator.name for aggregator in runner.aggregators)]
    wanted = _wanted(labels, columns)
    own = ("labels", "cluster", "second_labels", "by", "limit", "seed", "shard")
    chosen = chosen_options(options, runner.options, run_options, None, own)[0]
    own_rows, chosen = sharded(shard, chosen)
    identity: dict[str, Any] = {}
    main = runner.aggregators[0].name if runner.aggregators else columns[0]
    if chosen.run_dir is not None:
        n = len(data) if isinstance(data, Sized) and not isinstance(data, str) else chosen.total
        config = runner.grader_configs.get(main)
        scale = None if config is None else config.grader.score_range
        figure = {"rule": MEAN_SCORE, "mean_of": main, "scale": scale} if conclude is None else {}
        identity = {"data": _identity(data), "limit": limit, **({"seed": seed} if limit else {})}
        identity["figure"] = {**figure, "n": limit or n}
    chosen, control = begun(chosen, identity)
    by_grader, asked = {name: _Column() for name in columns}, array("Q")
    reasons = Reasons()
    began_at = time.monotonic()
    missingness = MissingnessTest()
    waiting: deque[tuple[RowRef, Mapping[str, Any], dict[str, float | None], float | None]] = (
        deque()
    )
    tell, columns_met = on_graded or (lambda _: None), set[str]()
    given: Mapping[str, Any] | None = None

    def drawn() -> Iterator[Mapping[str, Any]]:
        rows = iter(_drawn(data, limit, seed, own_rows))
        for where, row in rows:
            if control.over:
                control.unread = 1 + sum(1 for _ in rows)
                return
            # read before the row is paid for
            for what, named in (("cluster", cluster), ("by", by)):
                _check_column(what, named, row, where)
            known = {name: _label(row, column, where) for name, column in wanted.items()}
            second = _label(row, second_labels, where, "second_labels")
            waiting.append((where, row, known, second))
            columns_met.update(row)
            yield row

    with (
        closing(runner.stream(drawn(), options=chosen)) as going,
        kept_in(chosen.run_dir) as keeping,
    ):
        for results in going:
            where, given, known, second = waiting.popleft()
            row = row_of(given)
            fields = _fields(runner, row)
            group = _text_of(row, cluster) or _first_filled(fields, ASKED) or str(where)
            asked.append(hash_of(group))
            subset = _text_of(row, by)
            graded = GradedRow(group, results, known, row.sample_key, second, subset, str(where))
            _observe(missingness, fields, results, main, group)
            for name, result in results.items():
                by_grader[name].add(result)
                if not result.ok:
                    reasons.add(f"{status_of(result)}: {name} {result.error_type}", result.error)
            for name, label in known.items():
                by_grader[name].labels.append(label)
            tell(graded)
            if keeping is not None:
                about = {"id": row.sample_id, "key": row.sample_key, "cluster": group}
                earned = _earned(by_grader[main], results[main], known.get(main))
                keeping.add({**about, **earned, **_row_record(where.number, fields, results, main)})
    _check_columns_read(runner, control, columns_met, given)
    _count_unread(by_grader, reasons, control)
    clusters, in_file = Clusters.of_hashes(asked).codes, isinstance(data, (str, Path))
    parts = {name: column.figure(clusters) for name, column in by_grader.items()}
    same = {name: column.constant for name, column in by_grader.items()}
    judges = [judge_of(config.grader) for config in runner.grader_configs.values()]
    judge, endpoint = (
        ", ".join(sorted(set(filter(None, names)))) or None for names in zip(*judges, strict=True)
    )
    report = GradeReport(
        **vars(parts[main])
        | {"extra": {"headline": main, **_extra(by_grader, wanted, clusters, main)}},
        by_subset=parts,
        benchmark=Path(data).stem if in_file else "rows",
        version="mean over rows",
        reward=f"{main} of {', '.join(runner.grader_configs)}"
        if runner.aggregators
        else ", ".join(columns),
        judge=judge,
        endpoint=endpoint,
        data=str(data) if in_file else f"{len(clusters)} rows",
        reasons=reasons,
        **spent_by(control, began_at),
        suspicion=missingness.report(),
        constant=" ".join(f"{name}: {sentence}" for name, sentence in same.items() if sentence),
    )
    change = None if by_grader[main].verdicts else _without_agreement
    kept = (report.to_dict(), change) if conclude is None else conclude(report)
    if keeping is not None:
        keeping.finish(*kept)
    return report


def _count_unread(by_grader: Mapping[str, _Column], reasons: Reasons, control: RunControl) -> None:
    """Count the rows that were never read, since the run had stopped, for every grader and
    aggregator.
    """
    if not (n := control.unread):
        return
    why = stopped(control.stopped or "", control.who_stopped)
    for name, column in by_grader.items():
        column.statuses["stopped"] += n
        column.missing[why.cause or NEVER_BEGUN] += n
        reasons.add(f"stopped: {name} stopped", why.reason, n)


def _observe(
    missingness: MissingnessTest,
    fields: Mapping[str, Any],
    results: Results,
    main: str,
    cluster: str,
) -> None:
    """Count a row in the test of missingness, unless the run never got to it."""
    if any(status_of(result) == "stopped" for result in results.values()):
        return
    traits = labelled_traits(
        "", len(_first_filled(fields, ASKED)), [len(_first_filled(fields, ANSWERED))], ()
    )
    lost = [name for name, result in results.items() if not result.ok]
    missingness.add(main in lost, traits, lost, list(results), cluster)


def _drawn(
    data: Any, limit: int | None, seed: int, shard: Shard | None
) -> Iterable[tuple[RowRef, Mapping[str, Any]]]:
    """The rows of the shard with their places; with a limit a seeded sample of all."""
    in_file = isinstance(data, (str, Path))
    rows = placed_in(data if in_file else rows_of(data), SOURCE_NAME)
    if limit is not None:
        known = list(rows)
        rows = (known[place] for place in seeded_positions(len(known), limit, seed))
    if shard is None:
        return rows
    return (pair for pair in rows if shard.holds(row_of(pair[1]).sample_key))


def _identity(data: Any) -> Any:
    if not isinstance(data, (str, Path)):
        return None
    paths = (
        [path]
        if (path := Path(data)).is_file()
        else sorted(p for p in path.rglob("*") if p.is_file())
    )
    return [file_sha256(path) for path in paths]


def _fields(runner: GradingRunner, row: TableRow) -> Mapping[str, Any]:
    config = next(iter(runner.grader_configs.values()))
    fields: Mapping[str, Any] = row.fields
    try:
        return mapped(fields, config.mapper)
    except MissingField:
        return fields


def _first_filled(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((shown(fields[name]) for name in names if fields.get(name) not in (None, "")), "")


def _wanted(labels: Any, columns: Sequence[str]) -> dict[str, str]:
    """The column of labels by grader."""
    if labels is not None and not isinstance(labels, (str, Mapping)):
        raise ConfigError(f"labels is {labels!r:.60}; give a column, or a column by grader.")
    wanted = {name: labels for name in columns} if isinstance(labels, str) else dict(labels or {})
    check_known("grader", wanted, columns, "labels: ")
    return wanted


def _text_of(row: TableRow, column: str | None) -> str:
    return "" if column is None else str(row.fields.get(column, ""))


def _check_column(what: str, column: str | None, row: Mapping[str, Any], where: RowRef) -> None:
    # a misspelt cluster would make every question one of its own, and intervals too narrow
    if column is not None and column not in row:
        raise ConfigError(f"{what}: {where}: {_no_column(column, row)}")


def _check_columns_read(
    runner: GradingRunner, control: RunControl, columns_met: Container[str], row: Any
) -> None:
    """Raise ConfigError for a column that a grader reads and no row had: a misspelt one would fail
    row by row. A run that stopped has not seen all rows.
    """
    if control.over or row is None:
        return
    read = {
        column: name
        for name, config in runner.grader_configs.items()
        for column in (config.grader.reads if config.mapper is None else ())
    }
    for column, name in read.items():
        if column not in columns_met:
            raise ConfigError(f"{name}: {_no_column(column, row)}")


def _no_column(name: str, row: Mapping[str, Any]) -> str:
    return unknown_name("column", name, [str(column) for column in row])


def _label(
    fields: Mapping[str, Any], column: str | None, where: RowRef, what: str = "labels"
) -> float | None:
    if column is None:
        return None
    _check_column(what, column, fields, where)
    cell = blank_is_none(fields[column])
    value = value_of(cell)
    if value is None and cell is not None:
        raise ConfigError(
            f"{what}: {where}, column '{column}': expected {VALUE}, found {cell!r:.60}."
        )
    return value


def _extra(
    by_grader: Mapping[str, _Column],
    wanted: Mapping[str, str],
    clusters: Integers,
    main: str,
) -> dict[str, Any]:
    again = {name: column.consistency() for name, column in by_grader.items()}
    extra: dict[str, Any] = {
        "distributions": {name: column.distribution() for name, column in by_grader.items()},
        "agreement": {},
        "validation": {
            name: {"label": label, **_validated(by_grader[name], clusters)}
            for name, label in wanted.items()
        },
        "consistency": {name: figures for name, figures in again.items() if figures is not None},
    }
    for (one, a), (other, b) in combinations(by_grader.items(), 2):
        scores = a.turn * a.scores, b.turn * b.scores
        order = spearman_estimate(*scores, clusters=clusters)
        if order is not None:
            extra["agreement"][f"{one} and {other}"] = {
                "spearman": order.estimate,
                "ci95": order.interval(),
                "n": order.n,
            }
    whole = by_grader[main]
    if any(label is not None for label in whole.labels):
        rows = ComparedRows(clusters, whole.labels)
        extra["corrected"] = rows.corrected(whole.scores, None, whole.bounds)
    return extra


def _validated(column: _Column, clusters: Integers) -> dict[str, Any]:
    """Verdicts by the grader's threshold, else by the middle of its range where labels are only 0
    and 1.

    Labels on another scale than the grader's say nothing of a verdict or a distance, only of the
    order.
    """
    (low, high), verdicts = column.bounds, column.verdicts
    on_scale = all(low <= label <= high for label in column.labels if label is not None)
    threshold = column.known.threshold if on_scale else None
    if verdicts:
        threshold = column.threshold
    return validate(
        column.scores.tolist(),
        column.labels,
        threshold=threshold,
        higher_is_better=column.turn > 0,
        same_scale=on_scale and (not verdicts or (low, high) == (0.0, 1.0)),
        clusters=clusters,
    ).to_dict()


def row_figure(results: Results, main: str) -> dict[str, Any]:
    """What samples.jsonl keeps of a row by the grader whose figure leads: its status and scores,
    and what is missing, its own first.
    """
    first, scores = results[main], list[float | None]([None])
    if first.kind == "score":
        scores = [first.score if first.higher_is_better else -first.score]
    elif first.kind == "rank":
        scores = [float(len(first.rank) - place) for place in first.rank]
    issues = [
        [status_of(r), r.error_type, f"{name}: {r.error}", cause_of(r)]
        for name, r in sorted(results.items(), key=lambda item: item[0] != main)
        if not r.ok
    ]
    return {"status": status_of(first), "scores": scores, "issues": issues}


def _earned(column: _Column, result: Any, label: float | None) -> dict[str, float]:
    """What samples.jsonl keeps of a row beside its score: its share of the mean where scores are
    shares, and whether its verdict is that of people.
    """
    if result.kind != "score":
        return {}
    earned = {"credit": result.score} if 0.0 <= result.score <= 1.0 else {}
    if label is not None and column.threshold is not None:
        passed = column.turn * result.score >= column.turn * column.threshold
        earned["agrees"] = float(passed == (label > 0.5))
    return earned


def _without_agreement(record: dict[str, Any]) -> dict[str, Any]:
    """A row whose label turned out to be no verdict."""
    return {name: value for name, value in record.items() if name != "agrees"}


def _row_record(
    number: int, fields: Mapping[str, Any], results: Results, main: str
) -> dict[str, Any]:
    """What samples.jsonl keeps of a row, beside what names it."""
    first, answers = results[main], [_first_filled(fields, ANSWERED)]
    if first.kind == "rank":
        answers = [shown(text) for text in fields.get("responses") or ()] or [""] * len(first.rank)
    reasons = [
        f"{name} {_result_text(result)}: {result.reason}" for name, result in results.items()
    ]
    passed = {
        name: r.passed()
        for name, r in results.items()
        if r.kind == "score" and r.threshold is not None
    }
    record = {
        **row_figure(results, main),
        "prompt": _first_filled(fields, ASKED),
        "answers": answers,
        "reasons": ["\n".join(reasons), *[None] * (len(answers) - 1)],
        "metadata": {
            "number": number,
            "scores": {name: getattr(r, "score", None) for name, r in results.items() if r.ok},
            **({"passed": passed} if passed else {}),
        },
    }
    return without_empty(record)


def _result_text(result: Any) -> str:
    if result.kind == "score":
        return f"{result.score:g}"
    return str(result.rank) if result.ok else status_of(result)
