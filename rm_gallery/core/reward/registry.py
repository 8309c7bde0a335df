"""Names of rewards: the gallery's, other packages' and your own."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.models import unknown_name

if TYPE_CHECKING:
    from rm_gallery.core.reward.function import RewardFunction
    from rm_gallery.core.reward.reward import BaseReward

C = TypeVar("C", bound="type[BaseReward] | RewardFunction[Any]")
ENTRY_POINT_GROUP = "rm_gallery.rewards"
GALLERY = "rm_gallery.gallery.rm"
GRADER = "rm_gallery.core.graders.bridge:GraderReward"
"""What `grader:NAME` stands for."""
FUNCTION = "rm_gallery.core.reward.function:FunctionReward"
"""What `func:FILE:NAME` stands for."""
ENVIRONMENT = "rm_gallery.envs.environment:EnvironmentReward"
"""What `env:FILE:CLASS` stands for."""


class RewardRegistry:
    """Maps a name to a reward class.

    Gallery rewards are found by their files and imported when their name is first asked for. Another package adds rewards
    through the entry-point group `rm_gallery.rewards` (name = "module:Class"). A name that ends in a colon, such as `bt:`,
    takes what follows it as its class's first argument, unless its class has `of_name`, which says what the name means.
    """

    _classes: dict[str, type[BaseReward]] = {}
    _lazy: dict[str, str] | None = None

    @overload
    @classmethod
    def register(cls, name: str) -> Callable[[C], C]: ...
    @overload
    @classmethod
    def register(cls, name: str, reward: C) -> C: ...
    @classmethod
    def register(cls, name: str, reward: C | None = None) -> C | Callable[[C], C]:
        """Give a reward class, or a reward function, a name, as a decorator or by a direct call.

        Registering the same class again, also from a file that runs as a script and is imported, or from a notebook cell
        run twice, replaces it; another class under a taken name is a ConfigError.
        """
        if reward is None:
            return lambda decorated: cls.register(name, decorated)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"A reward's name is a non-empty string; found {name!r}.")
        kind = _class_for(name, reward)
        known = cls._classes.get(name)
        if known is not None:
            holder = f"{known.__module__}:{known.__qualname__}"
        else:  # a gallery reward that is just being imported holds its own name
            holder = "" if kind.__module__.startswith(f"{GALLERY}.") else cls._lazy_names().get(name, "")
        if holder and holder.rpartition(":")[2] != kind.__qualname__:
            raise ConfigError(f"The reward name '{name}' is taken by {holder.replace(':', '.')}; choose another name.")
        cls._classes[name] = kind
        return reward

    @classmethod
    def get(cls, name: str) -> type[BaseReward]:
        """The class registered under a name (for `scheme:rest` names such as bt:DIR, the class bound to `rest`).

        Raises:
            ConfigError: the name is unknown; the message lists the nearest names.
        """
        found = cls._find(name)
        if found is not None:
            return found
        scheme, colon, rest = name.partition(":")
        bound = cls._find(f"{scheme}:") if colon and rest else None
        if bound is None:
            raise ConfigError(unknown_name("reward", name, cls.list(), "See `rm-gallery list`."))
        of_name: Callable[[str], type[BaseReward]] | None = getattr(bound, "of_name", None)
        return _bound(bound, rest) if of_name is None else of_name(rest)

    @classmethod
    def _find(cls, name: str) -> type[BaseReward] | None:
        lazy = cls._classes.get(name) is None and cls._lazy_names().get(name)
        if lazy:
            cls._classes.setdefault(name, _class_for(name, _import(lazy, f"reward '{name}'")))
        return cls._classes.get(name)

    @classmethod
    def create(cls, name: str, /, **params: Any) -> BaseReward:
        """Construct a registered reward; an unknown constructor field is a ConfigError with the nearest names."""
        return cls.get(name)(**params)

    @classmethod
    def list(cls) -> builtins.list[str]:
        """All registered names, sorted."""
        return sorted(name for name in {*cls._lazy_names(), *cls._classes} if not name.endswith(":"))

    @classmethod
    def _lazy_names(cls) -> dict[str, str]:
        if cls._lazy is None:
            # by name, so that core needs no import of the gallery to offer what the gallery holds
            names: dict[str, str] = {
                "grader:": GRADER,
                "func:": FUNCTION,
                "env:": ENVIRONMENT,
                **importlib.import_module(GALLERY).discover(),
            }
            for point in entry_points(group=ENTRY_POINT_GROUP):
                names.setdefault(point.name, point.value)
            cls._lazy = names
        return cls._lazy


def _import(target: str, what: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"The {what} names {target!r}, which cannot be imported: {error}") from error


def _class_for(name: str, reward: Any) -> type[BaseReward]:
    from rm_gallery.core.reward.reward import BaseReward

    if callable(getattr(reward, "reward_class", None)):  # a function that @reward_function stands above
        reward = reward.reward_class(name)
    if not (isinstance(reward, type) and issubclass(reward, BaseReward)):
        raise ConfigError(
            f"The reward '{name}' is {reward!r:.80}; what is registered is a class derived from a kind such as BasePointWiseReward, or a @reward_function."
        )
    return reward


def _bound(reward: type[BaseReward], argument: str) -> type[BaseReward]:
    def new(cls: type[BaseReward], *arguments: Any, **settings: Any) -> Any:
        # an object of the class itself, which can be pickled and says what it is
        return cast("Any", reward)(argument, *arguments, **settings)

    metaclass: Any = type(reward)
    made: type[BaseReward] = metaclass(
        reward.__name__, (reward,), {"__new__": new, "__module__": reward.__module__, "__doc__": reward.__doc__}
    )
    return made
