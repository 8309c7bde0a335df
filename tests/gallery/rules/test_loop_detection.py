"""Loops of words, lines and tool calls are found, and plain repetition in style is none."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.data.schema import DataOutput, DataSample, Step
from rm_gallery.core.model.message import ToolCall, ToolFunction
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.agent.loop_detection import LoopDetectionReward, looping
from tests.gallery.rules.support import result_of, score_of, unscored


@pytest.mark.parametrize(
    ("items", "min_repeats", "max_period", "min_items", "count"),
    [
        ("aaa", 3, 5, 1, 2),
        ("aa", 3, 5, 1, 0),
        ("ababab", 3, 5, 1, 4),
        ("ababab", 3, 1, 1, 0),
        ("abcabc", 2, 5, 1, 3),
        ("abcabcab", 2, 5, 1, 5),
        ("xaaay", 3, 5, 1, 2),
        ("aaabbb", 3, 5, 1, 4),
        ("aaaa", 2, 5, 1, 3),
        ("aaa", 3, 5, 4, 0),
        ("abc", 2, 5, 1, 0),
        ("", 2, 5, 1, 0),
    ],
)
def test_looping(items: str, min_repeats: int, max_period: int, min_items: int, count: int) -> None:
    assert looping(items, min_repeats, max_period, min_items) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A normal sentence. Another one.", 1.0),
        ("ha ha ha ha", 1.0),
        ("x", 1.0),
        pytest.param("yes " * 100, 0.01, id="one_word_for_ever"),
        pytest.param("I will try again.\r\n" * 10, 0.1, id="one_line_for_ever"),
        pytest.param("我再试一次\n" * 4, 0.25, id="chinese_lines"),
        pytest.param("a b\n" * 2 + "c d", 1.0, id="twice_is_no_loop"),
        pytest.param("\n".join(["first", "second"] * 5), 0.2, id="two_lines_in_turn"),
        pytest.param("| --- | --- | --- | --- |\n| a | b | c | d |", 1.0, id="a_table"),
        pytest.param("0 0 0 0 0 0 0 0", 1.0, id="a_row_of_zeros"),
    ],
)
def test_texts(text: str, expected: float) -> None:
    assert score_of(LoopDetectionReward(), text) == pytest.approx(expected)


def _steps(*arguments: str) -> DataSample:
    calls = [Step(tool_calls=[ToolCall(function=ToolFunction(name="f", arguments=a))]) for a in arguments]
    return DataSample(output=[DataOutput(answer=Step(content="done"), steps=calls)])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{}"] * 4, 0.25),
        (['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a":1,"b":2}'], 1 / 3),
        (['{"a": 1}', '{"a": 2}', '{"a": 3}'], 1.0),
        (['{"a": 1}', '{"a": 2}'] * 3, 1 / 3),
        (["{}"] * 2, 1.0),
    ],
)
def test_tool_calls_of_a_trajectory(arguments: list[str], expected: float) -> None:
    detail: Any = result_of(LoopDetectionReward(), _steps(*arguments)).details[0]
    assert detail.score == pytest.approx(expected)


def test_empty_is_unscored() -> None:
    assert unscored(LoopDetectionReward(), "") == "empty"
    assert unscored(LoopDetectionReward(), " \r\n --- ") == "empty"


@pytest.mark.parametrize("wrong", [{"min_repeats": 1}, {"max_period": 0}, {"max_word_period": 0}])
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LoopDetectionReward(**wrong)
