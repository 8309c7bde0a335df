"""The same evaluation several times: mean figures, and how much of their uncertainty more repeats would take away."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.stats.consistency import Repeats, variance_parts
from rm_gallery.core.stats.denominator import mean_bounds
from rm_gallery.core.stats.planning import correlation_within
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.study.benchmark import OnJudged, evaluate
from rm_gallery.study.drift import values_of
from rm_gallery.study.sheet import open_sheet

F = TypeVar("F", bound=Figure)
_PARTS = ("judge_variance", "prompt_variance", "judge_share", "run_sd", "unstable")
_SAME = 1e-9


def evaluate_repeatedly(
    reward: Any,
    data: Any,
    benchmark: str | Benchmark | None = None,
    *,
    repeats: int,
    options: RunOptions | None = None,
    **arguments: Any,
) -> Report:
    """Evaluate `repeats` times with replies of their own, and report the mean; the other arguments as in `evaluate`.

    Each figure is the mean of the repeats', and its interval the mean of their intervals, as wide as that of one repeat; a headline
    that is a plain mean of samples has the interval of the mean over repeats. Counts are those of the repeat that lost most.
    `extra["repeats"]` has the score of each, the parts of the samples' variance that are the prompts' and the judge's, by how much
    a single run scatters, and the share of samples that did not earn the same each time (`core.stats.consistency`). A budget
    holds for all repeats together. With `run_dir` the first repeat is kept there, the others in `repeat-1`, `repeat-2`, … below
    it; the same call continues them. After one that stopped early no further one begins.

    Raises:
        ConfigError: fewer than two repeats, or as `evaluate` says.
    """
    if isinstance(data, Iterator):
        data = list(data)  # read once for each repeat
    if repeats < 2:
        raise ConfigError(f"repeats is {repeats}; give 2 or more, or evaluate once.")
    chosen = options or RunOptions()
    heard = _Credits()
    reports: list[Report] = []
    for number in range(repeats):
        folder = chosen.run_dir if chosen.run_dir is None or not number else str(Path(chosen.run_dir) / f"repeat-{number}")
        own = replace(chosen, run_dir=folder, repeat=chosen.repeat + number)
        reports.append(evaluate(reward, data, benchmark, options=own, on_judged=heard.begun(), **arguments))
        if reports[-1].stopped:
            break
        if chosen.run_dir is not None and number + 1 < repeats:
            # killed from here on, the folder says that repeats are missing
            missing = f"{number + 1} of {repeats} repeats are done; the same command continues them"
            replace(reports[0], stopped=missing).save(Path(chosen.run_dir) / "report.json")
    report = _mean_report(reports, heard.parts())
    if chosen.run_dir is not None:
        report.save(Path(chosen.run_dir) / "report.json")
    return report


class _Credits:
    """What each sample earned in each repeat."""

    def __init__(self) -> None:
        self._runs: list[dict[tuple[str, int], float]] = []
        self._clusters: dict[tuple[str, int], str] = {}

    def begun(self) -> OnJudged:
        """Listen to the next repeat."""
        seen: Counter[str] = Counter()
        run: dict[tuple[str, int], float] = {}
        self._runs.append(run)

        def hear(one: Judged, credit: float | None) -> None:
            if credit is None:
                return
            # what is judged part by part earns its credit with the part that comes last
            name = str(one.metadata.get("whole_key") or one.sample.sample_key)
            key = name, seen[name]
            seen[name] += 1
            run[key] = credit
            self._clusters.setdefault(key, one.cluster)

        return hear

    def parts(self) -> Repeats | None:
        """The parts of the credits' variance; None where nothing was scored."""
        names = list(self._clusters)
        credits = [[run.get(name) for name in names] for run in self._runs]
        return variance_parts(credits, clusters=[*self._clusters.values()])


def _mean_report(reports: Sequence[Report], parts: Repeats | None) -> Report:
    worst = min(reports, key=lambda report: report.n_scored)
    names = dict.fromkeys(name for report in reports for name in report.by_subset)
    subsets = {name: _mean([r.by_subset[name] for r in reports if name in r.by_subset]) for name in names}
    whole = _mean(reports)
    about: dict[str, Any] = {"n": len(reports), "scores": [report.score for report in reports]}
    if parts is not None:
        about |= {name: getattr(parts, name) for name in _PARTS}
        # a headline that is the mean of the credits has their interval; one of weighted parts keeps that of a single run
        if whole.score is not None and abs(whole.score - parts.score) < _SAME:
            whole = replace(whole, ci95=parts.ci95)
            about["ci95_same_prompts"] = parts.ci95_same_prompts
    return replace(
        whole,
        by_subset=subsets,
        extra={**whole.extra, "repeats": about},
        calls=sum(report.calls for report in reports),
        cached=sum(report.cached for report in reports),
        usage=_sums(report.usage for report in reports),
        seconds=math.fsum(report.seconds for report in reports),
        reasons=worst.reasons,
        stopped=reports[-1].stopped,
        notes=(*whole.notes, _said(about)),
    )


def _mean(figures: Sequence[F]) -> F:
    """The figure of the repeat that lost most, with the mean score and the mean interval and limits of all; further figures are its own."""
    worst = min(figures, key=lambda figure: figure.n_scored)
    scored = [figure for figure in figures if figure.score is not None]
    score = math.fsum(figure.score or 0.0 for figure in scored) / len(scored) if scored else None
    ci95, bounds = mean_bounds(figure.ci95 for figure in figures), mean_bounds(figure.bounds for figure in figures)
    return replace(worst, score=score, ci95=ci95, bounds=bounds)


def _sums(usages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage.items():
            found[name] = value if found.get(name) is None else found[name] + (value or 0)
    return found


def _said(about: dict[str, Any]) -> str:
    scores = ", ".join("-" if score is None else f"{100 * score:.1f}" for score in about["scores"])
    if about.get("unstable") is None:
        return f"{about['n']} repeats: {scores}"
    share = "" if about["judge_share"] is None else f"; {100 * about['judge_share']:.1f} % of the variance is the judge's own"
    return (
        f"{about['n']} repeats: {scores}; {100 * about['unstable']:.1f} % of the samples did not earn the same each time, a single "
        f"run scatters by {100 * about['run_sd']:.1f} points{share}"
    )


_FEWEST = 10


@dataclass(frozen=True)
class Pilot:
    """Figures of a pilot; None where it does not tell.

    Attributes:
        n: rows it rests on.
        sd: standard deviation of the labels, else of the scores.
        correlation: of score and label.
        rows_per_cluster: mean rows per cluster.
        icc: how alike rows of a cluster are.
    """

    n: int = 0
    sd: float | None = None
    correlation: float | None = None
    rows_per_cluster: float = 1.0
    icc: float = 0.0

    def to_dict(self) -> dict[str, Any] | None:
        """The figures as JSON types; None without a pilot."""
        return asdict(self) if self.n else None

    def lines(self) -> list[str]:
        """What was taken from the pilot, in words."""
        if not self.n:
            return []
        parts = [f"standard deviation {self.sd:.3g}"]
        if self.correlation is not None:
            parts.append(f"correlation of judge and label {self.correlation:.3g}")
        if self.rows_per_cluster > 1.0:
            parts.append(f"{self.rows_per_cluster:.3g} rows per cluster, correlated {self.icc:.3g}")
        return [f"from {self.n} rows of the pilot: {', '.join(parts)}"]


def read_pilot(path: Path, *, score: str | None, label: str | None, cluster: str | None) -> Pilot:
    """Read a table with judge scores, labels or both, and clusters if wanted.

    Raises:
        ConfigError, DataError: there is no such file or column, a cell cannot be read, or too few rows are filled.
    """
    import numpy as np

    if score is None and label is None:
        raise ConfigError("--pilot needs to know its columns: --score of judge scores, --label of labels, or both")
    sheet = open_sheet(str(path))
    columns = {
        role: np.array([math.nan if v is None else v for v in values_of(sheet, name, role)])
        for role, name in (("--score", score), ("--label", label))
        if name is not None
    }
    known = ~np.isnan(np.stack(list(columns.values()))).any(axis=0)
    n = int(known.sum())
    if n < _FEWEST:
        raise ConfigError(f"{path}: {n} rows have what the plan is made from; a pilot needs at least {_FEWEST}")
    values = columns["--label" if label is not None else "--score"][known]
    sd = float(values.std(ddof=1))
    if sd == 0.0:
        raise ConfigError(f"{path}: all {n} values are equal, which says nothing about their spread; use --rate or --sd")
    correlation = None
    if len(columns) == 2:
        judge = columns["--score"][known]
        correlation = float(np.corrcoef(judge, values)[0, 1]) if judge.std() > 0.0 else 0.0
    if cluster is None:
        return Pilot(n, sd, correlation)
    cells = sheet.column(cluster, "--cluster")
    names = [f"row {i}" if cell is None else str(cell) for i, (cell, kept) in enumerate(zip(cells, known, strict=True)) if kept]
    if len(set(names)) == n:
        return Pilot(n, sd, correlation)
    return Pilot(n, sd, correlation, n / len(set(names)), correlation_within(values.tolist(), names))
