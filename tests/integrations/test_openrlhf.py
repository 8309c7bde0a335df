"""OpenRLHF: queries without their prompt, labels of JSON, and the share of the range that its
filter reads.
"""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.integrations.openrlhf import openrlhf_reward
from tests.integrations.adapters import Moody


def test_queries_without_their_prompt_fail_where_they_stand_and_cost_the_others_nothing() -> None:
    reward = openrlhf_reward("math_verify_reward")
    given = reward(["4", "q 4", "x", "q 5", "q 4"], ["q "] * 5, ["4"] * 5)
    assert given["rewards"] == given["scores"] == [2 / 3, 1.0, 2 / 3, 0.0, 1.0]
    assert given["extra_logs"] == {"unscored": [0.0] * 5, "failed": [1.0, 0.0, 1.0, 0.0, 0.0]}
    assert reward(["x", "y"], ["q ", "q "])["extra_logs"]["failed"] == [1.0, 1.0]
    assert reward(["q 4"], ["q "], None)["extra_logs"] == {"unscored": 1.0, "failed": 0.0}, (
        "there is no label"
    )


def test_labels_of_json_are_columns_and_others_are_named() -> None:
    reward = openrlhf_reward(
        "math_verify_reward", json_label=True, reference="gold", prompt="question"
    )
    given = reward(["q 4"], ["q "], [{"gold": "4", "question": "2+2?"}])  # some loaders parse them
    assert given == {"rewards": 1.0, "scores": 1.0, "extra_logs": {"unscored": 0.0, "failed": 0.0}}
    assert given == reward(["q 4"], ["q "], ['{"gold": "4", "question": "2+2?"}'])
    with pytest.raises(ConfigError, match=r"no key 'query' \(prompt=\); its keys: gold, question"):
        openrlhf_reward(Moody, json_label=True, prompt="query")(
            ["q 4"], ["q "], ['{"gold": "4", "question": "?"}']
        )
    with pytest.raises(ConfigError, match="prompt is 'question'.*json_label=True as well"):
        openrlhf_reward(Moody, prompt="question")
    for label, said in (
        ("{", "is no JSON"),
        ("[1]", r"is '\[1\]'; give JSON objects"),
        ("4", "is '4'"),
    ):
        with pytest.raises(ConfigError, match=f"json_label=True, but a label {said}"):
            reward(["q"], ["q"], [label])


def test_the_prompt_that_a_label_names_is_the_one_that_is_asked_with() -> None:
    def asked(messages: list[Any], **kwargs: Any) -> float:
        return float(messages[0].text == "2+2?")

    for prompt, score in (("question", 1.0), (None, 0.0)):
        reward = openrlhf_reward(asked, worst=0.0, json_label=True, prompt=prompt)
        assert reward(["<|user|>q 4"], ["<|user|>q "], ['{"question": "2+2?"}'])["rewards"] == score
