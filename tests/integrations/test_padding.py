"""Columns that a trainer reads out of Arrow hold nulls that nobody wrote; what is JSON holds those
that somebody did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rm_gallery.integrations.openrlhf import openrlhf_reward
from rm_gallery.integrations.trl import trl_reward
from tests.integrations.adapters import ADAPTERS, Row, waited

pytestmark = pytest.mark.usefixtures("there")
AS_WRITTEN = {name for name in ADAPTERS if name.startswith("callables.")} | {
    "openrlhf.openrlhf_reward"
}
"""Given JSON, which does not pad."""
NO_COLUMNS = {"nemo_rl.nemo_rl_reward"}
CALLS: list[list[dict[str, Any]]] = [
    [
        {"name": "weather", "arguments": {"city": "Oslo", "days": [{"day": 1}]}},
        {"name": "stop", "arguments": {}},
    ],
    [{"name": "price", "arguments": {"symbol": "X", "days": [{"hour": 2}]}}],
]
PADDED = pa.array(CALLS).to_pylist()
SAID = [
    '<tool_call>{"name": "weather", "arguments": {"city": "Oslo", "days": [{"day": '
    '1}]}}</tool_call><tool_call>{"name": "stop", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "price", "arguments": {"symbol": "X", "days": [{"hour": 2}]}}</tool_call>',
]


@pytest.mark.parametrize("name", sorted(set(ADAPTERS) - NO_COLUMNS))
def test_a_right_tool_call_is_right_out_of_arrow_at_every_trainer(name: str) -> None:
    adapter = ADAPTERS[name]
    assert PADDED[1][0]["arguments"] == {
        "city": None,
        "days": [{"day": None, "hour": 2}],
        "symbol": "X",
    }
    made = adapter.make("tool_call_match", **({} if not adapter.chooses else {"on_error": "raise"}))
    for calls, padded, said in zip(CALLS, PADDED, SAID, strict=True):
        as_given = [
            adapter.score(waited(adapter.call(made, Row("q", said, None, {"tool_calls": one}))))
            for one in (calls, padded)
        ]
        assert as_given[0] == 1.0
        assert (as_given[1] == 1.0) is (name not in AS_WRITTEN)


def test_prompts_out_of_arrow_lose_their_padding_and_completions_keep_every_null() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": None}}}
    said = [[{"role": "assistant", "content": None, "tool_calls": [call]}]]
    reward = trl_reward("tool_call_match")
    assert reward(
        prompts=["q"], completions=said, tool_calls=[[{"name": "f", "arguments": {}}]]
    ) == [0.0]
    seen: list[Any] = []

    def kept(messages: list[Any], **columns: Any) -> float:
        seen.append([messages[0].model_dump(exclude_none=True), columns["info"]])
        return 1.0

    prompt = [{"role": "user", "content": "q", "detail": {"x": 1, "y": None}}]
    info = np.array([{"z": None, "w": [None]}], dtype=object)
    assert trl_reward(kept, worst=0.0)(prompts=[prompt], completions=["a"], info=[info]) == [1.0]
    assert seen[-1][1] == [{"w": [None]}] and "'y'" not in str(seen[-1][0])


def test_a_reference_that_is_no_number_is_none() -> None:
    reward = trl_reward("accuracy", reference="solution")
    assert reward(prompts=["q"] * 2, completions=["nan", "42"], solution=[float("nan"), 42]) == [
        None,
        1.0,
    ]


def test_labels_that_are_structs_are_padded_and_labels_of_json_text_are_not() -> None:
    made = openrlhf_reward("tool_call_match")
    assert made([f"q{said}" for said in SAID], ["q", "q"], PADDED)["rewards"] == [1.0, 1.0]
    objects = openrlhf_reward("tool_call_match", json_label=True)
    assert objects(
        [f"q{said}" for said in SAID], ["q", "q"], [{"tool_calls": one} for one in PADDED]
    )["rewards"] == [1.0, 1.0]
