"""The host application's log is its own: never touched, never filled with secrets, and free of ours
when it says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.material import eval_arguments, write_data
from tests.support.children import run_command, run_python
from tests.support.judge_server import Faults, JudgeServer

KEY = "sk-very-secret-0123456789"
PROMPT_WORD = "plus 5"

HOST = """
import json, sys
from loguru import logger

logger.remove()
lines = []
sink = logger.add(lines.append, level="TRACE", format="{{level}} {{name}} {{message}}")
handlers, cache = dict(logger._core.handlers), False
{before}

import rm_gallery
import rm_gallery.core.reward.registry
from tests.faults.material import make_judge, make_samples, run

judge = make_judge(sys.argv[1], api_key="{key}", default_headers={{"X-Team": "{key}-header"}}, max_attempts=2)
ran = run(judge, make_samples(6), max_workers=3, cache=cache)
logger.info("the host says so")
same = dict(logger._core.handlers) == handlers and all(logger._core.handlers[name] is handlers[name] for name in handlers)
print(json.dumps({{"same": same, "lines": [str(line) for line in lines], "outcomes": [list(k) for k in ran.outcomes]}}))
"""


def host(server: JudgeServer, cwd: Path, before: str = "") -> list[str]:
    """What the host's sink is told; the sinks stay as they are, and nothing else is said."""
    finished = run_python(
        "-W", "error", "-c", HOST.format(before=before, key=KEY), server.base_url, cwd=cwd
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    found = json.loads(finished.stdout)
    assert found["same"]
    return [line.strip() for line in found["lines"]]


@pytest.mark.long("processes of their own")
def test_sinks_stay_as_they_are_and_calls_are_traced_without_secrets(
    server: JudgeServer, tmp_path: Path
) -> None:
    server.set(faults=Faults(server_error=1.0, first_attempts=1))
    lines = host(server, tmp_path)
    ours = [line for line in lines if "rm_gallery" in line]
    assert [sum(f"-> {status}" in line for line in ours) for status in (500, 200)] == [6, 6]
    assert all(line.startswith("TRACE rm_gallery") for line in ours)
    assert not any(KEY in line or PROMPT_WORD in line or "plus" in line for line in lines)
    assert server.stats()["auth"]["sent"] == 12


@pytest.mark.long("processes of their own")
def test_disable_silences_us_and_nobody_else(server: JudgeServer, tmp_path: Path) -> None:
    assert host(server, tmp_path, 'logger.disable("rm_gallery")') == [
        "INFO __main__ the host says so"
    ]


@pytest.mark.long("processes of their own")
def test_a_warning_of_ours_reaches_the_hosts_sinks(server: JudgeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = (
        f"import os; os.environ['RM_GALLERY_CACHE'] = {str(tmp_path / 'file' / 'cache')!r}; cache "
        f"= True"
    )
    (warning,) = [line for line in host(server, tmp_path, before) if line.startswith("WARNING")]
    assert "cannot be written" in warning


@pytest.mark.long("processes of their own")
@pytest.mark.parametrize(
    ("level", "status", "traced"), [("http", 200, 5), ("debug", 200, 0), ("http", 401, 5)]
)
def test_the_command_traces_calls_on_request_and_shows_no_key(
    server: JudgeServer, tmp_path: Path, level: str, status: int, traced: int
) -> None:
    server.set(faults=Faults(always=None if status == 200 else status))
    data, folder = write_data(tmp_path / "data.jsonl", 5), tmp_path / "run"
    arguments = eval_arguments(data, server, folder, "--log-level", level)
    finished = run_command(*arguments, cwd=tmp_path, env={"OPENAI_API_KEY": KEY})
    assert (finished.returncode, json.loads(finished.stdout)["n_scored"]) == (
        (0, 5) if status == 200 else (1, 0)
    )
    assert finished.stderr.count("POST http://127.0.0.1") == traced
    assert KEY not in finished.stdout + finished.stderr and PROMPT_WORD not in finished.stderr
    assert not any(
        KEY.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )
    assert server.stats()["auth"]["sent"] == 5
