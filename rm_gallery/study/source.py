"""Where samples come from: rows in any form, their benchmark, and the share of them that is judged."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rm_gallery.core.data.load.base import DataLoader, LoadReport, LocalDataLoader, create_loader
from rm_gallery.core.data.load.converters import DataConverterRegistry, RowRef, load_options
from rm_gallery.core.data.load.readers import RowSource, file_sources, placed_rows
from rm_gallery.core.data.schema import BaseDataSet, DataSample, preference_of
from rm_gallery.core.engine.folder import shard_folder
from rm_gallery.core.engine.options import RunOptions
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.gallery.benchmarks.base import (
    Benchmark,
    detect_benchmark,
    find_benchmark,
    get_benchmark,
    own_layouts,
)
from rm_gallery.gallery.benchmarks.preferences import Preferences


@dataclass(frozen=True)
class Shard:
    """One of several equal shares of a run, by what its samples hold: equal samples are in one
    shard on every machine.
    """

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """The shard written as "2/4"; ConfigError for anything else."""
        written = re.fullmatch("([0-9]+)/([0-9]+)", str(text))
        number, of = map(int, written.groups()) if written else (0, 0)
        if not 1 <= number <= of <= 100_000:
            raise ConfigError(f"shard is {text!r:.40}; write the second of four as 2/4.")
        return cls(number, of)

    @property
    def name(self) -> str:
        """That of its folder."""
        return f"{self.number}of{self.of}"

    def folder(self, run_dir: str | Path) -> str:
        """Where it is kept, below the folder of the run."""
        return str(shard_folder(Path(run_dir), self.name))

    def holds(self, key: str) -> bool:
        """Whether a sample with this key is in it."""
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.of == self.number - 1


def sharded(shard: str | None, options: RunOptions) -> tuple[Shard | None, RunOptions]:
    """The shard that is named, and the options with which it is kept below the folder of the run."""
    if shard is None:
        return None, options
    own = Shard.read(shard)
    if options.run_dir:
        options = replace(options, run_dir=own.folder(options.run_dir))
    return own, options


@dataclass
class Data:
    """The samples of a benchmark, which can be read any number of times."""

    benchmark: Benchmark
    name: str
    """Where they come from, for people."""
    chosen: dict[str, Any]
    """Limit and seed, and the hub name where there is one."""
    loader: DataLoader | None = None
    samples: Sequence[DataSample] = ()
    shard: Shard | None = None
    """The share of the samples that is judged; None for all."""

    def rows(self) -> Iterator[DataSample]:
        """The samples, in order."""
        return iter(self.samples) if self.loader is None else self.loader.stream()

    def count(self) -> int | None:
        """Number of samples; None where only reading all of them would tell."""
        if self.loader is None:
            return len(self.samples)
        total = 0
        for source in self.loader.sources():
            if (count := source.count()) is None:
                return None
            total += count
        return min(total, self.loader.options.limit or total)

    @property
    def met(self) -> LoadReport:
        """What the loader counted while reading them."""
        return LoadReport() if self.loader is None else self.loader.report

    def identity(self) -> dict[str, Any]:
        """What identifies the data: content hashes of the files, wherever these are."""
        paths = (
            [getattr(each, "path", None) for each in self.loader.sources()] if self.loader else []
        )
        hashes = [file_sha256(path) for path in paths if isinstance(path, Path)]
        return {**self.chosen, **({"data": hashes} if hashes else {})}


@dataclass(frozen=True)
class Source:
    """Rows that doors judge as samples, any number of times.

    Attributes:
        data: a file or folder (or several), a pandas frame, a list of rows or samples, a data set,
            or the hub name of a known benchmark.
        benchmark: name or object; found from the columns by default, which have to be the
            benchmark's own.
        columns: {wanted: actual} column names.
        limit: a seeded sample of this many rows.
        seed: decides that sample, the candidate order of a reward built here, and the bootstrap
            intervals.
        on_bad_row: `raise`, or `skip` and count.
    """

    data: Any
    benchmark: str | Benchmark | None = None
    columns: Mapping[str, str | None] | None = None
    limit: int | None = None
    seed: int = 0
    on_bad_row: str = "raise"

    def __post_init__(self) -> None:
        if isinstance(self.data, Iterator):  # which can be gone through once
            object.__setattr__(self, "data", list(self.data))

    def open(self) -> Data:
        """Find the rows and their benchmark, before anything is read but the first row."""
        data, benchmark, limit, seed = self.data, self.benchmark, self.limit, self.seed
        if isinstance(data, Data):  # found and understood already
            return data
        config = {
            "limit": limit,
            "seed": seed,
            "on_bad_row": self.on_bad_row,
            "columns": dict(self.columns or {}),
        }
        load_options(config)
        chosen = {"limit": limit, "data_seed": seed}
        if isinstance(data, BaseDataSet):
            data = data.datasamples
        elif isinstance(data, Mapping):
            data = [data]
        elif not isinstance(data, (str, os.PathLike)) and not hasattr(data, "iloc"):
            if not isinstance(data, Iterable):
                raise DataError(
                    f"data is {data!r:.80}; give a path or several, a pandas frame, rows or samples."
                )
            data = list(data)
        if isinstance(data, list) and not data:
            raise DataError("data is empty: no rows found; give data with at least one row.")
        if isinstance(data, list) and isinstance(data[0], DataSample):
            if self.columns:
                raise ConfigError(
                    "columns names the columns of rows; samples are taken as they are, so leave it out."
                )
            samples = _samples(data, limit, seed)
            return Data(
                _of_samples(samples, benchmark), f"{len(samples)} samples", chosen, samples=samples
            )
        known = None if benchmark is None else _benchmark_and_format(benchmark)
        if (on_hub := _on_hub(data, known, config, chosen)) is not None:
            return on_hub
        paths = _paths(data)
        shown = ", ".join(map(str, paths)) or f"{len(data)} rows"
        config |= {"path": str(paths[0])} if paths else {"data": data}
        if known is None:
            detected = _detected(_Local("data", "*", config, paths), shown)
            known = detected, detected.name
        loader = _Local(known[1], known[1], config, paths)
        _refuse_others(loader, known[0])
        return Data(known[0], shown, chosen, loader)


class _Local(LocalDataLoader):
    """Files and folders, one after another, as one data set; or data in memory."""

    def __init__(
        self, name: str, data_source: str, config: Mapping[str, Any], paths: Sequence[Path]
    ) -> None:
        super().__init__(name, data_source, config)
        self._paths = paths

    def sources(self) -> list[RowSource]:
        """The sources of all paths, in the order given."""
        return [
            source for path in self._paths for source in file_sources(path, self.reading())
        ] or super().sources()


def placed_in(data: Any, name: str) -> Iterable[tuple[RowRef, Any]]:
    """The rows of a file, or given ones that are called `name`, each with its place."""
    if isinstance(data, (str, Path)):
        return placed_rows(Path(data).expanduser())
    return ((RowRef(name, number), row) for number, row in enumerate(data, 1))


def file_sha256(file: Path) -> str:
    """Hash of a file's bytes, read in parts."""
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _benchmark_and_format(benchmark: str | Benchmark) -> tuple[Benchmark, str]:
    """The benchmark, and the format its rows are read in: its own, or that of a registered
    converter without a rule.
    """
    if isinstance(benchmark, str) and find_benchmark(benchmark) is None:
        if benchmark in DataConverterRegistry.list_sources():
            return Preferences(), benchmark
    named = get_benchmark(benchmark)
    return named, named.name


def _of_samples(samples: Sequence[DataSample], benchmark: str | Benchmark | None) -> Benchmark:
    """The benchmark that was named, else the one all samples say they are from, else preference
    labels in general.
    """
    if benchmark is not None:
        return _benchmark_and_format(benchmark)[0]
    sources = {sample.source for sample in samples}
    own = [rule() for source in sources if source and (rule := find_benchmark(source)) is not None]
    if len(own) == len(sources) == 1:
        return own[0]
    if len(own) > 1:
        names = " and ".join(sorted(rule.name for rule in own))
        raise DataError(
            f"the samples come from {names}; score them apart, or say which rule holds with "
            f"benchmark=."
        )
    if not any(preference_of(output) for sample in samples for output in sample.output):
        raise DataError(
            "no output is labelled chosen or rejected, so there is nothing to compare scores with."
        )
    return Preferences()


def _samples(data: list[Any], limit: int | None, seed: int) -> list[DataSample]:
    for place, sample in enumerate(data):
        if not isinstance(sample, DataSample):
            raise DataError(
                f"sample {place}: expected a DataSample like the others, found "
                f"{type(sample).__name__}"
            )
    if limit is None or limit >= len(data):
        return data
    return [data[place] for place in seeded_positions(len(data), limit, seed)]


def _on_hub(
    data: Any,
    known: tuple[Benchmark, str] | None,
    config: dict[str, Any],
    chosen: dict[str, Any],
) -> Data | None:
    """The data of the benchmark whose hub name `data` is, when it is no path; of the split in
    brackets, else of its own.
    """
    if not isinstance(data, str) or Path(data).exists():
        return None
    name, bracket, split = data.partition("[")
    named = known is not None and known[0].hub.lower() == name.lower()
    kind = type(known[0]) if known and named else find_benchmark(name)
    if kind is None or not kind.hub or kind.hub.lower() != name.lower():
        return None
    hub, split = kind(), split.removesuffix("]") if bracket else kind.split
    rule, layout = known or (hub, hub.name)
    config |= {
        "path": hub.hub,
        "split": split or None,
        "dataset_config": hub.hub_config,
        "parts": hub.hub_parts,
    }
    loader = create_loader(hub.name, "huggingface", layout, config)
    name = hub.hub if split == hub.split else f"{hub.hub}[{split}]"
    return Data(rule, ", ".join([name, *hub.hub_parts]), {**chosen, "data": name}, loader)


def _paths(data: Any) -> list[Path]:
    given = data if isinstance(data, list) else [data]
    named = all(isinstance(item, (str, os.PathLike)) for item in given)
    return [Path(item).expanduser() for item in given] if named else []


def _refuse_others(loader: DataLoader, benchmark: Benchmark) -> None:
    """DataError when a source has the columns of another benchmark: no file is scored by another's
    rule.

    Only rules for anybody's rows (preferences, pairs, lists) take the rows of a benchmark, when
    they are asked to by name.
    """
    if benchmark.general:
        return
    for where, row in _first_rows(loader):
        if isinstance(row, DataError):
            continue
        others = own_layouts(row, where.untyped)
        if others and not any(
            issubclass(type(benchmark), other) or issubclass(other, type(benchmark))
            for other in others
        ):
            names = " and ".join(other.name for other in others)
            raise DataError(
                f"{where.source} has the columns of {names}, and {benchmark.name} has another "
                f"rule; score it as {names}."
            )


def _detected(loader: DataLoader, shown: str) -> Benchmark:
    """The benchmark whose columns the first row has."""
    for where, row in _first_rows(loader):
        if isinstance(row, DataError):
            raise row
        return detect_benchmark(row, shown, where.untyped)
    path = loader.origin().get("path", "the data")
    raise DataError(f"{path}: no rows found; give data with at least one row.")


def _first_rows(loader: DataLoader) -> Iterator[tuple[RowRef, dict[str, Any] | DataError]]:
    """The first row of every source, with its columns renamed as wanted."""
    for source in loader.sources():
        for where, row in source.rows([0]):
            if loader.options.columns and not isinstance(row, DataError):
                row = loader.options.renamed(row, where)
            yield where, row
