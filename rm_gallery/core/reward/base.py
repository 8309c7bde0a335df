"""Door to everything a reward is built from."""

from rm_gallery.core.reward.base_kinds import (
    BaseListWiseReward,
    BasePairWiseReward,
    BasePointWiseReward,
    BaseStepWiseReward,
    BaseTrajectoryReward,
)
from rm_gallery.core.reward.judge import (
    BaseListWiseRubricReward,
    BaseLLMReward,
    BasePairWiseRubricReward,
    BasePointWiseRubricReward,
    BaseRubricReward,
    BaseStepWiseRubricReward,
    BaseTrajectoryRubricReward,
)
from rm_gallery.core.reward.reward import BaseReward

__all__ = [
    "BaseLLMReward",
    "BaseListWiseReward",
    "BaseListWiseRubricReward",
    "BasePairWiseReward",
    "BasePairWiseRubricReward",
    "BasePointWiseReward",
    "BasePointWiseRubricReward",
    "BaseReward",
    "BaseRubricReward",
    "BaseStepWiseReward",
    "BaseStepWiseRubricReward",
    "BaseTrajectoryReward",
    "BaseTrajectoryRubricReward",
]
