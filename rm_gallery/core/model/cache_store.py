"""Which cache of replies this process uses: the user's cache folder, another folder, or none."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rm_gallery.core.engine import loop as library_loop
from rm_gallery.core.engine.calls.cache import CallCache
from rm_gallery.core.utils.log import logger

VARIABLE = "RM_GALLERY_CACHE"
"""Environment variable: `off`, or the folder to keep replies in."""

_lock = threading.Lock()
_open: dict[str, CallCache] = {}


def get() -> CallCache | None:
    """The cache, opened at first use; None when the environment switches it off."""
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "off":
        return None
    cache = _open.get(setting)
    if cache is None:
        with _lock:
            cache = _open.get(setting)
            if cache is None:
                cache = CallCache(Path(setting) if setting else None, on_warning=logger.warning)
                _open[setting] = cache
    return cache


async def close() -> None:
    """Write what is pending and close; the next use opens it again."""
    caches = list(_open.values())
    _open.clear()
    for cache in caches:
        cache.close()


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _open.clear()


library_loop.at_close(close)
library_loop.after_fork(_forget)
