"""The runner under test, and the outside world that must stay as it is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from tests.sandbox.outside import SECRET, SECRET_NAME, Outside, descendants
from tests.support.system import require_bubblewrap


@pytest.fixture(scope="session")
def bubblewrap() -> BwrapRunner:
    return require_bubblewrap()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setenv(SECRET_NAME, SECRET)
    file = tmp_path / "precious.txt"
    file.write_text("precious")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Outside(file, listener, descendants())
