"""Several runs of one benchmark as a table to cite: a row a run, a column a subset, with what a
reader needs to trust it.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from rm_gallery.report.cells import write_csv
from rm_gallery.report.fill import fill
from rm_gallery.report.run_figures import figures_of
from rm_gallery.study.compare import LEVEL, Difference, check_same, compare
from rm_gallery.study.runs import OpenRun, open_run, sound
from rm_gallery.study.summary import summarize

OVERALL = "overall"
CORRECTED = "corrected by labels"
"""The column of what labels of people make of `OVERALL`, which is the judge's alone."""
MARK = "†"


@dataclass
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
    def score(self) -> float | None:
        """The score, where it is a finite number."""
        score = self.figure.get("score")
        return score if isinstance(score, (int, float)) and math.isfinite(score) else None

    @property
    def texts(self) -> list[str]:
        """The score and the ends of its interval for people."""
        score, ends = self.figure.get("score"), self.figure.get("ci95") or [None]
        if score is None:
            return ["–"]
        own = self.figure.get("rule") in OWN_UNIT
        values = [score, *(() if None in ends else ends)]
        return [f"{value:.4g}" if own else f"{100.0 * value:.1f}" for value in values]

    @property
    def worse(self) -> bool:
        """Whether it is shown to be worse than the best, corrected for all that was tested,
        whatever is missing would have got.
        """
        test = self.against
        return test is not None and test.better == "first" and (test.p_adjusted or 0.0) < LEVEL


@dataclass(eq=False)
class Row:
    """One run of a table.

    Attributes:
        run: its folder.
        report: its saved figures.
        name: reward and judge, with the folder where two are alike.
        cells: what it scored by column.
    """

    run: OpenRun
    report: Mapping[str, Any]
    name: str
    cells: dict[str, Cell]

    def about(self) -> str:
        """Its judge, how many samples it has, and what is missing by cause."""
        report, missing = self.report, self.report.get("missing")
        if missing is None:  # of an earlier version, which did not keep the causes
            missing = {"run, cause not kept": missing_of(report)}
        gone = sum(missing.values())
        parts = [f"{gone:,} missing ({by_cause(missing)})" if gone else "none without a score"]
        parts[0] += ", not finished" if report.get("partial") or report.get("stopped") else ""
        absent = missing_parts(report.get("extra") or {}).removeprefix("missing, and ")
        judge = f", judge {report['judge']}" if report.get("judge") else ""
        lost = "; ".join(filter(None, [*parts, absent, self.run.damage]))
        return f"{self.name}{judge}: n = {count_of(report, 'n'):,}, {lost}."


@dataclass(frozen=True)
class RunTable:
    """Runs of one benchmark side by side.

    Attributes:
        columns: subsets or sections, `overall`, and where people labelled rows `corrected by labels`.
        rows: a row a run.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def caption(self) -> list[str]:
        """What the figures rest on: rule, version, judges, n and what is missing by cause, a
        sentence each.
        """
        reports = [row.report for row in self.rows]
        rule = str(reports[0].get("rule") or "")
        unit = "The unit is the reward's own" if rule in OWN_UNIT else "Figures are percentages"
        rule_text = f" ({RULES[rule]})" if rule in RULES else ""
        lines = [
            f"{reports[0].get('benchmark') or 'Benchmark'}, rule {rule}{rule_text}.",
            f"{unit}, with 95 % intervals over prompts; best in bold.",
        ]
        tests = {
            name: [test for row in self.rows if (test := row.cells[name].against)]
            for name in self.columns
        }
        tested = [name for name in self.columns if tests[name]]
        if tested:
            only = tested == [OVERALL] and len(self.columns) > 1
            scope = f" Only {OVERALL} was tested." if only else ""
            corrections = {test.correction for name in tested for test in tests[name]} - {None}
            known = " and ".join(sorted(f"{correction}-" for correction in corrections))
            lines.append(
                f"{MARK}: worse than the best of the column on the samples both scored (paired by "
                f"prompt, {known and f'{known}corrected '}p < 0.05).{scope}"
            )
        lines += [row.about() for row in self.rows]
        if len({report.get("n") for report in reports}) > 1:
            lines.append("The runs have different samples: figures are of each run's own.")
        version = min({str(report.get("version") or "") for report in reports} - {""}, default="")
        lines.append(f"rm-gallery {__version__}{version and f', rule version {version}'}.")
        return [one_line(line) for line in lines]

    def records(self) -> Iterator[dict[str, Any]]:
        """Every cell as numbers: scores and limits as shares or in the reward's own unit."""
        for row in self.rows:
            for column in self.columns:
                cell = row.cells[column]
                figure, (low, high) = cell.figure, cell.figure.get("ci95") or (None, None)
                yield {
                    "run": row.run.folder.name,
                    "reward": row.report.get("reward") or row.name,
                    "judge": row.report.get("judge"),
                    "column": column,
                    "rule": figure.get("rule"),
                    "score": figure.get("score"),
                    "low": low,
                    "high": high,
                    "n": figure.get("n"),
                    "n_scored": figure.get("n_scored"),
                    "missing": sum((figure.get("missing") or {}).values()),
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
    rows = [Row(run, report := _report_of(run), _name(run, report), {}) for run in open_runs]
    rule = rows[0].report.get("rule")
    if rule == TRUST_CARD:
        raise ConfigError(
            f"{open_runs[0].holds}, whose parts have units of their own and no place in a table; "
            f"rm-gallery report writes a page about it."
        )
    parts: dict[str, None] = {}
    for row in rows:
        of_rule = row.report.get("extra") or {}
        figures = (of_rule.get("sections") if sections else row.report.get("by_subset")) or {}
        parts |= dict.fromkeys(figures)
        figures = {**figures, OVERALL: row.report}
        if corrected_figure(row.report):
            figures[CORRECTED] = lead_figure(row.report)
        row.cells = {name: Cell(figure) for name, figure in figures.items()}
    whole = [name for name in (OVERALL, CORRECTED) if any(name in row.cells for row in rows)]
    columns = [*(name for name in parts if name not in whole), *whole]
    if sections and columns == whole:
        raise Inapplicable(
            f"rule {rule!r} has no sections; leave out --sections for a column a subset.",
            "sections",
        )
    for name in columns:
        cells = [row.cells.setdefault(name, Cell({})) for row in rows]
        best = max((cell.score for cell in cells if cell.score is not None), default=None)
        for cell in cells:
            cell.best = best is not None and cell.score == best
    if len(rows) > 1 and rule not in OWN_UNIT:
        _hold_against_best(rows, columns, sections)
    names = Counter(row.name for row in rows)
    for row in rows:
        row.name += f" [{row.run.folder.name}]" if names[row.name] > 1 else ""
    return RunTable(tuple(columns), tuple(rows))


def _report_of(run: OpenRun) -> Mapping[str, Any]:
    """The figures the run saved, else those of its samples so far."""
    with sound(run):
        return run.report or figures_of(run, summarize(run))


def _name(run: OpenRun, report: Mapping[str, Any]) -> str:
    judge = f" ({report['judge']})" if report.get("judge") else ""
    return f"{report.get('reward') or run.folder.name}{judge}"


def _hold_against_best(rows: Sequence[Row], columns: Sequence[str], sections: bool) -> None:
    """Hold the runs against the best of each column; runs that were the best of several are
    compared once.
    """
    best_of = {name: next((row for row in rows if row.cells[name].best), None) for name in columns}
    for best in dict.fromkeys(filter(None, best_of.values())):
        others = [row for row in rows if row is not best]
        compared = compare(best.run, *(row.run for row in others), examples=0)
        for row, comparison in zip(others, compared, strict=True):
            parts = {} if sections else {part.name: part for part in comparison.by_subset}
            parts[OVERALL] = comparison.whole
            for name, cell in row.cells.items():
                if best_of[name] is best and not cell.best:
                    cell.against = parts.get(name or UNNAMED)


def render_table(table: RunTable, form: str) -> str:
    """The table in a form: `latex` (booktabs), `md`, `csv` (a line a cell, raw numbers) or `html`.

    Raises:
        ConfigError: another form.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown format {form!r}; expected one of {', '.join(FORMS)}.")
    if form == "csv":
        return _csv(table)
    text, caption = FORMS[form], table.caption()
    return fill(f"runs.{form}.jinja2", table=table, caption=caption, text=text, mark=MARK)


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


def _markdown_text(text: str) -> str:
    """Text from outside in Markdown: no markup, no tag, no new cell."""
    return re.sub(r"([\\`*_\[\]|<>])", r"\\\1", one_line(text))


def _csv(table: RunTable) -> str:
    text, records = io.StringIO(newline=""), list(table.records())
    write_csv(text, records[0], (record.values() for record in records))
    return text.getvalue()


def _html_text(text: str) -> str:
    return html.escape(one_line(text))


FORMS: dict[str, Callable[[str], str]]
FORMS = {"latex": _tex, "md": _markdown_text, "csv": str, "html": _html_text}
"""How each form writes text from outside; its template has the rest."""


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
