"""The options that commands share, reading their shorthand, and what a command writes about itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, getdoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import orjson
import typer

from rm_gallery.cli.settings import first_time, is_setting
from rm_gallery.core.utils.defaults import MAX_WORKERS
from rm_gallery.core.utils.docstrings import documentation
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.file import as_json
from rm_gallery.core.utils.shown import one_line

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.model.budget import Budget
    from rm_gallery.core.reward.reward import BaseReward
    from rm_gallery.report.gate import QualityGate
    from rm_gallery.study.runs import OpenRun
    from rm_gallery.study.table import Columns


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """The names that begin with what is typed, for the shell's completion."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _reward_names() -> Iterable[str]:
    from rm_gallery.core.reward.registry import RewardRegistry

    return RewardRegistry.list()


reward_names = completing(_reward_names)
LARGE = 16_000_000
"""Size in bytes from which a file is named on stderr before it is read."""


def setting(group: str, **how: Any) -> Any:
    """An option that `--config` and rm-gallery.toml name below this group; `--help` lists its name
    there.
    """
    return typer.Option(hidden=True, rich_help_panel=group, **how)


T = TypeVar("T")
RunSetting = Annotated[T, setting("run")]
FileSetting = Annotated[T, setting("file")]
ColumnSetting = Annotated[T, setting("columns")]
Count = Annotated[T, typer.Option(min=1)]
Form = Annotated[str, typer.Option("--format")]
Named = Annotated[T, typer.Option()]
"""An option that has to be given."""

Llm = Annotated[str | None, typer.Option(help="The judge's model; a judged reward needs one.")]
BaseUrl = Annotated[
    str | None, typer.Option(help="The judge's endpoint; OPENAI_BASE_URL by default.")
]
MaxWorkers = Annotated[int, typer.Option(min=1, help="Judgements in flight at once.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Take a seeded sample of this many rows.")]
Json = Annotated[bool, typer.Option(help="Print JSON on stdout.")]
MaxFailures = Annotated[
    int, typer.Option(min=0, help="Failed samples that still count as success.")
]
MaxUnscored = Annotated[
    int | None,
    setting(
        "result",
        min=0,
        help="Unscored samples that pass a gate; 0 where one is set, else any number.",
    ),
]
FailUnder = Annotated[
    float | None,
    typer.Option(
        help=(
            "Exit with 1 when the figure, a share from 0 to 1 or a mean score, is lower with what "
            "is missing at its worst."
        )
    ),
]
UseCi = Annotated[
    bool,
    typer.Option(
        help="Compare the lower end of the 95 % interval with --fail-under, not the figure alone."
    ),
]

SPELLED = (
    "NAME, FILE, FILE:NAME, or a prefix such as func:, grader:, rubric:, bt:, hf:, served: or "
    "column: and what it names"
)
"""How a reward is named, in the same words at every command."""
Reward = Annotated[
    T,
    typer.Argument(metavar="REWARD", help=f"The reward: {SPELLED}.", autocompletion=reward_names),
]
Config = Annotated[Path, typer.Argument(metavar="CONFIG")]
Data = Annotated[T, typer.Argument(metavar="DATA")]
"""What holds rows; it stands behind the REWARD, or the CONFIG that names several."""
Benchmark = Annotated[
    str | None, typer.Option(help="Layout of the data; found from its columns by default.")
]
Table = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="csv, xlsx, parquet or jsonl file, or a result file of another tool."
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(help="Column with the prompts; only column:NAME does without it and the answers."),
]


def print_json(value: Any) -> None:
    """Print JSON types on stdout."""
    typer.echo(as_json(value).decode(), nl=False)


def print_result(report: Any, as_json: bool, shown: Callable[[Any], object], what: str) -> None:
    """Print a report, as JSON or as `shown` prints it, and say why `what` it lacks is missing."""
    print_json(report.to_dict()) if as_json else shown(report)
    say_lost(report.reasons, report.stopped, what)


def show(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print a result, as JSON or line by line."""
    if as_json:
        return print_json(value)
    for line in lines:
        typer.echo(line)
    return None


def one_or_all(data: Any) -> Any:
    """The only one of several files or folders, else all of them."""
    return data[0] if isinstance(data, list) and len(data) == 1 else data


def _shared_fields(options: Any, kind: Any) -> dict[str, Any]:
    """The options that are fields of another dataclass, too."""
    names = (field.name for field in fields(kind))
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


@dataclass(frozen=True)
class Gates:
    """What the figure of a finished run has to reach; see `QualityGate`.

    Attributes:
        max_failures: Failed samples that still count as success; 0 with another gate.
    """

    fail_under: FailUnder = None
    use_ci: UseCi = False
    max_failures: Annotated[int | None, typer.Option(min=0)] = None
    max_unscored: MaxUnscored = None

    def gate(self, own_unit: bool, reference: OpenRun | None = None) -> QualityGate:
        """The gate of a run, whose figures are in the reward's own unit or shares."""
        from rm_gallery.report.gate import QualityGate

        return QualityGate(
            self.fail_under,
            self.max_failures or 0,
            self.max_unscored,
            reference,
            surely=self.use_ci,
            own_unit=own_unit,
        )

    def gate_of(self, figures: Mapping[str, Any], reference: OpenRun | None = None) -> QualityGate:
        """The gate of a run with these figures."""
        from rm_gallery.gallery.benchmarks.lead import OWN_UNIT

        return self.gate(figures.get("rule") in OWN_UNIT, reference)


@dataclass(frozen=True)
class Running:
    """What every command that judges takes: which judge, how the run goes, and what is printed.

    Attributes:
        param: k=v sets a field of the reward; may be repeated.
        out: Run folder; the same command continues an unfinished run.
        trace: Keep every judgement's prompt and reply; needs --out.
        seed: Decides the sample, the candidate order and the bootstrap.
        force_new: Set aside the folder of a run with other settings.
        deadline: Seconds one sample may take.
        blame: probe repeats failed samples, also with neutral answers, to find the cause.
        engine: ray judges with actors of a Ray cluster.
        address: The Ray cluster; RAY_ADDRESS, or one of this machine, by default.
        processes: Actors of Ray, or processes of a reward that runs code.
        batch: openai or anthropic: their batch API at half the price; needs --out.
        submit: End once the batch is sent; the same command collects it.
        cache: Cache replies; default at temperature 0.
        log_level: error, warning, info, debug, or http to trace calls.
        max_calls: Stop, resumably, after this many calls.
        max_tokens: Stop, resumably, after this many tokens.
        max_cost: Stop, resumably, at this cost; needs prices.
        prices: YAML file with prices per million tokens.
        on_bad_row: raise, or skip and count.
    """

    llm: Llm = None
    base_url: BaseUrl = None
    param: list[str] | None = None
    max_workers: MaxWorkers = MAX_WORKERS
    out: Path | None = None
    trace: bool = False
    json: Json = False
    seed: RunSetting[int] = 0
    force_new: RunSetting[bool] = False
    deadline: Annotated[float | None, setting("run", min=0.001)] = None
    blame: RunSetting[str | None] = None
    engine: str | None = None
    address: str | None = None
    processes: Annotated[int | None, setting("run", min=1)] = None
    batch: RunSetting[str | None] = None
    submit: RunSetting[bool] = False
    cache: RunSetting[bool | None] = None
    log_level: RunSetting[str] = "warning"
    max_calls: Annotated[int | None, setting("budget", min=1)] = None
    max_tokens: Annotated[int | None, setting("budget", min=1)] = None
    max_cost: Annotated[float | None, setting("budget", min=0)] = None
    prices: Annotated[Path | None, setting("budget")] = None
    on_bad_row: FileSetting[str] = "raise"

    @property
    def judge(self) -> dict[str, Any]:
        """Keywords that build the reward."""
        return {
            "params": parse_params(self.param or []),
            "llm": self.llm,
            "base_url": self.base_url,
        }

    def build(self, reward: str) -> BaseReward:
        """The reward of this name."""
        from rm_gallery.core.reward.resolve import resolve

        return resolve(reward, seed=self.seed, **self.judge)

    def task(self, limit: int | None) -> dict[str, Any]:
        """The judge and the rows: keywords of `evaluate`."""
        return {**self.judge, "limit": limit, "seed": self.seed, "on_bad_row": self.on_bad_row}

    def options(self) -> RunOptions:
        """The options of the run; ConfigError where these do not fit together."""
        from rm_gallery.core.engine.options import RunOptions

        if self.trace and self.out is None:
            raise Inapplicable(
                "--trace keeps judgements in the run folder; name one with --out RUN.", "trace"
            )
        return RunOptions(
            **_shared_fields(self, RunOptions),
            progress=True,
            budget=self._budget(),
            run_dir=None if self.out is None else str(self.out),
        )

    def _budget(self) -> Budget | None:
        """The budget of the options, None without one; prices alone count cost and limit nothing."""
        from rm_gallery.core.model.budget import Budget, PriceTable

        limits = {name: getattr(self, name) for name in ("max_calls", "max_tokens", "max_cost")}
        if self.prices is None and not any(limit is not None for limit in limits.values()):
            return None
        prices = None if self.prices is None else PriceTable.from_yaml(self.prices)
        if self.max_cost is not None and prices is None and is_setting("max_cost"):
            # a limit in a file of settings must not stop a rule, which costs nothing, nor be lost
            # where a model is called
            prices = PriceTable({}, "a run without budget.prices")
        return Budget(prices=prices, **limits)

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Ctrl-C ends the command with exit code 130 and says how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            unkept = "with --out RUN it could be continued"
            again = unkept if self.out is None else "the same command continues it"
            say(f"rm-gallery: interrupted; {again}.")
            raise typer.Exit(130) from None


@dataclass(frozen=True)
class Reported:
    """What every command that reports a figure takes: how many rows, which files, which gates.

    Attributes:
        shard: Judge one of N equal shares, into --out; without it all are joined.
        fail_if_worse_than: Exit with 1 when the 95 % interval of the difference to that run lies
            below 0, what is missing at its worst.
        estimate: Judge ten samples and estimate what the rest costs.
        export: Write a row per candidate to this .csv, .xlsx, .parquet, .jsonl or .html file.
        title: Title of the page that --export FILE.html writes.
        annotate: Write a copy of the table with scores and reasons as new columns.
    """

    limit: Limit = None
    shard: Annotated[str | None, typer.Option(metavar="I/N")] = None
    max_failures: MaxFailures = 0
    max_unscored: MaxUnscored = None
    fail_under: FailUnder = None
    use_ci: UseCi = False
    fail_if_worse_than: Annotated[Path | None, typer.Option(metavar="RUN")] = None
    estimate: bool = False
    export: Path | None = None
    title: Annotated[str | None, setting("result")] = None
    annotate: Path | None = None

    def shard_of(self, run: Running, repeats: int = 1) -> str | None:
        """The share that is judged; ConfigError beside an option that only a whole run can serve."""
        if self.shard is None:
            return None
        if run.out is None:
            raise Inapplicable(
                "--shard is a share of a run that several keep in one folder; name it with --out "
                "RUN.",
                "shard",
            )
        names = ("fail_under", "fail_if_worse_than", "export", "annotate")
        given = [name for name in names if getattr(self, name) is not None]
        given += ["repeats"] if repeats > 1 else []
        if given:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise Inapplicable(
                f"--shard judges a share and reports no figure; give {options} to the run without "
                f"--shard.",
                *given,
                "shard",
            )
        return self.shard

    def gate(self, own_unit: bool = False) -> QualityGate:
        """What the figure is held to; ConfigError, before anything is paid, for a limit or a run
        that is none.
        """
        from rm_gallery.report.gate import reference_run

        before = self.fail_if_worse_than
        reference = None if before is None else reference_run(before)
        if self.use_ci and self.fail_under is None:
            raise Inapplicable(
                "--use-ci says how --fail-under is held; give --fail-under X as well.", "use_ci"
            )
        gates = Gates(self.fail_under, self.use_ci, self.max_failures, self.max_unscored)
        return gates.gate(own_unit, reference)


@dataclass(frozen=True)
class Tabled:
    """What every command over a table takes besides the columns it judges: the fields of `Columns`
    a user names.

    Attributes:
        reference: Column with reference answers, for rewards that read one.
        labels: Column of people's labels (winrate: a, b, tie or 0..1; score: numbers, pass or
            fail), or a file with them by id.
        id: Column that names rows, by which another file is joined.
        by: Column whose values are subgroups; may be repeated.
        dry_run: Print how the table is read and every setting, and stop.
        label_column: The labels file's column of labels, where it has several.
        label_probability: Column of the probability that a row was chosen for labelling.
        cluster: Column of rows that belong together; rows of one prompt always do.
        numbers: Accept columns of numbers as texts.
        encoding: Encoding of a csv file; found by default.
        separator: Separator of a csv file, such as ';' or tab; found by default.
        sheet: Sheet of a workbook, or filter of lm-evaluation-harness samples.
        header_row: Row of a sheet with the names of the columns.
    """

    reference: str | None = None
    labels: str | None = None
    id: str | None = None
    by: list[str] | None = None
    dry_run: bool = False
    label_column: ColumnSetting[str | None] = None
    label_probability: ColumnSetting[str | None] = None
    cluster: ColumnSetting[str | None] = None
    numbers: ColumnSetting[bool] = False
    encoding: FileSetting[str | None] = None
    separator: FileSetting[str | None] = None
    sheet: FileSetting[str | None] = None
    header_row: Annotated[int | None, setting("file", min=1)] = None

    def columns(self, run: Running, rows: Reported) -> Columns:
        """The options as the columns of a table."""
        from rm_gallery.study.table import Columns

        return Columns(
            **{
                **_shared_fields(self, Columns),
                "by": self.by or (),
                "limit": rows.limit,
                "shard": rows.shard_of(run),
                "seed": run.seed,
                "on_bad_row": run.on_bad_row,
            }
        )


def grouped(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes each keyword of a command that is annotated with a dataclass an option per field of it,
    in that place; what an option is for stands in the docstring, under `Args:` or `Attributes:`.

    `without` names the fields that the command lacks.
    """
    return lambda command: _with_options(command, frozenset(without))


def _with_options(command: Callable[..., None], without: frozenset[str]) -> Callable[..., None]:
    # Python 3.10's get_type_hints puts an Optional around what has None as its default, and the
    # option's name and help are lost
    own = get_annotations(command, eval_str=True)
    text, explained = documentation(getdoc(command) or "")
    parameters: list[Parameter] = []
    groups: dict[str, list[str]] = {}
    for name, parameter in signature(command).parameters.items():
        group = own[name]
        if not is_dataclass(group):
            parameters.append(_explained(parameter.replace(annotation=group), explained))
            continue
        hints = get_type_hints(group, include_extras=True)
        about = documentation(getdoc(group) or "")[1]
        groups[name] = [field.name for field in fields(group) if field.name not in without]
        for field in groups[name]:
            kind, default = hints[field], getattr(group, field)
            option = Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            parameters.append(_explained(option, about))

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {
            name: own[name](**{field: given.pop(field) for field in names})
            for name, names in groups.items()
        }
        if "run" in made:
            set_log_level(made["run"].log_level)
        command(**made, **given)

    with_options.__doc__ = text
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what the command line reads
    return with_options


def _explained(parameter: Parameter, explained: Mapping[str, str]) -> Parameter:
    """The parameter as the command line reads it: an option where it has a default, of one name
    where that is False, with its explanation as help.
    """
    kind = parameter.annotation
    if get_origin(kind) is Annotated:
        kind, shown = get_args(kind)
    else:
        shown = typer.Argument() if parameter.default is Parameter.empty else typer.Option()
    shown = copy(shown)
    if parameter.default is False and shown.default is ... and not shown.hidden:
        shown.default = f"--{parameter.name.replace('_', '-')}"
    shown.help = shown.help or explained.get(parameter.name)
    return parameter.replace(annotation=Annotated[kind, shown])


def table_lines(rows: Sequence[Sequence[str]], markdown: bool = False) -> list[str]:
    """A head and rows as aligned columns, or as a table of Markdown."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    if markdown:
        cells = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in shown)
        head, *lines = [f"| {row} |" for row in cells]
        return [head, "|---" * len(shown[0]) + "|", *lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]


def say(line: str) -> None:
    """Say a line on stderr."""
    sys.stderr.write(f"{line}\n")


def say_reading(*places: Any) -> None:
    """Say on stderr what is about to be read, where that will take a while."""
    for place in places:
        path = Path(place) / "samples.jsonl" if Path(place).is_dir() else Path(place)
        size = path.stat().st_size if path.is_file() else 0
        if size >= LARGE:
            line = f"reading {one_line(str(place))} ({size / 1e6:,.0f} MB)"
            if first_time(line):
                say(line)


def say_lost(reasons: Mapping[str, Mapping[str, Any]], stopped: str | None, what: str) -> None:
    """Say on stderr why samples or questions have no score, each reason once, and why the run ended
    early.
    """
    for key, entry in reasons.items():
        if not (stopped and (key.startswith("stopped: ") or entry["example"] in stopped)):
            say(f"{entry['n']} {what} {key}: {one_line(entry['example'])}")
    if stopped:
        say(f"rm-gallery: {one_line(stopped)}")


def say_missed(missed: Iterable[str]) -> int:
    """Say on stderr what a gate misses, each reason once it is known; gives the exit code."""
    code = 0
    for why in missed:
        say(f"rm-gallery: {why}.")
        code = 1
    return code


def parse_params(pairs: list[str]) -> dict[str, Any]:
    """`k=v` pairs as constructor fields; a value that is JSON is read as JSON, every other value is
    text.
    """
    params: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--param takes k=v; found {pair!r}.")
        try:
            params[key.strip()] = orjson.loads(value)
        except orjson.JSONDecodeError:
            params[key.strip()] = value
    return params


LEVELS = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG", "http": "TRACE"}


def set_log_level(level: str) -> None:
    """Log to stderr from this level on (only here, where the process is ours, are log sinks
    touched); `http` traces every call to a model endpoint, without secrets or texts.
    """
    from loguru import logger

    if level not in LEVELS:
        raise ConfigError(f"--log-level is {level!r}; levels are {', '.join(LEVELS)}.")
    logger.remove()

    def line(record: Any) -> str:
        # names and texts out of data are in it
        record["extra"]["shown"] = one_line(record["message"])
        return "{time:HH:mm:ss} {level: <7} {extra[shown]}\n{exception}"

    # how a run ended is said by the command itself, once
    logger.add(
        sys.stderr,
        level=LEVELS[level],
        format=line,
        diagnose=False,
        filter=lambda r: "account" not in r["extra"],
    )
