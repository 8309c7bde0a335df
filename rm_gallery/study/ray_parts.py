"""Ray workers: each reads a block of rows, judges it, writes it as a part, and sends back what the
report counts.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from rm_gallery.core.data.load.base import DataLoader, LoadReport, SeenRows
from rm_gallery.core.data.load.converters import RowRef
from rm_gallery.core.data.load.readers import ReadOptions, batch_rows, file_sources
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.engine.ray import Member, unpacked
from rm_gallery.core.reward.outputs import all_said, restore_all, writable_copy
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.run import run_list
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.identity import digest
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Judged, judged
from rm_gallery.study.source import Data
from rm_gallery.study.task import Task

_LINES = 1_000
_MANIFEST, _REPORT = "_manifest.json", "_report.json"


def read_lines(files: Any) -> Iterator[Any]:
    """The rows of files as JSON, by the readers that one process has."""
    import pyarrow as pa

    def table(lines: list[tuple[str | None, str, int, str, bool, str | None]]) -> Any:
        return pa.Table.from_arrays(
            [
                pa.array(column, kind)
                for column, kind in zip(zip(*lines, strict=True), kinds, strict=True)
            ],
            _LINE,
        )

    kinds = (pa.string(), pa.string(), pa.int64(), pa.string(), pa.bool_(), pa.string())
    for path in files["path"].to_pylist():
        lines: list[tuple[str | None, str, int, str, bool, str | None]] = []
        for source in file_sources(Path(path), ReadOptions()):
            for where, row in source.rows():
                wrong = str(row) if isinstance(row, DataError) else None
                lines.append((None if wrong else orjson.dumps(row).decode(), *where, wrong))
                if len(lines) == _LINES:
                    yield table(lines)
                    lines = []
        if lines:
            yield table(lines)


_LINE = ["row", "row_source", "row_number", "row_unit", "row_untyped", "row_unreadable"]


def _rows_of(table: Any) -> Iterator[tuple[RowRef, dict[str, Any] | DataError]]:
    if table.column_names == _LINE:
        for line, *place, wrong in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            yield RowRef(*place), DataError(wrong) if line is None else orjson.loads(line)
        return
    for number, row in enumerate(batch_rows(table), 1):
        where = RowRef("a block of the data set", number)
        yield where, row if isinstance(row, dict) else DataError(f"{where}: cannot be read: {row}")


# -- where rows are judged -------------------------------------------------------------------------


@dataclass(frozen=True)
class HowJudged:
    """What a worker is sent once: reward, data, hooks and options."""

    reward: BaseReward
    data: Data
    hooks: dict[str, Any]
    options: RunOptions
    prefix: str
    kept: PartFolder | None
    about: str
    member: bytes = b""
    """What the engine of an actor begins with."""


class _Noted(SeenRows):
    """Notes what a loader would count, for whoever counts for all."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, bytes, int]] = []

    def count(self, given_id: str, content: bytes, part: int, report: LoadReport) -> None:
        self.noted.append((given_id, blake2b(content, digest_size=16).digest(), part))


@dataclass
class RowBlock:
    """The rows of a block, on their way."""

    table: Any
    seen: _Noted = field(default_factory=_Noted)
    places: list[int] = field(default_factory=list)
    """Of which row each line of the output is."""
    lines: list[Any] = field(default_factory=list)
    """By line what was asked about it: a question, a `Judged` that nobody is asked about, or why
    the row cannot be used.
    """
    met: LoadReport = field(default_factory=LoadReport)

    @property
    def questions(self) -> list[DataSample]:
        """What the reward is asked about them."""
        return [line for line in self.lines if isinstance(line, DataSample)]


class BlockWorker:
    """Judges blocks of rows."""

    def __init__(self, setup: bytes) -> None:
        self.how: HowJudged = unpacked(setup)
        self._task = Task(self.how.reward, self.how.data)

    def taken(self, table: Any) -> RowBlock:
        """The rows of a block, understood; DataError for a bad one where it is to be raised."""
        part, task = RowBlock(table), self._task
        loader = task.data.loader
        assert isinstance(loader, DataLoader)
        for place, (where, row) in enumerate(_rows_of(table)):
            part.met.rows += 1
            lines: list[Any] = []
            try:
                if isinstance(row, DataError):
                    raise row
                samples = loader.samples_of(row, where, part.seen, part.met)
                part.met.samples += len(samples)
                for sample in samples:
                    task.left_out.clear()
                    lines += [*task.asked_of(sample), *task.left_out]
            except DataError as error:
                if loader.options.on_bad_row == "raise":
                    raise
                part.met.skip(error)
                lines = [error]
            part.lines += lines
            part.places += [place] * len(lines)
        return part

    def name(self, part: RowBlock) -> str:
        """The same for the same rows judged in the same way."""
        hasher = blake2b(self.how.about.encode(), digest_size=16)
        for given_id, content, number in part.seen.noted:
            hasher.update(
                b"%d:%d:" % (number, len(given_id))
                + given_id.encode("utf-8", "surrogatepass")
                + content
            )
        for message in part.met.messages:
            hasher.update(message.encode("utf-8", "surrogatepass"))
        return f"part-{hasher.hexdigest()}.parquet"

    def known(self, part: RowBlock) -> list[DataSample] | None:
        """The part as an earlier run or a lost node left it; None where it has to be judged."""
        before = (
            None
            if self.how.kept is None
            else self.how.kept.read(self.name(part), [f"{self.how.prefix}said"])
        )
        records = (
            [] if before is None else [line for line in before[0].to_pylist() if line is not None]
        )
        questions = [writable_copy(question) for question in part.questions]
        if before is None or len(records) != len(questions):
            return None
        fits = (
            restore_all(self.how.reward, one, orjson.loads(line))
            for one, line in zip(questions, records, strict=True)
        )
        if not all(fits) or any(
            judged(self.how.reward, one).status in ("failed", "stopped") for one in questions
        ):
            return None
        return questions

    def finished(self, part: RowBlock, results: list[DataSample]) -> dict[str, Any]:
        """Write a judged part, and return what the report counts of it."""
        import pyarrow as pa

        reward, given = self.how.reward, iter(results)
        judged_samples: list[tuple[Judged, bool]] = []
        records: list[dict[str, Any]] = []
        for line in part.lines:
            if isinstance(line, DataError):
                records.append(
                    {"status": "skipped", "cause": "data", "reason": "row", "message": str(line)}
                )
                continue
            asked = isinstance(line, DataSample)
            one = judged(reward, next(given)) if asked else line
            # cached here: the one process that counts all parts would become the bottleneck
            _ = one.cluster, one.subset, one.chosen, one.scores
            judged_samples.append((one, asked))
            records.append(_outcome_record(reward, one, asked))
        kinds = {**dict.fromkeys(_COLUMNS, pa.string()), "scores": pa.list_(pa.float64())}
        table = part.table.take(part.places)
        for name, kind in kinds.items():
            table = table.append_column(
                self.how.prefix + name, pa.array([record.get(name) for record in records], kind)
            )
        name = self.name(part)
        if self.how.kept is not None:
            self.how.kept.write(name, table)
        met = part.met
        blob = pickle.dumps(
            (judged_samples, part.seen.noted, (met.rows, met.samples, met.skipped, met.messages)),
            pickle.HIGHEST_PROTOCOL,
        )
        sent = b"" if self.how.kept is not None else _packed(table)
        return {
            "part": [name],
            "judged": pa.array([blob], pa.large_binary()),
            "table": pa.array([sent], pa.large_binary()),
        }


_COLUMNS = ("id", "status", "cause", "reason", "message", "scores", "said")


def _outcome_record(reward: BaseReward, one: Judged, asked: bool) -> dict[str, Any]:
    issue = next(iter(one.issues), None) if one.status != "scored" else None
    return {
        "id": one.sample_id,
        "status": one.status,
        "cause": one.cause,
        "reason": issue and issue.reason,
        "message": issue and issue.message,
        "scores": one.scores,
        "said": orjson.dumps(all_said(reward, one.sample), option=orjson.OPT_NON_STR_KEYS).decode()
        if asked
        else None,
    }


def _packed(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class JudgingActor(BlockWorker):
    """Holds an engine that many parts share, for rewards that ask a model or hold one."""

    def __init__(self, setup: bytes, mailbox: Any) -> None:
        super().__init__(setup)
        self._name = f"actor {secrets.token_hex(8)}"
        self._member = Member(self.how.member, mailbox, self._name, merging=True)

    async def __call__(self, table: Any) -> dict[str, Any]:
        """Judge a block while others are judged."""
        part = self.taken(table)
        results = self.known(part)
        if results is None:
            fed: Future[list[DataSample]] = self._member.judge(part.questions)
            results = await asyncio.wrap_future(fed)
        letters, _ = await self._member.account(by_letter=True)
        return {**self.finished(part, results), "member": [self._name], "letters": [letters]}


@lru_cache(maxsize=1)
def _worker(setup: bytes) -> BlockWorker:
    return BlockWorker(setup)


def judge_here(table: Any, setup: bytes) -> dict[str, Any]:
    """Judge a block in a Ray task."""
    worker = _worker(setup)
    part = worker.taken(table)
    known = worker.known(part)
    if known is None:
        how = worker.how
        known = run_list(
            how.reward,
            part.questions,
            replace(how.options, processes=None, engine=None, address=None),
            how.hooks,
        )
    return worker.finished(part, known)


# -- what is kept ----------------------------------------------------------------------------------


class PartFolder:
    """A folder of parts, on a disk that all nodes see or in an object store."""

    def __init__(self, out: str) -> None:
        self.root = out if "://" in out else str(Path(out).expanduser().absolute())

    def _located(self, name: str) -> tuple[Any, str]:
        from pyarrow import fs

        system, path = (
            fs.FileSystem.from_uri(self.root)
            if "://" in self.root
            else (fs.LocalFileSystem(), self.root)
        )
        return system, f"{path}/{name}" if name else path

    def begin(self, identity: dict[str, Any]) -> str:
        """Note what is judged how; ConfigError where the folder is another run's. Gives a hash of
        it.
        """
        system, path = self._located("")
        system.create_dir(path, recursive=True)
        mine = digest(identity)
        before = self._json_object(_MANIFEST)
        if before is not None and digest(before) != mine:
            names = sorted(
                name for name in {*before, *identity} if before.get(name) != identity.get(name)
            )
            raise ConfigError(
                f"{self.root} holds the parts of another run: {', '.join(names)} differ. Give "
                f"another out=."
            )
        self._put(
            _MANIFEST, orjson.dumps(identity, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        )
        return mine

    def _json_object(self, name: str) -> dict[str, Any] | None:
        system, path = self._located(name)
        try:
            with system.open_input_stream(path) as file:
                content = orjson.loads(file.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(f"{path} holds no JSON: {error}. Give another out=.") from error
        return content if isinstance(content, dict) else {}

    def _put(self, name: str, content: bytes | Any) -> None:
        """Write a file whole or not at all."""
        system, path = self._located(name)
        spare = f"{path}.{os.getpid()}.{time.monotonic_ns()}.tmp"
        with system.open_output_stream(spare) as file:
            file.write(content)
        system.move(spare, path)

    def read(self, name: str, columns: list[str]) -> Any | None:
        """These columns of a part; None where it is not there."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        system, path = self._located(name)
        try:
            return pq.read_table(path, columns=columns, filesystem=system, partitioning=None)
        except (FileNotFoundError, pa.ArrowInvalid):
            return None

    def write(self, name: str, table: Any) -> None:
        """Keep a part."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self._put(name, sink.getvalue())

    def finish(self, parts: Mapping[str, int], report: Report) -> None:
        """Leave the parts of this run alone, as often as there were equal ones, and the report
        beside them.
        """
        from pyarrow import fs

        system, path = self._located("")
        for entry in system.get_file_info(fs.FileSelector(path)):
            if entry.base_name.startswith("part-") and entry.base_name not in parts:
                system.delete_file(entry.path)
        for name, n in parts.items():
            for again in range(1, n):
                system.copy_file(
                    f"{path}/{name}", f"{path}/{name.removesuffix('.parquet')}-{again}.parquet"
                )
        self._put(_REPORT, orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2))
