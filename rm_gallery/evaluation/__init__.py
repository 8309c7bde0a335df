"""Deployed evaluators: previewing and storing metric folders, and running what is stored in a sandbox."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rm_gallery.evaluation.pool import EvaluatorPool
    from rm_gallery.evaluation.store import Deployed, Store

_WHERE = {"Deployed": "store", "EvaluatorPool": "pool", "Store": "store"}

__all__ = ["Deployed", "EvaluatorPool", "Store"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
