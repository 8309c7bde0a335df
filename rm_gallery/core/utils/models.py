"""Pydantic models: clear errors where people construct them, and quick copies on the hot path.

`model_copy` and `model_construct` cost several microseconds each; a cheap rule reward costs less than one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

from rm_gallery.core.utils.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
_set = object.__setattr__


@cache
def _all_fields(cls: type[BaseModel]) -> set[str]:
    return set(cls.model_fields)


def build(cls: type[M], fields: dict[str, Any]) -> M:
    """A model with exactly these field values, unchecked; every field must be given."""
    new = cls.__new__(cls)
    _set(new, "__dict__", fields)
    # one set for all: every field is in it, so an assignment to the model adds nothing
    _set(new, "__pydantic_fields_set__", _all_fields(cls))
    _set(new, "__pydantic_extra__", None)
    _set(new, "__pydantic_private__", None)
    return new


def copy_with(model: M, **changes: Any) -> M:
    """A shallow copy with some fields replaced, unchecked; for models without private attributes."""
    new = model.__class__.__new__(model.__class__)
    fields = dict(model.__dict__)
    fields.update(changes)
    _set(new, "__dict__", fields)
    # shared with the original unless it grows: the set is only told apart by `exclude_unset` dumps
    known = model.__pydantic_fields_set__
    _set(new, "__pydantic_fields_set__", known if changes.keys() <= known else known | changes.keys())
    _set(new, "__pydantic_extra__", model.__pydantic_extra__)
    _set(new, "__pydantic_private__", None)
    return new


class Configured(BaseModel):
    """A model people construct: what does not fit is a ConfigError that names the field and the nearest known one.

    Given values are kept out of the message, since one of them may be a key.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    if not TYPE_CHECKING:  # type checkers make each class's constructor of its fields, as pydantic asks them to

        def __init__(self, **data: Any) -> None:
            """Validate the given fields."""
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise ConfigError(_explain(type(self), error)) from error


def _explain(cls: type[BaseModel], error: ValidationError) -> str:
    known = [alias for name, info in cls.model_fields.items() for alias in _names(name, info.validation_alias)]
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or "settings"
        if item["type"] == "extra_forbidden":
            lines.append(unknown_name(f"parameter of {cls.__name__}", where, known))
        elif item["loc"]:
            lines.append(f"{cls.__name__}: {where}: {item['msg'].removeprefix('Value error, ')}")
        else:
            lines.append(item["msg"].removeprefix("Value error, "))
    return " ".join(lines)


def _names(name: str, alias: Any) -> list[str]:
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The known names that are most like a name, nearest first; none where nothing is like it."""
    folded: dict[str, str] = {}
    for each in sorted(known):
        folded.setdefault(each.casefold(), each)
    return [folded[each] for each in difflib.get_close_matches(name.casefold(), list(folded), n=n, cutoff=0.5)]


def unknown_name(what: str, name: str, known: Iterable[str], hint: str = "") -> str:
    """Message for a name that is not known, with the nearest ones that are."""
    names = sorted(known)
    near = nearest(name, names)
    suggestion = f" Did you mean {', '.join(near)}?" if near else f" Known: {', '.join(names[:12])}." if names else ""
    return f"There is no {what} '{name}'.{suggestion}" + (f" {hint}" if hint else "")
