"""However a reward is spelled, every place that takes one means the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    ConfigError,
    DataSample,
    FunctionGrader,
    RewardRegistry,
    RewardResult,
    WeightedSum,
    reward_function,
)
from rm_gallery.core.graders.base import as_grader
from rm_gallery.core.reward.resolve import SPELLINGS, as_part, resolve, spelling_of
from tests.reward import rewards as r
from tests.support.samples import make_sample, scores


class Own(BasePointWiseReward):
    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return r.scored(self.name, 1.0)


class Environment:
    def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
        return {"one": 1.0}


def plain(messages: Any, **kwargs: Any) -> float:
    return 1.0


OBJECTS: dict[str, Any] = {
    "reward": Own(),
    "grader": FunctionGrader(lambda response: 1.0, name="one"),
    "environment": Environment(),
    "class": Own,
    "rule": getattr(RewardRegistry.get("accuracy"), "rule", None),
    "reward function": reward_function(plain),
    "function": plain,
}
ROW = {"response": "a", "reference_response": "a"}
NAMES = ("accuracy", *(f"{way}:{__name__}:{name}" for way, name in (("func", "plain"), ("func", "Own"), ("env", "Environment"))))  # fmt: skip


def test_every_spelling_has_an_example_here() -> None:
    known = {kind: spelling_of(one) for kind, one in OBJECTS.items()}
    assert known == {**{kind: kind for kind in SPELLINGS}, "grader": "reward"}
    assert {spelling_of(one) for one in (7, None, [], object(), int)} == {""}


def score(reward: BaseReward) -> list[Any]:
    return scores(reward.evaluate(make_sample("a", reference="a")))


@pytest.mark.parametrize("spelled", [*OBJECTS.values(), *NAMES], ids=[*OBJECTS, *NAMES])
def test_a_reward_is_the_same_wherever_it_is_named(spelled: Any) -> None:
    assert score(resolve(spelled)) == score(as_part(spelled)) == [1.0]
    assert score(WeightedSum({"it": spelled})) == [1.0]
    graded: Any = as_grader(spelled).evaluate(ROW)
    assert graded.score == 1.0
    judges: list[dict[str, Any]] = [{"llm": "fake:x"}, {"base_url": "http://h/v1"}]
    for given in judges:
        with pytest.raises(ConfigError, match="is built already|calls no model; leave out --llm"):
            resolve(spelled, **given)


@pytest.mark.parametrize("wrong", [7, None, object()])
def test_what_is_no_reward_is_told_in_the_same_words_everywhere(wrong: Any) -> None:
    for door in (resolve, as_part, as_grader):
        with pytest.raises(ConfigError, match="^reward is .*; give a registered name, or a reward"):
            door(wrong)


def test_a_file_alone_means_its_only_reward(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def helper(messages, **kwargs):\n    return 1.0\n")
    assert score(resolve(str(file))) == [1.0]
    more = "from rm_gallery import reward_function\n\n@reward_function\ndef own(messages, **kwargs):\n    return 1.0\n"
    file.write_text(more + file.read_text())
    assert resolve(str(file)).name == "own" and resolve(f"{file}:helper").name == "helper"
