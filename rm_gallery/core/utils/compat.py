"""Earlier names of functions and classes: imports of them lead to today's."""

from __future__ import annotations

import importlib
from typing import Any

EARLIER: dict[str, dict[str, str]] = {
    "rm_gallery.core.stats.denominator": {
        "closed": "rm_gallery.core.stats.denominator:worst_case_bounds",
        "Closed": "rm_gallery.core.stats.denominator:Bounded",
        "Lookout": "rm_gallery.core.stats.denominator:MissingnessTest",
    },
    "rm_gallery.core.stats.clustered": {
        "likeness": "rm_gallery.core.stats.clustered:intraclass_correlation",
        "correlation_in_cells": "rm_gallery.core.stats.clustered:correlation_within_strata",
    },
    "rm_gallery.core.stats.bradley_terry": {
        "Standing": "rm_gallery.core.stats.bradley_terry:RankedSystem",
        "Standings": "rm_gallery.core.stats.bradley_terry:Ranking",
    },
    "rm_gallery.core.sandbox.runner": {
        "get_runner": "rm_gallery.core.sandbox.select:get_runner",
        "shown_sandbox": "rm_gallery.core.sandbox.select:shown_sandbox",
        "doctor": "rm_gallery.core.sandbox.select:doctor",
    },
}
"""By module, the names it had and where each of them stands now; a name stays here for a year."""


def earlier(module: str, name: str) -> Any:
    """What a module's earlier name stands for; its `__getattr__`.

    Raises:
        AttributeError: the module never had such a name.
    """
    target = EARLIER.get(module, {}).get(name)
    if target is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    now, _, attribute = target.partition(":")
    return getattr(importlib.import_module(now), attribute)
