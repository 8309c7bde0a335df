"""What has figures of its own, an audit and conflicts, as the plain data that every reader of run
folders reads; and what folders of earlier versions hold under names of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rm_gallery.core.utils.shown import percent
from rm_gallery.gallery.benchmarks.lead import TRUST_CARD

Figures = dict[str, Any]
"""What report.json holds: the fields of a `Report`, and what the command tells beside them."""


def audit_figures(card: Mapping[str, Any]) -> Figures:
    """An audit has no one figure: its verdict leads, and each finding is a part in its own unit."""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in card["counts"].items())
    figures = {
        **card,
        # an earlier version did not tell what became of them
        **counts_of(
            card["scored"], card.get("lost") or {"unscored": card["questions"] - card["scored"]}
        ),
        "rule": TRUST_CARD,
        "benchmark": "trust card",
        "score": None,
        "by_subset": {
            name: {
                **found,
                **counts_of(found["n"], found["lost"]),
                "rule": found["unit"],
                "score": found["value"],
            }
            for name, found in card["findings"].items()
        },
        "extra": {"verdict": f"The trust card says {card['verdict']}: {counts}."},
    }
    del figures["findings"]  # they are the parts
    return figures


def conflicts_figures(card: Mapping[str, Any]) -> Figures:
    """Of conflicts the share of samples without any, higher is better."""
    found, n = card["figures"]["conflict"], card["n_scored"]
    rate, said = found["value"], "No sample has all its verdicts."
    if rate is not None:
        said = f"{round(rate * n):,} of {n:,} samples hold a conflict ({percent(rate)})."
    return {
        **card,
        **counts_of(n, card["lost"]),
        "rule": "no_conflict",
        "benchmark": "conflicts",
        "score": None if rate is None else 1.0 - rate,
        "n_clusters": found.get("clusters"),
        **{
            name: ends and [1.0 - ends[1], 1.0 - ends[0]]
            for name, ends in (("ci95", found["ci95"]), ("bounds", card["bounds"]))
        },
        "extra": {"verdict": said},
    }


def _rejudged_figures(card: Mapping[str, Any]) -> Figures:
    scores = [one["new"] for one in card["rollouts"] if one["new"] is not None]
    lost = Counter(one["status"] for one in card["rollouts"] if one["new"] is None)
    mean = sum(scores) / len(scores) if scores else None
    return {
        **card,
        **counts_of(len(scores), lost),
        "rule": "mean_score",
        "benchmark": "rollouts",
        "score": mean,
    }


def counts_of(scored: int, lost: Mapping[str, int]) -> dict[str, int]:
    """The counts of a figure, from what was scored and what was not by status."""
    statuses = {f"n_{status}": lost.get(status, 0) for status in ("unscored", "failed", "stopped")}
    return {"n": scored + sum(statuses.values()), "n_scored": scored, **statuses}


EARLIER: Mapping[str, Callable[[Mapping[str, Any]], Figures]] = {
    "audit.json": audit_figures,
    "conflicts.json": conflicts_figures,
    "rejudged.json": _rejudged_figures,
}
"""What folders of earlier versions hold in place of report.json."""
