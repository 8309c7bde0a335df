"""Bytes for plain Python values: the only thing that ever crosses the wall between candidate and
test code.

One tag byte, then lengths and contents. Decoding builds exact builtin types, and of the standard
library (and numpy, where it is there) the few that hold data only, so an object with its own
`__eq__` arrives as the plain value under it, or as an opaque `Ref` that equals nothing; methods
called on what arrives are those of the real type. Imports stay minimal because this module is
loaded into every sandboxed process.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 250

_LENGTH = struct.Struct(">I")
_FLOAT = struct.Struct(">d")
_COMPLEX = struct.Struct(">dd")


class CodecError(ValueError):
    """A value that may not cross, or bytes that are no encoded value."""


class TooLarge(CodecError):
    """The encoded value would exceed the size or depth bound."""


class Ref:
    """Number of an object that stays on the other side."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def encode(
    value: object, *, limit: int = MAX_BYTES, keep: Callable[[object], int] | None = None
) -> bytes:
    """Encode `value`; types of the standard library that hold data keep their type, an answer's own
    subclasses are flattened.

    `keep` turns an object of any other type into a reference number; without it such an object
    raises CodecError. Raises TooLarge beyond `limit` bytes or 250 levels (a cyclic value ends there
    too).
    """
    out = bytearray()
    _Encoder(out, limit, keep).put(value, 0)
    return bytes(out)


class _Encoder:
    def __init__(self, out: bytearray, limit: int, keep: Callable[[object], int] | None) -> None:
        self.out = out
        self.limit = limit
        self.keep = keep

    def put(self, value: object, depth: int) -> None:
        if depth > MAX_DEPTH or len(self.out) > self.limit:
            raise TooLarge(
                f"value is larger than {self.limit} bytes or nested deeper than {MAX_DEPTH}"
            )
        if type(value) in _BUILTIN:
            self.scalar_or_container(value, depth)
        elif value is None or value is True or value is False:
            self.out += _TAGS[value]
        elif isinstance(value, Ref):
            self.sized(b"R", _integer_bytes(value.number))
        elif (kind := exact_kind(value)) is not None:
            self.data(kind, value, depth)
        else:
            self.scalar_or_container(value, depth)

    def scalar_or_container(self, value: object, depth: int) -> None:
        # unbound builtin methods: a subclass must not get a say in how it is flattened
        match value:
            case int():
                self.sized(b"i", _integer_bytes(int.__index__(value)))
            case float():
                self.out += b"d" + _FLOAT.pack(float.__float__(value))
            case str():
                self.sized(b"s", str.encode(value, "utf-8", "surrogatepass"))
            case bytes() | bytearray():
                self.sized(b"b", bytes(memoryview(value)))
            case list():
                self.items(b"l", list, value, depth)
            case tuple():
                self.items(b"t", tuple, value, depth)
            case dict():
                flat = [part for pair in dict.items(value) for part in pair]
                self.items(b"D", list, flat, depth, each=2)
            case set():
                self.items(b"S", set, value, depth)
            case frozenset():
                self.items(b"Z", frozenset, value, depth)
            case complex():
                real, imag = complex.real.__get__(value), complex.imag.__get__(value)
                self.out += b"c" + _COMPLEX.pack(real, imag)
            case _:
                self.other(value, depth)

    def other(self, value: object, depth: int) -> None:
        kind = data_kind(value)
        if kind is not None:
            self.data(kind, value, depth)
        elif self.keep is None:
            raise CodecError(f"a value of type {type(value).__name__} cannot cross the sandbox")
        else:
            self.sized(b"R", _integer_bytes(self.keep(value)))

    def data(self, kind: str, value: object, depth: int) -> None:
        self.out += b"x"
        self.put(kind, depth + 1)
        self.put(_PARTS[kind](value), depth + 1)

    def sized(self, tag: bytes, body: bytes) -> None:
        if len(self.out) + len(body) > self.limit:
            raise TooLarge(f"value is larger than {self.limit} bytes")
        self.out += tag + _LENGTH.pack(len(body)) + body

    def items(self, tag: bytes, kind: Any, items: object, depth: int, each: int = 1) -> None:
        count = kind.__len__(items) // each
        if len(self.out) + count > self.limit:
            raise TooLarge(f"value is larger than {self.limit} bytes")
        self.out += tag + _LENGTH.pack(count)
        for item in kind.__iter__(items):
            self.put(item, depth + 1)


def exact_kind(value: object) -> str | None:
    """Name the standard library's type of a value that is derived from a builtin one, None where it
    has none of these.
    """
    kind = type(value)
    if kind.__base__ is tuple and _is_namedtuple(kind):
        return "collections.namedtuple"
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name if name in _DERIVED else None


def _is_namedtuple(kind: type) -> bool:
    fields = kind.__dict__.get("_fields")
    return type(fields) is tuple and all(
        type(name) is str and name.isidentifier() and name[0] != "_" for name in fields
    )


def data_kind(value: object) -> str | None:
    """Name the type of data that a value outside of the builtin ones is or is derived from, None
    when it is something else.
    """
    for kind in type(value).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _PARTS:
            return name
    return None


_MADE: dict[bytes, Any] = {b"l": list, b"t": tuple, b"S": set, b"Z": frozenset}
_SINGLE = {b"N": None, b"T": True, b"F": False}
_TAGS = {value: tag for tag, value in _SINGLE.items()}
_BUILTIN = frozenset({int, float, str, bytes, list, tuple, dict, set, frozenset, complex})
_DERIVED = frozenset(
    "collections.Counter collections.OrderedDict collections.defaultdict builtins.bytearray".split()
)
"""Types derived from builtin ones, or alike, whose methods tests use."""
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)}


def _bounds(value: Any) -> tuple[object, ...]:
    return value.start, value.stop, value.step


def _pairs(value: Any) -> list[tuple[object, object]]:
    return list(dict.items(value))


def _match_parts(match: Any) -> tuple[object, ...]:
    return match.re.pattern, match.re.flags, match.string, match.pos, match.endpos, match.span()


def _matched(
    pattern: Any, flags: int, string: Any, pos: int, endpos: int, span: tuple[int, int]
) -> object:
    """The match again; found anew, so that an answer cannot claim groups that are none."""
    compiled = __import__("re").compile(pattern, flags)
    for way in (compiled.match, compiled.fullmatch, compiled.search):
        if (match := way(string, pos, endpos)) is not None and match.span() == span:
            return match
    return next(match for match in compiled.finditer(string, pos, endpos) if match.span() == span)


def _array_parts(array: Any) -> tuple[object, ...]:
    return array.dtype.str, array.shape, array.reshape(-1).tolist()


# how a value of each type becomes plain, and below how it is built again: no more than data can
# come out of it
_PARTS: dict[str, Callable[[Any], object]] = {
    "builtins.bytearray": lambda v: bytes(memoryview(v)),
    "builtins.dict_keys": list,
    "builtins.dict_values": list,
    "builtins.dict_items": list,
    "builtins.range": _bounds,
    "builtins.slice": _bounds,
    "array.array": lambda v: (v.typecode, v.tolist()),
    "collections.Counter": lambda v: dict(_pairs(v)),
    "collections.OrderedDict": _pairs,
    "collections.defaultdict": lambda v: (
        getattr(v.default_factory, "__name__", None),
        dict(_pairs(v)),
    ),
    "collections.namedtuple": lambda v: (
        type(v).__name__,
        list(type(v)._fields),
        list(tuple.__iter__(v)),
    ),
    "collections.deque": lambda v: (list(v), v.maxlen),
    "datetime.datetime": lambda v: v.isoformat(),
    "datetime.date": lambda v: v.isoformat(),
    "datetime.time": lambda v: v.isoformat(),
    "datetime.timedelta": lambda v: (v.days, v.seconds, v.microseconds),
    "decimal.Decimal": str,
    "fractions.Fraction": lambda v: (v.numerator, v.denominator),
    "re.Match": _match_parts,
    "uuid.UUID": lambda v: v.hex,
    "pathlib.PurePath": str,
    "numpy.generic": lambda v: v.item(),
    "numpy.ndarray": _array_parts,
}


# what is made from its parts in another way than by a call of its type
_REBUILT: dict[str, Callable[[Any], object]] = {
    "builtins.bytearray": bytearray,
    "builtins.dict_keys": lambda parts: dict.fromkeys(parts).keys(),
    "builtins.dict_values": lambda parts: dict(enumerate(parts)).values(),
    "builtins.dict_items": lambda parts: dict(parts).items(),
    "collections.defaultdict": lambda p: __import__("collections").defaultdict(
        _FACTORIES.get(p[0]), p[1]
    ),
    "collections.namedtuple": lambda p: __import__("collections").namedtuple(p[0], p[1])(*p[2]),
    "pathlib.PurePath": lambda parts: __import__("pathlib").PurePosixPath(parts),
    "re.Match": lambda parts: _matched(*parts),
}


def _build_value(kind: object, parts: Any) -> object:
    if not isinstance(kind, str) or kind not in _PARTS:
        raise CodecError(f"unknown type of data {kind!r}")
    try:
        if kind == "numpy.generic":
            return parts
        if kind in _REBUILT:
            return _REBUILT[kind](parts)
        module, _, name = kind.rpartition(".")
        constructor: Any = getattr(__import__(module), name)
        if kind == "numpy.ndarray":
            dtype, shape, items = parts
            if dtype[1:2] not in "biufcU":  # whatever else an array may hold
                raise CodecError("an array of objects")
            return __import__(module).array(items, dtype=dtype).reshape(shape)
        if kind.startswith("datetime.") and isinstance(parts, str):
            return constructor.fromisoformat(parts)
        return constructor(*parts) if isinstance(parts, tuple) else constructor(parts)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"no value of type {kind}: {error}") from error


def _integer_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def decode(
    data: bytes,
    *,
    resolve: Callable[[int], object] | None = None,
    array: Callable[[Any], object] | None = None,
) -> object:
    """Decode bytes from `encode`; `resolve` turns a reference number into an object (default: a
    `Ref`), and `array` has the last word about a numpy array.

    Raises CodecError on anything that is not exactly one well-formed value.
    """
    decoder = _Decoder(data, resolve or Ref, array)
    value = decoder.take(0)
    if decoder.at != len(data):
        raise CodecError("bytes left over after the value")
    return value


class _Decoder:
    def __init__(
        self, data: bytes, resolve: Callable[[int], object], array: Callable[[Any], object] | None
    ) -> None:
        self.data = data
        self.at = 0
        self.resolve = resolve
        self.array = array

    def raw(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise CodecError("value ends too early")
        part = self.data[self.at : end]
        self.at = end
        return part

    def length(self) -> int:
        count = int(_LENGTH.unpack(self.raw(4))[0])
        # an item takes one byte at least: a forged count must not make us reserve memory
        if count > len(self.data) - self.at:
            raise CodecError("length is larger than the data")
        return count

    def take(self, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise TooLarge(f"value is nested deeper than {MAX_DEPTH}")
        tag = self.raw(1)
        if tag in b"NTF":
            return _SINGLE[tag]
        if tag == b"d":
            return float(_FLOAT.unpack(self.raw(8))[0])
        if tag == b"c":
            real, imag = _COMPLEX.unpack(self.raw(16))
            return complex(real, imag)
        if tag in b"isbR":
            return self.sized(tag, self.raw(self.length()))
        if tag in b"ltSZD":
            return self.container(tag, self.length(), depth + 1)
        if tag == b"x":
            kind = self.take(depth + 1)
            built = _build_value(kind, self.take(depth + 1))
            return (
                self.array(built) if self.array is not None and kind == "numpy.ndarray" else built
            )
        raise CodecError(f"unknown tag {tag!r}")

    def sized(self, tag: bytes, body: bytes) -> object:
        if tag == b"s":
            try:
                return body.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise CodecError("text is not UTF-8") from error
        if tag == b"b":
            return body
        number = int.from_bytes(body, "big", signed=True)
        return number if tag == b"i" else self.resolve(number)

    def container(self, tag: bytes, count: int, depth: int) -> object:
        try:
            if tag == b"D":
                return {self.take(depth): self.take(depth) for _ in range(count)}
            return _MADE[tag]([self.take(depth) for _ in range(count)])
        except TypeError as error:
            raise CodecError("unhashable member of a set or dict") from error
