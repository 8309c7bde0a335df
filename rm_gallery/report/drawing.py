"""What plots are drawn with: axes with round ticks, their frame, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape

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


def show(value: float | None, digits: int = 3) -> str:
    """A number for people: some three digits, never a long tail; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size and (size >= 1e6 or size < 1e-3):
        return f"{value:.2g}".replace("-", "−")
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.{digits}g}"
    return text.replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def told_apart(value: float, limit: float, shown: Callable[[float, int], str], digits: int) -> tuple[str, str]:
    """Two different numbers as text, with `digits` or as many more as it takes to see that they differ."""
    for more in range(digits, 18):
        texts = shown(value, more), shown(limit, more)
        if texts[0] != texts[1]:
            return texts
    return repr(value), repr(limit)


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
