"""Converters: registered by the name of the format they read, and those of the general formats."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, overload

import orjson

from rm_gallery.core.data.schema import DataSample, from_record, is_record
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.names import nearest as nearest_names
from rm_gallery.core.utils.plugins import entries, imported

RowUnit = Literal["row", "line", "item"]

ROLES = {role.value: role for role in MessageRole}
ROLE_ALIASES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
_EXCERPT = 40
MAX_NAMES = 12


class RowRef(NamedTuple):
    """The place of a row: file or source, and its number from 1 (`line` in files of lines)."""

    source: str
    number: int
    unit: RowUnit = "row"
    untyped: bool = False
    """True for a source of texts only (CSV, TSV), where a list is JSON text."""

    def __str__(self) -> str:
        return f"{self.source}, {self.within}"

    @property
    def within(self) -> str:
        """The place within its source, such as "line 3"."""
        return f"{self.unit} {self.number}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known names, else all of them."""
    names = sorted(known)
    close = nearest_names(name, names)
    if close:
        return "did you mean " + " or ".join(f"'{item}'" for item in close) + "?"
    return "known: " + (listed(names) or "none")


def shown(value: object) -> str:
    """Type and a short excerpt of a value, never a whole prompt."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return (
            f"text {value!r}"
            if len(value) <= _EXCERPT
            else f"text {value[:_EXCERPT]!r}… ({len(value)} characters)"
        )
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "an object with " + (", ".join(str(key) for key in list(value)[:6]) or "no keys")
    return f"{type(value).__name__} {str(value)[:_EXCERPT]}"


def wrong(where: RowRef, column: str, expected: str, value: object) -> DataError:
    """The error for a column whose value does not fit."""
    return DataError(f"{where}, column '{column}': expected {expected}, found {shown(value)}")


def missing(where: RowRef, wanted: str, row: Mapping[str, Any]) -> DataError:
    """The error for an absent column; `wanted` is its name, or several joined by ' or '."""
    names = ", ".join(list(row)[:MAX_NAMES]) or "no columns"
    return DataError(
        f"{where}: column {wanted} is missing; the row has: {names}. "
        "Another name can be mapped with the config key columns={'wanted': 'actual'}"
    )


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first of them where there are many."""
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def required(row: Mapping[str, Any], column: str, where: RowRef) -> Any:
    """The column's value; DataError when the column is absent."""
    try:
        return row[column]
    except KeyError:
        raise missing(where, f"'{column}'", row) from None


def text(row: Mapping[str, Any], column: str, where: RowRef) -> str:
    """The column's text, which may be empty; DataError when it is absent or anything else."""
    value = required(row, column, where)
    if not isinstance(value, str):
        raise wrong(where, column, "text", value)
    return value


def optional_text(row: Mapping[str, Any], column: str, where: RowRef) -> str | None:
    """The column's text; None where it is absent or null, DataError when it is anything else."""
    return None if row.get(column) is None else text(row, column, where)


def text_list(row: Mapping[str, Any], column: str, where: RowRef) -> list[str]:
    """A list of one or more texts (in files without types: a JSON list in the cell); else
    DataError.

    In other files a text that looks like a JSON list stays one text.
    """
    cell = required(row, column, where)
    value = json_cell(cell) if where.untyped else cell
    if not isinstance(value, list):
        raise wrong(where, column, "a list of texts", cell)
    if not value:
        raise wrong(where, column, "at least one text", value)
    for position, item in enumerate(value, 1):
        if not isinstance(item, str):
            raise wrong(where, f"{column}[{position}]", "text", item)
    return value


def identity(row: Mapping[str, Any], column: str, where: RowRef) -> str:
    """The row's id as text; the empty string when there is none."""
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    # A table column of integers with gaps comes back as floats.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    raise wrong(where, column, "an id (text or whole number)", value)


def json_cell(value: Any) -> Any:
    """The list or object written as JSON in a cell, for columns that hold no plain text; any other
    value unchanged.
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def turns(value: Any, column: str, where: RowRef) -> list[dict[str, Any]]:
    """A conversation: text (one user turn), a message, or a list of messages; roles checked, empty
    keys dropped.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not items:
        raise wrong(where, column, "text or a list of messages", value)
    return [_turn(item, f"{column}[{position}]", where) for position, item in enumerate(items, 1)]


def role_of(given: str, where: str) -> str:
    """The role that a word means; DataError for a word that means none."""
    word = given.strip().lower()
    role = ROLE_ALIASES.get(word, word)
    if role not in ROLES:
        raise DataError(f"{where}: unknown role {shown(given)}; {nearest(role, ROLES)}")
    return role


def _turn(item: Any, column: str, where: RowRef) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        raise wrong(where, column, "a message with role and content", item)
    role = role_of(item["role"], f"{where}, column '{column}'")
    content = item.get("content")
    # Only a message with a call may have no content.
    silent = content is None and (item.get("tool_calls") or item.get("function_call"))
    if not (silent or isinstance(content, str | list)):
        raise wrong(where, column, "content of text or content parts", content)
    return {
        **{key: field for key, field in item.items() if field is not None},
        "role": role,
        "content": content or "",
    }


def output(content: str | list[Any], preference: str | None = None, **label: Any) -> dict[str, Any]:
    """An assistant's answer as `DataSample` takes it, with its labels."""
    known = {"preference": preference, **label} if preference else label
    return {"answer": {"role": "assistant", "content": content, "label": known}}


def preference_outputs(chosen: Sequence[str], rejected: Sequence[str]) -> list[dict[str, Any]]:
    """Chosen answers first, then the rejected ones, each labelled. Rewards permute the order when
    they judge.
    """
    return [output(item, "chosen") for item in chosen] + [
        output(item, "rejected") for item in rejected
    ]


OnBadRow = Literal["raise", "skip"]


@dataclass(frozen=True)
class LoadOptions:
    """What every loader understands.

    `limit` keeps a seeded sample of that many rows in their original order (None: all).
    `on_bad_row` is `raise` or `skip`. `columns` maps a column the converter wants to the one the
    data has; None drops the column.
    """

    limit: int | None = None
    seed: int = 0
    on_bad_row: OnBadRow = "raise"
    columns: dict[str, str | None] = field(default_factory=dict)

    def renamed(self, row: dict[str, Any], where: RowRef) -> dict[str, Any]:
        """The row with the wanted names; all renames happen at once, so two columns can be swapped."""
        moved = {actual for actual in self.columns.values() if actual is not None}
        new = {
            key: value for key, value in row.items() if key not in moved and key not in self.columns
        }
        for wanted, actual in self.columns.items():
            if actual is None:
                continue
            if actual not in row:
                raise missing(where, f"'{actual}' (mapped to '{wanted}')", row)
            new[wanted] = row[actual]
        return new


def check_keys(config: Mapping[str, Any], allowed: Collection[str], strategy: str) -> None:
    """ConfigError with the nearest names for the first key that `strategy` does not know."""
    for key in config:
        if key not in allowed:
            raise ConfigError(
                f"unknown config key '{key}' for load strategy '{strategy}'; "
                f"{nearest(str(key), allowed)}"
            )


Fits = tuple[Callable[[Any], bool], str]
"""Whether the value of a config key fits, and what it must be."""


def check_values(config: Mapping[str, Any], wanted: Mapping[str, Fits]) -> None:
    """ConfigError for the first value that does not fit."""
    for key, (fits, words) in wanted.items():
        if key in config and not fits(config[key]):
            raise ConfigError(f"config key '{key}' must {words} found {config[key]!r}")


def is_text(value: Any) -> bool:
    """Whether a value is text, or not given."""
    return value is None or isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 1 on, or not given."""
    return value is None or (_is_whole(value) and value >= 1)


def _names_columns(columns: Any) -> bool:
    named = not columns or isinstance(columns, Mapping)
    return named and all(isinstance(k, str) and is_text(v) for k, v in (columns or {}).items())


TEXT: Fits = (is_text, "be text,")
COMMON_KEYS: dict[str, Fits] = {
    "limit": (is_count, "be a whole number of at least 1, or None for all;"),
    "seed": (_is_whole, "be a whole number,"),
    "on_bad_row": (("raise", "skip").__contains__, "be 'raise' or 'skip',"),
    "columns": (_names_columns, "map wanted to actual column names,"),
}


def load_options(config: Mapping[str, Any]) -> LoadOptions:
    """The common keys with their defaults; ConfigError for a value that does not fit."""
    check_values(config, COMMON_KEYS)
    given = {key: config[key] for key in COMMON_KEYS if key in config}
    return LoadOptions(**{**given, "columns": dict(config.get("columns") or {})})


# Imported by name on first use: core must not import the gallery.
BENCHMARKS = "rm_gallery.gallery.benchmarks.base"


class DataConverter(ABC):
    """Turns one row of a format into samples. Instances hold no state between rows."""

    @abstractmethod
    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample | list[DataSample]:
        """The sample, or samples, of a row. Raises DataError naming `where` and the column that
        does not fit.

        A sample without `unique_id` gets the hash of its texts as id from the loader.
        """


ConverterType = TypeVar("ConverterType", bound=type[DataConverter])


class DataConverterRegistry:
    """Names of data formats and their converters.

    Registered ones win over the gallery's benchmarks, these over the entry-point group
    `rm_gallery.converters` of installed packages.
    """

    _registered: dict[str, type[DataConverter]] = {}

    @overload
    @classmethod
    def register(cls, name: str) -> Callable[[ConverterType], ConverterType]: ...
    @overload
    @classmethod
    def register(cls, name: str, converter: ConverterType) -> ConverterType: ...
    @classmethod
    def register(cls, name: str, converter: Any = None) -> Any:
        """Register a converter class, as decorator or by call; a later registration of a name
        replaces an earlier one.
        """
        if converter is None:
            return lambda decorated: cls.register(name, decorated)
        cls._registered[name] = _checked_converter(name, converter)
        return converter

    @classmethod
    def get_converter(cls, name: str) -> DataConverter:
        """A converter for the format; ConfigError with the nearest names when it is unknown."""
        converter = cls._registered.get(name)
        if converter is None:
            converter = importlib.import_module(BENCHMARKS).find_benchmark(name)
        if converter is None and (target := entries("converters").get(name)) is not None:
            converter = _checked_converter(name, imported(target, f"converter '{name}'"))
        if converter is None:
            raise ConfigError(f"unknown data source '{name}'; {nearest(name, cls.list_sources())}")
        return converter()

    @classmethod
    def list_sources(cls) -> list[str]:
        """All known names, sorted."""
        benchmarks = importlib.import_module(BENCHMARKS).benchmarks()
        return sorted({*cls._registered, *benchmarks, *entries("converters")})


def _checked_converter(name: str, converter: Any) -> type[DataConverter]:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a converter needs a name, found {name!r}")
    if not (isinstance(converter, type) and issubclass(converter, DataConverter)):
        raise ConfigError(
            f"converter '{name}': expected a subclass of DataConverter, found {converter!r}"
        )
    return converter


@DataConverterRegistry.register("chat_message")
class ChatMessageConverter(DataConverter):
    """Reads `messages` (a list of {role, content}) and an optional `id`; other columns become
    metadata.

    A conversation that ends with the assistant gives one output, its last turn; everything before,
    system and tool turns included, is the input. One that ends otherwise is all input, without
    output.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The conversation as one sample."""
        spoken = turns(json_cell(required(row, "messages", where)), "messages", where)
        rest = {
            key: value
            for key, value in row.items()
            if key not in ("messages", "id", "source", "task_category")
        }
        return DataSample.model_validate(
            {
                "unique_id": identity(row, "id", where),
                **conversation(spoken),
                "task_category": row.get("task_category") or "chat",
                "source": row.get("source") or "chat_message",
                "metadata": rest or None,
            }
        )


def conversation(spoken: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Input and output of a conversation: the last turn is the answer when the assistant speaks it."""
    if spoken[-1]["role"] != "assistant":
        return {"input": spoken, "output": []}
    return {"input": spoken[:-1], "output": [{"answer": spoken[-1]}]}


PROMPT_COLUMNS = ("prompt", "question", "query", "instruction", "input", "text")
RESPONSE_COLUMNS = ("response", "answer", "output", "completion")
RESPONSES_COLUMNS = ("responses", "answers", "outputs", "completions")
ID_COLUMNS = ("unique_id", "id", "uid", "sample_id")
SYSTEM_COLUMNS = ("system", "system_prompt")


@DataConverterRegistry.register("*")
class GenericConverter(DataConverter):
    """Reads rows by the usual column names; the config key `columns` maps others.

    - the input: `messages`, else the first of prompt, question, query, instruction, input, text
      (text or messages), after `system` or `system_prompt` where there is one; `instruction` and
      `input` together are one prompt
    - the outputs: `chosen` and `rejected` (a text or a list each, labelled with their preference),
      else `responses`, `answers`, `outputs` or `completions` (a list), else the first of response,
      answer, output, completion
    - the id: unique_id, id, uid or sample_id; `task_category` and `source` as they are

    All other columns become metadata, beside what a column `metadata` holds; rewards find
    `reference` or `ground_truth` there. Samples written by this library (JSON lines or parquet) are
    read as they were.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The row as one sample."""
        if is_record(row):
            try:
                return from_record(row)
            except DataError as error:
                raise DataError(f"{where}: {error}") from error
        used: set[str] = {"task_category", "source", "metadata"}
        if row.get("messages") is not None:
            used.add("messages")
            spoken = turns(json_cell(row["messages"]), "messages", where)
        else:
            spoken = self._prompt(row, where, used)
        body = {"input": spoken, "output": self._outputs(row, where, used)}
        if "messages" in used and not body["output"]:
            body = conversation(spoken)
        id_column = _first_column(row, ID_COLUMNS)
        used.add(id_column or "")
        rest = {
            key: value
            for key, value in row.items()
            if key not in used and not (value is None and key in ID_COLUMNS)
        }
        if (given := json_cell(row.get("metadata"))) is not None:
            rest = {**given, **rest} if isinstance(given, dict) else {"metadata": given, **rest}
        return DataSample.model_validate(
            {
                **body,
                "unique_id": identity(row, id_column, where) if id_column else "",
                "task_category": row.get("task_category"),
                "source": row.get("source"),
                "metadata": rest or None,
            }
        )

    def _prompt(self, row: dict[str, Any], where: RowRef, used: set[str]) -> list[dict[str, Any]]:
        column = _first_column(row, PROMPT_COLUMNS)
        if column is None:
            empty = next((name for name in PROMPT_COLUMNS if name in row), None)
            if empty is not None:
                raise wrong(where, empty, "text or a list of messages", None)
            raise missing(where, "'messages' or '" + "' or '".join(PROMPT_COLUMNS) + "'", row)
        used.add(column)
        prompt = row[column]
        detail = row.get("input") if column == "instruction" else None
        if isinstance(prompt, str) and isinstance(detail, str):
            used.add("input")
            prompt = f"{prompt}\n\n{detail}" if detail else prompt
        spoken = turns(prompt, column, where)
        system = _first_column(row, SYSTEM_COLUMNS)
        if system and row[system]:
            if not isinstance(row[system], str):
                raise wrong(where, system, "text", row[system])
            used.add(system)
            spoken = [{"role": "system", "content": row[system]}, *spoken]
        return spoken

    def _outputs(self, row: dict[str, Any], where: RowRef, used: set[str]) -> list[dict[str, Any]]:
        sides = ("chosen", "rejected")
        if any(row.get(side) is not None for side in sides):
            used.update(sides)
            return preference_outputs(*(_one_or_more(row, side, where) for side in sides))
        for several in RESPONSES_COLUMNS:
            cell = row.get(several)
            if isinstance(json_cell(cell) if where.untyped else cell, list):
                used.add(several)
                return [output(item) for item in text_list(row, several, where)]
        column = _first_column(row, RESPONSE_COLUMNS)
        if column is None:
            return []
        used.add(column)
        return [_answer(row[column], column, where)]


def _first_column(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:  # speed: asked three times a row, and a generator costs more than the look
        if row.get(name) is not None:
            return name
    return None


def _one_or_more(row: dict[str, Any], column: str, where: RowRef) -> list[str]:
    value = row.get(column)
    if isinstance(value, str):
        return [value]
    if required(row, column, where) is None:
        raise wrong(where, column, "an answer", None)
    return text_list(row, column, where)


def _answer(value: Any, column: str, where: RowRef) -> dict[str, Any]:
    if isinstance(value, str):
        return output(value)
    if not isinstance(value, (dict, list)):
        raise wrong(where, column, "text or a message", value)
    spoken = turns(value, column, where)
    if len(spoken) != 1 or spoken[0]["role"] != "assistant":
        raise DataError(
            f"{where}, column '{column}': expected one assistant message; whole conversations go "
            f"into 'messages'"
        )
    return {"answer": spoken[0]}
