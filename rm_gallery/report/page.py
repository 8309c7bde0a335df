"""A run as one HTML page that needs nothing else: figures, plots and a table of its samples, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rm_gallery import __version__
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.report import plots
from rm_gallery.report.drawing import Plot, percent, show
from rm_gallery.report.opened import OpenRun
from rm_gallery.report.sample_table import table_data
from rm_gallery.report.summary import (
    HUGE,
    LABELS,
    MAX_LISTS,
    STEP_LABELS,
    Summary,
    binned,
    mean,
    number,
    share_of,
)
from rm_gallery.report.words import (
    COMPARED,
    OWN_UNIT,
    between,
    cut,
    duration,
    figures_of,
    findings,
    further,
    headline,
    in_unit,
    lost_of,
    rule_of,
    single_line,
    spent,
    visible,
)

MAX_SUBSETS = 400
MAX_REASONS = 40
MAX_MARKS = 500
"""Answers drawn as single marks."""
_FILES = Path(__file__).parent / "templates"


def render_page(run: OpenRun, summary: Summary) -> str:
    """The page of a run; it needs no network, no other file, and runs no script but its own."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    figures = figures_of(run, summary)
    style, script = ((_FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data, limit, shown = table_data(run, summary, figures.get("rule") == COMPARED)
    subsets = list((figures.get("by_subset") or {}).items())
    return environment.get_template("page.jinja2").render(
        title=single_line(f"{figures.get('reward') or 'run'} on {figures.get('benchmark') or run.folder.name}")[:200],
        style=style,
        script=script,
        policy=_policy(style, script),
        data=data,
        figures=figures,
        score=in_unit(figures, figures.get("score")),
        share=figures.get("rule") not in OWN_UNIT,
        headline=_kept_together(visible(headline(figures))),
        rule=visible(rule_of(figures)),
        lost=lost_of(figures),
        gauge=_gauge(figures),
        marks=_marks(figures),
        findings=[(level, _kept_together(visible(cut(text, 4_000)))) for level, text in findings(run, figures, summary)],
        facts=[(name, visible(str(value))) for name, value in _facts(run, figures)],
        further=[(visible(name), visible(value)) for name, value in further(figures.get("extra") or {})][:MAX_SUBSETS],
        subsets=[_subset_row(name, part) for name, part in subsets[:MAX_SUBSETS]],
        beside=any((part.get("baselines") or part.get("chance") is not None) for _, part in subsets),
        more_subsets=max(0, len(subsets) - MAX_SUBSETS),
        plots=[plot for plot in all_plots(summary) if plot is not None],
        spent=spent(run, figures, summary),
        latency=_latency(summary),
        reasons=[_reason(key, found) for key, found in list((figures.get("reasons") or {}).items())[:MAX_REASONS]],
        n=summary.n,
        shown=shown,
        limit=limit,
        traced=run.traced,
        folder=visible(run.folder.name),
        version=__version__,
    )


def _kept_together(text: str) -> str:
    """Percent signs stay on the line of their number."""
    return text.replace(" %", "\u00a0%")


def _policy(style: str, script: str) -> str:
    """What the page may load and run: its own style sheet and its own script, known by their hashes."""
    css, js = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    return (
        f"default-src 'none'; style-src 'sha256-{css}'; script-src 'sha256-{js}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


# -- figures ---------------------------------------------------------------------------------------------------------------


def _gauge(figures: Mapping[str, Any]) -> str:
    return plots.gauge(figures.get("score"), figures.get("ci95"), [(name, value) for name, value, _ in _marks(figures)])


def _marks(figures: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """What the score is held against: name of its mark, value, and the words for it."""
    baselines = figures.get("baselines") or {}
    compared = figures.get("rule") == COMPARED
    found = [("chance", figures.get("chance"), "an even match" if compared else "guessing")]
    found += [(name, baselines.get(name), f"{name} answer") for name in ("longest", "shortest")]
    return [(name, value, f"{words} {percent(value)}") for name, value, words in found if isinstance(value, (int, float))]


def _facts(run: OpenRun, figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    names = [("reward", "reward"), ("judge", "judge"), ("endpoint", "endpoint"), ("benchmark", "benchmark")]
    for label, key in [*names, ("version of the rule", "version"), ("data", "data")]:
        if figures.get(key):
            yield label, figures[key]
    versions = run.manifest.get("versions")
    if isinstance(versions, dict):
        yield "made with", ", ".join(f"{name} {value}" for name, value in versions.items())


def _subset_row(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    baselines = part.get("baselines") or {}
    marks = [("chance", part.get("chance")), *((kind, baselines.get(kind)) for kind in ("longest", "shortest"))]
    known = [(kind, float(value)) for kind, value in marks if isinstance(value, (int, float))]
    return {
        "name": single_line(name)[:200],
        "score": in_unit(part, part.get("score")),
        "interval": between(part) or "–",
        "n": f"{int(number(part.get('n'))):,}",
        "lost": ", ".join(lost_of(part)) or "0",
        "marks": " · ".join(percent(value).removesuffix(" %") for _, value in marks) if known else "",
        "gauge": "" if part.get("rule") in OWN_UNIT else plots.gauge(part.get("score"), part.get("ci95"), known),
    }


def _reason(key: str, found: Any) -> tuple[str, str, str, str]:
    status, _, reason = key.partition(": ")
    example = found.get("example", "") if isinstance(found, Mapping) else ""
    count = int(number(found.get("n"))) if isinstance(found, Mapping) else 0
    return status, visible(reason), f"{count:,}", cut(visible(str(example)), 600)


def _latency(summary: Summary) -> str:
    seconds = sorted(summary.calls.seconds)
    if not seconds:
        return ""
    at = [duration(seconds[min(len(seconds) - 1, int(share * len(seconds)))]) for share in (0.5, 0.95, 0.99)]
    return f"half of the replies within {at[0]}, 95 % within {at[1]}, 99 % within {at[2]} (n = {len(seconds):,})"


# -- plots -----------------------------------------------------------------------------------------------------------------


def all_plots(summary: Summary) -> list[Plot | None]:
    """Every plot this run has something for."""
    groups = [(name, name, summary.scores(name)) for name in LABELS]
    steps = [(name, style, summary.step_scores[name]) for name, style in zip(STEP_LABELS, LABELS, strict=True)]
    title = "Scores, chosen against rejected" if groups[0][2] and groups[1][2] else "Scores"
    return [
        plots.distributions("scores", title, groups, "score (higher is better)"),
        plots.distributions("steps", "Scores of single steps", steps, "score of a step", "steps"),
        _gap_plot(summary),
        plots.reliability(summary.reliability(), mean(summary.guesses) or 0.5, summary.held_out()),
        plots.best_of_n(summary.best_of_n(), min(len(summary.lists), MAX_LISTS)),
        _length_plot(summary),
        _pair_plot(summary),
        *(_list_plot(n, summary) for n in sorted(summary.positions.lists)),
        plots.distributions(
            "latency", "Time to a reply", [("replies", "unlabelled", summary.calls.seconds)], "seconds", "replies"
        ),
    ]


def _gap_plot(summary: Summary) -> Plot | None:
    title = "Score gap, best chosen minus best rejected"
    plot = plots.distributions(
        "gaps", title, [("samples", "signed", summary.gaps)], "score gap (right of 0: in order)", "samples"
    )
    if plot is None:
        return None
    right = summary.ordering()
    ties = sum(gap == 0 for gap in summary.gaps)
    says = f"{percent(right.value)} in the right order, ties counting half; {ties:,} of them equal. {plot.says}"
    return replace(plot, says=says)


def _length_plot(summary: Summary) -> Plot | None:
    answers = summary.answers
    drawn = [answers[place] for place in seeded_positions(len(answers), MAX_MARKS, 0)]
    scores = [min(max(answer.score, -HUGE), HUGE) for answer in answers]
    bins = binned([float(answer.length) for answer in answers], scores) if answers else []
    rho = summary.length_correlation()
    says = f"n = {len(answers):,} answers{f', {len(drawn)} of them drawn' if len(drawn) < len(answers) else ''}. "
    says += (
        f"Spearman correlation of length and score: {show(rho, 2)}."
        if rho is not None
        else "No correlation: one does not vary."
    )
    longer, chosen = summary.longer.share, summary.longer_chosen.share
    if longer.n:
        says += (
            f" Where the lengths of a chosen and a rejected answer differ, the longer one scores higher in "
            f"{percent(longer.value)} and is the chosen one in {percent(chosen.value)} of {longer.n:,} pairs."
        )
    means = [(found.x, found.share.k / found.share.n, found.share.n) for found in bins]
    return plots.length_plot([(a.length, a.score, a.label) for a in drawn], means, says)


def _pair_plot(summary: Summary) -> Plot | None:
    pairs = summary.positions.pairs
    games = [seen for seen in summary.positions.games if seen.what != "none"]
    n, ties = len(games), sum(seen.what == "tie" for seen in games)
    fair = (n - ties) / (2 * n) if n else None
    parts = [(f"shown {place} wins", share_of(place, games), fair) for place in ("first", "second")]
    parts += [("tie", share_of("tie", games), None)] if ties else []
    kinds = [("same in both orders", "same"), ("winner flips", "flipped"), ("tie in one order", "tie")]
    parts += [(name, share_of(kind, pairs), None) for name, kind in kinds if pairs]
    says = f"n = {n:,} verdicts on pairs, {len(pairs):,} pairs in both orders. The dashed line is where a fair judge would be."
    if lost := len(summary.positions.games) - n:
        says += f" {lost:,} further games have no usable verdict."
    return plots.shares("position", "Position in a pair", parts, says, "share of verdicts, or of pairs")


def _list_plot(n: int, summary: Summary) -> Plot | None:
    seen = summary.positions.lists[n]
    parts = [(f"place {place + 1}", share_of(place, seen), 1 / n) for place in range(min(n, 12))]
    says = f"n = {len(seen):,} lists of {n} with one winner; a fair judge is at {percent(1 / n)} (dashed)."
    return plots.shares(f"position-{n}", f"Place of the winner in lists of {n}", parts, says, "share of winners")
