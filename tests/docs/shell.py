"""Checking a document's shell commands: ours are run, those of other tools are held against what
this project offers.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from rm_gallery.core.utils.errors import ConfigError
from tests.support.children import ROOT
from tests.support.command import command

_TARGET = re.compile(r"^([a-z][\w-]*):", re.MULTILINE)
_EXTRA = re.compile(r"^([\w-]+) = \[", re.MULTILINE)


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command, run in the current folder; None when it is fine or not ours to
    check.
    """
    checks = {"rm-gallery": _run, "make": _make, "pip": _pip, "python": _python, "git": _git}
    check = checks.get(words[0])
    return check(words[1:]) if check is not None else None


def misspelt(arguments: list[str]) -> str | None:
    """What the command line would refuse about a command before doing anything: an unknown command
    or option.
    """
    here = _commands()
    try:
        while hasattr(here, "commands") and arguments:
            name, *arguments = arguments
            if name not in here.commands:
                return f"there is no command {name}"
            here = here.commands[name]
        here.make_context(here.name, list(arguments)).close()
    except ConfigError as error:
        return str(error)
    return None


@cache
def _commands() -> Any:
    import typer

    from rm_gallery.cli.main import app
    from rm_gallery.cli.settings import explained

    return explained(typer.main.get_command(app))


def _run(arguments: list[str]) -> str | None:
    done = command(*arguments)
    return None if done.code == 0 else f"exit code {done.code}: {done.err[-600:]}"


def _make(arguments: list[str]) -> str | None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    unknown = [name for name in arguments if "=" not in name and name not in targets]
    return f"the Makefile has no target {unknown[0]}" if unknown else None


def _pip(arguments: list[str]) -> str | None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = set(
        _EXTRA.findall(pyproject.split("[project.optional-dependencies]")[1].split("\n[")[0])
    )
    asked = {
        extra
        for word in arguments
        for listed in re.findall(r"\[(.+)\]", word)
        for extra in listed.split(",")
    }
    if not asked <= known:
        return f"there is no extra {sorted(asked - known)[0]}"
    if arguments[:1] != ["install"]:
        return "pip is only shown for installing"
    return None


def _python(arguments: list[str]) -> str | None:
    target = arguments[1].replace(".", "/") if arguments[:1] == ["-m"] else arguments[0]
    places = (ROOT / target, (ROOT / target).with_suffix(".py"), Path(target))
    return None if any(place.exists() for place in places) else f"there is no {target}"


def _git(arguments: list[str]) -> str | None:
    known = (
        "clone",
        "pull",
        "fetch",
        "checkout",
        "switch",
        "add",
        "commit",
        "push",
        "diff",
        "status",
    )
    return (
        None
        if arguments[:1] and arguments[0] in known
        else f"git {' '.join(arguments[:1])} is not known"
    )
