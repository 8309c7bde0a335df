"""A run's folder: what was asked, what came of each sample and what it cost, also after a kill.

| file | holds |
|---|---|
| `manifest.json` | what makes another run of it, compared value by value |
| `results.jsonl` | one record for each finished sample; the last one of a key counts |
| `replies-1.log` | the replies that the records were made of (`KeptReplies`) |
| `spend.log` | a line before each call and one after it (`Ledger`) |
| `trace.jsonl` | with `trace`, every judgement |
| `summary.json` | counts and sums, when a part of the run is over |

Lines are appended by one `write`, so a kill at any byte leaves at most one torn line, which is cut
off when the folder is opened. A folder `shards/2of4` in it is a run of its own with the same
manifest: another machine's share. Whoever opens the run afterwards finds what all shards finished.
"""

from __future__ import annotations

import os
import platform
import random
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isclose
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from rm_gallery._version import __version__
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.context import (
    Questions,
    RunControl,
    asked_by,
    current_run,
    snapshot,
)
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.model.budget import Budget, Ledger
from rm_gallery.core.model.storage import FILE_NAME, KeptReplies
from rm_gallery.core.score import STATUSES, counted_as
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import (
    AppendedFile,
    FileLock,
    as_json,
    from_line,
    read_lines,
    to_line,
    write_whole,
)
from rm_gallery.core.utils.first_keys import FirstKeys
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.shown import redact

Record = dict[str, Any]
MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
SUMMARY = "summary.json"
TRACE = "trace.jsonl"
SHARDS = "shards"
_EARLIER = "parts"
"""What `SHARDS` was called; shards that lie there go on there."""
_SHARD = re.compile(r"(^|[/\\])(shards|parts)[/\\]\d+of\d+$")
REUSED = ("scored", "unscored")

# -- the manifest ----------------------------------------------------------------------------------

_ABSENT = "(absent)"
_SHOWN = 20
_OURS = re.compile(r"\Arm_gallery(?:\.[a-z0-9_]+)*\.(_?[A-Z][\w.]*)\Z")


def plain(manifest: Record) -> Record:
    """The manifest as it reads back from its file: redacted, and in JSON's types."""
    data = orjson.dumps(redact(manifest), default=str, option=orjson.OPT_NON_STR_KEYS)
    return from_line(data) or {}


def differences(old: Record, new: Record) -> list[str]:
    """One line `key: old → new` per value that differs, with dotted keys.

    When it was made, with which versions, what its figure is called, and in which module a class of
    the library stood then, where that was kept, do not count; nor does a setting that is no more and was null.
    """
    uncounted = dict.fromkeys(("created", "versions", "figure"))
    lines = list(_differing("", {**old, **uncounted}, {**new, **uncounted}))
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *[f"… and {more} more"] * (more > 0)]


def _differing(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        old = _of_today(old)
        for key in {**old, **new}:
            place = f"{path}.{key}".lstrip(".")
            yield from _differing(place, old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, values in enumerate(zip(old, new, strict=True)):
            yield from _differing(f"{path}[{number}]", *values)
    elif (old, new) != (None, _ABSENT) and _compared(old) != _compared(new):
        texts = [each if each is _ABSENT else orjson.dumps(each).decode() for each in (old, new)]
        # long values from shortly before the place where they part
        start = max(0, len(os.path.commonprefix(texts)) - 20) if min(map(len, texts)) > 80 else 0
        end = start + 75
        shown = ("… " * (start > 0) + text[start:end] + " …" * (len(text) > end) for text in texts)
        yield f"{path}: {' → '.join(shown)}"


def _of_today(settings: Record) -> Record:
    """What tells a reward from another in today's words: until 0.1 a grader of samples was told as a
    reward around it, and a reward that is called by named fields as a grader around it.
    """
    kind = _OURS.sub(r"\1", str(settings.get("class")))
    own = {key: settings[key] for key in ("name", "seed", "worst") if settings.get(key)}
    if kind in ("GraderReward", "GraderListReward"):
        return {**settings["grader"], **own}
    around = kind.endswith("Grader") and isinstance(settings.get("reward"), dict)
    return {**settings["reward"], "name": settings["name"]} if around else settings


def _compared(value: Any) -> tuple[Any, bool]:
    """A value so that 1 is 1.0 and no True, and a class of this library that moved the same one."""
    name = _OURS.sub(r"\1", value) if isinstance(value, str) else value
    return name, isinstance(value, bool)


_REMEDY = (
    "Use another folder, or --config run.force_new=true (force_new=True) to move this one aside "
    "and start anew."
)


def _settle_manifest(folder: Path, wanted: Record, remedy: str = _REMEDY) -> None:
    """Write the manifest of a new run, or make sure that the one there asks for the same."""
    path = folder / MANIFEST
    if path.exists():
        if (held := from_line(path.read_bytes())) is None:
            raise ConfigError(f"{path} holds no JSON object. {remedy}")
        if lines := differences(held, wanted):
            changes = "".join(f"  {line}\n" for line in lines)
            raise ConfigError(f"{folder} holds a different run (old → new):\n{changes}{remedy}")
    elif any(read_lines(folder / RESULTS)):
        raise ConfigError(
            f"{folder} holds {RESULTS} but no {MANIFEST}, so nobody knows what made them. {remedy}"
        )
    else:
        write_whole(path, as_json(wanted))


# -- shards ----------------------------------------------------------------------------------------


def _is_shard(folder: Path) -> bool:
    return _SHARD.search(str(folder)) is not None


def shard_folder(run: Path, name: str) -> Path:
    """Where a shard of a run is kept, or goes on."""
    earlier = run / _EARLIER / name
    return earlier if earlier.is_dir() else run / SHARDS / name


def shards_of(folder: Path) -> list[Path]:
    """The folders of the shards of a run, by name."""
    folders = (path.parent for path in folder.glob(f"*/*of*/{MANIFEST}"))
    return sorted(filter(_is_shard, folders))


# -- the files -------------------------------------------------------------------------------------


def _read_all(paths: Iterable[Path], root: Path | None = None) -> Iterator[Record]:
    """The records of files, line by line; empty for a line that holds none."""
    return (from_line(line) or {} for path in paths for line in read_lines(path, root))


def read_trace(
    run_dir: str | Path, sample: str | None = None, root: Path | None = None
) -> Iterator[Record]:
    """The judgements of a run, or of one sample by its id or key, in the order they were made.

    With `root`, a folder above it, no link below that is followed.

    Raises DataError when the folder holds no trace.
    """
    files = traces_of(Path(run_dir))
    if not files:
        raise DataError(
            f"{run_dir} holds no {TRACE}; run it with --trace, or trace=True, to keep prompts and "
            f"replies."
        )
    for entry in _read_all(files, root):
        if entry and (sample is None or sample in (entry.get("id"), entry.get("sample_key"))):
            yield entry


def traces_of(folder: Path) -> list[Path]:
    """The files with the judgements of a run: its shards' and its own."""
    return [path for each in (*shards_of(folder), folder) if (path := each / TRACE).is_file()]


def _locked(folder: Path, remedy: str = "wait for it, stop it, or use another folder") -> FileLock:
    lock = FileLock(folder / ".lock")
    if not lock.acquire():
        raise ConfigError(f"run {folder} is being written by {lock.owner()}; {remedy}")
    return lock


def _place(key: Any, number: Any) -> str:
    """What a record is found by: its key, and its number among equal samples where it is not the
    first.
    """
    return f"{key}~{number}" if number else key


def _is_hiccup(part: Any) -> bool:
    """Whether some judgement in a record is missing because the judge's reply was empty: a server's
    hiccup, not a verdict.
    """
    match part:
        case {"cause": "judge", "reason": "empty"} | {"cause": "judge", "error_type": "empty"}:
            return True
        case dict() | list():
            return any(map(_is_hiccup, part.values() if isinstance(part, dict) else part))
    return False


class _Summary(BaseModel):
    """What a part of a run said of itself in the end; of one that was killed, or whose file is odd,
    nothing.
    """

    runs: int = 0
    spent: dict[str, int | float | None] = {}
    served: dict[str, set[str]] = {}

    @classmethod
    def read(cls, folder: Path) -> _Summary:
        try:
            return cls.model_validate_json((folder / SUMMARY).read_bytes())
        except (OSError, ValueError):
            return cls()


class RunStore:
    """The files of one run, open for appending; usable from several threads of one process.

    A record is a dict with at least `id` (str) and `status` (scored, unscored or failed); `key`
    (str) tells apart what shares an id, `n` numbers equal ones. Records survive `kill -9` once
    `write` has returned.
    """

    def __init__(self, folder: Path | str, manifest: Record, force_new: bool = False) -> None:
        """Start a run in a folder, or continue the one that is there when its manifest is the same.

        Secrets in the manifest are masked before it is written or compared; when it was `created`,
        and the `versions`, may differ. `force_new` moves an existing run aside to NAME.old-TIME.

        Args:
            folder: made when absent.
            manifest: JSON-like description of the run: config, versions, hashes, seed.
            force_new: start anew whatever is there.

        Raises:
            ConfigError: another process writes this run or a shard of it, the manifest differs
                (shows old → new), results lie there without a manifest, or the folder cannot be
                written.
        """
        self.path, self._pid, self._guard = Path(folder), os.getpid(), threading.Lock()
        self._trace: AppendedFile | None = None  # a run that judges nothing leaves none
        self.damaged = 0
        """Lines without a record, and records that do not fit their sample."""
        wanted = plain(manifest)
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            try:
                if force_new and any((self.path / name).exists() for name in (MANIFEST, RESULTS)):
                    self._move_aside()
                if _is_shard(self.path):
                    _settle_manifest(self.path.parent.parent, wanted)
                _settle_manifest(self.path, wanted)
                self.shards = shards_of(self.path)
                """The folders of what others judged of this run."""
                for shard in self.shards:
                    _settle_manifest(shard, wanted, "Judge this shard again, or remove it.")
                    _locked(shard, "the run is put together when all its shards are done").release()
                self.replies = KeptReplies(self.path, self.shards)
                self.ledger = Ledger(self.path, self.shards)
                self._results = AppendedFile(self.path / RESULTS, 0o644)
            except BaseException:
                self._lock.release()
                raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """ConfigError for what the disk refuses."""
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"run {self.path} cannot be written: {error.strerror or error}. Everything finished "
                f"is saved. Free some space, or mend that, then run the same command to continue."
            ) from error

    def _move_aside(self) -> None:
        self._lock.release()  # Windows does not rename a folder with an open file
        name = self.path.name + datetime.now().astimezone().strftime(".old-%Y%m%d-%H%M%S-%f")
        self.path.rename(self.path.with_name(name))
        self.path.mkdir()
        self._lock = _locked(self.path)

    def write(self, *records: Record) -> None:
        """Add records with a single write; they survive `kill -9` once this returns.

        Raises:
            ConfigError: they cannot be written (disk full, …); nothing before them is damaged.
            DataError: one holds what JSON has no form for.
        """
        if self._pid != os.getpid() or self._results.closed:
            raise ConfigError(
                f"run {self.path} is not open in this process; open it here, or send records to "
                f"its owner"
            )
        with self._writing():
            self._results.write(b"".join(map(to_line, records)))

    def finished(self, reuse: Collection[str] = REUSED) -> dict[str, Record]:
        """The last record by what it is found by, of those whose last status is in `reuse`.

        By default failed samples are owed again, and those of which a judge said nothing at all; so
        is what a line without a record stood for, and these are counted in `damaged`. Records of
        shards come first.
        """
        found: dict[str, Record] = {}
        self.damaged = 0
        for record in _read_all(each / RESULTS for each in (*self.shards, self.path)):
            key, n = record.get("key", record.get("id")), record.get("n", 0)
            place, status = _place(key, n), record.get("status")
            if (type(key), type(n)) != (str, int) or status not in STATUSES:
                self.damaged += 1
            elif status in reuse and not (status == "unscored" and _is_hiccup(record)):
                found[place] = record
            else:
                found.pop(place, None)
        return found

    def note_judgement(self, entry: Record) -> None:
        """Add a judgement to the trace; one that comes when all is closed is dropped."""
        with self._guard:
            self._trace = self._trace or AppendedFile(self.path / TRACE, 0o600)
        if not self._trace.closed:
            self._trace.write(to_line(redact(entry)))

    def write_summary(self, summary: Record) -> None:
        """Replace summary.json as a whole."""
        with self._writing():
            write_whole(self.path / SUMMARY, as_json(plain(summary)))

    def release(self) -> None:
        """Close the files and free the run for other processes."""
        self.replies.close()
        self.ledger.close()
        for file in filter(None, (self._results, self._trace)):
            file.close()
        self._lock.release()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


# -- samples and their records ---------------------------------------------------------------------


@dataclass(eq=False)
class _Owed:
    """A sample that has to be judged."""

    key: str
    number: int
    """Its number among equal samples of the run."""
    asked: Questions = field(default_factory=Questions)
    kept: str = ""
    """What one counts as that is kept without a score, which may be known better before the run is
    over.
    """


class RunFolder(RunStore):
    """Keeps every finished sample of a run, and finds the finished ones when the run is continued.

    A record belongs to a sample's key, which holds all that may be read of it, and to its number
    among equal samples: of three equal ones each has its own.
    """

    _control: RunControl
    """Of the run that goes on here, from its `begin`."""

    def __init__(self, options: RunOptions, form: Any, asks: bool) -> None:
        """Open or continue the folder `options.run_dir`, whose manifest is laid over that of `form`,
        which says how what comes of an item is kept (`SampleForm`); `asks` says whether a judge is
        asked about some items.

        Raises ConfigError when it belongs to another run (shows the difference), or cannot be
        written.
        """
        wanted = {
            "versions": {"rm_gallery": __version__, "python": platform.python_version()},
            **form.manifest(),
            "repeat": options.repeat,
            **(options.manifest or {}),
        }
        super().__init__(options.run_dir or "", wanted, force_new=options.force_new)
        self.form, self._asks, self._finished = form, asks, self.finished(form.reuse)
        self._before = [_Summary.read(each) for each in (self.path, *self.shards)]
        self.check = ResumeCheck({})
        """Draws the records that are compared."""
        self._owed: dict[int, _Owed] = {}
        # hashes rather than texts: a run may have millions of samples
        self._seen, self._later = FirstKeys(), Counter[int]()
        """The first key of each id, and how often a key came when its id had come before."""
        self._counts = dict.fromkeys(
            ("scored", "unscored", "failed", "stopped", "reused", "duplicates", "id_collisions"), 0
        )

    # What an earlier part of the run left.

    @property
    def restoring(self) -> bool:
        """Whether an earlier part of the run left results whose samples have not come yet."""
        return bool(self._finished)

    def draw_check(self) -> None:
        """Draw records of earlier parts of the run that are compared with what comes out now."""
        self.check = ResumeCheck(self._finished, sum(part.runs for part in self._before))

    def restore(self, data: Any) -> bool:
        """Take a sample in as its plan begins, and give it what its record says of it; False where it
        has to be judged: it has none, none that fits, or one of a part of it.

        Raises ConfigError for a sample whose content cannot be told, and when a judge would be
        asked something else now.
        """
        form = self.form
        (key, alike), number = form.keys_of(data), 0
        # an object that went is no longer the one whose address this one has
        self._owed.pop(id(data), None)
        judged = self._asks and self._finished.get(key)
        if judged and form.read(judged, data):
            self.check_asked(data, judged, asked_by(form.asking(data, judged)))
        this = hash(key)
        first = self._seen.first(hash(alike), this)
        if first is not None:
            number = self._later[this] + (first == this)
            self._later[this] += 1
            self.count("duplicates" if number else "id_collisions")
        place = _place(key, number)
        record = self._finished.pop(place, None)
        kept = record and form.read(record, data)
        if record and kept is None:
            self.damaged += 1
        elif record and self.check.wants(place):
            self.check.waiting.append((form.copy(data), record))
        if record and kept is not None and form.restore(data, kept):
            self.count("reused")
            self._control.progress.unscored += record["status"] == "unscored"
            return True
        # of one that is partly kept it stays known what was asked about that part
        asked = set(record.get("asked", ())) if record and kept is not None else set()
        self._owed[id(data)] = _Owed(key, number, Questions(hashes=asked))
        return False

    def changed(self, data: Any, what: str) -> ConfigError:
        """The error that says, by an example, that what is kept was made by something else."""
        return ConfigError(
            f"{self.path} holds results of something else under the same settings, such as other "
            f"code, another file that it reads or another environment: of {data.sample_id!r:.60} "
            f"{what}. {_REMEDY} What is random by design says deterministic = False, and is "
            "not compared."
        )

    def check_asked(
        self, data: Any, record: Record, now: Questions, *, by_parts: bool = False
    ) -> None:
        """Raise ConfigError when a judge is asked now what it was not asked when a sample was judged.
        With `by_parts`, where a part has no score or its reply is lost, another one may be asked that
        was not.
        """
        before = record.get("asked")
        if isinstance(before, list) and not (by_parts or now.hashes <= set(before)):
            raise self.changed(data, "the judge was asked something else")
        if record.get("replies") and now.asked_anew and not now.reply_missing:
            what = f"a model would be asked something else (or {FILE_NAME} has lost its reply)"
            raise self.changed(data, what)

    # What this part of the run adds.

    def begin(self, options: RunOptions, control: RunControl) -> RunOptions:
        """The options with which what is spent, and what is judged where `trace` is on, are kept
        here.
        """
        if current_run.get() is None:  # a run inside a run spends that one's budget
            budget = options.budget or Budget()
            budget.attach(self.ledger)
            options = replace(options, budget=budget)
        control.replies, control.restoring = self.replies, lambda: self.restoring
        self._control = control
        if options.trace:
            control.trace = self.note_judgement
        return options

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample; for one that is settled, nowhere."""
        owed = self._owed.get(id(data))
        return owed.asked if owed and not owed.kept else Questions()

    def note_asked(self, data: Any, hashes: set[str]) -> None:
        """Add hashes of what judges were asked about a sample in another process."""
        self.questions_of(data).hashes.update(hashes)

    def append(self, data: Any) -> None:
        """Keep a finished sample that was owed, at once, before its plan returns; what the run did not
        get to leaves no record.
        """
        owed = self._owed.pop(id(data))
        entry, missing = self.form.record_of(data)
        counted = counted_as(missing)
        status = "failed" if counted == "stopped" else counted  # of a row of which a part is kept
        if entry:
            more = {
                "asked": sorted(owed.asked.hashes),
                "replies": not self.replies.is_empty,
                "n": owed.number,
            }
            more = {name: value for name, value in more.items() if value}
            self.write({"id": data.sample_id, "key": owed.key, "status": status, **entry, **more})
            if status != "scored":
                owed.kept, self._owed[id(data)] = counted, owed
        self.count(counted)

    def reopen(self, data: Any) -> bool:
        """Have a sample that this run has kept without a score be kept once more, by what is known of
        it now; whether there is one.
        """
        if not (owed := self._owed.get(id(data))) or not owed.kept:
            return False
        self.count(owed.kept, -1)
        owed.kept = ""
        return True

    def count(self, what: str, more: int = 1) -> None:
        """Count a sample for the summary."""
        with self._guard:
            self._counts[what] += more

    def close(self, control: RunControl) -> None:
        """Write what is noted and the summary, and release the folder."""
        self._seen = FirstKeys()  # what is reported afterwards needs the room
        control.replies = control.restoring = None
        if control.trace == self.note_judgement:
            control.trace = None
        # at the exit of the process a daemon thread may have died with one of the locks
        if not library_loop.is_exiting():
            with self:
                self._summarize(control)

    def _summarize(self, control: RunControl) -> None:
        if self.damaged:
            logger.warning(
                "run folder {}: {} lines of results.jsonl hold no usable result; their {} were "
                "judged again",
                self.path, self.damaged, self.form.what,
            )  # fmt: skip
        spent, kept = snapshot(control), self.ledger.spent
        total = {**dict.fromkeys(spent), **self._before[0].spent}
        for name, value in spent.items():
            if value is not None:
                total[name] = (total[name] or 0) + value
        if kept.calls:  # a part that was killed left no summary
            for name in ("calls", "cost", "input_tokens", "output_tokens"):
                total[name] = getattr(kept, name)
        served: dict[str, list[str]] = {}
        for names in (*(part.served for part in self._before), control.served):
            for name, ids in names.items():
                served[name] = sorted({*served.get(name, ()), *ids})
        self._counts["stopped"] += control.unread
        summary: Record = {
            "samples": self._counts,
            "spent": total,
            "last": spent,
            "stopped": control.stopped,
            "runs": self._before[0].runs + 1,
            **({"served": served} if served else {}),
        }
        if self.check.of:
            summary["compared"] = self.check.counts()
            level = "WARNING" if self.check.missed else "INFO"
            logger.log(level, "run folder {}: {}", self.path, self.check.sentence())
        self.write_summary(summary)


# -- the resume check ------------------------------------------------------------------------------


SECONDS = 1.0
"""About how long comparing may take."""
_FIRST, _LEAST, _MOST, _MOST_CHEAP = 3, 32, 512, 4096
"""How many records are compared at once, at first; how many of a run, at least and at most, and at
most where one takes less than `CHEAP` seconds."""
CHEAP = 0.001
Waiting = list[tuple[Any, Record]]
"""Items to be scored once more, and their records."""


class ResumeCheck:
    """Which records of a continued run are compared with what comes out now, and those whose rows
    have passed.

    They are drawn by lot from all records: a change may concern the last rows of a file alone, as
    where it is sorted by subset. Each has a rank, and where scoring takes long only the first ranks
    are compared, so that they lie all over the file, too. Every time a run is continued it draws
    anew: what was left out once is compared some other time.
    """

    def __init__(self, records: dict[str, Record], runs: int = 0) -> None:
        """Draw from `records`, by key, of a run that went on `runs` times."""
        keys = [key for key, record in records.items() if not record.get("n")]
        random.Random(f"{len(keys)} {runs}").shuffle(keys)
        self._ranks = {key: rank for rank, key in enumerate(keys[:_MOST_CHEAP])}
        self.waiting: Waiting = []
        """Items whose rows passed, as they were before they were scored, with their records."""
        self.of, self.scores, self.missed = len(records), 0, 0
        """How many records there are; how many scores, of an answer or of a part, were held against
        each other, and how many could not be: there is no reply to score them from."""
        self._missing = Counter[str]()
        """By record that was compared, how many of its scores could not be."""
        self._limit, self._size = _MOST, _FIRST

    def wants(self, key: str) -> bool:
        """Whether the record of this key is compared."""
        return self._ranks.pop(key, self._limit) < self._limit

    def take(self, *, rest: bool = False) -> Waiting:
        """The items to compare now, with their records: none until there are enough, unless it is
        the `rest`.
        """
        if len(self.waiting) < self._size and not rest:
            return []
        taken, self.waiting = self.waiting, []
        return taken

    def note(self, record: Record, held: int, missed: int) -> None:
        """Hear how many scores of a record were held against each other, and how many could not be."""
        self.scores += held
        self.missed += missed
        if held or missed:
            self._missing[record["key"]] += missed

    @property
    def compared(self) -> int:
        """How many records were compared, with all their scores."""
        return list(self._missing.values()).count(0)

    def counts(self) -> dict[str, int]:
        """What was compared, for the summary."""
        missed = {"missed": self.missed} if self.missed else {}
        return {"records": self.compared, "of": self.of, "scores": self.scores, **missed}

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
            f"made of are not kept in the folder, and are taken over as they are. --config "
            f"run.force_new=true (force_new=True) judges all anew."
        )

    def learn(self, n: int, seconds: float) -> None:
        """Take in how long comparing `n` took: fewer where it is slow, more at once where it is
        not.
        """
        in_time = max(_LEAST, min(_MOST, int(SECONDS * n / max(seconds, 1e-9))))
        self._limit = _MOST_CHEAP if seconds < CHEAP * n else in_time
        self._size = min(4 * self._size, _MOST)


class AskedNotes:
    """Notes what judges are asked about samples that no folder keeps."""

    def __init__(self) -> None:
        self._asked: dict[int, Questions] = {}

    def questions_of(self, data: Any) -> Questions:
        """Where it is noted what judges are asked about a sample."""
        return self._asked.setdefault(id(data), Questions())


class Again(AskedNotes):
    """Stands in for a run folder while finished samples are judged once more, and holds what they
    get against what was kept.
    """

    def __init__(self, folder: RunFolder, records: Iterable[Record]) -> None:
        """Compare with `records` of `folder`, which come in the order of the samples."""
        super().__init__()
        self._folder = folder
        self._kept = iter(records)
        self._records: dict[int, Record] = {}

    def restore(self, sample: Any) -> bool:
        """False: every sample is judged, though there is a record of it."""
        self._records[id(sample)] = next(self._kept)
        return False

    def append(self, sample: Any) -> None:
        """Hear what a sample gets now; ConfigError with the example where it is something else than
        before, in a place that both tell of.
        """
        folder, record = self._folder, self._records.pop(id(sample))
        form, asked = folder.form, self._asked.pop(id(sample), Questions())
        folder.check_asked(sample, record, asked, by_parts=form.reward.made_of_parts)
        before, now = form.scores_in(record), form.scores_in(form.record_of(sample)[0])
        held = before.keys() & now.keys()
        folder.check.note(record, len(held), len(before) - len(held))
        for place in held:
            had, gets = before[place], now[place]
            if not _same_scores(had, gets):
                what = f"{place} had {_show_scores(had)}, and now gets {_show_scores(gets)}"
                raise folder.changed(sample, what)


def _same_scores(before: Any, now: Any) -> bool:
    match before, now:
        case list(), list():
            return len(before) == len(now) and all(map(_same_scores, before, now))
        case (int() | float(), int() | float()):
            # another machine adds in another order
            return isclose(before, now, rel_tol=1e-6, abs_tol=1e-9)
    return bool(before == now)


def _show_scores(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_show_scores, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
