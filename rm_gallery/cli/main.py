"""The `rm-gallery` command: results on stdout, everything else on stderr; exit 0 done, 1 failures,
2 wrong use or input.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Mapping
from functools import cache
from types import FrameType
from typing import Annotated, Any

import typer

from rm_gallery._version import __version__
from rm_gallery.cli.help import arranged
from rm_gallery.cli.lazy import LazyGroup
from rm_gallery.cli.settings import defaults, explained
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError
from rm_gallery.core.utils.file import most_open_files
from rm_gallery.core.utils.shown import one_line

_NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
GROUPS = {
    "evaluators": "Try and deploy metric folders; list, roll back or delete them.",
    "train": "Train a reward model.",
    "cache": "Look at, shrink or empty the cache of judge replies.",
    "serve-token": "Make, list and revoke the tokens of those who may ask a server.",
}
COMMANDS: Mapping[str, tuple[str, str | None]] = {
    "list": ("rm_gallery.cli.catalogue:list_rewards", "List the rewards and graders."),
    "show": (
        "rm_gallery.cli.catalogue:show_reward",
        "Show one reward or grader with its parameters.",
    ),
    "eval": ("rm_gallery.cli.judge:evaluate", "Score a file with a reward."),
    "bench": ("rm_gallery.cli.judge:bench", "Score a benchmark by its official rule."),
    "audit": ("rm_gallery.cli.trust:audit", "Test a reward with changes that should not move it."),
    "check-reward": ("rm_gallery.cli.trust:check", "Try a reward before a training run."),
    "conflicts": (
        "rm_gallery.cli.trust:conflicts",
        "Find contradictions and cycles in a reward's comparisons.",
    ),
    "rejudge": ("rm_gallery.cli.trust:rejudge", "Score recorded rollouts again, old beside new."),
    "drift": ("rm_gallery.cli.trust:drift", "Compare two versions of a judge on the same anchors."),
    "judge-select": ("rm_gallery.cli.trust:judge_select", "Compare judges on the same labels."),
    "plan": ("rm_gallery.cli.runs:plan", "Compute how many rows or labels a precision needs."),
    "winrate": ("rm_gallery.cli.judge:winrate", "Compare two columns of answers in a table."),
    "score": ("rm_gallery.cli.judge:score", "Score a column of answers in a table."),
    "grade": ("rm_gallery.cli.judge:grade", "Grade the rows of a table with graders."),
    "compare": ("rm_gallery.cli.runs:compare", "Compare runs sample by sample."),
    "table": ("rm_gallery.cli.runs:table", "Put runs side by side as a table to cite."),
    "demo": ("rm_gallery.cli.machine:demo", "Train the embedded model and print one table."),
    "init": (
        "rm_gallery.cli.project:init",
        "Make a project with a reward, its test and a CI file.",
    ),
    "doctor": (
        "rm_gallery.cli.machine:doctor",
        "Show sandboxes, keys, caches and optional packages.",
    ),
    "report": ("rm_gallery.cli.runs:report", "Write a page about a run, or md, json, junit."),
    "view": ("rm_gallery.cli.serve:view", "Show runs in the browser, live; label rows."),
    "serve": ("rm_gallery.cli.serve:serve", "Serve rewards over HTTP."),
    "explain": ("rm_gallery.cli.runs:explain", "Explain the score of one sample of a run."),
    "watch": ("rm_gallery.cli.trust:watch", "Check the log of a training run for gamed rewards."),
    "evaluators preview": ("rm_gallery.cli.serve:preview", "Run metric folders on samples."),
    "evaluators deploy": ("rm_gallery.cli.serve:deploy", "Store metric folders as an evaluator."),
    "evaluators list": ("rm_gallery.cli.serve:list_evaluators", None),
    "evaluators show": ("rm_gallery.cli.serve:show", None),
    "evaluators rollback": ("rm_gallery.cli.serve:rollback", None),
    "evaluators delete": ("rm_gallery.cli.serve:delete", None),
    "train bt": ("rm_gallery.cli.machine:train_bt", None),
    "cache stats": ("rm_gallery.cli.machine:stats", None),
    "cache prune": ("rm_gallery.cli.machine:prune", None),
    "cache clear": ("rm_gallery.cli.machine:clear", None),
    "serve-token create": ("rm_gallery.cli.serve:create", None),
    "serve-token list": ("rm_gallery.cli.serve:list_tokens", None),
    "serve-token revoke": ("rm_gallery.cli.serve:revoke", None),
}
"""By its words, where the function of a command stands and what the list of commands says of it; of
a command in a group the first sentence of its help.
"""
app = typer.Typer(
    name="rm-gallery",
    cls=LazyGroup.of(COMMANDS, ""),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of options in a terminal of 80 columns
)
for group, about in GROUPS.items():
    below = typer.Typer(cls=LazyGroup.of(COMMANDS, group), help=about, no_args_is_help=True)
    app.add_typer(below, name=group)


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

    most_open_files()  # as many connections as the system allows
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
    """The command line, each command of which is made once a process."""
    return arranged(explained(typer.main.get_command(app)))


def _run_command() -> None:
    try:
        command = _command()
        set_so, origins = defaults(command)
        command(default_map=set_so, obj=origins)
    except ConfigError as error:
        _say(error)
        sys.exit(2)
    except RMGalleryError as error:
        _say(error)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        sys.stderr.write(f"rm-gallery: the output cannot be written: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in it
        sys.exit(2)
