"""Sums of usage, in which an unknown cost stays unknown."""

from __future__ import annotations

import pytest

from rm_gallery.core.engine.calls.prices import Usage

PRICED = Usage(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2, calls=1, cost=0.25)
UNPRICED = Usage(input_tokens=1, calls=1)
FREE = Usage(cost=0.0)


def total_of(usages: list[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total.add(usage)
    return total


@pytest.mark.parametrize(
    ("usages", "cost"),
    [
        ([], None),
        ([PRICED], 0.25),
        ([PRICED, PRICED], 0.5),
        ([PRICED, UNPRICED], None),
        ([UNPRICED, PRICED, PRICED], None),
        ([FREE], 0.0),
        ([FREE, PRICED, FREE], 0.25),
        ([Usage(), PRICED], 0.25),
        ([FREE, UNPRICED], None),
    ],
)
def test_cost_of_a_sum(usages: list[Usage], cost: float | None) -> None:
    assert total_of(usages).cost == cost


def test_every_field_is_summed_and_the_parts_stay_as_they_were() -> None:
    total = total_of([PRICED, PRICED, FREE])
    assert total == Usage(20, 10, 8, 4, 2, 0.5)
    assert total.total_tokens == 30
    assert PRICED == Usage(10, 5, 4, 2, 1, 0.25)
