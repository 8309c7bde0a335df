"""Loading: the same rows out of every format and from memory, what is said about them, seeded
limits, and streams.

What files and rows are read as, and what is wrong with them, stands in `tests/golden/files` and
`tests/golden/loading`.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery import DataError, create_loader
from rm_gallery.core.data.load.readers import ParquetSource
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.study.source import Source
from tests.data.loading import Row, answers, ids, load, load_rows, loader, numbered, spoken, write

NAMES = [
    "a.parquet",
    "a.pq",
    "a.json",
    "a.jsonl",
    "a.csv",
    "a.tsv",
    "a.jsonl.gz",
    "a.csv.gz",
    "a.json.gz",
]
TRICKY: list[Row] = [
    {"id": "zh", "prompt": "法国的首都是哪里？", "response": "巴黎 🗼"},
    {"id": "lines", "prompt": 'say "hi",\nplease', "response": "hi\n\n"},
    {"id": "long", "prompt": "long?", "response": "x" * 200_000},
    {"id": "tags", "prompt": "<think>", "response": "```\n</answer>\n[[A]]<best>1</best>"},
    {"id": "list", "prompt": "two colours?", "response": '["red", "green"]'},
    {"id": "empty", "prompt": "nothing?", "response": ""},
]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_format_are_equal(tmp_path: Path, name: str) -> None:
    found = load(write(tmp_path / name, TRICKY))
    assert ids(found) == [row["id"] for row in TRICKY]
    assert [spoken(sample) for sample in found] == [[("user", row["prompt"])] for row in TRICKY]
    assert [answers(sample) for sample in found][:-1] == [
        [(row["response"], None)] for row in TRICKY[:-1]
    ]
    # a table of texts has no other way to say that there is none
    blank_is_missing = ".csv" in name or ".tsv" in name
    assert answers(found[5]) == ([] if blank_is_missing else [("", None)])


def test_a_blank_cell_is_a_missing_answer_and_never_a_scored_one(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "chosen": "a", "rejected": "", "reference": "", "id": ""}]
    assert answers(load(write(tmp_path / "a.jsonl", rows))[0]) == [
        ("a", "chosen"),
        ("", "rejected"),
    ]
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(
        DataError, match="line 2, column 'rejected': expected an answer, found null"
    ):
        load(path)
    (found,) = load(path, columns={"chosen": None, "rejected": None, "response": "chosen"})
    assert (answers(found), found.metadata) == ([("a", None)], {"reference": None})


@pytest.mark.parametrize(
    "rows", [TRICKY, tuple(TRICKY), pd.DataFrame(TRICKY)], ids=["list", "tuple", "frame"]
)
def test_rows_in_memory_are_equal(rows: Any) -> None:
    assert [answers(sample)[0][0] for sample in load_rows(rows)] == [
        row["response"] for row in TRICKY
    ]


@pytest.mark.parametrize("chosen", [["only"], np.array(["only"], dtype=object), np.array(["only"])])
def test_one_element_arrays_stay_lists(tmp_path: Path, chosen: Any) -> None:
    row = {"id": "x", "prompt": "q", "chosen": chosen, "rejected": ["bad"], "subset": "Math"}
    path = write(tmp_path / "a.parquet", [{**row, "chosen": list(chosen)}])
    for found in (
        load_rows([row], "rewardbench2"),
        load_rows(pd.DataFrame([row]), "rewardbench2"),
        load(path, "rewardbench2"),
    ):
        assert answers(found[0]) == [("only", "chosen"), ("bad", "rejected")]


def test_numpy_and_pandas_values_become_plain() -> None:
    row = {
        "id": np.int64(7), "prompt": np.str_("q"), "response": "a", "weight": np.float32(0.5), "good": np.bool_(True),
        "scores": np.array([1, 2]), "nested": {"list": [np.int8(3)]}, "when": pd.Timestamp("2024-01-02"), "gone": pd.NA,
        "hole": float("nan"),
    }  # fmt: skip
    sample = load_rows(pd.DataFrame([row]))[0]
    assert sample.unique_id == "7" and sample.metadata is not None
    when = sample.metadata.pop("when")
    assert (type(when).__name__, when.year) == ("datetime", 2024)
    plain = {
        "weight": 0.5,
        "good": True,
        "scores": [1, 2],
        "nested": {"list": [3]},
        "gone": None,
        "hole": None,
    }
    assert sample.metadata == plain
    assert [type(value) for value in sample.metadata.values()] == [
        float,
        bool,
        list,
        dict,
        type(None),
        type(None),
    ]


def test_a_csv_of_a_benchmark_gives_the_same_samples(tmp_path: Path) -> None:
    """Lists and objects stand as JSON in the cells of a table of texts."""
    rows = pq.read_table(Path(__file__).parents[2] / "data" / "test.parquet").to_pylist()[:40]
    cells = [
        {k: v if v is None or isinstance(v, str | int) else json.dumps(v) for k, v in row.items()}
        for row in rows
    ]
    path = write(tmp_path / "a.csv", cells)
    assert load(path, "rewardbench2").datasamples == load_rows(rows, "rewardbench2").datasamples
    assert Source(path).open().benchmark.name == "rewardbench2"


def test_a_folder_is_read_recursively_in_sorted_order_and_named(tmp_path: Path) -> None:
    rows = numbered(6)
    write(tmp_path / "b" / "one.jsonl", rows[2:3])
    write(tmp_path / "a.parquet", rows[0:1])
    write(tmp_path / "b" / "deep" / "two.csv", rows[1:2])
    write(tmp_path / "c.json", [*rows[3:6], {"id": "r0", "prompt": "other"}])
    for hidden in (".cache/hidden.jsonl", "~$open.json", ".a.json"):
        write(tmp_path / hidden, [{"prompt": "never"}])
    for other in ("README.md", "_SUCCESS", "notes.txt"):
        (tmp_path / other).write_text("no data")
    found = create_loader("mine", config={"path": str(tmp_path)}, metadata={"owner": "me"}).run()
    assert ids(found) == ["r0", "r1", "r2", "r3", "r4", "r5", "r0"]
    assert {sample.source for sample in found} == {found.name} == {"mine"}
    about = {
        "data_source": "*",
        "load_strategy": "local",
        "path": str(tmp_path),
        "limit": None,
        "seed": 0,
    }
    assert found.metadata == {
        **about,
        "rows": 7,
        "skipped": 0,
        "duplicates": 0,
        "id_collisions": 1,
        "owner": "me",
    }
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "gone.jsonl", "no such file or folder"),
        (tmp_path / "empty", "holds no data file"),
    ):
        with pytest.raises(DataError, match=message):
            load(path)


def test_without_id_the_hash_of_the_texts_is_the_id() -> None:
    rows = [{"prompt": p, "response": "a", "label": k} for p, k in (("q", 1), ("p", 1), ("q", 2))]
    found = load_rows(rows)
    assert ids(found) == [sample.content_hash() for sample in found] == ids(load_rows(rows))
    assert len({sample.sample_key for sample in found}) == 3 and len(set(ids(found))) == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_skipped_rows_are_counted_shown_and_warned_about_once(
    tmp_path: Path, name: str, warned: list[str]
) -> None:
    path = write(tmp_path / name, numbered(20))
    content = path.read_bytes().splitlines(keepends=True)
    for line in (3, 4, 5, 9, 10, 11, 12):
        content[line] = b"\xff" + content[line]
    path.write_bytes(b"".join(content))
    found = load(path, on_bad_row="skip")
    load_rows([*numbered(1), {"id": "r0", "prompt": "other"}])
    load_rows([*numbered(1), *numbered(1)])
    assert (len(found), found.metadata["rows"], found.metadata["skipped"]) == (13, 20, 7)
    assert (
        len(found.metadata["skipped_rows"]) == 5
        and ", line 4: " in found.metadata["skipped_rows"][0]
    )
    assert (
        len(warned) == 2
        and "skipped 7 of 20 rows" in warned[0]
        and "id of a different one" in warned[1]
    )


@pytest.mark.parametrize("running", [True, False])
def test_the_garbage_collector_is_left_as_it_was(running: bool) -> None:
    (gc.enable if running else gc.disable)()
    try:
        load_rows(numbered(1))
        assert gc.isenabled() is running
    finally:
        gc.enable()


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl", "a.csv"])
def test_a_limit_is_a_seeded_sample_in_order_the_same_for_every_format(
    tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name, numbered(200))
    first, rows = ids(load(path, limit=20, seed=3)), numbered(200)
    assert [ids(load_rows(given, limit=20, seed=3)) for given in (rows, pd.DataFrame(rows))] == [
        first
    ] * 2
    assert first == [sample.unique_id for sample in loader(path, limit=20, seed=3).stream()]
    assert first == sorted(set(first), key=lambda name: int(name[1:])) and len(first) == 20
    assert ids(load(path, limit=20, seed=4)) != first != [f"r{n}" for n in range(20)]
    assert set(first) < set(ids(load(path, limit=60, seed=3))), "a larger one contains the smaller"


def test_a_limit_spans_a_folder_and_row_groups_and_looks_at_no_other_row(tmp_path: Path) -> None:
    rows = numbered(300)
    pq.write_table(pa.Table.from_pylist(rows[:100]), tmp_path / "a.parquet", row_group_size=9)
    path = write(tmp_path / "b.jsonl", rows[100:200])
    write(tmp_path / "c.csv", rows[200:])
    wanted = seeded_positions(300, 90, 0)
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join(line if 100 + n in wanted else "{broken" for n, line in enumerate(lines))
    )
    assert ids(load(tmp_path, limit=90)) == [f"r{n}" for n in wanted]
    assert {n // 100 for n in wanted} == {0, 1, 2}


# -- streams ---------------------------------------------------------------------------------------


def test_samples_come_before_a_later_bad_line_and_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*numbered(3), numbered(3)[0], {"prompt": 5}])
    stream = loader(path).stream()
    assert [next(stream).unique_id for _ in range(4)] == ["r0", "r1", "r2", "r0"]
    with pytest.raises(DataError, match="line 5"):
        next(stream)
    source = loader(path, on_bad_row="skip")
    assert len(list(source.stream())) == 4
    report = source.report
    assert (report.rows, report.samples, report.duplicates, report.skipped) == (5, 4, 1, 1)
    assert "line 5" in report.messages[0]


def test_streams_of_one_loader_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = loader(write(tmp_path / "a.jsonl", numbered(4)))
    pairs = list(zip(source.stream(), source.stream(), strict=True))
    assert [(one.unique_id, two.unique_id) for one, two in pairs] == [
        (f"r{n}", f"r{n}") for n in range(4)
    ]
    assert source.run() == source.run()


@pytest.mark.long("much work")
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    rows = [{**row, "response": row["response"] * 200} for row in numbered(3_000)]
    stream = loader(write(tmp_path / name, rows)).stream()
    for _ in range(1_000):
        next(stream)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in stream) == 2_000
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # the rest of the rows would be over 4 MB as plain text; one batch is about 1 MB
    assert peak < 3_000_000


@pytest.mark.long("much work")
def test_a_row_that_was_read_stays_in_memory_as_a_few_bytes(tmp_path: Path) -> None:
    stream = loader(write(tmp_path / "a.jsonl", numbered(12_000))).stream()
    for _ in range(5_000):
        next(stream)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(stream, 6_999)) == 6_999
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 55 * 7_000


def test_parquet_keeps_order_reads_wanted_row_groups_and_loses_only_the_broken_row(
    tmp_path: Path,
) -> None:
    path, broken = tmp_path / "groups.parquet", tmp_path / "broken.parquet"
    pq.write_table(pa.Table.from_pylist(numbered(1_100)), path, row_group_size=70)
    assert ids(load(path)) == [f"r{n}" for n in range(1_100)]
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(3).column(0).dictionary_page_offset
    content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)
    wanted = [n for n in range(1_100) if not 210 <= n < 280][::50]
    assert [row["id"] for _, row in ParquetSource(path).rows(wanted) if isinstance(row, dict)] == [
        f"r{n}" for n in wanted
    ]
    with pytest.raises(DataError, match="row group 4 cannot be read"):
        load(path)
    texts = pa.array([b"fine", b"\xff\xfe", b"good"]).view(pa.string())
    pq.write_table(pa.table({"id": ["1", "2", "3"], "prompt": texts}), broken)
    with pytest.raises(DataError, match="broken.parquet, row 2: cannot be read: 'utf-8'"):
        load(broken)
    assert ids(load(broken, on_bad_row="skip")) == ["1", "3"]


def test_an_id_is_text_or_a_whole_number() -> None:
    assert ids(load_rows([{"id": 2.0, "prompt": "p", "answers": ["a"]}])) == ["2"]
    with pytest.raises(DataError, match=r"id \(text or whole number\)"):
        load_rows([{"id": 1.5, "prompt": "p", "answers": ["a"]}])
    (no_id,) = ids(load_rows([{"id": float("nan"), "prompt": "p", "answers": ["a"]}]))
    assert no_id not in ("", "nan")
