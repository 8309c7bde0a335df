"""Files as people and tools write them, and the rows they are read as; what one filter gives of
lm-evaluation-harness; and what a loader makes of rows.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from rm_gallery import ConfigError, DataError, create_loader
from rm_gallery.core.data.load.readers import ReadOptions, file_sources
from tests.golden.golden import Line, check, files


def written(folder: Path, given: Line) -> Path:
    """The file that a line holds: text in an encoding, bytes as hex digits, JSON documents, or the
    sheets of a workbook.
    """
    path = folder / str(given["name"])
    if "sheets" in given:
        book = openpyxl.Workbook()
        book.remove(book.worksheets[0])
        for name, cells in given["sheets"].items():
            sheet = book.create_sheet(name)
            for row in cells:
                sheet.append(row)
        book.save(path)
        return path
    text = (
        "\n".join(map(json.dumps, given["documents"]))
        if "documents" in given
        else given.get("text", "")
    )
    content = (
        bytes.fromhex(given["hex"])
        if "hex" in given
        else text.encode(given.get("encoding", "utf-8"))
    )
    path.write_bytes(gzip.compress(content, mtime=0) if given.get("gzip") else content)
    return path


OTHERS = re.compile(
    r"((?:cannot be read|parquet file|Inspect log|Excel workbook): )[^;]*"
    r"|((?:not valid JSON): )(?!not UTF-8)[^(]*(?=\()"
    r"|(written it|samples) \(.*\)"
)


@pytest.mark.parametrize("path", files("files"))
def test_files_are_read_as_rows(path: Path, tmp_path: Path) -> None:
    def told(value: object) -> str:
        """The library's own part of a message: other packages word theirs as they like."""
        return OTHERS.sub(
            lambda found: f"{found[1] or found[2] or found[3]}…",
            str(value).replace(str(tmp_path) + "/", ""),
        )

    def answer(given: Line) -> Line:
        try:
            (source,) = file_sources(
                written(tmp_path, given), ReadOptions(**given.get("reading", {}))
            )
            rows = [
                {"error": told(row)} if isinstance(row, DataError) else row
                for _, row in source.rows()
            ]
            assert source.count() == len(rows)
            if len(rows) > 1:
                assert [told(row) for _, row in source.rows([1])] == [
                    told(row) for _, row in list(source.rows())[1:2]
                ]
            return {"understood": source.understood(), "rows": rows}
        except (ConfigError, DataError) as error:
            return {"error": told(error)}

    check(path, answer, ("understood", "rows", "error"))


@pytest.mark.parametrize("path", files("result_files"))
def test_result_files_give_rows(path: Path, tmp_path: Path) -> None:
    def answer(line: Line) -> Line:
        file = tmp_path / line["file"]
        file.write_text("\n".join(map(json.dumps, line["content"])), encoding="utf-8")
        (source,) = file_sources(file, ReadOptions(sheet=line.get("sheet")))
        try:
            rows = [row for _, row in source.rows()]
            assert source.count() == len(rows)
            return {"tool": source.understood(), "rows": rows}
        except DataError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}

    check(path, answer, ("tool", "rows", "error"))


@pytest.mark.parametrize("path", files("loading"))
def test_rows_and_options_make_a_data_set(path: Path) -> None:
    def answer(given: Line) -> Line:
        config: dict[str, Any] = {
            **({"data": given["rows"]} if "rows" in given else {}),
            **given.get("config", {}),
        }
        try:
            loader = create_loader(
                "test", given.get("strategy", "local"), given.get("source", "*"), config
            )
            found = loader.run()
        except (ConfigError, DataError) as error:
            return {"error": str(error)}
        ids = [
            sample.unique_id if sample.unique_id != sample.content_hash() else "(hash)"
            for sample in found
        ]
        kept = ("rows", "skipped", "duplicates", "id_collisions", "skipped_rows")
        about = {name: found.metadata[name] for name in kept if found.metadata.get(name)}
        return {
            "ids": ids,
            "metadata": [sample.metadata or {} for sample in found],
            **about,
            "notes": loader.report.notes(),
        }

    keys = (
        "ids",
        "metadata",
        "rows",
        "skipped",
        "duplicates",
        "id_collisions",
        "skipped_rows",
        "notes",
        "error",
    )

    def told(line: Line) -> Line:
        # what JSON has no word for
        given: Line = json.loads(json.dumps(line).replace("(half a pair)", "\\ud800"))
        return {f"found {key}": value for key, value in answer(given).items()}

    check(path, told, tuple(f"found {key}" for key in keys))
