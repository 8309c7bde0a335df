"""Reports as tables for a terminal of 80 columns; text from data never becomes markup or a control
sequence.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rm_gallery.core.stats.uncertainty import NO_INTERVAL
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import to_line, written_whole
from rm_gallery.core.utils.identity import is_unicode
from rm_gallery.core.utils.shown import ended, one_line
from rm_gallery.gallery.benchmarks.figures import Report, hundredths, interval, p_text
from rm_gallery.gallery.benchmarks.lead import (
    HELD_TO_NO_LABELS,
    OWN_UNIT,
    change_in_unit,
    corrected_figure,
)
from rm_gallery.report.cells import sheet_text, workbooks, write_csv
from rm_gallery.report.run_figures import answers_of
from rm_gallery.study.runs import OpenRun, SampleRow, open_run, run_folder, sound
from rm_gallery.study.summary import tokens_of
from rm_gallery.study.table import number_text, range_text

if TYPE_CHECKING:
    import pandas as pd

    from rm_gallery.report.annotate import Annotation
    from rm_gallery.study.canaries import CanaryCheck
    from rm_gallery.study.check import RewardCheck
    from rm_gallery.study.compare import Difference, RunComparison
    from rm_gallery.study.fuzz import Fuzzed
    from rm_gallery.study.pairwise_comparisons import Finding
    from rm_gallery.study.rejudge import RejudgeReport


WIDTH = 80
INTERVAL = "95 % interval"
UNBROKEN = (
    "score %", INTERVAL, "longest", "shortest", "chance", "n", "unscored", "failed", "stopped",
    "first", "second", "difference", "p", "p adj.",
)  # fmt: skip
"""Columns of numbers, which stand on one line."""
LONGEST_CELL = 120


def print_report(report: Report) -> None:
    """Print the figures by subset, and below them what they rest on."""
    lost = ["unscored", *(name for name in ("failed", "stopped") if getattr(report, f"n_{name}"))]
    differing = any(part.chance not in (None, report.chance) for part in report.by_subset.values())
    baselines = [*report.baselines, *(["chance"] if differing else [])]  # one for all stands below
    subset = "subset, judge alone" if corrected_figure(report.to_dict()) else "subset"
    rows = [
        [
            *shown[:3],
            *(hundredths({**part.baselines, "chance": part.chance}.get(key)) for key in baselines),
            str(part.n),
            *(str(getattr(part, f"n_{name}")) for name in lost),
        ]
        for part, shown in zip([*report.by_subset.values(), report], report.rows(), strict=True)
    ]
    columns = [report.unit, INTERVAL, *baselines, "n", *lost]
    _print([subset], columns, rows, report.about(), [report.worth()])


def print_comparison(reports: Mapping[str, Report], notes: Sequence[str] = ()) -> None:
    """Print reports on the same data side by side: one column a reward, one line a subset."""
    shown = list(reports.values())
    rows = [
        ["score %", *(hundredths(report.score) for report in shown)],
        [INTERVAL, *(interval(report.ci95) for report in shown)],
    ]
    for name in dict.fromkeys(name for report in shown for name in report.by_subset):
        parts = (report.by_subset.get(name) for report in shown)
        rows.append([name, *(hundredths(part.score if part else None) for part in parts)])
    for count in ("unscored", "failed", "stopped"):
        values = [getattr(report, f"n_{count}") for report in shown]
        if count != "stopped" or any(values):
            rows.append([count, *map(str, values)])
    worth = [report.worth() for report in shown]
    _print([""], [_cell_text(name) for name in reports], rows, notes, worth)


def print_findings(findings: Sequence[Finding], lines: Sequence[str], worth: str) -> None:
    """Print what a card is worth, figures with their intervals and what they rest on, and below
    them the lines.
    """
    rows = [
        [one.key, one.shown(), one.shown_interval(), str(one.n), one.verdict] for one in findings
    ]
    judged = any(finding.limit for finding in findings)
    last = ["verdict"] if judged else []
    shown = rows if judged else [row[:-1] for row in rows]
    _print(["figure"], ["value", INTERVAL, "n"], shown, lines, [worth], last)


def print_rejudged(report: RejudgeReport) -> None:
    """Print the means of old and new rewards, how they differ, and below the table what has none."""
    gap, n = report.difference, report.n_both
    ends = "" if gap.ci95 is None else f"{gap.ci95.low:+.4g} – {gap.ci95.high:+.4g}"
    rows = [
        ["recorded", _number(report.old_mean), "", str(n)],
        [report.reward, _number(report.new_mean), "", str(n)],
        ["new − recorded", _number(gap.estimate, "+.4g"), ends, str(n)],
    ]
    if report.n_scored > n:
        mean, n_all = _number(report.score), str(report.n_scored)
        rows.append([f"{report.reward}, all", mean, range_text(report.ci95), n_all])
    judge = f" · judge {report.judge}" if report.judge else ""
    lines = [f"data: {report.data} · {report.n} rollouts{judge}", *report.says()]
    _print(["reward"], ["mean", INTERVAL, "n"], rows, lines, [report.worth()])


def print_difference(comparison: RunComparison) -> None:
    """Print what differs between two runs, by subset, and the samples they disagree on."""
    figure = {"rule": comparison.rule}
    value = hundredths if comparison.rule not in OWN_UNIT else number_text
    rows = [
        [
            part.name,
            value(part.first),
            value(part.second),
            _change(figure, part.paired.difference),
            _change_interval(figure, part.paired.interval),
            p_text(part.paired.p_value),
            p_text(part.p_adjusted),
            str(part.paired.n),
        ]
        for part in [*comparison.by_subset, comparison.whole]
    ]
    columns = ["first", "second", "difference", INTERVAL, "p", "p adj.", "n"]
    word = "higher" if comparison.rule in HELD_TO_NO_LABELS else "better"
    examples = (_example(one, word) for one in comparison.examples)
    _print(["subset"], columns, rows, [*_comparison_lines(comparison), *examples])


def print_check(check: RewardCheck) -> None:
    """Print what a reward gave to each kind of completion, and below it what was found."""
    names = list(dict.fromkeys(name for one in check.tried for name in one.scored.components))
    by_kind: dict[str, list[Any]] = {}
    for one in check.tried:
        by_kind.setdefault(one.kind, []).append(one.scored)
    rows = []
    for kind, scores in by_kind.items():
        parts = [_span(score.components.get(name) for score in scores) for name in names]
        status = Counter(score.status for score in scores)
        counts = [str(status["unscored"]), str(status["failed"])]
        rows.append([kind, _span(score.value for score in scores), *parts, *counts])
    lines = [f"reward: {check.reward}"]
    lines += [f"{finding.level}: {finding.name}: {finding.what}" for finding in check.findings] or [
        "nothing was found"
    ]
    without = "refused" if "refused" in check.missing else "as others"
    gains = [
        f"{name} {without if score is None else f'{score:.3g}'}"
        for name, score in check.training.items()
    ]
    lost = [f"{effect} ({', '.join(trainers)})" for effect, trainers in check.missing.items()]
    lines += [f"in training: {' · '.join(gains)}"] if gains else []
    lines += [f"a missing score there: {'; '.join(lost)}", *filter(None, [check.untried])]
    _print(["completion"], ["score", *names, "unscored", "failed"], rows, lines)


def print_canaries(check: CanaryCheck) -> None:
    """Print what a reward gave to each canary, and what that means for the order of them all."""
    rows = []
    for one in check.tried:
        level = f"{one.level}: " if one.level else ""
        score, verdict = _number(one.scored.value, "g"), one_line(level + one.verdict, 120)
        rows.append([str(one.task), one.mark, one_line(one.name, 40), score, verdict])
    faults = len(check.of_level("fault"))
    said = f"{faults} canaries out of order" if faults else "every canary is in order"
    lines = [f"reward: {check.reward}", said]
    _print(["task", "canary", "rollout"], ["score", "verdict"], rows, lines)


def print_fuzzed(fuzzed: Fuzzed) -> None:
    """Print how many wrong texts of each kind pass, with the shortest of them, and below it what
    was tried.
    """
    from rm_gallery.study.fuzz import MUTATIONS

    rows = []
    for name, tried in fuzzed.tried.items():
        own = [one for one in fuzzed.passed if one.mutation == name]
        example = one_line(own[0].text, 60) if own else ""
        rows.append([MUTATIONS[name], example, str(tried), str(len(own))])
    notes = [
        f"reward: {fuzzed.reward} · {fuzzed.cases} cases · {sum(fuzzed.tried.values())} wrong texts · "
        f"seed {fuzzed.seed}",
        *(f"{n} have no score, by cause {cause}" for cause, n in (fuzzed.missing or {}).items()),
    ]
    if fuzzed.left_out:
        left_out = ", ".join(fuzzed.left_out)
        notes.append(f"left out, since no right answer of theirs passes: {left_out}")
    notes.append(
        f"{len(fuzzed.passed)} wrong texts are worth a pass (above {fuzzed.ceiling:.0%} of the right "
        f"answer's score)"
        if fuzzed.passed
        else "no wrong text is worth a pass"
    )
    _print(["a text that", "for example"], ["tried", "passed"], rows, notes)


def _number(value: float | None, form: str = ".4g") -> str:
    return "–" if value is None else format(value, form)


def _span(values: Iterable[float | None]) -> str:
    """Numbers as one, or as the lowest and the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return " – ".join(f"{end:.3g}" for end in dict.fromkeys((min(known), max(known))))


def _change(figure: Mapping[str, Any], value: float | None) -> str:
    return "-" if value is None else change_in_unit(figure, value)


def _change_interval(figure: Mapping[str, Any], bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else " – ".join(change_in_unit(figure, end) for end in bounds)


def _comparison_lines(comparison: RunComparison) -> list[str]:
    """What a difference says in words, and what was left out."""
    from rm_gallery.study.compare import LEVEL, left_out

    whole, figure = comparison.whole, {"rule": comparison.rule}
    lines = [
        f"first: {comparison.first}",
        f"second: {comparison.second}",
        f"benchmark: {comparison.benchmark} · rule: {comparison.rule}",
    ]
    lines += _verdict_lines(comparison)
    if comparison.heterogeneity is not None:
        told = "differs" if comparison.heterogeneity < LEVEL else "is not shown to differ"
        lines.append(f"the difference {told} between subsets, p {p_text(comparison.heterogeneity)}")
    elif comparison.by_subset:
        lines.append("subsets share prompts or have too few, so no test tells whether they differ")
    parts = {"all": [whole], "subsets": comparison.by_subset}
    by = {name: {one.correction for one in own} - {None} for name, own in parts.items()}
    if how := [f"{name} by {one}" for name, own in by.items() for one in own]:
        lines.append(f"p adj.: {', '.join(how)}")
    if comparison.only_first is not None:
        lines.append(
            f"right in the first only: {comparison.only_first}, in the second only: "
            f"{comparison.only_second}"
            + (
                ""
                if comparison.mcnemar_p is None
                else f"; McNemar's mid-p {p_text(comparison.mcnemar_p)}"
            )
        )
    if comparison.agreement is not None:
        lines.append(_agreement_line(comparison.agreement))
    if whole.bounds is not None and (missing := left_out(comparison)):
        lines.append(
            f"{missing}; whatever they were, the difference is "
            f"{_change_interval(figure, whole.bounds)}"
        )
        lines += comparison.suspicion.get("said", ())
    left_by = {
        "only in the first": comparison.n_first_only,
        "only in the second": comparison.n_second_only,
        "without a credit in one of them": comparison.n_unscored,
    }
    left = ", ".join(f"{n} {where}" for where, n in left_by.items() if n)
    return [
        *lines,
        f"left out: {left}" if left else "every sample is in both",
        *comparison.notes,
    ]


def _verdict_lines(comparison: RunComparison) -> Iterator[str]:
    """Which run is shown to be better, or why neither is."""
    paired, figure = comparison.whole.paired, {"rule": comparison.rule}
    if comparison.finding:
        yield comparison.finding
    elif paired.interval is not None and paired.interval.covers(0.0):
        more = ""
        if paired.needed is not None:
            more = f"; about {paired.needed:,} samples would show one of this size"
        if paired.detectable is not None:
            least = change_in_unit(figure, paired.detectable).removeprefix("+")
            points = "" if comparison.rule in OWN_UNIT else " points"
            more += f"; these would show one of {least}{points}"
        yield f"no difference is shown: chance explains it{more}"
    elif paired.interval is not None:
        what = HELD_TO_NO_LABELS.get(comparison.rule)
        neither = "be better" if what is None else f"have the higher {what}"
        yield f"what is missing may explain the difference, so neither is shown to {neither}"
    elif paired.difference is not None:
        yield f"nothing is known about other prompts: {NO_INTERVAL}"


def _agreement_line(agreement: Difference) -> str:
    """Which of two runs people agree with more, on the rows they labelled."""
    paired, figure = agreement.paired, {"rule": "label_agreement"}
    sure = f"{INTERVAL} {_change_interval(figure, paired.interval)}"
    sure = NO_INTERVAL if paired.interval is None else f"{sure}, p {p_text(paired.p_value)}"
    if agreement.correction is not None:
        sure += f", p adj. {p_text(agreement.p_adjusted)} by {agreement.correction}"
    who = f"the {agreement.better} agrees" if agreement.better else "neither is shown to agree"
    return (
        f"{who} more with people: {hundredths(agreement.first)} and {hundredths(agreement.second)} % "
        f"alike, difference {_change(figure, paired.difference)} ({sure}, n = {paired.n:,})"
    )


def _example(one: Mapping[str, Any], word: str) -> str:
    first, second = (
        f"{name}: {one[name]['credit']:g} {one[name]['scores']}" for name in ("first", "second")
    )
    prompt = one["prompt"][:LONGEST_CELL]
    return f"{one['better']} {word} on {one['id']}: {first} · {second} · {prompt}"


def _cell_text(cell: str) -> str:
    """A cell on one line, cut where a name from the data is beyond measure."""
    return ended(one_line(cell[: 10 * LONGEST_CELL]), LONGEST_CELL)


def _print(
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[str]],
    lines: Sequence[str] = (),
    above: Sequence[str] = (),
    last: Sequence[str] = (),
) -> None:
    """Print lines, a table whose columns stand left, right or as they are, and lines below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", overflow="fold", no_wrap=name in UNBROKEN)
    for name in last:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(_cell_text(cell)) for cell in row))
    console = Console(width=None if Console().is_terminal else WIDTH)
    for part in (*above, table, *lines):
        console.print(Text(one_line(part)) if isinstance(part, str) else part)


COLUMNS = (
    "id", "subset", "cluster", "candidate", "prompt", "answer", "label", "verdict",
    "score", "credit", "reason", "status", "cause", "message", "order", "input_tokens", "output_tokens",
)  # fmt: skip
"""Every export has these. `candidate` counts a sample's answers from 1, or names their column;
`verdict` is won, lost or tied, or how often each; `credit` is the sample's; `order` says where the
candidate was shown; tokens are those of all judgements it took part in, known where the run was
traced."""

_MOST_ROWS = 1_048_576


def candidates(run: OpenRun | str | Path) -> Iterator[dict[str, Any]]:
    """One row per candidate of every sample of a run, with the columns `COLUMNS`; None where
    something is unknown.
    """
    run = run if isinstance(run, OpenRun) else open_run(run)
    spent, names = _tokens(run), (run.manifest.get("columns") or {}).get("answers")
    # as they finished; those of a table in its order
    samples: Iterable[SampleRow] = run.samples()
    if "sheet" in run.manifest:
        samples = sorted(samples, key=lambda sample: (sample.metadata or {}).get("row", 0))
    for sample in samples:
        columns = (sample.metadata or {}).get("columns") if names else None
        cause, message = sample.why_missing()
        for place, (answer, label, score, reason) in enumerate(answers_of(sample)):
            tokens = spent.get((sample.key, place)) or spent.get((sample.key, None))
            row = {
                "id": sample.id,
                "subset": sample.subset or None,
                "cluster": sample.cluster or None,
                "candidate": names[columns[place]] if names and columns else str(place + 1),
                "prompt": sample.prompt,
                "answer": answer,
                "label": label,
                "verdict": _verdicts_text(sample, place),
                "score": score,
                "credit": sample.credit,
                "reason": reason,
                "status": sample.status,
                "cause": cause,
                "message": message,
                "order": _order(sample, place),
                "input_tokens": tokens and tokens["input"],
                "output_tokens": tokens and tokens["output"],
            }
            # no file of texts can hold halves of surrogate pairs
            yield {
                name: value.encode("utf-8", "replace").decode()
                if isinstance(value, str) and not is_unicode(value)
                else value
                for name, value in row.items()
            }


def _verdicts_text(sample: SampleRow, place: int) -> str | None:
    """Won, tied or lost in every comparison, or how often each."""
    seen = Counter(
        verdict if place == first else -verdict
        for first, second, verdict in sample.verdicts
        if verdict is not None and place in (first, second)
    )
    words = {1: "won", 0: "tied", -1: "lost"}
    if len(seen) == 1:
        return words[next(iter(seen))]
    return ", ".join(f"{words[sign]} {seen[sign]}" for sign in words if seen[sign]) or None


def _order(sample: SampleRow, place: int) -> str | None:
    first, second = (any(place == verdict[side] for verdict in sample.verdicts) for side in (0, 1))
    return "both" if first and second else "first" if first else "second" if second else None


def _tokens(run: OpenRun) -> dict[tuple[str, int | None], Counter[str]]:
    """The tokens in the trace, by sample and candidate; those of a whole sample under None."""
    spent: defaultdict[tuple[str, int | None], Counter[str]] = defaultdict(Counter)
    for entry in run.trace():
        place = entry.get("place")
        for one in place if isinstance(place, list) else [place]:
            key = str(entry.get("sample_key")), one if isinstance(one, int) else None
            spent[key].update(tokens_of(entry))
    return spent


def to_pandas(run: OpenRun | str | Path) -> pd.DataFrame:
    """The candidates of a run as a frame."""
    import pandas as pd

    return pd.DataFrame(list(candidates(run)), columns=list(COLUMNS))


def export(run: OpenRun | str | Path, path: str | Path, title: str | None = None) -> Path:
    """Write the candidates of a run to `path`, whose extension decides the form: .csv, .xlsx,
    .parquet, .jsonl or .html.

    In csv, text that a spreadsheet would take for a formula gets an apostrophe in front; in xlsx it
    is marked as text. A cell of a workbook holds 32,767 characters: longer text is cut there, and
    says so. `title` stands above a page.

    Raises:
        ConfigError: the extension is unknown, or the rows are more than a sheet holds.
        MissingExtra: xlsx without the extra `report`.
        DataError: the run cannot be opened or the file cannot be written.
    """
    target = Path(path)
    write = _writer(target)
    run = run if isinstance(run, OpenRun) else open_run(run)
    with sound(run), written_whole(target) as file:
        write(run, file, target, title)
    return target


def _writer(path: Path) -> Callable[[OpenRun, BinaryIO, Path, str | None], None]:
    """What writes the form of the extension; raises where there is none, or its package is absent."""
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        known = ", ".join(_WRITERS)
        raise ConfigError(
            f"--export is '{path.name}' and its extension says the form; give one of {known}."
        )
    if writer is _xlsx:
        workbooks()
    return writer


@contextmanager
def exported(
    path: str | Path | None,
    run_dir: str | None,
    copy: Annotation | None = None,
    title: str | None = None,
) -> Iterator[str | None]:
    """The run folder to judge into so that `path` can be written afterwards: `run_dir`, or one that
    is gone in the end.

    The export, and the annotated copy of the table, are written when the block ends without an
    error.
    """
    if path is not None:
        _writer(Path(path))  # before anything is judged
    with run_folder(run_dir, path is not None or copy is not None) as folder:
        yield folder
        if copy is not None and folder is not None:
            copy.write(folder)
        if path is not None and folder is not None:
            export(folder, path, title)


def _csv(run: OpenRun, file: BinaryIO, path: Path, title: str | None) -> None:
    # the mark at the start makes spreadsheets read UTF-8
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    write_csv(text, COLUMNS, (row.values() for row in candidates(run)))
    text.detach()  # flushes, and leaves the file to whoever opened it


def _xlsx(run: OpenRun, file: BinaryIO, path: Path, title: str | None) -> None:
    openpyxl = workbooks()
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment, Font

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("candidates")
    sheet.freeze_panes = "A2"
    for place, name in enumerate(COLUMNS):
        sheet.column_dimensions[chr(65 + place)].width = (
            60 if name in ("prompt", "answer", "reason") else 14
        )

    def cell(value: Any, bold: bool = False) -> Any:
        made = WriteOnlyCell(sheet, value=sheet_text(value) if isinstance(value, str) else value)
        if isinstance(value, str):
            made.data_type = "s"  # text, whatever it begins with
            made.alignment = Alignment(vertical="top", wrap_text=len(value) > 40)
        if bold:
            made.font = Font(bold=True)
        return made

    sheet.append([cell(name, bold=True) for name in COLUMNS])
    for number, row in enumerate(candidates(run), 2):
        if number > _MOST_ROWS:
            raise ConfigError(
                f"{path}: a sheet holds {_MOST_ROWS:,} rows, and the run has more; export .csv or "
                f".parquet."
            )
        sheet.append([cell(value) for value in row.values()])
    book.save(file)


def _parquet(run: OpenRun, file: BinaryIO, path: Path, title: str | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole, number = {"input_tokens", "output_tokens"}, {"score", "credit"}
    kinds = [
        (n, pa.int64() if n in whole else pa.float64() if n in number else pa.string())
        for n in COLUMNS
    ]
    table = pa.Table.from_pylist(list(candidates(run)), schema=pa.schema(kinds))
    pq.write_table(table, file, compression="zstd")


def _jsonl(run: OpenRun, file: BinaryIO, path: Path, title: str | None) -> None:
    file.writelines(map(to_line, candidates(run)))


def _html(run: OpenRun, file: BinaryIO, path: Path, title: str | None) -> None:
    from rm_gallery.report.formats import render

    file.write(render(run, title=title).encode("utf-8"))


_WRITERS = {".csv": _csv, ".xlsx": _xlsx, ".parquet": _parquet, ".jsonl": _jsonl, ".html": _html}
