"""Repeated runs: the judge's part of the variance, the prompts' part, and the interval that holds both."""

from __future__ import annotations

import numpy as np
import pytest

from rm_gallery.core.stats.repeats import Repeats, variance_parts


def drawn(rng: np.random.Generator, n: int, runs: int, noise: float) -> list[list[float]]:
    """Prompts with a chance of their own, 0.7 on average; `noise` 0 repeats the first verdict, 1 draws anew each time."""
    chance = rng.beta(1.4, 0.6, n)
    first = rng.random(n) < chance
    found = [np.where(rng.random(n) < noise, rng.random(n) < chance, first).astype(float) for _ in range(runs)]
    return [run.tolist() for run in found]


def parts(runs: list[list[float]], **more: object) -> Repeats:
    found = variance_parts(runs, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_parts_are_those_that_were_put_in() -> None:
    found = parts(drawn(np.random.default_rng(0), 20_000, 5, 1.0))
    mean, spread = 0.7, 0.7 * 0.3 / 3  # of Beta(1.4, 0.6)
    assert found.score == pytest.approx(mean, abs=0.01)
    assert found.prompt_variance == pytest.approx(spread, abs=0.004)
    assert found.judge_variance == pytest.approx(mean * (1 - mean) - spread, abs=0.004)
    assert found.judge_share == pytest.approx(2 / 3, abs=0.02)
    assert (found.n, found.n_runs, len(found.scores)) == (20_000, 5, 5)


def test_a_judge_that_repeats_itself_has_no_part_and_more_runs_narrow_nothing() -> None:
    runs = drawn(np.random.default_rng(0), 300, 4, 0.0)
    found = parts(runs)
    assert (found.judge_variance, found.judge_share, found.run_sd, found.unstable) == (0.0, 0.0, 0.0, 0.0)
    assert found.ci95 == parts(runs[:1]).ci95


def test_more_runs_narrow_the_interval_by_the_judges_part_alone() -> None:
    rng = np.random.default_rng(0)
    runs = drawn(rng, 500, 16, 1.0)
    widths = [found.ci95.high - found.ci95.low for found in (parts(runs[:1]), parts(runs))]
    assert 0.5 < widths[1] / widths[0] < 0.75, "a third of the variance is the prompts', and stays"
    all_runs = parts(runs)
    assert all_runs.ci95_same_prompts is not None
    assert all_runs.ci95_same_prompts.high - all_runs.ci95_same_prompts.low < widths[1] / 2


def test_both_intervals_hold_what_they_are_about() -> None:
    """New prompts and new replies for one, the same prompts and new replies for the other."""
    rng, n, repeats = np.random.default_rng(0), 150, 500
    both = same = 0
    fixed = rng.beta(1.4, 0.6, n)
    for _ in range(repeats):
        both += parts(drawn(rng, n, 3, 1.0)).ci95.covers(0.7)
        again = parts([(rng.random(n) < fixed).astype(float).tolist() for _ in range(3)])
        assert again.ci95_same_prompts is not None
        same += again.ci95_same_prompts.covers(float(fixed.mean()))
    assert 0.92 <= both / repeats <= 0.98
    assert 0.92 <= same / repeats <= 0.98
