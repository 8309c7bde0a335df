"""Numbers in sentences are told with the digits that make them true."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.report.compare import under
from rm_gallery.report.drawing import told_apart
from rm_gallery.report.formats import Gate


@pytest.mark.parametrize(
    ("value", "limit", "said"),
    [(50.0, 70.0, ("50.0", "70.0")), (69.96, 70.0, ("69.96", "70.00")), (70.0, 70.0, ("70.0", "70.0"))],
)
def test_two_numbers_have_the_digits_in_which_they_differ(value: float, limit: float, said: tuple[str, str]) -> None:
    assert told_apart(value, limit, lambda number, digits: f"{number:.{digits}f}", 1) == said


def test_a_gate_never_says_that_a_number_is_below_itself() -> None:
    run: Any = SimpleNamespace(finished=True)
    assert ("score", "69.996 % is below 70.000 %") in list(Gate(0.7).missed(run, {"score": 0.69996}))
    assert ("score", "0.69996 is below 0.7") in list(Gate(0.7).missed(run, {"score": 0.69996, "rule": "mean_score"}))
    assert (under(0.69996, None, 0.7) or "").startswith("the score 69.996 is below 70.000;")
    assert under(0.7, None, 0.7) is None
