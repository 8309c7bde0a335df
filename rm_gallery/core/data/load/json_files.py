"""Rows out of JSON and JSON lines, and out of the result files that other evaluation tools write as
such.

Result files become rows with the usual column names: id, prompt, answer, reference and their
scores. Read are lm-evaluation-harness (`samples_*.jsonl`), Inspect (logs as `.json` and `.eval`),
promptfoo (`results.json`, with a column of answers for every provider when there are several) and
DeepEval (test runs as `.json`).
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rm_gallery.core.data.load.converters import RowRef, nearest, shown
from rm_gallery.core.data.load.readers import (
    BOM,
    Row,
    RowItem,
    check_not_empty,
    check_unpacked,
    numbered_lines,
    opened,
)
from rm_gallery.core.utils.errors import ConfigError, DataError

T = TypeVar("T")
HARNESS = "lm-evaluation-harness samples"


def tool_rows(document: Any) -> tuple[str, list[Row]] | None:
    """Name of the tool and its rows, when a JSON document is the result file of one; else None."""
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("eval"), dict) and isinstance(document.get("samples"), list):
        return "Inspect log", [
            inspect_row(sample) for sample in document["samples"] if isinstance(sample, dict)
        ]
    results = document.get("results")
    inner = results.get("results") if isinstance(results, dict) else results
    if isinstance(inner, list) and inner and all(_is_promptfoo(item) for item in inner):
        return "promptfoo results", promptfoo_rows(inner)
    cases = next((document[key] for key in _DEEPEVAL if isinstance(document.get(key), list)), None)
    if cases and all(isinstance(case, dict) and "input" in case for case in cases):
        return "DeepEval test run", [deepeval_row(case) for case in cases]
    return None


_DEEPEVAL = ("testCases", "test_cases", "testResults", "test_results")


def converted(tool: str, convert: Callable[[Any], T], given: Any, where: Any) -> T | DataError:
    """What `convert` makes of something; a DataError where it only looks like what the tool writes."""
    try:
        return convert(given)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        return DataError(
            f"{where}: not in the layout of {tool} ({type(error).__name__}: {str(error)[:200]})"
        )


def is_harness_row(row: Mapping[str, Any]) -> bool:
    """Whether a JSON line is a logged sample of lm-evaluation-harness."""
    return "doc_id" in row and "doc" in row and "resps" in row


_HARNESS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
)


def harness_row(row: Mapping[str, Any]) -> Row:
    """A logged sample: what the model was given, its (filtered) reply, the target, and the metrics
    as columns.
    """
    reply = _first(row.get("filtered_resps"))
    if not isinstance(reply, str):
        reply = _first(row.get("resps"))
    kept = {
        key: value
        for key, value in row.items()
        if key not in _HARNESS and not key.endswith("_hash")
    }
    found = {"id": row["doc_id"], "prompt": _asked(row.get("arguments")), "answer": _text(reply)}
    return {**kept, **found, "reference": _text(row.get("target")), "filter": row.get("filter")}


def _asked(arguments: Any) -> str | None:
    """The first text the model was given; arguments are a list of lists or an object, depending on
    the version.
    """
    if isinstance(arguments, Mapping):
        return _asked(list(arguments.values()))
    if isinstance(arguments, Sequence) and not isinstance(arguments, str):
        return next((text for item in arguments if (text := _asked(item)) is not None), None)
    return arguments if isinstance(arguments, str) else None


def _first(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def inspect_row(sample: Mapping[str, Any]) -> Row:
    """A sample of an Inspect log: input, the model's completion, target, and a column per scorer
    (`score.NAME`).
    """
    output = sample.get("output")
    output = output if isinstance(output, dict) else {}
    choice = _first(output.get("choices"))
    message = choice.get("message") if isinstance(choice, dict) else None
    answer = output.get("completion") or _said(message)
    target = sample.get("target")
    row: Row = {
        "id": str(sample.get("id", "")),
        "epoch": sample.get("epoch"),
        "prompt": _conversation(sample.get("input")),
        "answer": answer or None,
        "reference": target if isinstance(target, str) else _text(_first(target)),
    }
    if isinstance(sample.get("error"), dict):
        row["error"] = sample["error"].get("message")
    for name, score in (sample.get("scores") or {}).items():
        row[f"score.{name}"] = score.get("value") if isinstance(score, dict) else score
        if isinstance(score, dict) and score.get("explanation"):
            row[f"explanation.{name}"] = score["explanation"]
    return row


def _conversation(given: Any) -> str | None:
    if isinstance(given, list):
        spoken = [
            (str(turn.get("role", "")), _said(turn)) for turn in given if isinstance(turn, dict)
        ]
        if len(spoken) == 1:
            return spoken[0][1]
        return "\n\n".join(f"[{role}]\n{text or ''}" for role, text in spoken) or None
    return _text(given)


def _said(message: Any) -> str | None:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


def _is_promptfoo(item: Any) -> bool:
    return isinstance(item, dict) and "vars" in item and "provider" in item and "success" in item


def promptfoo_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per test: its variables, the prompt, and the answers, in a column per provider (and
    prompt) if there are several.

    With one provider the columns are `answer`, `score`, `success` and `reason`.
    """
    tests: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        name = result.get("testIdx", orjson.dumps(result["vars"], default=str).decode())
        tests.setdefault(str(name), []).append(result)
    several_prompts = len(
        {_prompt(result) for test in tests.values() for result in test[:1]}
    ) < len({(place, _prompt(result)) for place, test in tests.items() for result in test})
    names = {_provider(result, several_prompts) for result in results}
    return [
        _promptfoo_row(name, test, several_prompts, len(names) > 1) for name, test in tests.items()
    ]


def _promptfoo_row(
    name: str, test: Sequence[Mapping[str, Any]], several_prompts: bool, wide: bool
) -> Row:
    given = test[0]["vars"] if isinstance(test[0]["vars"], dict) else {}
    row: Row = {
        **{f"vars.{key}": value for key, value in given.items()},
        "id": name,
        "prompt": _prompt(test[0]),
    }
    for result in test:
        grading = result.get("gradingResult")
        column = _provider(result, several_prompts)
        said = {
            "answer": _text((result.get("response") or {}).get("output")),
            "score": result.get("score"),
            "success": result.get("success"),
            "reason": grading.get("reason") if isinstance(grading, dict) else None,
        }
        if wide:
            row[column] = said.pop("answer")
            row |= {f"{column}.{key}": value for key, value in said.items()}
        else:
            row |= {"provider": column, **said}
    return row


def _prompt(result: Mapping[str, Any]) -> str | None:
    prompt = result.get("prompt")
    return _text(prompt.get("raw")) if isinstance(prompt, dict) else _text(prompt)


def _provider(result: Mapping[str, Any], with_prompt: bool) -> str:
    provider, prompt = result["provider"], result.get("prompt")
    name = str(
        (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider
    )
    label = prompt.get("label") if isinstance(prompt, dict) else None
    which = result.get("promptIdx", label)
    return f"{name} prompt {which}" if with_prompt and which is not None else name


def deepeval_row(case: Mapping[str, Any]) -> Row:
    """A test case: input, actual and expected output, and a column per metric (`score.NAME`)."""

    def field(camel: str) -> Any:
        return case.get(camel, case.get(re.sub("([A-Z])", lambda m: "_" + m[1].lower(), camel)))

    row: Row = {
        "id": str(case.get("name") or case.get("id") or ""),
        "prompt": _text(case["input"]),
        "answer": _text(field("actualOutput")),
        "reference": _text(field("expectedOutput")),
        "success": case.get("success"),
    }
    for metric in field("metricsData") or ():
        if isinstance(metric, dict) and metric.get("name"):
            row[f"score.{metric['name']}"] = metric.get("score")
            row[f"reason.{metric['name']}"] = metric.get("reason")
    return row


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str).decode()


class InspectSource:
    """An Inspect log in its own format: a zip with one JSON file per sample."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of samples."""
        with self._open() as archive:
            return len(_members(archive))

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Samples in the order they were written."""
        with self._open() as archive:
            members = _members(archive)
            for position in range(len(members)) if keep is None else keep:
                where = RowRef(str(self.path), position + 1, "item")
                try:
                    part = archive.getinfo(members[position])
                    check_unpacked(self.path, part.compress_size, part.file_size)
                    sample = orjson.loads(_unpacked(archive, part))
                except (NotImplementedError, RuntimeError) as error:
                    raise DataError(
                        f"{self.path}: packed in a way that cannot be read here ({error}); "
                        "run: inspect log convert --to json --output-dir OUT LOG"
                    ) from error
                except (
                    orjson.JSONDecodeError,
                    zipfile.BadZipFile,
                    zlib.error,
                    EOFError,
                    OSError,
                ) as error:
                    yield where, DataError(f"{where}: {members[position]} cannot be read: {error}")
                    continue
                yield where, converted("Inspect", inspect_row, sample, where)

    def understood(self) -> str:
        """The tool."""
        return "Inspect log"

    def _open(self) -> zipfile.ZipFile:
        check_not_empty(self.path)
        try:
            return zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{self.path}: not a readable Inspect log: {error}") from error


ZSTANDARD = 93
"""The method of packing by its number in a zip file, which Inspect uses and zipfile knows from
Python 3.14 on.
"""


def _unpacked(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    """The bytes of a member; BadZipFile or OSError when they are damaged."""
    if part.compress_type != ZSTANDARD:
        return archive.read(part)
    import pyarrow as pa

    file = archive.fp
    if file is None or part.flag_bits & 0x1:
        raise zipfile.BadZipFile("the file is closed or encrypted")
    file.seek(part.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("its header is damaged")
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    packed = file.read(part.compress_size)
    found: bytes = pa.decompress(
        packed, decompressed_size=part.file_size, codec="zstd", asbytes=True
    )
    if zlib.crc32(found) != part.CRC:
        raise zipfile.BadZipFile("its checksum is wrong")
    return found


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [
        name
        for name in archive.namelist()
        if name.startswith("samples/") and name.endswith(".json")
    ]


_RECORD_KEYS = ("data", "records", "rows", "samples", "examples", "instances", "datasamples")


class JsonLinesSource:
    """A file with one JSON object per line; blank lines are no rows.

    Samples of lm-evaluation-harness hold each reply once per filter: of several filters `part`
    names the one that is read.
    """

    def __init__(self, path: Path, part: str | None = None) -> None:
        self.path = path
        self.part = part
        self._several: bool | None = None

    def count(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for _ in self._lines())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; only wanted lines are parsed."""
        name, wanted = str(self.path), None if keep is None else set(keep)
        for position, (number, line) in enumerate(self._lines()):
            if wanted is None or position in wanted:
                where = RowRef(name, number, "line")
                row = _parsed_line(line, where)
                harness = isinstance(row, dict) and is_harness_row(row)
                yield where, converted(HARNESS, harness_row, row, where) if harness else row

    def understood(self) -> str:
        """The format, and the tool that wrote it where it is known."""
        first = next(
            (_parsed_line(line, RowRef("", number)) for number, line in self._lines()), None
        )
        return HARNESS if isinstance(first, dict) and is_harness_row(first) else "JSON lines"

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if self._several is None:
            self._several = self._has_filters()
        for number, line in self._written():
            if not self._several or self._filter_of(number, line) in (self.part, None):
                yield number, line

    def _written(self) -> Iterator[tuple[int, bytes]]:
        return (
            (number, text) for number, line in numbered_lines(self.path) if (text := line.strip())
        )

    @staticmethod
    def _filter_of(number: int, line: bytes) -> str | None:
        """The filter of a harness sample; None for any other line."""
        row = _parsed_line(line, RowRef("", number))
        return str(row.get("filter")) if isinstance(row, dict) and is_harness_row(row) else None

    def _has_filters(self) -> bool:
        """Whether one of several filters is to be read; DataError where it is not said which."""
        lines = self._written()
        first = next((self._filter_of(*line) for line in lines), None)
        if first is None:
            return False
        found = list(
            dict.fromkeys(
                [first, *(name for line in lines if (name := self._filter_of(*line)) is not None)]
            )
        )
        if len(found) > 1 and self.part not in found:
            told = "name one" if self.part is None else f"'{self.part}' is none of them, name one"
            raise DataError(
                f"{self.path}: every reply is there once per filter ({', '.join(found)}); {told} "
                f"with sheet= or --sheet."
            )
        return len(found) > 1


class JsonSource:
    """A JSON file, read whole: a list of objects, one object, or an object that holds the list
    under a records key.

    JSON lines under the extension `.json` are read as such.
    """

    def __init__(self, path: Path, records_key: str | None = None) -> None:
        self.path = path
        self.records_key = records_key
        self._tool: str | None = None

    def count(self) -> int:
        """Number of records."""
        records = self._records()
        return JsonLinesSource(self.path).count() if records is None else len(records)

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Records in order."""
        records, name = self._records(), str(self.path)
        if records is None:
            yield from JsonLinesSource(self.path).rows(keep)
            return
        for position in range(len(records)) if keep is None else keep:
            record, where = records[position], RowRef(name, position + 1, "item")
            yield where, record if isinstance(record, dict) else _not_an_object(record, where)

    def understood(self) -> str:
        """The format, and the tool that wrote it where it is known."""
        records = self._records()
        return self._tool or (
            "JSON" if records is not None else JsonLinesSource(self.path).understood()
        )

    def written(self) -> tuple[Any, list[Any]] | None:
        """What stands in the file, and the records inside it; None for JSON lines.

        Raises:
            ConfigError: the records are made of a tool's results and stand in the file otherwise.
        """
        with opened(self.path) as file:
            content = file.read().removeprefix(BOM)
        try:
            whole = orjson.loads(content)
        except orjson.JSONDecodeError:
            return None
        records = self._unwrapped(whole)
        if self._tool is not None:
            raise ConfigError(
                f"{self.path} is a {self._tool}, whose rows do not stand in it as such; --export "
                f"writes them."
            )
        return whole, records

    def _records(self) -> list[Any] | None:
        with opened(self.path) as file:
            content = file.read().removeprefix(BOM)
        try:
            return self._unwrapped(orjson.loads(content))
        except orjson.JSONDecodeError as error:
            if _looks_like_json_lines(content):
                return None
            raise DataError(f"{self.path}: not valid JSON: {_json_fault(content, error)}") from None

    def _unwrapped(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            raise DataError(
                f"{self.path}: expected a list of objects or an object, found {shown(value)}"
            )
        if self.records_key is not None:
            records = value.get(self.records_key)
            if not isinstance(records, list):
                found = (
                    shown(records)
                    if self.records_key in value
                    else "nothing; " + nearest(self.records_key, value)
                )
                raise DataError(
                    f"{self.path}: expected a list of records under '{self.records_key}', found "
                    f"{found}"
                )
            return records
        known = converted("the tool that seems to have written it", tool_rows, value, self.path)
        if isinstance(known, DataError):
            raise known
        if known is not None:
            self._tool, records = known
            return list(records)
        for key in _RECORD_KEYS:
            records = value.get(key)
            if (
                isinstance(records, list)
                and records
                and all(isinstance(record, dict) for record in records)
            ):
                return records
        return [value]


def _parsed_line(line: bytes, where: RowRef) -> Row | DataError:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return DataError(f"{where}: not valid JSON: {_json_fault(line, error)}")
    return value if isinstance(value, dict) else _not_an_object(value, where)


def _json_fault(content: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as decode_error:
        line = content.count(b"\n", 0, decode_error.start) + 1
        place = f" (line {line})" if b"\n" in content else ""
        return f"not UTF-8 at byte {decode_error.start + 1}{place}; save the file as UTF-8"
    return (
        f"{error.msg} ("
        + (f"line {error.lineno}, " if b"\n" in content else "")
        + f"column {error.colno})"
    )


def _not_an_object(value: object, where: RowRef) -> DataError:
    return DataError(f"{where}: expected an object with named columns, found {shown(value)}")


def _looks_like_json_lines(content: bytes) -> bool:
    first, _, rest = content.strip().partition(b"\n")
    try:
        return bool(rest) and isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return False
