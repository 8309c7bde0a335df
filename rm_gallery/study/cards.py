"""What has figures of its own, an audit and conflicts, as the report that every reader of run folders
reads; and the reports of folders of earlier versions, which kept them under names of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rm_gallery.core.stats.intervals import Interval
from rm_gallery.core.utils.shown import percent
from rm_gallery.gallery.benchmarks.figures import Figure, Report
from rm_gallery.gallery.benchmarks.lead import TRUST_CARD

Card = Mapping[str, Any]
"""An audit, conflicts or a rejudgement as plain JSON types."""


def audit_report(card: Card) -> Report:
    """An audit has no one figure: its verdict leads, and each finding is a part in its own unit."""
    parts = {}
    for name, found in card["findings"].items():
        lost = found["lost"]
        parts[name] = Figure(
            found["unit"],
            **_counts(found["n"], lost),
            score=found["value"],
            ci95=_interval(found["ci95"]),
            extra={"verdict": found["verdict"]},
        )
    counts = ", ".join(f"{n} {verdict}" for verdict, n in card["counts"].items())
    gone = card["questions"] - card["scored"]
    return _report(
        card,
        TRUST_CARD,
        {**_counts(card["scored"], {"unscored": gone}), "score": None, "ci95": None},
        f"The trust card says {card['verdict']}: {counts}.",
        benchmark="trust card",
        by_subset=parts,
    )


def conflicts_report(card: Card) -> Report:
    """Of conflicts the share of samples without any, higher is better."""
    found, n = card["figures"]["conflict"], card["n_scored"]
    rate = found["value"]
    hold = "No sample has all its verdicts."
    if rate is not None:
        hold = f"{round(rate * n):,} of {n:,} samples hold a conflict ({percent(rate)})."
    figures = {
        "score": None if rate is None else 1.0 - rate,
        "ci95": _turned(found["ci95"]),
        "bounds": _turned(card["bounds"]),
    }
    counts = _counts(n, card["lost"])
    return _report(card, "no_conflict", {**counts, **figures}, hold, benchmark="conflicts")


def _rejudged_report(card: Card) -> Report:
    scores = [one["new"] for one in card["rollouts"] if one["new"] is not None]
    lost = Counter(one["status"] for one in card["rollouts"] if one["new"] is None)
    mean = sum(scores) / len(scores) if scores else None
    figures = {**_counts(len(scores), lost), "score": mean, "ci95": None}
    return _report(card, "mean_score", figures, "", benchmark="rollouts")


EARLIER: Mapping[str, Callable[[Card], Report]] = {
    "audit.json": audit_report,
    "conflicts.json": conflicts_report,
    "rejudged.json": _rejudged_report,
}
"""What folders of earlier versions hold in place of report.json."""


def _report(card: Card, rule: str, figures: Mapping[str, Any], verdict: str, **more: Any) -> Report:
    names = ("reward", "judge", "endpoint", "data", "missing", "calls", "cached", "usage")
    names += ("seconds", "reasons", "stopped", "constant")
    same = {name: card[name] for name in names if name in card}
    notes = tuple(card.get("notes", ()))
    extra = {"verdict": verdict} if verdict else {}
    return Report(rule=rule, extra=extra, details=card, notes=notes, **figures, **same, **more)


def _counts(scored: int, lost: Mapping[str, int]) -> dict[str, int]:
    """The counts of a figure, from what was scored and what was not by status."""
    statuses = ("unscored", "failed", "stopped")
    counts = {f"n_{status}": lost.get(status, 0) for status in statuses}
    return {"n": scored + sum(counts.values()), "n_scored": scored, **counts}


def _interval(ends: Any) -> Interval | None:
    return None if ends is None else Interval(*ends)


def _turned(ends: Any) -> Interval | None:
    """The interval of what is left of 1."""
    return None if ends is None else Interval(1.0 - ends[1], 1.0 - ends[0])
