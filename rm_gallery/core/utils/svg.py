"""Drawing with SVG: a plot with its numbers as a table, axes with round ticks, a frame, estimates
with their intervals, and curves over steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from rm_gallery.core.utils.file import write_whole
from rm_gallery.core.utils.shown import ended, show

STYLE = (
    ".plot{max-width:640px;background:#fff}.plot text{font:12px sans-serif;fill:#333}.plot "
    ".grid{stroke:#ddd}.plot .axis{stroke:#777}.plot .chance{stroke:#b00;stroke-dasharray:4 "
    "3}.plot .whisker{stroke:#2458a6;stroke-width:2}.plot .mark{fill:#2458a6}.plot "
    ".curve{fill:none;stroke:#2458a6;stroke-width:2}.plot .curve.other{stroke:#b00;stroke-dasharray:6 4}"
)
"""Of a plot that stands alone, such as in a notebook; a page brings its own colours."""

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

    def _repr_html_(self) -> str:
        return f"<figure class='rm-plot'><style>{STYLE}</style>{self.svg}<figcaption>{escape(self.says)}</figcaption></figure>"

    def save(self, path: str | Path) -> Path:
        """Write it as an SVG file, whole or not at all; gives the path."""
        styled = self.svg.replace(
            ">", f' xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>', 1
        )
        write_whole(path, styled.encode())
        return Path(path)


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
    step *= next(
        factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= about + 0.5
    )
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
    base = HEIGHT - BOTTOM
    for tick in y.ticks:
        shown = f"{show(100 * abs(tick))} %" if y_percent else show(tick)
        parts += [
            line("grid", LEFT, WIDTH - RIGHT, y.at(tick)),
            text("tick", LEFT - 6, y.at(tick) + 4, shown, "end"),
        ]
    for at, name in x_names if x_names is not None else ((tick, show(tick)) for tick in x.ticks):
        parts += [
            line("axis", x.at(at), x.at(at), base, base + 4),
            text("tick", x.at(at), base + 17, name, "middle"),
        ]
    parts += [
        line("axis", LEFT, WIDTH - RIGHT, base),
        text("label", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"),
        text("label", 12, (TOP + base) / 2, y_label, "middle", upright=True),
    ]
    return "".join(parts)


def line(css: str, x1: Any, x2: Any, y1: Any, y2: Any = None) -> str:
    """A line; a level one without `y2`."""
    return f'<line class="{css}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y1 if y2 is None else y2}"/>'


def text(css: str, x: Any, y: Any, text: str, anchor: str = "", upright: bool = False) -> str:
    """A text at a point, which is its start unless `anchor` says otherwise."""
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' transform="rotate(-90 {x} {y})"' if upright else ""
    return f'<text class="{css}" x="{x}" y="{y}"{more}>{escape(text)}</text>'


def polyline(css: str, points: Iterable[tuple[float, float]]) -> str:
    """A line through points."""
    return f'<polyline class="{css}" points="{" ".join(f"{a},{b}" for a, b in points)}"/>'


def plot(
    name: str,
    title: str,
    body: Iterable[str],
    says: str,
    columns: Iterable[str],
    rows: Iterable[tuple[str, ...]],
    height: int = 0,
) -> Plot:
    """A plot with its drawing as one SVG element that has a title and what it says for those who
    cannot see it.
    """
    svg = (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height or HEIGHT}" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title><desc '
        f'id="{name}-d">{escape(says)}</desc>{"".join(body)}</svg>'
    )
    return Plot(name, title, svg, says, tuple(columns), tuple(rows))


ROW, NAME_WIDTH = 22, 200


def forest(
    name: str, title: str, rows: Sequence[tuple[str, float | None, tuple[float, float] | None]], x_label: str, says: str,
    chance: float | None = None,
) -> Plot:  # fmt: skip
    """A line per name with its estimate and interval; what has none is named and left empty."""
    seen = [chance, *(x for _, value, ci in rows for x in (value, *(ci or ())))]
    ends = [x for x in seen if x is not None and math.isfinite(x)]
    base = TOP + ROW * len(rows)
    height = base + BOTTOM
    x = Axis(min(ends, default=0.0), max(ends, default=1.0), NAME_WIDTH, WIDTH - RIGHT)
    body = [line("grid", x.at(tick), x.at(tick), TOP, base) for tick in x.ticks]
    body += [text("tick", x.at(tick), base + 17, show(tick), "middle") for tick in x.ticks]
    body += [text("label", (NAME_WIDTH + WIDTH - RIGHT) / 2, height - 8, x_label, "middle")]
    if chance is not None:
        body.append(line("chance", x.at(chance), x.at(chance), TOP, base))
    table = []
    for number, (label, value, ci) in enumerate(rows):
        y = TOP + ROW * number + ROW / 2
        body.append(text("tick", NAME_WIDTH - 8, y + 4, ended(label, 31), "end"))
        drawn = value is not None and math.isfinite(value)
        reach = ""
        if ci is not None:
            reach = f"{show(ci[0])} – {show(ci[1])}"
            body += [line("whisker", x.at(ci[0]), x.at(ci[1]), y)] if drawn else []
        if value is not None and drawn:
            body.append(f'<circle class="mark" cx="{x.at(value)}" cy="{y}" r="4"/>')
        table.append((label, "" if value is None else show(value), reach))
    return plot(name, title, body, says, ("", x_label, "95 % interval"), table, height)


def curves(
    name: str, title: str, series: Mapping[str, Sequence[float]], x_label: str, y_label: str, says: str
) -> Plot:  # fmt: skip
    """A line per name over the steps 1, 2, …; the first is drawn through, the others dashed.

    Raises:
        ValueError: there is no value to draw.
    """
    values = list(chain(*series.values()))
    if not values:
        raise ValueError("There is no value to draw.")
    longest = max(map(len, series.values()))
    x = Axis(1.0, float(longest), LEFT, WIDTH - RIGHT)
    y = Axis(min(values), max(values), HEIGHT - BOTTOM, TOP)
    body = [frame(x, y, x_label, y_label)]
    room = (WIDTH - RIGHT - LEFT) / len(series)
    for number, (label, line_of) in enumerate(series.items()):
        css = "curve other" if number else "curve"
        body.append(polyline(css, [(x.at(at), y.at(value)) for at, value in enumerate(line_of, 1)]))
        left = round(LEFT + room * number, 1)
        body += [polyline(css, [(left, 10), (left + 20, 10)]), text("tick", left + 24, 14, label)]
    table = [
        (str(at), *("" if value is None else show(value) for value in values_at))
        for at, values_at in enumerate(zip_longest(*series.values()), 1)
    ]
    return plot(name, title, body, says, (x_label, *series), table)
