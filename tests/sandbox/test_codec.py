"""The codec returns exact builtin values, keeps to its bounds, and refuses every damaged message."""

from __future__ import annotations

import datetime
import enum
import math
import re
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm_gallery.core.sandbox.inside.codec import (
    MAX_DEPTH,
    CodecError,
    Ref,
    TooLarge,
    decode,
    encode,
)

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False),
    st.text(st.characters(exclude_categories=())), st.binary(),
)  # fmt: skip
HASHABLE = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=8
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.long("programs that resist")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_round_trip(value: object) -> None:
    found = decode(encode(value))
    assert found == value
    assert type(found) is type(value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60))
def test_random_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value = decode(data)
    except CodecError:
        return
    if not has_reference(value):
        assert type(decode(encode(value))) is type(value)


def has_reference(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_reference(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(has_reference, value))
    return isinstance(value, Ref)


@pytest.mark.long("programs that resist")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.data())
def test_cut_messages_are_refused(value: object, data: st.DataObject) -> None:
    message = encode(value)
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(CodecError):
        decode(message[:cut])


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 7


class Loud(str):
    def __str__(self) -> str:
        return "something else"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(("value", "flat"), [
    (Liar(3), 3),
    (Loud("text"), "text"),
    (enum.IntEnum("Colour", "RED").RED, 1),  # type: ignore[attr-defined]
    (type("Mine", (dict,), {})(a=1), {"a": 1}),
    (type("Mine", (list,), {"__len__": lambda self: 9})([1]), [1]),
])  # fmt: skip
def test_subclasses_are_flattened(value: object, flat: object) -> None:
    found = decode(encode(value))
    assert type(found) is type(flat)
    assert found == flat


@pytest.mark.parametrize("value", [
    Counter("aab"), OrderedDict(b=1, a=2), defaultdict(list, a=[1]), deque([1, 2], maxlen=2), Point(1, 2), bytearray(b"x"),
    array("i", [1, 2]), Fraction(1, 3), Decimal("0.10"), datetime.date(2025, 3, 14), datetime.timedelta(1), range(3), UUID(int=7), PurePosixPath("/a/b"),
])  # fmt: skip
def test_data_of_the_standard_library_keeps_its_type(value: object) -> None:
    found = decode(encode(value))
    assert type(found).__name__ == type(value).__name__
    assert found == value


def test_views_matches_and_factories_are_of_use_on_the_other_side() -> None:
    given: list[object] = [re.search(r"(\d)b", "a1b"), {"a": 1}.keys(), defaultdict(int)]
    match, keys, counts = (decode(encode(each)) for each in given)
    assert match.groups() == ("1",) and match.span() == (1, 3)  # type: ignore[attr-defined]
    assert keys == {"a"} and counts["x"] == 0  # type: ignore[index]


@pytest.mark.parametrize("value", [object(), len, int, iter([]), [print], {"a": {object()}}])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(CodecError):
        encode(value)


def test_other_types_become_references_on_request() -> None:
    kept: list[object] = []

    def keep(value: object) -> int:
        kept.append(value)
        return len(kept) - 1

    message = encode([1, len, (str,)], keep=keep)
    assert decode(message, resolve=kept.__getitem__) == [1, len, (str,)]


@pytest.mark.parametrize("value", [
    *(math.nan, math.inf, -math.inf, -0.0, complex(-0.0, math.inf)),
    *(range(3, 9, 2), slice(1, None)),
    deque([1, "a"], maxlen=3),
    datetime.datetime(2020, 2, 29, 1, tzinfo=datetime.timezone.utc),
    *(datetime.date(1, 1, 1), datetime.time(23, 59, 59, 999), datetime.timedelta(-1, 5, 6)),
    *(Decimal("-1.50"), Fraction(1, 3)),
    *map(np.array, ([[1.5, 2.0]], ["a", "bc"], [True, False], [1 + 2j])),
    np.array([], dtype=np.uint8),
])  # fmt: skip
def test_odd_floats_and_data_of_the_standard_library_and_numpy_arrive_as_they_are(
    value: object,
) -> None:
    found = decode(encode([value]))
    assert isinstance(found, list)
    assert type(found[0]) is type(value)
    assert repr(found[0]) == repr(value)


def test_bounds_hold_to_the_byte_and_to_the_level() -> None:
    def nested(levels: int) -> object:
        value: object = None
        for _ in range(levels):
            value = [value]
        return value

    cycle: list[object] = []
    cycle.append(cycle)
    for text in ("x" * 100, b"x" * 100, [None] * 96):
        assert decode(encode(text, limit=100)) == text
    for value in ("x" * 101, b"x" * 101, [None] * 100, 1 << 808, dict.fromkeys(range(90)), cycle):
        with pytest.raises(TooLarge):
            encode(value, limit=100)
    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    message = b"l\x00\x00\x00\x01" * MAX_DEPTH + b"N"
    assert decode(message) == nested(MAX_DEPTH)
    with pytest.raises(TooLarge):
        encode(nested(MAX_DEPTH + 1))
    with pytest.raises(TooLarge):
        decode(b"l\x00\x00\x00\x01" + message)
    # an item takes a byte at least: a count is believed as far as there are bytes
    assert decode(b"l\x00\x00\x00\x02NN") == [None, None]
    with pytest.raises(CodecError, match="larger than the data"):
        decode(b"l\x00\x00\x00\x03NN")
    with pytest.raises(CodecError, match="left over"):
        decode(encode(1) + b"N")


@pytest.mark.parametrize("message", [
    b"", b"?", b"NN", b"l\xff\xff\xff\xff", b"s\x00\x00\x00\x02a", b"s\x00\x00\x00\x01\xff",
    b"S\x00\x00\x00\x01l\x00\x00\x00\x00", b"D\x00\x00\x00\x01N", b"d\x00", b"l\x00\x00\x00\x01" * 400 + b"N",
    b"x" + encode("builtins.eval") + encode("1"), b"x" + encode("datetime.date") + encode("29 February"),
    b"x" + encode("numpy.ndarray") + encode(("|O", (1,), [1])), b"x" + encode("numpy.ndarray") + encode(("|V8", (1,), [1])),
    b"xNN",
])  # fmt: skip
def test_damaged_messages_are_refused(message: bytes) -> None:
    with pytest.raises(CodecError):
        decode(message)
