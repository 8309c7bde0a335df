"""openreward's own client gets the scores of `evaluate`, and null where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rm_gallery import RewardRegistry, environment_reward
from rm_gallery.serve.ors import read_tasks
from rm_gallery.serve.tokens import TokenFile, create_token
from tests.serve.test_ors import ROWS, Shortest, written
from tests.support.reward_server import RewardServer
from tests.trainers.environments import run

pytestmark = pytest.mark.trainers
ROLLOUTS = [["train", 0, "42"], ["train", 0, "41"], ["train", 1, "42"], ["test", 0, "4"]]


@pytest.mark.system("openreward")
def test_the_client_of_openreward_gets_the_scores_of_evaluate(tmp_path: Path) -> None:
    file = written(tmp_path, ROWS)
    token = create_token(tmp_path / "tokens.json", "trainer", ["evaluate"])
    rewards = {
        "exact": RewardRegistry.create("accuracy"),
        "short": environment_reward(Shortest()),
    }
    tokens = TokenFile(tmp_path / "tokens.json")
    with RewardServer(rewards, tasks=read_tasks(file), tokens=tokens) as server:
        asked = {"url": server.url, "token": token, "name": "exact", "group": "short"}
        found = run("openreward", "in_openreward.py", {**asked, "rollouts": ROLLOUTS})
    train = [{"split": "train", "index": 0, "id": "a"}, {"split": "train", "index": 1}]
    assert found["specs"] == {"train": train, "test": [{"split": "test", "index": 0}]}
    assert found["numbers"] == [2, 1] and found["one"] == train[1] and found["slice"] == train[1:]
    rewards_given = [each["output"]["reward"] for each in found["rollouts"]]
    assert rewards_given == [1.0, 0.0, None, 1.0]
    for each in found["rollouts"]:
        assert each["tools"] == ["submit"] and each["output"]["finished"]
        assert (each["unknown"], each["misshaped"]) == ("not_found", "input_validation")
        assert each["again"] == each["output"] and each["another"] == "episode_finished"
    assert found["rollouts"][2]["output"]["metadata"]["reason"] == "no_reference"
    assert found["rollouts"][3]["roles"] == ["system", "user"]
    assert found["message"] == [1.0, True]
    assert found["compared"] == [0.0, 1.0]
