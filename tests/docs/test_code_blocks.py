"""Every Python block of the documents runs and prints what the text promises; every command that is shown works."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, commands_of, documents
from tests.docs.shell import misspelt, problem_of
from tests.support.children import ROOT, run_python
from tests.support.judge_server import JudgeServer

SHOWN_URL = "http://127.0.0.1:8000/v1"
"""Where the documents say a judge of one's own listens."""
SHELLS = ("bash", "sh", "shell", "console")
NAMES = [path.relative_to(ROOT).as_posix() for path in documents()]
PAGES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("first") as running:
        yield running


def folder(place: Path) -> Path:
    """A working folder that holds what a checkout's `data/` holds."""
    (place / "data").mkdir(parents=True)
    for file in (ROOT / "data").glob("*.parquet"):
        shutil.copy(file, place / "data")
    return place


def blocks(name: str, *languages: str) -> list[Block]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [block for block in blocks_of(text) if block.language in languages and block.not_run is None]


def test_python_blocks_run_and_print_what_they_promise(tmp_path: Path, server: JudgeServer) -> None:
    assert len(blocks("README.md", "python")) >= 2 and len(blocks("README.md", "bash")) >= 2
    shown = {name: found for name in NAMES if (found := blocks(name, "python", "py"))}
    jobs = [
        {
            "name": name,
            "folder": str(folder(tmp_path / f"{number}")),
            "blocks": [{"line": b.line, "code": b.code.replace(SHOWN_URL, server.base_url)} for b in found],
        }
        for number, (name, found) in enumerate(shown.items())
    ]
    environment = {"OPENAI_BASE_URL": server.base_url}
    done = run_python("-m", "tests.docs.run_blocks", cwd=tmp_path, stdin=json.dumps(jobs), env=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    assert {name: found for name, found in json.loads(done.stdout).items() if found} == {}


@pytest.mark.parametrize("name", [name for name in NAMES if blocks(name, *SHELLS)])
def test_commands_work(name: str, tmp_path: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder(tmp_path / "work"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    problems = [
        f"line {block.line}: {' '.join(words)}: {problem}"
        for block in blocks(name, *SHELLS)
        for words in commands_of(block)
        if (problem := problem_of([word.replace(SHOWN_URL, server.base_url) for word in words])) is not None
    ]
    assert problems == []


def test_commands_that_are_not_run_are_spelt_right() -> None:
    problems = [
        f"{name}, line {block.line}: {' '.join(words)}: {problem}"
        for name in PAGES
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8"))
        if (block.not_run is not None or name not in NAMES) and block.language in ("", *SHELLS)
        for words in commands_of(block)
        if words[0] == "rm-gallery" and (problem := misspelt(words[1:])) is not None
    ]
    assert problems == []
    assert "--rewards" in str(misspelt(["bench", "pairs", "--rewards", "x"]))
    assert "no command bensh" in str(misspelt(["bensh", "pairs"]))


@pytest.mark.parametrize("name", NAMES)
def test_local_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (ROOT / name).parent.joinpath(link).exists()] == []
