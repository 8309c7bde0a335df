"""Repeated runs and drift: the judge's part of the variance, silence about chance flips, sight of
real changes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm_gallery.core.stats.consistency import Repeats, drift, variance_parts
from rm_gallery.study.drift import compare_versions, drift_lines, read_anchors


def runs(
    rng: np.random.Generator,
    p_old: NDArray[np.float64],
    p_new: NDArray[np.float64],
    n_old: int,
    n_new: int,
) -> dict[str, Any]:
    olds = [(rng.random(len(p_old)) < p_old) * 1.0 for _ in range(n_old)]
    news = [(rng.random(len(p_new)) < p_new) * 1.0 for _ in range(n_new)]
    return {
        "old": olds[0],
        "new": news[0],
        "old_again": olds[1:],
        "new_again": news[1:],
        "n_draws": 400,
    }


@pytest.mark.long("coverage by simulation")
@pytest.mark.parametrize(("n_old", "n_new"), [(2, 1), (1, 3)])
def test_chance_flips_are_no_drift(n_old: int, n_new: int) -> None:
    rng, alarms = np.random.default_rng(n_old), 0
    for _ in range(200):
        p = rng.beta(0.3, 0.2, 150)  # most anchors are clear, some are a coin toss
        found = drift(**runs(rng, p, p, n_old, n_new), seed=int(rng.integers(1 << 30)))
        assert found.flip_rate > 0.0
        alarms += bool(found.findings)
    assert alarms / 200 <= 0.08


def test_the_distance_is_what_is_beyond_that_of_repeats() -> None:
    found = drift([0.0] * 9, [0.0] * 9, old_again=[[1.0] * 9], new_again=[[1.0] * 9], n_draws=100)
    # between the versions half of the pairs differ, within either version all of them
    assert (found.excess, found.noise, found.flip_rate) == (-0.5, 1.0, 0.0)
    rng = np.random.default_rng(1)
    olds, news = (
        rng.integers(1, 6, (3, 40)).astype(float),
        rng.integers(2, 6, (2, 40)).astype(float),
    )
    found = drift(
        olds[0],
        news[0],
        old_again=list(olds[1:]),
        new_again=list(news[1:]),
        bounds=(1, 5),
        tolerance=1.0,
    )
    between = np.mean([np.abs(a - b) for a in olds for b in news])
    within = [
        np.mean([np.abs(side[i] - side[j]) for i in range(len(side)) for j in range(i)])
        for side in (olds, news)
    ]
    assert found.excess == pytest.approx(between - sum(within) / 2)
    pairs = [
        np.abs(side[i] - side[j]) > 1.0
        for side in (olds, news)
        for i in range(len(side))
        for j in range(i)
    ]
    assert found.noise == pytest.approx(np.mean(pairs))
    single = drift(olds[0], news[0], old_again=list(olds[1:]), bounds=(1, 5))
    assert single.excess == pytest.approx(np.mean([np.abs(a - news[0]) for a in olds]) - within[0])


def test_the_p_value_of_the_distance_counts_every_way_to_name_the_runs() -> None:
    old, again, new = [0.0] * 4, [0.0] * 4, [1.0] * 4
    # each anchor's odd run is the new one in one of three ways: 1/81 all four, and none is farther
    # apart
    found = drift(old, new, old_again=[again], n_draws=20_000)
    assert found.excess_p == pytest.approx(1 / 81, abs=0.003)
    same = drift(old, old, old_again=[again], n_draws=200)
    assert (same.excess, same.excess_p) == (0.0, 1.0)


def drawn(rng: np.random.Generator, n: int, runs: int, noise: float) -> list[list[float]]:
    """Prompts with a chance of their own, 0.7 on average; `noise` 0 repeats the first verdict, 1
    draws anew each time.
    """
    chance = rng.beta(1.4, 0.6, n)
    first = rng.random(n) < chance
    found = [
        np.where(rng.random(n) < noise, rng.random(n) < chance, first).astype(float)
        for _ in range(runs)
    ]
    return [run.tolist() for run in found]


def parts(runs: list[list[float]], **more: object) -> Repeats:
    found = variance_parts(runs, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_parts_are_those_that_were_put_in() -> None:
    found = parts(drawn(np.random.default_rng(0), 20_000, 5, 1.0))
    mean, spread = 0.7, 0.7 * 0.3 / 3  # of Beta(1.4, 0.6)
    assert found.score == pytest.approx(mean, abs=0.01) and found.prompt_variance == pytest.approx(
        spread, abs=0.004
    )
    assert found.judge_variance == pytest.approx(mean * (1 - mean) - spread, abs=0.004)
    assert found.judge_share == pytest.approx(2 / 3, abs=0.02)
    assert (found.n, found.n_runs, len(found.scores)) == (20_000, 5, 5)


@pytest.mark.long("coverage by simulation")
def test_both_intervals_hold_what_they_are_about() -> None:
    """New prompts and new replies for one, the same prompts and new replies for the other."""
    rng, n, repeats = np.random.default_rng(0), 150, 500
    both = same = 0
    fixed = rng.beta(1.4, 0.6, n)
    for _ in range(repeats):
        ends = parts(drawn(rng, n, 3, 1.0)).ci95
        both += ends is not None and ends.covers(0.7)
        again = parts([(rng.random(n) < fixed).astype(float).tolist() for _ in range(3)])
        assert again.ci95_same_prompts is not None
        same += again.ci95_same_prompts.covers(float(fixed.mean()))
    assert 0.92 <= both / repeats <= 0.98 and 0.92 <= same / repeats <= 0.98


def test_one_cluster_of_anchors_says_nothing_about_others() -> None:
    """An interval from one conversation was one from its rows, as if they were independent."""
    old, new = [0.0, 1.0] * 6, [1.0, 1.0] * 6
    found = drift(old, new, labels=old, clusters=["a"] * 12)
    assert found.agreement is not None
    for change in (found.shift, found.agreement):
        assert (change.ci95, change.p_value) == (None, None)
    assert found.flip_ci95 is None and not found.findings
    assert sum("all anchors lie in one cluster" in note for note in found.notes) == 1
    said = "\n".join(drift_lines(found, "a", "b"))
    assert "change +0.5\n" in said and "None" not in said


def test_candidates_of_one_prompt_are_one_witness(tmp_path: Path) -> None:
    """Six prompts with forty candidates each were 240 independent anchors, and any judge drifted."""
    versions = []
    for name, lost in (("old", 0), ("new", 2)):
        rows = [
            {"id": f"a{k}", "prompt": f" question  {k % 6}", "score": float(k % 6 >= lost)}
            for k in range(240)
        ]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        versions.append((read_anchors(file), read_anchors(file, cluster="id")))
    by_prompt, apart = (compare_versions(*pair) for pair in zip(*versions, strict=True))
    assert by_prompt.shift.change == apart.shift.change == pytest.approx(-1 / 3)
    assert not by_prompt.findings and apart.findings
    assert by_prompt.shift.ci95 is not None and by_prompt.shift.ci95.covers(0.0)


def test_anchors_that_one_version_refused_bound_every_figure() -> None:
    """Ten refusals of the new version left "no drift found" and no trace in a figure."""
    gap = float("nan")
    old, labels = [1.0, 0.0] * 10, [1.0, 0.0] * 9 + [gap, gap]
    new = [gap if place < 5 else score for place, score in enumerate(old)]
    old[19], new[6] = gap, 0.0
    found = drift(old, new, labels=labels)
    assert (found.n, found.n_missing, found.missing) == (14, 6, {"old": 1, "new": 5})
    agreement = found.agreement
    assert agreement is not None and agreement.n == 13

    def change(fill: Sequence[float], rows: Sequence[int], near: bool) -> float:
        left = iter(fill)
        sides = [[next(left) if score != score else score for score in side] for side in (old, new)]
        worth = [
            [1.0 - abs(score - labels[row]) if near else score for row, score in enumerate(side)]
            for side in sides
        ]
        return float(np.mean([worth[1][row] - worth[0][row] for row in rows]))

    every = list(product((0.0, 1.0), repeat=6))
    for figure, rows, near in ((found.shift, range(20), False), (agreement, range(18), True)):
        fillings = [change(fill, rows, near) for fill in every]
        assert figure.bounds == pytest.approx((min(fillings), max(fillings)))
        assert figure.change == pytest.approx(-1 / figure.n)
    assert found.flip_bounds == pytest.approx((1 / 20, 7 / 20))
    said = drift_lines(found, "a", "b")
    assert said[0] == "no drift found where both versions gave a score"
    assert sum("with what is missing at worst and at best" in line for line in said) == 3
    assert any("(1 not by the old one, 5 not by the new one)" in line for line in said)
    by_run = drift(old, new, credits=(old, new))
    assert by_run.agreement is not None and by_run.agreement.bounds == found.shift.bounds
    wide = drift(old, new, bounds=(-math.inf, math.inf))
    assert wide.shift.bounds is None and "nan" not in "\n".join(drift_lines(wide, "a", "b"))
    whole = drift([0.0, 1.0], [1.0, 1.0])
    assert whole.shift.bounds == (0.5, 0.5) and whole.flip_bounds == (0.5, 0.5)


def test_p_values_of_findings_count_all_questions() -> None:
    old = [1.0, 0.0, 1.0, 1.0] * 15
    new = [0.0 if place % 3 == 0 else score for place, score in enumerate(old)]
    alone, both = drift(old, new), drift(old, new, labels=old)
    p = alone.shift.p_value
    assert p is not None and alone.findings[0].endswith(f"(p = {p:.3g})")
    assert [
        text.endswith(f"(p = {2 * p:.3g} counting all 2 questions)") for text in both.findings
    ] == [
        True,
        True,
    ]
