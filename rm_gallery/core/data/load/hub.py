"""Loading from the Hugging Face hub through the `datasets` package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rm_gallery.core.data.load.base import COMMON_KEYS, DataLoader, check_keys
from rm_gallery.core.data.load.fields import RowRef, nearest
from rm_gallery.core.data.load.readers import RowItem, RowSource, plain
from rm_gallery.core.utils.errors import ConfigError, DataError, MissingExtra


class HubSource:
    """One split of a hub data set; a streamed one does not know its size."""

    def __init__(self, split: Any, name: str) -> None:
        self.split = split
        self.name = name

    def count(self) -> int | None:
        """Number of rows, None for a streamed split."""
        return len(self.split) if hasattr(self.split, "__len__") else None

    def rows(self, keep: Sequence[int] | None = None) -> Iterator[RowItem]:
        """Rows in order, with plain Python values."""
        chosen = self.split if keep is None else self.split.select(list(keep))
        for number, row in enumerate(chosen):
            yield RowRef(self.name, (number if keep is None else keep[number]) + 1), plain(dict(row))


class HuggingFaceDataLoader(DataLoader):
    """Loads one split of a hub data set: config key `path` (default: the loader's name), `dataset_config`, `split`.

    Without `split` the data set must have exactly one. `streaming` reads without downloading first; with `limit` it
    still passes over the whole split, for a fair sample. Code shipped with a data set is never run.
    """

    strategy = "huggingface"
    config_keys = COMMON_KEYS | {"path", "dataset_config", "split", "revision", "streaming"}

    def check(self, config: Mapping[str, Any]) -> None:
        """ConfigError for unknown keys and values of the wrong type."""
        check_keys(config, self.config_keys, self.strategy)
        for key in ("path", "dataset_config", "split", "revision"):
            if config.get(key) is not None and not isinstance(config[key], str):
                raise ConfigError(f"config key '{key}' must be text, found {config[key]!r}")
        if not isinstance(config.get("streaming", False), bool):
            raise ConfigError(f"config key 'streaming' must be true or false, found {config['streaming']!r}")

    def sources(self) -> list[RowSource]:
        """The wanted split; MissingExtra without `datasets`, DataError when the hub does not give it."""
        try:
            import datasets
        except ImportError as error:
            raise MissingExtra("datasets", "hub", "Loading from the Hugging Face hub") from error
        path = self._path()
        try:
            found = datasets.load_dataset(
                path,
                self.config.get("dataset_config"),
                split=self.config.get("split"),
                revision=self.config.get("revision"),
                streaming=self.config.get("streaming", False),
            )
        # The hub client raises errors of four packages, and all of them mean the same here.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            raise DataError(f"hub data set '{path}' cannot be loaded: {reason}") from error
        return [HubSource(*self._only_split(found, path))]

    def _only_split(self, found: Any, path: str) -> tuple[Any, str]:
        split = self.config.get("split")
        if split is not None:
            return found, f"{path}[{split}]"
        if len(found) != 1:
            names = [str(name) for name in found]
            raise ConfigError(
                f"hub data set '{path}' has several splits; name one in config key 'split'; {nearest('', names)}"
            )
        name = next(iter(found))
        return found[name], f"{path}[{name}]"

    def _path(self) -> str:
        return str(self.config.get("path") or self.name)

    def origin(self) -> dict[str, Any]:
        """Hub name, configuration, split and revision."""
        keys = ("dataset_config", "split", "revision")
        return {"path": self._path(), **{key: self.config[key] for key in keys if self.config.get(key) is not None}}
