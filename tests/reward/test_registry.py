"""Rewards by name: registered in two ways, found in other packages, never silently replaced; and
classes as people write them.
"""

from __future__ import annotations

import importlib
import math
import pickle
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    ConfigError,
    DataSample,
    FakeLLM,
    RewardRegistry,
    RewardResult,
    rule,
)
from rm_gallery.core.reward.base import BasePointWiseRubricReward
from rm_gallery.core.reward.python_files import load_module
from tests.reward.rewards import AsyncRule, NumberTemplate, PointJudge, Rule, scored
from tests.support.samples import make_sample, scores


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(RewardRegistry, "_classes", dict(RewardRegistry._classes))
    monkeypatch.setattr(RewardRegistry, "_lazy", None)
    yield


def test_both_forms_of_registering() -> None:
    @RewardRegistry.register("decorated")
    class Decorated(Rule):
        pass

    assert RewardRegistry.register("called", AsyncRule) is AsyncRule
    assert RewardRegistry.get("decorated") is Decorated
    assert RewardRegistry.get("called") is AsyncRule
    assert {"decorated", "called", "length_baseline"} <= set(RewardRegistry.list())
    assert RewardRegistry.list() == sorted(RewardRegistry.list())
    assert RewardRegistry.create("decorated", name="x", max_workers=3).name == "x"


def make() -> type[Rule]:
    class Mine(Rule):
        pass

    return Mine


def test_the_same_class_again_replaces_itself_and_another_is_refused() -> None:
    first, second = make(), make()
    RewardRegistry.register("mine", first)
    RewardRegistry.register("mine", second)
    assert RewardRegistry.get("mine") is second
    RewardRegistry.register("taken", Rule)
    with pytest.raises(ConfigError, match="'taken' is taken by tests.reward.rewards.Rule"):
        RewardRegistry.register("taken", AsyncRule)
    assert RewardRegistry.get("taken") is Rule


USERS = """
from rm_gallery import rule
@rule({name!r})
def {function}(answer):
    return 0.25
"""


def _file(folder: Path, name: str, function: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(USERS.format(name=name, function=function), encoding="utf-8")
    return str(folder / "mine.py")


@pytest.mark.parametrize("imported_before", [False, True])
def test_a_rule_of_ones_own_never_takes_the_name_of_the_librarys(
    tmp_path: Path, imported_before: bool
) -> None:
    """Both classes are called AccuracyReward: the name of a rule makes that of its class."""
    RewardRegistry._classes.pop("accuracy", None)
    if imported_before:
        RewardRegistry.get("accuracy")
    taken = r"'accuracy' is taken by rm_gallery\.gallery\.rm\.general\.match\.AccuracyReward; choose another"
    with pytest.raises(ConfigError, match=taken):
        load_module(_file(tmp_path / "a", "accuracy", "accuracy"))
    assert RewardRegistry.get("accuracy").__module__.startswith("rm_gallery.gallery.")


def test_a_rules_name_is_one_functions_of_one_file(tmp_path: Path) -> None:
    def accuracy(answer: str) -> float:
        return 0.5

    mine = _file(tmp_path / "a", "mine", "score")
    first, _ = load_module(mine), rule("accuracy", replace=True)(accuracy)
    namespace = {"__name__": first.__name__}
    exec(USERS.format(name="mine", function="score"), namespace)  # as a cell that is run again
    made: Any = RewardRegistry.get("mine")
    assert made.rule is namespace["score"]
    for folder, function in [("b", "score"), ("a", "other")]:
        with pytest.raises(
            ConfigError, match=r"'mine' is taken by reward_file_\w+_mine\.MineReward"
        ):
            load_module(_file(tmp_path / folder, "mine", function))
    library = importlib.import_module("rm_gallery.gallery.rm.general.match")
    RewardRegistry.register("accuracy", library.AccuracyReward)  # as its import does
    made = RewardRegistry.get("accuracy")
    assert made.rule is accuracy, "what replaced it on purpose stays"


def test_another_packages_rewards_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("theirs", "tests.reward.rewards:Rule", "rm_gallery.rewards"),
        EntryPoint("gone", "no_such_package:Reward", "rm_gallery.rewards"),
        EntryPoint("accuracy", "tests.reward.rewards:Rule", "rm_gallery.rewards"),
    ]
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [p for p in points if p.group == group]
    )
    assert RewardRegistry.get("theirs") is Rule and {"theirs", "gone"} <= set(RewardRegistry.list())
    assert RewardRegistry.get("accuracy").__name__ == "AccuracyReward", (
        "the gallery's own names stay its own"
    )
    with pytest.raises(
        ConfigError, match="reward 'gone' names 'no_such_package:Reward', which cannot be imported"
    ):
        RewardRegistry.get("gone")


def test_a_name_with_an_argument_is_a_class_bound_to_it() -> None:
    found = RewardRegistry.get("bt:some/folder")
    assert issubclass(found, RewardRegistry.get("bt:"))
    reward = found(max_workers=3)
    assert reward.name == "bt:some/folder"
    assert reward.max_workers == 3
    assert type(reward) is RewardRegistry.get("bt:")
    assert pickle.loads(pickle.dumps(reward)) == reward
    with pytest.raises(ConfigError, match="no prefix of rewards 'xx:'"):
        RewardRegistry.get("xx:yy")


class Plain(BasePointWiseReward):
    name = "plain"
    FACTS = {"a": 1.0}
    max_workers = 3

    def helper(self, key: str) -> float:
        return float(self.FACTS.get(key, 0.0))

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, self.helper(sample.output[0].answer.text))


class Kindless(BaseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any: ...


class Empty(BasePointWiseReward): ...


class InWorker(PointJudge):
    cpu_bound: ClassVar[bool] = True


def test_unannotated_attributes_are_class_variables_or_new_defaults() -> None:
    class More(Plain):
        FACTS = {"b": 2.0}

    class Unnamed(Plain):
        name = ""

    class OwnRubrics(BasePointWiseRubricReward):
        rubrics = ["mine"]

    class OwnTemplate(PointJudge):
        class Asked(NumberTemplate):
            pass

        template = Asked

    assert (Plain().name, Plain().max_workers, Plain.FACTS) == (
        "plain",
        3,
        {"a": 1.0},
    ) and "FACTS" not in Plain.model_fields
    for kind, wanted in ((Plain, [1.0, 0.0]), (More, [0.0, 2.0])):
        assert scores(kind().evaluate(make_sample("a", "b"))) == wanted
    assert Unnamed().name == "Unnamed"
    assert pickle.loads(pickle.dumps(Plain(name="other"))).name == "other"
    other = OwnRubrics.model_validate({"principles": "other"})
    assert (OwnRubrics().principles, other.rubrics) == (["mine"], ["other"]), "under either name"
    judge = OwnTemplate(llm=FakeLLM(reply="<score>3</score>"))
    assert scores(judge.evaluate(make_sample("x"))) == [3.0]


@pytest.mark.parametrize("given", [(1, 0), (0.5, 0.5), (0, math.nan), (1,), ("0", 1)])
def test_a_range_has_a_lowest_and_a_highest_score(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"rule: score_range of empty is .+; give \(lowest"):
        rule("empty", score_range=given)
    with pytest.raises(ConfigError, match=r"score_range of Empty is .+; give \(lowest"):

        class Empty(Rule):
            score_range: Any = given
