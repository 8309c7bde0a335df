"""Load, judge, score by the official rule, report: what the command line, the demo and notebooks call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.calls.budget import Estimate
from rm_gallery.core.engine.context import RunControl, snapshot
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.run import INTERRUPTED
from rm_gallery.core.engine.run_records import MANIFEST
from rm_gallery.core.model.base import BaseLLM
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import options_of, run_list, run_unordered
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.core.stats.denominator import Lookout
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Report, beside
from rm_gallery.gallery.benchmarks.judgements import Candidate, Judged, Judgement, judged, status_of
from rm_gallery.gallery.benchmarks.rules import Scorer
from rm_gallery.study.opened import REPORT, SAMPLES, SampleFile, sample_record
from rm_gallery.study.task import Data, Task, judge_of, open_data

PROBE = 10
_REWARD = ("params", "llm", "base_url")
_DATA = ("limit", "seed", "on_bad_row", "columns")
_OWN = (*_REWARD, *_DATA, "benchmark", "hooks", "options", "on_judged")

OnJudged = Callable[[Judged, "float | None"], None]
"""Hears of every judged sample and what it earned."""


def evaluate(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    benchmark: str | Benchmark | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    llm: str | dict[str, Any] | BaseLLM | None = None,
    base_url: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_bad_row: str = "raise",
    columns: Mapping[str, str | None] | None = None,
    hooks: Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    on_judged: OnJudged | None = None,
    **run_options: Any,
) -> Report:
    """Judge data with a reward and say by the benchmark's official rule how good the reward is.

    Args:
        reward: a registered name, a reward class or a reward.
        data: a file or folder (or several), a pandas frame, a list of rows or samples, a data set, or the hub name of a
            known benchmark.
        benchmark: name or object; found from the columns by default, which have to be the benchmark's own.
        params: fields of a reward that is given by name or class.
        llm: its judge: a model name, a dict of settings or a model. There is no default.
        base_url: the judge's endpoint; OPENAI_BASE_URL by default.
        limit: judge a seeded sample of this many rows.
        seed: decides that sample, the candidate order of a reward built here, and the bootstrap intervals.
        on_bad_row: `raise`, or `skip` and count.
        columns: {wanted: actual} column names.
        hooks: values for the reward's hooks.
        options: how the run goes. With `run_dir` the same call continues an unfinished run, and the folder keeps
            `samples.jsonl`, a line per finished sample, and `report.json` at the end; `open_run` reads them.
        on_judged: called with every judged sample and what it earned under the rule, in the order they finish.
        **run_options: fields of `RunOptions` as keywords; they win over `options`.

    Returns:
        The report; its `score` is None when nothing could be scored.

    Raises:
        ConfigError: something the caller has to change, said before anything is paid: an unknown benchmark or keyword, data
            that no benchmark or that two fit, a judged reward without a judge, a kind that cannot serve the benchmark.
    """
    built = build_reward(reward, params, llm, base_url, seed)
    chosen, values = options_of(built, options, hooks, run_options, progress=None, beside=_OWN)
    task = Task(built, open_data(data, benchmark, limit=limit, seed=seed, on_bad_row=on_bad_row, columns=columns))
    control = chosen.control or RunControl()
    rule = {"benchmark": task.benchmark.name, "rule": task.benchmark.protocol}
    identity = {**rule, **task.data.identity()} if chosen.run_dir is not None else {}
    chosen = replace(
        chosen,
        control=control,
        total=task.n_questions() if chosen.total is None and chosen.progress is not False else chosen.total,
        manifest={**identity, **(chosen.manifest or {})},
    )
    started = time.monotonic()
    keeping = SampleFile(chosen.run_dir) if chosen.run_dir is not None else None
    with closing(run_unordered(task.reward, task.questions(), chosen, values)) as scored, keeping or nullcontext():
        try:
            report = _report(task, scored, seed, keeping, on_judged)
        except KeyboardInterrupt:  # it hit between two results: calls in flight are finished as at any other moment
            control.stop(INTERRUPTED, halt=True)
            raise
    report = replace(
        report,
        seconds=time.monotonic() - started,
        calls=control.calls,
        cached=control.cached,
        usage=_usage(control),
        stopped=control.stopped,
    )
    if keeping is not None and chosen.run_dir is not None:
        keeping.finish()
        report.save(Path(chosen.run_dir) / "report.json")
    return report


def estimate(
    reward: str | BaseReward | type[BaseReward],
    data: Any,
    benchmark: str | Benchmark | None = None,
    *,
    options: RunOptions | None = None,
    repeats: int = 1,
    **arguments: Any,
) -> Estimate:
    """Judge a seeded sample of ten and extrapolate to the rest of all `repeats`; arguments as in `evaluate`.

    The probe's replies stay in the cache for the run.
    """
    seed = arguments.get("seed", 0)
    built = build_reward(reward, **{key: arguments.get(key) for key in _REWARD}, seed=seed)
    task = Task(built, open_data(data, benchmark, **{key: arguments[key] for key in _DATA if key in arguments}))
    keywords = {key: value for key, value in arguments.items() if key not in (*_REWARD, *_DATA, "hooks")}
    chosen, values = options_of(built, options, arguments.get("hooks"), keywords, beside=_OWN)
    n = task.data.count()
    if n is None:
        raise DataError("--estimate needs data whose rows can be counted.")
    wanted = set(seeded_positions(n, min(PROBE, n), seed))
    usages, seconds = [], []
    for place, sample in enumerate(islice(task.data.rows(), max(wanted) + 1)):
        if place not in wanted:
            continue
        control, began = RunControl(), time.perf_counter()
        left_out = task.benchmark.left_out(sample, task.reward) is not None
        asked = [] if left_out else list(task.benchmark.questions(sample, task.reward))
        quiet = replace(chosen, control=control, run_dir=None, trace=False, progress=False)
        run_list(task.reward, asked, quiet, values)
        seconds.append(time.perf_counter() - began)
        usages.append(control.usage)
    return Estimate.from_probe(usages, seconds, repeats * n, concurrency=chosen.max_workers)


def report_on(
    reward: BaseReward, samples: Iterable[DataSample], benchmark: str | Benchmark | None = None, seed: int = 0
) -> Report:
    """Score samples that `reward` has judged already, by the official rule of their benchmark."""
    known = list(samples)
    return _report(Task(reward, open_data(known, benchmark)), iter(known), seed)


def _report(
    task: Task,
    scored: Iterator[DataSample],
    seed: int,
    keeping: SampleFile | None = None,
    on_judged: OnJudged | None = None,
) -> Report:
    counting = task.benchmark.scorer(seed)
    lengths = {name: task.benchmark.scorer(seed) for name in ("longest", "shortest") if task.benchmark.baselines}
    reasons: dict[str, dict[str, Any]] = {}
    lookout = Lookout()
    for one, asked in _judgements(task, scored):
        credit = counting.add(one)
        look(lookout, task.benchmark, one)
        if keeping is not None:
            keeping.add(sample_record(task.reward, one, credit))
        if on_judged is not None:
            on_judged(one, credit)
        for name, baseline in lengths.items():
            baseline.add(by_length(one, 1 if name == "longest" else -1) if asked else one)
        for issue in {issue.reason: issue for issue in one.issues}.values():
            known = reasons.setdefault(f"{status_of([issue])}: {issue.reason}", {"n": 0, "example": issue.message})
            known["n"] += 1
    report = beside(task.benchmark.named(counting.report()), {name: found.report() for name, found in lengths.items()})
    reasons |= unfit_labels(report)
    judge, endpoint = judge_of(task.reward)
    loaded = task.data.loader.report if task.data.loader is not None else None
    return replace(
        report,
        reward=task.reward.name,
        judge=judge,
        endpoint=endpoint,
        data=task.data.name,
        duplicates=loaded.duplicates if loaded else 0,
        id_collisions=loaded.id_collisions if loaded else 0,
        skipped=loaded.skipped if loaded else 0,
        reasons=dict(sorted(reasons.items(), key=lambda item: -item[1]["n"])),
        notes=(*task.benchmark.notes(task.reward), *(loaded.notes() if loaded else ())),
        suspicion=lookout.found(),
    )


def look(lookout: Lookout, benchmark: Benchmark, one: Judged) -> None:
    """Tell the lookout of a judged sample; one that the protocol leaves out is not missing."""
    if one.status != "scored" and one.cause is None:
        return
    sides = benchmark.sides(one)
    places = (j for j in one.judgements if isinstance(j.place, Candidate) and j.status != "scored")
    lost = [sides[judgement.place.output] for judgement in places if isinstance(judgement.place, Candidate)]
    lookout.add(one.status != "scored", benchmark.traits(one), lost, sides)


def _judgements(task: Task, scored: Iterator[DataSample]) -> Iterator[tuple[Judged, bool]]:
    """Every sample with its judgements, and whether the reward was asked about it; those it was not asked about come last."""
    for sample in scored:
        yield judged(task.reward, sample), True
    for one in task.left_out:
        yield one, False


def unfit_labels(report: Report) -> dict[str, dict[str, Any]]:
    """The reason of samples whose labels the rule does not compare, as `Report.reasons` has it; empty without any."""
    unfit = report.extra.get("n_unfit_labels")
    message = f"no chosen and rejected answers that {report.rule} compares."
    return {"unscored: labels": {"n": unfit, "example": message}} if unfit else {}


def by_length(one: Judged, turn: int) -> Judged:
    """A sample as length alone judges it: the longest answer wins, or with `turn` -1 the shortest."""
    lengths = [turn * float(len(output.answer.text)) for output in one.sample.output]
    found = Judged(one.sample, [Judgement(Candidate(place), score=length) for place, length in enumerate(lengths)])
    # what was worked out already, and does not depend on who judges
    found.__dict__.update(chosen=one.chosen, cluster=one.cluster, subset=one.subset, scores=lengths, played_orders=0)
    return found


def _usage(control: RunControl) -> dict[str, Any]:
    return {key: value for key, value in snapshot(control).items() if key in ("input_tokens", "output_tokens", "cost")}


_UNSAFE = re.compile(r"[^\w.-]+")

Recorded = list[tuple[dict[str, Any], Report]]
"""The report of each group of a file, such as the models that judged; one group without a name where there are none."""


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
        scores: file with one row per candidate (`id`, `candidate`, `score`, optionally `order` and `judge_model`), or in a
            layout the benchmark knows.
        replay: file with the texts of a judge; the protocol's parser reads them.
        data: the benchmark's rows, which scores are joined to by id.
        rule: settings of the rule, such as `step_rule`.
        seed: that of the bootstrap intervals.
        run_dir: folder for `report.json` and `samples.jsonl`, which reports and comparisons open as they do a run's; with several
            groups one folder each below it.

    Raises:
        ConfigError, DataError: the file is of no layout the benchmark reads, or does not fit the data.
    """
    path = scores if scores is not None else replay
    if path is None or (scores is not None and replay is not None):
        raise ConfigError("give one file of recorded judgements, with --scores or with --replay.")
    started, benchmark = time.monotonic(), benchmark.under(**(rule or {}))
    read = benchmark.recorded_scores if scores is not None else benchmark.replayed
    counted: dict[str, tuple[dict[str, Any], Scorer]] = {}
    lengths: dict[str, dict[str, Scorer]] = {}
    lines: dict[str, list[dict[str, Any]]] = {}
    reasons: dict[str, dict[str, dict[str, Any]]] = {}
    lookouts: dict[str, Lookout] = {}
    for group, one in read(rows_in(Path(path)), None if data is None else data.rows()):
        key = repr(group)
        if key not in counted:
            counted[key] = group, benchmark.recorded_scorer(seed)
            wanted = ("longest", "shortest") if benchmark.baselines and data is not None else ()
            lengths[key] = {name: benchmark.scorer(seed) for name in wanted}
        credit = counted[key][1].add(one)
        look(lookouts.setdefault(key, Lookout()), benchmark, one)
        if run_dir is not None:
            lines.setdefault(key, []).append(sample_record(None, one, credit))
        for name, baseline in lengths[key].items():
            baseline.add(by_length(one, 1 if name == "longest" else -1))
        for issue in one.issues:
            found = reasons.setdefault(key, {}).setdefault(
                f"{issue.status}: {issue.reason}", {"n": 0, "example": issue.message}
            )
            found["n"] += 1
    if not counted:
        raise DataError(f"{path}: no recorded judgement found; give a file with at least one row.")
    loaded = data.loader.report if data is not None and data.loader is not None else None
    recorded: Recorded = []
    for key, (group, counting) in counted.items():
        counts = benchmark.named(counting.report())
        report = replace(
            beside(counts, {name: baseline.report() for name, baseline in lengths[key].items()}),
            reward=" ".join(map(str, group.values())) or Path(path).name,
            data=str(path) if data is None else f"{path} on {data.name}",
            duplicates=loaded.duplicates if loaded else 0,
            id_collisions=loaded.id_collisions if loaded else 0,
            skipped=loaded.skipped if loaded else 0,
            reasons={**reasons.get(key, {}), **unfit_labels(counts)},
            notes=tuple(loaded.notes()) if loaded else (),
            seconds=time.monotonic() - started,
            suspicion=lookouts[key].found(),
        )
        recorded.append((group, report))
        if run_dir is not None:
            name = _UNSAFE.sub("_", " ".join(map(str, group.values()))).strip("._")
            _keep(Path(run_dir) / name if len(counted) > 1 else Path(run_dir), report, lines[key])
    return recorded


def recorded_json(benchmark: Benchmark, recorded: Recorded) -> Any:
    """What `bench --json` prints: a list with one object a group, or the object alone where the file has no groups."""
    lines = [benchmark.recorded_line(group, report) for group, report in recorded]
    return lines if any(group for group, _ in recorded) else lines[0]


def _keep(folder: Path, report: Report, lines: list[dict[str, Any]]) -> None:
    if (folder / MANIFEST).exists():
        raise ConfigError(f"{folder} holds a run with a reward; name another folder for recorded judgements with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SAMPLES).unlink(missing_ok=True)  # of an earlier file of scores
    with SampleFile(folder) as file:
        for line in lines:
            file.add(line)
    report.save(folder / REPORT)
