"""A server among clients that are slow, send half, say nothing or hang up."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from benchmarks.serve_load import crowd, hangups, judged, judged_request
from benchmarks.serve_throughput import each_once, run
from tests.support.judge_server import JudgeServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.long("crowds")
def test_clients_that_hang_up_cost_no_further_calls() -> None:
    assert hangups(200, 1, seconds=1.1) <= 10


@pytest.mark.long("crowds")
def test_who_asks_the_same_as_one_that_hangs_up_is_answered_by_the_same_call() -> None:
    with (
        JudgeServer("fixed:<score>3</score>") as judge,
        judged(judge) as port,
        ThreadPoolExecutor(1) as pool,
    ):
        judge.set(latency=1.0)
        judge.reset()
        with socket.create_connection(("127.0.0.1", port)) as first:
            first.sendall(judged_request("same"))
            judge.wait_until(lambda stats: stats["in_flight"] == 1)
            second = pool.submit(run, port, 1, each_once([judged_request("same")]))
            while (
                "rm_gallery_requests_in_flight 2.0"
                not in httpx.get(f"http://127.0.0.1:{port}/metrics").text
            ):
                assert not second.done()
        assert second.result().statuses == {"200": 1}
        assert judge.stats()["requests"] == 1


@pytest.mark.long("crowds")
def test_a_crowd_of_bad_clients_keeps_no_good_one_out() -> None:
    found = crowd(400, 1.0, 1)
    assert found.wrong == 0 and len(found.good) > 32 and len(found.status) > 1
