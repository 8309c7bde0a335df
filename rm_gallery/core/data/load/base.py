"""The loader: converts the rows of a source into samples and reports every bad row."""

from __future__ import annotations

import gc
import os
import random
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson
from pydantic import ValidationError

import rm_gallery.core.data.load.rollouts  # noqa: F401 - its converter is known from then on
from rm_gallery.core.data.load.converters import (
    COMMON_KEYS,
    TEXT,
    DataConverter,
    DataConverterRegistry,
    Fits,
    RowRef,
    check_keys,
    check_values,
    is_count,
    load_options,
    nearest,
)
from rm_gallery.core.data.load.files import Row, RowItem
from rm_gallery.core.data.load.readers import (
    HubSource,
    ReadOptions,
    RowSource,
    file_sources,
    memory_source,
)
from rm_gallery.core.data.schema import ALWAYS_VALUES, BaseDataSet, DataSample, misfit, without_nan
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra
from rm_gallery.core.utils.file import seeded_positions
from rm_gallery.core.utils.first_keys import FirstKeys
from rm_gallery.core.utils.log import logger

__all__ = [
    "DataConverter",
    "DataConverterRegistry",
    "DataLoader",
    "LoadReport",
    "RowRef",
    "create_loader",
]

_KEPT_MESSAGES = 5
EVERY_SPLIT = "*"
_JSON_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


@dataclass
class LoadReport:
    """Counts of one pass over the data, so far."""

    rows: int = 0
    """Rows read, after `limit`."""
    samples: int = 0
    duplicates: int = 0
    """Samples whose row is equal to an earlier one; they are kept."""
    id_collisions: int = 0
    """Samples whose given id an earlier, different row has; they are kept, too."""
    skipped: int = 0
    messages: list[str] = field(default_factory=list)
    """Why rows were skipped: the first few."""

    def skip(self, error: DataError) -> None:
        """Count a bad row."""
        self.skipped += 1
        if len(self.messages) < _KEPT_MESSAGES:
            self.messages.append(str(error))

    def notes(self) -> list[str]:
        """Caveats for readers of figures about these samples, a sentence each."""
        counted = [
            (
                self.skipped,
                f"skipped {self.skipped:,} of {self.rows:,} rows; first: "
                f"{''.join(self.messages[:1])}",
            ),
            (
                self.duplicates,
                f"{self.duplicates:,} of {self.samples:,} samples are equal to an earlier one; "
                f"all are kept",
            ),
            (
                self.id_collisions,
                f"{self.id_collisions:,} of {self.samples:,} samples have the id of a different "
                f"one; all are kept",
            ),
        ]
        return [note for count, note in counted if count]


class SeenRows:
    """Remembers rows by 64-bit hashes, some 30 bytes a row, so streams of millions fit."""

    def __init__(self) -> None:
        self._first, self._later = FirstKeys(), FirstKeys()

    def count(self, given_id: str, content: bytes, part: int, report: LoadReport) -> None:
        """Count a sample of the row with these bytes, `part` being its place among the row's
        samples.
        """
        row = hash((content, part)) if part else hash(content)
        before = self._first.first(hash(given_id) if given_id else row, row)
        if before is None:
            return
        if before == row or self._later.first(row, row) is not None:
            report.duplicates += 1
        else:
            report.id_collisions += 1


class DataLoader(ABC):
    """Reads a source row by row; `run` gives the data set, `stream` the samples one by one."""

    strategy: ClassVar[str]
    own_keys: ClassVar[dict[str, Fits]]
    """Keys of its config beside the common ones, with what their values must be."""

    def __init__(
        self,
        name: str,
        data_source: str,
        config: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
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

    def check(self, config: Mapping[str, Any]) -> None:
        """ConfigError for unknown keys and values that do not fit, before anything is read."""
        check_keys(config, {*self.own_keys, *COMMON_KEYS}, self.strategy)
        check_values(config, self.own_keys)

    @abstractmethod
    def sources(self) -> list[RowSource]:
        """The sources in order; DataError when there are none."""

    def origin(self) -> dict[str, Any]:
        """What the data set's metadata says about where it came from."""
        return {}

    def run(self) -> BaseDataSet:
        """All samples as a data set.

        Its metadata tell the source, `rows`, `skipped` (with the first messages in `skipped_rows`),
        `duplicates`, `id_collisions`, `limit` and `seed`. Raises DataError as `stream` does.
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
            **{
                name: getattr(report, name)
                for name in ("rows", "skipped", "duplicates", "id_collisions")
            },
        }
        if report.messages:
            about["skipped_rows"] = report.messages
        return BaseDataSet(name=self.name, datasamples=samples, metadata={**about, **self.metadata})

    def stream(self) -> Iterator[DataSample]:
        """The samples in order, in flat memory (a JSON file is read whole; some 30 bytes per
        row are kept).

        No row is left out for being equal to another one, or for having its id; `report` counts
        them. Raises DataError for a row that does not fit (unless `on_bad_row` is `skip`), for a
        source that cannot be read, and when there is no row or no usable one.
        """
        report, seen = LoadReport(), SeenRows()
        self.report = report
        for where, row in self.rows():
            report.rows += 1
            try:
                if isinstance(row, DataError):
                    raise row
                samples = self.samples_of(row, where, seen, report)
            except DataError as error:
                if self.options.on_bad_row == "raise":
                    raise
                report.skip(error)
                continue
            report.samples += len(samples)
            yield from samples
        self.finish(report)

    def samples_of(
        self, row: Row, where: RowRef, seen: SeenRows, report: LoadReport
    ) -> list[DataSample]:
        """The samples of one row, counted as seen. Raises DataError for a row that does not fit."""
        if self.options.columns:
            row = self.options.renamed(row, where)
        samples = _converted(self.converter, row, where)
        content = row_bytes(row, where)
        for part, sample in enumerate(samples):
            if sample.source is None:
                sample.source = self.name
            seen.count(sample.unique_id, content, part, report)
            if not sample.unique_id:
                sample.unique_id = sample.content_hash()
        return samples

    def rows(self) -> Iterator[RowItem]:
        """The rows of the source before conversion; with `limit`, a seeded sample of them."""
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

    def finish(self, report: LoadReport) -> None:
        """Logs the report after the last row. Raises DataError without a row or a usable one."""
        if not report.rows:
            raise DataError(
                f"loader '{self.name}': no rows in {self.origin().get('path', 'the data')}"
            )
        if report.skipped == report.rows:
            raise DataError(
                f"loader '{self.name}': no usable row among {report.rows}; first: "
                f"{report.messages[0]}"
            )
        if report.skipped or report.id_collisions:
            logger.warning("loader '{}': {}", self.name, "; ".join(report.notes()))


class LocalDataLoader(DataLoader):
    """Loads what the config key `path` (file or folder) or `data` (frame, `datasets.Dataset` or
    list of dicts) names.

    `records_key` names the list inside a JSON file that is one object; `encoding` and `separator`
    are those of CSV files, `sheet` and `header_row` (from 1) those of workbooks. What is not given
    is found.
    """

    strategy = "local"
    own_keys = {
        **dict.fromkeys(("records_key", "encoding", "separator", "sheet"), TEXT),
        "header_row": (is_count, "be a whole number of at least 1,"),
    }

    def check(self, config: Mapping[str, Any]) -> None:
        """ConfigError unless exactly one of `path` and `data` is given and the keys are known."""
        check_keys(config, {"path", "data", *self.own_keys, *COMMON_KEYS}, self.strategy)
        path, data = config.get("path"), config.get("data")
        if (path is None) == (data is None):
            given = "both" if path is not None else "neither"
            raise ConfigError(
                f"loader '{self.name}' needs the config key 'path' or 'data', found {given}"
            )
        if path is not None and (not isinstance(path, (str, os.PathLike)) or not str(path)):
            raise ConfigError(
                f"config key 'path' must be a file or folder, found {path!r}; tables go into 'data'"
            )
        check_values(config, self.own_keys)

    def sources(self) -> list[RowSource]:
        """The file, or all data files of the folder in sorted order, or the data in memory."""
        if self.config.get("data") is not None:
            return [memory_source(self.config["data"])]
        return file_sources(Path(self.config["path"]).expanduser(), self.reading())

    def reading(self) -> ReadOptions:
        """How files are to be read."""
        return ReadOptions(**{key: self.config.get(key) for key in self.own_keys})

    def origin(self) -> dict[str, Any]:
        """The path, where there is one."""
        return {"path": str(self.config["path"])} if self.config.get("path") is not None else {}


class HuggingFaceDataLoader(DataLoader):
    """Loads one split of a hub data set: config key `path` (default: the loader's name),
    `dataset_config`, `split`.

    `parts` names further data sets that are read after it in the same way, and the split `*` stands
    for all splits. Without `split` the data set must have exactly one. `streaming` reads without
    downloading first; with `limit` it still passes over the whole split, for a fair sample. Code
    shipped with a data set is never run.
    """

    strategy = "huggingface"
    own_keys = {
        **dict.fromkeys(("path", "dataset_config", "split", "revision"), TEXT),
        "parts": (
            lambda parts: all(isinstance(part, str) for part in parts),
            "be a list of names of hub data sets,",
        ),
        "streaming": (lambda given: isinstance(given, bool), "be true or false,"),
    }

    def sources(self) -> list[RowSource]:
        """The wanted split, of `path` and then of each of `parts`; with the split `*` all of them.

        Raises MissingExtra without `datasets`, DataError when the hub does not give it.
        """
        try:
            import datasets
        except ImportError as error:
            raise MissingExtra("datasets", "hub", "Loading from the Hugging Face hub") from error
        return [
            source
            for path in (self._path(), *self.config.get("parts", ()))
            for source in self._splits_of(datasets, path)
        ]

    def _splits_of(self, datasets: Any, path: str) -> list[HubSource]:
        split = self.config.get("split")
        try:
            dataset = datasets.load_dataset(
                path,
                self.config.get("dataset_config"),
                split=None if split == EVERY_SPLIT else split,
                revision=self.config.get("revision"),
                streaming=self.config.get("streaming", False),
            )
        # The hub client raises errors of four packages, and all of them mean the same here.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            raise DataError(
                f"hub data set '{path}' cannot be loaded: {reason}. Without a network, give files "
                f"that were downloaded elsewhere."
            ) from error
        splits = dataset if split in (None, EVERY_SPLIT) else {split: dataset}
        if split is None and len(splits) != 1:
            raise ConfigError(
                f"hub data set '{path}' has several splits; name one in config key 'split'; "
                f"{nearest('', map(str, splits))}"
            )
        return [HubSource(rows, f"{path}[{name}]") for name, rows in splits.items()]

    def _path(self) -> str:
        return str(self.config.get("path") or self.name)

    def origin(self) -> dict[str, Any]:
        """Hub name, configuration, split and revision."""
        keys = ("dataset_config", "split", "revision")
        return {
            "path": self._path(),
            **{key: self.config[key] for key in keys if self.config.get(key) is not None},
        }


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the cyclic garbage collector, which would scan all samples again and again.

    Threads may overlap: each one that saw the collector running restarts it.
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
        if not ALWAYS_VALUES.issuperset(map(type, row.values())):
            row = without_nan(row)
        converted = converter.convert(row, where)
    except DataError:
        raise
    except ValidationError as error:
        raise DataError(f"{where}, at {misfit(error)}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        name = type(converter).__name__
        raise DataError(
            f"{where}: {name} failed with {type(error).__name__}: {str(error)[:200]}"
        ) from error
    samples = converted if isinstance(converted, list) else [converted]
    if not all(isinstance(sample, DataSample) for sample in samples):
        raise DataError(
            f"{where}: {type(converter).__name__} must return samples, found "
            f"{type(converted).__name__}"
        )
    return samples


def row_bytes(row: dict[str, Any], where: object) -> bytes:
    """Canonical bytes of a row: equal for rows with equal columns. DataError for text that is no
    Unicode.
    """
    try:
        return orjson.dumps(row, option=_JSON_OPTIONS, default=repr)
    except TypeError as error:
        if "surrogate" in str(error) or "UTF-8" in str(error):
            raise DataError(
                f"{where}: holds half a surrogate pair, which is no valid Unicode text"
            ) from None
        return repr(sorted(row.items(), key=lambda item: str(item[0]))).encode(
            "utf-8", "backslashreplace"
        )


def _reservoir(sources: list[RowSource], limit: int, seed: int) -> list[RowItem]:
    """A uniform sample of `limit` rows in order, in one pass over sources that do not know their
    size.
    """
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
    """A loader for a data set: `loader.run()` gives a BaseDataSet, `loader.stream()` the samples
    one by one.

    Args:
        name: Name of the data set.
        load_strategy_type: `local` (file, folder, frame, data set, list) or `huggingface` (needs
            the extra `hub`).
        data_source: The format, see `DataConverterRegistry.list_sources()`; `*` guesses it from the
            column names.
        config: `path` or `data`; `limit` and `seed` for a seeded sample of rows in their original
            order; `on_bad_row` (`raise` or `skip`); `columns` ({wanted: actual}, None drops one);
            for local JSON `records_key`, for CSV `encoding` and `separator`, for workbooks `sheet`
            and `header_row`; for huggingface `path`, `dataset_config`, `split`, `revision`,
            `streaming`.
        metadata: Kept in the data set's metadata.

    Raises:
        ConfigError: Unknown strategy, format or config key, with the nearest names; a value that
            does not fit.
    """
    loaders = {kind.strategy: kind for kind in (LocalDataLoader, HuggingFaceDataLoader)}
    loader = loaders.get(load_strategy_type)
    if loader is None:
        raise ConfigError(
            f"unknown load strategy '{load_strategy_type}'; "
            f"{nearest(str(load_strategy_type), loaders)}"
        )
    return loader(name, data_source, config or {}, metadata)
