"""slime: one sample or a list, rewards under a key, and the mean that a sample without a score
stands at.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.integrations.slime import slime_reward
from tests.integrations.adapters import Moody, Row, slime_sample
from tests.integrations.test_scoring import Longest


def sample(
    text: str, prompt: Any = "q", label: Any = None, metadata: Any = None
) -> SimpleNamespace:
    return slime_sample(Row(prompt, text, label), metadata)


def one(reward: Any, given: Any, **args: Any) -> Any:
    """slime awaits what it called."""
    return asyncio.run(reward(SimpleNamespace(**args), given, evaluation=False))


def test_one_sample_or_a_list() -> None:
    reward = slime_reward("math_verify_reward")
    assert (
        one(reward, sample("\\boxed{4}", label="4")) == 1.0
        and reward.__name__ == "math_verify_reward"
    )
    assert one(reward, (sample("\\boxed{4}", label="4"), sample("\\boxed{5}", label="4"))) == [
        1.0,
        0.0,
    ]
    assert one(reward, []) == []
    assert one(slime_reward(Moody), sample("four<|im_end|>")) == 4.0
    # a prompt may be messages, metadata anything
    assert (
        one(reward, sample("\\boxed{4}", [{"role": "user", "content": "2+2?"}], "4", "none")) == 1.0
    )
    assert (
        one(
            slime_reward("math_verify_reward", reference="gold"),
            sample("4", metadata={"gold": "4"}),
        )
        == 1.0
    )
    grouped = [sample("ab", prompt="p"), sample("abcd", prompt="p"), sample("x", prompt="other")]
    assert one(slime_reward(Longest, worst=0.0), grouped) == [0.5, 1.0, 1.0]
    talk = sample("x")
    talk.response = [{"role": "assistant", "content": "four"}]
    assert one(slime_reward(Moody), talk) == 4.0


def test_a_sample_is_scored_again_as_it_was_before() -> None:
    def noted(messages: list[Any], **kwargs: Any) -> float:
        return float(any(name.startswith("reward_") for name in kwargs))

    again = sample("x", metadata={"own": 1})
    assert [one(slime_reward(noted, worst=0.0), again) for _ in range(2)] == [0.0, 0.0], (
        "what was written into it is no column"
    )
    assert again.metadata == {
        "own": 1,
        "reward_components": {"score": 0.0},
        "reward_status": "scored",
    }


def test_components_and_flags_stand_under_a_reward_key() -> None:
    reward, samples = (
        slime_reward(Moody),
        [sample(text) for text in ("four", "none", "fail", "sixsix")],
    )
    flags = one(reward, samples, reward_key="score")
    assert [each["score"] for each in flags] == [4.0, 5.0, 5.0, 6.0]
    assert [each.remove_sample for each in samples] == [False, True, True, False]
    assert samples[1].metadata["reward_components"] == {"score": None}
    # one without a score has a number under the component's key too
    assert one(slime_reward(Moody), sample("none"), reward_key="words")["words"] == -1.0
    with pytest.raises(
        ConfigError,
        match="--reward-key accuracy: Moody gives failed, score, unscored, words; name one",
    ):
        one(reward, sample("four"), reward_key="accuracy")
    assert one(reward, sample("none"), eval_reward_key="accuracy")["accuracy"] == 14 / 3, (
        "nothing is known of it yet"
    )


def test_a_component_that_a_score_lacks_is_its_mean_and_out_of_the_loss_where_it_is_trained_on() -> (
    None
):
    reward, samples = (
        slime_reward(Moody),
        [sample(text) for text in ("two words", "bare", "none", "one")],
    )
    found = one(reward, samples, reward_key="words", eval_reward_key="score")
    assert [each["words"] for each in found] == [2.0, 1.5, 1.5, 1.0]
    assert [each.remove_sample for each in samples] == [False, True, True, False]
    assert samples[1].metadata["reward_status"] == "unscored: no words"
    other = [sample("four"), sample("bare")]
    found = one(reward, other, reward_key="score", eval_reward_key="words")
    assert [each.remove_sample for each in other] == [False, False] and found[1]["words"] == 1.0
