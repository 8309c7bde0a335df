"""Imports every module of the package; one that needs a package of an extra may refuse, for that reason alone."""

from __future__ import annotations

import importlib
import pkgutil

import rm_gallery
from rm_gallery.core.utils.errors import MissingExtra


def main() -> int:
    """Import all, and say how many."""
    done, refused = 0, []
    for module in pkgutil.walk_packages(rm_gallery.__path__, "rm_gallery."):
        try:
            importlib.import_module(module.name)
            done += 1
        except MissingExtra as error:
            refused.append(f"{module.name}: {error}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("rm_gallery"):
                raise
            refused.append(f"{module.name}: {error}")
    print(f"{done} modules are imported, {len(refused)} need what is not installed", *refused, sep="\n  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
