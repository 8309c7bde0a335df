"""A run in every form: page, Markdown for a pull request, JSON for programs, JUnit for CI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import as_json
from rm_gallery.core.utils.shown import cut, number
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.gallery.benchmarks.lead import (
    corrected_figure,
    count_of,
    in_unit,
    whole_name,
    worth,
)
from rm_gallery.report.fill import fill
from rm_gallery.report.gate import QualityGate
from rm_gallery.report.page import render_page, run_report
from rm_gallery.report.run_figures import (
    figures_of,
    findings,
    lost_of,
)
from rm_gallery.study.runs import OpenRun, sound
from rm_gallery.study.summary import Share, Summary, summarize

FORMATS = ("html", "md", "json", "junit")


def render(
    run: OpenRun,
    form: str = "html",
    gate: QualityGate | None = None,
    title: str | None = None,
    most: int | None = None,
) -> str:
    """The report of a run in one of `FORMATS`, under a title of one's own; a page with `most` is a
    summary (see `render_page`).

    Raises:
        ConfigError: another format.
        DataError: a file of the run holds what no run writes.
    """
    if form not in FORMATS:
        raise ConfigError(f"format is {form!r}; formats are {', '.join(FORMATS)}.")
    with sound(run):
        summary = summarize(run)
        if form == "html":
            return render_page(run, summary, title, most)
        if form == "md":
            return _markdown(run, summary, title)
        if form == "json":
            return _json(run, summary)
        return _junit(run, figures_of(run, summary), gate or QualityGate())


def _markdown(run: OpenRun, summary: Summary, title: str | None = None) -> str:
    report = run_report(run, summary, title)
    figures = report["figures"]
    whole = whole_name(figures.get("extra") or {})
    return fill("report.md.jinja2", **report, parts=[*report["subsets"], (whole, figures)])


# -- JSON ------------------------------------------------------------------------------------------


def _share_dict(share: Share) -> dict[str, Any]:
    return {"value": share.value, "n": share.n, "ci95": share.ci95}


def _json(run: OpenRun, summary: Summary) -> str:
    """The saved figures, and under `samples` those that only the samples tell."""
    figures = figures_of(run, summary)
    people = corrected_figure(figures)
    positions, calls = summary.positions, summary.calls
    seen = {
        "by_status": dict(summary.statuses),
        "ordered_right": _share_dict(summary.ordering()),
        "reliability": [
            {
                "gap_low": point.low,
                "gap_high": point.high,
                "gap_mean": point.x,
                **_share_dict(point.share),
            }
            for point in summary.reliability()
        ],
        "best_of_n": [point._asdict() for point in summary.best_of_n()],
        "length_spearman": summary.length_correlation(),
        "longer_scores_higher": _share_dict(summary.longer.share),
        "longer_is_chosen": _share_dict(summary.longer_chosen.share),
        "first_wins": _share_dict(positions.first),
        "flips": _share_dict(positions.flips),
        "verdicts": positions.games.counts(),
        "traced": {
            "calls": calls.n,
            "cached": calls.cached,
            "asked_again": calls.again,
            "seconds": sum(calls.seconds),
        },
    }
    whole = {
        "worth": worth(figures),
        **({"corrected": people} if people else {}),
        **{name: value for name, value in figures.items() if name not in ("worth", "corrected")},
        "finished": run.finished,
        "findings": [[level, text] for level, text in findings(run, figures, summary)],
        "spent": run.summary.get("spent"),
        "samples": seen,
    }
    return as_json(plain(whole)).decode()


# -- JUnit -----------------------------------------------------------------------------------------


class JUnitCase(NamedTuple):
    """A test case of JUnit: it fails with a reason, is skipped with one, or passes."""

    title: str
    says: str
    failure: str | None = None
    skipped: str = ""


def _junit(run: OpenRun, figures: Mapping[str, Any], gate: QualityGate) -> str:
    """The gate as test cases: one that is missed is a failure; what is unscored is skipped."""
    missed: dict[str, str] = {}
    for part, why in gate.missed(figures, finished=run.finished, run=run):
        missed[part] = f"{missed[part]}; {why}" if part in missed else why
    cases = list(_cases(run, figures, missed))
    return fill(
        "report.junit.jinja2",
        name=f"{figures.get('benchmark') or run.folder.name}: {figures.get('reward') or 'run'}",
        cases=cases,
        failures=sum(bool(case.failure) for case in cases),
        skipped=sum(bool(case.skipped and not case.failure) for case in cases),
        seconds=number(figures.get("seconds")),
    )


def _cases(
    run: OpenRun, figures: Mapping[str, Any], missed: Mapping[str, str]
) -> Iterator[JUnitCase]:
    """One case for the score, one for each subset, one for each reason without a score, and one for
    the end of the run.
    """
    yield JUnitCase("score", worth(figures), missed.get("score"))
    for subset, part in (figures.get("by_subset") or {}).items():
        known = part.get("score") is not None or count_of(part, "n_scored")
        yield JUnitCase(
            f"subset {subset}",
            f"{in_unit(part, part.get('score'))}, n = {count_of(part, 'n'):,}, without a score: "
            f"{', '.join(lost_of(part)) or 'none'}",
            None if known else "no sample of it could be scored",
        )
    reasons = figures.get("reasons") or {}
    for key, entry in reasons.items():
        says = f"{count_of(entry, 'n'):,} samples: {cut(str(entry.get('example', '')), 500)}"
        failure = missed.get(key.partition(":")[0])
        yield JUnitCase(f"samples {key}", says, failure, "" if key.startswith("failed") else says)
    for part in ("failed", "unscored"):
        if part in missed and not any(key.startswith(part) for key in reasons):
            yield JUnitCase(f"{part} samples", missed[part], missed[part])
    if run.damage:
        yield JUnitCase("samples.jsonl", run.damage, skipped=run.damage)
    unfinished = missed.get("finished")
    yield JUnitCase("finished", unfinished or "the run is finished", unfinished)
