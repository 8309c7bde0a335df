"""Recorded rollouts in every layout become the same sample, with what was recorded kept beside it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataError, DataSample
from rm_gallery.core.data.conversation import messages_of
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.rollouts import LAYOUTS, RolloutConverter, turns_of
from rm_gallery.study.source import Source
from tests.data.rollouts import (
    ASKED,
    BYE,
    CRASHED,
    DIALOGUES,
    LATER,
    ROLLOUTS,
    SAID,
    SEEN,
    THANKS,
    THOUGHT,
    Row,
    inspect_log,
    inspect_sample,
    nemo_gym,
    verifiers_trace,
)

WHERE = RowRef("log", 1)


def read(row: Row) -> DataSample:
    return RolloutConverter().convert(row, WHERE)


def recorded(sample: DataSample) -> dict[str, Any]:
    kept: dict[str, Any] = (sample.metadata or {})["recorded"]
    return kept


def check_turns(sample: DataSample) -> None:
    """Two turns of the prompt; thought, call, what was seen; the answer."""
    assert [(turn.role.value, turn.text) for turn in sample.input] == [
        ("system", "You know SQL."),
        ("user", ASKED),
    ]
    [output] = sample.output
    call, seen = output.steps or []
    assert (call.role.value, call.text, call.reasoning_content) == ("assistant", "", THOUGHT)
    [made] = call.tool_calls or []
    assert (made.id, made.function.name) == ("c1", "sql")
    assert json.loads(str(made.function.arguments)) == {"query": "SELECT COUNT(*)"}
    assert (seen.role.value, seen.text, seen.tool_call_id) == ("tool", SEEN, "c1")
    assert (output.answer.role.value, output.answer.text) == ("assistant", SAID)


@pytest.mark.parametrize("name", ROLLOUTS)
def test_every_layout_is_the_same_conversation(name: str) -> None:
    sample = read(ROLLOUTS[name])
    check_turns(sample)
    assert sample.reference() == (None if name == "ATIF" else "3")
    assert recorded(sample)["reward"] == (None if name == "ATIF" else pytest.approx(1.1))


def test_every_layout_has_a_rollout_here() -> None:
    assert {recorded(read(row))["layout"] for row in ROLLOUTS.values()} == set(LAYOUTS)


def test_what_cannot_be_made_anew_is_kept() -> None:
    trace = read(verifiers_trace())
    assert recorded(trace)["parts"] == {"right": 1.0, "short": 0.5, "judge": None}
    about = trace.metadata or {}
    assert (about["level"], about["metrics"], about["branches"]) == ("easy", {"turns": 2.0}, 2)
    assert trace.unique_id == "t1"
    rollout = read(nemo_gym())
    assert recorded(rollout)["parts"] == {"right": 1.0, "short": 0.1}
    assert ((rollout.metadata or {})["level"], rollout.unique_id) == ("easy", "4-1")


@pytest.mark.parametrize(
    "row",
    [
        {**verifiers_trace(), "rewards": {"right": None}},
        {**verifiers_trace(), "rewards": {}},
        {**nemo_gym(), "mask_sample": True, "reward": 0.0},
        {**nemo_gym(), "reward": None},
        {**nemo_gym(), "reward": float("nan")},
        {**ROLLOUTS["verifiers results"], "reward": 0.0, "error": {"error": "ModelError"}},
        {**verifiers_trace(), "rewards": {"right": {"score": None, "weight": 1.0}}},
        {**verifiers_trace(), "rewards": {"right": {"score": float("nan"), "weight": 1.0}}},
        {**verifiers_trace(), "rewards": {"right": {"score": 1e300, "weight": 1e300}}},
        {**nemo_gym(), "reward": float("inf")},
        {**nemo_gym(), "reward": 10**400},
        {**nemo_gym(), "reward": "nan"},
    ],
    ids=[
        *("none scored", "none", "masked", "null", "nan", "broken", "null score", "nan score"),
        *("infinite sum", "infinite", "huge", "text"),
    ],
)
def test_a_rollout_without_a_reward_has_none_and_no_zero(row: Row) -> None:
    assert recorded(read(row))["reward"] is None


@pytest.mark.parametrize("lost", [None, float("nan")])
def test_a_reward_is_the_sum_of_those_that_were_scored(lost: float | None) -> None:
    rewards = {"right": {"score": lost, "weight": 1.0}, "short": {"score": 0.5, "weight": 0.5}}
    kept = recorded(read({**verifiers_trace(), "rewards": rewards}))
    assert (kept["reward"], kept["parts"]) == (0.25, {"right": None, "short": 0.5})


def test_a_weight_that_is_none_is_one() -> None:
    rewards = {"right": {"score": 0.5, "weight": None}, "short": {"score": 0.5, "weight": 0.5}}
    assert recorded(read({**verifiers_trace(), "rewards": rewards}))["reward"] == 0.75


def test_rewards_of_a_table_of_texts_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "prompt,completion,reward\nq,a,0.5\nq,b,\nq,c,0\nq,d,1e-1\nq,e,good\n"
    )
    samples = Source(str(tmp_path / "log.csv"), "rollouts").open().rows()
    assert [recorded(sample)["reward"] for sample in samples] == [0.5, None, 0.0, 0.1, None]


def test_a_rollout_of_whole_histories_is_its_last() -> None:
    row = nemo_gym()
    asked, output = row["responses_create_params"]["input"], row["response"]["output"]
    histories = [[*asked, *output[:3]], [*asked, *output]]
    check_turns(read({**row, "response": {"output": histories}}))


@pytest.mark.parametrize("archive", [True, False])
def test_an_inspect_log_with_tools_is_a_rollout(archive: bool, tmp_path: Path) -> None:
    log = tmp_path / ("log.eval" if archive else "log.json")
    if archive:
        with zipfile.ZipFile(log, "w") as file:
            file.writestr("header.json", "{}")
            file.writestr("samples/i1_epoch_1.json", json.dumps(inspect_sample()))
    else:
        log.write_text(json.dumps({"eval": {}, "samples": [inspect_sample()]}))
    [sample] = Source(str(log), "rollouts").open().rows()
    check_turns(sample)
    assert recorded(sample)["reward"] == 1.1 and recorded(sample)["parts"] == {"right": 1.1}
    assert sample.reference() == "3"


@pytest.mark.parametrize(
    ("letter", "reward"), [("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), ("?", None)]
)
def test_letters_of_inspect_are_numbers_and_its_answers_need_no_tools(
    letter: str, reward: float | None, tmp_path: Path
) -> None:
    plain = {**inspect_sample(), "messages": [], "scores": {"includes": {"value": letter}}}
    (tmp_path / "log.json").write_text(json.dumps({"eval": {}, "samples": [plain]}))
    [sample] = Source(str(tmp_path / "log.json"), "rollouts").open().rows()
    assert recorded(sample)["reward"] == reward
    assert ([turn.text for turn in sample.input], sample.output[0].answer.text) == ([ASKED], SAID)
    assert sample.reference() == "3"


def test_a_trajectory_file_is_one_rollout(tmp_path: Path) -> None:
    (tmp_path / "trajectory.json").write_text(json.dumps(ROLLOUTS["ATIF"]))
    [sample] = Source(str(tmp_path / "trajectory.json"), "rollouts").open().rows()
    check_turns(sample)


def test_calls_of_one_turn_are_one_turn_and_a_lone_thought_is_kept() -> None:
    items: list[Row] = [
        {"type": "reasoning", "summary": [{"text": "a"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
        {"type": "function_call_output", "call_id": "2", "output": "y"},
        {"type": "reasoning", "summary": [{"text": "b"}]},
    ]
    turns = turns_of(items)
    assert [turn["role"] for turn in turns] == ["assistant", "tool", "tool", "assistant"]
    assert [call["function"]["name"] for call in turns[0]["tool_calls"]] == ["f", "g"]
    assert (turns[0]["reasoning_content"], turns[-1]["reasoning_content"]) == ("a", "b")


def test_thoughts_large_numbers_and_objects_are_kept() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 2**70, "s": "\ud800"}}
    turns = turns_of(
        [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            {"role": "assistant", "content": [call]},
            {"type": "function_call_output", "call_id": "c", "output": {"rows": [1]}},
        ]
    )
    assert turns[0]["reasoning_content"] == "hm"
    assert json.loads(turns[1]["tool_calls"][0]["function"]["arguments"]) == call["input"]
    assert turns[2]["content"] == '{"rows":[1]}'


def calls_of(sample: DataSample) -> list[str]:
    """Names of the tools that were called on the way to the answer."""
    [output] = sample.output
    turns = [*(output.steps or ()), output.answer]
    return [call.function.name for turn in turns for call in turn.tool_calls or ()]


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_is_one_trajectory_and_no_call_before_a_later_turn_is_lost(name: str) -> None:
    sample = read(DIALOGUES[name])
    assert [turn.text for turn in sample.input] == ["You know SQL.", ASKED]
    [output] = sample.output
    said = [(step.role.value, step.text) for step in output.steps or ()]
    assert said == [("assistant", ""), ("tool", SEEN), ("assistant", SAID), ("user", THANKS)]
    assert (calls_of(sample), output.answer.text) == (["sql"], BYE)


def test_a_dialogue_of_an_inspect_log_keeps_its_calls(tmp_path: Path) -> None:
    sample = inspect_sample()
    sample["messages"] += LATER
    (tmp_path / "log.json").write_text(json.dumps(inspect_log(sample)))
    [found] = Source(str(tmp_path / "log.json"), "rollouts").open().rows()
    assert (calls_of(found), found.output[0].answer.text) == (["sql"], BYE)


def test_every_layout_has_a_dialogue_and_a_crash() -> None:
    assert ROLLOUTS.keys() == DIALOGUES.keys() == CRASHED.keys()


@pytest.mark.parametrize(
    ("name", "number"), [(name, k) for name, rows in CRASHED.items() for k in range(len(rows))]
)
def test_a_crashed_rollout_says_that_it_broke(name: str, number: int) -> None:
    assert "broke" not in recorded(read(ROLLOUTS[name]))
    kept = recorded(read(CRASHED[name][number]))
    assert kept["layout"] == recorded(read(ROLLOUTS[name]))["layout"]
    named = any(word in kept["broke"] for word in ("Error", "error"))
    assert named or kept["broke"] == "the log holds no turn of the agent"
    assert kept["reward"] is None or not named  # a framework's 0 beside an error is no reward


def test_an_agent_that_said_nothing_did_not_crash() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]
    assert "broke" not in recorded(read({"messages": turns, "reward": 0.0}))
    assert "broke" not in recorded(read({"prompt": "q", "completion": "", "error": ""}))
    assert "broke" not in recorded(read({**verifiers_trace(), "errors": ["told"], "ok": True}))


def test_a_column_of_the_prompt_divides_a_chat() -> None:
    chat = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "gpt", "content": "4"},
        {"role": "user", "content": "And 3 more?"},
        {"role": "gpt", "content": "7"},
    ]
    alone = read({"messages": chat})
    assert [step.text for step in alone.output[0].steps or []] == ["4", "And 3 more?"]
    asked = read({"messages": chat, "prompt": chat[:3]})
    assert [turn.text for turn in asked.input] == ["2 + 2?", "4", "And 3 more?"]
    assert (asked.output[0].steps, asked.output[0].answer.text) == (None, "7")


def test_texts_are_kept_byte_for_byte() -> None:
    said = "سه ردیف\r\n  三行 \u200b</s>"
    row = {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": said}]}
    sample = read(row)
    assert sample.input[0].content == said and sample.output[0].answer.content == said
    long = "x" * 2**20  # the output of a tool may be large
    turns = [
        *row["messages"],
        {"role": "tool", "content": long},
        {"role": "assistant", "content": "."},
    ]
    kept = messages_of(read({"messages": turns}), read({"messages": turns}).output[0])
    assert kept[2]["content"] == long


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"a": 1}, "no recorded rollout"),
        ({**verifiers_trace(), "nodes": [{"parent": 0, "message": {"role": "user"}}]}, "parent"),
        ({**verifiers_trace(), "nodes": [{"parent": 9, "message": {"role": "user"}}]}, "parent"),
        ({**verifiers_trace(), "nodes": [{"message": "hello"}]}, "expected a message"),
        ({"responses_create_params": {}, "response": {}}, "NeMo-Gym"),
        ({**ROLLOUTS["ATIF"], "steps": [{"source": "fate"}]}, "no known source"),
        ({"messages": [{"content": "who?"}]}, "role"),
        ({"messages": [{"role": "assistant", "tool_calls": ["f"]}]}, "tool call"),
    ],
)
def test_what_is_none_is_named_with_its_row(row: Row, named: str) -> None:
    with pytest.raises(DataError, match=named) as caught:
        read(row)
    assert "log, row 1" in str(caught.value)
