"""LangSmith, Langfuse and reward-kit: which value of a run is the prompt, which the answer, and
what else is a column.
"""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rm_gallery import DataError, Message, reward_function
from rm_gallery.integrations.callables import (
    endpoint_function,
    langfuse_evaluator,
    langsmith_evaluator,
)
from tests.golden import golden
from tests.integrations.adapters import Moody


def told(messages: list[Any], ground_truth: Any = None, **columns: Any) -> dict[str, Any]:
    """What arrived, as the words of a score."""
    kept = {name: value for name, value in sorted(columns.items()) if len(name) == 1}
    return {"score": 1.0, "reason": repr(([m.text for m in messages], ground_truth, kept))}


def evaluated(of: str, **given: Any) -> Any:
    """What a reward sees of a run: as Langfuse calls it, or LangSmith where the data set's outputs
    are given.
    """
    settings, (inputs, outputs, *more) = given.get("settings", {}), given["run"]
    if of == "langsmith":
        return langsmith_evaluator(told, **settings)(inputs, outputs, *more)["results"][0][
            "comment"
        ]
    beside = dict(zip(("expected_output", "metadata"), more, strict=False))
    return asyncio.run(
        langfuse_evaluator(told, **settings)(input=inputs, output=outputs, **beside)
    )[0]["comment"]


test_which_value_is_meant_and_what_else_is_a_column = golden.calls(
    "evaluation_tools", {"runs": evaluated}
)


def test_the_output_may_be_an_object() -> None:
    judge = langfuse_evaluator(told, completion="c")
    assert (
        asyncio.run(judge(input="q", output=SimpleNamespace(c="a")))[0]["comment"]
        == "(['q', 'a'], None, {})"
    )


def test_langfuses_own_object_is_given_where_langfuse_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("langfuse")
    module.Evaluation = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langfuse", module)
    found = asyncio.run(langfuse_evaluator(Moody)(input="q", output="four"))
    assert [(one.name, one.value, one.comment) for one in found] == [
        ("Moody", 4.0, None),
        ("Moody.words", 1.0, None),
    ]


def test_an_endpoint_function_sees_the_original_messages_it_was_given() -> None:
    @reward_function(score_range=(0, None))
    def asked(
        messages: list[Message], original_messages: list[dict[str, Any]], **kwargs: Any
    ) -> float:
        return float("".join(turn["content"] for turn in original_messages))

    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "x"}]
    other = [{"role": "user", "content": "2"}]
    function = endpoint_function(asked)
    assert [
        function(turns, original_messages=given).score for given in (None, turns[:1], other)
    ] == [1.0, 1.0, 2.0]
    assert asyncio.run(function.acall(turns, original_messages=other)).score == 2.0
    truth = endpoint_function("math_verify_reward")
    assert (
        truth(turns, ground_truth="x").score
        == asyncio.run(truth.acall(turns, ground_truth="x")).score
        == 1.0
    )
    with pytest.raises(DataError):
        function([{"content": "no role"}])
