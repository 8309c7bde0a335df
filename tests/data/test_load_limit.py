"""`limit` takes a seeded sample of rows in their original order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2

from rm_gallery.core.data.load.base import LocalDataLoader, RowRef
from rm_gallery.core.data.load.readers import RowItem, RowSource
from rm_gallery.core.utils.file import seeded_positions
from tests.data.loading import ids, load, load_rows, loader, numbered, write

NAMES = ["a.parquet", "a.json", "a.jsonl", "a.csv"]


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_rows_in_order(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, numbered(200))
    first = ids(load(path, limit=20, seed=3))
    assert (
        first
        == ids(load(path, limit=20, seed=3))
        == [sample.unique_id for sample in loader(path, limit=20, seed=3).stream()]
    )
    assert first == sorted(first, key=lambda name: int(name[1:]))
    assert len(set(first)) == 20
    assert first != ids(load(path, limit=20, seed=4))
    assert first != [f"r{n}" for n in range(20)]


def test_every_format_gives_the_same_sample(tmp_path: Path) -> None:
    found = [ids(load(write(tmp_path / name, numbered(60)), limit=7)) for name in NAMES]
    found += [ids(load_rows(numbered(60), limit=7)), ids(load_rows(pd.DataFrame(numbered(60)), limit=7))]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (59, 59), (60, 60), (1_000, 60), (None, 60)])
def test_limit_is_an_upper_bound(limit: int | None, expected: int) -> None:
    assert len(load_rows(numbered(60), limit=limit)) == expected


def test_limit_spans_a_folder_and_row_groups(tmp_path: Path) -> None:
    rows = numbered(300)
    pq.write_table(pa.Table.from_pylist(rows[:100]), tmp_path / "a.parquet", row_group_size=9)
    write(tmp_path / "b.jsonl", rows[100:200])
    write(tmp_path / "c.csv", rows[200:])
    found = ids(load(tmp_path, limit=90))
    assert found == ids(load_rows(rows, limit=90))
    assert {int(name[1:]) // 100 for name in found} == {0, 1, 2}


def test_a_larger_limit_contains_the_smaller() -> None:
    small, large = load_rows(numbered(500), limit=50, seed=9), load_rows(numbered(500), limit=120, seed=9)
    assert set(ids(small)) < set(ids(large))


def test_rows_outside_the_sample_are_not_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbered(100))
    wanted = set(seeded_positions(100, 10, 0))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line if n in wanted else "{broken" for n, line in enumerate(lines)))
    assert ids(load(path, limit=10)) == [f"r{n}" for n in sorted(wanted)]


def test_positions_are_uniform() -> None:
    counts = [0] * 10
    for seed in range(2_000):
        for position in seeded_positions(10, 3, seed):
            counts[position] += 1
    # Expected 600 each; five standard deviations are about 100.
    assert all(500 < count < 700 for count in counts)


class _Unsized:
    """Rows whose number only reading all of them tells, as a streamed hub data set."""

    def count(self) -> None:
        return None

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        for number in range(12):
            yield RowRef("stream", number + 1), {"id": str(number), "prompt": "q"}

    def understood(self) -> str:
        return "stream"


class _Streamed(LocalDataLoader):
    def sources(self) -> list[RowSource]:
        return [_Unsized()]


@pytest.mark.parametrize("limit", [1, 4, 11])
def test_t1_a_sample_of_rows_without_a_number_is_uniform(limit: int) -> None:
    """Chi-square over the rows kept by 1,500 seeds; a fair sampler fails it once in 100,000."""
    counts, seeds = [0] * 12, 1_500
    for seed in range(seeds):
        found = [
            int(sample.unique_id) for sample in _Streamed("x", "*", {"data": [], "limit": limit, "seed": seed}).stream()
        ]
        assert found == sorted(set(found)) and len(found) == limit
        for number in found:
            counts[number] += 1
    expected = seeds * limit / 12
    # the counts of one seed exclude each other, which narrows the statistic by (12 - limit) / 11
    statistic = sum((count - expected) ** 2 / expected for count in counts) * 11 / (12 - limit)
    assert chi2.cdf(statistic, 11) < 1 - 1e-5
