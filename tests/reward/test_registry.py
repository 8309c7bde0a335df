"""Rewards by name: registered in two ways, found in other packages, never silently replaced; and
classes as people write them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.models import FakeLLM
from rm_gallery.core.reward.base import BasePointWiseReward, BasePointWiseRubricReward, BaseReward
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import ConfigError
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
    assert (
        RewardRegistry.get("decorated") is Decorated and RewardRegistry.get("called") is AsyncRule
    )
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


@pytest.mark.parametrize("imported_before", [False, True])
def test_a_gallery_name_is_taken_as_well(imported_before: bool) -> None:
    """Whether the gallery's class was imported yet must not decide it."""
    RewardRegistry._classes.pop("accuracy", None)
    if imported_before:
        RewardRegistry.get("accuracy")
    with pytest.raises(ConfigError, match="'accuracy' is taken"):
        RewardRegistry.register("accuracy", Rule)


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
    assert (reward.name, reward.max_workers, type(reward)) == (
        "bt:some/folder",
        3,
        RewardRegistry.get("bt:"),
    )
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
    assert [scores(kind().evaluate(make_sample("a", "b"))) for kind in (Plain, More)] == [
        [1.0, 0.0],
        [0.0, 2.0],
    ]
    assert (Unnamed().name, pickle.loads(pickle.dumps(Plain(name="other"))).name) == (
        "Unnamed",
        "other",
    )
    other = OwnRubrics.model_validate({"principles": "other"})
    assert (OwnRubrics().principles, other.rubrics) == (["mine"], ["other"]), "under either name"
    assert scores(
        OwnTemplate(llm=FakeLLM(reply="<score>3</score>")).evaluate(make_sample("x"))
    ) == [3.0]
