"""benchmax: its three contracts, the hooks of a group, and what a rollout is labelled with."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError, FakeLLM, reward_function
from rm_gallery.integrations.benchmax import BenchmaxRewards
from rm_gallery.integrations.causes import NoScore
from tests.integrations.adapters import Moody
from tests.integrations.test_scoring import Longest


@reward_function(score_range=(0.0, 1.0))
def asked_briefly(messages: list[Any], ground_truth: Any = None, **kwargs: Any) -> float:
    """Whether the prompt and the row arrived."""
    return float(messages[0].text == "be brief" and ground_truth in ("4", None))


class Maths(BenchmaxRewards):
    """An environment of a user's: benchmax' own base class adds no reward."""

    rewards = {
        "correct": "math_verify_reward", "length": Moody, "brief": asked_briefly, "longest": {"reward": Longest, "worst": 0.0},
    }  # fmt: skip


ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]
SAID = [{"role": "assistant", "content": "\\boxed{4}"}]
TRUTH = {"ground_truth": "4"}


def rollout(name: str, said: str = "\\boxed{4}", truth: Any = "4") -> SimpleNamespace:
    messages = [*ASKED, {"role": "assistant", "content": said}]
    return SimpleNamespace(rollout_id=name, messages=messages, example_args={"ground_truth": truth})


SHOTS = [*ASKED, *SAID, *ASKED]
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "1, text": (("r", "\\boxed{4}", "4"), {"prompt": ASKED}),
    "1, by name": (
        (),
        {"rollout_id": "r", "completion": SAID, "ground_truth": "4", "prompt": ASKED},
    ),
    "2": (("r", [*ASKED, *SAID], TRUTH), {}),
    "2, by name": ((), {"rollout_id": "r", "messages": [*ASKED, *SAID], "task": TRUTH}),
    "2, prompt with shots": (("r", [*SHOTS, *SAID], {**TRUTH, "prompt_messages": SHOTS}), {}),
    "3": ((rollout("r"),), {}),
    "3, by name": ((), {"rollout": rollout("r")}),
}


@pytest.mark.parametrize("call", CALLS)
def test_generations_are_told_from_the_call_or_named(call: str) -> None:
    given, named = CALLS[call]
    wanted = {"correct": 1.0, "length": 9.0, "brief": 1.0}
    assert asyncio.run(Maths().compute_reward(*given, **dict(named))) == wanted
    told = type("Told", (Maths,), {"generation": int(call[0])})()
    assert asyncio.run(told.compute_reward(*given, **dict(named))) == wanted


def test_group_hooks_compare_and_share_no_key_with_the_others() -> None:
    env, texts = Maths(), ["ab", "abcd"]
    talks = [[*ASKED, {"role": "assistant", "content": text}] for text in texts]
    wanted = [{"longest": 0.5}, {"longest": 1.0}]
    assert asyncio.run(env.compute_group_reward(["a", "b"], talks, [TRUTH] * 2)) == wanted
    assert asyncio.run(env.compute_group_reward(["a", "b"], texts, ["4", "4"])) == wanted
    named = {"rollout_ids": ["a", "b"], "completions": texts, "ground_truths": ["4", "4"]}
    assert asyncio.run(env.compute_group_reward(**named)) == wanted
    third = asyncio.run(env.compute_group_rewards([rollout("a", "ab"), rollout("b", "abcd")]))
    assert third == {"a": {"longest": 0.5}, "b": {"longest": 1.0}}
    alone = type("Alone", (BenchmaxRewards,), {"rewards": [Moody]})()
    assert asyncio.run(alone.compute_group_reward(["a", "b"], talks, [TRUTH, None])) == [{}, {}]
    assert asyncio.run(alone.compute_group_rewards([rollout("a")])) is None


def test_without_a_task_and_without_a_score_the_keys_stay_the_same() -> None:
    numbers = type("OnlyNumbers", (Maths,), {"on_error": -1.0})()
    with pytest.raises(NoScore, match="correct gave no score .unscored, no_reference"):
        asyncio.run(Maths().compute_reward("r", [*ASKED, *SAID], None))
    assert asyncio.run(numbers.compute_reward("r", [*ASKED, *SAID], None)) == {
        "correct": -1.0,
        "length": 9.0,
        "brief": 1.0,
    }
    failed = [*ASKED, {"role": "assistant", "content": "fail"}]
    assert asyncio.run(numbers.compute_reward("r", failed, TRUTH)) == {
        "correct": 0.0,
        "length": -1.0,
        "brief": 1.0,
    }
    gold = type("Gold", (BenchmaxRewards,), {"rewards": [Moody], "reference": "gold"})()
    assert asyncio.run(gold.compute_reward("r", [*ASKED, *SAID], None)) == {"Moody": 9.0}, (
        "a playground has no task"
    )
    with pytest.raises(ConfigError, match="no column 'gold'; the columns are: ground_truth"):
        asyncio.run(type("Other", (type(gold),), {})().compute_reward("r", [*ASKED, *SAID], TRUTH))


def test_a_rollout_is_labelled_with_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class RolloutFailure(RuntimeError):
        def __init__(self, termination_reason: str, message: str) -> None:
            super().__init__(message)
            self.termination_reason = termination_reason

    # where it stood first, and where it stands
    for module in ("benchmax.envs", "benchmax.envs.shared_types"):
        with monkeypatch.context() as patch:
            for name in ("benchmax", "benchmax.envs"):
                patch.setitem(sys.modules, name, ModuleType(name))
            if module.endswith("types"):
                patch.setitem(sys.modules, module, ModuleType(module))
            patch.setattr(sys.modules[module], "RolloutFailure", RolloutFailure, raising=False)
            for said, truth, reason in (
                ("fail", "fail", "judge_error"),
                ("4", None, "reward_error"),
            ):
                with pytest.raises(RolloutFailure, match="gave no score") as caught:
                    asyncio.run(Maths().compute_reward(rollout("r", said, truth)))
                assert caught.value.termination_reason == reason
            with pytest.raises(NoScore):
                asyncio.run(Maths().compute_reward("r", "fail", "fail"))


def test_a_judge_is_for_those_that_ask_and_name_none() -> None:
    one, other = (FakeLLM(reply=f"<score>{score}</score>") for score in (3, 5))
    judged = {"reward": "base_helpfulness_pointwise"}
    rewards = {"a": judged, "b": {**judged, "llm": other}, "c": Moody}
    env = type("Env", (BenchmaxRewards,), {"rewards": rewards, "llm": one})
    assert asyncio.run(env().compute_reward("r", [*ASKED, *SAID], TRUTH)) == {
        "a": 3.0,
        "b": 5.0,
        "c": 9.0,
    }


@pytest.mark.parametrize(("settings", "said"), [
    ({"rewards": {}}, "Wrong.rewards is empty"),
    ({"rewards": [Moody, Moody]}, "two rewards are called 'Moody'"),
    ({"rewards": {"a": {"llm": "x"}}}, r"rewards\['a'\] names no reward; its keys: llm"),
    ({"rewards": ["math_verify"]}, "math_verify_reward"),
    ({"rewards": [Moody], "on_error": "none"}, "on_error is 'none'"),
])  # fmt: skip
def test_what_does_not_fit_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        type("Wrong", (BenchmaxRewards,), settings)().scorers()
