"""Where the benchmark files used by measuring tests are found, and skipping where they are not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_DEFAULT = Path(__file__).resolve().parents[3] / "shared"


def shared_folder() -> Path:
    """Where benchmark data may be: RM_GALLERY_SHARED, or a sibling folder of the checkout."""
    return Path(os.environ.get("RM_GALLERY_SHARED", str(_DEFAULT)))


def shared_root() -> Path:
    """Folder with benchmark data; skips the test without it."""
    root = shared_folder()
    if not (root / "data").is_dir():
        pytest.skip("benchmark data folder is absent; set RM_GALLERY_SHARED to use it")
    return root


def shared_file(name: str) -> Path:
    """Path of one benchmark file under the data folder; skips the test when it is absent."""
    path = shared_root() / "data" / name
    if not path.exists():
        pytest.skip(f"benchmark file {name} is absent")
    return path


def labelled_cases(name: str) -> list[dict[str, Any]]:
    """The rows of a file of labelled cases; skips the test when it is absent."""
    path = shared_root() / "cases" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"labelled cases {name} are absent")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
