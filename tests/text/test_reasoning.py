"""Reasoning blocks: every known form is told from the final text, and a mention of a tag is not one."""

from __future__ import annotations

import time

import pytest

from rm_gallery.core.text.reasoning import split_reasoning

FORMS = {
    "think": "<think>a 4</think>it is 5",
    "upper": "<THINK>a 4</THINK>it is 5",
    "thinking": "\n<thinking>a 4</thinking>\nit is 5",
    "attributes": '<think duration="3s">a 4</think>it is 5',
    "type": "<think type=deep>a 4</think>it is 5",
    "reasoning": "<reasoning>a 4</reasoning>it is 5",
    "reflection": "<reflection>a 4</reflection>it is 5",
    "prefixed": "<seed:think>a 4</seed:think>it is 5",
    "chinese tag": "<思考>a 4</思考>it is 5",
    "wide brackets": "＜思考＞a 4＜/思考＞it is 5",
    "square": "[THINK]a 4[/THINK]it is 5",
    "kimi": "◁think▷a 4◁/think▷it is 5",
    "begin_of": "<|begin_of_thought|>a 4<|end_of_thought|>it is 5",
    "cohere": "<|START_THINKING|>a 4<|END_THINKING|>it is 5",
    "details": '<details type="reasoning" done="true">a 4</details>it is 5',
    "lens": "【思考】a 4【/思考】it is 5",
    "lens to answer": "【思考过程】a 4【最终回答】it is 5",
    "header": "思考过程：a 4\n\n最终回答：it is 5",
    "markdown header": "## 思考\na 4\n\n## 最终答案\nit is 5",
    "opened by the template": "a 4\n</think>\n\nit is 5",
    "opened by the template, one line": "a 4</think>it is 5",
    "harmony": "<|channel|>analysis<|message|>a 4<|end|><|start|>assistant<|channel|>final<|message|>it is 5<|return|>",
    "harmony short": "<|channel|>analysis<|message|>a 4<|channel|>final<|message|>it is 5",
    "harmony without its tokens": "analysisA 4assistantfinalit is 5",
    "two in a row": "<think>a</think>\n<think>4</think>it is 5",
    "draft in between": "<think>a</think><best>2</best><think>4</think>it is 5",
    "after a mention in quotes": "<think>a '</think>' 4</think>it is 5",
    "line of its own": "it\n<think>\na 4\n</think>is 5",
    "invisible": "\u200b<think>a 4</think>it is 5\ufeff",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a7_every_form_gives_the_final_text(text: str) -> None:
    found = split_reasoning(text)
    assert found.closed
    assert " ".join(found.final.split()) == "it is 5"
    assert found.reasoning.lower().startswith("a")
    assert "4" in found.reasoning


@pytest.mark.parametrize(
    "text",
    [
        "<think>Perhaps 1 but",
        "[THINK]Perhaps 1 but",
        "◁think▷Perhaps 1 but",
        "<reasoning>Perhaps 1 but",
        "<think type=deep>Perhaps 1 but",
        "<|channel|>analysis<|message|>Perhaps 1 but",
        "<|start|>assistant<|channel|>analysis<|message|>Perhaps 1 but",
        "【思考】Perhaps 1 but",
        "<think>a</think>\n<think>Perhaps 1 but",
    ],
)
def test_r2_reasoning_that_never_ends_leaves_no_final_text(text: str) -> None:
    found = split_reasoning(text)
    assert not found.closed
    assert not found.final.strip()
    assert "Perhaps 1 but" in found.reasoning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is 5.",
        "Answer 1 leaks a raw <think> tag, answer 3 does not. It is 3.",
        "<reason>Answer 1 opens <think> and never closes it.</reason>\n<best>3</best>",
        "<best>3</best>\nNote: answer 1 contains a stray </think>.",
        "<best>3</best>\nNote: answer 1 ends with </think>",
        'It is 3. Answer 1 writes "</think>" at the end.',
        "It is 3. Answer 1 contains the </think> tag and [/THINK], too.",
        "回答1包含多余的</think>标签。最好的是3。",
        "【答案】5",
        "答案：5",
    ],
)
def test_r3_a_mention_is_no_reasoning(text: str) -> None:
    assert split_reasoning(text) == (text, "", True, True, True)


def test_a_quoted_closing_tag_does_not_hide_what_came_before() -> None:
    """In doubt the earlier closing tag ends the thought: what follows it stays visible to a reader that looks for conflicts."""
    found = split_reasoning("<think>a</think><best>1</best>\nThe answer reads:\n</think>\n<best>2</best>")
    assert "<best>1</best>" in found.final
    assert "<best>2</best>" in found.final


REPEATED = ["<think>", "</think>", "\n<think>", "\n<think>'</think>", "<think></think>", "<think ", "\n", "<|channel|>"]


@pytest.mark.parametrize("part", [*REPEATED, " </think>."])
def test_r4_time_is_linear(part: str) -> None:
    def seconds(n: int) -> float:
        begin = time.thread_time()
        for before in ("思考：", "<|channel|>", ""):
            found = split_reasoning(before + part * n)
            assert len(found.final) + len(found.reasoning) <= len(before + part * n)
        return time.thread_time() - begin

    # of this thread alone, and the best of several: whatever else the machine does is not counted
    small = min(seconds(2_000) for _ in range(3))
    assert min(seconds(40_000) for _ in range(2)) < 20 * max(small, 0.002) * 4
