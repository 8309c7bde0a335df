"""RM-Gallery: define a reward once, check it with honest statistics, use it everywhere."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rm_gallery._version import __version__

if TYPE_CHECKING:
    from rm_gallery.core.data.schema import DataOutput, DataSample, Step
    from rm_gallery.core.model.message import ChatMessage, MessageRole
    from rm_gallery.core.models import FakeLLM, OpenaiLLM
    from rm_gallery.core.reward.registry import RewardRegistry

# imported at first use, so that `import rm_gallery` costs nothing
_WHERE = {
    "ChatMessage": "rm_gallery.core.model.message",
    "DataOutput": "rm_gallery.core.data.schema",
    "DataSample": "rm_gallery.core.data.schema",
    "FakeLLM": "rm_gallery.core.models",
    "MessageRole": "rm_gallery.core.model.message",
    "OpenaiLLM": "rm_gallery.core.models",
    "RewardRegistry": "rm_gallery.core.reward.registry",
    "Step": "rm_gallery.core.data.schema",
}

__all__ = [
    "ChatMessage",
    "DataOutput",
    "DataSample",
    "FakeLLM",
    "MessageRole",
    "OpenaiLLM",
    "RewardRegistry",
    "Step",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'rm_gallery' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
