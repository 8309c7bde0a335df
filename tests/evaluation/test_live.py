"""A server's evaluators follow the store: new versions, roll-backs and deletions of whoever made
them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery import EvaluateResult, MetricResult, Score
from rm_gallery.core.reward.function_result import score_of_evaluated
from rm_gallery.evaluation import LiveEvaluators, live
from rm_gallery.evaluation.bundle import Bundle, bundle_folders
from rm_gallery.evaluation.store import Store, UnknownEvaluator
from rm_gallery.evaluation.worker import CODES
from tests.support.system import require_bubblewrap

pytestmark = pytest.mark.system("bubblewrap")
ASKED = {
    "messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]
}


def gives(score: float, seconds: float = 0.0) -> Bundle:
    code = (
        f"import time\ndef evaluate(messages, **kwargs):\n    time.sleep({seconds})\n    return "
        f"{score}\n"
    )
    return bundle_folders(code=code)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs bubblewrap; the store is looked at before each request."""
    require_bubblewrap()
    monkeypatch.setattr(live, "_LOOK_EVERY", 0.0)


def run(store: Store, body: Callable[[LiveEvaluators], Awaitable[Any]]) -> Any:
    async def all_of_it() -> Any:
        evaluators = LiveEvaluators(store, workers=1)
        try:
            return await body(evaluators)
        finally:
            await evaluators.close()

    return asyncio.run(all_of_it())


@pytest.mark.long("several processes")
@pytest.mark.usefixtures("at_once")
def test_two_servers_on_one_store_see_what_either_deploys(store_url: str) -> None:
    async def body(here: LiveEvaluators) -> list[Any]:
        with Store.open(store_url) as elsewhere:
            there = LiveEvaluators(elsewhere, workers=1)
            try:
                seen: list[Any] = []
                changes: list[Callable[[], object]] = [
                    lambda: elsewhere.save("a", gives(0.1)),
                    lambda: elsewhere.save("a", gives(0.2), force=True),
                    lambda: elsewhere.rollback("a"),
                ]
                for change in changes:
                    change()
                    seen += [
                        (await server.evaluate("a", ASKED, 10.0)).score for server in (here, there)
                    ]
                elsewhere.delete("a")
                for server in (here, there):
                    with pytest.raises(UnknownEvaluator, match="no evaluator 'a'"):
                        await server.evaluate("a", ASKED, 10.0)
                return [*seen, here.list()]
            finally:
                await there.close()

    with Store.open(store_url) as store:
        assert run(store, body) == [0.1, 0.1, 0.2, 0.2, 0.1, 0.1, []]


@pytest.mark.usefixtures("at_once")
def test_a_request_that_runs_ends_on_its_version(tmp_path: Path) -> None:
    async def body(evaluators: LiveEvaluators) -> list[float]:
        store.save("a", gives(0.1, 0.5))
        running = asyncio.ensure_future(evaluators.evaluate("a", ASKED, 10.0))
        await asyncio.sleep(0.4)
        store.save("a", gives(0.2), force=True)
        return [(await evaluators.evaluate("a", ASKED, 10.0)).score, (await running).score]

    with Store.open(tmp_path / "s.db") as store:
        assert run(store, body) == [0.2, 0.1]


@pytest.mark.usefixtures("at_once")
def test_while_the_store_is_gone_what_runs_goes_on(tmp_path: Path) -> None:
    async def body(evaluators: LiveEvaluators) -> list[float]:
        store.save("a", gives(0.1))
        found = [(await evaluators.evaluate("a", ASKED, 10.0)).score]
        (tmp_path / "s.db").write_bytes(b"gone" * 1000)
        return [*found, *[(await evaluators.evaluate("a", ASKED, 10.0)).score for _ in range(2)]]

    with Store.open(tmp_path / "s.db") as store:
        assert run(store, body) == [0.1, 0.1, 0.1]


@pytest.mark.usefixtures("at_once")
def test_a_store_that_hangs_holds_up_nothing_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_PATIENCE", 0.2)

    async def body(evaluators: LiveEvaluators) -> list[float]:
        store.save("a", gives(0.1))
        await evaluators.evaluate("a", ASKED, 10.0)
        monkeypatch.setattr(store, "revision", lambda: answers.wait(60))
        found = await asyncio.gather(*(evaluators.evaluate("a", ASKED, 10.0) for _ in range(20)))
        assert not answers.is_set()  # the store has not said a word
        answers.set()
        return [result.score for result in found]

    answers = threading.Event()
    with Store.open(tmp_path / "s.db") as store:
        assert run(store, body) == [0.1] * 20


def test_a_locked_store_costs_a_request_no_more_than_its_time(tmp_path: Path) -> None:
    async def body(evaluators: LiveEvaluators) -> list[Any]:
        found = await asyncio.gather(*(evaluators.evaluate(name, ASKED, 0.3) for name in "aab"))
        locking.execute("ROLLBACK")
        return [result.error for result in found]

    with (
        Store.open(tmp_path / "s.db") as store,
        closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as locking,
    ):
        locking.execute("BEGIN EXCLUSIVE")
        assert (
            run(store, body)
            == ["deadline: the store of evaluators did not answer within 0.3 s"] * 3
        )


@pytest.mark.parametrize(("asked", "left"), [(10.0, 7.0), (2.0, 0.0)])
def test_what_the_store_took_is_no_longer_there_for_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: float, left: float
) -> None:
    """Virtual time: the store takes three seconds, as the clock of the module tells."""
    given: list[float] = []
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def scores(self, payloads: Any, *, deadline: float) -> list[Score[float]]:
            given.append(deadline)
            return [Score(1.0)] * len(payloads)

        async def close(self) -> None: ...

    def current(*_: Any) -> Any:
        clock.now += 3.0
        return SimpleNamespace(version=1, hash="x")

    monkeypatch.setattr(live, "time", clock)
    monkeypatch.setattr(live, "EvaluatorPool", Pool)
    with Store.open(tmp_path / "s.db") as store:
        monkeypatch.setattr(store, "current", current)
        assert run(store, lambda evaluators: evaluators.evaluate("a", ASKED, asked)).score == 1.0
    assert given == [pytest.approx(left)]


def test_results_as_outcomes() -> None:
    metric = MetricResult(score=0.5, reason="half")
    scored = score_of_evaluated(EvaluateResult(score=0.25, reason="why", metrics={"m": metric}))
    assert scored == Score(0.25, "why", components={"m": 0.5}, extra=scored.extra)
    assert scored.extra["metrics"]["m"]["reason"] == "half"
    unscored = score_of_evaluated(
        EvaluateResult(score=0.0, is_score_valid=False, reason="nothing to judge by")
    )
    assert unscored == Score(
        None, "nothing to judge by", status="unscored", cause="rule", code="invalid_score"
    )
    failed = score_of_evaluated(
        EvaluateResult(score=0.0, is_score_valid=False, error="deadline: it took longer than 1 s"),
        CODES,
    )
    assert failed == Score(
        None, "it took longer than 1 s", status="failed", cause="rule", code="deadline"
    )
    own = score_of_evaluated(EvaluateResult(score=1.0, error="HTTP 500: from somewhere"), CODES)
    said = "HTTP 500: from somewhere"
    assert own == Score(
        None, said, status="failed", cause="rule", code="function_error", extra={"error": said}
    )
