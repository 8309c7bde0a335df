"""What a reward function is given: messages in the form it annotates, and resources that are ready."""

from __future__ import annotations

import atexit
import functools
import inspect
import re
import threading
import types
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from rm_gallery.core.data.conversation import Message, as_messages, message_dicts
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.utils.log import logger

Reader = Callable[[Any, str], Any]


def _as_dicts(value: Any, what: str) -> Any:
    return message_dicts(value, what)


def message_reader(annotation: Any) -> Reader:
    """How messages are handed to a parameter: as `Message` objects, as dicts, or as models of a class of the user's own."""
    if isinstance(annotation, str):  # names that mean nothing where the function stands, such as imports for type checkers
        return _as_dicts if re.search(r"\b([Dd]ict|Mapping)\b", annotation) and "Message" not in annotation else as_messages
    parts = list(annotation_parts(annotation))
    models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    if models:
        return as_messages if Message in models else functools.partial(_own_models, models[0])
    if any(part in (dict, Mapping) or typing.is_typeddict(part) for part in parts):
        return _as_dicts
    return as_messages


def annotation_parts(annotation: Any) -> typing.Iterator[Any]:
    """The types an annotation is made of, from the outside in."""
    yield typing.get_origin(annotation) or annotation
    for argument in typing.get_args(annotation):
        yield from annotation_parts(argument)


def _own_models(model: type[BaseModel], value: Any, what: str) -> Any:
    if isinstance(value, list) and all(isinstance(message, model) for message in value):
        return value
    return [model.model_validate(message) for message in message_dicts(value, what)]


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, resolved where they can be: one that cannot costs the others nothing."""
    target = inspect.unwrap(function)
    try:
        return typing.get_type_hints(target)
    except _UNRESOLVED:
        return {name: _resolved(target, name, hint) for name, hint in getattr(target, "__annotations__", {}).items()}


_UNRESOLVED = (NameError, AttributeError, TypeError, SyntaxError)


def _resolved(target: Any, name: str, hint: Any) -> Any:
    """One annotation, as it is written where it means nothing."""
    alone = types.SimpleNamespace(__annotations__={name: hint})
    try:
        return typing.get_type_hints(alone, globalns=getattr(target, "__globals__", {}))[name]
    except _UNRESOLVED:
        return hint


class Resource(Protocol):
    """Something a function needs ready: `setup()` before its first call, `cleanup()` when it is closed."""

    def setup(self) -> Any:
        """Make it ready."""


_made: weakref.WeakSet[Resources] = weakref.WeakSet()


def _forget() -> None:
    # what a process set up is its own: a child that was forked from it sets up anew, and cleans that alone
    for each in _made:
        each._begin()


library_loop.after_fork(_forget)


class Resources:
    """The resources of one function, set up once per process at the first call."""

    def __init__(self, given: Mapping[str, Sequence[Resource]], name: str) -> None:
        self.given = {key: list(items) for key, items in given.items()}
        self._name = name
        self._begin()
        _made.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ready: list[Any] | None = None

    def ready(self) -> dict[str, list[Resource]]:
        """The resources, set up; what was set up before one that fails is cleaned, and the next call tries again."""
        if self._ready is None:
            with self._lock:
                if self._ready is None:
                    done: list[Any] = []
                    try:
                        for item in (item for items in self.given.values() for item in items):
                            item.setup()
                            done.append(item)
                    except BaseException:
                        self._clean(done)
                        raise
                    self._ready = done
                    atexit.register(self.close)
        return self.given

    def close(self) -> None:
        """Clean up what was set up, last first."""
        with self._lock:
            done, self._ready = self._ready or [], None
        atexit.unregister(self.close)
        self._clean(done)

    def _clean(self, done: list[Any]) -> None:
        for item in reversed(done):
            try:
                getattr(item, "cleanup", lambda: None)()
            except Exception as error:  # noqa: BLE001  # the others are to be cleaned all the same
                logger.warning(f"{self._name}: {type(item).__name__}.cleanup() failed: {type(error).__name__}: {error}")
