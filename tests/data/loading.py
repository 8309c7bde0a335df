"""Small files and loaders for the tests of this folder."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rm_gallery import DataSample, create_loader
from rm_gallery.core.data.load.base import DataLoader, RowRef
from rm_gallery.core.data.load.converters import DataConverterRegistry
from rm_gallery.core.data.schema import BaseDataSet

Row = dict[str, Any]


def numbered(count: int) -> list[Row]:
    """Rows of a question and an answer each, with ids r0, r1, …"""
    return [
        {"id": f"r{n}", "prompt": f"question {n}", "response": f"answer {n}"} for n in range(count)
    ]


def write(path: Path, rows: list[Row]) -> Path:
    """Write rows in the format of the path's extension; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz")
    if name.endswith((".parquet", ".pq")):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if name.endswith((".csv", ".tsv")):
        content = _csv_text(rows, "\t" if name.endswith(".tsv") else ",")
    elif name.endswith(".json"):
        content = json.dumps(rows, ensure_ascii=False)
    else:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    packed = content.encode()
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)
    return path


def _csv_text(rows: list[Row], delimiter: str) -> str:
    import io

    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def loader(path: Path, data_source: str = "*", **config: Any) -> DataLoader:
    """A local loader for a path."""
    return create_loader("test", data_source=data_source, config={"path": path, **config})


def load(path: Path, data_source: str = "*", **config: Any) -> BaseDataSet:
    """The data set of a path."""
    return loader(path, data_source, **config).run()


def load_rows(rows: Any, data_source: str = "*", **config: Any) -> BaseDataSet:
    """The data set of a frame or of rows in memory."""
    return create_loader("test", data_source=data_source, config={"data": rows, **config}).run()


def convert(source: str, row: Row, untyped: bool = False) -> DataSample:
    """One row through one converter."""
    found = DataConverterRegistry.get_converter(source).convert(
        row, RowRef("test.jsonl", 7, "line", untyped)
    )
    assert isinstance(found, DataSample)
    return found


def ids(dataset: BaseDataSet) -> list[str]:
    """The ids of a data set, in order."""
    return [sample.unique_id for sample in dataset]


def spoken(sample: DataSample) -> list[tuple[str, str]]:
    """Role and text of the input's turns."""
    return [(message.role.value, message.text) for message in sample.input]


def answers(sample: DataSample) -> list[tuple[str, str | None]]:
    """Text and preference of the outputs."""
    return [
        (output.answer.text, (output.answer.label or {}).get("preference"))
        for output in sample.output
    ]
