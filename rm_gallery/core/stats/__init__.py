"""Statistics, and what all of it is written with.

`np` is numpy, loaded when something of it is first used, so that importing a module of these stays
quick; the other names are types of columns, for annotations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

__all__ = ["Array", "ArrayLike", "Bools", "Floats", "Integers", "Names", "Numbers", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[Any]
    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Names = Sequence[Any] | Array
    Numbers = Sequence[float | None] | Array
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _Numpy()
    Array = ArrayLike = Bools = Floats = Integers = Names = Numbers = Any
