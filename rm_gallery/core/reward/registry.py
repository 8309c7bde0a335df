"""Names of rewards and of graders: the gallery's, other packages' and your own."""

from __future__ import annotations

import builtins
import importlib
import inspect
import os
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, overload

from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.names import nearest, unknown_name
from rm_gallery.core.utils.plugins import entries, imported

K = TypeVar("K")
C = TypeVar("C")
Held = str | type[K]
"""A class, or `module:Class` where it is not imported yet."""
READY_MADE = "rm_gallery.gallery."
GALLERY = "rm_gallery.gallery.rm"
GRADERS = "rm_gallery.core.graders.base"
PREFIXES = {
    "grader:": "rm_gallery.core.graders.base:reward_class_of",
    "rubric:": "rm_gallery.core.graders.base:reward_class_of_rubric",
    "judge:": f"{GALLERY}.published:class_of_checkpoint",
    "column:": f"{GALLERY}.column:class_of_column",
    "func:": "rm_gallery.core.reward.resolve:class_named",
    "env:": "rm_gallery.core.reward.resolve:class_of_environment_named",
}
"""By prefix, the function that says which class of rewards is meant by what follows it; by name, so
that core needs no import of the gallery to offer what the gallery holds. Those of the gallery's own
files (`bt:`, `hf:`, `served:`) are classes that take it as their first argument.
"""


_IN_FILE = re.compile(r"([A-Za-z]:)?[^:]*\.py(:\w+)?")
"""FILE or FILE:NAME of a Python file, perhaps on a drive of Windows."""


_WEIGHTED = re.compile(r"(.+):[+-]?\d*[.,]?\d+")
"""NAME:WEIGHT, with a comma as well, as half of the world writes numbers."""


def weight_behind(name: str) -> str:
    """What to do about a weight where a name alone is taken; empty for a name without one."""
    match = _WEIGHTED.fullmatch(name)
    if match is None or "://" in name:
        return ""
    return (
        f"{name} ends in a weight, which check-reward alone takes, as in {match[1]}:0.2; elsewhere "
        f"name a FILE that holds a "
        "WeightedSum of the parts."
    )


@dataclass(eq=False)
class Registry(Generic[K]):
    """Maps a name to a class of rewards, or of graders.

    The gallery's are found by their files and imported when a name is first asked for. Another
    package adds its own through the entry-point group `rm_gallery.rewards` or `rm_gallery.graders`
    (name = "module:Class"). A name that ends in a colon, such as `bt:`, takes what follows it as
    its class's first argument, unless a function is registered, or its class has `of_name`: that
    says what the name means.

    It is made of what is registered (reward or grader), the gallery's by name, the class something
    is registered as, a hint for names that are not known, and further names, each with the one it
    is short for.
    """

    _what: str
    _ready_made: Callable[[], Mapping[str, Held[K]]]
    _as_class: Callable[[str, Any], type[K]]
    _hint: str = ""
    _further: Callable[[], Mapping[str, str]] = dict
    _classes: dict[str, Any] = field(default_factory=dict)
    _lazy: dict[str, Any] | None = None

    @overload
    def register(self, name: str, *, replace: bool = False) -> Callable[[C], C]: ...
    @overload
    def register(self, name: str, given: C, *, replace: bool = False) -> C: ...
    def register(
        self, name: str, given: C | None = None, *, replace: bool = False
    ) -> C | Callable[[C], C]:
        """Give a class, or a reward function, a name, as a decorator or by a direct call.

        Registering the same class again, also from a file that runs as a script and is imported, or
        from a notebook cell run twice, replaces it; another class under a taken name is a
        ConfigError, unless `replace` says that it takes the place of the one that is there. A name
        of the library is taken before its module is imported, and what replaced it stays.
        """
        if given is None:
            return lambda decorated: self.register(name, decorated, replace=replace)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"A {self._what}'s name is a non-empty string; found {name!r}.")
        kind = self._as_class(name, given)
        held = self._known_names.get(name)
        if held is not None and not replace and not self._same(name, held, kind):
            taken = held if isinstance(held, str) else f"{held.__module__}.{held.__qualname__}"
            if kind.__module__.startswith(READY_MADE) and not taken.startswith(READY_MADE):
                return given  # replaced on purpose before it was imported
            raise ConfigError(
                f"The {self._what} name '{name}' is taken by {taken.replace(':', '.')}; "
                f"choose another name, or replace it with replace=True."
            )
        self._classes[name] = kind
        return given

    def _same(self, name: str, held: Any, kind: type[K]) -> bool:
        """Whether a class is the one that is there, defined once more: of the same name in the same
        file, or in the same session of Python.
        """
        if isinstance(held, str):
            module, _, declared = held.partition(":")
            if module.split(".")[0] == kind.__module__.split(".")[0]:
                # one that is just being imported holds its own name
                return held.startswith(READY_MADE) == kind.__module__.startswith(READY_MADE)
            if declared != kind.__qualname__:
                return False
            # a file of the package that declares it, run as a script
            held = self._class_of(name, held)
        return _written(held) == _written(kind)

    def get(self, name: str) -> type[K]:
        """The class registered under a name (for `scheme:rest` names such as bt:DIR, the class
        bound to `rest`).

        Raises:
            ConfigError: the name is unknown; the message lists the nearest names.
        """
        entry: Any = self._find(name)
        if entry is not None:
            if name.endswith(":") and _reader(entry) is not None:
                raise ConfigError(
                    f"{name} is a prefix; say after it what is meant. {self._hint}".strip()
                )
            return entry  # type: ignore[no-any-return]
        scheme, _, rest = self.spelled(name).partition(":")
        entry = self._find(f"{scheme}:") if rest else None
        if entry is None:
            raise ConfigError(self._unknown(name))
        read = _reader(entry) or (lambda what: class_for(entry, entry, partial(entry, what)))
        return read(rest)

    def spelled(self, name: str) -> str:
        """A name in full: `func:FILE:NAME` for FILE:NAME, `grader:NAME` for a grader; one that is
        in full, or unknown, as it is.
        """
        if self._is_full(name):
            return name
        if "func:" in self and _IN_FILE.fullmatch(name):
            return f"func:{name}"
        return self._further().get(name, name)

    def is_spelled(self, name: str) -> bool:
        """Whether a name is registered, or is a prefix, or a Python file, with what it means."""
        return self._is_full(self.spelled(name))

    def _is_full(self, name: str) -> bool:
        return name in self or f"{name.partition(':')[0]}:" in self

    def __contains__(self, name: str) -> bool:
        """Whether a name, or a prefix with its colon, is registered as it stands."""
        return name in self._known_names

    def _unknown(self, name: str) -> str:
        """The message for a name that is not known, with the nearest that are."""
        scheme, colon, _ = name.partition(":")
        known, hint = self.list(), self._hint
        if weight := weight_behind(name):
            return weight
        if colon and scheme not in self:
            prefixes = self._known_names.keys() - known
            return unknown_name(f"prefix of {self._what}s", f"{scheme}:", prefixes, hint)
        if name.endswith((".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")):
            hint = f"{name!r} looks like a file of data: the {self._what} comes first, the data after it."
        if not nearest(name, known):
            known += [full for each, full in self._further().items() if each not in self]
        return unknown_name(self._what, name, known, hint)

    def _find(self, name: str) -> Any:
        if name not in self._classes and (held := self._known_names.get(name)):
            self._classes.setdefault(name, self._class_of(name, held))
        return self._classes.get(name)

    def _class_of(self, name: str, held: Any) -> Any:
        """The class that is held, imported where it is not yet; behind a prefix a function as it
        is.
        """
        if isinstance(held, str):
            held = imported(held, f"{self._what} '{name}'")
        is_reader = name.endswith(":") and inspect.isfunction(held)
        return held if is_reader else self._as_class(name, held)

    def create(self, name: str, /, **params: Any) -> K:
        """Construct what is registered; an unknown constructor field is a ConfigError with the
        nearest names.
        """
        made: Callable[..., K] = self.get(name)
        return made(**params)

    def list(self) -> builtins.list[str]:
        """All registered names, sorted."""
        return sorted(name for name in self._known_names if not name.endswith(":"))

    @property
    def _known_names(self) -> Mapping[str, Any]:
        """What is held by each name: its class, or what is not imported yet."""
        if self._lazy is None:
            self._lazy = {**entries(f"{self._what}s"), **self._ready_made()}
        return ChainMap(self._classes, self._lazy)


def _written(kind: type[Any]) -> tuple[str, str]:
    """The file a class is from, whatever its module is called (the module, where there is none),
    and what the source calls it: a rule's class is made from its name, its function is written.
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    written = getattr(vars(kind).get("rule"), "__qualname__", kind.__qualname__)
    return os.path.realpath(file) if file else kind.__module__, written


def _reader(entry: Any) -> Any:
    """What says which class a name after this prefix means; None where it is an argument."""
    return entry if inspect.isfunction(entry) else getattr(entry, "of_name", None)


def class_for(base: type[K], like: Any, make: Callable[..., K], **facts: Any) -> type[K]:
    """A class that says what is known of what it stands for, such as a file, a function or an
    object; what it makes is what `make` gives, of a class that can be pickled.
    """
    kind: Any = base
    body = {
        "__new__": lambda cls, *arguments, **settings: make(*arguments, **settings),
        "__module__": like.__module__,
        "__qualname__": like.__qualname__,
        "__doc__": like.__doc__,
        "__annotations__": dict.fromkeys(facts.keys() - kind.model_fields.keys(), ClassVar[Any]),
    }
    made: type[K] = type(kind)(like.__name__, (kind,), body | facts)
    return made


def rule_class_name(name: str) -> str:
    """The class of rewards of a rule: f1_score -> F1ScoreReward, math_verify_reward ->
    MathVerifyReward.
    """
    words = name.removesuffix("_reward").split("_")
    return f"{''.join(word.capitalize() for word in words)}Reward"


def _ready_made_rewards() -> dict[str, Held[BaseReward]]:
    return {**PREFIXES, **importlib.import_module(GALLERY).discover()}


def _reward_class(name: str, given: Any) -> type[BaseReward]:
    # a function that @reward_function stands above
    if callable(getattr(given, "reward_class", None)):
        given = given.reward_class(name)
    if not (isinstance(given, type) and issubclass(given, BaseReward)):
        raise ConfigError(
            f"The reward '{name}' is {given!r:.80}; what is registered is a class derived from a "
            f"kind such as BasePointWiseReward, or a @reward_function."
        )
    return given


def _graders() -> dict[str, str]:
    graders = importlib.import_module(GRADERS).GraderRegistry
    return {name: f"grader:{name}" for name in graders.list()}


RewardRegistry: Registry[BaseReward] = Registry(
    "reward", _ready_made_rewards, _reward_class, "See `rm-gallery list`.", _graders
)
"""Every reward by its name."""
