"""`grader:NAME` is a reward wherever a reward's name is taken, and graders are listed and shown."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from rm_gallery import ConfigError, DataSample, RewardRegistry
from rm_gallery.core.graders.base import FunctionGrader
from rm_gallery.core.graders.bridge import GraderListReward, GraderReward, RewardGrader
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderMode
from rm_gallery.core.models import FakeLLM
from rm_gallery.report.evaluate import evaluate
from tests.support.command import command
from tests.support.samples import make_sample, scores


def verdict(prompt: str) -> str:
    return f"<reason>so</reason><score>{5 if 'good' in prompt else 1}</score>"


JUDGE = FakeLLM(reply=verdict)


def test_a_grader_is_a_reward_by_its_name() -> None:
    reward = RewardRegistry.create("grader:relevance", llm=JUDGE)
    assert isinstance(reward, GraderReward)
    assert (reward.name, reward.kind, reward.score_range) == ("grader:relevance", "pointwise", (1.0, 5.0))
    assert scores(reward.evaluate(make_sample("good", "bad"))) == [5.0, 1.0]
    assert pickle.loads(pickle.dumps(reward)).describe() == reward.describe()


def first_is_longest(responses: list[str]) -> dict[str, Any]:
    return {"rank": [1 + sum(len(other) > len(own) for other in responses) for own in responses]}


class LongestFirst(FunctionGrader):
    """The longer, the better."""

    mode: GraderMode = GraderMode.LISTWISE

    def __init__(self, **settings: Any) -> None:
        super().__init__(first_is_longest, **settings)


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    GraderRegistry.list()
    monkeypatch.setitem(GraderRegistry._classes, "longest_first", LongestFirst)


@pytest.mark.usefixtures("longest")
def test_a_grader_that_ranks_is_a_listwise_reward() -> None:
    reward = RewardRegistry.create("grader:longest_first")
    assert isinstance(reward, GraderListReward)
    assert (reward.kind, RewardRegistry.get("grader:longest_first").kind) == ("listwise", "listwise")
    assert scores(reward.evaluate(make_sample("aa", "a", "aaa"))) == [0.5, 0.0, 1.0]


def test_a_rule_keeps_being_the_reward_it_is() -> None:
    assert RewardRegistry.get("grader:accuracy") is RewardRegistry.get("accuracy")


def test_every_grader_makes_a_reward_class_that_says_what_it_is() -> None:
    for name in GraderRegistry.list():
        kind, reward = GraderRegistry.get(name), RewardRegistry.get(f"grader:{name}")
        if issubclass(kind, RewardGrader):
            assert issubclass(reward, kind.kind or RewardRegistry.get(name)), name
            continue
        said = kind.declared()
        assert reward.kind == ("listwise" if said["mode"] is GraderMode.LISTWISE else "pointwise"), name
        assert (reward.needs, reward.judged) == (kind.needs, kind.judged), name
        if reward.kind == "pointwise":
            assert reward.score_range == said["score_range"], name


def test_a_comparison_by_rubrics_is_the_reward_it_wraps() -> None:
    judge = FakeLLM(reply=lambda prompt: "<best>1</best>")
    reward = RewardRegistry.create("grader:listwise_preference", llm=judge, seed=3)
    assert (reward.name, reward.kind, reward.judged) == ("grader:listwise_preference", "listwise", True)
    assert sorted(filter(None, scores(reward.evaluate(make_sample("a", "b", "c"))))) == [1.0]


def test_an_unknown_grader_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no grader 'relevence'. Did you mean .*relevance"):
        RewardRegistry.get("grader:relevence")


def pair(number: int) -> DataSample:
    sample = make_sample("good", "bad", chosen=0)
    return sample.model_copy(update={"unique_id": f"p{number}"})


@pytest.mark.parametrize(
    ("name", "given", "score"), [("grader:relevance", {"llm": JUDGE}, 1.0), ("grader:longest_first", {}, 1.0)]
)
@pytest.mark.usefixtures("longest")
def test_benchmarks_take_graders(name: str, given: dict[str, Any], score: float) -> None:
    report = evaluate(name, [pair(n) for n in range(4)], **given)
    assert (report.n, report.n_scored, report.score) == (4, 4, score)


def test_a_judged_grader_says_that_it_needs_a_judge_and_a_rule_that_it_takes_none() -> None:
    with pytest.raises(ConfigError, match="grader:relevance is judged by a model and none is named"):
        evaluate("grader:relevance", [pair(0)])
    with pytest.raises(ConfigError, match="grader:json_validator calls no model"):
        evaluate("grader:json_validator", [pair(0)], llm="some")


def test_graders_are_listed_and_shown() -> None:
    listed = json.loads(command("list", "--graders", "--json").out)
    rewards = set(RewardRegistry.list())
    assert {entry["name"].removeprefix("grader:") for entry in listed} == set(GraderRegistry.list()) - rewards
    relevance = next(entry for entry in listed if entry["name"] == "grader:relevance")
    assert (relevance["task"], relevance["score_range"], relevance["needs"]) == ("graders/common", [1.0, 5.0], ["llm"])
    assert command("list", "--graders", "--task", "rag").out.count("context_") >= 2
    assert "agent (" in command("list").out


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("relevance", ["fields: query, response, context (may be absent)", "range: [1, 5]", "language = 'en'"]),
        ("grader:similarity", ["task: graders/text", "fields: response, reference_response", "cost: free"]),
        ("accuracy", ["AccuracyReward"]),
    ],
)
def test_show(name: str, parts: list[str]) -> None:
    done = command("show", name)
    assert (done.code, done.err) == (0, "")
    assert all(part in done.out for part in parts), done.out


def test_show_prints_the_prompt_with_the_names_of_the_fields() -> None:
    done = command("show", "relevance", "--prompt", "--param", "language=zh")
    assert done.code == 0 and "{query}" in done.out and "评" in done.out
    assert command("show", "similarity", "--prompt").code == 2
