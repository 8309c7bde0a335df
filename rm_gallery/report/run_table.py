"""Several runs of one benchmark as a table to cite: a row a run, a column a subset, with what a
reader needs to trust it.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rm_gallery._version import __version__
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.file import as_json, write_whole
from rm_gallery.core.utils.shown import one_line
from rm_gallery.gallery.benchmarks.figures import (
    RULES,
    UNNAMED,
    missing_parts,
)
from rm_gallery.gallery.benchmarks.lead import (
    OWN_UNIT,
    TRUST_CARD,
    by_cause,
    corrected_figure,
    count_of,
    lead_figure,
    missing_of,
)
from rm_gallery.report.cells import harmless
from rm_gallery.report.run_figures import figures_of
from rm_gallery.study.compare import LEVEL, Difference, check_same, compare
from rm_gallery.study.runs import OpenRun, open_run, sound
from rm_gallery.study.summary import summarize

OVERALL = "overall"
CORRECTED = "corrected by labels"
"""The column of what labels of people make of `OVERALL`, which is the judge's alone."""
MARK = "†"


@dataclass(frozen=True)
class Cell:
    """What one run scored in one column.

    Attributes:
        figure: score, interval and counts as the run saved them; empty where it has none.
        best: whether no run scored higher here.
        against: the difference to the best run on the samples both scored; None for the best, and
            where none can be tested.
    """

    figure: Mapping[str, Any]
    best: bool = False
    against: Difference | None = None

    @property
    def worse(self) -> bool:
        """Whether it is shown to be worse than the best, corrected for all that was tested,
        whatever is missing would have got.
        """
        tested = self.against
        return (
            tested is not None and tested.better == "first" and (tested.p_adjusted or 0.0) < LEVEL
        )


@dataclass(frozen=True)
class RunTable:
    """Runs of one benchmark side by side.

    Attributes:
        names: of the rows: reward and judge, with the folder where two are alike.
        columns: subsets or sections, `overall`, and where people labelled rows `corrected by labels`.
        cells: a row a run, a cell a column.
        runs: the folders' names.
        reports: the runs' saved figures.
        damage: how many samples of each run can be read where not all can, else empty.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    runs: tuple[str, ...]
    reports: tuple[Mapping[str, Any], ...]
    damage: tuple[str, ...]

    def caption(self) -> list[str]:
        """What the figures rest on: rule, version, judges, n and what is missing by cause, a
        sentence each.
        """
        first = self.reports[0]
        rule = str(first.get("rule") or "")
        unit = "The unit is the reward's own" if rule in OWN_UNIT else "Figures are percentages"
        rule_text = f" ({RULES[rule]})" if rule in RULES else ""
        lines = [
            f"{first.get('benchmark') or 'Benchmark'}, rule {rule}{rule_text}.",
            f"{unit}, with 95 % intervals over prompts; best in bold.",
        ]
        columns = zip(self.columns, zip(*self.cells, strict=True), strict=True)
        tested = [name for name, column in columns if any(cell.against for cell in column)]
        if tested:
            only = tested == [OVERALL] and len(self.columns) > 1
            scope = f" Only {OVERALL} was tested." if only else ""
            tests = (cell.against for row in self.cells for cell in row if cell.against)
            known = sorted({f"{test.correction}-" for test in tests if test.correction})
            corrected = f"{' and '.join(known)}corrected p" if known else "p"
            lines.append(
                f"{MARK}: worse than the best of the column on the samples both scored (paired by "
                f"prompt, {corrected} < 0.05).{scope}"
            )
        for name, report, damage in zip(self.names, self.reports, self.damage, strict=True):
            missing = report.get("missing")
            if missing is None:  # of an earlier version, which did not keep the causes
                missing = {"run, cause not kept": missing_of(report)}
            gone = sum(missing.values())
            lost = f"{gone:,} missing ({by_cause(missing)})" if gone else "none without a score"
            lost += ", not finished" if report.get("partial") or report.get("stopped") else ""
            judge = f", judge {report['judge']}" if report.get("judge") else ""
            if absent := missing_parts(report.get("extra") or {}):
                lost += f"; {absent.removeprefix('missing, and ')}"
            lost += f"; {damage}" if damage else ""
            lines.append(f"{name}{judge}: n = {count_of(report, 'n'):,}, {lost}.")
        if len({report.get("n") for report in self.reports}) > 1:
            lines.append("The runs have different samples: figures are of each run's own.")
        version = min(
            {str(report.get("version") or "") for report in self.reports} - {""}, default=""
        )
        lines.append(f"rm-gallery {__version__}{version and f', rule version {version}'}.")
        return [one_line(line) for line in lines]

    def records(self) -> Iterator[dict[str, Any]]:
        """Every cell as numbers: scores and limits as shares or in the reward's own unit."""
        for name, run, report, row in zip(
            self.names, self.runs, self.reports, self.cells, strict=True
        ):
            for column, cell in zip(self.columns, row, strict=True):
                own, (low, high) = cell.figure, cell.figure.get("ci95") or (None, None)
                yield {
                    "run": run,
                    "reward": report.get("reward") or name,
                    "judge": report.get("judge"),
                    "column": column,
                    "rule": own.get("rule"),
                    "score": own.get("score"),
                    "low": low,
                    "high": high,
                    "n": own.get("n"),
                    "n_scored": own.get("n_scored"),
                    "missing": sum((own.get("missing") or {}).values()),
                    "best": cell.best,
                    "p_adjusted": cell.against and cell.against.p_adjusted,
                    "worse_than_best": cell.worse,
                }


def run_table(*runs: str | Path | OpenRun, sections: bool = False) -> RunTable:
    """Put runs of one benchmark, rule and data side by side.

    Args:
        *runs: run folders, one or more.
        sections: a column a section, of rules that have some, and not a column a subset. Only
            `overall` is tested then.

    Raises:
        ConfigError: no run, runs of different benchmarks, rules or data, or sections where the rule
            has none.
        DataError: a folder that is no run.
    """
    if not runs:
        raise ConfigError("a table needs a run or more; name their folders.")
    open_runs = [run if isinstance(run, OpenRun) else open_run(run) for run in runs]
    for other in open_runs[1:]:
        check_same(open_runs[0], other)
    reports = [_report_of(run) for run in open_runs]
    rule, by_run = reports[0].get("rule"), []
    if rule == TRUST_CARD:
        raise ConfigError(
            f"{open_runs[0].holds}, whose parts have units of their own and no place in a table; "
            f"rm-gallery report writes a page about it."
        )
    for report in reports:
        parts = (report.get("extra") or {}).get("sections") if sections else report.get("by_subset")
        by_run.append({**(parts or {}), OVERALL: report})
        if corrected_figure(report):
            by_run[-1][CORRECTED] = lead_figure(report)
    whole = [name for name in (OVERALL, CORRECTED) if any(name in parts for parts in by_run)]
    columns = list(dict.fromkeys(name for parts in by_run for name in parts if name not in whole))
    if sections and not columns:
        raise Inapplicable(
            f"rule {rule!r} has no sections; leave out --sections for a column a subset.",
            "sections",
        )
    columns += whole
    cells: list[list[Cell]] = [[] for _ in by_run]
    for name in columns:
        scores = [_finite_score(parts.get(name, {})) for parts in by_run]
        best = max((score for score in scores if score is not None), default=None)
        for row, parts, score in zip(cells, by_run, scores, strict=True):
            row.append(Cell(parts.get(name, {}), score is not None and score == best))
    if len(open_runs) > 1 and rule not in OWN_UNIT:
        _tested(cells, columns, open_runs, sections)
    return RunTable(
        _names(open_runs, reports),
        tuple(columns),
        tuple(map(tuple, cells)),
        tuple(run.folder.name for run in open_runs),
        tuple(reports),
        tuple(run.damage for run in open_runs),
    )


def _report_of(run: OpenRun) -> Mapping[str, Any]:
    """The figures the run saved, else those of its samples so far."""
    with sound(run):
        return run.report or figures_of(run, summarize(run))


def _finite_score(figure: Mapping[str, Any]) -> float | None:
    score = figure.get("score")
    return score if isinstance(score, (int, float)) and math.isfinite(score) else None


def _tested(
    cells: list[list[Cell]], columns: Sequence[str], runs: Sequence[OpenRun], sections: bool
) -> None:
    """Hold the runs against the best of each column; runs that were the best of several are
    compared once.
    """
    firsts = [
        next((k for k, cell in enumerate(column) if cell.best), None)
        for column in zip(*cells, strict=True)
    ]
    for first in dict.fromkeys(k for k in firsts if k is not None):
        others = [k for k in range(len(runs)) if k != first]
        compared = compare(runs[first], *(runs[k] for k in others), examples=0)
        for row, comparison in zip((cells[k] for k in others), compared, strict=True):
            parts = {} if sections else {part.name: part for part in comparison.by_subset}
            parts[OVERALL] = comparison.whole
            for place, name in enumerate(columns):
                if firsts[place] == first and not row[place].best:
                    row[place] = replace(row[place], against=parts.get(name or UNNAMED))


def _names(runs: Sequence[OpenRun], reports: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = [
        str(report.get("reward") or run.folder.name)
        + (f" ({report['judge']})" if report.get("judge") else "")
        for run, report in zip(runs, reports, strict=True)
    ]
    return tuple(
        f"{name} [{run.folder.name}]" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    )


def render_table(table: RunTable, form: str) -> str:
    """The table in a form: `latex` (booktabs), `md`, `csv` (a line a cell, raw numbers) or `html`.

    Raises:
        ConfigError: another form.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown format {form!r}; expected one of {', '.join(FORMS)}.")
    return FORMS[form](table)


class Markup(NamedTuple):
    """How a form writes text from outside, the best score, the mark of a worse one and the ends of
    an interval.
    """

    text: Callable[[str], str]
    best: str
    worse: str
    interval: str

    def cell(self, cell: Cell) -> str:
        """Score and interval for people."""
        score, bounds = cell.figure.get("score"), cell.figure.get("ci95")
        own = cell.figure.get("rule") in OWN_UNIT
        known = [] if score is None else [score, *(bounds if bounds and None not in bounds else ())]
        shown, *ends = [f"{x:.4g}" if own else f"{100.0 * x:.1f}" for x in known] or ["–"]
        return (
            (self.best.format(shown) if cell.best else shown)
            + (self.worse if cell.worse else "")
            + (self.interval.format(*ends) if ends else "")
        )

    def rows(self, table: RunTable) -> list[list[str]]:
        """The names of the columns, and each run with its cells."""
        return [
            [self.text(name) for name in ("", *table.columns)],
            *(
                [self.text(name), *map(self.cell, row)]
                for name, row in zip(table.names, table.cells, strict=True)
            ),
        ]


def _latex(table: RunTable) -> str:
    markup = Markup(
        _tex, r"\textbf{{{}}}", r"\textsuperscript{\textdagger}", r" {{\scriptsize [{}, {}]}}"
    )
    head, *rows = [" & ".join(row).replace("–", "--") + r" \\" for row in markup.rows(table)]
    body = "\n".join(rows)
    return rf"""% \usepackage{{booktabs}}
\begin{{table}}
\centering
\caption{{{" ".join(map(_tex, table.caption()))}}}
\begin{{tabular}}{{l{"r" * len(table.columns)}}}
\toprule
{head}
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{table}}
"""


_TEX = {
    **{c: rf"\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    MARK: r"\textdagger{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


def _tex(text: str) -> str:
    """Text from outside as LaTeX prints it; none of it is a command."""
    return "".join(_TEX.get(c, c) for c in one_line(text))


def _md(table: RunTable) -> str:
    head, *rows = Markup(_markdown_text, "**{}**", MARK, " ({}–{})").rows(table)
    lines = [head, ["---", *["---:"] * len(table.columns)], *rows]
    shown = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([*shown, "", *map(_markdown_text, table.caption()), ""])


def _markdown_text(text: str) -> str:
    """Text from outside in Markdown: no markup, no tag, no new cell."""
    return re.sub(r"([\\`*_\[\]|<>])", r"\\\1", one_line(text))


def _csv(table: RunTable) -> str:
    text, records = io.StringIO(newline=""), list(table.records())
    writer = csv.writer(text)
    writer.writerow(records[0])
    writer.writerows(map(harmless, record.values()) for record in records)
    return text.getvalue()


def _html(table: RunTable) -> str:
    def escaped(text: str) -> str:
        return html.escape(one_line(text))

    markup = Markup(escaped, "<b>{}</b>", f"<sup>{MARK}</sup>", " <small>{}–{}</small>")
    head, *rows = markup.rows(table)
    body = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
        for name, *cells in rows
    )
    return f"""<table>
<caption>{"<br>".join(map(escaped, table.caption()))}</caption>
<tr>{"".join(f"<th>{name}</th>" for name in head)}</tr>
{body}</table>
"""


FORMS = {"latex": _latex, "md": _md, "csv": _csv, "html": _html}


def save_results(runs: Sequence[OpenRun], folder: str | Path) -> list[Path]:
    """Write runs of pairs or lists in the layout of RewardBench's published results; gives the
    paths.

    `eval-set/MODEL.json` holds the accuracy by subset, `eval-set-scores/MODEL.json` a list a
    column: id, subset, results (the credit), scores_chosen, scores_rejected. What has no score is
    null in both. MODEL is the judge, else the reward, with the folder where two are alike.

    Raises:
        ConfigError: a run has no samples with a chosen and a rejected answer.
    """
    paths: list[Path] = []
    reports = [_report_of(run) for run in runs]
    models = [str(report.get("judge") or report.get("reward") or "model") for report in reports]
    for run, report, model in zip(runs, reports, models, strict=True):
        name = f"{model}_{run.folder.name}" if models.count(model) > 1 else model
        kind = "Generative" if report.get("judge") else None
        about = {"model": name, "model_type": kind, "chat_template": None}
        with sound(run):
            parts = report.get("by_subset") or {OVERALL: report}
            scores = {subset: part.get("score") for subset, part in parts.items()}
            columns = _score_columns(run)
        stem = re.sub(r"[^\w.+-]+", "_", name).strip(".") or "model"
        for place, content in (("eval-set", scores), ("eval-set-scores", columns)):
            path = Path(folder) / place / f"{stem}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, as_json({**about, **content}))
            paths.append(path)
    return paths


def _score_columns(run: OpenRun) -> dict[str, Any]:
    rows = []
    for row in run.samples():
        labelled = list(zip(row.labels, row.scores, strict=False))
        sides = [
            [score for label, score in labelled if label == side] for side in ("chosen", "rejected")
        ]
        if all(sides):
            chosen, rejected = (side[0] if len(side) == 1 else side for side in sides)
            rows.append((row.id, row.subset, row.credit, chosen, rejected))
    if not rows:
        raise ConfigError(
            f"{run.folder} has no sample with a chosen and a rejected answer, and RewardBench's "
            f"layout holds nothing else; "
            "leave out --save."
        )
    names = ("id", "subset", "results", "scores_chosen", "scores_rejected")
    return dict(zip(names, zip(*rows, strict=True), strict=True))
