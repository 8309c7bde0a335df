"""Garbage and failing judges score nothing: every sample ends with a reason, none with a number."""

from __future__ import annotations

import pytest

from rm_gallery.core.data.schema import DataSample
from tests.gallery.judged.material import (
    LISTWISE,
    ONE_OF_EACH,
    PAIRWISE,
    POINTWISE,
    Judge,
    accuracy,
    reasons,
    scores,
    tasks,
)

SIZES = {**dict.fromkeys(LISTWISE, 12), **dict.fromkeys(POINTWISE, 4), **dict.fromkeys(PAIRWISE, 2)}
UNREADABLE = {("unscored", "parse"), ("unscored", "empty")}


def _assert_nothing_scored(judge: Judge, name: str) -> list[DataSample]:
    reward = judge.reward(name)
    samples = tasks(SIZES[name])
    scored = reward.evaluate_batch(samples, max_workers=32)
    assert [s.unique_id for s in scored] == [s.unique_id for s in samples]
    assert accuracy(reward, scored) == (0, None)
    for sample in scored:
        assert scores(reward, sample) == [None] * 4
        for output in sample.output:
            (issue,) = output.answer.reward.issues
            assert issue.name == name
            assert issue.message
            assert output.answer.reward.score is None
    return scored


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_garbage_is_unscored(judge: Judge, name: str) -> None:
    judge.behave("garbage")
    scored = _assert_nothing_scored(judge, name)
    assert reasons(scored) <= UNREADABLE
    assert ("unscored", "parse") in reasons(scored)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_server_error_is_a_failure(failing: Judge, name: str) -> None:
    failing.behave("perfect", always=500)
    assert reasons(_assert_nothing_scored(failing, name)) == {("failed", "transient")}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_refused_key_is_a_failure(failing: Judge, name: str) -> None:
    failing.behave("perfect", always=401)
    found = reasons(_assert_nothing_scored(failing, name))
    assert ("failed", "fatal") in found
    # after twenty such calls the run stops, and the rest is not asked for
    assert found <= {("failed", "fatal"), ("failed", "stopped")}
