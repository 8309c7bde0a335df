"""Names of graders: the gallery's, other packages' and your own."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, TypeVar

from rm_gallery.core.graders.base import BaseGrader
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

C = TypeVar("C", bound=type[BaseGrader])
ENTRY_POINT_GROUP = "rm_gallery.graders"
COMMON = "rm_gallery.core.graders.common"
GALLERY = "rm_gallery.gallery.graders"


class GraderRegistry:
    """Maps a name to a grader class, as the RewardRegistry does for rewards.

    The ready-made graders are found by their files. Another package adds its own through the entry-point group
    `rm_gallery.graders` (name = "module:Class").
    """

    _classes: dict[str, type[BaseGrader]] = {}
    _found = False

    @classmethod
    def register(cls, name: str, grader: C | None = None) -> Any:
        """Give a grader class a name, as a decorator or by a direct call; another class under a taken name is a ConfigError."""
        if grader is None:
            return lambda decorated: cls.register(name, decorated)
        if not (isinstance(grader, type) and issubclass(grader, BaseGrader)):
            raise ConfigError(f"The grader '{name}' is {grader!r:.80}; what is registered is a class derived from BaseGrader.")
        cls._discover()  # a name of the gallery is taken, whether or not anybody asked for it before
        known = cls._classes.get(name)
        if known is not None and known.__qualname__ != grader.__qualname__:
            raise ConfigError(f"The grader name '{name}' is taken by {known.__module__}.{known.__qualname__}.")
        cls._classes[name] = grader
        return grader

    @classmethod
    def get(cls, name: str) -> type[BaseGrader]:
        """The class registered under a name; ConfigError with the nearest names when there is none."""
        cls._discover()
        found = cls._classes.get(name)
        if found is None:
            raise ConfigError(unknown_name("grader", name, cls._classes, "See `rm-gallery list --graders`."))
        return found

    @classmethod
    def create(cls, name: str, /, **params: Any) -> BaseGrader:
        """Construct a registered grader."""
        made: Callable[..., BaseGrader] = cls.get(name)
        return made(**params)

    @classmethod
    def list(cls) -> builtins.list[str]:
        """All registered names, sorted."""
        cls._discover()
        return sorted(cls._classes)

    @classmethod
    def _discover(cls) -> None:
        if cls._found:
            return
        cls._found = True
        common = vars(importlib.import_module(COMMON)).values()
        for kind in common:
            if isinstance(kind, type) and issubclass(kind, BaseGrader) and kind.__module__ == COMMON:
                cls.register(kind.registered_name(), kind)
        # by name, so that core needs no import of the gallery to offer what the gallery holds
        for name, made in importlib.import_module(GALLERY).graders().items():
            cls.register(name, made)
        for point in entry_points(group=ENTRY_POINT_GROUP):
            cls._classes.setdefault(point.name, point.load())
