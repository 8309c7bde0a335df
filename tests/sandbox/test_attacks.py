"""Hostile answers score 0 with a reason, within the deadline, and nothing outside changes."""

from __future__ import annotations

import pytest

from rm_gallery.core.sandbox.bwrap import BwrapRunner
from rm_gallery.core.sandbox.code_tests import HumanEvalTests
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.outside import SECRET_NAME, Outside
from tests.sandbox.scoring import score

pytestmark = pytest.mark.system("bubblewrap")

TEST = "def check(candidate):\n    assert candidate() == 424242\n    assert all(map(lambda _: candidate() == 424242, range(3)))\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_answer_scores_zero(bubblewrap: BwrapRunner, outside: Outside, name: str) -> None:
    code, allowed = ATTACKS[name]
    code = code.format(file=outside.file, port=outside.port, secret=SECRET_NAME)
    report = score(bubblewrap, code + "\n", HumanEvalTests(TEST, "f"), deadline=10.0)
    assert report.score == 0.0
    assert report.outcomes[0].reason in allowed
    assert report.seconds < 11.0
    outside.assert_unchanged()
