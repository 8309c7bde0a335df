"""Groups of commands of which each is imported when it is asked for: with all of them imported the
help of one took 1.4 seconds of a processor.
"""

from __future__ import annotations

import importlib
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from rm_gallery.cli.settings import MOVED, one_line_errors, refusal, say_later
from rm_gallery.core.utils.names import unknown_name


@dataclass
class CommandPlace:
    """Where a command stands, and what the list of commands says of it."""

    where: str
    summary: str | None
    changes: list[Callable[[Any], None]] = field(default_factory=list)

    def command(self, name: str) -> Any:
        """The command itself, imported now, with all changes made to it."""
        module, _, function = self.where.partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name, short_help=self.summary)(
            getattr(importlib.import_module(module), function)
        )
        made: Any = typer.main.get_command(alone)
        for change in self.changes:
            change(made)
        return made


class Commands(UserDict[str, Any]):
    """Commands by name; one that is only a `CommandPlace` becomes a command when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, CommandPlace):
            found = self.data[name] = found.command(name)
        return found


class LazyGroup(TyperGroup):
    """A group whose commands are imported one by one; their names and summaries cost no import."""

    places: ClassVar[Mapping[str, tuple[str, str | None]]] = {}
    """By name where a command stands, as `module:function`, and its summary."""

    def __init__(self, *, commands: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        own = {name: CommandPlace(*place) for name, place in self.places.items()}
        self.commands: Any = Commands({**own, **(commands or {})})

    @classmethod
    def of(cls, table: Mapping[str, tuple[str, str | None]], group: str) -> type[LazyGroup]:
        """The group with those commands of a table by words that stand directly below it."""
        split = {words.rpartition(" "): place for words, place in table.items()}
        own = {name: place for (above, _, name), place in split.items() if above == group}
        return type(cls.__name__, (cls,), {"places": own})

    def get_params(self, context: Any) -> list[Any]:
        """Its options, of which a flag that is not given is False: typer loads pydantic to read the
        None of its own flags, which made the help of every command 0.2 s longer.
        """
        options: list[Any] = super().get_params(context)
        for option in options:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return options

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Read the options before the command; refused in one line."""
        with one_line_errors(context, args):
            left: list[str] = super().parse_args(context, [*args])
        return left

    def resolve_command(self, context: Any, args: list[str]) -> Any:
        """The command that is asked for, also by its earlier name, and what is left for it."""
        new = None if context.parent else MOVED.get(args[0])
        if new is not None:
            say_later(context, f"{args[0]} is {new} now.")
            args = [*new.split(), *args[1:]]
        if args[0] not in self.commands.data and not args[0].startswith("-"):
            raise refusal(context, unknown_name("command", args[0], self.commands))
        return super().resolve_command(context, args)

    def list_commands(self, context: Any) -> list[str]:
        """Their names, in the order of the table."""
        return list(self.commands)

    def summary(self, name: str, width: int) -> str:
        """What the list of commands says of one."""
        found = self.commands.data[name]
        summary = found.summary if isinstance(found, CommandPlace) else None
        return summary or str(self.commands[name].get_short_help_str(width))

    def each(
        self, change: Callable[[tuple[str, ...], Any], None], words: tuple[str, ...] = ()
    ) -> None:
        """Change every command below, by its words; those that are not imported yet, once they are."""
        for name, found in self.commands.data.items():
            here = (*words, name)
            if isinstance(found, LazyGroup):
                found.each(change, here)
            elif isinstance(found, CommandPlace):
                found.changes.append(partial(change, here))
            else:
                change(here, found)
