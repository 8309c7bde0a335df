"""What `rm-gallery init` makes runs green as it was made."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from tests.support.children import run_python
from tests.support.command import command


@pytest.mark.long("a project of its own")
def test_every_step_of_the_new_project_passes_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "new" / "project"
    assert command("init", str(place)).code == 0
    monkeypatch.chdir(place)
    steps = yaml.safe_load((place / ".github/workflows/rewards.yml").read_text())["jobs"][
        "rewards"
    ]["steps"]
    calls = [shlex.split(step["run"]) for step in steps if "run" in step]
    shown = [
        shlex.split(line, comments=True)
        for line in (place / "README.md").read_text().splitlines()
        if line[:4] == "    "
    ]
    assert len(calls) == len(shown) == 3
    for words in [*calls[1:], *shown]:  # the first one installs
        module = "rm_gallery" if words[0] == "rm-gallery" else "pytest"
        done = run_python("-m", module, *words[1 if module == "rm_gallery" else 3 :], cwd=place)
        assert done.returncode == 0, done.stdout + done.stderr
    (place / "reward.py").write_text("mine")
    (place / "test_reward.py").unlink()
    again = command("init", ".")
    assert again.code == 2 and "reward.py" in again.err and "test_reward.py" not in again.err
    assert (place / "reward.py").read_text() == "mine" and not (place / "test_reward.py").exists()
    assert command("init", "reward.py").err == "rm-gallery: reward.py is a file; name a folder.\n"
    assert "cannot be written" in command("init", "/proc/none").err
