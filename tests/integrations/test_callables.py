"""LangSmith, Langfuse and reward-kit: which value of a run is the prompt, which the answer, and what else is a column."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rm_gallery import ConfigError, Message, reward_function
from rm_gallery.core.utils.errors import DataError
from rm_gallery.integrations.callables import endpoint_function, langfuse_evaluator, langsmith_evaluator
from tests.integrations.adapters import Moody


def told(messages: list[Any], ground_truth: Any = None, **columns: Any) -> dict[str, Any]:
    """What arrived, as the words of a score."""
    kept = {name: value for name, value in sorted(columns.items()) if len(name) == 1}
    return {"score": 1.0, "reason": repr(([m.text for m in messages], ground_truth, kept))}


@pytest.mark.parametrize(
    ("inputs", "outputs", "settings", "said"),
    [
        ({"question": "q"}, {"answer": "a"}, {}, "['q', 'a']"),
        ({"anything": "q"}, {"whatever": "a"}, {}, "['q', 'a']"),
        ({"question": "q", "x": 1}, {"answer": "a", "y": 2}, {}, "['q', 'a']"),
        ({"p": "q", "question": "no"}, {"c": "a", "answer": "no"}, {"prompt": "p", "completion": "c"}, "['q', 'a']"),
        ("q", "a", {}, "['q', 'a']"),
        ({"question": "q"}, SimpleNamespace(c="a"), {"completion": "c"}, "['q', 'a']"),
        ({"question": "q", "prompt": "p"}, "a", {}, "which key of the input is meant? Say it with prompt=…; its keys: question, prompt."),
        ({"x": "q", "y": "p"}, "a", {}, "which key of the input is meant?"),
        ({}, "a", {}, "its keys: none."),
        ("q", {"text": "a", "output": "b"}, {}, "which key of the output is meant? Say it with completion=…"),
        ("q", {"text": "a"}, {"completion": "c"}, "the output has no key 'c' (completion=); its keys: text."),
    ],
)  # fmt: skip
def test_which_value_is_meant(inputs: Any, outputs: Any, settings: dict[str, Any], said: str) -> None:
    judge = langfuse_evaluator(told, **settings)
    try:
        (found,) = asyncio.run(judge(input=inputs, output=outputs))
        assert found["comment"] == f"({said}, None, {{}})"
    except ConfigError as error:
        assert said in str(error)
    if isinstance(inputs, dict) and "meant" not in said and "no key" not in said and "none" not in said:
        (found,) = langsmith_evaluator(told, **settings)(inputs, outputs)["results"]
        assert f"({said}, None" in found["comment"]


def test_rows_are_the_inputs_under_the_reference_outputs_and_the_metadata_under_the_expected_output() -> None:
    judge = langsmith_evaluator(told, reference="a")
    (found,) = judge({"question": "q", "a": 1, "b": 1}, "x", {"a": 2})["results"]
    assert found["comment"] == "(['q', 'x'], 2, {'a': 2, 'b': 1})"
    (found,) = asyncio.run(langfuse_evaluator(told)(input="q", output="x", expected_output="t", metadata={"b": 1}))
    assert found["comment"] == "(['q', 'x'], 't', {'b': 1})"
    expected = {"a": 2, "b": 2}
    call = langfuse_evaluator(told, reference="a")(input="q", output="x", expected_output=expected, metadata={"b": 1})
    (found,) = asyncio.run(call)
    assert found["comment"] == "(['q', 'x'], 2, {'a': 2, 'b': 2})"


def test_langfuses_own_object_is_given_where_langfuse_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("langfuse")
    module.Evaluation = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langfuse", module)
    found = asyncio.run(langfuse_evaluator(Moody)(input="q", output="four"))
    assert [(one.name, one.value, one.comment) for one in found] == [("Moody", 4.0, None), ("Moody.words", 1.0, None)]


def test_an_endpoint_function_sees_the_original_messages_it_was_given() -> None:
    @reward_function
    def asked(messages: list[Message], original_messages: list[dict[str, Any]], **kwargs: Any) -> float:
        return float("".join(turn["content"] for turn in original_messages))

    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "x"}]
    other = [{"role": "user", "content": "2"}]
    function = endpoint_function(asked)
    assert [function(turns, original_messages=given).score for given in (None, turns[:1], other)] == [1.0, 1.0, 2.0]
    assert asyncio.run(function.acall(turns, original_messages=other)).score == 2.0
    truth = endpoint_function("math_verify_reward")
    assert truth(turns, ground_truth="x").score == asyncio.run(truth.acall(turns, ground_truth="x")).score == 1.0
    with pytest.raises(DataError):
        function([{"content": "no role"}])
