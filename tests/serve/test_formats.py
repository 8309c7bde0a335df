"""The formats of others: what each takes, what it answers, and what it gets where there is no score."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rm_gallery.integrations.scoring import Scored
from rm_gallery.serve.asking import Ask, Codec, Refused
from rm_gallery.serve.codecs import CODECS, FORMATS
from tests.support.children import ROOT

BY_NAME = {codec.name: codec for codec in CODECS}
RIGHT = Scored(1.0, "scored", "", "good", {"a": 0.25, "b": 0.75})
UNSCORED = Scored(None, "unscored", "no_reference", "There is no reference.", {})
FAILED = Scored(None, "failed", "deadline", "Out of time.", {})
ASKED = {"role": "user", "content": "2 + 2?"}
SAID = {"role": "assistant", "content": "4"}
NULL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


def parsed(codec: str, body: Any, /, **params: str) -> tuple[str, list[Ask]]:
    target, asks = BY_NAME[codec].parse(body, params)
    return target, list(asks)


def one(name: str, body: Any, /, **params: str) -> Ask:
    asks = parsed(name, body, **params)[1]
    assert len(asks) == 1
    return asks[0]


def answered(name: str, body: Any, /, *found: Scored, **params: str) -> Any:
    codec: Codec = BY_NAME[name]
    _, asks = codec.parse(body, params)
    status, reply = codec.render(asks, found)
    assert status == 200
    codec.response_model.model_validate(orjson.loads(orjson.dumps(reply)))
    return reply


# -- what is asked -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_the_example_of_every_format_is_understood(codec: Codec) -> None:
    target, asks = codec.parse(codec.request_example, {"name": "x"} if "{name}" in codec.path else {"id": "x"})
    assert target in ("reward:x", "evaluator:x")
    assert asks and all(not ask.problem for ask in asks)
    status, reply = codec.render(asks, [RIGHT] * len(asks))
    assert status == 200
    codec.response_model.model_validate(reply)
    codec.request_model.model_validate(codec.request_example)  # type: ignore[union-attr]  # every one of these has a model


@pytest.mark.parametrize(
    ("name", "body", "params", "target"),
    [
        ("evaluate", {"messages": [SAID]}, {}, "evaluator:"),
        ("evaluation", {"messages": [SAID]}, {"id": "r"}, "evaluator:r"),
        ("remote_rm", {"response": "4"}, {}, ""),
        ("vllm_score", {"text_1": "a", "text_2": "b", "model": "bt"}, {}, "reward:bt"),
        ("vllm_classify_reward", {"input": "a", "model": "other"}, {"name": "bt"}, "reward:bt"),
        ("openai_run", {"model_sample": "4", "grader": {"name": "math"}}, {}, "reward:math"),
        ("openai_run", {"model_sample": "4"}, {}, ""),
        ("aws_evaluation", [{"id": "1", "messages": [SAID]}], {"id": "e"}, "evaluator:e"),
    ],
)
def test_the_target_is_that_of_the_path_or_the_one_the_format_names(
    name: str, body: Any, params: dict[str, str], target: str
) -> None:
    assert parsed(name, body, **params)[0] == target


def test_both_dialects_of_reward_kit() -> None:
    kwargs = one("evaluate", {"messages": [ASKED, SAID], "ground_truth": "4", "kwargs": {"strict": True}})
    beside = one("evaluate_as_reward", {"messages": [ASKED, SAID], "ground_truth": "4", "strict": True})
    assert kwargs == beside
    assert (kwargs.messages, kwargs.reference, kwargs.row) == ([ASKED, SAID], "4", {"strict": True})
    rich = {"messages": [ASKED, NULL], "ground_truth": {"a": [1]}, "tools": [{"x": 1}], "original_messages": [ASKED]}
    found = one("evaluate", rich)
    assert (found.messages, found.reference, found.tools, found.original_messages) == (
        [ASKED, NULL], {"a": [1]}, [{"x": 1}], [ASKED],
    )  # fmt: skip


def test_an_item_that_does_not_fit_costs_no_other_one() -> None:
    _, asks = parsed("evaluate_batch", [{"messages": [SAID]}, {"messages": "x"}, 7])
    assert [bool(ask.problem) for ask in asks] == [False, True, True]
    assert "[1].messages" in asks[1].problem and "found 'x'" in asks[1].problem


@pytest.mark.parametrize(
    ("query", "prompt", "completion"),
    [
        ("2 + 2?4", "2 + 2?", "4"),
        ("<s>2 + 2?4</s>", "2 + 2?", "4"),
        ("<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n<|endoftext|>",
         "<|im_start|>user\n2?<|im_end|>\n<|im_start|>assistant\n", "4"),
        ("2?a</s>b</s></s>", "2?", "a</s>b"),
        ("4", "", "4"),
        ("2?", "2?", ""),
    ],
)  # fmt: skip
def test_openrlhf_texts_are_cut_behind_the_prompt(query: str, prompt: str, completion: str) -> None:
    ask = one("openrlhf", {"query": [query], "prompts": [prompt], "labels": ["4"]})
    assert (ask.prompt, ask.completion, ask.reference, ask.problem) == (prompt, completion, "4", "")


def test_an_openrlhf_text_without_its_prompt_has_no_answer() -> None:
    _, asks = parsed("openrlhf", {"query": ["x 2?4", "2?4"], "prompts": ["2?", "2?"], "labels": None})
    assert [ask.problem for ask in asks] == ["query[0] does not begin with prompts[0].", ""]


def test_slime_takes_text_and_messages() -> None:
    ask = one("remote_rm", {"prompt": [ASKED], "response": "4", "label": 4, "metadata": {"k": 1}})
    assert (ask.prompt, ask.completion, ask.reference, ask.row) == ([ASKED], "4", 4, {"k": 1, "label": 4})
    assert one("remote_rm", {"prompt": "2 + 2?", "response": ""}).prompt == "2 + 2?"
    assert one("remote_rm", {"response": "4<|im_end|>\n"}).completion == "4"


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        ({"text_1": "q", "text_2": "a"}, [("q", "a")]),
        ({"text_1": "q", "text_2": ["a", "b"]}, [("q", "a"), ("q", "b")]),
        ({"text_1": ["q"], "text_2": ["a", "b"]}, [("q", "a"), ("q", "b")]),
        ({"text_1": ["q", "r"], "text_2": ["a", "b"]}, [("q", "a"), ("r", "b")]),
        ({"queries": "q", "documents": ["a"]}, [("q", "a")]),
    ],
)
def test_vllm_pairs_prompts_and_answers(body: Any, pairs: list[tuple[str, str]]) -> None:
    assert [(ask.prompt, ask.completion) for ask in parsed("vllm_score", body)[1]] == pairs


def test_vllm_classify_takes_texts_or_a_conversation() -> None:
    assert [ask.completion for ask in parsed("vllm_classify", {"input": ["a", "b"]})[1]] == ["a", "b"]
    assert one("vllm_classify", {"messages": [ASKED, SAID]}).messages == [ASKED, SAID]


def test_google_turns_become_messages() -> None:
    body = {
        "example": {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "2 + "}, {"text": "2?"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 2}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"sum": 4}}}]},
            ],
            "references": {"gold": "4"},
            "tools": [{"functionDeclarations": []}],
        },
        "response": {"parts": [{"text": "I add.", "thought": True}, {"text": "4"}]},
        "metadata": {"step": 3, "tuning_job_id": 7},
    }
    ask = one("google", body)
    call = {"id": "", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    assert ask.prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": '{"sum":4}'},
    ]
    assert ask.completion == [{"role": "assistant", "content": "4", "reasoning_content": "I add."}]
    assert (ask.reference, ask.row, ask.tools) == ("4", {"gold": "4"}, [{"functionDeclarations": []}])


@pytest.mark.parametrize(
    ("name", "body", "reference"),
    [
        ("azure", {"sample": {"output_text": "4"}, "item": {"reference_answer": "4", "answer": "5"}}, "4"),
        ("azure", {"sample": {"choices": [{"message": SAID}]}, "item": {"a": 1}}, None),
        ("aws", [{"id": "1", "messages": [SAID], "reference_answer": {"x": 1}}], {"x": 1}),
        ("aws", [{"id": "1", "messages": [SAID], "metadata": {"reference_answer": "4"}}], "4"),
        ("openai_run", {"model_sample": "4", "item": {"solution": "4"}}, "4"),
    ],
)
def test_the_reference_is_the_column_that_usually_holds_it(name: str, body: Any, reference: Any) -> None:
    assert one(name, body).reference == reference


def test_columns_can_be_named() -> None:
    body = {"model_sample": "4", "item": {"q": "2 + 2?", "gold": "4", "answer": "5"}}
    ask = one("openai_run", body, reference="gold", prompt="q")
    assert (ask.prompt, ask.reference) == ("2 + 2?", "4")
    with pytest.raises(Refused, match="found: answer, gold, q"):
        parsed("openai_run", body, reference="gld")


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("evaluate", [], "the body"),
        ("evaluate", {"messages": [{"content": "x"}]}, r"messages\[0\].role: Field required"),
        ("evaluate", {"messages": [SAID], "kwargs": 3}, "kwargs: .*found 3"),
        ("evaluate_batch", [], "1 to 4096"),
        ("aws", [], "at least 1 item"),
        ("openrlhf", {"query": ["a"], "prompts": ["a", "b"], "labels": []}, "query 1, prompts 2, labels 0"),
        ("openrlhf", {"query": [], "prompts": [], "labels": []}, "query: List should have at least 1"),
        ("openrlhf", {"query": [None], "prompts": ["a"]}, r"query\[0\]"),
        ("remote_rm", {"prompt": "a"}, "response: Field required"),
        ("remote_rm", {"prompt": [], "response": "4"}, "prompt is a list"),
        ("vllm_score", {"text_1": "a"}, "lacks text_1 or text_2"),
        ("vllm_score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_1 2, text_2 1"),
        ("vllm_classify", {}, "needs input"),
        ("vllm_classify", {"input": [[1, 2]]}, "input"),
        ("google", {"example": {"references": {"a": 1}}, "response": {}}, "references.a: .*found 1"),
        ("azure", {"sample": {}}, "neither choices nor output_text"),
        ("azure", {"sample": {"output_text": "4"}, "item": {"prompt": 3}}, "item's prompt is 3"),
        ("aws", [{"id": "1", "messages": []}], r"\[0\].messages"),
        ("openai_run", {"model_sample": None}, "model_sample"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_its_field(name: str, body: Any, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        parsed(name, body)
    assert caught.value.status == 422


# -- what is answered --------------------------------------------------------------------------------------------------------


def test_components_arrive_under_the_names_of_each_format() -> None:
    assert answered("evaluate", {"messages": [SAID]}, RIGHT) == {
        "score": 1.0,
        "is_score_valid": True,
        "reason": "good",
        "metrics": {
            "a": {"is_score_valid": True, "score": 0.25, "reason": ""},
            "b": {"is_score_valid": True, "score": 0.75, "reason": ""},
        },
        "step_outputs": None,
        "error": None,
    }
    body = {"query": ["q4", "q5", "q6"], "prompts": ["q"] * 3, "labels": ["4"] * 3}
    three = RIGHT, RIGHT._replace(score=0.0, components={"a": 1.0}), UNSCORED
    named = answered("openrlhf", body, *three, components="a,b", on_error="-1")
    assert named["rewards"] == named["scores"] == [1.0, 0.0, -1.0]
    flags = {"unscored": [0.0, 0.0, 1.0], "failed": [0.0, 0.0, 0.0]}
    assert named["extra_logs"] == {"a": [0.25, 1.0, -1.0], "b": [0.75, 0.0, -1.0], **flags}
    assert answered("openrlhf", body, *three, on_error="-1")["extra_logs"] == flags
    assert answered("remote_rm", {"response": "4"}, RIGHT) == 1.0
    assert answered("remote_rm", {"response": "4"}, RIGHT, keys="true") == {
        "score": 1.0,
        "unscored": 0.0,
        "failed": 0.0,
        "a": 0.25,
        "b": 0.75,
    }
    aws = answered("aws", [{"id": "x", "messages": [SAID]}], RIGHT)[0]
    assert (aws["id"], aws["aggregate_reward_score"]) == ("x", 1.0)
    assert [(m["name"], m["value"], m["type"]) for m in aws["metrics_list"]] == [
        ("a", 0.25, "Reward"), ("b", 0.75, "Reward"), ("unscored", 0.0, "Metric"), ("failed", 0.0, "Metric"),
    ]  # fmt: skip
    run = answered("openai_run", {"model_sample": "4"}, RIGHT)
    assert (run["reward"], run["sub_rewards"]) == (1.0, {"a": 0.25, "b": 0.75})
    assert not any(value for value in run["metadata"]["errors"].values())
    assert answered("vllm_score", {"text_1": "q", "text_2": "a"}, RIGHT)["data"] == [
        {"index": 0, "object": "score", "score": 1.0}
    ]
    assert answered("vllm_classify", {"input": "a"}, RIGHT)["data"][0]["probs"] == [1.0]
    google = {"example": {}, "response": {"parts": [{"text": "4"}]}}
    assert answered("google", google, RIGHT) == {"reward": 1.0, "user_requested_aux_info": "good"}
    assert answered("azure", {"sample": {"output_text": "4"}}, RIGHT) == {"score": 1.0}


def test_a_functions_metrics_keep_their_reasons_and_its_steps_are_passed_on() -> None:
    metrics = {
        "a": {"score": 0.25, "is_score_valid": True, "reason": "low"},
        "c": {"score": 0.0, "is_score_valid": False, "reason": "none"},
    }
    steps = [{"step_index": 0, "base_reward": 1.0, "metrics": {"odd": object}, "reason": None}]
    found = RIGHT._replace(extra={"metrics": metrics, "step_outputs": steps})
    reply = answered("evaluate", {"messages": [SAID]}, found)
    assert reply["metrics"] == {**metrics, "b": {"is_score_valid": True, "score": 0.75, "reason": ""}}
    assert reply["step_outputs"][0]["base_reward"] == 1.0


BODIES = {
    "openrlhf": {"query": ["q4"], "prompts": ["q"]},
    "remote_rm": {"response": "4"},
    "vllm_score": {"text_1": "q", "text_2": "a"},
    "vllm_classify": {"input": "a"},
    "google": {"example": {}, "response": {}},
    "azure": {"sample": {"output_text": "4"}},
    "aws": [{"id": "x", "messages": [SAID]}],
}


@pytest.mark.parametrize(("name", "body"), BODIES.items())
@pytest.mark.parametrize(
    ("found", "status"), [(UNSCORED, 422), (FAILED, 504), (FAILED._replace(reason="rate_limit"), 503)]
)
def test_without_a_score_a_format_that_cannot_say_so_is_refused(
    name: str, body: Any, found: Scored, status: int
) -> None:
    codec = BY_NAME[name]
    _, asks = codec.parse(body, {})
    with pytest.raises(Refused, match=f"{found.status} .{found.reason}.: {found.message}") as caught:
        codec.render(asks, [found])
    assert caught.value.status == status


@pytest.mark.parametrize(("name", "body"), BODIES.items())
def test_the_sender_can_name_a_number_for_a_missing_score(name: str, body: Any) -> None:
    reply = orjson.dumps(answered(name, body, UNSCORED, on_error="-0.5"))
    assert b"-0.5" in reply
    for wrong in ("x", "nan", "inf"):
        with pytest.raises(Refused, match="on_error"):
            parsed(name, body, on_error=wrong)


def test_formats_that_can_say_it_do() -> None:
    invalid = answered("evaluate", {"messages": [SAID]}, UNSCORED)
    assert (invalid["score"], invalid["is_score_valid"], invalid["reason"], invalid["error"]) == (
        None, False, "There is no reference.", None,
    )  # fmt: skip
    assert answered("evaluate_batch", [{"messages": [SAID]}], FAILED)[0]["error"] == "deadline: Out of time."
    run = answered("openai_run", {"model_sample": "4"}, FAILED)
    assert run["reward"] is None and run["metadata"]["errors"]["unresponsive_reward_error"] is True
    assert answered("openai_run", {"model_sample": "4"}, FAILED, on_error="-1")["reward"] == -1.0
    assert answered("aws", BODIES["aws"], UNSCORED, on_error="0.5")[0]["metrics_list"] == [
        {"name": "unscored", "value": 1.0, "type": "Metric"},
        {"name": "failed", "value": 0.0, "type": "Metric"},
    ]
    assert answered("remote_rm", BODIES["remote_rm"], UNSCORED, on_error="0.5", keys="true") == {
        "score": 0.5,
        "unscored": 1.0,
        "failed": 0.0,
    }


def test_every_path_and_name_is_there_once() -> None:
    assert len({codec.path for codec in CODECS}) == len({codec.name for codec in CODECS}) == len(CODECS)
    assert all(each.fields and each.no_score for each in FORMATS)


def table() -> str:
    """The formats with their field mappings, as docs/serving-formats.md shows them."""
    lines = ["| path | sent by | their field | here |", "|---|---|---|---|"]
    for each in FORMATS:
        head = f"| `{each.path}` | {each.title} |"
        for theirs, ours in each.fields:
            lines.append(f"{head} {theirs} | {ours} |")
            head = "| | |"
        lines.append(f"{head} *no score* | {each.no_score} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_mappings_of_the_code() -> None:
    page = (ROOT / "docs" / "serving-formats.md").read_text(encoding="utf-8")
    assert table() in page, f"put this table into docs/serving-formats.md:\n{table()}"
