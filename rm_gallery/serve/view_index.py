"""The samples of a run as columns in memory: what they are filtered and sorted by; their texts are
read from the file by place.
"""

from __future__ import annotations

import math
import os
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from rm_gallery.core.model.transport import Json
from rm_gallery.core.stats import Bools, Floats, Integers, np
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.core.utils.file import from_line, opened_file
from rm_gallery.study.runs import SAMPLES, KeptFigure, SampleRow, hash_of_sample

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


NAMED = ("status", "cause", "subset")
_CODED = (*NAMED, "lost")
"""`lost` is who caused that a row adds nothing to the figure of the run."""
_NUMBERS = ("score", "second", "credit", "value")
_COLUMNS = ("start", "length", *_NUMBERS, "cluster", "same", "answers", *_CODED)


class RunIndex:
    """The columns of samples.jsonl, read once and then as far as the file grew; safe from any
    thread.
    """

    def __init__(
        self, folder: Path, root: Path | None = None, figure: KeptFigure | None = None
    ) -> None:
        """Read nothing yet; with `root`, a folder above, no link below that is followed. `figure` is
        what the figure of the run is.
        """
        self.path, self._root = folder / SAMPLES, root
        self._figure = figure or KeptFigure()
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._file: tuple[int, int] | None = None
        self._read = 0
        self.version = 0
        """Grows with the index."""
        self._columns: dict[str, array[Any]] = {
            name: array("d" if name in _NUMBERS else "q") for name in _COLUMNS
        }
        self.names: dict[str, dict[str, int]] = {what: {} for what in _CODED}
        """By what is named, the numbers of its names, in the order in which they were met."""
        self.n_damaged = 0
        """Lines that hold no sample."""
        self.ids: list[str] = []
        self.keys: dict[str, int] = {}
        self._texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scores(self) -> Floats:
        """Of the first answer; not a number where there is none."""
        return np.array(self._columns["score"])

    @property
    def wins(self) -> Floats:
        """Of the first answer over the second by their scores: 1, 0.5 or 0; not a number without
        both.
        """
        gap = self.scores - np.array(self._columns["second"])
        wins: Floats = np.where(np.isnan(gap), gap, (1 + np.sign(gap)) / 2)
        return wins

    @property
    def answers(self) -> Integers:
        """How many answers each row has to look at; 0 for one that a table left blank."""
        return np.array(self._columns["answers"])

    @property
    def credits(self) -> Floats:
        """What each row earned; not a number where nothing countable."""
        return np.array(self._columns["credit"])

    @property
    def values(self) -> Floats:
        """What each row adds to the mean that is the figure; not a number where nothing."""
        return np.array(self._columns["value"])

    @property
    def clusters(self) -> Integers:
        """Equal where rows belong together."""
        return np.array(self._columns["cluster"])

    @property
    def same(self) -> Integers:
        """What each row is the same by in another run, see `hash_of_sample`."""
        return np.array(self._columns["same"])

    def named(self, what: str, name: str) -> Bools:
        """Which rows have this status, cause or subset."""
        return np.asarray(np.array(self._columns[what]) == self.names[what].get(name, -1))

    def counted(self, what: str, own: Bools | None = None) -> dict[str, int]:
        """How many rows, of all or of some, have each status, cause or subset, the unnamed ones
        left out.
        """
        codes = np.array(self._columns[what])
        codes = codes if own is None else codes[own]
        counts = np.bincount(codes, minlength=len(self.names[what]))
        return {name: int(counts[number]) for name, number in self.names[what].items() if name}

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
        file.seek(self._read)
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            self._add_row(line)
            self._read += len(line)
        self.version += 1

    def _add_row(self, line: bytes) -> None:
        """Keep a row's columns, and its text to be searched; of a line that holds no row, that it is
        damaged.
        """
        if not self._added(line):
            self.n_damaged += 1

    def _added(self, line: bytes) -> bool:
        """Whether the line holds a row, which is kept then."""
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = from_line(line)
        if type(record) is not dict or "id" not in record:
            return False
        get = record.get
        try:
            id, key, status = str(record["id"]), get("key", ""), get("status", "scored")
            texts = [id, get("prompt", ""), *get("answers", ()), *filter(None, get("reasons", ()))]
            text = "\n".join(part[:SEARCHED] for part in texts).lower()
            first, second = [*get("scores", ()), None, None][:2]
            credit, scores = get("credit"), get("scores", ())
            value = self._figure.value(status, credit, scores, get("metadata"))
            numbers = [math.nan if n is None else float(n) for n in (first, second, credit, value)]
            cause = "" if status == "scored" else SampleRow.from_record(record).cause or ""
            lost = "" if value is not None else self._figure.cause(status, cause) or ""
            cluster = hash(get("cluster") or key)
            said = get("answers", ())
            same = hash_of_sample(id, get("subset", ""), get("prompt", ""), said)
            answers = 0 if key.startswith(BLANK) else len(get("answers", ()))
        except (TypeError, ValueError, AttributeError):
            return False  # as `OpenRun.samples` leaves out what no run writes
        names = status, cause, get("subset", ""), lost
        if not all(isinstance(name, str) for name in names):
            return False
        # nothing is kept of a row before all of it was read: columns of unequal length would shift
        # the rows behind it
        codes = [
            known.setdefault(name, len(known))
            for known, name in zip(self.names.values(), names, strict=True)
        ]
        values = (self._read, len(line), *numbers, cluster, same, answers, *codes)
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        self.keys[key] = len(self.ids)
        self.ids.append(id)
        self._texts.append(text.encode("utf-8", "replace"))
        return True

    def chosen(self, wanted: RowFilter) -> Integers:
        """The places of the rows that fit, in the order asked for."""
        with self._lock:
            fits = np.ones(len(self), dtype=bool)
            for what in NAMED:
                if name := getattr(wanted, what):
                    fits &= self.named(what, name)
            if wanted.low is not None:
                fits &= self.scores >= wanted.low
            if wanted.high is not None:
                fits &= self.scores <= wanted.high
            if wanted.text:
                text = wanted.text.lower().encode("utf-8", "replace")
                fits &= np.fromiter((text in each for each in self._texts), bool, len(self))
            places = np.flatnonzero(fits)
            sort, falls = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
            if sort == "place":
                return places[::-1] if falls else places
            if sort == "id":
                ids = sorted(places.tolist(), key=self.ids.__getitem__, reverse=falls)
                return np.array(ids, dtype=np.int64)
            values = np.array(self._columns[sort])[places]
            # rows without a value stand last, whichever way it goes
            return places[np.argsort(-values if falls else values, kind="stable")]

    def row(self, place: int) -> SampleRow | None:
        """The row at a place, read from the file; None where there is none."""
        with self._lock:
            if not 0 <= place < len(self):
                return None
            start, length = self._columns["start"][place], self._columns["length"][place]
        with opened_file(self.path, self._root) as file:
            file.seek(start)
            record: Json | None = from_line(file.read(length))
        return None if record is None else SampleRow.from_record(record)
