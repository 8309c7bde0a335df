"""The document's environments run as they stand: the helper's import, a task that may be None, two components."""

from __future__ import annotations

import asyncio
import runpy
from typing import Any

import pytest

from tests.seeds.running import script

RIGHT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "so\n<answer> 4 </answer>"}]
CASES: list[tuple[str, Any, Any, dict[str, float]]] = [
    ("CorrectEnv", RIGHT, {"ground_truth": " 4 "}, {"correct": 1.0}),
    ("CorrectEnv", RIGHT, {"ground_truth": "5"}, {"correct": 0.0}),
    ("CorrectEnv", RIGHT, None, {"correct": 0.0}),
    ("CorrectEnv", [{"role": "assistant", "content": None}], None, {"correct": 1.0}),
    ("TwoComponentEnv", RIGHT, {"ground_truth": "4"}, {"correctness": 1.0, "format": 1.0}),
    ("TwoComponentEnv", "a bare 4", {"ground_truth": "4"}, {"correctness": 1.0, "format": 0.0}),
]


@pytest.mark.parametrize(("env", "messages", "task", "rewards"), CASES)
def test_the_document_s_functions(env: str, messages: Any, task: Any, rewards: dict[str, float]) -> None:
    found = runpy.run_path(str(script("004_compute_reward.py")))[env]()
    assert asyncio.run(found.compute_reward("r1", messages, task)) == rewards
