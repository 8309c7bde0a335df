"""What test code sees of the candidate: callables and objects whose every use is a message to the
other process.

What the answer returns is data, built again on this side, and the methods a test calls on it are
those of the real type. An object of any other type stays over there: what it holds can be read, by
item, attribute or iteration, and is data again, and a function can be called, but its methods are
not believed, for they would be the answer's own word about itself. The exception is a class that
the tests ask for: an object made by calling a name that the prompt defines as a class, or that
begins with a capital letter and is not the entry point, has the methods of its class, and so has
what comes out of them.
"""

from __future__ import annotations

import builtins

from rm_gallery.core.sandbox.inside.base import FrameTooLarge, PeerGone
from rm_gallery.core.sandbox.inside.codec import CodecError, TooLarge, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any


_ATTRIBUTE = -1
"""Depth of what an object holds that the tests did not ask for."""
# raised inside an iteration of the test code these would end it early, which an `all(...)` takes
# for success
_NEVER_NATIVE = {"StopIteration", "StopAsyncIteration", "GeneratorExit"}


class CandidateError(Exception):
    """The answer's code raised an exception that the test code does not name."""


class NotTestable(Exception):
    """The test passes something that cannot cross the sandbox: no verdict about the answer is
    possible.
    """


def not_vacuous(array: Any) -> Any:
    """An array of the answer; an empty one does not pass for equal to what is not empty, as
    `(a == b).all()` would have it.
    """
    if array.size:
        return array
    numpy = __import__("numpy")

    def bare(arrays: Iterable[Any]) -> list[Any]:
        return [each.view(numpy.ndarray) if isinstance(each, Empty) else each for each in arrays]

    class Empty(numpy.ndarray):  # type: ignore[misc,name-defined]  # numpy is not looked at before there is an array
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            plain = bare(inputs)
            if method == "__call__" and len(plain) == 2:
                others = [numpy.ndim(each) for each in plain if numpy.size(each)]
                # what tests do with both sides, such as a tolerance times a value, is no comparison
                # yet
                if others and (max(others) or ufunc not in (numpy.multiply, numpy.add)):
                    raise ValueError(
                        "the answer's array is empty, and what it is compared with is not"
                    )
            if "out" in options:
                options["out"] = tuple(bare(options["out"]))
            result = getattr(ufunc, method)(*plain, **options)
            return (
                result.view(Empty)
                if isinstance(result, numpy.ndarray) and not result.size
                else result
            )

    return array.view(Empty)


class CandidateConnection:
    """Sends requests and turns replies into values; `fatal` is set when no later reply can be
    trusted or expected.
    """

    def __init__(self, exchange: Callable[[bytes], bytes]) -> None:
        self._exchange = exchange
        self.calls = 0
        self.fatal = ""
        self.last_error: BaseException | None = None
        self.last_reason = ""
        self.untestable = ""
        self.named_exceptions: tuple[type[BaseException], ...] = ()
        self.classes: set[str] = set()

    def begin_unit(self) -> None:
        """Forget the last unit's error."""
        self.last_error = None

    def ask(self, operation: str, *arguments: object) -> Any:
        """Perform one operation in the candidate's process and return its value.

        The first argument is what it is done to: the name of a function, or an object.
        """
        self.calls += 1
        number = self.calls
        target = arguments[0] if arguments else None
        depth = (
            _depth_of(target) if isinstance(target, RemoteObject) else int(target in self.classes)
        )
        self._check_believed(operation, depth)
        try:
            request = encode((operation, number, *arguments), keep=self._number_of)
        except TooLarge:
            # only a value that came from the answer grows beyond what it was sent in
            raise self.fail(
                "output limit", CandidateError("the value is too large to be passed on")
            ) from None
        except CodecError as error:
            # tests that hand over what cannot cross are no fault of the answer, but what they do
            # with an object of its own is
            if operation != "call" or depth > 2:
                raise self.fail("error: TypeError", TypeError(str(error))) from None
            self.untestable = str(error)
            raise NotTestable(str(error)) from error
        if self.fatal:
            raise PeerGone(self.fatal)
        try:
            deeper = depth + 1 if depth > 0 and isinstance(target, RemoteObject) else depth
            if operation == "get" and depth <= 0:
                deeper = _ATTRIBUTE
            reply = decode(
                self._exchange(request),
                resolve=lambda number: RemoteObject(self, number, deeper),
                array=not_vacuous,
            )
        except FrameTooLarge:
            raise self._give_up("output limit") from None
        except PeerGone:
            raise self._give_up("gone") from None
        except TooLarge:
            raise self._too_large() from None
        except MemoryError:
            raise self._too_large("memory") from None
        except CodecError:
            raise self._give_up("tampering") from None
        return self._reply_value(reply, number)

    def _check_believed(self, operation: str, depth: int) -> None:
        if operation == "set" and depth <= 0:
            raise self.fail(
                "error: AttributeError", AttributeError("the result is no object of the tests' own")
            )
        if operation == "call" and depth == _ATTRIBUTE:
            raise self.fail(
                "error: TypeError", TypeError("a method of the answer's own object is not believed")
            )

    def _number_of(self, value: object) -> int:
        if isinstance(value, RemoteFunction):
            value = self.ask("find", value.__name__)
        if isinstance(value, RemoteObject):
            return int(object.__getattribute__(value, "_number"))
        raise CodecError(
            f"the test passes a value of type {type(value).__name__}, which cannot cross the "
            f"sandbox"
        )

    def _reply_value(self, reply: Any, number: int) -> Any:
        match reply:
            case (same, *_) if type(same) is not int or same != number:
                pass
            case (_, "ok", value):
                return value
            case (_, "too large"):
                raise self._too_large()
            case (_, "error", names, message) if is_description(names, message):
                raise self.fail(error_reason(names), self._native(names, message))
        raise self._give_up("tampering")

    def _native(self, names: list[str], message: str) -> Exception:
        for name in names:
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception) and name not in _NEVER_NATIVE:
                if kind is not Exception and issubclass(kind, self.named_exceptions):
                    try:
                        return kind(message)
                    except TypeError:  # UnicodeDecodeError and its like want more arguments
                        break
        return CandidateError(f"{names[0]}: {message}")

    def fail(self, reason: str, error: Exception) -> Exception:
        """Record why the answer fails the test, and return the error that ends it."""
        self.last_error, self.last_reason = error, reason
        return error

    def _too_large(self, reason: str = "output limit") -> Exception:
        return self.fail(reason, CandidateError("the returned value is too large"))

    def _give_up(self, reason: str) -> PeerGone:
        self.fatal = reason
        return PeerGone(reason)


def is_description(names: object, message: object) -> bool:
    """Tell whether a candidate's error record has the agreed shape."""
    return (
        isinstance(names, list)
        and 0 < len(names) <= 50
        and all(isinstance(name, str) and name.isidentifier() and len(name) < 100 for name in names)
        and isinstance(message, str)
    )


def error_reason(names: list[str]) -> str:
    """Name the outcome of an exception the answer raised."""
    return "memory" if "MemoryError" in names else f"error: {names[0]}"


class RemoteFunction:
    """Stands for one of the answer's top-level callables."""

    def __init__(self, link: CandidateConnection, name: str) -> None:
        self._link = link
        self.__name__ = self.__qualname__ = name

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Call it in the other process; arguments are copied, so a change made to them there is not
        seen here.
        """
        return self._link.ask("call", self.__name__, arguments, keywords)


def _depth_of(value: RemoteObject) -> int:
    """1 for what the tests constructed, more for what came out of it, 0 for other results,
    `_ATTRIBUTE` for what they hold.
    """
    return int(object.__getattribute__(value, "_depth"))


class RemoteObject:
    """Stands for an object of a type that does not cross; it is equal to itself only, whatever its
    class says there.
    """

    def __init__(self, link: CandidateConnection, number: int, depth: int) -> None:
        # the class's own ways to attributes are requests
        kept = object.__getattribute__(self, "__dict__")
        kept.update(_link=link, _depth=depth, _number=number, _frozen=None)

    def _request(self, operation: str, *arguments: object) -> Any:
        return object.__getattribute__(self, "_link").ask(operation, self, *arguments)

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Call the object in the other process."""
        return self._request("call", arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._request("get", name)

    def __setattr__(self, name: str, value: object) -> None:
        self._request("set", name, value)

    def __getitem__(self, key: object) -> Any:
        return self._request("item", key)

    def __len__(self) -> int:
        items = self._items()
        return self._claimed_length() if items is None else len(items)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self._request("str"))

    def __contains__(self, value: object) -> bool:
        """Whether it holds a value; all of it is read, so that what has no end holds nothing."""
        items = self._items()
        if items is None:
            items = self._read_items(_MOST_ITEMS)
            if len(items) > _MOST_ITEMS:
                raise self._link_fails("output limit", "an object that has no length, and no end")
        return value in items

    def __iter__(self) -> Iterator[Any]:
        items = self._items()
        return self._one_by_one() if items is None else iter(items)

    def _items(self) -> list[Any] | None:
        """All items of a result that has a length, read once; None where it has none, and of an
        object whose class the tests asked for.

        An object of the answer's own may give one length and other items, and others each time; so
        it is read once, and tampering where both disagree.
        """
        if _depth_of(self) > 0:
            return None
        frozen: tuple[list[Any] | None] | None = object.__getattribute__(self, "_frozen")
        if frozen is None:
            try:
                size = self._claimed_length()
            except TypeError:
                size = -1
            items = None if size < 0 else self._read_items(size)
            if items is not None and len(items) != size:
                raise self._link_fails(
                    "tampering", "an object whose length is not that of its items"
                )
            frozen = (items,)
            object.__setattr__(self, "_frozen", frozen)
        return frozen[0]

    def _read_items(self, most: int) -> list[Any]:
        """Its items, at most one more than `most`."""
        return [item for _, item in zip(range(most + 1), self._one_by_one(), strict=False)]

    def _link_fails(self, reason: str, why: str) -> Exception:
        link: CandidateConnection = object.__getattribute__(self, "_link")
        return link.fail(reason, CandidateError(why))

    def _claimed_length(self) -> int:
        try:
            size = self._request("len")
        # list() asks everything for a length and takes this for an answer
        except CandidateError as error:
            raise TypeError(str(error)) from error
        if not isinstance(size, int):
            raise TypeError("length is no number")
        return size

    def _one_by_one(self) -> Iterator[Any]:
        iterator = self._request("iter")
        while True:
            item = iterator._request("next") if isinstance(iterator, RemoteObject) else ()
            if not isinstance(item, tuple) or len(item) != 1:
                return
            yield item[0]


_MOST_ITEMS = 2000
"""Items read of a result that has no length."""
