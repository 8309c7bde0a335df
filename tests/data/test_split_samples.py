"""`split_samples` cuts a list in two, in order, seeded, and without leaking groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.model.message import ChatMessage
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import split_samples


@pytest.mark.parametrize(
    ("size", "ratio", "expected"),
    [(100, 0.1, 10), (10, 0.1, 1), (2, 0.1, 1), (3, 0.01, 1), (5, 0.99, 4), (1, 0.1, 0), (1, 0.9, 1), (0, 0.5, 0)],
)
def test_sizes(size: int, ratio: float, expected: int) -> None:
    first, rest = split_samples(list(range(size)), ratio)
    assert (len(first), len(rest)) == (expected, size - expected)


def test_default_is_a_tenth_in_order_and_seeded() -> None:
    items = list(range(500))
    first, rest = split_samples(items)
    assert (len(first), len(rest)) == (50, 450)
    assert first == sorted(first) and rest == sorted(rest)
    assert sorted(first + rest) == items
    assert (first, rest) == split_samples(items)
    assert first != split_samples(items, seed=1)[0] != items[:50]


def test_samples_are_not_copied() -> None:
    items = [DataSample(unique_id=str(n)) for n in range(20)]
    first, rest = split_samples(items, 0.5)
    assert {id(item) for item in first + rest} == {id(item) for item in items}


# a machine under load is slow, not wrong
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.integers(0, 8), max_size=60),
    ratio=st.floats(0.05, 0.95),
    seed=st.integers(0, 50),
)
def test_groups_stay_together(keys: list[int], ratio: float, seed: int) -> None:
    items = list(enumerate(keys))
    first, rest = split_samples(items, ratio, seed, by=lambda item: item[1])
    assert sorted(first + rest) == items
    assert not {key for _, key in first} & {key for _, key in rest}
    if len(set(keys)) > 1:
        largest = max(Counter(keys).values())
        assert first and rest
        assert abs(len(first) - ratio * len(items)) <= largest + 1


def test_by_prompt_ignores_white_space_and_sees_the_whole_conversation() -> None:
    def sample(name: str, *texts: str) -> DataSample:
        return DataSample(unique_id=name, input=[ChatMessage(content=text) for text in texts])

    items = [sample(f"{n}{side}", f"question {n}" + side) for n in range(10) for side in ("", "\n", " ")]
    items += [sample("long", "question 1", "and more")]
    first, rest = split_samples(items, 0.3, by="prompt")
    assert 8 <= len(first) <= 10
    assert not {item.unique_id[0] for item in first if item.unique_id != "long"} & {item.unique_id[0] for item in rest}


@pytest.mark.parametrize("ratio", [0, 1, -0.1, 1.5, float("nan"), "0.1", True])
def test_ratio_that_does_not_fit(ratio: Any) -> None:
    with pytest.raises(ConfigError, match="ratio must lie between 0 and 1"):
        split_samples([1, 2], ratio)


@pytest.mark.parametrize(("items", "by"), [([1, 2], "prompt"), ([1, 2], "id")])
def test_grouping_that_does_not_fit(items: list[int], by: Any) -> None:
    with pytest.raises(ConfigError, match="by"):
        split_samples(items, by=by)
