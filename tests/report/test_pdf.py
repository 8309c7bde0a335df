"""A summary on one page of paper, printed by the browser that is there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.report.runs import report, row, write_run
from tests.support.command import command

PAGES = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")


@pytest.mark.long("many judgements")
@pytest.mark.system("chromium")
@pytest.mark.parametrize("subsets", [0, 300])
def test_the_summary_is_one_page_however_long_the_report(subsets: int, tmp_path: Path) -> None:
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("chromium is not installed")
    part = {
        name: value
        for name, value in report(3).items()
        if name not in ("by_subset", "extra", "notes")
    }
    reasons = {
        f"failed: {k} <script>": {"n": 1, "example": "a long example " * 60} for k in range(subsets)
    }
    notes = ["<script>fetch('http://127.0.0.1')</script> a note of some length " * 10] * subsets
    saved = report(
        9,
        by_subset={f"a subset {k} " * 20: part for k in range(subsets)},
        reasons=reasons,
        notes=notes,
    )
    run = write_run(tmp_path / "run", [row(k) for k in range(9)], saved)
    target = tmp_path / "one.pdf"
    done = command("report", str(run.folder), "--title", "Of <b>spring</b>", "--pdf", str(target))
    assert done.code == 0 and len(PAGES.findall(target.read_bytes())) == 1, done.err
    assert "<h1>Of &lt;b&gt;spring&lt;/b&gt;</h1>" in (run.folder / "report.html").read_text(
        encoding="utf-8"
    )


def test_without_a_browser_the_next_step_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", [row(1)], report(1))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rm_gallery.report.pdf._PLACES", {})
    done = command("report", str(run.folder), "--pdf", str(tmp_path / "one.pdf"))
    assert (
        done.code == 2
        and "install one, or print report.html" in done.err
        and not (run.folder / "report.html").exists()
    )


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n"])
def test_a_browser_that_prints_nothing_is_one_line(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", [row(1)], report(1))
    browser = tmp_path / "chromium"
    browser.write_text(script)
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("report", str(run.folder), "--pdf", str(tmp_path / "one.pdf"))
    assert done.code == 2 and "printed no page: " in done.err and "by hand" in done.err
