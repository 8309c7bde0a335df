"""A data set judged by Ray Data, block by block on the nodes of a cluster, with the report that one
process would give.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rm_gallery.core.data.load.base import DataLoader, LoadReport, SeenRows
from rm_gallery.core.data.load.json_files import JsonLinesSource, JsonSource
from rm_gallery.core.data.load.readers import ParquetSource, batch_rows, file_sources
from rm_gallery.core.data.load.sheets import CsvSource
from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.options import Progress, RunOptions
from rm_gallery.core.engine.ray import Members, by_value, connected, unpacked
from rm_gallery.core.engine.run import begin
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.run import RewardBatch
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError
from rm_gallery.core.utils.identity import plain_form
from rm_gallery.gallery.benchmarks.figures import Report
from rm_gallery.gallery.benchmarks.judgements import Judged
from rm_gallery.study.benchmark import OnJudged, report_of
from rm_gallery.study.doors import Asked, Keywords, door
from rm_gallery.study.ray_parts import HowJudged, JudgingActor, PartFolder, judge_here, read_lines
from rm_gallery.study.source import Data, Source
from rm_gallery.study.task import Task, begun, spent_by

if TYPE_CHECKING:
    from typing_extensions import Unpack

JUDGED_ROWS, RULE_ROWS = 1_000, 10_000
"""Rows of a part, where nothing else is said."""
AT_ONCE = 4
"""Parts that one actor is at, so that it never waits for the last answers of one."""
ACTOR_BYTES = 1 << 29
"""Of memory, what an actor claims. It has to claim something: Ray puts all that claim nothing on
one node.
"""
COUNT_SECONDS = 10.0
"""So long the last counts of the actors are waited for."""
READER_CPUS = 0.25
"""Of a processor, what reading a file claims. Not what judging claims: Ray Data would make one task
of both, and one of a file.
"""
_LOADED = frozenset({"hf", "toxicity"})
"""What a reward needs that holds a model."""
_UNFIT = ("run_dir", "batch", "submit", "trace", "blame", "manifest", "force_new")
_READABLE = (JsonLinesSource, JsonSource, CsvSource)


class ScoredDataset(NamedTuple):
    """What became of a data set."""

    report: Report
    """The figures, as `evaluate` gives them of the same rows."""
    dataset: Any
    """The rows with what was said of each, a `ray.data.Dataset`."""


@door(on_bad_row="skip", engine="ray")
def evaluate_dataset(
    asked: Asked,
    *,
    out: str | os.PathLike[str] | None = None,
    part_rows: int | None = None,
    num_cpus: float | None = None,
    num_gpus: float = 0,
    prefix: str = "rm_",
    on_judged: OnJudged | None = None,
    **keywords: Unpack[Keywords],
) -> ScoredDataset:
    """Judge a data set on the nodes of a Ray cluster, block by block, and report what `evaluate`
    would report of it.

    Rewards that ask a model, or hold one, run as actors, each with an engine of its own; rules run
    as tasks. Rates, budget and one call for equal questions hold over the whole cluster: this
    process keeps them. A lost node costs the parts it was at. `processes` is the number of actors,
    one for each processor (or `num_gpus`) by default, and `max_workers` is for all of them together.

    `data` are parquet, json lines or csv: a file or folder that every node sees, several, a URL
    that Ray reads, or a Ray Dataset. With `on_bad_row="skip"` the row is kept with the reason.

    Args:
        out: folder or URL for the rows as parquet, a file a part. The same call again takes over
            what is there. None keeps them in the cluster's object store.
        part_rows: rows judged and written together; 1,000 where a model judges, else 10,000.
        num_cpus: processors that an actor or task claims. None is one for a task, and nothing for
            an actor: what reads would find no room on small nodes.
        num_gpus: GPUs that an actor claims.
        prefix: of the columns that are added: id, status, cause, reason, message, scores (one for
            each answer, higher is better) and said (JSON: all that the reward said).
        on_judged: called with every judged sample and what it earned under the rule, here, in the
            order they come.

    Returns:
        The report, and the rows as a Dataset.

    Raises:
        ConfigError: `out` holds the parts of another run.
        DataError: no row can be used; or with `raise` a bad row.
        MissingExtra: Ray is not installed.
    """
    built, source, chosen, values = asked
    if source.limit is not None:
        raise ConfigError("limit= is not for a Ray Dataset: leave it out, and give fewer rows.")
    for name in _UNFIT:
        if getattr(chosen, name) not in (None, False, "off"):
            raise ConfigError(
                f"{name}= is not for a Ray Dataset: leave it out. What was judged is kept with "
                f"out=."
            )
    if part_rows is not None and part_rows < 1:
        raise ConfigError(f"part_rows is {part_rows!r}; give a positive whole number.")
    ray = connected(chosen.address, "evaluate_dataset")
    rows, task_data = _rows_and_data(ray, source)
    task = Task(built, task_data)
    built.check()
    by_actors = asks_a_model(built) or bool(built.needs & _LOADED) or num_gpus > 0
    kept = None if out is None else PartFolder(os.fspath(out))
    about = None if kept is None else kept.begin(_identity(task, values, prefix))
    chosen, _ = begun(chosen, {})
    how = HowJudged(
        built,
        task_data,
        values,
        replace(chosen, control=None, budget=None, progress=False),
        prefix,
        kept,
        about or "",
    )
    cluster = ray.cluster_resources()
    room = cluster.get("GPU", 0) / num_gpus if num_gpus else cluster.get("CPU", 1)
    actors = chosen.processes or max(1, int(room))
    claims = {
        "num_cpus": num_cpus if num_cpus is not None else 0 if by_actors else 1,
        "num_gpus": num_gpus,
    }
    most = part_rows or (JUDGED_ROWS if by_actors else RULE_ROWS)
    cut = rows.repartition(target_num_rows_per_block=most)
    # a block is a part as it is; where a GPU is claimed Ray wants to be told so
    as_it_is: dict[str, Any] = {
        "batch_size": most if num_gpus else None,
        "batch_format": "pyarrow",
        "zero_copy_batch": True,
    }
    each = -(-chosen.max_workers // actors) if by_actors else None
    with DatasetRun(ray, chosen, how, each) as run:
        if by_actors:
            pool = ray.data.ActorPoolStrategy(size=actors, max_concurrent_calls_per_actor=AT_ONCE)
            going = cut.map_batches(
                JudgingActor,
                compute=pool,
                fn_constructor_args=(run.worker_setup, run.mailbox),
                memory=ACTOR_BYTES,
                **as_it_is,
                **claims,
            )
        else:
            going = cut.map_batches(
                judge_here, fn_kwargs={"setup": run.worker_setup}, **as_it_is, **claims
            )
        going.context.enable_progress_bars = False
        # what wraps an error loses its cause on the way
        going.context.raise_original_map_exception = True
        report = run.report(task, going, source.seed, on_judged)
    if kept is not None:
        kept.finish(run.parts, report)
        return ScoredDataset(report, ray.data.read_parquet(kept.root, partitioning=None))
    return ScoredDataset(report, ray.data.from_arrow_refs(run.tables))


# -- what is read ----------------------------------------------------------------------------------


def _rows_and_data(ray: Any, source: Source) -> tuple[Any, Data]:
    """The rows as a Dataset, and what they are."""
    data = os.fspath(source.data) if isinstance(source.data, os.PathLike) else source.data
    if isinstance(data, str) and "://" in data:
        readers = {
            ".parquet": "read_parquet",
            ".pq": "read_parquet",
            ".jsonl": "read_json",
            ".ndjson": "read_json",
        }
        read = getattr(
            ray.data, {**readers, ".csv": "read_csv"}.get(Path(data).suffix.lower(), "read_parquet")
        )
        return _of_dataset(read(data), data, source)
    if hasattr(data, "map_batches"):
        return _of_dataset(data, "a Ray Dataset", source)
    given = data if isinstance(data, list) else [data]
    if not given or not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise ConfigError(
            f"data is {data!r:.80}; give a file or folder, several, a URL, or a Ray Dataset."
        )
    paths = [str(Path(path).expanduser().absolute()) for path in given]
    read_from = [each for path in paths for each in file_sources(Path(path))]
    task_data = source.open()
    files = [str(each.path) for each in read_from if isinstance(each, (ParquetSource, *_READABLE))]
    if all(isinstance(each, ParquetSource) for each in read_from):
        return ray.data.read_parquet(files, partitioning=None), task_data
    if not all(isinstance(each, _READABLE) for each in read_from):
        raise ConfigError(
            f"{data!r:.80}: Ray Data is given parquet, json lines or csv, one form at a time."
        )
    items = ray.data.from_items([{"path": file} for file in files], override_num_blocks=len(files))
    return items.map_batches(
        read_lines, batch_size=1, batch_format="pyarrow", num_cpus=READER_CPUS
    ), task_data


def _of_dataset(rows: Any, name: str, source: Source) -> tuple[Any, Data]:
    first = batch_rows(rows.limit(1).take_batch(1, batch_format="pyarrow"))
    return rows, replace(replace(source, data=first).open(), name=name)


# -- counting --------------------------------------------------------------------------------------


class DatasetRun:
    """The run in this process, which keeps the limits and counts the judged samples."""

    def __init__(self, ray: Any, options: RunOptions, how: HowJudged, each: int | None) -> None:
        assert options.control is not None
        self._ray, self._control = ray, options.control
        self._started = time.monotonic()
        begin(self._control, options)
        self._members: Members | None = None
        self._error: BaseException | None = None
        self.mailbox: Any = None
        """What actors are given besides `worker_setup`."""
        if each is not None:
            batch = RewardBatch, {"reward": how.reward, "samples": [], "hooks": how.hooks}
            self._members = members = Members(
                ray, self._control, batch, options, each, asked=False, failed=self._failed
            )
            how, self.mailbox = replace(how, member=members.setup), members.mailbox
            self._beat()
        try:
            self.worker_setup = by_value(how)
        except Exception as error:
            raise ConfigError(
                f"What is to judge cannot be sent to the nodes: {type(error).__name__}: "
                f"{error!s:.300}."
            ) from error
        self._keeps = how.kept is not None
        self.parts: Counter[str] = Counter()
        """The parts by name, and how many there are of equal rows."""
        self.tables: list[Any] = []
        self._progress = Progress(self._control, options.total, options.progress, how.reward.name)

    def __enter__(self) -> DatasetRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        self._control.end()
        if self._members is not None:
            members, self._members = self._members, None
            members.close(self._ray)

    def _failed(self, error: BaseException) -> None:
        self._error = self._error or error

    def _beat(self) -> None:
        """Look, on the library's loop, who is gone, as long as the run goes."""

        def look() -> None:
            if self._members is not None:
                self._members.lose_silent()
                library_loop.get_loop().call_later(1.0, look)

        library_loop.post(library_loop.get_loop(), look)

    def _await_letters(self, letters: dict[str, int]) -> None:
        """Wait until all that was spent on what came is counted."""
        members = self._members
        if members is None or not letters:
            return
        left, done = len(letters), threading.Event()

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        def ask() -> None:
            for member, count in letters.items():
                members.once_read(member, count, one_less)

        library_loop.post(library_loop.get_loop(), ask)
        done.wait(COUNT_SECONDS)

    def report(self, task: Task, going: Any, seed: int, on_judged: OnJudged | None) -> Report:
        """Count all that comes."""
        loader = task.data.loader
        assert isinstance(loader, DataLoader)
        loader.report = LoadReport()
        report = report_of(task, self._judged_samples(going, loader.report), seed, on_judged)
        loader.finish(loader.report)
        return replace(report, **spent_by(self._control, self._started))

    def _judged_samples(self, going: Any, met: LoadReport) -> Iterator[tuple[Judged, bool]]:
        import ray

        seen, letters = SeenRows(), dict[str, int]()
        for table in self._tables(going):
            if "member" in table.column_names:
                for member, count in zip(
                    table["member"].to_pylist(), table["letters"].to_pylist(), strict=True
                ):
                    letters[member] = max(count, letters.get(member, 0))
            for name, blob, packed in zip(
                *(table[name] for name in ("part", "judged", "table")), strict=True
            ):
                self.parts[name.as_py()] += 1
                judged_samples, noted, (rows, samples, skipped, messages) = unpacked(
                    blob.as_buffer()
                )
                for given_id, content, number in noted:
                    seen.count(given_id, content, number, met)
                met.rows, met.samples, met.skipped = (
                    met.rows + rows,
                    met.samples + samples,
                    met.skipped + skipped,
                )
                met.messages = [*met.messages, *messages][:5]
                if not self._keeps:
                    import pyarrow as pa

                    self.tables.append(ray.put(pa.ipc.open_stream(packed.as_buffer()).read_all()))
                self._progress.done += rows
                self._progress.tick()
                yield from judged_samples
        self._await_letters(letters)

    def _tables(self, going: Any) -> Iterator[Any]:
        try:
            yield from going.iter_batches(
                batch_size=None, batch_format="pyarrow", prefetch_batches=1
            )
        except Exception as error:
            own = self._error
            raised: Any = error
            while own is None and raised is not None:
                own = raised if isinstance(raised, RMGalleryError) else None
                raised = getattr(raised, "cause", None) or raised.__cause__
            if own is None or own is error:
                raise
            raise own from error


def _identity(task: Task, hooks: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What tells the parts of one run from those of another."""
    loader, benchmark = task.data.loader, task.benchmark
    assert loader is not None
    return {
        "reward": task.reward.describe(),
        "hooks": {
            key: plain_form(value, f"keyword '{key}'") for key, value in sorted(hooks.items())
        },
        "benchmark": benchmark.name,
        "rule": benchmark.protocol,
        "columns": dict(loader.options.columns),
        "prefix": prefix,
    }
