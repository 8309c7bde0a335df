"""Test functions, test classes and `unittest` cases in a namespace, and the part of pytest that
such tests use.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any


SOLUTION_MODULES = frozenset("solution answer submission candidate main your_module".split())
"""Names under which test files import what they test."""

OTHER = "__other__"
"""Name under which tests find `other_value`."""


def other_value(value: Any) -> Any:
    """A value of the same kind that differs, by more than any tolerance; of what is no plain data,
    a list that holds it.
    """
    kind = type(value)
    if kind is bool:
        return not value
    if kind in (int, float, complex):
        other = value + abs(value) + 7
        return other if other != value and other == other else 7
    if kind in (str, bytes):
        return ("x" if kind is str else b"x") + value
    if kind in (list, tuple, set, frozenset):
        items = list(value)
        return kind([other_value(items[0]), *items[1:]] if items else [7])
    if kind is dict:
        first = next(iter(value), 7)
        return {**value, first: other_value(value.get(first))}
    return 7 if value is None else [value]


def run_case(names: Mapping[str, Any], case: str) -> None:
    """Run one case, `function` or `Class.method`: set-up, every row of its parameters, tear-down;
    raises what the test raises.
    """
    owner, _, method = case.partition(".")
    definition = names[owner]
    if not isinstance(definition, type):
        _run_rows(definition, names)
    elif hasattr(definition, "doCleanups"):
        _run_unittest(definition, method)
    else:
        made = definition()
        _call(made, "setup_class", "setup_method")
        try:
            _run_rows(getattr(made, method), names)
        finally:
            _call(made, "teardown_method", "teardown_class")


def _call(owner: Any, *names: str) -> None:
    for name in names:
        function = getattr(owner, name, None)
        if function is not None:
            function()


def _run_unittest(kind: Any, method: str) -> None:
    kind.setUpClass()
    try:
        test = kind(method)
        _finished(test.setUp())
        try:
            # subTest asks the running case for its result: without one it re-raises at once
            _finished(getattr(test, method)())
        finally:
            _finished(test.tearDown())
            _cleaned(test)
    finally:
        kind.tearDownClass()


def _cleaned(test: Any) -> None:
    while test._cleanups:
        function, arguments, keywords = test._cleanups.pop()
        function(*arguments, **keywords)


def _finished(value: Any) -> None:
    if hasattr(value, "cr_code") and hasattr(value, "send"):
        __import__("asyncio").run(value)


def _run_rows(function: Any, names: Mapping[str, Any]) -> None:
    rows: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "__rows__", []):
        rows = [{**row, **more} for row in rows for more in mark]
    for row in rows:
        made: list[Iterator[Any]] = []
        cache: dict[str, Any] = {}
        try:
            names_of = _parameters(getattr(function, "__func__", function))
            wanted = [name for name in names_of if name not in row and name != "self"]
            required = len(wanted) - len(function.__defaults__ or ())
            fixtures = {
                name: _fixture(name, names, made, cache) for name in wanted[: max(required, 0)]
            }
            _finished(function(**row, **fixtures))
        finally:
            for iterator in reversed(made):
                next(iterator, None)


def _parameters(function: Any) -> tuple[str, ...]:
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount])


def _fixture(
    name: str, names: Mapping[str, Any], made: list[Iterator[Any]], cache: dict[str, Any]
) -> Any:
    if name not in cache:
        function = names.get(name)
        if not getattr(function, "__fixture__", False):
            raise NotProvided(f"the fixture '{name}' is not provided")
        value = function(*[_fixture(each, names, made, cache) for each in _parameters(function)])  # type: ignore[misc]
        if hasattr(value, "gi_code"):
            made.append(value)
            value = next(value)
        cache[name] = value
    return cache[name]


class NotProvided(ImportError):
    """A test asks for a part of pytest that is not here: the tests cannot run, whatever the answer
    is.
    """


class Raises:
    """`pytest.raises` as a context."""

    def __init__(self, expected: Any, match: str | None) -> None:
        self._expected = expected
        self._match = match
        self.value: BaseException | None = None
        self.type: type[BaseException] | None = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if kind is None:
            raise AssertionError("nothing was raised")
        if not issubclass(kind, self._expected):
            return False
        self.type, self.value = kind, error
        if self._match is not None and not __import__("re").search(self._match, str(error)):
            raise AssertionError("the message is another one")
        return True


def raises(expected: Any, *call: Any, match: str | None = None, **keywords: Any) -> Any:
    """A context, or with a function its call, that has to raise."""
    context = Raises(expected, match)
    if not call:
        return context
    with context:
        call[0](*call[1:], **keywords)
    return context


class Approx:
    """`pytest.approx`: numbers within `rel` of the expected one's size or `abs`, in lists, tuples
    and mappings as well.
    """

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        expected: Any,
        rel: float | None = None,
        abs: float | None = None,
        nan_ok: bool = False,
    ) -> None:
        self._expected, self._rel, self._abs, self._nan = expected, rel, abs, nan_ok

    def __eq__(self, actual: object) -> bool:
        return self._equal(actual, self._expected)

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"

    def _equal(self, actual: Any, expected: Any) -> bool:
        match expected, actual:
            case (dict(), dict()):
                return actual.keys() == expected.keys() and all(
                    self._equal(actual[k], expected[k]) for k in expected
                )
            case (dict(), _):
                return False
            case (list() | tuple(), _):
                return len(actual) == len(expected) and all(map(self._equal, actual, expected))
        if actual == expected:
            return True
        if expected != expected:
            return bool(self._nan and actual != actual)
        if not isinstance(expected, (int, float, complex)) or not isinstance(
            actual, (int, float, complex)
        ):
            return False
        rel = (1e-6 if self._abs is None else 0.0) if self._rel is None else self._rel
        size = builtins.abs(expected)
        bound = max(1e-12 if self._abs is None else self._abs, rel * size)
        return builtins.abs(actual - expected) <= bound and size != float("inf")


class _PytestMark:
    """`pytest.mark`: parameters count, any other mark is a comment."""

    def __getattr__(self, name: str) -> Any:
        if name in ("skip", "skipif", "xfail", "usefixtures"):
            raise NotProvided(f"pytest.mark.{name} is not provided")
        return _parametrize if name == "parametrize" else _comment


def _comment(*arguments: Any, **_: Any) -> Any:
    return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else _comment


def _parametrize(names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = []
    for value in values:
        plain = value.values if isinstance(value, Param) else (value,) if len(keys) == 1 else value
        rows.append(dict(zip(keys, plain, strict=True)))

    def marked(function: Any) -> Any:
        function.__rows__ = [*getattr(function, "__rows__", []), rows]
        return function

    return marked


class Param:
    """`pytest.param`: one row of values."""

    def __init__(self, *values: Any, **_: Any) -> None:
        self.values = values


def _fixture_mark(*arguments: Any, **options: Any) -> Any:
    if options.get("params") or options.get("autouse"):
        raise NotProvided("pytest.fixture with params or autouse is not provided")

    def marked(function: Any) -> Any:
        function.__fixture__ = True
        return function

    return marked(arguments[0]) if arguments and callable(arguments[0]) else marked


def _fail(reason: str = "", **_: Any) -> None:
    raise AssertionError(reason)


def _main(*_: Any, **__: Any) -> int:
    """A test file that starts itself: its cases run anyway."""
    return 0


def provide_pytest() -> None:
    """Make `import pytest` work: raises, approx, fixtures, parameters; anything else is an
    ImportError that names it.
    """
    module = type(sys)("pytest")

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotProvided(f"pytest.{name} is not provided")

    given = {
        "raises": raises,
        "approx": Approx,
        "mark": _PytestMark(),
        "param": Param,
        "fixture": _fixture_mark,
        "fail": _fail,
    }
    module.__dict__.update(given, main=_main, __getattr__=missing)
    sys.modules["pytest"] = module


def provide_tools(used: set[str]) -> None:
    """Make ready what tests that use these names need."""
    if "pytest" in used:
        provide_pytest()
    if "random" in used:
        __import__("random").seed(0)  # the same answer has to get the same score
