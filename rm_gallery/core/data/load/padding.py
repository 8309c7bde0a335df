"""Restores data as it was written: removes nulls that Arrow put into structs, and makes integers
of floats that pandas made.

Arrow gives every row of a column the same fields. Of two rows with `{"city": "Oslo"}` and
`{"symbol": "X"}` the first is read back as `{"city": "Oslo", "symbol": None}`: a parquet file, a
`datasets.Dataset` and a frame made of either hold arguments of tool calls, schemas and other
details that nobody wrote. A null that somebody wrote looks the same there, so that what Arrow holds
has one rule: **a null field of a nested struct is absent**. It stays where the type of the field is
`null`, for then no row has a value and nothing was padded. Columns themselves and items of lists
are never padding; JSON and HTTP do not pad, and keep theirs.

Pandas makes integers floats where one is missing. Floats of a frame, or of a parquet file that
pandas wrote, are integers again where the column has a gap and all are whole; NaN is a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

Restore = Callable[[Any], Any]
"""Gives a value as it was written; values that are not of the expected type come back as they are.
"""


def restore_of_type(kind: Any) -> Restore | None:
    """What undoes the padding of Python values of an Arrow type, and makes its maps dicts; None
    where there is nothing to undo.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return _restore_struct(
            {
                field.name: restore
                for field in fields
                if (restore := restore_of_type(field.type)) is not None
            },
            frozenset(field.name for field in fields if not pa.types.is_null(field.type)),
        )
    if pa.types.is_map(kind):
        return _restore_map(restore_of_type(kind.item_type))
    # extensions; lists, dictionaries
    inner = getattr(kind, "storage_type", None) or getattr(kind, "value_type", None)
    restore = None if inner is None else restore_of_type(inner)
    return (
        _restore_list(restore) if restore is not None and hasattr(kind, "value_field") else restore
    )


def restore_of_schema(schema: Any) -> dict[str, Restore]:
    """`restore_of_type` by column, of the columns that need it."""
    return {
        field.name: restore
        for field in schema
        if (restore := restore_of_type(field.type)) is not None
    }


def restore_of_values(values: Iterable[Any]) -> Restore | None:
    """The same for a column whose type is not known, such as one of a frame; None where nothing is
    to undo.

    Arrow gives all structs of a place the same fields in the same order. Where that holds, a field
    that is null here and has a value elsewhere counts as padding; where it does not, nobody padded.
    """
    shape = _Shape()
    for value in values:
        shape.note(value)
    return shape.restore()


def without_padding(value: Any) -> Any:
    """The value without any null field of a dict, at any depth, for rows of which no type is known.

    A trainer hands over the rows of a batch, and often they are all of one prompt: which fields
    other rows have cannot be seen.
    """
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":  # an array of dicts or lists
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: without_padding(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple) and any(
        isinstance(item, _NESTED) or hasattr(item, "tolist") for item in value
    ):
        return [without_padding(item) for item in value]
    return value


_NESTED = (Mapping, list, tuple)
EXACT = 2**53
"""Floats beyond it have lost digits, so that the integer they were cannot be told."""


def number(value: Any, whole: bool = False) -> Any:
    """A float, None where it is NaN; an integer where its column holds `whole` numbers and it has
    all its digits.
    """
    if not isinstance(value, float):
        return value
    if value != value:
        return None
    return int(value) if whole and abs(value) < EXACT else value


def whole_with_gap(values: Iterable[Any]) -> bool:
    """Whether floats have a gap and are whole numbers otherwise: pandas has no gap in a column of
    integers.
    """
    gap = filled = False
    for value in values:
        if value is None or value != value:
            gap = True
        elif not float(value).is_integer():
            return False
        else:
            filled = True
    return gap and filled


def _restore_struct(inner: Mapping[str, Restore], padded: frozenset[str]) -> Restore:
    def restore(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: inner[name](item) if name in inner else item
            for name, item in value.items()
            if name not in padded or not (item is None or item != item)
        }

    return restore


def _restore_list(inner: Restore) -> Restore:
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _restore_map(inner: Restore | None) -> Restore:
    def restore(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        pairs = [(key, item if inner is None else inner(item)) for key, item in value]
        entries = {str(key): item for key, item in pairs}
        # a key that is there twice fits no dict
        return entries if len(entries) == len(pairs) else pairs

    return restore


class _Shape:
    """What the values of one place have in common."""

    def __init__(self) -> None:
        self.keys: tuple[Any, ...] | None = None
        self.uniform = True
        self.filled = self.gap = self.nan = self.floats = self.fraction = False
        self.fields: dict[Any, _Shape] = {}
        self.items: _Shape | None = None

    def note(self, value: Any) -> None:
        if value is None or value != value:
            self.gap, self.nan = True, self.nan or value is not None
            return
        self.filled = True
        if isinstance(value, dict):
            keys = tuple(value)
            self.uniform = self.uniform and self.keys in (None, keys)
            self.keys = keys
            for key, item in value.items():
                self.fields.setdefault(key, _Shape()).note(item)
        elif isinstance(value, list):
            self.items = self.items or _Shape()
            for item in value:
                self.items.note(item)
        elif isinstance(value, float):
            self.floats, self.fraction = True, self.fraction or not value.is_integer()

    def restore(self) -> Restore | None:
        shapes = self.fields.items() if self.uniform else ()
        padded = frozenset(key for key, shape in shapes if shape.gap and shape.filled)
        inner = {
            key: restore
            for key, shape in self.fields.items()
            if (restore := shape.restore()) is not None
        }
        items = self.items.restore() if self.items is not None else None
        kinds: list[Restore] = []
        if padded or inner:
            kinds.append(_restore_struct(inner, padded))
        if items is not None:
            kinds.append(_restore_list(items))
        if self.nan or (self.gap and self.floats and not self.fraction):
            # pandas has no integers with gaps, not even within a list
            whole = not self.fraction
            kinds.append(lambda value: number(value, whole))
        return (
            None
            if not kinds
            else lambda value: reduce(lambda partly, restore: restore(partly), kinds, value)
        )


def fields_in(value: Any) -> dict[Any, Any]:
    """The fields of a mapping; none of anything else."""
    return dict(value) if isinstance(value, Mapping) else {}


_PLAIN = frozenset({str, int, float, bool, type(None)})
_NO_VALUE = frozenset({"NAType", "NaTType"})


def plain(value: Any) -> Any:
    """The value in plain Python types: arrays, numpy scalars, tensors, pandas' values and
    configuration nodes are converted.

    Goes through lists and dicts, whose keys become texts. An array of one element stays a list.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        # speed: cells are texts and numbers, which one look passes
        return {
            str(key): item if type(item) in _PLAIN else plain(item) for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [plain(item) for item in value]
    if type(value).__name__ in _NO_VALUE:
        return None
    if isinstance(value, datetime):
        return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
    return plain(value.tolist()) if hasattr(value, "tolist") else value
