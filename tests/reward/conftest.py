"""What all tests of rewards have in common."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """What hangs fails: the stacks of all threads are shown and the test process ends."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
