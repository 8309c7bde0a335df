"""What NeMo-Gym asks of a resources server beside /verify: a session before a rollout, whether a
rollout may be verified again, and figures over what was verified.

Written against NeMo-Gym's main of August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from pydantic import BaseModel

from rm_gallery.core.model.transport import Json
from rm_gallery.serve.formats import Open, Row

OF_ROLLOUT = re.compile(r"\A/ng-rollout/[^/]+(?=/)")
"""What its client puts before a path where it observes rollouts."""
AGGREGATE_EXAMPLE = {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}]}


class AggregateRequest(Open):
    """Replies of /verify, without the rollouts."""

    verify_responses: list[Json]


class AggregateReply(BaseModel):
    """Figures of each task, and of all rollouts."""

    group_level_metrics: list[Json]
    agent_metrics: dict[str, float]
    key_metrics: dict[str, float]


def aggregated(replies: Sequence[Row]) -> Json:
    """Mean, lowest, highest and spread of reward and components, per task and over all rollouts.

    Args:
        replies: replies of /verify; one with `mask_sample` has no reward and is left out.

    Returns:
        The three parts of NeMo-Gym's AggregateMetrics. Without a reward there are no figures: none
        of them is a 0.

    Example:
        >>> rows = [{"_ng_task_index": 0, "reward": 1.0}, {"reward": 0.0, "mask_sample": True}]
        >>> aggregated(rows)["key_metrics"]
        {'mean/reward': 1.0}
    """
    known = [row for row in replies if not row.get("mask_sample") and _is_number(row.get("reward"))]
    tasks: dict[Any, list[Row]] = {}
    for row in known:
        tasks.setdefault(str(row.get("_ng_task_index")), []).append(row)
    groups = [
        {"_ng_task_index": rows[0].get("_ng_task_index"), **_metrics_of(rows)}
        for rows in tasks.values()
    ]
    every = _metrics_of(known)
    key = {name: every[name] for name in ("mean/reward",) if name in every}
    return {"group_level_metrics": groups, "agent_metrics": every, "key_metrics": key}


def _metrics_of(rows: Sequence[Row]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        parts = row.get("reward_components")
        own = {**(parts if isinstance(parts, Mapping) else {}), "reward": row["reward"]}
        for name, value in own.items():
            if _is_number(value):
                columns.setdefault(name, []).append(float(value))
    return {
        f"{what}/{name}": figure(values)
        for name, values in columns.items()
        for what, figure in (("mean", fmean), ("min", min), ("max", max), ("std", pstdev))
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
