"""What a run shows while it goes, on a terminal and elsewhere, and what it changes in its process
and gives back.
"""

from __future__ import annotations

import gc
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rm_gallery import (
    BasePointWiseReward,
    DataSample,
    RewardRegistry,
    RewardResult,
    RunOptions,
    Unscored,
    rule,
)
from rm_gallery.core.engine import progress
from rm_gallery.core.engine.context import RunControl
from tests.faults.rewards import Plain, length_of
from tests.support.samples import make_sample


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **options: Any) -> str:
    """What a batch of eight, one of which fails, writes to stderr."""
    monkeypatch.setattr(sys, "stderr", stream)
    texts = ["raise", *("x" * k for k in range(1, 8))]
    Plain().evaluate_batch(
        [make_sample(text, unique_id=text) for text in texts], max_workers=2, **options
    )
    return stream.getvalue()


@pytest.mark.parametrize(
    ("asked", "terminal", "wanted"),
    [(True, False, True), (None, False, False), (False, True, False)],
)
def test_who_asks_or_looks_is_shown_it(
    monkeypatch: pytest.MonkeyPatch, asked: bool | None, terminal: bool, wanted: bool
) -> None:
    found = shown(monkeypatch, Terminal() if terminal else io.StringIO(), progress=asked)
    assert ("8/8 done · 1 failed · 0 unscored" in found) == wanted
    assert "\r" not in found and found.count("done") <= 1


def test_on_a_terminal_one_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    found = shown(monkeypatch, Terminal(), progress=None)
    *_, last = found.split("\r")
    assert found.startswith("\r") and found.count("\r") >= 2
    assert last.startswith("plain: 8/8 done · 1 failed · 0 unscored · ") and last.endswith("\n")
    assert found.count("\n") == 1


def test_what_was_there_before_is_counted_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = (
        shown(monkeypatch, io.StringIO(), progress=True, run_dir=tmp_path / "run") for _ in range(2)
    )
    assert "reused" not in first
    assert " · 7 reused" in second and "1 failed" in second


def test_what_was_there_before_without_a_score_is_counted_as_in_the_report(tmp_path: Path) -> None:
    """A continued run once said "0 unscored" above a report of two."""

    class Silent(BasePointWiseReward):
        def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
            raise Unscored("it says nothing")

    samples = [make_sample("answer", unique_id=f"{n}") for n in range(2)]
    for _ in range(2):
        control = RunControl()
        options = RunOptions(run_dir=str(tmp_path / "run"), progress=False, control=control)
        Silent().evaluate_batch(samples, options=options)
        assert " · 2 unscored" in control.progress.facts(None)
    assert " · 2 reused" in control.progress.facts(None)


def test_a_sample_counts_as_the_same_on_the_terminal_and_in_the_summary(tmp_path: Path) -> None:
    """One answer failed and one was not begun: the sample failed here, and was stopped there."""
    control = RunControl()

    def stops(answer: str) -> float:
        control.stop("enough")
        raise ValueError(answer)

    rule("stops")(stops)
    reward = RewardRegistry.get("stops")()
    reward.evaluate_batch([make_sample("a", "b")], max_workers=1, run_dir=tmp_path, control=control)
    shown, summary = control.progress, json.loads((tmp_path / "summary.json").read_text())
    counted = {name for name, n in summary["samples"].items() if n}
    assert counted == {"stopped"}, "it leaves no record, and is judged again"
    assert (shown.unscored, shown.failed, shown.stopped) == (0, 0, 1)


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


def test_cycles_are_looked_for_less_often_until_the_last_run_is_over(
    usual: tuple[int, int, int],
) -> None:
    stream = Looks().evaluate_stream(iter(SAMPLES), max_workers=2)
    next(stream)
    Looks().evaluate_batch(SAMPLES, max_workers=2)
    assert gc.get_threshold() == (200_000, 50, 100), "the stream is still open"
    assert Looks.seen == {(200_000, 50, 100)} and len(list(stream)) == len(SAMPLES) - 1
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("of_the_host", [(0, 10, 10), (500_000, 20, 20)])
def test_a_collector_that_the_host_has_set_stays_as_it_is(
    usual: tuple[int, int, int], of_the_host: tuple[int, int, int]
) -> None:
    gc.set_threshold(*of_the_host)
    Looks().evaluate_batch(SAMPLES)
    assert Looks.seen == {of_the_host} == {gc.get_threshold()}
