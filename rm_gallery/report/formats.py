"""The report of a run in every form: a page for people, Markdown for a pull request, JSON for programs, JUnit for CI."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import as_json
from rm_gallery.core.utils.shown import cut, percent, show, told_apart
from rm_gallery.gallery.benchmarks.figures import by_cause, plain
from rm_gallery.report.page import all_plots, render_page
from rm_gallery.report.words import (
    OWN_UNIT,
    between,
    figures_of,
    findings,
    headline,
    in_unit,
    lost_of,
    rule_of,
    single_line,
    spent,
)
from rm_gallery.study.compare import check_fits, held_against, reference_run
from rm_gallery.study.opened import OpenRun, sound
from rm_gallery.study.summary import Share, Summary, number, summarize
from rm_gallery.study.task import Data

Say = Callable[[str], object]


def _silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Gate:
    """What a run has to reach.

    Attributes:
        fail_under: lowest score that passes, a share from 0 to 1 or, with `own_unit`, in the reward's own unit; None for any.
        max_failures: failed samples that still pass.
        max_unscored: unscored samples that still pass; by default none where a figure is held to something, else any number.
        reference: the run that it must not be shown to be worse than.
        beats: what the score has to exceed, by name (longest, shortest, chance).
        surely: whether the lower end of the 95 % interval has to reach `fail_under`, too.
        own_unit: whether the figure is no share.
    """

    fail_under: float | None = None
    max_failures: int = 0
    max_unscored: int | None = None
    reference: OpenRun | None = None
    beats: Sequence[str] = ()
    surely: bool = False
    own_unit: bool = False

    def __post_init__(self) -> None:
        least = self.fail_under
        if least is not None and not (math.isfinite(least) if self.own_unit else 0.0 <= least <= 1.0):
            unit = "a number in the reward's own unit" if self.own_unit else "a share from 0 to 1"
            raise ConfigError(f"--fail-under is {least!r}; the lowest score that passes is {unit}.")

    @property
    def unscored_allowed(self) -> float:
        """Unscored samples that still pass."""
        if self.max_unscored is not None:
            return self.max_unscored
        return 0 if self.fail_under is not None or self.reference is not None or self.beats else math.inf

    def missed(
        self, figures: Mapping[str, Any], *, finished: bool = True, run: OpenRun | None = None, say: Say = _silent
    ) -> Iterator[tuple[str, str]]:
        """(part, why) of everything that does not pass; parts are `score`, `failed`, `unscored`, `worse` and `finished`.

        `figures` are those of a report, saved or as `Report.to_dict` gives them; `run` is its folder, for a gate with a
        reference, and `say` hears how it compares where it passes.
        """
        if figures.get("score") is None:
            yield "score", "no sample could be scored, so there is no score"
        else:
            yield from (("score", why) for why in self._score(figures))
        failed, unscored = int(number(figures.get("n_failed"))), _unscored(figures)
        if failed > self.max_failures:
            yield "failed", f"{_samples(failed)} failed; {self.max_failures:,} may"
        if unscored > self.unscored_allowed:
            yield (
                "unscored",
                f"{_samples(unscored)} {'is' if unscored == 1 else 'are'} unscored; {self.unscored_allowed:,} may be",
            )
        if self.reference is not None and run is not None and figures.get("score") is not None:
            worse, said = held_against(run, self.reference)
            if worse:
                yield "worse", said
            else:
                say(said)
        if not finished:
            yield "finished", single_line(str(figures.get("stopped") or "the run is not finished; continue it"))

    def _score(self, figures: Mapping[str, Any]) -> Iterator[str]:
        if self.fail_under is not None and (why := under(figures, self.fail_under, self.surely)) is not None:
            yield why
        beside = {**(figures.get("baselines") or {}), "chance": figures.get("chance")}
        for name in self.beats:
            level = beside.get(name)
            if level is None:
                yield f"there is no baseline '{name}' for {figures.get('benchmark') or 'these data'} to be beaten"
            elif (why := under(figures, level, strict=True)) is not None:
                yield f"{why}, which is the baseline '{name}'"

    def fits(self, data: Data) -> None:
        """Raise ConfigError, before anything is paid, where the data or the rule are not those of the run compared with."""
        if self.reference is not None:
            check_fits(self.reference, data)

    @contextmanager
    def keeping(self, run_dir: str | None, option: str = "--fail-if-worse-than") -> Iterator[str | None]:
        """The run folder to judge into: the one given, or where runs are compared one that is gone in the end."""
        if self.reference is None or run_dir is not None:
            if self.reference is not None and Path(run_dir or "").resolve() == self.reference.folder.resolve():
                raise ConfigError(f"--out is the run of {option}; a run cannot be held against itself.")
            yield run_dir
            return
        with TemporaryDirectory(prefix="rm-gallery-") as spare:
            yield str(Path(spare) / "run")


def gate_of(
    fail_under: float | None = None,
    fail_if_worse_than: Path | None = None,
    max_failures: int = 0,
    max_unscored: int | None = None,
    *,
    own_unit: bool = False,
) -> Gate:
    """The gate these options set; ConfigError, before anything is paid, for a limit or a run that is none."""
    reference = None if fail_if_worse_than is None else reference_run(fail_if_worse_than)
    return Gate(fail_under, max_failures, max_unscored, reference, own_unit=own_unit)


def under(figures: Mapping[str, Any], least: float, surely: bool = False, strict: bool = False) -> str | None:
    """Why a figure does not reach the least that passes, or None; where scores are missing its worst case decides.

    Args:
        figures: those of a report with a score.
        least: the limit, in the figure's unit.
        surely: hold the lower end of the 95 % interval to it, moved down as far as the worst case lies below the score.
        strict: whether it has to lie above the limit.
    """
    score, ci95, missing = figures["score"], figures.get("ci95"), _missing(figures)
    bounds = figures.get("bounds") if missing else (score, score)
    worst = bounds[0] if bounds is not None and bounds[0] is not None else -math.inf
    lower = worst - (score - ci95[0]) if surely and ci95 else worst
    if lower > least or (lower == least and not strict):
        return None
    shown, digits = (show, 4) if figures.get("rule") in OWN_UNIT else (percent, 1)
    known = next((value for value in (score, worst, lower) if value < least), least)
    found, limit = told_apart(known, least, shown, digits) if math.isfinite(known) else ("", shown(least, digits))
    if known == least:
        said = f"the score {shown(score, digits)} does not exceed {shown(least, digits)}"
    elif known == score:
        chance = ci95 is not None and ci95[1] >= least
        word = "holds the limit, so chance may explain it" if chance else "is below it, too"
        said = f"the score {found} is below {limit}" + ("" if ci95 is None else f"; its 95 % interval {word}")
    elif known == lower and known != worst:
        said = f"the score {shown(score, digits)} has an interval from {found}, below {limit}"
    else:
        low = f"is {found} at worst" if found else "has no lower end known"
        said = f"the score {shown(score, digits)} {low}, below {limit}"
    if not missing:
        return said
    causes = by_cause(figures.get("missing") or {})
    ends = (
        ""
        if bounds is None or None in bounds
        else f", so it lies from {shown(bounds[0], digits)} to {shown(bounds[1], digits)}"
    )
    return f"{said}; {missing:,} of {int(number(figures.get('n'))):,} are missing{f' ({causes})' if causes else ''}{ends}"


def _missing(figures: Mapping[str, Any]) -> int:
    """How many scores are missing; reports of earlier versions do not tell what the protocol left out."""
    known = figures.get("missing")
    if isinstance(known, Mapping):
        return sum(int(number(count)) for count in known.values())
    n, scored = figures.get("n"), figures.get("n_scored")
    return 0 if n is None or scored is None else int(number(n)) - int(number(scored))


def _unscored(figures: Mapping[str, Any]) -> int:
    """Unscored samples that the rule asks about."""
    unscored, n, scored = (int(number(figures.get(name))) for name in ("n_unscored", "n", "n_scored"))
    return unscored - max(0, n - scored - _missing(figures))


def _samples(n: int) -> str:
    return "1 sample" if n == 1 else f"{n:,} samples"


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
        lines += ["", " · ".join(f"{_md(name)}: {_md(value)}" for name, value in costs)]
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
