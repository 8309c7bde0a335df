"""Rule graders over tool calls and trajectories: right, wrong, empty, hostile and non-Latin inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rm_gallery.core.graders.bridge import as_reward
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderError, GraderScore


def call(name: str, as_text: bool = True, **arguments: Any) -> dict[str, Any]:
    written = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
    return {"id": f"{name}-{len(arguments)}", "type": "function", "function": {"name": name, "arguments": written}}


def says(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def tool(text: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text}


USER = {"role": "user", "content": "查一下奥斯陆的天气"}
OSLO, ROME = call("weather", city="Oslo"), call("weather", city="Rome")
CN = call("天气", 城市="奥斯陆")
SWAPPED = {"name": "pay", "arguments": {"from": "a", "to": "b"}}
SWAPPED_BACK = {"name": "pay", "arguments": {"from": "b", "to": "a"}}


def graded(grader: str, fields: dict[str, Any], **settings: Any) -> Any:
    found = GraderRegistry.create(grader, **settings).evaluate(fields)
    if isinstance(found, GraderError):
        return found.error_type
    assert isinstance(found, GraderScore)
    return pytest.approx(found.score)


MATCH = "tool_call_precision_recall_match"
SEQUENCE = "tool_call_sequence_match"
STEPS = "tool_call_step_sequence_match"


@pytest.mark.parametrize(
    ("grader", "made", "wanted", "settings", "expected"),
    [
        (MATCH, [OSLO], [OSLO], {}, 1.0),
        (MATCH, [call("weather", as_text=False, city="Oslo")], [OSLO], {}, 1.0),
        (MATCH, [ROME], [OSLO], {}, 0.0),
        (MATCH, [ROME], [OSLO], {"match_arguments": False}, 1.0),
        (MATCH, [OSLO, ROME], [ROME, OSLO], {}, 1.0),
        (MATCH, [OSLO] * 8, [OSLO], {}, 2 / 9),  # calling everything does not pay
        (MATCH, [OSLO] * 8, [OSLO], {"metric": "recall"}, 1.0),
        (MATCH, [OSLO] * 8, [OSLO], {"metric": "precision"}, 1 / 8),
        (MATCH, [OSLO], [OSLO, ROME], {"metric": "jaccard"}, 1 / 2),
        (MATCH, [SWAPPED_BACK], [SWAPPED], {}, 0.0),
        (
            MATCH,
            [{"name": "f", "arguments": {"b": 1, "a": 2}}],
            [{"name": "f", "arguments": {"a": 2, "b": 1}}],
            {},
            1.0,
        ),
        (MATCH, [CN], [CN], {}, 1.0),
        (MATCH, [], [], {}, 1.0),
        (MATCH, [], [OSLO], {}, 0.0),
        (MATCH, [OSLO], [], {}, 0.0),
        (MATCH, ["weather(", 5, None], [OSLO], {}, 0.0),
        (MATCH, "no json", [OSLO], {}, "no_tool_calls"),
        (MATCH, [OSLO], "no json", {}, "no_reference"),
        (SEQUENCE, [OSLO, ROME], [OSLO, ROME], {}, 1.0),
        (SEQUENCE, [ROME, OSLO], [OSLO, ROME], {}, 0.5),
        (SEQUENCE, [OSLO, CN, ROME], [OSLO, ROME], {}, 0.8),
        (SEQUENCE, [], [], {}, 1.0),
    ],
)
def test_tool_calls(grader: str, made: Any, wanted: Any, settings: dict[str, Any], expected: Any) -> None:
    assert graded(grader, {"tool_calls": made, "reference_tool_calls": wanted}, **settings) == expected


@pytest.mark.parametrize(
    ("messages", "wanted", "settings", "expected"),
    [
        ([USER, says(OSLO), tool("5"), says(ROME)], [OSLO, ROME], {}, 1.0),
        ([USER, says(OSLO), says(ROME)], [[OSLO], [ROME]], {}, 1.0),
        ([USER, says(ROME, OSLO)], [[OSLO, ROME]], {}, 1.0),
        ([USER, says(ROME), says(OSLO)], [OSLO, ROME], {}, 0.5),
        ([USER, says(OSLO), says(OSLO)], [OSLO], {}, 2 / 3),
        ([USER, says(ROME)], [OSLO], {}, 0.0),
        ([USER, says(ROME)], [OSLO], {"match_arguments": False}, 1.0),
        ([USER, {"role": "assistant", "content": "5 degrees"}], [OSLO], {}, 0.0),
        ([{"message": USER}, {"message": says(OSLO)}], [OSLO], {}, 1.0),
        ([], [OSLO], {}, "no_messages"),
        ("text", [OSLO], {}, "no_messages"),
    ],
)
def test_steps_in_order(messages: Any, wanted: Any, settings: dict[str, Any], expected: Any) -> None:
    assert graded(STEPS, {"messages": messages, "reference_tool_calls": wanted}, **settings) == expected


LOOP = [USER, says(OSLO), tool("5"), says(OSLO), tool("5"), says(OSLO), tool("5")]
STRAIGHT = [USER, says(OSLO), tool("five degrees and rain"), says(ROME), tool("sunny all week long")]


@pytest.mark.parametrize(
    ("grader", "fields", "settings", "expected"),
    [
        ("action_loop_detection", {"messages": LOOP}, {}, 0.0),
        ("action_loop_detection", {"messages": STRAIGHT}, {}, 1.0),
        ("action_loop_detection", {"messages": [USER]}, {}, 1.0),
        ("action_loop_detection", {"messages": STRAIGHT}, {"similarity_threshold": 0.5}, 0.0),
        ("action_loop_detection", {"messages": [USER, says(call("f", a=1, b=2)), says(call("f", b=2, a=1))]}, {}, 0.0),
        ("action_loop_detection", {"messages": None}, {}, "no_messages"),
        ("observation_information_gain", {"messages": STRAIGHT}, {}, 1.0),
        ("observation_information_gain", {"messages": LOOP}, {}, 1 / 3),
        ("observation_information_gain", {"messages": [USER]}, {}, "no_observations"),
        ("observation_information_gain", {"messages": [USER, tool("下雨"), tool("晴天")]}, {}, (1 + (1 - 0.0)) / 2),
        ("tool_usage_efficiency", {"messages": STRAIGHT}, {}, 0.4 + 0.4 + 0.2 * 0.8),
        ("tool_usage_efficiency", {"messages": LOOP}, {}, 0.4 / 3 + 0.4 / 3 + 0.2 * (1 / 3 + 0.3)),
        ("tool_usage_efficiency", {"messages": [USER]}, {}, "no_tool_calls"),
        ("trajectory_step_efficiency", {"messages": STRAIGHT}, {}, 1.0),
        ("trajectory_step_efficiency", {"messages": LOOP}, {}, 1 / 3),
        ("trajectory_step_efficiency", {"messages": STRAIGHT, "reference_step_count": 1}, {}, 0.6 + 0.4 / 2),
        ("trajectory_step_efficiency", {"messages": STRAIGHT, "reference_step_count": 0}, {}, "no_reference"),
        # polling a tool until its state changes leads somewhere
        (
            "trajectory_step_efficiency",
            {"messages": [USER, says(OSLO), tool("pending"), says(OSLO), tool("done: 5 degrees")]},
            {},
            1.0,
        ),
        (
            "trajectory_step_efficiency",
            {"messages": [USER, says(OSLO), tool([{"type": "text", "text": "5"}])]},
            {},
            1.0,
        ),
    ],
)
def test_trajectories(grader: str, fields: dict[str, Any], settings: dict[str, Any], expected: Any) -> None:
    assert graded(grader, fields, **settings) == expected


def test_observations_belong_to_the_call_of_their_id() -> None:
    one, two = {**OSLO, "id": "1"}, {**ROME, "id": "2"}
    answers = [
        {"role": "tool", "tool_call_id": "2", "content": "b"},
        {"role": "tool", "tool_call_id": "1", "content": "a"},
    ]
    again = [says({**OSLO, "id": "3"}), {"role": "tool", "tool_call_id": "3", "content": "a"}]
    assert graded("trajectory_step_efficiency", {"messages": [USER, says(one, two), *answers, *again]}) == 2 / 3


def test_as_a_reward_it_reads_the_answers_own_calls() -> None:
    from rm_gallery import DataOutput, DataSample, Step

    step = Step.model_validate({"role": "assistant", "content": "", "tool_calls": [OSLO]})
    sample = DataSample(output=[DataOutput(answer=step)], metadata={"reference_tool_calls": [OSLO]})
    assert as_reward(MATCH).evaluate(sample).output[0].answer.reward.score == 1.0
