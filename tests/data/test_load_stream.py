"""`stream` gives samples while it reads, and holds none of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery.core.data.load import readers
from rm_gallery.core.utils.errors import DataError
from tests.data.loading import ids, load, loader, numbered, write


def test_samples_come_before_a_later_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbered(3))
    path.write_text(path.read_text() + "{broken\n")
    stream = loader(path).stream()
    assert [next(stream).unique_id for _ in range(3)] == ["r0", "r1", "r2"]
    with pytest.raises(DataError, match="line 4"):
        next(stream)


def test_parquet_reads_a_batch_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(numbered(5_000)), path, row_group_size=2_000)
    sizes: list[int] = []
    original = readers._batch_rows

    def counting(batch: pa.RecordBatch) -> list[readers.Row | ValueError | OverflowError]:
        sizes.append(batch.num_rows)
        return original(batch)

    monkeypatch.setattr(readers, "_batch_rows", counting)
    stream = loader(path).stream()
    next(stream)
    assert sum(sizes) <= 512
    assert sum(1 for _ in stream) == 4_999
    assert sum(sizes) == 5_000


def test_row_groups_without_wanted_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(numbered(1_000)), path, row_group_size=10)
    read: list[int] = []
    original = readers._group_rows
    monkeypatch.setattr(readers, "_group_rows", lambda *args: read.append(args[1]) or original(*args))  # type: ignore[func-returns-value]
    found = load(path, limit=5)
    assert sorted(read) == sorted({int(name[1:]) // 10 for name in ids(found)})


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    rows = [{**row, "response": row["response"] * 200} for row in numbered(4_000)]
    path = write(tmp_path / name, rows)
    stream = loader(path).stream()
    for _ in range(1_000):
        next(stream)
    tracemalloc.start()
    try:
        for _ in range(500):
            next(stream)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in stream) == 2_500
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # The rest of the rows would be over 5 MB as plain text; one batch is about 1 MB.
    assert peak < 3_000_000


def test_report_counts_while_streaming(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*numbered(3), numbered(3)[0], {"prompt": 5}])
    source = loader(path, on_bad_row="skip")
    assert len(list(source.stream())) == 4
    report = source.report
    assert (report.rows, report.samples, report.duplicates, report.skipped) == (5, 4, 1, 1)
    assert "line 5" in report.messages[0]


def test_streams_of_one_loader_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = loader(write(tmp_path / "a.jsonl", numbered(4)))
    pairs = list(zip(source.stream(), source.stream(), strict=True))
    assert [(one.unique_id, two.unique_id) for one, two in pairs] == [(f"r{n}", f"r{n}") for n in range(4)]


def test_run_twice_gives_equal_data(tmp_path: Path) -> None:
    source = loader(write(tmp_path / "a.jsonl", numbered(4)))
    assert source.run() == source.run()
