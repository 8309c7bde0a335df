"""Functions that the tests of the worker pool send to worker processes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

prepared: list[int] = []


def prepare_worker() -> None:
    """Called by a worker that loads a function of this module, before the clock of its first call
    runs.
    """
    prepared.append(os.getpid())


def prepared_here() -> bool:
    return os.getpid() in prepared


def plus_one(number: int) -> int:
    return number + 1


def add(left: int, right: int) -> int:
    return left + right


def label_of(thing: Any) -> str:
    return str(thing.label)


MISHAPS: dict[str, Callable[[], object]] = {
    "hang": lambda: time.sleep(600),
    "hold the interpreter lock": lambda: 9**9**9,
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "eat memory": lambda: bytearray(2**31),
    "leave": lambda: sys.exit("leaving"),
}


def at_seven(mishap: str, number: int) -> int:
    if number == 7:
        MISHAPS[mishap]()
    return number


def chatter(number: int) -> int:
    print("to stdout", number, "x" * 5000)  # noqa: T201 - what the test is about
    print("to stderr", number, file=sys.stderr)  # noqa: T201 - what the test is about
    os.write(1, b"straight to the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('from a grandchild')"], check=True)
    sys.stdin.read()
    return number


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def touch_and_nap(path: str, seconds: float) -> float:
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    time.sleep(seconds)
    return seconds


def grandchild_then_hang(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(child.pid))
    child.wait()


def fork_and_exit() -> NoReturn:
    """The child leaves the group of its parent and holds all it had open."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(20)
    os._exit(3)


def pid() -> int:
    return os.getpid()


def grow(megabytes: int) -> int:
    return len(bytearray(b"x") * (megabytes << 20)) >> 20


def unpicklable() -> object:
    return lambda: None


class OddError(Exception):
    """Cannot be copied by pickle, since its argument is not its message."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def fail(kind: str) -> NoReturn:
    if kind == "value":
        raise ValueError("no such value: 數")
    if kind == "odd":
        raise OddError(code=4)
    if kind == "interrupt":
        raise KeyboardInterrupt
    raise LookupError(kind)


class Scaler:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def scale(self, number: int) -> int:
        return self.factor * number

    def __call__(self, number: int) -> int:
        return self.scale(number)
