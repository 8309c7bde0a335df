"""Loading from files, folders, pandas frames and lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rm_gallery.core.data.load.base import DataLoader
from rm_gallery.core.data.load.config import COMMON_KEYS, check_keys
from rm_gallery.core.data.load.readers import RowSource, file_sources, memory_source
from rm_gallery.core.utils.errors import ConfigError


class LocalDataLoader(DataLoader):
    """Loads what the config key `path` (file or folder) or `data` (frame or list of dicts) names.

    `records_key` names the list inside a JSON file that is one object.
    """

    strategy = "local"
    config_keys = COMMON_KEYS | {"path", "data", "records_key"}

    def check(self, config: Mapping[str, Any]) -> None:
        """ConfigError unless exactly one of `path` and `data` is given and the keys are known."""
        check_keys(config, self.config_keys, self.strategy)
        path, data = config.get("path"), config.get("data")
        if (path is None) == (data is None):
            found = "both" if path is not None else "neither"
            raise ConfigError(f"loader '{self.name}' needs the config key 'path' or 'data', found {found}")
        if path is not None and (not isinstance(path, (str, os.PathLike)) or not str(path)):
            raise ConfigError(f"config key 'path' must be a file or folder, found {path!r}; tables go into 'data'")
        if not isinstance(config.get("records_key", ""), str):
            raise ConfigError(f"config key 'records_key' must be text, found {config['records_key']!r}")

    def sources(self) -> list[RowSource]:
        """The file, or all data files of the folder in sorted order, or the data in memory."""
        if self.config.get("data") is not None:
            return [memory_source(self.config["data"])]
        return file_sources(Path(self.config["path"]).expanduser(), self.config.get("records_key"))

    def origin(self) -> dict[str, Any]:
        """The path, where there is one."""
        return {"path": str(self.config["path"])} if self.config.get("path") is not None else {}
