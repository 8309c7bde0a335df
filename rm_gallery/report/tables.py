"""Reports as tables for a terminal of 80 columns; text from data never becomes markup or a control sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rm_gallery.gallery.benchmarks.figures import Figure, Report, interval, one_line, percent

if TYPE_CHECKING:
    from rich.table import Table

    from rm_gallery.report.check.run import Check
    from rm_gallery.report.compare import Comparison
    from rm_gallery.report.findings import Finding

WIDTH = 80
INTERVAL = "95 % interval"
FIGURES = ("score %", INTERVAL, "longest", "shortest", "chance", "n", "unscored", "failed", "stopped")
DIFFERENCES = ("first", "second", "difference", "p", "p adj.")
LONGEST_CELL = 120


def print_report(report: Report) -> None:
    """Print the figures by subset, and below them what they rest on."""
    lost = ["unscored", *(name for name in ("failed", "stopped") if getattr(report, f"n_{name}"))]
    differing = any(part.chance not in (None, report.chance) for part in report.by_subset.values())
    beside = [*report.baselines, *(["chance"] if differing else [])]  # one for all stands below
    table = _table(["subset"], [report.unit, INTERVAL, *beside, "n", *lost])
    for part, (name, score, bounds, _) in zip([*report.by_subset.values(), report], report.rows(), strict=True):
        counts = [part.n, *(getattr(part, f"n_{name}") for name in lost)]
        known = [percent(part.chance if key == "chance" else part.baselines.get(key)) for key in beside]
        _add(table, [name, score, bounds, *known, *map(str, counts)])
    _print(table, report.about())


def print_comparison(reports: Mapping[str, Report], notes: Sequence[str] = ()) -> None:
    """Print reports on the same data side by side: one column a reward, one line a subset."""
    table = _table([""], [_shown(name) for name in reports])
    shown = list(reports.values())
    _add(table, ["score %", *(percent(report.score) for report in shown)])
    _add(table, ["95 % interval", *(interval(report.ci95) for report in shown)])
    for name in dict.fromkeys(name for report in shown for name in report.by_subset):
        parts: list[Figure | None] = [report.by_subset.get(name) for report in shown]
        _add(table, [name, *("-" if part is None else percent(part.score) for part in parts)])
    for count in ("unscored", "failed", "stopped"):
        values = [getattr(report, f"n_{count}") for report in shown]
        if count != "stopped" or any(values):
            _add(table, [count, *map(str, values)])
    _print(table, notes)


def print_findings(findings: Sequence[Finding], lines: Sequence[str] = ()) -> None:
    """Print figures with their intervals and what they rest on, and below them the lines."""
    judged = any(finding.limit for finding in findings)
    table = _table(["figure"], ["value", "95 % interval", "n"])
    if judged:
        table.add_column("verdict")
    for finding in findings:
        words = [finding.key, finding.shown(), finding.shown_interval(), str(finding.n)]
        _add(table, [*words, *([finding.verdict] if judged else [])])
    _print(table, lines)


def print_difference(found: Comparison) -> None:
    """Print what differs between two runs, by subset, and the samples they disagree on."""
    table = _table(["subset"], ["first", "second", "difference", INTERVAL, "p", "p adj.", "n"])
    for part in [*found.by_subset, found.whole]:
        paired = part.paired
        tested = [_p(paired.p_value), _p(part.p_adjusted)]
        cells = [percent(part.first), percent(part.second), _points(paired.difference), _between(paired.interval)]
        _add(table, [part.name, *cells, *tested, str(paired.n)])
    _print(table, [*_told(found), *(line for one in found.examples for line in _example(one))])


def print_check(found: Check) -> None:
    """Print what a reward gave to each kind of completion, and below it what was found."""
    kinds = dict.fromkeys(one.kind for one in found.tried)
    names = list(dict.fromkeys(name for one in found.tried for name in one.scored.components))
    table = _table(["completion"], ["score", *names, "unscored", "failed"])
    for kind in kinds:
        own = [one.scored for one in found.tried if one.kind == kind]
        parts = [_span([one.components.get(name) for one in own]) for name in names]
        counts = [str(sum(one.status == status for one in own)) for status in ("unscored", "failed")]
        _add(table, [kind, _span([one.score for one in own]), *parts, *counts])
    lines = [f"{finding.level}: {finding.name}: {finding.what}" for finding in found.findings]
    gains = [f"{name} {'as others' if score is None else f'{score:.3g}'}" for name, score in found.training.items()]
    lost = [f"{said} ({', '.join(trainers)})" for said, trainers in found.missing.items()]
    told = [f"in training: {' · '.join(gains)}"] if gains else []
    told += [f"a missing score there: {'; '.join(lost)}"]
    _print(table, [f"reward: {found.reward}", *lines, *([] if found.findings else ["nothing was found"]), *told])


def _span(values: Sequence[float | None]) -> str:
    """Numbers as one, or as the lowest and the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = min(known), max(known)
    return f"{low:.3g}" if low == high else f"{low:.3g} – {high:.3g}"


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}"


def _between(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else f"{100 * bounds[0]:+.1f} – {100 * bounds[1]:+.1f}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<.001" if value < 0.001 else f"{value:.3f}"


def _told(found: Comparison) -> list[str]:
    """What a difference says in words, and what was left out."""
    from rm_gallery.report.compare import left_out

    paired = found.whole.paired
    lines = [f"first: {found.first}", f"second: {found.second}", f"benchmark: {found.benchmark} · rule: {found.rule}"]
    if paired.interval is not None and paired.difference is not None:
        open_ended = found.whole.bounds is not None and found.whole.bounds.covers(0.0)
        if not paired.interval.covers(0.0) and open_ended:
            said, more = "what is missing may explain the difference, so neither is shown to be better", ""
        elif paired.interval.covers(0.0):
            said = "no difference is shown: chance explains it"
            more = "" if paired.needed is None else f"; about {paired.needed:,} samples would show one of this size"
        else:
            said, more = f"the {found.whole.better} is better", ""
        lines.append(f"{said}{more}")
    if found.mcnemar_p is not None:
        lines.append(
            f"right in the first only: {found.only_first}, in the second only: {found.only_second}; "
            f"McNemar's mid-p {_p(found.mcnemar_p)}"
        )
    alone = [(found.n_first_only, "only in the first"), (found.n_second_only, "only in the second")]
    left = [f"{n} {where}" for n, where in [*alone, (found.n_unscored, "without a credit in one of them")] if n]
    if found.whole.bounds is not None and (missing := left_out(found)):
        lines.append(f"{missing}; whatever they were, the difference is {_between(found.whole.bounds)}")
        lines += found.suspicion.get("said", ())
    return [*lines, f"left out: {', '.join(left)}" if left else "every sample is in both", *found.notes]


def _example(one: Mapping[str, Any]) -> list[str]:
    sides = [f"{name}: {one[name]['credit']:g} {one[name]['scores']}" for name in ("first", "second")]
    return [f"{one['better']} better on {one['id']}: {' · '.join(sides)} · {one['prompt'][:LONGEST_CELL]}"]


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", overflow="fold", no_wrap=name in (*FIGURES, *DIFFERENCES))
    return table


def _add(table: Table, cells: Sequence[str]) -> None:
    from rich.text import Text

    table.add_row(*(Text(_shown(cell)) for cell in cells))


def _shown(cell: str) -> str:
    """A cell on one line, cut where a name from the data is beyond measure."""
    text = one_line(cell[: 10 * LONGEST_CELL])
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def _print(table: Table, lines: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if Console().is_terminal else WIDTH)
    console.print(table)
    for line in lines:
        console.print(Text(one_line(line)))
