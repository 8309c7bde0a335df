"""A judge server of its own for every test: what a client learned about one endpoint must not reach
the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.material import make_samples, oracle_for
from tests.support.children import ROOT
from tests.support.judge_server import JudgeServer

ORACLE = oracle_for(make_samples(1500))


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    """A perfect judge on a thread of this process, which answers after 10 ms."""
    with JudgeServer("perfect", oracle=ORACLE, latency=0.01, in_process=True) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Ray cluster of two nodes of one processor each; `lost` is the one that can be. Its actors
    keep replies in a folder of their own: what else runs on this machine may empty the user's.
    """
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("RM_GALLERY_CACHE", str(tmp_path_factory.mktemp("cache")))
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "include_dashboard": False,
            "object_store_memory": 200 << 20,
        },
    )
    made.lost = made.add_node(num_cpus=1, object_store_memory=200 << 20)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()
    patch.undo()
