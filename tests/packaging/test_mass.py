"""`python -m tools.house` holds the package to the mass it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import house


def test_a_figure_that_has_risen_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    today = {"nodes": 90, "nodes of study": 50, "lines of tests": 8}
    monkeypatch.setattr(house, "figures", lambda: today)
    monkeypatch.setattr(house, "STORED", tmp_path / "house.json")
    assert house.main(["--write"]) == 0
    assert json.loads((tmp_path / "house.json").read_text()) == today
    assert house.main(["--check"]) == 0
    today |= {"nodes": 80, "nodes of study": 60, "lines of tests": 9}
    assert house.main(["--check"]) == 0, "a floor may take over mass, and a test may be added"
    today |= {"nodes": 91}
    assert house.main(["--check"]) == 1
    assert "risen: nodes" in capsys.readouterr().out


@pytest.mark.long("reads the whole source")
def test_every_figure_that_is_stored_is_measured() -> None:
    stored = json.loads(house.STORED.read_text())
    measured = {**house.mass(), **house.tests()}
    assert stored.keys() >= measured.keys()
    assert {name.partition(":")[0] for name in stored.keys() - measured.keys()} == set(house.ways())
