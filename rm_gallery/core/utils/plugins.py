"""What installed packages add by entry points: `rm_gallery.rewards`, `.graders`, `.converters`,
`.benchmarks`, `.providers`, `.adapters`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from loguru import logger

from rm_gallery.core.utils.errors import ConfigError


def entries(group: str) -> dict[str, str]:
    """What packages add to a group such as "rewards": name -> "module:attribute", not imported; the
    first of a name counts.
    """
    targets: dict[str, str] = {}
    for point in metadata.entry_points(group=f"rm_gallery.{group}"):
        targets.setdefault(point.name, point.value)
    return targets


def imported(target: str, what: str) -> Any:
    """What stands at "module:attribute"; ConfigError, which names `what` wants it, where it cannot
    be imported.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The {what} names {target!r}, which cannot be imported: {error}"
        ) from error


def plugins(group: str) -> Iterator[tuple[str, Any]]:
    """Name and object of each that can be imported; of others a warning says why, so that one
    package does not stop the rest.
    """
    for name, target in entries(group).items():
        try:
            yield (
                name,
                imported(target, f"{group.removesuffix('s')} '{name}' of an installed package"),
            )
        except ConfigError as error:
            logger.warning("{}", error)
