"""How graders are written, named and registered, and what is said about one that does not fit."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import ConfigError, RewardRegistry
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.graders import registry
from rm_gallery.core.graders.base import BaseGrader, FunctionGrader
from rm_gallery.core.graders.bridge import as_grader, as_reward
from rm_gallery.core.graders.common import RelevanceGrader
from rm_gallery.core.graders.llm import LLMGrader, RubricGrader
from rm_gallery.core.graders.registry import GraderRegistry
from rm_gallery.core.graders.result import GraderError, GraderMode, GraderScore
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.runner.build import asks_for_judge, build_reward
from tests.reward.rewards import PointJudge, Rule


@FunctionGrader.wrap(score_range=(0, 9), threshold=5)
def words(response: str, more: int = 0, **rest: Any) -> float:
    """How many words.

    And more.
    """
    return float(len(response.split()) + more + len(rest))


ODD: Any = dict


class ToolUseHTTPGrader(BaseGrader):
    def _grade(self, a: str, *given: Any, b: str = "") -> float:
        return 1.0


class Grader(BaseGrader): ...


def test_a_function_is_a_grader_and_stays_a_function() -> None:
    assert (words.name, words.description, words.score_range, words.inputs) == (
        "words",
        "How many words.",
        (0.0, 9.0),
        {"response": True, "more": False, "*": False},
    )
    found: Any = words.evaluate(response="a b", more=1, x=1)
    assert (found.score, words("a b"), words("a b", more=2), found.passed()) == (4.0, 2.0, 4.0, False)
    bare = FunctionGrader.wrap(lambda response: 1.0)
    assert (bare.name, bare.is_async, FunctionGrader(print).name) == ("lambda", False, "print")
    assert (ToolUseHTTPGrader().name, Grader().name, ToolUseHTTPGrader().inputs) == (
        "tool_use_http",
        "grader",
        {"a": True, "b": False},
    )
    assert (ToolUseHTTPGrader.registered_name(), ToolUseHTTPGrader.declared()["mode"]) == (
        "tool_use_http",
        GraderMode.POINTWISE,
    )
    for _ in range(2):
        missing = Grader().evaluate(x=1)
        assert isinstance(missing, GraderError) and "Grader implements _grade(self, query, response" in missing.error


def test_options_are_heard_when_one_row_is_graded() -> None:
    judge = RelevanceGrader(model=FakeLLM(reply="<score>3</score>", latency=5.0))
    row, control = {"query": "q", "response": "r"}, RunControl()
    for found in (
        judge.evaluate(row, options=RunOptions(deadline=0.1)),
        asyncio.run(judge.aevaluate(row, options=RunOptions(deadline=0.1, control=control))),
    ):
        assert isinstance(found, GraderError) and found.error_type == "deadline"
    named: Any = words.evaluate({"response": "a"}, response="a b", options=RunOptions())
    assert named.score == 2.0, "a named field wins"


POSITIONAL = FunctionGrader(lambda response, /: 1.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FunctionGrader(words.func, score_range=(1, 1)), "the first number is below the second"),
        (lambda: FunctionGrader(words.func, threshold=-0.1), "it lies inside the score range"),
        (lambda: FunctionGrader(words.func, threshold=1.1), "it lies inside the score range"),
        (lambda: POSITIONAL.evaluate(response="x"), "'response' is positional-only"),
        (lambda: LLMGrader(prompt="{response}", score_range=(None, 5)), "needs a lowest and a highest score"),
        (lambda: LLMGrader(prompt="{response}", score_range=(1, None)), "needs a lowest and a highest score"),
        (lambda: LLMGrader(model="fake:x").evaluate(response="r"), "has no prompt: pass prompt="),
        (lambda: LLMGrader(prompt="{response}").evaluate(response="r"), "has no judge: pass model="),
        (lambda: GraderRegistry.register("odd", ODD), "what is registered is a class derived from BaseGrader"),
        (
            lambda: GraderRegistry.register("relevance", Grader),
            "'relevance' is taken by rm_gallery.core.graders.common.RelevanceGrader",
        ),
        (lambda: GraderRegistry.get("relevence"), "no grader 'relevence'. Did you mean .*relevance"),
        (lambda: build_reward(Rule(), {"name": "x"}), "Rule is built already"),
        (lambda: build_reward(Rule(), llm="fake:x"), "Rule is built already"),
        (lambda: build_reward("accuracy", llm="fake:x"), "accuracy calls no model"),
        (lambda: build_reward("accuracy", base_url="http://x"), "accuracy calls no model"),
        (lambda: build_reward(PointJudge), "PointJudge is judged by a model and none is named"),
        (lambda: build_reward(PointJudge, llm=""), "none is named"),
        (lambda: build_reward("grader:faithfulness", {"model": "fake:x"}, "fake:y"), "names the judge already"),
        (
            lambda: build_reward("safety_pointwise_reward", {"llm": "fake:x"}, base_url="http://x"),
            "names the judge already",
        ),
        (lambda: build_reward(7), "reward is 7; give a registered name"),
        (lambda: build_reward(dict), "give a registered name, or a reward or its class"),
    ],
)
def test_what_does_not_fit_is_named(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_judge_is_asked_for_by_what_is_not_built_yet() -> None:
    given = [
        "grader:relevance",
        "safety_pointwise_reward",
        PointJudge,
        "accuracy",
        Rule,
        "grader:json_match",
        Rule(),
        7,
    ]
    assert [asks_for_judge(each) for each in given] == [True, True, True, False, False, False, False, False]
    listwise: Any = build_reward("safety_listwise_reward", {"seed": 3}, "fake:x", seed=5)
    assert (listwise.seed, getattr(build_reward("ruler", llm="fake:x", seed=5), "seed", None)) == (3, 5)
    reward = build_reward(BasePointWiseRubricReward, {"name": "p"}, "fake:x")
    assert (
        as_reward(reward) is reward
        and as_grader("accuracy", ignore_case=True).evaluate(response="A", reference_response="a").ok
    )


class Broken(RubricGrader):
    rubric: ClassVar[str] = "broken"


def test_a_broken_rubric_is_named_and_one_without_a_file_declares_what_its_class_says(tmp_path: Path) -> None:
    texts = ["", "a: [", "[1]", "en: {desc: x, rubrics: []}", "inputs: {}\nen: {desc: x, rubrics: [], levels: {}}"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "broken.yaml").write_text(text)
    for folder in [*(tmp_path / f"{number}" for number in range(len(texts))), tmp_path / "absent"]:
        kind = type("Other", (Broken,), {"folder": folder, "__annotations__": {"folder": ClassVar[Path]}})
        with pytest.raises(ConfigError, match="broken.yaml: not a grader's rubric"):
            kind(model="fake:x")
    assert RubricGrader.declared() == {
        "score_range": (1.0, 5.0),
        "higher_is_better": True,
        "mode": GraderMode.POINTWISE,
    }


def test_graders_of_another_package_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("theirs", f"{__name__}:ToolUseHTTPGrader", registry.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: [point for point in points if point.group == group])
    monkeypatch.setattr(GraderRegistry, "_classes", {})
    monkeypatch.setattr(GraderRegistry, "_found", False)
    assert GraderRegistry.get("theirs") is ToolUseHTTPGrader and GraderRegistry.register("mine")(Grader) is Grader
    assert {"theirs", "mine", "relevance"} <= set(GraderRegistry.list()) and GraderRegistry.list() == sorted(
        GraderRegistry.list()
    )
    assert isinstance(GraderRegistry.create("theirs").evaluate(a="x"), GraderScore) and RewardRegistry.get(
        "grader:theirs"
    )
