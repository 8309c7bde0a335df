"""What came first under a name, for millions of names: rows of a file, samples of a run."""

from __future__ import annotations

from array import array


class FirstKeys:
    """The first key that came with each id, by 64-bit hashes in two arrays: some 30 bytes an id,
    where a dict takes 110.
    """

    def __init__(self) -> None:
        self._ids, self._keys, self._n = array("q", [0]) * 1024, array("q", [0]) * 1024, 0

    def first(self, name: int, key: int) -> int | None:
        """The key that came first with this id; None where it is this one, and is kept."""
        name = name or 1  # 0 is an empty place
        place = self._place_of(name)
        if self._ids[place]:
            return self._keys[place]
        self._ids[place], self._keys[place] = name, key
        self._n += 1
        if 4 * self._n > 3 * len(self._ids):
            self._grow()
        return None

    def swap(self, name: int, key: int) -> int | None:
        """Put a key in the place of the one that came with this id before, which is given back."""
        before = self.first(name, key)
        if before is not None:
            self._keys[self._place_of(name or 1)] = key
        return before

    def __len__(self) -> int:
        return self._n

    def values(self) -> list[int]:
        """The keys, in any order."""
        return [key for name, key in zip(self._ids, self._keys, strict=True) if name]

    def get(self, name: int) -> int | None:
        """The key that came first with this id, after `swap` the last; None where none came."""
        place = self._place_of(name or 1)
        return self._keys[place] if self._ids[place] else None

    def _place_of(self, name: int) -> int:
        """Where a name stands, or the empty place where it would."""
        mask = len(self._ids) - 1
        place = name & mask
        while (there := self._ids[place]) and there != name:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        n = 2 * len(self._ids)
        ids, keys, mask = array("q", [0]) * n, array("q", [0]) * n, n - 1
        for name, key in zip(self._ids, self._keys, strict=True):
            if name:
                place = name & mask
                while ids[place]:  # no call: half the time of a large table is this
                    place = (place + 1) & mask
                ids[place], keys[place] = name, key
        self._ids, self._keys = ids, keys
