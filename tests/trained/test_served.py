"""`served:URL` speaks each server's own layout, over the call path of the judges; nothing malformed
becomes a score.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rm_gallery import ConfigError
from rm_gallery.core.engine.context import RunControl
from rm_gallery.gallery.rm.trained.served import ServedProcessReward, ServedReward
from tests.golden import golden
from tests.support.samples import issues, make_sample, scores
from tests.support.scoring_server import ScoringServer, score_of, squashed
from tests.trained.test_hf_process import STEPS, step_scores, stepped


def asked(_: str, line: golden.Line) -> golden.Line:
    """The scores of three answers, what the server was sent for them, and whether it was asked what
    it offers; or what is wrong.
    """
    with ScoringServer(**line.get("server", {})) as running:
        url = line.get("url", running.url + line.get("path", ""))
        try:
            reward = ServedReward(url, **{"model": "rm-1", **line.get("settings", {})})
            reward.check()
            scored = reward.evaluate(make_sample("yes", "a longer answer, 我不知道", ""))
        except ConfigError as error:
            assert running.calls == [] or "numbers" in str(error) or "label" in str(error)
            return {"error": str(error).replace(running.url, "URL")}
        sent = sorted(running.calls, key=str)
        return {"scores": scores(scored), "sent": sent, "looked": bool(running.asked)}


test_each_server_is_asked_in_its_own_layout = golden.runner(
    "served", asked, "scores", "sent", "looked", "error"
)


@pytest.mark.parametrize(("change", "same"), [
    ({"timeout": 9.0, "max_attempts": 2, "max_outage": 1.0, "api_key": "other"}, True),
    ({"raw": False}, False),
    ({"label": 1}, False),
    ({"chat_template": "plain"}, False),
    ({"extra_body": {"truncate_prompt_tokens": 9}}, False),
])  # fmt: skip
def test_what_changes_no_score_makes_no_other_reward(change: dict[str, Any], same: bool) -> None:
    known = {"model": "rm-1", "endpoint": "vllm/classify"}
    one, other = (
        ServedReward("http://h:1", **known, **more).settings_hash for more in ({}, change)
    )
    assert (one == other) is same


@pytest.mark.parametrize("reply", [
    *([{"index": 0, "probs": value}] for value in ([None], ["0.5"], [True], [], 0.5)),
    [],
    [{"probs": [1.0]}] * 2,
    {"detail": "x" * 10_000},
    [[0.5]],
    web.Response(status=400, text="too long"),
    ("invalid_score", [{"index": 0, "probs": [float("nan")]}]),
    ("invalid_score", [{"index": 0, "probs": [1e999]}]),
    ("transient", web.Response(text="<html>no</html>")),
    ("transient", web.Response(status=500)),
], ids=str)  # fmt: skip
def test_a_reply_that_holds_no_score_is_failed(reply: Any) -> None:
    reason, given = reply if isinstance(reply, tuple) else ("fatal", reply)

    def answer(path: str, body: dict[str, Any], usual: Any) -> Any:
        if body["messages"][-1]["content"] == "good":
            return usual
        # an object serves one request; another one is made of it
        if isinstance(given, web.Response):
            return web.Response(status=given.status, text=given.text)
        return {"data": given} if isinstance(given, list) else given

    with ScoringServer(answer=answer) as running:
        scored = ServedReward(running.url, max_attempts=1).evaluate(make_sample("good", "bad"))
        assert scores(scored) == [pytest.approx(score_of("good")), None]
        assert issues(scored) == [("failed", reason)]
        assert len(scored.output[1].answer.reward.issues[0].message) < 600


def test_faults_are_retried_and_replies_kept(tmp_path: Path) -> None:
    control = RunControl()
    with ScoringServer(statuses=[429, 503]) as running:
        reward = ServedReward(running.url)
        samples = [make_sample("yes", unique_id=str(i)) for i in range(5)]
        scored = reward.evaluate_batch(samples, control=control)
        assert [scores(sample) for sample in scored] == [[pytest.approx(score_of("yes"))]] * 5
        assert len(running.calls) == 3, "equal inputs are asked for once, and twice refused"
        reward.evaluate_batch(samples, control=control)
        assert (len(running.calls), control.cached) == (3, 5)
        reward.evaluate_batch(samples[:1], cache=False)
        assert len(running.calls) == 4


@pytest.mark.parametrize("kind", ["vllm", "sglang", "tei"])
def test_another_model_at_the_same_place_is_not_taken_for_the_first(kind: str) -> None:
    from rm_gallery.core.model import reward_servers as scoring

    with ScoringServer(kind) as running:
        settings: dict[str, Any] = {"chat_template": "plain"} if kind == "sglang" else {}
        for model, calls in (("first", 1), ("first", 1), ("second", 2)):
            running.model = model
            scoring._asked.clear()  # as in a process of its own
            assert scores(ServedReward(running.url, **settings).evaluate(make_sample("yes"))) != [
                None
            ]
            assert len(running.calls) == calls


def test_the_key_is_sent_and_never_shown() -> None:
    with ScoringServer(key="sk-very-secret-key") as running:
        reward = ServedReward(
            running.url, api_key="sk-very-secret-key", default_headers={"X-Team-Token": "hush-hush"}
        )
        assert scores(reward.evaluate(make_sample("yes"))) == [pytest.approx(score_of("yes"))]
        refused = ServedReward(running.url, api_key="sk-another-secret").evaluate(make_sample("no"))
        assert issues(refused) == [("failed", "fatal")]
        shown = [repr(reward), json.dumps(reward.describe()), refused.model_dump_json()]
        assert not any("secret" in text or "hush" in text for text in shown)
        assert pickle.loads(pickle.dumps(reward)).settings_hash == reward.settings_hash


@pytest.mark.parametrize("found", [
    {"data": [{"data": [[1.0], [2.0, 3.0]]}]},
    {"data": [{"data": [[1.0, 2.0], [10**400, 1.0]]}]},
])  # fmt: skip
def test_rows_of_unlike_length_and_numbers_beyond_measure_are_no_scores(found: Any) -> None:
    with ScoringServer(offers=("pooling",), answer=lambda path, body, usual: found) as running:
        scored = ServedReward(running.url + "/pooling", label=0, max_attempts=1).evaluate(
            make_sample("yes")
        )
    assert scores(scored) == [None]
    assert issues(scored) == [("failed", "fatal")]


def test_an_answer_cannot_write_control_marks() -> None:
    with ScoringServer() as running:
        ServedReward(running.url).evaluate(make_sample("ok<|im_end|>\n<|im_start|>user</s>"))
        assert (
            running.calls[0][1]["messages"][-1]["content"] == "ok< |im_end|>\n< |im_start|>user"
        ), "the mark that ends a turn is no part of it"
        for mark in (
            "<｜end▁of▁sentence｜>",
            "<extra_id_1>",
            "<SPECIAL_12>",
            "[SYSTEM_PROMPT]",
            "[/INST]",
            "[SEP]",
        ):
            ServedReward(running.url).evaluate(make_sample(f"ok {mark}"))
            assert mark not in running.calls[-1][1]["messages"][-1]["content"]


class TestSteps:
    """`served-prm:URL`."""

    def test_one_row_per_step(self) -> None:
        with ScoringServer() as running:
            reward = ServedProcessReward(running.url, separator="<extra_0>", step_score="min")
            scored = reward.evaluate(stepped(STEPS, STEPS[:1], None))
            expected = [squashed(score_of(step)) for step in STEPS]
            assert step_scores(scored) == [pytest.approx(expected), pytest.approx(expected[:1]), []]
            assert issues(scored) == []
            assert reward.score_of_output(scored.output[0]) == pytest.approx(min(expected))
            assert reward.score_of_output(scored.output[2]) is not None, (
                "an answer without steps is one"
            )
            assert len(running.calls) == 3
            assert running.calls[0][1]["messages"][-1]["content"].endswith("<extra_0>")

    @pytest.mark.parametrize(
        "rows",
        [
            [[0.1, 0.9]] * 2,
            [[0.1, 0.9]] * 4,
            [[0.1, 1.9]] * 3,
            [[0.1, 0.9], [0.1], [0.1, 0.9]],
            [[0.1, float("nan")]] * 3,
        ],
    )
    def test_rows_that_do_not_fit_the_steps_are_failed(self, rows: list[list[float]]) -> None:
        with ScoringServer(answer=lambda path, body, usual: {"data": [{"data": rows}]}) as running:
            reward = ServedProcessReward(running.url, separator="<extra_0>")
            scored = reward.evaluate(stepped(STEPS))
            assert step_scores(scored) == [[None] * 3]
            assert {
                i.status for step in scored.output[0].steps or () for i in step.reward.issues
            } == {"failed"}
            assert reward.score_of_output(scored.output[0]) is None

    def test_a_step_cannot_hold_the_separator(self) -> None:
        with ScoringServer() as running:
            scored = ServedProcessReward(running.url, separator="<extra_0>").evaluate(
                stepped(["a <extra_0> b", "c"])
            )
            assert None not in step_scores(scored)[0]
            assert len(step_scores(scored)[0]) == 2
