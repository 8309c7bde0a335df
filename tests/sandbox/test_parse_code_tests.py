"""Labels and metadata as code tests."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.sandbox.code_tests import (
    AssertTests,
    CodeTests,
    HumanEvalTests,
    InputOutputTests,
    parse_code_tests,
)
from rm_gallery.core.utils.errors import DataError

TABLE: list[tuple[dict[str, Any], CodeTests]] = [
    ({"test": "t", "entry_point": "f"}, HumanEvalTests("t", "f")),
    ({"test": "t", "entry_point": "f", "prompt": "p"}, HumanEvalTests("t", "f", "p")),
    ({"tests": ["assert 1"]}, AssertTests(["assert 1"])),
    ({"tests": "assert 1", "setup": "x = 1"}, AssertTests(["assert 1"], setup="x = 1")),
    ({"inputs_outputs": {"inputs": [1], "outputs": [2]}}, InputOutputTests([1], [2])),
    ({"inputs_outputs": '{"inputs": [[1]], "outputs": [2], "fn_name": "f"}'}, InputOutputTests([[1]], [2], "f")),
    ({"input_output": '{"inputs": [], "outputs": []}'}, InputOutputTests([], [])),
    ({"inputs": ["a"], "outputs": ["b"]}, InputOutputTests(["a"], ["b"])),
]


@pytest.mark.parametrize(("record", "expected"), TABLE, ids=range(len(TABLE)))
def test_known_shapes(record: dict[str, Any], expected: CodeTests) -> None:
    assert parse_code_tests(record) == expected


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({}, "expected 'test'"),
        ({"test": "t"}, "entry_point"),
        ({"test": 3, "entry_point": "f"}, "'test' must be text"),
        ({"inputs_outputs": "{"}, "no valid JSON"),
        ({"inputs_outputs": []}, "'inputs' and 'outputs'"),
        ({"inputs": [1, 2], "outputs": [1]}, "2 inputs but 1 outputs"),
    ],
)
def test_what_is_missing_is_named(record: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        parse_code_tests(record)
