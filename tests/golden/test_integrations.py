"""Pins functions that adapters are made of, and the data sets for TRL: each file is a function, each line one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePointWiseReward,
    BaseStepWiseReward,
    DataSample,
    RewardDimensionWithScore,
    RewardResult,
    Unscored,
)
from rm_gallery.core.utils.errors import RMGalleryError
from rm_gallery.integrations import trl_data
from rm_gallery.integrations.openrlhf import response_of, without_end_marks
from rm_gallery.integrations.slime import post_process
from rm_gallery.integrations.verl import verl_overrides
from tests.golden import golden


class Length(BasePointWiseReward):
    """The length of the answer, 0 to 10; no score for an empty one."""

    score_range: ClassVar[tuple[float | None, float | None]] = (0.0, 10.0)

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        output = sample.output[0]
        text = output.steps[-1].text if self.kind == "stepwise" and output.steps else output.answer.text
        if not text:
            raise Unscored("nothing there", reason="empty")
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=float(len(text)))])


class Shortness(Length):
    """The same, and less is better."""

    higher_is_better = False


class Lifted(Length):
    """The same, in a range that does not begin at 0."""

    score_range = (2.0, 10.0)


class Unbounded(Length):
    """The same, without bounds."""

    score_range = (None, None)


class StepLength(BaseStepWiseReward):
    """The length of the last step; no score for an empty one."""

    _evaluate = Length._evaluate


class StepShortness(StepLength):
    """The same, and less is better."""

    higher_is_better = False


REWARDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Length, Shortness, Lifted, Unbounded, StepLength, StepShortness)
}


def sample(answers: list[Any], turns: int = 1) -> DataSample:
    """Answers are texts, [text, preference], {"steps": [[text, right], …]} or outputs."""
    outputs: list[Any] = []
    for answer in answers:
        if isinstance(answer, dict) and "steps" in answer and isinstance(answer["steps"][0], list):
            steps = [
                {"role": "assistant", "content": text, "label": {} if right is None else {"correctness": right}}
                for text, right in answer["steps"]
            ]
            outputs.append({"answer": {"role": "assistant", "content": "x"}, "steps": steps})
        elif isinstance(answer, dict):
            outputs.append(answer)
        else:
            text, preference = answer if isinstance(answer, list) else (answer, None)
            label = {"preference": preference} if preference else {}
            outputs.append({"answer": {"role": "assistant", "content": text, "label": label}})
    asked = [{"role": "user", "content": "问?"}] * turns
    return DataSample.model_validate({"unique_id": "s", "input": asked, "output": outputs})


def data_set(make: Callable[..., trl_data.Rows]) -> Callable[..., Any]:
    def made(samples: list[Any], reward: str | None = None, turns: int = 1, **settings: Any) -> Any:
        given = [sample(each, turns) for each in samples]
        rows = make(given, REWARDS.get(reward or "", reward), **settings)
        return {"rows": rows, "left_out": dict(rows.left_out)}

    return made


def normalised(rewards: list[float | None], size: int, key: str | None = None, **args: Any) -> Any:
    """What slime trains on, of samples in groups of a size; None has no score."""
    usual = {"advantage_estimator": "grpo", "rewards_normalization": True, "grpo_std_normalization": True}
    batch = {"n_samples_per_prompt": size, "rollout_batch_size": len(rewards) // max(1, size)}
    samples = [
        SimpleNamespace(
            get_reward_value=lambda args, value=value: 0.0 if value is None else value,
            metadata={"reward_status": "failed: error"} if value is None else {} if value > 1 else None,
        )
        for value in rewards
    ]
    return post_process(SimpleNamespace(**{**usual, **batch, **args}), samples)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "response_of": response_of,
    "without_end_marks": without_end_marks,
    "verl_overrides": verl_overrides,
    "post_process": normalised,
    "preference_rows": data_set(trl_data.preference_rows),
    "unpaired_rows": data_set(trl_data.unpaired_rows),
    "step_rows": data_set(trl_data.step_rows),
}


@pytest.mark.parametrize("path", golden.files("integrations"))
def test_integrations_golden(path: Path) -> None:
    def answer(line: golden.Line) -> golden.Line:
        try:
            found = FUNCTIONS[path.stem](**line)
        except RMGalleryError as error:
            return {"error": str(error)}
        return {"is": "none" if found is None else found}

    golden.check(path, answer, ("is", "error"))
