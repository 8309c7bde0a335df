"""Drift of a judge: silence about chance flips, sight of real changes, and several questions at one level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm_gallery.core.stats.drift import Change, Drift, drift
from rm_gallery.core.stats.paired import holm


def runs(
    rng: np.random.Generator, p_old: NDArray[np.float64], p_new: NDArray[np.float64], n_old: int, n_new: int
) -> dict[str, Any]:
    olds = [(rng.random(len(p_old)) < p_old) * 1.0 for _ in range(n_old)]
    news = [(rng.random(len(p_new)) < p_new) * 1.0 for _ in range(n_new)]
    return {"old": olds[0], "new": news[0], "old_again": olds[1:], "new_again": news[1:], "n_draws": 400}


def asked(found: Drift) -> dict[str, float]:
    """The questions that were asked and their p-values."""
    answers: dict[str, float | Change | None] = {
        "the mean score went from": found.shift,
        "the versions differ more than repeats": found.excess_p,
        "agreement with the labels went from": found.agreement,
    }
    return {text: p.p_value if isinstance(p, Change) else p for text, p in answers.items() if p is not None}


def test_findings_are_those_of_holms_correction_over_the_questions_asked() -> None:
    rng, partly = np.random.default_rng(0), set()
    for _ in range(120):
        p = rng.uniform(0.1, 0.9, 60)
        new = np.clip(p + rng.choice([0.0, 0.1, 0.2]), 0, 1)
        case = runs(rng, p, new, int(rng.integers(1, 3)), 1)
        found = drift(**case, labels=(rng.random(60) < p) * 1.0 if rng.random() < 0.7 else None, confidence=0.8)
        questions = asked(found)
        expected = {text for text, p in zip(questions, holm(list(questions.values())), strict=True) if p <= 0.2 + 1e-12}
        assert {next(text for text in questions if one.startswith(text)) for one in found.findings} == expected
        one_level = {text for text, p in questions.items() if p <= 0.2 / len(questions)}
        partly.add((len(questions), len(expected), expected == one_level))
    assert {(2, 1, True), (3, 1, True)} <= partly and any(not same for *_, same in partly), "steps that get easier"


@pytest.mark.parametrize(("n_old", "n_new"), [(2, 1), (1, 3)])
def test_chance_flips_are_no_drift(n_old: int, n_new: int) -> None:
    rng, alarms = np.random.default_rng(n_old), 0
    for _ in range(200):
        p = rng.beta(0.3, 0.2, 150)  # most anchors are clear, some are a coin toss
        found = drift(**runs(rng, p, p, n_old, n_new), seed=int(rng.integers(1 << 30)))
        assert found.flip_rate > 0.0
        alarms += bool(found.findings)
    assert alarms / 200 <= 0.08


def test_one_flip_in_ten_thousand_is_no_drift() -> None:
    old = np.tile([1.0, 0.0], 5000)
    new = np.concatenate([[0.0], old[1:]])
    assert drift(old, new).findings == ()
    assert drift(old, new, old_again=[old]).findings == ()


def test_the_distance_is_what_is_beyond_that_of_repeats() -> None:
    found = drift([0.0] * 9, [0.0] * 9, old_again=[[1.0] * 9], new_again=[[1.0] * 9], n_draws=100)
    # between the versions half of the pairs differ, within either version all of them
    assert (found.excess, found.noise, found.flip_rate) == (-0.5, 1.0, 0.0)
    rng = np.random.default_rng(1)
    olds, news = rng.integers(1, 6, (3, 40)).astype(float), rng.integers(2, 6, (2, 40)).astype(float)
    found = drift(olds[0], news[0], old_again=list(olds[1:]), new_again=list(news[1:]), bounds=(1, 5), tolerance=1.0)
    between = np.mean([np.abs(a - b) for a in olds for b in news])
    within = [np.mean([np.abs(side[i] - side[j]) for i in range(len(side)) for j in range(i)]) for side in (olds, news)]
    assert found.excess == pytest.approx(between - sum(within) / 2)
    pairs = [np.abs(side[i] - side[j]) > 1.0 for side in (olds, news) for i in range(len(side)) for j in range(i)]
    assert found.noise == pytest.approx(np.mean(pairs))
    single = drift(olds[0], news[0], old_again=list(olds[1:]), bounds=(1, 5))
    assert single.excess == pytest.approx(np.mean([np.abs(a - news[0]) for a in olds]) - within[0])


def test_the_p_value_of_the_distance_counts_every_way_to_name_the_runs() -> None:
    old, again, new = [0.0] * 4, [0.0] * 4, [1.0] * 4
    # each anchor's odd run is the new one in one of three ways: 1/81 all four, and none is farther apart
    found = drift(old, new, old_again=[again], n_draws=20_000)
    assert found.excess_p == pytest.approx(1 / 81, abs=0.003)
    same = drift(old, old, old_again=[again], n_draws=200)
    assert (same.excess, same.excess_p) == (0.0, 1.0)


def test_verdicts_that_swap_without_moving_the_mean_are_found_with_repeats() -> None:
    rng = np.random.default_rng(3)
    p = np.where(np.arange(300) % 2 == 0, 0.95, 0.05)
    moved = np.where(np.arange(300) < 30, 1 - p, p)
    found = drift(**runs(rng, p, moved, 2, 1))
    assert found.excess_p is not None and found.excess_p < 0.01
    assert found.noise is not None and found.noise == pytest.approx(0.095, abs=0.05) and found.flip_rate > found.noise
    assert len(found.findings) == 1 and "more than repeats" in found.findings[0]


def test_a_shift_of_graded_scores_is_found_at_its_size() -> None:
    rng = np.random.default_rng(4)
    true = rng.uniform(2, 4, 200)
    old, again, new = (np.clip(true + 0.2 * rng.standard_normal(200) + s, 1, 5) for s in (0, 0, 0.1))
    found = drift(old, new, old_again=[again], bounds=(1, 5), tolerance=0.5)
    assert found.shift.change == pytest.approx(float(np.mean(new - (old + again) / 2)))
    assert found.shift.ci95.low > 0 and "the mean score went from" in found.findings[0]
    assert found.flip_rate < 0.3
    rows, prompts = (
        drift(old, new, clusters=names, bounds=(1, 5)) for names in (None, np.repeat(np.arange(20), 10).tolist())
    )
    assert rows.shift.change == prompts.shift.change and rows.shift.ci95 != prompts.shift.ci95


def test_agreement_of_credits_lies_within_its_scale_even_where_scores_have_no_ends() -> None:
    found = drift([1, 2, 3, 4], [2, 2, 3, 5], credits=([0, 1, 0, 1], [1, 1, 0, 1]), bounds=(-np.inf, np.inf)).agreement
    assert found is not None and found.ci95 is not None and -1.0 <= found.ci95.low <= found.ci95.high <= 1.0
