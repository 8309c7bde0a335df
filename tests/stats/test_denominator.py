"""A closed denominator against every filling of what is missing, and what missing scores go with."""

from __future__ import annotations

import math
import random
import tracemalloc
from itertools import product

import pytest

from rm_gallery.core.stats.denominator import (
    Bounded,
    MissingnessTest,
    Trait,
    added,
    mean_bounds,
    weighted_bounds,
    worst_case_bounds,
)
from rm_gallery.core.stats.intervals import Interval


@pytest.mark.parametrize("scale", [(0.0, 1.0), (-1.0, 2.0), (1.0, 10.0)])
@pytest.mark.parametrize("seed", range(8))
def test_the_bounds_of_a_mean_are_the_ends_of_all_fillings(
    seed: int, scale: tuple[float, float]
) -> None:
    draw = random.Random(seed)
    known = [draw.uniform(*scale) for _ in range(draw.randrange(0, 5))]
    lost = draw.randrange(1, 6)
    means = [
        math.fsum([*known, *fill]) / (len(known) + lost)
        for fill in product((*scale, sum(scale) / 2), repeat=lost)
    ]
    found = worst_case_bounds(
        len(known) + lost, len(known), math.fsum(known), {"judge": lost}, scale
    )
    assert found.bounds == pytest.approx((min(means), max(means))) and found.n_missing == lost


def test_the_bounds_of_a_weighted_mean_are_the_ends_of_all_fillings() -> None:
    parts, weights = [(3, 2, 1.0), (2, 0, 0.0), (4, 4, 3.0)], (1.0, 5.0, 2.0)
    each = [worst_case_bounds(n, k, total, {"data": n - k}) for n, k, total in parts]
    ends = [
        math.fsum(
            w * (total + fill) / n
            for w, (n, _, total), fill in zip(weights, parts, fills, strict=True)
        )
        / 8.0
        for fills in product(range(2), range(3), [0])
    ]
    assert weighted_bounds(
        (one.bounds, w) for one, w in zip(each, weights, strict=True)
    ) == pytest.approx((min(ends), max(ends)))
    assert mean_bounds([None, Interval(0.2, 0.4)]) == (0.2, 0.4) and mean_bounds([None]) is None


def test_what_no_cause_is_known_of_was_never_begun_and_an_open_scale_has_no_end() -> None:
    assert worst_case_bounds(10, 4, 3.0, {"judge": 1, "data": 2, "rule": 0}).missing == {
        "caller": 3,
        "data": 2,
        "judge": 1,
    }
    assert worst_case_bounds(10, 4, 3.0, {"judge": 1, "caller": 2}).missing == {
        "caller": 5,
        "judge": 1,
    }, "beside those known to be"
    assert worst_case_bounds(10, 4, 3.0, {"judge": 1, "caller": 5}).missing == {
        "caller": 5,
        "judge": 1,
    }
    assert worst_case_bounds(4, 3, 6.0, {"judge": 1}, (0.0, math.inf)).bounds == (1.5, math.inf)
    assert worst_case_bounds(4, 3, 6.0, {"judge": 1}, (-math.inf, math.inf)).bounds is None
    assert worst_case_bounds(3, 3, 6.0, {}, (-math.inf, math.inf)) == Bounded(
        3, 3, {}, Interval(2.0, 2.0)
    )
    assert worst_case_bounds(0, 0, 0.0, {}).bounds is None and added(
        [{"judge": 1}, {"data": 3, "judge": 1}]
    ) == {"data": 3, "judge": 2}


def looked(missing: dict[str, int], n: int = 50, **trait: Trait) -> MissingnessTest:
    lookout = MissingnessTest()
    for name, lost in missing.items():
        for k in range(n):
            lookout.add(k < lost, {"subset": name, "length": float(k % 7), **trait})
    return lookout


def test_a_subset_is_named_with_its_numbers_and_what_is_alike_is_not() -> None:
    found = looked({"x": 40, "y": 1, "z": 1}).report()
    assert found["found"][0] | {"p_adjusted": 0.0} == {
        "with": "subset 'x'", "p_adjusted": 0.0, "missing": 40, "of": 50, "missing_elsewhere": 2, "of_elsewhere": 100,
    }  # fmt: skip
    assert found["said"][0].startswith(
        "missing scores go with subset 'x': 40 of 50 there, 2 of 100 elsewhere (p = "
    )
    alike = looked({"x": 7, "y": 7, "z": 8}).report()
    assert (
        alike["found"] == []
        and "nothing that was looked at (subset, length; 4 tests, n=150)" in alike["said"][0]
    )
    assert looked({"x": 0}).report() == looked({"x": 50}).report() == {}


def test_of_two_names_the_one_with_the_larger_share_missing_is_named() -> None:
    lookout = MissingnessTest()
    for name, lost, n in (("many", 10, 200), ("few", 8, 10)):
        for k in range(n):
            lookout.add(k < lost, {"subset": name})
    (found,) = lookout.report()["found"]
    assert (found["with"], found["missing"], found["of"], found["missing_elsewhere"]) == (
        "subset 'few'",
        8,
        10,
        10,
    )


def test_a_side_is_named_only_by_samples_of_which_another_side_has_a_score() -> None:
    lookout = MissingnessTest()
    for lost in [("left",)] * 8 + [("left", "right")] * 40 + [()] * 10:
        lookout.add(bool(lost), {}, lost, ("left", "right"))
    (found,) = lookout.report()["found"]
    assert (found["with"], found["missing"], found["of"]) == ("left", 8, 8)
    assert found["p_adjusted"] == pytest.approx(2 / 2**8)


def test_p_values_are_exact_and_count_all_tests() -> None:
    lookout = MissingnessTest()
    for k in range(12):
        lookout.add(
            k < 6, {"label": "a" if k < 6 else "b"}, ["left"] if k < 6 else [], ("left", "right")
        )
    (by_label, by_side) = lookout.report()["found"]
    assert by_label["p_adjusted"] == pytest.approx(2 * 2 / math.comb(12, 6))
    assert by_side["p_adjusted"] == pytest.approx(2 / 2**6) and by_side["with"] == "left"


@pytest.mark.parametrize("seed", range(3))
def test_what_goes_missing_by_chance_is_rarely_suspected(seed: int) -> None:
    draw, wrong = random.Random(seed), 0
    for _ in range(100):
        lookout = MissingnessTest()
        for _ in range(80):
            traits: dict[str, Trait] = {"subset": draw.choice("abcd"), "length": draw.random()}
            lookout.add(draw.random() < 0.2, traits)
        wrong += bool(lookout.report()["found"])
    assert wrong <= 12, "5 of 100 are allowed, and chance adds to them"


@pytest.mark.parametrize("kind", ["name", "number", "side"])
def test_rows_of_one_prompt_are_one_witness_of_what_is_missing(kind: str) -> None:
    """Ten rows a prompt that are missing together once were ten witnesses."""

    def said(seed: int, clustered: bool, related: bool) -> bool:
        draw, test = random.Random(seed), MissingnessTest()
        for prompt in range(40):
            missing, high = draw.random() < 0.4, draw.random() < 0.5
            if related:
                missing = draw.random() < (0.9 if high else 0.1)
            for _ in range(10):
                lost, sides = [], []
                traits: dict[str, Trait] = {}
                if kind == "side":
                    sides, lost = ["left", "right"], ["left" if high else "right"] * missing
                    lost = ["left"] * missing if related else lost
                elif kind == "name":
                    traits = {"subset": "ab"[high]}
                else:
                    traits = {"length": high + draw.random() / 2}
                test.add(missing, traits, lost, sides, f"prompt {prompt}" if clustered else "")
        return bool(test.report()["found"])

    assert sum(said(seed, True, False) for seed in range(60)) <= 6
    assert sum(said(seed, False, False) for seed in range(60)) > 12
    assert all(said(seed, True, True) for seed in range(5))


def test_looking_for_what_missing_scores_go_with_keeps_eight_bytes_a_number_or_cluster() -> None:
    traits: list[dict[str, Trait]] = [
        {"subset": "ab"[row % 2], "length": float(row)} for row in range(20_000)
    ]
    lookout = MissingnessTest()
    tracemalloc.start()
    try:
        for row, known in enumerate(traits):
            lookout.add(row % 50 == 0, known)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 24 * len(traits) and lookout.report()["looked_at"] == ["subset", "length"]
