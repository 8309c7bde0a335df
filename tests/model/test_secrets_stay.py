"""Keys, headers and proxies with passwords are in no representation, description, error message or run folder, keys in no pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.models import OpenaiLLM
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.utils.errors import ConfigError
from tests.support.judge_server import JudgeServer
from tests.support.samples import make_sample

SECRET = "sk-hunter2"


def model(**settings: Any) -> OpenaiLLM:
    given: dict[str, Any] = {
        "api_key": SECRET,
        "default_headers": {"X-Gateway-Auth": SECRET},
        "proxy": f"http://user:{SECRET}@127.0.0.1:1",
    }
    return OpenaiLLM("judge-1", base_url="http://127.0.0.1:1/v1", **{**given, **settings})


VIEWS: list[tuple[str, Callable[[OpenaiLLM], object]]] = [
    ("repr", repr),
    ("str", str),
    ("describe", lambda llm: llm.describe()),
    ("the reward's repr", lambda llm: repr(RewardRegistry.create("safety_listwise_reward", llm=llm))),
    ("the reward's describe", lambda llm: RewardRegistry.create("safety_listwise_reward", llm=llm).describe()),
    ("the endpoint's key", lambda llm: llm.endpoint_key()),
]


@pytest.mark.parametrize(("name", "view"), VIEWS, ids=[name for name, _ in VIEWS])
def test_views(name: str, view: Callable[[OpenaiLLM], object]) -> None:
    assert SECRET not in str(view(model()))


def test_a_copy_in_another_process_can_call_as_well() -> None:
    """A key given in code travels with the object: a worker process has no other way to it. It is no more shown there."""
    copy = pickle.loads(pickle.dumps(OpenaiLLM("judge-1", api_key=SECRET, temperature=0.5)))
    copy.check()
    assert (copy.model, copy.temperature) == ("judge-1", 0.5)
    assert SECRET not in repr(copy)


def test_a_wrong_setting_does_not_repeat_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        model(api_keys=SECRET, temperature=-1)
    assert SECRET not in str(caught.value)
    assert "temperature" in str(caught.value)


@pytest.mark.parametrize("always", [401, 500])
def test_an_error_of_the_endpoint_does_not_repeat_the_key(always: int) -> None:
    with JudgeServer(faults={"always": always}, in_process=True) as server:
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, max_attempts=1)
        scored = RewardRegistry.create("safety_listwise_reward", llm=llm).evaluate(make_sample("a", "b"))
    messages = [issue.message for output in scored.output for issue in output.answer.reward.issues]
    assert len(messages) == 2
    assert SECRET not in str(messages)


def test_a_run_folder_holds_no_secret(tmp_path: Path) -> None:
    with JudgeServer("first", in_process=True) as server:
        headers = {"X-Gateway-Auth": SECRET}
        llm = OpenaiLLM("judge-1", base_url=server.base_url, api_key=SECRET, default_headers=headers)
        reward = RewardRegistry.create("safety_listwise_reward", llm=llm)
        reward.evaluate_batch([make_sample("a", "b")], run_dir=str(tmp_path / "run"))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"manifest.json", "results.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []
