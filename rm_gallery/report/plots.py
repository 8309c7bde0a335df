"""Plots of a report as inline SVG: labelled axes, n, colours from the page's style sheet, and their
numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise

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
    line,
    plot,
    polyline,
    text,
)
from rm_gallery.study.summary import (
    HUGE,
    LABELS,
    MAX_LISTS,
    STEP_LABELS,
    Bin,
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
    counts: list[list[int]] = [
        np.histogram(np.clip(values, first, last), edges)[0].tolist() for _, _, values in shown
    ]
    both = len(shown) == 2  # of different size, so that shares are drawn
    parts = [len(values) if both else 1 for _, _, values in shown]
    bottom = -max(counts[1]) / parts[1] if both else 0.0
    x = Axis(first, last, LEFT, END, 6)
    y = Axis(bottom * 1.15, max(counts[0]) / parts[0] * 1.15, BASE, TOP, 5)
    if not both:
        y.ticks = [tick for tick in y.ticks if tick == int(tick)]
    body = [frame(x, y, x_label, f"share of the {counted}" if both else counted, y_percent=both)]
    names, bins = [], list(pairwise(edges))
    for turn, (label, style, values), per_bin, size in zip(
        (1, -1), shown, counts, parts, strict=False
    ):
        for (low, high), count in zip(bins, per_bin, strict=True):
            side = "good" if low >= -1e-12 else "bad" if high <= 1e-12 else "tie"
            css, end = side if style == "signed" else style, y.at(turn * count / size)
            body += [_bar(x.at(low), x.at(high), y.at(0), end, css, count)] if count else []
        at = TOP - 8 if turn > 0 else BASE - 6
        names.append(text(f"name {style}-text", END, at, f"{label} (n = {len(values):,})", "end"))
    body += names if both else []
    if first < 0 < last and signed:
        body.append(line("zero", x.at(0), x.at(0), TOP, BASE))
    body.append(line("axis", LEFT, END, y.at(0)))
    beyond = int(((everything < first) | (everything > last)).sum())
    says = "; ".join(
        f"{label}: n = {len(values):,}, median {show(float(np.median(values)))}"
        for label, _, values in shown
    )
    says += (
        f". {beyond:,} values lie beyond the axis and are in the outermost bars." if beyond else "."
    )
    rows = (
        (f"{show(low)} to {show(high)}", *(f"{count:,}" for count in in_bin))
        for (low, high), *in_bin in zip(bins, *counts, strict=True)
    )
    return plot(name, title, body, says, (x_label, *(label for label, _, _ in shown)), rows)


def _bar(left: float, right: float, base: float, end: float, css: str, count: int) -> str:
    gap = 0.6 if right - left > 3 else 0.0
    width, height = max(0.8, right - left - 2 * gap), max(0.8, abs(end - base))
    return (
        f'<rect class="{css}" x="{left + gap:.1f}" y="{min(base, end):.1f}" width="{width:.1f}" '
        f'height="{height:.1f}">'
        f"<title>{count:,}</title></rect>"
    )


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
    body = [frame(x, y, "size of the score gap", "highest score is right", y_percent=True)]
    at = END - 96
    body += [line("chance", LEFT, END, y.at(fair)), line("chance", at - 24, at - 4, 10)]
    body.append(text("tick", at, 14, f"guessing {percent(fair)}"))
    says = (
        f"n = {n:,} samples with a gap, {len(bins)} bins of about equal size, from the smallest "
        f"gaps ({percent(bins[0].share.value)} right) to the largest "
        f"({percent(bins[-1].share.value)} right); bars are 95 % intervals."
    )
    if fitted:
        places = [x.high * k / 60 for k in range(61)]
        fit = zip(map(x.at, places), map(y.at, map(float, fitted.map(places))), strict=True)
        body.append(polyline("fit", fit))
        errors = fitted.calibration
        says += (
            f" The green curve is logistic, fitted on half of the prompts; on the other half its "
            f"expected calibration error is {percent(errors.ece)} (up to "
            f"{percent(errors.ece_by_chance)} would be chance)."
        )
    points = [(x.at(b.x), b.share.value or 0.0, b.share.ci95, _share_text(b.share)) for b in bins]
    body += _curve(y, points)
    rows = (
        (f"{show(b.low)} to {show(b.high)}", _share_text(b.share), _interval_text(b.share.ci95))
        for b in bins
    )
    columns = ("gap", "highest score is right", "95 % interval")
    return plot("reliability", "Is a larger gap more often right?", body, says, columns, rows)


def _legend(names: Sequence[str]) -> Iterator[str]:
    at = LEFT + 6
    for name in names:
        if name == "mean":
            yield line("curve strong", at, at + 14, 10)
        elif name == "rejected":
            yield f'<path class="rejected" d="M{at + 3} 10l4-4 4 4-4 4z"/>'
        else:
            yield f'<circle class="{name}" cx="{at + 7}" cy="10" r="4"/>'
        yield text("tick", at + 18, 14, name)
        at += 34 + 7 * len(name)


def _curve(y: Axis, points: Sequence[tuple[float, float, Interval | None, str]]) -> Iterator[str]:
    """A line through shares at their places, each with its interval and, where it has one, a
    title.
    """
    yield polyline("curve", ((at, y.at(share)) for at, share, _, _ in points))
    for at, share, ci95, title in points:
        low, high = ci95 or (0.0, 1.0)
        yield line("error", at, at, y.at(low), y.at(high))
        point = f'<circle class="point" cx="{at}" cy="{y.at(share)}" r="4"'
        yield f"{point}><title>{title}</title></circle>" if title else f"{point}/>"


def best_of_n(curve: Sequence[BestOf], drawn: int) -> Plot | None:
    """How often picking the highest score of n answers finds a chosen one, below the best anyone
    could do.
    """
    if len(curve) < 2:
        return None
    x = Axis(1.0, float(curve[-1].n), LEFT + 10, END - 10)
    y = Axis(0.0, 1.0, BASE, TOP, 5)
    names = [(float(point.n), str(point.n)) for point in curve]
    body = [
        frame(x, y, "answers to pick from (n)", "pick is a chosen answer", names, y_percent=True)
    ]
    body.append(polyline("fit", ((x.at(b.n), y.at(b.oracle)) for b in curve)))
    body += _curve(y, [(x.at(b.n), b.value, b.ci95, "") for b in curve])
    at = LEFT + 40
    body += [line("fit", at - 24, at - 4, 10), text("tick", at, 14, "a chosen one is among the n")]
    first, last = curve[0], curve[-1]
    says = (
        f"n = {drawn:,} lists: picking blindly finds a chosen answer in {percent(first.value)}, "
        f"picking the best of {last.n} by score in {percent(last.value)}; bars are 95 % intervals."
    )
    rows = ((str(b.n), percent(b.value), _interval_text(b.ci95), percent(b.oracle)) for b in curve)
    columns = ("n", "pick is chosen", "95 % interval", "a chosen one is there")
    return plot("best-of-n", "Best of n by this reward", body, says, columns, rows)


# -- shares ----------------------------------------------------------------------------------------


def shares(
    name: str, title: str, parts: Sequence[tuple[str, Share, float | None]], says: str, x_label: str
) -> Plot | None:
    """Horizontal bars of shares with their intervals, and where a fair judge would be."""
    known = [(label, share, fair) for label, share, fair in parts if share.n]
    if not known:
        return None
    row, left, right = 34, 148, END - 34
    height = TOP + row * len(known) + BOTTOM
    x = Axis(0.0, 1.0, left, right, 4)

    def body() -> Iterator[str]:
        for tick in x.ticks:
            at = x.at(tick)
            yield line("grid", at, at, TOP - 8, height - BOTTOM)
            yield text("tick", at, height - BOTTOM + 16, f"{100 * tick:.0f} %", "middle")
        for y, (label, share, fair) in zip(range(TOP, height, row), known, strict=False):
            value = share.value or 0.0
            low, high = map(x.at, share.ci95 or (value, value))
            end = x.at(value)
            yield text("tick", left - 8, y + 12, label, "end")
            width = max(0.8, end - left)
            yield f'<rect class="bar" x="{left}" y="{y}" width="{width:.1f}" height="16"/>'
            yield line("error", low, high, y + 8)
            yield text("tick", max(high, end) + 5, y + 12, f"{100 * value:.0f} %")
            yield text("small", left - 8, y + 24, f"n = {share.n:,}", "end")
            if fair is not None:
                yield line("chance", x.at(fair), x.at(fair), y - 4, y + 20)
        yield text("label", (left + right) / 2, height - 8, x_label, "middle")

    rows = (
        (name, percent(s.value), _interval_text(s.ci95), f"{s.n:,}", percent(fair))
        for name, s, fair in known
    )
    return plot(
        name, title, body(), says, ("", "share", "95 % interval", "n", "fair"), rows, height
    )


def gauge(
    score: float | None, ci95: Sequence[float] | None, marks: Sequence[tuple[str, float | None]]
) -> str:
    """A score on a line from 0 to 100 %, its interval, and what it is held against; it grows with
    its container.
    """
    parts = [line("track", 0, "100%", "50%")]
    for name, value in marks:
        if value is not None:
            at = _across(value)
            parts.append(line(f"mark-{escape(name)}", at, at, "12%", "88%"))
    if score is not None:
        if ci95 is not None:
            parts.append(line("interval", _across(ci95[0]), _across(ci95[1]), "50%"))
        parts.append(f'<circle class="score" cx="{_across(score)}" cy="50%" r="5"/>')
    return f'<svg class="gauge" aria-hidden="true">{"".join(parts)}</svg>'


def _across(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.2f}%"


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
        *(_list_plot(n, summary) for n in sorted(summary.positions.lists)),
        distributions("latency", "Time to a reply", times, "seconds", "replies"),
    ]


def _gap_plot(summary: Summary) -> Plot | None:
    title = "Score gap, best chosen minus best rejected"
    groups = [("samples", "signed", summary.gaps)]
    plot = distributions("gaps", title, groups, "score gap (right of 0: in order)", "samples")
    if plot is None:
        return None
    says = (
        f"{percent(summary.ordering().value)} in the right order, ties counting half; "
        f"{summary.gaps.count(0.0):,} of them equal. {plot.says}"
    )
    return replace(plot, says=says)


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
    margin, lengths = (high - low) * 0.04, [math.log10(max(1, length)) for length, *_ in drawn]
    x = Axis(min(lengths), max(lengths), LEFT + 6, END - 6, 5)
    y = Axis(low - margin, high + margin, BASE, TOP, 5)
    round_ones = [
        (math.log10(n), f"{n:,}") for power in range(8) for n in (10**power, 3 * 10**power)
    ]
    names = [(at, name) for at, name in round_ones if x.low - 1e-9 <= at <= x.high + 1e-9]
    if len(names) < 2:
        names = [(value, f"{10**value:,.0f}") for value in (x.low, x.high)]
    body = [frame(x, y, "answer length in characters (log scale)", "score", names)]
    for length, (_, score, label) in zip(lengths, drawn, strict=True):
        a, b = x.at(length), y.at(score)
        body.append(
            f'<path class="rejected mark" d="M{a - 3} {b}l3-3 3 3-3 3z"/>'
            if label == "rejected"
            else f'<circle class="{label} mark" cx="{a}" cy="{b}" r="2.6"/>'
        )
    line_of = ((x.at(math.log10(max(1.0, n))), y.at(score)) for n, score, _ in means)
    body += [polyline("curve strong", line_of)]
    body += _legend([*sorted({answer.label for answer in drawn}), "mean"])
    rows = ((f"{length:,.0f}", show(score), f"{n:,}") for length, score, n in means)
    columns = ("mean length (characters)", "mean score", "answers")
    return plot("length", "Answer length against score", body, says, columns, rows)


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


def _list_plot(n: int, summary: Summary) -> Plot | None:
    seen = summary.positions.lists[n]
    parts = [(f"place {place + 1}", seen.share(place), 1 / n) for place in range(min(n, 12))]
    says = (
        f"n = {len(seen):,} lists of {n} with one winner; a fair judge is at {percent(1 / n)} "
        f"(dashed)."
    )
    return shares(
        f"position-{n}", f"Place of the winner in lists of {n}", parts, says, "share of winners"
    )
