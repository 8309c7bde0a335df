"""The report of a run in every form: a page for people, Markdown for a pull request, JSON for programs, JUnit for CI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import as_json
from rm_gallery.gallery.benchmarks.figures import plain
from rm_gallery.report.gates import Gate
from rm_gallery.report.opened import OpenRun, sound
from rm_gallery.report.page import all_plots, render_page
from rm_gallery.report.summary import Share, Summary, number, summarize
from rm_gallery.report.words import (
    between,
    cut,
    figures_of,
    findings,
    headline,
    in_unit,
    lost_of,
    rule_of,
    single_line,
    spent,
)

LONGEST = 4_000
"""Bytes of a name or a sentence, at most."""
FORMATS = ("html", "md", "json", "junit")


def render(run: OpenRun, form: str = "html", gate: Gate | None = None) -> str:
    """The report of a run in one of `FORMATS`.

    Raises:
        ConfigError: another format.
        DataError: a file of the run holds what no run writes.
    """
    if form not in FORMATS:
        raise ConfigError(f"format is {form!r}; formats are {', '.join(FORMATS)}.")
    with sound(run):
        summary = summarize(run)
        if form == "html":
            return render_page(run, summary)
        if form == "md":
            return _markdown(run, summary)
        return _json(run, summary) if form == "json" else _junit(run, figures_of(run, summary), gate or Gate())


def _line(text: Any) -> str:
    """A text on one line, a huge one cut."""
    return single_line(cut(str(text), LONGEST))


# -- Markdown --------------------------------------------------------------------------------------------------------------


def _md(text: Any) -> str:
    """Text from outside as Markdown that is only text."""
    found = _line(text)
    return "".join(f"\\{c}" if c in "\\`*_[]|~#!" else {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(c, c) for c in found)


def _markdown(run: OpenRun, summary: Summary) -> str:
    figures = figures_of(run, summary)
    title = _md(f"{figures.get('reward') or 'run'} on {figures.get('benchmark') or run.folder.name}")
    lines = [f"# {title}", "", f"**{_md(headline(figures))}**", "", f"Rule: {_md(rule_of(figures))}."]
    lines += [
        "",
        *(f"- {'⚠ ' if level == 'warn' else ''}{_md(text)}" for level, text in findings(run, figures, summary)),
    ]
    parts = [*(figures.get("by_subset") or {}).items(), ("all", figures)]
    lines += ["", "| subset | score | 95 % interval | n | no score |", "|---|---:|---:|---:|---:|"]
    for name, part in parts:
        n, lost = int(number(part.get("n"))), ", ".join(lost_of(part)) or "0"
        lines.append(f"| {_md(name)} | {in_unit(part, part.get('score'))} | {between(part) or '–'} | {n:,} | {lost} |")
    known = [plot for plot in all_plots(summary) if plot is not None]
    lines += ["", *(f"- {plot.title}: {_md(plot.says)}" for plot in known)]
    if reasons := figures.get("reasons"):
        lines += ["", "| why there is no score | samples | example |", "|---|---:|---|"]
        for key, found in reasons.items():
            lines.append(f"| {_md(key)} | {int(number(found.get('n'))):,} | {_md(cut(str(found.get('example', '')), 300))} |")
    if costs := spent(run, figures, summary):
        lines += ["", " · ".join(f"{_md(name)}: {value}" for name, value in costs)]
    return "\n".join(lines) + "\n"


# -- JSON ------------------------------------------------------------------------------------------------------------------


def _share(share: Share) -> dict[str, Any]:
    return {"value": share.value, "n": share.n, "ci95": share.ci95}


def _json(run: OpenRun, summary: Summary) -> str:
    """The saved figures, and under `samples` those that only the samples tell."""
    figures = figures_of(run, summary)
    positions, calls = summary.positions, summary.calls
    seen = {
        "by_status": dict(summary.statuses),
        "ordered_right": _share(summary.ordering()),
        "reliability": [
            {"gap_low": found.low, "gap_high": found.high, "gap_mean": found.x, **_share(found.share)}
            for found in summary.reliability()
        ],
        "best_of_n": [{**found._asdict(), "ci95": list(found.ci95)} for found in summary.best_of_n()],
        "length_spearman": summary.length_correlation(),
        "longer_scores_higher": _share(summary.longer.share),
        "longer_is_chosen": _share(summary.longer_chosen.share),
        "first_wins": _share(positions.first),
        "flips": _share(positions.flips),
        "verdicts": dict(Counter(seen.what for seen in positions.games)),
        "traced": {"calls": calls.n, "cached": calls.cached, "asked_again": calls.again, "seconds": sum(calls.seconds)},
    }
    whole = {
        **figures,
        "finished": run.finished,
        "findings": [[level, text] for level, text in findings(run, figures, summary)],
        "spent": run.summary.get("spent"),
        "samples": seen,
    }
    return as_json(plain(whole)).decode()


# -- JUnit -----------------------------------------------------------------------------------------------------------------


def _junit(run: OpenRun, figures: Mapping[str, Any], gate: Gate) -> str:
    """One case for the score, one for each subset, one for each reason without a score, and one for the end of the run.

    A gate that is missed is a failure; what is unscored is skipped.
    """
    missed: dict[str, str] = {}
    for part, why in gate.missed(figures, finished=run.finished, run=run):
        missed[part] = f"{missed[part]}; {why}" if part in missed else why
    name = _line(f"{figures.get('benchmark') or run.folder.name}: {figures.get('reward') or 'run'}")
    suite = ElementTree.Element("testsuite", name=name)

    def case(title: str, says: str, failure: str = "", skipped: str = "") -> None:
        element = ElementTree.SubElement(suite, "testcase", classname=name, name=_line(title))
        if failure:
            ElementTree.SubElement(element, "failure", message=_line(failure)).text = _line(says)
        elif skipped:
            ElementTree.SubElement(element, "skipped", message=_line(skipped))
        ElementTree.SubElement(element, "system-out").text = _line(says)

    case("score", headline(figures), missed.get("score", ""))
    for subset, part in (figures.get("by_subset") or {}).items():
        lost = "" if part.get("score") is not None else "no sample of it could be scored"
        n, without = int(number(part.get("n"))), ", ".join(lost_of(part)) or "none"
        case(f"subset {subset}", f"{in_unit(part, part.get('score'))}, n = {n:,}, without a score: {without}", lost)
    for key, found in (figures.get("reasons") or {}).items():
        says = f"{int(number(found.get('n'))):,} samples: {cut(str(found.get('example', '')), 500)}"
        why = missed.get(key.partition(":")[0], "")
        case(f"samples {key}", says, why, "" if key.startswith("failed") else says)
    for part in ("failed", "unscored"):
        if part in missed and not any(key.startswith(part) for key in figures.get("reasons") or {}):
            case(f"{part} samples", missed[part], missed[part])
    case("finished", "the run is finished" if run.finished else missed["finished"], missed.get("finished", ""))
    counts = {kind: sum(1 for _ in suite.iter(kind)) for kind in ("testcase", "failure", "skipped")}
    suite.attrib |= {"tests": str(counts["testcase"]), "failures": str(counts["failure"])}
    suite.attrib |= {"skipped": str(counts["skipped"]), "errors": "0", "time": f"{number(figures.get('seconds')):.3f}"}
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
