"""The files for other people's workflows: their shell runs here, and what they name is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.children import ROOT, child_environment
from tests.support.command import command

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the steps are written for bash")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": str(k), "prompt": f"q{k}", "chosen": "long" * (k % 4), "rejected": "xx"}
        for k in range(40)
    ]
    Path("labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        command(
            "eval",
            "length_baseline",
            "labelled.jsonl",
            "--param",
            "shortest=true",
            "--out",
            "runs/main",
        ).code
        == 0
    )
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rm-gallery"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rm_gallery "$@"\n')
    program.chmod(0o755)
    return tmp_path


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = child_environment(**environment)
    known["PATH"] = f"{Path.cwd() / 'bin'}:{known['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        env=known,
        capture_output=True,
        encoding="utf-8",
    )


def test_the_action_is_whole() -> None:
    action = read("action.yml")
    assert (
        action["runs"]["using"] == "composite"
        and {"name", "description", "inputs", "outputs"} <= action.keys()
    )
    steps = action["runs"]["steps"]
    assert all(
        ("shell" in step) == ("run" in step) and ("run" in step) != ("uses" in step)
        for step in steps
    )
    used = set(re.findall(r"inputs\.(\w+)", json.dumps(steps)))
    assert used == action["inputs"].keys()
    assert not any("${{" in step.get("run", "") for step in steps), (
        "what a user gives comes by the environment"
    )
    ids = {step["id"] for step in steps if "id" in step}
    assert set(re.findall(r"steps\.(\w+)", json.dumps(action))) <= ids


@pytest.mark.long("a workflow of its own")
def test_the_steps_of_the_action_run(folder: Path) -> None:
    steps = {step.get("name"): step for step in read("action.yml")["runs"]["steps"]}
    told = {
        "RUN": "a run",
        "BASE": "runs/main",
        "GITHUB_STEP_SUMMARY": "summary.md",
        "GITHUB_OUTPUT": "outputs",
    }
    judged = bash(steps["Judge"]["run"], COMMAND="eval length_baseline labelled.jsonl", **told)
    assert judged.returncode == 0, judged.stderr
    reported = bash(steps["Report"]["run"], **told)
    assert reported.returncode == 0, reported.stderr
    page = Path("summary.md").read_text()
    assert (
        page == Path("a run/report.md").read_text()
        and Path("outputs").read_text() == "report=a run/report.md\n"
    )
    assert (
        "75.0" in page
        and "95 %" in page
        and "## Against runs/main" in page
        and "shortest" not in page.splitlines()[0]
    )
    gates = {"--fail-under 0.7": 0, "--fail-under 0.7 --surely": 1, "": 0}
    assert {
        gate: bash(steps["Gates"]["run"], GATES=gate, **told).returncode for gate in gates
    } == gates
    assert (
        bash(
            steps["Judge"]["run"], COMMAND="eval no_such_reward labelled.jsonl", RUN="other"
        ).returncode
        == 2
    )


@pytest.mark.long("a workflow of its own")
def test_the_lines_for_gitlab_run(folder: Path) -> None:
    job = read("examples/ci/gitlab.yml")["judge"]
    lines = [line for line in job["script"] if not line.startswith("python -m pip")]
    told = {**job["variables"], "COMMAND": "eval length_baseline labelled.jsonl"}
    done = bash("\n".join(lines), **told)
    assert done.returncode == 1 and "<failure" in Path("junit.xml").read_text(), done.stderr
    assert "## Against runs/main" in Path("report.md").read_text()
    assert bash(lines[-1], **{**told, "GATES": "--fail-under 0.7"}).returncode == 0


@pytest.mark.long("a workflow of its own")
def test_the_hook_tries_every_changed_file(folder: Path) -> None:
    (hook,) = read(".pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language"} <= hook.keys() and hook["id"] == "check-reward"
    head = (
        "from rm_gallery import reward_function\n\n\n@reward_function(score_range=(0, 1))\ndef "
        "own(messages, ground_truth='', **kwargs):\n"
    )
    sound = 'return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))'
    case = {
        "prompt": "What is 40 + 2?",
        "ground_truth": "42",
        "gold": "So it is.\n<answer>42</answer>",
    }
    Path("cases.jsonl").write_text(json.dumps(case) + "\n")
    for name, body in (
        ("sound.py", sound),
        ("also.py", sound),
        ("lenient.py", "return float(str(ground_truth) in messages[-1].text)"),
    ):
        Path(name).write_text(f"{head}    {body}\n")
    for files, code in (
        ("sound.py also.py", 0),
        ("sound.py lenient.py", 1),
        ("lenient.py sound.py", 1),
    ):
        done = bash(f"{hook['entry']} --cases cases.jsonl {files}")
        assert done.returncode == code, (files, done.stdout, done.stderr)
