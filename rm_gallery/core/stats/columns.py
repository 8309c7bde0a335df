"""Columns that figures are made of: numbers with gaps, and names as numbers from 0."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any

from rm_gallery.core.stats import Array, Floats, Integers, Names, Numbers, np
from rm_gallery.core.utils.errors import ConfigError

_LARGEST = 1e100
"""Squares of larger numbers overflow."""


def numbers(values: Numbers, name: str) -> Floats:
    """A column of floats, None as NaN; ConfigError for infinities and texts, which are never cast."""
    try:
        column = np.array(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} holds numbers, or None where there is none: {error}") from None
    if column.ndim != 1:
        raise ConfigError(f"{name} is one number per row; found an array of shape {column.shape}")
    huge = np.flatnonzero(np.abs(column) > _LARGEST)
    if len(huge):
        raise ConfigError(
            f"{name} holds {column[huge[0]]:g} in row {huge[0]}, which is no score; leave it out as "
            f"None"
        )
    return column


def cluster_numbers(names: Names | None, n: int) -> Integers:
    """Number the clusters from 0; without names every item is a cluster of its own.

    Raises:
        ConfigError: unless there is one name per item.
    """
    if names is None:
        return np.arange(n)
    if len(names) != n:
        raise ConfigError(
            f"one cluster name per item is needed, got {len(names)} names for {n} items"
        )
    if isinstance(names, np.ndarray) and names.dtype != object:
        # speed and room: sorting a million once more takes 40 MB
        if _are_numbers(names):
            return np.asarray(names, dtype=np.int64)
        if n and (names[1:] >= names[:-1]).all():
            return np.concatenate([[0], np.cumsum(names[1:] != names[:-1], dtype=np.int64)])
        return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.int64)
    known: dict[Any, int] = {}
    return np.fromiter(
        (known.setdefault(name, len(known)) for name in names), dtype=np.int64, count=n
    )


def _are_numbers(names: Array) -> bool:
    """Whether they are 0, 1, … without a gap already."""
    if names.dtype.kind not in "iu" or not len(names):
        return False
    return 0 <= names.min() and names.max() < len(names) and bool(np.bincount(names).all())


def check_columns(first: Array, second: Array, name: str, other: str) -> None:
    """Raise ConfigError unless both are columns of one length."""
    if first.shape != second.shape or first.ndim != 1:
        raise ConfigError(
            f"{name} and {other} need the same length, got {first.shape} and {second.shape}"
        )


def first_seen(names: Array) -> Integers:
    """Number equal entries 0, 1, … in the order they appear."""
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int64)
    return rank[codes]


def crossed(clusters: Integers, groups: Integers) -> bool:
    """Whether rows of one cluster lie in several groups; both are numbers from 0."""
    group: Integers = np.zeros(int(clusters.max(initial=0)) + 1, dtype=np.int64)
    group[clusters] = groups
    return bool((group[clusters] != groups).any())


def names_where(names: Names | None, kept: Iterable[Any]) -> list[Any] | None:
    """The names of those items that are kept; None where items have no names."""
    return None if names is None else list(compress(names, kept))
