"""The design pages are short, have a picture each, and name files that are there."""

from __future__ import annotations

import re

import pytest

from tests.support.children import ROOT

PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
_PATH = re.compile(r"`((?:rm_gallery|tests|tools)/[^`]+)`")


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_is_short_and_has_one_picture(name: str) -> None:
    assert len(TEXTS[name].splitlines()) <= 150
    assert TEXTS[name].count("```text\n") == 1 == TEXTS[name].count("```") / 2


@pytest.mark.parametrize("name", TEXTS)
def test_every_file_that_a_page_names_is_there(name: str) -> None:
    assert [path for path in _PATH.findall(TEXTS[name]) if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_index_and_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = TEXTS.keys() - {"README.md"}
    assert {name for name in pages if f"({name})" not in TEXTS["README.md"]} == set()
    assert {name for name in pages if f"design/{name}" not in navigation} == set()
