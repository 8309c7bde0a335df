"""What the golden files' own reader says."""

from __future__ import annotations

import pytest

from tests.golden.golden import HERE, check, lines


def test_a_file_that_is_not_there_says_what_to_write() -> None:
    path = HERE / "converters" / "absent.jsonl"
    for read in (lambda: list(lines(path)), lambda: check(path, lambda line: line, ())):
        with pytest.raises(AssertionError, match="^write tests/golden/converters/absent.jsonl: a "):
            read()
