"""What can be sent to a worker, and what comes back."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rm_gallery.core.engine.workers.pool import RemoteTraceback, WorkerPool
from rm_gallery.core.utils.errors import ConfigError
from tests.engine import worker_jobs


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as shared:
        yield shared


def test_map_keeps_order_over_many_chunks(pool: WorkerPool) -> None:
    assert pool.map(worker_jobs.plus_one, range(5000)) == list(range(1, 5001))


def test_map_of_nothing(pool: WorkerPool) -> None:
    assert pool.map(worker_jobs.plus_one, []) == []


def test_starmap_spreads_arguments(pool: WorkerPool) -> None:
    assert pool.starmap(worker_jobs.add, [(1, 2), (3, 4)]) == [3, 7]


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (worker_jobs.plus_one, (1,), 2),
        (math.factorial, (5,), 120),
        (int, ("12",), 12),
        (worker_jobs.Scaler(3).scale, (4,), 12),
        (worker_jobs.Scaler(3), (5,), 15),
        (functools.partial(worker_jobs.add, 10), (5,), 15),
        ("中文,".split, (",",), ["中文", ""]),
    ],
)
def test_kinds_of_functions(
    pool: WorkerPool, function: Callable[..., Any], arguments: tuple[Any, ...], expected: object
) -> None:
    assert pool.submit(function, *arguments, deadline=20).result() == expected


def _inner() -> Callable[[int], int]:
    def inside(number: int) -> int:
        return number

    return inside


def _replaced(number: int) -> int:
    return number


_original = _replaced


def _replaced(number: int) -> int:  # type: ignore[no-redef]
    return -number


class _FromScript:
    __module__ = "__main__"

    def method(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda number: number, "lambda or an inner function"),
        (_inner(), "lambda or an inner function"),
        (_original, "is not the function given"),
        (_FromScript().method, "move it to a module"),
    ],
)
def test_functions_that_workers_cannot_find(pool: WorkerPool, function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pool.submit(function, 1)


def test_argument_that_cannot_be_pickled(pool: WorkerPool) -> None:
    with pytest.raises(ConfigError, match=r"an argument of tests\.engine\.worker_jobs\.plus_one"):
        pool.submit(worker_jobs.plus_one, lambda: None)


@pytest.mark.parametrize("deadline", [0, -1.0, math.nan, math.inf])
def test_deadlines_that_mean_nothing(pool: WorkerPool, deadline: float) -> None:
    with pytest.raises(ConfigError, match="positive number of seconds"):
        pool.submit(worker_jobs.plus_one, 1, deadline=deadline)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("value", ValueError, "^no such value: 數$"),
        ("odd", RuntimeError, "OddError: code 4"),
        ("interrupt", RuntimeError, "KeyboardInterrupt"),
    ],
)
def test_errors_of_a_call(pool: WorkerPool, kind: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        pool.submit(worker_jobs.fail, kind).result()
    assert type(caught.value) is error
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in fail" in str(caught.value.__cause__)


def test_exit_of_a_call_is_its_error_alone(pool: WorkerPool) -> None:
    results = pool.map(worker_jobs.leave_at_seven, range(10))
    assert isinstance(results[7], RuntimeError)
    assert results[:7] + results[8:] == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_result_that_cannot_be_pickled(pool: WorkerPool) -> None:
    with pytest.raises(TypeError, match="a result of type function"):
        pool.submit(worker_jobs.unpicklable).result()


def test_large_arguments_and_results(pool: WorkerPool) -> None:
    text = "數" * 3_000_000
    assert pool.submit(str.upper, text, deadline=60).result() == text


def test_module_that_cannot_be_preloaded() -> None:
    with WorkerPool(1, preload=["no_such_module_anywhere"]) as pool:
        with pytest.raises(ConfigError, match="no_such_module_anywhere"):
            pool.submit(worker_jobs.plus_one, 1).result()


def test_preloaded_module_is_there_before_the_call() -> None:
    with WorkerPool(1, preload=["colorsys"]) as pool:
        assert pool.submit(is_imported, "colorsys").result()


def is_imported(module: str) -> bool:
    import sys

    return module in sys.modules
