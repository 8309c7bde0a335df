"""The same evaluation several times: mean figures, and how much of their uncertainty more repeats would take away."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.repeats import repeat_parts
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.benchmarks.base import Benchmark
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.report.evaluate import OnJudged, evaluate

F = TypeVar("F", bound=Figure)


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

    Each figure is the mean of the repeats', and its interval the mean of their intervals: as wide as that of one repeat, so it
    rather holds too much. Counts are those of the repeat that lost most. `extra["repeats"]` has the score of each, their standard
    deviation, and the parts of the samples' variance that are the prompts' and the judge's (`core.stats.repeats`). A budget
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
        folder = (
            chosen.run_dir if chosen.run_dir is None or not number else str(Path(chosen.run_dir) / f"repeat-{number}")
        )
        own = replace(chosen, run_dir=folder, repeat=chosen.repeat + number)
        reports.append(evaluate(reward, data, benchmark, options=own, on_judged=heard.begun(), **arguments))
        if reports[-1].stopped:
            break
    report = _mean_report(reports, heard.parts(len(reports)))
    if chosen.run_dir is not None:
        report.save(Path(chosen.run_dir) / "report.json")
    return report


class _Credits:
    """What each sample earned in each repeat."""

    def __init__(self) -> None:
        self._credits: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    def begun(self) -> OnJudged:
        """Listen to the next repeat."""
        seen: Counter[str] = Counter()

        def hear(one: Judged, credit: float | None) -> None:
            # what is judged part by part earns its credit with the part that comes last
            key = str(one.metadata.get("whole_key") or one.sample.sample_key)
            if credit is not None:
                self._credits[key, seen[key]].append(credit)
                seen[key] += 1

        return hear

    def parts(self, repeats: int) -> dict[str, Any]:
        """The parts of the variance of the credits."""
        parts = repeat_parts(list(self._credits.values()))
        return {
            "variance_of_prompts": parts.prompt,
            "variance_of_judge": parts.judge,
            "reliability": parts.reliability,
            "equal_in_all_repeats": parts.agreement,
            "standard_error": parts.error_of_mean(repeats),
            "standard_error_of_one": parts.error_of_mean(1),
        }


def _mean_report(reports: Sequence[Report], parts: dict[str, Any]) -> Report:
    scores = [report.score for report in reports]
    known = [score for score in scores if score is not None]
    mean = math.fsum(known) / len(known) if known else None
    spread = None
    if mean is not None and len(known) > 1:
        spread = math.sqrt(math.fsum((score - mean) ** 2 for score in known) / (len(known) - 1))
    worst = min(reports, key=lambda report: report.n_scored)
    names = dict.fromkeys(name for report in reports for name in report.by_subset)
    subsets = {name: _mean([r.by_subset[name] for r in reports if name in r.by_subset]) for name in names}
    about = {"n": len(reports), "scores": scores, "standard_deviation": spread, **parts}
    whole = _mean(reports)
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
    """The figure of the repeat that lost most, with the mean score and the mean bounds of all; further figures are its own."""
    worst = min(figures, key=lambda figure: figure.n_scored)
    scored = [figure for figure in figures if figure.score is not None]
    score = math.fsum(figure.score or 0.0 for figure in scored) / len(scored) if scored else None
    bounds = [figure.ci95 for figure in figures if figure.ci95 is not None]
    ci95 = Interval(*(math.fsum(ends) / len(bounds) for ends in zip(*bounds, strict=True))) if bounds else None
    return replace(worst, score=score, ci95=ci95)


def _sums(usages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage.items():
            found[name] = value if found.get(name) is None else found[name] + (value or 0)
    return found


def _said(about: dict[str, Any]) -> str:
    scores = ", ".join("-" if score is None else f"{100 * score:.1f}" for score in about["scores"])
    if about["variance_of_judge"] is None:
        return f"{about['n']} repeats: {scores}"
    return (
        f"{about['n']} repeats: {scores}; of the samples' variance {about['variance_of_prompts']:.4f} is the prompts' and "
        f"{about['variance_of_judge']:.4f} the judge's, {100 * about['equal_in_all_repeats']:.1f} % of them earned the same each time"
    )
