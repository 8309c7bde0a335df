"""What skips is written down, and where everything is installed it may not skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.children import ROOT, run_python

TESTS = """
import pytest
from tests.support.shared_data import shared_file

def test_runs() -> None: ...

@pytest.mark.system("bubblewrap")
@pytest.mark.parametrize("text", ["a b", "[c::d]"])
def test_component(text: str) -> None:
    pytest.skip("bubblewrap is not installed")

@pytest.mark.skipif(True, reason="the environment is not made")
def test_trainer() -> None: ...

def test_data() -> None:
    shared_file("x")
"""
WHOLE = (
    "import pytest\npytest.importorskip('no_such_package')\ndef test_one() -> None: ...\ndef "
    "test_two() -> None: ...\n"
)
BUSY = """
import pytest, time

def burn() -> None:
    began = time.process_time()
    while time.process_time() < began + 1.1: ...

def test_busy() -> None:
    burn()

@pytest.mark.long("busy")
def test_known() -> None:
    burn()
"""
NOT_INSTALLED = [
    "test_it.py::test_component[[c::d]]",
    "test_it.py::test_component[a b]",
    "test_it.py::test_trainer",
]


OPTIONS = [
    "-q",
    "-c",
    str(ROOT / "pyproject.toml"),
    "-p",
    "no:cacheprovider",
    "-p",
    "tests.conftest",
]


@pytest.mark.long("a suite inside the suite")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_uses_a_second_unmarked_is_named_and_fails_where_that_is_asked(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "test_busy.py").write_text(BUSY)
    for asked, code in (("", 0), ("1", 1)):
        done = run_python(
            *("-m", "pytest", *OPTIONS, "-n", workers, "--rootdir", str(tmp_path), str(tmp_path)),
            cwd=tmp_path,
            env={"RM_GALLERY_BUDGET": asked, "RM_GALLERY_SKIPPED": ""},
        )
        assert done.returncode == code and "2 passed" in done.stdout, done.stdout
        assert " s  test_busy.py::test_busy" in done.stdout and "test_known" not in done.stdout


@pytest.mark.long("a suite inside the suite")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skip_is_written_down_and_fails_where_everything_is_installed(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_whole.py").write_text(WHOLE)
    listed, arguments = tmp_path / "skipped", tmp_path / "arguments"

    def run(where: str, **variables: str) -> tuple[int, str, list[str]]:
        environment = {
            "RM_GALLERY_SHARED": str(tmp_path),
            "RM_GALLERY_SKIPPED": str(listed),
            "RM_GALLERY_REQUIRE": "",
            **variables,
        }
        done = run_python(
            "-m",
            "pytest",
            *OPTIONS,
            "-n",
            workers,
            "--rootdir",
            str(tmp_path),
            where,
            cwd=tmp_path,
            env=environment,
            timeout=240,
        )
        return done.returncode, done.stdout, sorted(listed.read_text(encoding="utf-8").splitlines())

    code, out, skipped = run(str(tmp_path))
    assert code == 0 and "1 x benchmark data folder is absent" in out, out
    assert [line.split("\t")[0] for line in skipped] == sorted(
        [*NOT_INSTALLED, "test_it.py::test_data", "test_whole.py"]
    )
    assert "test_it.py::test_trainer\tthe environment is not made" in skipped
    # as .ci/run gives it: exactly these tests, and both of the file that skipped as a whole
    arguments.write_text(
        "".join(f"{line.partition(chr(9))[0]}\n" for line in skipped if "_data" not in line)
    )
    (tmp_path / "test_whole.py").write_text(WHOLE.replace("no_such_package", "json"))
    code, out, skipped = run(f"@{arguments}", RM_GALLERY_REQUIRE="everything")
    assert code == 1 and "2 failed, 2 passed, 1 error" in out, out
    (tmp_path / "test_whole.py").write_text(WHOLE)
    code, out, skipped = run(f"@{arguments}", RM_GALLERY_REQUIRE="everything")
    assert code != 0 and "everything is installed: could not import 'no_such_package'" in out, out
    code, out, skipped = run("test_it.py::test_data", RM_GALLERY_REQUIRE="everything")
    assert code == 0 and "1 skipped" in out, "published data cannot be installed"
