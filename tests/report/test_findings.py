"""A figure passes or fails by its whole interval, and intervals count what is independent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from rm_gallery.core.stats.intervals import Interval, wilson_interval
from rm_gallery.report.findings import Limit, decide, found
from tests.golden.golden import Line, check, files

LOW = Limit(0.10, 0.25)


@pytest.mark.parametrize("path", files("verdicts"))
def test_the_whole_interval_decides(path: Path) -> None:
    def answer(line: Line) -> Line:
        good, bad, side = line["limit"]
        ci95 = None if line["interval"] is None else Interval(*line["interval"])
        return {"verdict": decide(line["value"], ci95, line["clusters"], Limit(good, bad, side))}

    check(path, answer, ("verdict",))


def test_the_worse_kind_of_cluster_counts() -> None:
    values, prompts = [1.0] * 30, [i % 5 for i in range(30)]
    both = found("p", "n", "", values, list(range(30)), LOW, crossed=prompts)
    assert both.ci95 is not None
    assert (both.n, both.clusters, both.verdict) == (30, 5, "fail")
    assert both.ci95.low == pytest.approx(wilson_interval(5, 5).low)


@pytest.mark.parametrize("unit", ["share", "net"])
@pytest.mark.parametrize("each", [1, 4])
def test_intervals_are_honest_where_all_are_alike(unit: Literal["share", "net"], each: int) -> None:
    clusters = [i for i in range(40) for _ in range(each)]
    figure = found("p", "n", "", [0.0] * len(clusters), clusters, LOW, unit=unit)
    assert figure.ci95 is not None
    assert figure.ci95.high == pytest.approx(wilson_interval(0, 40).high)
    assert found("p", "n", "", [], [], LOW, unit=unit).verdict == "not enough"


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize(("won", "lost"), [(0.05, 0.05), (0.3, 0.1), (0.5, 0.5), (0.0, 0.2), (0.9, 0.05)])
def test_the_interval_of_a_net_covers(won: float, lost: float, each: int) -> None:
    """Multinomial draws of 60 prompts; with three values per prompt, half of the prompts are all alike."""
    rng = np.random.default_rng(7)
    clusters = [i // each for i in range(60 * each)]
    covered = []
    for _ in range(300):
        draws = rng.choice([1.0, -1.0, 0.0], p=[won, lost, max(0.0, 1 - won - lost)], size=(60, each))
        values = np.where(rng.random((60, 1)) < 0.5, draws[:, :1], draws).ravel().tolist()
        ci95 = found("p", "n", "", values, clusters, LOW, unit="net").ci95
        covered.append(ci95 is not None and ci95.covers(won - lost))
    assert 0.92 <= np.mean(covered) <= 1.0
