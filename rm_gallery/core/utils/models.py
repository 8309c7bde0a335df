"""Pydantic models: clear errors where people construct them, and quick copies on the hot path.

`model_copy` and `model_construct` cost several microseconds each; a cheap rule reward costs less
than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, SecretStr, ValidationError

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.core.utils.shown import redact

M = TypeVar("M", bound=BaseModel)
_new = object.__new__
# the descriptors behind a model's four slots: setting them by name would look each of them up in
# the whole class first
_set_dict: Callable[[Any, Any], None] = vars(BaseModel)["__dict__"].__set__
_set_known: Callable[[Any, Any], None] = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra: Callable[[Any, Any], None] = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private: Callable[[Any, Any], None] = vars(BaseModel)["__pydantic_private__"].__set__


@cache
def _all_fields(cls: type[BaseModel]) -> set[str]:
    return set(cls.model_fields)


def build(cls: type[M], fields: dict[str, Any]) -> M:
    """A model with exactly these field values, unchecked; every field must be given."""
    new = _new(cls)
    _set_dict(new, fields)
    # one set for all: every field is in it, so an assignment to the model adds nothing
    _set_known(new, _all_fields(cls))
    _set_extra(new, None)
    _set_private(new, None)
    return new


def remake(model: M, fields: dict[str, Any], known: set[str] | None = None) -> M:
    """A model like this one with exactly these field values, unchecked; what it knows as set stays,
    unless `known` says it.
    """
    new = _new(model.__class__)
    _set_dict(new, fields)
    _set_known(new, model.__pydantic_fields_set__ if known is None else known)
    _set_extra(new, model.__pydantic_extra__)
    _set_private(new, None)
    return new


def copy_with(model: M, **changes: Any) -> M:
    """A shallow copy with some fields replaced, unchecked; for models without private attributes."""
    # shared with the original unless it grows: the set is only told apart by `exclude_unset` dumps
    known = model.__pydantic_fields_set__
    return remake(
        model,
        {**model.__dict__, **changes},
        known if changes.keys() <= known else known | changes.keys(),
    )


class Configured(BaseModel):
    """A model people construct: what does not fit is a ConfigError that names the field and the
    nearest known one.

    Given values are kept out of the message, since one of them may be a key.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    # type checkers make each class's constructor of its fields, as pydantic asks them to
    if not TYPE_CHECKING:

        def __init__(self, **data: Any) -> None:
            """Validate the given fields."""
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise ConfigError(_explain(type(self), error)) from error

    def __getstate__(self) -> dict[Any, Any]:
        """What a pickle holds: no key, no header that is one, nothing that was worked out; keys are
        read where it is loaded.

        Only what goes straight to a process of this run has them, see `with_keys`.
        """
        state = super().__getstate__()
        fields, whole = type(self).model_fields, _with_keys.get()
        state["__dict__"] = {
            name: value if whole else _without_keys(value)
            for name, value in state["__dict__"].items()
            if name in fields
        }
        return state


_with_keys: ContextVar[bool] = ContextVar("rm_gallery_with_keys", default=False)


@contextmanager
def with_keys() -> Iterator[None]:
    """Pickles that are made inside the block hold keys: for a socket that nobody else has, never
    for a file.
    """
    token = _with_keys.set(True)
    try:
        yield
    finally:
        _with_keys.reset(token)


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if redact({key: item}) == {key: item}}
    return (
        None
        if isinstance(value, SecretStr) or (isinstance(value, str) and redact(value) != value)
        else value
    )


def field_names(cls: type[BaseModel]) -> list[str]:
    """The names its fields can be given by."""
    return [each for spellings in _spellings(cls) for each in spellings]


def _spellings(cls: type[BaseModel]) -> list[list[str]]:
    """By field the names it can be given by."""
    aliases = [(name, info.validation_alias) for name, info in cls.model_fields.items()]
    return [
        list(map(str, alias.choices)) if isinstance(alias, AliasChoices) else [name]
        for name, alias in aliases
    ]


def _explain(cls: type[BaseModel], error: ValidationError) -> str:
    known = field_names(cls)
    errors, lines = error.errors(), []
    unknown = any(item["type"] == "extra_forbidden" for item in errors)
    for item in errors:
        where = ".".join(str(part) for part in item["loc"]) or "settings"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            both = next((names for names in _spellings(cls) if where in names), None)
            lines.append(
                f"{cls.__name__}: {' and '.join(both)} are one field; give one of them."
                if both
                else unknown_name(f"parameter of {cls.__name__}", where, known)
            )
        elif not item["loc"]:
            lines.append(message)
        elif not (unknown and item["type"] == "missing"):  # the misspelt one is it
            lines.append(
                f"{cls.__name__}: "
                f"{message if message.startswith(f'{where} ') else f'{where}: {message}'}"
                f"{_found(where, item)}"
            )
    return " ".join(line if line.endswith((".", "?")) else f"{line}." for line in lines)


def _found(where: str, item: Any) -> str:
    """What pydantic refused, behind its own words; nothing that may be a secret."""
    pair = f"{where}={item['input']!r:.60}"
    plain = isinstance(item["input"], str | int | float) and redact(pair) == pair
    own = item["type"] in ("missing", "value_error", "assertion_error")
    return f", found {item['input']!r:.60}" if plain and not own else ""


def error_message(error: BaseException) -> str:
    """The message of an error; of a model that does not fit one line that names its fields."""
    if not isinstance(error, ValidationError):
        try:
            return str(error)
        except Exception as own:  # noqa: BLE001 - an error of anybody's, whose __str__ breaks as well
            return f"its message cannot be read: {type(own).__name__}"
    faults = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, item["loc"]))
        unknown = item["type"] == "extra_forbidden"
        message = "there is no such field" if unknown else item["msg"].removeprefix("Value error, ")
        faults.append(f"{where}: {message}" if where else message)
    return f"{error.title}: {'; '.join(faults)}"
