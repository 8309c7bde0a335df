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
NAMES = [path.relative_to(ROOT).as_posix() for path in documents()]


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer("first") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that holds what a checkout's `data/` holds."""
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    for file in (ROOT / "data").glob("*.parquet"):
        shutil.copy(file, work / "data")
    return work


def blocks(name: str, *languages: str) -> list[Block]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [block for block in blocks_of(text) if block.language in languages and block.not_run is None]


@pytest.mark.parametrize("name", NAMES)
def test_python_blocks_run_and_print_what_they_promise(name: str, folder: Path, server: JudgeServer) -> None:
    shown = blocks(name, "python", "py")
    if not shown:
        return
    job = {
        "name": name,
        "blocks": [{"line": b.line, "code": b.code.replace(SHOWN_URL, server.base_url)} for b in shown],
    }
    environment = {"OPENAI_BASE_URL": server.base_url}
    finished = run_python("-m", "tests.docs.run_blocks", cwd=folder, stdin=json.dumps(job), env=environment)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_work(name: str, folder: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    problems = [
        f"line {block.line}: {' '.join(words)}: {problem}"
        for block in blocks(name, "bash", "sh", "shell", "console")
        for words in commands_of(block)
        if (problem := problem_of([word.replace(SHOWN_URL, server.base_url) for word in words])) is not None
    ]
    assert problems == []


PAGES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_not_run_are_spelt_right(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    shown = [block for block in blocks_of(text) if block.not_run is not None or name not in NAMES]
    problems = [
        f"line {block.line}: {' '.join(words)}: {problem}"
        for block in shown
        if block.language in ("", "bash", "sh", "shell", "console")
        for words in commands_of(block)
        if words[0] == "rm-gallery" and (problem := misspelt(words[1:])) is not None
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("line", "said"), [("bench pairs --rewards x", "--rewards"), ("bensh pairs", "no command bensh")]
)
def test_a_misspelt_command_is_seen(line: str, said: str) -> None:
    assert said in (misspelt(line.split()) or "")


def test_the_readme_has_code_and_commands() -> None:
    assert len(blocks("README.md", "python")) >= 2
    assert len(blocks("README.md", "bash")) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_local_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (ROOT / name).parent.joinpath(link).exists()] == []
