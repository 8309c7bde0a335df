"""The loader: rows from a source through a converter into samples, with every bad row named or counted."""

from __future__ import annotations

import gc
import random
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from rm_gallery.core.data.load.config import load_options
from rm_gallery.core.data.load.converters import DataConverter, DataConverterRegistry
from rm_gallery.core.data.load.fields import RowRef, nearest
from rm_gallery.core.data.load.identity import IdTable, admit, row_bytes
from rm_gallery.core.data.load.readers import Row, RowItem, RowSource
from rm_gallery.core.data.schema import BaseDataSet, DataSample
from rm_gallery.core.utils.errors import ConfigError, DataError
from rm_gallery.core.utils.file import seeded_positions

__all__ = ["DataConverter", "DataConverterRegistry", "DataLoader", "LoadReport", "RowRef", "create_loader"]

_KEPT_MESSAGES = 5


@dataclass
class LoadReport:
    """What one pass over the data met, so far or in the end."""

    rows: int = 0
    """Rows read, after `limit`."""
    samples: int = 0
    duplicates: int = 0
    """Samples left out because an equal one came before."""
    skipped: int = 0
    messages: list[str] = field(default_factory=list)
    """Why rows were skipped: the first few."""

    def skip(self, error: DataError) -> None:
        """Count a bad row."""
        self.skipped += 1
        if len(self.messages) < _KEPT_MESSAGES:
            self.messages.append(str(error))


class DataLoader(ABC):
    """Reads a source row by row; `run` gives the data set, `stream` the samples one by one."""

    strategy: ClassVar[str]

    def __init__(
        self, name: str, data_source: str, config: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.data_source = data_source
        self.config = dict(config)
        self.metadata = dict(metadata or {})
        self.check(self.config)
        self.options = load_options(self.config)
        self.converter = DataConverterRegistry.get_converter(data_source)
        self.report = LoadReport()
        """About the latest pass; complete when its last sample is out."""

    @abstractmethod
    def check(self, config: Mapping[str, Any]) -> None:
        """ConfigError for a config that does not fit, before anything is read."""

    @abstractmethod
    def sources(self) -> list[RowSource]:
        """The sources in order; DataError when there are none."""

    def origin(self) -> dict[str, Any]:
        """What the data set's metadata says about where it came from."""
        return {}

    def run(self) -> BaseDataSet:
        """All samples as a data set.

        Its metadata tell the source, `rows`, `skipped` (with the first messages in `skipped_rows`), `duplicates`,
        `limit` and `seed`. Raises DataError as `stream` does.
        """
        with _collector_paused():
            samples = list(self.stream())
        report = self.report
        about: dict[str, Any] = {
            "data_source": self.data_source,
            "load_strategy": self.strategy,
            **self.origin(),
            "limit": self.options.limit,
            "seed": self.options.seed,
            "rows": report.rows,
            "skipped": report.skipped,
            "duplicates": report.duplicates,
        }
        if report.messages:
            about["skipped_rows"] = report.messages
        return BaseDataSet(name=self.name, datasamples=samples, metadata={**about, **self.metadata})

    def stream(self) -> Iterator[DataSample]:
        """The samples in order, in flat memory (a JSON file is read whole; some dozen bytes per id are kept).

        Raises DataError for a row that does not fit (unless `on_bad_row` is `skip`), for an id that two different rows
        share, for a source that cannot be read, and when there is no row or no usable one.
        """
        report, ids = LoadReport(), IdTable()
        self.report = report
        for where, row in self._rows():
            report.rows += 1
            try:
                if isinstance(row, DataError):
                    raise row
                samples = self._admitted(row, where, ids, report)
            except DataError as error:
                if self.options.on_bad_row == "raise":
                    raise
                report.skip(error)
                continue
            report.samples += len(samples)
            yield from samples
        self._finish(report)

    def _admitted(self, row: Row, where: RowRef, ids: IdTable, report: LoadReport) -> list[DataSample]:
        if self.options.columns:
            row = self.options.renamed(row, where)
        samples = _converted(self.converter, row, where)
        content, new = row_bytes(row, where), []
        for part, sample in enumerate(samples):
            if sample.source is None:
                sample.source = self.name
            if admit(ids, sample, content, part, where):
                new.append(sample)
            else:
                report.duplicates += 1
        return new

    def _rows(self) -> Iterator[RowItem]:
        sources, limit = self.sources(), self.options.limit
        if limit is None:
            for source in sources:
                yield from source.rows()
            return
        counts = [source.count() for source in sources]
        sizes = [count for count in counts if count is not None]
        if len(sizes) < len(counts):
            yield from _reservoir(sources, limit, self.options.seed)
            return
        positions, start = seeded_positions(sum(sizes), limit, self.options.seed), 0
        for source, size in zip(sources, sizes, strict=True):
            inside = positions[bisect_left(positions, start) : bisect_left(positions, start + size)]
            if inside:
                yield from source.rows([position - start for position in inside])
            start += size

    def _finish(self, report: LoadReport) -> None:
        if not report.rows:
            raise DataError(f"loader '{self.name}': no rows in {self.origin().get('path', 'the data')}")
        if report.skipped == report.rows:
            raise DataError(f"loader '{self.name}': no usable row among {report.rows}; first: {report.messages[0]}")
        if report.skipped:
            from loguru import logger

            logger.warning(
                "loader '{}': skipped {} of {} rows; first: {}",
                self.name, report.skipped, report.rows, report.messages[0],
            )  # fmt: skip


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Hold back the cyclic garbage collector: it would look through all samples again and again, and none is garbage.

    Threads may overlap here: whoever found the collector running sets it running again.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _converted(converter: DataConverter, row: Row, where: RowRef) -> list[DataSample]:
    try:
        found = converter.convert(row, where)
    except DataError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{where}, at {place}: {first['msg']}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        name = type(converter).__name__
        raise DataError(f"{where}: {name} failed with {type(error).__name__}: {str(error)[:200]}") from error
    samples = found if isinstance(found, list) else [found]
    if not all(isinstance(sample, DataSample) for sample in samples):
        raise DataError(f"{where}: {type(converter).__name__} must return samples, found {type(found).__name__}")
    return samples


def _reservoir(sources: list[RowSource], limit: int, seed: int) -> list[RowItem]:
    """A uniform sample of `limit` rows in order, in one pass over sources that do not know their size."""
    generator = random.Random(seed)
    kept: list[tuple[int, RowItem]] = []
    position = 0
    for source in sources:
        for item in source.rows():
            if position < limit:
                kept.append((position, item))
            elif (slot := generator.randrange(position + 1)) < limit:
                kept[slot] = (position, item)
            position += 1
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]


def create_loader(
    name: str,
    load_strategy_type: Literal["local", "huggingface"] = "local",
    data_source: str = "*",
    config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> DataLoader:
    """A loader for a data set: `loader.run()` gives a BaseDataSet, `loader.stream()` the samples one by one.

    Args:
        name: Name of the data set.
        load_strategy_type: `local` (file, folder, frame, list) or `huggingface` (needs the extra `hub`).
        data_source: The format, see `DataConverterRegistry.list_sources()`; `*` guesses it from the column names.
        config: `path` or `data`; `limit` and `seed` for a seeded sample of rows in their original order; `on_bad_row`
            (`raise` or `skip`); `columns` ({wanted: actual}, None drops one); for local JSON `records_key`; for
            huggingface `path`, `dataset_config`, `split`, `revision`, `streaming`.
        metadata: Kept in the data set's metadata.

    Raises:
        ConfigError: Unknown strategy, format or config key, with the nearest names; a value that does not fit.
    """
    from rm_gallery.core.data.load.hub import HuggingFaceDataLoader
    from rm_gallery.core.data.load.local import LocalDataLoader

    loaders: dict[str, type[DataLoader]] = {"local": LocalDataLoader, "huggingface": HuggingFaceDataLoader}
    loader = loaders.get(load_strategy_type)
    if loader is None:
        raise ConfigError(f"unknown load strategy '{load_strategy_type}'; {nearest(str(load_strategy_type), loaders)}")
    return loader(name, data_source, config or {}, metadata)
