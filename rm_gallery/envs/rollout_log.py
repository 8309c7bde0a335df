"""What a reward logs while it scores a rollout, kept beside the rollout's score.

A filter on the loggers of the environment's own modules takes each record to the rollout at hand, which a context variable
names. What the host sees of these loggers stays as it is: a record below the level the host has set goes no further.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_LINES, LONGEST_LINE = 200, 2_000
"""Of one rollout; what is beyond is counted and cut off."""
LEVEL = logging.INFO


class RolloutLog:
    """The lines of one rollout, or of all rollouts of a group."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def add(self, line: str) -> None:
        """Keep a line."""
        if len(self._lines) >= MOST_LINES:
            self._more += 1
        else:
            self._lines.append(line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…")

    @property
    def lines(self) -> list[str]:
        """The lines, each `LEVEL: message`, and how many more there were."""
        return [*self._lines, *([f"… and {self._more} more lines"] if self._more else [])]


_current: ContextVar[RolloutLog | None] = ContextVar("rm_gallery_rollout_log", default=None)
_lock = threading.Lock()


@contextmanager
def logged_to(log: RolloutLog) -> Iterator[None]:
    """Inside the block, in what it awaits and in threads it starts with its context, records go to this log."""
    token = _current.set(log)
    try:
        yield
    finally:
        _current.reset(token)


class _Tap(logging.Filter):
    """Takes a logger's records to the rollout at hand, and lets through to the handlers what was let through before."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger, self._own, self._lowered = logger, logger.level, False

    def lower(self) -> None:
        """Have the logger make records from INFO on, also after the host has set another level."""
        level = self._logger.level
        if level == logging.NOTSET or level > LEVEL:
            self._own, self._lowered = level, True
            self._logger.setLevel(LEVEL)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record; whether it goes on to the handlers."""
        log = _current.get()
        if log is not None and record.levelno >= LEVEL:
            log.add(f"{record.levelname}: {_message(record)}")
        return not self._lowered or record.levelno >= self._level()

    def _level(self) -> int:
        """The level that holds without this tap."""
        if self._logger.level != LEVEL:  # the host has set another one since
            return self._logger.level
        if self._own != logging.NOTSET:
            return self._own
        parent = self._logger.parent
        return logging.NOTSET if parent is None else parent.getEffectiveLevel()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # its arguments do not fit its format; the handlers say so
        return str(record.msg)


def tap(names: Iterable[str]) -> None:
    """Have the records of these loggers, from INFO on, taken to the rollouts they belong to; once per logger."""
    for logger in map(logging.getLogger, filter(None, names)):
        with _lock:
            found = next((known for known in logger.filters if isinstance(known, _Tap)), None)
            if found is None:
                found = _Tap(logger)
                logger.addFilter(found)
            found.lower()
