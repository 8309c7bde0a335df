"""Load, judge, score by the official rule, report: what the command line, the demo and notebooks
call.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rm_gallery.core.data.load.base import LoadReport
from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.folder import MANIFEST
from rm_gallery.core.engine.options import BATCH_PRICE_SHARE, detached_options
from rm_gallery.core.reward.channel import note_on
from rm_gallery.core.reward.compose import Composition
from rm_gallery.core.reward.run import run_list, run_unordered
from rm_gallery.core.score import stopped
from rm_gallery.core.stats.changes import SAME
from rm_gallery.core.stats.consistency import Repeats, variance_parts
from rm_gallery.core.stats.constant import Constancy, LengthCount
from rm_gallery.core.stats.denominator import NEVER_BEGUN, MissingnessTest, added, mean_bounds
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report, plain, with_baselines
from rm_gallery.gallery.benchmarks.judgements import (
    Candidate,
    Judged,
    Judgement,
    Pair,
    status_of,
)
from rm_gallery.gallery.benchmarks.lead import COMPARED, MEAN_SCORE
from rm_gallery.gallery.benchmarks.rules import PooledScorer, RuleScorer
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.estimate import Forecast
from rm_gallery.study.runs import REPORT, SAMPLES, SampleFile, kept_in, sample_record
from rm_gallery.study.source import Data, sharded
from rm_gallery.study.task import Reasons, Task, begun, judge_of, repeat_folder, spent_by

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Figure)
PROBE = 10
"""Samples judged for an estimate."""
_UNSAFE = re.compile(r"[^\w.-]+")

OnJudged = Callable[[Judged, "float | None"], None]
"""Hears of every judged sample and what it earned."""
Recorded = list[tuple[dict[str, Any], Report]]
"""The report of each group of a file, such as the models that judged; one group without a name
where there are none.
"""


@door()
def evaluate(
    asked: Asked,
    *,
    shard: str | None = None,
    on_judged: OnJudged | None = None,
    conclude: Callable[[Report], Report] | None = None,
    **keywords: Unpack[Keywords],
) -> Report:
    """Judge data with a reward and say by the benchmark's official rule how good the reward is.

    With `run_dir` the folder keeps `samples.jsonl`, a line per finished sample, and `report.json`
    at the end; `open_run` reads them.

    Args:
        shard: "2/4" judges the second of four equal shares of the samples, and reports on these.
            With `run_dir` it is kept in `shards/2of4` of that folder; the same call without
            `shard` then finds what all shards finished.
        on_judged: called with every judged sample and what it earned under the rule, in the order
            they finish.
        conclude: makes of the report the one that is returned and kept.

    Returns:
        The report; its `score` is None when nothing could be scored.
    """
    dataset, seed = asked.source.open(), asked.source.seed
    own, chosen = sharded(shard, asked.options)
    task = Task(asked.reward, dataset if own is None else replace(dataset, shard=own))
    rule = {"benchmark": task.benchmark.name, "rule": task.benchmark.protocol}
    identity = rule | task.data.identity() if chosen.run_dir is not None else {}
    total = chosen.total
    if total is None and chosen.progress is not False:
        total = task.n_questions()
    if chosen.run_dir is not None:
        identity["figure"] = _kept_figure(task, seed, total if own is None else None)
    chosen, control = begun(chosen, identity, total=total)
    started = time.monotonic()

    counting = _Counting(task.benchmark, task.benchmark.scorer(seed), seed, baselines=True)
    with (
        closing(run_unordered(task.reward, task.questions(control), chosen, asked.hooks)) as scored,
        kept_in(chosen.run_dir) as keeping,
    ):
        judged_samples = chain(
            ((task.benchmark.judged(task.reward, sample), True) for sample in scored),
            ((one, False) for one in task.left_out),
        )
        try:
            for one, was_asked in judged_samples:
                credit = counting.add(one, was_asked)
                if keeping is not None:
                    agrees = task.benchmark.agrees(one)
                    keeping.add(sample_record(task.reward, one, credit, agrees))
                if on_judged is not None:
                    on_judged(one, credit)
        # it hit between two results: calls in flight are finished as at any other moment
        except KeyboardInterrupt:
            control.interrupt()
            raise
    notes = (*task.benchmark.notes(task.reward), *note_on(task.reward))
    notes += task.reward.notes() if isinstance(task.reward, Composition) else ()
    report = counting.report(task.data, notes, 1.0 if task.reward.higher_is_better else -1.0)
    judge, endpoint = judge_of(task.reward)
    report = replace(
        _with_unread(task.benchmark, report, control),
        reward=task.reward.name,
        judge=judge,
        endpoint=endpoint,
        data=task.data.name,
        **spent_by(control, started),
    )
    report = report if conclude is None else conclude(report)
    if keeping is not None:
        keeping.finish(report.to_dict())
    return report


def _kept_figure(task: Task, seed: int, total: int | None) -> dict[str, Any]:
    """What the manifest says of the figure before the first sample is judged: what the rule reports
    of none.
    """
    scorer = task.benchmark.scorer(seed)
    empty, undecided = scorer.report(), getattr(scorer, "undecided", False)
    own, share = empty.rule == MEAN_SCORE, empty.rule in {*_PLAIN_MEANS, COMPARED}
    return {
        "rule": empty.rule if own or (share and not undecided) else "",
        "mean_of": "scores" if own else "credit",
        "scale": plain(empty.bounds) if own else [0.0, 1.0],
        "turn": 1.0 if task.reward.higher_is_better else -1.0,
        "n": empty.n or total,
    }


_PLAIN_MEANS = frozenset(
    {
        "pair_strict",
        "best_of_n_tie_credit",
        "all_losers_beaten",
        "both_orders",
        "single_order",
        "single_game",
    }
)
"""Rules whose figure is the mean of what each sample earned, 0..1."""


def _with_unread(benchmark: Benchmark, report: Report, control: RunControl) -> Report:
    """The report with the rows that were never read since the run had stopped; of their subsets
    nothing is known.
    """
    if not (n := control.unread):
        return report
    why = stopped(control.stopped or "", control.who_stopped)
    reasons = Reasons(report.reasons)
    reasons.add("stopped: stopped", why.reason, n)
    report = replace(report, reasons=reasons)
    if benchmark.counts_all:
        return report
    bounds = report.bounds
    if bounds is not None and report.rule in _PLAIN_MEANS:
        low, high = (end * report.n for end in bounds)
        bounds = Interval(low / (report.n + n), (high + n) / (report.n + n))
    elif bounds is not None:  # they may all be of one subset, and weigh nobody knows what
        bounds = Interval(min(benchmark.lowest, bounds[0]), max(1.0, bounds[1]))
    return replace(
        report,
        n=report.n + n,
        n_stopped=report.n_stopped + n,
        missing=added([report.missing, {why.cause or NEVER_BEGUN: n}]),
        bounds=bounds,
        notes=(
            *report.notes,
            f"the run stopped before {n:,} rows were read; they count as not begun, and in no part",
        ),
    )


@door()
def estimate(asked: Asked, *, repeats: int = 1, **keywords: Unpack[Keywords]) -> Forecast:
    """Judge a seeded sample of ten and extrapolate by the lengths of all rows to the rest of all
    `repeats`.

    The probe's replies stay in the cache for the run.
    """
    task = Task(asked.reward, asked.source.open())
    n = task.data.count()
    if n is None:
        raise DataError("--estimate needs data whose rows can be counted.")
    wanted = set(seeded_positions(n, min(PROBE, n), asked.source.seed))
    usages, seconds, length_of_all, length_of_probe = [], [], 0, 0
    for place, sample in enumerate(task.data.rows()):
        left_out = task.benchmark.left_out(sample, task.reward) is not None
        length = 0 if left_out else _length(sample)
        length_of_all += length
        if place not in wanted:
            continue
        length_of_probe += length
        control, began = RunControl(), time.perf_counter()
        questions = [] if left_out else list(task.benchmark.questions(sample, task.reward))
        quiet = detached_options(asked.options, control=control)
        library_loop.drive(run_list(task.reward, questions, quiet, asked.hooks))
        seconds.append(time.perf_counter() - began)
        usage = control.usage
        if asked.options.batch and usage.cost is not None:
            usage.cost *= BATCH_PRICE_SHARE
        usages.append(usage)
    # ten rows by lot may be long or short ones: how long all rows are is known, and what is read
    # goes with it
    longer = (length_of_all / n) / (length_of_probe / len(wanted)) if length_of_probe else 1.0
    for usage in usages:
        tokens = usage.input_tokens + usage.output_tokens
        usage.input_tokens = round(longer * usage.input_tokens)
        if usage.cost is not None and tokens:
            usage.cost *= (usage.input_tokens + usage.output_tokens) / tokens
    return Forecast.from_probe(usages, seconds, repeats * n, concurrency=asked.options.max_workers)


def _length(sample: DataSample) -> int:
    return sum(len(message.text) for message in sample.input) + sum(
        len(output.answer.text) for output in sample.output
    )


_TURNS = {"longest": 1, "shortest": -1}


class _Counting:
    """Counts judged samples under a benchmark's rule and, where the benchmark has baselines, as
    length alone judges them.
    """

    def __init__(
        self, benchmark: Benchmark, scorer: RuleScorer, seed: int, baselines: bool
    ) -> None:
        self.benchmark, self.scorer = benchmark, scorer
        self.reasons, self.missingness = Reasons(), MissingnessTest()
        self.constancy, self.lengths = Constancy(), LengthCount()
        self.baselines = {
            name: benchmark.scorer(seed) for name in _TURNS if benchmark.baselines and baselines
        }
        for baseline in self.baselines.values():
            if isinstance(baseline, PooledScorer):  # speed: their scores are all that is shown
                baseline.only_scores()

    def add(self, one: Judged, asked: bool = True) -> float | None:
        """Count one sample and give what it earned; one that the reward was not asked about counts
        for the baselines as it is.
        """
        credit = self.scorer.add(one)
        for counted in self.benchmark.in_turn(one):
            self._observe(counted)
            for name, baseline in self.baselines.items():
                baseline.add(_by_length(counted, _TURNS[name]) if asked else counted)
            for issue in {issue.reason: issue for issue in counted.issues}.values():
                self.reasons.add(f"{status_of([issue])}: {issue.reason}", issue.message)
        return credit

    def _observe(self, one: Judged) -> None:
        """Count a sample in the tests of missingness and of constant scores.

        Samples that the protocol leaves out are not missing, and a sample that the run never began
        is not missing because of its traits.
        """
        if one.status == "stopped" or (one.status != "scored" and one.cause is None):
            return
        scores: list[float | None] = []
        games: list[tuple[Pair, int]] = []
        lost: list[int] = []
        for place, status, score, verdict in one.judgements:
            if isinstance(place, Pair):
                if verdict is not None:
                    games.append((place, verdict))
                continue
            scores.append(score)
            if status != "scored" and isinstance(place, Candidate):
                lost.append(place.output)
        # speed: of most samples every answer has its score, and nobody asks whose answers they are
        sides = self.benchmark.sides(one) if games or lost else []
        named_games = []
        for place, verdict in games:
            winner = place.first if verdict > 0 else place.second
            # nobody is named where both are of one side, and for a right verdict: that all are
            # right is no fault
            at_fault = not one.chosen[winner] and sides[place.first] != sides[place.second]
            named_games.append((verdict, sides[winner] if at_fault else ""))
        self.constancy.add(scores, named_games)
        self.lengths.add(one.lengths, one.scores, [(*place, won) for place, won in games])
        self.missingness.add(
            one.status != "scored",
            self.benchmark.traits(one),
            [sides[place] for place in lost],
            sides,
            one.cluster,
        )

    def report(self, data: Data | None, notes: Sequence[str] = (), turn: float = 1.0) -> Report:
        """What was counted, with what was met while the data were read; `turn` is -1 where lower
        scores are better.
        """
        report = with_baselines(
            self.benchmark.named(self.scorer.report()),
            {name: counter.report() for name, counter in self.baselines.items()},
        )
        reasons = Reasons(self.reasons)
        if unfit := report.extra.get("n_unfit_labels"):
            message = f"no chosen and rejected answers that {report.rule} compares."
            reasons["unscored: labels"] = {"n": unfit, "example": message}
        met = LoadReport() if data is None else data.met
        return replace(
            report,
            duplicates=met.duplicates,
            id_collisions=met.id_collisions,
            skipped=met.skipped,
            reasons=reasons.sorted(),
            notes=(*notes, *met.notes()),
            suspicion=self.missingness.report(),
            lengths=self.lengths.counts(),
            constant=self.constancy.sentence(turn),
        )


def _by_length(one: Judged, turn: int) -> Judged:
    """A sample as length alone judges it: the longest answer wins, or with `turn` -1 the shortest."""
    lengths = [turn * float(length) for length in one.lengths]
    by_length = Judged.__new__(Judged)
    # speed: two a sample, with what was worked out already and does not depend on who judges
    by_length.__dict__.update(
        vars(one),
        judgements=_outputs(len(lengths)),
        status="scored",
        issues=(),
        scores=lengths,
        played_orders=0,
    )
    return by_length


@lru_cache(maxsize=64)
def _outputs(n: int) -> tuple[Judgement, ...]:
    """A judgement about each output; what it scored stands in `Judged.scores`."""
    return tuple(Judgement(Candidate(place)) for place in range(n))


# -- judgements made elsewhere ---------------------------------------------------------------------


def score_recorded(
    benchmark: Benchmark,
    *,
    scores: str | Path | None = None,
    replay: str | Path | None = None,
    data: Data | None = None,
    rule: Mapping[str, str] | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
) -> Recorded:
    """Apply a benchmark's official rule to a parquet, jsonl or csv file of recorded judgements.

    Args:
        benchmark: whose rule holds.
        scores: file with one row per candidate (`id`, `candidate`, `score`, optionally `order` and
            `judge_model`), or in a layout the benchmark knows.
        replay: file with the texts of a judge; the protocol's parser reads them.
        data: the benchmark's rows, which scores are joined to by id.
        rule: settings of the rule, such as `step_rule`.
        seed: that of the bootstrap intervals.
        run_dir: folder for `report.json` and `samples.jsonl`, which reports and comparisons open as
            they do a run's; with several groups one folder each below it.

    Raises:
        ConfigError, DataError: the file is of no layout the benchmark reads, or does not fit the
            data.
    """
    path = scores if scores is not None else replay
    if path is None or (scores is not None and replay is not None):
        raise ConfigError("give one file of recorded judgements, with --scores or with --replay.")
    started, benchmark = time.monotonic(), benchmark.under(**(rule or {}))
    read = benchmark.recorded_scores if scores is not None else benchmark.replayed
    counts: dict[str, _Counting] = {}
    groups: dict[str, dict[str, Any]] = {}
    lines = defaultdict[str, list[dict[str, Any]]](list)
    for group, one in read(rows_in(Path(path)), None if data is None else data.rows()):
        key = repr(group)
        if key not in groups:
            scorer = benchmark.recorded_scorer(seed)
            groups[key] = group
            counts[key] = _Counting(benchmark, scorer, seed, baselines=data is not None)
        credit = counts[key].add(one)
        if run_dir is not None:
            lines[key].append(sample_record(None, one, credit))
    if not groups:
        raise DataError(f"{path}: no recorded judgement found; give a file with at least one row.")
    recorded: Recorded = []
    for key, group in groups.items():
        name = " ".join(map(str, group.values()))
        report = replace(
            counts[key].report(data),
            reward=name or Path(path).name,
            data=str(path) if data is None else f"{path} on {data.name}",
            seconds=time.monotonic() - started,
        )
        recorded.append((group, report))
        if run_dir is not None:
            below = _UNSAFE.sub("_", name).strip("._") if len(groups) > 1 else ""
            _keep(Path(run_dir) / below, report, lines[key])
    return recorded


def recorded_json(benchmark: Benchmark, recorded: Recorded) -> Any:
    """What `bench --json` prints: a list with one object a group, or the object alone where the
    file has no groups.
    """
    lines = [benchmark.recorded_line(group, report) for group, report in recorded]
    return lines if any(group for group, _ in recorded) else lines[0]


def _keep(folder: Path, report: Report, lines: list[dict[str, Any]]) -> None:
    if (folder / MANIFEST).exists():
        raise ConfigError(
            f"{folder} holds a run with a reward; name another folder for recorded judgements with "
            f"--out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SAMPLES).unlink(missing_ok=True)  # of an earlier file of scores
    with closing(SampleFile(folder)) as file:
        for line in lines:
            file.add(line)
    file.finish(report.to_dict())


# -- the same several times ------------------------------------------------------------------------


@door()
def evaluate_repeatedly(
    asked: Asked, *, repeats: int, shard: str | None = None, **keywords: Unpack[Keywords]
) -> Report:
    """Evaluate `repeats` times with replies of their own, and report the mean.

    Each figure is the mean of the repeats', and its interval the mean of their intervals, as wide
    as that of one repeat; a headline that is a plain mean of samples has the interval of the mean
    over repeats. Counts are those of the repeat that lost most. `extra["repeats"]` has the score of
    each, the parts of the samples' variance that are the prompts' and the judge's, by how much a
    single run scatters, and the share of samples that did not earn the same each time
    (`core.stats.consistency`). A budget holds for all repeats together. With `run_dir` the first
    repeat is kept there, the others in `repeat-1`, `repeat-2`, … below it; the same call continues
    them. After one that stopped early no further one begins.

    Raises:
        ConfigError: fewer than two repeats.
    """
    if repeats < 2:
        raise ConfigError(f"repeats is {repeats}; give 2 or more, or evaluate once.")
    chosen = asked.options
    credits: list[dict[tuple[str, int], float]] = []
    clusters: dict[tuple[str, int], str] = {}
    reports: list[Report] = []
    for number in range(repeats):
        seen = Counter[str]()
        credits.append({})

        def keep_credit(one: Judged, credit: float | None, seen: Counter[str] = seen) -> None:
            if credit is None:
                return
            # what is judged part by part earns its credit with the part that comes last
            name = str(one.metadata.get("whole_key") or one.sample.sample_key)
            credits[-1][name, seen[name]] = credit
            clusters.setdefault((name, seen[name]), one.cluster)
            seen[name] += 1

        folder = repeat_folder(chosen.run_dir, number)
        options = replace(chosen, run_dir=folder, repeat=chosen.repeat + number)
        reports.append(
            evaluate(
                asked.reward,
                asked.source,
                shard=shard,
                on_judged=keep_credit,
                hooks=asked.hooks,
                options=options,
            )
        )
        if reports[-1].stopped:
            break
        if chosen.run_dir is not None and number + 1 < repeats:
            # killed from here on, the folder says that repeats are missing
            missing = f"{number + 1} of {repeats} repeats are done; the same command continues them"
            replace(reports[0], stopped=missing).save(Path(chosen.run_dir) / REPORT)
    parts = variance_parts(
        [[run.get(name) for name in clusters] for run in credits], clusters=list(clusters.values())
    )
    report = _mean_report(reports, parts)
    if chosen.run_dir is not None:
        report.save(Path(chosen.run_dir) / REPORT)
    return report


def _mean_report(reports: Sequence[Report], parts: Repeats | None) -> Report:
    subsets = {
        name: _mean_figure([r.by_subset[name] for r in reports if name in r.by_subset])
        for name in dict.fromkeys(name for report in reports for name in report.by_subset)
    }
    whole = _mean_figure(reports)
    about: dict[str, Any] = {"n": len(reports), "scores": [report.score for report in reports]}
    if parts is not None:
        shown = ("judge_variance", "prompt_variance", "judge_share", "run_sd", "unstable")
        about |= {name: getattr(parts, name) for name in shown}
        # a headline that is the mean of the credits has their interval; one of weighted parts keeps
        # that of a single run
        if whole.score is not None and abs(whole.score - parts.score) < SAME:
            whole = replace(whole, ci95=parts.ci95)
            about["ci95_same_prompts"] = parts.ci95_same_prompts
    usage: dict[str, Any] = {}
    for name, value in (item for report in reports for item in report.usage.items()):
        usage[name] = value if usage.get(name) is None else usage[name] + (value or 0)
    return replace(
        whole,
        by_subset=subsets,
        extra={**whole.extra, "repeats": about},
        calls=sum(report.calls for report in reports),
        cached=sum(report.cached for report in reports),
        usage=usage,
        seconds=math.fsum(report.seconds for report in reports),
        stopped=reports[-1].stopped,
        notes=(*whole.notes, _repeats_in_words(about)),
    )


def _mean_figure(figures: Sequence[F]) -> F:
    """The figure of the repeat that lost most, with the mean score and the mean interval and limits
    of all; further figures are its own.
    """
    scores = [figure.score for figure in figures if figure.score is not None]
    return replace(
        min(figures, key=lambda figure: figure.n_scored),
        score=math.fsum(scores) / len(scores) if scores else None,
        ci95=mean_bounds(figure.ci95 for figure in figures),
        bounds=mean_bounds(figure.bounds for figure in figures),
    )


def _repeats_in_words(about: dict[str, Any]) -> str:
    scores = ", ".join("-" if score is None else f"{100 * score:.1f}" for score in about["scores"])
    words = [f"{about['n']} repeats: {scores}"]
    if about.get("unstable") is not None:
        words.append(
            f"{100 * about['unstable']:.1f} % of the samples did not earn the same each time, a "
            f"single run scatters by {100 * about['run_sd']:.1f} points"
        )
        if about["judge_share"] is not None:
            words.append(f"{100 * about['judge_share']:.1f} % of the variance is the judge's own")
    return "; ".join(words)
