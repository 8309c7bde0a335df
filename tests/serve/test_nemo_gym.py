"""NeMo-Gym's agent asks our server as it asks a resources server: a session, `/verify` with the whole
rollout, and figures at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import Response

from rm_gallery import RewardRegistry
from rm_gallery.serve.nemo_gym import aggregated
from tests.support.reward_server import RewardServer
from tests.trainers.environments import run

BLANK = ("error", "incomplete_details", "instructions", "metadata", "temperature", "top_p", "usage")


def rollout(text: str, **columns: Any) -> dict[str, Any]:
    """A row as the agent sends it: what was asked, OpenAI's response with every field, and the
    columns of the task.
    """
    part: dict[str, Any] = {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": None,
    }
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "6 * 7"}],
         "content": None, "encrypted_content": None, "status": None},
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "multiply",
         "arguments": '{"a": 6, "b": 7}', "status": "completed"},
        {"id": None, "type": "function_call_output", "call_id": "c1", "output": "42", "status": None},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [part]},
    ]  # fmt: skip
    tool = {
        "type": "function",
        "name": "multiply",
        "parameters": {"type": "object"},
        "strict": True,
    }
    response = {
        "id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [tool], **dict.fromkeys(BLANK),
    }  # fmt: skip
    asked = [{"role": "user", "content": "6 * 7?", "type": "message"}]
    params = {"input": asked, "tools": [tool], "instructions": None, "temperature": 1.0}
    return {"responses_create_params": params, "response": response, **columns}


ROWS = [
    rollout("42", expected_answer="42", _ng_task_index=0, _ng_rollout_index=0),
    rollout("41", expected_answer="42", _ng_task_index=0, _ng_rollout_index=1),
    rollout("42", _ng_task_index=1, _ng_rollout_index=0),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RewardServer({"exact": RewardRegistry.create("accuracy")}) as server:
        yield server.url


def test_a_rollout_is_verified_in_the_agents_steps(url: str) -> None:
    replies = []
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        for row in ROWS:
            seed = {name: value for name, value in row.items() if name != "response"}
            assert client.post("/seed_session", json=seed).json() == {}
            reply = client.post("/verify", json=row).raise_for_status().json()
            own = {"reward", "reward_components", "mask_sample", "failure_kind"}
            own |= {"_ng_failure_class", "_ng_failure_judge_error"}
            assert {name: value for name, value in reply.items() if name not in own} == row
            replies.append(reply)
        figures = client.post("/aggregate_metrics", json={"verify_responses": replies}).json()
        mode = client.get("/reverify_mode").json()
        observed = client.post("/ng-rollout/r-1/verify", json=ROWS[0]).json()
    assert [(each["reward"], each["mask_sample"]) for each in replies] == [
        (1.0, False), (0.0, False), (0.0, True)
    ]  # fmt: skip
    assert [each.get("_ng_failure_class") for each in replies] == [None, None, "judge_failed"]
    assert figures["key_metrics"] == {"mean/reward": 0.5}
    assert [each["_ng_task_index"] for each in figures["group_level_metrics"]] == [0]
    assert mode == "stateless" and observed == replies[0]


def test_the_response_is_what_openais_model_takes() -> None:
    without_results = ROWS[0]["response"] | {"output": [ROWS[0]["response"]["output"][-1]]}
    assert Response.model_validate(without_results).output_text == "42"


def test_what_has_no_reward_has_no_figures() -> None:
    masked: list[dict[str, Any]] = [{"reward": 0.0, "mask_sample": True}, {"reward": None}, {}]
    assert aggregated(masked) == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
    }
    one = aggregated([{"reward": 1, "reward_components": {"a": 0.5, "b": None}}])
    assert one["agent_metrics"]["mean/a"] == 0.5 and "mean/b" not in one["agent_metrics"]


@pytest.mark.trainers
@pytest.mark.system("nemo-gym")
def test_nemo_gyms_own_client_reads_the_reply(url: str) -> None:
    found = run("nemo-gym", "in_nemo_gym.py", {"url": url, "rows": ROWS})
    assert found["rewards"] == [1.0, 0.0, 0.0] and found["masked"] == [False, False, True]
    assert found["classes"] == [None, None, "judge_failed"]
    assert found["key"] == {"mean/reward": 0.5} and found["mode"] == "stateless"
