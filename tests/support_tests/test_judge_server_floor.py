"""The reference clients of the throughput measurement count well and see the server's own load."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._floor import LoopFigures, ServerLoad, bare_aiohttp_loop, openai_sdk, server_load, server_stats
from tests.support.judge_server import JudgeServer


def _body(number: int) -> dict[str, Any]:
    return {"model": "judge-1", "messages": [{"role": "user", "content": f"sample {number}"}]}


@pytest.mark.parametrize(
    ("measure", "options", "name"),
    [
        (bare_aiohttp_loop, {}, "bare aiohttp loop"),
        (openai_sdk, {}, "openai SDK"),
        (openai_sdk, {"aiohttp_transport": True}, "openai SDK (aiohttp transport)"),
    ],
)
def test_every_client_makes_each_call_once(measure: Any, options: dict[str, Any], name: str) -> None:
    with JudgeServer("fixed:<best>1</best>", latency=0.02) as server:
        figures: LoopFigures = measure(server.base_url, 60, 20, _body, **options)
        stats = server.stats()
    assert (figures.name, figures.n, figures.failed) == (name, 60, 0)
    assert stats["distinct_samples"] == 60
    assert stats["requests"] == 60 + 20  # one call per connection, before anything is measured, opens it
    assert 1 < stats["max_in_flight"] <= 20
    assert 0 < figures.share_of_ceiling(0.02) <= 1
    assert figures.cpu_ms_per_call > 0
    assert figures.server is not None
    assert 0 < figures.server.cpu_share < 1


@pytest.mark.parametrize("measure", [bare_aiohttp_loop, openai_sdk])
def test_failed_calls_do_not_count_as_samples(measure: Any) -> None:
    with JudgeServer("first", faults={"server_error": 0.5}, seed=2) as server:
        figures: LoopFigures = measure(server.base_url, 40, 8, _body)
        refused = server.stats()["by_status"]["500"]
    assert 0 < figures.failed <= refused <= figures.failed + 8  # the eight calls that open connections do not count
    assert figures.samples_per_s == pytest.approx((40 - figures.failed) / figures.seconds)


def test_server_load_is_the_difference_of_two_statistics() -> None:
    def shown(cpu: float, wall: float, replies: int, late: float) -> dict[str, Any]:
        return {
            "process": {
                "cpu_seconds": cpu,
                "wall_seconds": wall,
                "replies": replies,
                "mean_lateness_ms": late,
                "max_lateness_ms": 9.0,
            }
        }

    load = server_load(shown(1.0, 10.0, 100, 1.0), shown(3.0, 14.0, 300, 3.0))
    assert load == ServerLoad(0.5, 10.0, 4.0, 9.0)
    assert load.keeps_up
    assert not ServerLoad(0.95, 0.1, 1.0, 9.0).keeps_up
    assert not ServerLoad(0.3, 0.1, 30.0, 90.0).keeps_up
    assert server_load(None, shown(1, 1, 1, 1)) is None


def test_an_endpoint_without_statistics_gives_none() -> None:
    with JudgeServer("first", in_process=True) as server:
        base_url = server.base_url
    assert server_stats(base_url) is None
