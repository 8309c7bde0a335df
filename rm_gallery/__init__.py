"""RM-Gallery: define a reward once, check it with honest statistics, use it everywhere."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rm_gallery._version import __version__

if TYPE_CHECKING:
    from rm_gallery.core.data.conversation import Message
    from rm_gallery.core.data.load.base import create_loader
    from rm_gallery.core.data.schema import DataOutput, DataSample, Step
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.graders.base import (
        BaseGrader,
        FunctionGrader,
        GraderError,
        GraderRank,
        GraderRegistry,
        GraderScore,
    )
    from rm_gallery.core.graders.llm import LLMGrader
    from rm_gallery.core.model.budget import Budget
    from rm_gallery.core.model.message import ChatMessage, MessageRole
    from rm_gallery.core.models import FakeLLM, OpenaiLLM
    from rm_gallery.core.reward.base import (
        BaseListWiseReward,
        BaseLLMReward,
        BasePairWiseReward,
        BasePointWiseReward,
        BaseReward,
        BaseStepWiseReward,
        BaseTrajectoryReward,
    )
    from rm_gallery.core.reward.compose import Cascade, Combined, Gate, Stage, WeightedSum
    from rm_gallery.core.reward.function import (
        EvaluateResult,
        MetricResult,
        StepOutput,
        reward_function,
    )
    from rm_gallery.core.reward.registry import RewardRegistry
    from rm_gallery.core.reward.rule import rule
    from rm_gallery.core.reward.schema import (
        RewardDimensionWithRank,
        RewardDimensionWithScore,
        RewardResult,
    )
    from rm_gallery.core.reward.template import BasePromptTemplate
    from rm_gallery.core.reward.turn_rewards import TurnRewards
    from rm_gallery.core.runner.grading_runner import GraderConfig, GradingRunner
    from rm_gallery.core.score import Score
    from rm_gallery.core.utils.errors import (
        ConfigError,
        DataError,
        ParseError,
        ProviderError,
        RMGalleryError,
        Unscored,
    )
    from rm_gallery.envs.environment import environment_reward
    from rm_gallery.gallery.benchmarks.figures import Report
    from rm_gallery.study.audit import audit
    from rm_gallery.study.benchmark import evaluate
    from rm_gallery.study.check import check_reward
    from rm_gallery.study.conflicts import conflicts
    from rm_gallery.study.fuzz import fuzz_reward

# imported at first use, so that `import rm_gallery` costs nothing
_WHERE = {
    "BaseGrader": "core.graders.base",
    "BaseLLMReward": "core.reward.base",
    "BaseListWiseReward": "core.reward.base",
    "BasePairWiseReward": "core.reward.base",
    "BasePointWiseReward": "core.reward.base",
    "BasePromptTemplate": "core.reward.template",
    "BaseReward": "core.reward.base",
    "BaseStepWiseReward": "core.reward.base",
    "BaseTrajectoryReward": "core.reward.base",
    "Budget": "core.model.budget",
    "Cascade": "core.reward.compose",
    "ChatMessage": "core.model.message",
    "Combined": "core.reward.compose",
    "ConfigError": "core.utils.errors",
    "DataError": "core.utils.errors",
    "DataOutput": "core.data.schema",
    "DataSample": "core.data.schema",
    "EvaluateResult": "core.reward.function",
    "FakeLLM": "core.models",
    "FunctionGrader": "core.graders.base",
    "Gate": "core.reward.compose",
    "GraderConfig": "core.runner.grading_runner",
    "GraderError": "core.graders.base",
    "GraderRank": "core.graders.base",
    "GraderRegistry": "core.graders.base",
    "GraderScore": "core.graders.base",
    "GradingRunner": "core.runner.grading_runner",
    "LLMGrader": "core.graders.llm",
    "Message": "core.data.conversation",
    "MessageRole": "core.model.message",
    "MetricResult": "core.reward.function",
    "OpenaiLLM": "core.models",
    "ParseError": "core.utils.errors",
    "ProviderError": "core.utils.errors",
    "RMGalleryError": "core.utils.errors",
    "Report": "gallery.benchmarks.figures",
    "RewardDimensionWithRank": "core.reward.schema",
    "RewardDimensionWithScore": "core.reward.schema",
    "RewardRegistry": "core.reward.registry",
    "RewardResult": "core.reward.schema",
    "RunOptions": "core.engine.options",
    "Score": "core.score",
    "Stage": "core.reward.compose",
    "Step": "core.data.schema",
    "StepOutput": "core.reward.function",
    "TurnRewards": "core.reward.turn_rewards",
    "Unscored": "core.utils.errors",
    "WeightedSum": "core.reward.compose",
    "audit": "study.audit",
    "check_reward": "study.check",
    "conflicts": "study.conflicts",
    "create_loader": "core.data.load.base",
    "environment_reward": "envs.environment",
    "evaluate": "study.benchmark",
    "fuzz_reward": "study.fuzz",
    "reward_function": "core.reward.function",
    "rule": "core.reward.rule",
}

__all__ = [
    "BaseGrader",
    "BaseLLMReward",
    "BaseListWiseReward",
    "BasePairWiseReward",
    "BasePointWiseReward",
    "BasePromptTemplate",
    "BaseReward",
    "BaseStepWiseReward",
    "BaseTrajectoryReward",
    "Budget",
    "Cascade",
    "ChatMessage",
    "Combined",
    "ConfigError",
    "DataError",
    "DataOutput",
    "DataSample",
    "EvaluateResult",
    "FakeLLM",
    "FunctionGrader",
    "Gate",
    "GraderConfig",
    "GraderError",
    "GraderRank",
    "GraderRegistry",
    "GraderScore",
    "GradingRunner",
    "LLMGrader",
    "Message",
    "MessageRole",
    "MetricResult",
    "OpenaiLLM",
    "ParseError",
    "ProviderError",
    "RMGalleryError",
    "Report",
    "RewardDimensionWithRank",
    "RewardDimensionWithScore",
    "RewardRegistry",
    "RewardResult",
    "RunOptions",
    "Score",
    "Stage",
    "Step",
    "StepOutput",
    "TurnRewards",
    "Unscored",
    "WeightedSum",
    "__version__",
    "audit",
    "check_reward",
    "conflicts",
    "create_loader",
    "environment_reward",
    "evaluate",
    "fuzz_reward",
    "reward_function",
    "rule",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = globals()[name] = getattr(
            importlib.import_module(f"rm_gallery.{_WHERE[name]}"), name
        )
        return value
    raise AttributeError(f"module 'rm_gallery' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
