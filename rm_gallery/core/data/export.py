"""Samples as plain rows, parquet and JSON lines and back: lossless, and written whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from rm_gallery.core.data.schema import BaseDataSet, DataSample
from rm_gallery.core.utils.errors import DataError
from rm_gallery.core.utils.file import written_whole
from rm_gallery.core.utils.identity import is_unicode

RECORD_FIELDS = ("unique_id", "input", "output", "task_category", "source", "created_at", "metadata")
NESTED_FIELDS = ("input", "output", "metadata")

_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


def to_record(sample: DataSample) -> dict[str, Any]:
    """The sample as a dict of JSON values (`created_at` as ISO text); `from_record` gives back an equal sample.

    Raises DataError naming the sample and the field for a value that JSON cannot hold exactly: NaN and infinities,
    integers beyond 64 bits, tuples, dates in metadata, keys that are no text, half surrogate pairs.
    """
    record = sample.model_dump()
    created = record["created_at"]
    record["created_at"] = None if created is None else created.isoformat()
    fault = _fault(record, "")
    if fault is not None:
        name = ascii(sample.unique_id[:80]) if sample.unique_id else "without id"
        raise DataError(f"sample {name}, {fault}; it cannot be written without loss")
    return record


def is_record(row: Mapping[str, Any]) -> bool:
    """Whether a row was made by `to_record`, nested parts as values or as JSON text."""
    return (
        "output" in row
        and "input" in row
        and all(key in RECORD_FIELDS for key in row)
        and isinstance(_parsed(row["input"]), list)
        and isinstance(_parsed(row["output"]), list)
    )


def from_record(row: Mapping[str, Any]) -> DataSample:
    """The sample a record was made from; nested parts may be JSON text. Raises DataError for anything else."""
    record = {key: _parsed(value) if key in NESTED_FIELDS else value for key, value in row.items()}
    try:
        return DataSample.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"not a sample written by this library, at {place}: {first['msg']}") from error


def _parsed(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _fault(value: Any, path: str) -> str | None:
    """What JSON cannot hold, and where; None when everything is fine."""
    if isinstance(value, str):
        return None if value.isascii() or is_unicode(value) else f"{path}: half a surrogate pair is no valid Unicode text"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if _LOWEST <= value <= _HIGHEST else f"{path}: an integer beyond 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path}: {value} is no JSON number"
    if isinstance(value, list):
        return next((fault for i, item in enumerate(value) if (fault := _fault(item, f"{path}[{i}]"))), None)
    if isinstance(value, dict):
        for key, item in value.items():
            place = f"{path}.{key}" if path else str(key)
            fault = _fault(item, place) if isinstance(key, str) else f"{path}: a key of type {type(key).__name__}"
            if fault is None and not is_unicode(key):
                fault = f"{path}: a key with half a surrogate pair"
            if fault is not None:
                return fault
        return None
    return f"{path}: a value of type {type(value).__name__}"


_FOOTER_KEY = b"rm_gallery.dataset"
_GROUP_ROWS = 2_000


def to_parquet(dataset: BaseDataSet, path: str | Path) -> Path:
    """Write the data set: one row per sample, nested parts as JSON text, name and metadata in the footer.

    Columns: unique_id, input, output, task_category, source, created_at, metadata (all text). Raises DataError for a
    value that cannot be written without loss, and when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = _json({"name": dataset.name, "metadata": dataset.metadata}, "the data set's metadata")
    schema = pa.schema([(name, pa.string()) for name in RECORD_FIELDS], metadata={_FOOTER_KEY: about})
    records = (_flat(sample) for sample in dataset.datasamples)
    with written_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while rows := list(islice(records, _GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return Path(path)


def from_parquet(path: str | Path) -> BaseDataSet:
    """Read what `to_parquet` wrote. Raises DataError for any other file; `create_loader` reads those."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            footer = (file.schema_arrow.metadata or {}).get(_FOOTER_KEY)
            if footer is None:
                raise DataError(f"{path}: not a data set written by to_parquet; read it with create_loader")
            samples = [from_record(row) for batch in file.iter_batches(_GROUP_ROWS) for row in batch.to_pylist()]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error
    about = orjson.loads(footer)
    return BaseDataSet(name=about["name"], datasamples=samples, metadata=about["metadata"])


def to_jsonl(dataset: BaseDataSet, path: str | Path) -> Path:
    """Write the samples as JSON lines, one object each; the data set's name and metadata are not part of them.

    Raises DataError as `to_parquet` does.
    """
    with written_whole(path) as file:
        for sample in dataset.datasamples:
            file.write(orjson.dumps(to_record(sample), option=orjson.OPT_APPEND_NEWLINE))
    return Path(path)


def from_jsonl(path: str | Path, name: str | None = None) -> BaseDataSet:
    """Read what `to_jsonl` wrote; `name` is the file's stem unless given. Raises DataError naming the line."""
    return BaseDataSet(name=name or Path(path).stem, datasamples=list(_line_samples(Path(path))))


def _line_samples(path: Path) -> Iterator[DataSample]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield from_record(orjson.loads(line))
                except (orjson.JSONDecodeError, AttributeError, DataError) as error:
                    raise DataError(f"{path}, line {number}: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _flat(sample: DataSample) -> dict[str, Any]:
    record = to_record(sample)
    for key in NESTED_FIELDS:
        if record[key] is not None:
            record[key] = orjson.dumps(record[key]).decode()
    return record


def _json(value: dict[str, Any], what: str) -> bytes:
    packed = _exact(value)
    if packed is None:
        raise DataError(f"{what} holds values that JSON cannot hold exactly (NaN, dates, tuples, …)")
    return packed


def _exact(value: dict[str, Any]) -> bytes | None:
    try:
        packed = orjson.dumps(value)
    except TypeError:
        return None
    return packed if orjson.loads(packed) == value else None
