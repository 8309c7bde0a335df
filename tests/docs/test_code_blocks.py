"""Every Python block of the documents and every notebook runs; every command that is shown works;
the checks notice what is wrong.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rm_gallery import ConfigError, FakeLLM, RewardRegistry, evaluate
from tests.docs.blocks import Block, blocks_of, commands_of, documents
from tests.docs.shell import misspelt, problem_of
from tests.support.checkpoints import NEEDS_TRL
from tests.support.children import ROOT, run_python
from tests.support.choice import some
from tests.support.command import command
from tests.support.judge_server import JudgeServer, judge_fixture

SHOWN_URL = "http://127.0.0.1:8000/v1"
"""Where the documents say a judge of one's own listens."""
SHELLS = ("bash", "sh", "shell", "console")
NAMES = [path.relative_to(ROOT).as_posix() for path in documents()]
PAGES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]


server = judge_fixture("first")


def folder(place: Path) -> Path:
    """A working folder that holds what a checkout's `data/` holds."""
    (place / "data").mkdir(parents=True)
    for kind in ("*.parquet", "*.csv"):
        for file in (ROOT / "data").glob(kind):
            shutil.copy(file, place / "data")
    return place


def blocks(name: str, *languages: str) -> list[Block]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [
        block for block in blocks_of(text) if block.language in languages and block.not_run is None
    ]


@pytest.mark.long("a document")
def test_python_blocks_run_and_print_what_they_promise(tmp_path: Path, server: JudgeServer) -> None:
    assert len(blocks("README.md", "python")) >= 2 and len(blocks("README.md", "bash")) >= 2
    shown = {name: found for name in NAMES if (found := blocks(name, "python", "py"))}
    jobs = [
        {
            "name": name,
            "folder": str(folder(tmp_path / f"{number}")),
            "blocks": [
                {"line": b.line, "code": b.code.replace(SHOWN_URL, server.base_url)} for b in found
            ],
        }
        for number, (name, found) in enumerate(shown.items())
    ]
    environment = {"OPENAI_BASE_URL": server.base_url}
    done = run_python(
        "-m",
        "tests.docs.run_blocks",
        cwd=tmp_path,
        stdin=json.dumps(jobs),
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert {name: found for name, found in json.loads(done.stdout).items() if found} == {}


@pytest.mark.parametrize("name", some((name for name in NAMES if blocks(name, *SHELLS)), 1))
def test_commands_work(
    name: str, tmp_path: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder(tmp_path / "work"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    problems = [
        f"line {block.line}: {' '.join(words)}: {problem}"
        for block in blocks(name, *SHELLS)
        for words in commands_of(block)
        if (problem := problem_of([word.replace(SHOWN_URL, server.base_url) for word in words]))
        is not None
    ]
    assert problems == []


def test_the_first_command_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder(tmp_path / "work"))
    found = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    place = next(k for k, block in enumerate(found) if block.code.startswith("rm-gallery winrate"))
    [words] = commands_of(found[place])
    done = command(*words[1:])
    shown = [" ".join(part.split()) for part in found[place + 1].code.split("…")]
    assert done.code == 0 and len(shown) == 2
    assert [part for part in shown if part not in " ".join(done.out.split())] == []


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


TROUBLES = blocks("docs/troubleshooting.md", "text")


@pytest.mark.parametrize("block", TROUBLES, ids=lambda block: f"line {block.line}")
def test_every_message_that_is_shown_is_what_the_command_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("pairs.jsonl").write_text(
        re.findall(r"`(\{.*\})`", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"))[0]
    )
    Path("sheet.csv").write_text("prompt,answer\nWhat is 12 + 30?,42\n")
    lines = block.code.splitlines()
    calls = [line.removeprefix("$ rm-gallery ").split() for line in lines if line.startswith("$ ")]
    *before, done = [command(*call) for call in calls]
    assert done.code in (1, 2) and all(each.code == 0 for each in before)
    said = done.err.replace(str(tmp_path), "/home/me").splitlines()
    assert [line for line in lines[len(calls) :] if line not in said] == [], done.err


@pytest.mark.parametrize("name", NAMES)
def test_local_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(
        r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    )
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (ROOT / name).parent.joinpath(link).exists()] == []


NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def notebook(path: Path) -> Any:
    marks = [NEEDS_TRL] if "trl" in path.stem else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", some((notebook(path) for path in NOTEBOOKS), 1))
# TRL's own calls of transformers
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_a_notebook_runs_inside_a_running_loop(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown: list[str] = []

    async def kernel() -> None:
        namespace: dict[str, object] = {"__name__": "__main__"}
        for source in sources:
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, path.name, "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), namespace)
                shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))

    asyncio.run(kernel())
    said = capsys.readouterr().out
    assert said.strip() or shown, "a notebook shows something"
    assert len(said) < 4_000 and all(len(text) < 30_000 for text in shown), "and little"


def test_an_error_in_a_notebook_is_a_line_and_all_of_it_when_asked_again() -> None:
    with pytest.raises(ConfigError) as raised:
        RewardRegistry.get("no_such_reward")
    first, second = (raised.value._render_traceback_() for _ in range(2))
    assert (
        first[0].startswith("ConfigError: There is no reward 'no_such_reward'")
        and "%tb" in first[-1]
        and len(first) == 2
    )
    assert second[0].startswith("Traceback") and "no_such_reward" in second[-1]


def test_a_report_draws_its_figures(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"q{k}", "chosen": "ab" * k, "rejected": "abc", "subset": f"<b>{k % 3}"}
        for k in range(30)
    ]
    plot = evaluate("length_baseline", rows, progress=False).plot()
    assert [row[0] for row in plot.rows] == [
        "<b>0",
        "<b>1",
        "<b>2",
        "all",
    ] and "<b>" not in plot._repr_html_().replace("<body", "")
    root = ElementTree.parse(plot.save(tmp_path / "figures.svg")).getroot()
    assert len(root.findall("{*}circle")) == len(root.findall("{*}line[@class='whisker']")) == 4
    lost = evaluate("safety_listwise_reward", rows, llm=FakeLLM(reply="no"), progress=False).plot()
    assert lost.rows[-1][1:] == ("", "") and "circle" not in lost.svg


def test_there_is_a_notebook_and_none_holds_outputs() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert all(not cell.get("outputs") for cell in cells if cell["cell_type"] == "code"), (
            path.name
        )


TEXT = (Path(__file__).parent / "example.md").read_text(encoding="utf-8")


def test_blocks_are_found_in_order_with_their_lines_and_opt_outs() -> None:
    found = blocks_of(TEXT)
    assert [(b.language, b.line, b.not_run) for b in found] == [
        ("python", 4, None), ("python", 12, "needs a cluster"), ("bash", 16, None), ("python", 26, None),
    ]  # fmt: skip
    assert found[3].code == 'print("indented")\n'
    assert commands_of(found[2]) == [
        ["make", "demo"], ["rm-gallery", "eval", "x", "y"], ["rm-gallery", "list"], ["git", "clone", "url"],
    ]  # fmt: skip


CODE = [
    ("print(1)\n# 1\n", None),
    ("print([1.0,\n       2])\n# [1.0, 2]\n", None),
    ("print('a\\nb')\n# a\n# b\n", None),
    ("print(2)\n\n# a remark\n", None),
    ("import asyncio\nawait asyncio.sleep(0)\nprint(await asyncio.sleep(0, 3))\n# 3\n", None),
    ("x = 1\nprint(x)\n# 2\n", "line 12: printed '1\\n', the text promises '2'"),
    ("1 / 0\n", "ZeroDivisionError"),
    ("print('\n", "SyntaxError"),
]


@pytest.mark.long("a document")
def test_findings(tmp_path: Path) -> None:
    done = {"line": 20, "code": "done = True\n"}
    jobs = [
        {"name": code, "folder": str(tmp_path), "blocks": [{"line": 11, "code": code}, done]}
        for code, _ in CODE
    ]
    finished = run_python("-m", "tests.docs.run_blocks", cwd=tmp_path, stdin=json.dumps(jobs))
    findings = json.loads(finished.stdout)
    for code, finding in CODE:
        assert len(findings[code]) == (finding is not None), code
        assert all(finding is not None and finding in found for found in findings[code]), code
