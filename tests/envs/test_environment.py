"""Environments as rewards: what they are given, what is logged, what tells them apart; scores and
helpers are golden (`environments`, `envs`).
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError, DataSample, RewardRegistry, environment_reward
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.runner.grading_runner import build_reward
from rm_gallery.envs.reward_helpers import (
    citation_score,
    extract_answer_block,
    extract_strict_answer,
)
from tests.envs import environments as envs
from tests.support.samples import issues, make_sample, scores

RIGHT, WRONG, BARE = "so <answer>4</answer>", "<answer>5</answer>", "4"


def question(*answers: str, **task: Any) -> DataSample:
    return make_sample(*answers, query="2 + 2?", metadata=task or None)


def said(sample: DataSample, place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(sample.output[place].answer.reward.extra_data.values()), {})
    return found


def test_an_environment_is_named_by_its_module_or_file() -> None:
    for name in ("env:tests.envs.environments:Correct", f"env:{envs.__file__}:Correct"):
        reward = RewardRegistry.create(name, weights={"format": 0.5})
        found = reward.evaluate(question(RIGHT, WRONG, "none", ground_truth="4"))
        assert (scores(found), reward.name) == ([1.5, 0.5, 0.0], "Correct")
        assert scores(
            pickle.loads(pickle.dumps(reward)).evaluate(question(RIGHT, ground_truth="4"))
        ) == [1.5]


TOOLS = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "w", "arguments": "{}"}}],
    },
    {"role": "tool", "content": "晴", "tool_call_id": "1"},
    {"role": "assistant", "content": [{"type": "text", "text": "sunny\r\n"}]},
]


@pytest.mark.parametrize(
    ("sample", "task"),
    [
        (sample_of_messages(TOOLS), None),
        (
            sample_of_messages(TOOLS, ground_truth="sun", row={"city": "X"}),
            {"ground_truth": "sun", "city": "X"},
        ),
        (sample_of_messages(TOOLS, row={"ground_truth": "sun"}), {"ground_truth": "sun"}),
    ],
)
def test_the_whole_conversation_and_the_row_arrive(
    sample: DataSample, task: dict[str, Any] | None
) -> None:
    env = envs.Seen()
    environment_reward(env).evaluate(sample, hooks={"step": 3})
    [(rollout, messages, given, kwargs)] = env.calls
    assert (rollout, kwargs) == (sample.sample_id, {"step": 3})
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert (
        messages[1]["content"] is None and messages[1]["tool_calls"][0]["function"]["name"] == "w"
    )
    own = given and {
        name: value for name, value in given.items() if name not in ("mine", "reference")
    }
    assert own == task and "mine" not in (sample.metadata or {})


def test_every_rollout_has_an_id_of_its_own() -> None:
    env = envs.Seen()
    environment_reward(env).evaluate(question("a", "b", "a"))
    assert sorted(call[0] for call in env.calls) == ["s#0", "s#1", "s#2"]


def test_a_component_outside_0_to_1_is_told_once(warned: list[str]) -> None:
    reward = environment_reward(envs.Odd())
    samples = [make_sample("above", "fine", "below", unique_id=str(n)) for n in range(20)]
    assert (
        all(scores(sample) == [1e300, 1.0, -0.5] for sample in reward.evaluate_batch(samples))
        and len(warned) == 2
    )
    assert "'length' is 1e+300" in "".join(warned) and "'correct' is -0.5" in "".join(warned)


@pytest.mark.parametrize("make", [envs.Correct, envs.Plain])
def test_lines_belong_to_their_rollout_and_the_host_sees_what_it_did(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger(envs.__name__).setLevel(logging.NOTSET)
    reward = environment_reward(make())
    samples = [make_sample(RIGHT, BARE, unique_id=f"r{n}") for n in range(50)]
    for n, sample in enumerate(reward.evaluate_batch(samples, max_workers=16)):
        assert said(sample)["logs"] == [f"INFO: r{n}#0 answers 4"]
        assert said(sample, 1)["logs"] == [f"INFO: r{n}#1 answers "]
    assert caplog.records == []
    envs.logger.info("outside a rollout, below the host's level")
    envs.logger.warning("seen")
    assert [record.getMessage() for record in caplog.records] == ["seen"]


def test_only_a_rollouts_own_lines_from_info_on_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    host = logging.getLogger("tests.envs.host")

    class Talks:
        def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
            host.debug("too fine")
            host.info("kept")
            return {"one": 1.0}

    reward = environment_reward(Talks(), loggers=["tests.envs.host"])
    assert said(reward.evaluate(question("a"), hooks={"unknown": 1}))["logs"] == ["INFO: kept"]
    host.info("between rollouts")
    assert said(reward.evaluate(question("a")))["logs"] == ["INFO: kept"] and caplog.records == []
    host.setLevel(logging.DEBUG)  # the host wants more from now on, and sees it
    assert said(reward.evaluate(question("a")))["logs"] == ["INFO: kept"]
    assert [record.getMessage() for record in caplog.records] == ["too fine", "kept"]


@pytest.mark.long("much work")
def test_an_environment_of_a_file_travels_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own_env.py"
    file.write_text(
        "class Own:\n    def __init__(self): self.bonus = 1.0\n"
        "    def compute_reward(self, rollout_id, messages, task, **kwargs): return {'one': "
        "self.bonus}\n",
        encoding="utf-8",
    )
    reward = build_reward(f"env:{file}")  # there is one
    reward.environment.env.bonus = 0.25  # type: ignore[attr-defined]
    code = (
        "import pickle, sys; from rm_gallery import DataSample; r = "
        "pickle.loads(sys.stdin.buffer.read())\n"
    )
    code += "s = DataSample(output=[{'answer': {'role': 'assistant', 'content': 'x'}}])\n"
    code += "print(r.evaluate(s).output[0].answer.reward.score)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(reward), capture_output=True, timeout=60
    )
    assert done.stdout.split() == [b"0.25"], done.stderr


def test_a_failed_rollout_keeps_its_lines() -> None:
    class Broken:
        def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> Any:
            logging.getLogger("tests.envs.judge").error("judge said %s", "nothing")
            logging.getLogger("tests.envs.judge").info("%d", "no number")
            raise OSError("gone")

    found = environment_reward(Broken(), loggers=["tests.envs.judge"]).evaluate(question("a"))
    assert said(found)["logs"] == ["ERROR: judge said nothing", "INFO: %d"] and issues(found) == [
        ("failed", "error")
    ]


def test_long_logs_are_cut() -> None:
    class Chatty:
        def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> Any:
            for _ in range(300):
                logging.getLogger(__name__).info("x" * 5_000)
            return {"a": 1.0}

    lines = said(environment_reward(Chatty()).evaluate(question("a")))["logs"]
    assert (len(lines), len(lines[0]), lines[-1]) == (201, 2_000, "… and 100 more lines")


def test_attributes_and_weights_identify_an_environment(tmp_path: Path) -> None:
    made = [environment_reward(envs.Weighted(limit)) for limit in (3, 4)]
    made.append(environment_reward(envs.Weighted(), weights={"a": 2}))
    assert len({reward.settings_hash for reward in made}) == 3
    samples = [question("long")]
    made[0].evaluate_batch(samples, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match="limit"):
        made[1].evaluate_batch(samples, run_dir=tmp_path / "run")


@pytest.mark.parametrize("tag", ["<answer>", "<Answer>x", "[source:", "[Source: a"])
def test_a_model_that_writes_a_tag_over_and_over_holds_nothing_up(tag: str) -> None:
    text = tag * 200_000  # whose pairs would take hours
    assert extract_answer_block(text) == text.strip() and extract_strict_answer(text) in ("", "x")
    assert citation_score(text, [{"metadata": {"source_id": "a"}}]) == {
        "precision": 0.0,
        "recall": 0.0,
    }
