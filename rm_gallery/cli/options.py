"""The options that commands share, reading their shorthand, and what a command writes about itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import orjson
import typer
from loguru import logger

from rm_gallery.cli.settings import first_time, is_setting
from rm_gallery.core.engine.options import MAX_WORKERS, RunOptions
from rm_gallery.core.model.budget import Budget, PriceTable
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.resolve import resolve
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.file import as_json
from rm_gallery.core.utils.shown import one_line
from rm_gallery.report.gate import QualityGate, reference_run
from rm_gallery.study.runs import OpenRun
from rm_gallery.study.table import Columns


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """The names that begin with what is typed, for the shell's completion."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


reward_names = completing(RewardRegistry.list)
LARGE = 16_000_000
"""Size in bytes from which a file is named on stderr before it is read."""


def setting(group: str, **how: Any) -> Any:
    """An option that `--config` and rm-gallery.toml name below this group; `--help` lists its name
    there.
    """
    return typer.Option(hidden=True, rich_help_panel=group, **how)


Llm = Annotated[str | None, typer.Option(help="The judge's model; a judged reward needs one.")]
BaseUrl = Annotated[
    str | None, typer.Option(help="The judge's endpoint; OPENAI_BASE_URL by default.")
]
MaxWorkers = Annotated[int, typer.Option(min=1, help="Judgements in flight at once.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Take a seeded sample of this many rows.")]
Seed = Annotated[
    int, typer.Option(help="Decides the sample, the candidate order and the bootstrap.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
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
        "--use-ci",
        help="Compare the lower end of the 95 % interval with --fail-under, not the figure alone.",
    ),
]
LEVEL_HELP = "error, warning, info, debug, or http to trace calls."
LogLevel = Annotated[str, typer.Option(help=LEVEL_HELP)]

SPELLED = (
    "NAME, FILE, FILE:NAME, or a prefix such as func:, grader:, rubric:, bt:, hf: or served: and "
    "what it names"
)
"""How a reward is named, in the same words at every command."""
RewardArgument = Annotated[
    str, typer.Argument(help=f"The reward: {SPELLED}.", autocompletion=reward_names)
]
RewardName = Annotated[
    str, typer.Option("--reward", "-r", help=f"The reward: {SPELLED}.", autocompletion=reward_names)
]
Benchmark = Annotated[
    str | None,
    typer.Option("--benchmark", help="Layout of the data; found from its columns by default."),
]
Table = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="csv, xlsx, parquet or jsonl file, or a result file of another tool."
    ),
]
RowsFile = Annotated[
    str, typer.Argument(help="Parquet, jsonl, json, csv or xlsx file with a row per item.")
]
Prompt = Annotated[str, typer.Option(help="Column with the prompts.")]
LabelColumn = Annotated[
    str | None, typer.Option(help="The labels file's column of labels, where it has several.")
]


def print_json(value: Any) -> None:
    """Print JSON types on stdout."""
    typer.echo(as_json(value).decode(), nl=False)


def show(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print a result, as JSON or line by line."""
    if as_json:
        return print_json(value)
    for line in lines:
        typer.echo(line)
    return None


@dataclass(frozen=True)
class Gates:
    """What the figure of a finished run has to reach; see `QualityGate`."""

    fail_under: FailUnder = None
    use_ci: UseCi = False
    max_failures: Annotated[
        int | None,
        typer.Option(
            min=0, help="Failed samples that still count as success; 0 with another gate."
        ),
    ] = None
    max_unscored: MaxUnscored = None

    def gate(self, *, reference: OpenRun | None = None, own_unit: bool) -> QualityGate:
        """The gate of a run, whose figures are in the reward's own unit or shares."""
        return QualityGate(
            self.fail_under,
            self.max_failures or 0,
            self.max_unscored,
            reference,
            surely=self.use_ci,
            own_unit=own_unit,
        )


@dataclass(frozen=True)
class Running:
    """What every command that judges takes: which judge, how the run goes, and what is printed."""

    llm: Llm = None
    base_url: BaseUrl = None
    param: Annotated[
        list[str] | None, typer.Option(help="k=v sets a field of the reward; may be repeated.")
    ] = None
    max_workers: MaxWorkers = MAX_WORKERS
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; the same command continues an unfinished run."),
    ] = None
    trace: Annotated[
        bool, typer.Option("--trace", help="Keep every judgement's prompt and reply; needs --out.")
    ] = False
    json: Json = False
    seed: Annotated[
        int, setting("run", help="Decides the sample, the candidate order and the bootstrap.")
    ] = 0
    force_new: Annotated[
        bool, setting("run", help="Set aside the folder of a run with other settings.")
    ] = False
    deadline: Annotated[
        float | None, setting("run", min=0.001, help="Seconds one sample may take.")
    ] = None
    blame: Annotated[
        str | None,
        setting(
            "run",
            help="probe repeats failed samples, also with neutral answers, to find the cause.",
        ),
    ] = None
    engine: Annotated[str | None, typer.Option(help="ray judges with actors of a Ray cluster.")] = (
        None
    )
    address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster; RAY_ADDRESS, or one of this machine, by default."),
    ] = None
    processes: Annotated[
        int | None,
        setting("run", min=1, help="Actors of Ray, or processes of a reward that runs code."),
    ] = None
    batch: Annotated[
        str | None,
        setting("run", help="openai or anthropic: their batch API at half the price; needs --out."),
    ] = None
    submit: Annotated[
        bool, setting("run", help="End once the batch is sent; the same command collects it.")
    ] = False
    cache: Annotated[
        bool | None, setting("run", help="Cache replies; default at temperature 0.")
    ] = None
    log_level: Annotated[str, setting("run", help=LEVEL_HELP)] = "warning"
    max_calls: Annotated[
        int | None, setting("budget", min=1, help="Stop, resumably, after this many calls.")
    ] = None
    max_tokens: Annotated[
        int | None, setting("budget", min=1, help="Stop, resumably, after this many tokens.")
    ] = None
    max_cost: Annotated[
        float | None, setting("budget", min=0, help="Stop, resumably, at this cost; needs prices.")
    ] = None
    prices: Annotated[
        Path | None, setting("budget", help="YAML file with prices per million tokens.")
    ] = None
    on_bad_row: Annotated[str, setting("file", help="raise, or skip and count.")] = "raise"

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
        return resolve(reward, seed=self.seed, **self.judge)

    def task(self, limit: int | None) -> dict[str, Any]:
        """The judge and the rows: keywords of `evaluate`."""
        return {**self.judge, "limit": limit, "seed": self.seed, "on_bad_row": self.on_bad_row}

    def options(self) -> RunOptions:
        """The options of the run; ConfigError where these do not fit together."""
        if self.trace and self.out is None:
            raise Inapplicable(
                "--trace keeps judgements in the run folder; name one with --out RUN.", "trace"
            )
        return RunOptions(
            max_workers=self.max_workers,
            deadline=self.deadline,
            progress=True,
            blame=self.blame,  # type: ignore[arg-type]  # RunOptions refuses every other word
            processes=self.processes,
            engine=self.engine,  # type: ignore[arg-type]  # RunOptions refuses every other word
            address=self.address,
            batch=self.batch,  # type: ignore[arg-type]  # as above
            submit=self.submit,
            cache=self.cache,
            budget=self._budget(),
            run_dir=str(self.out) if self.out is not None else None,
            force_new=self.force_new,
            trace=self.trace,
        )

    def _budget(self) -> Budget | None:
        """The budget of the options, None without one; prices alone count cost and limit nothing."""
        if (self.max_calls, self.max_tokens, self.max_cost, self.prices) == (None,) * 4:
            return None
        prices = None if self.prices is None else PriceTable.from_yaml(self.prices)
        if self.max_cost is not None and prices is None and is_setting("max_cost"):
            # a limit in a file of settings must not stop a rule, which costs nothing, nor be lost
            # where a model is called
            prices = PriceTable({}, "a run without --prices")
        return Budget(
            max_calls=self.max_calls,
            max_tokens=self.max_tokens,
            max_cost=self.max_cost,
            prices=prices,
        )

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Ctrl-C ends the command with exit code 130 and says how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            again = (
                "the same command continues it"
                if self.out is not None
                else "with --out RUN it could be continued"
            )
            sys.stderr.write(f"rm-gallery: interrupted; {again}.\n")
            raise typer.Exit(130) from None


@dataclass(frozen=True)
class Reported:
    """What every command that reports a figure takes: how many rows, which files, which gates."""

    limit: Limit = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Judge one of N equal shares, into --out; without it all are joined.",
        ),
    ] = None
    max_failures: MaxFailures = 0
    max_unscored: MaxUnscored = None
    fail_under: FailUnder = None
    use_ci: UseCi = False
    fail_if_worse_than: Annotated[
        Path | None,
        typer.Option(
            "--fail-if-worse-than",
            metavar="RUN",
            help=(
                "Exit with 1 when the 95 % interval of the difference to that run lies below 0, "
                "what is missing at its worst."
            ),
        ),
    ] = None
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Judge ten samples and estimate what the rest costs.")
    ] = False
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write a row per candidate to this .csv, .xlsx, .parquet, .jsonl or .html file."
        ),
    ] = None
    title: Annotated[
        str | None, setting("result", help="Title of the page that --export FILE.html writes.")
    ] = None
    annotate: Annotated[
        Path | None,
        typer.Option(help="Write a copy of the table with scores and reasons as new columns."),
    ] = None

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
        values = {
            "fail_under": self.fail_under,
            "fail_if_worse_than": self.fail_if_worse_than,
            "export": self.export,
            "annotate": self.annotate,
            "repeats": repeats if repeats > 1 else None,
        }
        if given := [name for name, value in values.items() if value is not None]:
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
        reference = (
            None if self.fail_if_worse_than is None else reference_run(self.fail_if_worse_than)
        )
        if self.use_ci and self.fail_under is None:
            raise Inapplicable(
                "--use-ci says how --fail-under is held; give --fail-under X as well.", "use_ci"
            )
        return QualityGate(
            self.fail_under,
            self.max_failures,
            self.max_unscored,
            reference,
            surely=self.use_ci,
            own_unit=own_unit,
        )


@dataclass(frozen=True)
class Tabled:
    """What every command over a table takes besides the columns it judges: the fields of `Columns`
    a user names.
    """

    reference: Annotated[
        str | None, typer.Option(help="Column with reference answers, for rewards that read one.")
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            help=(
                "Column of people's labels (winrate: a, b, tie or 0..1; score: numbers), or a file "
                "with them by id."
            )
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option("--id", help="Column that names rows, by which another file is joined."),
    ] = None
    by: Annotated[
        list[str] | None, typer.Option(help="Column whose values are subgroups; may be repeated.")
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print how the table is read and every setting, and stop."),
    ] = False
    label_column: Annotated[
        str | None,
        setting("columns", help="The labels file's column of labels, where it has several."),
    ] = None
    label_probability: Annotated[
        str | None,
        setting("columns", help="Column of the probability that a row was chosen for labelling."),
    ] = None
    cluster: Annotated[
        str | None,
        setting(
            "columns", help="Column of rows that belong together; rows of one prompt always do."
        ),
    ] = None
    numbers: Annotated[bool, setting("columns", help="Accept columns of numbers as texts.")] = False
    encoding: Annotated[
        str | None, setting("file", help="Encoding of a csv file; found by default.")
    ] = None
    separator: Annotated[
        str | None,
        setting("file", help="Separator of a csv file, such as ';' or tab; found by default."),
    ] = None
    sheet: Annotated[
        str | None,
        setting("file", help="Sheet of a workbook, or filter of lm-evaluation-harness samples."),
    ] = None
    header_row: Annotated[
        int | None, setting("file", min=1, help="Row of a sheet with the names of the columns.")
    ] = None

    def columns(self, run: Running, rows: Reported) -> Columns:
        """The options as the columns of a table."""
        named = {
            field.name: getattr(self, field.name)
            for field in fields(Columns)
            if hasattr(self, field.name)
        }
        return Columns(
            **{
                **named,
                "by": self.by or (),
                "limit": rows.limit,
                "shard": rows.shard_of(run),
                "seed": run.seed,
                "on_bad_row": run.on_bad_row,
            }
        )


def grouped(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes each keyword of a command that is annotated with a dataclass an option per field of it,
    in that place.

    `without` names the fields that the command lacks.
    """
    return lambda command: _with_options(command, frozenset(without))


def _with_options(command: Callable[..., None], without: frozenset[str]) -> Callable[..., None]:
    # Python 3.10's get_type_hints puts an Optional around what has None as its default, and the
    # option's name and help are lost
    own = get_annotations(command, eval_str=True)
    parameters: dict[str, Parameter] = {}
    groups: dict[str, list[str]] = {}
    for name, parameter in signature(command).parameters.items():
        if not is_dataclass(own[name]):
            parameters[name] = parameter.replace(annotation=own[name])
            continue
        hints = get_type_hints(own[name], include_extras=True)
        kept = [field for field in fields(own[name]) if field.name not in without]
        groups[name] = [field.name for field in kept]
        for each in kept:
            parameters[each.name] = Parameter(
                each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
            )

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {
            name: own[name](**{field: given.pop(field) for field in names})
            for name, names in groups.items()
        }
        if "run" in made:
            set_log_level(made["run"].log_level)
        command(**made, **given)

    with_options.__annotations__ = {
        name: parameter.annotation for name, parameter in parameters.items()
    }
    with_options.__signature__ = Signature([*parameters.values()])  # type: ignore[attr-defined]  # what the command line reads
    return with_options


def table_lines(rows: Sequence[Sequence[str]], markdown: bool = False) -> list[str]:
    """A head and rows as aligned columns, or as a table of Markdown."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    if markdown:
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in shown
        ]
        return [lines[0], "|---" * len(shown[0]) + "|", *lines[1:]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


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
