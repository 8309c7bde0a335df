"""How graders are written, named and registered, and what is said about one that does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BaseGrader,
    ConfigError,
    FunctionGrader,
    GraderError,
    GraderRegistry,
    GraderScore,
    GradingRunner,
    RewardRegistry,
    RunOptions,
    Unscored,
)
from rm_gallery.core.graders.base import GraderMode, as_reward
from rm_gallery.core.graders.llm import RubricGrader, grader_rubric
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.runner.grading_runner import asks_for_judge, build_reward
from tests.reward.rewards import PointJudge, Rule
from tests.support.samples import issues, make_sample, scores


def counted(response: str, more: int = 0, **rest: Any) -> float:
    """How many words.

    And more.
    """
    return float(len(response.split()) + more + len(rest))


words: Any = FunctionGrader.wrap(score_range=(0, 9), threshold=5)(counted)


class ToolUseHTTPGrader(BaseGrader):
    def _grade(self, a: str, *given: Any, b: str = "") -> float:
        return 1.0


class Grader(BaseGrader): ...


POSITIONAL = FunctionGrader(lambda response, /: 1.0)
"""For `tests/golden/refusals`, whose lines are made with the names of this module."""


def test_a_function_is_a_grader_and_stays_a_function() -> None:
    assert words.name == "counted"
    assert words.description == "How many words."
    assert words.score_range == (0.0, 9.0)
    assert words.inputs == {"response": True, "more": False, "*": False}
    found = words.evaluate(response="a b", more=1, x=1)
    assert found.score == 4.0
    assert words("a b") == 2.0
    assert words("a b", more=2) == 4.0
    assert found.passed() is False
    bare = FunctionGrader.wrap(lambda response: 1.0)
    assert (bare.name, bare.awaits, FunctionGrader(print).name) == ("lambda", False, "print")
    assert ToolUseHTTPGrader().name == ToolUseHTTPGrader.registered_name() == "tool_use_http"
    assert (Grader().name, ToolUseHTTPGrader().inputs) == ("grader", {"a": True, "b": False})
    assert ToolUseHTTPGrader.declared()["mode"] is GraderMode.POINTWISE
    for _ in range(2):
        missing = Grader().evaluate(x=1)
        assert isinstance(missing, GraderError)
        assert "Grader implements _grade(self, query, response" in missing.error


class Broken(RubricGrader):
    rubric: ClassVar[str] = "broken"


def in_folder(folder: Path) -> Any:
    """A grader whose rubric lies in this folder."""
    body = {"folder": folder, "__annotations__": {"folder": ClassVar[Path]}}
    return type("Other", (Broken,), body)


ONE = """task: Judge it.
scale: [1, 2]
inputs: {response: true}
criteria: [It is short., {text: It is kind., points: 3}]
levels: {1: bad, 2: good}
"""


def test_one_file_is_a_grader_and_a_checklist_and_a_misspelt_field_is_one_line(
    tmp_path: Path,
) -> None:
    def read(text: str) -> tuple[Any, Any]:
        (tmp_path / "broken.yaml").write_text(text, encoding="utf-8")
        grader_rubric.cache_clear()
        name = f"rubric:{tmp_path}/broken.yaml"
        return (
            lambda: in_folder(tmp_path)(model="fake:x"),
            lambda **more: GraderRegistry.create(name, model="fake:x", **more),
        )

    grader, checklist = (make() for make in read(ONE))
    assert grader.rubrics == ["It is short.", "It is kind."]
    prompt = grader.messages(response="r")[0]["content"]
    assert "Judge it." in prompt and "2. It is kind." in prompt and "1: bad" in prompt
    assert (grader.score_range, grader.threshold) == ((1.0, 2.0), None)
    assert [one.points for one in checklist.criteria.leaves()] == [1.0, 3.0]
    _, make = read("en: {desc: d, rubrics: [short]}\nzh: {desc: d, rubrics: [短]}\nthreshold: 3")
    assert [make(language=name).criteria.criteria[0].text for name in ("en", "zh")] == [
        "short",
        "短",
    ]
    assert make().criteria.threshold == 0.5, "3 is a score of the grader's scale"
    _, make = read("[{text: a, tag: x, level: hard}]\n")
    assert make().criteria.criteria[0].notes == {"tag": "x", "level": "hard"}
    scales = "and scale is 1 to 2; add"
    for text, place, line in (
        (ONE.replace("task", "tsak"), 0, "'tsak'. Did you mean task"),
        (ONE.replace("scale: [1, 2]", ""), 0, "field 'scale' is missing; add it"),
        (ONE.replace("response:", "article:"), 0, "inputs: no line says in en what 'article' is; add .*_fields.yaml"),
        (ONE + "one_of: [qeury]", 0, "'qeury' is none of the inputs; add it"),
        (ONE.replace("2: good", "3: good"), 0, f"levels are for 1, 3, {scales} 2 and remove 3"),
        (ONE.replace("[1, 2]", "[1, 3]"), 0, "scale is 1 to 3; add 3"),
        (ONE.replace("[1, 2]", "[1, 1.5]"), 0, "levels need a scale of two whole"),
        (ONE + "en: {desc: d, rubrics: [r], levels: {}}", 0, f"en.levels are for no score, {scales} 1, 2"),
        (ONE.replace("points", "ponts"), 0, "ponts.*Did you mean points"),
        (ONE + "agregate: all\n", 1, "'agregate'.*Did you mean aggregate"),
        ("[{text: a, negte: true}]", 1, "Criterion 1: .*'negte'; did you mean negate"),
        ("a: [", 1, "correct it"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"broken.yaml.*: .*{line}") as error:
            read(text)[place]()
        assert "\n" not in str(error.value)


def test_a_folder_of_rubrics_may_explain_its_own_fields(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(ONE.replace("response:", "article:"), encoding="utf-8")
    line = "article: {en: the article to grade, zh: 要评分的文章}"
    (tmp_path / "_fields.yaml").write_text(line, encoding="utf-8")
    grader = in_folder(tmp_path)(model="fake:x")
    assert "`article`, the article to grade" in grader.messages(article="a")[0]["content"]


def test_a_judge_is_asked_for_by_what_is_not_built_yet() -> None:
    asking = ("grader:relevance", "safety_pointwise_reward", PointJudge)
    assert all(map(asks_for_judge, asking))
    assert not any(map(asks_for_judge, ("accuracy", Rule, "grader:json_match", Rule(), 7)))
    listwise: Any = build_reward("safety_listwise_reward", {"seed": 3}, "fake:x", seed=5)
    assert listwise.seed == 3
    assert getattr(build_reward("ruler", llm="fake:x", seed=5), "seed", None) == 5
    reward = build_reward(BasePointWiseRubricReward, {"name": "p"}, "fake:x")
    assert as_reward(reward) is reward
    assert (
        RewardRegistry.create("accuracy", ignore_case=True)
        .evaluate(response="A", reference_response="a")
        .ok
    )


def test_a_broken_rubric_is_named_and_one_without_a_file_declares_what_its_class_says(
    tmp_path: Path,
) -> None:
    texts = ["", "a: [", "[1]", "en: {desc: x, rubrics: []}"]
    texts.append("inputs: {}\nen: {desc: x, rubrics: [], levels: {}}")
    for number, text in enumerate(texts):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "broken.yaml").write_text(text)
    for folder in [*(tmp_path / f"{number}" for number in range(len(texts))), tmp_path / "absent"]:
        with pytest.raises(ConfigError, match="broken.yaml: not a grader's rubric"):
            in_folder(folder)(model="fake:x")
    said = {"score_range": (1.0, 5.0), "higher_is_better": True, "mode": GraderMode.POINTWISE}
    assert RubricGrader.declared() == said


def test_graders_of_another_package_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("theirs", f"{__name__}:ToolUseHTTPGrader", "rm_gallery.graders")]
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [p for p in points if p.group == group]
    )
    monkeypatch.setattr(GraderRegistry, "_classes", {})
    monkeypatch.setattr(GraderRegistry, "_lazy", None)
    assert GraderRegistry.get("theirs") is ToolUseHTTPGrader
    assert GraderRegistry.register("mine")(Grader) is Grader
    names = GraderRegistry.list()
    assert {"theirs", "mine", "relevance"} <= set(names) and names == sorted(names)
    assert isinstance(GraderRegistry.create("theirs").evaluate(a="x"), GraderScore)
    assert RewardRegistry.get("grader:theirs")


class Late(BaseGrader):
    async def _grade(self, response: str) -> float:
        await asyncio.sleep(5)
        return 1.0


async def collected(found: Any) -> list[Any]:
    return [each async for each in found]


LATE = Late(name="late")
RUNNER = GradingRunner({"late": LATE}, show_progress=False)
DOORS: dict[str, Callable[..., Any]] = {
    "evaluate": LATE.evaluate,
    "aevaluate": lambda row, **given: asyncio.run(LATE.aevaluate(row, **given)),
    "evaluate_batch": lambda row, **given: LATE.evaluate_batch([row], **given),
    "aevaluate_batch": lambda row, **given: asyncio.run(LATE.aevaluate_batch([row], **given)),
    "run": lambda row, **given: RUNNER.run([row], **given),
    "arun": lambda row, **given: asyncio.run(RUNNER.arun([row], **given)),
    "stream": lambda row, **given: list(RUNNER.stream([row], **given)),
    "astream": lambda row, **given: asyncio.run(collected(RUNNER.astream([row], **given))),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_the_same_options_in_the_same_ways_and_no_other_words(door: str) -> None:
    ask, row = DOORS[door], {"response": "a", "beside": 1}
    assert "deadline" in str(ask(row, deadline=0.05))
    assert "deadline" in str(ask(row, options=RunOptions(deadline=0.05)))
    assert "deadline" in str(ask(row, options=RunOptions(deadline=50.0), deadline=0.05)), (
        "a keyword wins"
    )
    with pytest.raises(ConfigError, match="'deadlin'.*mean deadline"):
        ask(row, deadlin=1.0)
    with pytest.raises(ConfigError, match="options is a dict"):
        ask(row, options={"deadline": 1.0})


def test_a_named_field_wins_over_the_rows_and_a_misspelt_one_is_refused() -> None:
    assert words.evaluate({"response": "a", "more": 0}, response="a b").score == 2.0
    with pytest.raises(ConfigError, match="'respons'.*mean response"):
        LATE.evaluate(respons="a")


def test_what_an_answer_caused_is_worth_the_worst_score_beside_whatever_other_grader() -> None:
    """A plain grader beside one that is awaited runs on a thread of its own."""

    def refuses(response: str) -> float:
        raise Unscored("it cannot be judged", reason="unreadable", cause="answer")

    async def waits(response: str) -> float:
        return refuses(response)

    graders = {"plain": FunctionGrader(refuses, name="plain"), "awaited": FunctionGrader(waits)}
    both = GradingRunner(graders, show_progress=False).run([{"response": "x"}])
    alone = {name: [grader.evaluate(response="x")] for name, grader in graders.items()}
    for found in (both, alone):
        for (result,) in found.values():
            assert isinstance(result, GraderScore) and result.score == 0.0
            assert result.metadata == {"caused_by": "answer", "reason": "unreadable"}


def test_an_error_that_a_grader_returns_comes_out_with_its_own_reason() -> None:
    given = GraderError(error="went wrong", reason="why", error_type="odd", metadata={"seen": 1})
    found = FunctionGrader(lambda response: given, name="odd").evaluate(response="x")
    assert isinstance(found, GraderError) and found.metadata == {"seen": 1}
    assert (found.error, found.reason, found.error_type) == ("went wrong", "why", "odd")


def test_what_a_result_says_it_cost_and_what_it_is_called_is_kept_where_it_belongs() -> None:
    said: dict[str, Any] = {"name": "mine", "threshold": 0.4, "usage": {"calls": 2.0}}
    grader = FunctionGrader(lambda response: GraderScore(score=0.5, **said), name="outer")
    assert grader.evaluate(response="x").usage == {"calls": 2.0}
    assert grader.evaluate_batch([{"response": "x"}])[0].usage == {"calls": 2.0}
    written = grader.evaluate(make_sample("x")).output[0].answer.reward
    assert (written.score, written.extra_data.get("outer", {})) == (0.5, {})


def test_whose_doing_it_is_that_several_responses_have_no_order_nobody_can_tell() -> None:
    class Refuses(BaseGrader):
        mode: GraderMode = GraderMode.LISTWISE

        def _grade(self, query: str, responses: list[str]) -> Any:
            raise Unscored("it cannot be judged", reason="unreadable", cause="answer")

    found = Refuses().evaluate(make_sample("a", "b"))
    assert issues(found) == [("unscored", "unreadable")] * 2 and scores(found) == [None, None]


def test_what_orders_responses_scores_by_shares_whatever_scale_it_was_given() -> None:
    class Orders(BaseGrader):
        mode: GraderMode = GraderMode.LISTWISE

        def _grade(self, query: str, responses: list[str]) -> Any:
            return {"rank": [1 + index for index, _ in enumerate(responses)]}

    grader = Orders(score_range=(1.0, 5.0), higher_is_better=False, threshold=4.0)
    assert (grader.score_range, grader.higher_is_better) == ((0.0, 1.0), True)
    assert grader.threshold is None, "no share reaches a 4"
    assert scores(grader.evaluate(make_sample("a", "b"))) == [1.0, 0.0]
