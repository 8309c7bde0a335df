"""Before and after a run: `rm-gallery plan`, `compare`, `table`, `report` and `explain`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rm_gallery.cli import options as opt
from rm_gallery.core.utils.errors import ConfigError, DataError, Inapplicable
from rm_gallery.core.utils.file import written_whole
from rm_gallery.core.utils.names import nearest

if TYPE_CHECKING:
    from rm_gallery.core.stats.planning import SampleSize
    from rm_gallery.study.drift import Pilot
    from rm_gallery.study.runs import SampleRow

Runs = Annotated[list[Path], typer.Argument(metavar="RUN_A RUN_B …")]


@dataclass(frozen=True)
class PlanOptions:
    """What is to be known, how sure, and what is known beforehand; see `plan`.

    Attributes:
        precision: Half the width the 95 % interval may have, such as 0.03.
        detect: Difference that is to be found, such as 0.05 for 55 against 50 %; --rate is then the
            true share.
        judged: Rows the judge scores; the plan is then for labels among them.
        discordance: Share of rows on which one of two systems is right; plans pairs.
        rate: Expected share of passes or wins; 0.5 by default.
        sd: Standard deviation of graded scores, in place of --rate.
        correlation: Of judge score and label; with --sd.
        sensitivity: Share of true passes the judge passes; 0.9.
        specificity: Share of true fails the judge fails; 0.9.
        pilot: Table of a first run, from which spread, judge and clusters are taken.
        score: The pilot's column of judge scores.
        label: The pilot's column of labels.
        cluster: The pilot's column that says which rows belong together.
        rows_per_cluster: Rows per prompt or conversation.
        icc: Correlation of two rows of one cluster, 0..1.
        cost_label: Price of a label; with --cost-judge.
        cost_judge: Price of a judged row; the cheapest mix is sought.
        confidence: Level of the interval or test.
        power: Probability to find the difference of --detect.
    """

    precision: float | None = None
    detect: float | None = None
    judged: Annotated[int | None, typer.Option(min=2)] = None
    discordance: float | None = None
    rate: float | None = None
    sd: float | None = None
    correlation: float | None = None
    sensitivity: float | None = None
    specificity: float | None = None
    pilot: str | None = None
    score: str | None = None
    label: str | None = None
    cluster: str | None = None
    rows_per_cluster: float | None = None
    icc: float | None = None
    cost_label: float | None = None
    cost_judge: float | None = None
    confidence: float = 0.95
    power: float = 0.8

    def check(self) -> None:
        """Raise ConfigError where these do not fit together."""
        if (self.precision is None) == (self.detect is None):
            raise Inapplicable(
                "plan needs --precision (how near) or --detect (which difference to find), one of "
                "the two",
                "detect",
                "precision",
            )
        if self.judged is not None and (self.detect is not None or self.discordance is not None):
            why = "--judged plans labels for a --precision; leave out --detect and --discordance"
            raise Inapplicable(why, "judged", "detect", "discordance")
        if self.discordance is not None and self.detect is None:
            raise Inapplicable(
                "--discordance plans pairs that find a difference; name it with --detect",
                "discordance",
            )
        for name in ("sensitivity", "specificity", "correlation", "cost_label", "cost_judge"):
            if self.judged is None and getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise Inapplicable(
                    f"{option} is for a plan of labels; say how many rows are judged with --judged",
                    name,
                )
        if self.judged is not None and (self.cost_label is None) != (self.cost_judge is None):
            why = "--cost-label and --cost-judge go together; the cheapest mix depends on both"
            raise Inapplicable(why, "cost_label", "cost_judge")
        if self.pilot is None and (self.score or self.label or self.cluster):
            why = (
                "--score, --label and --cluster name columns of a pilot; name its file with --pilot"
            )
            raise Inapplicable(why, "score", "label", "cluster")

    def answer(self, known: Pilot) -> tuple[SampleSize, str]:
        """How many it takes, and of what."""
        from rm_gallery.core.stats.planning import plan_difference, plan_labels, plan_mean

        def given(**others: float | None) -> dict[str, Any]:
            """The options of these names; one that was not given has the value beside its name."""
            own = {name: getattr(self, name) for name in others}
            return {
                name: other if own[name] is None else own[name] for name, other in others.items()
            }

        rate, sd = given(rate=0.5), self.sd if self.rate is not None else given(sd=known.sd)["sd"]
        common: dict[str, Any] = {"confidence": self.confidence}
        common |= given(rows_per_cluster=known.rows_per_cluster, icc=known.icc)
        tested: dict[str, Any] = {"effect": self.detect, "power": self.power}
        if self.discordance is not None and self.detect is not None:
            size = plan_difference(discordance=self.discordance, **tested, **common)
            return size, f"pairs to find a difference of {self.detect:g}"
        if self.judged is None:
            size = plan_mean(half_width=self.precision, sd=sd, **tested, **rate, **common)
            if self.detect is None:
                return size, f"rows for ±{size.half_width:.4g}"
            return size, _of_sides(size, rate["rate"], self.detect)
        judge = {"sd": sd, **given(correlation=known.correlation)}
        if (
            self.sensitivity is not None
            or self.specificity is not None
            or (self.sd is None and known.correlation is None)
        ):
            judge = given(rate=0.5, sensitivity=0.9, specificity=0.9)
        elif (sd is None) != (judge["correlation"] is None):
            raise Inapplicable(
                "--sd and --correlation go together; give both, or neither", "correlation", "sd"
            )
        judge |= given(cost_label=None, cost_judge=None)
        size = plan_labels(half_width=self.precision or 0.0, n_rows=self.judged, **judge, **common)
        return size, f"labels among {size.rows:,} judged rows for ±{size.half_width:.4g}"


@opt.grouped()
def plan(*, wanted: PlanOptions, json: opt.Json = False) -> None:
    """Compute how many rows, labels (with --judged) or pairs (with --discordance) a precision or a
    difference needs.
    """
    from rm_gallery.study.drift import Pilot, read_pilot

    wanted.check()
    columns = {"score": wanted.score, "label": wanted.label, "cluster": wanted.cluster}
    known = Pilot() if wanted.pilot is None else read_pilot(Path(wanted.pilot), **columns)
    size, what = wanted.answer(known)
    plain = {name: value for name, value in asdict(size).items() if value not in (None, ())}
    what += "" if size.clusters is None else f", in {size.clusters:,} clusters"
    what += "" if size.power is None else f" (power {100 * size.power:.0f} %)"
    what += "" if size.alone is None else f"; labels alone: {size.alone:,}"
    opt.show(json, {**plain, "pilot": known.to_dict()}, [f"{size.n:,} {what}", *known.lines()])


def _of_sides(size: SampleSize, rate: float, detect: float) -> str:
    text = f"rows to find a difference of {detect:g}"
    for hard in size.sides[:1]:
        text += f": {rate:g} against {hard.null:g}"
    for easy in size.sides[1:2]:
        text += f", the harder side; against {easy.null:g} it takes {easy.n:,}"
    return text


@opt.grouped()
def compare(
    runs: Runs,
    examples: Annotated[int, typer.Option(min=0)] = 3,
    fail_if_worse: bool = False,
    *,
    gates: opt.Gates,
    json: opt.Json = False,
) -> None:
    """Compare runs of one benchmark sample by sample: differences by subset with 95 % intervals and
    p-values.

    Args:
        runs: Run folders; all are held against the first.
        examples: Samples to show on which the runs disagree, each way.
        fail_if_worse: Exit with 1 when a run is worse than the first beyond chance, what is missing
            counted at its worst.
    """
    from rm_gallery.report.tables import print_difference
    from rm_gallery.study.compare import compare as compare_runs
    from rm_gallery.study.runs import open_run

    opt.say_reading(*runs)
    try:
        differences = compare_runs(*runs, examples=examples)
    except DataError as error:  # a folder that is no run is wrong use
        raise ConfigError(str(error)) from None
    if json:
        opt.print_json([one.to_dict() for one in differences])
    for number, one in enumerate(() if json else differences):
        if number:
            typer.echo()
        print_difference(one)
    limits = (gates.fail_under, gates.max_failures, gates.max_unscored)
    if not fail_if_worse and limits == (None, None, None):
        return
    reference = open_run(runs[0]) if fail_if_worse else None
    missed = (
        f"{run.folder.name}: {why}"
        for run in map(open_run, runs[1:])
        for _, why in gates.gate_of(run.report, reference).missed(run.report, run=run, say=opt.say)
    )
    sys.exit(opt.say_missed(missed))


@opt.grouped()
def table(
    runs: Runs,
    form: opt.Form = "md",
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    sections: bool = False,
    save: Path | None = None,
) -> None:
    """Put runs side by side as a table to cite: intervals, the best in bold, marks of significance,
    and a caption.

    Args:
        runs: Run folders of one benchmark; each is a row.
        form: latex, md, csv (raw numbers) or html.
        out: File to write; by default stdout.
        sections: A column a section, of rules that have some, and not a column a subset.
        save: Folder for the results in RewardBench's published layout.
    """
    from rm_gallery.report.run_table import render_table, run_table, save_results
    from rm_gallery.study.runs import open_run

    try:
        opt.say_reading(*runs)
        open_runs = [open_run(run) for run in runs]
    except DataError as error:  # a folder that is no run is wrong use
        raise ConfigError(str(error)) from None
    text = render_table(run_table(*open_runs, sections=sections), form)
    _hand_out(text, out)
    for path in save_results(open_runs, save) if save else []:
        opt.say(str(path))


def _hand_out(text: str, out: Path | None, say: Callable[[str], None] = opt.say) -> None:
    """Write a text to a file and say its path, on stderr by default; or print it."""
    if out is None:
        typer.echo(text, nl=False)
        return
    with written_whole(out) as file:
        file.write(text.encode("utf-8"))
    say(str(out))


PAGE = "report.html"


@opt.grouped()
def report(
    run: Path,
    form: opt.Form = "html",
    out: Path | None = None,
    title: str | None = None,
    pdf: Path | None = None,
    *,
    gates: opt.Gates,
) -> None:
    """Write what RUN found as one self-contained page, or in another format for a pull request, a
    program or CI.

    The exit code is 1 when a gate is missed: --fail-under, --max-failures, --config
    result.max_unscored=N, and with --format junit also an unfinished run.

    Args:
        run: Folder of a run that was made with --out; it may be unfinished.
        form: html, md, json or junit.
        out: File to write; by default RUN/report.html, and stdout for the other formats.
        title: Title of the page, in place of what was judged by what.
        pdf: Print a summary of one page to this file too, by Chromium, Chrome or Edge.
    """
    from rm_gallery.report.formats import render
    from rm_gallery.report.pdf import find_browser, print_summary
    from rm_gallery.report.run_figures import figures_of
    from rm_gallery.study.runs import open_run
    from rm_gallery.study.summary import summarize

    opt.say_reading(run)
    loaded = open_run(run)
    gate = gates.gate_of(loaded.report)
    browser = None if pdf is None else find_browser()
    text = render(loaded, form, gate, title)
    if pdf is not None and browser is not None:
        print_summary(loaded, pdf, browser, title)
        opt.say(str(pdf))
    if form == "html":
        _hand_out(text, out or loaded.folder / PAGE, typer.echo)
    else:
        _hand_out(text, out)
    fail_under = gates.fail_under is not None
    asked = {
        "score": fail_under,
        "failed": gates.max_failures is not None,
        "unscored": gates.max_unscored is not None or fail_under,
    }
    if form == "junit" or any(asked.values()):
        figures = figures_of(loaded, summarize(loaded))
        missed = list(gate.missed(figures, finished=loaded.finished, say=opt.say))
        sys.exit(opt.say_missed(why for part, why in missed if form == "junit" or asked.get(part)))


@opt.grouped()
def explain(
    run: Path,
    sample: Annotated[str, typer.Argument(metavar="ID")],
) -> None:
    """Explain the score of one sample: the row, prompts and replies, what was read from them, the
    score or why there is none.

    Prompts and replies are there where the run was made with --trace.

    Args:
        run: Folder of a run that was made with --out.
        sample: Id of a sample.
    """
    from rm_gallery.core.engine.folder import read_trace
    from rm_gallery.study.runs import open_run

    loaded = open_run(run)
    if loaded.damage:
        opt.say(f"{loaded.damage}.")
    rows = [row for row in loaded.samples() if row.id == sample]
    entries = list(read_trace(run, sample)) if loaded.traced else []
    if not rows and not entries:
        ids = dict.fromkeys(row.id for row in loaded.samples())
        ids = ids or dict.fromkeys(str(entry.get("id")) for entry in loaded.trace())
        if not ids:
            raise DataError(
                f"{loaded.holds} and keeps no samples; rm-gallery report {run} writes a page about it."
            )
        near = nearest(sample, set(ids))
        what = f"{'near are' if near else 'ids are such as'} {', '.join(near or islice(ids, 3))}"
        raise DataError(f"{run} has no sample '{sample}'; {what}.")
    for row in rows:
        typer.echo("\n".join(_explained(row, str(loaded.report.get("rule") or ""))))
        own = [entry for entry in entries if entry.get("key") in (None, row.key)]
        for entry in own:
            typer.echo("\n" + _judgement_text(entry))
        if not own:
            typer.echo("\nPrompts and replies were not kept; --trace keeps them.")
    if not rows:  # a run of the library keeps no rows
        typer.echo("\n\n".join(map(_judgement_text, entries)))


def _explained(row: SampleRow, rule: str) -> Iterator[str]:
    from rm_gallery.report.run_figures import answers_of

    where = row.id
    where += f" · subset {row.subset}" if row.subset else ""
    where += f" · cluster {row.cluster}" if row.cluster else ""
    yield f"=== {_printable(where)} · {row.status}"
    yield f"--- prompt\n{_printable(row.prompt)}"
    for number, (answer, label, score, reason) in enumerate(answers_of(row)):
        named = f" ({label})" if label else ""
        score_text = "no score" if score is None else f"score {score:.6g}"
        yield f"--- answer {number}{named}: {score_text}\n{_printable(answer)}"
        if reason:
            yield f"    because: {_printable(reason)}"
    if row.order:
        yield f"--- shown in the order {', '.join(map(str, row.order))}"
    words = {1: "the first", -1: "the second", 0: "a tie", None: "no verdict"}
    for first, second, verdict in row.verdicts:
        yield f"--- answer {first} before answer {second}: {words.get(verdict)}"
    for issue in row.issues:
        yield (
            f"--- {issue.status}: {issue.reason}, by {issue.cause or 'nobody known'}: "
            f"{_printable(issue.message)}"
        )
    credit = "nothing that counts" if row.credit is None else f"{row.credit:.6g}"
    cause = f", missing by {row.cause}" if row.cause else ""
    yield f"--- credit{f' under {rule}' if rule else ''}: {credit}{cause}"


def _judgement_text(entry: dict[str, Any]) -> str:
    head = (
        f"{entry.get('reward')} · place {entry.get('place')} · attempt {entry.get('attempt')} · "
        f"{entry.get('status')}"
    )
    if entry.get("problem"):
        head += f": {entry['problem']}"
    tokens, cached = entry.get("tokens") or {}, ", from the cache" if entry.get("cached") else ""
    lines = [
        f"=== {_printable(head)}",
        f"    {tokens.get('input', 0)} + {tokens.get('output', 0)} tokens, "
        f"{entry.get('seconds', 0):.2f} s{cached}",
    ]
    prompt = entry.get("prompt")
    for message in prompt if isinstance(prompt, list) else []:
        lines.append(f"--- {message.get('role')}\n{_printable(message.get('content'))}")
    return "\n".join([*lines, f"--- reply\n{_printable(entry.get('reply'))}"])


def _printable(text: Any) -> str:
    """A text as a terminal may show it: control characters, which could steer it, are left out."""
    text = text if isinstance(text, str) else dumps(text, ensure_ascii=False)
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text.replace("\r\n", "\n")
    )
