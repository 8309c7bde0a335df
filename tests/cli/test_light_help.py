"""Version and help cost the import of typer and of the command that is asked for: no study, report
or server, and nothing of what computes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rm_gallery.cli.main import COMMANDS, GROUPS
from tests.packaging.test_front_door import HEAVY
from tests.support.children import run_python

OURS = ("rm_gallery.study", "rm_gallery.report", "rm_gallery.serve")
LIBRARIES = {*HEAVY, "numpy", "pydantic", "loguru"}
MODULES = {where.partition(":")[0] for where, _ in COMMANDS.values()}
CALLS = [[flag] for flag in ("--version", "--help")] + [
    [*words.split(), "--help"] for words in (*GROUPS, *COMMANDS)
]
CHILD = """
import contextlib, io, json, sys
from rm_gallery.cli.main import main
for words in json.loads(sys.stdin.read()):
    sys.argv, code, out = ["rm-gallery", *words], 0, io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([words, code, out.getvalue(), [*sys.modules]]))
"""
SETTINGS = {"none": ("", {}), "some": ('[eval]\nllm = "x"\n', {"RM_GALLERY_MAX_WORKERS": "3"})}


def heavy(modules: list[str]) -> list[str]:
    return [name for name in modules if name.split(".")[0] in LIBRARIES or name.startswith(OURS)]


@pytest.mark.smoke("imports of the command line")
@pytest.mark.parametrize("settings", SETTINGS)
def test_version_and_every_help_import_nothing_heavy(settings: str, tmp_path: Path) -> None:
    text, environment = SETTINGS[settings]
    (tmp_path / "rm-gallery.toml").write_text(text)
    done = run_python("-c", CHILD, cwd=tmp_path, env=environment, stdin=json.dumps(CALLS))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, *_ in found] == CALLS
    for words, code, shown, modules in found:
        assert (code, heavy(modules)) == (0, []), words
        assert "rm-gallery " in shown


def test_a_command_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    calls = [["--version"], ["--help"], ["doctor", "--help"]]
    done = run_python("-c", CHILD, cwd=tmp_path, stdin=json.dumps(calls))
    loaded = [MODULES & {*modules} for *_, modules in map(json.loads, done.stdout.splitlines())]
    assert loaded == [set(), set(), {"rm_gallery.cli.machine"}], done.stderr
