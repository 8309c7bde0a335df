"""verifiers' own traces of one conversation with a call of a tool, as its runs write them."""

from __future__ import annotations

import json
from typing import Any

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, TraceTask, WireTrace
from verifiers.v1.types import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

call = ToolCall(id="c1", name="sql", arguments='{"query":"SELECT COUNT(*)"}')
messages: list[Any] = [
    SystemMessage(content="You know SQL."),
    UserMessage(content="How many rows has the table?"),
    AssistantMessage(content="I give up."),
    AssistantMessage(content=None, reasoning_content="I count them.", tool_calls=[call]),
    ToolMessage(tool_call_id="c1", content="3"),
    AssistantMessage(content="It has 3 rows."),
]
parents = [None, 0, 1, 1, 3, 4]
trace = WireTrace(
    task=TraceTask(type="Sql", data=WireTaskData.model_validate({"idx": 0, "answer": "3"})),
    agent=AgentInfo(config=WireAgentConfig.model_validate({})),
    nodes=[
        MessageNode(parent=parent, message=message, sampled=message.role == "assistant")
        for parent, message in zip(parents, messages, strict=True)
    ],
    ok=True,
)
trace.record_reward("right", 1.0)
trace.record_reward("short", 0.5, 0.2)
trace.rewards["judge"] = None
unscored = trace.model_copy(update={"rewards": {"right": None}})
print(json.dumps([trace.to_record(), trace.reward, unscored.to_record()]))  # noqa: T201
