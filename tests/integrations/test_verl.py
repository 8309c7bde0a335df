"""verl: which form is async, which prompt is asked with, and what a configuration on the command
line may say.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from rm_gallery import ConfigError, FakeLLM, reward_function
from rm_gallery.integrations import verl
from rm_gallery.integrations.verl import verl_overrides, verl_reward
from tests.integrations.adapters import Moody
from tests.support.judge_server import JudgeServer


def test_the_async_form_is_told_from_the_blocking_one() -> None:
    awaited, blocking = verl_reward(Moody), verl_reward(Moody, sync=True)
    assert inspect.iscoroutinefunction(awaited) and inspect.iscoroutinefunction(verl.compute_score)
    assert not inspect.iscoroutinefunction(blocking) and not inspect.iscoroutinefunction(
        verl.compute_score_sync
    )
    asked = {
        "data_source": "x",
        "solution_str": "four",
        "ground_truth": "4",
        "extra_info": {"question": "q"},
    }
    found = asyncio.run(awaited(**asked, reward_router_address="h:1"))
    assert found == blocking(**asked, reward_router_address="h:1") and found["score"] == 4.0


def test_it_asks_with_the_first_prompt_there_is_and_verls_own_truth_wins() -> None:
    @reward_function(score_range=(0, 13))
    def told(
        messages: list[Any], ground_truth: Any = None, data_source: Any = None, **kwargs: Any
    ) -> float:
        assert data_source == "x"
        return float(
            {"p": 1, "r": 2, "q": 4, "o": 5}[messages[0].text] + 8 * (ground_truth == "own")
        )

    reward = verl_reward(told, worst=0.0, sync=True)
    infos: list[dict[str, Any]] = [
        {"question": "q", "raw_prompt": "r", "prompt": "p"},
        {"question": "q", "raw_prompt": "r", "prompt": None},
        {"question": "q"},
    ]
    beside = {"ground_truth": "of the row", "data_source": "of the row"}
    assert [reward("x", "a", "own", {**info, **beside})["score"] for info in infos] == [
        9.0,
        10.0,
        12.0,
    ]
    named = verl_reward(told, worst=0.0, sync=True, prompt="other")
    assert named("x", "a", "own", {"prompt": "p", "other": "o"})["score"] == 13.0
    with pytest.raises(
        ConfigError,
        match=r"no key 'other' \(prompt=\); its keys: data_source, ground_truth, prompt",
    ):
        named("x", "a", "own", {"prompt": "p"})


def test_a_batch_is_scored_as_one_by_one_without_infos_too() -> None:
    texts, golds = ["\\boxed{4}", "5", "4"], ["4", "4", None]
    batch = verl.compute_scores(["x"] * 3, texts, golds, reward="math_verify_reward")
    rows = zip(texts, golds, strict=True)
    single = [
        verl.compute_score_sync("x", text, gold, reward="math_verify_reward") for text, gold in rows
    ]
    assert batch == single and [each["score"] for each in batch] == [1.0, 0.0, 0.5]
    assert (
        asyncio.run(verl.compute_score("x", "4", "4", None, reward="math_verify_reward"))
        == batch[0]
    )


def test_responses_of_unknown_prompts_are_not_compared() -> None:
    reward = verl.VerlReward("base_helpfulness_listwise", llm=FakeLLM(reply="<best>1</best>"))
    with pytest.raises(ConfigError, match="extra_info holds no prompt.*prompt=.*ground_truth"):
        reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"])
    found = reward.compute_scores(["x"] * 2, ["a", "b"], ["4", "4"], [{"prompt": "2+2?"}] * 2)
    assert sorted(each["score"] for each in found) == [0.0, 1.0]


def test_extra_info_is_read_from_arrays_and_left_alone() -> None:
    import numpy as np

    info = {
        "question": np.array([{"role": "user", "content": "q"}], dtype=object),
        "other": np.int64(7),
    }
    reward = verl_reward("math_verify_reward", reference="gold", columns={"id": "other"}, sync=True)
    there = "data_source, ground_truth, other, question"
    with pytest.raises(ConfigError, match=f"no column 'gold'; the columns are: {there}"):
        reward("x", "4", None, info)
    info["gold"] = np.array(["4"])
    before = dict(info)
    assert reward("x", "4", None, info)["score"] == 1.0 and info == before
    # from then on a row without it is a failed one, and the training goes on
    assert reward("x", "4", None, {"other": 1})["failed"] == 1.0


@pytest.mark.parametrize(("settings", "message"), [
    ({}, "No reward is named; add .*reward_kwargs.reward=NAME"),
    ({"reward": "math_verify_reward", "base_url": "router"}, "verl serves no reward model; set reward.reward_model"),
    ({"reward": "math_verify_reward", "components": ["acc"]}, "components names 'acc'"),
])  # fmt: skip
def test_what_is_wrong_with_a_configuration_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verl.compute_score_sync("x", "4", "4", None, **settings)
    with pytest.raises(ConfigError, match="write a file with verl_reward"):
        verl_overrides("x", llm=object())


def test_the_router_of_verl_is_an_endpoint_of_openais_kind() -> None:
    with (
        JudgeServer("fixed:<score>4</score>") as router,
        JudgeServer("fixed:<score>2</score>") as other,
    ):
        settings = {"reward": "base_helpfulness_pointwise", "llm": "a-model", "base_url": "router"}
        found = [
            verl.compute_score_sync(
                "x", "4", None, None, **settings, reward_model_tokenizer=object(),
                reward_router_address=server.base_url.removeprefix("http://").removesuffix("/v1"),
            )["score"]
            for server in (router, other, router)
        ]  # fmt: skip
    assert found == [4.0, 2.0, 4.0]
