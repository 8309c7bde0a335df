"""`rm-gallery list` filters, `show` prints facts and prompts."""

from __future__ import annotations

import json

import pytest

from rm_gallery.core.reward.registry import RewardRegistry
from tests.support.command import command


def names(*options: str) -> list[str]:
    done = command("list", "--json", *options)
    assert (done.code, done.err) == (0, "")
    return [entry["name"] for entry in json.loads(done.out)]


@pytest.mark.parametrize(
    ("options", "among", "not_among"),
    [
        ((), ["accuracy", "math_listwise_reward"], []),
        (("--task", "math"), ["math_verify_reward", "math_pointwise_reward"], ["code_pointwise_reward", "accuracy"]),
        (("--task", "math", "--no-llm"), ["math_verify_reward"], ["math_pointwise_reward"]),
        (
            ("--task", "math", "--kind", "pointwise"),
            ["math_verify_reward", "math_pointwise_reward"],
            ["math_listwise_reward"],
        ),
        (
            ("--task", "alignment"),
            ["refusal_detection", "safety_listwise_reward", "base_honesty_pointwise"],
            ["accuracy"],
        ),
        (("--task", "alignment/harmlessness"), ["refusal_detection"], ["chat_listwise_reward"]),
        (("--needs", "reference"), ["accuracy", "rouge"], ["think_format", "safety_listwise_reward"]),
        (("--kind", "pairwise"), ["chat_pairwise_reward"], ["chat_listwise_reward", "accuracy"]),
        (("--no-llm",), ["accuracy", "think_format"], ["ruler", "chat_pairwise_reward"]),
    ],
)
def test_filters(options: tuple[str, ...], among: list[str], not_among: list[str]) -> None:
    found = names(*options)
    assert set(among) <= set(found)
    assert not set(not_among) & set(found)
    assert found == sorted(found)


def test_the_table_holds_what_the_json_holds() -> None:
    done = command("list", "--long", "--task", "math")
    shown = [line.split()[0] for line in done.out.splitlines()[1:] if not line.startswith(" ")]
    assert shown == names("--task", "math")
    assert names() == RewardRegistry.list()


def test_json_has_the_facts() -> None:
    (entry,) = [e for e in json.loads(command("list", "--json").out) if e["name"] == "code_pairwise_reward"]
    assert entry["score_range"] == [0.0, 1.0]
    assert (entry["kind"], entry["needs"], entry["cost"]) == ("pairwise", ["llm"], "pairs × 2 calls")
    assert entry["task"] == "alignment/helpfulness"


def test_filters_that_nothing_fits_say_so() -> None:
    done = command("list", "--task", "math", "--kind", "stepwise")
    assert (done.code, done.out) == (0, "")
    assert "No reward fits" in done.err
    assert json.loads(command("list", "--task", "math", "--kind", "stepwise", "--json").out) == []


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [("--task", "maths", "math"), ("--kind", "pairwize", "pairwise"), ("--needs", "refs", "reference")],
)
def test_an_unknown_filter_value_lists_what_there_is(option: str, value: str, near: str) -> None:
    done = command("list", option, value)
    assert (done.code, done.out) == (2, "")
    assert f"'{value}'" in done.err and near in done.err


@pytest.mark.parametrize("name", ["safety_listwise_reward", "math_pointwise_reward", "chat_pairwise_reward", "ruler"])
def test_the_prompt_is_the_one_a_judge_gets(name: str) -> None:
    example = RewardRegistry.get(name).example
    assert example is not None
    expected = example.create(RewardRegistry.get(name)).format(example.sample)  # type: ignore[attr-defined]  # it is a judge
    assert json.loads(command("show", name, "--prompt", "--json").out) == expected
    shown = command("show", name, "--prompt").out
    assert shown.startswith("[system]\n") and "\n[user]\n" in shown
    assert all(output.answer.text in shown for output in example.sample.output[:1])


def test_the_prompt_follows_the_settings() -> None:
    done = command(
        "show", "math_pointwise_reward", "--prompt", "--param", "language=zh", "--param", 'rubrics=["只看结果"]'
    )
    assert "1. 只看结果" in done.out and "Apply these" not in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("accuracy", "--prompt"), "asks no model"),
        (("accuracy", "--param", "x=1"), "add --prompt"),
        (("math_pointwise_reward", "--prompt", "--param", "langage=zh"), "language"),
    ],
)
def test_a_prompt_that_cannot_be_shown(arguments: tuple[str, ...], message: str) -> None:
    done = command("show", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_show_as_json() -> None:
    card = json.loads(command("show", "regex_match", "--json").out)
    assert card["name"] == "regex_match"
    assert {"pattern", "mode", "deadline"} <= {parameter["name"] for parameter in card["parameters"]}
    assert card["description"].startswith(card["summary"])
