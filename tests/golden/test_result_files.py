"""Samples of lm-evaluation-harness are read by one filter, as the golden files below `result_files` say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rm_gallery.core.data.load.readers import Reading, file_sources
from rm_gallery.core.utils.errors import DataError
from tests.golden.golden import Line, check, files


@pytest.mark.parametrize("path", files("result_files"))
def test_result_files_give_rows(path: Path, tmp_path: Path) -> None:
    def answer(line: Line) -> Line:
        file = tmp_path / line["file"]
        file.write_text("\n".join(map(json.dumps, line["content"])), encoding="utf-8")
        (source,) = file_sources(file, Reading(sheet=line.get("sheet")))
        try:
            rows = [row for _, row in source.rows()]
            assert source.count() == len(rows)
            return {"tool": source.understood(), "rows": rows}
        except DataError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}

    check(path, answer, ("tool", "rows", "error"))
