"""Deployed evaluators as the handler asks them: what they are given, how many may wait, and what is
told when they cannot run.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm_gallery.evaluation import Store
from rm_gallery.evaluation.bundle import bundle_folders
from rm_gallery.evaluation.store import StoreError
from rm_gallery.serve import handler
from rm_gallery.serve.formats import Ask, Refused
from rm_gallery.serve.handler import ServedEvaluators, payload_of

CODE = "def evaluate(messages, **kwargs):\n    return float(messages[-1].content)\n"
U, A = {"role": "user", "content": "q"}, {"role": "assistant", "content": "4"}


@pytest.mark.parametrize(("ask", "payload"), [
    (Ask(messages=[U, A]), {"messages": [U, A], "ground_truth": None}),
    (Ask(messages=[U, A], original_messages=[U]), {"messages": [U, A], "ground_truth": None, "original_messages": [U]}),
    (Ask(prompt="q", completion="4"), {"messages": [U, A], "ground_truth": None, "original_messages": [U]}),
    (Ask(prompt=[U, U], completion=[A]), {"messages": [U, U, A], "ground_truth": None, "original_messages": [U, U]}),
    (Ask(completion="4"), {"messages": [A], "ground_truth": None, "original_messages": []}),
    (Ask(prompt="q", completion="4", original_messages=[A]), {"messages": [U, A], "ground_truth": None, "original_messages": [A]}),
    (
        Ask(messages=[A], reference={"a": 1}, tools=[], row={"k": 1}),
        {"messages": [A], "ground_truth": {"a": 1}, "tools": [], "kwargs": {"k": 1}},
    ),
])  # fmt: skip
def test_what_a_function_is_given(ask: Ask, payload: dict[str, Any]) -> None:
    assert payload_of(ask) == payload


def asked(
    path: Path, go: Callable[[ServedEvaluators, Store], Awaitable[Any]], **settings: Any
) -> Any:
    async def main() -> Any:
        store = Store.open(path / "secret-place.db")
        store.save("a", bundle_folders(code=CODE), force=True)
        served = ServedEvaluators(store, workers=1, sandbox="subprocess", **settings)
        try:
            return await go(served, store)
        finally:
            await served.close()

    return asyncio.run(main())


async def refusal(call: Awaitable[Any]) -> tuple[int, str, float | None]:
    with pytest.raises(Refused) as raised:
        await call
    assert "secret-place" not in str(raised.value)
    return raised.value.status, raised.value.code, raised.value.retry_after


def asks(*texts: str) -> list[Ask]:
    return [Ask(completion=text) if text else Ask(problem="It does not fit.") for text in texts]


@pytest.mark.long("a server process")
def test_as_many_wait_as_may_and_a_bad_one_costs_no_other(tmp_path: Path) -> None:
    async def go(served: ServedEvaluators, _: Store) -> Any:
        first = asyncio.ensure_future(served.score("a", asks("1", "", "0.3"), 30.0))
        await asyncio.sleep(0)
        beside = [await refusal(served.score("a", asks("0.4", "0.5"), 30.0)), dict(served.waiting)]
        last = await served.score("a", asks("0.4"), 30.0)
        found = [(each.value, each.code) for each in [*(await first), *last]]
        return [
            *beside,
            found,
            served.waiting,
            await refusal(served.score("b", asks("1"), 30.0)),
            served.waiting,
        ]

    found = [(1.0, ""), (None, "invalid_item"), (0.3, ""), (0.4, "")]
    unknown = (404, "unknown_evaluator", None)
    assert asked(tmp_path, go, max_waiting=4) == [
        (429, "busy", 1.0),
        {"a": 3},
        found,
        {},
        unknown,
        {},
    ]


def test_the_list_is_read_again_once_it_is_a_second_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(handler, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    async def go(served: ServedEvaluators, store: Store) -> Any:
        told = []
        for name, clock[0] in (("b", 0.0), ("c", 0.99), ("d", 1.0), ("e", 1.99)):
            told.append(len(await served.deployed()))
            store.save(name, bundle_folders(code=CODE), force=True)
        return told

    assert asked(tmp_path, go) == [1, 1, 3, 3]


def test_files_that_are_not_those_that_were_deployed_are_not_run(tmp_path: Path) -> None:
    async def go(served: ServedEvaluators, _: Store) -> Any:
        with closing(sqlite3.connect(tmp_path / "secret-place.db")) as connection:
            connection.execute("UPDATE rm_gallery_versions SET files = ?", (b"x",))
            connection.commit()
        return await refusal(served.score("a", asks("1"), 30.0))

    assert asked(tmp_path, go) == (503, "unavailable", 30.0)


def test_a_store_that_cannot_be_read_is_a_problem_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StoreError("locked")

    async def go(served: ServedEvaluators, store: Store) -> Any:
        found: list[Any] = [served.problem()]
        with monkeypatch.context() as patched:
            for name in ("list", "revision"):
                patched.setattr(store, name, refuse)
            found += [
                await refusal(served.deployed()),
                served.problem(),
                await refusal(served.score("a", asks("1"), 30.0)),
            ]
        for _ in range(1000):
            await asyncio.sleep(0.02)
            if not served.problem():
                break
        # whoever comes while the list is read waits for the same one
        lists = await asyncio.gather(*(served.deployed() for _ in range(3)))
        return [*found, served.problem(), [[each["id"] for each in listed] for listed in lists]]

    gone = (503, "store_unavailable", 5.0)
    assert asked(tmp_path, go) == [
        "",
        gone,
        "the store of evaluators cannot be read",
        gone,
        "",
        [["a"]] * 3,
    ]
