"""What a row holds reaches a reward through every door; a cell that holds nothing is absent at each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseReward,
    DataOutput,
    DataSample,
    GraderScore,
    GradingRunner,
    RewardDimensionWithScore,
    RewardResult,
    Step,
    evaluate,
    reward_function,
)
from rm_gallery.core.data.conversation import sample_of_messages
from rm_gallery.core.data.schema import is_absent
from rm_gallery.core.graders.base import as_grader
from rm_gallery.integrations.scoring import RowScorer
from rm_gallery.study.runs import open_run
from rm_gallery.study.table import score_table
from rm_gallery.study.winrate import winrate

pd = pytest.importorskip("pandas")
ABSENT = [None, math.nan, pd.NA, pd.NaT, float("nan")]


class Hard(BasePointWiseReward):
    """Half of the row's `difficulty`, which it reads from the metadata."""

    name = "hard"

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        score = float((sample.metadata or {})["difficulty"]) / 2
        return RewardResult(
            name="hard", details=[RewardDimensionWithScore(name="hard", score=score)]
        )


@reward_function
def hardness(messages: list[dict[str, Any]], difficulty: float) -> float:
    """Half of the difficulty."""
    return float(difficulty) / 2


def rewards() -> dict[str, BaseReward]:
    return {"class": Hard(), "function": hardness.reward()}


Door = Callable[[BaseReward, Mapping[str, Any], Path], "float | None"]


def _evaluated(reward: BaseReward, row: Mapping[str, Any], folder: Path) -> float | None:
    report = evaluate(reward, [dict(row)], run_dir=folder / "run", progress=False)
    assert report.n == 1
    [sample] = open_run(folder / "run").samples()
    return sample.scores[0]


def _scored_table(reward: BaseReward, row: Mapping[str, Any], folder: Path) -> float | None:
    answers = "chosen"
    score_table(reward, [dict(row)], prompt="prompt", answers=answers, run_dir=folder / "run")
    [sample] = open_run(folder / "run").samples()
    return sample.scores[0]


def _compared(reward: BaseReward, row: Mapping[str, Any], folder: Path) -> float | None:
    answers = ("chosen", "rejected")
    winrate(reward, [dict(row)], prompt="prompt", answers=answers, run_dir=folder / "run")
    [sample] = open_run(folder / "run").samples()
    return sample.scores[0]


def _graded(reward: BaseReward, row: Mapping[str, Any], folder: Path) -> float | None:
    fields = {"query": row["prompt"], "response": row["chosen"], **row}
    [result] = GradingRunner({"g": reward}, show_progress=False).run([fields])["g"]
    return result.score if isinstance(result, GraderScore) else None


def _adapted(reward: BaseReward, row: Mapping[str, Any], folder: Path) -> float | None:
    return RowScorer(reward).score(row["prompt"], row["chosen"], dict(row)).value


DOORS: dict[str, Door] = {
    "evaluate": _evaluated,
    "score": _scored_table,
    "winrate": _compared,
    "grade": _graded,
    "adapters": _adapted,
}
ROW = {"prompt": "2+2?", "chosen": "It is 4.", "rejected": "It is 5.", "difficulty": 0.5}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", rewards())
def test_other_columns_reach_a_reward(door: str, kind: str, tmp_path: Path) -> None:
    assert DOORS[door](rewards()[kind], ROW, tmp_path) == 0.25


@pytest.mark.parametrize("absent", ABSENT, ids=repr)
@pytest.mark.parametrize("door", DOORS)
def test_an_absent_reference_is_none_at_every_door(
    door: str, absent: object, tmp_path: Path
) -> None:
    seen = []

    class Reference(BasePointWiseReward):
        """Keeps the reference it was given."""

        name = "keeps"

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            seen.append(sample.reference())
            return RewardResult(
                name="keeps", details=[RewardDimensionWithScore(name="keeps", score=0.5)]
            )

    DOORS[door](Reference(), {**ROW, "reference": absent}, tmp_path)
    DOORS[door](Reference(), {**ROW, "reference": "nan"}, tmp_path / "text")
    times = len(seen) // 2
    assert seen == [None] * times + ["nan"] * times


@pytest.mark.parametrize("absent", ABSENT, ids=repr)
def test_what_holds_no_value(absent: object) -> None:
    assert is_absent(absent)
    for label, metadata in (({"reference": absent}, None), (None, {"ground_truth": absent})):
        output = DataOutput(answer=Step(content="a", label=label))
        assert DataSample(output=[output], metadata=metadata).reference() is None
    sample = sample_of_messages([{"role": "assistant", "content": "a"}], ground_truth=absent)
    assert sample.reference() is None


@pytest.mark.parametrize("value", ["nan", "", 0, 0.0, False, [], {}, math.inf])
def test_what_holds_a_value(value: object) -> None:
    assert not is_absent(value)


def test_people_s_labels_do_not_reach_a_reward(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Metadata(BasePointWiseReward):
        """Keeps the metadata it was given."""

        name = "keeps"

        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            seen.append(sample.metadata)
            return RewardResult(
                name="keeps", details=[RewardDimensionWithScore(name="keeps", score=0.5)]
            )

    row = {**ROW, "human": 0.5, "gold": "4"}
    score_table(
        Metadata(), [row], prompt="prompt", answers="chosen", labels="human", reference="gold"
    )
    assert seen == [{"rejected": "It is 5.", "difficulty": 0.5, "reference": "4"}]


@pytest.mark.parametrize("absent", [None, math.nan], ids=repr)
def test_a_completion_that_is_none_is_failed_by_the_data(absent: Any) -> None:
    outcome = RowScorer("length_baseline").score("q", absent, None)
    assert (outcome.status, outcome.cause) == ("failed", "data")


def test_a_class_of_rewards_is_a_grader() -> None:
    result = as_grader(Hard).evaluate(query="q", response="r", difficulty=1.0)
    assert isinstance(result, GraderScore) and result.score == 0.5
