"""Where the value of an option comes from: the command line, the environment, `rm-gallery.toml`, or
the option's default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.models import nearest, unknown_name
from rm_gallery.core.utils.shown import one_line, redact

FILE = "rm-gallery.toml"
"""Read where the command runs."""
VARIABLE = "RM_GALLERY_CONFIG"
"""Another file to read; `off` reads none."""
PREFIX = "RM_GALLERY_"
OWN = frozenset({"CACHE", "CONFIG", "MAX_REPLY_BYTES", "STORE", "TOKEN", "TOKENS"})
"""Variables of the library that are no option of every command."""
OF_TESTS = frozenset({"GOLDEN", "REQUIRE", "SHARED", "SKIPPED"})
"""Variables that the project's tests read."""
NEVER = frozenset({"help", "version", "dry_run", "install_completion", "show_completion"})
"""Options that are a question and no setting."""
DRY = "rm_gallery.dry_run"
HELP = "Print each setting and where it comes from, and stop."


def walk(here: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, by its words."""
    for name, inner in here.commands.items():
        if hasattr(inner, "commands"):
            yield from walk(inner, (*words, name))
        else:
            yield (*words, name), inner


def explained(command: Any) -> Any:
    """The command line, each command of which takes `--dry-run`: it prints every setting with its
    origin and does nothing else.
    """
    (option,) = (each for each in typer.main.get_command(_asked).params if each.name == "dry_run")
    for words, inner in walk(command):
        own = any(each.name == "dry_run" for each in inner.params)
        if not own:
            inner.params.append(option)
        inner.invoke = _explaining(inner.invoke, words, own)
    return command


def _noted(context: typer.Context, value: bool) -> None:
    context.meta[DRY] = value


_asked = typer.Typer(add_completion=False)
"""Holds the option alone: how typer makes one differs between its versions."""


@_asked.command()
def _question(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", expose_value=False, callback=_noted, help=HELP)
    ] = False,
) -> None:
    pass


def _explaining(
    invoke: Callable[[Any], Any], words: tuple[str, ...], own: bool
) -> Callable[[Any], Any]:
    def explaining(context: Any) -> Any:
        if not (context.params["dry_run"] if own else context.meta.get(DRY)):
            if unread := _unknown_variables(context.find_root().command):
                # RM_GALLERY_MAXCALLS=10 once limited nothing and said nothing
                what = one_line(f"The environment sets what nothing reads: {'; '.join(unread)}.")
                typer.echo(f"rm-gallery: {what}", err=True)
            return _applied(invoke, context)
        for line in _option_lines(context, words):
            typer.echo(line, err=own)  # where the command itself says what it understood
        return _applied(invoke, context) if own else None

    return explaining


_set_here: ContextVar[frozenset[str]] = ContextVar("settings", default=frozenset())
_lines_said: ContextVar[set[str] | None] = ContextVar("said", default=None)


def is_setting(option: str) -> bool:
    """Whether the value of an option of the command that runs was not typed but comes from the
    environment or a file.
    """
    return option in _set_here.get()


def first_time(line: str) -> bool:
    """Whether the command that runs has not said this line yet, which begins anew without a setting
    that cannot apply.
    """
    lines = _lines_said.get()
    new = lines is None or line not in lines
    if lines is not None:
        lines.add(line)
    return new


def _applied(invoke: Callable[[Any], Any], context: Any) -> Any:
    """Run the command without those settings that cannot apply to it; what was typed and cannot
    apply is refused.
    """
    left = {each.name: each for each in context.command.params if _set(context, each.name)}
    _set_here.set(frozenset(left))
    _lines_said.set(set())
    while True:
        try:
            return invoke(context)
        except Inapplicable as error:
            option = next((left.pop(name) for name in error.options if name in left), None)
            if option is None:
                raise
            context.params[option.name] = option.default


def _set(context: Any, name: str) -> bool:
    """Whether an option's value was not typed but comes from the environment or a file."""
    return getattr(context.get_parameter_source(name), "name", "") in ("ENVIRONMENT", "DEFAULT_MAP")


def _option_lines(context: Any, words: tuple[str, ...]) -> Iterator[str]:
    """`--option = value (origin)` for each parameter of the command that runs."""
    origins: Mapping[str, str] = context.find_root().obj or {}
    for parameter in context.command.params:
        if parameter.name in NEVER or parameter.name is None:
            continue
        source = context.get_parameter_source(parameter.name)
        origin = {
            "COMMANDLINE": "command line",
            "ENVIRONMENT": f"environment, {parameter.envvar}",
            "DEFAULT_MAP": origins.get(".".join((*words, parameter.name)), FILE),
        }.get(getattr(source, "name", ""), "default")
        name = (
            parameter.opts[0]
            if parameter.param_type_name == "option"
            else parameter.metavar or parameter.name
        )
        value = context.params.get(parameter.name, parameter.get_default(context))
        value = [*value] if isinstance(value, tuple) else value
        shown = redact(str(value)) if value not in (None, []) else "not set"
        yield f"{name} = {shown}  ({origin})"
    yield from (one + "." for one in _unknown_variables(context.find_root().command))


def defaults(command: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """What environment and file set, as click's `default_map`, and the origin of each by
    `command.option`.

    `llm = "x"` at the top of the file, or RM_GALLERY_LLM, holds for every command that has `--llm`;
    a table `[eval]`, or RM_GALLERY_EVAL_LLM, for that command alone and before the general one. The
    environment comes before the file.

    Raises:
        ConfigError: the file cannot be read, or a key in it is no option; the message names the
            nearest.
    """
    commands = {words: options_of(inner) for words, inner in walk(command)}
    file, table = _read_settings()
    _check_table(table, commands, file)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for words, options in commands.items():
        inner: Any = table
        for word in words:
            # `trace = true` is an option's value where `trace` is a command as well
            below = inner.get(word)
            inner = below if isinstance(below, dict) else {}
        here = values
        for word in words:
            here = here.setdefault(word, {})
        for name, option in options.items():
            special, general = (
                f"{PREFIX}{'_'.join(path)}".upper().replace("-", "_")
                for path in ((*words, name), (name,))
            )
            places: list[tuple[str, Any]] = [(f"environment, {special}", os.environ.get(special))]
            if name.upper() not in OWN:
                places.append((f"environment, {general}", os.environ.get(general)))
            places += [
                (f"{file} [{'.'.join(words)}]", _given(inner, name)),
                (str(file), _given(table, name)),
            ]
            for origin, value in places:
                if value is not None and value != "":
                    several = getattr(option, "multiple", False) and not isinstance(value, list)
                    here[name] = [value] if several else value
                    origins[".".join((*words, name))] = origin
                    break
    return values, origins


def _given(table: Mapping[str, Any], name: str) -> Any:
    value = next((table[key] for key in (name, name.replace("_", "-")) if key in table), None)
    return None if isinstance(value, dict) else value


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command that can be settings, by name."""
    return {
        each.name: each
        for each in command.params
        if each.param_type_name == "option" and each.name not in NEVER
    }


def _read_settings() -> tuple[str, dict[str, Any]]:
    """Name and content of the file; nothing where there is none."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named or FILE)
    if named == "off" or not (named or path.is_file()):
        return FILE, {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return path.name, tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"{VARIABLE} names {named}, which cannot be read: {error.strerror}."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}.") from None


def _check_table(
    table: Mapping[str, Any],
    commands: Mapping[tuple[str, ...], Mapping[str, Any]],
    file: str,
    words: tuple[str, ...] = (),
) -> None:
    """ConfigError for the first key that is neither an option nor a command."""
    options = {
        name for path, known in commands.items() if path[: len(words)] == words for name in known
    }
    below = {
        path[len(words)]
        for path in commands
        if path[: len(words)] == words and len(path) > len(words)
    }
    where = f"{file} [{'.'.join(words)}]" if words else file
    for key, value in table.items():
        if isinstance(value, dict) and key in below:
            _check_table(value, commands, file, (*words, key))
        elif isinstance(value, dict):
            raise ConfigError(f"{where}: {unknown_name('command', key, below)}")
        elif key.replace("-", "_") not in options:
            raise ConfigError(f"{where}: {unknown_name('setting', key, options)}")
        elif not isinstance(value, str | int | float | list):
            raise ConfigError(
                f"{where}: {key} is a {type(value).__name__}; give text, a number, true, false or "
                f"a list."
            )


def _unknown_variables(command: Any) -> list[str]:
    """The variables that nothing reads, each with the nearest that is read."""
    known = {PREFIX + name for name in OWN | OF_TESTS}
    for words, inner in walk(command):
        for name in options_of(inner):
            known |= {
                f"{PREFIX}{'_'.join(path)}".upper().replace("-", "_")
                for path in ((*words, name), (name,))
            }
    unread = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    # the prefix alone makes every name like every other
    bare = [name.removeprefix(PREFIX) for name in known]
    near = {name: nearest(name.removeprefix(PREFIX), bare, 1) for name in unread}
    return [
        f"{name} is no setting" + "".join(f" ({PREFIX}{one} is)" for one in near[name])
        for name in unread
    ]
