"""What user code prints or reads in a worker does not touch the frames between the processes."""

from __future__ import annotations

import pytest

from rm_gallery.core.engine.workers.pool import WorkerPool
from tests.engine import worker_jobs


def test_prints_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerPool(1) as pool:
        assert pool.map(worker_jobs.chatter, range(3), deadline=60) == [0, 1, 2]
    captured = capfd.readouterr()
    assert captured.out == ""
    for text in ("to stdout 2", "to stderr 2", "straight to the descriptor", "from a grandchild"):
        assert text in captured.err
