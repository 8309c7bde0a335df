"""A package that adds to ours by entry points: installed offline, it is found by every name."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rm_gallery.core.utils.plugins import plugins
from rm_gallery.integrations.causes import TRAINERS, trainers
from tests.support.children import ROOT, run_python

ROW = {"question": "Shall we?", "left": "Do you want to?", "right": "Yes.", "better": "left"}
PROGRAM = """
import json, sys
from rm_gallery.core.models import resolve_llm
from rm_gallery.integrations.causes import trainers
from tests.support.command import command
import rm_gallery_example
calls = json.loads(sys.stdin.read())
scores, said = rm_gallery_example.our_reward("asks_back", ["q"], ["a?"]), resolve_llm("parrot:x").simple_chat("Hello?")
print(json.dumps([*(command(*call) for call in calls), sorted(trainers()), scores, said]))
"""


@pytest.mark.long("installs a package")
def test_the_example_is_installed_offline_and_found_by_every_name(tmp_path: Path) -> None:
    source, place = tmp_path / "plugin", tmp_path / "installed"
    shutil.copytree(ROOT / "examples" / "plugin", source)
    options = [
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(place),
    ]
    done = run_python("-m", "pip", "install", *options, str(source), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    calls = [
        ["list"],
        ["list", "--graders"],
        ["bench", "--list"],
        ["bench", "asks_back", "left_right", "--data", "rows.jsonl", "--json"],
    ]
    done = run_python(
        "-c", PROGRAM, cwd=tmp_path, stdin=json.dumps(calls), env={"PYTHONPATH": f"{place}:{ROOT}"}
    )
    assert done.returncode == 0, done.stderr
    listed, graders, benches, bench, trainers, scores, said = json.loads(done.stdout)
    assert "asks_back" in listed[1] and "Benchmarks of installed packages: left_right" in listed[1]
    assert (
        "Providers of installed packages: parrot" in listed[1]
        and "Adapters of installed packages: Our trainer" in listed[1]
    )
    assert "short_enough" in graders[1] and "left_right" in benches[1]
    assert json.loads(bench[1])["score"] == 1.0, bench
    assert "Our trainer" in trainers and scores == [1.0] and said == "Hello?"


def test_one_package_that_cannot_be_imported_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    points = [
        EntryPoint("gone", "no_such_package:X", "rm_gallery.adapters"),
        EntryPoint("ours", "json:loads", "rm_gallery.adapters"),
    ]
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [point for point in points if point.group == group]
    )
    assert list(plugins("adapters")) == [("ours", json.loads)] and trainers() == TRAINERS
    assert [said.strip() for said in warned][0].startswith(
        "The adapter 'gone' of an installed package names 'no_such_package:X', which cannot be "
        "imported"
    )
