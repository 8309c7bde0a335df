"""Converters: registered by the name of the format they read, and those of the general formats."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, overload

from rm_gallery.core.data.export import from_record, is_record
from rm_gallery.core.data.load.fields import (
    RowRef,
    identity,
    json_cell,
    missing,
    nearest,
    output,
    preference_outputs,
    required,
    text_list,
    turns,
    wrong,
)
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.utils.errors import ConfigError, DataError

ENTRY_POINT_GROUP = "rm_gallery.converters"

# Resolved when asked for: naming the gallery here costs no import of it, so core stays below it.
BENCHMARKS = "rm_gallery.gallery.benchmarks.base"


class DataConverter(ABC):
    """Turns one row of a format into samples. Instances hold no state between rows."""

    @abstractmethod
    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample | list[DataSample]:
        """The sample, or samples, of a row. Raises DataError naming `where` and the column that does not fit.

        A sample without `unique_id` gets the hash of its texts as id from the loader.
        """


ConverterType = TypeVar("ConverterType", bound=type[DataConverter])


class DataConverterRegistry:
    """Names of data formats and their converters.

    Registered ones win over the gallery's benchmarks, these over the entry-point group `rm_gallery.converters` of installed
    packages.
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
        """Register a converter class, as decorator or by call; a later registration of a name replaces an earlier one."""
        if converter is None:
            return lambda decorated: cls.register(name, decorated)
        cls._registered[name] = _checked(name, converter)
        return converter

    @classmethod
    def get_converter(cls, name: str) -> DataConverter:
        """A converter for the format; ConfigError with the nearest names when it is unknown."""
        found = cls._registered.get(name)
        if found is None:
            found = importlib.import_module(BENCHMARKS).find_benchmark(name) or _from_entry_point(name)
        if found is None:
            raise ConfigError(f"unknown data source '{name}'; {nearest(name, cls.list_sources())}")
        return found()

    @classmethod
    def list_sources(cls) -> list[str]:
        """All known names, sorted."""
        benchmarks = importlib.import_module(BENCHMARKS).benchmarks()
        return sorted({*cls._registered, *benchmarks, *(entry.name for entry in _entry_points())})


def _entry_points() -> list[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINT_GROUP))


def _from_entry_point(name: str) -> type[DataConverter] | None:
    for entry in _entry_points():
        if entry.name != name:
            continue
        try:
            loaded = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"converter '{name}' ({entry.value}) of an installed package fails: {error}") from error
        return _checked(name, loaded)
    return None


def _checked(name: str, converter: Any) -> type[DataConverter]:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a converter needs a name, found {name!r}")
    if not (isinstance(converter, type) and issubclass(converter, DataConverter)):
        raise ConfigError(f"converter '{name}': expected a subclass of DataConverter, found {converter!r}")
    return converter


@DataConverterRegistry.register("chat_message")
class ChatMessageConverter(DataConverter):
    """Reads `messages` (a list of {role, content}) and an optional `id`; other columns become metadata.

    A conversation that ends with the assistant gives one output, its last turn; everything before, system and tool
    turns included, is the input. One that ends otherwise is all input, without output.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The conversation as one sample."""
        spoken = turns(json_cell(required(row, "messages", where)), "messages", where)
        rest = {key: value for key, value in row.items() if key not in ("messages", "id", "source", "task_category")}
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

    - the input: `messages`, else the first of prompt, question, query, instruction, input, text (text or messages), after
      `system` or `system_prompt` where there is one; `instruction` and `input` together are one prompt
    - the outputs: `chosen` and `rejected` (a text or a list each, labelled with their preference), else `responses`,
      `answers`, `outputs` or `completions` (a list), else the first of response, answer, output, completion
    - the id: unique_id, id, uid or sample_id; `task_category` and `source` as they are

    All other columns become metadata, beside what a column `metadata` holds; rewards find `reference` or `ground_truth`
    there. Samples written by this library (JSON lines or parquet) are read as they were.
    """

    def convert(self, row: dict[str, Any], where: RowRef) -> DataSample:
        """The row as one sample."""
        if is_record(row):
            try:
                return from_record(row)
            except DataError as error:
                raise DataError(f"{where}: {error}") from error
        used: set[str] = {"task_category", "source", "metadata"}
        body = self._messages(row, where, used) if row.get("messages") is not None else self._prompted(row, where, used)
        id_column = _first(row, ID_COLUMNS)
        used.add(id_column or "")
        nameless = {key for key in ID_COLUMNS if row.get(key) is None}
        rest = {key: value for key, value in row.items() if key not in used and key not in nameless}
        given = json_cell(row.get("metadata"))
        if given is not None:
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

    def _messages(self, row: dict[str, Any], where: RowRef, used: set[str]) -> dict[str, Any]:
        used.add("messages")
        spoken = turns(json_cell(row["messages"]), "messages", where)
        answers = self._outputs(row, where, used)
        return {"input": spoken, "output": answers} if answers else conversation(spoken)

    def _prompted(self, row: dict[str, Any], where: RowRef, used: set[str]) -> dict[str, Any]:
        column = _first(row, PROMPT_COLUMNS)
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
        system = _first(row, SYSTEM_COLUMNS)
        if system and row[system]:
            if not isinstance(row[system], str):
                raise wrong(where, system, "text", row[system])
            used.add(system)
            spoken = [{"role": "system", "content": row[system]}, *spoken]
        return {"input": spoken, "output": self._outputs(row, where, used)}

    def _outputs(self, row: dict[str, Any], where: RowRef, used: set[str]) -> list[dict[str, Any]]:
        if row.get("chosen") is not None or row.get("rejected") is not None:
            used.update(("chosen", "rejected"))
            return preference_outputs(_one_or_more(row, "chosen", where), _one_or_more(row, "rejected", where))
        several = next((name for name in RESPONSES_COLUMNS if _is_list(row.get(name), where)), None)
        if several:
            used.add(several)
            return [output(item) for item in text_list(row, several, where)]
        column = next((name for name in RESPONSE_COLUMNS if row.get(name) is not None and name not in used), None)
        if column is None:
            return []
        used.add(column)
        return [_answer(row[column], column, where)]


def _first(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def _is_list(value: Any, where: RowRef) -> bool:
    return isinstance(json_cell(value) if where.untyped else value, list)


def _one_or_more(row: dict[str, Any], column: str, where: RowRef) -> list[str]:
    value = required(row, column, where)
    if value is None:
        raise wrong(where, column, "an answer", None)
    return [value] if isinstance(value, str) else text_list(row, column, where)


def _answer(value: Any, column: str, where: RowRef) -> dict[str, Any]:
    if isinstance(value, str):
        return output(value)
    if not isinstance(value, (dict, list)):
        raise wrong(where, column, "text or a message", value)
    spoken = turns(value, column, where)
    if len(spoken) != 1 or spoken[0]["role"] != "assistant":
        raise DataError(f"{where}, column '{column}': expected one assistant message; whole conversations go into 'messages'")
    return {"answer": spoken[0]}
