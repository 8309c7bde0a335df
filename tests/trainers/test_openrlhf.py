"""OpenRLHF's own executor gets the scores of `evaluate` from a reward file, and makes tensors of
them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_gallery import RewardRegistry
from tests.trainers.environments import run
from tests.trainers.rewards import FEW, ROWS, Parts, as_float32, expected

FILE = """
from rm_gallery.integrations.openrlhf import openrlhf_reward
from tests.trainers.rewards import Parts

reward_func = openrlhf_reward(Parts(), components=["length", "gold"], on_error={on_error!r})
"""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server of our own that offers one rule."""
    command = [
        sys.executable,
        "-m",
        "rm_gallery",
        "serve",
        "--reward",
        "math_verify_reward",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr
        assert told is not None
        try:
            yield next(line for line in told if "serving" in line).split()[-1]
        finally:
            process.terminate()
            told.read()


@pytest.mark.long("many runs of training")
@pytest.mark.trainers
@pytest.mark.system("openrlhf")
def test_the_executor_gets_the_scores_of_evaluate_from_a_file_and_from_our_server(
    tmp_path: Path, server: str
) -> None:
    policies, sizes = ("worst", "none", "raise"), (len(ROWS), len(FEW), len(FEW))
    files = [tmp_path / f"{name}.py" for name in policies]
    for file, on_error in zip(files, policies, strict=True):
        file.write_text(FILE.format(on_error=on_error), encoding="utf-8")
    where = [*map(str, files), f"{server}/get_reward?on_error=-0.25"]
    asked = {"where": list(zip(where, (*sizes, len(FEW)), strict=True)), "rows": ROWS}
    *answers, served = run("openrlhf", "in_openrlhf.py", asked)
    for on_error, size, answer in zip(policies, sizes, answers, strict=True):
        wanted = expected(Parts())[:size]
        none = -1.0 if on_error == "worst" else None
        assert [each["reward"] for each in answer["told"]] == [
            none if w.score is None else w.score for w in wanted
        ]
        for told, each in zip(answer["told"], wanted, strict=True):
            if each.score is not None:
                assert told["scores"] == (each.score + 1) / 2
                parts = {name: each.part(name, 0.0) for name in ("length", "gold")}
                assert told["extra_logs"] == {**parts, "unscored": 0.0, "failed": 0.0}
            elif on_error != "raise":
                assert told["extra_logs"][each.status] == 1.0
        given = [w for w in wanted if w.score is not None or on_error == "worst"]
        numbers = [as_float32(-1.0 if w.score is None else w.score) for w in given]
        assert [each["reward"] for each in answer["tensors"]] == [[number] for number in numbers]
        assert {len(each["info"]) for each in answer["tensors"]} == {7}
    wanted = expected(RewardRegistry.create("math_verify_reward"), FEW)
    scores = [-0.25 if each.score is None else each.score for each in wanted]
    # OpenRLHF takes the server's list of one as it is and makes a tensor of it
    assert [each["reward"] for each in served["told"]] == [[score] for score in scores]
    assert [each["extra_logs"]["unscored"] for each in served["told"]] == [
        [float(e.score is None)] for e in wanted
    ]
    assert [each["reward"] for each in served["tensors"]] == [
        [[as_float32(score)]] for score in scores
    ]
