"""Reward classes are pydantic models whose bodies may hold plain attributes, as people write classes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
    from typing_extensions import dataclass_transform
else:
    ModelMetaclass = type(BaseModel)

    def dataclass_transform(**_: Any) -> Any:
        """For type checkers alone."""
        return lambda decorated: decorated


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if "__annotations__" in namespace or "__annotate_func__" not in namespace:
        return dict(namespace.get("__annotations__", {}))
    annotationlib = importlib.import_module("annotationlib")  # Python 3.14 evaluates annotations lazily
    annotate = annotationlib.get_annotate_from_class_namespace(namespace)
    if annotate is None:
        return {}
    return dict(annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF))


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))  # so that constructors complete and check
class RewardMeta(ModelMetaclass):
    """Gives un-annotated class attributes the annotation pydantic asks for.

    `FACTS = {...}` becomes a class variable; `name = "x"`, where a base declares the field `name`, a new default for it.
    """

    def __new__(mcs, cls_name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        """Create the class."""
        inherited: dict[str, Any] = {}
        class_variables: set[str] = set()
        for base in bases:
            for name, info in getattr(base, "model_fields", {}).items():
                inherited.setdefault(name, _declared(info))
            class_variables |= set(getattr(base, "__class_vars__", ()))
        annotations = _annotations(namespace)
        for name, value in list(namespace.items()):
            if name in annotations or name.startswith("_") or name == "model_config":
                continue
            if name in inherited and (isinstance(value, type) or not _is_behaviour(value)):
                annotations[name] = inherited[name]
            elif _is_behaviour(value):
                continue
            elif name not in class_variables:
                annotations[name] = ClassVar[Any]
        namespace["__annotations__"] = annotations
        return super().__new__(mcs, cls_name, bases, namespace, **kwargs)


def _declared(info: FieldInfo) -> Any:
    """A field's annotation with its bounds and its other name, which a new default leaves as they are."""
    notes = [*info.metadata, *([Field(validation_alias=info.validation_alias)] if info.validation_alias else [])]
    form: Any = Annotated
    parts = (info.annotation, *notes)
    return form[parts] if notes else info.annotation


def _is_behaviour(value: Any) -> bool:
    """Whether a class attribute is a function, descriptor or nested class rather than data."""
    return callable(value) and not isinstance(value, BaseModel) or hasattr(value, "__get__") or isinstance(value, property)
