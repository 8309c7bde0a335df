"""What the golden files' own reader says, and which test runs which folder."""

from __future__ import annotations

import re

import pytest

from tests.golden.golden import HERE, check, lines
from tests.support.children import ROOT


def test_a_file_that_is_not_there_says_what_to_write() -> None:
    path = HERE / "converters" / "absent.jsonl"
    for read in (lambda: list(lines(path)), lambda: check(path, lambda line: line, ())):
        with pytest.raises(AssertionError, match="^write tests/golden/converters/absent.jsonl: a "):
            read()


def test_the_table_names_the_runner_of_every_folder() -> None:
    rows = re.findall(r"^\| (`.+`) \| `(\S+)`", (HERE / "README.md").read_text("utf-8"), re.M)
    runners = {name: path for names, path in rows for name in re.findall(r"`(\w+)`", names)}
    for folder in (path.name for path in HERE.iterdir() if path.is_dir()):
        if folder.startswith("_") or (HERE / f"test_{folder}.py").exists():
            continue
        assert folder in runners, f"add a row for {folder} to tests/golden/README.md"
        assert re.search(rf'["/]{folder}["/]', (ROOT / runners[folder]).read_text("utf-8")), folder
