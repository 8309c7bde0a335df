"""The `rm-gallery` command: results on stdout, everything else on stderr; exit 0 done, 1 failures,
2 wrong use or input.
"""

from __future__ import annotations

import codecs
import io
import signal
import sys
from functools import cache
from types import FrameType
from typing import Annotated, Any

import typer

from rm_gallery._version import __version__
from rm_gallery.cli.catalogue import list_rewards, show_reward
from rm_gallery.cli.help import arranged
from rm_gallery.cli.judge import bench, evaluate, grade, score, winrate
from rm_gallery.cli.machine import cache_app, demo, doctor, train_app
from rm_gallery.cli.project import init
from rm_gallery.cli.runs import compare, explain, plan, report, table
from rm_gallery.cli.serve import deploy, evaluators_app, preview, serve, token_app, view
from rm_gallery.cli.settings import defaults, explained
from rm_gallery.cli.trust import audit, check, conflicts, drift, fuzz, judge_select, rejudge, watch
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError
from rm_gallery.core.utils.shown import one_line

app = typer.Typer(
    name="rm-gallery",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options in a terminal of 80 columns
)
app.command("list", short_help="List the rewards and graders.")(list_rewards)
app.command("show", short_help="Show one reward or grader with its parameters.")(show_reward)
app.command("eval", short_help="Score a file with a reward.")(evaluate)
app.command("bench", short_help="Score a benchmark by its official rule.")(bench)
app.command("audit", short_help="Test a reward with changes that should not move it.")(audit)
app.command("check-reward", short_help="Try a reward before a training run.")(check)
app.command("fuzz-reward", short_help="Search for wrong texts that a reward scores as right.")(fuzz)
app.command("conflicts", short_help="Find contradictions and cycles in a reward's comparisons.")(
    conflicts
)
app.command("rejudge", short_help="Score recorded rollouts again, old beside new.")(rejudge)
app.command("drift", short_help="Compare two versions of a judge on the same anchors.")(drift)
app.command("judge-select", short_help="Compare judges on the same labels.")(judge_select)
app.command("plan", short_help="Compute how many rows or labels a precision needs.")(plan)
app.command("winrate", short_help="Compare two columns of answers in a table.")(winrate)
app.command("score", short_help="Score a column of answers in a table.")(score)
app.command("grade", short_help="Grade the rows of a table with graders.")(grade)
app.command("compare", short_help="Compare runs sample by sample.")(compare)
app.command("table", short_help="Put runs side by side as a table to cite.")(table)
app.command("demo", short_help="Train the embedded model and print one table.")(demo)
app.command("init", short_help="Make a project with a reward, its test and a CI file.")(init)
app.command("doctor", short_help="Show sandboxes, keys, caches and optional packages.")(doctor)
app.command("report", short_help="Write a page about a run, or md, json, junit.")(report)
app.command("view", short_help="Show runs in the browser, live; label rows.")(view)
app.command("serve", short_help="Serve rewards over HTTP.")(serve)
app.command("explain", short_help="Explain the score of one sample of a run.")(explain)
app.command("preview", short_help="Run metric folders on samples.")(preview)
app.command("deploy", short_help="Store metric folders as an evaluator.")(deploy)
app.add_typer(evaluators_app, name="evaluators")
app.command("watch", short_help="Check the log of a training run for gamed rewards.")(watch)
app.add_typer(train_app, name="train")
app.add_typer(cache_app, name="cache")
app.add_typer(token_app, name="serve-token")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rm-gallery {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Define a reward once, check it on benchmarks with honest statistics, use it everywhere."""


ESCAPED = "rm_gallery.escaped"
"""How a console's encoding is asked to fail: what it lacks is written as in JSON, so that JSON
stays JSON.

A pipe of Windows (cp1252), a C locale and PYTHONIOENCODING=ascii raise UnicodeEncodeError at the
first Chinese or Persian row, and that after all of it was paid for.
"""


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2)
    ), error.end


codecs.register_error(ESCAPED, _escaped)


def main() -> None:
    """Run the command; an error of the user's making is one line on stderr and exit code 2.

    SIGTERM ends it as Ctrl-C does, with exit code 143.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)
    terminated = []

    def terminate(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, terminate)
    try:
        _run_command()
    except (SystemExit, KeyboardInterrupt) as leaving:
        # a server ends so as it should, with 0
        if terminated and (isinstance(leaving, KeyboardInterrupt) or leaving.code):
            sys.exit(128 + terminated[0])
        raise
    finally:
        if ours:  # who calls this in a process of their own gets it back as it was
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _say(error: RMGalleryError) -> None:
    """The error on stderr; names out of files, such as columns, must not steer the terminal."""
    sys.stderr.write("rm-gallery: " + "\n".join(map(one_line, str(error).splitlines())) + "\n")


@cache
def _command() -> Any:
    """The command with the options of all its parts, which take 30 ms to make: once a process."""
    return arranged(explained(typer.main.get_command(app)))


def _run_command() -> None:
    try:
        command = _command()
        set_so, origins = defaults(command)
        try:
            command(default_map=set_so, obj=origins)
        except SystemExit as done:
            # typer names the option of a value it refuses, not where the value stands
            if done.code == 2 and origins:
                sys.stderr.write(
                    f"Settings were also read from: {', '.join(sorted({*origins.values()}))}.\n"
                )
            raise
    except ConfigError as error:
        _say(error)
        sys.exit(2)
    except RMGalleryError as error:
        _say(error)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
