"""What earlier versions imported from here stands in `uncertainty` and `columns` now."""

from typing import Any

from rm_gallery.core.utils.compat import earlier


def __getattr__(name: str) -> Any:
    return earlier(__name__, name)
