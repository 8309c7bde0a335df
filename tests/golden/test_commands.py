"""What commands print and refuse: each line of the golden files below `commands` is a call in the
folder that the lines before it made.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.golden.golden import Line, check, files
from tests.support.command import command


def written(name: str, content: Any) -> None:
    """A file of a line: a text, or the rows of JSON lines; `times` writes rows again with their
    number for `#`.
    """
    if not isinstance(content, str):
        rows = [json.dumps(row, ensure_ascii=False) for row in content["rows"]]
        content = "".join(
            f"{row.replace('#', str(k))}\n" for k in range(content.get("times", 1)) for row in rows
        )
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content, encoding="utf-8")


def part(found: Any, path: str) -> Any:
    for key in path.split("/"):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


@pytest.mark.long("much work")
@pytest.mark.parametrize("path", files("commands"))
def test_calls_print_what_they_did(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def answer(line: Line) -> Line:
        for name, content in line.get("files", {}).items():
            written(name, content)
        done = command(*shlex.split(line["call"]))
        if done.code == 2:
            assert done.out == "" and "Traceback" not in done.err
            return {
                "code": 2,
                "said": done.err.strip().replace("rm-gallery: ", "").replace(str(tmp_path), ""),
            }
        if "show" in line:
            found = json.loads(done.out)
            return {"code": done.code, "out": {key: part(found, key) for key in line["show"]}}
        return {"code": done.code, "out": re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "… s", done.out)}

    check(path, answer, ("code", "out", "said"))
