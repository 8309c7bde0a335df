"""A judge server of its own for every test: what a client learned about one endpoint must not reach the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.material import make_samples, oracle_for
from tests.support.judge_server import JudgeServer

ORACLE = oracle_for(make_samples(1500))


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    """A perfect judge on a thread of this process, which answers after 10 ms."""
    with JudgeServer("perfect", oracle=ORACLE, latency=0.01, in_process=True) as running:
        yield running
