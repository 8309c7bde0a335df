"""The same rows give the same scores in every format that can hold them, for every registered
reward.

Rewards come from the registry, formats from the loader's table of readers. Samples that are equal
to those of plain rows have their scores; the others, where a gap is a null or a number a text, are
scored.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_gallery import BaseReward, DataSample, FakeLLM, RewardRegistry
from rm_gallery.core.data.load.json_files import InspectSource, JsonLinesSource, JsonSource
from rm_gallery.core.data.load.readers import READERS, ArrowSource, ParquetSource, ReadOptions
from rm_gallery.core.data.load.sheets import CsvSource, XlsxSource
from rm_gallery.integrations.scoring import RowScorer, for_training
from tests.contracts.material import UNUSED, Material, Row, material
from tests.data.loading import load, load_rows
from tests.gallery import registry_cases
from tests.gallery.registry_cases import example_of
from tests.support.choice import covering

Kept = tuple[Any, ...]
MATERIAL = list(material())
every_material = pytest.mark.parametrize(
    "given",
    covering(
        ((given,) for given in MATERIAL),
        lambda given: (given.kind, frozenset(key for row in given.rows for key in row)),
        lambda given: RewardRegistry.get(given.reward).__module__,
        long=lambda given: given.reward == "unisolated_command_judge",
    ),
    ids=lambda given: f"{given.reward}-{given.kind.replace(' ', '-')}",
)


# -- formats: what can be written, and how ---------------------------------------------------------


class CannotHold(Exception):
    """The format has no place for the rows."""


def _table(rows: Sequence[Row]) -> pa.Table:
    names = list(dict.fromkeys(key for row in rows for key in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _json(rows: Sequence[Row], path: Path) -> None:
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")


def _json_lines(rows: Sequence[Row], path: Path) -> None:
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _parquet(rows: Sequence[Row], path: Path) -> None:
    try:
        pq.write_table(_table(rows), path)
    except pa.ArrowNotImplementedError as error:  # structs without a field
        raise CannotHold(str(error)) from error


def _arrow(rows: Sequence[Row], path: Path) -> None:
    table = _table(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def _csv(rows: Sequence[Row], path: Path) -> None:
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {
                    key: json.dumps(value) if isinstance(value, list) else value
                    for key, value in row.items()
                }
            )


def _xlsx(rows: Sequence[Row], path: Path) -> None:
    import openpyxl

    names = list(dict.fromkeys(key for row in rows for key in row))
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for line in (names, *([row.get(name) for name in names] for row in rows)):
        sheet.append(line)
    book.save(path)


def _any(column: str, value: Any) -> bool:
    return True


def _csv_holds(column: str, value: Any) -> bool:
    """Texts that are not empty, whole numbers, and the list of answers as JSON."""
    if column == "answers":
        return True
    return (isinstance(value, str) and value != "") or type(value) is int


def _xlsx_holds(column: str, value: Any) -> bool:
    """Texts that are not blank, numbers and booleans; XML makes \\r\\n a \\n, and numbers are
    floats.
    """
    if isinstance(value, str):
        return value.strip() != "" and "\r" not in value
    return isinstance(value, float | bool) or (type(value) is int and abs(value) < 2**53)


def _frame_holds(column: str, value: Any) -> bool:
    """All but integers that a gap would make floats of fewer digits."""
    return type(value) is not int or abs(value) < 2**53


Writer = tuple[Callable[[Sequence[Row], Path], None], Callable[[str, Any], bool]]
WRITERS: dict[type, Writer | str] = {
    ParquetSource: (_parquet, _any),
    ArrowSource: (_arrow, _any),
    JsonSource: (_json, _any),
    JsonLinesSource: (_json_lines, _any),
    CsvSource: (_csv, _csv_holds),
    XlsxSource: (_xlsx, _xlsx_holds),
    InspectSource: "logs of Inspect, which have columns of their own",
}
IN_MEMORY = ("frame", "frame of parquet", "datasets")


def _source(suffix: str, path: Path = Path("rows")) -> type:
    return type(READERS[suffix](path.with_suffix(suffix), ReadOptions()))


FORMATS = [*{_source(suffix): suffix for suffix in reversed(READERS)}.values(), *IN_MEMORY]
"""The first extension of every reader, and what is no file."""


def _samples(form: str, rows: Sequence[Row], folder: Path) -> list[DataSample]:
    """The samples of the rows in a format, by the loader."""
    if form == "frame":
        return list(load_rows(pd.DataFrame(list(rows))))
    if form == "frame of parquet":
        _parquet(rows, folder / "frame.parquet")
        return list(load_rows(pd.read_parquet(folder / "frame.parquet")))
    if form == "datasets":
        datasets = pytest.importorskip("datasets")
        Dataset, InMemoryTable = datasets.Dataset, datasets.table.InMemoryTable

        return list(load_rows(Dataset(InMemoryTable(_table(rows)))))
    writer = WRITERS[_source(form)]
    assert not isinstance(writer, str)
    path = folder / f"rows{form}"
    writer[0](rows, path)
    return list(load(path))


def _held(form: str, rows: Sequence[Row]) -> list[Row]:
    """The rows the format can hold, without unused columns that it cannot."""
    holds: Callable[[str, Any], bool] = _frame_holds if form.startswith("frame") else _any
    if form in READERS and not isinstance(writer := WRITERS[_source(form)], str):
        holds = writer[1]
    lean = [
        {key: value for key, value in row.items() if key not in UNUSED or holds(key, value)}
        for row in rows
    ]
    return [row for row in lean if all(holds(*cell) for cell in row.items())]


def test_every_reader_has_a_writer_here() -> None:
    for suffix in READERS:
        assert _source(suffix) in WRITERS, (
            f"add a writer of {suffix} files to WRITERS, or why there is none"
        )


@pytest.mark.parametrize(
    "suffix", [suffix for suffix in READERS if not isinstance(WRITERS.get(_source(suffix)), str)]
)
def test_every_extension_is_read_as_that_of_its_reader(suffix: str, tmp_path: Path) -> None:
    (given,) = (given for given in MATERIAL if given[:2] == ("accuracy", "as written"))
    rows = _held(suffix, given.rows)
    first = next(form for form in FORMATS if _source(form) is _source(suffix))
    assert rows and _samples(suffix, rows, tmp_path) == _samples(first, rows, tmp_path)


# -- scores ----------------------------------------------------------------------------------------


class _Scored:
    """A reward that keeps what it was asked and what it gave, sample by sample."""

    def __init__(self, name: str) -> None:
        self.prompts: list[str] = []
        judge = example_of(name).judge

        def reply(question: str) -> str:
            self.prompts.append(question)
            assert judge is not None
            return str(judge(question))

        settings: dict[str, Any] = {"llm": FakeLLM(reply=reply)} if judge is not None else {}
        self.reward: BaseReward = registry_cases.create(name, **settings)
        if reason := registry_cases.missing(self.reward):
            pytest.skip(reason)
        self._known: dict[str, Kept] = {}

    def score(self, sample: DataSample) -> Kept:
        """Scores and causes of a sample's outputs, and what a judge was asked."""
        key = sample.model_dump_json()
        if key not in self._known:
            self.prompts.clear()
            done = self.reward.evaluate(sample)
            places = [output.answer.reward for output in done.output]
            given = [
                (
                    place.score,
                    [detail.reason for detail in place.details],
                    [(i.status, i.reason, i.cause) for i in place.issues],
                )
                for place in places
            ]
            self._known[key] = (given, sorted(self.prompts))
        return self._known[key]


@cache
def _scored(name: str) -> _Scored:
    return _Scored(name)


def _filled(sample: DataSample) -> dict[str, Any]:
    """The sample without gaps, which are absent in rows and null in columns."""
    fields = sample.model_dump()
    return fields | {
        "metadata": {
            key: value for key, value in (sample.metadata or {}).items() if value is not None
        }
    }


@every_material
def test_a_reward_scores_the_same_rows_alike_in_every_format(
    given: Material, tmp_path: Path
) -> None:
    scored, held = _scored(given.reward), Counter[str]()
    plain = {sample.unique_id: sample for sample in load_rows(given.rows)}
    for form in FORMATS:
        rows = _held(form, given.rows)
        if not rows or (form in READERS and isinstance(WRITERS[_source(form)], str)):
            continue
        if form == "datasets" and not _has_datasets():
            continue
        try:
            samples = _samples(form, rows, tmp_path)
        except CannotHold:
            continue
        assert [sample.unique_id for sample in samples] == [row["id"] for row in rows]
        for sample in samples:
            before = plain[sample.unique_id]
            if _typed(form):
                assert _filled(sample) == _filled(before), (form, sample.unique_id)
            assert scored.score(sample) == scored.score(before), (form, sample.unique_id)
        held[form] = len(rows)
    assert held[".json"] == held[".jsonl"] == held[".arrow"] == len(given.rows), held
    assert held["frame"] >= 0.75 * len(given.rows), held


def _typed(form: str) -> bool:
    """Whether a format has types, so that samples are equal and not only their scores."""
    return form not in READERS or _source(form) not in (CsvSource, XlsxSource)


def _has_datasets() -> bool:
    import importlib.util

    return importlib.util.find_spec("datasets") is not None


def test_rows_of_datasets_are_among_the_formats() -> None:
    pytest.importorskip(
        "datasets", reason="rows of a datasets.Dataset need the extra hub: pip install datasets"
    )


@pytest.mark.parametrize(
    "given",
    covering(
        ((given,) for given in MATERIAL if isinstance(given.rows[0].get("answer"), str)),
        lambda given: (given.kind, frozenset(key for row in given.rows for key in row)),
        lambda given: RewardRegistry.get(given.reward).__module__,
        long=lambda given: given.reward == "unisolated_command_judge",
    ),
    ids=lambda given: f"{given.reward}-{given.kind}",
)
def test_a_trainer_gets_the_scores_of_the_rows_as_they_were_written(given: Material) -> None:
    """Trainers hand over what a `datasets.Dataset` holds: columns of Arrow, read back with their
    padding.
    """
    scored, rows = _scored(given.reward), given.rows
    worst = None if scored.reward.worst_score is not None else 0.0
    written, padded = (for_training(RowScorer(scored.reward, worst=worst)) for _ in range(2))
    prompts, said = [row["prompt"] for row in rows], [row["answer"] for row in rows]
    columns = [
        {key: value for key, value in row.items() if key not in ("id", "prompt", "answer")}
        for row in rows
    ]
    wanted = written.score_rows(prompts, said, columns)
    found = padded.score_rows(prompts, said, _table(columns).to_pylist())
    assert [outcome.value for outcome in found] == [outcome.value for outcome in wanted]
