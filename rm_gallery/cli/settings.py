"""Where the value of an option comes from: the command line, `--config`, the environment,
`rm-gallery.toml`, or the option's default.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.utils import get_params_from_function

from rm_gallery.core.utils.defaults import FUZZ_TEXTS
from rm_gallery.core.utils.errors import ConfigError, Inapplicable
from rm_gallery.core.utils.file import read_yaml
from rm_gallery.core.utils.names import nearest, unknown_name
from rm_gallery.core.utils.shown import one_line, redact

FILE = "rm-gallery.toml"
"""Read where the command runs."""
VARIABLE = "RM_GALLERY_CONFIG"
"""Another file to read; `off` reads none."""
PREFIX = "RM_GALLERY_"
OWN = frozenset({"CACHE", "CONFIG", "MAX_REPLY_BYTES", "STORE", "TOKEN", "TOKENS"})
"""Variables of the library that are no option of every command."""
OF_TESTS = frozenset({"BUDGET", "GOLDEN", "PRODUCT", "REQUIRE", "SHARED", "SKIPPED"})
"""Variables that the project's tests read."""
SPELLINGS = {
    "--surely": "--use-ci",
    "--format": "--benchmark",
    "--timeout": "--deadline",
    "--part": "--shard",
    "--texts": "--fuzz",
}
"""Earlier spellings of options, accepted by commands that have the new one and not the old one."""
ARGUMENTS = {"reward": ("--reward", "-r"), "data": ("--data",)}
"""Arguments that some commands once took as options, with the spellings of these: a REWARD stands
before all others, DATA behind them.
"""
MOVED = {
    "preview": "evaluators preview",
    "deploy": "evaluators deploy",
    "fuzz-reward": f"check-reward --fuzz {FUZZ_TEXTS}",
}
"""By the earlier name of a command what it is now."""
RENAMED = {"use_ci": "surely", "shard": "part"}
"""The earlier name of a setting."""
GROUPED = {"shard": "run", "engine": "run", "address": "run"}
"""The group of an option that was a setting."""
REPEATED = {"other": "--b"}
"""Options whose values another option takes when it is repeated."""
DRY = "rm_gallery.dry_run"
TYPED = "rm_gallery.typed"
"""The settings that `--config KEY=VALUE` typed."""
NOTICES = "rm_gallery.notices"
"""What to say of earlier spellings."""
HELP = "Print each setting and where it comes from, and stop."
CONFIG_HELP = "KEY=VALUE, or a .toml or .yaml file of settings; may be repeated."


def walk(here: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, by its words."""
    for name, inner in here.commands.items():
        if hasattr(inner, "commands"):
            yield from walk(inner, (*words, name))
        else:
            yield (*words, name), inner


def explained(command: Any) -> Any:
    """The command line with `--dry-run` at each command, which prints every setting with its origin
    and stops, and `--config` at each that has settings without an option of their own in the help.
    """
    command.each(_explain)
    return command


def _explain(words: tuple[str, ...], inner: Any) -> None:
    shared = {each.name: each for each in typer.main.get_command(_shared).params}
    own = any(each.name == "dry_run" for each in inner.params)
    if any(map(group_of, inner.params)):
        inner.params.append(shared["settings"])
    if not own:
        inner.params.append(shared["dry_run"])
    inner.params += [shared[f"old_{name}"] for name in ARGUMENTS if name in _arguments_of(inner)]
    inner.invoke = partial(_invoke, inner.invoke, own)
    inner.parse_args = partial(_parsed_value, inner.parse_args, inner.params)


def group_of(option: Any) -> str | None:
    """The group of settings an option belongs to, None for an option that the help shows."""
    return option.rich_help_panel if getattr(option, "hidden", False) else None


def _group_in_files(option: Any) -> str:
    """The group below which a file may name an option: its own, or the one it once had."""
    return group_of(option) or GROUPED.get(option.name, "")


def _parsed_value(
    parse: Callable[..., list[str]], options: Iterable[Any], context: Any, arguments: list[str]
) -> list[str]:
    """Parse the command line, with earlier spellings of the command's options."""
    known = {each for option in options for each in option.opts}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, word in enumerate(arguments[:end]):
        old, equals, value = word.partition("=")
        new = SPELLINGS.get(old)
        if new in known and old not in known:
            arguments[place] = f"{new}{equals}{value}"
            say_later(context, f"{old} is spelled {new} now.")
    with one_line_errors(context, arguments):
        left = parse(context, _reward_first(context, [*arguments]))
    if not context.resilient_parsing:  # a shell completes what is not whole yet
        _check_arguments(context)
    return left


def _arguments_of(command: Any) -> dict[str, Any]:
    return {each.name: each for each in command.params if each.param_type_name == "argument"}


def _check_arguments(context: Any) -> None:
    """Refuse a missing argument, which typer 0.16 lets through with a newer click, and a REWARD
    behind what it judges, of which each command would say that another thing is missing.
    """
    from rm_gallery.core.reward.registry import RewardRegistry

    arguments = _arguments_of(context.command)
    for name, argument in arguments.items():
        if argument.required and not context.params[name]:
            raise refusal(context, f"{_shown_name(argument)} is missing.")
    if len(arguments) != 2 or next(iter(arguments)) != "reward" or not context.params["reward"]:
        return
    first, behind = (_listed(context.params[name]) for name in arguments)
    if RewardRegistry.is_spelled(first[0]):
        return
    for word in behind:
        if isinstance(word, str) and RewardRegistry.is_spelled(word) and not Path(word).exists():
            call = shlex.join([*_words_of(context), word, first[0]])
            raise refusal(
                context,
                f"{word} is a reward, and the reward comes first: rm-gallery {redact(call)}.",
            )


UsageError: Any = typer.BadParameter.__base__
"""What typer raises for a command line it cannot read; newer versions hold it under another name."""


@contextmanager
def one_line_errors(context: Any, arguments: list[str]) -> Iterator[None]:
    """Raise ConfigError with what was found and what to give where typer would print its usage.

    CI logs and docs/gates.md count on one line of stderr for a refusal.
    """
    try:
        yield
    except UsageError as error:
        if type(error).show is not UsageError.show:  # no arguments: the help is the answer
            raise
        raise refusal(context, _usage_fault(context, arguments, error)) from None


def refusal(context: Any, fault: str) -> ConfigError:
    """The refusal of a command line, with where its options are explained."""
    return ConfigError(f"{fault} See {shlex.join(('rm-gallery', *_words_of(context)))} --help")


def _usage_fault(context: Any, arguments: list[str], error: Any) -> str:
    parameter = getattr(error, "param", None)
    if parameter is not None:
        # only the fault of a missing value has a `param_type`
        if hasattr(error, "param_type"):
            return f"{_shown_name(parameter)} is missing."
        given, _, _ = context.command.make_parser(context).parse_args([*arguments])
        value = parameter.consume_value(context, given)[0]
        found = ", ".join(map(str, _listed(value)))
        place = "" if (origin := _origin(context, parameter)) == TYPED_HERE else f"{origin}: "
        wanted = _wanted(context.command, parameter.name) or str(error.message)
        return f"{place}{_shown_name(parameter)}: found {redact(found)}; {wanted}."
    if not hasattr(error, "possibilities"):  # which an unknown option alone has
        return str(error.format_message()).rstrip(".") + "."
    spelled = {
        name: f"--config {group}.{option.name}=" if (group := group_of(option)) else name
        for option in context.command.params
        for name in option.opts
        if option.param_type_name == "option"
        and (group_of(option) or not getattr(option, "hidden", False))
    }
    name = error.option_name.partition("=")[0]
    near = ", ".join(spelled[each] for each in nearest(name, spelled))
    return f"There is no option {name}." + (f" Did you mean {near}?" if near else "")


KINDS_OF_VALUES = {int: "a whole number", float: "a number", bool: "true or false"}


def _wanted(command: Any, name: str) -> str:
    """What the value of a parameter has to be, from its annotation."""
    parameter = get_params_from_function(command.callback).get(name)
    if parameter is None:
        return ""
    kind = next(
        (each for each in get_args(parameter.annotation) if each is not type(None)),
        parameter.annotation,
    )
    shown = KINDS_OF_VALUES.get(kind)
    if shown is None:
        return ""
    low, high = (getattr(parameter.default, each, None) for each in ("min", "max"))
    if low is None:
        return f"give {shown}"
    return f"give {shown} " + (
        f"of {low:g} or more" if high is None else f"from {low:g} to {high:g}"
    )


def _shown_name(parameter: Any) -> str:
    option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if option else parameter.metavar or parameter.name)


def _reward_first(context: Any, arguments: list[str]) -> list[str]:
    """The command line with those of `ARGUMENTS` in their place that were given as options."""
    given, _, _ = context.command.make_parser(context).parse_args([*arguments])
    first, last = (given.get(f"old_{name}") or [] for name in ARGUMENTS)
    if not (first or last):
        return arguments
    named = (_listed(given.get(name)) for name in _arguments_of(context.command))
    words = [word for word in chain.from_iterable(named) if isinstance(word, str)]
    call = shlex.join([*_words_of(context), *first, *words, *last])
    say_later(
        context,
        f"REWARD and DATA stand in this order now, without --reward and --data: "
        f"rm-gallery {redact(call)} …",
    )
    return [*first, *arguments, *last]


def _words_of(context: Any) -> tuple[str, ...]:
    """The words of the command that runs, behind the program's name."""
    return (*_words_of(context.parent), context.info_name) if context.parent else ()


def say_later(context: Any, notice: str) -> None:
    """Say a notice on stderr once the command has done its work."""
    context.meta.setdefault(NOTICES, []).append(notice)


_shared = typer.Typer(add_completion=False)
"""Holds the options that commands get here: how typer makes one differs between its versions."""


def _keep_dry_run(context: typer.Context, value: bool) -> None:
    context.meta[DRY] = value


def _read_config(context: typer.Context, places: list[str] | None) -> None:
    """Lay the settings of `--config` over those of the environment and rm-gallery.toml."""
    if not places:
        return
    words, root = _words_of(context), context.find_root()
    commands = dict(walk(root.command) if words else [((), context.command)])
    known_options = {path: options_of(inner) for path, inner in commands.items()}
    options = known_options[words]
    values, origins = {**(context.default_map or {})}, root.ensure_object(dict)
    typed = context.meta.setdefault(TYPED, set())
    for place in places:
        key, equals, text = place.partition("=")
        pair = bool(equals) and not Path(place).is_file()
        shown = "--config" if pair else Path(place).name
        *groups, last = key.strip().split(".")
        table: dict[str, Any] = {last: text} if pair else _file_of_settings(place, "--config")
        for group in reversed(groups) if pair else ():
            table = {group: table}
        _check_table(table, known_options, shown)
        known = _values(dict(_leaves(table)), words, options)
        if pair and not known:
            raise ConfigError(f"--config: {unknown_name('setting', key, options)}")
        for name, (_, value) in known.items():
            if pair and (last.replace("-", "_") != name or GROUPED.get(name) in groups):
                say_later(context, f"{key} is spelled --{name.replace('_', '-')} now.")
            several = getattr(options[name], "multiple", False)
            before = values[name] if several and name in typed else []
            values[name] = [*before, *_listed(value)] if several else value
            origins[".".join((*words, name))] = shown
        (typed.update if pair else typed.difference_update)(known)
    context.default_map = values


def _once_option(name: str) -> Any:
    shown = f"{name.upper()}, as an option."
    return typer.Option(*ARGUMENTS[name], hidden=True, expose_value=False, help=shown)


@_shared.command()
def _shared_options(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", expose_value=False, callback=_keep_dry_run, help=HELP)
    ] = False,
    settings: Annotated[  # `config` is an argument of grade
        list[str] | None,
        typer.Option(
            "--config",
            metavar="KEY=VALUE|FILE",
            is_eager=True,
            expose_value=False,
            callback=_read_config,
            help=CONFIG_HELP,
        ),
    ] = None,
    old_reward: Annotated[list[str] | None, _once_option("reward")] = None,
    old_data: Annotated[list[str] | None, _once_option("data")] = None,
) -> None:
    pass


def _invoke(invoke: Callable[[Any], Any], own: bool, context: Any) -> Any:
    """Run the command, or print its settings; `own` where it has a `--dry-run` of its own."""
    dry, refused = context.params["dry_run"] if own else context.meta.get(DRY), False
    try:
        if dry:
            for line in _option_lines(context):
                typer.echo(line, err=own)  # where the command itself says what it understood
        elif unread := _unknown_variables(context.find_root().command):
            # RM_GALLERY_MAXCALLS=10 once limited nothing and said nothing
            _say_of_settings(f"The environment sets what nothing reads: {'; '.join(unread)}.")
        return _applied(invoke, context) if own or not dry else None
    except ConfigError:
        refused = True  # a refusal is one line
        raise
    finally:
        for line in () if refused else (*context.meta.get(NOTICES, ()), *_moved(context)):
            _say_of_settings(line)


def _say_of_settings(line: str) -> None:
    typer.echo(f"rm-gallery: {one_line(line)}", err=True)


def _moved(context: Any) -> Iterator[str]:
    """How each option that was typed and is a setting now is spelled."""
    for option in context.command.params:
        if _of_source(context, option) != "COMMANDLINE":
            continue
        if option.name in REPEATED and option.hidden:
            yield f"{option.opts[0]} is spelled {REPEATED[option.name]} now, which may be repeated."
        elif group := group_of(option):
            value = context.params[option.name]
            text = str(value).lower() if isinstance(value, bool) else str(value)
            pair = redact(f"{group}.{option.name}={text}")
            yield f"{option.opts[0]} is a setting now: --config {shlex.quote(pair)}"


def _of_source(context: Any, option: Any) -> str:
    """Where the value of an option comes from, in click's words."""
    return getattr(context.get_parameter_source(option.name), "name", "")


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
    left = {
        each.name: each
        for each in context.command.params
        if _of_source(context, each) in ("ENVIRONMENT", "DEFAULT_MAP")
        and each.name not in context.meta.get(TYPED, ())
    }
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


TYPED_HERE = "command line"


def _origin(context: Any, parameter: Any) -> str:
    """Where the value of a parameter comes from, for people."""
    origins: Mapping[str, str] = context.find_root().obj or {}
    return {
        "COMMANDLINE": TYPED_HERE,
        "ENVIRONMENT": f"environment, {parameter.envvar}",
        "DEFAULT_MAP": origins.get(".".join((*_words_of(context), parameter.name)), FILE),
    }.get(_of_source(context, parameter), "default")


def _option_lines(context: Any) -> Iterator[str]:
    """`--option = value (origin)` for each parameter of the command that runs."""
    for parameter in context.command.params:
        if parameter.name == "dry_run" or not parameter.expose_value:
            continue
        value = context.params.get(parameter.name, parameter.get_default(context))
        value = [*value] if isinstance(value, tuple) else value
        shown = redact(str(value)) if value not in (None, []) else "not set"
        yield f"{_shown_name(parameter)} = {shown}  ({_origin(context, parameter)})"
    yield from (f"{one}." for one in _unknown_variables(context.find_root().command))


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
    file, table = _read_settings()
    variables = _given_variables()
    if not (table or variables):
        return {}, {}  # no command has to be imported for its options
    commands = {words: options_of(inner) for words, inner in walk(command)}
    _check_table(table, commands, file)
    leaves = {path: value for path, value in _leaves(table) if value != ""}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for words, options in commands.items():
        of_command = values
        for word in words:
            of_command = of_command.setdefault(word, {})
        settings = {
            name: (f"{file} [{'.'.join(words)}]" if path[0] in (*words, *MOVED) else file, value)
            for name, (path, value) in _values(leaves, words, options).items()
        }
        for name in options:
            # the variable of this command alone is laid over that of all commands
            for variable in reversed(_variables(words, name)):
                if value := variables.get(variable):
                    settings[name] = f"environment, {variable}", value
        for name, (origin, value) in settings.items():
            several = getattr(options[name], "multiple", False)
            of_command[name] = _listed(value) if several else value
            origins[".".join((*words, name))] = origin
    return values, origins


def _spellings_of(name: str) -> list[str]:
    """The name of a setting and its earlier one."""
    return [name, RENAMED[name]] if name in RENAMED else [name]


def _places_of(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Where the settings of a command may stand, the most particular place first: below its words,
    below its earlier name, below a group of commands that it is of, or at the top, for all.
    """
    earlier = [(old,) for old, new in MOVED.items() if _command_of(new) == words]
    return [words, *earlier, *(words[:end] for end in reversed(range(len(words))))]


def _command_of(call: str) -> tuple[str, ...]:
    """The words of the command in a call, without its options."""
    return tuple(call.partition(" --")[0].split())


def _variables(words: tuple[str, ...], name: str) -> list[str]:
    """The environment variables of an option, that of this command alone first."""
    paths = ((*above, each) for above in _places_of(words) for each in _spellings_of(name))
    return [f"{PREFIX}{'_'.join(path)}".upper().replace("-", "_") for path in paths]


def _leaves(
    table: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of a table of settings, by the keys that lead to it; `-` in its own is `_`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key.replace("-", "_")), value


def _values(
    leaves: Mapping[tuple[str, ...], Any], words: tuple[str, ...], options: Mapping[str, Any]
) -> dict[str, tuple[tuple[str, ...], Any]]:
    """The keys and the value of each option of a command, by itself or else in its group."""
    values = {}
    for name, option in options.items():
        groups = ((), (_group_in_files(option),))
        for above, within, key in product(_places_of(words), groups, _spellings_of(name)):
            path = (*above, *within, key)
            if path in leaves:
                values[name] = path, leaves[path]
                break
    return values


def _listed(value: Any) -> list[Any]:
    return [*value] if isinstance(value, list | tuple) else [value]


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command that can be settings, by name."""
    return {
        each.name: each
        for each in command.params
        if each.param_type_name == "option" and each.expose_value and each.name != "dry_run"
    }


def _read_settings() -> tuple[str, dict[str, Any]]:
    """Name and content of the file; nothing where there is none."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named or FILE)
    if named == "off" or not (named or path.is_file()):
        return FILE, {}
    return path.name, _file_of_settings(named or FILE, VARIABLE)


def _file_of_settings(name: str, named_by: str) -> dict[str, Any]:
    """The content of a TOML file or, by its suffix, of a YAML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix not in (".yaml", ".yml"):
            settings: dict[str, Any] = tomllib.loads(text)
            return settings
    except OSError as error:
        raise ConfigError(
            f"{named_by} names {name}, which cannot be read: {error.strerror}."
        ) from None
    except ValueError as error:  # no UTF-8, or no TOML
        raise ConfigError(f"{path} is no TOML file: {error}.") from None
    import yaml

    try:
        table = read_yaml(text, str(path)) or {}
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is no YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        raise ConfigError(f"{path} holds no settings; write `max_workers: 64`.")
    return table


def _check_table(
    table: Mapping[str, Any],
    commands: Mapping[tuple[str, ...], Mapping[str, Any]],
    file: str,
    words: tuple[str, ...] = (),
) -> None:
    """ConfigError for the first key that is no option, no group of options and no command."""
    inside = {
        path[len(words) :]: known for path, known in commands.items() if path[: len(words)] == words
    }
    below = {path[0] for path in inside if path}
    options = set[str]()
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for name, option in chain.from_iterable(known.items() for known in inside.values()):
        options.update(_spellings_of(name))
        groups[_group_in_files(option)].update(_spellings_of(name))
    groups.pop("", None)
    where = f"{file} [{'.'.join(words)}]" if words else file
    for key, value in table.items():
        if not isinstance(value, dict):
            _check_setting("setting", key, value, options, where)
        elif key in below:
            _check_table(value, commands, file, (*words, key))
        elif not words and (path := _command_of(MOVED.get(key, ""))) in commands:
            _check_table(value, commands, file, path)
        elif key in groups:
            for name, one in value.items():
                _check_setting(f"setting of {key}", str(name), one, groups[key], where)
        else:
            raise ConfigError(f"{where}: {unknown_name('command', key, below | {*groups})}")


def _check_setting(what: str, key: str, value: Any, known: set[str], where: str) -> None:
    if key.replace("-", "_") not in known:
        raise ConfigError(f"{where}: {unknown_name(what, key, known)}")
    if not isinstance(value, str | int | float | list):
        raise ConfigError(
            f"{where}: {key} is a {type(value).__name__}; give text, a number, true, false or a "
            f"list."
        )


def _given_variables() -> dict[str, str]:
    """The variables of the environment that can set an option, with their values."""
    mine = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    return {n: value for n, value in mine.items() if n.removeprefix(PREFIX) not in OWN | OF_TESTS}


def _unknown_variables(command: Any) -> list[str]:
    """The variables that nothing reads, each with the nearest that is read."""
    given = _given_variables()
    if not given:
        return []
    known = {PREFIX + name for name in OWN | OF_TESTS}
    for words, inner in walk(command):
        for name in options_of(inner):
            known.update(_variables(words, name))
    # the prefix alone makes every name like every other
    bare = [name.removeprefix(PREFIX) for name in known]
    unread = sorted(given.keys() - known)
    near = (nearest(name.removeprefix(PREFIX), bare, 1) for name in unread)
    return [
        f"{name} is no setting" + "".join(f" ({PREFIX}{one} is)" for one in found)
        for name, found in zip(unread, near, strict=True)
    ]
