"""Run as a program: processes that die in the middle of a deployment, and processes that deploy at
once; prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from rm_gallery.evaluation.bundle import bundle_folders
from rm_gallery.evaluation.store import Store

URL = sys.argv[1]


def forked(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def save(store: Store, value: float) -> int:
    code = f"def evaluate(messages, **kwargs):\n    return {value}\n"
    return store.save("a", bundle_folders(code=code), force=True).version


def dies_at(step: int) -> None:
    """Deploy, and be killed at the step-th thing said to the database."""
    store = Store.open(URL)
    left = [step]

    def count(*_: Any, **__: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        sa.event.listen(store._engine, name, count)
    save(store, 1000 + step)


def seen() -> tuple[int, str, list[int]]:
    with Store.open(URL) as store:
        current = store.current("a")
        return current.version, current.hash, [each.version for each in store.versions("a")]


def interrupted() -> list[dict[str, Any]]:
    with Store.open(URL) as store:
        save(store, 0)
    found = []
    for step in range(60):
        before = seen()
        code = ended(forked(lambda step=step: dies_at(step)))  # type: ignore[misc]
        found.append({"step": step, "code": code, "before": before, "after": seen()})
        if code == 0:
            break
    return found


def together() -> dict[str, Any]:
    """Six processes make the store and deploy into it at the same moment."""

    def deploys() -> None:
        with Store.open(URL) as store:
            for number in range(4):
                save(store, number)

    codes = [ended(pid) for pid in [forked(deploys) for _ in range(6)]]
    with Store.open(URL) as store:
        return {
            "codes": codes,
            "versions": [each.version for each in store.versions("a")],
            "revision": store.revision(),
        }


if __name__ == "__main__":
    json.dump({"interrupted": interrupted, "together": together}[sys.argv[2]](), sys.stdout)
