"""What a run shows while it goes, on a terminal and elsewhere; the line itself is in the golden files."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.engine import progress
from tests.faults.rewards import Plain
from tests.support.samples import make_sample


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **options: Any) -> str:
    """What a batch of eight, one of which fails, writes to stderr."""
    monkeypatch.setattr(sys, "stderr", stream)
    texts = ["raise", *("x" * k for k in range(1, 8))]
    Plain().evaluate_batch([make_sample(text, unique_id=text) for text in texts], max_workers=2, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("asked", "terminal", "wanted"), [(True, False, True), (None, False, False), (False, True, False)]
)
def test_who_asks_or_looks_is_shown_it(
    monkeypatch: pytest.MonkeyPatch, asked: bool | None, terminal: bool, wanted: bool
) -> None:
    found = shown(monkeypatch, Terminal() if terminal else io.StringIO(), progress=asked)
    assert ("8/8 done · 1 failed · 0 unscored" in found) == wanted
    assert "\r" not in found and found.count("done") <= 1


def test_on_a_terminal_one_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    found = shown(monkeypatch, Terminal(), progress=None)
    *_, last = found.split("\r")
    assert found.startswith("\r") and found.count("\r") >= 2
    assert last.startswith("plain: 8/8 done · 1 failed · 0 unscored · ") and last.endswith("\n")
    assert found.count("\n") == 1


def test_what_was_there_before_is_counted_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = (shown(monkeypatch, io.StringIO(), progress=True, run_dir=tmp_path / "run") for _ in range(2))
    assert "reused" not in first
    assert " · 7 reused" in second and "1 failed" in second
