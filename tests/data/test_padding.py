"""Data as it was written: nulls that Arrow put into structs, whole numbers that a gap made floats,
NaN, maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.load.padding import EXACT, without_padding
from rm_gallery.core.data.load.readers import RowSource, file_sources, memory_source, rows_in
from tests.data.loading import load_rows

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "id": "r1",
        "calls": [
            {"name": "weather", "arguments": {"city": "Oslo"}},
            {"name": "stop", "arguments": {"symbol": "X", "n": 1}},
        ],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]},
        ],
        "info": {"deep": {"one": {"a": 1}}, "plain": "text"},
        "nested": [[{"x": 1}], [{"y": "two"}, {}]],
    },
    {
        "id": "r2",
        "calls": [{"name": "price", "arguments": {"symbol": "Y"}}],
        "messages": [{"role": "user", "content": "q", "name": "me"}],
        "info": {"deep": {"one": {}, "two": [1, None, 3]}},
        "nested": [[], [{"x": 2, "y": "z"}]],
    },
]


def parquet(table: pa.Table, path: Path) -> RowSource:
    pq.write_table(table, path / "t.parquet")
    return file_sources(path / "t.parquet")[0]


def arrow_file(table: pa.Table, path: Path) -> RowSource:
    with (
        pa.OSFile(str(path / "t.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=1)
    return file_sources(path / "t.arrow")[0]


def arrow_stream(table: pa.Table, path: Path) -> RowSource:
    with (
        pa.OSFile(str(path / "s.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return file_sources(path / "s.arrow")[0]


def feather(table: pa.Table, path: Path) -> RowSource:
    from pyarrow import feather as file

    file.write_feather(table, str(path / "t.feather"), compression="zstd")
    return file_sources(path / "t.feather")[0]


def frame(table: pa.Table, path: Path) -> RowSource:
    return memory_source(table.to_pandas())


def arrow_frame(table: pa.Table, path: Path) -> RowSource:
    return memory_source(table.to_pandas(types_mapper=pd.ArrowDtype))


def dataset(table: pa.Table, path: Path) -> RowSource:
    datasets = pytest.importorskip(
        "datasets", reason="rows of a datasets.Dataset need the extra hub"
    )
    return memory_source(datasets.Dataset(datasets.table.InMemoryTable(table)))


Store = Callable[[pa.Table, Path], RowSource]
STORES: list[Store] = [parquet, arrow_file, arrow_stream, feather, frame, arrow_frame, dataset]
every_store = pytest.mark.parametrize("store", STORES, ids=lambda store: store.__name__)


def read(source: RowSource, keep: list[int] | None = None) -> list[Row]:
    def rows() -> Iterator[Row]:
        for _, row in source.rows(keep):
            assert isinstance(row, dict), row
            yield row

    return list(rows())


@every_store
def test_what_arrow_holds_is_read_as_it_was_written(store: Store, tmp_path: Path) -> None:
    source = store(pa.Table.from_pylist(ROWS), tmp_path)
    assert read(source) == ROWS
    assert source.count() == 2 and read(source, [1]) == ROWS[1:]


@every_store
def test_columns_items_of_lists_and_fields_that_no_row_fills_are_no_padding(
    store: Store, tmp_path: Path
) -> None:
    if store is arrow_frame and pd.__version__ < "2.2":
        pytest.skip("this pandas cannot iterate over a list of structs that begins with a null")
    rows: list[Row] = [
        {"a": None, "b": [None, {"k": 1, "none": None}]},
        {"a": "x", "b": [{"k": 2, "none": None}, None]},
    ]
    assert read(store(pa.Table.from_pylist(rows), tmp_path)) == rows


def test_a_null_that_was_written_stays_where_nothing_pads() -> None:
    rows: list[Row] = [{"id": 1, "want": {"a": None, "b": 1}}, {"id": 2, "want": {"a": 2}}]
    assert read(memory_source(rows)) == rows == read(memory_source(pd.DataFrame(rows)))


@every_store
def test_maps_are_dicts_and_types_of_columns_cost_no_value(store: Store, tmp_path: Path) -> None:
    when = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
    struct = pa.struct([("k", pa.int64()), ("v", pa.string())])
    columns: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
        "map": (pa.map_(pa.string(), struct), [[("p", {"k": 1})], [("p", {"v": "x"}), ("q", {})]], [
            {"p": {"k": 1}}, {"p": {"v": "x"}, "q": {}},
        ]),
        "large": (pa.large_list(struct), [[{"k": 1}], [{"v": "x"}]], [[{"k": 1}], [{"v": "x"}]]),
        "fixed": (pa.list_(struct, 1), [[{"k": 1}], [{"v": "x"}]], [[{"k": 1}], [{"v": "x"}]]),
        "empty": (pa.struct([("k", pa.int64())]), [{}, {"k": 2**60 + 1}], [{}, {"k": 2**60 + 1}]),
        "long": (pa.large_string(), ["\u7b54\r\n", None], ["\u7b54\r\n", None]),
        "when": (pa.timestamp("us", "UTC"), [when, None], [when, None]),
        "exact": (pa.decimal128(10, 2), [Decimal("1.10"), None], [Decimal("1.10"), None]),
        "whole": (pa.int64(), [42, 7], [42, 7]),
        "real": (pa.float64(), [42.0, None], [42.0, None]),
        "nothing": (pa.null(), [None, None], [None, None]),
        "told": (pa.bool_(), [True, None], [True, None]),
    }  # fmt: skip
    # pandas has neither integers nor booleans with gaps, nor a difference between 42.0 and 42 there
    if store is frame:
        columns["real"] = (pa.float64(), [42.5, None], [42.5, None])
        columns["empty"] = (pa.struct([("k", pa.int64())]), [{}, {"k": 42}], [{}, {"k": 42}])
    if store in (dataset, frame):
        # `datasets` has none, and in a frame they are lists of pairs, as others are
        del columns["map"]
    table = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in columns.items()})
    if store is not arrow_frame:  # pandas has no extension type of dictionaries
        table = table.append_column("category", pa.array(["a", None]).dictionary_encode())
        columns["category"] = (pa.string(), [], ["a", None])
    wanted = [
        {name: wanted[place] for name, (_, _, wanted) in columns.items()} for place in range(2)
    ]
    found = read(store(table, tmp_path))
    assert found == wanted
    assert [[type(value) for value in row.values()] for row in found if store is parquet] in (
        [], [[type(value) for value in row.values()] for row in wanted],
    )  # fmt: skip


def test_a_map_with_a_key_twice_stays_pairs(tmp_path: Path) -> None:
    table = pa.table({"map": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))})
    assert read(parquet(table, tmp_path)) == [{"map": [("a", 1), ("a", 2)]}]


GAPS: Row = {
    "whole": [42, None, 7],
    "big": [2**53 - 1, None, -3],
    "rational": [42, None, 0.5],
    "real": [42.0, 1.0, 7.0],
    "told": [True, None, False],
    "text": ["nan", None, "NA"],
    "none": [float("nan")] * 3,
}


def test_whole_numbers_stay_whole_and_nan_is_a_gap(tmp_path: Path) -> None:
    made = pd.DataFrame(GAPS)
    made.to_parquet(tmp_path / "t.parquet")
    wanted = {**GAPS, "none": [None] * 3}
    for source in (memory_source(made), file_sources(tmp_path / "t.parquet")[0]):
        rows = read(source)
        for name, values in wanted.items():
            got = [row[name] for row in rows]
            assert got == values and list(map(type, got)) == [
                float if name == "rational" and value else type(value) for value in values
            ], name
        assert read(source, [0]) == rows[:1]  # whichever rows are kept


def test_digits_beyond_those_of_a_float_are_not_invented(tmp_path: Path) -> None:
    made = pd.DataFrame(
        {"n": [float(2**60), None, 3.0], "exact": pd.array([2**60 + 1, None, 3], dtype="Int64")}
    )
    made.to_parquet(tmp_path / "t.parquet")
    for source in (memory_source(made), file_sources(tmp_path / "t.parquet")[0]):
        rows = read(source)
        assert [(type(row["n"]), row["n"]) for row in rows] == [
            (float, float(2**60)),
            (type(None), None),
            (int, 3),
        ]
        assert [row["exact"] for row in rows] == [2**60 + 1, None, 3]
    assert EXACT == 2**53


def test_nan_in_rows_is_no_reference() -> None:
    (sample,) = load_rows(
        [{"id": "a", "prompt": "q", "response": "nan", "reference": float("nan")}]
    )
    assert sample.reference() is None


def test_rows_without_a_type_lose_every_null_field_and_no_column() -> None:
    given = {
        "a": [{"b": None, "c": [{"d": None}, None]}],
        "e": np.array([{"f": None, "g": 1}], dtype=object),
        "h": ["x", None],
    }
    assert without_padding(given) == {"a": [{"c": [{}, None]}], "e": [{"g": 1}], "h": ["x", None]}


def test_rows_of_a_file_are_restored_at_every_reader(tmp_path: Path) -> None:
    parquet(pa.Table.from_pylist(ROWS), tmp_path)
    assert list(rows_in(tmp_path / "t.parquet")) == ROWS
