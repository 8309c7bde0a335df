"""The reference clients of the throughput measurement count well and see the server's own load."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._floor import LoopFigures, bare_aiohttp_loop, openai_sdk
from tests.support.judge_server import JudgeServer


@pytest.mark.parametrize("measure", [bare_aiohttp_loop, openai_sdk])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_every_client_makes_each_call_once_and_counts_what_came_back_well(measure: Any, share: float) -> None:
    with JudgeServer("first", latency=0.02, faults={"server_error": share}, seed=2) as server:
        figures: LoopFigures = measure(
            server.base_url,
            60,
            8,
            lambda number: {"model": "j", "messages": [{"role": "user", "content": f"{number}"}]},
        )
        stats = server.stats()
    assert stats["requests"] == 60 + 8, "one call per connection, before anything is measured, opens it"
    assert (figures.failed > 0) == (share > 0)
    refused = stats["by_status"].get("500", 0)
    assert figures.n == 60 and figures.failed <= refused <= figures.failed + 8
    assert figures.samples_per_s == pytest.approx((60 - figures.failed) / figures.seconds)
    assert figures.server is not None and 0 < figures.server.cpu_share < 1
