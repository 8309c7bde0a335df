"""An event loop whose clock jumps over waits, so that a test of minutes takes milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        events = super().select(0)
        if not events and timeout > 0:
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


def now() -> float:
    return asyncio.get_running_loop().time()


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; fails when tasks are left behind."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(coroutine)
        assert not asyncio.all_tasks(loop), "tasks left behind"
        return result
    finally:
        loop.close()
