"""Plots of a report as inline SVG: labelled axes, n, colours from the page's style sheet, and their numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.shown import percent, show
from rm_gallery.study.summary import HUGE, Bin, Share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rm_gallery.core.stats.ranking import BestOf
    from rm_gallery.core.stats.validation import HeldOut


WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 24, 46


@dataclass(frozen=True)
class Plot:
    """A plot and what it says.

    Attributes:
        name: for links and tests.
        title: what is shown against what.
        svg: the drawing; safe markup made here.
        says: what to read off it, with n.
        columns: heads of the table of its numbers.
        rows: that table.
    """

    name: str
    title: str
    svg: str
    says: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Axis:
    """A linear axis from data to drawing units, with round ticks."""

    def __init__(self, low: float, high: float, start: float, end: float, about: int = 5) -> None:
        if not low < high:
            pad = abs(low) * 0.1 or 1.0
            low, high = low - pad, high + pad
        self.low, self.high, self._start, self._end = low, high, start, end
        self.ticks = _round_ticks(low, high, about)

    def at(self, value: float) -> float:
        """Where a value is drawn; at the edge when it lies beyond."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self._start + share * (self._end - self._start), 1)


def _round_ticks(low: float, high: float, about: int) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= about + 0.5)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def frame(
    x: Axis,
    y: Axis,
    x_label: str,
    y_label: str,
    x_names: Iterable[tuple[float, str]] | None = None,
    y_percent: bool = False,
) -> str:
    """Axes, grid, ticks and labels."""
    parts = []
    for tick in y.ticks:
        text = f"{show(100 * abs(tick))} %" if y_percent else show(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(tick)}" y2="{y.at(tick)}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y.at(tick) + 4}" text-anchor="end">{text}</text>')
    for at, name in x_names if x_names is not None else ((tick, show(tick)) for tick in x.ticks):
        place = x.at(at)
        parts.append(f'<line class="axis" x1="{place}" x2="{place}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>')
        parts.append(f'<text class="tick" x="{place}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{escape(name)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    upright = f"rotate(-90 12 {(TOP + HEIGHT - BOTTOM) / 2})"
    parts.append(
        f'<text class="label" x="12" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" transform="{upright}">'
        f"{escape(y_label)}</text>"
    )
    return "".join(parts)


def svg_of(name: str, title: str, says: str, body: str, height: int = HEIGHT) -> str:
    """A drawing as one SVG element, with its title and what it says for those who cannot see it."""
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(says)}</desc>{body}</svg>'
    )


DISCRETE = 12
MOST_BARS = 24


# -- distributions ---------------------------------------------------------------------------------------------------------


def _clipped(values: Sequence[float]) -> tuple[NDArray[np.float64], float, float]:
    """Values, and a range for drawing them in which a few far ones do not flatten the others."""
    import numpy as np

    found = np.clip(np.asarray(values, dtype=np.float64), -HUGE, HUGE)
    low, high = float(found.min()), float(found.max())
    inner_low, inner_high = (float(value) for value in np.quantile(found, (0.01, 0.99)))
    spread = inner_high - inner_low
    if spread > 0 and high - low > 2 * spread:
        low, high = max(low, inner_low - spread / 4), min(high, inner_high + spread / 4)
    return found, low, high


def _edges(values: NDArray[np.float64], low: float, high: float, zero: bool) -> NDArray[np.float64]:
    """Edges of the bars: around each value where there are few, else of equal width, with one at 0 where `zero`."""
    import numpy as np

    different = np.unique(np.clip(values, low, high))
    if len(different) <= DISCRETE:
        if len(different) == 1:
            step = max(1.0, abs(float(different[0]))) / 4
            return np.array([float(different[0]) + (k - 2.5) * step for k in range(6)])
        half = float(np.diff(different).min()) / 2
        if half > 0 and (high - low) / half <= 4 * MOST_BARS:
            return np.arange(low - half, high + 2 * half, 2 * half, dtype=np.float64)
    count = min(MOST_BARS, max(6, math.ceil(math.sqrt(len(values)))))
    width = (high - low) / count
    if zero and low < 0 < high:
        below = math.ceil(-low / width)
        return np.array([k * width for k in range(-below, math.ceil(high / width) + 1)])
    return np.linspace(low, high, count + 1, dtype=np.float64)


def distributions(
    name: str, title: str, groups: Sequence[tuple[str, str, Sequence[float]]], x_label: str, counted: str = "answers"
) -> Plot | None:
    """Histogram of one group, or of two: the first above the axis, the second below it. None without any value.

    Args:
        name: of the plot.
        title: of the plot.
        groups: (name, class, values); groups without values are left out, at most two are drawn.
        x_label: what the values are, with unit.
        counted: what one value belongs to.
    """
    import numpy as np

    shown = [(label, style, values) for label, style, values in groups if len(values)][:2]
    if not shown:
        return None
    everything, low, high = _clipped([value for _, _, values in shown for value in values])
    edges = _edges(everything, low, high, zero=counted == "samples")
    counts = [np.histogram(np.clip(_array(values), edges[0], edges[-1]), edges)[0] for _, _, values in shown]
    both = len(shown) == 2  # of different size, so that shares are drawn
    parts = [len(values) if both else 1 for _, _, values in shown]
    bottom = -float(counts[1].max()) / parts[1] if both else 0.0
    x = Axis(float(edges[0]), float(edges[-1]), LEFT, WIDTH - RIGHT, 6)
    y = Axis(bottom * 1.15, float(counts[0].max()) / parts[0] * 1.15, HEIGHT - BOTTOM, TOP, 5)
    if not both:
        y.ticks = [tick for tick in y.ticks if tick == int(tick)]
    body = [frame(x, y, x_label, f"share of the {counted}" if both else counted, y_percent=both)]
    for turn, (_, style, _), found, size in zip((1, -1), shown, counts, parts, strict=False):
        for k, count in enumerate(found):
            if count:
                css = style if style != "signed" else _side(float(edges[k]), float(edges[k + 1]))
                end = y.at(turn * int(count) / size)
                body.append(_bar(x.at(edges[k]), x.at(edges[k + 1]), y.at(0), end, css, int(count)))
    for turn, (label, style, values) in zip((1, -1), shown, strict=False):
        if both:
            at = TOP - 8 if turn > 0 else HEIGHT - BOTTOM - 6
            text = f"{label} (n = {len(values):,})"
            body.append(f'<text class="name {style}-text" x="{WIDTH - RIGHT}" y="{at}" text-anchor="end">{text}</text>')
    if edges[0] < 0 < edges[-1] and counted == "samples":
        body.append(f'<line class="zero" x1="{x.at(0)}" x2="{x.at(0)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    body.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(0)}" y2="{y.at(0)}"/>')
    beyond = int(((everything < edges[0]) | (everything > edges[-1])).sum())
    says = "; ".join(f"{label}: n = {len(values):,}, median {show(_median(values))}" for label, _, values in shown)
    says += f". {beyond:,} values lie beyond the axis and are in the outermost bars." if beyond else "."
    rows = [
        (f"{show(edges[k])} to {show(edges[k + 1])}", *(f"{int(found[k]):,}" for found in counts))
        for k in range(len(edges) - 1)
    ]
    columns = (x_label, *(label for label, _, _ in shown))
    return Plot(name, title, svg_of(name, title, says, "".join(body)), says, columns, tuple(rows))


def _side(low: float, high: float) -> str:
    return "good" if low >= -1e-12 else "bad" if high <= 1e-12 else "tie"


def _array(values: Sequence[float]) -> NDArray[np.float64]:
    import numpy as np

    return np.clip(np.asarray(values, dtype=np.float64), -HUGE, HUGE)


def _median(values: Sequence[float]) -> float:
    import numpy as np

    return float(np.median(_array(values)))


def _bar(left: float, right: float, base: float, end: float, css: str, count: int) -> str:
    gap = 0.6 if right - left > 3 else 0.0
    width, height = max(0.8, right - left - 2 * gap), max(0.8, abs(end - base))
    return (
        f'<rect class="{css}" x="{left + gap:.1f}" y="{min(base, end):.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{count:,}</title></rect>"
    )


# -- curves ----------------------------------------------------------------------------------------------------------------


def reliability(bins: Sequence[Bin], fair: float, fitted: HeldOut | None = None) -> Plot | None:
    """How often the highest score is right, by how far it is ahead; with a fitted curve where one is given.

    Args:
        bins: see `Summary.reliability`.
        fair: what guessing reaches.
        fitted: a curve from gaps to shares, with how it does on prompts it was not fitted on.
    """
    n = sum(found.share.n for found in bins)
    if not n:
        return None
    title = "Is a larger gap more often right?"
    x = Axis(0.0, bins[-1].x * 1.05 or 1.0, LEFT, WIDTH - RIGHT, 5)
    y = Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP, 5)
    body = [frame(x, y, "size of the score gap", "highest score is right", y_percent=True)]
    body.append(f'<line class="chance" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(fair)}" y2="{y.at(fair)}"/>')
    at = WIDTH - RIGHT - 96
    body.append(f'<line class="chance" x1="{at - 24}" x2="{at - 4}" y1="10" y2="10"/>')
    body.append(f'<text class="tick" x="{at}" y="14">guessing {percent(fair)}</text>')
    if fitted:
        places = [x.high * k / 60 for k in range(61)]
        line = " ".join(f"{x.at(a)},{y.at(float(b))}" for a, b in zip(places, fitted.map(places), strict=True))
        body.append(f'<polyline class="fit" points="{line}"/>')
    points = [(x.at(found.x), y.at(found.share.value or 0.0)) for found in bins]
    body.append(f'<polyline class="curve" points="{" ".join(f"{a},{b}" for a, b in points)}"/>')
    for found, (a, b) in zip(bins, points, strict=True):
        low, high = found.share.ci95 or (0.0, 1.0)
        body.append(f'<line class="error" x1="{a}" x2="{a}" y1="{y.at(low)}" y2="{y.at(high)}"/>')
        body.append(f'<circle class="point" cx="{a}" cy="{b}" r="4"><title>{_of(found.share)}</title></circle>')
    says = (
        f"n = {n:,} samples with a gap, {len(bins)} bins of about equal size, from the smallest gaps "
        f"({percent(bins[0].share.value)} right) to the largest ({percent(bins[-1].share.value)} right); bars are 95 % intervals."
    )
    if fitted:
        found_ece, by_chance = percent(fitted.calibration.ece), percent(fitted.calibration.ece_by_chance)
        says += (
            f" The green curve is logistic, fitted on half of the prompts; on the other half its expected calibration "
            f"error is {found_ece} (up to {by_chance} would be chance)."
        )
    rows = tuple((f"{show(b.low)} to {show(b.high)}", _of(b.share), _between(b.share.ci95)) for b in bins)
    columns = ("gap", "highest score is right", "95 % interval")
    return Plot("reliability", title, svg_of("reliability", title, says, "".join(body)), says, columns, rows)


def length_plot(points: Sequence[tuple[int, float, str]], bins: Sequence[tuple[float, float, int]], says: str) -> Plot | None:
    """Score against answer length on a logarithmic axis: single answers as marks, means of bins as a line.

    Args:
        points: (characters, score, label) of the answers to draw.
        bins: (characters, mean score, answers) from short to long, over all answers.
        says: what to read off it.
    """
    if not points:
        return None
    title = "Answer length against score"
    _, low, high = _clipped([score for _, score, _ in points])
    lengths = [math.log10(max(1, length)) for length, _, _ in points]
    x = Axis(min(lengths), max(lengths), LEFT + 6, WIDTH - RIGHT - 6, 5)
    y = Axis(low - (high - low) * 0.04, high + (high - low) * 0.04, HEIGHT - BOTTOM, TOP, 5)
    names = [
        (math.log10(n), f"{n:,}")
        for power in range(8)
        for n in (10**power, 3 * 10**power)
        if x.low - 1e-9 <= math.log10(n) <= x.high + 1e-9
    ]
    if len(names) < 2:
        names = [(value, f"{10**value:,.0f}") for value in (x.low, x.high)]
    body = [frame(x, y, "answer length in characters (log scale)", "score", names)]
    for length, (_, score, label) in zip(lengths, points, strict=True):
        a, b = x.at(length), y.at(score)
        if label == "rejected":
            body.append(f'<path class="rejected mark" d="M{a - 3} {b}l3-3 3 3-3 3z"/>')
        else:
            body.append(f'<circle class="{label} mark" cx="{a}" cy="{b}" r="2.6"/>')
    line = " ".join(f"{x.at(math.log10(max(1.0, length)))},{y.at(score)}" for length, score, _ in bins)
    body.append(f'<polyline class="curve strong" points="{line}"/>')
    labels = sorted({label for _, _, label in points})
    body.append(_legend([(label, label) for label in labels] + [("mean", "line")]))
    rows = tuple((f"{length:,.0f}", show(score), f"{n:,}") for length, score, n in bins)
    columns = ("mean length (characters)", "mean score", "answers")
    return Plot("length", title, svg_of("length", title, says, "".join(body)), says, columns, rows)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    parts, at = [], LEFT + 6
    for name, style in entries:
        if style == "line":
            parts.append(f'<line class="curve strong" x1="{at}" x2="{at + 14}" y1="10" y2="10"/>')
        elif style == "rejected":
            parts.append(f'<path class="rejected" d="M{at + 3} 10l4-4 4 4-4 4z"/>')
        else:
            parts.append(f'<circle class="{style}" cx="{at + 7}" cy="10" r="4"/>')
        parts.append(f'<text class="tick" x="{at + 18}" y="14">{escape(name)}</text>')
        at += 34 + 7 * len(name)
    return "".join(parts)


def best_of_n(curve: Sequence[BestOf], drawn: int) -> Plot | None:
    """How often picking the highest score of n answers finds a chosen one, below the best anyone could do."""
    if len(curve) < 2:
        return None
    title = "Best of n by this reward"
    x = Axis(1.0, float(curve[-1].n), LEFT + 10, WIDTH - RIGHT - 10)
    y = Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP, 5)
    names = [(float(found.n), str(found.n)) for found in curve]
    body = [frame(x, y, "answers to pick from (n)", "pick is a chosen answer", names, y_percent=True)]
    for style, values in (("fit", [b.oracle for b in curve]), ("curve", [b.value for b in curve])):
        line = " ".join(f"{x.at(b.n)},{y.at(value)}" for b, value in zip(curve, values, strict=True))
        body.append(f'<polyline class="{style}" points="{line}"/>')
    for found in curve:
        a = x.at(found.n)
        body.append(f'<line class="error" x1="{a}" x2="{a}" y1="{y.at(found.ci95.low)}" y2="{y.at(found.ci95.high)}"/>')
        body.append(f'<circle class="point" cx="{a}" cy="{y.at(found.value)}" r="4"/>')
    at = LEFT + 40
    body.append(f'<line class="fit" x1="{at - 24}" x2="{at - 4}" y1="10" y2="10"/>')
    body.append(f'<text class="tick" x="{at}" y="14">a chosen one is among the n</text>')
    first, last = curve[0], curve[-1]
    says = (
        f"n = {drawn:,} lists: picking blindly finds a chosen answer in {percent(first.value)}, picking the best of "
        f"{last.n} by score in {percent(last.value)}; bars are 95 % intervals."
    )
    rows = tuple((str(b.n), percent(b.value), _between(b.ci95), percent(b.oracle)) for b in curve)
    columns = ("n", "pick is chosen", "95 % interval", "a chosen one is there")
    return Plot("best-of-n", title, svg_of("best-of-n", title, says, "".join(body)), says, columns, rows)


# -- shares ----------------------------------------------------------------------------------------------------------------


def shares(name: str, title: str, parts: Sequence[tuple[str, Share, float | None]], says: str, x_label: str) -> Plot | None:
    """Horizontal bars of shares with their intervals, and where a fair judge would be."""
    known = [(label, share, fair) for label, share, fair in parts if share.n]
    if not known:
        return None
    row = 34
    height = TOP + row * len(known) + BOTTOM
    left = 148
    x = Axis(0.0, 1.0, left, WIDTH - RIGHT - 34, 4)
    body = []
    for tick in x.ticks:
        body.append(f'<line class="grid" x1="{x.at(tick)}" x2="{x.at(tick)}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>')
        at = height - BOTTOM + 16
        body.append(f'<text class="tick" x="{x.at(tick)}" y="{at}" text-anchor="middle">{100 * tick:.0f} %</text>')
    for k, (label, share, fair) in enumerate(known):
        y, value = TOP + row * k, share.value or 0.0
        low, high = share.ci95 or (value, value)
        body.append(f'<text class="tick" x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        body.append(f'<rect class="bar" x="{left}" y="{y}" width="{max(0.8, x.at(value) - left):.1f}" height="16"/>')
        body.append(f'<line class="error" x1="{x.at(low)}" x2="{x.at(high)}" y1="{y + 8}" y2="{y + 8}"/>')
        end = max(x.at(high), x.at(value)) + 5
        body.append(f'<text class="tick" x="{end}" y="{y + 12}">{100 * value:.0f} %</text>')
        body.append(f'<text class="small" x="{left - 8}" y="{y + 24}" text-anchor="end">n = {share.n:,}</text>')
        if fair is not None:
            body.append(f'<line class="chance" x1="{x.at(fair)}" x2="{x.at(fair)}" y1="{y - 4}" y2="{y + 20}"/>')
    middle = (left + WIDTH - RIGHT - 34) / 2
    body.append(f'<text class="label" x="{middle}" y="{height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    rows = tuple(
        (label, percent(share.value), _between(share.ci95), f"{share.n:,}", percent(fair)) for label, share, fair in known
    )
    columns = ("", "share", "95 % interval", "n", "fair")
    return Plot(name, title, svg_of(name, title, says, "".join(body), height), says, columns, rows)


def gauge(score: float | None, ci95: Sequence[float] | None, marks: Sequence[tuple[str, float | None]]) -> str:
    """A score on a line from 0 to 100 %, its interval, and what it is held against; it grows with its container."""
    parts = ['<line class="track" x1="0" x2="100%" y1="50%" y2="50%"/>']
    for name, value in marks:
        if value is not None:
            at = f"{100 * _unit(value):.2f}%"
            parts.append(f'<line class="mark-{escape(name)}" x1="{at}" x2="{at}" y1="12%" y2="88%"/>')
    if score is not None:
        if ci95 is not None:
            low, high = (f"{100 * _unit(value):.2f}%" for value in ci95)
            parts.append(f'<line class="interval" x1="{low}" x2="{high}" y1="50%" y2="50%"/>')
        parts.append(f'<circle class="score" cx="{100 * _unit(score):.2f}%" cy="50%" r="5"/>')
    return f'<svg class="gauge" aria-hidden="true">{"".join(parts)}</svg>'


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _of(share: Share) -> str:
    return f"{percent(share.value)} of {share.n:,}"


def _between(ci95: Interval | None) -> str:
    return "–" if ci95 is None else f"{100 * ci95.low:.1f} – {100 * ci95.high:.1f} %"
