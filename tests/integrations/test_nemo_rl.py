"""NeMo-RL: a step of dialogues, its metrics, a function of two arguments, and how it is told of the
environment.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.integrations import nemo_rl
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.nemo_rl import RewardEnvironment, nemo_rl_reward, register_nemo_rl
from tests.integrations.adapters import Moody


def log(text: Any) -> list[dict[str, Any]]:
    """A message log, whose turns carry tensors."""
    asked: dict[str, Any] = {"role": "user", "content": "q", "token_ids": object()}
    turns = [asked, {"role": "environment", "content": "go on"}]
    return (
        turns
        if text is None
        else [*turns, {"role": "assistant", "content": text, "token_ids": object()}]
    )


def test_a_step_gives_six_fields_in_order_and_means_of_what_was_scored() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    environment = RewardEnvironment(
        {"reward": Moody, "components": ["words"], "observation": "scored", "on_error": -0.5}
    )
    metadata: list[Any] = [{"gold": 1}, {}, {}, {}, None]
    observations, kept, stops, rewards, done, answers = environment.step(
        [log(text) for text in ("four", "two words", "none", "fail", None)], metadata, True
    )
    assert rewards.dtype == torch.float32 and rewards.tolist() == [4.0, 9.0, -0.5, -0.5, 0.0]
    assert done.tolist() == [1.0] * 5 and stops == [None] * 5
    assert answers == ["four", "two words", "none", "fail", None]
    assert observations == [{"role": "environment", "content": "scored"}] * 5
    assert metadata == [{"gold": 1}, {}, {}, {}, None], "what was given is left alone"
    assert kept[0] == {
        "gold": 1,
        "rm_gallery": {"words": 1.0, "score": 4.0, "unscored": 0.0, "failed": 0.0},
    }
    batch = {"extra_env_info": [*kept[:4], "no row"]}
    means = {"score": 6.5, "words": 1.5, "unscored": 0.25, "failed": 0.25}
    assert environment.global_post_process_and_metrics(batch) == (batch, means)
    assert environment.global_post_process_and_metrics({}) == ({}, {})
    assert environment.step([log("four")], [{}]).answers is None
    environment.shutdown()


def test_what_the_environment_says_is_put_to_the_reward_as_a_users_turn() -> None:
    pytest.importorskip("torch", reason="torch is not installed")

    def asked(messages: list[Any], gold: Any = None, **kwargs: Any) -> float:
        return (
            float([turn.role for turn in messages] == ["user", "user", "assistant"]) / 2
            + float(gold == [1]) / 2
        )

    class Array:
        def tolist(self) -> list[int]:
            return [1]

    assert RewardEnvironment({"reward": asked, "worst": 0.0}).step(
        [log("x")], [{"gold": Array()}]
    ).rewards.tolist() == [1.0]


def test_a_function_of_ground_truth_and_response() -> None:
    function = nemo_rl_reward("math_verify_reward", correct_from=1.0)
    found = [function("4", "It is 4."), function("4", "5"), function(None, "4")]
    assert found == [(1.0, True), (0.0, False), (0.5, False)], (
        "of none the mean, and it is not correct"
    )
    assert nemo_rl_reward(Moody, correct_from=-5.0)(None, "none") == (-1.0, False), (
        "what has no score is not correct"
    )
    assert (
        nemo_rl_reward(Moody)(None, "four") == (4.0, None)
        and function.__name__ == "math_verify_reward"
    )
    with pytest.raises(NoScore, match="no_reference"):
        nemo_rl_reward("math_verify_reward", on_error="raise")(None, "4")


def test_it_is_told_of_the_environment_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    actors: dict[str, str] = {}
    environments: dict[str, str] = {}
    modules: dict[str, dict[str, Any]] = {
        **{name: {} for name in ("nemo_rl", "nemo_rl.distributed", "nemo_rl.environments")},
        "nemo_rl.distributed.ray_actor_environment_registry": {
            "ACTOR_ENVIRONMENT_REGISTRY": actors
        },
        "nemo_rl.distributed.virtual_cluster": {"PY_EXECUTABLES": SimpleNamespace(SYSTEM="python")},
        "nemo_rl.environments.utils": {"register_env": environments.__setitem__},
        "nemo_rl.environments.interfaces": {
            "EnvironmentReturn": lambda **fields: ("its own", fields["answers"])
        },
        "ray": {"remote": lambda **options: lambda kind: (kind, options)},
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[], **content))
    assert register_nemo_rl("ours") == "ours"
    (path,) = environments.values()
    assert environments == {"ours": path} and actors == {path: "python"}
    module, _, name = path.rpartition(".")
    try:
        # create_env looks the actor's class up by this path
        kind, options = getattr(sys.modules[module], name)
        assert kind is RewardEnvironment and options == {"max_restarts": -1, "max_task_retries": -1}
        assert RewardEnvironment({"reward": Moody}).step([log("four")], [{}], True) == (
            "its own",
            ["four"],
        )
    finally:
        vars(nemo_rl).pop(name, None)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for cfg, there in (({"rewrad": "x", "a": 1}, "a, rewrad"), ({}, "none")):
        with pytest.raises(ConfigError, match=f"no key 'reward'; its keys are: {there}"):
            RewardEnvironment(cfg)
    with pytest.raises(ConfigError, match="github.com/NVIDIA-NeMo/RL"):
        register_nemo_rl()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="needs Ray"):
        _ = nemo_rl.RewardActor
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = nemo_rl.Nothing
