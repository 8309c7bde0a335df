"""Reward classes may be written as people write classes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward, BaseReward
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError
from tests.support.samples import make_sample, scores


class Plain(BasePointWiseReward):
    name = "plain"
    FACTS = {"a": 1.0}
    max_workers = 3

    def helper(self, key: str) -> float:
        return float(self.FACTS.get(key, 0.0))

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = self.helper(sample.output[0].answer.text)
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=score)])


def test_unannotated_attributes_are_class_variables_or_new_defaults() -> None:
    assert Plain().name == "plain"
    assert Plain().max_workers == 3
    assert Plain.FACTS == {"a": 1.0}
    assert "FACTS" not in Plain.model_fields
    assert scores(Plain().evaluate(make_sample("a", "b"))) == [1.0, 0.0]


def test_a_subclass_of_a_subclass_keeps_the_class_variable() -> None:
    class More(Plain):
        FACTS = {"b": 2.0}

    assert scores(More().evaluate(make_sample("a", "b"))) == [0.0, 2.0]
    assert Plain.FACTS == {"a": 1.0}


def test_unknown_constructor_fields_raise() -> None:
    with pytest.raises(ConfigError, match="'nmae'. Did you mean name"):
        Plain(nmae="x")  # type: ignore[call-arg]


def test_a_reward_without_a_kind_says_which_kinds_there_are() -> None:
    class Kindless(BaseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            raise NotImplementedError

    with pytest.raises(ConfigError, match="BasePointWiseReward"):
        Kindless(name="x")


def test_a_reward_without_evaluate_says_so() -> None:
    class Empty(BasePointWiseReward):
        pass

    with pytest.raises(ConfigError, match="_evaluate"):
        Empty(name="x")


def test_an_unnamed_reward_is_named_like_its_class() -> None:
    class Unnamed(Plain):
        name = ""

    assert Unnamed().name == "Unnamed"


def test_instances_are_picklable() -> None:
    assert pickle.loads(pickle.dumps(Plain(name="other"))).name == "other"
