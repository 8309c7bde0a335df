"""verifiers: the columns of a v0 rollout, the turns of a v1 trace, and the metrics of a rubric."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rm_gallery import ConfigError, EvaluateResult, FakeLLM, reward_function
from rm_gallery.integrations.causes import NoScore
from rm_gallery.integrations.verifiers import (
    verifiers_group_reward,
    verifiers_reward,
    verifiers_rubric,
)
from rm_gallery.train.live import LiveWatch, TrainingStopped
from rm_gallery.train.watch import TrainingFinding
from tests.integrations.adapters import Moody, Row, trace
from tests.integrations.test_adapters import shortest

ASKED, SAID = [{"role": "user", "content": "q"}], [{"role": "assistant", "content": "four"}]


def seen(*names: str) -> Any:
    """A reward that gives what it sees of some columns as its message."""

    def look(messages: list[Any], **kwargs: Any) -> dict[str, Any]:
        told = {name: kwargs.get(name) for name in (*names, "ground_truth")}
        return {"score": 1.0, "reason": repr(([m.role for m in messages], told))}

    return verifiers_reward(look, worst=0.0)


def looked(reward: Any, **given: Any) -> Any:
    found: list[str] = []
    score = reward.scorer.ascore

    async def noted(*arguments: Any) -> Any:
        outcome = await score(*arguments)
        found.append(outcome.reason)
        return outcome

    reward.scorer.ascore = noted
    asyncio.run(reward(**given))
    return found[0]


def test_v0_columns_are_plain_ones_of_the_data_set_under_task_and_info() -> None:
    row = {
        "answer": "4",
        "task": {"a": 1, "b": 1},
        "info": {"b": 2},
        "c": [3],
        "client": "x",
        "parser": {},
        "d": object(),
    }
    text = looked(
        seen("a", "b", "c", "client", "parser", "d"), prompt=ASKED, completion=SAID, state={}, **row
    )
    columns = (
        "{'a': 1, 'b': 2, 'c': [3], 'client': None, 'parser': None, 'd': None, 'ground_truth': '4'}"
    )
    assert text == f"(['user', 'assistant'], {columns})"
    for answer, reference in (("", None), ("4", "4")):
        assert f"'ground_truth': {reference!r}" in looked(
            seen(), prompt=ASKED, completion=SAID, answer=answer
        )
    assert "'ground_truth': 'r'" in looked(
        seen(), prompt=ASKED, completion=SAID, answer="4", info={"reference": "r"}
    )


def test_v0_keeps_the_first_error_of_a_rollout_and_every_rewards_numbers() -> None:
    state: dict[str, Any] = {"error": "of the rollout"}
    for name, text in (("a", "fail"), ("b", "four")):
        said = [{"role": "assistant", "content": text}]
        asyncio.run(
            verifiers_reward(Moody, name=name)(
                prompt=ASKED, completion=said, answer="", state=state
            )
        )
    assert state["error"] == "of the rollout"
    assert {name: kept["failed"] for name, kept in state["rm_gallery"].items()} == {
        "a": 1.0,
        "b": 0.0,
    }


def test_v1_reads_the_last_branch_from_what_was_sampled_on() -> None:
    class Task:
        def model_dump(self, mode: str) -> dict[str, Any]:
            return {"answer": mode}

    for sampled in (True, False):  # a trace that was read again does not know what was sampled
        one = trace(Row("q", "four"), sampled)
        one.branches.insert(0, SimpleNamespace(nodes=[]))
        found = looked(seen("answer"), task=Task(), trace=one)
        assert found == "(['user', 'assistant'], {'answer': 'python', 'ground_truth': None})"
    few_shot = trace(Row("q", "four"))
    shot = trace(Row("shot", "x"), sampled=False).branches[0].nodes
    few_shot.branches[0].nodes[:0] = shot
    assert "['user', 'assistant', 'user', 'assistant']" in looked(seen(), task=None, trace=few_shot)
    said = verifiers_reward(lambda messages, **kwargs: float(len(messages)), worst=0.0)
    assert (
        asyncio.run(
            said(task={}, trace=SimpleNamespace(branches=[], record_metrics=lambda metrics: None))
        )
        == 1.0
    ), "where nobody said anything there is an empty turn"


def test_v1_messages_are_read_in_openais_layout() -> None:
    def calls(messages: list[Any], **kwargs: Any) -> float:
        (call,) = messages[1].tool_calls or []
        return float(
            "f" in (call["function"]["name"] if isinstance(call, dict) else call.function.name)
        )

    one = trace(Row("q", "done"))
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}],
    }
    body = {**asked, "provider_state": {"x": 1}}
    message = SimpleNamespace(
        role="assistant", model_dump=lambda exclude_none: {k: v for k, v in body.items() if v}
    )
    one.branches[0].nodes.insert(1, SimpleNamespace(sampled=True, message=message))
    assert asyncio.run(verifiers_reward(calls, worst=0.0)(task={}, trace=one)) == 1.0


class Rubric:
    """verifiers v0's, as far as it is told."""

    def __init__(self, funcs: list[Any], weights: list[float], parser: Any) -> None:
        self.funcs, self.weights, self.parser, self.metrics = funcs, weights, parser, list[Any]()

    def add_metric(self, metric: Any) -> None:
        self.metrics.append(metric)


def test_a_rubric_of_rewards_has_their_numbers_as_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="pip install 'verifiers<0.2'"):
        verifiers_rubric([Moody])
    module = ModuleType("verifiers")
    module.Rubric, module.Error = Rubric, type("Error", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", module)
    made = verifiers_reward(Moody, components="words")
    rubric = verifiers_rubric([made, "math_verify_reward"], parser="p", on_error=-1.0)
    assert (rubric.funcs[0], rubric.weights, rubric.parser) == (made, [1.0, 1.0], "p")
    assert rubric.funcs[1].scorer.on_error == -1.0 and verifiers_rubric([made], [2]).weights == [
        2.0
    ]
    names = [
        f"{name}/{flag}"
        for name in ("Moody", "math_verify_reward")
        for flag in ("unscored", "failed")
    ]
    assert [metric.__name__ for metric in rubric.metrics] == ["Moody/words", *names]
    state: dict[str, Any] = {}
    said = [{"role": "assistant", "content": "fail"}]
    asyncio.run(made(prompt=ASKED, completion=said, answer="", state=state))
    assert [metric(state) for metric in rubric.metrics] == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert type(state["error"]) is module.Error and rubric.metrics[0]({}) == 0.0
    for rewards, weights, told in (
        ([made, Moody], None, "Two rewards are called 'Moody'"),
        ([made], [1.0, 2.0], "There are 2 weights for 1 rewards"),
        ([], [1.0], "There are 1 weights for 0 rewards"),
    ):
        with pytest.raises(ConfigError, match=told):
            verifiers_rubric(rewards, weights)


# -- groups ----------------------------------------------------------------------------------------


def rollouts(*texts: str, **inputs: Any) -> dict[str, Any]:
    """What v0 hands a group function of the rollouts of one prompt."""
    given = {"prompt": ASKED, "answer": "4", "example_id": 0, "info": {"level": 3}, **inputs}
    states = [{"input": given, "error": None} for _ in texts]
    said = [[{"role": "assistant", "content": text}] for text in texts]
    n = len(texts)
    return {
        "prompts": [ASKED] * n,
        "completions": said,
        "answers": [given["answer"]] * n,
        "states": states,
        "tasks": ["default"] * n,
        "infos": [given["info"]] * n,
    }


def test_the_rollouts_of_a_prompt_are_compared_with_one_another() -> None:
    given = rollouts("aaaa", "aa", "aaaaa", "aaaaaaaa")
    reward = verifiers_group_reward(shortest, name="brief")
    assert asyncio.run(reward(**given)) == [0.5, 1.0, 0.4, 0.25]
    assert [each["rm_gallery"]["brief"]["score"] for each in given["states"]] == [
        0.5,
        1.0,
        0.4,
        0.25,
    ]
    assert [each["error"] for each in given["states"]] == [None] * 4
    bare = {name: given[name] for name in ("prompts", "completions")}
    assert asyncio.run(reward(**bare)) == [0.5, 1.0, 0.4, 0.25]


def test_v0_tells_it_from_a_function_of_one_rollout() -> None:
    import inspect

    plural = {"states", "prompts", "completions", "answers", "tasks", "infos"}
    assert set(inspect.signature(verifiers_group_reward(shortest)).parameters) == plural
    assert not plural & set(inspect.signature(verifiers_reward(Moody)).parameters)
    with pytest.raises(ConfigError, match="Take `verifiers_group_reward`") as refused:
        verifiers_reward(shortest)
    assert "\n" not in str(refused.value)


def test_a_group_has_the_columns_of_single_rollouts() -> None:
    found: list[Any] = []

    @reward_function(mode="batch", score_range=(0.0, 1.0))
    def look(rollouts_messages: list[Any], **kwargs: Any) -> list[EvaluateResult]:
        names = ("level", "topic", "ground_truth", "task", "example_id")
        found.append({name: kwargs.get(name) for name in names})
        return [EvaluateResult(score=1.0) for _ in rollouts_messages]

    asyncio.run(verifiers_group_reward(look)(**rollouts("a", "b", topic="sums")))
    assert len(found) == 1
    assert {name: _one(value) for name, value in found[0].items()} == {
        "level": 3,
        "topic": "sums",
        "ground_truth": "4",
        "task": None,
        "example_id": None,
    }


def _one(value: Any) -> Any:
    """The value that all rows of a column have."""
    return value[0] if isinstance(value, list) else value


def test_one_without_a_score_costs_no_other_its_own() -> None:
    texts = ("a", "fail", "four", "none")
    given = rollouts(*texts, answer="")
    given["states"][3]["error"] = "of the rollout"
    assert asyncio.run(verifiers_group_reward(Moody)(**given)) == [1.0, 0.0, 4.0, 0.0]
    errors = [each["error"] for each in given["states"]]
    assert errors[0] is None and errors[2] is None and errors[3] == "of the rollout"
    assert "the judge is gone" in str(errors[1])
    given = rollouts(*texts, answer="")
    # the mean is that of its group
    reward = verifiers_group_reward(Moody, on_error="mean")
    assert asyncio.run(reward(**given)) == [1.0, 2.5, 4.0, 2.5]
    assert [each["error"] for each in given["states"]] == [None] * 4
    kept = [each["rm_gallery"]["Moody"] for each in given["states"]]
    assert [(each["failed"], each["unscored"]) for each in kept] == [
        (0.0, 0.0),
        (1.0, 0.0),
        (0.0, 0.0),
        (0.0, 1.0),
    ]


def test_a_judge_that_cannot_be_read_labels_every_rollout() -> None:
    given = rollouts("a", "bbbb")
    reward = verifiers_group_reward("ruler", llm=FakeLLM(reply="no idea"))
    assert asyncio.run(reward(**given)) == [0.0, 0.0]
    assert all("ruler gave no score" in str(each["error"]) for each in given["states"])


def test_what_is_raised_for_one_labels_all_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """v0 makes a 0.0 of it for each of them."""
    given = rollouts("a", "fail", "four", answer="")
    with pytest.raises(NoScore):
        asyncio.run(verifiers_group_reward(Moody, on_error="raise")(**given))
    assert all("the judge is gone" in str(each["error"]) for each in given["states"])
    watch = LiveWatch(batch=2)
    stop = TrainingStopped(TrainingFinding("length", "warn", ("Moody",), "enough"))
    monkeypatch.setattr(watch, "check", Mock(side_effect=stop))
    given = rollouts("a", "four")
    with pytest.raises(TrainingStopped):
        asyncio.run(verifiers_group_reward(Moody, watch=watch)(**given))
    assert all("enough" in str(each["error"]) for each in given["states"])


def test_a_rubric_takes_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("verifiers")
    module.Rubric, module.Error = Rubric, type("Error", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", module)
    group = verifiers_group_reward(shortest, name="brief")
    rubric = verifiers_rubric([group, Moody])
    assert rubric.funcs[0] is group and rubric.funcs[1].__name__ == "Moody"
    assert [metric.__name__ for metric in rubric.metrics] == [
        f"{name}/{flag}" for name in ("brief", "Moody") for flag in ("unscored", "failed")
    ]
