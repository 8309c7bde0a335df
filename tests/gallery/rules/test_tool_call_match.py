"""Calls match by name and arguments, in any order, with BFCL's tolerance of types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ToolCall, ToolFunction
from rm_gallery.gallery.rm.agent.tool_call_match import ToolCallMatchReward, same
from rm_gallery.gallery.rm.agent.tool_calls import calls_in_text
from tests.gallery.rules.support import result_of, score_of, unscored


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def said(*calls: dict[str, Any]) -> str:
    return "".join(f"<tool_call>{json.dumps(c)}</tool_call>\r\n" for c in calls)


F1, F2, G = call("f", x=1), call("f", x=2), call("g", city="Paris")


@pytest.mark.parametrize(
    ("made", "expected_calls", "any_order", "in_order", "partial"),
    [
        ([F1], [F1], 1.0, 1.0, 1.0),
        ([F1, G], [F1, G], 1.0, 1.0, 1.0),
        pytest.param([G, F1], [F1, G], 1.0, 0.0, 1.0, id="other_order"),
        pytest.param([F1], [F1, G], 0.0, 0.0, 2 / 3, id="one_missing"),
        pytest.param([F1, G, G], [F1, G], 0.0, 0.0, 0.8, id="one_too_many"),
        pytest.param([F1] * 8, [F1], 0.0, 0.0, 2 / 9, id="many_calls_do_not_help"),
        pytest.param([F2], [F1], 0.0, 0.0, 0.0, id="other_value"),
        pytest.param([call("g", x=1)], [F1], 0.0, 0.0, 0.0, id="other_name"),
        pytest.param([call("f", x=1, y=2)], [F1], 0.0, 0.0, 0.0, id="argument_added"),
        pytest.param([call("f")], [F1], 0.0, 0.0, 0.0, id="argument_left_out"),
        pytest.param([], [F1], 0.0, 0.0, 0.0, id="no_call"),
        pytest.param([], [], 1.0, 1.0, 1.0, id="rightly_no_call"),
        pytest.param([F1], [], 0.0, 0.0, 0.0, id="wrongly_a_call"),
        ([call("查询", 城市="北京")], [call("查询", 城市="北京")], 1.0, 1.0, 1.0),
    ],
)
def test_matching(
    made: list[dict[str, Any]], expected_calls: list[dict[str, Any]], any_order: float, in_order: float, partial: float
) -> None:
    text = said(*made)
    assert score_of(ToolCallMatchReward(), text, tool_calls=expected_calls) == any_order
    assert score_of(ToolCallMatchReward(ordered=True), text, tool_calls=expected_calls) == in_order
    assert score_of(ToolCallMatchReward(partial=True), text, tool_calls=expected_calls) == pytest.approx(partial)


@pytest.mark.parametrize(
    ("given", "wanted", "tolerant", "strict"),
    [
        (5, 5.0, True, False),
        (5, 5, True, True),
        pytest.param(True, 1, False, False, id="true_is_not_one"),
        pytest.param("5", 5, False, False, id="text_is_no_number"),
        ("New York, NY", "new york ny", True, False),
        ("2024-01-15", "2024/01/15", True, False),
        ("it's", 'it"s', True, False),
        ([1, 2], (1, 2), True, True),
        ([1, 2], [2, 1], False, False),
        ({"a": 1}, {"a": 1.0}, True, False),
        ({"a": 1}, {"a": 1, "b": 2}, False, False),
        pytest.param({"a": 1}, {"a": [1, 2], "b": ["", 3]}, True, True, id="possible_values_of_nested_keys"),
        pytest.param({"a": 1}, {"a": [1, 2], "b": [3]}, False, False, id="a_nested_key_that_may_not_be_absent"),
        (None, None, True, True),
        (None, 0, False, False),
        (10**400, 1.5, False, False),
        (0.1 + 0.2, 0.3, True, False),
    ],
)
def test_values(given: Any, wanted: Any, tolerant: bool, strict: bool) -> None:
    assert same(given, wanted, True) is tolerant
    assert same(given, wanted, False) is strict


POSSIBLE = [{"weather": {"city": ["Paris", "Paris, France"], "days": [1, ""], "unit": ["", "celsius"]}}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"city": "paris"}, 1.0),
        ({"city": "Paris, France", "days": 1.0, "unit": "Celsius"}, 1.0),
        ({"city": "Paris", "days": 2}, 0.0),
        ({"days": 1}, 0.0),
        ({"city": "Paris", "more": 1}, 0.0),
    ],
)
def test_possible_answers(arguments: dict[str, Any], expected: float) -> None:
    assert score_of(ToolCallMatchReward(), said(call("weather", **arguments)), POSSIBLE) == expected


def test_overlapping_possible_answers_find_the_best_pairing() -> None:
    wanted = [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]
    assert score_of(ToolCallMatchReward(), said(F1, F2), wanted) == 1.0


def test_defaults_of_the_definition() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"default": 3}}}}}]
    reward = ToolCallMatchReward()
    assert score_of(reward, said(call("f", x=1, n=3)), [F1], tools=tools) == 1.0
    assert score_of(reward, said(call("f", x=1, n=4)), [F1], tools=tools) == 0.0
    assert score_of(reward, said(F1), [call("f", x=1, n=3)], tools=tools) == 1.0
    assert score_of(reward, said(F1), [call("f", x=1, n=3)]) == 0.0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"name": "f", "arguments": {}}', ["f"]),
        ('[{"name": "f", "arguments": {}}, {"name": "g", "parameters": {"a": 1}}]', ["f", "g"]),
        ('{"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}', ["f"]),
        ('Sure:\n```json\n{"name": "f", "arguments": {}}\n```', ["f"]),
        ('[TOOL_CALLS] [{"name": "f", "arguments": {}}]', ["f"]),
        ("[f(a=1, b='x'), mod.g()]", ["f", "mod.g"]),
        ("f(a=[1, {'k': None}])", ["f"]),
        ("<think><tool_call>{}</tool_call></think>no call", []),
        ("just text", []),
        ('{"answer": 42}', []),
        ("f(x)", []),
        ("f(a=__import__('os').getcwd())", []),
        ("f(" * 500, []),
        ("", []),
    ],
)
def test_reading_text(text: str, names: list[str]) -> None:
    assert [found.name for found in calls_in_text(text).calls] == names


def test_an_unreadable_call_counts_as_made() -> None:
    text = said(F1) + "<tool_call>{broken</tool_call>"
    assert score_of(ToolCallMatchReward(), text, [F1]) == 0.0
    assert score_of(ToolCallMatchReward(partial=True), text, [F1]) == pytest.approx(2 / 3)


def test_calls_in_their_field_and_in_steps() -> None:
    def message(**arguments: Any) -> Step:
        return Step(tool_calls=[ToolCall(function=ToolFunction(name="f", arguments=json.dumps(arguments)))])

    sample = DataSample(
        output=[DataOutput(answer=message(x=2), steps=[message(x=1)])], metadata={"tool_calls": [F1, F2]}
    )
    both: Any = result_of(ToolCallMatchReward(trajectory=True, ordered=True), sample).details[0]
    assert both.score == 1.0
    assert result_of(ToolCallMatchReward(), sample).extra_data == {"matched": 1, "expected": 2, "made": 1}


@pytest.mark.parametrize("expected_calls", [None, "plain text", 5, [{"arguments": {}}]])
def test_unscored(expected_calls: Any) -> None:
    assert unscored(ToolCallMatchReward(), said(F1), expected_calls) == "no_reference"
