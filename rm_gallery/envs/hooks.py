"""Environments as the user wrote them: their methods, what these are called with, and where they
are found.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, NamedTuple

from rm_gallery.core.reward.python_files import load_module, origin_of
from rm_gallery.core.score import score_of_error
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.identity import is_users, plain_form

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
            self._lines.append(
                line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
            )

    @property
    def lines(self) -> list[str]:
        """The lines, each `LEVEL: message`, and how many more there were."""
        return [*self._lines, *([f"… and {self._more} more lines"] if self._more else [])]


_current: ContextVar[RolloutLog | None] = ContextVar("rm_gallery_rollout_log", default=None)
_lock = threading.Lock()


@contextmanager
def logged_to(log: RolloutLog) -> Iterator[None]:
    """Inside the block, in what it awaits and in threads it starts with its context, records go to
    this log.
    """
    token = _current.set(log)
    try:
        yield
    finally:
        _current.reset(token)


class _Tap(logging.Filter):
    """Takes a logger's records to the rollout at hand, and lets through to the handlers what was
    let through before.
    """

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
    # its arguments do not fit its format; the handlers say so
    except (TypeError, ValueError, KeyError):
        return str(record.msg)


def tap(names: Iterable[str]) -> None:
    """Have the records of these loggers, from INFO on, taken to the rollouts they belong to; once
    per logger.
    """
    for logger in map(logging.getLogger, filter(None, names)):
        with _lock:
            own_tap = next((known for known in logger.filters if isinstance(known, _Tap)), None)
            if own_tap is None:
                own_tap = _Tap(logger)
                logger.addFilter(own_tap)
            own_tap.lower()


OWN, GROUP = "compute_reward", "compute_group_reward"
_THE_PROCESS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What is raised to end more than a rollout."""


class Rollout(NamedTuple):
    """What an environment is given of one answer, and what it logs meanwhile."""

    id: str
    messages: list[dict[str, Any]]
    task: dict[str, Any] | None
    log: RolloutLog


class Environment:
    """An object with `compute_reward(rollout_id, messages, task, **kwargs)`,
    `compute_group_reward(rollout_ids, messages_list, tasks, **kwargs)`, or both; plain or async.

    Args:
        env: the object, or its class where that is made without arguments.
        loggers: names of further loggers whose lines belong to the rollouts; those of the modules
            in which the class and its bases are written are known.
    """

    def __init__(self, env: Any, loggers: Sequence[str] = ()) -> None:
        """Take the object; ConfigError when it is no environment."""
        if isinstance(env, type):
            try:
                env = env()
            except TypeError as error:
                raise ConfigError(
                    f"{env.__name__} cannot be made without arguments ({error}); give an object, "
                    f"in a file as a line such as `environment = {env.__name__}(…)`, and name that."
                ) from error
        self.env, self.loggers = env, tuple(loggers)
        self.own: Callable[..., Any] | None = _hook(env, OWN)
        self.group: Callable[..., Any] | None = _hook(env, GROUP)
        if self.own is None and self.group is None:
            raise ConfigError(
                f"{type(env).__name__} has neither {OWN}(self, rollout_id, messages, task, "
                f"**kwargs) nor {GROUP}(self, rollout_ids, messages_list, tasks, **kwargs)."
            )
        self.warned: set[str] = set()
        bases = [base.__module__ for base in type(env).__mro__ if is_users(base.__module__)]
        self._logger_names = tuple(dict.fromkeys([*bases, *self.loggers]))

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.env).__name__

    @property
    def waits(self) -> bool:
        """Whether one of its methods is a coroutine function."""
        return any(inspect.iscoroutinefunction(hook) for hook in (self.own, self.group))

    def arguments(
        self, hook: Callable[..., Any], tasks: Any, kwargs: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """What a method's third argument is, and the keywords it takes.

        A method of the older form that names its third argument `ground_truth` (or `ground_truths`)
        gets just that.
        """
        names = inspect.signature(hook).parameters
        if "ground_truth" in names or "ground_truths" in names:
            tasks = list(map(_truth, tasks)) if isinstance(tasks, list) else _truth(tasks)
        every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        return tasks, {name: value for name, value in kwargs.items() if every or name in names}

    def listen(self) -> None:
        """Hear what its modules log."""
        tap(self._logger_names)

    def describe(self) -> dict[str, Any]:
        """What tells it from others: its class and its attributes."""
        kind = type(self.env)
        own = _hook(self.env, "describe")
        fields = own() if own is not None else getattr(self.env, "__dict__", {})
        return {
            "(environment)": f"{kind.__module__}.{kind.__qualname__}",
            "fields": plain_form(fields, f"{self.name}: attribute"),
        }

    def __reduce__(self) -> Any:
        kind = type(self.env)
        origin = origin_of(kind.__module__)
        if origin is None:
            return Environment, (self.env, self.loggers)
        return _of_file, (
            origin,
            kind.__qualname__,
            getattr(self.env, "__dict__", {}),
            self.loggers,
        )

    def __deepcopy__(self, memo: Any) -> Environment:
        return self


def _hook(env: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(env, name, None)
    return method if callable(method) else None


def _of_file(
    origin: str, qualname: str, state: dict[str, Any], loggers: Sequence[str]
) -> Environment:
    """An environment whose class stands in a file that is no module, as it was pickled."""
    kind: Any = attrgetter(qualname)(load_module(origin))
    env = kind.__new__(kind)
    env.__dict__.update(state)
    return Environment(env, loggers)


def _truth(task: dict[str, Any] | None) -> Any:
    return (task or {}).get("ground_truth")


class GroupLog(RolloutLog):
    """A log whose lines belong to every rollout of a group."""

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        super().__init__()
        self._rollouts = rollouts

    def add(self, line: str) -> None:
        """Keep a line with each of them."""
        for rollout in self._rollouts:
            rollout.log.add(line)


def caught(call: Callable[[], Any]) -> Any:
    """What a call gives, or the error of the rollout's own that it raises."""
    try:
        return call()
    except _THE_PROCESS:
        raise
    except BaseException as error:  # noqa: BLE001 - it costs its own rollout; timeouts of verifiers are no Exception
        score_of_error(error)  # raises what is an error of the run
        return error


async def settled(result: Any) -> Any:
    """What something awaitable gives or raises; anything else as it is."""
    try:
        while inspect.isawaitable(result):
            result = await result
        return result
    except _THE_PROCESS:
        raise
    except BaseException as error:  # noqa: BLE001 - as in `caught`
        score_of_error(error)
        return error
