"""What the members of a run begin with, ask and tell, wherever they get their work from."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from rm_gallery.core.engine.calls.coordinator import Desk
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.utils.errors import ConfigError, logger
from rm_gallery.core.utils.models import with_keys


def unpacked(packed: bytes) -> Any:
    """What another process of this run packed."""
    with with_keys():
        return pickle.loads(packed)


BEAT_SECONDS = 0.25
"""How often this process looks whether the run was stopped, and a member says that it is there."""
known_here: dict[str, Any] = {}
"""In a member, what jobs hold and it has already, by name."""


def known(name: str) -> Any:
    """What is known by this name; what a pickled job holds instead of it."""
    return known_here[name]


class Members:
    """Hears the members of one run. Lives on the library's event loop.

    Args:
        control: the run's, which has begun.
        far: whether members may be on other machines, which have other disks.
        reply: (member, number, error, value) sends an answer.
    """

    def __init__(
        self,
        control: RunControl,
        far: bool,
        reply: Callable[[Any, int, BaseException | None, Any], None],
    ) -> None:
        self._control, self._far = control, far
        self._desk = Desk(control, reply, far)
        limits = [(b.max_calls, b.max_tokens, b.max_cost) for _, b in self._desk.budgets()]
        self.limited = any(limit is not None for each in limits for limit in each)
        """Whether a call of theirs has to wait until it is known that there is budget for it."""
        self._in_flight: dict[Hashable, int] = {}
        self._said: set[tuple[str, str]] = set()

    def setup(
        self,
        cls: type,
        keywords: Mapping[str, Any],
        options: RunOptions,
        packed: Callable[[Any], bytes],
        *,
        asked: bool,
    ) -> bytes:
        """What each of them begins with, of which it makes its own batch; ConfigError for what no
        other process can be told.

        Args:
            cls: of the batch, and its `keywords`.
            keywords: see `cls`.
            options: how the run goes; they are for all members together.
            packed: what makes bytes of it.
            asked: whether it is noted what judges are asked.
        """
        control = self._control
        private: dict[str, Any] = {
            "control": None,
            "budget": None,
            "run_dir": None,
            "trace": False,
            "manifest": None,
            "progress": False,
        }
        # a member on another machine has one processor, also for what can be killed
        told = replace(
            options, **private, processes=1 if self._far else None, engine=None, address=None
        )
        settings = {
            "repeat": control.repeat,
            "cache": control.use_cache,
            "retry": control.retry,
            "offline": control.offline,
            "max_outage": control.max_outage,
            "fail_fast": None if control.fail_fast is None else control.fail_fast.limit,
            "trace": control.trace is not None,
            "asked": asked,
        }
        try:
            with with_keys():
                return packed((cls, keywords, told, settings))
        except Exception as error:
            raise ConfigError(
                f"What is to judge cannot be sent to a worker process ({type(error).__name__}: "
                f"{error!s:.300}). Functions and "
                "classes have to stand at the top of a module; or leave out processes=."
            ) from error

    def hear(self, member: Hashable, kind: str, args: list[Any]) -> bool:
        """Take a message in; True for one that stops the run."""
        if kind == "ask":
            self._desk.asked(member, *args)
        elif kind == "beat":
            self._counted(member, *args)
        elif kind == "tell":
            return self._told(member, *args)
        return False

    def _told(self, member: Hashable, what: str, args: tuple[Any, ...]) -> bool:
        control = self._control
        if what == "stop":
            reason, halt, by = args
            control.stop(reason, halt=halt, by=by)
            return True
        if what == "trace":
            if control.trace is not None:
                control.trace(*args)
        elif what == "served":
            control.note_served(*args)
        elif what == "log":  # each member says it, and one is enough
            if args not in self._said:
                self._said.add((args[0], args[1]))
                logger.log(*args)
        else:
            self._desk.told(member, what, args)
        return False

    def _counted(self, member: Hashable, counts: Mapping[Any, int], in_flight: int) -> None:
        for name, more in counts.items():
            self._control.count(name, more)
        self._control.in_flight += in_flight - self._in_flight.get(member, 0)
        self._in_flight[member] = in_flight

    def stop(self) -> tuple[Any, ...]:
        """What members are told once the run has stopped."""
        return "stop", self._control.why_stopped, self._control.halted, self._control.who_stopped

    def gone(self, member: Hashable) -> None:
        """A member is gone, and whatever it was at."""
        self._counted(member, {}, 0)
        del self._in_flight[member]
        self._desk.gone(member)
