"""A reward model that runs without a key: `bt:DIR` names the one trained into folder DIR."""

from __future__ import annotations

import os
from typing import Any

from pydantic import Field

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardDimensionWithScore, RewardResult
from rm_gallery.core.utils.errors import ConfigError, Unscored


@RewardRegistry.register("bt:")
class BradleyTerryReward(BasePointWiseReward):
    """Score of a trained linear Bradley–Terry model for an answer in its conversation.

    Unbounded, higher is better; 0 is the average answer of its training data. Only differences between answers to the
    same prompt mean something: score(a) - score(b) is the log-odds that a is preferred, P = 1 / (1 + exp(b - a)).
    The model is read when it is first needed, once per process.

    Raises:
        ConfigError: (on first use) there is no model in `path`, or it was made for another version.
        DataError: (on first use) its files are damaged.

    Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", Biometrika 39, 1952.
    """

    path: str = Field(min_length=1)
    """Folder written by `rm-gallery train bt`."""

    example = Example(
        sample_of(
            "How do I get a coffee stain out of a cotton shirt?",
            "Rinse it from the back with cold water, rub in dish soap, wait ten minutes, then wash as usual.",
            "idk",
        ),
        use="The scores say which of several answers to the same prompt is better: take them for best-of-N and preference "
        "pairs, and in training only within a group.",
        environment="a model in the folder DIR, as `rm-gallery train bt` writes it",
    )

    def __init__(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        """Take the model's folder, and the settings every reward has."""
        if not path:
            raise ConfigError("BradleyTerryReward needs the folder of a trained model: BradleyTerryReward('DIR') or bt:DIR.")
        folder = os.fspath(path)
        # two models that score the same sample keep their scores apart by name
        super().__init__(**{"path": folder, "name": f"bt:{folder}", **settings})

    def check(self) -> None:
        """Raise ConfigError or DataError when the model cannot be read."""
        from rm_gallery.gallery.rm.trained.model import load_model

        load_model(self.path)

    def describe(self) -> dict[str, Any]:
        """The settings, and which weights they were used with: a model trained anew into `path` is another reward."""
        from rm_gallery.gallery.rm.trained.model import load_model

        return {**super().describe(), "weights_sha256": load_model(self.path).metadata["weights"]["sha256"]}

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Score the answer; one without text that only calls tools is unscored."""
        from rm_gallery.gallery.rm.trained.features import answer_features, read_conversation
        from rm_gallery.gallery.rm.trained.model import load_model

        answer = sample.output[0].answer
        text = answer.text
        if not text and answer.tool_calls:
            raise Unscored(f"{self.name} reads text; this answer only calls tools.", reason="not_applicable", cause="answer")
        score = load_model(self.path).score(answer_features(read_conversation(sample.input), text))
        return RewardResult(name=self.name, details=[RewardDimensionWithScore(name=self.name, score=score)])
