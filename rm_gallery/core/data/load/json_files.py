"""Reads rows from JSON, JSON lines and the result files of other evaluation tools.

Result files become rows with the usual columns: id, prompt, answer, reference and scores. Supported
are lm-evaluation-harness (`samples_*.jsonl`), Inspect (logs as `.json` and `.eval`), promptfoo
(`results.json`, one column of answers per provider) and DeepEval (test runs as `.json`).
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import orjson

from rm_gallery.core.data.load.converters import RowRef, nearest, shown
from rm_gallery.core.data.load.files import (
    BOM,
    Row,
    RowItem,
    check_not_empty,
    check_unpacked,
    kept,
    numbered_lines,
    open_bytes,
)
from rm_gallery.core.data.load.padding import fields_in
from rm_gallery.core.utils.errors import ConfigError, DataError

T = TypeVar("T")
HARNESS = "lm-evaluation-harness samples"


def tool_rows(document: Any) -> tuple[str, list[Row]] | None:
    """The tool that wrote a JSON document and its rows; None if no known tool wrote it."""
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("eval"), dict) and isinstance(document.get("samples"), list):
        return "Inspect log", [
            inspect_row(sample) for sample in document["samples"] if isinstance(sample, dict)
        ]
    if str(document.get("schema_version", "")).startswith("ATIF"):
        return "ATIF trajectory", [document]
    results = document.get("results")
    inner = fields_in(results).get("results", results)
    if isinstance(inner, list) and inner and all(_PROMPTFOO <= fields_in(i).keys() for i in inner):
        return "promptfoo results", promptfoo_rows(inner)
    cases = next((document[key] for key in _DEEPEVAL if isinstance(document.get(key), list)), None)
    if cases and all(isinstance(case, dict) and "input" in case for case in cases):
        return "DeepEval test run", [deepeval_row(case) for case in cases]
    return None


_PROMPTFOO = {"vars", "provider", "success"}
_DEEPEVAL = ("testCases", "test_cases", "testResults", "test_results")


def converted(tool: str, convert: Callable[[Any], T], given: Any, where: Any) -> T | DataError:
    """The result of `convert`; a DataError if the document only resembles the tool's files."""
    try:
        return convert(given)
    except (AttributeError, LookupError, TypeError, RecursionError) as error:
        return DataError(
            f"{where}: not in the layout of {tool} ({type(error).__name__}: {str(error)[:200]})"
        )


def is_harness_row(row: Mapping[str, Any]) -> bool:
    """Whether a JSON line is a logged sample of lm-evaluation-harness."""
    return {"doc_id", "doc", "resps"} <= row.keys()


_HARNESS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
)


def harness_row(row: Mapping[str, Any]) -> Row:
    """A logged sample: prompt, (filtered) reply, target, and a column per metric."""
    reply = _innermost(row.get("filtered_resps"))
    if not isinstance(reply, str):
        reply = _innermost(row.get("resps"))
    others = {
        key: value
        for key, value in row.items()
        if key not in _HARNESS and not key.endswith("_hash")
    }
    return {
        **others,
        "id": row["doc_id"],
        "prompt": _first_prompt(row.get("arguments")),
        "answer": _as_text(reply),
        "reference": _as_text(row.get("target")),
        "filter": row.get("filter"),
    }


def _first_prompt(arguments: Any) -> str | None:
    """The first text in the arguments, a list of lists or an object, depending on the version."""
    if isinstance(arguments, Mapping):
        return _first_prompt(list(arguments.values()))
    if isinstance(arguments, Sequence) and not isinstance(arguments, str):
        return next((text for item in arguments if (text := _first_prompt(item)) is not None), None)
    return arguments if isinstance(arguments, str) else None


def _innermost(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def inspect_row(sample: Mapping[str, Any]) -> Row:
    """A sample of an Inspect log: input, the model's completion, target, a column per scorer
    (`score.NAME`), and the `messages` where tools were used.
    """
    output = fields_in(sample.get("output"))
    choice = fields_in(_innermost(output.get("choices")))
    answer = output.get("completion") or _message_text(choice.get("message"))
    target = sample.get("target")
    row: Row = {
        "id": str(sample.get("id", "")),
        "epoch": sample.get("epoch"),
        "prompt": _conversation(sample.get("input")),
        "answer": answer or None,
        "reference": target if isinstance(target, str) else _as_text(_innermost(target)),
    }
    messages = sample.get("messages")
    # an agent's conversation, which prompt and answer alone would not tell
    if isinstance(messages, list) and any(
        isinstance(turn, dict) and (turn.get("role") == "tool" or turn.get("tool_calls"))
        for turn in messages
    ):
        row["messages"] = messages
    if isinstance(sample.get("error"), dict):
        row["error"] = sample["error"].get("message")
    for name, score in (sample.get("scores") or {}).items():
        row[f"score.{name}"] = score.get("value") if isinstance(score, dict) else score
        if explanation := fields_in(score).get("explanation"):
            row[f"explanation.{name}"] = explanation
    return row


def _conversation(given: Any) -> str | None:
    if isinstance(given, list):
        spoken = [
            (str(turn.get("role", "")), _message_text(turn))
            for turn in given
            if isinstance(turn, dict)
        ]
        if len(spoken) == 1:
            return spoken[0][1]
        return "\n\n".join(f"[{role}]\n{text or ''}" for role, text in spoken) or None
    return _as_text(given)


def _message_text(message: Any) -> str | None:
    content = fields_in(message).get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


def promptfoo_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per test: its variables, the prompt, and the answers.

    Several providers (or prompts) get a column each. With one provider the columns are `answer`,
    `score`, `success` and `reason`.
    """
    tests: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        name = result.get("testIdx", orjson.dumps(result["vars"], default=str).decode())
        tests.setdefault(str(name), []).append(result)
    several_prompts = len(
        {_prompt(result) for test in tests.values() for result in test[:1]}
    ) < len({(place, _prompt(result)) for place, test in tests.items() for result in test})
    names = {_provider(result, several_prompts) for result in results}
    rows: list[Row] = []
    for name, test in tests.items():
        variables = fields_in(test[0]["vars"])
        row: Row = {f"vars.{key}": value for key, value in variables.items()}
        row |= {"id": name, "prompt": _prompt(test[0])}
        for result in test:
            column = _provider(result, several_prompts)
            fields = {
                "answer": _as_text((result.get("response") or {}).get("output")),
                "score": result.get("score"),
                "success": result.get("success"),
                "reason": fields_in(result.get("gradingResult")).get("reason"),
            }
            if len(names) > 1:
                row[column] = fields.pop("answer")
                row |= {f"{column}.{key}": value for key, value in fields.items()}
            else:
                row |= {"provider": column, **fields}
        rows.append(row)
    return rows


def _prompt(result: Mapping[str, Any]) -> str | None:
    prompt = result.get("prompt")
    return _as_text(prompt.get("raw") if isinstance(prompt, dict) else prompt)


def _provider(result: Mapping[str, Any], with_prompt: bool) -> str:
    provider = result["provider"]
    name = str(
        (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider
    )
    which = result.get("promptIdx", fields_in(result.get("prompt")).get("label"))
    return f"{name} prompt {which}" if with_prompt and which is not None else name


def deepeval_row(case: Mapping[str, Any]) -> Row:
    """A test case: input, actual and expected output, and a column per metric (`score.NAME`)."""

    def field(camel: str) -> Any:
        return case.get(camel, case.get(re.sub("([A-Z])", lambda m: "_" + m[1].lower(), camel)))

    row: Row = {
        "id": str(case.get("name") or case.get("id") or ""),
        "prompt": _as_text(case["input"]),
        "answer": _as_text(field("actualOutput")),
        "reference": _as_text(field("expectedOutput")),
        "success": case.get("success"),
    }
    for metric in field("metricsData") or ():
        if isinstance(metric, dict) and metric.get("name"):
            row[f"score.{metric['name']}"] = metric.get("score")
            row[f"reason.{metric['name']}"] = metric.get("reason")
    return row


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str).decode()


class InspectSource:
    """An Inspect log in its own format: a zip with one JSON file per sample."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        """Number of samples."""
        with self._open_archive() as archive:
            return len(_members(archive))

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Samples in the order they were written."""
        with self._open_archive() as archive:
            for number, member in kept(enumerate(_members(archive), 1), keep):
                where = RowRef(str(self.path), number, "item")
                try:
                    part = archive.getinfo(member)
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
                    yield where, DataError(f"{where}: {member} cannot be read: {error}")
                    continue
                yield where, converted("Inspect", inspect_row, sample, where)

    def understood(self) -> str:
        """The tool."""
        return "Inspect log"

    def _open_archive(self) -> zipfile.ZipFile:
        check_not_empty(self.path)
        try:
            return zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{self.path}: not a readable Inspect log: {error}") from error


ZSTANDARD = 93
"""Inspect's compression method in zip files; `zipfile` supports it from Python 3.14 on."""


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
    unpacked: bytes = pa.decompress(
        packed, decompressed_size=part.file_size, codec="zstd", asbytes=True
    )
    if zlib.crc32(unpacked) != part.CRC:
        raise zipfile.BadZipFile("its checksum is wrong")
    return unpacked


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [
        name
        for name in archive.namelist()
        if name.startswith("samples/") and name.endswith(".json")
    ]


_RECORD_KEYS = ("data", "records", "rows", "samples", "examples", "instances", "datasamples")


class JsonLinesSource:
    """A file with one JSON object per line; blank lines are no rows.

    lm-evaluation-harness writes each reply once per filter; `part` names the filter to read.
    """

    def __init__(self, path: Path, part: str | None = None) -> None:
        self.path = path
        self.part = part

    def count(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for _ in self._lines())

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order; only wanted lines are parsed."""
        for number, line in kept(self._lines(), keep):
            where = RowRef(str(self.path), number, "line")
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
        for number, line in self._numbered_texts():
            if not self._several or self._filter_of(number, line) in (self.part, None):
                yield number, line

    def _numbered_texts(self) -> Iterator[tuple[int, bytes]]:
        return (
            (number, text) for number, line in numbered_lines(self.path) if (text := line.strip())
        )

    @staticmethod
    def _filter_of(number: int, line: bytes) -> str | None:
        """The filter of a harness sample; None for any other line."""
        row = _parsed_line(line, RowRef("", number))
        return str(row.get("filter")) if isinstance(row, dict) and is_harness_row(row) else None

    @cached_property
    def _several(self) -> bool:
        """Whether there are several filters; DataError if `part` names none of them."""
        lines = self._numbered_texts()
        first = next((self._filter_of(*line) for line in lines), None)
        if first is None:
            return False
        filters = list(
            dict.fromkeys(
                [first, *(name for line in lines if (name := self._filter_of(*line)) is not None)]
            )
        )
        if len(filters) > 1 and self.part not in filters:
            advice = "name one" if self.part is None else f"'{self.part}' is none of them, name one"
            raise DataError(
                f"{self.path}: every reply is there once per filter ({', '.join(filters)}); {advice} "
                f"with sheet= or --config file.sheet=NAME (at score and winrate)."
            )
        return len(filters) > 1


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
        records = self._records()
        if records is None:
            yield from JsonLinesSource(self.path).rows(keep)
            return
        for number, record in kept(enumerate(records, 1), keep):
            where = RowRef(str(self.path), number, "item")
            yield where, record if isinstance(record, dict) else _not_an_object(record, where)

    def understood(self) -> str:
        """The format, and the tool that wrote it where it is known."""
        records = self._records()
        return self._tool or (
            "JSON" if records is not None else JsonLinesSource(self.path).understood()
        )

    def written(self) -> tuple[Any, list[Any]] | None:
        """The document and the records inside it; None for JSON lines.

        Raises:
            ConfigError: a tool wrote the file, and its records are not rows of it.
        """
        document = self._document()
        if self._tool is not None:
            raise ConfigError(
                f"{self.path} is a {self._tool}, whose rows do not stand in it as such; --export "
                f"writes them."
            )
        return document

    def _records(self) -> list[Any] | None:
        document = self._document()
        return None if document is None else document[1]

    def _document(self) -> tuple[Any, list[Any]] | None:
        with open_bytes(self.path) as file:
            content = file.read().removeprefix(BOM)
        try:
            whole = orjson.loads(content)
            return whole, self._unwrapped(whole)
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
                actual = (
                    shown(records)
                    if self.records_key in value
                    else "nothing; " + nearest(self.records_key, value)
                )
                raise DataError(
                    f"{self.path}: expected a list of records under '{self.records_key}', found "
                    f"{actual}"
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
            if records and isinstance(records, list) and all(isinstance(r, dict) for r in records):
                return records
        return [value]


def _parsed_line(line: bytes, where: RowRef) -> Row | DataError:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return DataError(f"{where}: not valid JSON: {_json_fault(line, error)}")
    return value if isinstance(value, dict) else _not_an_object(value, where)


_NO_JSON = re.compile(r"NaN|-?Infinity")
"""What Python's json module writes for numbers that JSON has not."""


def _json_fault(content: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as decode_error:
        line = content.count(b"\n", 0, decode_error.start) + 1
        place = f" (line {line})" if b"\n" in content else ""
        return f"not UTF-8 at byte {decode_error.start + 1}{place}; save the file as UTF-8"
    near = _NO_JSON.search(content.decode("utf-8"), max(0, error.pos - 2), error.pos + 9)
    return (
        (f"{near[0]} is no JSON; write null (" if near else f"{error.msg} (")
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
