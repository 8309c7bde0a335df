"""Rewards of every kind over one function, and judges of known quality for the rows of any
benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from rm_gallery import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseReward,
    BaseStepWiseReward,
    BaseTrajectoryReward,
    DataSample,
    RewardResult,
    Step,
    Unscored,
)
from rm_gallery.core.data.schema import preference_of
from tests.reward.rewards import ranked, scored

Judge = Callable[[DataSample], "list[float]"]
"""A score for every output of a sample, or for its last step."""


def lengths(sample: DataSample) -> list[float]:
    """The longer the better."""
    return [float(len(output.answer.text)) for output in sample.output]


def first_wins(sample: DataSample) -> list[float]:
    """Whatever was shown first."""
    return [1.0] + [0.0] * (len(sample.output) - 1)


def all_equal(sample: DataSample) -> list[float]:
    """No difference anywhere."""
    return [0.5] * len(sample.output)


def silent(sample: DataSample) -> list[float]:
    """Nothing that could be read."""
    raise Unscored("no verdict", reason="parse")


class Point(BasePointWiseReward):
    """Scores an answer by itself."""

    judge: Any = lengths

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, self.judge(sample)[0])


class Ranked:
    """Hands all numbers over at once."""

    judged: ClassVar[bool] = True
    name: str
    judge: Any

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return ranked(self.name, *self.judge(sample))


class List(Ranked, BaseListWiseReward):
    """All candidates together."""

    judge: Any = lengths


class Two(Ranked, BasePairWiseReward):
    """Two candidates at a time, in both orders."""

    judge: Any = lengths


class Whole(BaseTrajectoryReward):
    """Each trajectory by itself."""

    judge: Any = lengths

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, self.judge(sample)[0])


class Steps(BaseStepWiseReward):
    """Scores the last step it is shown."""

    judge: Any = lengths

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        return scored(self.name, self.judge(sample)[0])


KINDS: dict[str, type[BaseReward]] = {
    "pointwise": Point,
    "listwise": List,
    "pairwise": Two,
    "stepwise": Steps,
    "trajectory": Whole,
}
CONSTANT: dict[str, Judge] = {
    "first": first_wins,
    "equal": all_equal,
    "silent": silent,
    "longest": lengths,
}
"""Judges that know nothing: the first answer, no difference, nothing readable, the longest answer.
"""


def knowing(samples: Iterable[DataSample], turned: bool = False) -> Judge:
    """A judge that knows the labels of these samples by their texts, and says them or, `turned`,
    their opposite.
    """
    truth: dict[tuple[str, str], float] = {}
    for sample in samples:
        for output in sample.output:
            for said in (output.answer, *(output.steps or ())):
                truth[sample.query_text(), said.text] = _worth(said, preference_of(output)) * (
                    -1 if turned else 1
                )

    def judge(sample: DataSample) -> list[float]:
        said = [(output.steps or [output.answer])[-1] for output in sample.output]
        return [truth[sample.query_text(), one.text] for one in said]

    return judge


def _worth(said: Step, preference: str | None) -> float:
    label = said.label or {}
    known = {"chosen": 1.0, "rejected": 0.0}.get(preference or "", 0.5)
    rated = (
        label[name] for name in ("helpfulness", "correctness", "human_rating") if name in label
    )
    return float(next(rated, known))


def judge_named(name: str, samples: Iterable[DataSample]) -> Judge:
    """A judge by its name: `perfect`, `worst`, or one that knows nothing."""
    return CONSTANT[name] if name in CONSTANT else knowing(samples, turned=name == "worst")
