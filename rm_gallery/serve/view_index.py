"""The samples of a run as columns in memory: what they are filtered and sorted by; their texts are
read from the file by place.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from rm_gallery.core.stats import Bools, Floats, Integers, np
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import from_line, opened_file
from rm_gallery.study.runs import SAMPLES, SampleRow

SEARCHED = 10_000
"""Characters of one text that a search looks through."""
BLANK = "blank:"
"""What the key of a row of a table begins with that could not be judged for want of a text."""
SORTS = ("place", "score", "credit", "id")


@dataclass(frozen=True)
class RowFilter:
    """Which rows are shown, and in which order; what is left empty leaves everything in.

    Attributes:
        text: what id, prompt, an answer or a reason holds; case does not count.
        status: scored, unscored or failed.
        cause: who brought it about that there is no score.
        subset: the part of the benchmark.
        low: least score of the first answer, and `high` its greatest.
        high: see `low`.
        sort: place in the file, score, credit or id; a minus before it turns the order round.
    """

    text: str = ""
    status: str = ""
    cause: str = ""
    subset: str = ""
    low: float | None = None
    high: float | None = None
    sort: str = "place"

    def __post_init__(self) -> None:
        if self.sort.removeprefix("-") not in SORTS:
            raise ConfigError(
                f"sort is {self.sort!r:.40}; give {', '.join(SORTS)}, with a minus before it to "
                f"turn it round."
            )


class _Names:
    """Names as small numbers, in the order in which they are met."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.column = array("i")

    def add(self, name: str) -> None:
        self.column.append(self.numbers.setdefault(name, len(self.numbers)))

    def where(self, name: str) -> Bools:
        return np.asarray(self.codes == self.numbers.get(name, -1))

    @property
    def codes(self) -> Integers:
        return np.array(self.column, dtype=np.int64)

    def counted(self) -> dict[str, int]:
        """How many rows have each name, the unnamed ones left out."""
        counts = np.bincount(self.codes, minlength=len(self.numbers))
        return {name: int(counts[number]) for name, number in self.numbers.items() if name}


class RunIndex:
    """The columns of samples.jsonl, read once and then as far as the file grew; safe from any
    thread.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        """Read nothing yet; with `root`, a folder above, no link below that is followed."""
        self.path, self._root = folder / SAMPLES, root
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._file: tuple[int, int] | None = None
        self._read = 0
        self.version = 0
        """Grows with the index."""
        self._starts, self._lengths = array("q"), array("q")
        self.ids: list[str] = []
        self.keys: dict[str, int] = {}
        self._score, self._second, self._credit = array("d"), array("d"), array("d")
        self._cluster, self._answers = array("q"), array("i")
        self.status, self.cause, self.subset = _Names(), _Names(), _Names()
        self._texts: list[bytes] = []
        self._ends: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scores(self) -> Floats:
        """Of the first answer; not a number where there is none."""
        return np.array(self._score)

    @property
    def wins(self) -> Floats:
        """Of the first answer over the second by their scores: 1, 0.5 or 0; not a number without
        both.
        """
        gap = self.scores - np.array(self._second)
        wins: Floats = np.where(np.isnan(gap), gap, (1 + np.sign(gap)) / 2)
        return wins

    @property
    def answers(self) -> Integers:
        """How many answers each row has to look at; 0 for one that a table left blank."""
        return np.array(self._answers, dtype=np.int64)

    @property
    def credits(self) -> Floats:
        """What each row earned; not a number where nothing countable."""
        return np.array(self._credit)

    @property
    def clusters(self) -> Integers:
        """Equal where rows belong together."""
        return np.array(self._cluster, dtype=np.int64)

    def refresh(self) -> RunIndex:
        """Read what came since; everything again where the file was written anew."""
        with self._lock:
            try:
                with opened_file(self.path, self._root) as file:
                    status = os.fstat(file.fileno())
                    if self._file != (status.st_dev, status.st_ino) or status.st_size < self._read:
                        self._clear()
                        self._file = status.st_dev, status.st_ino
                    if status.st_size > self._read:
                        self._grow(file)
            except FileNotFoundError:
                self._clear()
        return self

    def _grow(self, file: BinaryIO) -> None:
        texts, ends, size = list[bytes](), list[int](), 0
        file.seek(self._read)
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            text = self._add_row(line)
            if text is not None:
                self._starts.append(self._read)
                self._lengths.append(len(line))
                texts.append(text)
                size += len(text)
                ends.append(size)
            self._read += len(line)
        self._texts.append(b"".join(texts))
        self._ends.append(ends)
        self.version += 1

    def _add_row(self, line: bytes) -> bytes | None:
        """Keep a row's columns; its text to be searched, or None where the line holds no row."""
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = from_line(line)
        if type(record) is not dict or "id" not in record:
            return None
        get = record.get
        try:
            fields = [
                str(record["id"]),
                get("prompt", ""),
                *get("answers", ()),
                *filter(None, get("reasons", ())),
            ]
            text = (
                "\n".join(fields)
                if len(line) < SEARCHED
                else "\n".join(part[:SEARCHED] for part in fields)
            )
            score, second, earned = _score_columns(get("scores", ()), get("credit"))
            status, key, subset = get("status", "scored"), get("key", ""), get("subset", "")
            cause = "" if status == "scored" else SampleRow.from_record(record).cause or ""
            cluster, answers = hash(get("cluster") or key), len(get("answers", ()))
        except (TypeError, ValueError, AttributeError):
            return None  # as `OpenRun.samples` leaves out what no run writes
        if not all(isinstance(name, str) for name in (status, key, subset, cause)):
            return None
        # nothing is kept of a row before all of it was read: columns of unequal length would shift
        # the rows behind it
        self.status.add(status)
        self.cause.add(cause)
        self.subset.add(subset)
        self._score.append(score)
        self._second.append(second)
        self._answers.append(0 if key.startswith(BLANK) else answers)
        self._credit.append(earned)
        self._cluster.append(cluster)
        self.keys[key] = len(self.ids)
        self.ids.append(fields[0])
        return (text.lower() + "\0").encode("utf-8", "replace")

    def chosen(self, wanted: RowFilter) -> Integers:
        """The places of the rows that fit, in the order asked for."""
        with self._lock:
            fits = np.ones(len(self), dtype=bool)
            for names, name in (
                (self.status, wanted.status),
                (self.cause, wanted.cause),
                (self.subset, wanted.subset),
            ):
                if name:
                    fits &= names.where(name)
            scores = self.scores
            if wanted.low is not None:
                fits &= scores >= wanted.low
            if wanted.high is not None:
                fits &= scores <= wanted.high
            if wanted.text:
                fits &= self._holding(wanted.text)
            return self._sorted(np.flatnonzero(fits), wanted.sort)

    def _holding(self, text: str) -> Bools:
        wanted, holds, start = (
            text.lower().encode("utf-8", "replace"),
            np.zeros(len(self), dtype=bool),
            0,
        )
        for texts, ends in zip(self._texts, self._ends, strict=True):
            at = texts.find(wanted)
            while at >= 0:
                row = bisect_right(ends, at)
                holds[start + row] = True
                at = texts.find(wanted, ends[row])
            start += len(ends)
        return holds

    def _sorted(self, places: Integers, sort: str) -> Integers:
        name = sort.removeprefix("-")
        if name in ("score", "credit"):
            values = (self.scores if name == "score" else self.credits)[places]
            # rows without a value stand last, whichever way it goes
            places = places[np.argsort(-values if sort.startswith("-") else values, kind="stable")]
        elif name == "id":
            places = np.array(
                sorted(places.tolist(), key=self.ids.__getitem__, reverse=sort.startswith("-")),
                dtype=np.int64,
            )
        elif sort.startswith("-"):
            places = places[::-1]
        return places

    def row(self, place: int) -> SampleRow | None:
        """The row at a place, read from the file; None where there is none."""
        with self._lock:
            if not 0 <= place < len(self):
                return None
            start, length = self._starts[place], self._lengths[place]
        with opened_file(self.path, self._root) as file:
            file.seek(start)
            record: dict[str, Any] | None = from_line(file.read(length))
        return None if record is None else SampleRow.from_record(record)


def _score_columns(scores: Sequence[Any], credit: Any) -> tuple[float, float, float]:
    """Score of the first answer and of the second, and credit; not a number where there is none."""
    first, second, *_ = (*scores, None, None)
    return _number_or_nan(first), _number_or_nan(second), _number_or_nan(credit)


def _number_or_nan(value: Any) -> float:
    return math.nan if value is None else float(value)
