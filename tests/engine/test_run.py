"""What a run changes in its process while it goes, and gives back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base import BasePointWiseReward
from rm_gallery.core.reward.schema import RewardResult
from tests.faults.rewards import length_of
from tests.support.samples import make_sample

SAMPLES = [make_sample("x" * k) for k in range(20)]


class Looks(BasePointWiseReward):
    """Notes how often the collector of cycles would run."""

    name = "looks"
    seen: ClassVar[set[tuple[int, ...]]] = set()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        Looks.seen.add(gc.get_threshold())
        return length_of(sample)


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """The collector as Python sets it."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    Looks.seen.clear()
    yield (700, 10, 10)
    gc.set_threshold(*before)


def test_cycles_are_looked_for_less_often_until_the_last_run_is_over(usual: tuple[int, int, int]) -> None:
    stream = Looks().evaluate_stream(iter(SAMPLES), max_workers=2)
    next(stream)
    Looks().evaluate_batch(SAMPLES, max_workers=2)
    assert gc.get_threshold() == (200_000, 50, 100), "the stream is still open"
    assert Looks.seen == {(200_000, 50, 100)}
    assert len(list(stream)) == len(SAMPLES) - 1
    assert gc.get_threshold() == usual
    Looks.seen.clear()
    Looks().evaluate_batch(SAMPLES)
    assert Looks.seen == {(200_000 + 17 * len(SAMPLES), 50, 100)}, "and still less where results are kept"
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("of_the_host", [(0, 10, 10), (500_000, 20, 20)])
def test_a_collector_that_the_host_has_set_stays_as_it_is(
    usual: tuple[int, int, int], of_the_host: tuple[int, int, int]
) -> None:
    gc.set_threshold(*of_the_host)
    Looks().evaluate_batch(SAMPLES)
    assert Looks.seen == {of_the_host} == {gc.get_threshold()}
