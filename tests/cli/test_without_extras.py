"""Commands of an installation with base dependencies: they work, or say the extra in one line."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from rm_gallery.core.utils.errors import pip_install
from tests.support.children import run_python
from tests.support.command import command

GONE = (
    *("fastapi", "uvicorn", "httptools", "sqlalchemy", "prometheus_client", "psycopg"),
    *("openpyxl", "ray", "datasets", "torch", "transformers"),
)
METRICS = "relevance=./relevance"
WORKS = (
    f"evaluators preview --metrics-folders {METRICS} --samples samples.jsonl",
    "check-reward relevance/main.py:evaluate --role shaping",
)
NEEDS = {
    f"evaluators deploy --id e --metrics-folders {METRICS} --force": "serve",
    "evaluators list": "serve",
    "evaluators show e": "serve",
    "serve --reward accuracy": "serve",
    "view samples.jsonl": "serve",
    f"evaluators deploy --id e --metrics-folders {METRICS} --store postgresql://x/y": "serve",
    "eval length_baseline pairs.jsonl --export t.xlsx": "report",
    "eval length_baseline pairs.jsonl --engine ray": "ray",
    "eval hf:checkpoint pairs.jsonl": "hf",
}
REWARD = """
from rm_gallery import reward_function


@reward_function
def evaluate(messages, **kwargs):
    return min(1.0, len(messages[-1].text) / 99)
"""


@pytest.fixture(autouse=True)
def _plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A founding document's files, and none of the packages of extras."""
    for name in [each for each in sys.modules if each.partition(".")[0] in GONE]:
        monkeypatch.delitem(sys.modules, name)
    for name in GONE:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    Path("relevance").mkdir()
    Path("checkpoint").mkdir()
    Path("relevance/main.py").write_text(REWARD, encoding="utf-8")
    Path("samples.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}\n'
    )
    Path("pairs.jsonl").write_text('{"prompt": "q", "chosen": "aa", "rejected": "b"}\n')


@pytest.mark.parametrize("call", WORKS)
def test_what_needs_no_extra_works_without_any(call: str) -> None:
    done = command(*call.split())
    assert done.code == 0 and done.out, done.err


# what keeps evaluators may have been imported here, with its packages, by a test before
STORED = [call for call in NEEDS if call.startswith("evaluators")]
ALONE = f"""
import sys
sys.modules.update(dict.fromkeys({GONE}))
from rm_gallery.cli.main import main
main()
"""


@pytest.mark.parametrize("call", [call for call in NEEDS if call not in STORED])
def test_what_needs_an_extra_names_it_in_one_line(call: str) -> None:
    done = command(*call.split())
    assert done.code == 2
    _named(call, done.err)


@pytest.mark.long("a process each")
@pytest.mark.parametrize("call", STORED)
def test_what_keeps_evaluators_names_its_extra_in_one_line(call: str) -> None:
    done = run_python("-c", ALONE, *call.split(), cwd=Path.cwd())
    assert done.returncode == 2
    _named(call, done.stderr)


def _named(call: str, err: str) -> None:
    (said,) = (line for line in err.splitlines() if line.startswith("rm-gallery:"))
    assert f"(of the extra '{NEEDS[call]}')" in said
    line = said.partition("Install it with: ")[2]
    assert line.startswith("pip install ") and line == pip_install(*shlex.split(line)[2:])


def test_a_line_to_type_is_one_in_every_shell() -> None:
    """zsh reads brackets as a pattern of files, and `numpy>=2` writes to a file called =2."""
    assert pip_install("numpy") == "pip install numpy"
    line = pip_install("uvicorn[standard]", "numpy>=2", "torch")
    assert line == 'pip install "uvicorn[standard]" "numpy>=2" torch'
