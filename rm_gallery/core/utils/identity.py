"""What makes two values, settings or pieces of code the same: plain forms and hashes, equal in every process."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import dis
import functools
import hashlib
import inspect
import linecache
import math
import re
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple
from uuid import UUID

import orjson
from pydantic import BaseModel

from rm_gallery.core.utils.errors import ConfigError

_BY_TEXT = (date, time, timedelta, Decimal, Fraction, UUID, PurePath, complex)
_FIXED = (str, int, float, bool, complex, type(None), bytes, re.Pattern)
_LONG = 2_000
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_SOURCELESS = "a change of it could not be noticed"


def digest(value: Any, what: str = "value") -> str:
    """24 hex digits that differ when anything in `value` differs; equal for equal content in every process.

    The order of dict keys does not count; lists and tuples are the same. Raises ConfigError, naming the place below
    `what`, for a value whose content cannot be told (a lambda, an open file, an object of a foreign class).
    """
    try:
        data = orjson.dumps(value, default=_opened, option=_OPTIONS)
    except TypeError:
        data = b"null"
    if b"null" in data:  # NaN and infinities look like None here
        data = orjson.dumps(plain_form(value, what), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _opened(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {"(class)": type(value).__qualname__, **value.__dict__, **(value.__pydantic_extra__ or {})}
    raise TypeError


def plain_form(value: Any, what: str = "value") -> Any:
    """The value in JSON's types, readable where it is short, with nothing lost that tells it from another value.

    What JSON has no form for becomes an object with one key in parentheses: `{"(float)": "nan"}`, `{"(set)": […]}`.
    Raises ConfigError as `digest` does.
    """
    try:
        return _plain(value, what)
    except RecursionError:
        raise ConfigError(f"{what} holds itself or is nested too deep to be told from another value.") from None


def _plain(value: Any, what: str) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, Enum):
        return {"(enum)": [_name(kind), _plain(value.value, what)]}
    if kind is str:
        return value if value.isascii() or is_unicode(value) else {"(text)": ascii(value)}
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"(int)": f"{value:x}"}
    if kind is float:
        return value if math.isfinite(value) else {"(float)": str(value)}
    if isinstance(value, Mapping):
        if all(type(key) is str and (key.isascii() or is_unicode(key)) for key in value):
            return {key: _plain(item, f"{what}.{key}") for key, item in value.items()}
        pairs = [[_plain(key, what), _plain(item, f"{what}[{key!r:.40}]")] for key, item in value.items()]
        return {"(dict)": sorted(pairs, key=orjson.dumps)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{what}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return {"(set)": sorted((_plain(item, what) for item in value), key=orjson.dumps)}
    return _odd(value, kind, what)


def _odd(value: Any, kind: type, what: str) -> Any:
    """Values that JSON has no form for."""
    if isinstance(value, (str, int, float)):
        base = str if isinstance(value, str) else int if isinstance(value, int) else float
        return {f"({_name(kind)})": _plain(base(value), what)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"(bytes)": hashlib.sha256(value).hexdigest()}
    if isinstance(value, _BY_TEXT):
        return {f"({kind.__name__})": str(value)}
    if isinstance(value, re.Pattern):
        return {"(pattern)": [_plain(value.pattern, what), value.flags]}
    if isinstance(value, type):
        return {"(class)": _name(value), **_kept("code", class_code(value))}
    if callable(getattr(value, "describe", None)):
        return _plain(value.describe(), what)
    if isinstance(value, BaseModel):
        return {"(class)": kind.__qualname__, **_plain({**value.__dict__, **(value.__pydantic_extra__ or {})}, what)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"(class)": _name(kind), **_plain(fields, what)}
    if isinstance(value, functools.partial):
        return {"(partial)": [_plain(part, what) for part in (value.func, value.args, value.keywords)]}
    if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        return _function(value, what)
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return {"(array)": [str(value.dtype), _plain(value.tolist(), what)]}
    return _by_name(value, kind, what)


def _by_name(value: Any, kind: type, what: str) -> Any:
    """A tokenizer or a model, known by its name as a judge is; every other object is refused."""
    if isinstance(getattr(value, "name_or_path", None), str):
        return {"(class)": _name(kind), "name_or_path": value.name_or_path}
    raise ConfigError(
        f"{what} is an object of {_name(kind)}, whose content cannot be told: {_SOURCELESS}. Use text, numbers, lists and "
        "dicts, or give its class a describe() that returns such."
    )


def shortened(form: Any) -> Any:
    """A plain form as it is, or its hash where it is long."""
    data = orjson.dumps(form, option=orjson.OPT_SORT_KEYS)
    return form if len(data) <= _LONG else {"(hash)": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _kept(key: str, value: Any) -> dict[str, Any]:
    return {key: value} if value else {}


def _function(function: Any, what: str) -> dict[str, Any]:
    """A function by its name, and by its code where it is the user's own."""
    name = f"{function.__module__}.{function.__qualname__}"
    if isinstance(function, types.MethodType):
        return {"(method)": name, "of": _plain(function.__self__, what)}
    if "<lambda>" in name:
        raise ConfigError(
            f"{what} is a lambda, which has no stable name: {_SOURCELESS}. Define a function with a name, or pass plain values."
        )
    if not isinstance(function, types.FunctionType) or not is_users(function.__module__):
        return {"(function)": name}
    bound = closure_of(function)
    told = {"(function)": name, "code": function_code(function), **_kept("closure", _plain(bound, what))}
    return {**told, **_kept("given", given_to(function))}


# -- code -------------------------------------------------------------------------------------------------------------------

_LIBRARY = str(Path(__file__).parents[2])


@functools.lru_cache(maxsize=1024)
def is_users(module: str | None) -> bool:
    """Whether a module is neither this library's, nor Python's, nor pydantic's: a version stands for those."""
    top = (module or "").partition(".")[0]
    if top in ("rm_gallery", "pydantic"):
        return False
    if top == "__main__" or top not in {*sys.builtin_module_names, *sys.stdlib_module_names}:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)  # a script of one's own may be called code.py
    return file is not None and not file.startswith(sysconfig.get_path("stdlib"))


def class_code(cls: type, seen: set[int] | None = None) -> dict[str, str]:
    """What the user's own classes among the bases of `cls` say: a short hash per member, and per function, class and
    constant that they use, of their files and of other files and notebook cells. Empty for classes of this library.

    `seen` are functions and classes told already.
    """
    found: dict[str, str] = {}
    seen = {id(cls)} if seen is None else seen
    for base in cls.__mro__:
        if is_users(base.__module__) or _is_nowhere(base):
            piece, file = _class_piece(base)
            if piece is None:
                found.update(_compiled_members(base))
            else:
                found.update({f"{base.__name__}.{name}": text for name, text in piece.members.items()})
                found.update(piece.used)
                found.update(_values(piece, file, _scope(base), seen))
                fixed = {k: v for k, v in vars(base).items() if not k.startswith("_") and k != "name" and _is_fixed(v)}
                found[f"{base.__name__}.(constants)"] = digest(fixed)[:8]
                found.update(_put_in(base, piece, file))
            found.update({f"{base.__name__}.{name}": value for name, value in _bound(base)})
    return found


def function_code(function: types.FunctionType, seen: set[int] | None = None) -> dict[str, str]:
    """What a function says and what it uses, as `class_code`."""
    code = function.__code__
    seen = {id(function)} if seen is None else seen
    tree = _tree(_lines(code.co_filename))
    piece = _piece(tree, function.__name__, code.co_firstlineno, False) if tree is not None else None
    if piece is None:
        return {function.__name__: _compiled(code)}
    return {**piece.members, **piece.used, **_values(piece, code.co_filename, function.__globals__, seen)}


def _is_nowhere(cls: type) -> bool:
    """Whether a class was made by code that ran without a module name, which makes it look like Python's own."""
    return cls.__module__ == "builtins" and bool(cls.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE


def given_to(function: Any) -> dict[str, str]:
    """Short hashes of what a function made inside a function was given there and its text does not tell: default values,
    and what its decorators remember. Only of what stays as it is: a memo or a counter is no part of what it says.
    """
    found: dict[str, str] = {}
    layer, depth = function, 0
    while layer is not None and "<locals>" in getattr(layer, "__qualname__", ""):
        inner = getattr(layer, "__wrapped__", None)
        if isinstance(layer, types.FunctionType):
            values = {name: value for name, value in _defaults(layer) if _is_fixed(value)}
            if inner is not None:  # of the innermost one the closure is told as it is
                values |= {name: value for name, value in _remembered(layer) if _is_fixed(value)}
            found.update({f"{depth}.{name}": digest(value)[:8] for name, value in values.items()})
        layer, depth = inner, depth + 1
    return found


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """What a function remembers of the functions around it, but for what it sets itself, such as a counter."""
    return dict(_remembered(function))


def _remembered(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables of the functions around a function that it reads and does not set."""
    stored = {step.argval for step in dis.get_instructions(function) if step.opname == "STORE_DEREF"}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # a cell that is empty yet
            if name not in stored:
                yield name, cell.cell_contents


class _Piece(NamedTuple):
    """A class or function as it is written."""

    lines: tuple[int, int]
    members: dict[str, str]
    used: dict[str, str]
    """What it uses of its file, and what that uses in turn."""
    others: tuple[str, ...]
    """Names it uses that its file does not define, also dotted ones."""


@functools.lru_cache(maxsize=256)
def _piece(tree: ast.Module, name: str, line: int, is_class: bool) -> _Piece | None:
    """The last definition of that name around that line; around any line when it is 0."""
    kinds = (ast.ClassDef,) if is_class else (ast.FunctionDef, ast.AsyncFunctionDef)
    found: Any = None
    for node in ast.walk(tree):
        if (
            isinstance(node, kinds)
            and node.name == name
            and (not line or _first_line(node) <= line <= _last_line(node))
        ):
            found = node
    if found is None:
        return None
    members = dict(_members(found)) if is_class else {name: _short(ast.unparse(found))}
    used, others = _used(found, tree)
    return _Piece((_first_line(found), _last_line(found)), members, used, others)


def _first_line(node: Any) -> int:
    return int(min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]))


def _last_line(node: Any) -> int:
    return int(node.end_lineno or 0)


def _lines(file: str) -> str:
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


_PARSING = threading.Lock()


def syntax_tree(source: str | bytes, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """What `ast.parse` gives, for one thread at a time; raises SyntaxError and what else it raises.

    Python 3.11 counts the depth of a tree for all threads together: of two parses at once one may end in a SystemError.
    """
    with _PARSING:
        return ast.parse(source, mode=mode)


@functools.lru_cache(maxsize=256)
def _tree(source: str) -> ast.Module | None:
    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return None
    return tree if source and isinstance(tree, ast.Module) else None


def _functions(cls: type) -> Iterator[tuple[str, types.FunctionType]]:
    for name, value in vars(cls).items():
        parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
        for part in parts:
            if isinstance(part, types.FunctionType) and is_users(part.__globals__.get("__name__")):
                yield name, part


def _class_piece(cls: type) -> tuple[_Piece | None, str]:
    """How a class is written, found by the line of one of its functions: its name alone may stand for several."""
    places = [
        (function.__code__.co_filename, function.__code__.co_firstlineno)
        for _, function in _functions(cls)
        if function.__qualname__.rpartition(".")[0] == cls.__qualname__
    ]
    if not places:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        places = [(str(file), int(getattr(cls, "__firstlineno__", 0)))] if file else []
    for file, line in places:
        tree = _tree(_lines(file))
        piece = _piece(tree, cls.__name__, line, True) if tree is not None else None
        if piece is not None:
            return piece, file
    return None, ""


def _put_in(cls: type, piece: _Piece, file: str) -> dict[str, str]:
    """Functions that were put into a class where it is not written."""
    first, last = piece.lines
    return {
        f"{cls.__name__}.{name}": _compiled(function.__code__)
        for name, function in _functions(cls)
        if not (function.__code__.co_filename == file and first <= function.__code__.co_firstlineno <= last)
        and not function.__code__.co_filename.startswith((_LIBRARY, "<"))
        and "site-packages" not in function.__code__.co_filename
    }


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    if node.decorator_list:
        yield "(decorators)", _short(" ".join(ast.unparse(decorator) for decorator in node.decorator_list))
    yield "(bases)", _short(" ".join(ast.unparse(base) for base in (*node.bases, *(k.value for k in node.keywords))))
    for item in node.body:
        names = _defined(item)
        yield (names[0] if names else f"(line {item.lineno - node.lineno})"), _short(ast.unparse(item))


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        targets = [statement.target] if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _used(node: ast.AST, tree: ast.Module) -> tuple[dict[str, str], tuple[str, ...]]:
    written: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _defined(statement):
            written.setdefault(name, []).append(statement)
    found: dict[str, str] = {}
    others: set[str] = set()
    changed: set[str] = set()
    todo = [node]
    while todo:
        piece = todo.pop()
        changed.update(_changed(piece))
        for name in sorted(set(_global_names(piece)) - found.keys()):
            statements = [statement for statement in written.get(name, ()) if statement is not node]
            if statements:
                found[name] = _short("\n".join(ast.unparse(statement) for statement in statements))
                todo += statements
            elif name.partition(".")[0] not in written:
                others.add(name)
    return found, tuple(sorted(name for name in others if name.partition(".")[0] not in changed))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MUTATORS = frozenset({"append", "add", "update", "extend", "setdefault", "pop", "popitem", "clear", "insert", "remove", "discard"})  # fmt: skip


def _global_names(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names, and dotted names, that a piece of code reads and does not bind itself."""
    if isinstance(node, _SCOPES):
        parts = list(ast.walk(node))
        bound = {part.arg for part in parts if isinstance(part, ast.arg)}
        bound |= {part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        local = (local | bound) - {name for part in parts if isinstance(part, ast.Global) for name in part.names}
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        dotted = ""
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            dotted, base = f".{base.attr}{dotted}", base.value
        if isinstance(base, ast.Name) and base.id not in local:
            yield base.id + dotted
    for child in ast.iter_child_nodes(node):
        yield from _global_names(child, local)


def _changed(node: ast.AST) -> Iterator[str]:
    """Names whose value a piece of code changes: a memo or a counter is no part of what the code says."""
    for part in ast.walk(node):
        if isinstance(part, ast.Global):
            yield from part.names
        elif (
            isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load) and isinstance(part.value, ast.Name)
        ):
            yield part.value.id
        elif isinstance(part, ast.Attribute) and part.attr in _MUTATORS and isinstance(part.value, ast.Name):
            yield part.value.id


def _scope(cls: type) -> Mapping[str, Any]:
    """Where the functions of a class look for names."""
    for _, function in _functions(cls):
        if function.__module__ == cls.__module__:
            return function.__globals__
    return vars(sys.modules.get(cls.__module__, builtins))


def _values(piece: _Piece, file: str, scope: Mapping[str, Any], seen: set[int]) -> dict[str, str]:
    """What a piece of code finds without its being written in its file: in another notebook cell or another module."""
    found = {}
    again = [
        name for name in piece.used if getattr(getattr(scope.get(name), "__code__", None), "co_filename", file) != file
    ]
    for name in (*piece.others, *again):
        first, *path = name.split(".")
        value = scope.get(first)
        while path and isinstance(value, types.ModuleType) and _is_own(value.__name__):
            value = vars(value).get(path.pop(0))
        if not path and value is not None:
            text = _reached(value, seen)
            if text is not None:
                found[name] = text
    return found


def _reached(value: Any, seen: set[int]) -> str | None:
    """A hash of a value, function or class that code uses; None for one that is no part of what the user wrote."""
    code = value
    with suppress(Exception):  # an object may have any attribute one asks for
        code = inspect.unwrap(value) if callable(value) else value
    if isinstance(code, (types.FunctionType, type)):
        if id(code) in seen or not _is_own(code.__module__):
            return None
        seen.add(id(code))
        return digest(class_code(code, seen) if isinstance(code, type) else function_code(code, seen))[:8]
    described = isinstance(value, BaseModel) and callable(getattr(value, "describe", None))  # a reward, a model
    if not (described or _is_fixed(value) or isinstance(value, (list, dict, set))):
        return None
    try:
        return digest(value)[:8]
    except ConfigError:
        return None


@functools.lru_cache(maxsize=1024)
def _is_own(module: str | None) -> bool:
    """Whether a module is the user's own, and not an installed package."""
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    installed = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    return is_users(module) and (module == "__main__" or not installed)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(_is_fixed(item) for item in value)
    return isinstance(value, _FIXED)


def _bound(cls: type) -> Iterator[tuple[str, str]]:
    """What functions of a class made inside a function remember of it."""
    for name, function in _functions(cls):
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if variable != "__class__" and _is_fixed(value):
                yield f"{name}({variable})", digest(value)[:8]
        for variable, told in given_to(function).items():
            yield f"{name}({variable})", told


def _compiled_members(cls: type) -> dict[str, str]:
    """Members of a class whose source is nowhere: compiled functions, and the values that can be told."""
    found = {f"{cls.__name__}.{name}": _compiled(function.__code__) for name, function in _functions(cls)}
    for name, value in vars(cls).items():
        if not name.startswith("_") and isinstance(value, (*_FIXED, list, tuple, dict, set, frozenset)):
            try:
                found[f"{cls.__name__}.{name}"] = digest(value)[:8]
            except ConfigError:
                continue
    found.update({f"{cls.__name__}.{name}": value for name, value in _bound(cls)})
    return found


def _compiled(code: types.CodeType) -> str:
    return _short(repr(_code_parts(code)))


def _code_parts(code: types.CodeType) -> tuple[Any, ...]:
    constants = [
        _code_parts(item) if isinstance(item, types.CodeType) else sorted(map(repr, item)) if isinstance(item, frozenset)
        else repr(item) for item in code.co_consts
    ]  # fmt: skip
    return (code.co_code, constants, code.co_names, code.co_varnames)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
