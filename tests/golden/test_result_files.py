"""Result files of other tools give the rows of the golden files below `result_files`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from rm_gallery.core.data.load.readers import Reading, file_sources
from rm_gallery.core.utils.errors import DataError
from tests.golden.golden import Line, check, files


@pytest.mark.parametrize("path", files("result_files"))
def test_result_files_give_rows(path: Path, tmp_path: Path) -> None:
    def answer(line: Line) -> Line:
        file = tmp_path / line["file"]
        if file.suffix == ".eval":
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in line["content"].items():
                    archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
        else:
            file.write_text("\n".join(map(json.dumps, line["content"])), encoding="utf-8")
        try:
            (source,) = file_sources(file, Reading(sheet=line.get("sheet")))
            rows = [str(row).split(" read: ")[0] if isinstance(row, DataError) else row for _, row in source.rows()]
            assert source.count() == len(rows)
            return {"tool": source.understood(), "rows": json.loads(json.dumps(rows).replace(f"{tmp_path}/", ""))}
        except DataError as error:
            return {"error": str(error).replace(f"{tmp_path}/", "")}

    check(path, answer, ("tool", "rows", "error"))
