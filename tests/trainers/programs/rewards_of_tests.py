"""Rewards that the programs in the trainers' environments share: with components, without a score, with an error."""

from __future__ import annotations

from typing import Any

from rm_gallery import BasePointWiseReward, DataSample, RewardDimensionWithScore, RewardResult, Unscored


class Sometimes(BasePointWiseReward):
    """The length of the answer, with its parts; unscored for "none", an error for "fail"."""

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        text = sample.output[0].answer.text
        if "none" in text:
            raise Unscored("there is nothing to judge by", reason="no_reference")
        if "fail" in text:
            raise RuntimeError("the judge is gone")
        metrics = {"words": float(len(text.split())), "reset": 1.0}
        details = [RewardDimensionWithScore(name=self.name, score=float(len(text)))]
        return RewardResult(name=self.name, details=list(details), extra_data={"metrics": metrics})
