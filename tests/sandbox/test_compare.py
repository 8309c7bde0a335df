"""When a value or a text counts as the expected one."""

from __future__ import annotations

import math

import pytest

from rm_gallery.core.sandbox.inside.testing import same_output, same_value


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, True),
        ((1, (2, 3)), [1, [2, 3]], True),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        (1000000006.0, 1000000007, False),
        (1000000006, 1000000007.0, False),
        (1000000007.0, 1000000007, True),
        (3.0000000001, 3, False),
        (2.9999999999, 3.0, True),
        (1e-17, 0.0, True),
        (6.6e-34, 1.6e-19, False),
        (math.nan, math.nan, True),
        (math.inf, 1e308, False),
        (10**400, 1.5, False),
        ("1", 1, False),
        (None, [], False),
        ([1], [[1]], True),
        (5, [5], True),
        (5, [5, 6], False),
        ({1: "a"}, {"1": "a"}, True),
        ({1: "a", 2: "b"}, {"1": "a"}, False),
        ({"a": [0.30000001]}, {"a": [0.3]}, True),
        (True, 1.0, True),
        ("0.3", "0.30", False),
    ],
)
def test_values(found: object, expected: object, same: bool) -> None:
    assert same_value(found, expected) is same


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("a\n", "a", True),
        ("a  \r\nb\n\n", "a\nb", True),
        ("a\n\nb", "a\nb", False),
        ("a b", "a   b", True),
        ("0.3333333", "0.33333333", True),
        ("0.5", "0.25", False),
        ("1.0", "1", False),
        ("1", "1.0", True),
        ("1000000006", "1000000007.0", False),
        ("1000000006.0", "1000000007", False),
        ("0.00000012", "0.00000021", False),
        ("1e3", "1000.0", True),
        ("1000", "1e3", True),
        ("nan", "0.5", False),
        ("YES", "Yes", False),
        ("", "", True),
        ("", "\n", True),
        ("one.two", "one.three", False),
    ],
)
def test_outputs(found: str, expected: str, same: bool) -> None:
    assert same_output(found, expected) is same
