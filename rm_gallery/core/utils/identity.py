"""What makes two values or settings the same: plain forms and hashes, equal in every process.

Code is told by its name alone here: what it does is seen when a run that is continued scores some
samples again.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import hashlib
import math
import re
import sys
import sysconfig
import threading
import types
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel

from rm_gallery.core.utils.errors import ConfigError

_BY_TEXT = (date, time, timedelta, Decimal, Fraction, UUID, PurePath, complex)
_LONG = 2_000
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_SOURCELESS = "a change of it could not be noticed"


def digest(value: Any, what: str = "value") -> str:
    """24 hex digits that differ when anything in `value` differs; equal for equal content in every
    process.

    The order of dict keys does not count; lists and tuples are the same. Raises ConfigError, naming
    the place below `what`, for a value whose content cannot be told (a lambda, an open file, an
    object of a foreign class).
    """
    try:
        data = orjson.dumps(value, default=_model_fields, option=_OPTIONS)
    except TypeError:
        data = b"null"
    if b"null" in data:  # NaN and infinities look like None here
        data = orjson.dumps(plain_form(value, what), option=orjson.OPT_SORT_KEYS)
    return hashed(hashlib.blake2b(digest_size=12), data)


ONE_GO = 2047
"""The most bytes that hashlib hashes without letting other threads run."""


def hashed(hasher: Any, data: bytes) -> str:
    """The hexadecimal digest of `data` by a fresh hash object, of up to 20 KB without giving up the
    interpreter's lock: who gives it up for some microseconds may wait milliseconds for it.
    """
    if len(data) <= ONE_GO or len(data) > 10 * ONE_GO:
        hasher.update(data)
    else:
        for start in range(0, len(data), ONE_GO):
            hasher.update(data[start : start + ONE_GO])
    return str(hasher.hexdigest())


def _model_fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {
            "(class)": type(value).__qualname__,
            **value.__dict__,
            **(value.__pydantic_extra__ or {}),
        }
    raise TypeError


def plain_form(value: Any, what: str = "value") -> Any:
    """The value in JSON's types, readable where it is short, with nothing lost that tells it from
    another value.

    What JSON has no form for becomes an object with one key in parentheses: `{"(float)": "nan"}`,
    `{"(set)": […]}`. Raises ConfigError as `digest` does.
    """
    try:
        return _plain_value(value, what)
    except RecursionError:
        raise ConfigError(
            f"{what} holds itself or is nested too deep to be told from another value."
        ) from None


def _plain_value(value: Any, what: str) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, Enum):
        return {"(enum)": [class_name(kind), _plain_value(value.value, what)]}
    if kind is str:
        return value if value.isascii() or is_unicode(value) else {"(text)": ascii(value)}
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"(int)": f"{value:x}"}
    if kind is float:
        return value if math.isfinite(value) else {"(float)": str(value)}
    if isinstance(value, Mapping):
        if all(type(key) is str and (key.isascii() or is_unicode(key)) for key in value):
            return {key: _plain_value(item, f"{what}.{key}") for key, item in value.items()}
        pairs = [
            [_plain_value(key, what), _plain_value(item, f"{what}[{key!r:.40}]")]
            for key, item in value.items()
        ]
        return {"(dict)": sorted(pairs, key=orjson.dumps)}
    if isinstance(value, (list, tuple)):
        return [_plain_value(item, f"{what}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return {"(set)": sorted((_plain_value(item, what) for item in value), key=orjson.dumps)}
    return _odd(value, kind, what)


def _odd(value: Any, kind: type, what: str) -> Any:
    """Values that JSON has no form for."""
    if isinstance(value, (str, int, float)):
        base = str if isinstance(value, str) else int if isinstance(value, int) else float
        return {f"({class_name(kind)})": _plain_value(base(value), what)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"(bytes)": hashlib.sha256(value).hexdigest()}
    if isinstance(value, _BY_TEXT):
        return {f"({kind.__name__})": str(value)}
    if isinstance(value, re.Pattern):
        return {"(pattern)": [_plain_value(value.pattern, what), value.flags]}
    if isinstance(value, type):
        return {"(class)": class_name(value)}
    if callable(getattr(value, "describe", None)):
        return _plain_value(value.describe(), what)
    if isinstance(value, BaseModel):
        return {
            "(class)": kind.__qualname__,
            **_plain_value({**value.__dict__, **(value.__pydantic_extra__ or {})}, what),
        }
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"(class)": class_name(kind), **_plain_value(fields, what)}
    if isinstance(value, functools.partial):
        return {
            "(partial)": [
                _plain_value(part, what) for part in (value.func, value.args, value.keywords)
            ]
        }
    if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        return _function(value, what)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return {"(array)": [str(value.dtype), _plain_value(value.tolist(), what)]}
    return _by_name(value, kind, what)


def _by_name(value: Any, kind: type, what: str) -> Any:
    """A tokenizer or a model, known by its name as a judge is; every other object is refused."""
    if isinstance(getattr(value, "name_or_path", None), str):
        return {"(class)": class_name(kind), "name_or_path": value.name_or_path}
    raise ConfigError(
        f"{what} is an object of {class_name(kind)}, whose content cannot be told: {_SOURCELESS}. "
        f"Use text, numbers, lists and "
        "dicts, or give its class a describe() that returns such."
    )


def shortened(form: Any) -> Any:
    """A plain form as it is, or its hash where it is long."""
    data = orjson.dumps(form, option=orjson.OPT_SORT_KEYS)
    return (
        form
        if len(data) <= _LONG
        else {"(hash)": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    )


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def class_name(kind: type) -> str:
    """What a class is called: `rm_gallery.NAME` for one of this library, wherever in it it stands,
    else its module and name.
    """
    ours = kind.__module__.partition(".")[0] == "rm_gallery"
    return f"{'rm_gallery' if ours else kind.__module__}.{kind.__qualname__}"


def _function(function: Any, what: str) -> dict[str, Any]:
    """A function by its name, and by what it remembers of the functions around it."""
    name = f"{function.__module__}.{function.__qualname__}"
    if isinstance(function, types.MethodType):
        return {"(method)": name, "of": _plain_value(function.__self__, what)}
    if "<lambda>" in name:
        raise ConfigError(
            f"{what} is a lambda, which has no stable name: {_SOURCELESS}. Define a function with "
            f"a name, or pass plain values."
        )
    remembered = remembered_by(function)
    return {"(function)": name, **({"closure": remembered} if remembered else {})}


_told: ContextVar[tuple[Any, ...]] = ContextVar("told", default=())
"""The functions of which it is just being told what they remember."""


def remembered_by(function: Any) -> dict[str, Any]:
    """What a function made inside a function was given there: of its closure what it does not set
    itself, such as a counter, and its defaults; without what cannot be told.
    """
    remembered: dict[str, Any] = {}
    depth, told = 0, _told.get()
    if function in told:  # it calls itself, or another one that calls it
        return remembered
    token = _told.set((*told, function))
    while isinstance(function, types.FunctionType):
        stored = {
            step.argval for step in dis.get_instructions(function) if step.opname == "STORE_DEREF"
        }
        given = dict(function.__kwdefaults__ or {})
        given |= {
            f"default {place}": value for place, value in enumerate(function.__defaults__ or ())
        }
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            with suppress(ValueError):  # a cell that is empty yet
                if name not in stored and cell.cell_contents is not getattr(
                    function, "__wrapped__", None
                ):
                    given[name] = cell.cell_contents
        for name, value in given.items():
            with suppress(ConfigError):
                remembered[f"{depth}.{name}" if depth else name] = plain_form(value)
        function, depth = getattr(function, "__wrapped__", None), depth + 1
    _told.reset(token)
    return remembered


_STANDARD = sysconfig.get_path("stdlib")


@functools.lru_cache(maxsize=1024)
def is_users(module: str | None) -> bool:
    """Whether a module is neither this library's, nor Python's, nor pydantic's: a version stands
    for those.
    """
    top = (module or "").partition(".")[0]
    if top in ("rm_gallery", "pydantic"):
        return False
    if top == "__main__" or top not in {*sys.builtin_module_names, *sys.stdlib_module_names}:
        return True
    # a script of one's own may be called code.py
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and not file.startswith(_STANDARD)


_PARSING = threading.Lock()


def syntax_tree(source: str | bytes, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """What `ast.parse` gives, for one thread at a time; raises SyntaxError and what else it raises.

    Python 3.11 counts the depth of a tree for all threads together: of two parses at once one may
    end in a SystemError.
    """
    with _PARSING:
        return ast.parse(source, mode=mode)
