"""A run kept in its folder while it goes: which samples are done, what was spent, and the trace of
its judgements.
"""

from __future__ import annotations

import platform
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from rm_gallery._version import __version__
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import Questions, RunControl, current_run, snapshot
from rm_gallery.core.engine.options import RunOptions, detached_options
from rm_gallery.core.engine.run_records import (
    REUSED,
    SUMMARY,
    TRACE,
    RunStore,
    record_key,
)
from rm_gallery.core.model.budget import Budget, Ledger
from rm_gallery.core.model.storage import FILE_NAME, KeptReplies
from rm_gallery.core.score import UNDECLARED
from rm_gallery.core.utils.errors import ConfigError, logger
from rm_gallery.core.utils.file import AppendedFile, to_line
from rm_gallery.core.utils.first_keys import FirstKeys
from rm_gallery.core.utils.shown import redact

T = TypeVar("T")


class Keyed(Protocol):
    """A sample or row as a run folder tells it from others."""

    @property
    def sample_id(self) -> str:
        """What people call it."""

    @property
    def sample_key(self) -> str:
        """Its id and a hash of all that may be read of it."""


class RunFolder(ABC):
    """Keeps every finished sample of a run, and finds the finished ones when the run is continued.

    A record belongs to a sample's key, which holds all that may be read of it, and to its number
    among equal samples: of three equal ones each has its own. What the run spends is kept beside
    them, and with `trace` every judgement.
    """

    def __init__(
        self,
        options: RunOptions,
        manifest: Mapping[str, Any],
        reuse: Collection[str] = REUSED,
        what: str = "samples",
    ) -> None:
        """Open or continue the folder `options.run_dir`.

        Args:
            options: how the run goes; its `manifest` is laid over the other one.
            manifest: what makes another run of it.
            reuse: the statuses of records that are looked at again.
            what: what the records are, for people.

        Raises:
            ConfigError: it belongs to another run (shows the difference), or cannot be written.
        """
        versions = {"rm_gallery": __version__, "python": platform.python_version()}
        wanted = {
            "versions": versions,
            **manifest,
            "repeat": options.repeat,
            **(options.manifest or {}),
        }
        self._store = RunStore.open(options.run_dir or "", wanted, force_new=options.force_new)
        self._what = what
        self._finished = self._store.finished(reuse)
        if self._store.damaged:
            self._warn(self._store.damaged)
        self.replies = KeptReplies(self.path, self._store.shards)
        before = [_summary(folder) for folder in (self.path, *self._store.shards)]
        self._runs = [runs if isinstance(runs := one.get("runs"), int) else 0 for one in before]
        """How often the run, and each of its shards, went on before, as far as it was not killed."""
        self._unfit = 0
        # hashes rather than texts: a run may have millions of samples
        self._seen = FirstKeys()
        self._times: dict[int, int] = {}
        """How often a key came, where its id had come before."""
        self.check: ResumeCheck | None = None
        """Draws the records that are compared; None where none is."""
        self.asked_by_parts = False
        """Whether what is asked is compared by part: where a part has no score, another one may be
        asked that was not.
        """
        self._pending: dict[int, tuple[str, int]] = {}
        self._noted: list[dict[str, Any]] = []
        self._asked: dict[int, Questions] = {}
        self._guard = threading.Lock()
        self._ledger = Ledger(self._store.folder, self._store.shards)
        self._trace: AppendedFile | None = None
        """None before the first judgement."""
        self.counts = dict.fromkeys(
            ("scored", "unscored", "failed", "stopped", "reused", "duplicates", "id_collisions"), 0
        )

    def begin(self, options: RunOptions) -> RunOptions:
        """The options with which what is spent, and what is judged where `trace` is on, are kept
        here.
        """
        if current_run.get() is None:  # a run inside a run spends that one's budget
            options = replace(options, budget=options.budget or Budget())
            assert options.budget is not None
            options.budget.attach(self._ledger)
        if options.control is not None:
            options.control.replies = self.replies
            if options.trace:
                options.control.trace = self._keep_judgement
        return options

    def _keep_judgement(self, entry: dict[str, Any]) -> None:
        with self._guard:
            if self._trace is None:
                self._trace = AppendedFile(self.path / TRACE, 0o600)
        if not self._trace.closed:  # what was cut off may tell late
            self._trace.write(to_line(redact(entry)))

    def known(
        self,
        data: Keyed,
        read: Callable[[dict[str, Any]], T | None],
        whole: Callable[[T], bool] = lambda _: True,
    ) -> T | None:
        """What `read` makes of the record of a sample; None when it has none, or none that fits.

        The sample is then still owed, and also where what was found is not the `whole` of it.
        Raises ConfigError for a sample whose content cannot be told.
        """
        key, number = self._placed(data)
        record = self._finished.pop(record_key(key, number), None)
        result = None if record is None else read(record)
        if record is not None and result is None:
            self._unfit += 1
        elif record is not None and self.check is not None and not number and self.check.wants(key):
            self.check.add(self.unscored(data), record)
        if result is not None and whole(result):
            self.counts["reused"] += 1
        else:
            self._pending[id(data)] = (key, number)
        return result

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._store.folder

    @property
    def restoring(self) -> bool:
        """Whether an earlier part of the run left results whose samples have not come yet."""
        return bool(self._finished)

    def compare(self) -> None:
        """Draw records that are compared with what comes out now, where an earlier part of the run
        left some.
        """
        self.check = ResumeCheck(self._finished, sum(self._runs)) if self._finished else None

    @abstractmethod
    def unscored(self, data: Any) -> Any:
        """An item that is judged like this one, which nobody writes a score to."""

    def record_of(self, data: Keyed) -> dict[str, Any] | None:
        """The record of a sample, where it has one that fits it."""
        if not self._finished:
            return None
        record = self._finished.get(self.key_of(data))
        return record if record is not None and self.fits(record, data) else None

    @abstractmethod
    def fits(self, record: dict[str, Any], data: Any) -> bool:
        """Whether a record can be one of this sample."""

    def key_of(self, data: Any) -> str:
        """What tells a sample from others: its id and a hash of all that is read of it."""
        key: str = data.sample_key
        return key

    @abstractmethod
    def new_record(self, data: Any, *results: Any) -> dict[str, Any]:
        """What is kept of a finished sample."""

    @abstractmethod
    def scores_in(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The scores in what is kept, or the reason why there is none, by place; without what says
        nothing about the code.
        """

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample."""
        return self._asked.setdefault(id(data), Questions())

    def check_asked(self, data: Keyed, record: Mapping[str, Any], now: Questions) -> None:
        """Raise ConfigError when a judge is asked now what it was not asked when a sample was
        judged.
        """
        before = record.get("asked")
        if isinstance(before, list) and not now.hashes <= set(before):
            raise changed(self._store.folder, data.sample_id, "the judge was asked something else")

    def _placed(self, data: Keyed) -> tuple[str, int]:
        """The sample's key, and its number among equal samples of this run."""
        key = self.key_of(data)
        this = hash(key)
        first = self._seen.first(hash(data.sample_id), this)
        if first is None:
            return key, 0
        number = self._times.get(this, int(first == this))
        self._times[this] = number + 1
        self.counts["duplicates" if number else "id_collisions"] += 1
        return key, number

    def _warn(self, count: int) -> None:
        logger.warning(
            "run folder {}: {} lines of results.jsonl hold no usable result; their {} are judged "
            "again",
            self._store.folder, count, self._what,
        )  # fmt: skip

    def keep(
        self, data: Keyed, status: str, entry: Mapping[str, Any], stopped: bool = False
    ) -> None:
        """Note a finished sample; it is on disk after the next `flush`. One that `stopped` before
        anything was said of it leaves no record.
        """
        with self._guard:
            pending = self._pending.pop(id(data), None)
            key, number = pending if pending is not None else self._placed(data)
            self.counts["stopped" if stopped else status] += 1
            asked = self._asked.pop(id(data), None)
            if entry:
                record = {"id": data.sample_id, "key": key, "status": status, **entry}
                if asked is not None and asked.hashes:
                    record["asked"] = sorted(asked.hashes)
                if not self.replies.is_empty:
                    record["replies"] = True
                self._noted.append({**record, "n": number} if number else record)

    def count_stopped(self) -> None:
        """Count a sample that the run did not get to."""
        with self._guard:
            self.counts["stopped"] += 1

    def flush(self) -> None:
        """Write what was noted, in one piece; when this returns it survives a killed process."""
        with self._guard:
            noted, self._noted = self._noted, []
        self._store.append(*noted)
        self._ledger.flush()

    def close(self, control: RunControl) -> None:
        """Write what is noted and the summary, and release the folder."""
        try:
            if not library_loop.is_exiting():
                self._ledger.close()
                self._summarize(control)
        finally:
            self._seen = FirstKeys()  # what is reported afterwards needs the room
            control.replies = None
            self.replies.close()
            if self._trace is not None:
                self._trace.close()

    def _summarize(self, control: RunControl) -> None:
        try:
            self.flush()
            if self._unfit:
                self._warn(self._unfit)
            before = [_summary(folder) for folder in (self.path, *self._store.shards)]
            spent, kept = snapshot(control), self._ledger.spent
            known = _object(before[0].get("spent"))
            served: dict[str, list[str]] = {}
            for name, ids in (
                pair
                for names in (*(_object(one.get("served")) for one in before), control.served)
                for pair in names.items()
            ):
                if isinstance(ids, Collection):
                    served[name] = sorted({*map(str, served.get(name, ())), *map(str, ids)})
            counted = {
                key: [each for each in (known.get(key), value) if isinstance(each, int | float)]
                for key, value in spent.items()
            }
            total = {key: sum(values) if values else None for key, values in counted.items()}
            if kept.calls:  # a part that was killed left no summary
                total.update(calls=kept.calls, cost=kept.cost)
                total.update(input_tokens=kept.input_tokens, output_tokens=kept.output_tokens)
            more: dict[str, Any] = {
                "runs": self._runs[0] + 1,
                **({"served": served} if served else {}),
            }
            if self.check is not None:
                more["compared"] = self.check.counts()
                logger.log(
                    "WARNING" if self.check.missed else "INFO",
                    "run folder {}: {}",
                    self.path,
                    self.check.sentence(),
                )
            counts = {**self.counts, "stopped": self.counts["stopped"] + control.unread}
            self._store.write_summary(
                {
                    "samples": counts,
                    "spent": total,
                    "last": spent,
                    "stopped": control.stopped,
                    **more,
                }
            )
        finally:
            self._store.close()


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return _object(orjson.loads((folder / SUMMARY).read_bytes()))
    except (OSError, ValueError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def about_code(status: str, reason: str, cause: str | None) -> bool:
    """Whether a missing score tells what code does: not where somebody else caused it, nor where it
    may have been the network.
    """
    return cause not in ("endpoint", "caller") and (
        status == "unscored" or reason in ("invalid_result", UNDECLARED)
    )


def changed(folder: Path, sample_id: str, what: str) -> ConfigError:
    """The error that says, by an example, that what is kept was made by something else."""
    return ConfigError(
        f"{folder} holds results of something else under the same settings, such as other code, "
        f"another file that it reads or another environment: of {sample_id!r:.60} {what}. Use "
        f"another folder, or --force-new (force_new=True) to move this "
        "one aside and start anew. What is random by design says deterministic = False, and is not "
        "compared."
    )


SECONDS = 1.0
"""About how long comparing may take."""
_FIRST, _LEAST, _MOST, _MOST_CHEAP = 3, 32, 512, 4096
"""How many records are compared at once, at first; how many of a run, at least and at most, and at
most where one takes less than `CHEAP` seconds."""
CHEAP = 0.001


class ResumeCheck:
    """Which records of a continued run are compared with what comes out now, and those whose rows
    have passed.

    They are drawn by lot from all records: a change may concern the last rows of a file alone, as
    where it is sorted by subset. Each has a rank, and where scoring takes long only the first ranks
    are compared, so that they lie all over the file, too. Every time a run is continued it draws
    anew: what was left out once is compared some other time.
    """

    def __init__(self, records: Mapping[str, Mapping[str, Any]], runs: int = 0) -> None:
        """Draw from `records`, by key, of a run that went on `runs` times."""
        keys = [key for key, record in records.items() if not record.get("n")]
        drawn = random.Random(f"{len(keys)} {runs}").sample(keys, min(_MOST_CHEAP, len(keys)))
        self.of, self.scores, self.missed = len(records), 0, 0
        """How many records there are; how many scores, of an answer or of a part, were held against
        each other, and how many could not be: there is no reply to score them from."""
        self._whole: dict[str, bool] = {}
        """By record, whether all its scores were held against what comes out now."""
        self._ranks = {key: rank for rank, key in enumerate(drawn)}
        self._limit, self._size = _MOST, _FIRST
        self._waiting: list[tuple[Any, dict[str, Any]]] = []

    def wants(self, key: str) -> bool:
        """Whether the record of this key is compared."""
        return self._ranks.pop(key, _MOST_CHEAP) < self._limit

    def add(self, item: Any, record: dict[str, Any]) -> None:
        """Take an item whose row passed, as it was before it was scored, and its record."""
        self._waiting.append((item, record))

    def take(self, *, rest: bool = False) -> list[tuple[Any, dict[str, Any]]]:
        """The items to compare now, with their records: none until there are enough, unless it is
        the `rest`.
        """
        if len(self._waiting) < self._size and not rest:
            return []
        taken, self._waiting = self._waiting, []
        return taken

    def note(self, record: Mapping[str, Any], held: int, missed: int) -> None:
        """Hear how many scores of a record were held against each other, and how many could not be."""
        self.scores += held
        self.missed += missed
        if held or missed:
            key = record.get("key", record["id"])
            self._whole[key] = self._whole.get(key, True) and not missed

    @property
    def compared(self) -> int:
        """How many records were compared, with all their scores."""
        return sum(self._whole.values())

    def counts(self) -> dict[str, int]:
        """What was compared, for the summary."""
        found = {"records": self.compared, "of": self.of, "scores": self.scores}
        return {**found, "missed": self.missed} if self.missed else found

    def sentence(self) -> str:
        """What was compared, for people: no more than was looked at."""
        told = (
            f"{self.compared:,} of {self.of:,} kept records were compared with today's code, by "
            f"{self.scores:,} scores"
        )
        if not self.missed:
            return told
        return (
            f"{told}; {self.missed:,} more scores could not be, since the replies that they were "
            f"made of are not kept in the folder, and are taken over as they are. --force-new "
            f"(force_new=True) judges all anew."
        )

    def learn(self, n: int, seconds: float) -> None:
        """Take in how long comparing `n` took: fewer where it is slow, more at once where it is
        not.
        """
        most = (
            _MOST_CHEAP
            if seconds < CHEAP * n
            else max(_LEAST, min(_MOST, int(SECONDS * n / max(seconds, 1e-9))))
        )
        self._limit = most
        self._size = min(4 * self._size, _MOST)


class Again:
    """Stands in for a run folder while finished samples are judged once more, and holds what they
    get against what was kept.
    """

    def __init__(self, folder: RunFolder, records: Iterable[dict[str, Any]]) -> None:
        """Compare with `records` of `folder`, which come in the order of the samples."""
        self._folder = folder
        self._kept = iter(records)
        self._records: dict[int, dict[str, Any]] = {}
        self._asked: dict[int, Questions] = {}

    def restore(self, data: Any) -> Any:
        """Nothing: every sample is judged, though there is a record of it."""
        self._records[id(data)] = next(self._kept)

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample."""
        return self._asked.setdefault(id(data), Questions())

    def append(self, data: Any, *results: Any) -> None:
        """Hear what a sample gets now; ConfigError with the example where it is something else than
        before.
        """
        record = self._records.pop(id(data))
        asked = self._asked.pop(id(data), Questions())
        if not self._folder.asked_by_parts:
            self._folder.check_asked(data, record, asked)
        self._check_new(data, record, asked)
        self._hold(
            data,
            record,
            self._folder.scores_in(record),
            self._folder.scores_in(self._folder.new_record(data, *results)),
        )

    def _check_new(self, data: Any, record: Mapping[str, Any], now: Questions) -> None:
        """Raise ConfigError where a model would be asked what it was not asked then. Where a reply
        is lost another part may be asked in its place.
        """
        if record.get("replies") and now.new and not now.lost:
            what = f"a model would be asked something else (or {FILE_NAME} has lost its reply)"
            raise changed(self._folder.path, data.sample_id, what)

    def _hold(
        self,
        data: Any,
        record: Mapping[str, Any],
        before: Mapping[str, Any],
        now: Mapping[str, Any],
    ) -> None:
        """Raise ConfigError where a place that both tell of has another value now, and count."""
        held = before.keys() & now.keys()
        if (check := self._folder.check) is not None:
            check.note(record, len(held), len(before) - len(held))
        for place in held:
            if not _same_scores(before[place], now[place]):
                raise changed(
                    self._folder.path,
                    data.sample_id,
                    f"{place} had {_show_scores(before[place])}, and now gets {_show_scores(now[place])}",
                )


def _same_scores(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same_scores, before, now))
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        # another machine adds in another order
        return isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)
    return bool(before == now)


def _show_scores(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_show_scores, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def options_again(options: RunOptions, replies: KeptReplies) -> RunOptions:
    """How finished samples are judged once more: beside the run, keeping nothing, and from the
    replies they were judged by instead of a model.
    """
    control = RunControl(quiet=True, offline=True, replies=replies)
    return detached_options(options, control=control, total=None, budget=None, blame="off")
