"""The official figure of judgements made elsewhere: a file of scores, or of what a judge wrote."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rm_gallery.core.data.load.readers import rows_in
from rm_gallery.core.engine.folder.store import MANIFEST
from rm_gallery.core.stats.missing import Lookout
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Report, beside
from rm_gallery.gallery.benchmarks.rules import Scorer
from rm_gallery.report.evaluate import by_length, look, unfit_labels
from rm_gallery.report.opened import REPORT, SAMPLES, SampleFile, sample_record
from rm_gallery.report.task import Data

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
