"""Small rollouts in every layout that is read: one question, one call of a tool, one answer."""

from __future__ import annotations

from typing import Any

ASKED = "How many rows has the table?"
THOUGHT, SQL, SEEN, SAID = "I count them.", '{"query":"SELECT COUNT(*)"}', "3", "It has 3 rows."
Row = dict[str, Any]


def verifiers_trace() -> Row:
    """As `Trace.to_record()` writes it, with a second branch that was given up."""
    call = {"id": "c1", "name": "sql", "arguments": SQL}
    messages: list[Row] = [
        {"role": "system", "content": "You know SQL."},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": "I give up."},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": THOUGHT,
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "c1", "content": SEEN},
        {"role": "assistant", "content": SAID},
    ]
    parents = [None, 0, 1, 1, 3, 4]
    nodes = [
        {
            "parent": parent,
            "message": message,
            "sampled": message["role"] == "assistant",
            "timestamp": 1.0 + at,
            "token_ids": [at],
            "mask": [True],
        }
        for at, (parent, message) in enumerate(zip(parents, messages, strict=True))
    ]
    return {
        "version": 1,
        "id": "t1",
        "task": {
            "type": "Sql",
            "data": {"prompt": ASKED, "answer": "3", "info": {"level": "easy"}},
        },
        "agent": {"name": "agent", "config": {}},
        "tools": [{"name": "sql", "description": "", "parameters": {}}],
        "nodes": nodes,
        "calls": [],
        "rewards": {
            "right": {"score": 1.0, "weight": 1.0},
            "short": {"score": 0.5, "weight": 0.2},
            "judge": None,
        },
        "metrics": {"turns": 2.0},
        "info": {},
        "is_completed": True,
        "ok": True,
        "stop_condition": None,
        "errors": [],
    }


def nemo_gym() -> Row:
    """As `gym eval run` writes it."""
    output: list[Row] = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": THOUGHT}]},
        {"type": "function_call", "call_id": "c1", "name": "sql", "arguments": SQL},
        {"type": "function_call_output", "call_id": "c1", "output": SEEN},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": SAID, "annotations": []}],
        },
    ]
    asked = [
        {"type": "message", "role": "system", "content": "You know SQL."},
        {"type": "message", "role": "user", "content": ASKED},
    ]
    return {
        "responses_create_params": {"input": asked, "tools": [{"type": "function", "name": "sql"}]},
        "response": {"object": "response", "model": "m", "output": output},
        "reward": 1.1,
        "reward_components": {"right": 1.0, "short": 0.1},
        "expected_answer": "3",
        "level": "easy",
        "_ng_task_index": 4,
        "_ng_rollout_index": 1,
    }


def atif() -> Row:
    """As Harbor's agents write `trajectory.json`."""
    return {
        "schema_version": "ATIF-v1.5",
        "session_id": "s1",
        "agent": {"name": "a", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You know SQL."},
            {"step_id": 2, "source": "user", "message": ASKED},
            {
                "step_id": 3,
                "source": "agent",
                "message": "",
                "reasoning_content": THOUGHT,
                "tool_calls": [
                    {
                        "tool_call_id": "c1",
                        "function_name": "sql",
                        "arguments": {"query": "SELECT COUNT(*)"},
                    }
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": SEEN}]},
            },
            {"step_id": 4, "source": "agent", "message": SAID},
        ],
        "final_metrics": {"total_prompt_tokens": 9},
    }


def openai_dump() -> Row:
    """A list of chat messages with a reward."""
    call = {"id": "c1", "type": "function", "function": {"name": "sql", "arguments": SQL}}
    return {
        "id": "d1",
        "messages": [
            {"role": "system", "content": "You know SQL."},
            {"role": "user", "content": ASKED},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": THOUGHT,
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "c1", "content": SEEN},
            {"role": "assistant", "content": SAID},
        ],
        "reward": 1.1,
        "answer": "3",
        "level": "easy",
    }


def anthropic_dump() -> Row:
    """Messages of blocks, the system prompt apart."""
    blocks: list[Row] = [
        {"type": "thinking", "thinking": THOUGHT},
        {"type": "tool_use", "id": "c1", "name": "sql", "input": {"query": "SELECT COUNT(*)"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": SEEN}
    return {
        "id": "d2",
        "system": "You know SQL.",
        "messages": [
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "text", "text": SAID}]},
        ],
        "reward": 1.1,
        "reference": "3",
    }


def verifiers_results() -> Row:
    """A line of `results.jsonl` of verifiers before v1."""
    dump = openai_dump()["messages"]
    return {
        "example_id": 7,
        "prompt": dump[:2],
        "completion": dump[2:],
        "answer": "3",
        "reward": 1.1,
        "metrics": {"right": 1.0, "short": 0.5},
        "info": {"level": "easy"},
        "error": None,
        "is_completed": True,
    }


def inspect_sample() -> Row:
    """A sample of an Inspect log, whose calls have the name under `function`."""
    call = {
        "id": "c1",
        "type": "function",
        "function": "sql",
        "arguments": {"query": "SELECT COUNT(*)"},
    }
    thought = [{"type": "reasoning", "reasoning": THOUGHT}]
    return {
        "id": "i1",
        "epoch": 1,
        "input": ASKED,
        "target": "3",
        "messages": [
            {"role": "system", "content": "You know SQL."},
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": thought, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "function": "sql", "content": SEEN},
            {"role": "assistant", "content": SAID},
        ],
        "output": {"completion": SAID},
        "scores": {"right": {"value": 1.1}},
    }


ROLLOUTS: dict[str, Row] = {
    "verifiers": verifiers_trace(),
    "verifiers results": verifiers_results(),
    "NeMo-Gym": nemo_gym(),
    "ATIF": atif(),
    "OpenAI messages": openai_dump(),
    "Anthropic messages": anthropic_dump(),
}


# -- what may become of a rollout, in every layout -------------------------------------------------

THANKS, BYE = "Thanks, that is all.", "Bye."
LATER: list[Row] = [
    {"role": "user", "content": THANKS},
    {"role": "assistant", "content": BYE},
]
"""What follows the answer in a dialogue: a user's turn, and the agent's."""


def _longer_trace() -> Row:
    row = verifiers_trace()
    for message in LATER:
        parent, sampled = len(row["nodes"]) - 1, message["role"] == "assistant"
        row["nodes"].append({"parent": parent, "message": message, "sampled": sampled})
    return row


def _longer_gym() -> Row:
    row = nemo_gym()
    row["response"]["output"] += [{"type": "message", **message} for message in LATER]
    return row


def _longer_atif() -> Row:
    row = atif()
    sources = {"user": "user", "assistant": "agent"}
    row["steps"] += [
        {"step_id": 5 + at, "source": sources[turn["role"]], "message": turn["content"]}
        for at, turn in enumerate(LATER)
    ]
    return row


def _longer(row: Row, key: str = "messages") -> Row:
    return {**row, key: [*row[key], *LATER]}


DIALOGUES: dict[str, Row] = {
    "verifiers": _longer_trace(),
    "verifiers results": _longer(verifiers_results(), "completion"),
    "NeMo-Gym": _longer_gym(),
    "ATIF": _longer_atif(),
    "OpenAI messages": _longer(openai_dump()),
    "Anthropic messages": _longer(anthropic_dump()),
}
"""The rollouts, in which a user speaks once more after the answer."""


def inspect_log(*samples: Row) -> Row:
    """A log of Inspect as one JSON document."""
    return {"eval": {}, "samples": list(samples)}


def _nothing(row: Row, **keys: Any) -> list[Row]:
    return [{**row, **keys}, {**row, **dict.fromkeys(keys)}]


CRASHED: dict[str, list[Row]] = {
    "verifiers": [
        *_nothing(verifiers_trace(), nodes=[]),
        {**verifiers_trace(), "ok": False, "errors": [{"type": "ModelError", "message": "503"}]},
    ],
    "verifiers results": [
        *_nothing(verifiers_results(), completion=[]),
        {**verifiers_results(), "reward": 0.0, "error": {"error": "ModelError"}},
        {**verifiers_results(), "completion": None, "reward": 0.0, "error": "ModelError"},
    ],
    "NeMo-Gym": [
        *_nothing(nemo_gym(), response={}),
        {**nemo_gym(), "response": {"output": [], "error": {"code": "server_error"}}},
    ],
    "ATIF": [
        *_nothing(atif(), steps=[]),
        {**atif(), "steps": atif()["steps"][:2]},
        {**atif(), "exception_info": {"exception_type": "AgentTimeoutError"}},
    ],
    "OpenAI messages": [
        *_nothing(openai_dump(), messages=[]),
        {**openai_dump(), "messages": openai_dump()["messages"][:2]},
        {**openai_dump(), "error": "ModelError"},
    ],
    "Anthropic messages": [
        *_nothing(anthropic_dump(), messages=[]),
        {**anthropic_dump(), "messages": anthropic_dump()["messages"][:1]},
        {**anthropic_dump(), "error": "ModelError"},
    ],
}
"""Rollouts that never came to an answer, as each layout records them."""
