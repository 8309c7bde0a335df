"""Deployed evaluators: previewing and storing metric folders, and running what is stored in a
sandbox.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rm_gallery.evaluation.deploy import PreviewResult, create_evaluation, preview_evaluation
    from rm_gallery.evaluation.live import LiveEvaluators
    from rm_gallery.evaluation.pool import EvaluatorPool
    from rm_gallery.evaluation.store import Deployed, Store

_WHERE = {
    "Deployed": "store",
    "EvaluatorPool": "pool",
    "LiveEvaluators": "live",
    "PreviewResult": "deploy",
    "Store": "store",
    "create_evaluation": "deploy",
    "preview_evaluation": "deploy",
}

__all__ = [
    "Deployed",
    "EvaluatorPool",
    "LiveEvaluators",
    "PreviewResult",
    "Store",
    "create_evaluation",
    "preview_evaluation",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = globals()[name] = getattr(
            importlib.import_module(f"{__name__}.{_WHERE[name]}"), name
        )
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
