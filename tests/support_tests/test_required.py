"""What the check requires may not skip."""

from __future__ import annotations

from pathlib import Path

from tests.support.children import ROOT, run_python

TESTS = """
import pytest
from tests.support.shared_data import shared_file

@pytest.mark.system("bubblewrap")
def test_component() -> None:
    pytest.skip("bubblewrap is not installed")

@pytest.mark.trainers
def test_trainer() -> None:
    pytest.skip("the environment cannot be made")

def test_data() -> None:
    shared_file("x")
"""


def test_a_skip_of_what_is_required_fails_and_is_counted(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    plugins = ["no:cacheprovider", "no:xdist", "tests.conftest"]
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), *[word for plugin in plugins for word in ("-p", plugin)]]
    wanted = {"RM_GALLERY_REQUIRE": "bubblewrap,trainers", "RM_GALLERY_SHARED": str(tmp_path)}
    done = run_python("-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path), cwd=tmp_path, env=wanted)
    failed = sorted(line.split()[1].rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert failed == ["test_component", "test_trainer"], done.stdout
    assert "1 tests were skipped" in done.stdout
    assert "1 x benchmark data folder is absent" in done.stdout
