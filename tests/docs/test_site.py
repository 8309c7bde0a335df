"""The site: its pages are laid out, built without a warning, and say where everything is."""

from __future__ import annotations

import json
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from rm_gallery.cli.catalogue import grader_names
from rm_gallery.gallery.benchmarks.base import benchmarks
from rm_gallery.gallery.rm import discover
from tests.support.children import ROOT, run_python
from tools.site_pages import commands, main, pages, problems

laid_out = cache(pages)


def names() -> set[str]:
    """What people look for by name: commands, ready-made rewards and graders, benchmarks."""
    registered = {name.removesuffix(":") for name in discover()} | {
        entry.removeprefix("grader:") for entry in grader_names()
    }
    return {*(f"rm-gallery {words}" for words in commands()), *registered, *benchmarks()}


def test_every_name_has_a_place_and_every_page_a_line_for_programs() -> None:
    found = laid_out()
    text = "\n".join(found.values())
    assert {name for name in names() if name not in text} == set()
    assert {
        place for place in found if place.endswith(".md") and f"({place})" not in found["llms.txt"]
    } == set()
    assert str(ROOT) not in text and " object at 0x" not in text


@pytest.mark.system("mkdocs")
@pytest.mark.parametrize("builder", ["mkdocs", "zensical"])
def test_it_is_built_without_a_warning_and_a_dead_link(builder: str, tmp_path: Path) -> None:
    if find_spec(builder) is None:
        pytest.skip(f"{builder} is not installed")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    assert main(["pages", str(tmp_path / "build" / "pages")]) == 0
    done = run_python(
        "-m", builder, "build", "--strict", cwd=tmp_path, env={"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr + done.stdout, (
        done.stderr + done.stdout
    )
    assert problems(tmp_path / "site") == []
    if builder == "mkdocs":
        index = json.loads(
            (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")
        )
        told = "\n".join(f"{entry['title']}\n{entry['text']}" for entry in index["docs"])
        assert {name for name in names() if name not in told} == set()


def test_what_is_wrong_with_a_built_site_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x">1</a><a href="a.html#y">2</a><p id="y"><img src="https://h/i.png">'
    )
    (tmp_path / "b.html").write_text(
        '<a href="c/">3</a><a href="https://elsewhere.org">4</a><a href="a.html#y">5</a>'
    )
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a.html fetches https://h/i.png", "a.html links to b.html#x", "b.html links to c/",
    ]  # fmt: skip
    assert main(["chek", str(tmp_path)]) == 2
