"""The YAML file of a benchmark's page: read when it is asked for, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery import ConfigError
from rm_gallery.gallery.benchmarks.page import REQUIRED, Page, read_page
from tests.support.children import ROOT, run_python

WHOLE = """measures: whether the better answer wins
source: a paper
licence: CC0
formula: wins / all
layout: {question: text}
traps: [none is known]
"""


def refused(folder: Path, text: str) -> str:
    file = folder / "votes.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_page(file)
    told = str(error.value)
    assert told.startswith(str(file)) and "\n" not in told
    return told.removeprefix(str(file))


@pytest.mark.parametrize("field", REQUIRED)
def test_a_field_that_is_missing_is_named_with_what_it_holds(tmp_path: Path, field: str) -> None:
    kept = "".join(line for line in WHOLE.splitlines(True) if not line.startswith(field))
    wanted = Page.model_fields[field].description
    assert refused(tmp_path, kept) == f": the field '{field}' is missing; add {wanted}."


def test_a_field_that_is_misspelt_is_named_with_the_nearest(tmp_path: Path) -> None:
    told = refused(tmp_path, WHOLE.replace("licence", "license"))
    assert told.startswith(": There is no field 'license'. Did you mean licence")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{WHOLE}sizes: {{test: many}}\n", "'sizes.test' does not fit"),
        (f"{WHOLE}published: [[who, '81.0']]\n", "'published.0.2' does not fit"),
        ("- a list\n", " holds no fields; "),
        ("", " holds no fields; "),
        ("measures: [\n", " cannot be read: "),
    ],
)
def test_what_is_no_page_is_refused(tmp_path: Path, text: str, part: str) -> None:
    assert part in refused(tmp_path, text)


def test_a_benchmark_without_a_file_has_an_empty_page(tmp_path: Path) -> None:
    assert read_page(tmp_path / "votes.yaml") == Page()


@pytest.mark.long("much work")
def test_knowing_the_benchmarks_reads_no_page() -> None:
    code = (
        "import sys; from rm_gallery.gallery.benchmarks.base import benchmarks; "
        "from rm_gallery.gallery.benchmarks.page import read_page; benchmarks(); "
        "assert not read_page.cache_info().misses; benchmarks()['hhh'].page().source; "
        "assert read_page.cache_info().misses == 1"
    )
    done = run_python("-c", code, cwd=ROOT)
    assert done.returncode == 0, done.stderr
