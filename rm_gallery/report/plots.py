"""Plots of a report as inline SVG: labelled axes, n, colours from the page's style sheet, and their
numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rm_gallery.core.stats import Floats, Numbers, np
from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.stats.ranking import BestOf
from rm_gallery.core.stats.validation import HeldOut
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.shown import percent, show
from rm_gallery.core.utils.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Plot,
    frame,
    plot,
)
from rm_gallery.report.fill import draw
from rm_gallery.study.summary import (
    HUGE,
    LABELS,
    MAX_LISTS,
    STEP_LABELS,
    Bin,
    SeenThings,
    Share,
    Summary,
    binned,
    mean,
)

BASE, END = HEIGHT - BOTTOM, WIDTH - RIGHT
"""Where the axes of a plot end, below and on the right."""
MAX_MARKS = 500
"""Answers drawn as single marks."""
DISCRETE = 12
MOST_BARS = 24


# -- distributions ---------------------------------------------------------------------------------


def _array(values: Numbers) -> Floats:
    return np.clip(np.asarray(values, dtype=np.float64), -HUGE, HUGE)


def _drawn_range(values: Floats) -> tuple[float, float]:
    """A range for drawing values in which a few far ones do not flatten the others."""
    low, inner_low, inner_high, high = np.quantile(values, (0, 0.01, 0.99, 1)).tolist()
    spread = inner_high - inner_low
    if spread > 0 and high - low > 2 * spread:
        return max(low, inner_low - spread / 4), min(high, inner_high + spread / 4)
    return low, high


def _edges(values: Floats, zero: bool) -> list[float]:
    """Edges of the bars: around each value where there are few, else of equal width, with one at 0
    where `zero`.
    """
    low, high = _drawn_range(values)
    different = np.unique(np.clip(values, low, high))
    if len(different) == 1:
        step = max(1.0, abs(low)) / 4
        return [low + (k - 2.5) * step for k in range(6)]
    if len(different) <= DISCRETE:
        half = float(np.diff(different).min()) / 2
        if half > 0 and (high - low) / half <= 4 * MOST_BARS:
            return np.arange(low - half, high + 2 * half, 2 * half).tolist()
    count = min(MOST_BARS, max(6, math.ceil(math.sqrt(len(values)))))
    width = (high - low) / count
    if zero and low < 0 < high:
        return [k * width for k in range(-math.ceil(-low / width), math.ceil(high / width) + 1)]
    return list(map(float, np.linspace(low, high, count + 1)))


def _drawing(
    template: str,
    x: Axis,
    y: Axis,
    labels: tuple[str, str],
    names: Iterable[tuple[float, str]] | None = None,
    y_percent: bool = False,
    **marks: Any,
) -> list[str]:
    """Axes with their labels, and what the template draws between them."""
    edges = {"left": LEFT, "right": END, "top": TOP, "base": BASE}
    return [frame(x, y, *labels, names, y_percent), draw(template, x=x, y=y, **edges, **marks)]


def distributions(
    name: str,
    title: str,
    groups: Sequence[tuple[str, str, Numbers]],
    x_label: str,
    counted: str = "answers",
) -> Plot | None:
    """Histogram of one group, or of two: the first above the axis, the second below it. None
    without any value.

    Args:
        name: of the plot.
        title: of the plot.
        groups: (name, class, values); groups without values are left out, at most two are drawn.
        x_label: what the values are, with unit.
        counted: what one value belongs to.
    """
    shown = [(label, style, _array(values)) for label, style, values in groups if len(values)][:2]
    if not shown:
        return None
    signed, everything = counted == "samples", np.concatenate([values for _, _, values in shown])
    edges = _edges(everything, signed)
    first, last = edges[0], edges[-1]
    counts = [np.histogram(np.clip(values, first, last), edges)[0] for _, _, values in shown]
    both = len(shown) == 2  # of different size, so that shares are drawn, those of the second down
    heights = [counts[0] / len(shown[0][2]), -counts[1] / len(shown[1][2])] if both else counts
    tops = np.concatenate(heights)
    x = Axis(first, last, LEFT, END, 6)
    y = Axis(min(0.0, tops.min()) * 1.15, tops.max() * 1.15, BASE, TOP, 5)
    if not both:
        y.ticks = [tick for tick in y.ticks if tick == int(tick)]
    labels = x_label, f"share of the {counted}" if both else counted
    bars = [
        list(zip(edges, edges[1:], *group, strict=False))
        for group in zip(counts, heights, strict=True)
    ]
    drawing = _drawing(
        "bars",
        x,
        y,
        labels,
        y_percent=both,
        groups=list(zip(shown, bars, strict=True)),
        signed=signed,
    )
    says = "; ".join(
        f"{label}: n = {len(values):,}, median {show(float(np.median(values)))}"
        for label, _, values in shown
    )
    says += "."
    if beyond := ((everything < first) | (everything > last)).sum():
        says += f" {beyond:,} values lie beyond the axis and are in the outermost bars."
    rows = (
        (f"{show(low)} to {show(high)}", *(f"{count:,}" for count in in_bin))
        for (low, high), *in_bin in zip(pairwise(edges), *counts, strict=True)
    )
    return plot(name, title, drawing, says, (x_label, *(label for label, _, _ in shown)), rows)


# -- curves ----------------------------------------------------------------------------------------


def reliability(bins: Sequence[Bin], fair: float, fitted: HeldOut | None = None) -> Plot | None:
    """How often the highest score is right, by how far it is ahead; with a fitted curve where one
    is given.

    Args:
        bins: see `Summary.reliability`.
        fair: what guessing reaches.
        fitted: a curve from gaps to shares, with how it does on prompts it was not fitted on.
    """
    n = sum(gap_bin.share.n for gap_bin in bins)
    if not n:
        return None
    x = Axis(0.0, bins[-1].x * 1.05 or 1.0, LEFT, END, 5)
    y = Axis(0.0, 1.0, BASE, TOP, 5)
    says = (
        f"n = {n:,} samples with a gap, {len(bins)} bins of about equal size, from the smallest "
        f"gaps ({percent(bins[0].share.value)} right) to the largest "
        f"({percent(bins[-1].share.value)} right); bars are 95 % intervals."
    )
    fit: list[tuple[float, float]] = []
    if fitted:
        places = [x.high * k / 60 for k in range(61)]
        fit = list(zip(places, map(float, fitted.map(places)), strict=True))
        errors = fitted.calibration
        says += (
            f" The green curve is logistic, fitted on half of the prompts; on the other half its "
            f"expected calibration error is {percent(errors.ece)} (up to "
            f"{percent(errors.ece_by_chance)} would be chance)."
        )
    labels = "size of the score gap", "highest score is right"
    rates = [(b.x, b.share.value or 0.0, b.share.ci95, _share_text(b.share)) for b in bins]
    drawing = _drawing("rates", x, y, labels, y_percent=True, fair=fair, fit=fit, rates=rates)
    rows = (
        (f"{show(b.low)} to {show(b.high)}", _share_text(b.share), _interval_text(b.share.ci95))
        for b in bins
    )
    columns = ("gap", "highest score is right", "95 % interval")
    return plot("reliability", "Is a larger gap more often right?", drawing, says, columns, rows)


def best_of_n(curve: Sequence[BestOf], drawn: int) -> Plot | None:
    """How often picking the highest score of n answers finds a chosen one, below the best anyone
    could do.
    """
    if len(curve) < 2:
        return None
    x = Axis(1.0, float(curve[-1].n), LEFT + 10, END - 10)
    y = Axis(0.0, 1.0, BASE, TOP, 5)
    names = [(float(point.n), str(point.n)) for point in curve]
    labels = "answers to pick from (n)", "pick is a chosen answer"
    rates = [(b.n, b.value, b.ci95, "") for b in curve]
    fit = [(b.n, b.oracle) for b in curve]
    drawing = _drawing(
        "rates",
        x,
        y,
        labels,
        names,
        True,
        fit=fit,
        fit_name="a chosen one is among the n",
        rates=rates,
    )
    first, last = curve[0], curve[-1]
    says = (
        f"n = {drawn:,} lists: picking blindly finds a chosen answer in {percent(first.value)}, "
        f"picking the best of {last.n} by score in {percent(last.value)}; bars are 95 % intervals."
    )
    rows = ((str(b.n), percent(b.value), _interval_text(b.ci95), percent(b.oracle)) for b in curve)
    columns = ("n", "pick is chosen", "95 % interval", "a chosen one is there")
    return plot("best-of-n", "Best of n by this reward", drawing, says, columns, rows)


# -- shares ----------------------------------------------------------------------------------------


def shares(
    name: str, title: str, parts: Sequence[tuple[str, Share, float | None]], says: str, x_label: str
) -> Plot | None:
    """Horizontal bars of shares with their intervals, and where a fair judge would be."""
    known = [(label, share, fair) for label, share, fair in parts if share.n]
    if not known:
        return None
    base = TOP + 34 * len(known)
    x = Axis(0.0, 1.0, 148, END - 34, 4)
    drawing = draw("shares", x=x, shares=known, top=TOP, base=base, x_label=x_label)
    rows = (
        (label, percent(share.value), _interval_text(share.ci95), f"{share.n:,}", percent(fair))
        for label, share, fair in known
    )
    columns = ("", "share", "95 % interval", "n", "fair")
    return plot(name, title, [drawing], says, columns, rows, base + BOTTOM)


def gauge(
    score: float | None, ci95: Sequence[float] | None, marks: Sequence[tuple[str, float | None]]
) -> str:
    """A score on a line from 0 to 100 %, its interval, and what it is held against; it grows with
    its container.
    """
    return draw("gauge", score=score, ci95=ci95, marks=marks)


def _share_text(share: Share) -> str:
    return f"{percent(share.value)} of {share.n:,}"


def _interval_text(ci95: Interval | None) -> str:
    return "–" if ci95 is None else f"{100 * ci95.low:.1f} – {100 * ci95.high:.1f} %"


# -- of a run --------------------------------------------------------------------------------------


def all_plots(summary: Summary) -> list[Plot | None]:
    """Every plot this run has something for."""
    groups = [(name, name, summary.scores(name)) for name in LABELS]
    steps = [
        (name, style, summary.step_scores[name])
        for name, style in zip(STEP_LABELS, LABELS, strict=True)
    ]
    both = all(len(scores) for _, _, scores in groups[:2])
    title = "Scores, chosen against rejected" if both else "Scores"
    times = [("replies", "unlabelled", summary.calls.seconds)]
    return [
        distributions("scores", title, groups, "score (higher is better)"),
        distributions("steps", "Scores of single steps", steps, "score of a step", "steps"),
        _gap_plot(summary),
        reliability(summary.reliability(), mean(summary.guesses) or 0.5, summary.held_out()),
        best_of_n(summary.best_of_n(), min(len(summary.lists), MAX_LISTS)),
        _length_plot(summary),
        _pair_plot(summary),
        *(_list_plot(n, seen) for n, seen in sorted(summary.positions.lists.items())),
        distributions("latency", "Time to a reply", times, "seconds", "replies"),
    ]


def _gap_plot(summary: Summary) -> Plot | None:
    title = "Score gap, best chosen minus best rejected"
    groups = [("samples", "signed", summary.gaps)]
    histogram = distributions("gaps", title, groups, "score gap (right of 0: in order)", "samples")
    says = (
        f"{percent(summary.ordering().value)} in the right order, ties counting half; "
        f"{summary.gaps.count(0.0):,} of them equal. "
    )
    return histogram and replace(histogram, says=says + histogram.says)


def _length_plot(summary: Summary) -> Plot | None:
    """Score against answer length on a logarithmic axis: drawn answers as marks, means of bins over
    all answers as a line.
    """
    answers = summary.answers
    if not len(answers):
        return None
    drawn = [answers[place] for place in seeded_positions(len(answers), MAX_MARKS, 0)]
    means = [
        (b.x, b.share.k / b.share.n, b.share.n)
        for b in binned(_array(answers.lengths), _array(answers.scores))
    ]
    rho, longer = summary.length_correlation(), summary.longer.share
    says = (
        f"n = {len(answers):,} "
        f"answers{f', {len(drawn)} of them drawn' if len(drawn) < len(answers) else ''}. "
    )
    says += (
        "No correlation: one does not vary."
        if rho is None
        else f"Spearman correlation of length and score: {show(rho, 2)}."
    )
    if longer.n:
        says += (
            f" Where the lengths of a chosen and a rejected answer differ, the longer one scores "
            f"higher in {percent(longer.value)} and is the chosen one in "
            f"{percent(summary.longer_chosen.share.value)} of {longer.n:,} pairs."
        )
    low, high = _drawn_range(_array([answer.score for answer in drawn]))
    margin = (high - low) * 0.04
    lengths = [math.log10(max(1, answer.length)) for answer in drawn]
    x = Axis(min(lengths), max(lengths), LEFT + 6, END - 6, 5)
    y = Axis(low - margin, high + margin, BASE, TOP, 5)
    round_ones = [
        (math.log10(n), f"{n:,}") for power in range(8) for n in (10**power, 3 * 10**power)
    ]
    names = [(at, name) for at, name in round_ones if x.low - 1e-9 <= at <= x.high + 1e-9]
    if len(names) < 2:
        names = [(value, f"{10**value:,.0f}") for value in (x.low, x.high)]
    drawing = _drawing(
        "answers",
        x,
        y,
        ("answer length in characters (log scale)", "score"),
        names,
        marks=[(at, *answer[1:]) for at, answer in zip(lengths, drawn, strict=True)],
        means=[(math.log10(max(1.0, length)), score) for length, score, _ in means],
    )
    rows = ((f"{length:,.0f}", show(score), f"{n:,}") for length, score, n in means)
    columns = ("mean length (characters)", "mean score", "answers")
    return plot("length", "Answer length against score", drawing, says, columns, rows)


def _pair_plot(summary: Summary) -> Plot | None:
    games, pairs = summary.positions.games, summary.positions.pairs
    counts, usable = games.counts(), ("first", "second", "tie")
    n, ties = sum(counts.get(kind, 0) for kind in usable), counts.get("tie", 0)
    fair = (n - ties) / (2 * n) if n else None
    parts = [
        (f"shown {place} wins", games.share(place, of=usable), fair)
        for place in ("first", "second")
    ]
    parts += [("tie", games.share("tie", of=usable), None)] if ties else []
    kinds = {"same in both orders": "same", "winner flips": "flipped", "tie in one order": "tie"}
    parts += [(name, pairs.share(kind), None) for name, kind in kinds.items()]
    says = (
        f"n = {n:,} verdicts on pairs, {len(pairs):,} pairs in both orders. The dashed line is "
        f"where a fair judge would be."
    )
    if lost := len(games) - n:
        says += f" {lost:,} further games have no usable verdict."
    return shares("position", "Position in a pair", parts, says, "share of verdicts, or of pairs")


def _list_plot(n: int, places: SeenThings) -> Plot | None:
    parts = [(f"place {place + 1}", places.share(place), 1 / n) for place in range(min(n, 12))]
    says = (
        f"n = {len(places):,} lists of {n} with one winner; a fair judge is at {percent(1 / n)} "
        f"(dashed)."
    )
    title = f"Place of the winner in lists of {n}"
    return shares(f"position-{n}", title, parts, says, "share of winners")
